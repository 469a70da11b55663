//! Loops against instances: random Scops in random legal orders.

use super::lower_as;
use crate::codegen::loopnest::verify;
use crate::expr::Affine;
use crate::expr::{Access, BufferId, Expr, Index, Scalar};
use crate::poly::analysis::{dependence, legality};
use crate::poly::brute_tests::{disturb, random_scop};
use crate::poly::schedule::{Node, RowKind, Schedule};
use crate::poly::scop::Scop;
use crate::poly::sets::answers::Answers;
use crate::poly::statement::{Role, Statement, ranges};
use crate::poly::tile::report::Tiled;
use crate::poly::{ilp, reference};
use crate::runtime::{DType, Tensor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A random Scop of integers whose subscripts stay inside: tensors are as large as it takes.
fn executable(rng: &mut StdRng) -> Scop {
    let mut scop = random_scop(rng);
    let ranks: Vec<usize> = scop.tensors.iter().map(|t| t.shape.len()).collect();
    let mut low: Vec<Vec<i64>> = ranks.iter().map(|&r| vec![0; r]).collect();
    let mut high = low.clone();
    let bounds = |s: &Statement, a: &Affine| a.bounds(ranges(&s.iterators));
    for s in &scop.statements {
        let mut note = |t: usize, d: usize, a: &Affine| {
            let (l, h) = bounds(s, a);
            (low[t][d], high[t][d]) = (low[t][d].min(l), high[t][d].max(h));
        };
        s.write.iter().enumerate().for_each(|(d, a)| note(s.target.0 as usize, d, a));
        for (d, e) in &s.computed {
            e.visit(&mut |e| {
                if let Expr::Index(a) = e {
                    note(s.target.0 as usize, *d, a);
                }
            });
        }
        s.body.visit_accesses(&mut |a| {
            for (d, i) in a.index.iter().enumerate() {
                i.affine().into_iter().for_each(|i| note(a.buffer.0 as usize, d, i));
            }
        });
    }
    for (i, t) in scop.tensors.iter_mut().enumerate() {
        t.dtype = DType::I64;
        t.shape = (0..ranks[i]).map(|d| high[i][d] - low[i][d] + 1).collect();
        t.role = if t.role == Role::Output && rng.random_bool(0.3) { Role::InOut } else { t.role };
    }
    for s in &mut scop.statements {
        let target = s.target.0 as usize;
        s.write.iter_mut().enumerate().for_each(|(d, a)| a.constant -= low[target][d]);
        for (d, e) in &mut s.computed {
            s.write[*d] = Affine::constant(0);
            if let Expr::Index(a) = e {
                a.constant -= low[target][*d];
            }
        }
        s.body = s.body.rewrite(&mut |e| match e {
            Expr::Const(_) => Expr::Const(Scalar::i64(rng.random_range(1..9))),
            Expr::Load(a) => {
                let shift = |(d, i): (usize, &Index)| match i {
                    Index::Affine(i) => Index::Affine(i.clone().offset(-low[a.buffer.0 as usize][d])),
                    Index::Value(_) => Index::Value(Box::new(Expr::Index(Affine::constant(0)))),
                };
                let index = a.index.iter().enumerate().map(shift).collect();
                let otherwise = (!a.guard.is_empty()).then(|| Scalar::i64(5));
                Expr::Load(Access { index, otherwise, ..a })
            }
            e => e,
        });
    }
    scop.verify().unwrap_or_else(|e| panic!("{e}\n{scop}"));
    scop
}

/// Points of tiles become unrolled or vector rows.
fn expand(node: &mut Node, rng: &mut StdRng) {
    match node {
        Node::Leaf => {}
        Node::Sequence(children) => children.iter_mut().for_each(|c| expand(&mut c.1, rng)),
        Node::Band(band, child) => {
            if band.rows.iter().any(|r| r.tile > 1) {
                for r in band.rows.iter_mut().filter(|r| r.tile == 1) {
                    r.kind = [RowKind::Serial, RowKind::Unroll, RowKind::Vector][rng.random_range(0..3)];
                }
            }
            expand(child, rng);
        }
    }
}

/// The original order, the ILP's, and random legal changes of both.
fn legal_schedules(scop: &Scop, rng: &mut StdRng) -> Vec<Schedule> {
    let dependences = dependence::analyze(scop).unwrap();
    let mut schedules: Vec<Schedule> = vec![scop.order.clone(), ilp::schedule(scop, &dependences).unwrap().0];
    for start in schedules.clone() {
        for _ in 0..4 {
            let mut disturbed = start.clone();
            disturb(&mut disturbed, scop, rng);
            if rng.random_bool(0.5) {
                expand(&mut disturbed.root, rng);
            }
            if legality::check(scop, &dependences, &disturbed).is_ok() {
                schedules.push(disturbed);
            }
        }
    }
    schedules
}

fn start_values(scop: &Scop, first: i64) -> Vec<Tensor> {
    let one = |shape: &[i64]| {
        let n = shape.iter().product::<i64>();
        Tensor::new(shape, &(0..n).map(|i| first + i * 7 % 23).collect::<Vec<i64>>())
    };
    scop.tensors.iter().map(|t| one(&t.shape)).collect()
}

fn rounds(default: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse().ok());
    let first = number("TILEWRIGHT_SEED").unwrap_or(1);
    first..first + number("TILEWRIGHT_FUZZ").unwrap_or(default)
}

/// Runs the loops of a schedule and compares what they leave in `compared` with what is expected; returns their text.
fn compare(scop: &Scop, schedule: Schedule, start: &[Tensor], expected: &[Tensor], compared: &[usize]) -> String {
    let context = format!("{scop}\n{}", schedule.print(scop));
    let tiled = Tiled { schedule, packings: vec![], report: Default::default() };
    let kernel = lower_as(scop, &tiled, &tiled.schedule, true, &Answers::default())
        .unwrap_or_else(|e| panic!("{e} in {context}"));
    let context = format!("{context}\n{}", kernel.nest);
    verify::verify(&kernel.nest).unwrap_or_else(|e| panic!("{e} in {context}"));
    let mut got = start.to_vec();
    reference::run_kernel(scop, &kernel, &mut got).unwrap_or_else(|e| panic!("{e} in {context}"));
    for &t in compared {
        assert!(got[t] == expected[t], "{context}\ngot {:?}\nwant {:?}", got[t], expected[t]);
    }
    kernel.nest.to_string()
}

#[test]
fn loops_run_the_instances_of_any_legal_schedule() {
    let seeds = rounds(150);
    let (mut compared, mut expanded, mut accumulated) = (0, 0, 0);
    for seed in seeds.clone() {
        let rng = &mut StdRng::seed_from_u64(seed);
        let scop = executable(rng);
        let start = start_values(&scop, 0);
        let mut expected = start.clone();
        reference::run(&scop, &scop.order, &mut expected);
        let all: Vec<usize> = (0..scop.tensors.len()).collect();
        for schedule in legal_schedules(&scop, rng) {
            let text = compare(&scop, schedule, &start, &expected, &all);
            compared += 1;
            accumulated += usize::from(text.contains("_tile"));
            expanded += usize::from(text.contains("unroll ") || text.contains("vector "));
        }
    }
    println!("{seeds:?}: {compared} nests, {expanded} with points expanded, {accumulated} with local tiles");
    assert!(seeds.end - seeds.start < 150 || (compared > 500 && expanded > 100 && accumulated > 10));
}

/// A row whose values are all even, in tiles of two points.
#[test]
fn a_row_that_misses_every_second_value_loses_no_instance() {
    let text = "scop even {
      T0: i64[2][3] inout;
      T1: i64[2][3] inout;
      S0(i0 < 2, i1 < 3): T0[i0][i1] = (i64(2) + T1[i0][i1]);
      order band t0 [serial] S0(i0) t1 [serial] S0(i1) leaf
    }";
    let scop = crate::poly::parse::scop(text).unwrap();
    let schedule = crate::poly::parse::scop(&text.replace(
        "t0 [serial] S0(i0) t1 [serial] S0(i1) leaf",
        "t0 [serial tile 2] S0(2*i0 + 2*i1) t0 [vector] S0(2*i0 + 2*i1)
         band t1 [serial tile 2] S0(i1 - 1) t1 [vector] S0(i1 - 1) leaf",
    ));
    let start = start_values(&scop, 0);
    let mut expected = start.clone();
    reference::run(&scop, &scop.order, &mut expected);
    compare(&scop, schedule.unwrap().order, &start, &expected, &[0, 1]);
}

/// T is whole in the outermost loop, and its values are used two iterations of the next one later.
#[test]
fn a_temporary_that_is_not_contracted_is_not_contracted_further_in() {
    let text = "scop later {
      T: i64[8] temporary;
      A: i64[8] inout;
      s(i < 8): T[i] = (i64(3) + A[i]);
      U(i < 8): A[i] add = T[i];
      order sequence {s} band i [serial] s(i) leaf {U} band i [serial] U(i) leaf
    }";
    let scop = crate::poly::parse::scop(text).unwrap();
    let later = "order band once [parallel] s(0), U(0) band i [serial] s(i), U(i + 2) sequence {s} leaf {U} leaf }";
    let schedule = crate::poly::parse::scop(&format!("{}{later}", text.split("order").next().unwrap()));
    let start = start_values(&scop, 0);
    let mut expected = start.clone();
    reference::run(&scop, &scop.order, &mut expected);
    compare(&scop, schedule.unwrap().order, &start, &expected, &[1]);
}

/// A tensor whose first values nothing depends on becomes a temporary.
#[test]
fn contracted_temporaries_lose_no_value() {
    let seeds = rounds(6000);
    let (mut compared, mut contracted, mut folded) = (0, 0, 0);
    for seed in seeds.clone() {
        let rng = &mut StdRng::seed_from_u64(seed);
        let mut scop = executable(rng);
        let run = |first: i64| {
            let start = start_values(&scop, 0);
            let mut values = start_values(&scop, first);
            values.splice(1.., start[1..].iter().cloned());
            reference::run(&scop, &scop.order, &mut values);
            values
        };
        let (expected, other) = (run(0), run(1000));
        if scop.tensors.len() < 2 || expected[1..] != other[1..] || scop.users(BufferId(0)).len() < 2 {
            continue;
        }
        scop.tensors[0].role = Role::Temporary;
        let start = start_values(&scop, 0);
        for schedule in legal_schedules(&scop, rng) {
            let text = compare(&scop, schedule, &start, &expected, &[1]);
            compared += 1;
            let whole =
                format!("T0: i64[{}]", scop.tensors[0].shape.iter().map(i64::to_string).collect::<Vec<_>>().join("]["));
            let less = text.contains("T0: ") && !text.contains(&whole);
            let global = text.lines().any(|l| l.trim().starts_with("T0: ") && l.contains("argument"));
            contracted += usize::from(less && !global);
            folded += usize::from(less && global);
        }
    }
    println!("{seeds:?}: {compared} nests, {contracted} with contracted temporaries, {folded} with folded ones");
    assert!(seeds.end - seeds.start < 6000 || (compared > 1500 && contracted > 50 && folded > 50));
}

/// `U` reads what `s` wrote an iteration of t before: memory has one element for each i, or two where `s` runs first.
#[test]
fn temporaries_are_folded_to_the_iterations_that_need_their_values() {
    let text = "scop steps {
      T: i64[6][8] temporary; B: i64[6][8] input; A: i64[6][8] inout;
      s(t < 6, i < 8): T[t][i] = (i64(3) + B[t][i]);
      U(t < 6, i < 8): A[t][i] add = T[t][i];
      order sequence {s} band t [serial] s(t) i [serial] s(i) leaf {U} band t [serial] U(t) i [serial] U(i) leaf }";
    let scop = crate::poly::parse::scop(text).unwrap();
    let (head, _) = text.split_once("order").unwrap();
    let (s, u) = ("{s} band i [serial] s(i) leaf", "{U} band i [serial] U(i) leaf");
    let start = start_values(&scop, 0);
    let mut expected = start.clone();
    reference::run(&scop, &scop.order, &mut expected);
    for (phi, first, second, memory) in [
        ("[serial] s(t), U(t + 1)", u, s, "T: i64[1][8]"),
        ("[serial] s(t), U(t + 1)", s, u, "T: i64[2][8]"),
        ("[serial] s(t), U(t + 3)", u, s, "T: i64[4][8]"),
        ("[serial] s(t), U(t + 4)", s, u, "T: i64[6][8]"),
        ("[serial] s(-t), U(-t + 1)", s, u, "T: i64[2][8]"),
    ] {
        let schedule = crate::poly::parse::scop(&format!("{head} order band t {phi} sequence {first} {second} }}"));
        let loops = compare(&scop, schedule.unwrap().order, &start, &expected, &[2]);
        assert!(loops.contains(memory), "{phi}: {loops}");
    }
}
