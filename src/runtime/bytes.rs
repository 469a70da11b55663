//! The memory of tensors: bytes at an address that vectors load in one piece.
//!
//! Invariant: memory that is made here starts at a multiple of 64, so that whole vectors do not cross lines; large memory is
//! in pages of its own, for which the system is asked for large ones. What others made is taken over where it lies.

use memmap2::MmapMut;
use serde::{Deserialize, Serialize};
use std::ops::{Deref, DerefMut};

/// Smallest size of memory with separate pages, in bytes.
const OWN_PAGES: usize = 4 << 20;

/// A fixed number of bytes.
#[derive(Serialize, Deserialize)]
#[serde(from = "Vec<u8>", into = "Vec<u8>")]
pub struct Bytes(Memory);

enum Memory {
    Lines { lines: Vec<Line>, length: usize },
    Pages(MmapMut),
    Given(Vec<u8>),
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl Bytes {
    /// Zeros, `length` of them, at a multiple of 64.
    pub fn zeros(length: usize) -> Bytes {
        if length >= OWN_PAGES
            && let Ok(pages) = MmapMut::map_anon(length)
        {
            advise_huge_pages(&pages);
            return Bytes(Memory::Pages(pages));
        }
        Bytes(Memory::Lines { lines: vec![Line([0; 64]); length.div_ceil(64)], length })
    }
}

/// Asks for large pages where the system has them: fewer TLB misses, nothing else.
pub(crate) fn advise_huge_pages(pages: &MmapMut) {
    #[cfg(target_os = "linux")]
    if pages.len() >= OWN_PAGES {
        let _ = pages.advise(memmap2::Advice::HugePage);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = pages;
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: the lines hold at least `length` bytes, all of them initialised.
            Memory::Lines { lines, length } => unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), *length) },
            Memory::Pages(pages) => pages,
            Memory::Given(bytes) => bytes,
        }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            // SAFETY: as above; any byte is valid in a line.
            Memory::Lines { lines, length } => unsafe {
                std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), *length)
            },
            Memory::Pages(pages) => pages,
            Memory::Given(bytes) => bytes,
        }
    }
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::from(vec![])
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Bytes {
        let mut out = Bytes::zeros(bytes.len());
        out.copy_from_slice(bytes);
        out
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes(Memory::Given(bytes))
    }
}

impl From<Bytes> for Vec<u8> {
    fn from(bytes: Bytes) -> Vec<u8> {
        match bytes.0 {
            Memory::Given(bytes) => bytes,
            _ => bytes.to_vec(),
        }
    }
}

impl FromIterator<u8> for Bytes {
    fn from_iter<I: IntoIterator<Item = u8>>(bytes: I) -> Bytes {
        Bytes::from(&bytes.into_iter().collect::<Vec<u8>>()[..])
    }
}

impl Clone for Bytes {
    fn clone(&self) -> Bytes {
        Bytes::from(&self[..])
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        **self == **other
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_copied_whole() {
        for length in [0, 1, 63, 64, 65, OWN_PAGES - 1, OWN_PAGES, OWN_PAGES + 1] {
            let mut bytes = Bytes::zeros(length);
            assert!(bytes.iter().all(|&b| b == 0));
            assert_eq!((bytes.as_ptr() as usize % 64, bytes.len()), (0, length));
            bytes.iter_mut().enumerate().for_each(|(i, b)| *b = (i % 251) as u8);
            let again = bytes.clone();
            assert!(again == bytes && again != Bytes::zeros(length) || length < 2);
            assert!(Vec::from(again)[..] == bytes[..]);
        }
    }
}
