//! The constants of a module: pieces of memory, of which some may belong to other modules too.

use crate::bytes::advise_huge_pages;
use crate::{Error, Result};
use memmap2::{Mmap, MmapMut};
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Multiple at which constants start.
pub const WEIGHTS_ALIGNMENT: usize = 64;

/// Constants of a module by their offsets: pieces in memory, or mapped from the module's file, each at an address that is a
/// multiple of 64. Between two pieces lie fewer than 64 bytes, which are zero.
#[derive(Clone, Default)]
pub struct Weights {
    /// By offset.
    pieces: Vec<Piece>,
    length: u64,
}

#[derive(Clone)]
struct Piece {
    offset: u64,
    memory: WeightRange,
}

/// Read-only bytes at an address that is a multiple of 64, which several modules may share.
#[derive(Clone)]
pub struct WeightRange {
    pages: Arc<Mmap>,
    range: Range<usize>,
}

/// As [`WeightRange`], but the memory is given back when nothing else uses it.
#[derive(Clone)]
pub struct WeakWeightRange {
    pages: Weak<Mmap>,
    range: Range<usize>,
}

impl WeightRange {
    /// `length` bytes that `fill` writes in place; they are zero before. `None` for no bytes.
    ///
    /// # Errors
    /// [`Error::Io`] where the system has no memory.
    pub fn filled(length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Option<WeightRange>> {
        if length == 0 {
            fill(&mut []);
            return Ok(None);
        }
        let failed = |e: std::io::Error| Error::Io(format!("memory for {length} bytes of weights: {e}"));
        let mut pages = MmapMut::map_anon(length).map_err(failed)?;
        advise_huge_pages(&pages);
        fill(&mut pages);
        let pages = pages.make_read_only().map_err(failed)?;
        Ok(Some(WeightRange { pages: Arc::new(pages), range: 0..length }))
    }

    /// Part of a file; `range` starts at a multiple of 64.
    pub(super) fn mapped(pages: Mmap, range: Range<usize>) -> WeightRange {
        WeightRange { pages: Arc::new(pages), range }
    }

    /// The bytes of `part`, which starts at a multiple of 64; `None` where they are not inside.
    pub fn part(&self, part: Range<usize>) -> Option<WeightRange> {
        let inside = part.start <= part.end && part.end <= self.range.len();
        let range = self.range.start + part.start..self.range.start + part.end;
        (inside && part.start.is_multiple_of(WEIGHTS_ALIGNMENT))
            .then(|| WeightRange { pages: self.pages.clone(), range })
    }

    /// The bytes, while something else uses them.
    pub fn downgrade(&self) -> WeakWeightRange {
        WeakWeightRange { pages: Arc::downgrade(&self.pages), range: self.range.clone() }
    }

    /// Where the bytes lie in the memory that they are part of.
    pub(super) fn place(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Another part of the same memory.
    pub(super) fn elsewhere(&self, range: Range<usize>) -> WeightRange {
        WeightRange { pages: self.pages.clone(), range }
    }

    /// Address and length of the memory that these bytes are part of: it is given back as a whole.
    pub fn allocation(&self) -> (usize, u64) {
        (self.pages.as_ptr().addr(), self.pages.len() as u64)
    }
}

impl WeakWeightRange {
    /// The bytes; `None` where the memory was given back.
    pub fn upgrade(&self) -> Option<WeightRange> {
        Some(WeightRange { pages: self.pages.upgrade()?, range: self.range.clone() })
    }
}

impl std::ops::Deref for WeightRange {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.pages[self.range.clone()]
    }
}

impl Weights {
    /// A copy of `bytes`.
    ///
    /// # Errors
    /// [`Error::Io`] where the system has no memory.
    pub fn new(bytes: &[u8]) -> Result<Weights> {
        let memory = WeightRange::filled(bytes.len(), |memory| memory.copy_from_slice(bytes))?;
        let mut weights = Weights::default();
        memory.into_iter().for_each(|memory| _ = weights.push(memory));
        Ok(weights)
    }

    /// Adds bytes at the next multiple of 64 and returns their offset.
    pub fn push(&mut self, memory: WeightRange) -> u64 {
        let offset = self.length.next_multiple_of(WEIGHTS_ALIGNMENT as u64);
        self.length = offset + memory.len() as u64;
        if let Some(last) = self.pieces.last_mut() {
            let next = last.memory.range.start as u64 + (offset - last.offset);
            // Bytes that lie in one memory as they do here are one piece.
            if Arc::ptr_eq(&last.memory.pages, &memory.pages) && next == memory.range.start as u64 {
                last.memory.range.end = memory.range.end;
                return offset;
            }
        }
        self.pieces.push(Piece { offset, memory });
        offset
    }

    /// The pieces by their offsets.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u64, &WeightRange)> {
        self.pieces.iter().map(|piece| (piece.offset, &piece.memory))
    }

    /// Adds a piece at an offset; returns false where it does not follow what is there.
    pub(super) fn insert(&mut self, offset: u64, memory: WeightRange) -> bool {
        let follows = offset == self.length.next_multiple_of(WEIGHTS_ALIGNMENT as u64);
        follows && self.push(memory) == offset
    }

    /// Bytes from the first to the last.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The `bytes` bytes at an offset; `None` where they are not of one piece.
    pub fn get(&self, offset: u64, bytes: u64) -> Option<&[u8]> {
        if bytes == 0 && offset <= self.length.next_multiple_of(WEIGHTS_ALIGNMENT as u64) {
            return Some(&[]);
        }
        let after = self.pieces.partition_point(|piece| piece.offset <= offset);
        let piece = &self.pieces[after.checked_sub(1)?];
        let start = offset - piece.offset;
        let end = start.checked_add(bytes)?;
        piece.memory.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    /// All bytes in order, with the zeros between the pieces.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let mut end = 0;
        self.pieces.iter().flat_map(move |piece| {
            let gap = (piece.offset - end) as usize;
            end = piece.offset + piece.memory.len() as u64;
            [&[0; WEIGHTS_ALIGNMENT][..gap], &piece.memory]
        })
    }

    /// The memory that the pieces are parts of: address and length of each.
    pub fn allocations(&self) -> impl Iterator<Item = (usize, u64)> {
        self.pieces.iter().map(|piece| piece.memory.allocation())
    }
}

impl PartialEq for Weights {
    fn eq(&self, other: &Weights) -> bool {
        self.length == other.length && self.chunks().flatten().eq(other.chunks().flatten())
    }
}

impl std::fmt::Debug for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "Weights({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: &[u8]) -> WeightRange {
        WeightRange::filled(bytes.len(), |out| out.copy_from_slice(bytes)).unwrap().unwrap()
    }

    #[test]
    fn pieces_of_several_memories_are_read_by_their_offsets() {
        let (a, b) = (memory(&[1; 200]), memory(&[2; 70]));
        let mut weights = Weights::default();
        let parts = [a.part(0..64).unwrap(), a.part(64..74).unwrap(), b.clone(), a.part(128..130).unwrap()];
        let offsets = parts.map(|part| weights.push(part));
        assert_eq!((offsets, weights.len()), ([0, 64, 128, 256], 258));
        // the first two lie in one memory as they do here
        assert_eq!(weights.pieces.len(), 3);
        assert_eq!(weights.get(0, 74).unwrap(), [1; 74]);
        assert_eq!(weights.get(130, 68).unwrap(), [2; 68]);
        assert_eq!(weights.get(256, 2).unwrap(), [1; 2]);
        for (offset, bytes) in [(0, 75), (130, 69), (100, 1), (198, 1), (256, 3), (258, 1), (321, 0), (u64::MAX, 2)] {
            assert!(weights.get(offset, bytes).is_none(), "{bytes} at {offset}");
        }
        assert_eq!(weights.get(258, 0).unwrap(), [0; 0]);
        let joined: Vec<u8> = weights.chunks().flatten().copied().collect();
        let expected = [&[1; 74][..], &[0; 54], &[2; 70], &[0; 58], &[1; 2]].concat();
        assert!(joined == expected && weights == Weights::new(&expected).unwrap());
        assert!(weights != Weights::new(&joined[..257]).unwrap());
    }

    #[test]
    fn memory_is_given_back_with_its_last_user() {
        let a = memory(&[1; 100]);
        let weak = a.part(64..100).unwrap().downgrade();
        assert_eq!(weak.upgrade().unwrap().len(), 36);
        assert!(a.part(1..2).is_none() && a.part(64..101).is_none());
        drop(a);
        assert!(weak.upgrade().is_none());
    }
}
