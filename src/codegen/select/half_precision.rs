//! f16 and bf16: sixteen bits in memory, lanes of f32 in registers.
//!
//! In: lanes of f32, or lanes of i32 with the bits of a half. Out: the other. Invariant: a half in a register is an f32
//! that the half can hold: each operation is done in f32 and rounded, to nearest and ties to even, as `expr::scalar`
//! defines. An f16 is converted by instructions that every target has; a bf16 by one where the target has it, or else by operations
//! on integers.

use crate::codegen::select::state::{Address, LANE, Selected, Selector, Val, View};
use crate::codegen::vcode::{Lane, ShiftOp, VBinary, VUnary};
use crate::expr::{Access, CompareOp, Expr, Scalar};
use crate::runtime::DType;

/// The bits of one half.
const BITS: View = View { dtype: DType::I16, group: 1 };

/// Fewest bytes that are copied in lanes of 16 bits: less takes several instructions.
const LEAST_COPY: usize = 8;

impl Selector<'_> {
    /// Stores a number, or an element of the same type of half that is in memory, as its bits; false for other values.
    pub fn copy_bits(&mut self, target: &Address, value: &Expr) -> Selected<bool> {
        let dtype = self.nest.buffer(target.buffer).dtype;
        let in_memory = |s: &Self, b| s.nest.buffer(b).dtype == dtype && !s.in_registers(b);
        let free = self.view.is_none() && self.chunk.widest >= Lane::I32.bytes() && target.gather.is_empty();
        if !dtype.is_half() || !free || !in_memory(self, target.buffer) {
            return Ok(false);
        }
        let chunk = self.chunk;
        let neighbours = target.linear.coefficient(LANE) == 1 && self.reads_neighbours(value)?;
        if neighbours && usize::from(chunk.lanes) * dtype.bytes() >= LEAST_COPY {
            self.chunk.widest = dtype.bytes();
        }
        let bits = match value {
            Expr::Const(number) if number.dtype == dtype => {
                self.constant(Scalar { dtype: BITS.dtype, bits: number.bits })
            }
            Expr::Load(access) if in_memory(self, access.buffer) && self.is_element(access) => {
                self.view = Some(BITS);
                let bits = self.load(access);
                self.view = None;
                bits
            }
            _ => {
                self.chunk = chunk;
                return Ok(false);
            }
        };
        let bits = bits?;
        if !target.varies() && !bits.uniform {
            return self.internal("a store of lanes to one element");
        }
        self.store_lanes(target, bits, BITS.dtype)?;
        self.chunk = chunk;
        Ok(true)
    }

    /// Returns true for numbers and reads whose lanes are neighbours or one element.
    fn reads_neighbours(&mut self, value: &Expr) -> Selected<bool> {
        Ok(match value {
            Expr::Load(access) if self.is_element(access) => {
                let address = self.address(access.buffer, &access.index)?;
                matches!(address.linear.coefficient(LANE), 0 | 1)
            }
            Expr::Const(_) => true,
            _ => false,
        })
    }

    /// The element of 8 or 16 bits that is read from memory as an integer, without a conversion.
    pub fn bits_in_memory<'e>(&self, to: DType, e: &'e Expr) -> Option<&'e Access> {
        let Expr::Load(access) = e else { return None };
        let from = self.nest.buffer(access.buffer).dtype;
        let integers = !to.is_float() && !to.is_storage() && to != DType::Bool && from != DType::Bool;
        let free = self.view.is_none() && !self.in_registers(access.buffer) && self.is_element(access);
        (integers && free && from.bytes() == to.bytes() && to.bytes() <= 2).then_some(access)
    }

    /// Returns true for a read without guard of elements that do not come from data and are not known.
    fn is_element(&self, access: &Access) -> bool {
        let affine = access.index.iter().all(|i| i.affine().is_some());
        affine && access.guard.is_empty() && self.literal(access).is_none()
    }

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
