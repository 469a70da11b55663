//! Unsigned integers of 32 bits in lanes of 32 bits.
//!
//! In: a nest. Out: the same, in which a buffer of u32 is one of i32 where all that is done with its elements has an equal in i32:
//! what takes low bits to low bits (sums, differences, products, bitwise operations, shifts to the left), shifts to the right,
//! comparisons and extremes, whose order a flipped sign keeps, and conversions of what is below 2^31 or to integers of
//! at most 32 bits. Vectors have lanes of 32 bits for i32, and lanes of 64 bits, whose values are brought back into range, for u32.

use crate::codegen::loopnest::{LoopNest, Stmt};
use crate::expr::narrow::{Names, dtype_range};
use crate::expr::scalar::{Value, cast};
use crate::expr::{Access, BinaryOp, BufferId, CompareOp, Expr, Index, Scalar, UnaryOp};
use crate::runtime::DType;
use rustc_hash::FxHashSet;

/// Replaces the u32 of `nest`, as far as i32 can stand for them.
pub fn as_signed(nest: &mut LoopNest) {
    let unsigned = nest.buffers.iter().enumerate().filter(|(_, b)| b.dtype == DType::U32 && b.literals.is_none());
    let mut signed: FxHashSet<BufferId> = unsigned.map(|(i, _)| BufferId(i as u32)).collect();
    loop {
        let before = signed.len();
        for statement in &nest.body {
            statement.visit(&mut |s| keep(nest, s, &mut signed));
        }
        if signed.is_empty() {
            return;
        }
        if signed.len() == before {
            break;
        }
    }
    let body = std::mem::take(&mut nest.body);
    nest.body = body.into_iter().map(|s| rewritten(&Rewriter { nest, signed: &signed }, s)).collect();
    for b in &signed {
        nest.buffers[b.0 as usize].dtype = DType::I32;
    }
}

/// Removes the buffers whose elements a statement uses otherwise.
fn keep(nest: &LoopNest, s: &Stmt, signed: &mut FxHashSet<BufferId>) {
    if let Stmt::Read { value, .. } = s {
        value.visit_accesses(&mut |a| {
            signed.remove(&a.buffer);
        });
    }
    let Stmt::Store { buffer, index, value, .. } = s else { return };
    if (Rewriter { nest, signed }).store(s).is_some() {
        return;
    }
    signed.remove(buffer);
    let mut remove = |e: &Expr| {
        e.visit_accesses(&mut |a| {
            signed.remove(&a.buffer);
        });
    };
    index.iter().filter_map(Index::value).for_each(&mut remove);
    remove(value);
}

fn rewritten(rewriter: &Rewriter, s: Stmt) -> Stmt {
    match s {
        Stmt::Store { .. } => rewriter.store(&s).unwrap_or(s),
        other => other.map_body(|body| body.into_iter().map(|s| rewritten(rewriter, s)).collect()),
    }
}

fn takes_low_bits(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor)
}

fn of_i32(bits: u32) -> Expr {
    Expr::Const(Scalar::from(cast(DType::I32, Value::I64(i64::from(bits as i32)))))
}

/// Rewrites expressions for buffers of u32 that become buffers of i32.
struct Rewriter<'a> {
    nest: &'a LoopNest,
    signed: &'a FxHashSet<BufferId>,
}

impl Rewriter<'_> {
    fn dtype(&self, e: &Expr) -> DType {
        e.dtype(&|b: BufferId| self.nest.buffer(b).dtype)
    }

    /// The greatest value of an integer expression.
    fn greatest(&self, e: &Expr) -> Option<i64> {
        let dtype = |b: BufferId| self.nest.buffer(b).dtype;
        let names = Names { dtype: &dtype, bounds: &|_| (i64::MIN, i64::MAX), is_table: &|_| false };
        names.range(e).filter(|r| r.0 >= 0).map(|r| r.1)
    }

    /// A store whose expressions are rewritten; `None` where one has no equal.
    fn store(&self, s: &Stmt) -> Option<Stmt> {
        let Stmt::Store { buffer, index, value, reduce } = s else { return None };
        let value = match self.signed.contains(buffer) {
            true if reduce.is_some_and(|op| !takes_low_bits(op)) => return None,
            true => self.low(value)?,
            false => self.same(value)?,
        };
        Some(Stmt::Store { buffer: *buffer, index: self.index(index)?, value, reduce: *reduce })
    }

    fn index(&self, index: &[Index]) -> Option<Vec<Index>> {
        let each = |i: &Index| match i {
            Index::Affine(_) => Some(i.clone()),
            Index::Value(e) => Some(Index::Value(Box::new(self.same(e)?))),
        };
        index.iter().map(each).collect()
    }

    /// An expression of the same type and value.
    fn same(&self, e: &Expr) -> Option<Expr> {
        if !e.any(&mut |e| matches!(e, Expr::Load(a) if self.signed.contains(&a.buffer))) {
            return Some(e.clone());
        }
        match e {
            Expr::Cast(to, a) if self.dtype(a) == DType::U32 => {
                let is_low = dtype_range(*to).is_some() && *to != DType::Bool && to.bytes() <= 4;
                let is_positive = self.greatest(a).is_some_and(|most| most <= i64::from(i32::MAX));
                (is_low || is_positive).then_some(())?;
                Some(Expr::cast(*to, self.low(a)?))
            }
            Expr::Compare(op, a, b) if self.dtype(a) == DType::U32 => {
                let (a, b) = (self.low(a)?, self.low(b)?);
                match op {
                    CompareOp::Eq | CompareOp::Ne => Some(Expr::compare(*op, a, b)),
                    _ => Some(Expr::compare(*op, flipped(a), flipped(b))),
                }
            }
            Expr::Load(a) if !self.signed.contains(&a.buffer) => {
                Some(Expr::Load(Access { index: self.index(&a.index)?, ..a.clone() }))
            }
            _ if self.dtype(e) == DType::U32 => None,
            Expr::Load(_) | Expr::Bitcast(..) => None,
            _ => e.try_map_children(&mut |e| self.same(e).ok_or(())).ok(),
        }
    }

    /// An expression in i32 with the bits of `e`, whose type is u32; `None` where there is none.
    fn low(&self, e: &Expr) -> Option<Expr> {
        let signed = |s: &Scalar| Scalar::from(cast(DType::I32, Value::from(*s)));
        let amount = |b: &Expr| match b {
            Expr::Const(n) => u32::try_from(Value::from(*n).as_i64()).ok(),
            _ => None,
        };
        match e {
            Expr::Const(s) => Some(Expr::Const(signed(s))),
            Expr::Load(a) => {
                let otherwise = a.otherwise.as_ref().map(signed);
                let index = self.index(&a.index)?;
                self.signed.contains(&a.buffer).then(|| Expr::Load(Access { otherwise, index, ..a.clone() }))
            }
            Expr::Cast(_, a) if self.dtype(a) == DType::U32 => self.low(a),
            Expr::Cast(_, a) if self.dtype(a) == DType::I32 => self.same(a),
            Expr::Cast(_, a) => {
                let narrow =
                    matches!(self.dtype(a), DType::Bool | DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I64);
                narrow.then_some(())?;
                Some(Expr::cast(DType::I32, self.same(a)?))
            }
            Expr::Unary(op @ (UnaryOp::Neg | UnaryOp::Not | UnaryOp::CountOnes), a) => {
                Some(Expr::unary(*op, self.low(a)?))
            }
            Expr::Select(c, a, b) => Some(Expr::select(self.same(c)?, self.low(a)?, self.low(b)?)),
            Expr::Binary(op, a, b) if takes_low_bits(*op) => Some(Expr::binary(*op, self.low(a)?, self.low(b)?)),
            Expr::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) => {
                Some(flipped(Expr::binary(*op, flipped(self.low(a)?), flipped(self.low(b)?))))
            }
            // an amount of 2^31 or more is a negative one, and both leave nothing
            Expr::Binary(BinaryOp::ShiftLeft, a, b) => {
                Some(Expr::binary(BinaryOp::ShiftLeft, self.low(a)?, self.low(b)?))
            }
            Expr::Binary(BinaryOp::ShiftRight, a, b) => match amount(b).filter(|n| *n < 32) {
                Some(n) => self.shifted(a, n),
                None => Some(logical_shift(self.low(a)?, self.low(b)?)),
            },
            Expr::Binary(BinaryOp::Div, a, b) => {
                let divisor = amount(b).filter(|n| n.is_power_of_two())?;
                self.shifted(a, divisor.ilog2())
            }
            Expr::Binary(BinaryOp::Mod, a, b) => {
                let divisor = amount(b).filter(|n| n.is_power_of_two())?;
                Some(Expr::binary(BinaryOp::And, self.low(a)?, of_i32(divisor - 1)))
            }
            _ => None,
        }
    }

    /// The bits of a u32, shifted to the right: those that a shift of an i32 fills with its sign are cleared.
    fn shifted(&self, a: &Expr, n: u32) -> Option<Expr> {
        let bits = self.low(a)?;
        Some(match n {
            0 => bits,
            _ => {
                let shifted = Expr::binary(BinaryOp::ShiftRight, bits, of_i32(n));
                Expr::binary(BinaryOp::And, shifted, of_i32(u32::MAX >> n))
            }
        })
    }
}

/// The bits of an i32 shifted to the right by so many places, none of them a copy of the sign: the sign is shifted by itself.
fn logical_shift(bits: Expr, amount: Expr) -> Expr {
    let shift = |op, a, n: &Expr| Expr::binary(op, a, n.clone());
    let last = of_i32(31);
    let others = Expr::binary(BinaryOp::And, bits.clone(), of_i32(u32::MAX >> 1));
    let place = Expr::binary(BinaryOp::Sub, last.clone(), amount.clone());
    let sign = shift(BinaryOp::ShiftRight, bits, &last);
    let sign = Expr::binary(BinaryOp::And, sign, shift(BinaryOp::ShiftLeft, of_i32(1), &place));
    Expr::binary(BinaryOp::Or, shift(BinaryOp::ShiftRight, others, &amount), sign)
}

/// The operands of a shift that [`logical_shift`] has made: the bits and the amount.
pub(super) fn logically_shifted<'e>(a: &'e Expr, b: &Expr) -> Option<(&'e Expr, &'e Expr)> {
    let Expr::Binary(BinaryOp::ShiftRight, others, amount) = a else { return None };
    let Expr::Binary(BinaryOp::And, bits, _) = &**others else { return None };
    let whole = logical_shift((**bits).clone(), (**amount).clone());
    matches!(&whole, Expr::Binary(_, first, second) if **first == *a && **second == *b).then_some((bits, amount))
}

/// The i32 whose order among others is that of the u32 with the bits of `e`.
fn flipped(e: Expr) -> Expr {
    Expr::binary(BinaryOp::Xor, e, of_i32(1 << 31))
}

#[cfg(test)]
mod tests {
    use crate::codegen::Target;
    use crate::codegen::loopnest::parse;
    use crate::codegen::select::lower;
    use crate::codegen::select::tests::check;
    use crate::codegen::vcode::{Inst, Lane};

    /// Instructions that work on lanes of 64 bits, for AVX-512.
    fn wide(value: &str) -> usize {
        let text = format!(
            "kernel p {{ H: u32[64] argument 0 written; X: u32[64] argument 1; F: f32[64] argument 2;
             parallel t in 0..1 {{ for k in 0..3 {{ vector i in 0..64 {{ H[i] = {value}; }} }} }} }}"
        );
        let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        check(&nest, 3);
        let functions = lower(&nest, &Target::avx512()).unwrap();
        let wide = |i: &&Inst| i.ty().is_some_and(|ty| ty.lane == Lane::I64);
        functions.iter().flat_map(|f| &f.insts).filter(wide).count()
    }

    #[test]
    fn what_wraps_has_lanes_of_its_own_width() {
        assert_eq!(wide("((H[i] * u32(33)) + X[i])"), 0);
        assert_eq!(wide("xor(shl(H[i], u32(5)), (X[i] - u32(4000000000)))"), 0);
        assert_eq!(wide("(H[i] + cast u32(index(i)))"), 0);
        assert_eq!(wide("(shr(H[i], u32(7)) + ((X[i] / u32(8)) - mod(H[i], u32(64))))"), 0);
        assert_eq!(wide("xor(shl(H[i], mod(X[i], u32(64))), shr(H[i], (u32(32) - mod(X[i], u32(64)))))"), 0);
        assert_eq!(wide("max(H[i], min(X[i], u32(3000000000)))"), 0);
        assert_eq!(wide("(H[i] + select(lt(X[i], u32(2147483649)), u32(1), select(eq(X[i], H[i]), H[i], u32(2))))"), 0);
        assert_eq!(wide("(H[i] + cast u32(cast i32(cast f32(shr(X[i], u32(8))))))"), 0);
        // the value of all bits counts
        assert!(wide("(H[i] + (X[i] / u32(3)))") > 0);
        assert!(wide("(H[i] + cast u32(cast f32(X[i])))") > 0);
    }
}
