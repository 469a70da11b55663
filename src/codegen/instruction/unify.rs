//! Unification of a row's term with an expression.

use crate::codegen::instruction::TensorInstruction;
use crate::expr::{Access, BinaryOp, Expr};

impl TensorInstruction {
    /// The reads of `value` that are the row's operands but the accumulator, in order, where the term of the row is `value` up
    /// to the order of factors and summands. `fits` says whether a read may be an operand.
    pub fn unify<'a>(&self, value: &'a Expr, fits: &mut dyn FnMut(usize, &Access) -> bool) -> Option<Vec<&'a Access>> {
        let mut found = vec![None; self.operands.len()];
        unify(&self.body, value, &mut found, fits).then_some(())?;
        found.into_iter().skip(1).collect()
    }
}

type Found<'a> = Vec<Option<&'a Access>>;

fn unify<'a>(
    term: &Expr,
    value: &'a Expr,
    found: &mut Found<'a>,
    fits: &mut dyn FnMut(usize, &Access) -> bool,
) -> bool {
    match (term, value) {
        (Expr::Load(operand), Expr::Load(a)) => {
            let n = operand.buffer.0 as usize;
            let free = found[n].map_or_else(|| fits(n, a), |known| known == a);
            found[n] = found[n].or(free.then_some(a));
            free
        }
        (Expr::Const(x), Expr::Const(y)) => x == y,
        (Expr::Unary(o, x), Expr::Unary(p, y)) => o == p && unify(x, y, found, fits),
        (Expr::Cast(o, x), Expr::Cast(p, y)) => o == p && unify(x, y, found, fits),
        (Expr::Binary(o, x1, x2), Expr::Binary(p, y1, y2)) if o == p => {
            let before = found.clone();
            if unify(x1, y1, found, fits) && unify(x2, y2, found, fits) {
                return true;
            }
            *found = before;
            matches!(o, BinaryOp::Add | BinaryOp::Mul) && unify(x1, y2, found, fits) && unify(x2, y1, found, fits)
        }
        _ => false,
    }
}
