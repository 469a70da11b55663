//! Loop bounds, and the conditions that become bounds.

use crate::codegen::loopnest::{LoopKind, Stmt};
use crate::expr::Bound;
use crate::expr::interval::{Facts, ceil_div, constant_range};
use crate::expr::{Affine, Var};

/// The bounds without those that never decide.
pub fn tightest(bounds: Vec<Bound>, facts: &Facts, lower: bool) -> Vec<Bound> {
    let mut remaining: Vec<Bound> = vec![];
    let constant = bounds.iter().filter(|b| b.affine.is_constant()).map(|b| match lower {
        true => ceil_div(b.affine.constant, b.divisor),
        false => b.affine.constant.div_euclid(b.divisor),
    });
    let constant = if lower { constant.max() } else { constant.min() };
    for b in bounds {
        if b.affine.is_constant() || remaining.contains(&b) {
            continue;
        }
        let (lo, hi) = facts.bounds(&b.affine);
        let never = match (constant, lower) {
            (Some(c), true) => ceil_div(hi, b.divisor) <= c,
            (Some(c), false) => lo.div_euclid(b.divisor) >= c,
            (None, _) => false,
        };
        if !never {
            remaining.push(b);
        }
    }
    // the constant goes where some other bound is always tighter
    let needed = |c: i64| {
        !remaining.iter().any(|b| {
            let (lo, hi) = facts.bounds(&b.affine);
            if lower { ceil_div(lo, b.divisor) >= c } else { hi.div_euclid(b.divisor) <= c }
        })
    };
    if let Some(c) = constant.filter(|&c| needed(c)) {
        remaining.insert(0, Bound::constant(c));
    }
    remaining
}

/// The loop with the conditions that hold for all of its body moved into its bounds or before it.
pub fn sink_conditions(var: Var, l: &OldLoop, mut body: Vec<Stmt>) -> Vec<Stmt> {
    if body.is_empty() {
        return vec![];
    }
    let (mut lower, mut upper) = (l.lower.clone(), l.upper.clone());
    let mut outside = vec![];
    if !l.kind.is_parallel() {
        for c in common(&body).unwrap_or_default() {
            let k = c.coefficient(var);
            let others = c.clone().plus(var, -k);
            let taken = match (l.kind, k) {
                (_, 0) => {
                    outside.push(c.clone());
                    true
                }
                // k·v + rest ≥ 0: v ≥ ⌈-rest / k⌉
                (LoopKind::Serial, 1..) if l.step == 1 => {
                    lower.push(Bound { affine: others.scale(-1), divisor: k });
                    true
                }
                // v ≤ ⌊rest / -k⌋
                (LoopKind::Serial, ..=-1) => {
                    upper.push(Bound { affine: others.offset(-k), divisor: -k });
                    true
                }
                _ => false,
            };
            if taken {
                body = strip(body, &c);
            }
        }
    }
    let node = Stmt::Loop { var, lower, upper, step: l.step, kind: l.kind, body };
    if outside.is_empty() { vec![node] } else { vec![Stmt::If { conditions: outside, body: vec![node] }] }
}

/// The conditions under which each statement of `body` stands, over variables from outside; `None` for no statement.
fn common(body: &[Stmt]) -> Option<Vec<Affine>> {
    let mut in_all: Option<Vec<Affine>> = None;
    for stmt in body.iter().rev() {
        let of_statement = match stmt {
            Stmt::Store { .. } => Some(vec![]),
            Stmt::If { conditions, body } => {
                let mut both = conditions.clone();
                both.extend(common(body).unwrap_or_default());
                Some(both)
            }
            Stmt::Loop { var, body, .. } => {
                common(body).map(|conditions| conditions.into_iter().filter(|c| !c.uses(*var)).collect::<Vec<Affine>>())
            }
            Stmt::Let { var, .. } | Stmt::Read { var, .. } => {
                if let Some(in_all) = &mut in_all {
                    in_all.retain(|c| !c.uses(*var));
                }
                None
            }
        };
        in_all = match (in_all, of_statement) {
            (None, of_statement) => of_statement,
            (in_all, None) => in_all,
            (Some(in_all), Some(of_statement)) => {
                Some(in_all.into_iter().filter(|c| of_statement.contains(c)).collect())
            }
        };
    }
    let mut in_all = in_all?;
    let mut unique = vec![];
    in_all.retain(|c| {
        let new = !unique.contains(c);
        unique.push(c.clone());
        new
    });
    Some(in_all)
}

/// `body` without the condition.
fn strip(body: Vec<Stmt>, condition: &Affine) -> Vec<Stmt> {
    body.into_iter()
        .flat_map(|stmt| match stmt {
            Stmt::If { mut conditions, body } => {
                conditions.retain(|c| c != condition);
                let body = strip(body, condition);
                if conditions.is_empty() { body } else { vec![Stmt::If { conditions, body }] }
            }
            other => vec![other.map_body(|body| strip(body, condition))],
        })
        .collect()
}

/// A loop of the old nest with bounds over the variables of the new one.
#[derive(Clone)]
pub(super) struct OldLoop<'a> {
    pub(super) var: Var,
    pub(super) lower: Vec<Bound>,
    pub(super) upper: Vec<Bound>,
    pub(super) step: i64,
    pub(super) kind: LoopKind,
    pub(super) body: &'a [Stmt],
}

impl OldLoop<'_> {
    /// First value and one past the last bound, when they are constant.
    pub(super) fn constant_range(&self) -> Option<(i64, i64)> {
        constant_range(&self.lower, &self.upper)
    }
}
