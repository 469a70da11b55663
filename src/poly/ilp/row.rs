//! One row of a band, by one integer program (see [`super`] for the formula).
//!
//! In: the statements of a group, the pairs of instances that are still to be ordered, and what the row may look like.
//! Out: φ of each statement, checked by exact legality, its coincidence exact; or `None`.

use crate::expr::{Affine, Var};
use crate::poly::analysis::dependence::Dependence;
use crate::poly::analysis::legality::Unsatisfied;
use crate::poly::ilp::integer_program::{IntegerProgram, Linear, Outcome};
use crate::poly::ilp::scheduler::Scheduler;
use crate::poly::schedule::Row;
use crate::poly::sets::generators::generators;
use crate::poly::sets::polyhedron::{Form, Polyhedron, Reduced, minus, plus, unit};
use crate::poly::statement::StatementId;
use crate::runtime::Result;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Largest absolute value of a coefficient of a row. Unmeasured.
const MAX_COEFFICIENT: i64 = 4;
/// Largest constant of a row. Unmeasured.
const MAX_CONSTANT: i64 = 4;
/// Weight of the reuse distance.
const REUSE: i64 = 1 << 12;

/// The form that a row may take.
#[derive(Clone, Copy)]
pub(super) struct Attempt {
    pub parallel: bool,
    pub constant: i64,
    pub negative: bool,
    /// Strides count before reuse: for the outer one of several loops over single values.
    pub strides: bool,
}

pub(super) const PARALLEL: Attempt = Attempt { parallel: true, constant: 0, negative: false, strides: false };
pub(super) const SERIAL: [Attempt; 3] = [
    Attempt { parallel: false, ..PARALLEL },
    Attempt { parallel: false, constant: MAX_CONSTANT, ..PARALLEL },
    Attempt { parallel: false, constant: MAX_CONSTANT, negative: true, ..PARALLEL },
];

/// A row for a group of statements, or the reason that there is none.
pub(super) enum Found {
    Row(Row),
    /// No row of this form for any group with these statements and dependences: what is asked contradicts itself.
    Contradiction,
    Nothing,
}

/// The distances of each pair of statements: one for all dependences with the same pairs of instances.
type Distances<'a> = FxHashMap<(StatementId, StatementId), Vec<(&'a Rc<Reduced>, Vec<Linear>)>>;

impl<'a> Scheduler<'a> {
    /// One row for `group`, its coincidence exact, or `None`, as always when no effort is left. The solution is checked by
    /// exact legality.
    pub(super) fn row(
        &mut self,
        group: &[StatementId],
        live: &[(&'a Dependence, Unsatisfied)],
        attempt: Attempt,
    ) -> Result<Option<Row>> {
        Ok(match self.find_row(group, live, attempt)? {
            Found::Row(row) => Some(row),
            Found::Contradiction | Found::Nothing => None,
        })
    }

    /// [`Self::row`], with what there is instead of one.
    pub(super) fn find_row(
        &mut self,
        group: &[StatementId],
        live: &[(&'a Dependence, Unsatisfied)],
        attempt: Attempt,
    ) -> Result<Found> {
        let complements: Vec<Vec<Vec<i64>>> = group.iter().map(|&id| self.complement(id)).collect();
        let Some(first) = complements.iter().find(|c| !c.is_empty()) else { return Ok(Found::Nothing) };
        let signs = if attempt.negative { 1u32 << first.len().min(4) } else { 1 };
        for sign in 0..signs {
            if self.effort.left == 0 {
                return Ok(Found::Nothing);
            }
            let mut program = IntegerProgram::default();
            let unknowns = self.unknowns(group, attempt, &mut program);
            let mut distances = Distances::default();
            for (d, l) in live.iter().filter(|(d, _)| attempt.parallel || !d.reduction) {
                let of_pair = distances.entry((d.source, d.sink)).or_default();
                match of_pair.iter().find(|(reduced, _)| **reduced == l.reduced) {
                    Some((_, delta)) if attempt.parallel => program.equal_zero_again(delta),
                    Some((_, delta)) => self.charge(d, l, attempt, delta, &mut program),
                    None => {
                        let delta = self.distance(d, l, &unknowns);
                        self.constrain(l, attempt, &delta, &mut program)?;
                        self.charge(d, l, attempt, &delta, &mut program);
                        of_pair.push((&l.reduced, delta));
                    }
                }
            }
            for (complement, id) in complements.iter().zip(group).filter(|(c, _)| !c.is_empty()) {
                let mut sum = Linear::default();
                for (k, r) in complement.iter().enumerate() {
                    let sign = if sign.checked_shr(k as u32).is_some_and(|s| s & 1 == 1) { -1 } else { 1 };
                    let mut linear = Linear::default();
                    let single = r.iter().filter(|&&c| c != 0).count() == 1;
                    for (i, &c) in r.iter().enumerate() {
                        let c = sign * c * if single { 1 } else { self.direction[id][i] };
                        linear.add(unknowns[id] + i, c);
                        sum.add(unknowns[id] + i, c);
                    }
                    program.at_least_zero(linear);
                }
                sum.constant = -1;
                program.at_least_zero(sum);
            }
            self.report.programs += 1;
            self.report.ilp_variables = self.report.ilp_variables.max(program.unknowns());
            self.report.constraint_rows = self.report.constraint_rows.max(program.rows());
            let solution = match self.solutions.solve(program, &mut self.effort) {
                Outcome::Point(solution) => solution,
                Outcome::Contradiction if signs == 1 => return Ok(Found::Contradiction),
                Outcome::Contradiction | Outcome::Unknown => continue,
            };
            let phi = group.iter().map(|&id| {
                let n = self.scop.statement(id).iterators.len();
                let theta = &solution[unknowns[&id]..][..=n];
                let direction = &self.direction[&id];
                let terms = (0..n).filter(|&i| theta[i] != 0);
                let terms = terms.map(|i| (Var(i as u32), direction[i] * theta[i])).collect();
                (id, Affine { terms, constant: theta[n] })
            });
            let mut row = Row { coincident: true, ..Row::serial("", phi.collect()) };
            let mut legal = true;
            for (d, l) in live {
                legal &= d.reduction || l.respects(self.scop, d, &row, &self.isl)?;
                row.coincident = row.coincident && l.coincides(self.scop, d, &row, &self.isl)?;
            }
            if legal && (row.coincident || !attempt.parallel) {
                row.name = self.name(&row);
                return Ok(Found::Row(row));
            }
        }
        Ok(Found::Nothing)
    }

    /// The name of the innermost iterator in the row, for the deepest statement that has one.
    fn name(&self, row: &Row) -> String {
        row.phi
            .iter()
            .filter_map(|(id, phi)| {
                let (v, _) = phi.terms.last()?;
                let iterators = &self.scop.statement(*id).iterators;
                Some((iterators.len(), &iterators[v.0 as usize].name))
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
        let weight = if attempt.strides { REUSE << 4 } else { 1 };
        for &id in group {
            first.insert(id, program.unknowns());
            // Held back until it is the last one.
            let held = self.innermost.get(&id).filter(|_| self.complement(id).len() > 1);
            for (v, &cost) in self.scop.statement(id).vars().zip(&self.weights[&id]) {
                let (low, high) = if held == Some(&v) { (0, 0) } else { (low, high) };
                program.unknown(low, high, if attempt.negative { 0 } else { weight * cost });
            }
            program.unknown(0, attempt.constant, 1);
        }
        if attempt.negative {
            // |θ| = 2·max(0, θ) − θ is what costs.
            for &id in group {
                for (i, &cost) in self.weights[&id].iter().enumerate() {
                    let mut theta = Linear::default();
                    theta.add(first[&id] + i, 1);
                    program.charge(&theta, -weight * cost);
                    program.charge_positive(&theta, 2 * weight * cost);
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

    /// The distance δ in the row on the pairs `live`: `δ[free] + Σ δ[j]·z_j`, each coefficient linear in the unknowns.
    fn distance(&self, d: &Dependence, live: &Unsatisfied, first: &BTreeMap<StatementId, usize>) -> Vec<Linear> {
        let reduced = &live.reduced;
        let n = self.scop.statement(d.source).iterators.len();
        let mut delta: Vec<Linear> = (0..=reduced.free)
            .map(|j| {
                let mut c = Linear::default();
                for (v, form) in reduced.forms.iter().enumerate() {
                    match v.checked_sub(n) {
                        None => c.add(first[&d.source] + v, -form[j] * self.direction[&d.source][v]),
                        Some(i) => c.add(first[&d.sink] + i, form[j] * self.direction[&d.sink][i]),
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
        delta
    }

    /// Asks that the row respects a dependence on the pairs `live`, whose distance is `delta`.
    fn constrain(
        &mut self,
        live: &Unsatisfied,
        attempt: Attempt,
        delta: &[Linear],
        program: &mut IntegerProgram,
    ) -> Result<()> {
        if attempt.parallel {
            equal_zero(delta, program);
            return Ok(());
        }
        let (cone, reduced) = (cone(live, attempt.negative), &live.reduced);
        let rows = if is_simple(&cone, attempt) {
            // z ≥ lo alone: every coefficient, and the value at lo, are at least 0.
            let mut corner: Form = reduced.ranges.iter().map(|r| r.0.unwrap_or(0)).collect();
            corner.push(1);
            Rc::new((0..cone.dims).map(|j| unit(cone.dims, j)).chain([corner]).collect())
        } else if let Some(known) = self.generators.get(&cone) {
            known.clone()
        } else {
            let rows = Rc::new(generators(&cone)?);
            self.generators.insert(cone, rows.clone());
            rows
        };
        for row in rows.iter() {
            let mut linear = Linear::default();
            row.iter().zip(delta).for_each(|(&r, c)| linear.add_scaled(c, r));
            program.at_least_zero(linear);
        }
        Ok(())
    }

    /// Charges for the distance `delta` of a dependence.
    fn charge(
        &self,
        d: &Dependence,
        live: &Unsatisfied,
        attempt: Attempt,
        delta: &[Linear],
        program: &mut IntegerProgram,
    ) {
        if attempt.parallel {
            return;
        }
        let (reduced, is_simple) = (&live.reduced, is_simple(&cone(live, attempt.negative), attempt));
        // δ⁺: the greatest corner of the box, max(lo·c, hi·c) = lo·c + (hi − lo)·max(0, c) for each coefficient c.
        let bytes = if attempt.strides { 1 } else { REUSE } * (1 + d.bytes.ilog2() as i64);
        program.charge(&delta[reduced.free], bytes);
        for (coefficient, range) in delta.iter().zip(&reduced.ranges) {
            let (lo, hi) = (range.0.unwrap_or(0), range.1.unwrap_or(0));
            if is_simple {
                program.charge(coefficient, bytes * hi);
            } else if lo < hi {
                program.charge(coefficient, bytes * lo);
                program.charge_positive(coefficient, bytes * (hi - lo));
            }
        }
    }
}

/// Asks that all coefficients of a distance are 0.
fn equal_zero(delta: &[Linear], program: &mut IntegerProgram) {
    delta.iter().for_each(|c| program.equal_zero(c.clone()));
}

/// Returns true for pairs whose free variables have lower bounds and nothing else.
fn is_simple(cone: &Polyhedron, attempt: Attempt) -> bool {
    let bounds = |row: &Form| row[..cone.dims].iter().filter(|&&c| c != 0).count() == 1;
    cone.equalities.is_empty() && cone.inequalities.iter().all(bounds) && !attempt.negative
}

/// The pairs `live` over their free variables: all constraints when `exact`, else without upper bounds, which only shifted
/// or reversed loops need, and without what then follows from lower bounds.
fn cone(live: &Unsatisfied, exact: bool) -> Polyhedron {
    let r = &live.reduced;
    let mut out = Polyhedron { dims: r.free, equalities: r.equalities.clone(), inequalities: vec![] };
    for (j, (lo, hi)) in r.ranges.iter().enumerate() {
        let unit = unit(r.free, j);
        if let (Some(hi), true) = (hi, exact) {
            out.inequalities.push(minus(*hi, &unit));
        }
        if let Some(lo) = lo {
            out.inequalities.push(plus(&unit, -lo));
        }
    }
    let mixed = |row: &&Form| row[..r.free].iter().any(|&c| c > 0) && row[..r.free].iter().any(|&c| c < 0);
    out.inequalities.extend(r.inequalities.iter().filter(|row| exact || mixed(row)).cloned());
    out
}
