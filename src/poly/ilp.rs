//! Scheduling by integer linear programming, band row by band row.
//!
//! After Bondhugula, Hartono, Ramanujam, Sadayappan, "A Practical Automatic Polyhedral Parallelizer and Locality
//! Optimizer" (PLDI 2008), with the independence constraints of "The Pluto+ Algorithm" (TOPLAS 2016) in orthant form.
//!
//! In: a Scop and its dependences. Out: a tree of bands with exact flags, and a [`SchedulingReport`]. One row gives every
//! statement S of a group an affine time `φ_S(i) = θ_S·i + k_S`. For each dependence S → T still to be respected let
//! `δ = φ_T − φ_S` over its pairs of instances, with maximum `δ⁺` over their bounding box. The row is the lexicographic
//! minimum of
//!
//! > ( carried,  Σ bytes·δ⁺,  Σ stride(S,i)·|θ_S,i|,  Σ order(S,i)·|θ_S,i|,  Σ k_S )
//!
//! over integers with δ ≥ 0 (Farkas), each θ_S linearly independent of the rows above it. `carried` is 0 when δ = 0 for
//! all dependences (the loop is parallel), else 1: the first component is decided by trying δ = 0 first, the others are one
//! weighted sum. `stride` counts the bytes that S moves with unit stride along i, so that such iterators end up
//! innermost. `order` is the original position.
//!
//! A strongly connected component first gets *tile rows*: as many rows as there are in all of which every dependence is
//! non-negative, so that blocks of them can run one after the other. Inside of them are the *points*, loops over single
//! values in which parallel rows count most; the outer serial one of several statements is the one that moves fewest
//! bytes with unit stride, and as soon as it breaks the component the rest is cut. Tile rows that reach no further than
//! the points are left out; where none is skewed the outermost is the one that repeats the fewest reads across pages.
//!
//! Attempts, in order, the first with a solution counts: parallel, then (for one strongly connected component) with
//! coefficients 0..4 and constants 0, constants to 4, coefficients -4..4. A group of several components has only
//! parallel rows, one iterator of each statement, all of one length, and shares one only if that saves more bytes than
//! it moves with a worse stride, and never between two matrix products or with a scatter; when there is none the group is cut into a
//! sequence of groups that have one, joined greedily along the dependences that move most bytes.
//!
//! Effort is limited: the linear relaxations of all integer programs together have at most [`MAX_EFFORT`] entries, and
//! isl and the generators of polyhedra have limits of their own. Beyond them no more rows are found. The default is the
//! original order: of the outermost strongly connected components for which no rows are found, of all statements when
//! what was found does not pass the proof. It gets exact flags, so that its parallel loops are known, and the report
//! names the statements and the reason.
//!
//! How we differ from the paper: first δ ≥ 0 is asked for on the unbounded cone of the dependence (as if extents were
//! parameters), which is a condition on the signs of a few forms when subscripts are simple; the generators of the
//! dependence ([`crate::poly::sets::generators`]) are used for the rest.

mod component;
pub mod integer_program;
pub mod report;
mod row;

use crate::expr::{Access, BufferId, Index};
use crate::expr::{Affine, Var};
use crate::poly::analysis::dependence::{Dependence, Dependences};
use crate::poly::analysis::legality::Unsatisfied;
use crate::poly::analysis::{flags, legality};
use crate::poly::ilp::integer_program::{Effort, Solutions};
use crate::poly::ilp::report::SchedulingReport;
use crate::poly::ilp::scheduler::{LiveDependences, Scheduler};
use crate::poly::schedule::{Band, Node, Row, Schedule, TimeDimension};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::orthogonal_complement;
use crate::poly::statement::{Role, StatementId};
use crate::runtime::{Error, Result};
use component::{Clusters, components, order, within};
use row::{Attempt, Found, PARALLEL, SERIAL};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Size of a tile row until the cache model chooses one.
const TILE: i64 = 32;
/// Weight of strides; see [`row`].
const STRIDE: i64 = 1 << 6;

/// Largest number of entries of linear relaxations for one Scop: several times that of any program of `datasets`.
pub const MAX_EFFORT: usize = 5_000_000;

/// Schedules `scop`. The result is legal: it has passed [`legality::check`].
pub fn schedule(scop: &Scop, dependences: &Dependences) -> Result<(Schedule, SchedulingReport)> {
    schedule_within(scop, dependences, Effort { left: MAX_EFFORT })
}

/// [`schedule`] with another limit of effort.
pub fn schedule_within(scop: &Scop, dependences: &Dependences, effort: Effort) -> Result<(Schedule, SchedulingReport)> {
    run(scop, dependences, Scheduler::new(scop, effort))
}

/// The schedule with the iterators along which statements move most bytes with unit stride innermost: `None` where the bands of
/// single values in `schedule` have them already, and where no row is found for some statements.
///
/// A sum over `r` of what other elements of its target hold, such as C(i, j) = min over r of C(i, r) + C(r, j), is added to each
/// element in turn by [`schedule`], since that keeps the element near. With `j` innermost each C(i, r) is used for all later
/// elements as soon as it is complete.
///
/// # Errors
/// Those of isl.
pub fn schedule_contiguous(scop: &Scop, dependences: &Dependences, schedule: &Schedule) -> Result<Option<Schedule>> {
    let mut scheduler = Scheduler::new(scop, Effort { left: MAX_EFFORT });
    scheduler.innermost = scop.ids().filter_map(|id| Some((id, strided(scop, schedule, id)?))).collect();
    if scheduler.innermost.is_empty() {
        return Ok(None);
    }
    let (found, report) = run(scop, dependences, scheduler)?;
    Ok(report.fallback.is_none().then_some(found))
}

/// The iterator along which a statement moves most bytes with unit stride, if the innermost rows of `schedule` do not use it.
fn strided(scop: &Scop, schedule: &Schedule, id: StatementId) -> Option<Var> {
    let bytes = unit_stride_bytes(scop, id);
    let most = bytes.iter().copied().max().filter(|&most| most > 0)?;
    let v = Var(bytes.iter().position(|&b| b == most)? as u32);
    let mut node = &schedule.root;
    let mut innermost = None;
    loop {
        node = match node {
            Node::Leaf => break,
            Node::Band(band, child) => {
                innermost = Some(band);
                child
            }
            Node::Sequence(children) => &children.iter().find(|(ids, _)| ids.contains(&id))?.1,
        };
    }
    innermost?.rows.iter().all(|row| !row.of(id).uses(v)).then_some(v)
}

/// The tree that a scheduler finds, proven; the original order, with a note, where it ends in an error. A defect of ours is an
/// error with debug assertions, so that tests fail on it.
fn run<'a>(
    scop: &'a Scop,
    dependences: &'a Dependences,
    mut scheduler: Scheduler<'a>,
) -> Result<(Schedule, SchedulingReport)> {
    let start = std::time::Instant::now();
    let effort = scheduler.effort;
    let live = dependences.list.iter().map(|d| (d, Unsatisfied::new(d))).collect();
    let scheduled = scheduler
        .group(&scop.ids().collect::<Vec<_>>(), live)
        .map(|root| Schedule { root })
        .and_then(|s| if scheduler.kept.is_empty() { Ok(s) } else { flags::flag(scop, dependences, &s) })
        .and_then(|s| legality::check(scop, dependences, &s).map(|()| s));
    let mut report = scheduler.report;
    let schedule = match scheduled {
        Ok(schedule) => {
            report.fallback = (!scheduler.kept.is_empty()).then(|| scheduler.kept.join("; "));
            schedule
        }
        Err(defect @ Error::Internal(_)) if cfg!(debug_assertions) => return Err(defect),
        Err(e) => {
            report.fallback = Some(format!("original order kept: {e}"));
            flags::flag(scop, dependences, &scop.order).unwrap_or_else(|_| scop.order.clone())
        }
    };
    schedule.for_each_band(&mut |band| report.rows += band.rows.len());
    report.entries = effort.left - scheduler.effort.left;
    report.milliseconds = start.elapsed().as_secs_f64() * 1e3;
    Ok((schedule, report))
}

impl<'a> Scheduler<'a> {
    fn new(scop: &'a Scop, effort: Effort) -> Scheduler<'a> {
        let stride: BTreeMap<_, _> = scop.ids().map(|id| (id, unit_stride_bytes(scop, id))).collect();
        let most = stride.values().flatten().copied().max().unwrap_or(0).max(1);
        let weight = |(i, &bytes): (usize, &i64)| {
            4 + i as i64 + STRIDE * ((16 * bytes as i128 + most as i128 - 1) / most as i128) as i64
        };
        let weights = stride.iter().map(|(&id, bytes)| (id, bytes.iter().enumerate().map(weight).collect())).collect();
        Scheduler {
            scop,
            isl: Isl::default(),
            above: scop.ids().map(|id| (id, vec![])).collect(),
            direction: scop.ids().map(|id| (id, directions(scop, id))).collect(),
            stride,
            weights,
            innermost: BTreeMap::new(),
            tiled: false,
            generators: FxHashMap::default(),
            solutions: Solutions::default(),
            effort,
            limit: effort,
            kept: vec![],
            report: SchedulingReport::default(),
        }
    }

    fn complement(&self, id: StatementId) -> Vec<Vec<i64>> {
        orthogonal_complement(&self.above[&id], self.scop.statement(id).iterators.len())
    }

    fn is_complete(&self, id: StatementId) -> bool {
        self.complement(id).is_empty()
    }

    /// The tree for `group`, whose pairs of instances `live` the rows above have not ordered: the original one where
    /// there are no rows above and none is found.
    fn group(&mut self, group: &[StatementId], live: LiveDependences<'a>) -> Result<Node> {
        let outermost = group.iter().all(|id| self.above[id].is_empty());
        match self.rows_of(group, live) {
            Err(why @ Error::Limit(_)) if outermost => {
                group.iter().for_each(|id| self.above.get_mut(id).expect("every statement").clear());
                self.kept.push(format!("original order of {} kept: {why}", self.names(group)));
                Ok(self.scop.order.root.restricted(group))
            }
            found => found,
        }
    }

    fn rows_of(&mut self, group: &[StatementId], live: LiveDependences<'a>) -> Result<Node> {
        if let [id] = group
            && self.is_complete(*id)
        {
            return Ok(Node::Leaf);
        }
        let component = group.len() == 1 || components(group, &live).len() == 1;
        let tiles = if component && !self.tiled { self.tiles(group, &live)? } else { vec![] };
        let outer = self.tiled;
        self.tiled |= !tiles.is_empty();
        let points = self.points(group, component, live);
        self.tiled = outer;
        let points = points?;
        if tiles.is_empty() {
            return Ok(points);
        }
        let shallow = matches!(&points, Node::Band(band, _) if band.rows.len() >= tiles.len());
        if shallow {
            return Ok(points);
        }
        Ok(Node::Band(Band { rows: tiles, permutable: true }, Box::new(points)))
    }

    /// Rows in all of which every dependence of the component is non-negative, as many as there are: skewed and shifted
    /// where it takes that. Empty unless they reach further than the first row.
    fn tiles(&mut self, group: &[StatementId], live: &LiveDependences<'a>) -> Result<Vec<Row>> {
        let above = self.above.clone();
        let mut rows: Vec<Row> = vec![];
        while group.iter().any(|&id| !self.is_complete(id)) {
            let mut candidate = None;
            for attempt in [PARALLEL].into_iter().chain(SERIAL) {
                if candidate.is_none() {
                    candidate = self.row(group, live, attempt)?;
                }
            }
            let Some(row) = candidate else { break };
            self.descend(&row);
            rows.push(Row { tile: TILE, ..row });
        }
        self.above = above;
        let skewed = rows.iter().flat_map(|r| &r.phi).any(|(_, phi)| phi.terms.len() > 1);
        if let [outer @ .., inner] = &rows[..]
            && !skewed
            && let Some(first) = (0..outer.len()).min_by_key(|&k| strided_bytes(self.scop, &outer[k], inner))
        {
            rows[..=first].rotate_right(1);
        }
        Ok(if rows.len() > 1 { rows } else { vec![] })
    }

    /// Notes that `row` is above the statements that it covers.
    fn descend(&mut self, row: &Row) {
        for (id, phi) in &row.phi {
            let theta = self.scop.statement(*id).vars().map(|v| phi.coefficient(v)).collect();
            self.above.get_mut(id).expect("every statement").push(theta);
        }
    }

    /// Loops over single values: parallel ones first.
    fn points(&mut self, group: &[StatementId], component: bool, live: LiveDependences<'a>) -> Result<Node> {
        let mut rows: Vec<Row> = vec![];
        while !group.iter().any(|&id| self.is_complete(id)) {
            let mut candidate = self.row(group, &live, PARALLEL)?;
            if let Some(row) = &candidate
                && !self.pays(row, &live)?
            {
                candidate = None;
            }
            if component {
                for attempt in SERIAL {
                    let attempt = Attempt { strides: group.len() > 1, ..attempt };
                    // Shifted and skewed loops are for bands that nothing else can start.
                    if candidate.is_none() && (rows.is_empty() || attempt.constant == 0) {
                        candidate = self.row(group, &live, attempt)?;
                    }
                }
            }
            let Some(row) = candidate else { break };
            let serial = !row.coincident;
            self.descend(&row);
            rows.push(row);
            if serial && group.len() > 1 && components(group, &self.rest(&rows, &live)).len() > 1 {
                break;
            }
            // A band of its own, which may carry less than one with the serial rows.
            if serial && group.iter().any(|id| self.innermost.contains_key(id) && self.complement(*id).len() == 1) {
                break;
            }
        }
        if rows.is_empty() {
            return if component { Err(self.stuck(group)) } else { self.cut(group, live) };
        }
        let rest = self.rest(&rows, &live);
        let child = if group.len() == 1 { self.group(group, rest)? } else { self.cut(group, rest)? };
        Ok(Node::Band(Band { rows, permutable: true }, Box::new(child)))
    }

    /// Returns the dependences that are not satisfied after `rows`.
    fn rest(&self, rows: &[Row], live: &LiveDependences<'a>) -> LiveDependences<'a> {
        let after = |(d, l): &(&'a Dependence, Unsatisfied)| {
            let left = rows.iter().try_fold(l.clone(), |l, row| l.after(self.scop, d, row))?;
            Some((*d, left))
        };
        live.iter().filter_map(after).collect()
    }

    /// Returns true if sharing the row moves fewer bytes than it spoils: a statement that would put a loop of larger
    /// stride there by itself loses the bytes that it moves with unit stride along this one.
    fn pays(&mut self, row: &Row, live: &[(&'a Dependence, Unsatisfied)]) -> Result<bool> {
        if row.phi.len() == 1 {
            return Ok(true);
        }
        let scatters = row.phi.iter().any(|p| self.scop.statement(p.0).is_scatter());
        if scatters && components(&row.phi.iter().map(|p| p.0).collect::<Vec<_>>(), &live.to_vec()).len() > 1 {
            return Ok(false);
        }
        let products = row.phi.iter().filter(|p| is_product(self.scop, p.0)).count();
        if products > 1 && components(&row.phi.iter().map(|p| p.0).collect::<Vec<_>>(), &live.to_vec()).len() > 1 {
            return Ok(false);
        }
        let shared: i64 =
            live.iter().filter(|(d, _)| d.source != d.sink).map(|(d, _)| d.bytes).fold(0, i64::saturating_add);
        let mut lost = 0i64;
        for (id, phi) in &row.phi {
            let stride = self.stride_of(*id, phi);
            if stride > 0 && self.complement(*id).len() > 1 {
                let alone: LiveDependences =
                    live.iter().filter(|(d, _)| d.source == *id && d.sink == *id).cloned().collect();
                if let Some(best) = self.row(&[*id], &alone, PARALLEL)? {
                    lost = lost.saturating_add(stride - self.stride_of(*id, &best.phi[0].1).min(stride));
                }
            }
        }
        Ok(lost <= shared)
    }

    fn stride_of(&self, id: StatementId, phi: &Affine) -> i64 {
        phi.terms.iter().map(|&(v, _)| self.stride[&id][v.0 as usize]).fold(0, i64::saturating_add)
    }

    fn stuck(&self, group: &[StatementId]) -> Error {
        Error::Limit(match self.effort.left {
            0 => format!("the integer programs took more than {} entries of linear relaxations", self.limit.left),
            _ => format!("no row was found for {}", self.names(group)),
        })
    }

    fn names(&self, group: &[StatementId]) -> String {
        let names: Vec<&str> = group.iter().map(|&id| self.scop.statement(id).name.as_str()).collect();
        names.join(", ")
    }

    /// A sequence of the groups that share a parallel row.
    fn cut(&mut self, group: &[StatementId], mut live: LiveDependences<'a>) -> Result<Node> {
        let mut unsatisfied = vec![];
        for (d, l) in live {
            if !l.is_empty(&self.isl)? {
                unsatisfied.push((d, l));
            }
        }
        live = unsatisfied;
        let separate = components(group, &live);
        if separate.len() == 1 {
            return self.group(group, live);
        }
        let clusters = self.join_clusters(separate, &live)?.ok_or_else(|| self.stuck(group))?;
        let mut children = vec![];
        for cluster in clusters {
            let node = self.group(&cluster, within(&cluster, &live))?;
            children.push((cluster, node));
        }
        Ok(Node::Sequence(children))
    }

    /// The clusters in an order of execution, those joined that share a parallel row which pays, greedily along the dependences that move most bytes.
    fn join_clusters(
        &mut self,
        separate: Vec<Vec<StatementId>>,
        live: &LiveDependences<'a>,
    ) -> Result<Option<Vec<Vec<StatementId>>>> {
        let mut edges: BTreeMap<(StatementId, StatementId), i64> = BTreeMap::new();
        for (d, _) in live.iter().filter(|(d, _)| d.source != d.sink) {
            let bytes: &mut i64 = edges.entry((d.source, d.sink)).or_default();
            *bytes = bytes.saturating_add(d.bytes);
        }
        let mut edges: Vec<_> = edges.into_iter().collect();
        edges.sort_by_key(|&(pair, bytes)| (-bytes, pair));
        let pairs = || edges.iter().map(|(pair, _)| *pair);
        let mut clusters = Clusters::new(separate);
        for (s, t) in pairs() {
            let Some(pair) = clusters.of(s, t) else { continue };
            let union = clusters.union(pair);
            if union.iter().any(|&id| self.is_complete(id)) || order(&clusters.with(pair), pairs()).is_none() {
                continue;
            }
            let inside = within(&union, live);
            match self.find_row(&union, &inside, PARALLEL)? {
                Found::Row(row) if self.pays(&row, &inside)? => clusters.join(pair),
                Found::Contradiction => clusters.keep_apart(pair),
                Found::Row(_) | Found::Nothing => {}
            }
        }
        Ok(order(&clusters.into_members(), pairs()))
    }
}

/// Returns true if a statement sums products of operands that are each reused along a loop of their own: it keeps
/// blocks of its target in registers and of its operands in the caches, for which a loop shared with another product
/// leaves no room. A small constant is part of the code.
fn is_product(scop: &Scop, id: StatementId) -> bool {
    let s = scop.statement(id);
    let written = |v: &Var| s.write.iter().any(|w| w.uses(*v));
    let (free, summed): (Vec<Var>, Vec<Var>) = s.vars().partition(written);
    let (mut reads, mut reused) = (0, true);
    s.body.visit_accesses(&mut |a| {
        let uses = |v: &Var| a.index.iter().any(|i| i.affine().is_none_or(|i| i.uses(*v)));
        reads += usize::from(scop.tensor(a.buffer).literals.is_none());
        reused &= free.iter().any(|v| !uses(v)) && free.iter().any(uses) && summed.iter().any(uses);
    });
    s.reduce.is_some() && reads > 1 && reused
}

/// 1 or -1 for each iterator, as the original order walks it.
fn directions(scop: &Scop, id: StatementId) -> Vec<i64> {
    let mut out = vec![1; scop.statement(id).iterators.len()];
    for step in scop.order.path(id) {
        if let TimeDimension::Row(row) = step
            && let [(v, -1)] = row.of(id).terms[..]
        {
            out[v.0 as usize] = -1;
        }
    }
    out
}

/// Bytes of the reads that move in the tile row `inner` and not in `outer`, which repeats them, and that do not move
/// along their last subscript: each line of a tile is in a page of its own.
fn strided_bytes(scop: &Scop, outer: &Row, inner: &Row) -> i64 {
    let mut bytes = 0i64;
    for (id, phi) in &outer.phi {
        let s = scop.statement(*id);
        let mut seen: Vec<&Access> = vec![];
        s.body.visit_accesses(&mut |a| {
            let affine = || a.index.iter().filter_map(Index::affine);
            let uses = |index: &Affine, phi: &Affine| phi.terms.iter().any(|t| index.uses(t.0));
            let repeated = !affine().any(|i| uses(i, phi)) && affine().any(|i| uses(i, inner.of(*id)));
            let along = a.index.last().and_then(Index::affine).is_some_and(|i| uses(i, inner.of(*id)));
            if repeated && !along && !seen.contains(&a) {
                seen.push(a);
                let used = s.vars().filter(|&v| affine().any(|i| i.uses(v)));
                let extents = used.map(|v| s.extent(v));
                let size = scop.tensor(a.buffer).dtype.bytes() as i64;
                bytes = bytes.saturating_add(extents.fold(size, i64::saturating_mul));
            }
        });
    }
    bytes
}

/// Bytes that the statement moves with unit stride along each iterator; writes move twice.
fn unit_stride_bytes(scop: &Scop, id: StatementId) -> Vec<i64> {
    let s = scop.statement(id);
    let mut bytes = vec![0; s.iterators.len()];
    let mut count = |buffer: BufferId, index: &[&Affine], times: i64| {
        let Some(last) = index.last() else { return };
        let used = s.vars().filter(|&v| index.iter().any(|a| a.uses(v)));
        let extents = used.map(|v| s.extent(v));
        let moved = extents.fold(times * scop.tensor(buffer).dtype.bytes() as i64, i64::saturating_mul);
        for &(v, c) in &last.terms {
            if c.abs() == 1 {
                bytes[v.0 as usize] = moved.saturating_add(bytes[v.0 as usize]);
            }
        }
    };
    if s.subscripts().last().is_some_and(|i| i.affine().is_some()) {
        count(s.target, &s.write.iter().collect::<Vec<_>>(), 2);
    }
    let mut seen: Vec<&Access> = vec![];
    s.body.visit_accesses(&mut |a| {
        // A constant is packed in the order in which it is read.
        if scop.tensor(a.buffer).role != Role::Constant && !seen.contains(&a) {
            seen.push(a);
            if a.index.last().is_some_and(|i| i.affine().is_some()) {
                count(a.buffer, &a.index.iter().filter_map(Index::affine).collect::<Vec<_>>(), 1);
            }
        }
    });
    bytes
}

pub mod scheduler;
#[cfg(test)]
mod tests;
