//! Operators on quantised numbers that the standard has not: they compute in f32 between two scales.

use crate::expr::BinaryOp;
use crate::graph::import::importer::Importer;
use crate::graph::import::node::Source;
use crate::graph::import::pooling;
use crate::graph::import::quantize::{Quantised, dynamically, integer_product};
use crate::graph::ir::ValueId;
use crate::graph::op::{Op, ReduceOp};
use crate::runtime::{DType, Error, Result};

/// The operand at `i`, with its scale and zero point after it, as real numbers; and its type.
fn real(g: &mut Importer, n: &Source, i: usize) -> Result<(ValueId, DType)> {
    let (x, scale, zero) = (n.input(i)?, n.input(i + 1)?, n.optional(i + 2));
    Ok((g.dequantised(x, Quantised { scale, zero })?, g.ty(x).dtype))
}

/// A result, with the scale and zero point that are operands from `i` on.
fn result(g: &mut Importer, n: &Source, i: usize, y: ValueId, to: DType) -> Result<Vec<ValueId>> {
    let by = Quantised { scale: n.input(i)?, zero: n.optional(i + 1) };
    Ok(vec![g.quantised(y, by, to)?])
}

pub(in crate::graph::import) fn binary(g: &mut Importer, n: &Source, op: BinaryOp) -> Result<Vec<ValueId>> {
    let ((a, to), (b, _)) = (real(g, n, 0)?, real(g, n, 3)?);
    let y = g.binary(op, a, b)?;
    result(g, n, 6, y, to)
}

pub(in crate::graph::import) fn sigmoid(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, to) = real(g, n, 0)?;
    let y = g.emit(Op::Sigmoid, &[x])?;
    result(g, n, 3, y, to)
}

pub(in crate::graph::import) fn leaky_relu(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, to) = real(g, n, 0)?;
    let slope = g.scalar_like(x, f64::from(n.float("alpha", 0.01)))?;
    let y = g.emit(Op::PRelu, &[x, slope])?;
    result(g, n, 3, y, to)
}

pub(in crate::graph::import) fn softmax(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, to) = real(g, n, 0)?;
    let axis = g.axis(n.int("axis", -1), g.rank(x))?;
    let y = match n.int("opset", 13) >= 13 {
        true => g.emit(Op::Softmax { axis, log: false }, &[x])?,
        false => g.flat_softmax(x, axis, false)?,
    };
    result(g, n, 3, y, to)
}

pub(in crate::graph::import) fn average_pool(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    if n.flag("channels_last", false) {
        return Err(Error::Unsupported("channels in the last dimension".into()));
    }
    let (x, to) = real(g, n, 0)?;
    let y = pooling::averages(g, n, x)?;
    result(g, n, 3, y, to)
}

pub(in crate::graph::import) fn global_average_pool(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, to) = real(g, n, 0)?;
    let rank = g.rank(x);
    let axes: Vec<usize> = if n.flag("channels_last", false) { (1..rank - 1).collect() } else { (2..rank).collect() };
    let y = g.reduce_kept(ReduceOp::Mean, x, &axes)?;
    result(g, n, 3, y, to)
}

/// Operands: scale and zero point of the result, then each tensor with its own.
pub(in crate::graph::import) fn concat(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let count = n.proto.input.len();
    let first = n.input(2)?;
    let (to, axis) = (g.ty(first).dtype, g.axis(n.int("axis", 0), g.rank(first))?);
    let parts = (2..count).step_by(3).map(|i| real(g, n, i).map(|(x, _)| x)).collect::<Result<Vec<ValueId>>>()?;
    let y = g.joined(axis, &parts)?;
    result(g, n, 0, y, to)
}

/// A product of quantised matrices as real numbers: times the scales, plus a bias.
fn scaled(g: &mut Importer, product: ValueId, scales: [ValueId; 2], bias: Option<ValueId>) -> Result<ValueId> {
    let mut factor: Option<ValueId> = None;
    for scale in scales {
        let shape = if g.shape(scale).iter().product::<i64>() == 1 { vec![] } else { g.shape(scale).to_vec() };
        let scale = g.reshape_to(scale, shape)?;
        factor = Some(factor.map_or(Ok(scale), |f| g.mul(f, scale))?);
    }
    let mut y = g.cast_to(product, DType::F32)?;
    if let Some(factor) = factor {
        y = g.mul(y, factor)?;
    }
    match bias {
        Some(bias) => g.add(y, bias),
        None => Ok(y),
    }
}

/// `A · B` for quantised `A` and `B`, as real numbers.
pub(in crate::graph::import) fn matmul_to_float(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (a, b, scales) = (n.input(0)?, n.input(1)?, [n.input(2)?, n.input(3)?]);
    let (zeros, bias) = ([n.optional(4), n.optional(5)], n.optional(6));
    let product = integer_product(g, [a, b], zeros)?;
    Ok(vec![scaled(g, product, scales, bias)?])
}

/// `A · B` where `A` is quantised by its own least and greatest element first.
pub(in crate::graph::import) fn dynamic_matmul(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (a, b, scale, zero, bias) = (n.input(0)?, n.input(1)?, n.input(2)?, n.optional(3), n.optional(4));
    let (a, by) = dynamically(g, a)?;
    let product = integer_product(g, [a, b], [by.zero, zero])?;
    Ok(vec![scaled(g, product, [by.scale, scale], bias)?])
}

/// `alpha · A · B + C` of quantised matrices, quantised again where a scale of the result is given.
pub(in crate::graph::import) fn gemm(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let [a, a_scale, b, b_scale] = [n.input(0)?, n.input(1)?, n.input(3)?, n.input(4)?];
    let (zeros, c) = ([n.optional(2), n.optional(5)], n.optional(6));
    let (scale, zero) = (n.optional(7), n.optional(8));
    let to = g.ty(a).dtype;
    let mut turned = |x: ValueId, name: &str| if n.flag(name, false) { g.permuted(x, &[1, 0]) } else { Ok(x) };
    let (a, b) = (turned(a, "transA")?, turned(b, "transB")?);
    let mut product = integer_product(g, [a, b], zeros)?;
    if let Some(c) = c {
        product = g.add(product, c)?;
    }
    let y = scaled(g, product, [a_scale, b_scale], None)?;
    let y = g.times(y, f64::from(n.float("alpha", 1.0)))?;
    match scale {
        Some(scale) => Ok(vec![g.quantised(y, Quantised { scale, zero }, to)?]),
        None => Ok(vec![y]),
    }
}
