//! The places and the elements that a condition chooses.

use super::View;
use super::element::{AxisExtents, misuse};
use crate::{DType, Error, Result, Tensor};

/// The subscripts of all elements that are not 0, a row for each dimension, in row-major order; a scalar has no rows.
pub fn non_zero(attributes: &[i64], inputs: &[View]) -> Result<Vec<Tensor>> {
    let ([], [x]) = (attributes, inputs) else { return Err(misuse("nonzero")) };
    let count = count_of_chosen(x);
    let mut out = Tensor::zeros(DType::I64, &[x.shape.len() as i64, count as i64]);
    let (data, mut place) = (&mut out.data[..], 0);
    visit_chosen(x, |mut index_left| {
        for (row, &extent) in x.shape.iter().enumerate().rev() {
            let (whole, index) = (index_left / extent as usize, index_left % extent as usize);
            data[8 * (row * count + place)..][..8].copy_from_slice(&(index as i64).to_le_bytes());
            index_left = whole;
        }
        place += 1;
    });
    Ok(vec![out])
}

/// Calls `visit` with the places of the elements that are not 0, in order.
fn visit_chosen(x: &View, visit: impl FnMut(usize)) {
    let ignored = match x.dtype {
        // the sign of a zero
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => 1 << (8 * x.dtype.bytes() - 1),
        _ => 0,
    };
    match x.dtype.bytes() {
        1 => visit_nonzero::<1>(x.data, ignored, visit),
        2 => visit_nonzero::<2>(x.data, ignored, visit),
        4 => visit_nonzero::<4>(x.data, ignored, visit),
        _ => visit_nonzero::<8>(x.data, ignored, visit),
    }
}

/// Calls `visit` with the places of the elements of `BYTES` bytes that have other bits than the ignored ones.
fn visit_nonzero<const BYTES: usize>(data: &[u8], ignored: u64, mut visit: impl FnMut(usize)) {
    for (place, bytes) in data.as_chunks::<BYTES>().0.iter().enumerate() {
        let mut wide = [0; 8];
        wide[..BYTES].copy_from_slice(bytes);
        if u64::from_le_bytes(wide) & !ignored != 0 {
            visit(place);
        }
    }
}

fn count_of_chosen(x: &View) -> usize {
    let mut count = 0;
    visit_chosen(x, |_| count += 1);
    count
}

/// Bytes of what [`non_zero`] returns.
pub fn non_zero_bytes(inputs: &[View]) -> u64 {
    inputs.first().map_or(0, |x| 8 * x.shape.len() as u64 * count_of_chosen(x) as u64)
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

/// Bytes that [`compress`] takes at most: a place for each true condition, and its slices.
pub fn compress_bytes(inputs: &[View]) -> u64 {
    let [x, condition] = inputs else { return 0 };
    (x.data.len() + 8 * condition.data.len()) as u64
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
