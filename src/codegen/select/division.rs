//! Division of integers, and remainders; division of floats by constants.
//!
//! In: values of one type in equal lanes. Out: quotient and remainder. Integers are divided in f64 with corrections:
//! exact for all operands of 32 bits and for quotients of 64-bit operands below 2^62. A quotient of floats by a constant is a
//! product with the inverse and one correction by the exact remainder (Markstein 1990), a sixth of the time of the division
//! instruction: the correctly rounded quotient where neither it nor 2^-24 of the dividend (2^-53 in f64) is beyond the normal
//! numbers, otherwise off by a unit in the last place. A zero has the sign of the exact quotient.

use crate::codegen::select::state::Val;
use crate::codegen::select::state::{Selected, Selector};
use crate::codegen::target::{Isa, Quotients};
use crate::codegen::vcode::{Inst, Lane, VBinary, VUnary};
use crate::expr::scalar::Value;
use crate::expr::{CompareOp, Expr, UnaryOp};
use crate::runtime::DType;

/// A constant by which floats are divided by products: not so large or small that its inverse is not normal.
pub fn quick_divisor(e: &Expr) -> Option<f64> {
    let Expr::Const(s) = e else { return None };
    let limit = if s.dtype == DType::F64 { 1e150 } else { 1e18 };
    let divisor = Value::from(*s).as_f64();
    (divisor.abs() <= limit && divisor.abs() >= 1.0 / limit).then_some(divisor)
}

impl Selector<'_> {
    /// `a / divisor` for a [`quick_divisor`]. A single number is divided: that has the lower latency, which counts in
    /// recurrences.
    pub fn quotient_by(&mut self, a: Val, divisor: f64) -> Val {
        let (double, small, positive) = (a.lane == Lane::F64, divisor.abs() < 1.0, divisor > 0.0);
        if a.uniform {
            let divisor = self.number(a, divisor);
            return self.vector_binary(VBinary::Div, a, divisor);
        }
        let is_power = divisor.to_bits() << 12 == 0;
        let inverse = if double { 1.0 / divisor } else { f64::from(1.0 / divisor as f32) };
        let (inverse, divisor) = (self.number(a, inverse), self.number(a, divisor));
        let quotient = self.vector_binary(VBinary::Mul, a, inverse);
        if is_power || self.is_approximated(a) {
            return quotient;
        }
        // An exact zero is a positive zero: taken away, it leaves a quotient of -0 as it is; times a negative inverse, it can be added.
        let minuend = if positive { self.vector_unary(VUnary::Neg, a) } else { a };
        let remainder = self.fused(quotient, divisor, minuend, !positive);
        // an infinite quotient has no remainder: any number leaves it as it is
        let most = if double { f64::MAX } else { f32::MAX.into() };
        let (least, most) = (self.number(a, -most), self.number(a, most));
        let remainder = self.vector_binary(VBinary::Max, remainder, least);
        let remainder = if small { self.vector_binary(VBinary::Min, remainder, most) } else { remainder };
        self.fused(remainder, inverse, quotient, positive)
    }

    /// Returns true if quotients by `v` are approximated: f32 in vectors, where the target says so. A single number is divided: that
    /// has the lower latency.
    pub fn is_approximated(&self, v: Val) -> bool {
        self.target.quotients == Quotients::Approximate
            && self.target.isa != Isa::Avx2
            && v.dtype == DType::F32
            && v.lane == Lane::F32
            && !v.uniform
    }

    /// `a / b` where the program divides. Mathematical functions divide exactly: their bounds of error rest on that.
    pub fn program_quotient(&mut self, a: Val, b: Val) -> Val {
        let inverse = if self.is_approximated(b) {
            self.vector_unary(VUnary::InverseApproximate, b)
        } else if self.is_approximated(a) {
            // one division for all lanes
            let one = self.number(b, 1.0);
            self.vector_binary(VBinary::Div, one, b)
        } else {
            return self.float_quotient(a, b);
        };
        self.vector_binary(VBinary::Mul, a, inverse)
    }

    /// `√a` where the program asks for it.
    pub fn program_root(&mut self, a: Val) -> Val {
        let approximated = self.target.isa == Isa::Avx512 && self.is_approximated(a);
        self.vector_unary(if approximated { VUnary::RootApproximate } else { VUnary::Sqrt }, a)
    }

    /// `a / b` where `b` is a square root that is approximated with its inverse.
    pub fn quotient_by_root(&mut self, a: &Expr, b: &Expr) -> Selected<Option<Val>> {
        let Expr::Unary(UnaryOp::Sqrt, x) = b else { return Ok(None) };
        if self.target.quotients != Quotients::Approximate || self.target.isa != Isa::Avx512 {
            return Ok(None);
        }
        let x = self.value(x)?;
        if !self.is_approximated(x) {
            return Ok(None);
        }
        let inverse = self.vector_unary(VUnary::InverseRootApproximate, x);
        if matches!(a, Expr::Const(s) if Value::from(*s).as_f64() == 1.0) {
            return Ok(Some(inverse));
        }
        let a = self.value(a)?;
        Ok(Some(self.vector_binary(VBinary::Mul, a, inverse)))
    }

    /// `a / b`. Whole registers of AVX-512 are multiplied with the inverse, which other quotients by `b` share and loops in which
    /// `b` stays need not compute again.
    pub fn float_quotient(&mut self, a: Val, b: Val) -> Val {
        let ty = self.ty(a.lane, false);
        if self.target.isa != Isa::Avx512 || !ty.is_whole(self.target) || a.uniform && b.uniform {
            return self.vector_binary(VBinary::Div, a, b);
        }
        let inverse = if b.uniform { self.shared_inverse(b) } else { self.vector_unary(VUnary::Inverse, b) };
        let reg = self.emit(|dst| Inst::VQuotient { dst, ty, a: a.reg, b: b.reg, inverse: inverse.reg });
        Val { reg, uniform: false, ..a }
    }

    /// As [`VUnary::Inverse`] of a number that all lanes divide by: a division has a third of the latency, and takes no port from others. An
    /// infinite inverse leads to a division as not-a-number does.
    fn shared_inverse(&mut self, b: Val) -> Val {
        let one = self.number(b, 1.0);
        let inverse = self.vector_binary(VBinary::Div, one, b);
        let (zero, none) = (self.number(b, 0.0), self.number(b, f64::NAN));
        let vanishes = self.vector_compare(CompareOp::Eq, inverse, zero);
        self.vector_select(vanishes, none, inverse)
    }

    /// `a - trunc(a / b)·b`, exact while the quotient is below 2^52.
    pub fn float_remainder(&mut self, a: Val, b: Val) -> Selected<Val> {
        let (dtype, lane) = (a.dtype, a.lane);
        let (wide_a, wide_b) = (self.converted(a, Lane::F64), self.converted(b, Lane::F64));
        let (x, y) = (self.vector_unary(VUnary::Abs, wide_a), self.vector_unary(VUnary::Abs, wide_b));
        let quotient = self.vector_binary(VBinary::Div, x, y);
        let quotient = self.vector_unary(VUnary::Floor, quotient);
        let r = self.fused(quotient, y, x, true);
        // the rounded quotient may be one too large
        let zero = self.number(r, 0.0);
        let negative = self.vector_compare(CompareOp::Lt, r, zero);
        let more = self.vector_binary(VBinary::Add, r, y);
        let r = self.vector_select(negative, more, r);
        let infinite = self.number(y, f64::INFINITY);
        let whole = self.vector_compare(CompareOp::Eq, y, infinite);
        let finite = self.vector_compare(CompareOp::Lt, x, infinite);
        let whole = self.vector_binary(VBinary::And, whole, finite);
        let r = self.vector_select(whole, x, r);
        let sign = Val { reg: self.bits(Lane::F64, 1 << 63), ..r };
        let sign = Val { uniform: true, ..sign };
        let sign = self.vector_binary(VBinary::And, sign, wide_a);
        let r = self.vector_binary(VBinary::Or, r, sign);
        Ok(Val { dtype, ..self.converted(r, lane) })
    }

    /// Quotient towards zero and remainder; both 0 where the divisor is 0.
    pub fn int_divide(&mut self, a: Val, b: Val) -> Selected<(Val, Val)> {
        let zero = self.number(b, 0.0);
        let none = self.vector_compare(CompareOp::Eq, b, zero);
        let one = self.number(b, 1.0);
        let divisor = self.vector_select(none, one, b);
        let wide = self.converted(divisor, Lane::F64);
        let (mut quotient, in_steps) = (zero, a.lane == Lane::I64 && a.dtype != DType::U32);
        let mut remainder = a;
        // 32 bits are exact at once; 64 bits converge: each step leaves a remainder 2^-50 of the one before
        for _ in 0..if in_steps { 3 } else { 1 } {
            let numerator = self.converted(remainder, Lane::F64);
            let q = self.vector_binary(VBinary::Div, numerator, wide);
            // truncated by way of 64 bits, so that the one quotient that does not fit in 32 wraps
            let q = self.converted(q, Lane::I64);
            let q = Val { dtype: a.dtype, ..self.converted(q, a.lane) };
            quotient = self.vector_binary(VBinary::Add, quotient, q);
            let back = self.vector_binary(VBinary::Mul, q, divisor);
            remainder = self.vector_binary(VBinary::Sub, remainder, back);
        }
        if in_steps {
            // the sum of truncated parts may end one beyond: the remainder then has the wrong sign
            let (below, above) = (
                self.vector_compare(CompareOp::Lt, remainder, zero),
                self.vector_compare(CompareOp::Gt, remainder, zero),
            );
            let (negative, positive) =
                (self.vector_compare(CompareOp::Lt, a, zero), self.vector_compare(CompareOp::Gt, a, zero));
            let x = self.vector_binary(VBinary::And, below, positive);
            let y = self.vector_binary(VBinary::And, above, negative);
            let wrong = self.vector_binary(VBinary::Or, x, y);
            let reversed = self.vector_compare(CompareOp::Lt, divisor, zero);
            let flip = self.vector_binary(VBinary::Xor, below, reversed);
            let minus = self.number(quotient, -1.0);
            let step = self.vector_select(flip, minus, one);
            let corrected = self.vector_binary(VBinary::Add, quotient, step);
            let back = self.vector_binary(VBinary::Mul, step, divisor);
            let less = self.vector_binary(VBinary::Sub, remainder, back);
            quotient = self.vector_select(wrong, corrected, quotient);
            remainder = self.vector_select(wrong, less, remainder);
        }
        Ok((self.vector_select(none, zero, quotient), self.vector_select(none, zero, remainder)))
    }

    /// The remainder with the sign of the divisor.
    pub fn int_modulo(&mut self, a: Val, b: Val) -> Selected<Val> {
        let (_, remainder) = self.int_divide(a, b)?;
        let zero = self.number(b, 0.0);
        let some = self.vector_compare(CompareOp::Ne, remainder, zero);
        let (x, y) = (self.vector_compare(CompareOp::Lt, remainder, zero), self.vector_compare(CompareOp::Lt, b, zero));
        let opposite = self.vector_binary(VBinary::Xor, x, y);
        let opposite = self.vector_binary(VBinary::And, opposite, some);
        let moved = self.vector_binary(VBinary::Add, remainder, b);
        Ok(self.vector_select(opposite, moved, remainder))
    }
}
