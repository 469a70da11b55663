//! Vector loops whose integers fit into 8 or 16 bits: their statements are written in operations of that width.
//!
//! In: statements of a LoopNest. Out: the same, where each vector loop of which all values on the way are proven to fit
//! (`expr/narrow.rs`) computes in the narrowest integers that do for all of its statements. Other loops stay as they are.

use crate::codegen::loopnest::{LoopKind, LoopNest, Stmt};
use crate::expr::interval::Facts;
use crate::expr::narrow::{Names, narrow_bytes};
use crate::expr::{BinaryOp, BufferId, Index};

/// Rewrites the vector loops of `body`, where `facts` hold.
pub fn narrow_loops(nest: &LoopNest, facts: &mut Facts, body: &[Stmt]) -> Vec<Stmt> {
    let each = body.iter().map(|stmt| {
        let mut inside = entered(stmt, facts);
        match stmt {
            Stmt::Loop { kind: LoopKind::Vector, body, .. } => {
                let narrow = [1, 2].into_iter().find_map(|width| narrowed(nest, &mut inside.clone(), body, width));
                stmt.with_body(narrow.unwrap_or_else(|| body.clone()))
            }
            Stmt::Loop { body, .. } | Stmt::If { body, .. } => stmt.with_body(narrow_loops(nest, &mut inside, body)),
            Stmt::Let { .. } | Stmt::Read { .. } | Stmt::Store { .. } => {
                *facts = inside;
                stmt.clone()
            }
        }
    });
    each.collect()
}

/// The facts inside of a loop or a condition, or behind a definition.
fn entered(stmt: &Stmt, facts: &Facts) -> Facts {
    let mut inside = facts.clone();
    match stmt {
        Stmt::Loop { var, lower, upper, step, .. } => inside.enter_loop(*var, lower, upper, *step),
        Stmt::If { conditions, .. } => conditions.iter().for_each(|c| inside.assume(c.clone())),
        Stmt::Let { var, value, divisor } => inside.bind(*var, value, *divisor),
        Stmt::Read { var, range, .. } => inside.set_range(*var, *range),
        Stmt::Store { .. } => {}
    }
    inside
}

/// The body of a vector loop in operations of `width` bytes at most.
fn narrowed(nest: &LoopNest, facts: &mut Facts, body: &[Stmt], width: usize) -> Option<Vec<Stmt>> {
    let each = body.iter().map(|stmt| {
        let mut inside = entered(stmt, facts);
        match stmt {
            Stmt::Loop { kind: LoopKind::Instruction(_), .. } => None,
            Stmt::Loop { body, .. } | Stmt::If { body, .. } => {
                Some(stmt.with_body(narrowed(nest, &mut inside, body, width)?))
            }
            Stmt::Let { .. } | Stmt::Read { .. } => {
                *facts = inside;
                Some(stmt.clone())
            }
            Stmt::Store { buffer, index, value, reduce } => {
                let dtype = nest.buffer(*buffer).dtype;
                let fits = narrow_bytes(dtype).is_some_and(|bytes| bytes <= width);
                let plain = index.iter().all(|i| matches!(i, Index::Affine(_)));
                let is_table = |b: BufferId| nest.is_table(b);
                let names =
                    Names { dtype: &|b| nest.buffer(b).dtype, bounds: &|a| facts.bounds(a), is_table: &is_table };
                let combines = !matches!(reduce, Some(BinaryOp::Div | BinaryOp::Mod | BinaryOp::Pow));
                if !fits || !plain || !combines {
                    return None;
                }
                let value = names.narrowed(value, width)?;
                Some(Stmt::Store { buffer: *buffer, index: index.clone(), value, reduce: *reduce })
            }
        }
    });
    each.collect()
}
