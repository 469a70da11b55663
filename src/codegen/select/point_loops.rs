//! The loops around a tensor instruction whose sums stay in registers throughout them: in tiles, matrices, or vectors of f16.
//!
//! In: a statement of a loop nest. Out: the point loops over rows (unrolled), columns (the vector loop) and terms (of kind
//! [`LoopKind::Instruction`]) around one sum, and the serial loops over further terms around them.

use crate::codegen::instruction::TensorInstruction;
use crate::codegen::loopnest::{LoopKind, Stmt};
use crate::expr::interval::constant_range;
use crate::expr::{Affine, BinaryOp, BufferId, Expr, Index, Var};

/// Returns true for the rows that are looked for.
type Kind = fn(&TensorInstruction) -> bool;

/// The point loops of an instruction and the sum inside.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    pub row: &'a TensorInstruction,
    /// Another unrolled loop, whose iterations have tiles or matrices of their own.
    pub outer: Option<(Var, i64)>,
    pub rows: Option<(Var, i64)>,
    pub columns: Option<(Var, i64)>,
    pub terms: Var,
    /// Conditions of the whole block; of a row that sums f16 those of each of its rows, too.
    pub conditions: &'a [Affine],
    pub buffer: BufferId,
    pub index: &'a [Index],
    pub value: &'a Expr,
}

/// The block that a statement is, of a row of the wanted kind.
pub fn block<'a>(rows: &'a [TensorInstruction], wanted: Kind, stmt: &'a Stmt) -> Option<Block<'a>> {
    let (mut unrolled, mut columns, mut at) = (vec![], None, stmt);
    loop {
        let Stmt::Loop { var, lower, upper, step: 1, kind, body } = at else { return None };
        let (Some((0, end)), [inside]) = (constant_range(lower, upper), &body[..]) else { return None };
        match kind {
            LoopKind::Unroll if unrolled.len() < 2 && columns.is_none() => unrolled.push((*var, end)),
            LoopKind::Vector if columns.is_none() => columns = Some((*var, end)),
            LoopKind::Instruction(name) => {
                let row = rows.iter().find(|r| r.name == *name && wanted(r))?;
                let (conditions, inside) = match inside {
                    Stmt::If { conditions, body } if body.len() == 1 => (&conditions[..], &body[0]),
                    inside => (&[][..], inside),
                };
                let Stmt::Store { buffer, index, value, reduce: Some(BinaryOp::Add) } = inside else { return None };
                // Of two loops the one with more points has the rows of a tile or matrix.
                unrolled.sort_by_key(|l: &(Var, i64)| l.1);
                let (rows, outer) = (unrolled.pop(), unrolled.pop());
                let terms = *var;
                let points = [outer, rows, columns, Some((terms, end))];
                let inside = if row.sums_halves() { &points[2..] } else { &points[..] };
                let whole = |c: &Affine| inside.iter().flatten().all(|(v, _)| !c.uses(*v));
                let fits = end == row.terms_in_lane() && conditions.iter().all(whole);
                let buffer = *buffer;
                return fits.then_some(Block { row, outer, rows, columns, terms, conditions, buffer, index, value });
            }
            _ => return None,
        }
        at = inside;
    }
}

/// The block inside of serial loops and conditions, where its sums do not depend on these loops; the iterations of the
/// innermost of them, 1 where they are not known.
pub fn region<'a>(rows: &'a [TensorInstruction], wanted: Kind, stmt: &'a Stmt) -> Option<(Block<'a>, i64)> {
    let (mut around, mut at, mut steps) = (vec![], stmt, 1);
    loop {
        if let Some(found) = block(rows, wanted, at) {
            let forms = || found.index.iter().map(Index::affine);
            let moves = |v: &Var| forms().any(|a| a.is_none_or(|a| a.uses(*v)));
            return (!around.iter().any(moves)).then_some((found, steps));
        }
        let (body, last) = match at {
            Stmt::Loop { var, lower, upper, step, kind: LoopKind::Serial, body } => {
                around.push(*var);
                let range = constant_range(lower, upper);
                (body, range.filter(|r| r.0 == 0 && *step == 1).map_or(1, |r| r.1))
            }
            Stmt::If { body, .. } => (body, 1),
            _ => return None,
        };
        let [inside] = &body[..] else { return None };
        (at, steps) = (inside, last);
    }
}
