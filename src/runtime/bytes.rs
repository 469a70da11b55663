//! The memory of tensors: bytes at an address that vectors load in one piece.
//!
//! Invariant: memory that is made here starts at a multiple of 64, so that whole vectors do not cross lines; large memory is
//! in pages of its own, for which the system is asked for large ones, and starts at another line of its page than what was made before: a loop over more arrays
//! than a set of the first cache has ways would lose its lines if all began alike (cache colouring, Bonwick 1994). What others made is taken over where it lies. What
//! is shared, such as a part of a mapped file, is read only: it is copied when it is first written.

use crate::mapped::MappedFile;
use memmap2::MmapMut;
use serde::{Deserialize, Serialize};
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

/// Smallest size of memory with separate pages, in bytes.
const OWN_PAGES: usize = 4 << 20;

/// Bytes between addresses that lie in one set of a first cache.
pub(crate) const PAGE: usize = 4096;

/// Bytes of a mapping before and behind what is in it. A vector instruction whose masked lanes lie in a page that is not mapped takes some 260 cycles instead of one
/// (measured on Sapphire Rapids): loops over parts of rows read so before the first element and behind the last.
pub(crate) const MARGIN: usize = PAGE;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Lines by which each memory starts after the one before, modulo a page: odd, and near the golden section, so that any number of them lie far apart.
const COLOUR_STEP: usize = 39;

/// The line of its page in which the next memory starts, where that is at least a page.
fn next_colour(length: usize) -> usize {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    if length < PAGE {
        return 0;
    }
    MADE.fetch_add(1, Ordering::Relaxed).wrapping_mul(COLOUR_STEP) % (PAGE / LINE)
}

/// A fixed number of bytes.
#[derive(Serialize, Deserialize)]
#[serde(from = "Vec<u8>", into = "Vec<u8>")]
pub struct Bytes(Memory);

enum Memory {
    Lines {
        lines: Vec<Line>,
        range: Range<usize>,
    },
    Pages {
        pages: MmapMut,
        range: Range<usize>,
    },
    Given(Vec<u8>),
    /// Somebody else's, which is only read here, and copied by a clone.
    Borrowed(Borrowed),
    /// A part of a file.
    Mapped(MappedFile, Range<usize>),
    Shared(Arc<dyn AsRef<[u8]> + Send + Sync>),
    /// Made when they are first read.
    Late(Arc<Late>),
}

struct Borrowed {
    first: *const u8,
    length: usize,
}

// SAFETY: whoever made it (`Bytes::borrowed`) keeps the bytes as they are while it lives; it only reads them.
unsafe impl Send for Borrowed {}
// SAFETY: as above.
unsafe impl Sync for Borrowed {}

struct Late {
    length: usize,
    bytes: LazyLock<Vec<u8>, Box<dyn FnOnce() -> Vec<u8> + Send>>,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

impl Bytes {
    /// Zeros, `length` of them, at a multiple of 64.
    pub fn zeros(length: usize) -> Bytes {
        let first = LINE * next_colour(length);
        let range = first..first + length;
        if length >= OWN_PAGES
            && let Ok(pages) = pages_with_margins(range.end)
        {
            return Bytes(Memory::Pages { pages, range: range.start + MARGIN..range.end + MARGIN });
        }
        Bytes(Memory::Lines { lines: vec![Line([0; LINE]); range.end.div_ceil(LINE)], range })
    }

    /// A part of a mapped file; `None` where the file has no such part.
    pub fn mapped(file: &MappedFile, range: Range<usize>) -> Option<Bytes> {
        file.get(range.clone())?;
        Some(Bytes(Memory::Mapped(file.clone(), range)))
    }

    /// The bytes of `owner`, which stays alive as long as they do.
    pub fn shared(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Bytes {
        Bytes(Memory::Shared(Arc::new(owner)))
    }

    /// The bytes of `slice` where they lie; clones are copies.
    ///
    /// # Safety
    /// The result does not outlive the slice.
    pub(crate) unsafe fn borrowed(slice: &[u8]) -> Bytes {
        Bytes(Memory::Borrowed(Borrowed { first: slice.as_ptr(), length: slice.len() }))
    }

    /// `length` bytes that `make` returns when they are first read. Reading panics where it returns another number.
    pub fn late(length: usize, make: impl FnOnce() -> Vec<u8> + Send + 'static) -> Bytes {
        let make = move || {
            let bytes = make();
            assert_eq!(bytes.len(), length, "bytes that were announced");
            bytes
        };
        Bytes(Memory::Late(Arc::new(Late { length, bytes: LazyLock::new(Box::new(make)) })))
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            // Asking for the number does not make them.
            Memory::Late(late) => late.length,
            _ => (**self).len(),
        }
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Says that nobody will read the bytes soon: what the system can read from a file again need not stay in memory.
    pub fn release(&self) {
        if let Memory::Mapped(file, range) = &self.0 {
            file.release(range.clone());
        }
    }
}

/// Pages for so many bytes from [`MARGIN`] on, in large ones where the system has them. The margins are there at once: a page that was never touched is not mapped.
pub(crate) fn pages_with_margins(length: usize) -> std::io::Result<MmapMut> {
    let mut pages = MmapMut::map_anon(length + 2 * MARGIN)?;
    advise_huge_pages(&pages);
    for at in [0, length + 2 * MARGIN - 1] {
        // SAFETY: a byte of the mapping; volatile, so that the page is written although it holds zeros already.
        unsafe { pages.as_mut_ptr().add(at).write_volatile(0) };
    }
    Ok(pages)
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
            // SAFETY: the lines hold at least the bytes of the range, all of them initialised.
            Memory::Lines { lines, range } => unsafe {
                std::slice::from_raw_parts(lines.as_ptr().cast::<u8>().add(range.start), range.len())
            },
            Memory::Pages { pages, range } => &pages[range.clone()],
            Memory::Given(bytes) => bytes,
            // SAFETY: these are the bytes of a slice that outlives this value (`Bytes::borrowed`).
            Memory::Borrowed(bytes) => unsafe { std::slice::from_raw_parts(bytes.first, bytes.length) },
            Memory::Mapped(file, range) => file.get(range.clone()).unwrap_or_default(),
            Memory::Shared(owner) => (**owner).as_ref(),
            Memory::Late(late) => &late.bytes,
        }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        if let Memory::Borrowed(_) | Memory::Mapped(..) | Memory::Shared(_) | Memory::Late(_) = self.0 {
            *self = Bytes::from(&self[..]);
        }
        match &mut self.0 {
            // SAFETY: as above; any byte is valid in a line.
            Memory::Lines { lines, range } => unsafe {
                std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<u8>().add(range.start), range.len())
            },
            Memory::Pages { pages, range } => &mut pages[range.clone()],
            Memory::Given(bytes) => bytes,
            Memory::Borrowed(_) | Memory::Mapped(..) | Memory::Shared(_) | Memory::Late(_) => &mut [],
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
    /// A copy, except of what is shared already.
    fn clone(&self) -> Bytes {
        match &self.0 {
            Memory::Mapped(file, range) => Bytes(Memory::Mapped(file.clone(), range.clone())),
            Memory::Shared(owner) => Bytes(Memory::Shared(owner.clone())),
            Memory::Late(late) => Bytes(Memory::Late(late.clone())),
            _ => Bytes::from(&self[..]),
        }
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
    fn shared_bytes_are_copied_when_they_are_written() {
        let path = std::env::temp_dir().join(format!("tilewright-bytes-{}", std::process::id()));
        let contents: Vec<u8> = (0..20_000).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &contents).unwrap();
        let file = MappedFile::new(&std::fs::File::open(&path).unwrap()).unwrap();
        assert!(Bytes::mapped(&file, 0..20_001).is_none());
        let part = || contents[5_000..18_000].to_vec();
        for mut bytes in [
            Bytes::mapped(&file, 5_000..18_000).unwrap(),
            Bytes::shared(part()),
            Bytes::late(13_000, move || (5_000..18_000).map(|i| (i % 251) as u8).collect()),
        ] {
            let again = bytes.clone();
            assert_eq!((bytes.len(), bytes.is_empty(), again.as_ptr()), (13_000, false, bytes.as_ptr()));
            bytes.release();
            assert!(bytes[..] == contents[5_000..18_000] && Vec::from(bytes.clone()) == part());
            bytes[7] = 99;
            assert!(bytes[7] == 99 && bytes[8..] == again[8..] && again[..] == contents[5_000..18_000]);
        }
        assert!(std::fs::read(&path).unwrap() == contents);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn clones_of_borrowed_bytes_are_copies() {
        let mut values = vec![1u8, 2, 3];
        // SAFETY: `bytes` is dropped before `values` changes.
        let bytes = unsafe { Bytes::borrowed(&values) };
        assert_eq!((&bytes[..], bytes.as_ptr()), (&[1, 2, 3][..], values.as_ptr()));
        let (mut kept, vector) = (bytes.clone(), Vec::from(bytes));
        values[0] = 9;
        assert_eq!((&kept[..], &vector[..]), (&[1, 2, 3][..], &[1, 2, 3][..]));
        kept[1] = 7;
        assert_eq!((&kept[..], &values[..]), (&[1, 7, 3][..], &[9, 2, 3][..]));
        // SAFETY: as above; the bytes that are written are a copy.
        let mut bytes = unsafe { Bytes::borrowed(&values) };
        bytes[2] = 5;
        assert_eq!((&bytes[..], &values[..]), (&[9, 2, 5][..], &[9, 2, 3][..]));
    }

    #[test]
    fn the_number_of_late_bytes_is_known_before_they_are_made() {
        let made = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = || made.load(std::sync::atomic::Ordering::SeqCst);
        let counter = made.clone();
        let bytes = Bytes::late(3, move || {
            counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            vec![1, 2, 3]
        });
        let other = bytes.clone();
        assert_eq!((bytes.len(), other.len(), count()), (3, 3, 0));
        assert_eq!((&bytes[..], &other[..], count()), (&[1, 2, 3][..], &[1, 2, 3][..], 1));
    }

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

    #[test]
    fn memory_that_is_made_in_turn_starts_in_other_lines() {
        for length in [1 << 20, OWN_PAGES] {
            let made: Vec<Bytes> = (0..9).map(|_| Bytes::zeros(length)).collect();
            let mut lines: Vec<usize> = made.iter().map(|b| b.as_ptr() as usize % PAGE / LINE).collect();
            lines.sort();
            lines.dedup();
            assert!(lines.len() > 4, "{length}: {lines:?}");
        }
    }
}
