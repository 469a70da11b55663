//! Vector arithmetic between registers.

use super::encode::{Encoding, Rm, Width};
use super::memory::width;
use super::opcode;
use crate::codegen::emit::operand::{MemoryOperand, Source};
use crate::codegen::emit::{Scalars, Vectors};
use crate::codegen::instruction::TensorInstruction;
use crate::codegen::regalloc::allocation::Needs;
use crate::codegen::vcode::{Addr, Inst, Lane, ShiftOp, VBinary, VType, VUnary, Zip};
use crate::codegen::x86::emitter::{AREA_2, Compared, Emitter, on_stack, repeated};
use crate::codegen::x86::reductions::binary_op;
use crate::expr::CompareOp;
use crate::runtime::DType;
use dynasmrt::DynasmApi;

/// Temporaries of a binary operation.
fn binary_needs(op: VBinary, lane: Lane, evex: bool) -> u8 {
    match (op, lane) {
        (VBinary::Mul, Lane::I64) if !evex => 2,
        (VBinary::Min | VBinary::Max, Lane::I64) if !evex => 1,
        (VBinary::Mul, Lane::I8 | Lane::U8) => 2,
        _ => 0,
    }
}

pub(super) fn needs(inst: &Inst, evex: bool) -> Needs {
    let vector = match inst {
        Inst::VUnary { op: VUnary::Root | VUnary::RootApproximate | VUnary::InverseRootApproximate, .. } => 3,
        Inst::VUnary { op: VUnary::Inverse | VUnary::InverseApproximate, .. } | Inst::VQuotient { .. } => 2,
        Inst::VLookup { .. } => 2,
        Inst::VShuffle { .. } => 1,
        Inst::VUnary { op: VUnary::Neg, ty, .. } if !ty.lane.is_float() => 1,
        Inst::VUnary { op: VUnary::Abs, ty, .. } if ty.lane == Lane::I64 && !evex => 1,
        Inst::VBinary { op, ty, .. } => binary_needs(*op, ty.lane, evex),
        Inst::VZip { ty, .. } => 1 + (ty.lane.bytes() < 4) as u8,
        Inst::VShift { op: ShiftOp::RightArithmetic, ty, .. } if ty.lane.bytes() == 8 && !evex => 1,
        Inst::VFma { ty, .. } if !ty.lane.is_float() => 1 + binary_needs(VBinary::Mul, ty.lane, evex),
        Inst::VCompare { op, ty, .. } => (ty.lane.is_unsigned() && is_order(*op) && !evex) as u8,
        Inst::VConvert { to, from: Lane::I64, .. } if to.lane == Lane::F64 && !evex => 1,
        Inst::VReduce { op, ty, .. } if ty.lanes > 1 => 1 + binary_needs(*op, ty.lane, evex),
        Inst::VReduceFour { .. } => 3,
        Inst::VTensor { temporaries, .. } => *temporaries,
        _ => 0,
    };
    let gpr = match inst {
        Inst::VConvert { to, from: Lane::F32 | Lane::F64, .. } => (to.lane == Lane::I64 && !evex) as u8,
        Inst::TileLoad { .. } | Inst::TileStore { .. } => 1,
        _ => 0,
    };
    Needs { gpr, vector }
}

/// Returns true if a comparison asks which number is less.
fn is_order(op: CompareOp) -> bool {
    !matches!(op, CompareOp::Eq | CompareOp::Ne)
}

pub(super) fn uses_area(inst: &Inst, evex: bool) -> bool {
    match inst {
        Inst::VConvert { to, from, .. } if !evex => {
            matches!((from, to.lane), (Lane::I64, Lane::F32) | (Lane::F32 | Lane::F64, Lane::I64))
        }
        _ => false,
    }
}

impl Vectors for Emitter<'_> {
    fn constant(&mut self, d: u8, ty: VType, bits: u64) {
        let (w, lane) = (width(ty), ty.lane.bytes());
        let all = ty.lane.all_ones();
        let bytes = bits.to_le_bytes()[..lane].repeat(4usize.div_ceil(lane));
        match bits & all {
            0 => self.zero(d),
            b if b == all && self.arch.evex => self.op3i(opcode::TERNARY, w, d, d, d, 0xff),
            b if b == all => self.op3(opcode::EQUAL_D, w, d, d, d),
            _ if lane <= 4 => self.op3_constant(opcode::BROADCAST_SS, w, d, 0, bytes),
            _ => self.op3_constant(opcode::BROADCAST_Q, w, d, 0, bytes),
        }
    }

    fn pooled(&mut self, d: u8, bytes: Vec<u8>) {
        self.op3_constant(opcode::LOAD_PS, Width::of(bytes.len()), d, 0, bytes);
    }

    fn copy(&mut self, d: u8, s: u8, ty: VType) {
        self.copy_width(width(ty), d, s);
    }

    fn splat(&mut self, d: u8, s: u8, ty: VType) {
        let (w, lane) = (width(ty), ty.lane.bytes());
        let [splat, broadcast] = match lane {
            1 => [opcode::SPLAT_B, opcode::BROADCAST_B],
            2 => [opcode::SPLAT_W, opcode::BROADCAST_W],
            4 => [opcode::SPLAT_D, opcode::BROADCAST_D],
            _ => [opcode::SPLAT_Q, opcode::BROADCAST_Q],
        };
        if self.arch.evex {
            self.op2(splat, w, d, s);
        } else {
            self.op2(if lane <= 4 { opcode::FROM_GPR32 } else { opcode::FROM_GPR64 }, Width::X, d, s);
            self.op2(broadcast, w, d, d);
        }
    }

    fn first_lane(&mut self, d: u8, s: u8, ty: VType) {
        match ty.lane {
            Lane::I32 => {
                self.op2(opcode::STORE_D, Width::X, s, d);
                self.extend(DType::I32, d, d);
            }
            _ => self.op2(opcode::TO_GPR64, Width::X, s, d),
        }
    }

    fn spread(&mut self, d: u8, s: u8, ty: VType) {
        let op = match ty.lane.bytes() {
            1 => opcode::BROADCAST_B,
            2 => opcode::BROADCAST_W,
            4 => opcode::BROADCAST_SS,
            _ => opcode::BROADCAST_Q,
        };
        self.op2(op, width(ty), d, s);
    }

    fn upper_half(&mut self, d: u8, s: u8, bytes: usize) {
        match bytes {
            32 => self.op2i(opcode::EXTRACT_256, Width::Z, s, d, 1),
            16 => self.op2i(opcode::EXTRACT_128, Width::Y, s, d, 1),
            8 => self.op2i(opcode::SHUFFLE_D, Width::X, d, s, 0x0e),
            4 => self.op2i(opcode::SHUFFLE_D, Width::X, d, s, 0x01),
            2 => self.shift_by(opcode::SHIFT_D, Width::X, 2, d, s, 16),
            _ => self.shift_by(opcode::SHIFT_W, Width::X, 2, d, s, 8),
        }
    }

    fn unary(&mut self, op: VUnary, ty: VType, d: u8, a: u8) -> bool {
        let (w, lane) = (width(ty), ty.lane.bytes());
        let float = ty.lane.is_float();
        let approximable = ty.lane == Lane::F32 && self.arch.evex;
        let sign = 1u64 << (8 * lane - 1);
        let round = if ty.lane == Lane::F64 { opcode::ROUND_PD } else { opcode::ROUND_PS };
        match op {
            VUnary::Not => self.op3_constant(opcode::XOR, w, d, a, repeated(u64::MAX, lane, w)),
            VUnary::Abs if float => self.op3_constant(opcode::AND, w, d, a, repeated(!sign, lane, w)),
            VUnary::Neg if float => self.op3_constant(opcode::XOR, w, d, a, repeated(sign, lane, w)),
            VUnary::Abs if ty.lane.is_unsigned() => self.copy_width(w, d, a),
            VUnary::Abs if lane == 1 => self.op2(opcode::ABS_B, w, d, a),
            VUnary::Abs if lane == 2 => self.op2(opcode::ABS_W, w, d, a),
            VUnary::Abs if lane == 4 => self.op2(opcode::ABS_D, w, d, a),
            VUnary::Abs if self.arch.evex => self.op2(opcode::ABS_Q, w, d, a),
            VUnary::Abs => {
                let negative = self.temporaries.vector[0];
                self.zero(negative);
                self.op3(opcode::GREATER_Q, w, negative, negative, a);
                self.op3(opcode::XOR, w, d, a, negative);
                self.op3(opcode::SUB_Q, w, d, d, negative);
            }
            VUnary::Neg => {
                let zero = self.temporaries.vector[0];
                self.zero(zero);
                let op = match lane {
                    1 => opcode::SUB_B,
                    2 => opcode::SUB_W,
                    4 => opcode::SUB_D,
                    _ => opcode::SUB_Q,
                };
                self.op3(op, w, d, zero, a);
            }
            VUnary::CountOnes if !float && lane >= 4 && self.arch.evex => {
                self.op2(if lane == 4 { opcode::COUNT_ONES_D } else { opcode::COUNT_ONES_Q }, w, d, a);
            }
            VUnary::Sqrt if float => {
                self.op2(if lane == 4 { opcode::SQRT_PS } else { opcode::SQRT_PD }, w, d, a);
            }
            VUnary::Root if ty.lane == Lane::F32 && self.arch.evex => self.root_by_inverse(ty, d, a),
            VUnary::Inverse if float && self.arch.evex => self.inverse(ty, d, a),
            VUnary::InverseApproximate if approximable => self.inverse_approximate(ty, d, a),
            VUnary::RootApproximate | VUnary::InverseRootApproximate if approximable => {
                self.root_approximate(ty, d, a, op == VUnary::InverseRootApproximate);
            }
            VUnary::Round if float => self.op2i(round, w, d, a, 8),
            VUnary::Floor if float => self.op2i(round, w, d, a, 9),
            VUnary::Ceil if float => self.op2i(round, w, d, a, 10),
            VUnary::WidenHalf => {
                self.low_halves(w, d, a);
                self.op2(opcode::F16_TO_F32, w, d, d);
            }
            VUnary::NarrowHalf => {
                // To the nearest, whatever the mode; the destination is the operand in r/m.
                self.op2i(opcode::F32_TO_F16, w, a, d, 0);
                self.op2(opcode::ZERO_EXTEND_WD, w, d, d);
            }
            VUnary::NarrowBf16 if self.arch.evex => {
                self.op2(opcode::F32_TO_BF16, w, d, a);
                self.op2(opcode::ZERO_EXTEND_WD, w, d, d);
            }
            VUnary::RoundHalf => {
                self.op2i(opcode::F32_TO_F16, w, a, d, 0);
                self.op2(opcode::F16_TO_F32, w, d, d);
            }
            _ => return false,
        }
        true
    }

    fn binary(&mut self, op: VBinary, ty: VType, d: u8, a: u8, b: u8, vectors: &[u8]) -> bool {
        let w = width(ty);
        if let Some(op) = binary_op(op, ty.lane, self.arch.evex) {
            self.op3(op, w, d, a, b);
            return true;
        }
        match op {
            VBinary::Min | VBinary::Max => {
                let mask = vectors[0];
                self.op3(opcode::GREATER_Q, w, mask, a, b);
                let (from, where_set) = if op == VBinary::Min { (a, b) } else { (b, a) };
                self.blend(ty, d, from, where_set, mask);
            }
            VBinary::Mul if ty.lane.bytes() == 1 => {
                // In words: the upper bytes times 2^8, and the lower ones.
                let (high, low) = (vectors[0], vectors[1]);
                self.op3_constant(opcode::AND, w, high, a, repeated(0xff00, 2, w));
                self.shift_by(opcode::SHIFT_W, w, 2, low, b, 8);
                self.op3(opcode::MUL_W, w, high, high, low);
                self.op3(opcode::MUL_W, w, low, a, b);
                self.op3_constant(opcode::AND, w, low, low, repeated(0x00ff, 2, w));
                self.op3(opcode::OR, w, d, low, high);
            }
            VBinary::Mul if ty.lane == Lane::I64 => {
                // Low·low + ((low·high + high·low) << 32).
                let (cross, low) = (vectors[0], vectors[1]);
                self.op2i(opcode::SHUFFLE_D, w, cross, b, 0xb1);
                self.op3(opcode::MUL_D, w, cross, cross, a);
                self.shift_by(opcode::SHIFT_Q, w, 2, low, cross, 32);
                self.op3(opcode::ADD_D, w, cross, cross, low);
                self.shift_by(opcode::SHIFT_Q, w, 6, cross, cross, 32);
                self.op3(opcode::MUL_UDQ, w, low, a, b);
                self.op3(opcode::ADD_Q, w, d, low, cross);
            }
            _ => return false,
        }
        true
    }

    fn reduce_four(&mut self, op: VBinary, ty: VType, d: u8, sources: [u8; 4]) -> bool {
        self.combine_four(op, ty, d, sources)
    }

    fn zip(&mut self, op: Zip, ty: VType, d: u8, a: u8, b: u8) {
        match self.arch.evex {
            _ if ty.lane.bytes() < 4 => self.zip_narrow(op, ty, d, a, b),
            true => self.zip_by_table(op, ty, d, a, b),
            false => self.zip_by_unpacking(op, ty, d, a, b),
        }
    }

    fn shift(&mut self, op: ShiftOp, ty: VType, d: u8, a: u8, amount: u8) {
        let (w, wide) = (width(ty), ty.lane.bytes() == 8);
        let plain = match ty.lane.bytes() {
            1 => return self.shift_bytes(op, w, d, a, amount),
            2 => opcode::SHIFT_W,
            4 => opcode::SHIFT_D,
            _ => opcode::SHIFT_Q,
        };
        match op {
            ShiftOp::Left => self.shift_by(plain, w, 6, d, a, amount),
            ShiftOp::RightLogical => self.shift_by(plain, w, 2, d, a, amount),
            ShiftOp::RightArithmetic if !wide => self.shift_by(plain, w, 4, d, a, amount),
            ShiftOp::RightArithmetic if self.arch.evex => self.shift_by(opcode::SHIFT_ARITHMETIC_Q, w, 4, d, a, amount),
            ShiftOp::RightArithmetic => {
                let amount = amount.min(63);
                if amount == 0 {
                    return self.copy_width(w, d, a);
                }
                let sign = self.temporaries.vector[0];
                self.zero(sign);
                self.op3(opcode::GREATER_Q, w, sign, sign, a);
                self.shift_by(opcode::SHIFT_Q, w, 6, sign, sign, 64 - amount);
                self.shift_by(opcode::SHIFT_Q, w, 2, d, a, amount);
                self.op3(opcode::OR, w, d, d, sign);
            }
        }
    }

    fn multiply_add(&mut self, acc: u8, ty: VType, a: u8, b: u8, negate: bool) -> bool {
        self.fused(acc, ty, Source::Register(acc), [a, b].map(Source::Register), negate)
    }

    const MEMORY_OPERANDS: bool = true;

    fn fused_sum(&mut self, d: u8, ty: VType, sum: Source, factors: [Source; 2], negate: bool) -> bool {
        self.fused(d, ty, sum, factors, negate)
    }

    fn binary_memory(&mut self, op: VBinary, ty: VType, d: u8, a: u8, b: &MemoryOperand) -> bool {
        use VBinary::*;
        let arithmetic = ty.lane.is_float() && matches!(op, Add | Sub | Mul | Div | Min | Max);
        arithmetic && binary_op(op, ty.lane, self.arch.evex).is_some_and(|op| self.op3_memory(op, ty, d, a, b))
    }

    fn tensor_memory(&mut self, row: &TensorInstruction, registers: [u8; 2], addr: &Addr) -> bool {
        self.row_in_memory(row, registers, addr)
    }

    fn compare(&mut self, op: CompareOp, ty: VType, d: u8, a: u8, b: u8) {
        let (w, lane, float) = (width(ty), ty.lane.bytes(), ty.lane.is_float());
        // In short registers VEX writes the lanes themselves: one instruction, no mask register.
        let order = ty.lane.is_unsigned() && is_order(op);
        let short = w != Width::Z && d.max(a).max(b) < 16 && !order;
        if self.arch.evex && !short {
            self.compare_to_mask(op, ty, a, b);
            let spread = match lane {
                1 => opcode::MASK_TO_B,
                2 => opcode::MASK_TO_W,
                4 => opcode::MASK_TO_D,
                _ => opcode::MASK_TO_Q,
            };
            self.op2(spread, w, d, 1);
            self.arch.compared = Some(self.compared_here(d, lane));
        } else if order {
            self.compare_by_extremes(op, ty, d, a, b);
        } else if float {
            let compare = if lane == 8 { opcode::COMPARE_PD } else { opcode::COMPARE_PS };
            let plain = self.plain(compare, w, d, a, Rm::Register(b));
            self.vector(Encoding { evex: false, immediate: Some(predicate(op, true)), ..plain });
        } else {
            let (equal, greater) = match lane {
                1 => (opcode::EQUAL_B, opcode::GREATER_B),
                2 => (opcode::EQUAL_W, opcode::GREATER_W),
                4 => (opcode::EQUAL_D, opcode::GREATER_D),
                _ => (opcode::EQUAL_Q, opcode::GREATER_Q),
            };
            let (op, a, b, inverted) = match op {
                CompareOp::Eq => (equal, a, b, false),
                CompareOp::Ne => (equal, a, b, true),
                CompareOp::Gt => (greater, a, b, false),
                CompareOp::Le => (greater, a, b, true),
                CompareOp::Lt => (greater, b, a, false),
                CompareOp::Ge => (greater, b, a, true),
            };
            self.op3(op, w, d, a, b);
            if inverted {
                self.op3_constant(opcode::XOR, w, d, d, repeated(u64::MAX, 8, w));
            }
        }
    }

    /// AVX-512: by one bitwise instruction, its three operands in whatever order keeps `d` among them.
    fn select(&mut self, ty: VType, d: u8, mask: u8, a: u8, b: u8) {
        let w = width(ty);
        if !self.arch.evex {
            return self.blend(ty, d, b, a, mask);
        }
        // Truth table of `m ? x : y` where the operands of the instruction are at bits 2, 1 and 0 of the row.
        let table = |m: u8, x: u8, y: u8| {
            (0..8u8).filter(|row| row >> if row >> m & 1 != 0 { x } else { y } & 1 != 0).fold(0, |t, row| t | 1 << row)
        };
        if d == a && d != mask {
            self.op3i(opcode::TERNARY, w, d, mask, b, table(1, 2, 0));
        } else if d == b && d != mask {
            self.op3i(opcode::TERNARY, w, d, mask, a, table(1, 0, 2));
        } else {
            self.copy_width(w, d, mask);
            self.op3i(opcode::TERNARY, w, d, a, b, table(2, 1, 0));
        }
    }

    fn quotient(&mut self, ty: VType, d: u8, operands: [u8; 3]) -> bool {
        let possible = ty.lane.is_float() && self.arch.evex;
        if possible {
            self.quotient_by_inverse(ty, d, operands);
        }
        possible
    }

    fn choose(&mut self, op: CompareOp, ty: VType, d: u8, [a, b, yes, no]: [u8; 4]) -> bool {
        let w = width(ty);
        if !self.arch.evex || w != Width::Z {
            return false;
        }
        self.compare_to_mask(op, ty, a, b);
        let blend = match ty.lane.bytes() {
            1 => opcode::BLEND_MASK_B,
            2 => opcode::BLEND_MASK_W,
            4 => opcode::BLEND_MASK_PS,
            _ => opcode::BLEND_MASK_PD,
        };
        self.vector(Encoding { mask: 1, ..self.plain(blend, w, d, no, Rm::Register(yes)) });
        true
    }

    fn lookup(&mut self, ty: VType, d: u8, index: u8, table: [u8; 4]) -> bool {
        let possible = self.arch.evex && width(ty) == Width::Z && ty.lane.bytes() == 1;
        if possible {
            self.lookup_in_registers(d, index, table);
        }
        possible
    }

    fn shuffle(&mut self, ty: VType, d: u8, index: u8, table: &Addr) -> bool {
        let possible = width(ty) != Width::X && ty.lane.bytes() == 1;
        possible && self.shuffle_of_memory(width(ty), d, index, table).is_ok()
    }

    fn convert(&mut self, d: u8, to: VType, s: u8, from: Lane) -> bool {
        // Instructions between widths are named by the wider side.
        let w = Width::of(to.lanes as usize * to.lane.bytes().max(from.bytes()));
        let op = match (from, to.lane) {
            (a, b) if a == b || !a.is_float() && !b.is_float() && a.bytes() == b.bytes() => {
                self.copy_width(w, d, s);
                return true;
            }
            (Lane::F32, Lane::F64) => opcode::F32_TO_F64,
            (Lane::F64, Lane::F32) => opcode::F64_TO_F32,
            (Lane::F32, Lane::I32) => opcode::F32_TO_I32,
            (Lane::F64, Lane::I32) => opcode::F64_TO_I32,
            (Lane::I32, Lane::F32) => opcode::I32_TO_F32,
            (Lane::I32, Lane::F64) => opcode::I32_TO_F64,
            (Lane::I32, Lane::I64) => opcode::EXTEND_DQ,
            (Lane::I64, Lane::I32) if self.arch.evex => {
                // The destination is the operand in r/m.
                self.op2(opcode::NARROW_QD, w, s, d);
                return true;
            }
            (Lane::I64, Lane::I32) => {
                self.low_words(w, d, s);
                return true;
            }
            (Lane::I64, Lane::F32) if self.arch.evex => opcode::I64_TO_F32,
            (Lane::I64, Lane::F64) if self.arch.evex => opcode::I64_TO_F64,
            (Lane::F32, Lane::I64) if self.arch.evex => opcode::F32_TO_I64,
            (Lane::F64, Lane::I64) if self.arch.evex => opcode::F64_TO_I64,
            (Lane::I64, Lane::F64) => {
                // High half as 2^84 + high·2^32 (its sign bit flipped), low half as 2^52 + low; the difference of the
                // first and 2^84 + 2^63 + 2^52 is exact, so the sum rounds once.
                let high = self.temporaries.vector[0];
                let constant = |bits: u64| repeated(bits, 8, w);
                self.shift_by(opcode::SHIFT_Q, w, 2, high, s, 32);
                self.op3_constant(opcode::XOR, w, high, high, constant(0x4530_0000_8000_0000));
                self.op3_constant(opcode::SUB_PD, w, high, high, constant(0x4530_0000_8010_0000));
                self.op3i_constant(opcode::BLEND_D, w, d, s, constant(0x4330_0000_0000_0000), 0xaa);
                self.op3(opcode::ADD_PD, w, d, high, d);
                return true;
            }
            (Lane::I64, Lane::F32) => {
                self.store(opcode::STORE_PS, w, s, on_stack(0));
                for i in 0..to.lanes as i32 {
                    let e = self.plain(opcode::SCALAR_I64_TO_F32, Width::X, d, d, Rm::Memory(on_stack(8 * i)));
                    self.vector(e);
                    self.store(opcode::STORE_SS, Width::X, d, on_stack(AREA_2 + 4 * i));
                }
                let w = width(to);
                self.load(opcode::LOAD_PS, w, d, on_stack(AREA_2));
                return true;
            }
            (Lane::F32 | Lane::F64, Lane::I64) => {
                self.store(opcode::STORE_PS, w, s, on_stack(0));
                let (t, size) = (self.temporaries.gpr[0], from.bytes() as i32);
                let op = if size == 4 { opcode::SCALAR_F32_TO_I64 } else { opcode::SCALAR_F64_TO_I64 };
                for i in 0..to.lanes as i32 {
                    self.load(op, Width::X, t, on_stack(size * i));
                    self.lane_to_area(t, DType::I64, 8, i as usize, AREA_2);
                }
                self.load(opcode::LOAD_PS, w, d, on_stack(AREA_2));
                return true;
            }
            _ => return false,
        };
        self.op2(op, w, d, s);
        true
    }
}

impl Emitter<'_> {
    /// The low halves of words side by side in the low half of `d`.
    fn low_halves(&mut self, w: Width, d: u8, s: u8) {
        if self.arch.evex {
            // The destination is the operand in r/m.
            return self.op2(opcode::NARROW_DW, w, s, d);
        }
        let low: Vec<u8> = (0..16).map(|i| if i < 8 { i / 2 * 4 + i % 2 } else { 0x80 }).collect();
        self.op3_constant(opcode::SHUFFLE_B, w, d, s, low.repeat(w.bytes() / 16));
        if w == Width::Y {
            self.op2i(opcode::PERMUTE_Q, w, d, d, 0x08);
        }
    }

    /// Bytes shifted as words, without the bits that come from the byte beside.
    fn shift_bytes(&mut self, op: ShiftOp, w: Width, d: u8, a: u8, amount: u8) {
        let by = amount.min(7);
        match op {
            _ if amount == 0 => self.copy_width(w, d, a),
            ShiftOp::Left | ShiftOp::RightLogical if amount > 7 => self.zero(d),
            ShiftOp::Left => {
                self.shift_by(opcode::SHIFT_W, w, 6, d, a, by);
                self.op3_constant(opcode::AND, w, d, d, repeated(0xff << by, 1, w));
            }
            ShiftOp::RightLogical | ShiftOp::RightArithmetic => {
                self.shift_by(opcode::SHIFT_W, w, 2, d, a, by);
                self.op3_constant(opcode::AND, w, d, d, repeated(0xff >> by, 1, w));
                if op == ShiftOp::RightArithmetic {
                    // The sign moved down: its bits above are what is below zero.
                    let sign = repeated(0x80 >> by, 1, w);
                    self.op3_constant(opcode::XOR, w, d, d, sign.clone());
                    self.op3_constant(opcode::SUB_B, w, d, d, sign);
                }
            }
        }
    }

    /// AVX2: the order of lanes without a sign, by their minimum or maximum.
    fn compare_by_extremes(&mut self, op: CompareOp, ty: VType, d: u8, a: u8, b: u8) {
        let (w, t) = (width(ty), self.temporaries.vector[0]);
        let equal = if ty.lane.bytes() == 1 { opcode::EQUAL_B } else { opcode::EQUAL_W };
        // a ≤ b where the lesser is a
        let extreme = if matches!(op, CompareOp::Le | CompareOp::Gt) { VBinary::Min } else { VBinary::Max };
        let Some(extreme) = binary_op(extreme, ty.lane, false) else { return };
        self.op3(extreme, w, t, a, b);
        self.op3(equal, w, d, t, a);
        if matches!(op, CompareOp::Lt | CompareOp::Gt) {
            self.op3_constant(opcode::XOR, w, d, d, repeated(u64::MAX, 8, w));
        }
    }

    /// Lanes of `lane` bytes that were compared right before this place.
    pub(super) fn compared_here(&self, register: u8, lane: usize) -> Compared {
        Compared { register, lane, place: (self.asm.offset().0, self.depth()) }
    }

    /// AVX-512: a comparison into mask register 1.
    fn compare_to_mask(&mut self, op: CompareOp, ty: VType, a: u8, b: u8) {
        let compare = match ty.lane {
            Lane::F32 => opcode::COMPARE_PS,
            Lane::F64 => opcode::COMPARE_PD,
            Lane::I32 => opcode::COMPARE_D,
            Lane::I64 => opcode::COMPARE_Q,
            Lane::I16 => opcode::COMPARE_W,
            Lane::U16 => opcode::COMPARE_UW,
            Lane::I8 => opcode::COMPARE_B,
            Lane::U8 => opcode::COMPARE_UB,
        };
        self.op3i(compare, width(ty), 1, a, b, predicate(op, ty.lane.is_float()));
    }

    /// AVX2: `d = mask ? b : a`.
    fn blend(&mut self, ty: VType, d: u8, a: u8, b: u8, mask: u8) {
        // a blend of the other kind costs integers a cycle on the way in and on the way out
        let op = if ty.lane.is_float() { opcode::BLEND_V } else { opcode::BLEND_BYTES };
        self.op3i(op, width(ty), d, a, b, mask << 4);
    }
}

/// The immediate of a comparison.
fn predicate(op: CompareOp, float: bool) -> u8 {
    match op {
        CompareOp::Eq => 0,
        CompareOp::Ne => 4,
        CompareOp::Lt if float => 0x11,
        CompareOp::Le if float => 0x12,
        CompareOp::Gt if float => 0x1e,
        CompareOp::Ge if float => 0x1d,
        CompareOp::Lt => 1,
        CompareOp::Le => 2,
        CompareOp::Gt => 6,
        CompareOp::Ge => 5,
    }
}
