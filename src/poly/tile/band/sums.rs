//! Register blocks of sums over lanes: `C[i][j] += A[i][k] * A[j][k]` with k in lanes reads each vector of a row once
//! for several others.
//!
//! In: the band around such a sum. Out: two of its rows with their points, as many accumulators as half of the
//! registers, and the size of their tiles. Loops of triangular bounds are divided into whole blocks and the rest when
//! they are lowered.

use crate::poly::analysis::access::{Reference, references};
use crate::poly::schedule::{Band, Row};
use crate::poly::statement::StatementId;
use crate::poly::tile::band::context::{Bands, SIZES, direction};
use std::collections::BTreeMap;

/// Number of points of a block's first row. Unmeasured.
const BLOCK: i64 = 4;

pub(super) struct BlockOfSums<'b> {
    /// The two rows between which reads are shared, with their points.
    pub points: [(&'b Row, i64); 2],
    /// The size of tiles of both for which all that the sums read stays in the second cache.
    pub tile: Option<i64>,
}

impl Bands<'_> {
    /// Counts the reads that change along the vector but not along another row.
    pub(super) fn shared(&self, all: &[&Row], id: StatementId, vector: &Row, row: &Row) -> usize {
        let n = self.scop.statement(id).iterators.len();
        let (Some(along), Some(d)) = (direction(all, vector, id, n), direction(all, row, id, n)) else { return 0 };
        let still = |r: &&Reference| {
            let by = |d: &[i64]| r.strides.iter().zip(d).all(|(s, c)| *c == 0 || *s == Some(0));
            r.access.is_some() && by(&d) && !by(&along)
        };
        references(self.scop, id).iter().filter(still).count()
    }

    /// The block of the sums along `vector`, a row further in than those of `band`.
    pub(super) fn block_of_sums<'b>(
        &self,
        band: &'b Band,
        all: &[&Row],
        id: StatementId,
        vector: &Row,
    ) -> Option<BlockOfSums<'b>> {
        let machine = &self.target.machine;
        if vector.coincident || band.rows.contains(vector) || !band.permutable {
            return None;
        }
        let carries_nothing =
            |r: &&Row| r.coincident && self.shared(all, id, vector, r) > 0 && !self.bounds_others(r, id);
        let rows: Vec<&Row> = band.rows.iter().filter(carries_nothing).collect();
        let &[a, b] = &rows[..] else { return None };
        let long = |r: &Row| r.extent(self.scop) >= 4 * BLOCK;
        if !long(a) || !long(b) {
            return None;
        }
        let both = [a.clone(), b.clone()];
        let accesses = [(id, references(self.scop, id))];
        let fits = |tile: i64| {
            let inside = BTreeMap::from([(id, self.inside(&both, &[tile; 2], id))]);
            self.footprint(&accesses, &inside) <= machine.cache_bytes[1] as f64 * machine.tile_fill
        };
        let most = a.extent(self.scop).max(b.extent(self.scop));
        let tile = if fits(most) { None } else { SIZES.into_iter().rev().find(|t| *t < most && fits(*t)) };
        let others = (self.target.vector_registers as i64 / 2 / BLOCK).min(BLOCK);
        Some(BlockOfSums { points: [(a, BLOCK), (b, others)], tile })
    }
}
