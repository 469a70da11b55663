//! Operators that move elements by rules of their own: crops, reversed sequences, columns of images; unit matrices.

use super::arithmetic::count;
use super::convolution::per_axis;
use super::node::Source;
use super::tensor::dtype;
use crate::expr::CompareOp;
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{Layout, Op, Window};
use crate::runtime::{DType, Error, Result, Tensor};

/// Cuts or pads each axis around its middle.
pub(super) fn center_crop_pad(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (mut x, wanted) = (n.input(0)?, n.input(1)?);
    let wanted = g.integers(wanted, "shape")?;
    let rank = g.rank(x);
    let axes = g.distinct_axes(n.ints("axes").unwrap_or_else(|| (0..rank as i64).collect()), rank)?;
    if axes.len() != wanted.len() || wanted.iter().any(|d| !(0..=1 << 40).contains(d)) {
        return Err(Error::Invalid(format!("shape {wanted:?} does not fit axes {axes:?}")));
    }
    let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
    for (axis, size) in axes.into_iter().zip(wanted) {
        let extent = g.shape(x)[axis];
        let excess = extent - size;
        if excess > 0 {
            x = g.slice(x, axis, excess / 2, excess / 2 + size)?;
        } else {
            (before[axis], after[axis]) = (-excess / 2, -excess - -excess / 2);
        }
    }
    if before.iter().chain(&after).all(|p| *p == 0) {
        return Ok(vec![x]);
    }
    Ok(vec![g.emit(Op::Pad { before, after, value: 0 }, &[x])?])
}

/// The first elements of each sequence in reverse, as a gather of computed positions.
pub(super) fn reverse_sequence(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, lengths) = (n.input(0)?, n.input(1)?);
    let rank = g.rank(x);
    let (batch, time) = (g.axis(n.int("batch_axis", 1), rank)?, g.axis(n.int("time_axis", 0), rank)?);
    if batch == time || g.shape(lengths) != [g.shape(x)[batch]] {
        return Err(Error::Invalid(format!(
            "lengths of shape {:?} do not fit sequences of shape {:?}",
            g.shape(lengths),
            g.shape(x)
        )));
    }
    if g.graph.constant(lengths).is_some()
        && let Some(wrong) = g.integers(lengths, "lengths")?.iter().find(|l| !(0..=g.shape(x)[time]).contains(l))
    {
        return Err(Error::Invalid(format!("a length of {wrong} is not within 0 to {}", g.shape(x)[time])));
    }
    let order: Vec<usize> = [batch, time].into_iter().chain((0..rank).filter(|d| ![batch, time].contains(d))).collect();
    let rows = g.permuted(x, &order)?;
    let (sequences, steps) = (g.shape(rows)[0], g.shape(rows)[1]);
    let lengths = g.cast_to(lengths, DType::I64)?;
    let lengths = g.reshape_to(lengths, vec![sequences, 1])?;
    let step = g.counting(steps, 1, 2)?;
    let last = g.plus(lengths, -1.0)?;
    let mirrored = g.sub(last, step)?;
    let inside = g.compare(CompareOp::Lt, step, lengths)?;
    let from = g.select(inside, mirrored, step)?;
    let from = g.unsqueezed(from, 2)?;
    let y = g.emit(Op::GatherNd { batch_dims: 1 }, &[rows, from])?;
    let back: Vec<usize> = (0..rank).map(|d| order.iter().position(|&o| o == d).unwrap_or(d)).collect();
    Ok(vec![g.permuted(y, &back)?])
}

/// Adds the columns of an image up at their places: the transpose of a convolution with a filter for each place of the block.
pub(super) fn col2im(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, image, block) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (image, kernel) = (g.integers(image, "image_shape")?, g.integers(block, "block_shape")?);
    let axes = image.len();
    if !(1..=3).contains(&axes) {
        return Err(Error::Unsupported(format!("an image of {axes} dimensions (1 to 3 are known)")));
    }
    let pads = per_axis(n, "pads", 2 * axes, 0, 0)?;
    let (stride, dilation) = (per_axis(n, "strides", axes, 1, 1)?, per_axis(n, "dilations", axes, 1, 1)?);
    let sizes = image.iter().chain(&kernel);
    if kernel.len() != axes || sizes.clone().any(|d| !(1..=1 << 20).contains(d)) {
        return Err(Error::Invalid(format!("blocks of {kernel:?} do not fit an image of {image:?}")));
    }
    let room = |d: usize| image[d] + pads[d] + pads[axes + d] - (kernel[d] - 1) * dilation[d] - 1;
    let places: Vec<i64> = (0..axes).map(|d| room(d).div_euclid(stride[d]) + 1).collect();
    let taps = count(&kernel);
    let &[batch, columns, positions] = g.shape(x) else {
        return Err(Error::Invalid(format!("columns of shape {:?} do not have 3 dimensions", g.shape(x))));
    };
    if places.iter().any(|p| *p < 1) || positions != count(&places) || columns % taps != 0 {
        return Err(Error::Invalid(format!(
            "{columns}×{positions} columns for {places:?} places of blocks {kernel:?}"
        )));
    }
    let x = g.reshape_to(x, [&[batch, columns], &places[..]].concat())?;
    g.claim(&[columns, taps], DType::F64)?;
    let weight = |i: i64| f64::from(u8::from(i / taps % taps == i % taps));
    let weights: Vec<f64> = (0..columns * taps).map(weight).collect();
    let weights = g.numbers(x, &[&[columns, 1], &kernel[..]].concat(), &weights)?;
    let output_pad = (0..axes).map(|d| room(d) - (places[d] - 1) * stride[d]).collect();
    let (pad_before, pad_after) = (pads[..axes].to_vec(), pads[axes..].to_vec());
    let window = Window { kernel, stride, dilation, pad_before, pad_after };
    let op = Op::ConvTranspose { window, group: columns / taps, output_pad, layout: Layout::Nchw };
    Ok(vec![g.emit(op, &[x, weights])?])
}

/// Ones on a diagonal.
pub(super) fn eye_like(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let (rows, columns) = match *g.shape(x) {
        [rows, columns] => (rows, columns),
        [size] => (size, size),
        ref other => {
            return Err(Error::Invalid(format!("an operand of shape {other:?} does not have 1 or 2 dimensions")));
        }
    };
    let to = match n.int("dtype", 0) {
        0 => g.ty(x).dtype,
        kind => dtype(kind as i32)?,
    };
    let k = n.int("k", 0);
    g.claim(&[rows, columns], DType::I64)?;
    let element = |r: i64, c: i64| u8::from(c.checked_sub(r) == Some(k));
    let values: Vec<u8> = (0..rows).flat_map(|r| (0..columns).map(move |c| element(r, c))).collect();
    let ones = g.constant(Tensor::new(&[rows, columns], &values));
    Ok(vec![g.cast_to(ones, to)?])
}
