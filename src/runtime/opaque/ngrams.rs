//! Counts of the n-grams of a pool in rows of integers.

use super::element::misuse;
use super::{View, ViewMut};
use crate::{DType, Element, Error, Result};
use std::collections::HashMap;

/// The attributes by their meaning.
struct Pool {
    /// Least and greatest length, and how many elements may be skipped between two of an n-gram.
    lengths: (usize, usize),
    skip: usize,
    /// 0: counts; 1: weights of those that occur; 2: counts times weights.
    mode: i64,
    columns: usize,
    /// The column and the weight of each n-gram.
    grams: HashMap<Vec<i64>, (usize, f32)>,
}

/// Attributes: mode, least length, greatest length, most skipped, columns, then lists, each after its length: first places of
/// the n-grams of each length in the pool, column of each n-gram, pool, bits of the weight of each n-gram, or nothing where all are 1. Input: a row of
/// integers, or rows. Output: f32, a number for each column.
pub fn ngrams(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    let (pool, [x], [y]) = (Pool::read(attributes)?, inputs, outputs) else { return Err(misuse("ngrams")) };
    let length = x.shape.last().map_or(1, |&n| n as usize);
    let values: Vec<i64> = match x.dtype {
        DType::I64 => x.data.chunks_exact(8).map(<i64 as Element>::from_le).collect(),
        DType::I32 => x.data.chunks_exact(4).map(|b| <i32 as Element>::from_le(b).into()).collect(),
        _ => return Err(misuse("ngrams")),
    };
    if y.dtype != DType::F32 || pool.columns == 0 || values.len() / length.max(1) * pool.columns * 4 > y.data.len() {
        return Err(misuse("ngrams"));
    }
    for (i, row) in y.data.chunks_exact_mut(4 * pool.columns).enumerate() {
        pool.count(values.get(i * length..(i + 1) * length).unwrap_or(&[]), row);
    }
    Ok(())
}

impl Pool {
    fn read(attributes: &[i64]) -> Result<Pool> {
        let [mode, least, greatest, skip, columns, lists @ ..] = attributes else { return Err(misuse("ngrams")) };
        let mut unread = lists;
        let mut list = || -> Result<&[i64]> {
            let (&count, after) = unread.split_first().ok_or_else(|| misuse("ngrams"))?;
            let count = usize::try_from(count).ok().filter(|&n| n <= after.len()).ok_or_else(|| misuse("ngrams"))?;
            let (list, after) = after.split_at(count);
            unread = after;
            Ok(list)
        };
        let (starts, places, pool, weights) = (list()?, list()?, list()?, list()?);
        let whole = |v: i64| usize::try_from(v).map_err(|_| Error::Invalid(format!("a number {v} of n-grams")));
        let (least, greatest, columns) = (whole(*least)?, whole(*greatest)?, whole(*columns)?);
        let mut grams = HashMap::new();
        let mut places = places.iter().enumerate();
        for (i, &start) in starts.iter().enumerate() {
            let end = starts.get(i + 1).map_or(Ok(pool.len()), |&end| whole(end))?;
            let part =
                pool.get(whole(start)?..end).ok_or_else(|| Error::Invalid("n-grams outside of the pool".into()))?;
            for gram in part.chunks_exact(i + 1) {
                let (k, column) = places.next().ok_or_else(|| Error::Invalid("an n-gram without a column".into()))?;
                let (column, weight) =
                    (whole(*column)?, weights.get(k).map_or(1.0, |&bits| f32::from_bits(bits as u32)));
                if column >= columns {
                    return Err(Error::Invalid(format!("column {column} of {columns}")));
                }
                let wanted = (least..=greatest).contains(&gram.len());
                if wanted && grams.insert(gram.to_vec(), (column, weight)).is_some() {
                    return Err(Error::Invalid(format!("the n-gram {gram:?} is twice in the pool")));
                }
            }
        }
        Ok(Pool { lengths: (least, greatest), skip: whole(*skip)?, mode: *mode, columns, grams })
    }

    /// Counts the n-grams whose elements are 1, 2, … up to one more than `skip` apart; single elements once.
    fn count(&self, row: &[i64], counts: &mut [u8]) {
        counts.fill(0);
        let (mut least, greatest) = self.lengths;
        for apart in 1..=self.skip.saturating_add(1).min(row.len().max(1)) {
            for start in 0..row.len() {
                let mut gram = vec![];
                for &value in row[start..].iter().step_by(apart).take(greatest) {
                    gram.push(value);
                    if gram.len() >= least
                        && let Some(&(column, weight)) = self.grams.get(&gram)
                    {
                        let place = &mut counts[4 * column..4 * column + 4];
                        let value = match self.mode {
                            0 => <f32 as Element>::from_le(place) + 1.0,
                            1 => weight,
                            _ => <f32 as Element>::from_le(place) + weight,
                        };
                        place.copy_from_slice(&value.to_le_bytes());
                    }
                }
            }
            least = least.max(2);
            if least > greatest {
                break;
            }
        }
    }
}
