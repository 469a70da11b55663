//! The constants of one function, behind its code.

use dynasmrt::relocations::Relocation;
use dynasmrt::{DynamicLabel, DynasmApi, DynasmLabelApi, VecAssembler};
use rustc_hash::FxHashMap;

/// Constants of 4 to 64 bytes, each once. Widest first from a 64-byte boundary, so that each is aligned to its size.
#[derive(Default)]
pub struct Pool {
    labels: FxHashMap<Vec<u8>, usize>,
    entries: Vec<(Vec<u8>, DynamicLabel)>,
}

impl Pool {
    /// The label of `bytes`, whose length is a power of two.
    pub fn label<R: Relocation>(&mut self, bytes: Vec<u8>, asm: &mut VecAssembler<R>) -> DynamicLabel {
        let entries = &mut self.entries;
        let index = *self.labels.entry(bytes).or_insert_with_key(|bytes| {
            entries.push((bytes.clone(), asm.new_dynamic_label()));
            entries.len() - 1
        });
        self.entries[index].1
    }

    /// Writes all constants.
    pub fn emit<R: Relocation>(&self, asm: &mut VecAssembler<R>) {
        if self.entries.is_empty() {
            return;
        }
        asm.align(64, 0);
        let mut order: Vec<_> = self.entries.iter().collect();
        order.sort_by_key(|e| std::cmp::Reverse(e.0.len()));
        for (bytes, label) in order {
            asm.dynamic_label(*label);
            asm.extend(bytes.iter());
        }
    }
}
