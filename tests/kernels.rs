//! Operators through the polyhedral part: every definition, compiled for every target, computes in the interpreter of loop
//! nests what the equations say. Extents are odd, so that vectors and tiles have remainders. A reshape has no kernel: between
//! groups it is an alias, inside of one its subscripts are affine.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tilewright::Target;
use tilewright::internal::codegen::loopnest::{interpret, simplify, verify};
use tilewright::internal::expr::{BinaryOp, CompareOp, UnaryOp};
use tilewright::internal::graph::define::define;
use tilewright::internal::graph::op::{F32, Layout, Op, PoolKind, ReduceOp, Window};
use tilewright::internal::graph::tensor_type::TensorType;
use tilewright::internal::pipeline::kernel::{self, CompiledKernel, Statements};
use tilewright::internal::poly::lower::state::Argument;
use tilewright::internal::poly::reference::evaluate;
use tilewright::internal::poly::statement::{Program, Role};
use tilewright::{DType, Tensor};

fn f(shape: &[i64]) -> TensorType {
    TensorType { dtype: DType::F32, shape: shape.to_vec() }
}

fn ids(shape: &[i64]) -> TensorType {
    TensorType { dtype: DType::I64, shape: shape.to_vec() }
}

fn window(kernel: i64, stride: i64, dilation: i64, pad: i64) -> Window {
    Window {
        kernel: vec![kernel; 2],
        stride: vec![stride; 2],
        dilation: vec![dilation; 2],
        pad_before: vec![pad; 2],
        pad_after: vec![pad; 2],
    }
}

/// Operators, their inputs, and which of these are constants.
fn cases() -> Vec<(Op, Vec<TensorType>, Vec<usize>)> {
    let epsilon = F32::new(1e-5);
    let mut out: Vec<(Op, Vec<TensorType>, Vec<usize>)> = vec![
        (Op::Select, vec![TensorType { dtype: DType::Bool, shape: vec![9, 1] }, f(&[1, 37]), f(&[])], vec![]),
        (Op::Cast(DType::I64), vec![f(&[53])], vec![]),
        (Op::Cast(DType::F32), vec![ids(&[5, 19])], vec![]),
        (Op::Gelu, vec![f(&[3, 70])], vec![]),
        (Op::HardSwish, vec![f(&[3, 5000])], vec![]),
        (Op::Unary(UnaryOp::Neg), vec![f(&[3, 37])], vec![]),
        (Op::Binary(BinaryOp::Max), vec![f(&[3, 37]), f(&[37])], vec![]),
        (Op::Binary(BinaryOp::Min), vec![f(&[3, 37]), f(&[])], vec![]),
        (Op::Binary(BinaryOp::Mul), vec![f(&[3, 37]), f(&[3, 37])], vec![]),
        (Op::Unary(UnaryOp::Exp), vec![f(&[0, 4])], vec![]),
        (Op::Binary(BinaryOp::Add), vec![f(&[2, 7, 5, 24]), f(&[24])], vec![1]),
        (Op::Binary(BinaryOp::Mul), vec![f(&[2, 24, 7, 5]), f(&[24, 1, 1])], vec![]),
        (Op::Binary(BinaryOp::Sub), vec![f(&[1, 3, 40]), f(&[40, 1, 1])], vec![]),
        (Op::Binary(BinaryOp::Add), vec![ids(&[3, 21]), ids(&[21])], vec![]),
        (Op::Compare(CompareOp::Lt), vec![ids(&[4, 20]), ids(&[20])], vec![]),
        (Op::Transpose { perm: vec![0, 2, 3, 1] }, vec![f(&[2, 19, 7, 9])], vec![]),
        (Op::Transpose { perm: vec![0, 3, 1, 2] }, vec![f(&[2, 7, 9, 35])], vec![]),
        (Op::Transpose { perm: vec![2, 0, 1] }, vec![f(&[33, 3, 18])], vec![]),
        (Op::Expand { shape: vec![5, 3, 40] }, vec![f(&[3, 1])], vec![]),
        (Op::Slice { starts: vec![8, 1], ends: vec![-1, 40], steps: vec![-2, 3] }, vec![f(&[9, 47])], vec![]),
        (Op::Concat { axis: 1 }, vec![f(&[3, 5, 20]), f(&[3, 17, 20]), f(&[3, 2, 20])], vec![]),
        (Op::Concat { axis: 2 }, vec![f(&[3, 5, 20]), f(&[3, 5, 33])], vec![]),
        (Op::Pad { before: vec![0, 2, 3], after: vec![1, 0, 18], value: 0x3f80_0000 }, vec![f(&[2, 3, 20])], vec![]),
        (Op::Block { block: 16 }, vec![f(&[1, 35, 5, 7])], vec![]),
        (Op::Unblock { channels: 35 }, vec![f(&[1, 3, 5, 7, 16])], vec![]),
        (Op::Upsample { factors: vec![1, 2, 2, 1] }, vec![f(&[1, 5, 6, 20])], vec![]),
        (Op::Upsample { factors: vec![1, 1, 2, 3] }, vec![f(&[1, 3, 5, 20])], vec![]),
        (Op::Gather { axis: 0 }, vec![f(&[5, 70]), ids(&[3, 4])], vec![0]),
        (Op::Gather { axis: 1 }, vec![f(&[20, 5, 3]), ids(&[2])], vec![]),
        (Op::GatherElements { axis: 1 }, vec![f(&[7, 5]), ids(&[7, 19])], vec![]),
        (Op::Lookup, vec![f(&[5, 70]), ids(&[3, 4])], vec![0]),
        (Op::GatherNd { batch_dims: 1 }, vec![f(&[2, 5, 5, 20]), ids(&[2, 3, 2])], vec![]),
        (Op::ScatterElements { axis: 1, reduction: None }, vec![f(&[7, 5]), ids(&[6, 19]), f(&[6, 19])], vec![]),
        (Op::ScatterElements { axis: 0, reduction: None }, vec![f(&[5, 37]), ids(&[3, 35]), f(&[3, 35])], vec![1]),
        (
            Op::ScatterElements { axis: 1, reduction: None },
            vec![f(&[3, 6, 70]), ids(&[3, 4, 1]), f(&[3, 4, 70])],
            vec![],
        ),
        (Op::ScatterNd { reduction: None }, vec![f(&[5, 7, 70]), ids(&[3, 9, 2]), f(&[3, 9, 70])], vec![]),
        (Op::ScatterNd { reduction: None }, vec![f(&[5]), ids(&[0, 1]), f(&[0])], vec![]),
        (Op::LayerNorm { axis: 2, epsilon }, vec![f(&[1, 5, 70]), f(&[70]), f(&[70])], vec![1, 2]),
        (Op::LayerNorm { axis: 1, epsilon }, vec![f(&[3, 4, 9]), f(&[4, 9])], vec![1]),
        (Op::Softmax { axis: 3, log: false }, vec![f(&[1, 3, 5, 37])], vec![]),
        (Op::Softmax { axis: 1, log: true }, vec![f(&[2, 9, 5, 7])], vec![]),
        (Op::Softmax { axis: 1, log: false }, vec![f(&[1, 1000])], vec![]),
    ];
    for (m, k, n) in [(1, 1, 1), (1, 70, 50), (29, 17, 1), (37, 21, 50), (14, 3, 65), (100, 9, 7)] {
        for (a, b) in [(false, false), (true, false), (false, true), (true, true)] {
            let of = |t: bool, r: i64, c: i64| f(&if t { [c, r] } else { [r, c] });
            let op = Op::MatMul { transpose_a: a, transpose_b: b };
            out.push((op.clone(), vec![of(a, m, k), of(b, k, n)], vec![1]));
            out.push((op, vec![of(a, m, k), of(b, k, n)], vec![]));
        }
    }
    let matmul = |a, b| Op::MatMul { transpose_a: a, transpose_b: b };
    out.push((matmul(false, true), vec![f(&[2, 3, 19, 8]), f(&[2, 3, 21, 8])], vec![]));
    out.push((matmul(false, false), vec![f(&[2, 3, 19, 8]), f(&[3, 8, 40])], vec![]));
    out.push((matmul(false, false), vec![f(&[2, 9, 20]), f(&[20, 33])], vec![1]));
    for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::L2, ReduceOp::LogSumExp] {
        for axes in [vec![0], vec![1], vec![2], vec![0, 2], vec![0, 1, 2]] {
            out.push((Op::Reduce { op, axes, keep: false }, vec![f(&[5, 6, 35])], vec![]));
        }
    }
    for reduction in [BinaryOp::Add, BinaryOp::Mul, BinaryOp::Min, BinaryOp::Max].map(Some) {
        let types = vec![f(&[3, 5, 33]), ids(&[3, 19, 33]), f(&[3, 19, 33])];
        out.push((Op::ScatterElements { axis: 1, reduction }, types, vec![]));
        out.push((Op::ScatterNd { reduction }, vec![f(&[6, 50]), ids(&[40, 1]), f(&[40, 50])], vec![0]));
        out.push((Op::ScatterNd { reduction }, vec![ids(&[5]), ids(&[90, 1]), ids(&[90])], vec![]));
    }
    for layout in [Layout::Nchw, Layout::Nhwc, Layout::Blocked(8)] {
        let image = |c: i64, h: i64, w: i64| match layout {
            Layout::Nchw => f(&[1, c, h, w]),
            Layout::Nhwc => f(&[1, h, w, c]),
            Layout::Blocked(b) => f(&[1, (c + b as i64 - 1) / b as i64, h, w, b as i64]),
        };
        for (c, n, group, k, s, d, p) in [
            (5, 20, 1, 3, 1, 1, 1),
            (3, 33, 1, 7, 2, 1, 3),
            (16, 40, 1, 1, 1, 1, 0),
            (6, 10, 1, 1, 2, 1, 0),
            (24, 24, 24, 3, 1, 1, 1),
            (40, 40, 40, 5, 2, 1, 2),
            (16, 32, 2, 3, 1, 2, 2),
            (24, 24, 6, 3, 1, 1, 1),
            (12, 24, 6, 3, 2, 1, 1),
        ] {
            if matches!(layout, Layout::Blocked(b) if group > 1 && group < c && c / group % b as i64 != 0) {
                continue;
            }
            let w = window(k, s, d, p);
            let types = vec![image(c, 9, 11), f(&[n, c / group, k, k]), f(&[n])];
            out.push((Op::Conv { window: w.clone(), group, layout }, types, vec![1, 2]));
            if group == 1 && k == 3 {
                let op = Op::ConvTranspose { window: w, group, output_pad: vec![0, 0], layout };
                out.push((op, vec![image(c, 4, 5), f(&[c, n, k, k])], vec![1]));
            }
        }
        for kind in
            [PoolKind::Max, PoolKind::Average { count_padding: true }, PoolKind::Average { count_padding: false }]
        {
            for (k, s, p) in [(2, 2, 0), (3, 2, 1)] {
                out.push((Op::Pool { kind, window: window(k, s, 1, p), layout }, vec![image(24, 9, 11)], vec![]));
            }
        }
    }
    out
}

/// The definition fixes every bit of the result: the operator moves elements, or rounds once.
fn is_exact(op: &Op) -> bool {
    use UnaryOp::{Abs, Ceil, Floor, Neg, Not, Round, Sqrt};
    match op {
        Op::Unary(op) => matches!(op, Neg | Abs | Sqrt | Floor | Ceil | Round | Not),
        Op::Binary(op) => *op != BinaryOp::Pow,
        Op::Compare(_) | Op::Select | Op::Cast(_) | Op::Expand { .. } | Op::Transpose { .. } => true,
        Op::Slice { .. } | Op::Concat { .. } | Op::Pad { .. } | Op::Upsample { .. } => true,
        Op::Block { .. } | Op::Unblock { .. } => true,
        Op::Gather { .. } | Op::GatherElements { .. } | Op::GatherNd { .. } | Op::Lookup => true,
        Op::ScatterElements { reduction, .. } | Op::ScatterNd { reduction } => {
            reduction.is_none_or(|op| matches!(op, BinaryOp::Min | BinaryOp::Max))
        }
        _ => false,
    }
}

/// Numbers between -0.7 and 1.3; with `special` ones zeros of both signs, infinities and what is not a number.
fn fill(p: &Program, special: bool) -> Vec<Tensor> {
    const SPECIAL: [f32; 5] = [-0.0, 0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let mut rng = StdRng::seed_from_u64(12345);
    let mut next = move || rng.random::<f32>();
    let external = p.tensors.iter().filter(|t| matches!(t.role, Role::Input | Role::Constant));
    external
        .map(|t| {
            let n = t.shape.iter().product::<i64>();
            match t.dtype {
                DType::F32 => {
                    let mut real = || match next() {
                        chosen if special && chosen < 0.4 => SPECIAL[(next() * 5.0) as usize],
                        _ => next() * 2.0 - 0.7,
                    };
                    Tensor::new(&t.shape, &(0..n).map(|_| real()).collect::<Vec<f32>>())
                }
                DType::I64 => Tensor::new(&t.shape, &(0..n).map(|_| (next() * 5.0) as i64).collect::<Vec<_>>()),
                _ => {
                    let mut x = Tensor::zeros(t.dtype, &t.shape);
                    x.data.iter_mut().for_each(|b| *b = (next() > 0.5) as u8);
                    x
                }
            }
        })
        .collect()
}

fn run(c: &CompiledKernel, nest: &tilewright::internal::codegen::loopnest::LoopNest, inputs: &[Tensor]) -> Tensor {
    let external = |id: u32| {
        let t = c.scop.tensor(tilewright::internal::expr::BufferId(id));
        match t.role {
            Role::Output => Tensor::zeros(t.dtype, &t.shape),
            _ => Tensor { shape: t.shape.clone(), ..inputs[id as usize].clone() },
        }
    };
    let mut arguments: Vec<Tensor> = c
        .kernel
        .arguments
        .iter()
        .map(|a| match a {
            Argument::Tensor(b) => external(b.0),
            Argument::Packed(pack) => pack.apply(&external(pack.source.0)),
            Argument::Workspace { bytes } => {
                Tensor { dtype: DType::U8, shape: vec![*bytes as i64], data: vec![0xff; *bytes].into() }
            }
        })
        .collect();
    interpret::run(nest, &mut arguments).unwrap_or_else(|e| panic!("{e}\n{nest}"));
    let output = |a: &Argument| matches!(a, Argument::Tensor(b) if c.scop.tensor(*b).role == Role::Output);
    arguments.swap_remove(c.kernel.arguments.iter().position(output).expect("an output"))
}

fn compare(op: &Op, target: &str, stage: &str, actual: &Tensor, expected: &Tensor, text: &dyn std::fmt::Display) {
    assert_eq!(actual.dtype, expected.dtype);
    if actual.dtype != DType::F32 {
        assert!(actual.data == expected.data, "{op} {target} {stage}\n{text}");
        return;
    }
    let expected = expected.to_vec::<f32>();
    let scale = expected.iter().filter(|v| v.is_finite()).fold(1.0f32, |a, b| a.max(b.abs()));
    let tolerance = if is_exact(op) { 0.0 } else { 1e-5 * scale };
    for (i, (a, e)) in actual.to_vec::<f32>().iter().zip(&expected).enumerate() {
        let same = a.to_bits() == e.to_bits() || a.is_nan() && e.is_nan();
        let close = same || tolerance > 0.0 && (a - e).abs() <= tolerance;
        assert!(close, "{op} {target} {stage}: element {i} is {a}, not {e}\n{text}");
    }
}

#[test]
fn every_operator_computes_what_it_defines() {
    let cases = cases();
    assert!(cases.len() > 120, "{}", cases.len());
    for (op, types, constants) in cases {
        let mut program = define(&op, &types).unwrap_or_else(|e| panic!("{op}: {e}"));
        for i in constants {
            program.tensors[i].role = Role::Constant;
        }
        // Beyond its range the conversion to integers is not defined.
        let inputs = fill(&program, is_exact(&op) && !matches!(op, Op::Cast(_)));
        let expected = evaluate(&program, &inputs.iter().collect::<Vec<_>>()).unwrap().remove(0);
        for target in Target::all() {
            let c = Statements::of_expression("case", &program)
                .and_then(|statements| kernel::compile(statements, &target))
                .unwrap_or_else(|e| panic!("{op}: {e}"));
            assert_eq!(c.fallback(), None, "{op}, {}", target.name);
            let nest = &c.kernel.nest;
            verify::verify(nest).unwrap_or_else(|e| panic!("{op} {}: {e}\n{nest}", target.name));
            compare(&op, &target.name, "lowered", &run(&c, nest, &inputs), &expected, nest);
            let simple = simplify::simplify(nest);
            compare(&op, &target.name, "simplified", &run(&c, &simple, &inputs), &expected, &simple);
        }
    }
}
