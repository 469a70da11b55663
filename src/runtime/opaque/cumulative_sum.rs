//! Sums of all elements up to each one of an axis.

use super::element::{AxisExtents, Element, misuse, with_elements};
use super::{View, ViewMut};
use crate::{DType, Result};

/// Attributes: axis, 1 to leave the element itself out, 1 to sum from the end. Output: the input's type and shape.
pub fn cumulative_sum(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    let ([axis, exclusive, reverse], [input, ..], [output]) = (attributes, inputs, outputs) else {
        return Err(misuse("cumsum"));
    };
    let around = AxisExtents::axis(input.shape, *axis)?;
    if output.dtype != input.dtype || output.data.len() != input.data.len() {
        return Err(misuse("cumsum"));
    }
    let (exclusive, reverse) = (*exclusive == 1, *reverse == 1);
    match around.inner {
        1 => with_elements!(input.dtype, along_row, around, exclusive, reverse, input.data, output.data),
        _ => with_elements!(input.dtype, across_rows, around, exclusive, reverse, input.data, output.data),
    }
    Ok(())
}

fn along_row<T: Element<N>, const N: usize>(
    around: AxisExtents,
    exclusive: bool,
    reverse: bool,
    data: &[u8],
    sums: &mut [u8],
) {
    let extent = around.extent.max(1);
    let rows = data.as_chunks::<N>().0.chunks_exact(extent);
    for (row, sums) in rows.zip(sums.as_chunks_mut::<N>().0.chunks_exact_mut(extent)) {
        let mut sum = T::ZERO;
        let step = |(v, s): (&[u8; N], &mut [u8; N])| {
            let before = sum;
            sum = sum.plus(T::decode(*v));
            *s = if exclusive { before } else { sum }.encode();
        };
        let pairs = row.iter().zip(sums);
        if reverse { pairs.rev().for_each(step) } else { pairs.for_each(step) }
    }
}

/// Each row of sums is the one before it plus a row of elements.
fn across_rows<T: Element<N>, const N: usize>(
    around: AxisExtents,
    exclusive: bool,
    reverse: bool,
    data: &[u8],
    sums: &mut [u8],
) {
    let AxisExtents { extent, inner, .. } = around;
    let slab = (extent * inner).max(1);
    let slabs = data.as_chunks::<N>().0.chunks_exact(slab);
    for (data, sums) in slabs.zip(sums.as_chunks_mut::<N>().0.chunks_exact_mut(slab)) {
        for step in 0..extent {
            let row = |step: usize| if reverse { extent - 1 - step } else { step } * inner;
            let to = row(step);
            let added = match (exclusive, step) {
                (false, _) => Some(&data[to..][..inner]),
                (true, 0) => None,
                (true, _) => Some(&data[row(step - 1)..][..inner]),
            };
            let (Some(added), true) = (added, step > 0) else {
                match added {
                    Some(first) => sums[to..][..inner].copy_from_slice(first),
                    None => sums[to..][..inner].fill(T::ZERO.encode()),
                }
                continue;
            };
            let (low, high) = sums.split_at_mut(to.max(row(step - 1)));
            let (before, now) = if reverse { (&*high, &mut low[to..]) } else { (&low[row(step - 1)..], high) };
            for ((s, b), v) in now.iter_mut().zip(before).zip(added) {
                *s = T::decode(*b).plus(T::decode(*v)).encode();
            }
        }
    }
}
