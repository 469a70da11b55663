use super::candidate::{Candidate, Terms};
use super::greedy;
use super::kernels::{Answer, cuts};
use super::problem::Problem;
use super::program::{BinaryProgram, How, Row};
use super::rows::Rows;
use super::{ExtractionReport, from_source, work};
use crate::codegen::Target;
use crate::expr::{BinaryOp, CompareOp};
use crate::graph::builder::GraphBuilder;
use crate::graph::egraph::convert::{Loaded, load, store};
use crate::graph::egraph::saturate::{Budget, saturate};
use crate::graph::egraph::{EgraphOptions, Optimized, optimize};
use crate::graph::ir::{Graph, ValueId};
use crate::graph::op::{Layout, Op};
use crate::graph::rules;
use crate::runtime::{DType, Tensor};

fn at_least(terms: &[(usize, i32)], least: i32) -> Row {
    Row { terms: terms.to_vec(), least, equal: false }
}

/// Triangles of which each edge needs one of its ends, in a chain of which each joint needs one as well.
fn triangles(count: usize) -> BinaryProgram {
    let mut program = BinaryProgram { cost: vec![], rows: vec![] };
    for t in 0..count {
        let first = 3 * t;
        program.cost.extend([10.0, 10.0, 10.0]);
        for (a, b) in [(0, 1), (1, 2), (0, 2)] {
            program.rows.push(at_least(&[(first + a, 1), (first + b, 1)], 1));
        }
        if t > 0 {
            program.rows.push(at_least(&[(first - 1, 1), (first, 1)], 1));
        }
    }
    program
}

#[test]
fn an_integral_relaxation_is_the_answer() {
    let row = Row { terms: vec![(0, 1), (1, 1)], least: 1, equal: true };
    let program = BinaryProgram { cost: vec![3.0, 2.0], rows: vec![row] };
    let solved = program.solve(&[true, false]).unwrap();
    assert_eq!((solved.values, solved.bound, solved.how), (vec![false, true], 2.0, How::Relaxation));
}

#[test]
fn what_no_answer_is_below_is_kept() {
    let program = BinaryProgram { cost: vec![3.0, 2.0], rows: vec![at_least(&[(0, 1), (1, 1)], 1)] };
    assert_eq!(program.solve(&[false, true]).unwrap().how, How::Start);
}

#[test]
fn pieces_of_an_open_relaxation_are_solved_and_proven() {
    // A relaxation takes half of each corner; each triangle needs two whole ones.
    for count in [1, 2, 5] {
        let program = triangles(count);
        let solved = program.solve(&vec![true; 3 * count]).unwrap();
        assert!(program.holds(&solved.values));
        assert_eq!(program.total(&solved.values), 20.0 * count as f64);
        assert!(solved.bound > 20.0 * count as f64 - 1e-3, "{count}: {}", solved.bound);
        assert!(matches!(solved.how, How::Pieces(_)));
    }
}

#[test]
fn a_part_holds_the_rest() {
    let program = triangles(2);
    let part = program.part(&[2, 3], &[true, true, false, false, true, true]).unwrap();
    assert_eq!(part.cost, [10.0, 10.0]);
    let values = part.solve(&[true, true]).unwrap().values;
    assert_eq!(values.iter().filter(|v| **v).count(), 1);
}

/// The target that all programs are priced for.
fn optimized(graph: &Graph, options: &EgraphOptions) -> Optimized {
    optimize(graph, &Target::avx512(), options).unwrap()
}

/// One operator after a value; the number says which of the chain.
type Link = fn(&mut GraphBuilder, ValueId, usize) -> ValueId;

fn chain(length: usize, link: Link) -> Graph {
    let mut b = GraphBuilder::new("chain");
    let mut x = b.input("x", DType::F32, &[4, 8]);
    for i in 0..length {
        x = link(&mut b, x, i);
    }
    b.output("y", x).unwrap();
    b.build().unwrap()
}

fn scaled(b: &mut GraphBuilder, x: ValueId, i: usize) -> ValueId {
    let c = b.constant(Tensor::new(&[8], &[1.0 + i as f32; 8]));
    if i.is_multiple_of(2) { b.add(x, c).unwrap() } else { b.mul(x, c).unwrap() }
}

fn summed(b: &mut GraphBuilder, x: ValueId, i: usize) -> ValueId {
    let other = b.input(&format!("x{i}"), DType::F32, &[4, 8]);
    b.add(x, other).unwrap()
}

/// The larger of both, or the one that is no number.
fn largest(b: &mut GraphBuilder, x: ValueId, i: usize) -> ValueId {
    let other = b.input(&format!("x{i}"), DType::F32, &[4, 8]);
    let best = b.binary(BinaryOp::Max, x, other).unwrap();
    let broken = b.op(Op::Compare(CompareOp::Ne), &[other, other]).unwrap()[0];
    b.op(Op::Select, &[broken, other, best]).unwrap()[0]
}

#[test]
fn the_work_of_the_extraction_grows_with_the_graph() {
    let links: [(&str, Link); 4] =
        [("relu", |b, x, _| b.relu(x).unwrap()), ("scaled", scaled), ("summed", summed), ("largest", largest)];
    for (name, link) in links {
        let of = |length: usize| optimized(&chain(length, link), &EgraphOptions::default()).report.extraction;
        let (small, large) = (of(150), of(300));
        let gap = large.gap();
        assert!(gap.is_some_and(|g| g < 1e-3), "{name}: {large}");
        let linear = |a: usize, b: usize| b <= 2 * a + a / 4 + 100;
        assert!(linear(small.solved.0, large.solved.0), "{name}: {:?}, {:?}", small.solved, large.solved);
        assert!(linear(small.solved.1, large.solved.1), "{name}: {:?}, {:?}", small.solved, large.solved);
    }
}

/// Convolutions with a spelled-out leaky unit after each, whose factor a rule takes into other weights.
fn leaky_convolutions(count: usize) -> Graph {
    let mut b = GraphBuilder::new("leaky");
    let mut x = b.input("x", DType::F32, &[1, 4, 8, 8]);
    for i in 0..count {
        let weights: Vec<f32> = (0..144).map(|k| ((k * 7 + i) % 11) as f32 * 0.1 - 0.5).collect();
        let w = b.constant(Tensor::new(&[4, 4, 3, 3], &weights));
        let c = b.conv2d(x, w, 1, 1).unwrap();
        let (zero, slope) = (b.constant(Tensor::new(&[], &[0f32])), b.constant(Tensor::new(&[], &[0.2f32])));
        let sign = b.op(Op::Compare(CompareOp::Ge), &[c, zero]).unwrap()[0];
        let scaled = b.mul(c, slope).unwrap();
        x = b.op(Op::Select, &[sign, c, scaled]).unwrap()[0];
    }
    b.output("y", x).unwrap();
    b.build().unwrap()
}

const WORK: u64 = 4 * 4 * 9 * 64;

#[test]
fn a_convolution_is_not_computed_again_with_scaled_weights() {
    for limit in [0, 5000] {
        let options =
            EgraphOptions { max_ilp_variables: limit, without: vec!["prelu-ge".into()], ..EgraphOptions::default() };
        let Optimized { graph, report, .. } = optimized(&leaky_convolutions(4), &options);
        assert_eq!((report.extraction.source_work, report.extraction.work), (4 * WORK, 4 * WORK), "{report}");
        assert_eq!(graph.nodes.iter().filter(|n| matches!(n.op, Op::Conv { .. })).count(), 4, "{graph}");
    }
}

/// The e-graph of two leaky convolutions after some rules.
fn leaky_network(rules: Vec<rules::pattern::Rule>) -> Loaded {
    let mut loaded = load(&leaky_convolutions(2)).unwrap();
    let rules: Vec<_> = rules.into_iter().filter(|r| r.name != "prelu-ge").collect();
    saturate(&mut loaded.network, &rules, Budget { iterations: 8, nodes: 4000, rewrites: usize::MAX });
    loaded
}

#[test]
fn an_answer_with_more_multiply_adds_than_the_source_is_repaired() {
    let loaded = leaky_network(rules::clean());
    let (network, target) = (&loaded.network, Target::avx512());
    let problem = Problem::new(network, &network.outputs, &target, Terms::Current).unwrap();
    let mut rows = Rows::new(&problem);
    let (greedy, _) = greedy::solve(&problem, &mut rows).unwrap();
    // Every class that a convolution can compute is computed by one.
    let mut chosen = greedy.chosen.clone();
    for (class, list) in problem.classes.iter().enumerate() {
        let conv = |k: &Candidate| matches!(k.op, Some(Op::Conv { layout: Layout::Nchw, .. }));
        chosen[class] = list.iter().position(conv).or(chosen[class]);
    }
    assert_eq!(work::of_source(network, &network.outputs), 2 * WORK);
    assert!(work::of(&problem, &chosen) > 2 * WORK);
    let none = vec![None; chosen.len()];
    let answer = Answer { chosen, joined: none, through: vec![false; greedy.chosen.len()] };
    let values = greedy::with_less_work(&problem, &mut rows, &greedy, &answer, 2 * WORK).unwrap();
    assert!(rows.program.holds(&values));
    assert_eq!(work::of(&problem, &Answer::new(&problem, &rows, &values).chosen), 2 * WORK);
}

#[test]
fn the_source_graph_is_an_answer() {
    let loaded = leaky_network(rules::clean());
    let (network, target) = (&loaded.network, Target::avx512());
    let (extraction, report) = from_source(network, &network.outputs, &target, ExtractionReport::default()).unwrap();
    assert_eq!(report.work, 2 * WORK);
    let (graph, _) = store(&leaky_convolutions(2), &loaded, &extraction).unwrap();
    assert_eq!(graph.nodes.len(), leaky_convolutions(2).nodes.len(), "{graph}");
}

#[test]
fn an_answer_with_a_cycle_is_mended() {
    let loaded = leaky_network(rules::all(None));
    let (network, target) = (&loaded.network, Target::avx512());
    let problem = Problem::new(network, &network.outputs, &target, Terms::Current).unwrap();
    let mut rows = Rows::new(&problem);
    let (greedy, start) = greedy::solve(&problem, &mut rows).unwrap();
    let mut chosen = greedy.chosen.clone();
    for (class, list) in problem.classes.iter().enumerate() {
        chosen[class] = list.iter().position(|k| matches!(k.op, Some(Op::Transpose { .. }))).or(chosen[class]);
    }
    let none = vec![None; chosen.len()];
    let answer = Answer { chosen, joined: none, through: vec![false; greedy.chosen.len()] };
    let values = greedy::mend(&problem, &mut rows, &greedy, &answer, &start).unwrap();
    assert!(rows.program.holds(&values));
    assert!(cuts(&problem, &rows, &values, &Answer::new(&problem, &rows, &values)).is_empty());
}
