//! Files mapped into memory, to be read only.
//!
//! Invariant: nothing is ever written through a mapping, so that its pages may leave memory and be read again. The file
//! itself must not change while it is mapped: one that is written to gives other contents, and one that is cut off ends
//! the process when what is no longer there is read (SIGBUS). A file that is replaced by another of its name, as
//! [`file::write`](crate::file::write) does, stays as it was.

use memmap2::{Mmap, MmapOptions};
use std::fs::{File, Metadata};
use std::io::Result;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

/// Smaller parts stay where they are, in bytes.
#[cfg(unix)]
const LEAST_RELEASED: usize = 1 << 16;

/// A whole file.
#[derive(Clone)]
pub struct MappedFile(Arc<Mmap>);

/// Another one where a file was replaced or its contents changed, as far as the system records it.
#[derive(Clone, PartialEq, Debug)]
pub struct FileState {
    length: u64,
    modified: Option<SystemTime>,
    /// Device, number of the file, and the last change of its contents or metadata in seconds and nanoseconds.
    identity: [i64; 4],
}

impl FileState {
    /// The state of the file that has this metadata.
    pub fn of(metadata: &Metadata) -> FileState {
        #[cfg(unix)]
        let identity = {
            use std::os::unix::fs::MetadataExt;
            [metadata.dev() as i64, metadata.ino() as i64, metadata.ctime(), metadata.ctime_nsec()]
        };
        #[cfg(not(unix))]
        let identity = [0; 4];
        FileState { length: metadata.len(), modified: metadata.modified().ok(), identity }
    }
}

impl MappedFile {
    /// Maps a file. It must not be changed while the mapping is alive (see the head of this file).
    pub fn new(file: &File) -> Result<MappedFile> {
        // SAFETY: the mapping is private and never written; that nobody changes the file is asked of the caller, and of
        // the users of what maps files.
        let pages = unsafe { MmapOptions::new().map_copy_read_only(file) }?;
        Ok(MappedFile(Arc::new(pages)))
    }

    /// A part of the file; `None` where the file has no such part.
    pub fn get(&self, range: Range<usize>) -> Option<&[u8]> {
        self.0.get(range)
    }

    /// The position of `part` in the file; `None` where it lies elsewhere.
    pub fn position(&self, part: &[u8]) -> Option<usize> {
        let offset = part.as_ptr().addr().checked_sub(self.0.as_ptr().addr())?;
        (offset + part.len() <= self.0.len()).then_some(offset)
    }

    /// Lets the pages of a part leave memory; they are read from the file when they are needed again.
    pub fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if range.len() >= LEAST_RELEASED && range.end <= self.0.len() {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: no page was written, so that each has the contents of the file again when it is next read.
            let advised = unsafe { self.0.unchecked_advise_range(advice, range.start, range.len()) };
            // Advice that the system does not take changes nothing.
            let _ = advised;
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
