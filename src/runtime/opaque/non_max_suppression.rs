//! Selection of boxes by their scores, without those that overlap a selected one.

use super::View;
use super::element::misuse;
use crate::{DType, Element, Error, Result, Tensor};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A rectangle with ordered corners.
#[derive(Clone, Copy)]
struct Rectangle {
    low: [f32; 2],
    high: [f32; 2],
}

impl Rectangle {
    /// From two opposite corners in any order, or from the centre and the size.
    fn new([a, b, c, d]: [f32; 4], centred: bool) -> Rectangle {
        match centred {
            true => Rectangle { low: [a - c / 2.0, b - d / 2.0], high: [a + c / 2.0, b + d / 2.0] },
            false => Rectangle { low: [a.min(c), b.min(d)], high: [a.max(c), b.max(d)] },
        }
    }

    fn area(&self) -> f32 {
        (self.high[0] - self.low[0]) * (self.high[1] - self.low[1])
    }

    /// Returns true if the common area of two rectangles is more than `share` of the area of both.
    fn overlaps(&self, other: &Rectangle, share: f32) -> bool {
        let along = |d: usize| self.high[d].min(other.high[d]) - self.low[d].max(other.low[d]);
        if !(along(0) > 0.0 && along(1) > 0.0) {
            return false;
        }
        let common = along(0) * along(1);
        let (a, b) = (self.area(), other.area());
        let union = a + b - common;
        common > 0.0 && a > 0.0 && b > 0.0 && union > 0.0 && common / union > share
    }
}

/// Attributes: 1 where boxes are centre and size, 0 where they are corners. Inputs: boxes (batches, boxes, 4), scores
/// (batches, classes, boxes), most boxes of a class, greatest share of an overlap, and perhaps the score that boxes have to
/// exceed. Output: batch, class and box of each selected one, by falling scores within a class, of equal ones the first.
pub fn non_max_suppression(attributes: &[i64], inputs: &[View]) -> Result<Vec<Tensor>> {
    let ([centred], [boxes, scores, most, share, optional @ ..]) = (attributes, inputs) else {
        return Err(misuse("nms"));
    };
    let (&[batches, count, 4], &[of_scores, classes, each]) = (boxes.shape, scores.shape) else {
        return Err(Error::Invalid(format!("boxes {:?} and scores {:?}", boxes.shape, scores.shape)));
    };
    if (of_scores, each) != (batches, count) || boxes.dtype != DType::F32 || scores.dtype != DType::F32 {
        return Err(Error::Invalid(format!("boxes {:?} and scores {:?} do not fit", boxes.shape, scores.shape)));
    }
    let (most, share) = (scalar::<i64>(most)?, scalar::<f32>(share)?);
    let threshold = optional.first().map(scalar::<f32>).transpose()?;
    if !(0.0..=1.0).contains(&share) {
        return Err(Error::Invalid(format!("a share of overlap of {share}, not between 0 and 1")));
    }
    let real = |data: &[u8]| -> Vec<f32> { data.chunks_exact(4).map(f32::from_le).collect() };
    let (boxes, scores) = (real(boxes.data), real(scores.data));
    let mut selected: Vec<i64> = vec![];
    for batch in 0..batches {
        let of_batch = &boxes[(batch * count * 4) as usize..][..(count * 4) as usize];
        let rectangles: Vec<Rectangle> =
            of_batch.chunks_exact(4).map(|c| Rectangle::new([c[0], c[1], c[2], c[3]], *centred == 1)).collect();
        for class in 0..classes {
            let scores = &scores[((batch * classes + class) * count) as usize..][..count as usize];
            let open = scores.iter().enumerate().filter(|(_, score)| threshold.is_none_or(|t| **score > t));
            let mut ranked = Vec::with_capacity(scores.len());
            ranked.extend(open.map(|(i, &score)| (rank(score), Reverse(i))));
            // few are taken of many: a heap orders those alone
            let mut ranked = BinaryHeap::from(ranked);
            let mut of_class: Vec<Rectangle> = vec![];
            while (of_class.len() as i64) < most
                && let Some((_, Reverse(i))) = ranked.pop()
            {
                if !of_class.iter().any(|k| k.overlaps(&rectangles[i], share)) {
                    of_class.push(rectangles[i]);
                    selected.extend([batch, class, i as i64]);
                }
            }
        }
    }
    Ok(vec![Tensor::new(&[selected.len() as i64 / 3, 3], &selected)])
}

/// Bytes that [`non_max_suppression`] takes at most: copies of boxes and scores, the order of these, and three numbers, twice, for each that it may select.
pub fn non_max_suppression_bytes(inputs: &[View]) -> u64 {
    let [boxes, scores, most, ..] = inputs else { return 0 };
    let elements = scores.data.len() as u64 / 4;
    let lists = scores.shape.iter().take(2).product::<i64>().max(0) as u64;
    let most = scalar::<i64>(most).map_or(0, |most| most.max(0) as u64);
    let selected = lists.saturating_mul(most).min(elements);
    3 * boxes.data.len() as u64 + 20 * elements + selected.saturating_mul(2 * 3 * 8 + 16)
}

/// A number that orders scores: equal for both zeros, least for what is not a number.
fn rank(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    match bits >> 31 {
        _ if score.is_nan() => 0,
        0 => bits | 1 << 31,
        _ => !bits,
    }
}

/// The one element of a tensor.
fn scalar<T: Element>(x: &View) -> Result<T> {
    match x.dtype == T::DTYPE && x.data.len() == x.dtype.bytes() {
        true => Ok(T::from_le(x.data)),
        false => Err(Error::Invalid(format!(
            "{} elements of type {}, not one of {}",
            x.shape.iter().product::<i64>(),
            x.dtype,
            T::DTYPE
        ))),
    }
}
