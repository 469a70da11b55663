//! Operators along an axis, and determinants: products of all elements before, the place of the largest, mean and variance.

use super::node::Source;
use crate::expr::{CompareOp, UnaryOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{Op, ReduceOp};
use crate::runtime::{DType, Error, Result};

/// Products of the elements up to each one: after step `i` each is the product of up to `2^i` (Hillis and Steele).
pub(super) fn cumulative_product(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, axis) = (n.input(0)?, n.input(1)?);
    let axis = g.known_integer(axis, "axis")?;
    let axis = g.axis(axis, g.rank(x))?;
    let (reverse, exclusive) = (n.flag("reverse", false), n.flag("exclusive", false));
    let extent = g.shape(x)[axis];
    let mut y = if reverse { g.strided_slice(x, axis, extent - 1, -1, -1)? } else { x };
    let one = g.scalar_like(x, 1.0)?;
    // `distance` ones, then the elements
    let delayed = |g: &mut Importer, y: ValueId, distance: i64| -> Result<ValueId> {
        let mut shape = g.shape(y).to_vec();
        shape[axis] = distance;
        let ones = g.expanded(one, &shape)?;
        let shifted = g.slice(y, axis, 0, extent - distance)?;
        g.joined(axis, &[ones, shifted])
    };
    let mut distance = 1;
    while distance < extent {
        let before = delayed(g, y, distance)?;
        y = g.mul(before, y)?;
        distance *= 2;
    }
    if exclusive && extent > 0 {
        y = delayed(g, y, 1)?;
    }
    if reverse {
        y = g.strided_slice(y, axis, extent - 1, -1, -1)?;
    }
    Ok(vec![y])
}

/// 1 at the first of the largest elements, 0 elsewhere. Before operator set 13 everything from `axis` on is one dimension.
pub(super) fn hardmax(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let (shape, whole) = (g.shape(x).to_vec(), n.opset >= 13);
    let axis = g.axis(n.int("axis", if whole { -1 } else { 1 }), shape.len())?;
    let (rows, axis) = if whole { (x, axis) } else { (g.flattened(x, axis)?, 1) };
    let extent = g.shape(rows)[axis];
    if shape.contains(&0) {
        return Ok(vec![x]);
    }
    let op = Op::Opaque { function: "argmax".into(), attributes: vec![axis as i64, 1, 0] };
    let best = g.emit(op, &[rows])?;
    let place = g.counting(extent, axis, g.rank(rows))?;
    let chosen = g.compare(CompareOp::Eq, place, best)?;
    let y = g.cast_to(chosen, g.ty(x).dtype)?;
    Ok(vec![g.reshape_to(y, shape)?])
}

/// `(x - mean) / (deviation + 1e-9)` over some axes.
pub(super) fn mean_variance_normalization(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    g.require_float(x)?;
    let mut axes = g.distinct_axes(n.ints("axes").unwrap_or_else(|| vec![0, 2, 3]), g.rank(x))?;
    axes.sort_unstable();
    let mean = g.reduce_kept(ReduceOp::Mean, x, &axes)?;
    let centred = g.sub(x, mean)?;
    let square = g.mul(centred, centred)?;
    let variance = g.reduce_kept(ReduceOp::Mean, square, &axes)?;
    let deviation = g.unary(UnaryOp::Sqrt, variance)?;
    let below = g.plus(deviation, 1e-9)?;
    Ok(vec![g.div(centred, below)?])
}

/// Determinants of matrices, by elimination with pivots: which row is next depends on the elements, so that there is no
/// affine expression.
pub(super) fn determinant(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    g.require_float(x)?;
    let shape = g.shape(x).to_vec();
    match shape[..] {
        [.., rows, columns] if rows == columns => {}
        _ => return Err(Error::Invalid(format!("matrices of shape {shape:?} are not square"))),
    }
    // elimination works on a copy, the second result
    let results = g.emit_all(Op::Opaque { function: "determinant".into(), attributes: vec![] }, &[x])?;
    Ok(vec![results[0]])
}

/// `x < -lambd: x + bias; x > lambd: x - bias; 0`.
pub(super) fn shrink(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let (bias, bound) = (f64::from(n.float("bias", 0.0)), f64::from(n.float("lambd", 0.5)));
    let wide = if g.ty(x).dtype.is_float() { x } else { g.cast_to(x, DType::F32)? };
    let (low, high) = (g.scalar_like(wide, -bound)?, g.scalar_like(wide, bound)?);
    let (up, down) = (g.plus(wide, bias)?, g.plus(wide, -bias)?);
    let zero = g.scalar_like(wide, 0.0)?;
    let above = g.compare(CompareOp::Gt, wide, high)?;
    let below = g.compare(CompareOp::Lt, wide, low)?;
    let y = g.select(above, down, zero)?;
    let y = g.select(below, up, y)?;
    Ok(vec![g.cast_to(y, g.ty(x).dtype)?])
}

/// `a · sigmoid(alpha · a) · b`.
pub(super) fn swiglu(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (a, b) = (n.input(0)?, n.input(1)?);
    if g.shape(a) != g.shape(b) {
        return Err(Error::Invalid(format!(
            "operands have shapes {:?} and {:?}, not the same one",
            g.shape(a),
            g.shape(b)
        )));
    }
    let alpha = n.float("alpha", 1.0);
    let gated = if alpha == 1.0 {
        g.emit(Op::Silu, &[a])?
    } else {
        let scaled = g.times(a, f64::from(alpha))?;
        let gate = g.emit(Op::Sigmoid, &[scaled])?;
        g.mul(a, gate)?
    };
    Ok(vec![g.mul(gated, b)?])
}
