//! Operations on two registers, and those that combine the lanes of four at once.

use super::encode::Width;
use super::memory::width;
use super::opcode::{self, Op};
use crate::codegen::emit::Vectors;
use crate::codegen::vcode::{Lane, VBinary, VType};
use crate::codegen::x86::emitter::Emitter;

/// The instruction of an operation, where there is one.
pub(super) fn binary_op(op: VBinary, lane: Lane, evex: bool) -> Option<Op> {
    use VBinary::*;
    Some(match (op, lane) {
        (Add, Lane::F32) => opcode::ADD_PS,
        (Add, Lane::F64) => opcode::ADD_PD,
        (Add, Lane::I32) => opcode::ADD_D,
        (Add, Lane::I64) => opcode::ADD_Q,
        (Add, Lane::I16 | Lane::U16) => opcode::ADD_W,
        (Add, Lane::I8 | Lane::U8) => opcode::ADD_B,
        (Sub, Lane::F32) => opcode::SUB_PS,
        (Sub, Lane::F64) => opcode::SUB_PD,
        (Sub, Lane::I32) => opcode::SUB_D,
        (Sub, Lane::I64) => opcode::SUB_Q,
        (Sub, Lane::I16 | Lane::U16) => opcode::SUB_W,
        (Sub, Lane::I8 | Lane::U8) => opcode::SUB_B,
        (Mul, Lane::F32) => opcode::MUL_PS,
        (Mul, Lane::F64) => opcode::MUL_PD,
        (Mul, Lane::I32) => opcode::MUL_D,
        (Mul, Lane::I64) if evex => opcode::MUL_Q,
        (Mul, Lane::I16 | Lane::U16) => opcode::MUL_W,
        (MulPairs, Lane::I32) => opcode::MUL_PAIRS_W,
        (MulHigh, Lane::I16) => opcode::MUL_HIGH_W,
        (MulHigh, Lane::U16) => opcode::MUL_HIGH_UW,
        (Scale, Lane::F32) if evex => opcode::SCALE_PS,
        (Scale, Lane::F64) if evex => opcode::SCALE_PD,
        (Div, Lane::F32) => opcode::DIV_PS,
        (Div, Lane::F64) => opcode::DIV_PD,
        (Min, Lane::F32) => opcode::MIN_PS,
        (Min, Lane::F64) => opcode::MIN_PD,
        (Min, Lane::I32) => opcode::MIN_D,
        (Min, Lane::I64) if evex => opcode::MIN_Q,
        (Min, Lane::I16) => opcode::MIN_W,
        (Min, Lane::U16) => opcode::MIN_UW,
        (Min, Lane::I8) => opcode::MIN_B,
        (Min, Lane::U8) => opcode::MIN_UB,
        (Max, Lane::F32) => opcode::MAX_PS,
        (Max, Lane::F64) => opcode::MAX_PD,
        (Max, Lane::I32) => opcode::MAX_D,
        (Max, Lane::I64) if evex => opcode::MAX_Q,
        (Max, Lane::I16) => opcode::MAX_W,
        (Max, Lane::U16) => opcode::MAX_UW,
        (Max, Lane::I8) => opcode::MAX_B,
        (Max, Lane::U8) => opcode::MAX_UB,
        (And, _) => opcode::AND,
        (Or, _) => opcode::OR,
        (Xor, _) => opcode::XOR,
        (AndNot, _) => opcode::AND_NOT,
        (ShiftLeft, Lane::I32) => opcode::SHIFT_LEFT_BY_D,
        (ShiftLeft, Lane::I64) => opcode::SHIFT_LEFT_BY_Q,
        (ShiftRight, Lane::I32) => opcode::SHIFT_RIGHT_BY_D,
        (ShiftRight, Lane::I64) => opcode::SHIFT_RIGHT_BY_Q,
        (ShiftRightSigned, Lane::I32) => opcode::SHIFT_SIGNED_BY_D,
        (ShiftRightSigned, Lane::I64) if evex => opcode::SHIFT_SIGNED_BY_Q,
        _ => return None,
    })
}

impl Emitter<'_> {
    /// See [`Inst::VReduceFour`](crate::codegen::vcode::Inst::VReduceFour). As long as a register is long, halves of two stand side by
    /// side in one, and all are combined at once; each step combines the lanes that [`Vectors::reduce`] combines.
    pub(super) fn combine_four(&mut self, op: VBinary, ty: VType, d: u8, sources: [u8; 4]) -> bool {
        let Some(combine) = binary_op(op, ty.lane, self.arch.evex) else { return false };
        let [t, u, v] = [0, 1, 2].map(|k| self.temporaries.vector[k]);
        let (x, w) = (Width::X, width(ty));
        match w {
            Width::Z => {
                let [a, b, c, e] = sources;
                for (to, spare, [a, b]) in [(t, u, [a, b]), (u, v, [c, e])] {
                    self.op3i(opcode::SHUFFLE_128, w, to, a, b, 0x44);
                    self.op3i(opcode::SHUFFLE_128, w, spare, a, b, 0xee);
                    self.op3(combine, w, to, to, spare);
                }
                self.op3i(opcode::SHUFFLE_128, w, v, t, u, 0x88);
                self.op3i(opcode::SHUFFLE_128, w, t, t, u, 0xdd);
                self.op3(combine, w, t, v, t);
                for order in [0x4e, 0xb1] {
                    self.op2i(opcode::SHUFFLE_D, w, u, t, order);
                    self.op3(combine, w, t, t, u);
                }
                let firsts = (0..4u32).flat_map(|i| (4 * i).to_le_bytes()).collect::<Vec<u8>>().repeat(4);
                let firsts = self.constant_register(w, u, firsts);
                self.op3(opcode::PERMUTE_PS, w, d, firsts, t);
            }
            Width::Y => {
                let [a, b, c, e] = sources;
                let (halves, low, high) =
                    if self.arch.evex { (opcode::SHUFFLE_128, 0, 3) } else { (opcode::PERMUTE_128, 0x20, 0x31) };
                for (to, spare, [a, b]) in [(t, u, [a, c]), (u, v, [b, e])] {
                    self.op3i(halves, w, to, a, b, low);
                    self.op3i(halves, w, spare, a, b, high);
                    self.op3(combine, w, to, to, spare);
                }
                self.halves_side_by_side(combine, w, t, v, [t, u]);
                self.upper_half(u, t, 16);
                self.even_with_odd(combine, d, v, [t, u]);
            }
            Width::X => {
                let [a, b, c, e] = sources;
                self.halves_side_by_side(combine, x, t, v, [a, b]);
                self.halves_side_by_side(combine, x, u, v, [c, e]);
                self.even_with_odd(combine, d, v, [t, u]);
            }
        }
        true
    }

    /// The lower and upper halves of each 16 bytes of two registers, combined.
    fn halves_side_by_side(&mut self, combine: Op, w: Width, d: u8, spare: u8, [a, b]: [u8; 2]) {
        self.op3(opcode::UNPACK_HIGH_Q, w, spare, a, b);
        self.op3(opcode::UNPACK_LOW_Q, w, d, a, b);
        self.op3(combine, w, d, d, spare);
    }

    /// The even lanes of two registers of four, combined with the odd ones.
    fn even_with_odd(&mut self, combine: Op, d: u8, spare: u8, [a, b]: [u8; 2]) {
        self.op3i(opcode::SHUFFLE_PS, Width::X, spare, a, b, 0xdd);
        self.op3i(opcode::SHUFFLE_PS, Width::X, d, a, b, 0x88);
        self.op3(combine, Width::X, d, d, spare);
    }
}
