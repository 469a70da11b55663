//! Memory of runs that have ended, for the next ones. The sessions of a pool share it: many bindings of one model need no
//! more memory than the largest of them.

use crate::bytes::{MARGIN, pages_with_margins};
use crate::{Error, Result};
use memmap2::MmapMut;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard};

/// Memory that no run uses.
#[derive(Default)]
pub(crate) struct FreeMemory(Mutex<Vec<RunMemory>>);

/// Memory of one run, with a margin of pages on both sides.
pub(crate) struct RunMemory(MmapMut);

impl Deref for RunMemory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0[MARGIN..self.0.len() - MARGIN]
    }
}

impl DerefMut for RunMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        let end = self.0.len() - MARGIN;
        &mut self.0[MARGIN..end]
    }
}

impl FreeMemory {
    /// At least `bytes` bytes for one run; their contents are left over from others. Where none is large enough, new memory
    /// replaces the largest that is free.
    ///
    /// # Errors
    /// [`Error::Io`] where the system has no memory.
    pub fn take(&self, bytes: usize) -> Result<RunMemory> {
        let mut free = self.list();
        let fits = |(_, pages): &(usize, &RunMemory)| pages.len() >= bytes;
        let smallest = free.iter().enumerate().filter(fits).min_by_key(|(_, pages)| pages.len()).map(|(i, _)| i);
        if let Some(i) = smallest {
            return Ok(free.swap_remove(i));
        }
        if let Some(i) = (0..free.len()).max_by_key(|&i| free[i].len()) {
            free.swap_remove(i);
        }
        drop(free);
        let pages = pages_with_margins(bytes);
        Ok(RunMemory(pages.map_err(|e| Error::Io(format!("{bytes} bytes of memory for a run: {e}")))?))
    }

    /// Takes memory back.
    pub fn give(&self, pages: RunMemory) {
        self.list().push(pages);
    }

    fn list(&self) -> MutexGuard<'_, Vec<RunMemory>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_pages_before_and_behind_it() {
        let memory = FreeMemory::default().take(5000).unwrap();
        let (inner, whole) = (memory.as_ptr_range(), memory.0.as_ptr_range());
        assert_eq!(memory.len(), 5000);
        assert_eq!(inner.start as usize % MARGIN, 0);
        assert_eq!([inner.start as usize - whole.start as usize, whole.end as usize - inner.end as usize], [MARGIN; 2]);
    }

    /// The kernel's word for each page of a process: the highest bit is set where the page is mapped.
    #[cfg(target_os = "linux")]
    #[test]
    fn pages_before_and_behind_it_are_mapped() {
        use std::os::unix::fs::FileExt;
        let memory = FreeMemory::default().take(3 * MARGIN).unwrap();
        let Ok(words) = std::fs::File::open("/proc/self/pagemap") else { return };
        let range = memory.as_ptr_range();
        for at in [range.start as usize - 1, range.end as usize] {
            let mut word = [0; 8];
            if words.read_exact_at(&mut word, (at / MARGIN * 8) as u64).is_ok() {
                assert_eq!(u64::from_le_bytes(word) >> 63, 1, "{at:x}");
            }
        }
    }

    #[test]
    fn runs_one_after_the_other_share_the_largest_memory() {
        let free = FreeMemory::default();
        for bytes in [10, 5000, 20_000, 300, 0] {
            let pages = free.take(bytes).unwrap();
            assert!(pages.len() >= bytes);
            free.give(pages);
        }
        let sizes = |free: &FreeMemory| free.list().iter().map(|pages| pages.len()).collect::<Vec<_>>();
        assert_eq!(sizes(&free), [20_000]);
        let [large, small] = [20_000, 300].map(|bytes| free.take(bytes).unwrap());
        free.give(large);
        free.give(small);
        assert_eq!(free.take(200).unwrap().len(), 300);
        assert_eq!(sizes(&free), [20_000]);
    }
}
