//! The loops of a statement whose bounds come from data ([`crate::expr::dynamic_bounds`]).
//!
//! In: a statement over a domain with static bounds. Out: the iterators that its value bounds by data, and the iterators that these
//! bounds depend on. Lowering narrows such a loop where it stands inside of all of them.

use crate::expr::dynamic_bounds::{DynamicBound, Target};
use crate::expr::{Expr, Var};
use crate::poly::scop::Scop;
use crate::poly::statement::{Statement, StatementId};

/// An iterator with bounds from data.
#[derive(Clone, PartialEq, Debug)]
pub struct DynamicLoop {
    pub var: Var,
    /// The iterators that the bounds depend on.
    pub outer: Vec<Var>,
    /// Iterations, where the data divide the range of the iterator evenly.
    pub mean: f64,
}

/// The iterators of a statement that have bounds from data.
pub fn dynamic_loops(scop: &Scop, id: StatementId) -> Vec<DynamicLoop> {
    let s = scop.statement(id);
    let index = s.subscripts();
    let dtype = scop.tensor(s.target).dtype;
    let mut out: Vec<DynamicLoop> = vec![];
    for bound in (Target { buffer: s.target, index: &index, reduce: s.reduce, dtype }).bounds(&s.body) {
        let Some(&(var, _)) = bound.form.terms.iter().max_by_key(|t| t.0) else { continue };
        let others = bound.form.terms.iter().map(|t| t.0).filter(|v| *v != var);
        let outer: Vec<Var> = bound.variables().into_iter().chain(others).collect();
        if outer.contains(&var) {
            continue;
        }
        match out.iter_mut().find(|l| l.var == var) {
            Some(known) => known.outer.extend(outer),
            None => out.push(DynamicLoop { var, mean: mean(scop, s, &bound, &outer), outer }),
        }
    }
    out.iter_mut().for_each(|l| {
        l.outer.sort();
        l.outer.dedup();
    });
    out
}

/// The share of its domain that a statement runs, where the data divide the ranges of its iterators evenly.
pub fn share(scop: &Scop, id: StatementId) -> f64 {
    let s = scop.statement(id);
    dynamic_loops(scop, id).iter().map(|l| (l.mean / s.extent(l.var) as f64).min(1.0)).product()
}

fn mean(scop: &Scop, s: &Statement, bound: &DynamicBound, outer: &[Var]) -> f64 {
    let mut parts = None;
    bound.limit.visit(&mut |e| {
        if let Expr::Load(access) = e {
            let extent = scop.tensor(access.buffer).shape.last().copied().unwrap_or(1);
            parts = parts.or(Some((extent - 1).max(1) as f64));
        }
    });
    let parts = parts.unwrap_or_else(|| outer.iter().map(|v| s.extent(*v) as f64).product());
    let var = bound.form.terms.iter().map(|t| t.0).max().unwrap_or(Var(0));
    (s.extent(var) as f64 / parts).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poly::samples::loops;

    #[test]
    fn the_rows_of_a_matrix_bound_a_loop() {
        let text = "loop p(N = 20, Z = 300) { in i32 p[N + 1], c[Z]\n in f32 x[N]\n inout f32 y[N], z[N]
            for i in 0..N { for k in p[i]..p[i + 1] y[i] += x[c[k]]  for k in 0..N z[i] += x[k] } }";
        let scop = loops(text);
        let found = dynamic_loops(&scop, StatementId(0));
        assert_eq!(found, [DynamicLoop { var: Var(1), outer: vec![Var(0)], mean: 15.0 }]);
        assert_eq!([share(&scop, StatementId(0)), share(&scop, StatementId(1))], [0.05, 1.0]);
    }
}
