//! Loads that registers save: unrolled loops around a window read some of its places again and again.
//!
//! In: the accesses of a block in their textual order. Out: how many copies of each are loads. A place is in a register since
//! it was last read, as long as fewer others than there are registers were read after it (the stack distance of Mattson et
//! al., "Evaluation Techniques for Storage Hierarchies", 1970); one that the iteration before has read is, where the block leaves
//! registers for all of its places.

use crate::expr::{Affine, BufferId, Var};
use crate::poly::cost::block::Placed;
use std::collections::{BTreeSet, HashMap};

/// Most copies of one access that are looked at.
const COPIES: f64 = 512.0;

/// The places of one access: what serial loops change, and the distances of the copies from it.
struct Places {
    base: Affine,
    offsets: Vec<i64>,
}

impl Places {
    /// `None` where there are too many copies.
    fn of(address: &Affine, store: &Placed) -> Option<Places> {
        let (mut base, mut offsets) = (address.clone(), vec![address.constant]);
        base.constant = 0;
        for e in &store.around {
            let step = base.coefficient(e.var);
            if step == 0 {
                continue;
            }
            if e.terms > 1 || e.copies * offsets.len() as f64 > COPIES {
                return None;
            }
            base = base.plus(e.var, -step);
            let step = step * e.lanes.map_or(1, |lanes| lanes as i64);
            let copies = 0..e.copies.ceil() as i64;
            offsets = offsets.iter().flat_map(|&o| copies.clone().map(move |copy| o + copy * step)).collect();
        }
        Some(Places { base, offsets })
    }
}

/// The places of a block that are in registers.
#[derive(Default)]
pub(super) struct Windows {
    registers: usize,
    /// The last used one is the last.
    held: Vec<(BufferId, Affine, i64)>,
    /// All places that the block reads.
    all: HashMap<(BufferId, Affine), BTreeSet<i64>>,
}

impl Windows {
    /// For a block of these reads, of which so many registers hold other values.
    pub(super) fn new<'a>(
        reads: impl Iterator<Item = (BufferId, Affine, &'a Placed<'a>)>,
        registers: usize,
        taken: usize,
    ) -> Windows {
        let mut all: HashMap<(BufferId, Affine), BTreeSet<i64>> = HashMap::new();
        for (buffer, address, store) in reads {
            if let Some(places) = Places::of(&address, store) {
                all.entry((buffer, places.base)).or_default().extend(places.offsets);
            }
        }
        Windows { registers: registers.saturating_sub(taken), held: vec![], all }
    }

    /// The copies of a read that are loads, directly in the loop over `inner`, whose last `kept` iterations may have left a
    /// place in a register; `None` where that is not known.
    pub(super) fn loads(
        &mut self,
        (buffer, address): (BufferId, &Affine),
        store: &Placed,
        inner: Option<Var>,
        kept: i64,
    ) -> Option<f64> {
        let Places { base, offsets } = Places::of(address, store)?;
        let step = inner.map_or(0, |v| base.coefficient(v));
        let distinct: usize = self.all.values().map(BTreeSet::len).sum();
        let stay = step != 0 && distinct <= self.registers;
        let own = self.all.get(&(buffer, base.clone()));
        let carried =
            |offset: i64| stay && own.is_some_and(|own| (1..=kept).any(|k| own.contains(&(offset + k * step))));
        let mut loads = 0;
        for offset in offsets {
            let is_known = carried(offset);
            let place = (buffer, base.clone(), offset);
            let at = self.held.iter().position(|p| *p == place);
            if let Some(at) = at {
                self.held.remove(at);
            }
            self.held.push(place);
            if self.held.len() > self.registers {
                self.held.remove(0);
            }
            loads += usize::from(at.is_none() && !is_known);
        }
        Some(loads as f64)
    }
}
