//! Integer operations that no instruction does on some targets: shifts by a value, the number of ones, and u64 in lanes of i64.
//!
//! Comparisons of u64 flip the sign bit of both operands. A quotient of u64 is four times the signed quotient of the
//! dividend without its last two bits, and what the remainder still holds; a divisor of 2^63 or more is found 0 or 1 times.
//! Conversions from u64 halve what is too large for i64, the lost bit kept in the last one for the rounding.

use crate::codegen::select::state::{Selected, Selector, Val};
use crate::codegen::select::wrapping::logically_shifted;
use crate::codegen::target::Isa;
use crate::codegen::vcode::{Inst, Lane, ShiftOp, VBinary, VUnary};
use crate::expr::scalar::Value;
use crate::expr::{BinaryOp, CompareOp, Expr};
use crate::runtime::DType;
use crate::runtime::platform::Features;

const TWO_TO_63: f64 = 9223372036854775808.0;

impl Selector<'_> {
    /// Each lane of `a` shifted by its lane of `amount`: by one instruction, or a step for each bit of the amount.
    pub fn shifted(&mut self, left: bool, a: Val, amount: Val) -> Val {
        let lane_bits = a.lane.bytes() as u8 * 8;
        let bits = a.dtype.bytes() as i64 * 8;
        let signed = is_signed(a.dtype);
        let one = match self.target.isa {
            Isa::Avx512 => a.lane.bytes() >= 4,
            Isa::Avx2 => a.lane.bytes() == 4 || a.lane.bytes() == 8 && (left || !signed),
            Isa::Neon => false,
        };
        // what lies above the bits of a narrower type is zero or the sign
        if one && a.lane.bytes() == amount.lane.bytes() {
            let op = match (left, signed) {
                (true, _) => VBinary::ShiftLeft,
                (false, false) => VBinary::ShiftRight,
                (false, true) => VBinary::ShiftRightSigned,
            };
            return self.vector_binary(op, a, amount);
        }
        let op = shift_op(left, signed);
        let zero = self.number(amount, 0.0);
        let mut result = a;
        let mut step = 1u8;
        while i64::from(step) < bits {
            let bit = self.number(amount, step.into());
            let taken = self.vector_binary(VBinary::And, amount, bit);
            let taken = self.vector_compare(CompareOp::Ne, taken, zero);
            let moved = self.shift(op, result, step);
            result = self.vector_select(taken, moved, result);
            step *= 2;
        }
        // a negative amount, and one of all bits or more, leaves the sign
        let most = self.number(amount, (bits - 1) as f64);
        let above = self.vector_compare(CompareOp::Gt, amount, most);
        let below = self.vector_compare(CompareOp::Lt, amount, zero);
        let outside = self.vector_binary(VBinary::Or, above, below);
        let saturated =
            if left || !signed { self.number(a, 0.0) } else { self.shift(ShiftOp::RightArithmetic, a, lane_bits - 1) };
        self.vector_select(outside, saturated, result)
    }

    /// `x >> n & mask` of i32 as one shift, where the mask takes away the copies of the sign.
    pub fn logical_shift(&mut self, a: &Expr, b: &Expr) -> Selected<Option<Val>> {
        let constant = |e: &Expr| match e {
            Expr::Const(s) if s.dtype == DType::I32 => Some(Value::from(*s).as_i64() as u32),
            _ => None,
        };
        let (Expr::Binary(BinaryOp::ShiftRight, x, n), Some(mask)) = (a, constant(b)) else { return Ok(None) };
        let Some(n) = constant(n).filter(|n| (1..32).contains(n) && u32::MAX >> n == mask) else { return Ok(None) };
        let x = self.value(x)?;
        Ok((x.lane == Lane::I32 && x.dtype == DType::I32).then(|| self.shift(ShiftOp::RightLogical, x, n as u8)))
    }

    /// The bits of an i32 shifted to the right by a value, where `a | b` is what [`logically_shifted`] takes apart.
    pub fn logical_shift_by_value(&mut self, a: &Expr, b: &Expr) -> Selected<Option<Val>> {
        let Some((bits, amount)) = logically_shifted(a, b) else { return Ok(None) };
        let (bits, amount) = (self.value(bits)?, self.value(amount)?);
        if bits.lane != Lane::I32 || amount.lane != Lane::I32 {
            return Ok(None);
        }
        let shifted = self.shifted(false, Val { dtype: DType::U32, ..bits }, amount);
        Ok(Some(Val { dtype: DType::I32, ..shifted }))
    }

    /// `a` shifted by fewer bits than its type has.
    pub fn shifted_by(&mut self, left: bool, a: Val, amount: u8) -> Val {
        self.shift(shift_op(left, is_signed(a.dtype)), a, amount)
    }

    /// The number of ones in each lane: by an instruction, or as sums of neighbouring bits, of pairs, of fours and so on. Source: H. S. Warren,
    /// *Hacker's Delight*, section 5-1.
    pub fn count_ones(&mut self, a: Val) -> Selected<Val> {
        // a sign counts in all of its bits, and in no others
        let a = if a.dtype.bytes() == 8 { self.with_lane(a, Lane::I64)? } else { a };
        let (bits, lane_bits) = (8 * a.dtype.bytes() as u8, 8 * a.lane.bytes() as u8);
        let a = if bits < lane_bits && is_signed(a.dtype) { self.with_mask(a, (1 << bits) - 1) } else { a };
        let by_instruction = match self.target.isa {
            Isa::Avx512 => a.lane.bytes() >= 4 && self.target.features.contains(Features::AVX512VPOPCNTDQ),
            Isa::Avx2 => false,
            Isa::Neon => true,
        };
        if by_instruction {
            return Ok(self.vector_unary(VUnary::CountOnes, a));
        }
        let halves = self.shift(ShiftOp::RightLogical, a, 1);
        let halves = self.with_mask(halves, 0x5555_5555_5555_5555);
        let mut sums = self.vector_binary(VBinary::Sub, a, halves);
        let upper = self.shift(ShiftOp::RightLogical, sums, 2);
        let [lower, upper] = [sums, upper].map(|part| self.with_mask(part, 0x3333_3333_3333_3333));
        sums = self.vector_binary(VBinary::Add, lower, upper);
        let mut width = 4;
        while width < lane_bits {
            let upper = self.shift(ShiftOp::RightLogical, sums, width);
            sums = self.vector_binary(VBinary::Add, sums, upper);
            if width == 4 {
                sums = self.with_mask(sums, 0x0f0f_0f0f_0f0f_0f0f);
            }
            width *= 2;
        }
        Ok(if lane_bits > 8 { self.with_mask(sums, 2 * u64::from(lane_bits) - 1) } else { sums })
    }

    /// The bits of each lane that `mask` has.
    fn with_mask(&mut self, a: Val, mask: u64) -> Val {
        let mask = Val { reg: self.bits(a.lane, mask), uniform: true, ..a };
        self.vector_binary(VBinary::And, a, mask)
    }

    /// u64 in the order of i64.
    pub fn flipped(&mut self, v: Val) -> Val {
        let sign = Val { reg: self.bits(Lane::I64, 1 << 63), uniform: true, ..v };
        self.vector_binary(VBinary::Xor, v, sign)
    }

    /// A mask: `a op b` of u64.
    fn compare_unsigned(&mut self, op: CompareOp, a: Val, b: Val) -> Val {
        let (a, b) = (self.flipped(a), self.flipped(b));
        self.vector_compare(op, a, b)
    }

    /// Minimum, maximum, quotient and remainder of u64.
    pub fn wide_unsigned(&mut self, op: BinaryOp, a: Val, b: Val) -> Selected<Val> {
        Ok(match op {
            BinaryOp::Min => {
                let less = self.compare_unsigned(CompareOp::Lt, b, a);
                self.vector_select(less, b, a)
            }
            BinaryOp::Max => {
                let more = self.compare_unsigned(CompareOp::Gt, b, a);
                self.vector_select(more, b, a)
            }
            BinaryOp::Div => self.unsigned_divide(a, b)?.0,
            _ => self.unsigned_divide(a, b)?.1,
        })
    }

    /// Quotient and remainder; both 0 where the divisor is 0.
    fn unsigned_divide(&mut self, a: Val, b: Val) -> Selected<(Val, Val)> {
        let (zero, one, two) = (self.number(b, 0.0), self.number(b, 1.0), self.number(b, 2.0));
        let large = self.vector_compare(CompareOp::Lt, b, zero);
        let divisor = self.vector_select(large, one, b);
        let part = self.shift(ShiftOp::RightLogical, a, 2);
        let signed = |v: Val| Val { dtype: DType::I64, ..v };
        let (quotient, _) = self.int_divide(signed(part), signed(divisor))?;
        let quotient = self.shift(ShiftOp::Left, Val { dtype: a.dtype, ..quotient }, 2);
        let mut quotient = self.vector_select(large, zero, quotient);
        let back = self.vector_binary(VBinary::Mul, quotient, b);
        let mut remainder = self.vector_binary(VBinary::Sub, a, back);
        // the rest is below four times the divisor
        let doubled = self.shift(ShiftOp::Left, b, 1);
        let doubled = self.vector_select(large, b, doubled);
        let twice = self.vector_select(large, one, two);
        for (size, count) in [(doubled, twice), (b, one)] {
            let fits = self.compare_unsigned(CompareOp::Ge, remainder, size);
            let less = self.vector_binary(VBinary::Sub, remainder, size);
            let more = self.vector_binary(VBinary::Add, quotient, count);
            remainder = self.vector_select(fits, less, remainder);
            quotient = self.vector_select(fits, more, quotient);
        }
        let none = self.vector_compare(CompareOp::Eq, b, zero);
        Ok((self.vector_select(none, zero, quotient), self.vector_select(none, zero, remainder)))
    }

    /// u64 in lanes of i64 to a float, rounded once.
    pub fn unsigned_to_float(&mut self, v: Val, lane: Lane) -> Val {
        let zero = self.number(v, 0.0);
        let large = self.vector_compare(CompareOp::Lt, v, zero);
        let half = self.shift(ShiftOp::RightLogical, v, 1);
        let one = self.number(v, 1.0);
        let last = self.vector_binary(VBinary::And, v, one);
        let half = self.vector_binary(VBinary::Or, half, last);
        let (half, whole) = (self.converted(half, lane), self.converted(v, lane));
        let doubled = self.vector_binary(VBinary::Add, half, half);
        self.vector_select(large, doubled, whole)
    }

    /// A float to u64: cut, saturated, 0 for not-a-number.
    pub fn float_to_unsigned(&mut self, v: Val) -> Val {
        let zero = self.number(v, 0.0);
        // not-a-number and what is negative do not compare
        let positive = self.vector_compare(CompareOp::Gt, v, zero);
        let v = self.vector_select(positive, v, zero);
        let limit = self.number(v, TWO_TO_63);
        let large = self.vector_compare(CompareOp::Ge, v, limit);
        let less = self.vector_binary(VBinary::Sub, v, limit);
        let moved = self.vector_select(large, less, v);
        let beyond = self.vector_compare(CompareOp::Ge, moved, limit);
        let bits = Val { dtype: DType::U64, ..self.converted(moved, Lane::I64) };
        let upper = self.flipped(bits);
        let bits = self.vector_select(large, upper, bits);
        let most = Val { reg: self.bits(Lane::I64, u64::MAX), uniform: true, ..bits };
        self.vector_select(beyond, most, bits)
    }

    /// The extreme of all lanes of u64, in every lane.
    pub fn extreme_of_lanes(&mut self, op: VBinary, v: Val) -> Val {
        let flipped = self.flipped(v);
        let ty = self.ty(v.lane, false);
        let reg = self.emit(|dst| Inst::VReduce { op, dst, ty, a: flipped.reg, first: false });
        self.flipped(Val { reg, uniform: true, ..v })
    }
}

fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I64 | DType::I32 | DType::I16 | DType::I8)
}

fn shift_op(left: bool, signed: bool) -> ShiftOp {
    match (left, signed) {
        (true, _) => ShiftOp::Left,
        (false, true) => ShiftOp::RightArithmetic,
        (false, false) => ShiftOp::RightLogical,
    }
}
