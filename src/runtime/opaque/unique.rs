//! The distinct slices of a tensor.

use super::View;
use super::element::{AxisExtents, misuse};
use super::key::{Key, keys};
use super::selection::take;
use crate::{Result, Tensor};

/// Bytes that a group of one slice takes beside the slice: where it stands, an entry of each result and of the order, twice while it
/// is sorted.
const GROUP_BYTES: usize = 120;

/// Bytes that [`unique`] takes at most: where all slices differ and have one element.
pub fn unique_bytes(inputs: &[View]) -> u64 {
    let bytes = |x: &View| x.data.len() + (x.data.len() / x.dtype.bytes()) * (size_of::<Key>() + GROUP_BYTES);
    inputs.first().map_or(0, |x| bytes(x) as u64)
}

/// Attributes: 1 to sort the slices by their elements, 0 to leave them in the order of their first places; the axis, or
/// none for single elements. Outputs: the distinct slices, the first place of each, which of them each slice is, and how
/// many there are of each. Both zeros are equal, and so is all that is not a number, which comes last.
pub fn unique(attributes: &[i64], inputs: &[View]) -> Result<Vec<Tensor>> {
    let ([x], [sorted] | [sorted, _]) = (inputs, attributes) else { return Err(misuse("unique")) };
    let around = match attributes {
        [_, axis] => AxisExtents::axis(x.shape, *axis)?,
        _ => AxisExtents { outer: 1, extent: x.shape.iter().product::<i64>() as usize, inner: 1 },
    };
    let AxisExtents { outer, extent, inner } = around;
    let elements = keys(x.dtype, x.data);
    let slice = |i: usize| (0..outer).flat_map(move |o| (o * extent + i) * inner..(o * extent + i + 1) * inner);
    let single = outer == 1 && inner == 1;
    let compare = |a: usize, b: usize| {
        if single {
            return elements[a].cmp(&elements[b]);
        }
        let of = |i: usize| slice(i).map(|index| elements[index]);
        of(a).cmp(of(b))
    };
    let mut order: Vec<usize> = (0..extent).collect();
    order.sort_by(|&a, &b| compare(a, b));
    // Equal slices stand beside each other, in their order.
    let mut groups: Vec<&[usize]> = order.chunk_by(|&a, &b| compare(a, b).is_eq()).collect();
    if *sorted == 0 {
        groups.sort_by_key(|group| group[0]);
    }
    let first: Vec<usize> = groups.iter().map(|group| group[0]).collect();
    let mut which = vec![0; extent];
    for (g, group) in groups.iter().enumerate() {
        group.iter().for_each(|&i| which[i] = g as i64);
    }
    let count = groups.len() as i64;
    let shape = match attributes {
        [_, axis] => {
            let mut shape = x.shape.to_vec();
            shape[*axis as usize] = count;
            shape
        }
        _ => vec![count],
    };
    let places: Vec<i64> = first.iter().map(|&i| i as i64).collect();
    let counts: Vec<i64> = groups.iter().map(|group| group.len() as i64).collect();
    Ok(vec![
        Tensor { dtype: x.dtype, shape, data: take(x, around, &first).into() },
        Tensor::new(&[count], &places),
        Tensor::new(&[extent as i64], &which),
        Tensor::new(&[count], &counts),
    ])
}
