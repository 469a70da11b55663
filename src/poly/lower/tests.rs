//! Loops against instances: random Scops in random legal orders.

use super::lower_as;
use crate::codegen::loopnest::verify;
use crate::expr::Affine;
use crate::expr::{Access, Expr, Index, Scalar};
use crate::poly::analysis::{dependence, legality};
use crate::poly::brute_tests::{disturb, random_scop};
use crate::poly::schedule::{Node, RowKind, Schedule};
use crate::poly::scop::Scop;
use crate::poly::statement::{Role, Statement};
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
    let bounds = |s: &Statement, a: &Affine| a.bounds(|v| (0, s.iterators[v.0 as usize].extent - 1));
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

#[test]
fn loops_run_the_instances_of_any_legal_schedule() {
    let rounds: u64 = std::env::var("TILEWRIGHT_FUZZ").ok().and_then(|s| s.parse().ok()).unwrap_or(150);
    let first: u64 = std::env::var("TILEWRIGHT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let (mut compared, mut expanded, mut accumulated) = (0, 0, 0);
    for seed in first..first + rounds {
        let rng = &mut StdRng::seed_from_u64(seed);
        let scop = executable(rng);
        let dependences = dependence::analyze(&scop).unwrap();
        let mut schedules: Vec<Schedule> = vec![scop.order.clone(), ilp::schedule(&scop, &dependences).unwrap().0];
        for start in schedules.clone() {
            for _ in 0..4 {
                let mut disturbed = start.clone();
                disturb(&mut disturbed, &scop, rng);
                if rng.random_bool(0.5) {
                    expand(&mut disturbed.root, rng);
                }
                if legality::check(&scop, &dependences, &disturbed).is_ok() {
                    schedules.push(disturbed);
                }
            }
        }
        let start: Vec<Tensor> = scop
            .tensors
            .iter()
            .map(|t| {
                let n = t.shape.iter().product::<i64>();
                Tensor::new(&t.shape, &(0..n).map(|i| i * 7 % 23).collect::<Vec<i64>>())
            })
            .collect();
        let mut expected = start.clone();
        reference::run(&scop, &scop.order, &mut expected);
        for schedule in schedules {
            let context = format!("seed {seed}\n{scop}\n{}", schedule.print(&scop));
            let tiled = Tiled { schedule, packings: vec![], report: Default::default() };
            let kernel = lower_as(&scop, &tiled, true).unwrap_or_else(|e| panic!("{e} in {context}"));
            let context = format!("{context}\n{}", kernel.nest);
            verify::verify(&kernel.nest).unwrap_or_else(|e| panic!("{e} in {context}"));
            let mut got = start.clone();
            reference::run_kernel(&scop, &kernel, &mut got).unwrap_or_else(|e| panic!("{e} in {context}"));
            assert!(got == expected, "{context}\ngot {got:?}\nwant {expected:?}");
            compared += 1;
            accumulated += usize::from(context.contains("_tile"));
            expanded += usize::from(context.contains("unroll ") || context.contains("vector "));
        }
    }
    println!(
        "{rounds} Scops from seed {first}: {compared} nests, {expanded} with points expanded, {accumulated} with local tiles"
    );
    assert!(rounds < 150 || (compared > 500 && expanded > 100 && accumulated > 10));
}
