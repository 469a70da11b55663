//! Constants that modules from several files have in common take memory once.
//!
//! In: a module, and others that are in memory. Out: the module, whose constants lie in the memory of the others where these
//! have the same bytes, and in memory of their own where not: what the module was read from is given back.

use super::weights::{WeightRange, Weights};
use super::{BufferPlace, Module};
use crate::Result;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes by which constants that may be equal are found.
const SAMPLE: usize = 64;

/// Length, and the bytes at the beginning, in the middle and at the end.
type Sample = (usize, Vec<u8>);

fn sample(bytes: &[u8]) -> Sample {
    let (length, some) = (bytes.len(), SAMPLE.min(bytes.len()));
    let sample = |start: usize| &bytes[start..start + some];
    (length, [sample(0), sample((length - some) / 2), sample(length - some)].concat())
}

/// Bytes that lie at the same place are not read.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    std::ptr::eq(a, b) || a == b
}

impl Module {
    /// The module with the memory of `others` for constants of equal bytes.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) where the system has no memory.
    #[doc(hidden)]
    pub fn with_constants_of(mut self, others: &[Arc<Module>]) -> Result<Module> {
        let mut by_sample: HashMap<Sample, Vec<WeightRange>> = HashMap::new();
        for other in others {
            let ranges = other.constants().into_iter().filter_map(|range| other.0.weights.range(range));
            ranges.for_each(|memory| by_sample.entry(sample(&memory)).or_default().push(memory));
        }
        let constants = self.constants();
        let parts: Option<Vec<(Range<u64>, Option<WeightRange>)>> = constants
            .into_iter()
            .map(|range| {
                let constant = self.0.weights.range(range.clone())?;
                let equal = by_sample
                    .get(&sample(&constant))
                    .and_then(|list| list.iter().find(|other| is_equal(other, &constant)));
                Some((range, equal.cloned()))
            })
            .collect();
        if let Some(parts) = parts.filter(|parts| parts.iter().any(|(_, memory)| memory.is_some()))
            && let Some(weights) = self.0.weights.replaced(&parts)?
        {
            self.0.weights = weights;
        }
        Ok(self)
    }

    /// The parts of the weights that buffers are, by their offsets; those that overlap are one.
    fn constants(&self) -> Vec<Range<u64>> {
        let place = |buffer: &super::Buffer| match buffer.place {
            BufferPlace::Weights(offset) => Some(offset..offset + buffer.bytes().ok()?),
            _ => None,
        };
        let mut ranges: Vec<Range<u64>> = self.0.buffers.iter().filter_map(place).filter(|r| !r.is_empty()).collect();
        ranges.sort_by_key(|range| (range.start, range.end));
        let mut merged: Vec<Range<u64>> = vec![];
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }
}

impl Weights {
    /// The memory of some of the bytes; `None` where they are not of one piece.
    fn range(&self, part: Range<u64>) -> Option<WeightRange> {
        let (first, memory) = self.pieces().filter(|(first, _)| *first <= part.start).last()?;
        let inside = |offset: u64| usize::try_from(offset - first).ok();
        memory.part(inside(part.start)?..inside(part.end)?)
    }

    /// Returns the bytes with `parts`, by their offsets, in other memory or, where none is given, in new memory. `None` where
    /// the parts are not all that there is.
    fn replaced(&self, parts: &[(Range<u64>, Option<WeightRange>)]) -> Result<Option<Weights>> {
        let unshared: Vec<&Range<u64>> = parts.iter().filter(|part| part.1.is_none()).map(|part| &part.0).collect();
        let mut rest_bytes = Weights::default();
        let mut places = vec![];
        for range in unshared {
            let Some(memory) = self.range(range.clone()) else { return Ok(None) };
            places.push(rest_bytes.push(memory));
        }
        let copy = WeightRange::filled(rest_bytes.len() as usize, |out| {
            let mut filled = 0;
            for bytes in rest_bytes.chunks() {
                out[filled..filled + bytes.len()].copy_from_slice(bytes);
                filled += bytes.len();
            }
        })?;
        let (mut weights, mut places) = (Weights::default(), places.into_iter());
        for (range, memory) in parts {
            let memory = memory.clone().or_else(|| {
                let start = places.next()? as usize;
                copy.as_ref()?.part(start..start + (range.end - range.start) as usize)
            });
            if !memory.is_some_and(|memory| weights.insert(range.start, memory)) {
                return Ok(None);
            }
        }
        Ok((weights.len() == self.len()).then_some(weights))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Buffer, ModuleParts};
    use super::*;
    use crate::DType;

    /// A module of these constants in memory of its own.
    fn module(constants: &[&[u8]]) -> Module {
        let mut bytes = vec![];
        let mut buffers = vec![];
        for constant in constants {
            bytes.resize(bytes.len().next_multiple_of(64), 0);
            let place = BufferPlace::Weights(bytes.len() as u64);
            buffers.push(Buffer { name: "w".into(), dtype: DType::U8, shape: vec![constant.len() as i64], place });
            bytes.extend_from_slice(constant);
        }
        Module(ModuleParts { buffers, weights: Weights::new(&bytes).unwrap(), ..ModuleParts::default() })
    }

    fn memories(module: &Module) -> Vec<usize> {
        let mut list: Vec<usize> = module.weights().allocations().map(|a| a.0).collect();
        list.sort_unstable();
        list.dedup();
        list
    }

    #[test]
    fn equal_constants_take_memory_once() {
        let (a, b, c, d) = ([1u8; 200], [2u8; 70], [3u8; 64], [4u8; 5000]);
        let first = Arc::new(module(&[&a, &b, &d]));
        let second = module(&[&d, &c, &a]);
        let shared = second.clone().with_constants_of(std::slice::from_ref(&first)).unwrap();
        assert!(shared == second);
        assert!(memories(&shared).contains(&memories(&first)[0]) && !memories(&shared).contains(&memories(&second)[0]));
        // what is the same has no memory of its own
        let same = module(&[&b, &d]).with_constants_of(std::slice::from_ref(&first)).unwrap();
        assert_eq!(memories(&same), memories(&first));
        // one byte is enough to differ, wherever it is
        for changed in [0, 63, 64, 1000, 2500, 4999] {
            let mut other = d;
            other[changed] = 5;
            let apart = module(&[&other]);
            let kept = apart.clone().with_constants_of(std::slice::from_ref(&first)).unwrap();
            assert!(kept == apart && memories(&kept) == memories(&apart), "{changed}");
        }
        let empty = module(&[]).with_constants_of(&[first]).unwrap();
        assert!(empty.weights().is_empty());
    }
}
