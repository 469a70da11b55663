//! Reductions over lanes inside of serial loops.
//!
//! In: a statement. Out: the vector loop of its sums, if it has nothing else; and whether two of them may sum into the same vector.

use crate::codegen::loopnest::{LoopKind, Stmt};
use crate::expr::interval::constant_range;
use crate::expr::scalar::numbers_only;
use crate::expr::{Affine, Expr, Var};

/// Sums over lanes inside of serial loops in which their targets stay the same.
pub struct LaneSums<'s> {
    pub vector: Var,
    pub extent: i64,
    /// The body of the vector loop.
    pub inner: &'s [Stmt],
    /// Loops between that are expanded, with their extents.
    pub unrolled: Vec<(Var, i64)>,
}

/// The sums of a loop; `None` where its statements are others.
pub fn lane_sums(stmt: &Stmt) -> Option<LaneSums<'_>> {
    matches!(stmt, Stmt::Loop { kind: LoopKind::Serial, .. }).then(|| sums_inside(stmt))?
}

/// As [`lane_sums`], of a loop that may be a conditional around a vector loop: of the rest of the elements.
pub fn sums_inside(stmt: &Stmt) -> Option<LaneSums<'_>> {
    let (mut vars, mut unrolled, mut current) = (vec![], vec![], stmt);
    let (vector, extent, inner) = loop {
        match current {
            Stmt::Loop { var, lower, upper, kind: LoopKind::Vector, body, .. } => {
                break (*var, constant_range(lower, upper)?.1, body);
            }
            Stmt::Loop { var, kind: LoopKind::Serial, body, .. } if body.len() == 1 => {
                vars.push(*var);
                current = &body[0];
            }
            Stmt::Loop { var, lower, upper, kind: LoopKind::Unroll, body, .. } if body.len() == 1 => {
                let (0, extent) = constant_range(lower, upper)? else { return None };
                unrolled.push((*var, extent));
                current = &body[0];
            }
            Stmt::If { body, .. } if body.len() == 1 => current = &body[0],
            _ => return None,
        }
    };
    let moves = |a: &Affine| a.uses(vector) || vars.iter().any(|v| a.uses(*v));
    let reductions = stores(inner);
    let sums = reductions.iter().all(|r| r.reduce && !r.inside && !r.index.iter().any(moves));
    (sums && !reductions.is_empty()).then_some(LaneSums { vector, extent, inner, unrolled })
}

/// Returns true if two bodies of plain sums have the same targets, and the second one sums no not-a-number that the first one leaves out.
pub fn are_joined(a: &[Stmt], b: &[Stmt]) -> bool {
    let numbers = |op, value: &Expr| match value {
        Expr::Select(_, value, otherwise) if matches!(**otherwise, Expr::Const(_)) => numbers_only(op, value).is_some(),
        value => numbers_only(op, value).is_some(),
    };
    let same = |pair: (&Stmt, &Stmt)| match pair {
        (
            Stmt::Store { buffer: a, index: i, value, reduce: Some(op) },
            Stmt::Store { buffer: b, index: j, value: other, reduce: Some(other_op) },
        ) => (a, i, op) == (b, j, other_op) && (numbers(*op, other) || !numbers(*op, value)),
        _ => false,
    };
    let (a, b) = (without_blocks(a), without_blocks(b));
    a.len() == b.len() && a.into_iter().zip(b).all(same)
}

/// Statements, those of conditions that always hold in their place.
fn without_blocks(body: &[Stmt]) -> Vec<&Stmt> {
    body.iter()
        .flat_map(|s| match s {
            Stmt::If { conditions, body } if conditions.is_empty() => without_blocks(body),
            s => vec![s],
        })
        .collect()
}

/// A store of a vector body.
pub struct BodyStore {
    /// The affine subscripts.
    pub index: Vec<Affine>,
    pub reduce: bool,
    /// In a loop of the body.
    pub inside: bool,
}

/// The stores of a vector body.
pub fn stores(body: &[Stmt]) -> Vec<BodyStore> {
    let mut out = vec![];
    collect(body, false, &mut out);
    out
}

fn collect(body: &[Stmt], inside: bool, out: &mut Vec<BodyStore>) {
    for stmt in body {
        match stmt {
            Stmt::Store { index, reduce, .. } => {
                let affine: Vec<Affine> = index.iter().filter_map(|i| i.affine().cloned()).collect();
                let inside = inside || affine.len() < index.len();
                out.push(BodyStore { index: affine, reduce: reduce.is_some(), inside });
            }
            Stmt::If { body, .. } => collect(body, inside, out),
            Stmt::Loop { var, kind: LoopKind::Unroll, body, .. } => {
                let first = out.len();
                collect(body, inside, out);
                // a target that differs from one iteration to the next is one of several
                out[first..].iter_mut().for_each(|r| r.inside |= r.index.iter().any(|a| a.uses(*var)));
            }
            Stmt::Loop { body, .. } => collect(body, true, out),
            Stmt::Let { .. } | Stmt::Read { .. } => {}
        }
    }
}
