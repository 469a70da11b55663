use super::apart::{self, Memo};
use super::candidate::{Candidate, Edge, Terms};
use super::constraint_set::Constraints;
use super::greedy;
use super::kernels::{Answer, cuts};
use super::problem::Problem;
use super::program::{BinaryProgram, Constraint, SolutionMethod, Solved, Work};
use super::relaxation::Relaxation;
use super::solve::{Effort, improve};
use super::{ExtractionReport, Outcome, from_source, work};
use crate::codegen::Target;
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::builder::GraphBuilder;
use crate::graph::egraph::convert::{Loaded, load, store};
use crate::graph::egraph::saturate::{Budget, saturate};
use crate::graph::egraph::{EgraphOptions, Optimized, optimize};
use crate::graph::fold::memo;
use crate::graph::fusion::{Way, fuse};
use crate::graph::ir::{Graph, ValueId};
use crate::graph::op::{Layout, Op, ReduceOp};
use crate::graph::price::Prices;
use crate::graph::rules;
use crate::graph::rules::algorithm::Algorithm;
use crate::poly::tile::cache::Constants;
use crate::runtime::{DType, Tensor};

/// No algorithm competes.
pub(super) fn unpriced(target: &Target) -> Prices<'_> {
    Prices::new(target, std::iter::empty(), |_, _| Constants::Memory, 1)
}

fn at_least(terms: &[(usize, i32)], least: i32) -> Constraint {
    Constraint { terms: terms.to_vec(), least, equal: false }
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

fn solve(program: &BinaryProgram, start: &[bool]) -> Solved {
    let mut work = Work { done: 0, most: usize::MAX };
    program.solve(&Relaxation::new(program).unwrap().values(), start, &mut work).unwrap()
}

#[test]
fn an_integral_relaxation_is_the_answer() {
    let row = Constraint { terms: vec![(0, 1), (1, 1)], least: 1, equal: true };
    let program = BinaryProgram { cost: vec![3.0, 2.0], rows: vec![row] };
    let solved = solve(&program, &[true, false]);
    assert_eq!((solved.values, solved.bound, solved.how), (vec![false, true], 2.0, SolutionMethod::Relaxation));
}

#[test]
fn what_no_answer_is_below_is_kept() {
    let program = BinaryProgram { cost: vec![3.0, 2.0], rows: vec![at_least(&[(0, 1), (1, 1)], 1)] };
    assert_eq!(solve(&program, &[false, true]).how, SolutionMethod::Start);
}

#[test]
fn pieces_of_an_open_relaxation_are_solved_and_proven() {
    // A relaxation takes half of each corner; each triangle needs two whole ones.
    for count in [1, 2, 5] {
        let program = triangles(count);
        let solved = solve(&program, &vec![true; 3 * count]);
        assert!(program.holds(&solved.values));
        assert_eq!(program.total(&solved.values), 20.0 * count as f64);
        assert!(solved.bound > 20.0 * count as f64 - 1e-3, "{count}: {}", solved.bound);
        assert!(matches!(solved.how, SolutionMethod::Pieces(_)));
    }
}

#[test]
fn a_part_holds_the_rest() {
    let program = triangles(2);
    let part = program.part(&[2, 3], &[true, true, false, false, true, true]).unwrap();
    assert_eq!(part.cost, [10.0, 10.0]);
    let values = solve(&part, &[true, true]).values;
    assert_eq!(values.iter().filter(|v| **v).count(), 1);
}

/// Each variable that a row leaves no choice fixes others through the rows that it is in.
#[test]
fn fixed_variables_fix_others() {
    let one = Constraint { terms: vec![(0, 1)], least: 1, equal: true };
    let rows = vec![
        at_least(&[(2, 1), (1, 1)], 1),
        at_least(&[(0, -1), (1, -1)], -1),
        at_least(&[(2, -1), (3, 1), (4, 1)], 0),
        Constraint { terms: vec![(4, 1), (5, 1), (2, 1)], least: 1, equal: true },
        one,
    ];
    let program = BinaryProgram { cost: vec![1.0; 7], rows };
    let (yes, no) = (Some(true), Some(false));
    assert_eq!(apart::fixed(&program), [yes, no, yes, yes, no, no, None]);
}

/// The target that all programs are priced for.
fn optimized(graph: &Graph, options: &EgraphOptions) -> Optimized {
    optimize(graph, &Target::avx512(), Default::default(), 1e-4, 2, options, &memo::Memo::default()).unwrap()
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

/// The larger of both, or the one that is not a number; the other has one row, which is computed apart.
fn largest(b: &mut GraphBuilder, x: ValueId, i: usize) -> ValueId {
    let other = b.input(&format!("x{i}"), DType::F32, &[8]);
    let best = b.binary(BinaryOp::Max, x, other).unwrap();
    let broken = b.op(Op::Compare(CompareOp::Ne), &[other, other]).unwrap()[0];
    b.op(Op::Select, &[broken, other, best]).unwrap()[0]
}

/// Numbers are not tensors that a kernel has to read: it takes any number of them.
#[test]
fn numbers_do_not_count_as_inputs_of_a_kernel() {
    let kernels = |shape: &'static [i64]| {
        let mut b = GraphBuilder::new("chain");
        let mut x = b.input("x", DType::F32, &[4, 8]);
        for i in 0..70 {
            let c = b.constant(Tensor::new(shape, &[1.0 + i as f32; 8][..shape.iter().product::<i64>() as usize]));
            x = b.add(x, c).unwrap();
            x = b.op(Op::Unary(UnaryOp::Tanh), &[x]).unwrap()[0];
        }
        b.output("y", x).unwrap();
        let Optimized { graph, placements, .. } = optimized(&b.build().unwrap(), &EgraphOptions::default());
        fuse(&graph, &placements).unwrap().len()
    };
    assert_eq!(kernels(&[]), 1);
    assert!(kernels(&[8]) > 1);
}

#[test]
fn the_cuts_of_greedy_kernels_grow_with_the_graph() {
    let loaded = load(&chain(600, largest)).unwrap();
    let (network, target) = (&loaded.network, Target::avx512());
    let problem = Problem::new(network, &network.outputs, &unpriced(&target), Terms::Current).unwrap();
    let mut rows = Constraints::new(&problem);
    let before = rows.program.rows.len();
    greedy::solve(&problem, &mut rows).unwrap();
    let cuts = rows.program.rows.len() - before;
    assert!((1..=200).contains(&cuts), "{cuts}");
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
    let problem = Problem::new(network, &network.outputs, &unpriced(&target), Terms::Current).unwrap();
    let mut rows = Constraints::new(&problem);
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
    let (extraction, report) =
        from_source(network, &network.outputs, &unpriced(&target), ExtractionReport::default()).unwrap();
    assert_eq!(report.work, 2 * WORK);
    let graph = store(&leaky_convolutions(2), &loaded, &extraction).unwrap().graph;
    assert_eq!(graph.nodes.len(), leaky_convolutions(2).nodes.len(), "{graph}");
}

#[test]
fn an_answer_with_a_cycle_is_mended() {
    let loaded = leaky_network(rules::all(None));
    let (network, target) = (&loaded.network, Target::avx512());
    let problem = Problem::new(network, &network.outputs, &unpriced(&target), Terms::Current).unwrap();
    let mut rows = Constraints::new(&problem);
    let (greedy, start) = greedy::solve(&problem, &mut rows).unwrap();
    let mut chosen = greedy.chosen.clone();
    for (class, list) in problem.classes.iter().enumerate() {
        chosen[class] = list.iter().position(|k| matches!(k.op, Some(Op::Transpose { .. }))).or(chosen[class]);
    }
    let none = vec![None; chosen.len()];
    let answer = Answer { chosen, joined: none, through: vec![false; greedy.chosen.len()] };
    let values = greedy::mend(&problem, &mut rows, &greedy, &answer, &start, &mut { usize::MAX }).unwrap();
    assert!(rows.program.holds(&values));
    assert!(cuts(&problem, &rows, &values, &Answer::new(&problem, &rows, &values)).is_empty());
}

/// A program of more variables than are allowed is solved in windows, and each that was solved is counted.
#[test]
fn windows_are_counted() {
    let options = EgraphOptions { max_ilp_variables: 40, ..EgraphOptions::default() };
    let report = optimized(&chain(60, summed), &options).report.extraction;
    let Outcome::Windows { solved, of } = report.outcome else { panic!("{report}") };
    assert!(solved == of && of > 3 && report.bound_ns.is_none(), "{report}");
    let report = optimized(&chain(60, summed), &EgraphOptions::default()).report.extraction;
    assert!(matches!(report.outcome, Outcome::Solved(_)), "{report}");
}

/// A product may read a transposition in place, also where another way to compute it reads no transposition.
#[test]
fn a_transposition_is_a_view_for_one_of_several_readers() {
    for equal in [false, true] {
        let mut b = GraphBuilder::new("view");
        let (x, w) = (b.input("x", DType::F32, &[16, 32]), b.input("w", DType::F32, &[16, 8]));
        let turned = b.transpose(x, &[1, 0]).unwrap();
        let product = b.matmul(turned, w).unwrap();
        let other = b.op(Op::MatMul { transpose_a: true, transpose_b: false }, &[x, w]).unwrap()[0];
        b.output("product", product).unwrap();
        b.output("other", other).unwrap();
        let mut loaded = load(&b.build().unwrap()).unwrap();
        if equal {
            let [product, other] = loaded.network.outputs[..] else { panic!("two outputs") };
            loaded.network.egraph.union(product, other);
            loaded.network.rebuild();
        }
        let (network, target) = (&loaded.network, Target::avx512());
        let problem = Problem::new(network, &network.outputs, &unpriced(&target), Terms::Current).unwrap();
        assert_eq!(problem.classes.iter().any(|list| list.len() == 2), equal);
        let views: Vec<&Candidate> = problem.classes.iter().flatten().filter(|k| k.through.is_some()).collect();
        assert!(matches!(views[..], [Candidate { op: Some(Op::Transpose { .. }), .. }]), "{}, {equal}", views.len());
    }
}

/// Sizes of expressions are bounded ahead, class by class; a class that stands behind its reader counts nothing there. What passes is
/// cut.
#[test]
fn an_expression_that_is_too_long_is_cut() {
    let doubled: Link = |b, x, _| {
        let t = b.op(Op::Unary(UnaryOp::Tanh), &[x]).unwrap()[0];
        b.mul(t, x).unwrap()
    };
    let loaded = load(&chain(12, doubled)).unwrap();
    let (network, target) = (&loaded.network, Target::avx512());
    let mut problem = Problem::new(network, &network.outputs, &unpriced(&target), Terms::Current).unwrap();
    let bounded = problem.edges.len();
    let first = problem.edges[0];
    for reader in (0..problem.classes.len()).map(|c| (c, 0)) {
        for producer in problem.candidate(reader).children.clone().into_iter().map(|d| (d, 0)) {
            let joined = problem.edges.iter().any(|e| (e.producer, e.reader) == (producer, reader));
            if problem.candidate(producer).op.is_some() && !joined {
                problem.edges.push(Edge { producer, reader, ..first });
            }
        }
    }
    assert!(problem.edges.len() > bounded);
    let mut rows = Constraints::new(&problem);
    let before = rows.program.rows.len();
    let (_, values) = greedy::solve(&problem, &mut rows).unwrap();
    assert!(rows.program.rows.len() > before);
    let answer = Answer::new(&problem, &rows, &values);
    assert!(rows.program.holds(&values) && cuts(&problem, &rows, &values, &answer).is_empty());
    let joined = rows.f.iter().filter(|&&f| values[f]).count();
    assert!(joined > 12, "{joined} of {}", problem.edges.len());
}

/// A prologue of a sum is not stored: an output does not enter the kernel through another prologue.
#[test]
fn an_output_is_no_second_prologue_of_a_sum() {
    let mut b = GraphBuilder::new("prologues");
    let (x, y) = (b.input("x", DType::F32, &[16, 64]), b.input("y", DType::F32, &[16, 64]));
    let first = b.add(x, y).unwrap();
    let second = b.mul(first, y).unwrap();
    let sum = Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep: false };
    let sum = b.op(sum, &[second]).unwrap()[0];
    b.output("first", first).unwrap();
    b.output("sum", sum).unwrap();
    let loaded = load(&b.build().unwrap()).unwrap();
    let (network, target) = (&loaded.network, Target::avx512());
    let problem = Problem::new(network, &network.outputs, &unpriced(&target), Terms::Current).unwrap();
    let rows = Constraints::new(&problem);
    let edge = |k: usize| rows.f[k];
    let before = |e: &Edge| e.join.way == Way::Before;
    let follows = |a: &Edge, b: &Edge| before(a) && before(b) && b.reader == a.producer && problem.leads_reduction(a);
    let pairs = (0..rows.f.len()).flat_map(|i| (0..rows.f.len()).map(move |j| (i, j)));
    let chains: Vec<(usize, usize)> = pairs.filter(|&(i, j)| follows(&problem.edges[i], &problem.edges[j])).collect();
    assert!(!chains.is_empty());
    for (i, j) in chains {
        let stored = rows.w[&problem.storage[problem.edges[j].producer.0]];
        let together = [edge(i), edge(j), stored].map(|v| (v, -1));
        let forbids = |row: &Constraint| {
            row.least == -2 && row.terms.len() == 3 && together.iter().all(|t| row.terms.contains(t))
        };
        assert!(rows.program.rows.iter().any(forbids), "{i} {j}");
    }
}

/// Two products, of which each has in its kernel what reads the other: the cut forbids both edges together, and neither
/// alone.
#[test]
fn a_cycle_of_kernels_is_cut() {
    let mut b = GraphBuilder::new("cycle");
    let w = b.constant(Tensor::new(&[16, 16], &[0.5f32; 256]));
    let [m, n] = ["x", "y"].map(|name| {
        let input = b.input(name, DType::F32, &[16, 16]);
        b.op(Op::MatMul { transpose_a: false, transpose_b: false }, &[input, w]).unwrap()[0]
    });
    let (sum, product) = (b.add(m, n).unwrap(), b.mul(m, n).unwrap());
    b.output("sum", sum).unwrap();
    b.output("product", product).unwrap();
    let loaded = load(&b.build().unwrap()).unwrap();
    let (network, target) = (&loaded.network, Target::avx512());
    let problem = Problem::new(network, &network.outputs, &unpriced(&target), Terms::Current).unwrap();
    let mut rows = Constraints::new(&problem);
    let (_, mut apart) = greedy::solve(&problem, &mut rows).unwrap();
    rows.f.iter().for_each(|&f| apart[f] = false);
    let joined = |edges: &[usize]| {
        let mut values = apart.clone();
        edges.iter().for_each(|&e| values[rows.f[e]] = true);
        values
    };
    let mut cycles = 0;
    for (i, j) in (0..rows.f.len()).flat_map(|j| (0..j).map(move |i| (i, j))) {
        let [a, b] = [&problem.edges[i], &problem.edges[j]];
        let values = joined(&[i, j]);
        let found = cuts(&problem, &rows, &values, &Answer::new(&problem, &rows, &values));
        assert_eq!(found.is_empty(), a.producer == b.producer || a.reader == b.reader, "{i} {j}");
        cycles += found.len();
        for row in found {
            assert!(!row.holds(&values) && row.holds(&joined(&[i])) && row.holds(&joined(&[j])), "{row:?}");
        }
    }
    assert_eq!(cycles, 2);
}

/// A search that ends while answers still need cuts keeps the cheapest repaired answer: kernels of as many outputs as a kernel
/// may have, where the start has a kernel for each.
#[test]
fn an_interrupted_search_keeps_its_repaired_answer() {
    let mut b = GraphBuilder::new("outputs");
    let mut x = b.input("x", DType::F32, &[4, 8]);
    for i in 0..24 {
        x = summed(&mut b, x, i);
        b.output(&format!("y{i}"), x).unwrap();
    }
    let mut loaded = load(&b.build().unwrap()).unwrap();
    saturate(&mut loaded.network, &rules::clean(), Budget { iterations: 8, nodes: 4000, rewrites: usize::MAX });
    let (network, target) = (&loaded.network, Target::avx512());
    let problem = Problem::new(network, &network.outputs, &unpriced(&target), Terms::Current).unwrap();
    let mut rows = Constraints::new(&problem);
    let (greedy, mut start) = greedy::solve(&problem, &mut rows).unwrap();
    let fused = rows.program.total(&start);
    rows.f.iter().chain(rows.a.values()).for_each(|&v| start[v] = false);
    rows.w.values().for_each(|&w| start[w] = true);
    for (rounds, mended) in [(0, false), (1, true)] {
        let mut rows = Constraints::new(&problem);
        assert!(rows.program.holds(&start));
        assert!(rows.program.total(&start) > 2.0 * fused, "{} {fused}", rows.program.total(&start));
        let mut report = ExtractionReport::default();
        let effort = Effort { variables: 5000, rounds };
        let values = improve(&problem, &mut rows, &greedy, start.clone(), &effort, &mut report, &mut Memo::default());
        assert_eq!((report.outcome, report.cuts > 0), (Outcome::Interrupted { rounds, mended }, mended));
        let answer = Answer::new(&problem, &rows, &values);
        assert!(rows.program.holds(&values) && cuts(&problem, &rows, &values, &answer).is_empty());
        let (total, least) = (rows.program.total(&values), rows.program.total(&start));
        assert!(if mended { total <= fused } else { total == least }, "{total} {least} {fused}");
    }
}

/// The operators whose results have conversions of layout, of a quantisation between convolutions; the result of its maximum
/// may be an output.
fn converted(is_output: bool) -> Vec<(String, DType)> {
    let mut b = GraphBuilder::new("quantised");
    let x = b.input("x", DType::F32, &[1, 8, 6, 6]);
    let weights = |b: &mut GraphBuilder, seed| b.constant(Tensor::seeded(DType::F32, &[8, 8, 3, 3], seed, 0, 2));
    let w = weights(&mut b, 1);
    let mut y = b.conv2d(x, w, 1, 1).unwrap();
    let number = |b: &mut GraphBuilder, v: f32| b.constant(Tensor::new(&[], &[v]));
    for (op, v) in [(BinaryOp::Div, 3.0), (BinaryOp::Max, 0.0), (BinaryOp::Min, 255.0), (BinaryOp::Add, 0.25)] {
        let v = number(&mut b, v);
        y = b.binary(op, y, v).unwrap();
        if is_output && op == BinaryOp::Max {
            b.output("maximum", y).unwrap();
        }
    }
    y = b.op(Op::Cast(DType::U8), &[y]).unwrap()[0];
    y = b.op(Op::Cast(DType::F32), &[y]).unwrap()[0];
    let w = weights(&mut b, 2);
    y = b.conv2d(y, w, 1, 1).unwrap();
    b.output("y", y).unwrap();
    let mut loaded = load(&b.build().unwrap()).unwrap();
    saturate(
        &mut loaded.network,
        &rules::with_algorithm(Algorithm::Direct, None),
        Budget { iterations: 8, nodes: 4000, rewrites: usize::MAX },
    );
    let (network, target) = (&loaded.network, Target::avx512());
    let problem = Problem::new(network, &network.outputs, &unpriced(&target), Terms::Current).unwrap();
    let mut converted = vec![];
    for (c, list) in problem.classes.iter().enumerate() {
        let computed = |k: &&Candidate| !k.converts;
        if let Some(op) = list.iter().find(computed).and_then(|k| k.op).filter(|_| list.iter().any(|k| k.converts)) {
            converted.push((op.mnemonic().to_string(), problem.ty(c).dtype));
        }
    }
    converted.sort();
    converted.dedup();
    converted
}

/// Values in the middle of a chain have no conversions of layout: its ends have, and an output ends one.
#[test]
fn only_the_ends_of_a_chain_change_their_layout() {
    let pair = |op: &str, dtype| (op.to_string(), dtype);
    let ends = [pair("cast", DType::F32), pair("cast", DType::U8), pair("conv", DType::F32)];
    assert_eq!(converted(false), ends);
    assert_eq!(converted(true), [&ends[..], &[pair("max", DType::F32)]].concat());
}

/// Convolutions of 1x1 and 3x3 taps, the latter with strides 1 and 2; the first makes twice as many channels of `channels`, with a bias.
fn convolutions(channels: i64, size: i64) -> Graph {
    let mut b = GraphBuilder::new("convolutions");
    let weights =
        |b: &mut GraphBuilder, shape: &[i64]| b.constant(Tensor::seeded(DType::F32, shape, 3, shape[2] as u64, 2));
    let x = b.input("x", DType::F32, &[1, channels, size, size]);
    let w = weights(&mut b, &[2 * channels, channels, 3, 3]);
    let y = b.conv2d(x, w, 1, 1).unwrap();
    let bias = weights(&mut b, &[1, 2 * channels, 1, 1]);
    let y = b.add(y, bias).unwrap();
    let w = weights(&mut b, &[channels, 2 * channels, 1, 1]);
    let y = b.conv2d(y, w, 1, 0).unwrap();
    let w = weights(&mut b, &[8, channels, 3, 3]);
    let y = b.conv2d(y, w, 2, 1).unwrap();
    b.output("y", y).unwrap();
    b.build().unwrap()
}

#[test]
fn the_runner_up_is_dearer_than_the_choice() {
    let mut chosen = vec![];
    for (channels, size) in [(8, 6), (64, 24)] {
        let report = optimized(&convolutions(channels, size), &EgraphOptions::default()).report.algorithms;
        let [layer] = &report.layers[..] else { panic!("{report}") };
        let runner_up = layer.runner_up.as_ref().unwrap();
        assert!(runner_up.predicted_us > layer.chosen.predicted_us, "{report}");
        assert_ne!(runner_up.algorithm, layer.chosen.algorithm);
        for algorithm in [2, 4, 6].map(Algorithm::Winograd).into_iter().filter(|&a| a != layer.chosen.algorithm) {
            let (source, options) = (convolutions(channels, size), EgraphOptions::default());
            let forced = optimize(&source, &Target::avx512(), algorithm, 1.0, 2, &options, &memo::Memo::default())
                .unwrap()
                .report
                .algorithms;
            assert!(forced.layers[0].chosen.predicted_us >= runner_up.predicted_us, "{report}{forced}");
        }
        assert_eq!(layer.error_bound.is_some(), layer.chosen.algorithm != Algorithm::Direct);
        assert_eq!(layer.shape, format!("{channels}x{size}x{size}, {} of 3x3", 2 * channels));
        assert!(layer.name.is_some());
        assert_eq!(report.error_bound, layer.error_bound);
        // The convolution, and three parts for each of three tiles; the weights of other convolutions have no rival.
        assert!(report.predictions % 3 == 1, "direct and three parts of each tile: {report}");
        chosen.push(layer.chosen.algorithm);
    }
    assert!(chosen[0] == Algorithm::Direct && chosen[1] != Algorithm::Direct, "{chosen:?}");
}

#[test]
fn an_algorithm_that_is_given_takes_every_convolution_that_it_applies_to() {
    // Direct is the cheapest here.
    let source = convolutions(8, 6);
    let with = |algorithm, max_error| {
        optimize(&source, &Target::avx512(), algorithm, max_error, 2, &EgraphOptions::default(), &memo::Memo::default())
            .unwrap()
    };
    let windows = |graph: &Graph| -> Vec<(i64, i64)> {
        let window = |op: &Op| match op {
            Op::Conv { window, .. } => Some((window.kernel[0], window.stride[0])),
            _ => None,
        };
        graph.nodes.iter().filter_map(|n| window(&n.op)).collect()
    };
    for tile in [2, 4, 6] {
        let Optimized { graph, report, .. } = with(Algorithm::Winograd(tile), 1.0);
        assert_eq!(windows(&graph), [(1, 1), (3, 2)], "{graph}");
        let is_input = |op: &Op| matches!(op, Op::WinogradInput { tile: t, .. } if t[..] == [i64::from(tile); 2]);
        assert_eq!(graph.nodes.iter().filter(|n| is_input(&n.op)).count(), 1, "{graph}");
        let [layer] = &report.algorithms.layers[..] else { panic!("{report}") };
        assert_eq!((layer.chosen.algorithm, &layer.runner_up), (Algorithm::Winograd(tile), &None));
        assert!(layer.error_bound.is_some_and(|bound| bound < 1e-3));
        // The bound of the error holds all the same.
        assert_eq!(windows(&with(Algorithm::Winograd(tile), 1e-9).graph), [(3, 1), (1, 1), (3, 2)]);
    }
    let direct = with(Algorithm::Direct, 1.0);
    assert_eq!(windows(&direct.graph), [(3, 1), (1, 1), (3, 2)]);
    assert!(direct.report.algorithms.layers.is_empty() && direct.report.algorithms.error_bound.is_none());
    let error = optimize(
        &source,
        &Target::avx512(),
        Algorithm::Winograd(3),
        1.0,
        2,
        &EgraphOptions::default(),
        &memo::Memo::default(),
    )
    .unwrap_err();
    assert!(error.to_string().contains("winograd-3") && error.to_string().contains("winograd-4"), "{error}");
}
