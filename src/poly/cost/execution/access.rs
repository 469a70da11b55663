//! Ports of one access, beside those of a load of a whole vector.

use super::{Pricer, is_narrow};
use crate::codegen::select::columns;
use crate::expr::{Access, BufferId, Index};
use crate::poly::cost::block::{Expanded, Placed, address_of, distance_along};
use crate::poly::cost::seen::Seen;

impl Pricer<'_> {
    /// Loads and permutations for each vector of a column, where several are transposed together: those that the block reads side by
    /// side, in so many iterations of the loops around as stand one after the other.
    pub(super) fn transposed(&self, access: &Access, store: &Placed, seen: &Seen) -> Option<(f64, f64)> {
        let vector = store.vector().filter(|_| !columns::reads_by_data(store.value))?;
        let bytes = columns::element(self.nest, access, vector.var)?;
        let address = address_of(self.nest, access.buffer, &access.index)?;
        let lanes = vector.lanes.unwrap_or(1.0);
        let most = ((self.target.vector_bytes / bytes) as f64).min(lanes) as i64;
        let side = |step: i64| {
            let beside = |k: &i64| seen.addresses.contains(&(access.buffer, address.clone().offset(step * k)));
            (1..most).take_while(beside).count() as i64
        };
        let beside = 1 + side(1) + side(-1);
        let unrolled =
            store.around.iter().filter(|e| e.lanes.is_none() && e.terms == 1).map(|e| (e.var, e.copies as i64));
        let mut steps: Vec<(i64, i64)> =
            self.columns.into_iter().chain(unrolled).map(|(v, n)| (address.coefficient(v).abs(), n)).collect();
        steps.sort();
        let all = steps.into_iter().fold(beside, |beside, (step, n)| match (1..=beside).contains(&step) {
            true => step * (n - 1) + beside,
            false => beside,
        });
        let columns = columns::together(all.min(most).min(address.coefficient(vector.var)), bytes)? as f64;
        Some((lanes / columns, lanes / columns - 1.0 + columns.log2()))
    }

    /// Slots of a store whose lanes lie a few elements apart, where others fill the gaps: all are stored side by side. `None` for others.
    pub(super) fn stored_together(&self, store: &Placed, seen: &Seen) -> Option<f64> {
        let vector = store.vector().filter(|_| store.terms == 1)?;
        let address = address_of(self.nest, store.buffer, store.index)?;
        let apart = address.coefficient(vector.var);
        let beside = |step: i64| {
            let stored = |k: &i64| seen.stored.contains(&(store.buffer, address.clone().offset(step * k)));
            (1..apart).take_while(stored).count() as i64
        };
        let unrolled = |e: &&Expanded| e.lanes.is_none() && address.coefficient(e.var).abs() == 1;
        let copies = store.around.iter().find(unrolled).map_or(1.0, |e| e.copies) as i64;
        let all = (2..=columns::CLOSE).contains(&apart) && (1 + beside(1) + beside(-1)).max(copies) >= apart;
        if !all {
            return None;
        }
        let bytes = self.nest.buffer(store.buffer).dtype.bytes();
        let (joined, stores) = self.target.interleaved_moves(apart, bytes, vector.lanes.unwrap_or(1.0) as usize);
        Some((joined + stores) / apart as f64)
    }

    /// Slots of the ports of one access, as often as a load of a whole vector has one.
    pub(super) fn slots(&self, buffer: BufferId, index: &[Index], store: &Placed, written: bool) -> f64 {
        let machine = &self.target.machine;
        let narrow = machine.loads_per_cycle as f64 / machine.narrow_loads_per_cycle as f64;
        let Some(vector) = store.vector() else { return narrow };
        let lanes = vector.lanes.unwrap_or(1.0);
        let bytes = self.nest.buffer(buffer).dtype.bytes();
        let distance = distance_along(self.nest, buffer, index, vector.var);
        if let Some(moves) = distance
            .filter(|_| store.terms == 1)
            .and_then(|n| self.target.close_moves(n, bytes, lanes as usize, written))
        {
            return moves as f64;
        }
        match distance {
            Some(-1) => machine.reversed_factor,
            Some(0 | 1) if is_narrow(vector) => narrow,
            Some(0 | 1) => 1.0,
            Some(stride) if stride == store.terms => 1.0,
            Some(stride) if stride.unsigned_abs() * (bytes as u64) < machine.line_bytes as u64 => {
                lanes * machine.band_lane_cycles
            }
            // every lane has a line of its own
            _ => lanes * machine.line_lane_cycles,
        }
    }
}
