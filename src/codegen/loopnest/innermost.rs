//! Innermost loops, and copies of their bodies.

use crate::codegen::loopnest::{LoopKind, LoopNest, Stmt};
use crate::expr::{Affine, Bound, Var};
use rustc_hash::FxHashMap;

/// Returns true if only stores are in a body, under conditions, and in loops that are expanded.
pub fn is_innermost(body: &[Stmt]) -> bool {
    body.iter().all(|s| match s {
        Stmt::Store { .. } => true,
        Stmt::If { body, .. } => is_innermost(body),
        Stmt::Loop { kind, body, .. } => matches!(kind, LoopKind::Vector | LoopKind::Unroll) && is_innermost(body),
        Stmt::Let { .. } | Stmt::Read { .. } => false,
    })
}

impl LoopNest {
    /// Copies of statements that bind variables of their own.
    pub fn copies(&mut self, body: &[Stmt], map: &mut FxHashMap<Var, Affine>) -> Vec<Stmt> {
        body.iter().map(|stmt| self.copy(stmt, map)).collect()
    }

    fn copy(&mut self, stmt: &Stmt, map: &mut FxHashMap<Var, Affine>) -> Stmt {
        let at = |v: Var, map: &FxHashMap<Var, Affine>| map.get(&v).cloned().unwrap_or_else(|| Affine::var(v));
        match stmt {
            Stmt::Loop { var, lower, upper, step, kind, body } => {
                let bounds = |bounds: &[Bound]| {
                    let moved = |b: &Bound| Bound { affine: b.affine.substitute(|v| at(v, map)), divisor: b.divisor };
                    bounds.iter().map(moved).collect()
                };
                let (lower, upper) = (bounds(lower), bounds(upper));
                let new = self.new_var(self.vars[var.0 as usize].clone());
                map.insert(*var, Affine::var(new));
                let body = self.copies(body, map);
                Stmt::Loop { var: new, lower, upper, step: *step, kind: *kind, body }
            }
            Stmt::If { conditions, body } => {
                let conditions = conditions.iter().map(|c| c.substitute(|v| at(v, map))).collect();
                Stmt::If { conditions, body: self.copies(body, map) }
            }
            Stmt::Store { buffer, index, value, reduce } => {
                let index = index.iter().map(|i| i.substitute(&mut |v| at(v, map))).collect();
                let value = value.substitute(&mut |v| at(v, map));
                Stmt::Store { buffer: *buffer, index, value, reduce: *reduce }
            }
            // not part of an innermost loop
            Stmt::Let { .. } | Stmt::Read { .. } => stmt.clone(),
        }
    }
}
