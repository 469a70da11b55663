//! Inversion of schedules: statement iterators as functions of loop variables.

use crate::codegen::loopnest::Stmt;
use crate::expr::{Affine, Var};
use crate::poly::lower::state::Solution;
use crate::poly::lower::state::{Lowering, Site};
use crate::poly::statement::StatementId;
use crate::runtime::{Error, Result};

/// An equation `Σ coefficient·iterator = value`, value affine in loop variables.
struct Equation {
    iterators: Affine,
    value: Affine,
}

impl Lowering<'_> {
    /// Each iterator of the statement as an affine form of loop variables, and conditions (`≥ 0`): for equations that say
    /// more than the iterators need and for bounds of iterators that the loops exceed. With `partial`, iterators without
    /// a row are left at 0. Iterators that one equation fixes together, `4·a + b = value`, are digits of the value: the
    /// statements that divide come first.
    pub(super) fn iterators(&mut self, id: StatementId, site: &Site, partial: bool) -> Result<Solution> {
        let s = self.scop.statement(id);
        let mut lets = vec![];
        let mut equations: Vec<Equation> = vec![];
        for (phi, value) in site.rows.iter().filter_map(|r| r.equation(id)) {
            let constant = phi.constant;
            equations.push(Equation { iterators: phi.offset(-constant), value: value.offset(-constant) });
        }
        let mut solved: Vec<Option<Affine>> =
            s.iterators.iter().map(|it| (it.extent == 1).then(|| Affine::constant(0))).collect();
        let mut conditions = vec![];
        // Gaussian elimination by unit coefficients: solved iterators are replaced in what is left.
        loop {
            let mut progress = None;
            for (i, e) in equations.iter_mut().enumerate() {
                let mut left = Affine::constant(0);
                let mut value = e.value.clone();
                for &(v, c) in &e.iterators.terms {
                    match &solved[v.0 as usize] {
                        Some(known) => value = value.add_scaled(known, -c),
                        None => left = left.plus(v, c),
                    }
                }
                *e = Equation { iterators: left, value };
                if progress.is_none()
                    && let Some(&(v, c)) = e.iterators.terms.iter().find(|t| t.1.abs() == 1)
                    && e.iterators.terms.len() == 1
                {
                    progress = Some((i, v, c));
                }
            }
            let Some((i, v, c)) = progress else {
                if let Some(e) = eliminate(&mut equations) {
                    equations.push(e);
                    continue;
                }
                let extent = |v: Var| s.extent(v);
                let mut positional = equations.iter().position(|e| is_positional(&e.iterators, &extent));
                if positional.is_none() {
                    echelon(&mut equations);
                    positional = equations.iter().position(|e| is_positional(&e.iterators, &extent));
                }
                let Some(i) = positional else { break };
                let e = equations.swap_remove(i);
                conditions.extend(self.digits(e, &mut solved, &mut lets));
                continue;
            };
            let e = equations.swap_remove(i);
            solved[v.0 as usize] = Some(e.value.scale(c));
        }
        let mut is_exact = lets.is_empty();
        for e in equations {
            if !e.iterators.is_constant() {
                return Err(Error::Unsupported(format!(
                    "the schedule of {} in {} fixes its iterators only up to a stride",
                    s.name, self.scop.name
                )));
            }
            if !(e.value.is_constant() && e.value.constant == 0) {
                conditions.push(e.value.scale(-1));
                conditions.push(e.value);
                is_exact = false;
            }
        }
        let mut value = vec![];
        for (k, (it, solution)) in s.iterators.iter().zip(solved).enumerate() {
            match solution {
                Some(v) => {
                    conditions.push(v.clone());
                    conditions.push(v.scale(-1).offset(it.extent - 1));
                    value.push(v);
                }
                None if partial => value.push(Affine::constant(0)),
                None => {
                    return Err(Error::refused(format!(
                        "no row of {} says when iterator {} of {} (number {k}) runs",
                        self.scop.name, it.name, s.name
                    )));
                }
            }
        }
        let range = self.range();
        conditions.retain(|c| c.bounds(&range).0 < 0);
        Ok(Solution { iterators: value, conditions, lets, is_exact })
    }

    /// Solves an equation that [`is_positional`]: each iterator is a digit of the value. Returns the conditions under which
    /// nothing is left over.
    fn digits(&mut self, e: Equation, solved: &mut [Option<Affine>], lets: &mut Vec<Stmt>) -> Vec<Affine> {
        let mut terms = e.iterators.terms.clone();
        terms.sort_by_key(|t| -t.1);
        let mut left = e.value;
        for (v, c) in terms {
            let digit = if c == 1 {
                left.clone()
            } else {
                let (lo, hi) = left.bounds(self.range());
                let q = self.new_var("q", (lo.div_euclid(c), hi.div_euclid(c)));
                lets.push(Stmt::Let { var: q, value: left.clone(), divisor: c });
                Affine::var(q)
            };
            left = left.add_scaled(&digit, -c);
            solved[v.0 as usize] = Some(digit);
        }
        if left.is_constant() && left.constant == 0 { vec![] } else { vec![left.scale(-1), left] }
    }
}

/// Returns true if the sum of any smaller terms stays below each coefficient, as in a number system.
fn is_positional(a: &Affine, extent: &impl Fn(Var) -> i64) -> bool {
    let mut terms = a.terms.clone();
    terms.sort_by_key(|t| t.1);
    let mut below = 0;
    !terms.is_empty()
        && terms.iter().all(|&(v, c)| {
            let fits = c > below;
            below += c * (extent(v) - 1);
            fits
        })
}

/// Brings the equations into echelon form by unimodular steps, leading coefficients positive.
fn echelon(equations: &mut [Equation]) {
    let mut vars: Vec<Var> = equations.iter().flat_map(|e| e.iterators.terms.iter().map(|t| t.0)).collect();
    vars.sort();
    vars.dedup();
    let mut done = 0;
    for v in vars {
        let coefficient = |e: &Equation| e.iterators.coefficient(v);
        while let Some(small) = (done..equations.len())
            .filter(|&i| coefficient(&equations[i]) != 0)
            .min_by_key(|&i| coefficient(&equations[i]).abs())
        {
            equations.swap(done, small);
            if coefficient(&equations[done]) < 0 {
                let e = &equations[done];
                equations[done] = Equation { iterators: e.iterators.scale(-1), value: e.value.scale(-1) };
            }
            let (head, rest) = equations.split_at_mut(done + 1);
            let pivot = &head[done];
            for e in rest.iter_mut() {
                let k = -(coefficient(e).div_euclid(coefficient(pivot)));
                *e = Equation {
                    iterators: e.iterators.add_scaled(&pivot.iterators, k),
                    value: e.value.add_scaled(&pivot.value, k),
                };
            }
            if rest.iter().all(|e| coefficient(e) == 0) {
                done += 1;
                break;
            }
        }
    }
}

/// Adds a multiple of one equation to another so that an iterator with a unit coefficient goes; the changed equation is
/// taken out of the list and returned. `None` when there is nothing to combine.
fn eliminate(equations: &mut Vec<Equation>) -> Option<Equation> {
    for i in 0..equations.len() {
        let Some(&(v, c)) = equations[i].iterators.terms.iter().find(|t: &&(Var, i64)| t.1.abs() == 1) else {
            continue;
        };
        if let Some(j) = (0..equations.len()).find(|&j| j != i && equations[j].iterators.uses(v)) {
            let k = -equations[j].iterators.coefficient(v) * c;
            let iterators = equations[j].iterators.add_scaled(&equations[i].iterators, k);
            let value = equations[j].value.add_scaled(&equations[i].value, k);
            equations.swap_remove(j);
            return Some(Equation { iterators, value });
        }
    }
    None
}
