//! Quantised numbers: real = (integer - zero point) · scale. Products are sums of i32, exact; a result is rounded half to
//! even, once.

use super::convolution::conv_window;
use super::node::Source;
use super::tensor::dtype;
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{Layout, Op, ReduceOp};
use crate::runtime::{DType, Error, Result};

/// Scale and zero point of a tensor.
#[derive(Clone, Copy)]
pub(super) struct Quantised {
    pub scale: ValueId,
    pub zero: Option<ValueId>,
}

/// Where scales change: nowhere, along an axis, or from block to block of an axis.
#[derive(Clone, Copy)]
struct Along {
    axis: i64,
    block: i64,
}

/// Least and greatest number of a type of integers.
fn range(dtype: DType) -> Result<(f64, f64)> {
    if dtype.is_float() || dtype == DType::Bool {
        return Err(Error::Unsupported(format!("quantised elements of type {dtype}")));
    }
    let bits = 8 * dtype.bytes() as i32;
    Ok(if dtype.name().starts_with('u') {
        (0.0, 2f64.powi(bits) - 1.0)
    } else {
        (-(2f64.powi(bits - 1)), 2f64.powi(bits - 1) - 1.0)
    })
}

impl Importer<'_> {
    /// A scale or zero point, so that it broadcasts to `shape`.
    fn spread(&mut self, value: ValueId, shape: &[i64], along: Along) -> Result<ValueId> {
        let given = self.shape(value).to_vec();
        let misfit = || Error::Invalid(format!("a scale or zero point of shape {given:?} for shape {shape:?}"));
        if given.iter().product::<i64>() == 1 && along.block == 0 {
            return self.reshape_to(value, vec![]);
        }
        let axis = self.axis(along.axis, shape.len())?;
        if along.block == 0 {
            if given != [shape[axis]] {
                return Err(misfit());
            }
            let mut wide = vec![1; shape.len()];
            wide[axis] = shape[axis];
            return self.reshape_to(value, wide);
        }
        let blocks = (shape[axis] + along.block - 1) / along.block.max(1);
        let fits = given.len() == shape.len()
            && (0..shape.len()).all(|d| given[d] == if d == axis { blocks } else { shape[d] });
        if along.block < 0 || !fits {
            return Err(misfit());
        }
        let mut wide = given.clone();
        wide.insert(axis + 1, 1);
        let column = self.reshape_to(value, wide.clone())?;
        wide[axis + 1] = along.block;
        let column = self.expanded(column, &wide)?;
        let mut whole = given;
        whole[axis] = blocks * along.block;
        let value = self.reshape_to(column, whole)?;
        self.part(value, axis, 0, shape[axis], 1)
    }

    /// `round(x) + zero`, within the range of `to`.
    fn rounded(&mut self, x: ValueId, zero: Option<ValueId>, to: DType) -> Result<ValueId> {
        let (low, high) = range(to)?;
        let mut y = self.unary(UnaryOp::Round, x)?;
        if let Some(zero) = zero {
            let zero = self.cast_to(zero, self.ty(y).dtype)?;
            y = self.add(y, zero)?;
        }
        let y = self.clamp(y, low, high)?;
        self.cast_to(y, to)
    }

    /// `x - zero` as i32.
    pub(super) fn centred(&mut self, x: ValueId, zero: Option<ValueId>) -> Result<ValueId> {
        range(self.ty(x).dtype)?;
        let x = self.cast_to(x, DType::I32)?;
        let Some(zero) = zero else { return Ok(x) };
        let zero = self.cast_to(zero, DType::I32)?;
        if self.graph.constant(zero).is_some_and(|t| t.data.iter().all(|b| *b == 0)) {
            return Ok(x);
        }
        self.sub(x, zero)
    }

    /// `round(x / scale) + zero` for one scale, as the type of the zero point.
    pub(super) fn requantised(&mut self, x: ValueId, by: Quantised, to: DType) -> Result<ValueId> {
        let (scale, zero) = (self.scalar_of(by.scale)?, by.zero.map(|z| self.scalar_of(z)).transpose()?);
        let x = self.div(x, scale)?;
        self.rounded(x, zero, to)
    }

    /// A value of one element without dimensions.
    pub(super) fn scalar_of(&mut self, x: ValueId) -> Result<ValueId> {
        match self.shape(x).iter().product::<i64>() {
            1 => self.reshape_to(x, vec![]),
            _ => Err(Error::Invalid(format!("a scale or zero point of shape {:?}", self.shape(x)))),
        }
    }
}

fn along(n: &Source) -> Along {
    Along { axis: n.int("axis", 1), block: n.int("block_size", 0) }
}

pub(super) fn quantize_linear(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, scale, zero) = (n.input(0)?, n.input(1)?, n.optional(2));
    let to = match (zero, n.int("output_dtype", 0)) {
        (Some(zero), _) => g.ty(zero).dtype,
        (None, 0) => DType::U8,
        (None, kind) => dtype(kind as i32)?,
    };
    let (shape, along) = (g.shape(x).to_vec(), along(n));
    let precision = match n.int("precision", 0) {
        0 => g.ty(scale).dtype,
        kind => dtype(kind as i32)?,
    };
    let scale = g.spread(scale, &shape, along)?;
    let zero = zero.map(|z| g.spread(z, &shape, along)).transpose()?;
    let (x, scale) = (g.cast_to(x, precision)?, g.cast_to(scale, precision)?);
    let x = g.div(x, scale)?;
    let x = if g.ty(x).dtype == DType::F64 { x } else { g.cast_to(x, DType::F32)? };
    Ok(vec![g.rounded(x, zero, to)?])
}

pub(super) fn dequantize_linear(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, scale, zero) = (n.input(0)?, n.input(1)?, n.optional(2));
    let (shape, along) = (g.shape(x).to_vec(), along(n));
    let to = match n.int("output_dtype", 0) {
        0 => g.ty(scale).dtype,
        kind => dtype(kind as i32)?,
    };
    let scale = g.spread(scale, &shape, along)?;
    let zero = zero.map(|z| g.spread(z, &shape, along)).transpose()?;
    let x = g.centred(x, zero)?;
    let x = g.cast_to(x, DType::F32)?;
    let scale = g.cast_to(scale, DType::F32)?;
    let y = g.mul(x, scale)?;
    Ok(vec![g.cast_to(y, to)?])
}

/// u8 with a scale and a zero point by the least and greatest element.
pub(super) fn dynamic_quantize_linear(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let (y, by) = dynamically(g, x)?;
    let zero = by.zero.ok_or_else(|| Error::Internal("no zero point".into()))?;
    Ok(vec![y, by.scale, zero])
}

/// The quantised elements, and their scale and zero point.
pub(super) fn dynamically(g: &mut Importer, x: ValueId) -> Result<(ValueId, Quantised)> {
    g.require_float(x)?;
    let axes: Vec<usize> = (0..g.rank(x)).collect();
    let nothing = g.scalar_like(x, 0.0)?;
    let mut bound = |op: ReduceOp, with: BinaryOp| -> Result<ValueId> {
        let bound = g.emit(Op::Reduce { op, axes: axes.clone(), keep: false }, &[x])?;
        g.binary(with, bound, nothing)
    };
    let (low, high) = (bound(ReduceOp::Min, BinaryOp::Min)?, bound(ReduceOp::Max, BinaryOp::Max)?);
    let width = g.sub(high, low)?;
    let scale = g.scalar_like(width, 255.0)?;
    let scale = g.div(width, scale)?;
    let same = g.compare(CompareOp::Eq, high, low)?;
    let one = g.scalar_like(scale, 1.0)?;
    let scale = g.select(same, one, scale)?;
    let zero = g.neg(low)?;
    let zero = g.div(zero, scale)?;
    let zero = g.rounded(zero, None, DType::U8)?;
    let by = Quantised { scale, zero: Some(zero) };
    Ok((g.requantised(x, by, DType::U8)?, by))
}

/// A zero point of a matrix: of all of it, or one for each row of `a` or column of `b`.
fn zero_of(g: &mut Importer, zero: Option<ValueId>, x: ValueId, columns: bool) -> Result<Option<ValueId>> {
    let Some(zero) = zero else { return Ok(None) };
    Ok(Some(per_line(g, zero, x, columns)?))
}

/// A value for each row or column of a matrix, or for all of it, so that it broadcasts to the matrix.
fn per_line(g: &mut Importer, value: ValueId, x: ValueId, columns: bool) -> Result<ValueId> {
    let (shape, rank) = (g.shape(value).to_vec(), g.rank(x));
    if shape.iter().product::<i64>() == 1 {
        return g.reshape_to(value, vec![]);
    }
    let lines = if columns { g.shape(x)[rank - 1] } else { g.shape(x)[rank.saturating_sub(2)] };
    match shape[..] {
        [d] if d == lines && columns => Ok(value),
        [d] if d == lines => g.reshape_to(value, vec![d, 1]),
        _ if shape.len() == rank => Ok(value),
        _ => Err(Error::Invalid(format!("a scale or zero point of shape {shape:?} for shape {:?}", g.shape(x)))),
    }
}

pub(super) fn matmul_integer(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (a, b, zeros) = (n.input(0)?, n.input(1)?, [n.optional(2), n.optional(3)]);
    Ok(vec![integer_product(g, [a, b], zeros)?])
}

/// The product of two matrices without their zero points, as i32.
pub(super) fn integer_product(g: &mut Importer, [a, b]: [ValueId; 2], zeros: [Option<ValueId>; 2]) -> Result<ValueId> {
    let (zero_a, zero_b) = (zero_of(g, zeros[0], a, false)?, zero_of(g, zeros[1], b, true)?);
    let (a, b) = (g.centred(a, zero_a)?, g.centred(b, zero_b)?);
    g.product(a, b)
}

pub(super) fn qlinear_matmul(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let [a, a_scale, a_zero, b, b_scale, b_zero] =
        [n.input(0)?, n.input(1)?, n.input(2)?, n.input(3)?, n.input(4)?, n.input(5)?];
    let to = Quantised { scale: n.input(6)?, zero: Some(n.input(7)?) };
    let product = integer_product(g, [a, b], [Some(a_zero), Some(b_zero)])?;
    let (a_scale, b_scale) = (per_line(g, a_scale, a, false)?, per_line(g, b_scale, b, true)?);
    let factor = g.mul(a_scale, b_scale)?;
    Ok(vec![rescaled(g, product, factor, to)?])
}

/// `round(x · factor / scale) + zero`.
fn rescaled(g: &mut Importer, x: ValueId, factor: ValueId, to: Quantised) -> Result<ValueId> {
    let zero = to.zero.ok_or_else(|| Error::Internal("no zero point".into()))?;
    let kind = g.ty(zero).dtype;
    let zero = g.scalar_of(zero)?;
    let scale = g.scalar_of(to.scale)?;
    let factor = g.div(factor, scale)?;
    let factor = g.cast_to(factor, DType::F32)?;
    let x = g.cast_to(x, DType::F32)?;
    let x = g.mul(x, factor)?;
    g.rounded(x, Some(zero), kind)
}

/// A value for each filter, or for all of them, so that it broadcasts to the weights (or, from dimension 1, to the result).
fn per_filter(g: &mut Importer, value: ValueId, rank: usize, dimension: usize) -> Result<ValueId> {
    let elements: i64 = g.shape(value).iter().product();
    if elements == 1 {
        return g.reshape_to(value, vec![]);
    }
    let mut shape = vec![1; rank];
    shape[dimension] = elements;
    g.reshape_to(value, shape)
}

/// The convolution of centred operands, as i32.
fn integer_convolution(g: &mut Importer, n: &Source, [x, w]: [ValueId; 2], bias: Option<ValueId>) -> Result<ValueId> {
    let window = conv_window(g, n, x, g.shape(w))?;
    let op = Op::Conv { window, group: n.int("group", 1), layout: Layout::Nchw };
    let operands: Vec<ValueId> = [Some(x), Some(w), bias].into_iter().flatten().collect();
    g.emit(op, &operands)
}

pub(super) fn conv_integer(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, w, x_zero, w_zero) = (n.input(0)?, n.input(1)?, n.optional(2), n.optional(3));
    let rank = g.rank(w);
    let x_zero = x_zero.map(|z| g.scalar_of(z)).transpose()?;
    let w_zero = w_zero.map(|z| per_filter(g, z, rank, 0)).transpose()?;
    let (x, w) = (g.centred(x, x_zero)?, g.centred(w, w_zero)?);
    Ok(vec![integer_convolution(g, n, [x, w], None)?])
}

pub(super) fn qlinear_conv(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let [x, x_scale, x_zero, w, w_scale, w_zero] =
        [n.input(0)?, n.input(1)?, n.input(2)?, n.input(3)?, n.input(4)?, n.input(5)?];
    let to = Quantised { scale: n.input(6)?, zero: Some(n.input(7)?) };
    let bias = n.optional(8);
    let rank = g.rank(w);
    let (x_scale, x_zero) = (g.scalar_of(x_scale)?, g.scalar_of(x_zero)?);
    let w_zero = per_filter(g, w_zero, rank, 0)?;
    let w_scale = per_filter(g, w_scale, rank, 1)?;
    let (x, w) = (g.centred(x, Some(x_zero))?, g.centred(w, Some(w_zero))?);
    let y = integer_convolution(g, n, [x, w], bias)?;
    let factor = g.mul(x_scale, w_scale)?;
    Ok(vec![rescaled(g, y, factor, to)?])
}
