//! Scops against the Programs that they are built of: random programs, every statement and definition run as plain
//! loops by the interpreter of LoopNest, in the original order and in the ILP's.

use crate::codegen::loopnest::interpret;
use crate::codegen::loopnest::{Buffer, BufferKind, LoopKind, LoopNest, Stmt};
use crate::expr::Bound;
use crate::expr::{Access, BinaryOp, BufferId, CompareOp, Expr, Index, Scalar, UnaryOp};
use crate::expr::{Affine, Var};
use crate::poly::analysis::dependence;
use crate::poly::ilp;
use crate::poly::normalize::build::build;
use crate::poly::samples::{self, define, tensor, v, vars};
use crate::poly::schedule::Node;
use crate::poly::scop::Scop;
use crate::poly::statement::{Iterator, Program, Role, Statement, TensorDecl};
use crate::runtime::{DType, Tensor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A nest whose arguments are all the tensors, in order.
fn nest(tensors: &[TensorDecl]) -> LoopNest {
    let buffer = |(slot, t): (usize, &TensorDecl)| {
        let kind = BufferKind::Argument { slot: slot as u32, written: t.role.is_written() };
        Buffer::dense(&t.name, t.dtype, &t.shape, kind)
    };
    LoopNest { name: "t".into(), buffers: tensors.iter().enumerate().map(buffer).collect(), vars: vec![], body: vec![] }
}

/// Adds loops over `iterators`, outermost first, around a store of `value` to `target[write]` where `conditions` hold.
fn add(
    nest: &mut LoopNest,
    iterators: &[Iterator],
    conditions: &[Affine],
    (target, write): (BufferId, &[Affine]),
    reduce: Option<BinaryOp>,
    value: &Expr,
) {
    let vars: Vec<Var> = iterators.iter().map(|it| nest.new_var(&it.name)).collect();
    let mut map = |i: Var| Affine::var(vars[i.0 as usize]);
    let index = write.iter().map(|w| Index::Affine(w.substitute(&mut map))).collect();
    let mut body = vec![Stmt::Store { buffer: target, index, value: value.substitute(&mut map), reduce }];
    if !conditions.is_empty() {
        body = vec![Stmt::If { conditions: conditions.iter().map(|c| c.substitute(&mut map)).collect(), body }];
    }
    for (it, &var) in iterators.iter().zip(&vars).rev() {
        let bound = |c: i64| vec![Bound::constant(c)];
        let kind = LoopKind::Serial;
        body = vec![Stmt::Loop { var, lower: bound(0), upper: bound(it.extent), step: 1, kind, body }];
    }
    nest.body.extend(body);
}

fn program_nest(p: &Program) -> LoopNest {
    let mut out = nest(&p.tensors);
    for d in &p.definitions {
        let write = (d.target, &d.write[..]);
        if let Some(op) = d.reduce {
            let neutral = Expr::Const(Scalar::neutral(op, p.tensors[d.target.0 as usize].dtype).unwrap());
            add(&mut out, &d.iterators[..d.outer], &[], write, None, &neutral);
        }
        add(&mut out, &d.iterators, &d.conditions, write, d.reduce, &d.body);
    }
    out
}

fn scop_nest(s: &Scop) -> LoopNest {
    let mut out = nest(&s.tensors);
    for s in &s.statements {
        add(&mut out, &s.iterators, &s.domain, (s.target, &s.write), s.reduce, &s.body);
    }
    out
}

/// Every instance by itself, in the order of the ILP's schedule.
fn scheduled_nest(scop: &Scop) -> LoopNest {
    let (schedule, report) = ilp::schedule(scop, &dependence::analyze(scop).unwrap()).unwrap();
    assert_eq!(report.fallback, None, "{scop}");
    let mut instances = vec![];
    for id in scop.ids() {
        let mut points = vec![vec![]];
        for it in &scop.statement(id).iterators {
            points = points.iter().flat_map(|p| (0..it.extent).map(move |x| [p, &[x][..]].concat())).collect();
        }
        instances.extend(points.into_iter().map(|p| (schedule.time(id, &p), id, p)));
    }
    instances.sort();
    let mut out = nest(&scop.tensors);
    for (_, id, point) in instances {
        let s = scop.statement(id);
        let mut at = |v: Var| Affine::constant(point[v.0 as usize]);
        if s.domain.iter().all(|c| c.substitute(&mut at).constant >= 0) {
            let write: Vec<Affine> = s.write.iter().map(|w| w.substitute(&mut at)).collect();
            add(&mut out, &[], &[], (s.target, &write), s.reduce, &s.body.substitute(&mut at));
        }
    }
    out
}

/// Small integers, so that the order of a sum does not matter.
fn fill(t: &TensorDecl, rng: &mut StdRng) -> Tensor {
    let n = t.shape.iter().product::<i64>() as usize;
    match (t.dtype, t.role) {
        (_, Role::Output | Role::Temporary) => Tensor::zeros(t.dtype, &t.shape),
        (DType::I64, _) => Tensor::new(&t.shape, &(0..n).map(|_| rng.random_range(0..2i64)).collect::<Vec<_>>()),
        _ => Tensor::new(&t.shape, &(0..n).map(|_| rng.random_range(-3..=3) as f32).collect::<Vec<_>>()),
    }
}

/// Runs both and compares the outputs; returns the text of the Scop.
fn compare(p: &Program, rng: &mut StdRng, context: &str) -> Scop {
    let scop = build("t", p).unwrap_or_else(|e| panic!("{e}\n{context}{p:?}"));
    let mut expected: Vec<Tensor> = p.tensors.iter().map(|t| fill(t, rng)).collect();
    let external = p.tensors.iter().filter(|t| t.role != Role::Temporary).count();
    let mut got: Vec<Tensor> = scop.tensors.iter().map(|t| Tensor::zeros(t.dtype, &t.shape)).collect();
    for (g, e) in got.iter_mut().zip(&expected[..external]) {
        g.data.copy_from_slice(&e.data);
    }
    interpret::run(&program_nest(p), &mut expected).unwrap_or_else(|e| panic!("{e}\n{context}{p:?}"));
    let mut again = got.clone();
    interpret::run(&scop_nest(&scop), &mut got).unwrap_or_else(|e| panic!("{e}\n{context}{scop}"));
    interpret::run(&scheduled_nest(&scop), &mut again).unwrap_or_else(|e| panic!("{e}\n{context}{scop}"));
    let bytes = |all: &[Tensor]| all[..external].iter().map(|t| t.data.clone()).collect::<Vec<_>>();
    assert_eq!(bytes(&got), bytes(&again), "the ILP's order of {context}{scop}");
    for (i, (g, e)) in got.iter().zip(&expected[..external]).enumerate() {
        assert_eq!(scop.tensors[i].name, p.tensors[i].name, "{context}{scop}");
        // All that is not a number is equal.
        let same = match e.dtype {
            DType::F32 => {
                let pairs = g.to_vec::<f32>().into_iter().zip(e.to_vec::<f32>());
                pairs.into_iter().all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan())
            }
            _ => g.data == e.data,
        };
        assert!(same, "tensor {i} of {context}{p:?}\n{scop}");
    }
    scop
}

#[test]
fn samples_compute_what_they_define() {
    let rng = &mut StdRng::seed_from_u64(1);
    let g = samples::Conv { size: 5, channels: 2, filters: 3, kernel: 3, stride: 1, pad: 1 };
    for p in [
        samples::matmul(3, 4, 5),
        samples::conv(g),
        samples::conv(samples::Conv { stride: 2, ..g }),
        samples::conv(samples::Conv { kernel: 1, pad: 0, ..g }),
        samples::conv(samples::Conv { size: 1, ..g }),
        samples::depthwise(6, 3, 3, 2, 1),
        samples::maxpool(6, 3, 3, 2, 1),
        samples::elementwise([2, 1, 3, 4]),
    ] {
        compare(&p, rng, "");
    }
}

/// `t[s·i + c] = Σ_k A[i + k + c]` for each class c of `size` elements, then `y[j] = max(t[j] + B[j], 0)`.
fn phases(size: i64, stride: i64) -> Program {
    let mut p = Program::default();
    let a = tensor(&mut p, Role::Input, "A", &[size + 3]);
    let b = tensor(&mut p, Role::Input, "B", &[size]);
    let y = tensor(&mut p, Role::Output, "y", &[size]);
    let t = tensor(&mut p, Role::Temporary, "t", &[size]);
    for c in 0..stride {
        let text = format!("i {}, k 2", (size - c + stride - 1) / stride);
        let body = Expr::load(a, vec![v(0).plus(Var(1), 1).offset(c)]);
        define(&mut p, t, &text, 1, Some(BinaryOp::Add), vec![], body);
        p.definitions.last_mut().unwrap().write = vec![v(0).scale(stride).offset(c)];
    }
    let sum = samples::add(Expr::load(t, vec![v(0)]), Expr::load(b, vec![v(0)]));
    define(&mut p, y, &format!("j {size}"), 1, None, vec![], samples::relu(sum));
    p
}

#[test]
fn each_residue_class_is_a_dense_tensor() {
    let rng = &mut StdRng::seed_from_u64(2);
    for (size, stride) in [(6, 2), (7, 2), (11, 3), (8, 4)] {
        let scop = compare(&phases(size, stride), rng, "");
        let temporaries = scop.tensors.iter().filter(|t| t.role == Role::Temporary);
        assert_eq!(temporaries.map(|t| t.shape[0]).sum::<i64>(), size, "{scop}");
        for s in scop.statements.iter().filter(|s| scop.tensor(s.target).role == Role::Temporary) {
            assert_eq!(s.write, [v(0)], "{scop}");
        }
    }
}

/// `t[x][F·g + f] = Σ_{c, r} A[x + r][C·g + c] · W[F·g + f][c][r]`, then `y[x][i] = max(t[x][i] + B[i], 0)`.
fn grouped(groups: i64, channels: i64, filters: i64) -> Program {
    let mut p = Program::default();
    let all = groups * filters;
    let a = tensor(&mut p, Role::Input, "A", &[6, groups * channels]);
    let w = tensor(&mut p, Role::Constant, "W", &[all, channels, 2]);
    let b = tensor(&mut p, Role::Constant, "B", &[all]);
    let y = tensor(&mut p, Role::Output, "y", &[5, all]);
    let t = tensor(&mut p, Role::Temporary, "t", &[5, all]);
    // x g f c r
    let filter = Affine::var(Var(2)).plus(Var(1), filters);
    let channel = Affine::var(Var(3)).plus(Var(1), channels);
    let body = samples::mul(
        Expr::load(a, vec![v(0).plus(Var(4), 1), channel]),
        Expr::load(w, vec![filter.clone(), v(3), v(4)]),
    );
    let text = format!("x 5, g {groups}, f {filters}, c {channels}, r 2");
    define(&mut p, t, &text, 3, Some(BinaryOp::Add), vec![], body);
    p.definitions.last_mut().unwrap().write = vec![v(0), filter];
    let sum = samples::add(Expr::load(t, vars(2)), Expr::load(b, vec![v(1)]));
    define(&mut p, y, &format!("x 5, i {all}"), 2, None, vec![], samples::relu(sum));
    p
}

#[test]
fn what_follows_a_grouped_operator_has_its_loops() {
    let rng = &mut StdRng::seed_from_u64(3);
    for (groups, channels, filters) in [(3, 2, 4), (4, 1, 2), (2, 3, 1), (1, 2, 3)] {
        let scop = compare(&grouped(groups, channels, filters), rng, "");
        let free = if groups > 1 && filters > 1 { 3 } else { 2 };
        let extents = |s: &Statement| s.iterators.iter().map(|it| it.extent).collect::<Vec<_>>();
        for s in &scop.statements {
            assert_eq!(extents(s)[..free], extents(&scop.statements[0])[..], "{scop}");
        }
        let (schedule, _) = ilp::schedule(&scop, &dependence::analyze(&scop).unwrap()).unwrap();
        let Node::Band(band, _) = &schedule.root else { panic!("{schedule:?}") };
        assert_eq!(band.rows.len(), free, "{scop}");
    }
}

/// `t[m·x + i] = Σ_k A[x][k][i]` over whole tiles, then `y[j] = max(t[j], 0)` for the first `size`.
fn tiles(tile: i64, size: i64) -> Program {
    let mut p = Program::default();
    let count = (size + tile - 1) / tile;
    let a = tensor(&mut p, Role::Input, "A", &[count, 3, tile]);
    let y = tensor(&mut p, Role::Output, "y", &[size]);
    let t = tensor(&mut p, Role::Temporary, "t", &[count * tile]);
    let body = Expr::load(a, vec![v(0), v(2), v(1)]);
    define(&mut p, t, &format!("x {count}, i {tile}, k 3"), 2, Some(BinaryOp::Add), vec![], body);
    p.definitions.last_mut().unwrap().write = vec![v(1).plus(Var(0), tile)];
    define(&mut p, y, &format!("j {size}"), 1, None, vec![], samples::relu(Expr::load(t, vars(1))));
    p
}

#[test]
fn what_follows_tiles_that_reach_beyond_the_result_has_their_loops() {
    let rng = &mut StdRng::seed_from_u64(4);
    for (tile, size) in [(4, 12), (4, 13), (4, 15), (6, 7), (2, 3)] {
        let scop = compare(&tiles(tile, size), rng, "");
        let last = scop.statements.last().unwrap();
        let extents: Vec<i64> = last.iterators.iter().map(|it| it.extent).collect();
        assert_eq!(extents, [(size + tile - 1) / tile, tile], "{scop}");
        assert_eq!(last.domain.len(), usize::from(size % tile != 0), "{scop}");
    }
}

fn iterators(shape: &[i64]) -> String {
    shape.iter().enumerate().map(|(i, e)| format!("i{i} {e}")).collect::<Vec<_>>().join(", ")
}

/// The value itself, or an elementwise function of it.
fn unary(rng: &mut StdRng, e: Expr) -> Expr {
    match rng.random_range(0..4) {
        0 => samples::relu(e),
        1 => Expr::unary(UnaryOp::Neg, e),
        2 => samples::add(e, Expr::f32(1.0)),
        _ => e,
    }
}

/// The tensor of indices of a random program.
const IDS: BufferId = BufferId(3);

/// Defines `target` from tensor `x`, and perhaps another of those known; its shape.
fn random_definition(rng: &mut StdRng, p: &mut Program, known: &[BufferId], x: BufferId, target: BufferId) -> Vec<i64> {
    let s = p.tensors[x.0 as usize].shape.clone();
    let n = s.len() as u32;
    let load = Expr::load(x, vars(n));
    let mut shape = s.clone();
    let kind = rng.random_range(0..9);
    match if n == 0 && (3..8).contains(&kind) { 8 } else { kind } {
        // Another tensor of the same shape, of the same rank or a row, if there is one.
        0 | 1 => {
            let suits = |&&b: &&BufferId| p.tensors[b.0 as usize].shape == s;
            let others: Vec<BufferId> = known.iter().filter(suits).copied().collect();
            let y = others[rng.random_range(0..others.len())];
            let op = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Max, BinaryOp::Min][rng.random_range(0..4)];
            let body = unary(rng, Expr::binary(op, load, Expr::load(y, vars(n))));
            define(p, target, &iterators(&s), n, None, vec![], body);
        }
        2 => {
            let body = unary(rng, load);
            define(p, target, &iterators(&s), n, None, vec![], body);
        }
        // Dimensions rotated.
        3 => {
            shape.rotate_left(1);
            let index = (0..n).map(|d| v((d + n - 1) % n)).collect();
            define(p, target, &iterators(&shape), n, None, vec![], Expr::load(x, index));
        }
        // Shifted along one dimension, padded.
        4 => {
            let d = rng.random_range(0..n);
            let (before, after) = (rng.random_range(-1..=1), rng.random_range(0..=1));
            shape[d as usize] = (s[d as usize] + before + after).max(1);
            let mut index = vars(n);
            index[d as usize] = v(d).offset(-before);
            let end = Affine::constant(s[d as usize] - 1).add_scaled(&index[d as usize], -1);
            let access = Access {
                buffer: x,
                guard: vec![index[d as usize].clone(), end],
                index: index.into_iter().map(Index::Affine).collect(),
                otherwise: Some(Scalar::f32([0.0, 0.0, 2.0][rng.random_range(0..3)])),
            };
            let body = unary(rng, Expr::Load(access));
            define(p, target, &iterators(&shape), n, None, vec![], body);
        }
        // The last dimension reduced, possibly only a part of it.
        5 | 6 => {
            let part = if rng.random_bool(0.3) { vec![v(n - 1).offset(-1)] } else { vec![] };
            let op = [BinaryOp::Add, BinaryOp::Max][rng.random_range(0..2)];
            let body = unary(rng, load);
            shape.pop();
            define(p, target, &iterators(&s), n - 1, Some(op), part, body);
        }
        // Two tensors one after the other along the first dimension.
        7 => {
            let body = Expr::load(x, vars(n));
            define(p, target, &iterators(&s), n, None, vec![], body.clone());
            define(p, target, &iterators(&s), n, None, vec![], Expr::unary(UnaryOp::Neg, body));
            p.definitions.last_mut().unwrap().write[0].constant = shape[0];
            shape[0] *= 2;
        }
        // Rows chosen by an index tensor, or a mask by position.
        _ if n > 0 && s[0] >= 2 => {
            let mut index: Vec<Index> = vars(n).into_iter().map(Index::Affine).collect();
            shape[0] = 3;
            index[0] = Index::Value(Box::new(Expr::load(IDS, vec![v(0)])));
            let read = Expr::Load(Access { buffer: x, index, guard: vec![], otherwise: None });
            define(p, target, &iterators(&shape), n, None, vec![], unary(rng, read));
        }
        _ => {
            let sum = (0..n).fold(Affine::constant(0), |a, i| a.plus(Var(i), 1));
            let odd = Expr::compare(CompareOp::Gt, Expr::Index(sum), Expr::Const(Scalar::i64(1)));
            let body = Expr::select(odd, load, Expr::f32(0.0));
            define(p, target, &iterators(&s), n, None, vec![], body);
        }
    }
    shape
}

/// A program of two to six definitions of the kinds that operators have.
fn random_program(rng: &mut StdRng) -> Program {
    let mut p = Program::default();
    let shape: Vec<i64> = (0..rng.random_range(1..=4)).map(|_| [1, 2, 3, 3, 4][rng.random_range(0..5)]).collect();
    let mut known = vec![];
    for i in 0..3 {
        let role = [Role::Input, Role::Constant][rng.random_range(0..2)];
        known.push(tensor(&mut p, role, &format!("X{i}"), &shape));
    }
    p.tensors.push(TensorDecl::new("ids", DType::I64, [3], Role::Input));
    // Outputs come before temporaries: their shapes are not known yet.
    let steps = rng.random_range(2..=6);
    let outputs: Vec<bool> = (0..steps).map(|k| k + 1 == steps || rng.random_bool(0.15)).collect();
    let names: Vec<BufferId> = {
        let (mut out, mut temporary) = (4, 4 + outputs.iter().filter(|o| **o).count() as u32);
        let mut next = |o: bool| {
            let counter = if o { &mut out } else { &mut temporary };
            *counter += 1;
            BufferId(*counter - 1)
        };
        outputs.iter().map(|&o| next(o)).collect()
    };
    p.tensors.resize(4 + steps, TensorDecl::new("", DType::F32, [], Role::Output));
    for (k, &target) in names.iter().enumerate() {
        let x = known[known.len() - 1 - rng.random_range(0..known.len().min(3))];
        let shape = random_definition(rng, &mut p, &known, x, target);
        let role = if outputs[k] { Role::Output } else { Role::Temporary };
        p.tensors[target.0 as usize] = TensorDecl::new(format!("T{k}"), DType::F32, shape, role);
        known.push(target);
    }
    p
}

#[test]
fn random_programs_compute_what_they_define() {
    let rounds: u64 = std::env::var("TILEWRIGHT_FUZZ").ok().and_then(|s| s.parse().ok()).unwrap_or(300);
    let first: u64 = std::env::var("TILEWRIGHT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let (mut definitions, mut statements, mut flat, mut guarded) = (0, 0, 0, 0);
    for seed in first..first + rounds {
        let rng = &mut StdRng::seed_from_u64(seed);
        let p = random_program(rng);
        let scop = compare(&p, rng, &format!("seed {seed}\n"));
        definitions += p.definitions.len();
        statements += scop.statements.len();
        flat += usize::from(scop.statements.iter().all(|s| s.iterators.len() <= 1));
        for s in &scop.statements {
            s.body.visit_accesses(&mut |a| guarded += usize::from(!a.guard.is_empty()));
        }
    }
    println!(
        "{rounds} programs from seed {first}: {definitions} definitions became {statements} statements, {flat} programs \
         without nested loops, {guarded} guarded reads"
    );
    if rounds >= 300 {
        assert!(statements < definitions && flat > 30 && guarded > 30);
    }
}
