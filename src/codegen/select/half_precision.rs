//! f16 and bf16: sixteen bits in memory, lanes of f32 in registers.
//!
//! In: lanes of f32, or lanes of i32 with the bits of a half. Out: the other. Invariant: a half in a register is an f32
//! that the half can hold: each operation is done in f32 and rounded, to nearest and ties to even, as `expr::scalar`
//! defines. Only integer operations are used, so that every target does the same.

use crate::codegen::select::state::Selector;
use crate::codegen::select::state::Val;
use crate::codegen::vcode::{Lane, ShiftOp, VBinary};
use crate::expr::CompareOp;
use crate::runtime::DType;

/// Returns true if values of this type are rounded after each operation.
pub fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

impl Selector<'_> {
    /// Bits from memory (lanes of i32) to the value.
    pub fn half_to_value(&mut self, bits: Val) -> Val {
        let value = match bits.dtype {
            DType::BF16 => self.shift(ShiftOp::Left, bits, 16),
            _ => self.f16_to_value(bits),
        };
        Val { lane: Lane::F32, ..value }
    }

    /// A value to the bits that memory takes (lanes of i32).
    pub fn value_to_half(&mut self, value: Val) -> Val {
        match value.dtype {
            DType::BF16 => self.value_to_bf16(value),
            _ => self.value_to_f16(value),
        }
    }

    /// The nearest value that the half can hold.
    pub fn half_rounded(&mut self, value: Val) -> Val {
        let bits = self.value_to_half(value);
        self.half_to_value(bits)
    }

    fn f16_to_value(&mut self, bits: Val) -> Val {
        let magnitude = self.masked(bits, 0x7fff);
        let sign = self.masked(bits, 0x8000);
        let sign = self.shift(ShiftOp::Left, sign, 16);
        let moved = self.shift(ShiftOp::Left, magnitude, 13);
        let (finite, infinite) = (self.integer_of(bits, 112 << 23), self.integer_of(bits, 224 << 23));
        let limit = self.integer_of(bits, 0x7c00);
        let special = self.vector_compare(CompareOp::Ge, magnitude, limit);
        let bias = self.vector_select(special, infinite, finite);
        let normal = self.vector_binary(VBinary::Add, moved, bias);
        // A multiple of 2^-24.
        let number = self.converted(magnitude, Lane::F32);
        let unit = self.number(number, 1.0 / 16777216.0);
        let small = self.vector_binary(VBinary::Mul, number, unit);
        let least = self.integer_of(bits, 0x400);
        let subnormal = self.vector_compare(CompareOp::Lt, magnitude, least);
        let value = self.vector_select(subnormal, Val { lane: Lane::I32, ..small }, normal);
        self.vector_binary(VBinary::Or, value, sign)
    }

    fn value_to_f16(&mut self, value: Val) -> Val {
        let bits = Val { lane: Lane::I32, ..value };
        let magnitude = self.masked(bits, 0x7fff_ffff);
        let sign = self.shift(ShiftOp::RightLogical, bits, 16);
        let sign = self.masked(sign, 0x8000);
        let biased = self.offset(magnitude, 0xfff - (112 << 23));
        let normal = self.nearest_even(biased, magnitude, 13);
        // Adding 0.5 leaves the multiple of 2^-24 in the low bits.
        let positive = Val { lane: Lane::F32, ..magnitude };
        let half = self.number(positive, 0.5);
        let shifted = self.vector_binary(VBinary::Add, positive, half);
        let small = self.offset(Val { lane: Lane::I32, ..shifted }, -i64::from(0.5f32.to_bits()));
        let least = self.integer_of(bits, 0x3880_0000);
        let subnormal = self.vector_compare(CompareOp::Lt, magnitude, least);
        let finite = self.vector_select(subnormal, small, normal);
        let (limit, infinity) = (self.integer_of(bits, 0x4780_0000), self.integer_of(bits, 0x7c00));
        let large = self.vector_compare(CompareOp::Ge, magnitude, limit);
        let known = self.vector_select(large, infinity, finite);
        let (most, nan) = (self.integer_of(bits, 0x7f80_0000), self.integer_of(bits, 0x7e00));
        let unordered = self.vector_compare(CompareOp::Gt, magnitude, most);
        let known = self.vector_select(unordered, nan, known);
        self.vector_binary(VBinary::Or, known, sign)
    }

    fn value_to_bf16(&mut self, value: Val) -> Val {
        let bits = Val { lane: Lane::I32, ..value };
        let biased = self.offset(bits, 0x7fff);
        let rounded = self.nearest_even(biased, bits, 16);
        let magnitude = self.masked(bits, 0x7fff_ffff);
        let most = self.integer_of(bits, 0x7f80_0000);
        let unordered = self.vector_compare(CompareOp::Gt, magnitude, most);
        let top = self.shift(ShiftOp::RightLogical, bits, 16);
        let quiet = self.integer_of(bits, 0x40);
        let nan = self.vector_binary(VBinary::Or, top, quiet);
        self.vector_select(unordered, nan, rounded)
    }

    /// `biased`, one more where bit `dropped` of `bits` is set, without the `dropped` low bits.
    fn nearest_even(&mut self, biased: Val, bits: Val, dropped: u8) -> Val {
        let odd = self.shift(ShiftOp::RightLogical, bits, dropped);
        let odd = self.masked(odd, 1);
        let sum = self.vector_binary(VBinary::Add, biased, odd);
        self.shift(ShiftOp::RightLogical, sum, dropped)
    }

    fn masked(&mut self, v: Val, bits: i64) -> Val {
        let mask = self.integer_of(v, bits);
        self.vector_binary(VBinary::And, v, mask)
    }

    fn offset(&mut self, v: Val, by: i64) -> Val {
        let by = self.integer_of(v, by);
        self.vector_binary(VBinary::Add, v, by)
    }

    fn integer_of(&mut self, like: Val, v: i64) -> Val {
        Val { reg: self.bits(Lane::I32, v as u64), lane: Lane::I32, uniform: true, ..like }
    }
}
