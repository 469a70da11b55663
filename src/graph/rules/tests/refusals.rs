//! Samples on which a row must not apply: each breaks one of its conditions.

use super::{NHWC_TO_NCHW, Row, Sample, conv, gelu, norm, pool, row, turned, unblocked, wide_conv, window};
use crate::expr::{BinaryOp, UnaryOp};
use crate::graph::ir::ValueId;
use crate::graph::op::{F32, Layout, Op, PoolKind, ReduceOp};
use crate::graph::rules;
use crate::runtime::{DType, Tensor};
use egg::Id;

fn integers(s: &mut Sample, op: BinaryOp, second: Option<BinaryOp>) -> ValueId {
    let x = s.x(&[4]);
    let whole = s.op(Op::Cast(DType::I64), &[x]);
    let c = s.constant(Tensor::new(&[], &[3i64]));
    let once = s.binary(op, whole, c);
    second.map_or(once, |op| s.binary(op, once, c))
}

/// x / √(mean of the squares of x - mean), the means over these axes.
fn spelled_norm(s: &mut Sample, centre: &[usize], axes: &[usize]) -> ValueId {
    let x = s.x(&[2, 3, 8]);
    let mean = s.reduce(ReduceOp::Mean, x, centre, true);
    let d = s.binary(BinaryOp::Sub, x, mean);
    let square = s.mul(d, d);
    let variance = s.reduce(ReduceOp::Mean, square, axes, true);
    let epsilon = s.n(1e-5);
    let sum = s.add(variance, epsilon);
    let root = s.unary(UnaryOp::Sqrt, sum);
    s.binary(BinaryOp::Div, d, root)
}

fn softmax_over(s: &mut Sample, axes: &[usize], keep: bool) -> ValueId {
    let x = s.x(&[6, 6, 6]);
    let e = s.unary(UnaryOp::Exp, x);
    let t = s.reduce(ReduceOp::Sum, e, axes, keep);
    s.binary(BinaryOp::Div, e, t)
}

fn scaled_conv(s: &mut Sample, factor: &[i64]) -> ValueId {
    let x = s.x(&[1, 4, 3, 3]);
    let c = conv(s, x, 3, 1, 1, false, Layout::Nchw);
    let f = s.c(factor);
    s.mul(c, f)
}

fn padded_conv(s: &mut Sample, before: &[i64], value: f32) -> ValueId {
    let x = s.x(&[1, 3, 3, 3]);
    let value = u64::from(value.to_bits());
    let p = s.op(Op::Pad { before: before.to_vec(), after: vec![0; 4], value }, &[x]);
    let w = s.c(&[6, 3 + before[1], 3, 3]);
    s.op(Op::Conv { window: window(&[3, 3], 1, 1), group: 1, layout: Layout::Nchw }, &[p, w])
}

#[rustfmt::skip]
fn refusals() -> Vec<Row> {
    use Layout::Nchw;
    vec![
        // ---- recognise: another constant, another operand
        row("sigmoid", |s| { let x = s.x(&[7]); let m = s.unary(UnaryOp::Neg, x); let e = s.unary(UnaryOp::Exp, m); let (one, near) = (s.n(1.0), s.n(1.00005)); let d = s.add(e, near); s.binary(BinaryOp::Div, one, d) }),
        row("silu", |s| { let (x, y) = (s.x(&[7]), s.x(&[7])); let g = s.op(Op::Sigmoid, &[x]); s.mul(g, y) }),
        row("hard-swish", |s| { let x = s.x(&[9]); let h = s.op(Op::HardSigmoid { alpha: F32::new(0.16668), beta: F32::new(0.5) }, &[x]); s.mul(h, x) }),
        row("hard-swish", |s| { let x = s.x(&[9]); let h = s.op(Op::HardSigmoid { alpha: F32::new(1.0 / 6.0), beta: F32::new(0.50004) }, &[x]); s.mul(h, x) }),
        row("hard-sigmoid", |s| { let x = s.x(&[9]); let (a, b) = (s.n(0.7), s.n(0.4)); let m = s.mul(x, a); let p = s.add(m, b); s.clip(p, 0.0, 1.00005, true) }),
        row("hard-sigmoid-6", |s| { let x = s.x(&[9]); let three = s.n(3.0); let p = s.add(x, three); let c = s.clip(p, 0.0, 6.0, true); let f = s.n(0.16668); s.mul(c, f) }),
        row("gelu-half-sum", |s| gelu(s, 0)),
        row("gelu", |s| { let x = s.x(&[9]); let c = s.n(0.70715); let i = s.mul(x, c); let e = s.unary(UnaryOp::Erf, i); let (one, half) = (s.n(1.0), s.n(0.5)); let t = s.add(e, one); let m = s.mul(x, t); s.mul(m, half) }),
        row("layer-norm", |s| spelled_norm(s, &[1], &[1])),
        row("layer-norm", |s| spelled_norm(s, &[1], &[2])),
        row("layer-norm", |s| spelled_norm(s, &[0, 2], &[0, 2])),
        row("layer-norm-scale", |s| { let l = norm(s, false); let c = s.c(&[3, 1]); s.mul(l, c) }),
        row("layer-norm-scale", |s| { let l = norm(s, true); let c = s.c(&[8]); s.mul(l, c) }),
        row("layer-norm-bias", |s| { let l = norm(s, false); let c = s.c(&[3, 8]); s.add(l, c) }),
        row("softmax", |s| softmax_over(s, &[1, 2], true)),
        row("softmax", |s| softmax_over(s, &[0], false)),
        // ---- canonical arithmetic
        row("div-constant", |s| integers(s, BinaryOp::Div, None)),
        row("sub-constant", |s| integers(s, BinaryOp::Sub, None)),
        row("mul-mul", |s| integers(s, BinaryOp::Mul, Some(BinaryOp::Mul))),
        row("add-add", |s| integers(s, BinaryOp::Add, Some(BinaryOp::Add))),
        row("pow-2", |s| { let x = s.x(&[5]); let c = s.n(2.0001); s.binary(BinaryOp::Pow, x, c) }),
        row("pow-half", |s| { let x = s.x(&[5]); let c = s.n(0.50002); s.binary(BinaryOp::Pow, x, c) }),
        row("mul-1", |s| { let x = s.x(&[5]); let c = s.n(1.00005); s.mul(x, c) }),
        row("mul-1", |s| { let x = s.x(&[5]); let c = s.constant(Tensor::new(&[2, 1], &[1f32, 1.0])); s.mul(x, c) }),
        row("add-0", |s| { let x = s.x(&[5]); let c = s.n(1e-20); s.add(c, x) }),
        row("distribute-scale", |s| { let x = s.x(&[2, 3]); let (a, b) = (s.c(&[3]), s.c(&[3])); let t = s.add(x, a); s.mul(t, b) }),
        // ---- scale and shift into weights
        row("conv-scale", |s| scaled_conv(s, &[3, 1])),
        row("conv-scale", |s| scaled_conv(s, &[6, 3, 3])),
        row("conv-scale", |s| { let x = s.x(&[1, 4, 3, 3]); let w = s.x(&[6, 4, 1, 1]); let c = s.op(Op::Conv { window: window(&[1, 1], 1, 0), group: 1, layout: Nchw }, &[x, w]); let f = s.c(&[6, 1, 1]); s.mul(c, f) }),
        row("conv-shift", |s| { let x = s.x(&[1, 4, 3, 3]); let c = conv(s, x, 3, 1, 1, true, Nchw); let f = s.c(&[1, 3]); s.add(c, f) }),
        row("scale-conv", |s| { let x = s.x(&[1, 1, 3, 3]); let f = s.c(&[4, 1, 1]); let m = s.mul(x, f); conv(s, m, 3, 1, 1, true, Nchw) }),
        row("shift-conv", |s| { let x = s.x(&[1, 4, 3, 3]); let f = s.c(&[4, 1, 1]); let m = s.add(x, f); conv(s, m, 3, 1, 1, true, Nchw) }),
        row("matmul-scale", |s| { let x = s.x(&[3, 5]); let w = s.c(&[5, 4]); let p = s.matmul(x, w, false, false); let f = s.c(&[3, 1]); s.mul(p, f) }),
        row("matmul-scale", |s| { let x = s.x(&[2, 3, 5]); let w = s.c(&[2, 5, 4]); let p = s.matmul(x, w, false, false); let f = s.c(&[4]); s.mul(p, f) }),
        row("scale-matmul", |s| { let x = s.x(&[3, 5]); let f = s.c(&[3, 1]); let m = s.mul(x, f); let w = s.c(&[5, 4]); s.matmul(m, w, false, false) }),
        row("pad-conv", |s| padded_conv(s, &[0, 0, 1, 0], 0.5)),
        row("pad-conv", |s| padded_conv(s, &[0, 1, 0, 0], 0.0)),
        // ---- copies
        row("transpose-units", |s| { let x = s.x(&[1, 2, 4]); s.transpose(x, &[0, 2, 1]) }),
        row("slice-same", |s| { let x = s.x(&[3]); s.slice(x, &[2], &[-1], &[-1]) }),
        row("cast-same", |s| { let x = s.x(&[3]); s.op(Op::Cast(DType::F64), &[x]) }),
        row("concat-one", |s| { let x = s.x(&[2, 3]); s.op(Op::Concat { axis: 1 }, &[x, x]) }),
        row("slice-slice", |s| { let x = s.x(&[9]); let a = s.slice(x, &[8], &[-1], &[-1]); s.slice(a, &[1], &[4], &[2]) }),
        row("slice-concat", |s| { let (x, y) = (s.x(&[2, 3]), s.x(&[2, 4])); let c = s.op(Op::Concat { axis: 1 }, &[x, y]); s.slice(c, &[0, 2], &[2, 5], &[1, 1]) }),
        row("copies-are-injective", |s| { let x = s.x(&[2, 2]); let one = s.n(1.0); let y = s.mul(x, one); let (a, b) = (s.transpose(x, &[1, 0]), s.reshape(y, &[2, 2])); s.equal.push((a, b)); s.add(a, b) }),
        row("copies-are-injective", |s| { let x = s.x(&[2, 3]); let y = s.reshape(x, &[3, 2]); let (a, b) = (s.reshape(x, &[6]), s.reshape(y, &[6])); s.equal.push((a, b)); s.add(a, b) }),
        row("reshape-slice", |s| { let x = s.x(&[2, 24]); let a = s.slice(x, &[0, 6], &[2, 18], &[1, 1]); s.reshape(a, &[2, 3, 4]) }),
        row("reshape-slice", |s| { let x = s.x(&[4, 6]); let a = s.slice(x, &[0, 2], &[4, 4], &[1, 1]); s.reshape(a, &[8]) }),
        row("gather-scalar", |s| { let x = s.x(&[2, 3]); let i = s.constant(Tensor::new(&[2], &[0i64, 1])); s.op(Op::Gather { axis: 1 }, &[x, i]) }),
        row("expand-operand", |s| { let x = s.x(&[1, 3]); let e = s.op(Op::Expand { shape: vec![2, 3] }, &[x]); s.unary(UnaryOp::Neg, e) }),
        // ---- products and reductions
        row("scalar-matmul-a", |s| { let x = s.x(&[3, 5]); let f = s.c(&[5]); let m = s.mul(x, f); let y = s.x(&[5, 4]); s.matmul(m, y, false, false) }),
        row("matmul-transposed-a", |s| { let x = s.x(&[3, 2, 5]); let t = s.transpose(x, &[1, 0, 2]); let y = s.x(&[2, 5, 4]); s.matmul(t, y, false, false) }),
        row("matmul-transposed-b", |s| { let x = s.x(&[2, 3, 5]); let y = s.c(&[4, 5]); let t = s.transpose(y, &[1, 0]); s.matmul(x, t, false, false) }),
        row("matmul-shared", |s| { let x = s.x(&[3, 5]); let w = s.c(&[5, 2]); s.matmul(x, w, false, false) }),
        row("matmul-shared", |s| { let x = s.x(&[3, 5]); let (a, b) = (s.x(&[5, 2]), s.c(&[5, 4])); let p = s.matmul(x, a, false, false); let q = s.matmul(x, b, false, false); s.op(Op::Concat { axis: 1 }, &[q, p]) }),
        row("max-pool-whole", |s| { let x = s.x(&[1, 4, 3, 3]); pool(s, x, PoolKind::Max, 3, 1, 1) }),
        row("max-pool-whole", |s| { let x = s.x(&[1, 4, 3, 3]); pool(s, x, PoolKind::Max, 2, 1, 0) }),
        row("average-pool-whole", |s| { let x = s.x(&[1, 4, 3, 3]); pool(s, x, PoolKind::Average { count_padding: true }, 3, 3, 1) }),
        // ---- layout
        row("conv-nhwc", |s| { let x = s.x(&[1, 5, 3, 4]); conv(s, x, 3, 1, 2, true, Layout::Nhwc) }),
        row("elementwise-transpose", |s| { let (a, b) = (s.x(&[1, 4, 5, 3]), s.x(&[1, 4, 5, 3])); s.add(a, b) }),
        row("elementwise-transpose", |s| { let x = s.x(&[4, 5, 3]); let a = s.transpose(x, &[2, 1, 0]); let b = s.x(&[3, 5, 4]); s.add(a, b) }),
        row("softmax-transpose", |s| { let a = turned(s); s.op(Op::Softmax { axis: 2, log: false }, &[a]) }),
        row("reshape-transpose", |s| { let a = turned(s); s.reshape(a, &[1, 20, 3]) }),
        row("reshape-transpose", |s| { let x = s.x(&[2, 3, 4]); let a = s.transpose(x, &NHWC_TO_NCHW[1..].iter().map(|d| d - 1).collect::<Vec<_>>()); s.reshape(a, &[24]) }),
        // ---- layouts of blocks
        row("conv-blocked", |s| { let x = s.x(&[1, 8, 5, 3]); wide_conv(s, x, 6, 3, 1, false) }),
        row("conv-blocked", |s| { let x = s.x(&[1, 6, 5, 3]); let w = s.c(&[8, 6, 1, 1]); s.op(Op::Conv { window: window(&[1, 1], 1, 0), group: 1, layout: Nchw }, &[x, w]) }),
        row("max-pool-blocked", |s| { let x = s.x(&[1, 6, 5, 3]); pool(s, x, PoolKind::Max, 2, 2, 1) }),
        row("elementwise-unblock", |s| { let a = unblocked(s); let b = s.x(&[1, 8, 5, 3]); let c = s.add(b, b); let _ = a; s.mul(b, c) }),
        row("sum-unblock", |s| { let a = unblocked(s); s.reduce(ReduceOp::Sum, a, &[1, 2], false) }),
    ]
}

#[test]
fn no_rule_applies_where_its_condition_is_broken() {
    let table = rules::all(Some(4));
    for (i, (name, make)) in refusals().into_iter().enumerate() {
        let rule = table.iter().find(|r| r.name == name).unwrap_or_else(|| panic!("{name} is no rule"));
        let mut s = Sample::default();
        let root = make(&mut s);
        let mut network = s.network(root);
        for id in (0..network.egraph.nodes().len()).map(Id::from) {
            let term = network.egraph.id_to_node(id).clone();
            let equal = rule.apply(&mut network, id, &term);
            assert!(equal.is_empty(), "{name} (row {i}) applies at {term:?}");
        }
    }
}
