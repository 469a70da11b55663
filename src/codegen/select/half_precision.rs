//! f16 and bf16: sixteen bits in memory, lanes of f32 in registers.
//!
//! In: lanes of f32, or lanes of i32 with the bits of a half. Out: the other. Invariant: a half in a register is an f32
//! that the half can hold: each operation is done in f32 and rounded, to nearest and ties to even, as `expr::scalar`
//! defines. An f16 is converted by instructions that every target has; a bf16 by one where the target has it, or else by operations
//! on integers.

use crate::codegen::select::state::Selector;
use crate::codegen::select::state::Val;
use crate::codegen::vcode::{Lane, ShiftOp, VBinary, VUnary};
use crate::expr::CompareOp;
use crate::runtime::DType;

impl Selector<'_> {
    /// Bits from memory (lanes of i32) to the value.
    pub fn half_to_value(&mut self, bits: Val) -> Val {
        let bits = Val { lane: Lane::I32, ..bits };
        match bits.dtype {
            DType::BF16 => Val { lane: Lane::F32, ..self.shift(ShiftOp::Left, bits, 16) },
            _ => self.vector_unary(VUnary::WidenHalf, Val { lane: Lane::F32, ..bits }),
        }
    }

    /// A value to the bits that memory takes (lanes of i32).
    pub fn value_to_half(&mut self, value: Val) -> Val {
        match value.dtype {
            DType::BF16 => self.value_to_bf16(value),
            _ => self.vector_unary(VUnary::NarrowHalf, Val { lane: Lane::I32, ..value }),
        }
    }

    /// The nearest value that the half can hold.
    pub fn half_rounded(&mut self, value: Val) -> Val {
        match value.dtype {
            DType::BF16 => {
                let bits = self.value_to_bf16(value);
                self.half_to_value(bits)
            }
            _ => self.vector_unary(VUnary::RoundHalf, value),
        }
    }

    fn value_to_bf16(&mut self, value: Val) -> Val {
        if self.target.narrows_to_bf16() {
            return self.vector_unary(VUnary::NarrowBf16, Val { lane: Lane::I32, ..value });
        }
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
