//! Matrix products, reductions and normalizations.

use super::node::Source;
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{F32, Op, ReduceOp};
use crate::runtime::{DType, Error, Result};

pub(super) fn matmul(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (a, b) = (n.input(0)?, n.input(1)?);
    g.check_types(a, b)?;
    Ok(vec![g.product(a, b)?])
}

impl Importer<'_> {
    /// Refuses a product of integers with f32, which a graph may have and a file may not.
    fn check_types(&self, a: ValueId, b: ValueId) -> Result<()> {
        let (a, b) = (self.ty(a).dtype, self.ty(b).dtype);
        match a == b || b.is_float() {
            true => Ok(()),
            false => Err(Error::Invalid(format!("operands have types {a} and {b}, not the same one"))),
        }
    }

    /// A product or convolution in the type of its first operand: that of integers of 8 bits wraps around as theirs do.
    pub(super) fn wrapped(&mut self, op: Op, operands: &[ValueId]) -> Result<ValueId> {
        let dtype = self.ty(operands[0]).dtype;
        let y = self.emit(op, operands)?;
        self.cast_to(y, dtype)
    }

    /// The matrix product of two values, as NumPy's `matmul` has it.
    pub(super) fn product(&mut self, mut a: ValueId, mut b: ValueId) -> Result<ValueId> {
        // a vector is a matrix of one row on the left, of one column on the right
        let (vector_a, vector_b) = (self.rank(a) == 1, self.rank(b) == 1);
        if self.rank(a) == 0 || self.rank(b) == 0 {
            return Err(Error::Invalid("an operand has no dimensions".into()));
        }
        if vector_a {
            let k = self.shape(a)[0];
            a = self.reshape_to(a, vec![1, k])?;
        }
        if vector_b {
            let k = self.shape(b)[0];
            b = self.reshape_to(b, vec![k, 1])?;
        }
        let y = self.matmul(a, b, false)?;
        let mut shape = self.shape(y).to_vec();
        if vector_b {
            shape.pop();
        }
        if vector_a {
            let row = shape.len() - 1 - (!vector_b) as usize;
            shape.remove(row);
        }
        self.reshape_to(y, shape)
    }

    /// Returns true for a left operand of a product that reads each element of the right one once.
    pub(super) fn is_single_row(&self, a: ValueId) -> bool {
        self.shape(a).iter().rev().skip(1).product::<i64>() == 1
    }

    /// The softmax of everything from `axis` on as one dimension.
    pub(super) fn flat_softmax(&mut self, x: ValueId, axis: usize, log: bool) -> Result<ValueId> {
        let shape = self.shape(x).to_vec();
        let flat = self.flattened(x, axis)?;
        let y = self.emit(Op::Softmax { axis: 1, log }, &[flat])?;
        self.reshape_to(y, shape)
    }
}

/// `alpha·A·B + beta·C`.
pub(super) fn gemm(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (a, b) = (n.input(0)?, n.input(1)?);
    if g.rank(a) != 2 || g.rank(b) != 2 {
        return Err(Error::Invalid("an operand is not a matrix".into()));
    }
    g.check_types(a, b)?;
    let (transpose_a, transpose_b) = (n.flag("transA", false), n.flag("transB", false));
    let mut y = g.wrapped(Op::MatMul { transpose_a, transpose_b }, &[a, b])?;
    let scaled = |g: &mut Importer, v: ValueId, factor: f32| -> Result<ValueId> {
        if factor == 1.0 {
            return Ok(v);
        }
        let f = g.scalar_like(v, factor as f64)?;
        g.binary(BinaryOp::Mul, v, f)
    };
    y = scaled(g, y, n.float("alpha", 1.0))?;
    let beta = n.float("beta", 1.0);
    if let Some(c) = n.optional(2).filter(|_| beta != 0.0) {
        let c = scaled(g, c, beta)?;
        let product = g.shape(y).to_vec();
        if super::movement::broadcast(&product, g.shape(c))? != product {
            return Err(Error::Invalid(format!("C of shape {:?} does not broadcast to {product:?}", g.shape(c))));
        }
        y = g.binary(BinaryOp::Add, y, c)?;
    }
    Ok(vec![y])
}

/// Axes are an attribute before `operand_since`, an operand from then on.
pub(super) fn reduce(g: &mut Importer, n: &Source, op: ReduceOp, operand_since: i64) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let rank = g.rank(x);
    let axes = g.axes_of(n, 1, operand_since, rank)?.filter(|a| !a.is_empty());
    let none = axes.is_none() && n.flag("noop_with_empty_axes", false);
    let axes = axes.unwrap_or_else(|| (0..rank).collect());
    let dtype = g.ty(x).dtype;
    let real = matches!(op, ReduceOp::L2 | ReduceOp::LogSum | ReduceOp::LogSumExp);
    let mut y = if real && !dtype.is_float() { g.cast_to(x, DType::F64)? } else { x };
    y = if none || axes.is_empty() {
        g.of_one(y, op)?
    } else {
        g.emit(Op::Reduce { op, axes, keep: n.flag("keepdims", true) }, &[y])?
    };
    Ok(vec![g.cast_to(y, dtype)?])
}

impl Importer<'_> {
    /// Emits a reduction of each element alone.
    fn of_one(&mut self, x: ValueId, op: ReduceOp) -> Result<ValueId> {
        match op {
            ReduceOp::SumSquare => self.binary(BinaryOp::Mul, x, x),
            ReduceOp::L1 | ReduceOp::L2 => self.unary(UnaryOp::Abs, x),
            ReduceOp::LogSum => self.unary(UnaryOp::Log, x),
            ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Max | ReduceOp::Min | ReduceOp::Prod | ReduceOp::LogSumExp => {
                Ok(x)
            }
        }
    }
}

/// x over its norm along an axis; 0 where the norm is.
pub(super) fn lp_normalization(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let axis = g.axis(n.int("axis", -1), g.rank(x))?;
    let op = match n.int("p", 2) {
        1 => ReduceOp::L1,
        2 => ReduceOp::L2,
        p => return Err(Error::Unsupported(format!("p = {p}"))),
    };
    let norm = g.emit(Op::Reduce { op, axes: vec![axis], keep: true }, &[x])?;
    // zeros stay zeros
    let (zero, one) = (g.scalar_like(norm, 0.0)?, g.scalar_like(norm, 1.0)?);
    let nothing = g.compare(CompareOp::Eq, norm, zero)?;
    let norm = g.select(nothing, one, norm)?;
    Ok(vec![g.binary(BinaryOp::Div, x, norm)?])
}

pub(super) fn global_pool(g: &mut Importer, n: &Source, op: ReduceOp) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    if g.rank(x) < 3 {
        return Err(Error::Invalid("its operand has no spatial dimensions".into()));
    }
    let axes = (2..g.rank(x)).collect();
    Ok(vec![g.emit(Op::Reduce { op, axes, keep: true }, &[x])?])
}

/// Before opset 13 everything from `axis` on is one dimension.
pub(super) fn softmax(g: &mut Importer, n: &Source, log: bool) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let rank = g.rank(x);
    if rank == 0 {
        return Err(Error::Invalid("its operand has no dimensions".into()));
    }
    if n.opset >= 13 {
        let axis = g.axis(n.int("axis", -1), rank)?;
        return Ok(vec![g.emit(Op::Softmax { axis, log }, &[x])?]);
    }
    let axis = g.axis(n.int("axis", 1), rank)?;
    if g.shape(x)[axis + 1..].iter().all(|d| *d == 1) {
        return Ok(vec![g.emit(Op::Softmax { axis, log }, &[x])?]);
    }
    Ok(vec![g.flat_softmax(x, axis, log)?])
}

pub(super) fn layer_normalization(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let axis = g.axis(n.int("axis", -1), g.rank(x))?;
    let epsilon = n.float("epsilon", 1e-5);
    let operands = n.present();
    let y = g.emit(Op::LayerNorm { axis, epsilon: F32::new(epsilon) }, &operands)?;
    if !n.wants_output(1) && !n.wants_output(2) {
        return Ok(vec![y]);
    }
    let axes: Vec<usize> = (axis..g.rank(x)).collect();
    let mean = g.mean(x, &axes)?;
    let centred = g.sub(x, mean)?;
    let square = g.mul(centred, centred)?;
    let variance = g.mean(square, &axes)?;
    let shifted = g.plus(variance, f64::from(epsilon))?;
    let deviation = g.unary(UnaryOp::Sqrt, shifted)?;
    let one = g.scalar_like(deviation, 1.0)?;
    Ok(vec![y, mean, g.div(one, deviation)?])
}

impl Importer<'_> {
    fn mean(&mut self, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        self.emit(Op::Reduce { op: ReduceOp::Mean, axes: axes.to_vec(), keep: true }, &[x])
    }

    /// `x / √(mean(x²) + ε)` over `axes`.
    fn by_root_mean_square(&mut self, x: ValueId, axes: &[usize], epsilon: f32) -> Result<ValueId> {
        let square = self.binary(BinaryOp::Mul, x, x)?;
        let variance = self.mean(square, axes)?;
        let epsilon = self.scalar_like(x, epsilon as f64)?;
        let shifted = self.binary(BinaryOp::Add, variance, epsilon)?;
        let deviation = self.unary(UnaryOp::Sqrt, shifted)?;
        self.binary(BinaryOp::Div, x, deviation)
    }

    /// `(x - mean) / √(variance + ε)` over `axes`.
    fn normalize(&mut self, x: ValueId, axes: &[usize], epsilon: f32) -> Result<ValueId> {
        let mean = self.mean(x, axes)?;
        let centered = self.binary(BinaryOp::Sub, x, mean)?;
        self.by_root_mean_square(centered, axes, epsilon)
    }

    /// `x·scale + bias`, both along dimension 1.
    fn by_channel(&mut self, x: ValueId, scale: ValueId, bias: ValueId) -> Result<ValueId> {
        let mut shape = vec![1; self.rank(x)];
        shape[1] = self.shape(x)[1];
        let scale = self.reshape_to(scale, shape.clone())?;
        let bias = self.reshape_to(bias, shape)?;
        let scaled = self.binary(BinaryOp::Mul, x, scale)?;
        self.binary(BinaryOp::Add, scaled, bias)
    }
}

pub(super) fn rms_normalization(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, scale) = (n.input(0)?, n.input(1)?);
    let axis = g.axis(n.int("axis", -1), g.rank(x))?;
    let axes: Vec<usize> = (axis..g.rank(x)).collect();
    let y = g.by_root_mean_square(x, &axes, n.float("epsilon", 1e-5))?;
    Ok(vec![g.binary(BinaryOp::Mul, y, scale)?])
}

pub(super) fn instance_normalization(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    if g.rank(x) < 3 {
        return Err(Error::Invalid("its operand has no spatial dimensions".into()));
    }
    let axes: Vec<usize> = (2..g.rank(x)).collect();
    let y = g.normalize(x, &axes, n.float("epsilon", 1e-5))?;
    Ok(vec![g.by_channel(y, n.input(1)?, n.input(2)?)?])
}

pub(super) fn group_normalization(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, scale, bias) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let shape = g.shape(x).to_vec();
    let groups = n.int("num_groups", 0);
    if shape.len() < 2 || groups < 1 || shape[1] % groups != 0 {
        return Err(Error::Invalid(format!("{groups} groups do not divide the channels of {shape:?}")));
    }
    let mut grouped = vec![shape[0], groups, shape[1] / groups];
    grouped.extend(&shape[2..]);
    let axes: Vec<usize> = (2..grouped.len()).collect();
    let y = g.reshape_to(x, grouped)?;
    let y = g.normalize(y, &axes, n.float("epsilon", 1e-5))?;
    let y = g.reshape_to(y, shape.clone())?;
    // scale and bias are per group before opset 21
    let per_channel = |g: &mut Importer, v: ValueId| -> Result<ValueId> {
        if g.shape(v) != [groups] || groups == shape[1] {
            return Ok(v);
        }
        let column = g.reshape_to(v, vec![groups, 1])?;
        let wide = g.emit(Op::Expand { shape: vec![groups, shape[1] / groups] }, &[column])?;
        g.reshape_to(wide, vec![shape[1]])
    };
    let (scale, bias) = (per_channel(g, scale)?, per_channel(g, bias)?);
    Ok(vec![g.by_channel(y, scale, bias)?])
}

pub(super) fn arg_extreme(g: &mut Importer, n: &Source, function: &str) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let axis = g.axis(n.int("axis", 0), g.rank(x))?;
    let attributes = vec![axis as i64, n.int("keepdims", 1), n.int("select_last_index", 0)];
    Ok(vec![g.emit(Op::Opaque { function: function.into(), attributes }, &[x])?])
}

pub(super) fn cumulative_sum(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let axis = g.integers(n.input(1)?, "axis")?.first().copied().unwrap_or(0);
    let axis = g.axis(axis, g.rank(x))?;
    let attributes = vec![axis as i64, n.int("exclusive", 0), n.int("reverse", 0)];
    Ok(vec![g.emit(Op::Opaque { function: "cumsum".into(), attributes }, &[x])?])
}

pub(super) fn top_k(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let k = if n.opset < 10 { n.int("k", -1) } else { g.known_integer(n.input(1)?, "k")? };
    let axis = g.axis(n.int("axis", -1), g.rank(x))?;
    if k < 0 || k > g.shape(x)[axis] {
        return Err(Error::Invalid(format!("k = {k} is not within dimension {axis} of {:?}", g.shape(x))));
    }
    let attributes = vec![k, axis as i64, n.int("largest", 1), n.int("sorted", 1)];
    g.emit_all(Op::Opaque { function: "topk".into(), attributes }, &[x])
}
