//! Where the constants of several modules lie in one file: those that they share stand there once.

use super::weights::{WEIGHTS_ALIGNMENT, WeightRange, Weights};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A piece of the constants of one module.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Placed {
    /// Offset in the module's constants.
    offset: u64,
    /// Offset in the file's constants.
    file: u64,
    bytes: u64,
}

/// The constants of a file, and where those of each module are.
#[doc(hidden)]
pub struct Layout {
    pub(super) constants: Weights,
    pub(super) modules: Vec<Vec<Placed>>,
}

impl Layout {
    /// The constants of all modules, each once.
    pub fn constants(&self) -> &Weights {
        &self.constants
    }

    /// Where the byte at an offset in the constants of a module lies; `None` where it has no such byte.
    pub fn offset(&self, module: usize, offset: u64) -> Option<u64> {
        let placed = self.modules.get(module)?;
        let piece = placed[..placed.partition_point(|piece| piece.offset <= offset)].last()?;
        (offset - piece.offset < piece.bytes).then(|| piece.file + (offset - piece.offset))
    }

    /// A layout for modules with these constants.
    pub(super) fn new<'a>(modules: impl Iterator<Item = &'a Weights> + Clone) -> Layout {
        // The parts of each memory that some module reads; those that touch are one.
        let mut used: BTreeMap<usize, (&WeightRange, Vec<(usize, usize)>)> = BTreeMap::new();
        let mut order = vec![];
        for (_, memory) in modules.clone().flat_map(Weights::pieces) {
            let (address, place) = (memory.allocation().0, memory.place());
            let entry = used.entry(address).or_insert_with(|| {
                order.push(address);
                (memory, vec![])
            });
            entry.1.push((place.start, place.end));
        }
        let mut constants = Weights::default();
        // Of each memory: the first byte of a part, its last, and its offset in the file.
        let mut offsets: BTreeMap<usize, Vec<(usize, usize, u64)>> = BTreeMap::new();
        for address in order {
            let Some((memory, parts)) = used.get_mut(&address) else { continue };
            parts.sort_unstable();
            let mut merged: Vec<(usize, usize)> = vec![];
            for &(start, end) in &*parts {
                match merged.last_mut() {
                    Some(last) if start <= last.1.next_multiple_of(WEIGHTS_ALIGNMENT) => last.1 = last.1.max(end),
                    _ => merged.push((start, end)),
                }
            }
            let placed = merged.into_iter().map(|(start, end)| {
                let offset = constants.push(memory.elsewhere(start..end));
                (start, end, offset)
            });
            offsets.insert(address, placed.collect());
        }
        let find = |(offset, memory): (u64, &WeightRange)| {
            let place = memory.place();
            let parts = &offsets[&memory.allocation().0];
            let (start, _, file) = parts[parts.partition_point(|part| part.0 <= place.start) - 1];
            Placed { offset, file: file + (place.start - start) as u64, bytes: place.len() as u64 }
        };
        let modules = modules.map(|weights| weights.pieces().map(find).collect()).collect();
        Layout { constants, modules }
    }
}

/// The constants of a module in those of its file.
///
/// # Errors
/// [`Error::Invalid`] where a piece lies outside of the file or does not follow the one before.
pub(super) fn read(placed: &[Placed], file: Option<&WeightRange>) -> Result<Weights> {
    let mut weights = Weights::default();
    for piece in placed {
        let range = usize::try_from(piece.file).ok().zip(usize::try_from(piece.bytes).ok());
        let range = range.and_then(|(start, bytes)| Some(start..start.checked_add(bytes)?));
        let memory = range.zip(file).and_then(|(range, file)| file.part(range));
        if !memory.is_some_and(|memory| weights.insert(piece.offset, memory)) {
            return Err(Error::Invalid("damaged module: constants lie outside of its file".into()));
        }
    }
    Ok(weights)
}
