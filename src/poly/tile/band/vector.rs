//! The row whose points become the lanes of vectors.
//!
//! In: the rows around a dominant statement, and which of them may be moved inwards. Out: the row by whose lanes all statements in
//! its loop gain most, from the stride of each access along it.

use crate::expr::BinaryOp;
use crate::expr::BufferId;
use crate::expr::interval::ceil_div;
use crate::poly::analysis::access::{Reference, is_subscript, operations, references};
use crate::poly::analysis::dynamic_loops::{DynamicLoop, dynamic_loops};
use crate::poly::analysis::lanes::lane_bytes;
use crate::poly::schedule::{Node, Row};
use crate::poly::statement::{Role, StatementId};
use crate::poly::tile::band::context::{Bands, Vectors, direction};
use crate::poly::tile::band::rows_to;
use std::ops::RangeInclusive;

/// Vectors of a loop with bounds from data for each of those that are added up beside each other, at least. Unmeasured.
const LONG_LOOP: i64 = 4;

/// Iterations of a longer one among loops with bounds from data, over their mean. Unmeasured.
const LONGER: f64 = 1.5;
/// Lanes of the shortest vectors along such a loop. Unmeasured.
const LEAST_LANES: i64 = 4;

/// Vectors of one iteration of a loop that carries sums: as many as are expanded without a local vector. The fewest: unmeasured.
const SUMMED: RangeInclusive<i64> = 4..=8;
/// Vectors of a longer sum, beside which the rest of a sum counts little. Unmeasured.
const LONG_SUM: i64 = 32;

/// Cycles of a step that combines the lanes of a sum by halves: a permutation and an addition. Unmeasured.
const COMBINE: f64 = 2.0;

impl Bands<'_> {
    /// The row that is best as a vector for a statement and those beside it in a band, with its points. `below` is what the band has
    /// inside. A row that is not free carries sums.
    pub(super) fn vector<'r>(
        &self,
        all: &[&'r Row],
        (beside, below): (&[StatementId], &Node),
        id: StatementId,
        movable: &dyn Fn(&Row) -> bool,
        free: &dyn Fn(&Row) -> bool,
    ) -> Option<(&'r Row, i64)> {
        if self.style.vectors == Vectors::None {
            return None;
        }
        let s = self.scop.statement(id);
        let refs = references(self.scop, id);
        let lanes = self.lanes(id);
        let mut best: Option<(&Row, f64)> = None;
        for &row in all.iter().filter(|r| movable(r) && !self.bounds_others(r, id)) {
            let Some(d) = direction(all, row, id, s.iterators.len()) else { continue };
            let along = |r: &Reference| self.stride(r, &d, row);
            // Lanes are stored to subscripts from data one by one.
            if refs.iter().any(|r| r.access.is_none() && stride(r, &d).is_none()) {
                continue;
            }
            let dynamic = self.dynamic(row, id);
            if self.points_along(&d, id).is_none_or(|n| n < self.target.machine.least_vector_points) {
                continue;
            }
            let contiguous = refs.iter().all(|r| matches!(along(r), Some(-1..=1)));
            if self.style.vectors == Vectors::Contiguous && !contiguous && dynamic.is_none() {
                continue;
            }
            let exact = matches!(s.reduce, Some(BinaryOp::Min | BinaryOp::Max));
            let whole = || refs.iter().all(|r| self.by_whole_vectors(r, along(r), lanes).is_some());
            if !free(row) && !exact && dynamic.is_none() && !whole() {
                continue;
            }
            if self.style.vectors == Vectors::Outermost {
                if row.coincident {
                    best = Some((row, 0.0));
                    break;
                }
                continue;
            }
            let Some(own) = self.gain(all, row, id, free(row)).filter(|gain| *gain > 0.0) else { continue };
            let others = beside.iter().filter(|other| **other != id);
            let others = others.map(|&id| self.instances(id) * self.gain_beside(all, below, row, id, free(row)));
            let gained = self.instances(id) * own + others.sum::<f64>();
            if gained > 0.0 && best.is_none_or(|b| gained > b.1) {
                best = Some((row, gained));
            }
        }
        best.map(|(row, _)| {
            // Wider statements beside narrow ones decide.
            let narrow = lane_bytes(self.scop, id) < 4;
            let others = row.phi.iter().filter(|_| narrow).map(|p| self.lanes(p.0));
            let lanes = others.fold(lanes, i64::min);
            match self.dynamic(row, id) {
                Some(l) => (row, points_of(&l, lanes)),
                None => (row, if free(row) { lanes } else { self.points_of_sum(row, lanes) }),
            }
        })
    }

    /// Points of a vector of sums along a row: several vectors, without a rest where the row has a fixed length. The lanes of a rest would be
    /// combined on their own.
    fn points_of_sum(&self, row: &Row, lanes: i64) -> i64 {
        let extent = row.extent(self.scop);
        let is_bound = |id: StatementId| {
            self.scop.statement(id).domain.iter().any(|c| row.of(id).terms.iter().any(|t| c.uses(t.0)))
        };
        let fixed = extent <= LONG_SUM * lanes && !row.phi.iter().any(|p| is_bound(p.0));
        let whole = |n: &i64| fixed && (extent <= *n || extent % n == 0);
        SUMMED.map(|vectors| vectors * lanes).find(whole).unwrap_or(SUMMED.start() * lanes)
    }

    /// The loop with bounds from data that a row is for a statement.
    pub(super) fn dynamic(&self, row: &Row, id: StatementId) -> Option<DynamicLoop> {
        dynamic_loops(self.scop, id).into_iter().find(|l| row.of(id).uses(l.var))
    }

    /// Returns true if loops of a statement have bounds from data that differ from one value of a row to the next.
    pub(super) fn bounds_others(&self, row: &Row, id: StatementId) -> bool {
        dynamic_loops(self.scop, id).iter().any(|l| l.outer.iter().any(|v| row.of(id).uses(*v)))
    }

    /// Cycles that a statement beside the dominant one saves in an instance: by the lanes along `row` where it shares the row, else by
    /// those along the best row that it has further in.
    fn gain_beside(&self, all: &[&Row], below: &Node, row: &Row, id: StatementId, free: bool) -> f64 {
        let inner = rows_to(below, id);
        let mut rows: Vec<&Row> = vec![];
        for r in all.iter().copied().chain(inner.iter().map(|r| r.0)) {
            if r.phi.iter().any(|p| p.0 == id) && !rows.contains(&r) {
                rows.push(r);
            }
        }
        if rows.contains(&row) {
            return self.gain(&rows, row, id, free).unwrap_or(0.0);
        }
        let further = inner.iter().map(|r| r.0).filter(|r| r.coincident && !all.contains(r));
        further.filter_map(|r| self.gain(&rows, r, id, true)).fold(0.0, f64::max)
    }

    /// Cycles that lanes along a row save in an instance of a statement; `None` where a step of the row is no step of iterators.
    fn gain(&self, all: &[&Row], row: &Row, id: StatementId, free: bool) -> Option<f64> {
        let machine = &self.target.machine;
        let d = direction(all, row, id, self.scop.statement(id).iterators.len())?;
        let refs = references(self.scop, id);
        let lanes = self.lanes(id);
        let extent = self.points_along(&d, id)?;
        let extent = self.dynamic(row, id).map_or(extent, |l| l.mean.ceil() as i64);
        let arithmetic = operations(self.scop, id) / machine.fma_per_cycle as f64;
        let scalar = refs.len() as f64 / machine.loads_per_cycle as f64 + arithmetic + machine.chain_cycles;
        let access: f64 = refs.iter().map(|r| self.access_cost(r, self.stride(r, &d, row), lanes)).sum();
        // Lanes beyond a short row do nothing; those of a sum wait for each other, and are combined at its end.
        let vectors = ceil_div(extent, lanes) as f64;
        let sums = !free && self.scop.statement(id).reduce.is_some();
        let (chain, combined) = if sums { (1.0, COMBINE * (lanes as f64).log2()) } else { (0.0, 0.0) };
        Some(scalar - ((access + arithmetic + chain) * vectors + combined) / extent as f64)
    }

    /// Returns true if no lane of a statement is loaded or stored by itself where the lanes run along a row.
    pub(super) fn moves_whole_vectors(&self, all: &[&Row], row: &Row, id: StatementId) -> bool {
        let Some(d) = direction(all, row, id, self.scop.statement(id).iterators.len()) else { return false };
        let lanes = self.lanes(id);
        let long = self.points_along(&d, id).is_some_and(|n| n >= lanes);
        long && references(self.scop, id)
            .iter()
            .all(|r| self.by_whole_vectors(r, self.stride(r, &d, row), lanes).is_some())
    }

    /// The least extent of the iterators that take a step along a row.
    fn points_along(&self, d: &[i64], id: StatementId) -> Option<i64> {
        let iterators = &self.scop.statement(id).iterators;
        d.iter().zip(iterators).filter(|(c, _)| **c != 0).map(|(_, it)| it.extent).min()
    }

    /// Lanes of a vector of a statement.
    pub(super) fn lanes(&self, id: StatementId) -> i64 {
        self.target.lanes(lane_bytes(self.scop, id) as usize) as i64
    }

    /// Returns true for a temporary of which each iteration of a row has elements of its own and all uses: lowering leaves those of
    /// the lanes, which become neighbours.
    fn is_own(&self, tensor: BufferId, row: &Row) -> bool {
        let users = self.scop.users(tensor);
        let within = users.iter().all(|id| row.phi.iter().any(|p| p.0 == *id));
        self.scop.tensor(tensor).role == Role::Temporary && within && is_subscript(self.scop, tensor, &users, row)
    }

    /// Elements between the lanes of an access; what each lane has of its own lies side by side.
    fn stride(&self, r: &Reference, d: &[i64], row: &Row) -> Option<i64> {
        if self.is_own(r.tensor, row) { Some(1) } else { stride(r, d) }
    }

    /// Cost of one access of all lanes, `stride` elements apart, in cycles.
    fn access_cost(&self, r: &Reference, stride: Option<i64>, lanes: i64) -> f64 {
        let machine = &self.target.machine;
        let write = if r.access.is_none() { machine.store_factor } else { 1.0 };
        match stride {
            Some(0) => machine.invariant_cycles,
            Some(1) => write,
            Some(-1) if r.access.is_some() => machine.reversed_factor * write,
            close => match self.by_whole_vectors(r, close, lanes) {
                Some(moves) => write * moves as f64,
                None => write * machine.band_lane_cycles * lanes as f64,
            },
        }
    }

    /// The moves of whole vectors that access elements `stride` apart; `None` where lanes are accessed one by one.
    fn by_whole_vectors(&self, r: &Reference, stride: Option<i64>, lanes: i64) -> Option<i64> {
        match stride? {
            -1..=1 => Some(1),
            n => self.target.close_moves(n, r.bytes as usize, lanes as usize, r.access.is_none()),
        }
    }
}

/// Points of a vector along a loop with bounds from data: few where the loop is short, several vectors where it is long.
fn points_of(l: &DynamicLoop, lanes: i64) -> i64 {
    let most = (LONGER * l.mean).ceil() as i64;
    if most < lanes {
        return (most.max(LEAST_LANES) as u64).next_power_of_two() as i64;
    }
    let vectors = (1..=2).filter(|k| l.mean >= ((LONG_LOOP * lanes) << k) as f64).count();
    lanes << vectors
}

/// Elements between neighbours along a direction; `None` where a subscript is computed.
fn stride(r: &Reference, d: &[i64]) -> Option<i64> {
    r.strides.iter().zip(d).try_fold(0, |sum, (s, c)| Some(sum + if *c == 0 { 0 } else { (*s)? * c }))
}
