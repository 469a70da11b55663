//! Vector loops over the lanes that do something.
//!
//! In: a nest. Out: a nest of the same meaning in which `vector i in 0..64 { if i - 15 >= 0 { s max= x[i]; } }` is `vector i in 0..49 { s max= x[i + 15]; }`: as such a loop begins
//! where a tile does that reaches beyond the range, and is divided into vectors later, each lane would have the condition. Loops in which lanes have elements of
//! a local buffer stay, since those are registers of whole vectors.

use crate::codegen::loopnest::innermost::is_innermost;
use crate::codegen::loopnest::simplify::conditions::everywhere;
use crate::codegen::loopnest::{BufferKind, LoopKind, LoopNest, Stmt};
use crate::expr::interval::constant_range;
use crate::expr::{Access, Affine, Bound, Index, Var};
use rustc_hash::FxHashMap;

/// A statement in which vector loops have the range that conditions leave of them.
pub fn trim(nest: &mut LoopNest, stmt: Stmt) -> Stmt {
    let stmt = stmt.map_body(|body| body.into_iter().map(|s| trim(nest, s)).collect());
    let Stmt::Loop { var, lower, upper, step: 1, kind: LoopKind::Vector, body } = &stmt else { return stmt };
    let Some((0, extent)) = constant_range(lower, upper) else { return stmt };
    let mut over_lanes = everywhere(body);
    over_lanes.retain(|c| matches!(c.terms[..], [(v, 1 | -1)] if v == *var));
    let (mut first, mut end) = (0, extent);
    for c in &over_lanes {
        match c.coefficient(*var) {
            1 => first = first.max(-c.constant),
            _ => end = end.min(c.constant + 1),
        }
    }
    if over_lanes.is_empty() || first >= end || !is_innermost(body) || has_lanes(nest, body, *var) {
        return stmt;
    }
    let body: Vec<Stmt> = body.iter().flat_map(|s| without(s, &over_lanes)).collect();
    let body = nest.copies(&body, &mut FxHashMap::from_iter([(*var, Affine::var(*var).offset(first))]));
    let upper = vec![Bound::constant(end - first)];
    Stmt::Loop { var: *var, lower: lower.clone(), upper, step: 1, kind: LoopKind::Vector, body }
}

/// Returns true if the lane is a subscript of a local buffer.
fn has_lanes(nest: &LoopNest, body: &[Stmt], var: Var) -> bool {
    let mut any = false;
    let is_lane = |index: &[Index]| index.iter().any(|i| i.affine().is_none_or(|a| a.uses(var)));
    let is_local = |a: &Access| nest.buffer(a.buffer).kind == BufferKind::Local && is_lane(&a.index);
    body.iter().for_each(|s| {
        s.visit(&mut |s| {
            if let Stmt::Store { buffer, index, .. } = s {
                any |= nest.buffer(*buffer).kind == BufferKind::Local && is_lane(index);
            }
            s.expressions().for_each(|e| e.visit_accesses(&mut |a| any |= is_local(a)));
        });
    });
    any
}

/// The statements under conditions that are known to hold.
fn without(s: &Stmt, known: &[Affine]) -> Vec<Stmt> {
    let Stmt::If { conditions, body } = s else { return vec![s.clone()] };
    let conditions: Vec<Affine> = conditions.iter().filter(|c| !known.contains(c)).cloned().collect();
    match conditions.is_empty() {
        true => body.clone(),
        false => vec![Stmt::If { conditions, body: body.clone() }],
    }
}

#[cfg(test)]
mod tests {
    use crate::codegen::loopnest::parse;
    use crate::codegen::select::tests::check;

    #[test]
    fn lanes_before_a_range_are_none() {
        for statement in [
            "s[0] max = (mod(B[-i + 64], n[0]) + n[0]);",
            "s[0] add = B[-i + 64]; C[-i + 64] = (B[-i + 64] + i32(1));",
            "C[i] = B[-i + 64];",
            "C[-i + 64] = B[-i + 64]; D[i] = B[-i + 64]; s[0] min = D[i];",
        ] {
            for condition in ["i - 15 >= 0", "i - 15 >= 0 && -i + 60 >= 0", "i + 3 >= 0 && -i + t + 60 >= 0"] {
                let text = format!(
                    "kernel p {{ B: i32[65] argument 0; n: i32[1] argument 1; C: i32[65] argument 2 written; S: i32[3] argument 3 written; s: i32[1] local; D: i32[64] local;
                     parallel once in 0..1 {{ for t in 0..3 {{ s[0] = i32(3); vector i in 0..64 {{ if {condition} {{ {statement} }} }} S[t] = s[0]; }} }} }}",
                );
                check(&parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), 2);
            }
        }
    }
}
