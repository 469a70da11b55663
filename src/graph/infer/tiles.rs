//! Types of minimal filtering: overlapping tiles, their products, transformed weights.

use crate::graph::infer::check::{Checked, defined, ensure, same_types, shaped};
use crate::graph::op::Op;
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
    ensure(matrices && shapes.iter().any(|s| s[1] > 1), || "an operand is not a transform".into())?;
    Ok(shapes)
}

/// The type of the result of an operator of minimal filtering.
pub(super) fn output(op: &Op, inputs: &[&TensorType]) -> Checked<TensorType> {
    match op {
        Op::WinogradInput { tile, pad, tiles, dilation, group } => {
            winograd_input(inputs, tile, pad, tiles, &Parts { dilation, group: *group })
        }
        Op::WinogradOutput { size, dilation, group } => {
            winograd_output(inputs, size, &Parts { dilation, group: *group })
        }
        _ => winograd_weights(inputs),
    }
}

/// Phases of the image and groups of its channels.
struct Parts<'a> {
    dilation: &'a [i64],
    group: i64,
}

impl Parts<'_> {
    /// The number of phases of an image with so many axes.
    fn phases(&self, dims: usize) -> Checked<i64> {
        ensure(self.dilation.len() == dims && self.group > 0, || "one dilation for each axis, and groups".into())?;
        let phases = self.dilation.iter().try_fold(1i64, |n, &d| n.checked_mul(d).filter(|_| d > 0));
        phases.ok_or("the dilations are not positive, or too large".into())
    }
}

fn winograd_input(
    inputs: &[&TensorType],
    tile: &[i64],
    pad: &[i64],
    tiles: &[i64],
    parts: &Parts,
) -> Checked<TensorType> {
    let (x, dims) = (inputs[0], tile.len());
    let phases = parts.phases(dims)?;
    let matrices = axis_matrices(inputs, dims)?;
    ensure(x.shape.len() == dims + 2, || "the image has another number of axes".into())?;
    let lists = [pad, tiles].iter().all(|l| l.len() == dims);
    ensure(lists && tile.iter().chain(tiles).all(|&e| e > 0), || "one tile for each axis".into())?;
    ensure(matrices.iter().all(|s| s[0] == s[1]), || "a transform of the input is not square".into())?;
    for d in 0..dims {
        let covered = tile[d].checked_mul(tiles[d] - 1).and_then(|e| e.checked_add(matrices[d][1]));
        let covered = covered.and_then(|e| e.checked_mul(parts.dilation[d]));
        let reached = covered.ok_or("the tiles are too large")?.checked_sub(pad[d]).ok_or("too much padding")?;
        // Only along an axis that is transformed may a tile lie beyond the image.
        let whole = pad[d] == 0 && reached <= x.shape[1 + d];
        ensure(matrices[d][1] > 1 || whole, || "padding along an axis without a transform".into())?;
    }
    ensure(x.shape[dims + 1] % parts.group == 0, || "the groups do not divide the channels".into())?;
    let mut places: Vec<i64> = matrices.iter().map(|s| s[0]).collect();
    places[dims - 1] = places[dims - 1].checked_mul(parts.group).ok_or("there are too many groups")?;
    let images = x.shape[0].checked_mul(phases).ok_or("there are too many phases")?;
    shaped(x, [&places[..], &[images], tiles, &[x.shape[dims + 1] / parts.group]].concat())
}

fn winograd_weights(inputs: &[&TensorType]) -> Checked<TensorType> {
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

fn winograd_output(inputs: &[&TensorType], size: &[i64], parts: &Parts) -> Checked<TensorType> {
    let (x, dims) = (inputs[0], size.len());
    let phases = parts.phases(dims)?;
    let matrices = axis_matrices(inputs, dims)?;
    ensure(x.shape.len() == 2 * dims + 2, || "the products have another number of axes".into())?;
    for d in 0..dims {
        let groups = if d + 1 == dims { parts.group } else { 1 };
        let places = matrices[d][1].checked_mul(groups);
        ensure(places == Some(x.shape[d]), || "a transform has another number of places".into())?;
        let reached = x.shape[dims + 1 + d].checked_mul(matrices[d][0]);
        let reached = reached.and_then(|e| e.checked_mul(parts.dilation[d])).ok_or("the tiles are too large")?;
        ensure(0 < size[d] && size[d] <= reached, || "the tiles do not cover the result".into())?;
    }
    ensure(x.shape[dims] % phases == 0, || "some image lacks a phase".into())?;
    let filters = x.shape[2 * dims + 1].checked_mul(parts.group).ok_or("there are too many groups")?;
    shaped(x, [&[x.shape[dims] / phases], size, &[filters]].concat())
}
