//! Memory of runs that have ended, for the next ones. The sessions of a pool share it: many bindings of one model need no
//! more memory than the largest of them.

use crate::bytes::advise_huge_pages;
use crate::{Error, Result};
use memmap2::MmapMut;
use std::sync::{Mutex, MutexGuard};

/// Memory that no run uses.
#[derive(Default)]
pub(crate) struct FreeMemory(Mutex<Vec<MmapMut>>);

impl FreeMemory {
    /// At least `bytes` bytes for one run; their contents are left over from others. Where none is large enough, new memory
    /// replaces the largest that is free.
    ///
    /// # Errors
    /// [`Error::Io`] where the system has no memory.
    pub fn take(&self, bytes: usize) -> Result<MmapMut> {
        let mut free = self.list();
        let fits = |(_, pages): &(usize, &MmapMut)| pages.len() >= bytes;
        let smallest = free.iter().enumerate().filter(fits).min_by_key(|(_, pages)| pages.len()).map(|(i, _)| i);
        if let Some(i) = smallest {
            return Ok(free.swap_remove(i));
        }
        if let Some(i) = (0..free.len()).max_by_key(|&i| free[i].len()) {
            free.swap_remove(i);
        }
        drop(free);
        let new = MmapMut::map_anon(bytes.max(1));
        let pages = new.map_err(|e| Error::Io(format!("{bytes} bytes of memory for a run: {e}")))?;
        advise_huge_pages(&pages);
        Ok(pages)
    }

    /// Takes memory back.
    pub fn give(&self, pages: MmapMut) {
        self.list().push(pages);
    }

    fn list(&self) -> MutexGuard<'_, Vec<MmapMut>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
