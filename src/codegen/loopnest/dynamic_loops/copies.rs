//! Copies to registers and back: stores that bring back what was there where all between them change nothing.
//!
//! In: the body of a loop. Out: its stores `t = M[k]` and `M[k] = t` of the same elements, the one before the other, where `t` is local and
//! used in this body alone. Registers that sums are accumulated in are filled and written back so.

use crate::codegen::loopnest::{Accesses, BufferKind, LoopNest, Stmt, accesses};
use crate::expr::{Access, Affine, Bound, BufferId, Expr, Index, Var};
use rustc_hash::FxHashMap;

/// The copies of a body of `nest`, whose accesses are `all`.
pub fn copies<'s>(nest: &LoopNest, body: &'s [Stmt], all: &Accesses) -> Vec<&'s Stmt> {
    let mut found = vec![];
    collect(body, &mut vec![], &mut found);
    let here = accesses(body);
    let mut out = vec![];
    for (k, fill) in found.iter().enumerate() {
        let local = nest.buffer(fill.to.0).kind == BufferKind::Local && here.get(&fill.to.0) == all.get(&fill.to.0);
        if !local || !fill.has_own_elements() {
            continue;
        }
        let back: Vec<&Copy> = found[k + 1..].iter().filter(|back| back.is_reverse_of(fill)).collect();
        if !back.is_empty() {
            out.push(fill.stmt);
            out.extend(back.iter().map(|back| back.stmt));
        }
    }
    out
}

/// An assignment of an element as it is.
struct Copy<'s> {
    stmt: &'s Stmt,
    /// Loops and conditions around it, outermost first.
    around: Vec<&'s Stmt>,
    to: (BufferId, &'s [Index]),
    from: &'s Access,
}

impl Copy<'_> {
    /// Returns true if each iteration of the loops around copies to an element that no other one copies to.
    fn has_own_elements(&self) -> bool {
        let own: Vec<Var> = self.around.iter().filter_map(|s| variable(s)).collect();
        own.iter().all(|v| {
            self.to.1.iter().filter_map(Index::affine).any(|a| a.uses(*v) && !own.iter().any(|w| w != v && a.uses(*w)))
        })
    }

    /// Returns true if the copy takes back what `fill` copied, element by element.
    fn is_reverse_of(&self, fill: &Copy) -> bool {
        if self.to.0 != fill.from.buffer || self.from.buffer != fill.to.0 || self.around.len() != fill.around.len() {
            return false;
        }
        let mut names: FxHashMap<Var, Var> = FxHashMap::default();
        for (a, b) in self.around.iter().zip(&fill.around) {
            if !is_same(a, b, &names) {
                return false;
            }
            names.extend(variable(a).zip(variable(b)));
        }
        let same =
            |a: &[Index], b: &[Index]| a.iter().map(|i| i.substitute(&mut |v| named(&names, v))).eq(b.iter().cloned());
        same(self.to.1, &fill.from.index) && same(&self.from.index, fill.to.1)
    }
}

fn variable(s: &Stmt) -> Option<Var> {
    match s {
        Stmt::Loop { var, .. } => Some(*var),
        _ => None,
    }
}

fn named(names: &FxHashMap<Var, Var>, v: Var) -> Affine {
    Affine::var(names.get(&v).copied().unwrap_or(v))
}

/// Returns true for loops over the same values, and for the same conditions.
fn is_same(a: &Stmt, b: &Stmt, names: &FxHashMap<Var, Var>) -> bool {
    let form = |a: &Affine| a.substitute(|v| named(names, v));
    let bounds = |a: &[Bound], b: &[Bound]| {
        a.iter().map(|bound| Bound { affine: form(&bound.affine), ..*bound }).eq(b.iter().cloned())
    };
    match (a, b) {
        (Stmt::Loop { lower, upper, step, .. }, Stmt::Loop { lower: l, upper: u, step: s, .. }) => {
            step == s && bounds(lower, l) && bounds(upper, u)
        }
        (Stmt::If { conditions: a, .. }, Stmt::If { conditions: b, .. }) => a.iter().map(form).eq(b.iter().cloned()),
        _ => false,
    }
}

fn collect<'s>(body: &'s [Stmt], around: &mut Vec<&'s Stmt>, out: &mut Vec<Copy<'s>>) {
    for stmt in body {
        match stmt {
            Stmt::Store { buffer, index, value: Expr::Load(from), reduce: None } if from.guard.is_empty() => {
                out.push(Copy { stmt, around: around.clone(), to: (*buffer, index), from });
            }
            Stmt::Loop { .. } | Stmt::If { .. } => {
                around.push(stmt);
                collect(stmt.body(), around, out);
                around.pop();
            }
            _ => {}
        }
    }
}
