//! The places and the elements that a condition chooses.

use super::View;
use super::element::{AxisExtents, misuse};
use super::key::key;
use crate::{DType, Error, Result, Tensor};

/// The subscripts of all elements that are not 0, a row for each dimension, in row-major order; a scalar has no rows.
pub fn non_zero(attributes: &[i64], inputs: &[View]) -> Result<Vec<Tensor>> {
    let ([], [x]) = (attributes, inputs) else { return Err(misuse("nonzero")) };
    let chosen = |(_, bytes): &(usize, &[u8])| key(x.dtype, bytes) != 0;
    let places: Vec<usize> =
        x.data.chunks_exact(x.dtype.bytes()).enumerate().filter(chosen).map(|(at, _)| at).collect();
    let mut rows = vec![0; x.shape.len() * places.len()];
    let mut below = 1;
    for (row, &extent) in rows.chunks_exact_mut(places.len().max(1)).rev().zip(x.shape.iter().rev()) {
        let extent = extent as usize;
        row.iter_mut().zip(&places).for_each(|(index, at)| *index = (at / below % extent) as i64);
        below *= extent;
    }
    Ok(vec![Tensor::new(&[x.shape.len() as i64, places.len() as i64], &rows)])
}

/// Attributes: the axis, or none to take elements in row-major order. Inputs: data, and a condition that may be shorter than
/// the axis. Output: the slices for which it holds.
pub fn compress(attributes: &[i64], inputs: &[View]) -> Result<Vec<Tensor>> {
    let ([x, condition], [] | [_]) = (inputs, attributes) else { return Err(misuse("compress")) };
    if condition.dtype != DType::Bool || condition.shape.len() != 1 {
        return Err(Error::Invalid("a condition that is not a list of bool".into()));
    }
    let around = match attributes {
        [axis] => AxisExtents::axis(x.shape, *axis)?,
        _ => AxisExtents { outer: 1, extent: x.shape.iter().product::<i64>() as usize, inner: 1 },
    };
    let chosen: Vec<usize> = (0..condition.data.len()).filter(|&i| condition.data[i] != 0).collect();
    if let Some(&last) = chosen.last().filter(|&&last| last >= around.extent) {
        return Err(Error::Invalid(format!("the condition holds at {last} of an axis of {}", around.extent)));
    }
    let count = chosen.len() as i64;
    let shape = match attributes {
        [axis] => {
            let mut shape = x.shape.to_vec();
            shape[*axis as usize] = count;
            shape
        }
        _ => vec![count],
    };
    Ok(vec![Tensor { dtype: x.dtype, shape, data: take(x, around, &chosen).into() }])
}

/// The bytes of some slices of an axis.
pub fn take(x: &View, around: AxisExtents, chosen: &[usize]) -> Vec<u8> {
    let slice = around.inner * x.dtype.bytes();
    let mut out = Vec::with_capacity(around.outer * chosen.len() * slice);
    for o in 0..around.outer {
        for &i in chosen {
            out.extend_from_slice(&x.data[(o * around.extent + i) * slice..][..slice]);
        }
    }
    out
}
