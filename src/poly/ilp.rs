//! Scheduling by integer linear programming, band row by band row.
//!
//! After Bondhugula, Hartono, Ramanujam, Sadayappan, "A Practical Automatic Polyhedral Parallelizer and Locality
//! Optimizer" (PLDI 2008), with the independence constraints of "The Pluto+ Algorithm" (TOPLAS 2016) in orthant form.
//!
//! In: a Scop and its dependences. Out: a tree of bands whose flags are exact, and a [`Report`]. One row gives every
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
//! Attempts, in order, the first with a solution counts: parallel, then (for one strongly connected component) with
//! coefficients 0..4 and constants 0, constants to 4, coefficients -4..4. A group of several components has only parallel
//! rows, one iterator of each statement, all of one length, and shares one only if that saves more bytes than it moves
//! with a worse stride; when there is none the group is cut into a sequence of groups that have one, joined greedily along
//! the dependences that move most bytes. Where nothing is found the original order is used and the report says so.
//!
//! How we differ from the paper: first δ ≥ 0 is asked for on the unbounded cone of the dependence (as if extents were
//! parameters), which is a condition on the signs of a few forms when subscripts are simple; the dual cone by isl
//! ([`Isl::nonnegative_forms`]) is used for the rest.

use crate::codegen::expr::{Access, Affine, BufferId, Index, Var};
use crate::poly::dependence::{Dependence, Dependences};
use crate::poly::integer_program::{IntegerProgram, Linear};
use crate::poly::isl::Isl;
use crate::poly::legality::{self, Live};
use crate::poly::polyhedron::{Form, Polyhedron, minus, orthogonal_complement};
use crate::poly::schedule::{Band, Node, Row, RowKind, Schedule};
use crate::poly::scop::{Role, Scop, StatementId};
use crate::poly::{Error, Result};
use std::collections::BTreeMap;

/// The effort of one scheduling.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// Band rows in the tree.
    pub rows: usize,
    /// Integer programs solved, and the variables and constraint rows of the largest.
    pub programs: usize,
    pub ilp_variables: usize,
    pub constraint_rows: usize,
    pub milliseconds: f64,
    /// Why the original order was used instead.
    pub fallback: Option<String>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(
            f,
            "{} rows by {} integer programs of at most {} unknowns and {} constraints, {:.1} ms",
            self.rows, self.programs, self.ilp_variables, self.constraint_rows, self.milliseconds
        )?;
        match &self.fallback {
            None => Ok(()),
            Some(why) => write!(f, "; {why}"),
        }
    }
}

const MAX_COEFFICIENT: i64 = 4;
const MAX_CONSTANT: i64 = 4;
/// Beyond this the original order is used.
const MAX_PROGRAMS: usize = 1000;
/// Weights of the sum: reuse distance, strides, order.
const REUSE: i64 = 1 << 12;
const STRIDE: i64 = 1 << 6;

/// Schedules `scop`. The result is legal: it has passed [`legality::check`].
pub fn schedule(scop: &Scop, dependences: &Dependences) -> Result<(Schedule, Report)> {
    let start = std::time::Instant::now();
    let mut scheduler = Scheduler::new(scop);
    let live = dependences.list.iter().map(|d| (d, Live::new(d))).collect();
    let found = scheduler
        .group(&scop.ids().collect::<Vec<_>>(), live)
        .map(|root| Schedule { root })
        .and_then(|s| legality::check(scop, dependences, &s).map(|()| s));
    let mut report = scheduler.report;
    let schedule = found.unwrap_or_else(|e| {
        report.fallback = Some(format!("original order: {e}"));
        scop.order.clone()
    });
    schedule.for_each_band(&mut |band| report.rows += band.rows.len());
    report.milliseconds = start.elapsed().as_secs_f64() * 1e3;
    Ok((schedule, report))
}

type LiveDependences<'a> = Vec<(&'a Dependence, Live)>;

struct Scheduler<'a> {
    scop: &'a Scop,
    isl: Isl,
    /// θ of the rows above each statement.
    above: BTreeMap<StatementId, Vec<Vec<i64>>>,
    /// [`unit_stride_bytes`] of each statement, and the cost of each coefficient that follows from them.
    stride: BTreeMap<StatementId, Vec<i64>>,
    weights: BTreeMap<StatementId, Vec<i64>>,
    report: Report,
}

/// What a row may look like.
#[derive(Clone, Copy)]
struct Attempt {
    parallel: bool,
    constant: i64,
    negative: bool,
}

const PARALLEL: Attempt = Attempt { parallel: true, constant: 0, negative: false };
const SERIAL: [Attempt; 3] = [
    Attempt { parallel: false, constant: 0, negative: false },
    Attempt { parallel: false, constant: MAX_CONSTANT, negative: false },
    Attempt { parallel: false, constant: MAX_CONSTANT, negative: true },
];

impl<'a> Scheduler<'a> {
    fn new(scop: &'a Scop) -> Scheduler<'a> {
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
            stride,
            weights,
            report: Report::default(),
        }
    }

    fn complement(&self, id: StatementId) -> Vec<Vec<i64>> {
        orthogonal_complement(&self.above[&id], self.scop.statement(id).iterators.len())
    }

    fn is_complete(&self, id: StatementId) -> bool {
        self.complement(id).is_empty()
    }

    /// The tree for `group`, whose pairs of instances `live` the rows above have not ordered.
    fn group(&mut self, group: &[StatementId], live: LiveDependences<'a>) -> Result<Node> {
        if let [id] = group
            && self.is_complete(*id)
        {
            return Ok(Node::Leaf);
        }
        let component = group.len() == 1 || components(group, &live).len() == 1;
        let mut rows: Vec<Row> = vec![];
        while !group.iter().any(|&id| self.is_complete(id)) {
            let mut found = self.row(group, &live, PARALLEL)?;
            if let Some(row) = &found
                && !self.pays(row, &live)?
            {
                found = None;
            }
            if component {
                for attempt in SERIAL {
                    // Shifted and skewed loops are for bands that nothing else can start.
                    if found.is_none() && (rows.is_empty() || attempt.constant == 0) {
                        found = self.row(group, &live, attempt)?;
                    }
                }
            }
            let Some(row) = found else { break };
            for (id, phi) in &row.phi {
                let theta = self.scop.statement(*id).vars().map(|v| phi.coefficient(v)).collect();
                self.above.get_mut(id).expect("every statement").push(theta);
            }
            rows.push(row);
        }
        if rows.is_empty() {
            return if component { Err(self.stuck(group)) } else { self.cut(group, live) };
        }
        let mut rest = vec![];
        for (d, mut l) in live {
            if rows.iter().all(|row| match l.after(self.scop, d, row) {
                Some(after) => {
                    l = after;
                    true
                }
                None => false,
            }) {
                rest.push((d, l));
            }
        }
        let child = if group.len() == 1 { self.group(group, rest)? } else { self.cut(group, rest)? };
        Ok(Node::Band(Band { rows, permutable: true }, Box::new(child)))
    }

    /// Whether sharing the row moves fewer bytes than it spoils: a statement that would put a loop of larger stride there by
    /// itself loses the bytes that it moves with unit stride along this one.
    fn pays(&mut self, row: &Row, live: &[(&'a Dependence, Live)]) -> Result<bool> {
        if row.phi.len() == 1 {
            return Ok(true);
        }
        let shared: i64 =
            live.iter().filter(|(d, _)| d.source != d.sink).map(|(d, _)| d.bytes).fold(0, i64::saturating_add);
        let mut lost = 0i64;
        for (id, phi) in &row.phi {
            let own = self.stride_of(*id, phi);
            if own > 0 && self.complement(*id).len() > 1 {
                let alone: LiveDependences =
                    live.iter().filter(|(d, _)| d.source == *id && d.sink == *id).cloned().collect();
                if let Some(best) = self.row(&[*id], &alone, PARALLEL)? {
                    lost = lost.saturating_add(own - self.stride_of(*id, &best.phi[0].1).min(own));
                }
            }
        }
        Ok(lost <= shared)
    }

    fn stride_of(&self, id: StatementId, phi: &Affine) -> i64 {
        phi.terms.iter().map(|&(v, _)| self.stride[&id][v.0 as usize]).fold(0, i64::saturating_add)
    }

    fn stuck(&self, group: &[StatementId]) -> Error {
        let names: Vec<&str> = group.iter().map(|&id| self.scop.statement(id).name.as_str()).collect();
        Error::Limit(format!("no row was found for {}", names.join(", ")))
    }

    /// A sequence of the groups that share a parallel row.
    fn cut(&mut self, group: &[StatementId], mut live: LiveDependences<'a>) -> Result<Node> {
        let mut kept = vec![];
        for (d, l) in live {
            if !l.is_empty(&self.isl)? {
                kept.push((d, l));
            }
        }
        live = kept;
        let mut clusters = components(group, &live);
        if clusters.len() == 1 {
            return Err(self.stuck(group));
        }
        let mut edges: BTreeMap<(StatementId, StatementId), i64> = BTreeMap::new();
        for (d, _) in live.iter().filter(|(d, _)| d.source != d.sink) {
            let bytes: &mut i64 = edges.entry((d.source, d.sink)).or_default();
            *bytes = bytes.saturating_add(d.bytes);
        }
        let mut edges: Vec<_> = edges.into_iter().collect();
        edges.sort_by_key(|&(pair, bytes)| (-bytes, pair));
        for ((s, t), _) in edges {
            let find = |id: StatementId| clusters.iter().position(|c| c.contains(&id)).expect("covered");
            let (a, b) = (find(s), find(t));
            if a == b || self.is_complete(s) || self.is_complete(t) {
                continue;
            }
            let mut union = [clusters[a].clone(), clusters[b].clone()].concat();
            union.sort();
            let mut next: Vec<_> =
                (0..clusters.len()).filter(|&c| c != a && c != b).map(|c| clusters[c].clone()).collect();
            next.push(union.clone());
            if order(&next, &live).is_some() {
                let inside = within(&union, &live);
                if let Some(row) = self.row(&union, &inside, PARALLEL)?
                    && self.pays(&row, &inside)?
                {
                    clusters = next;
                }
            }
        }
        clusters = order(&clusters, &live).ok_or_else(|| self.stuck(group))?;
        let mut children = vec![];
        for cluster in clusters {
            let node = self.group(&cluster, within(&cluster, &live))?;
            children.push((cluster, node));
        }
        Ok(Node::Sequence(children))
    }

    /// One row for `group`, its coincidence exact, or `None`. The solution is checked by exact legality.
    fn row(&mut self, group: &[StatementId], live: &[(&'a Dependence, Live)], attempt: Attempt) -> Result<Option<Row>> {
        let complements: Vec<Vec<Vec<i64>>> = group.iter().map(|&id| self.complement(id)).collect();
        if complements.iter().any(Vec::is_empty) {
            return Ok(None);
        }
        let signs = if attempt.negative { 1u32 << complements[0].len().min(4) } else { 1 };
        for sign in 0..signs {
            let mut program = IntegerProgram::default();
            let unknowns = self.unknowns(group, attempt, &mut program);
            for (d, l) in live.iter().filter(|(d, _)| attempt.parallel || !d.reduction) {
                self.constrain(d, l, attempt, &unknowns, &mut program)?;
            }
            for (complement, id) in complements.iter().zip(group) {
                let mut sum = Linear::default();
                for (k, r) in complement.iter().enumerate() {
                    let sign = if sign >> k & 1 == 1 { -1 } else { 1 };
                    let mut linear = Linear::default();
                    for (i, &c) in r.iter().enumerate() {
                        linear.add(unknowns[id] + i, sign * c);
                        sum.add(unknowns[id] + i, sign * c);
                    }
                    program.at_least_zero(linear);
                }
                sum.constant = -1;
                program.at_least_zero(sum);
            }
            if self.report.programs >= MAX_PROGRAMS {
                return Err(Error::Limit(format!("more than {MAX_PROGRAMS} integer programs")));
            }
            self.report.programs += 1;
            self.report.ilp_variables = self.report.ilp_variables.max(program.unknowns());
            self.report.constraint_rows = self.report.constraint_rows.max(program.rows());
            let Some(solution) = program.solve() else { continue };
            let phi = group.iter().map(|&id| {
                let n = self.scop.statement(id).iterators.len();
                let theta = &solution[unknowns[&id]..][..=n];
                let terms = (0..n).filter(|&i| theta[i] != 0).map(|i| (Var(i as u32), theta[i])).collect();
                (id, Affine { terms, constant: theta[n] })
            });
            let mut row =
                Row { name: String::new(), phi: phi.collect(), tile: 1, coincident: true, kind: RowKind::Serial };
            let mut legal = true;
            for (d, l) in live {
                legal &= d.reduction || l.respects(self.scop, d, &row, &self.isl)?;
                row.coincident = row.coincident && l.coincides(self.scop, d, &row, &self.isl)?;
            }
            if legal && (row.coincident || !attempt.parallel) {
                row.name = self.name(&row);
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// The name of the iterator that the row is, for the deepest statement for which it is one.
    fn name(&self, row: &Row) -> String {
        row.phi
            .iter()
            .filter_map(|(id, phi)| match phi.terms[..] {
                [(v, 1)] => Some(&self.scop.statement(*id).iterators).map(|its| (its.len(), &its[v.0 as usize].name)),
                _ => None,
            })
            .max_by_key(|(depth, _)| *depth)
            .map_or_else(|| "t".to_string(), |(_, name)| name.clone())
    }

    /// The unknowns θ and k of each statement (k after its θ) with their bounds and costs.
    fn unknowns(
        &self,
        group: &[StatementId],
        attempt: Attempt,
        program: &mut IntegerProgram,
    ) -> BTreeMap<StatementId, usize> {
        let mut first = BTreeMap::new();
        let shared = attempt.parallel && group.len() > 1;
        let low = if attempt.negative { -MAX_COEFFICIENT } else { 0 };
        let high = if shared { 1 } else { MAX_COEFFICIENT };
        for &id in group {
            first.insert(id, program.unknowns());
            for &cost in &self.weights[&id] {
                program.unknown(low, high, if attempt.negative { 0 } else { cost });
            }
            program.unknown(0, attempt.constant, 1);
        }
        if attempt.negative {
            // |θ| is what costs.
            for &id in group {
                for (i, &cost) in self.weights[&id].iter().enumerate() {
                    let size = program.unknown(0, MAX_COEFFICIENT, cost);
                    for sign in [1, -1] {
                        let mut row = Linear::default();
                        row.add(size, 1);
                        row.add(first[&id] + i, sign);
                        program.at_least_zero(row);
                    }
                }
            }
        }
        if shared {
            // A shared loop is one iterator of each statement, of one length.
            for &id in group {
                let mut one = Linear { constant: -1, ..Linear::default() };
                (0..self.scop.statement(id).iterators.len()).for_each(|i| one.add(first[&id] + i, 1));
                program.equal_zero(one);
            }
            let length = |id: StatementId| {
                let mut sum = Linear::default();
                for (i, it) in self.scop.statement(id).iterators.iter().enumerate() {
                    sum.add(first[&id] + i, it.extent - 1);
                }
                sum
            };
            for &id in &group[1..] {
                let mut row = length(id);
                row.add_scaled(&length(group[0]), -1);
                program.equal_zero(row);
            }
        }
        first
    }

    /// Asks that the row respects `d` on the pairs `live`, and charges for its distance.
    fn constrain(
        &self,
        d: &Dependence,
        live: &Live,
        attempt: Attempt,
        first: &BTreeMap<StatementId, usize>,
        program: &mut IntegerProgram,
    ) -> Result<()> {
        let reduced = &live.reduced;
        let n = self.scop.statement(d.source).iterators.len();
        // δ = delta[free] + Σ delta[j]·z_j, each coefficient linear in the unknowns.
        let mut delta: Vec<Linear> = (0..=reduced.free)
            .map(|j| {
                let mut c = Linear::default();
                for (v, form) in reduced.forms.iter().enumerate() {
                    match v.checked_sub(n) {
                        None => c.add(first[&d.source] + v, -form[j]),
                        Some(i) => c.add(first[&d.sink] + i, form[j]),
                    }
                }
                c
            })
            .collect();
        let k = |id: StatementId| first[&id] + self.scop.statement(id).iterators.len();
        delta[reduced.free].add(k(d.sink), 1);
        delta[reduced.free].add(k(d.source), -1);
        // Free variables with one value belong to the constant.
        for j in 0..reduced.free {
            if let (Some(lo), Some(hi)) = reduced.ranges[j]
                && lo == hi
            {
                let c = std::mem::take(&mut delta[j]);
                delta[reduced.free].add_scaled(&c, lo);
            }
        }
        if attempt.parallel {
            delta.into_iter().for_each(|c| program.equal_zero(c));
            return Ok(());
        }
        let cone = cone(live, attempt.negative);
        let simple = cone.equalities.is_empty()
            && cone.inequalities.iter().all(|row| row[..cone.dims].iter().filter(|&&c| c != 0).count() == 1)
            && !attempt.negative;
        let rows = if simple {
            // z ≥ lo alone: every coefficient, and the value at lo, are at least 0.
            let mut corner: Form = reduced.ranges.iter().map(|r| r.0.unwrap_or(0)).collect();
            corner.push(1);
            let unit = |j: usize| (0..=cone.dims).map(|i| i64::from(i == j)).collect();
            (0..cone.dims).map(unit).chain([corner]).collect()
        } else {
            self.isl.nonnegative_forms(&cone)?
        };
        for row in rows {
            let mut linear = Linear::default();
            row.iter().zip(&delta).for_each(|(&r, c)| linear.add_scaled(c, r));
            program.at_least_zero(linear);
        }
        // δ⁺: with coefficients known to be at least 0 the greatest corner, else a bound on each term.
        let bytes = REUSE * (1 + d.bytes.ilog2() as i64);
        program.charge(&delta[reduced.free], bytes);
        for (coefficient, range) in delta.iter().zip(&reduced.ranges) {
            let (lo, hi) = (range.0.unwrap_or(0), range.1.unwrap_or(0));
            if simple {
                program.charge(coefficient, bytes * hi);
            } else if lo < hi {
                let limit = 64 * lo.abs().max(hi.abs()).max(1);
                let term = program.unknown(-limit, limit, bytes);
                for end in [lo, hi] {
                    let mut row = Linear::default();
                    row.add(term, 1);
                    row.add_scaled(coefficient, -end);
                    program.at_least_zero(row);
                }
            }
        }
        Ok(())
    }
}

/// The pairs `live` over their free variables: all constraints when `exact`, else without upper bounds, which only shifted
/// or reversed loops need, and without what then follows from lower bounds.
fn cone(live: &Live, exact: bool) -> Polyhedron {
    let r = &live.reduced;
    let mut out = Polyhedron { dims: r.free, equalities: r.equalities.clone(), inequalities: vec![] };
    for (j, (lo, hi)) in r.ranges.iter().enumerate() {
        let mut unit = vec![0; r.free + 1];
        unit[j] = 1;
        if let (Some(hi), true) = (hi, exact) {
            out.inequalities.push(minus(*hi, &unit));
        }
        if let Some(lo) = lo {
            unit[r.free] = -lo;
            out.inequalities.push(unit);
        }
    }
    let mixed = |row: &&Form| row[..r.free].iter().any(|&c| c > 0) && row[..r.free].iter().any(|&c| c < 0);
    out.inequalities.extend(r.inequalities.iter().filter(|row| exact || mixed(row)).cloned());
    out
}

/// Bytes that the statement moves with unit stride along each iterator; writes move twice.
fn unit_stride_bytes(scop: &Scop, id: StatementId) -> Vec<i64> {
    let s = scop.statement(id);
    let mut bytes = vec![0; s.iterators.len()];
    let mut count = |buffer: BufferId, index: &[&Affine], times: i64| {
        let Some(last) = index.last() else { return };
        let used = s.vars().filter(|&v| index.iter().any(|a| a.uses(v)));
        let extents = used.map(|v| s.iterators[v.0 as usize].extent);
        let moved = extents.fold(times * scop.tensor(buffer).dtype.bytes() as i64, i64::saturating_mul);
        for &(v, c) in &last.terms {
            if c.abs() == 1 {
                bytes[v.0 as usize] = moved.saturating_add(bytes[v.0 as usize]);
            }
        }
    };
    count(s.target, &s.write.iter().collect::<Vec<_>>(), 2);
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

/// The dependences between statements of `group`.
fn within<'a>(group: &[StatementId], live: &LiveDependences<'a>) -> LiveDependences<'a> {
    live.iter().filter(|(d, _)| group.contains(&d.source) && group.contains(&d.sink)).cloned().collect()
}

/// Strongly connected components, in an order of execution.
fn components(group: &[StatementId], live: &LiveDependences) -> Vec<Vec<StatementId>> {
    let n = group.len();
    let at = |id: StatementId| group.iter().position(|&g| g == id).expect("in the group");
    let mut reaches = vec![vec![false; n]; n];
    live.iter().for_each(|(d, _)| reaches[at(d.source)][at(d.sink)] = true);
    for k in 0..n {
        for i in 0..n {
            for j in 0..n {
                reaches[i][j] |= reaches[i][k] && reaches[k][j];
            }
        }
    }
    let mut out: Vec<Vec<StatementId>> = vec![];
    for i in 0..n {
        match out.iter_mut().find(|c| reaches[i][at(c[0])] && reaches[at(c[0])][i]) {
            Some(c) => c.push(group[i]),
            None => out.push(vec![group[i]]),
        }
    }
    order(&out, live).expect("components have no cycle")
}

/// The clusters in an order of execution, the earliest statements first; `None` when they depend on each other in a cycle.
fn order(clusters: &[Vec<StatementId>], live: &LiveDependences) -> Option<Vec<Vec<StatementId>>> {
    let mut left: Vec<&Vec<StatementId>> = clusters.iter().collect();
    left.sort_by_key(|c| c.iter().min().copied());
    let mut out = vec![];
    while !left.is_empty() {
        let waits = |c: &Vec<StatementId>| {
            live.iter()
                .any(|(d, _)| c.contains(&d.sink) && left.iter().any(|other| *other != c && other.contains(&d.source)))
        };
        let next = left.iter().position(|c| !waits(c))?;
        out.push(left.remove(next).clone());
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::expr::{BinaryOp, Expr, UnaryOp};
    use crate::poly::{build, dependence, samples, scop};

    /// The schedule of a program; it must come from the integer programs and be legal.
    fn scheduled(p: &scop::Program) -> String {
        let scop = build::build("t", p).unwrap();
        let d = dependence::analyze(&scop).unwrap();
        let (schedule, report) = schedule(&scop, &d).unwrap();
        assert_eq!(report.fallback, None);
        legality::check(&scop, &d, &schedule).unwrap();
        schedule.print(&scop)
    }

    /// A band over all three statements of a reduction, then the reduced loops.
    fn reduction(outer: &str, reduced: &str, [init, update, post]: [&str; 3]) -> String {
        let mut out = "band permutable\n".to_string();
        for i in outer.split_whitespace() {
            out += &format!("  {i} [serial coincident] {init}({i}), {update}({i}), {post}({i})\n");
        }
        out += &format!("  sequence\n    {{{init}}}\n      leaf\n    {{{update}}}\n      band permutable\n");
        for i in reduced.split_whitespace() {
            out += &format!("        {i} [serial] {update}({i})\n");
        }
        out + &format!("        leaf\n    {{{post}}}\n      leaf\n")
    }

    #[test]
    fn matrix_product() {
        assert_eq!(scheduled(&samples::matmul(64, 48, 32)), reduction("m n", "k", ["C_init", "C_update", "C"]));
    }

    #[test]
    fn convolution_with_bias_and_relu() {
        let g = samples::Conv { size: 56, channels: 64, filters: 64, kernel: 3, stride: 1, pad: 1 };
        let names = ["conv_init", "conv_update", "Y"];
        assert_eq!(scheduled(&samples::conv(g)), reduction("h w f", "r s c", names));
        assert_eq!(
            scheduled(&samples::conv(samples::Conv { kernel: 7, stride: 2, pad: 3, channels: 3, ..g })),
            reduction("h w f", "r s c", names)
        );
        assert_eq!(scheduled(&samples::conv(samples::Conv { kernel: 1, pad: 0, ..g })), reduction("hw f", "c", names));
    }

    #[test]
    fn depthwise_and_pooling() {
        let names = ["Y_init", "Y_update", "Y"];
        assert_eq!(scheduled(&samples::depthwise(14, 96, 3, 2, 1)), reduction("h w c", "r s", names));
        assert_eq!(scheduled(&samples::maxpool(112, 64, 3, 2, 1)), reduction("h w c", "r s", names));
    }

    #[test]
    fn softmax() {
        assert_eq!(
            scheduled(&samples::softmax(12, 128, 64)),
            "band permutable
  hi [serial coincident] top_init(hi), top_update(hi), e(hi), total_init(hi), total_update(hi), Y(hi)
  sequence
    {top_init}
      leaf
    {top_update}
      band permutable
        j [serial] top_update(j)
        leaf
    {e}
      band permutable
        j [serial coincident] e(j)
        leaf
    {total_init}
      leaf
    {total_update}
      band permutable
        j [serial] total_update(j)
        leaf
    {Y}
      band permutable
        j [serial coincident] Y(j)
        leaf
"
        );
    }

    #[test]
    fn layer_normalisation() {
        let text = scheduled(&samples::layernorm(128, 768));
        assert!(text.starts_with(
            "band permutable
  i [serial coincident] total_init(i), total_update(i), mean(i), square_init(i), square_update(i), inverse(i), Y(i)
  sequence
    {total_init}
"
        ));
    }

    #[test]
    fn sharing_a_loop_must_not_spoil_strides() {
        // A row computed once and added to every row of a matrix: in one loop over columns the matrix would be
        // walked down its columns.
        let mut p = scop::Program::default();
        let x = samples::tensor(&mut p, Role::Input, "X", &[64]);
        let z = samples::tensor(&mut p, Role::Input, "Z", &[32, 64]);
        let y = samples::tensor(&mut p, Role::Output, "Y", &[32, 64]);
        let e = samples::tensor(&mut p, Role::Temporary, "e", &[64]);
        let exp = Expr::unary(UnaryOp::Exp, Expr::load(x, samples::vars(1)));
        samples::define(&mut p, e, "j 64", 1, None, vec![], exp);
        let sum = samples::add(Expr::load(z, samples::vars(2)), Expr::load(e, vec![samples::v(1)]));
        samples::define(&mut p, y, "i 32, j 64", 2, None, vec![], sum);
        assert_eq!(
            scheduled(&p),
            "sequence
  {e}
    band permutable
      j [serial coincident] e(j)
      leaf
  {Y}
    band permutable
      i [serial coincident] Y(i)
      j [serial coincident] Y(j)
      leaf
"
        );
    }

    #[test]
    fn shared_loops_are_iterators_of_one_length() {
        // Concatenation along the columns: 20 and 33 of them.
        let mut p = scop::Program::default();
        let a = samples::tensor(&mut p, Role::Input, "A", &[6, 20]);
        let b = samples::tensor(&mut p, Role::Input, "B", &[6, 33]);
        let y = samples::tensor(&mut p, Role::Output, "Y", &[6, 53]);
        samples::define(&mut p, y, "i 6, j 20", 2, None, vec![], Expr::load(a, samples::vars(2)));
        samples::define(&mut p, y, "i 6, j 33", 2, None, vec![], Expr::load(b, samples::vars(2)));
        p.definitions[1].write[1].constant = 20;
        assert_eq!(
            scheduled(&p),
            "band permutable
  i [serial coincident] Y(i), Y_2(i)
  sequence
    {Y}
      band permutable
        j [serial coincident] Y(j)
        leaf
    {Y_2}
      band permutable
        j [serial coincident] Y_2(j)
        leaf
"
        );
    }

    #[test]
    fn many_statements_share_their_rows() {
        // Twelve times: divide each row by its sum.
        let mut p = scop::Program::default();
        let mut x = samples::tensor(&mut p, Role::Input, "X", &[64, 96]);
        let y = samples::tensor(&mut p, Role::Output, "Y", &[64, 96]);
        for k in 0..12 {
            let total = samples::tensor(&mut p, Role::Temporary, &format!("total{k}"), &[64]);
            let next = if k == 11 { y } else { samples::tensor(&mut p, Role::Temporary, &format!("x{k}"), &[64, 96]) };
            let load = |t, n| Expr::load(t, samples::vars(n));
            samples::define(&mut p, total, "i 64, j 96", 1, Some(BinaryOp::Add), vec![], load(x, 2));
            let quotient = Expr::binary(BinaryOp::Div, load(x, 2), load(total, 1));
            let quotient = Expr::unary(UnaryOp::Exp, quotient);
            samples::define(&mut p, next, "i 64, j 96", 2, None, vec![], quotient);
            x = next;
        }
        let text = scheduled(&p);
        assert!(
            text.starts_with("band permutable\n  i [serial coincident] total0_init(i), total0_update(i), x0(i), "),
            "{text}"
        );
        assert_eq!(text.lines().filter(|l| l.trim_start().starts_with("j [")).count(), 24);
    }

    #[test]
    fn elementwise() {
        assert_eq!(
            scheduled(&samples::elementwise([1, 14, 14, 96])),
            "band permutable\n  hwc [serial coincident] Y(hwc)\n  leaf\n"
        );
    }
}
