//! Whole graphs through the rules: layouts, kernels, limits, options.

use super::{Sample, assert_close, inputs, pool, spelled_norm, turned, window};
use crate::codegen::Target;
use crate::expr::{BinaryOp, CompareOp};
use crate::graph::egraph::network::{Head, Term};
use crate::graph::egraph::{EgraphOptions, Optimized, optimize};
use crate::graph::extract::Outcome;
use crate::graph::fold::memo::Memo;
use crate::graph::ir::{Node, Source, ValueId};
use crate::graph::op::{Layout, Op, PoolKind, ReduceOp};
use crate::graph::rules;
use crate::graph::rules::algorithm::Algorithm;
use crate::graph::rules::index::Index;
use crate::graph::rules::pattern::Rule;
use egg::Id;

/// A residual network in small: convolutions with batch normalisation, a squeeze-and-excitation gate, a concatenation.
fn small_network(s: &mut Sample) -> ValueId {
    let bn = |s: &mut Sample, x: ValueId| {
        let (a, b) = (s.c(&[32, 1, 1]), s.c(&[32, 1, 1]));
        let m = s.mul(x, a);
        s.add(m, b)
    };
    let conv = |s: &mut Sample, x: ValueId, channels: i64, kernel: i64| {
        let w = s.c(&[32, channels, kernel, kernel]);
        s.op(Op::Conv { window: window(&[kernel, kernel], 1, kernel / 2), group: 1, layout: Layout::Nchw }, &[x, w])
    };
    let x = s.x(&[1, 3, 12, 12]);
    let c = conv(s, x, 3, 3);
    let b = bn(s, c);
    let three = s.n(3.0);
    let shifted = s.add(b, three);
    let clipped = s.clip(shifted, 0.0, 6.0, true);
    let p = s.mul(b, clipped);
    let six = s.n(6.0);
    let h = s.binary(BinaryOp::Div, p, six);
    let d = conv(s, h, 32, 3);
    let d = bn(s, d);
    let mean = s.reduce(ReduceOp::Mean, d, &[2, 3], true);
    let e = conv(s, mean, 32, 1);
    let g = s.op(Op::Sigmoid, &[e]);
    let gated = s.mul(d, g);
    let sum = s.add(gated, h);
    let pooled = pool(s, sum, PoolKind::Max, 2, 2, 0);
    let joined = s.op(Op::Concat { axis: 1 }, &[pooled, pooled]);
    let m = s.reduce(ReduceOp::Mean, joined, &[2, 3], true);
    s.reshape(m, &[1, 64])
}

#[test]
fn a_convolutional_network_runs_in_channels_last_with_one_transposition() {
    let mut s = Sample::default();
    let root = small_network(&mut s);
    s.graph.outputs = vec![root];
    let given = inputs(&mut s);
    let Optimized { graph: out, report, .. } =
        optimize(&s.graph, &Target::avx512(), Algorithm::Direct, 1e-4, 2, &EgraphOptions::default(), &Memo::default())
            .unwrap();
    let count = |f: &dyn Fn(&Op) -> bool| out.nodes.iter().filter(|n| f(&n.op)).count();
    assert_eq!(count(&|op| matches!(op, Op::Transpose { .. })), 1, "{out}");
    assert_eq!(count(&|op| matches!(op, Op::Conv { layout: Layout::Nhwc, .. })), 3, "{out}{report}");
    assert_eq!(count(&|op| matches!(op, Op::HardSwish)), 1, "{out}");
    // Normalisations went into the weights: what is left is the gate and the residual sum.
    assert_eq!(count(&|op| matches!(op, Op::Binary(BinaryOp::Mul))), 1, "{out}");
    assert_eq!(count(&|op| matches!(op, Op::Binary(BinaryOp::Add))), 1, "{out}");
    assert!(report.extraction.gap().is_some_and(|g| g < 0.05), "{report}");
    assert_close(
        &crate::graph::interpret::run(&s.graph, &given).unwrap(),
        &crate::graph::interpret::run(&out, &given).unwrap(),
        "network",
    );
}

#[test]
fn comparisons_meet_the_rules_of_elementwise_operators() {
    use CompareOp::{Eq, Ge, Gt, Le, Lt, Ne};
    for op in [Eq, Ne, Lt, Le, Gt, Ge] {
        let mut s = Sample::default();
        let image = turned(&mut s);
        let row = s.x(&[3]);
        let stretched = s.op(Op::Expand { shape: vec![5, 3] }, &[row]);
        let condition = s.op(Op::Compare(op), &[image, stretched]);
        let image = s.op(Op::Select, &[condition, image, image]);
        let chosen = s.op(Op::Select, &[condition, image, stretched]);
        let (mut network, _) = s.network(chosen);
        let rules: Vec<Rule> = rules::all(None);
        let mut index = Index::new(&rules);
        for (word, name) in [op.name(), "select"]
            .into_iter()
            .flat_map(|w| ["elementwise-transpose", "expand-operand"].map(|name| (w, name)))
        {
            let nodes: Vec<(usize, Term)> = network.egraph.nodes().iter().cloned().enumerate().collect();
            let applies = nodes.into_iter().filter(|(_, t)| is_word(t, word)).any(|(id, term)| {
                let rule = index.candidates(&term).iter().map(|&r| &rules[r]).find(|r| r.name == name);
                rule.is_some_and(|r| !r.apply(&mut network, Id::from(id), &term).is_empty())
            });
            assert!(applies, "{name} at {word}");
        }
    }
}

fn is_word(term: &Term, word: &str) -> bool {
    matches!(&term.head, Head::Op(op) if op.mnemonic() == word)
}

/// An activation spelled out by a comparison, between two convolutions, runs in channels-last like the others.
#[test]
fn a_selected_activation_needs_no_transposition() {
    use CompareOp::{Ge, Gt, Le, Lt};
    for op in [Lt, Le, Gt, Ge] {
        let mut s = Sample::default();
        let mut x = s.x(&[1, 32, 24, 24]);
        let (zero, slope) = (s.n(0.0), s.n(0.1));
        for _ in 0..2 {
            let w = s.c(&[32, 32, 3, 3]);
            let conv = Op::Conv { window: window(&[3, 3], 1, 1), group: 1, layout: Layout::Nchw };
            let y = s.op(conv, &[x, w]);
            let positive = s.op(Op::Compare(op), &[y, zero]);
            let scaled = s.mul(y, slope);
            x = s.op(Op::Select, &[positive, y, scaled]);
        }
        let mean = s.reduce(ReduceOp::Mean, x, &[2, 3], false);
        s.graph.outputs = vec![mean];
        let Optimized { graph: out, report, .. } = optimize(
            &s.graph,
            &Target::avx512(),
            Algorithm::Direct,
            1e-4,
            2,
            &EgraphOptions::default(),
            &Memo::default(),
        )
        .unwrap();
        let count = |f: &dyn Fn(&Op) -> bool| out.nodes.iter().filter(|n| f(&n.op)).count();
        assert_eq!(count(&|op| matches!(op, Op::Conv { layout: Layout::Nhwc, .. })), 2, "{out}{report}");
        assert_eq!(count(&|op| matches!(op, Op::Transpose { .. })), 1, "{out}{report}");
    }
}

/// A normalisation that was spelled out holds no tensor of ones.
#[test]
fn a_recognised_norm_has_small_constants() {
    let mut s = Sample::default();
    let root = spelled_norm(&mut s, false);
    let two = s.n(2.0);
    let scaled = s.mul(root, two);
    let shifted = s.add(scaled, two);
    s.graph.outputs = vec![shifted];
    let given = inputs(&mut s);
    let Optimized { graph: out, .. } =
        optimize(&s.graph, &Target::avx512(), Default::default(), 1e-4, 2, &EgraphOptions::default(), &Memo::default())
            .unwrap();
    assert!(matches!(out.nodes[..], [Node { op: Op::LayerNorm { .. }, .. }]), "{out}");
    let constants = out.values.iter().filter(|v| matches!(v.source, Source::Constant(_)));
    assert!(constants.clone().count() > 0 && constants.into_iter().all(|v| v.ty.elements() == 1), "{out}");
    assert_close(
        &crate::graph::interpret::run(&s.graph, &given).unwrap(),
        &crate::graph::interpret::run(&out, &given).unwrap(),
        "norm",
    );
}

#[test]
fn names_of_rules_are_checked() {
    let mut s = Sample::default();
    let root = small_network(&mut s);
    s.graph.outputs = vec![root];
    let without = |name: &str| {
        let options = EgraphOptions { without: vec![name.into()], ..EgraphOptions::default() };
        optimize(&s.graph, &Target::avx2(), Default::default(), 1e-4, 2, &options, &Memo::default()).map(|o| o.report)
    };
    for name in rules::names() {
        let report = without(name).unwrap();
        assert!(report.rules.iter().all(|(fired, _)| *fired != name), "{report}");
    }
    let message = without("conv-nwhc").unwrap_err().to_string();
    assert!(message.contains("`conv-nwhc`") && message.contains("`conv-nhwc`"), "{message}");
}

#[test]
fn rewriting_stops_after_the_number_asked_for() {
    let mut s = Sample::default();
    let root = small_network(&mut s);
    s.graph.outputs = vec![root];
    let given = inputs(&mut s);
    let expected = crate::graph::interpret::run(&s.graph, &given).unwrap();
    let run = |stop_after| {
        let options = EgraphOptions { stop_after, ..EgraphOptions::default() };
        optimize(&s.graph, &Target::avx2(), Default::default(), 1e-4, 2, &options, &Memo::default()).unwrap()
    };
    let all: usize = run(None).report.rules.iter().map(|r| r.1).sum();
    for n in (0..all).step_by(7) {
        let Optimized { graph: out, report, .. } = run(Some(n));
        assert_eq!(report.rules.iter().map(|r| r.1).sum::<usize>(), n, "{report}");
        assert_close(&expected, &crate::graph::interpret::run(&out, &given).unwrap(), "stopped");
    }
}

#[test]
fn blocks_of_channels_are_chosen_where_they_are_cheapest() {
    let mut s = Sample::default();
    let root = small_network(&mut s);
    s.graph.outputs = vec![root];
    let given = inputs(&mut s);
    let channels_last: Vec<String> = ["conv-nhwc", "max-pool-nhwc"].map(String::from).to_vec();
    let run = |blocked, without: &[String]| {
        let options = EgraphOptions { blocked, without: without.to_vec(), ..EgraphOptions::default() };
        let Optimized { graph: out, report, .. } =
            optimize(&s.graph, &Target::avx512(), Default::default(), 1e-4, 2, &options, &Memo::default()).unwrap();
        assert_close(
            &crate::graph::interpret::run(&s.graph, &given).unwrap(),
            &crate::graph::interpret::run(&out, &given).unwrap(),
            "blocks",
        );
        let blocked = |n: &&Node| matches!(n.op, Op::Conv { layout: Layout::Blocked(16), .. });
        (out.nodes.iter().filter(blocked).count(), report.extraction.chosen_ns, out)
    };
    let (neither, plain, _) = run(false, &channels_last);
    let (count, in_blocks, out) = run(true, &channels_last);
    assert!(neither == 0 && count >= 1 && in_blocks < plain, "{count}: {in_blocks} and {plain}\n{out}");
    // The gate, the sum and the pooling stay in blocks: one change of layout leads into them.
    assert_eq!(out.nodes.iter().filter(|n| matches!(n.op, Op::Block { .. })).count(), 1, "{out}");
    assert!(!out.nodes.iter().any(|n| matches!(n.op, Op::Unblock { .. })), "{out}");
    let (_, both, _) = run(true, &[]);
    assert!(both <= in_blocks && both <= run(false, &[]).1);
}

#[test]
fn the_same_graph_gives_the_same_result() {
    let run = || {
        let mut s = Sample::default();
        let root = small_network(&mut s);
        s.graph.outputs = vec![root];
        optimize(&s.graph, &Target::avx512(), Default::default(), 1e-4, 2, &EgraphOptions::default(), &Memo::default())
            .unwrap()
            .graph
            .to_string()
    };
    assert_eq!(run(), run());
}

#[test]
fn growth_is_limited_by_counts() {
    let mut s = Sample::default();
    let root = small_network(&mut s);
    s.graph.outputs = vec![root];
    let given = inputs(&mut s);
    for options in [
        EgraphOptions { max_iterations: 1, ..EgraphOptions::default() },
        EgraphOptions { max_ilp_variables: 0, ..EgraphOptions::default() },
        EgraphOptions { max_ilp_variables: 60, ..EgraphOptions::default() },
        EgraphOptions {
            without: rules::all(None).iter().map(|r| r.name.to_string()).collect(),
            ..EgraphOptions::default()
        },
    ] {
        let Optimized { graph: out, report, .. } =
            optimize(&s.graph, &Target::avx2(), Default::default(), 1e-4, 2, &options, &Memo::default()).unwrap();
        let windows = matches!(report.extraction.outcome, Outcome::Windows { solved, of } if solved == of && of > 2);
        assert_eq!(windows, options.max_ilp_variables == 60, "{report}");
        assert!(report.extraction.chosen_ns <= report.extraction.greedy_ns);
        assert_close(
            &crate::graph::interpret::run(&s.graph, &given).unwrap(),
            &crate::graph::interpret::run(&out, &given).unwrap(),
            "limited",
        );
    }
}
