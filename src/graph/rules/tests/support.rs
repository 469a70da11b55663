//! Rules that replace what they match leave every class an e-node that can be computed without the class itself.

use super::{Sample, assert_close, cases, inputs, window};
use crate::codegen::Target;
use crate::expr::{BinaryOp, UnaryOp};
use crate::graph::egraph::convert::{Loaded, load};
use crate::graph::egraph::network::Network;
use crate::graph::egraph::saturate::{Budget, saturate};
use crate::graph::egraph::support::{self, is_complete};
use crate::graph::egraph::{EgraphOptions, Optimized, optimize};
use crate::graph::fold::memo::Memo;
use crate::graph::ir::ValueId;
use crate::graph::op::{Layout, Op};
use crate::graph::rules;
use crate::graph::rules::pattern::{Keep, Rule, rewrite};
use crate::runtime::DType;

const BUDGET: Budget = Budget { iterations: 6, nodes: 2000, rewrites: usize::MAX };

fn assert_complete(s: &Sample, rules: &[Rule], what: &str) {
    let mut network = load(&s.graph).unwrap().network;
    saturate(&mut network, rules, BUDGET);
    assert!(is_complete(&network), "{what}: a class has no e-node left\n{}", s.graph);
}

/// The value again, in a form that some rule turns back.
fn disguise(s: &mut Sample, v: ValueId, how: usize) -> ValueId {
    let rank = s.graph.value(v).ty.shape.len();
    let reversed: Vec<usize> = (0..rank).rev().collect();
    // A comparison can be moved, but not computed with.
    let how = if s.graph.value(v).ty.dtype == DType::Bool { 2 * how } else { how };
    match how % 4 {
        0 => {
            let t = s.transpose(v, &reversed);
            s.transpose(t, &reversed)
        }
        1 => {
            let t = s.transpose(v, &reversed);
            s.unary(UnaryOp::Neg, t)
        }
        2 => {
            let shape = s.graph.value(v).ty.shape.clone();
            let flat = s.reshape(v, &[shape.iter().product()]);
            s.reshape(flat, &shape)
        }
        _ => {
            let dtype = s.graph.value(v).ty.dtype;
            let one = s.n(1.0);
            let one = if dtype == DType::F32 { one } else { s.op(Op::Cast(dtype), &[one]) };
            s.mul(v, one)
        }
    }
}

#[test]
fn pairs_of_replacing_rules_leave_every_class_computable() {
    let table = rules::all(Some(4));
    let (replacing, beside): (Vec<Rule>, Vec<Rule>) = table.into_iter().partition(|r| r.keep != Keep::Beside);
    let cases = cases::all();
    let case = |rule: &Rule| cases.iter().find(|c| c.rule == rule.name && c.applies()).expect("a case");
    for (i, a) in replacing.iter().enumerate() {
        for (j, b) in replacing.iter().enumerate().skip(i) {
            let mut s = Sample { seed: (i * replacing.len() + j) as u64, ..Sample::default() };
            let roots = [case(a).build(&mut s), case(b).build(&mut s)];
            let disguised = [disguise(&mut s, roots[0], i + j), disguise(&mut s, roots[1], i ^ j)];
            s.graph.outputs = disguised.to_vec();
            let mut rules = vec![a.clone(), b.clone()];
            rules.extend(beside.iter().cloned());
            assert_complete(&s, &rules, &format!("{} and {}", a.name, b.name));
        }
    }
}

#[test]
fn all_rules_may_replace() {
    let destructive = |mut rule: Rule| {
        rule.keep = Keep::Instead;
        rule
    };
    let rules: Vec<Rule> = rules::all(Some(4)).into_iter().map(destructive).collect();
    for (i, case) in cases::all().iter().filter(|case| case.applies()).enumerate() {
        let mut s = Sample::default();
        let root = case.build(&mut s);
        s.graph.outputs = vec![disguise(&mut s, root, i), root];
        assert_complete(&s, &rules, &case.rule);
    }
}

/// Two spellings of one function.
const SPELLINGS: [(&str, &str); 9] = [
    ("(add ?x ?y)", "(sub ?x (neg ?y))"),
    ("(sub ?x ?y)", "(add ?x (neg ?y))"),
    ("(add ?x ?x)", "(mul ?x 2)"),
    ("(mul ?x ?x)", "(pow ?x 2)"),
    ("(max ?x ?y)", "(neg (min (neg ?x) (neg ?y)))"),
    ("(abs ?x)", "(max ?x (neg ?x))"),
    ("(neg ?x)", "(sub 0 ?x)"),
    ("(silu ?x)", "(mul ?x (sigmoid ?x))"),
    ("(sigmoid ?x)", "(div 1 (add 1 (exp (neg ?x))))"),
];

fn random_graph(s: &mut Sample) {
    let mut values = vec![s.x(&[3]), s.x(&[3]), s.n(2.0)];
    for _ in 0..8 {
        let mut number = |below: usize| ((s.random() + 1.0) / 2.0 * below as f32) as usize % below;
        let (kind, a, b) = (number(9), values[number(values.len())], values[number(values.len())]);
        let v = match kind {
            0 => s.unary(UnaryOp::Neg, a),
            1 => s.unary(UnaryOp::Abs, a),
            2 => s.op(Op::Silu, &[a]),
            3 => s.op(Op::Sigmoid, &[a]),
            4 => s.binary(BinaryOp::Sub, a, b),
            5 => s.binary(BinaryOp::Max, a, b),
            6 => s.add(a, a),
            7 => s.mul(a, b),
            _ => s.add(a, b),
        };
        values.push(v);
    }
    s.graph.outputs = values[3..].to_vec();
}

#[test]
fn inverse_rules_leave_every_class_computable() {
    let pair = |(left, right): (&str, &str)| {
        [rewrite(Keep::Instead, "there", left, right), rewrite(Keep::IfSole, "back", right, left)]
    };
    for (i, &a) in SPELLINGS.iter().enumerate() {
        for (j, &b) in SPELLINGS.iter().enumerate().skip(i) {
            for seed in 0..4 {
                let mut s = Sample { seed: (100 * i + 10 * j + seed) as u64, ..Sample::default() };
                random_graph(&mut s);
                let mut rules: Vec<Rule> = pair(a).into_iter().chain(pair(b)).collect();
                if seed % 2 == 1 {
                    rules.iter_mut().for_each(|r| r.keep = Keep::Instead);
                }
                rules.push(rewrite(Keep::Instead, "twice", "(neg (neg ?x))", "?x"));
                assert_complete(&s, &rules, &format!("{a:?} and {b:?}"));
            }
        }
    }
}

fn assert_optimizes(s: &mut Sample, root: ValueId) {
    s.graph.outputs = vec![root];
    let given = inputs(s);
    let Optimized { graph: out, report, .. } =
        optimize(&s.graph, &Target::avx512(), Default::default(), 1e-4, 2, &EgraphOptions::default(), &Memo::default())
            .unwrap();
    assert!(report.stop == crate::graph::egraph::saturate::Stop::Saturated, "{report}");
    assert_close(
        &crate::graph::interpret::run(&s.graph, &given).unwrap(),
        &crate::graph::interpret::run(&out, &given).unwrap(),
        "inverse",
    );
}

/// A transposition of a transposition and a product that reads one of them transposed need each other.
#[test]
fn a_product_of_a_matrix_transposed_twice() {
    for shape in [&[4, 6][..], &[2, 3, 4]] {
        let mut s = Sample::default();
        let x = s.x(shape);
        let mut perm: Vec<usize> = (0..shape.len()).collect();
        perm.swap(shape.len() - 2, shape.len() - 1);
        let a = s.transpose(x, &perm);
        let b = s.transpose(a, &perm);
        let w = s.c(&[shape[shape.len() - 1], 5]);
        let root = s.matmul(b, w, false, false);
        assert_optimizes(&mut s, root);
    }
}

/// The front of a speech model.
#[test]
fn a_product_after_a_convolution_over_time() {
    let mut s = Sample::default();
    let x = s.x(&[1, 4, 20]);
    let w = s.c(&[8, 4, 3]);
    let conv = s.op(Op::Conv { window: window(&[3], 1, 1), group: 1, layout: Layout::Nchw }, &[x, w]);
    let turned = s.transpose(conv, &[0, 2, 1]);
    let rows = s.reshape(turned, &[20, 8]);
    let w = s.c(&[8, 5]);
    let root = s.matmul(rows, w, false, false);
    assert_optimizes(&mut s, root);
}

/// The e-graph of x·1 and -x, -(x·1), and the classes of the two negations.
fn negations() -> (Network, egg::Id, egg::Id) {
    let mut s = Sample::default();
    let x = s.x(&[3]);
    let one = s.n(1.0);
    let y = s.mul(x, one);
    let (a, b) = (s.unary(UnaryOp::Neg, x), s.unary(UnaryOp::Neg, y));
    s.graph.outputs = vec![a, b, y];
    let Loaded { mut network, class, .. } = load(&s.graph).unwrap();
    network.outputs.dedup();
    (network, class[a.0 as usize], class[b.0 as usize])
}

#[test]
fn what_is_replaced_everywhere_comes_back() {
    let (mut network, a, _) = negations();
    let term = network.egraph.id_to_node(a).clone();
    network.replace(a);
    network.rebuild();
    assert!(!network.is_current(&term) && !is_complete(&network));
    support::restore(&mut network);
    assert!(network.is_current(&term) && is_complete(&network));
}

#[test]
fn a_replaced_e_node_takes_no_current_one_along() {
    for replaced_first in [true, false] {
        let (mut network, a, b) = negations();
        let (replaced, current) = if replaced_first { (a, b) } else { (b, a) };
        let operand = |network: &Network, id| network.egraph.id_to_node(id).children[0];
        network.replace(replaced);
        let (x, y) = (operand(&network, a), operand(&network, b));
        network.egraph.union(x, y);
        network.rebuild();
        assert_eq!(network.find(a), network.find(b));
        let term = network.egraph.id_to_node(current).clone();
        assert!(network.is_current(&term));
        network.replace(current);
        network.rebuild();
        assert!(!network.is_current(&term));
    }
}
