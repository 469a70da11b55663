//! Types of minimal filtering: overlapping tiles, their products, transformed weights.

use crate::graph::infer::check::{Checked, defined, ensure, same_types, shaped};
use crate::graph::tensor_type::TensorType;
use crate::runtime::DType;

/// The matrices of the axes, of the type of the tensor.
fn axis_matrices<'a>(inputs: &[&'a TensorType], dims: usize) -> Checked<Vec<&'a [i64]>> {
    same_types(inputs)?;
    defined(inputs[0], inputs[0].dtype.is_float())?;
    matrices_of(inputs, dims)
}

/// The matrices of the axes, each with at least one row and one column, not all with one column.
fn matrices_of<'a>(inputs: &[&'a TensorType], dims: usize) -> Checked<Vec<&'a [i64]>> {
    ensure((1..=3).contains(&dims) && inputs.len() == dims + 1, || "one matrix for each spatial axis".into())?;
    let shapes: Vec<&[i64]> = inputs[1..].iter().map(|t| &t.shape[..]).collect();
    let matrices = shapes.iter().all(|s| s.len() == 2 && s.iter().all(|&e| e > 0));
    ensure(matrices && shapes.iter().any(|s| s[1] > 1), || "an operand is no transform".into())?;
    Ok(shapes)
}

pub(super) fn winograd_input(inputs: &[&TensorType], tile: &[i64], pad: &[i64], tiles: &[i64]) -> Checked<TensorType> {
    let (x, dims) = (inputs[0], tile.len());
    let matrices = axis_matrices(inputs, dims)?;
    ensure(x.shape.len() == dims + 2, || "the image has another number of axes".into())?;
    let lists = [pad, tiles].iter().all(|l| l.len() == dims);
    ensure(lists && tile.iter().chain(tiles).all(|&e| e > 0), || "one tile for each axis".into())?;
    ensure(matrices.iter().all(|s| s[0] == s[1]), || "a transform of the input is not square".into())?;
    for d in 0..dims {
        let covered = tile[d].checked_mul(tiles[d] - 1).and_then(|e| e.checked_add(matrices[d][1]));
        let reached = covered.ok_or("the tiles are too large")?.checked_sub(pad[d]).ok_or("too much padding")?;
        // Only along an axis that is transformed may a tile lie beyond the image.
        let whole = pad[d] == 0 && reached <= x.shape[1 + d];
        ensure(matrices[d][1] > 1 || whole, || "padding along an axis without a transform".into())?;
    }
    let places = matrices.iter().map(|s| s[0]);
    let shape = places.chain([x.shape[0]]).chain(tiles.iter().copied()).chain([x.shape[dims + 1]]);
    shaped(x, shape.collect())
}

pub(super) fn winograd_weights(inputs: &[&TensorType]) -> Checked<TensorType> {
    let w = inputs[0];
    defined(w, w.dtype == DType::F32)?;
    inputs[1..].iter().try_for_each(|t| defined(t, t.dtype == DType::F64))?;
    let dims = inputs.len() - 1;
    let matrices = matrices_of(inputs, dims)?;
    ensure(w.shape.len() == dims + 2, || "the weights have another number of axes".into())?;
    let mut places = 1i64;
    for (d, s) in matrices.iter().enumerate() {
        ensure(s[1] == w.shape[2 + d], || "a transform has another number of taps".into())?;
        ensure(s[1] > 1 || s[0] == 1, || "one tap is transformed".into())?;
        places = places.checked_mul(s[0]).ok_or("the transforms are too large")?;
    }
    shaped(w, vec![places, w.shape[1], w.shape[0]])
}

pub(super) fn winograd_output(inputs: &[&TensorType], size: &[i64]) -> Checked<TensorType> {
    let (x, dims) = (inputs[0], size.len());
    let matrices = axis_matrices(inputs, dims)?;
    ensure(x.shape.len() == 2 * dims + 2, || "the products have another number of axes".into())?;
    for d in 0..dims {
        ensure(x.shape[d] == matrices[d][1], || "a transform has another number of places".into())?;
        let reached = x.shape[dims + 1 + d].checked_mul(matrices[d][0]).ok_or("the tiles are too large")?;
        ensure(0 < size[d] && size[d] <= reached, || "the tiles do not cover the result".into())?;
    }
    let shape = [x.shape[dims]].into_iter().chain(size.iter().copied()).chain([x.shape[2 * dims + 1]]);
    shaped(x, shape.collect())
}
