//! Sums over lanes that walk against their iterations, where that reverses fewer vectors.
//!
//! In: a nest. Out: the same, with the iterations of such vector loops in the other order. `y += h[k] * x[n - k]` with k in lanes reverses
//! each vector of x by a permutation; with `k` from the end it reverses those of h, which the loop over n leaves as they are, so that they
//! stand reversed before it (`hoist`). Lanes are summed in any order (see `select.rs`), and so are the vectors of a loop. Loops over memory
//! that is walked in one direction alone are a matter of the selection (`backward`).

use crate::codegen::Target;
use crate::codegen::loopnest::{BufferKind, LoopKind, LoopNest, Stmt};
use crate::codegen::select::strip_mine::REDUCED;
use crate::expr::interval::{ceil_div, constant_range};
use crate::expr::{Affine, BufferId, Index, Var};
use rustc_hash::FxHashSet;

/// Turns the vector loops of sums whose vectors are reversed more often in the order that they have than in the other one.
pub fn turn(nest: &mut LoopNest, target: &Target) {
    let mut body = std::mem::take(&mut nest.body);
    let mut around = Around::default();
    body.iter_mut().for_each(|stmt| visit(nest, target, stmt, &mut around));
    nest.body = body;
}

/// The loops around a statement.
#[derive(Clone, Default)]
struct Around {
    /// The innermost real loop, and integers that are defined in it.
    moving: FxHashSet<Var>,
    /// Loops within it that are unrolled, with their iterations.
    unrolled: Vec<(Var, i64)>,
}

fn visit(nest: &LoopNest, target: &Target, stmt: &mut Stmt, around: &mut Around) {
    match stmt {
        Stmt::Let { var, .. } | Stmt::Read { var, .. } => drop(around.moving.insert(*var)),
        Stmt::If { body, .. } => body.iter_mut().for_each(|s| visit(nest, target, s, around)),
        Stmt::Store { .. } => {}
        Stmt::Loop { var, lower, upper, kind, body, .. } => {
            let (kind, range) = (*kind, constant_range(lower, upper));
            match (kind, range) {
                (LoopKind::Vector, Some((0, extent))) => {
                    if is_less_turned(nest, target, (*var, extent), body, around) {
                        body.iter_mut().for_each(|s| walk_against(s, *var, extent));
                    }
                    return;
                }
                (LoopKind::Vector | LoopKind::Instruction(_), _) => return,
                _ => {}
            }
            let mut inside = match (kind, range) {
                (LoopKind::Unroll, Some((first, end))) => {
                    let mut inside = around.clone();
                    inside.unrolled.push((*var, end - first));
                    inside
                }
                _ => Around { moving: FxHashSet::from_iter([*var]), unrolled: vec![] },
            };
            body.iter_mut().for_each(|s| visit(nest, target, s, &mut inside));
        }
    }
}

/// Returns true if fewer vectors are reversed with the lanes in the other order. Invariants of the loop around do not count.
fn is_less_turned(nest: &LoopNest, target: &Target, (var, extent): (Var, i64), body: &[Stmt], around: &Around) -> bool {
    let (mut bytes, mut seen) = (1, FxHashSet::default());
    let mut plain = true;
    // whether each access moves with the loop around, in which direction, and how many there are of it
    let mut accesses: Vec<(bool, i64, i64)> = vec![];
    let mut written: FxHashSet<BufferId> = FxHashSet::default();
    for stmt in body {
        match stmt {
            Stmt::Store { buffer, index, reduce: Some(_), .. } => {
                written.insert(*buffer);
                plain &= index.iter().all(|i| i.affine().is_some_and(|a| !a.uses(var)));
            }
            _ => return false,
        }
    }
    for e in body.iter().flat_map(Stmt::expressions) {
        e.visit_accesses(&mut |a| {
            let buffer = nest.buffer(a.buffer);
            plain &= a.guard.is_empty() && !written.contains(&a.buffer) && a.index.iter().all(|i| i.affine().is_some());
            let Some(place) = buffer.place(&a.index).filter(|_| plain) else { return };
            let along = place.coefficient(var);
            bytes = bytes.max(buffer.dtype.bytes());
            plain &= along == 0 || along.abs() == 1 && buffer.kind != BufferKind::Local;
            let moves = place.terms.iter().any(|t| around.moving.contains(&t.0));
            let copies = around.unrolled.iter().filter(|(v, _)| place.uses(*v)).map(|u| u.1).product();
            if seen.insert((a.buffer, place)) {
                accesses.push((moves, along, copies));
            }
        });
    }
    // in a loop that is not expanded no vector is an invariant
    let long = ceil_div(extent, target.lanes(bytes) as i64) > REDUCED;
    let reversed = |direction: i64| -> i64 {
        let counts = |a: &&(bool, i64, i64)| a.1 == direction && (a.0 || long || around.moving.is_empty());
        accesses.iter().filter(counts).map(|a| a.2).sum()
    };
    let forwards = accesses.iter().any(|a| a.1 == 1);
    plain && forwards && reversed(1) < reversed(-1)
}

/// Makes the first iteration of the loop over `var` the last one.
fn walk_against(stmt: &mut Stmt, var: Var, extent: i64) {
    if let Stmt::Store { index, value, .. } = stmt {
        let mut turned = |v: Var| if v == var { Affine::constant(extent - 1).plus(v, -1) } else { Affine::var(v) };
        *index = index.iter().map(|i: &Index| i.substitute(&mut turned)).collect();
        *value = value.substitute(&mut turned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::loopnest::parse;
    use crate::codegen::select::tests::check;
    use crate::codegen::vcode::Inst;

    /// Vectors of the first phase for AVX-512 that are reversed in innermost loops, and beside them.
    fn reversed(body: &str) -> (usize, usize) {
        let text = format!(
            "kernel p {{ X: f32[900] argument 0; H: f32[900] argument 1; Y: f32[90] argument 2 written;
             {body} }}"
        );
        let functions = check(&parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), 1);
        let (mut depth, mut counts) = (0, [0; 9]);
        for inst in &functions[0].insts {
            match inst {
                Inst::LoopStart { .. } => depth += 1,
                Inst::LoopEnd => depth -= 1,
                Inst::VGather { .. } => counts[depth] += 1,
                _ => {}
            }
        }
        let inside = counts.iter().rposition(|n| *n > 0).filter(|d| *d > 1);
        (inside.map_or(0, |d| counts[d]), counts[..2].iter().sum())
    }

    #[test]
    fn invariants_are_reversed_in_place_of_what_moves() {
        let sum = "vector k in 0..80 { Y[n] add = (H[k] * X[4*n - k + 90]); }";
        assert_eq!(reversed(&format!("for n in 0..40 {{ {sum} }}")), (0, 5));
        // the other way round nothing is turned
        let turned = sum.replace("H[k]", "H[-k + 79]").replace("- k + 90", "+ k");
        assert_eq!(reversed(&format!("for n in 0..40 {{ {turned} }}")), (0, 5));
    }

    #[test]
    fn what_unrolled_iterations_share_is_reversed_once() {
        let sum = "unroll m in 0..4 { vector k in 0..16 { Y[4*n + m] add = (H[16*o + k] * X[16*n + 4*m - 16*o - k + 99]); } }";
        assert_eq!(reversed(&format!("for n in 0..20 {{ for o in 0..6 {{ {sum} }} }}")), (1, 0));
    }

    #[test]
    fn vectors_of_a_long_loop_keep_their_order() {
        // one of each is reversed, whichever way
        let sum = "vector k in 0..400 { Y[n] add = (H[k] * X[4*n - k + 410]); }";
        let (inside, _) = reversed(&format!("for n in 0..40 {{ {sum} }}"));
        assert!(inside > 0);
        // what the loop itself writes
        let text =
            "kernel p { Y: f32[90] argument 0 written; vector k in 0..40 { Y[0] add = (Y[k + 1] * Y[-k + 80]); } }";
        let mut nest = parse::nest(text).unwrap_or_else(|e| panic!("{e}"));
        let before = nest.to_string();
        turn(&mut nest, &Target::avx512());
        assert_eq!(nest.to_string(), before);
    }
}
