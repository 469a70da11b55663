//! Every row of the tables has samples here; on each the row must apply, and both sides must agree.

mod graphs;
mod refusals;
mod support;

use crate::codegen::Target;
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::egraph::convert::{Loaded, load};
use crate::graph::egraph::network::{Head, Network, Term};
use crate::graph::egraph::{Optimized, Options, optimize};
use crate::graph::infer::infer;
use crate::graph::ir::{Graph, Node, Source, Value, ValueId};
use crate::graph::op::{F32, Layout, Op, PoolKind, ReduceOp, Window};
use crate::graph::rules;
use crate::graph::tensor_type::TensorType;
use crate::runtime::{DType, Tensor};
use egg::Id;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A small graph under construction with numbers that depend on nothing but their order.
#[derive(Default)]
struct Sample {
    graph: Graph,
    state: u64,
    /// Values that are equal though the graph does not show it: their classes are united from the start.
    equal: Vec<(ValueId, ValueId)>,
}

impl Sample {
    fn random(&mut self) -> f32 {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.state >> 40) as f32 / (1u64 << 24) as f32) * 2.0 - 1.0
    }
    fn tensor(&mut self, shape: &[i64]) -> Tensor {
        let count: i64 = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|_| self.random()).collect();
        Tensor::new(shape, &values)
    }
    fn value(&mut self, ty: TensorType, source: Source) -> ValueId {
        self.graph.values.push(Value { name: format!("v{}", self.graph.values.len()), ty, source });
        ValueId(self.graph.values.len() as u32 - 1)
    }
    fn x(&mut self, shape: &[i64]) -> ValueId {
        let v = self.value(TensorType::new(DType::F32, shape), Source::Input);
        self.graph.inputs.push(v);
        v
    }
    fn constant(&mut self, t: Tensor) -> ValueId {
        self.value(TensorType::of(&t), Source::Constant(Arc::new(t)))
    }
    fn c(&mut self, shape: &[i64]) -> ValueId {
        let t = self.tensor(shape);
        self.constant(t)
    }
    fn n(&mut self, v: f32) -> ValueId {
        self.constant(Tensor::new(&[], &[v]))
    }
    fn op(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        let types: Vec<&TensorType> = inputs.iter().map(|&v| &self.graph.value(v).ty).collect();
        let ty = infer(&op, &types).unwrap_or_else(|e| panic!("{op}: {e}")).remove(0);
        let n = self.graph.nodes.len() as u32;
        let v = self.value(ty, Source::Node(n, 0));
        self.graph.nodes.push(Node { name: format!("n{n}"), op, inputs: inputs.to_vec(), outputs: vec![v] });
        v
    }
    /// The e-graph of the values so far, of which `root` is the output.
    fn network(&mut self, root: ValueId) -> Network {
        self.graph.outputs = vec![root];
        let Loaded { mut network, class } = load(&self.graph).unwrap();
        for (a, b) in &self.equal {
            network.egraph.union(class[a.0 as usize], class[b.0 as usize]);
        }
        network.rebuild();
        network
    }
    fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        self.op(Op::Binary(op), &[a, b])
    }
    fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(BinaryOp::Add, a, b)
    }
    fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(BinaryOp::Mul, a, b)
    }
    fn unary(&mut self, op: UnaryOp, a: ValueId) -> ValueId {
        self.op(Op::Unary(op), &[a])
    }
    fn transpose(&mut self, x: ValueId, perm: &[usize]) -> ValueId {
        self.op(Op::Transpose { perm: perm.to_vec() }, &[x])
    }
    fn reshape(&mut self, x: ValueId, shape: &[i64]) -> ValueId {
        self.op(Op::Reshape { shape: shape.to_vec() }, &[x])
    }
    fn slice(&mut self, x: ValueId, starts: &[i64], ends: &[i64], steps: &[i64]) -> ValueId {
        let (starts, ends, steps) = (starts.to_vec(), ends.to_vec(), steps.to_vec());
        self.op(Op::Slice { starts, ends, steps }, &[x])
    }
    fn reduce(&mut self, op: ReduceOp, x: ValueId, axes: &[usize], keep: bool) -> ValueId {
        self.op(Op::Reduce { op, axes: axes.to_vec(), keep }, &[x])
    }
    fn matmul(&mut self, a: ValueId, b: ValueId, transpose_a: bool, transpose_b: bool) -> ValueId {
        self.op(Op::MatMul { transpose_a, transpose_b }, &[a, b])
    }
    fn clip(&mut self, x: ValueId, low: f32, high: f32, low_first: bool) -> ValueId {
        let (low, high) = (self.n(low), self.n(high));
        if low_first {
            let a = self.binary(BinaryOp::Max, x, low);
            self.binary(BinaryOp::Min, a, high)
        } else {
            let a = self.binary(BinaryOp::Min, x, high);
            self.binary(BinaryOp::Max, a, low)
        }
    }
}

fn window(kernel: &[i64], stride: i64, pad: i64) -> Window {
    let n = kernel.len();
    Window {
        kernel: kernel.to_vec(),
        stride: vec![stride; n],
        dilation: vec![1; n],
        pad_before: vec![pad; n],
        pad_after: vec![pad; n],
    }
}

/// A convolution of 4 channels in `group` groups to 6.
fn conv(s: &mut Sample, x: ValueId, kernel: i64, pad: i64, group: i64, bias: bool, layout: Layout) -> ValueId {
    let w = s.c(&[6, 4 / group, kernel, kernel]);
    let mut inputs = vec![x, w];
    if bias {
        inputs.push(s.c(&[6]));
    }
    s.op(Op::Conv { window: window(&[kernel, kernel], 1, pad), group, layout }, &inputs)
}

/// A 3×3 convolution of 8 channels.
fn wide_conv(s: &mut Sample, x: ValueId, filters: i64, kernel: i64, group: i64, bias: bool) -> ValueId {
    let w = s.c(&[filters, 8 / group, kernel, kernel]);
    let mut inputs = vec![x, w];
    if bias {
        inputs.push(s.c(&[filters]));
    }
    s.op(Op::Conv { window: window(&[kernel, kernel], 2, 1), group, layout: Layout::Nchw }, &inputs)
}

/// An image that came from blocks: 1×8×5×3 over a 1×2×5×3×4 input.
fn unblocked(s: &mut Sample) -> ValueId {
    let x = s.x(&[1, 2, 5, 3, 4]);
    s.op(Op::Unblock { channels: 8 }, &[x])
}

fn conv_transpose(s: &mut Sample, x: ValueId, group: i64) -> ValueId {
    let w = s.c(&[4, 6 / group, 2, 2]);
    let op = Op::ConvTranspose { window: window(&[2, 2], 2, 0), group, output_pad: vec![0, 0], layout: Layout::Nchw };
    s.op(op, &[x, w])
}

fn pool(s: &mut Sample, x: ValueId, kind: PoolKind, kernel: i64, stride: i64, pad: i64) -> ValueId {
    s.op(Op::Pool { kind, window: window(&[kernel, kernel], stride, pad), layout: Layout::Nchw }, &[x])
}

const NHWC_TO_NCHW: [usize; 4] = [0, 3, 1, 2];

/// An image that came from channels-last: 1×4×5×3 over a 1×5×3×4 input.
fn turned(s: &mut Sample) -> ValueId {
    let x = s.x(&[1, 5, 3, 4]);
    s.transpose(x, &NHWC_TO_NCHW)
}

fn spelled_norm(s: &mut Sample, reciprocal: bool) -> ValueId {
    let x = s.x(&[2, 3, 8]);
    let mean = s.reduce(ReduceOp::Mean, x, &[2], true);
    let d = s.binary(BinaryOp::Sub, x, mean);
    let square = s.mul(d, d);
    let variance = s.reduce(ReduceOp::Mean, square, &[2], true);
    let epsilon = s.n(1e-5);
    let sum = s.add(variance, epsilon);
    let root = s.unary(UnaryOp::Sqrt, sum);
    if reciprocal {
        let one = s.n(1.0);
        let r = s.binary(BinaryOp::Div, one, root);
        s.mul(d, r)
    } else {
        s.binary(BinaryOp::Div, d, root)
    }
}

fn norm(s: &mut Sample, bias: bool) -> ValueId {
    let x = s.x(&[2, 3, 8]);
    let mut inputs = vec![x, s.c(&[8])];
    if bias {
        inputs.push(s.c(&[8]));
    }
    s.op(Op::LayerNorm { axis: 2, epsilon: F32::new(1e-5) }, &inputs)
}

fn hard_swish_6(s: &mut Sample, low_first: bool, gate_first: bool) -> ValueId {
    let x = s.x(&[2, 9]);
    let three = s.n(3.0);
    let shifted = s.add(x, three);
    let clipped = s.clip(shifted, 0.0, 6.0, low_first);
    let sixth = s.n(1.0 / 6.0);
    if gate_first {
        let gate = s.mul(clipped, sixth);
        s.mul(gate, x)
    } else {
        let product = s.mul(x, clipped);
        s.mul(product, sixth)
    }
}

/// x/2·(1 + erf(x/√2)) with its factors in one of the orders that exporters use.
fn gelu(s: &mut Sample, order: usize) -> ValueId {
    let x = s.x(&[3, 5]);
    let scale = s.n(std::f32::consts::FRAC_1_SQRT_2);
    let inner = s.mul(x, scale);
    let erf = s.unary(UnaryOp::Erf, inner);
    let (one, half) = (s.n(1.0), s.n(0.5));
    let sum = if order == 0 { s.add(erf, one) } else { s.add(one, erf) };
    let [a, b, c] = [[x, sum, half], [x, half, sum], [half, sum, x]][order];
    let first = s.mul(a, b);
    if order == 2 { s.mul(c, first) } else { s.mul(first, c) }
}

/// A choice by the sign of an operand: between it and its product with a slope.
fn leaky(s: &mut Sample, op: CompareOp) -> ValueId {
    let x = s.x(&[2, 9]);
    let (zero, slope) = (s.n(0.0), s.n(0.2));
    let sign = s.op(Op::Compare(op), &[x, zero]);
    let scaled = s.mul(slope, x);
    let flipped = matches!(op, CompareOp::Lt | CompareOp::Le);
    let (a, b) = if flipped { (scaled, x) } else { (x, scaled) };
    s.op(Op::Select, &[sign, a, b])
}

/// The exponential linear unit, with a factor or without.
fn elu(s: &mut Sample, alpha: Option<f32>) -> ValueId {
    let x = s.x(&[2, 9]);
    let (zero, minus) = (s.n(0.0), s.n(-1.0));
    let sign = s.op(Op::Compare(CompareOp::Gt), &[x, zero]);
    let e = s.unary(UnaryOp::Exp, x);
    let mut below = s.add(e, minus);
    if let Some(alpha) = alpha {
        let factor = s.n(alpha);
        below = s.mul(factor, below);
    }
    s.op(Op::Select, &[sign, x, below])
}

/// A rule and a graph on which it applies.
type Row = (&'static str, fn(&mut Sample) -> ValueId);

fn row(name: &'static str, f: fn(&mut Sample) -> ValueId) -> Row {
    (name, f)
}

#[rustfmt::skip]
fn samples() -> Vec<Row> {
    use Layout::{Nchw, Nhwc};
    vec![
        // ---- recognise
        row("sigmoid", |s| { let x = s.x(&[7]); let m = s.unary(UnaryOp::Neg, x); let e = s.unary(UnaryOp::Exp, m); let one = s.n(1.0); let d = s.add(e, one); s.binary(BinaryOp::Div, one, d) }),
        row("silu", |s| { let x = s.x(&[7]); let g = s.op(Op::Sigmoid, &[x]); s.mul(g, x) }),
        row("hard-sigmoid", |s| { let x = s.x(&[40]); let (a, b) = (s.n(0.7), s.n(0.4)); let m = s.mul(x, a); let p = s.add(m, b); s.clip(p, 0.0, 1.0, true) }),
        row("hard-sigmoid-max", |s| { let x = s.x(&[40]); let (a, b) = (s.n(0.7), s.n(0.4)); let m = s.mul(x, a); let p = s.add(m, b); s.clip(p, 0.0, 1.0, false) }),
        row("hard-sigmoid-6", |s| { hard_swish_6(s, true, true) }),
        row("hard-sigmoid-6-max", |s| { hard_swish_6(s, false, true) }),
        row("hard-swish", |s| { let x = s.x(&[9]); let h = s.op(Op::HardSigmoid { alpha: F32::new(1.0 / 6.0), beta: F32::new(0.5) }, &[x]); s.mul(h, x) }),
        row("hard-swish-6", |s| { hard_swish_6(s, true, false) }),
        row("hard-swish-6-max", |s| { hard_swish_6(s, false, false) }),
        row("gelu", |s| gelu(s, 0)),
        row("gelu", |s| gelu(s, 1)),
        row("gelu", |s| gelu(s, 2)),
        row("gelu-half-sum", |s| { let x = s.x(&[9]); let c = s.n(0.70710677); let i = s.mul(x, c); let e = s.unary(UnaryOp::Erf, i); let h = s.n(0.5); let m = s.mul(e, h); let a = s.add(m, h); s.mul(x, a) }),
        row("prelu-ge", |s| leaky(s, CompareOp::Ge)),
        row("prelu-gt", |s| leaky(s, CompareOp::Gt)),
        row("prelu-lt", |s| leaky(s, CompareOp::Lt)),
        row("prelu-le", |s| leaky(s, CompareOp::Le)),
        row("elu", |s| elu(s, None)),
        row("elu-alpha", |s| elu(s, Some(1.5))),
        row("layer-norm", |s| spelled_norm(s, false)),
        row("layer-norm-rsqrt", |s| spelled_norm(s, true)),
        row("layer-norm-scale", |s| { let l = norm(s, false); let c = s.c(&[8]); s.mul(l, c) }),
        row("layer-norm-scale", |s| { let l = norm(s, false); let c = s.n(1.5); s.mul(c, l) }),
        row("layer-norm-bias", |s| { let l = norm(s, false); let c = s.c(&[1, 8]); s.add(l, c) }),
        row("layer-norm-bias", |s| { let l = norm(s, true); let c = s.c(&[8]); s.add(l, c) }),
        row("softmax", |s| { let x = s.x(&[3, 6]); let m = s.reduce(ReduceOp::Max, x, &[1], true); let d = s.binary(BinaryOp::Sub, x, m); let e = s.unary(UnaryOp::Exp, d); let t = s.reduce(ReduceOp::Sum, e, &[1], true); s.binary(BinaryOp::Div, e, t) }),
        row("softmax", |s| { let x = s.x(&[3, 6]); let e = s.unary(UnaryOp::Exp, x); let t = s.reduce(ReduceOp::Sum, e, &[0], true); s.binary(BinaryOp::Div, e, t) }),
        // ---- canonical arithmetic
        row("div-constant", |s| { let x = s.x(&[3, 4]); let c = s.n(8.0); s.binary(BinaryOp::Div, x, c) }),
        row("div-constant", |s| { let x = s.x(&[3, 4]); let c = s.constant(Tensor::new(&[4], &[1.0f32, 2.0, 3.0, -4.0])); s.binary(BinaryOp::Div, x, c) }),
        row("sub-constant", |s| { let x = s.x(&[3, 4]); let c = s.c(&[4]); s.binary(BinaryOp::Sub, x, c) }),
        row("pow-2", |s| { let x = s.x(&[5]); let c = s.n(2.0); s.binary(BinaryOp::Pow, x, c) }),
        row("pow-half", |s| { let x = s.x(&[5]); let a = s.unary(UnaryOp::Abs, x); let c = s.n(0.5); s.binary(BinaryOp::Pow, a, c) }),
        row("mul-1", |s| { let x = s.x(&[5]); let c = s.n(1.0); s.mul(x, c) }),
        row("add-0", |s| { let x = s.x(&[5]); let c = s.n(0.0); s.add(c, x) }),
        row("mul-mul", |s| { let x = s.x(&[2, 5]); let (a, b) = (s.n(3.0), s.c(&[5])); let m = s.mul(x, a); s.mul(m, b) }),
        row("add-add", |s| { let x = s.x(&[2, 5]); let (a, b) = (s.n(3.0), s.n(0.5)); let m = s.add(a, x); s.add(m, b) }),
        row("distribute-scale", |s| { let x = s.x(&[2, 5]); let w = s.c(&[5, 3]); let p = s.matmul(x, w, false, false); let (a, b) = (s.c(&[3]), s.c(&[3])); let t = s.add(p, a); s.mul(t, b) }),
        // ---- scale and shift into weights
        row("conv-scale", |s| { let x = s.x(&[1, 4, 3, 3]); let c = conv(s, x, 3, 1, 2, true, Nchw); let f = s.c(&[6, 1, 1]); s.mul(c, f) }),
        row("conv-scale", |s| { let x = s.x(&[1, 3, 3, 4]); let c = conv(s, x, 3, 1, 1, false, Nhwc); let f = s.c(&[6]); s.mul(c, f) }),
        row("conv-scale", |s| { let x = s.x(&[1, 4, 3, 3]); let c = conv(s, x, 1, 0, 1, true, Nchw); let f = s.n(0.3); s.mul(c, f) }),
        row("conv-shift", |s| { let x = s.x(&[1, 4, 3, 3]); let c = conv(s, x, 3, 1, 1, true, Nchw); let f = s.c(&[1, 6, 1, 1]); s.add(c, f) }),
        row("conv-shift", |s| { let x = s.x(&[1, 4, 3, 3]); let c = conv(s, x, 3, 1, 1, false, Nchw); let f = s.n(0.7); s.add(f, c) }),
        row("scale-conv", |s| { let x = s.x(&[1, 4, 3, 3]); let f = s.c(&[4, 1, 1]); let m = s.mul(x, f); conv(s, m, 3, 1, 1, true, Nchw) }),
        row("scale-conv", |s| { let x = s.x(&[1, 4, 3, 3]); let f = s.c(&[4, 1, 1]); let m = s.mul(f, x); conv(s, m, 3, 1, 2, false, Nchw) }),
        row("shift-conv", |s| { let x = s.x(&[1, 4, 3, 3]); let f = s.c(&[4, 1, 1]); let m = s.add(x, f); conv(s, m, 3, 0, 2, true, Nchw) }),
        row("shift-conv", |s| { let x = s.x(&[1, 4, 3, 3]); let f = s.n(0.4); let m = s.add(x, f); conv(s, m, 2, 0, 1, false, Nchw) }),
        row("conv-transpose-scale", |s| { let x = s.x(&[1, 4, 3, 3]); let c = conv_transpose(s, x, 2); let f = s.c(&[6, 1, 1]); s.mul(c, f) }),
        row("conv-transpose-shift", |s| { let x = s.x(&[1, 4, 3, 3]); let c = conv_transpose(s, x, 1); let f = s.c(&[6, 1, 1]); s.add(c, f) }),
        row("matmul-scale", |s| { let x = s.x(&[2, 3, 5]); let w = s.c(&[5, 4]); let p = s.matmul(x, w, false, false); let f = s.c(&[4]); s.mul(p, f) }),
        row("matmul-scale", |s| { let x = s.x(&[3, 5]); let w = s.c(&[4, 5]); let p = s.matmul(x, w, false, true); let f = s.c(&[4]); s.mul(p, f) }),
        row("scale-matmul", |s| { let x = s.x(&[2, 3, 5]); let f = s.c(&[5]); let m = s.mul(x, f); let w = s.c(&[5, 4]); s.matmul(m, w, false, false) }),
        row("scale-matmul", |s| { let x = s.x(&[3, 5]); let f = s.n(0.5); let m = s.mul(x, f); let w = s.c(&[4, 5]); s.matmul(m, w, false, true) }),
        row("pad-conv", |s| { let x = s.x(&[1, 4, 3, 3]); let p = s.op(Op::Pad { before: vec![0, 0, 1, 0], after: vec![0, 0, 0, 2], value: 0 }, &[x]); conv(s, p, 3, 1, 1, false, Nchw) }),
        // ---- copies
        row("transpose-transpose", |s| { let x = s.x(&[2, 3, 4]); let t = s.transpose(x, &[2, 0, 1]); s.transpose(t, &[0, 2, 1]) }),
        row("transpose-units", |s| { let x = s.x(&[1, 1, 4]); s.transpose(x, &[0, 2, 1]) }),
        row("reshape-reshape", |s| { let x = s.x(&[2, 3, 4]); let t = s.reshape(x, &[6, 4]); s.reshape(t, &[4, 6]) }),
        row("reshape-same", |s| { let x = s.x(&[2, 3]); s.reshape(x, &[2, 3]) }),
        row("expand-same", |s| { let x = s.x(&[2, 3]); s.op(Op::Expand { shape: vec![2, 3] }, &[x]) }),
        row("cast-same", |s| { let x = s.x(&[2, 3]); s.op(Op::Cast(DType::F32), &[x]) }),
        row("slice-same", |s| { let x = s.x(&[2, 3]); s.slice(x, &[0, 0], &[2, 3], &[1, 1]) }),
        row("concat-one", |s| { let x = s.x(&[2, 3]); s.op(Op::Concat { axis: 1 }, &[x]) }),
        row("slice-slice", |s| { let x = s.x(&[9, 7]); let a = s.slice(x, &[1, 0], &[8, 7], &[2, 1]); s.slice(a, &[1, 2], &[4, 6], &[2, 3]) }),
        row("slice-concat", |s| { let (x, y) = (s.x(&[2, 3]), s.x(&[2, 4])); let c = s.op(Op::Concat { axis: 1 }, &[x, y]); s.slice(c, &[0, 4], &[2, 7], &[1, 2]) }),
        row("copies-are-injective", |s| { let x = s.x(&[2, 3]); let one = s.n(1.0); let y = s.mul(x, one); let (a, b) = (s.transpose(x, &[1, 0]), s.transpose(y, &[1, 0])); s.equal.push((a, b)); s.add(a, b) }),
        row("copies-are-injective", |s| { let x = s.x(&[2, 3]); let one = s.n(1.0); let y = s.mul(x, one); let (a, b) = (s.reshape(x, &[6]), s.reshape(y, &[6])); s.equal.push((a, b)); s.add(a, b) }),
        row("reshape-slice", |s| { let x = s.x(&[2, 24]); let a = s.slice(x, &[0, 8], &[2, 16], &[1, 1]); s.reshape(a, &[2, 2, 4]) }),
        row("reshape-slice", |s| { let x = s.x(&[3, 2, 4]); let a = s.slice(x, &[1, 0, 0], &[2, 2, 4], &[1, 1, 1]); s.reshape(a, &[2, 4]) }),
        row("gather-scalar", |s| { let x = s.x(&[2, 3, 4]); let i = s.constant(Tensor::new(&[], &[-1i64])); s.op(Op::Gather { axis: 1 }, &[x, i]) }),
        row("expand-operand", |s| { let (x, y) = (s.x(&[1, 3]), s.x(&[2, 3])); let e = s.op(Op::Expand { shape: vec![2, 3] }, &[x]); s.add(e, y) }),
        // ---- products and reductions
        row("scalar-matmul-a", |s| { let x = s.x(&[3, 5]); let f = s.n(0.25); let m = s.mul(x, f); let y = s.x(&[4, 5]); s.matmul(m, y, false, true) }),
        row("scalar-matmul-b", |s| { let x = s.x(&[5, 3]); let f = s.c(&[1]); let m = s.mul(f, x); let y = s.x(&[4, 5]); s.matmul(y, m, false, false) }),
        row("matmul-transposed-a", |s| { let x = s.x(&[2, 3, 5]); let t = s.transpose(x, &[0, 2, 1]); let y = s.x(&[2, 3, 4]); s.matmul(t, y, false, false) }),
        row("matmul-transposed-b", |s| { let x = s.x(&[2, 3, 5]); let y = s.x(&[4, 2, 5]); let t = s.transpose(y, &[1, 2, 0]); s.matmul(x, t, false, false) }),
        row("matmul-shared", |s| { let x = s.x(&[3, 5]); let (a, b) = (s.c(&[5, 2]), s.c(&[5, 4])); let p = s.matmul(x, a, false, false); let q = s.matmul(x, b, false, false); s.op(Op::Concat { axis: 1 }, &[q, p]) }),
        row("matmul-shared-bias", |s| { let x = s.x(&[3, 5]); let (a, b) = (s.c(&[2, 5]), s.c(&[4, 5])); let p = s.matmul(x, a, false, true); let q = s.matmul(x, b, false, true); let (c, d) = (s.c(&[2]), s.c(&[4])); let p = s.add(p, c); let q = s.add(d, q); s.op(Op::Concat { axis: 1 }, &[q, p]) }),
        row("max-pool-whole", |s| { let x = s.x(&[1, 4, 3, 3]); pool(s, x, PoolKind::Max, 3, 1, 0) }),
        row("average-pool-whole", |s| { let x = s.x(&[1, 4, 3, 3]); pool(s, x, PoolKind::Average { count_padding: false }, 3, 1, 0) }),
        // ---- layout
        row("conv-nhwc", |s| { let x = s.x(&[1, 4, 5, 3]); conv(s, x, 3, 1, 2, true, Nchw) }),
        row("conv-transpose-nhwc", |s| { let x = s.x(&[1, 4, 5, 3]); conv_transpose(s, x, 2) }),
        row("max-pool-nhwc", |s| { let x = s.x(&[1, 4, 5, 3]); pool(s, x, PoolKind::Max, 2, 2, 1) }),
        row("average-pool-nhwc", |s| { let x = s.x(&[1, 4, 5, 3]); pool(s, x, PoolKind::Average { count_padding: false }, 3, 2, 1) }),
        row("elementwise-transpose", |s| { let a = turned(s); let b = turned(s); s.add(a, b) }),
        row("elementwise-transpose", |s| { let a = turned(s); let b = s.x(&[1, 4, 5, 3]); s.mul(a, b) }),
        row("elementwise-transpose", |s| { let a = turned(s); let b = s.c(&[4, 1, 1]); s.mul(b, a) }),
        row("elementwise-transpose", |s| { let a = turned(s); let b = s.x(&[1, 4, 1, 1]); s.mul(a, b) }),
        row("elementwise-transpose", |s| { let a = turned(s); s.op(Op::HardSwish, &[a]) }),
        row("elementwise-transpose", |s| { let a = turned(s); let zero = s.n(0.0); let c = s.op(Op::Compare(CompareOp::Lt), &[a, zero]); let b = s.c(&[4, 1, 1]); s.op(Op::Select, &[c, b, a]) }),
        row("elementwise-transpose", |s| { let a = turned(s); let slope = s.n(0.2); s.op(Op::PRelu, &[a, slope]) }),
        row("elementwise-transpose", |s| { let a = turned(s); let b = s.c(&[5, 3]); s.add(a, b) }),
        row("concat-transpose", |s| { let a = turned(s); let b = turned(s); s.op(Op::Concat { axis: 1 }, &[a, b]) }),
        row("slice-transpose", |s| { let a = turned(s); s.slice(a, &[0, 1, 0, 2], &[1, 4, 5, 0], &[1, 2, 1, -1]) }),
        row("pad-transpose", |s| { let a = turned(s); s.op(Op::Pad { before: vec![0, 1, 2, 0], after: vec![0, 0, 1, 3], value: 1f32.to_bits() as u64 }, &[a]) }),
        row("upsample-transpose", |s| { let a = turned(s); s.op(Op::Upsample { factors: vec![1, 1, 2, 3] }, &[a]) }),
        row("softmax-transpose", |s| { let a = turned(s); s.op(Op::Softmax { axis: 1, log: false }, &[a]) }),
        row("sum-transpose", |s| { let a = turned(s); s.reduce(ReduceOp::Sum, a, &[1, 2], false) }),
        row("mean-transpose", |s| { let a = turned(s); s.reduce(ReduceOp::Mean, a, &[2, 3], true) }),
        row("max-transpose", |s| { let x = s.x(&[2, 3, 4, 5]); let a = s.transpose(x, &[3, 2, 0, 1]); s.reduce(ReduceOp::Max, a, &[1], false) }),
        row("min-transpose", |s| { let a = turned(s); s.reduce(ReduceOp::Min, a, &[0], false) }),
        row("reshape-transpose", |s| { let a = turned(s); s.reshape(a, &[1, 4, 15]) }),
        row("reshape-transpose", |s| { let a = turned(s); s.reshape(a, &[2, 2, 1, 5, 3]) }),
        // ---- layouts of blocks
        row("conv-blocked", |s| { let x = s.x(&[1, 8, 5, 3]); wide_conv(s, x, 12, 3, 1, true) }),
        row("conv-blocked", |s| { let x = s.x(&[1, 8, 5, 3]); wide_conv(s, x, 8, 3, 8, false) }),
        row("max-pool-blocked", |s| { let x = s.x(&[1, 8, 5, 3]); pool(s, x, PoolKind::Max, 2, 2, 1) }),
        row("average-pool-blocked", |s| { let x = s.x(&[1, 8, 5, 3]); pool(s, x, PoolKind::Average { count_padding: false }, 3, 2, 1) }),
        row("block-unblock", |s| { let a = unblocked(s); s.op(Op::Block { block: 4 }, &[a]) }),
        row("elementwise-unblock", |s| { let a = unblocked(s); let b = unblocked(s); s.add(a, b) }),
        row("elementwise-unblock", |s| { let a = unblocked(s); let b = s.x(&[1, 8, 5, 3]); s.mul(b, a) }),
        row("elementwise-unblock", |s| { let a = unblocked(s); let b = s.c(&[8, 1, 1]); s.mul(a, b) }),
        row("elementwise-unblock", |s| { let a = unblocked(s); let b = s.x(&[1, 8, 1, 1]); s.mul(a, b) }),
        row("elementwise-unblock", |s| { let a = unblocked(s); let b = s.c(&[5, 3]); s.add(a, b) }),
        row("elementwise-unblock", |s| { let a = unblocked(s); let b = s.n(0.5); s.binary(BinaryOp::Max, a, b) }),
        row("concat-unblock", |s| { let a = unblocked(s); let b = unblocked(s); s.op(Op::Concat { axis: 1 }, &[a, b]) }),
        row("concat-unblock", |s| { let a = unblocked(s); let b = unblocked(s); s.op(Op::Concat { axis: 3 }, &[a, b]) }),
        row("sum-unblock", |s| { let a = unblocked(s); s.reduce(ReduceOp::Sum, a, &[2, 3], false) }),
        row("mean-unblock", |s| { let a = unblocked(s); s.reduce(ReduceOp::Mean, a, &[2, 3], true) }),
        row("max-unblock", |s| { let a = unblocked(s); s.reduce(ReduceOp::Max, a, &[2, 3], true) }),
    ]
}

/// The expression of an e-node as a graph.
fn graph_of(network: &Network, graph: &Graph, id: Id) -> Graph {
    let mut out = Graph { values: graph.values.clone(), inputs: graph.inputs.clone(), ..Graph::default() };
    let mut values: BTreeMap<Id, ValueId> = BTreeMap::new();
    fn visit(network: &Network, out: &mut Graph, values: &mut BTreeMap<Id, ValueId>, id: Id) -> ValueId {
        if let Some(&v) = values.get(&id) {
            return v;
        }
        let Term { head, children } = network.egraph.id_to_node(id);
        let inputs: Vec<ValueId> = children.iter().map(|&c| visit(network, out, values, c)).collect();
        let ty = network.ty(id).clone();
        let source = match head {
            Head::Input(i) => return out.inputs[*i as usize],
            Head::Constant(i) => Source::Constant(network.egraph.analysis.constants[*i as usize].clone()),
            Head::Output(_) => unreachable!("samples have no operators of several outputs"),
            Head::Op(_) => Source::Node(out.nodes.len() as u32, 0),
        };
        out.values.push(Value { name: String::new(), ty, source });
        let v = ValueId(out.values.len() as u32 - 1);
        if let Head::Op(op) = head {
            out.nodes.push(Node { name: String::new(), op: op.clone(), inputs, outputs: vec![v] });
        }
        values.insert(id, v);
        v
    }
    let v = visit(network, &mut out, &mut values, id);
    out.outputs = vec![v];
    out
}

fn assert_close(a: &[Tensor], b: &[Tensor], what: &str) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert_eq!((a.dtype, &a.shape), (b.dtype, &b.shape), "{what}");
        if a.dtype != DType::F32 {
            assert_eq!(a.data, b.data, "{what}");
            continue;
        }
        let (a, b) = (a.to_vec::<f32>(), b.to_vec::<f32>());
        let largest = a.iter().fold(1e-3f32, |m, v| m.max(v.abs()));
        for (x, y) in a.iter().zip(&b) {
            assert!((x - y).abs() <= 1e-5 * largest, "{what}: {x} and {y}");
        }
    }
}

fn inputs(s: &mut Sample) -> Vec<Tensor> {
    let shapes: Vec<Vec<i64>> = s.graph.inputs.iter().map(|&v| s.graph.value(v).ty.shape.clone()).collect();
    // Larger than one, so that clips and normalisations do something.
    let grow =
        |t: Tensor| Tensor::new(&t.shape.clone(), &t.to_vec::<f32>().iter().map(|v| v * 4.0).collect::<Vec<_>>());
    shapes.iter().map(|shape| grow(s.tensor(shape))).collect()
}

#[test]
fn both_sides_of_every_rule_agree() {
    let table = rules::all(Some(4));
    let samples = samples();
    for rule in &table {
        let mut fired = 0;
        for (_, make) in samples.iter().filter(|(name, _)| *name == rule.name) {
            let mut s = Sample::default();
            let root = make(&mut s);
            let mut network = s.network(root);
            let given = inputs(&mut s);
            let before = network.egraph.nodes().len();
            let mut here = 0;
            for id in (0..before).map(Id::from) {
                let term = network.egraph.id_to_node(id).clone();
                for (a, b) in rule.apply(&mut network, id, &term) {
                    let run =
                        |id| crate::graph::interpret::network::run(&graph_of(&network, &s.graph, id), &given).unwrap();
                    assert_close(&run(a), &run(b), rule.name);
                    here += 1;
                }
            }
            assert!(here > 0, "{} does not apply to its sample", rule.name);
            fired += here;
        }
        assert!(fired > 0, "{} has no sample", rule.name);
    }
    for (name, _) in &samples {
        assert!(table.iter().any(|r| r.name == *name), "{name} is no rule");
    }
}

#[test]
fn the_optimized_graph_computes_the_same() {
    for (name, make) in samples() {
        let mut s = Sample::default();
        let root = make(&mut s);
        s.graph.outputs = vec![root];
        let given = inputs(&mut s);
        let Optimized { graph: out, report, .. } = optimize(&s.graph, &Target::avx512(), &Options::default()).unwrap();
        assert!(report.stop == crate::graph::egraph::saturate::Stop::Saturated, "{name}: {report}");
        assert_close(
            &crate::graph::interpret::network::run(&s.graph, &given).unwrap(),
            &crate::graph::interpret::network::run(&out, &given).unwrap(),
            name,
        );
    }
}
