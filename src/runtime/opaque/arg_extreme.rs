//! ArgMax and ArgMin: positions of the greatest or the least element along an axis.

use super::element::{AxisExtents, Element, misuse, with_elements};
use super::{View, ViewMut};
use crate::{DType, Result};

/// Attributes: axis, 1 to keep the axis with extent 1, 1 to take the last of equal elements. Output: i64. What is not a
/// number is nothing but the answer where it comes first.
pub fn arg_max(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    arg_extreme::<true>(attributes, inputs, outputs)
}

/// As [`arg_max`], with the least element.
pub fn arg_min(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    arg_extreme::<false>(attributes, inputs, outputs)
}

fn arg_extreme<const MAX: bool>(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    let ([axis, _keep, last], [input], [output]) = (attributes, inputs, outputs) else { return Err(misuse("argmax")) };
    let around = AxisExtents::axis(input.shape, *axis)?;
    let AxisExtents { outer, extent, inner } = around;
    if output.dtype != DType::I64 || output.data.len() != outer * inner * 8 || (extent == 0 && outer * inner > 0) {
        return Err(misuse("argmax"));
    }
    let places = output.data.as_chunks_mut::<8>().0;
    match (*last == 1, inner) {
        (last, 1) => with_elements!(input.dtype, in_row, MAX, last, around, input.data, places),
        (false, _) => with_elements!(input.dtype, across_rows, MAX, false, around, input.data, places),
        (true, _) => with_elements!(input.dtype, across_rows, MAX, true, around, input.data, places),
    }
    Ok(())
}

fn better<T: PartialOrd>(max: bool, a: T, b: T) -> bool {
    if max { a > b } else { a < b }
}

/// Elements that are compared side by side.
const LANES: usize = 16;

/// The axis is the last: first how great the greatest is, then where.
fn in_row<T: Element<N>, const N: usize>(
    max: bool,
    last: bool,
    around: AxisExtents,
    data: &[u8],
    places: &mut [[u8; 8]],
) {
    let rows = data.as_chunks::<N>().0.chunks_exact(around.extent.max(1));
    for (row, place) in rows.zip(places) {
        let best = if max { extreme::<T, N, true>(row) } else { extreme::<T, N, false>(row) };
        let is_best = |v: &[u8; N]| T::decode(*v) == best;
        let position = if last {
            row.iter().rposition(is_best)
        } else {
            let block = row.chunks(LANES).position(|c| c.iter().fold(false, |any, v| any | is_best(v)));
            block.and_then(|b| row[b * LANES..].iter().position(is_best).map(|i| b * LANES + i))
        };
        *place = (position.unwrap_or(0) as i64).to_le_bytes();
    }
}

fn extreme<T: Element<N>, const N: usize, const MAX: bool>(row: &[[u8; N]]) -> T {
    let mut lanes = [T::decode(row[0]); LANES];
    let (blocks, tail) = row.as_chunks::<LANES>();
    for block in blocks {
        for (lane, v) in lanes.iter_mut().zip(block) {
            let v = T::decode(*v);
            *lane = if better(MAX, v, *lane) { v } else { *lane };
        }
    }
    let tail = tail.iter().map(|v| T::decode(*v));
    lanes.into_iter().chain(tail).fold(lanes[0], |best, v| if better(MAX, v, best) { v } else { best })
}

/// Columns that are worked on at a time.
const COLUMNS: usize = 512;

/// The axis is not the last: the best of each column so far, and its row.
fn across_rows<T: Element<N>, const N: usize>(
    max: bool,
    last: bool,
    around: AxisExtents,
    data: &[u8],
    places: &mut [[u8; 8]],
) {
    let AxisExtents { extent, inner, .. } = around;
    let elements = data.as_chunks::<N>().0;
    let (mut best, mut rows) = ([T::ZERO; COLUMNS], [0u32; COLUMNS]);
    for (slab, places) in elements.chunks_exact((extent * inner).max(1)).zip(places.chunks_exact_mut(inner.max(1))) {
        for (start, places) in (0..inner).step_by(COLUMNS).zip(places.chunks_mut(COLUMNS)) {
            let (best, rows) = (&mut best[..places.len()], &mut rows[..places.len()]);
            rows.fill(0);
            for (b, v) in best.iter_mut().zip(&slab[start..]) {
                *b = T::decode(*v);
            }
            for k in 1..extent {
                let row = &slab[k * inner + start..][..places.len()];
                for ((b, r), v) in best.iter_mut().zip(rows.iter_mut()).zip(row) {
                    let v = T::decode(*v);
                    let new = if max { v > *b } else { v < *b } || (last && v == *b);
                    *b = if new { v } else { *b };
                    *r = if new { k as u32 } else { *r };
                }
            }
            for (place, r) in places.iter_mut().zip(rows) {
                *place = i64::from(*r).to_le_bytes();
            }
        }
    }
}
