//! Constants that the compilations of one model share: those that were folded, and weights as kernels read them.
//!
//! Bindings of the dynamic dimensions differ in their kernels, hardly in their weights: these are folded and packed at the first
//! binding that needs them, and the memory is that of all modules together. It is given back with the last of them.

use crate::graph::fold::memo::Memo;
use crate::poly::packing::Pack;
use crate::poly::statement::Panel;
use crate::runtime::module::{WEIGHTS_ALIGNMENT, WeakWeightRange, WeightRange};
use crate::{Result, Tensor};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Constants that several compilations of a model share.
#[derive(Default)]
pub struct Sharing {
    folded: Memo,
    placed: Mutex<HashMap<Key, WeakWeightRange>>,
    /// Of constants that the memo keeps, by address: the panels of their first packed copy.
    panels: Mutex<HashMap<usize, Panel>>,
}

/// The address of a constant that the memo keeps, and the order of its elements.
type Key = (usize, Option<(Vec<i64>, Pack)>);

/// A constant as a kernel reads it.
#[derive(Clone)]
pub enum Blob {
    /// As it is.
    Plain(Arc<Tensor>),
    /// Packed, where the kernel sees it under this shape.
    Packed { source: Arc<Tensor>, shape: Vec<i64>, pack: Pack },
}

impl Blob {
    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Blob::Plain(t) => t.data.len(),
            Blob::Packed { pack, .. } => pack.bytes(),
        }
    }

    /// Writes the bytes over zeros. The source is freed where nothing else needs it.
    pub fn write(self, out: &mut [u8]) {
        let source = match self {
            Blob::Plain(source) => {
                out.copy_from_slice(&source.data);
                source
            }
            Blob::Packed { source, shape, pack } => {
                pack.write(&shape, &source.data, out);
                source
            }
        };
        source.data.release();
    }
}

impl Sharing {
    /// For compilations of a model with these weights.
    pub fn new<'a>(weights: impl Iterator<Item = &'a Arc<Tensor>>) -> Sharing {
        Sharing { folded: Memo::new(weights), ..Sharing::default() }
    }

    /// The constants that were folded.
    pub fn folded(&self) -> &Memo {
        &self.folded
    }

    /// The memory of constants, those that are new one after the other, as `fill` writes them over zeros and frees their
    /// sources.
    ///
    /// # Errors
    /// `Io` where the system has no memory.
    pub fn place(
        &self,
        blobs: Vec<Blob>,
        fill: impl FnOnce(Vec<(usize, Blob)>, &mut [u8]),
    ) -> Result<Vec<Option<WeightRange>>> {
        let keys: Vec<Option<Key>> = blobs.iter().map(|blob| self.key(blob)).collect();
        let mut places: Vec<Option<WeightRange>> = {
            let placed = self.placed.lock().unwrap_or_else(|e| e.into_inner());
            let placed_weights = |key: &Option<Key>| placed.get(key.as_ref()?)?.upgrade();
            keys.iter().map(placed_weights).collect()
        };
        let (mut length, mut ranges, mut new) = (0usize, vec![], vec![]);
        for (i, blob) in blobs.into_iter().enumerate().filter(|(i, _)| places[*i].is_none()) {
            let start = length.next_multiple_of(WEIGHTS_ALIGNMENT);
            length = start + blob.bytes();
            ranges.push((i, start..length));
            new.push((start, blob));
        }
        let memory = WeightRange::filled(length, |out| fill(new, out))?;
        let mut placed = self.placed.lock().unwrap_or_else(|e| e.into_inner());
        for (i, range) in ranges {
            places[i] = memory.as_ref().and_then(|memory| memory.part(range));
            if let (Some(key), Some(place)) = (&keys[i], &places[i]) {
                placed.insert(key.clone(), place.downgrade());
                let packed = key.1.as_ref().and_then(|(_, pack)| pack.panel());
                let mut panels = self.panels.lock().unwrap_or_else(|e| e.into_inner());
                packed.into_iter().for_each(|panel| _ = panels.entry(key.0).or_insert(panel));
            }
        }
        Ok(places)
    }

    /// The panels in which memory has this constant.
    pub fn panel(&self, constant: &Arc<Tensor>) -> Option<Panel> {
        let panels = self.panels.lock().unwrap_or_else(|e| e.into_inner());
        panels.get(&Arc::as_ptr(constant).addr()).copied()
    }

    fn key(&self, blob: &Blob) -> Option<Key> {
        let (source, order) = match blob {
            Blob::Plain(source) => (source, None),
            Blob::Packed { source, shape, pack } => (source, Some((shape.clone(), pack.canonical()))),
        };
        self.folded.keeps(source).then(|| (Arc::as_ptr(source).addr(), order))
    }
}
