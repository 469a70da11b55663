//! Unification of a row's term with an expression.
//!
//! An operand is a read, or a part of the bits of each of its bytes ([`Part`]): two numbers of 4 bits lie in a byte.

use crate::codegen::instruction::{Operand, TensorInstruction};
use crate::expr::narrow::dtype_range;
use crate::expr::scalar::Value;
use crate::expr::{Access, BinaryOp, Expr};
use crate::runtime::DType;

/// The bits of `mask` of each element of 8 bits, shifted to the right by `shift`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Part<'a> {
    pub access: &'a Access,
    pub shift: u8,
    pub mask: u8,
}

impl<'a> Part<'a> {
    /// A read, `x & mask` or `(x >> shift) & mask` of one, whose mask has no bits that the shift fills.
    pub fn of(e: &'a Expr) -> Option<Part<'a>> {
        let (inside, mask) = match e {
            Expr::Load(access) => return Some(Part { access, shift: 0, mask: u8::MAX }),
            Expr::Binary(BinaryOp::And, x, mask) => (&**x, byte(mask)?),
            _ => return None,
        };
        let (access, shift) = match inside {
            Expr::Load(access) => (access, 0),
            Expr::Binary(BinaryOp::ShiftRight, x, amount) => match &**x {
                Expr::Load(access) => (access, byte(amount)?),
                _ => return None,
            },
            _ => return None,
        };
        let kept = u8::MAX.checked_shr(shift.into())?;
        (mask & !kept == 0).then_some(Part { access, shift, mask })
    }

    /// Returns true for all bits.
    pub fn is_whole(&self) -> bool {
        self.mask == u8::MAX
    }

    /// The least and the greatest number of a part of elements of `dtype`; `None` where that is not a type of integers.
    pub fn range(&self, dtype: DType) -> Option<(i64, i64)> {
        match self.mask {
            u8::MAX => dtype_range(dtype),
            mask if dtype == DType::I8 && mask > i8::MAX as u8 => dtype_range(dtype),
            mask => Some((0, mask.into())),
        }
    }
}

impl Operand {
    /// Returns true if the operand may be a part of elements of `dtype`: it has that type, and takes all numbers that the part may have.
    pub fn is_part(&self, part: &Part, dtype: DType) -> bool {
        self.dtype == dtype && (self.range.is_none() || part.range(dtype).is_some_and(|range| self.takes(range)))
    }
}

/// Calls `f` with the parts of reads that an expression is made of.
pub fn visit_parts<'a>(e: &'a Expr, f: &mut impl FnMut(&Part<'a>)) {
    match Part::of(e) {
        Some(part) => f(&part),
        None => e.operands().for_each(|e| visit_parts(e, f)),
    }
}

/// The bits of a constant of 8 bits.
fn byte(e: &Expr) -> Option<u8> {
    match e {
        Expr::Const(s) if matches!(s.dtype, DType::I8 | DType::U8) => Some(Value::from(*s).as_i64() as u8),
        _ => None,
    }
}

impl TensorInstruction {
    /// The reads of `value` that are the row's operands but the accumulator, in order, where the term of the row is `value` up
    /// to the order of factors and summands. `fits` says whether a read, or a part of one, may be an operand.
    pub fn unify<'a>(&self, value: &'a Expr, fits: &mut dyn FnMut(usize, &Part) -> bool) -> Option<Vec<&'a Access>> {
        let parts = self.parts(value, fits)?;
        parts.into_iter().map(|part| part.is_whole().then_some(part.access)).collect()
    }

    /// Variant of [`TensorInstruction::unify`] for operands that are parts of what is read.
    fn parts<'a>(&self, value: &'a Expr, fits: &mut dyn FnMut(usize, &Part) -> bool) -> Option<Vec<Part<'a>>> {
        let mut found = vec![None; self.operands.len()];
        unify(&self.body, value, &mut found, fits).then_some(())?;
        found.into_iter().skip(1).collect()
    }

    /// The operands of each summand of `value`, where the term of the row is every one of them: the row computes one after the
    /// other.
    pub fn unify_sum<'a>(
        &self,
        value: &'a Expr,
        fits: &mut dyn FnMut(usize, &Part) -> bool,
    ) -> Option<Vec<Vec<Part<'a>>>> {
        match (self.parts(value, fits), value) {
            (Some(parts), _) => Some(vec![parts]),
            (None, Expr::Binary(BinaryOp::Add, a, b)) => {
                let mut terms = self.unify_sum(a, fits)?;
                terms.extend(self.unify_sum(b, fits)?);
                Some(terms)
            }
            _ => None,
        }
    }
}

type Found<'a> = Vec<Option<Part<'a>>>;

fn unify<'a>(term: &Expr, value: &'a Expr, found: &mut Found<'a>, fits: &mut dyn FnMut(usize, &Part) -> bool) -> bool {
    match (term, value) {
        (Expr::Load(operand), value) => {
            let Some(part) = Part::of(value) else { return false };
            let n = operand.buffer.0 as usize;
            let free = found[n].map_or_else(|| fits(n, &part), |known| known == part);
            found[n] = found[n].or(free.then_some(part));
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
