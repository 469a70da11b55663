//! Segments of a vector loop in which conditions over its variable are decided.
//!
//! In: the body of a loop over lanes. Out: the intervals of its variable between which no condition over it alone changes, and the statements of one
//! of them. This is index-set splitting for conditions that no instruction does lane by lane.

use crate::codegen::loopnest::Stmt;
use crate::expr::interval::ceil_div;
use crate::expr::{Affine, Var};

/// Returns true for a condition over one variable.
fn is_over(c: &Affine, var: Var) -> bool {
    matches!(c.terms[..], [(v, _)] if v == var)
}

/// Calls `f` for the statements under conditions over one variable alone.
pub fn visit_guarded<'s>(body: &'s [Stmt], var: Var, guarded: bool, f: &mut impl FnMut(&'s Stmt)) {
    for s in body {
        let here = guarded || matches!(s, Stmt::If { conditions, .. } if conditions.iter().any(|c| is_over(c, var)));
        if here && s.body().is_empty() {
            f(s);
        }
        visit_guarded(s.body(), var, here, f);
    }
}

/// The first values of the segments of a loop from 0, in their order, and its end.
pub fn segments(body: &[Stmt], var: Var, extent: i64) -> Vec<i64> {
    let mut out = vec![0, extent];
    for s in body {
        s.visit(&mut |s| {
            let Stmt::If { conditions, .. } = s else { return };
            for c in conditions.iter().filter(|c| is_over(c, var)) {
                out.push(match c.coefficient(var) {
                    k if k > 0 => ceil_div(-c.constant, k),
                    k => c.constant.div_euclid(-k) + 1,
                });
            }
        });
    }
    out.retain(|first| (0..=extent).contains(first));
    out.sort();
    out.dedup();
    out
}

/// The statements of the segment that begins with a value.
pub fn decided(body: &[Stmt], var: Var, first: i64) -> Vec<Stmt> {
    let mut out = vec![];
    for s in body {
        match s {
            Stmt::If { conditions, body } => {
                let (of_lanes, others): (Vec<&Affine>, Vec<&Affine>) = conditions.iter().partition(|c| is_over(c, var));
                if !of_lanes.iter().all(|c| c.evaluate(|_| first) >= 0) {
                    continue;
                }
                let body = decided(body, var, first);
                match others.is_empty() {
                    true => out.extend(body),
                    false => out.push(Stmt::If { conditions: others.into_iter().cloned().collect(), body }),
                }
            }
            s => out.push(s.with_body(decided(s.body(), var, first))),
        }
    }
    out
}
