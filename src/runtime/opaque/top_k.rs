//! The `k` first elements of an axis in its order, and where they were.
//!
//! The places of the result are a heap with the last of them at its root while the axis is read, and are sorted in
//! place then (Williams, "Algorithm 232: Heapsort", 1964). The order is total: not-a-number is the greatest, equals
//! keep their order.

use super::element::{AxisExtents, Element, misuse, with_elements};
use super::{View, ViewMut};
use crate::{DType, Result};

/// Attributes: k, axis, 1 for the largest (0: the smallest), 1 for sorted (we always sort). Outputs: values, i64 indices.
pub fn top_k(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    let ([k, axis, largest, _sorted], [input, ..], [values, indices]) = (attributes, inputs, outputs) else {
        return Err(misuse("topk"));
    };
    let around = AxisExtents::axis(input.shape, *axis)?;
    let k = usize::try_from(*k).map_err(|_| misuse("topk"))?;
    let count = around.outer * k * around.inner;
    let fits = values.dtype == input.dtype
        && indices.dtype == DType::I64
        && values.data.len() == count * input.dtype.bytes()
        && indices.data.len() == count * 8
        && k <= around.extent;
    if !fits {
        return Err(misuse("topk"));
    }
    if count > 0 {
        let indices = indices.data.as_chunks_mut::<8>().0;
        match *largest == 1 {
            true => with_elements!(input.dtype, largest_of, around, k, input.data, values.data, indices),
            false => with_elements!(input.dtype, smallest_of, around, k, input.data, values.data, indices),
        }
    }
    Ok(())
}

fn largest_of<T: Element<N>, const N: usize>(
    around: AxisExtents,
    k: usize,
    data: &[u8],
    values: &mut [u8],
    indices: &mut [[u8; 8]],
) {
    select(around, k, data, values, indices, |v: T| std::cmp::Reverse(v.rank()));
}

fn smallest_of<T: Element<N>, const N: usize>(
    around: AxisExtents,
    k: usize,
    data: &[u8],
    values: &mut [u8],
    indices: &mut [[u8; 8]],
) {
    select(around, k, data, values, indices, T::rank);
}

/// Elements that are compared with the root at a time.
const BLOCK: usize = 32;

fn select<T: Element<N>, const N: usize, R: Ord + Copy>(
    around: AxisExtents,
    k: usize,
    data: &[u8],
    values: &mut [u8],
    indices: &mut [[u8; 8]],
    rank: impl Fn(T) -> R,
) {
    let AxisExtents { outer, extent, inner } = around;
    let (data, values) = (data.as_chunks::<N>().0, values.as_chunks_mut::<N>().0);
    for o in 0..outer {
        for i in 0..inner {
            let slab = &data[o * extent * inner + i..];
            let rank_at = |j: usize| rank(T::decode(slab[j * inner]));
            let places = &mut indices[o * k * inner + i..];
            let mut heap = Heap { places, stride: inner, key: |j: usize| (rank_at(j), j) };
            for j in 0..k {
                heap.put(j, j);
            }
            for parent in (0..k / 2).rev() {
                heap.sink(parent, k);
            }
            let mut bound = rank_at(heap.get(0));
            for start in (k..extent).step_by(BLOCK) {
                let block = start..extent.min(start + BLOCK);
                let better = |v: &[u8; N]| rank(T::decode(*v)) < bound;
                if inner == 1 && !slab[block.clone()].iter().fold(false, |any, v| any | better(v)) {
                    continue;
                }
                for j in block {
                    if rank_at(j) < bound {
                        heap.put(0, j);
                        heap.sink(0, k);
                        bound = rank_at(heap.get(0));
                    }
                }
            }
            heap.sort(k);
            for r in 0..k {
                values[(o * k + r) * inner + i] = slab[heap.get(r) * inner];
            }
        }
    }
}

/// Every place holds an index whose key is not less than those at twice the place plus one and two.
struct Heap<'a, F> {
    places: &'a mut [[u8; 8]],
    stride: usize,
    key: F,
}

impl<K: Ord, F: Fn(usize) -> K> Heap<'_, F> {
    fn get(&self, place: usize) -> usize {
        i64::from_le_bytes(self.places[place * self.stride]) as usize
    }

    fn put(&mut self, place: usize, index: usize) {
        self.places[place * self.stride] = (index as i64).to_le_bytes();
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.places.swap(a * self.stride, b * self.stride);
    }

    /// Sorts the first `length` places, which are a heap.
    fn sort(&mut self, length: usize) {
        if self.stride == 1 {
            let index = |place: &[u8; 8]| i64::from_le_bytes(*place) as usize;
            return self.places[..length].sort_unstable_by_key(|place| (self.key)(index(place)));
        }
        for last in (1..length).rev() {
            self.swap(0, last);
            self.sink(0, last);
        }
    }

    fn sink(&mut self, mut parent: usize, length: usize) {
        loop {
            let (left, right) = (2 * parent + 1, 2 * parent + 2);
            if left >= length {
                return;
            }
            let child =
                if right < length && (self.key)(self.get(right)) > (self.key)(self.get(left)) { right } else { left };
            if (self.key)(self.get(child)) <= (self.key)(self.get(parent)) {
                return;
            }
            self.swap(parent, child);
            parent = child;
        }
    }
}
