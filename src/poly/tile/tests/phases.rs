//! Phases: which are tensor expressions, which are short, and which of their rows threads share.

use crate::codegen::Target;
use crate::codegen::machine::Machine;
use crate::expr::Affine;
use crate::poly::analysis::dependence;
use crate::poly::samples::v;
use crate::poly::schedule::{Band, Node, Row, RowKind, Schedule};
use crate::poly::sets::isl::Isl;
use crate::poly::statement::StatementId;
use crate::poly::tile::tile;

/// Two reduced rows of a sum may update one element in one wave; with a row of the element they never do.
#[test]
fn updates_of_one_element_do_not_meet_in_a_wave() {
    let text = "scop sums { A: f32[8][8][8] input; B: f32[8] inout;
      S(i < 8, j < 8, k < 8): B[i] add = A[i][j][k];
      order band i [serial] S(i) j [serial] S(j) k [serial] S(k) leaf }";
    let scop = crate::poly::parse::scop(text).unwrap();
    let tiles = |tile: i64, coincident: bool, [first, second]: [Affine; 2]| {
        let row = |phi: Affine| Row { tile, coincident, ..Row::serial("t", vec![(StatementId(0), phi)]) };
        let mut node = Node::Band(Band { rows: vec![row(first), row(second)], permutable: true }, Box::new(Node::Leaf));
        let marked = super::super::in_waves(&scop, &mut node);
        let Node::Band(band, _) = node else { panic!("a band") };
        assert_eq!(marked, band.rows[0].kind == RowKind::Wavefront);
        marked
    };
    let waves = |first: Affine, second: Affine| tiles(2, false, [first, second]);
    assert!(!waves(v(1), v(2)));
    assert!(!waves(v(0).add_scaled(&v(1), 1), v(2)));
    assert!(waves(v(0), v(2)));
    assert!(waves(v(2), v(0)));
    // One statement whose updates may meet is enough.
    let text = "scop two { A: f32[8][8][8] input; B: f32[8] inout; C: f32[8][8][8] inout;
      S(i < 8, j < 8, k < 8): B[i] add= A[i][j][k];
      T(i < 8, j < 8, k < 8): C[i][j][k] = A[i][j][k]; }";
    let two = crate::poly::parse::scop(text).unwrap();
    for (iterators, marked) in [([1, 2], false), ([0, 2], true)] {
        let rows = iterators.map(|i| Row { tile: 2, ..serial_row(&[0, 1], i, false) });
        assert_eq!(super::super::in_waves(&two, &mut band(rows.to_vec(), Node::Leaf)), marked, "{iterators:?}");
    }
    // Single values, a tile of everything, and rows that carry nothing have no waves.
    for (tile, coincident, marked) in
        [(2, false, true), (7, false, true), (1, false, false), (8, false, false), (2, true, false)]
    {
        assert_eq!(tiles(tile, coincident, [v(0), v(2)]), marked, "{tile} {coincident}");
    }
}

fn serial_row(ids: &[u32], iterator: u32, coincident: bool) -> Row {
    let phi = ids.iter().map(|&id| (StatementId(id), v(iterator))).collect();
    Row { coincident, ..Row::serial(format!("v{iterator}"), phi) }
}

fn band(rows: Vec<Row>, child: Node) -> Node {
    Node::Band(Band { rows, permutable: true }, Box::new(child))
}

/// A phase is planned as a tensor expression when an outermost row carries nothing, or no row does and all is a sum.
#[test]
fn phases_of_sums_are_tensor_expressions() {
    let text = "scop sums { A: f32[8][8] input; B: f32[8] inout; C: f32[8] inout;
      S(i < 8, k < 8): B[i] add= A[i][k];
      T(i < 8, k < 8): C[i] add= A[k][i];
      order band i [serial] S(i), T(i) k [serial] S(k), T(k) sequence {S} leaf {T} leaf }";
    let scop = crate::poly::parse::scop(text).unwrap();
    let is = |node: &Node| super::super::is_tensor_expression(&scop, &[StatementId(0)], node);
    let row = |iterator, coincident| serial_row(&[0], iterator, coincident);
    assert!(is(&band(vec![row(1, false)], Node::Leaf)));
    assert!(is(&band(vec![row(0, true), row(1, false)], Node::Leaf)));
    assert!(!is(&band(vec![row(1, false)], band(vec![row(0, true)], Node::Leaf))));
    let tiled = Row { tile: 4, ..row(1, false) };
    assert!(!is(&band(vec![tiled.clone()], band(vec![row(1, false)], Node::Leaf))));
    assert!(!is(&band(vec![row(0, true), tiled], Node::Leaf)));
}

/// Phases that take less than a barrier run as one, in a loop of one iteration.
#[test]
fn phases_that_are_short_are_one() {
    let text = "scop two { A: f32[8] input; B: f32[8] output; C: f32[8] output;
      S(i < 8): B[i] = A[i];
      T(i < 8): C[i] = (A[i] * A[i]); }";
    let scop = crate::poly::parse::scop(text).unwrap();
    let Node::Band(once, below) = tile(&scop, &scop.order, &Target::avx512()).unwrap().schedule.root else {
        panic!("a band")
    };
    assert_eq!(once, Band { rows: vec![Row::once(scop.ids())], permutable: true });
    assert!(matches!(*below, Node::Sequence(parts) if parts.len() == 2));
}

/// Loops further in than those that are free run in parallel only while the threads have too few iterations.
#[test]
fn loops_run_in_parallel_while_threads_want_iterations() {
    let text = "scop cube { A: f32[8][8][8] input; B: f32[8][8][8] output;
      S(i < 8, j < 8, k < 8): B[i][j][k] = A[i][j][k]; }";
    let scop = crate::poly::parse::scop(text).unwrap();
    let parallel = |free: usize, busy_steps: i64| {
        let machine = Machine { busy_steps, ..Target::avx512().machine };
        let mut node = band([0, 1, 2].map(|i| serial_row(&[0], i, true)).to_vec(), Node::Leaf);
        assert!(super::super::parallelize(&scop, &mut node, free, &machine));
        let Node::Band(band, _) = node else { panic!("a band") };
        band.rows.iter().filter(|r| r.kind == RowKind::Parallel).count()
    };
    assert_eq!([(1, 8), (1, 9), (2, 8), (0, 8)].map(|(free, busy)| parallel(free, busy)), [1, 2, 2, 1]);
}

/// A loop that carries dependences is a sum of which nothing else is read, in a band that may be permuted: nothing less is
/// a tensor expression.
#[test]
fn loops_that_carry_more_than_a_sum_are_no_tensor_expressions() {
    let text = "scop sums { A: f32[8][8] input; B: f32[8] inout; C: f32[8] inout; D: f32[8] inout;
      S(i < 8, k < 8): B[i] add= A[i][k];
      T(i < 8, k < 8): C[i] add= (A[i][k] * C[k]);
      U(i < 8, k < 8): D[i] = A[i][k];
      order band i [serial] S(i), T(i), U(i) k [serial] S(k), T(k), U(k) sequence {S} leaf {T} leaf {U} leaf }";
    let scop = crate::poly::parse::scop(text).unwrap();
    let is = |id: u32, carried: u32, permutable: bool| {
        let rows = [0, 1].map(|iterator| serial_row(&[id], iterator, iterator != carried && carried == 1));
        let node = Node::Band(Band { rows: rows.to_vec(), permutable }, Box::new(Node::Leaf));
        super::super::is_tensor_expression(&scop, &[StatementId(id)], &node)
    };
    let reads = |id: u32| dependence::reads_sums(scop.statement(StatementId(id)), &[], &Isl::default()).unwrap();
    assert_eq!([0, 1].map(reads), [false, true]);
    assert!(is(0, 1, true));
    // The order of the loops is fixed; the element's own loop is carried; the sum is read; there is no sum.
    assert!(!is(0, 1, false));
    assert!(!is(0, 0, true));
    assert!(!is(1, 1, true));
    assert!(!is(2, 1, true));
}

/// The steps of a serial outermost row are divided over threads by the row inside that carries nothing.
#[test]
fn steps_of_a_serial_row_run_in_parallel() {
    let text = "scop steps { A: f32[64][4096] inout;
      S(t < 64, i < 4096) if t - 1 >= 0: A[t][i] = A[t - 1][i];
      order band t [serial] S(t) i [serial] S(i) leaf }";
    let scop = crate::poly::parse::scop(text).unwrap();
    let [t, i] = [serial_row(&[0], 0, false), serial_row(&[0], 1, true)];
    let machine = Target::avx512().machine;
    let parallel = |mut node: Node, ns: f64| {
        let marked = super::super::in_steps(&scop, &mut node, ns, &machine);
        let rows = Schedule { root: node };
        let mut count = 0;
        rows.for_each_band(&mut |b| count += b.rows.iter().filter(|r| r.kind == RowKind::Parallel).count());
        assert_eq!(count, usize::from(marked));
        marked
    };
    let shapes = || {
        let inner = || band(vec![i.clone()], Node::Leaf);
        let sequence = Node::Sequence(vec![(vec![StatementId(0)], inner())]);
        [band(vec![t.clone(), i.clone()], Node::Leaf), band(vec![t.clone()], inner()), band(vec![t.clone()], sequence)]
    };
    for node in shapes() {
        // Each of 64 steps takes longer than a parallel phase must, or not.
        assert!(parallel(node.clone(), 65.0 * machine.serial_ns));
        assert!(!parallel(node, 63.0 * machine.serial_ns));
    }
    assert!(!parallel(band(vec![t.clone()], band(vec![Row { coincident: false, ..i.clone() }], Node::Leaf)), 1e9));
    assert!(!parallel(band(vec![Row { tile: 4, ..t }], band(vec![i.clone()], Node::Leaf)), 1e9));
    assert!(!parallel(Node::Leaf, 1e9));
}

/// A copy has no operations, and takes time all the same: with one product behind it, a third of a step.
#[test]
fn copies_in_the_steps_of_a_serial_row_run_in_parallel() {
    let text = "scop steps { A: f32[64][4096] inout; B: f32[64][4096] inout;
      S(t < 64, i < 4096) if t - 1 >= 0: A[t][i] = A[t - 1][i];
      R(t < 64, i < 4096) if t - 1 >= 0: B[t][i] = (B[t - 1][i] * B[t - 1][i]); }";
    let scop = crate::poly::parse::scop(text).unwrap();
    let part = |id: u32| (vec![StatementId(id)], band(vec![serial_row(&[id], 1, true)], Node::Leaf));
    let machine = Target::avx512().machine;
    for (steps, copied) in [(3.1, true), (2.9, false)] {
        let mut node = band(vec![serial_row(&[0, 1], 0, false)], Node::Sequence(vec![part(0), part(1)]));
        assert!(super::super::in_steps(&scop, &mut node, 64.0 * steps * machine.serial_ns, &machine));
        let Node::Band(_, child) = &node else { panic!("a band") };
        let Node::Sequence(parts) = &**child else { panic!("a sequence") };
        let Node::Band(copy, _) = &parts[0].1 else { panic!("a band") };
        assert_eq!(copy.rows[0].kind == RowKind::Parallel, copied, "{steps}");
    }
}
