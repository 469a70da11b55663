//! Rows of a band that are unrolled: short innermost loops, rows that share reads with the lanes, and rows that are unrolled and jammed.

use crate::expr::interval::ceil_div;
use crate::poly::analysis::access::{Along, operations, references};
use crate::poly::schedule::{Band, Row, RowKind};
use crate::poly::statement::StatementId;
use crate::poly::tile::band::context::Bands;
use crate::poly::tile::band::{Split, Surroundings};

/// Iterations of an unrolled and jammed loop beside which a rest counts little. Unmeasured.
const SHORT_REST: i64 = 8;
/// Unrolled instructions for each that is allowed elsewhere, where gathers leave a loop. Unmeasured: of 8 iterations one gather is dearer than
/// the 30 other instructions.
const GATHERING: f64 = 4.0;
/// Vectors of one iteration of a single loop, at most. Measured by a long stencil in one dimension.
const LONG_STRIP: i64 = 64;

impl Bands<'_> {
    /// Returns true if all iterations of an innermost loop may stand one after the other: more of them where each lane reads elements of
    /// its own that are the same in all iterations of the loop just around it, which then has none of these reads.
    pub(super) fn is_short(&self, row: &Row, outer: Option<&Row>, around: &Surroundings) -> bool {
        let machine = &self.target.machine;
        let unrolled: i64 = around.splits.iter().filter(|s| s.kind == RowKind::Unroll).map(|s| s.tile).product();
        let once: f64 =
            row.phi.iter().map(|p| operations(self.scop, p.0) + references(self.scop, p.0).len() as f64).sum();
        let extent = row.extent(self.scop);
        let all = once * (extent * unrolled) as f64;
        let allowed = if outer.is_some_and(|outer| self.leaves_gathers(row, outer, around)) { GATHERING } else { 1.0 };
        row.tile == 1 && extent <= machine.short_loop_steps && machine.unrolls(all / allowed)
    }

    /// Returns true if some read that gathers lanes changes along a row and not along the one around it.
    fn leaves_gathers(&self, row: &Row, outer: &Row, around: &Surroundings) -> bool {
        let Some(lanes) = around.splits.iter().find(|s| s.kind == RowKind::Vector) else { return false };
        let iterator = |r: &Row, id: StatementId| match r.phi.iter().find(|p| p.0 == id)?.1.terms[..] {
            [(v, 1 | -1)] => Some(v),
            _ => None,
        };
        outer.tile == 1
            && outer.extent(self.scop) > self.target.machine.short_loop_steps
            && row.phi.iter().any(|&(id, _)| {
                let along = [row, outer, &lanes.row].map(|r| iterator(r, id));
                let [Some(v), Some(outer), Some(lane)] = along else { return false };
                references(self.scop, id).iter().any(|r| {
                    let gathers = matches!(r.along(lane), Along::Strided(_) | Along::Gathered);
                    r.access.is_some() && !r.written && gathers && r.depends(v) && !r.depends(outer)
                })
            })
    }

    /// Points of one iteration of the only loop of a band, `lanes` or a multiple: long vector loops that leave enough
    /// iterations for threads.
    pub(super) fn strip_mined(&self, row: &Row, lanes: i64) -> i64 {
        let fits =
            |&n: &i64| n <= LONG_STRIP * lanes && row.extent(self.scop) >= n * self.target.machine.parallel_steps;
        (0..).map(|k| lanes << k).take_while(fits).last().unwrap_or(lanes)
    }

    /// Returns true if a row carries nothing and all rows further in carry something.
    pub(super) fn carries_inside(&self, row: &Row, all: &[&Row]) -> bool {
        let inside = all.iter().skip_while(|r| **r != row).skip(1);
        row.coincident && inside.clone().count() > 0 && inside.into_iter().all(|r| !r.coincident)
    }

    /// The points of a row that are unrolled and jammed, where no row is in lanes.
    pub(super) fn jammed(
        &self,
        band: &Band,
        id: StatementId,
        inner: &[(&Row, bool)],
        around: &Surroundings,
    ) -> Option<Split> {
        if self.style.jam == 1 || around.splits.iter().any(|s| s.row.phi.iter().any(|p| p.0 == id)) {
            return None;
        }
        let all: Vec<&Row> = band.rows.iter().chain(inner.iter().map(|r| r.0)).collect();
        let jams = |r: &&&Row| self.carries_inside(r, &all) && !self.bounds_others(r, id);
        let row = all[..band.rows.len()].iter().find(jams)?;
        let copies = self.copies(row, 1);
        (copies > 1).then(|| self.split(row, copies, RowKind::Unroll, around))
    }

    /// Groups of `points` points of a row that are unrolled and jammed: as many as leave no rest, or a short one.
    pub(super) fn copies(&self, row: &Row, points: i64) -> i64 {
        let groups = ceil_div(row.extent(self.scop), points);
        let fits = |n: &i64| groups % n == 0 || groups >= SHORT_REST * n;
        (1..=self.style.jam).rev().find(fits).unwrap_or(1)
    }

    /// A coincident row besides the vector along which some read does not change, and how often it is unrolled.
    pub(super) fn unrolled<'r>(
        &self,
        all: &[&'r Row],
        id: StatementId,
        vector: &Row,
        allowed: &dyn Fn(&Row) -> bool,
    ) -> Option<(&'r Row, i64)> {
        let s = self.scop.statement(id);
        let mut best: Option<(&Row, usize)> = None;
        for &row in all.iter().filter(|r| **r != vector && allowed(r) && !self.bounds_others(r, id)) {
            let shared = self.shared(all, id, vector, row);
            if shared > 0 && best.is_none_or(|b| shared > b.1) {
                best = Some((row, shared));
            }
        }
        best.map(|(row, _)| (row, if s.reduce.is_some() { 8 } else { 4 }))
    }
}
