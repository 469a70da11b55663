//! Whether the iterations of a parallel loop do equal work.
//!
//! In: a parallel loop. Out: whether parts of equally many iterations would keep threads waiting for each other: the loops
//! inside are counted at the middle of the loops around them, for iterations spread over the whole loop.

use crate::codegen::expr::{Affine, Var};
use crate::codegen::interval::ceil_div;
use crate::codegen::loopnest::{Bound, LoopKind, Stmt};
use std::collections::{HashMap, HashSet};

/// Iterations that are counted.
const SAMPLES: i64 = 32;
/// Parts that are compared, and how much more than the mean one may do.
const PARTS: usize = 4;
const UNEVEN: f64 = 1.2;

/// Whether the work of a phase's iterations differs so much that threads should take them as they get done with others.
pub fn is_uneven(phase: &Stmt) -> bool {
    let Stmt::Loop { var, lower, upper, kind, body, .. } = phase else { return false };
    match kind {
        LoopKind::Waves { .. } => return true,
        LoopKind::Parallel if bounds_use(body, &mut HashSet::from([*var])) => {}
        _ => return false,
    }
    let mut values = HashMap::new();
    let (first, end) = range(lower, upper, &values);
    let samples = SAMPLES.min(end - first);
    let mut parts = [0.0; PARTS];
    for k in 0..samples {
        values.insert(*var, first + (end - first) * k / samples);
        parts[k as usize * PARTS / samples as usize] += work(body, &mut values);
    }
    samples >= PARTS as i64 && parts.into_iter().fold(0.0, f64::max) > UNEVEN * parts.iter().sum::<f64>() / PARTS as f64
}

/// Whether some loop inside has other bounds in other iterations of the loops over `vars`.
fn bounds_use(body: &[Stmt], vars: &mut HashSet<Var>) -> bool {
    body.iter().any(|stmt| match stmt {
        Stmt::Loop { lower, upper, body, .. } => {
            lower.iter().chain(upper).any(|b| b.affine.terms.iter().any(|t| vars.contains(&t.0)))
                || bounds_use(body, vars)
        }
        Stmt::Let { var, value, .. } => {
            if value.terms.iter().any(|t| vars.contains(&t.0)) {
                vars.insert(*var);
            }
            false
        }
        Stmt::If { body, .. } => bounds_use(body, vars),
        Stmt::Store { .. } => false,
    })
}

/// Stores that are executed, roughly.
fn work(body: &[Stmt], values: &mut HashMap<Var, i64>) -> f64 {
    let mut sum = 0.0;
    for stmt in body {
        sum += match stmt {
            Stmt::Store { .. } => 1.0,
            Stmt::Let { var, value, divisor } => {
                values.insert(*var, at(value, values).div_euclid(*divisor));
                0.0
            }
            Stmt::If { conditions, body } => match conditions.iter().all(|c| at(c, values) >= 0) {
                true => work(body, values),
                false => 0.0,
            },
            Stmt::Loop { var, lower, upper, step, body, .. } => {
                let (first, end) = range(lower, upper, values);
                let count = ceil_div((end - first).max(0), *step);
                values.insert(*var, first + count / 2 * step);
                if count > 0 { count as f64 * work(body, values) } else { 0.0 }
            }
        };
    }
    sum
}

/// The first value and one past the last.
fn range(lower: &[Bound], upper: &[Bound], values: &HashMap<Var, i64>) -> (i64, i64) {
    let first = lower.iter().map(|b| ceil_div(at(&b.affine, values), b.divisor)).max();
    let end = upper.iter().map(|b| at(&b.affine, values).div_euclid(b.divisor)).min();
    (first.unwrap_or(0), end.unwrap_or(0))
}

fn at(a: &Affine, values: &HashMap<Var, i64>) -> i64 {
    a.evaluate(|v| values.get(&v).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::parse::nest;

    #[test]
    fn triangles_and_waves_are_uneven_and_boxes_are_not() {
        let uneven = |head: &str, inner: &str| {
            let text = format!(
                "kernel p {{ A: f64[64][64] argument 0 written;
                   {head} t in 0..64 {{ let i = floor(t / 1); for j in {inner} {{ A[t][j] = f64(1.0); }} }} }}"
            );
            is_uneven(&nest(&text).unwrap().body[0])
        };
        assert!(uneven("parallel", "0..t") && uneven("parallel", "i..64"));
        assert!(!uneven("parallel", "0..64") && !uneven("for", "0..t"));
        // Bounds that differ at the edge only.
        assert!(!uneven("parallel", "max(0, t - 60)..64"));
        assert!(uneven("waves 8", "0..64"));
    }
}
