//! Vector arithmetic between registers.

use super::scalar::n;
use crate::codegen::aarch64::emitter::ByElement;
use crate::codegen::aarch64::emitter::Emitter;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Inst, Lane, ShiftOp, VBinary, VType, VUnary, Vreg};
use crate::expr::CompareOp;
use crate::runtime::{DType, Result};
use dynasmrt::{DynasmApi, DynasmLabelApi};

impl ByElement {
    pub(super) fn of(function: &Function) -> ByElement {
        let mut known = vec![false; function.vregs as usize];
        for inst in &function.insts {
            if let Inst::VBroadcast { dst, mem: DType::F32 | DType::F64, .. } = inst {
                known[dst.index()] = true;
            }
        }
        for inst in &function.insts {
            match inst {
                Inst::VBroadcast { mem: DType::F32 | DType::F64, .. } => {}
                Inst::VFma { acc, a, b, ty, .. } if matches!(ty.lane, Lane::F32 | Lane::F64) => {
                    known[acc.index()] = false;
                    // One of the two factors stays a whole vector.
                    if known[a.index()] && known[b.index()] {
                        known[b.index()] = false;
                    }
                }
                _ => inst.registers(|class, _, r| {
                    if class == Class::Vector {
                        known[r as usize] = false;
                    }
                }),
            }
        }
        ByElement(known)
    }

    pub(super) fn contains(&self, r: Vreg) -> bool {
        self.0[r.index()]
    }
}

fn binary_needs(op: VBinary, lane: Lane) -> u8 {
    (matches!(op, VBinary::Min | VBinary::Max) && lane != Lane::I32) as u8
}

/// Temporaries of an instruction.
pub(super) fn needs(inst: &Inst) -> u8 {
    match inst {
        Inst::VBinary { op, ty, .. } => binary_needs(*op, ty.lane),
        Inst::VFma { ty, .. } => (ty.lane == Lane::I64) as u8,
        Inst::VReduce { op, ty, .. } => 1 + binary_needs(*op, ty.lane),
        _ => 0,
    }
}

fn v(r: Vreg) -> u8 {
    r.0 as u8
}

impl Emitter<'_> {
    pub(super) fn vector_inst(&mut self, inst: &Inst, virtual_inst: &Inst, vectors: &[u8]) -> Result<()> {
        match *inst {
            Inst::VConst { dst, ty, bits } => self.constant(v(dst), ty, bits),
            Inst::VCopy { dst, src, .. } => self.copy(v(dst), v(src)),
            Inst::VSplat { dst, ty, src } => match ty.lane.bytes() {
                4 => a64!(self ; dup V(v(dst)).s4, W(n(src))),
                _ => a64!(self ; dup V(v(dst)).d2, X(n(src))),
            },
            Inst::VIota { dst, ty } => {
                let lane = ty.lane.bytes();
                let lanes = (0..16 / lane as u64).flat_map(|i| i.to_le_bytes()[..lane].to_vec()).collect();
                self.pooled(v(dst), lanes);
            }
            Inst::VUnary { op, dst, ty, a } => return self.unary(inst, op, ty.lane, v(dst), v(a)),
            Inst::VBinary { op, dst, ty, a, b } => {
                if !self.binary(op, ty, v(dst), v(a), v(b), vectors) {
                    return self.unsupported(inst);
                }
            }
            Inst::VShift { op, dst, ty, a, amount } => self.shift(op, ty.lane.bytes(), v(dst), v(a), amount),
            Inst::VFma { acc, ty, a, b, negate } => {
                let (mut x, mut y) = (v(a), v(b));
                let mut by_element = false;
                if let Inst::VFma { a, b, .. } = virtual_inst {
                    by_element = self.by_element.contains(*b);
                    if self.by_element.contains(*a) {
                        (x, y, by_element) = (y, x, true);
                    }
                }
                self.multiply_add(v(acc), ty, x, y, by_element, negate, vectors);
            }
            Inst::VCompare { op, dst, ty, a, b } => self.compare_lanes(op, ty.lane, v(dst), v(a), v(b)),
            Inst::VSelect { dst, mask, a, b, .. } => self.select(v(dst), v(mask), v(a), v(b)),
            Inst::VConvert { dst, to, src, from } => self.convert(v(dst), to, v(src), from),
            Inst::VReduce { op, dst, ty, a } => {
                if matches!(op, VBinary::Sub | VBinary::Div | VBinary::AndNot) {
                    return self.unsupported(inst);
                }
                self.reduce(op, ty, v(dst), v(a), vectors);
            }
            _ => return self.unsupported(inst),
        }
        Ok(())
    }

    pub(super) fn copy(&mut self, d: u8, s: u8) {
        if d != s {
            a64!(self ; mov V(d).b16, V(s).b16);
        }
    }

    /// 16 bytes of the constant pool.
    fn pooled(&mut self, d: u8, bytes: Vec<u8>) {
        let label = self.pool.label(bytes, &mut self.asm);
        a64!(self ; ldr Q(d), =>label);
    }

    fn constant(&mut self, d: u8, ty: VType, bits: u64) {
        let lane = ty.lane.bytes();
        let all = if lane == 4 { u64::from(u32::MAX) } else { u64::MAX };
        match bits & all {
            0 => a64!(self ; movi V(d).b16, 0),
            b if b == all => a64!(self ; movi V(d).b16, 255),
            _ => self.pooled(d, bits.to_le_bytes()[..lane].repeat(16 / lane)),
        }
    }

    fn unary(&mut self, inst: &Inst, op: VUnary, lane: Lane, d: u8, a: u8) -> Result<()> {
        match (op, lane) {
            (VUnary::Not, _) => a64!(self ; mvn V(d).b16, V(a).b16),
            (VUnary::Abs, Lane::F32) => a64!(self ; fabs V(d).s4, V(a).s4),
            (VUnary::Abs, Lane::F64) => a64!(self ; fabs V(d).d2, V(a).d2),
            (VUnary::Abs, Lane::I32) => a64!(self ; abs V(d).s4, V(a).s4),
            (VUnary::Abs, Lane::I64) => a64!(self ; abs V(d).d2, V(a).d2),
            (VUnary::Neg, Lane::F32) => a64!(self ; fneg V(d).s4, V(a).s4),
            (VUnary::Neg, Lane::F64) => a64!(self ; fneg V(d).d2, V(a).d2),
            (VUnary::Neg, lane) => self.negate_lanes(d, a, lane.bytes()),
            (VUnary::Sqrt, Lane::F32) => a64!(self ; fsqrt V(d).s4, V(a).s4),
            (VUnary::Sqrt, Lane::F64) => a64!(self ; fsqrt V(d).d2, V(a).d2),
            (VUnary::Floor, Lane::F32) => a64!(self ; frintm V(d).s4, V(a).s4),
            (VUnary::Floor, Lane::F64) => a64!(self ; frintm V(d).d2, V(a).d2),
            (VUnary::Ceil, Lane::F32) => a64!(self ; frintp V(d).s4, V(a).s4),
            (VUnary::Ceil, Lane::F64) => a64!(self ; frintp V(d).d2, V(a).d2),
            (VUnary::Round, Lane::F32) => a64!(self ; frintn V(d).s4, V(a).s4),
            (VUnary::Round, Lane::F64) => a64!(self ; frintn V(d).d2, V(a).d2),
            _ => return self.unsupported(inst),
        }
        Ok(())
    }

    /// False when there is no such operation.
    fn binary(&mut self, op: VBinary, ty: VType, d: u8, a: u8, b: u8, vectors: &[u8]) -> bool {
        use VBinary::*;
        match (op, ty.lane) {
            (And, _) => a64!(self ; and V(d).b16, V(a).b16, V(b).b16),
            (Or, _) => a64!(self ; orr V(d).b16, V(a).b16, V(b).b16),
            (Xor, _) => a64!(self ; eor V(d).b16, V(a).b16, V(b).b16),
            (AndNot, _) => a64!(self ; bic V(d).b16, V(b).b16, V(a).b16),
            (Add, Lane::F32) => a64!(self ; fadd V(d).s4, V(a).s4, V(b).s4),
            (Add, Lane::F64) => a64!(self ; fadd V(d).d2, V(a).d2, V(b).d2),
            (Add, Lane::I32) => a64!(self ; add V(d).s4, V(a).s4, V(b).s4),
            (Add, Lane::I64) => a64!(self ; add V(d).d2, V(a).d2, V(b).d2),
            (Sub, Lane::F32) => a64!(self ; fsub V(d).s4, V(a).s4, V(b).s4),
            (Sub, Lane::F64) => a64!(self ; fsub V(d).d2, V(a).d2, V(b).d2),
            (Sub, Lane::I32) => a64!(self ; sub V(d).s4, V(a).s4, V(b).s4),
            (Sub, Lane::I64) => a64!(self ; sub V(d).d2, V(a).d2, V(b).d2),
            (Mul, Lane::F32) => a64!(self ; fmul V(d).s4, V(a).s4, V(b).s4),
            (Mul, Lane::F64) => a64!(self ; fmul V(d).d2, V(a).d2, V(b).d2),
            (Mul, Lane::I32) => a64!(self ; mul V(d).s4, V(a).s4, V(b).s4),
            (Mul, Lane::I64) => {
                // Lane by lane; a lane of `d` is written after both factors have been read.
                for i in 0..u32::from(ty.lanes) {
                    a64!(self
                        ; umov x16, V(a).d[i] ; umov x17, V(b).d[i] ; mul x16, x16, x17 ; ins V(d).d[i], x16);
                }
            }
            (Div, Lane::F32) => a64!(self ; fdiv V(d).s4, V(a).s4, V(b).s4),
            (Div, Lane::F64) => a64!(self ; fdiv V(d).d2, V(a).d2, V(b).d2),
            (Min, Lane::I32) => a64!(self ; smin V(d).s4, V(a).s4, V(b).s4),
            (Max, Lane::I32) => a64!(self ; smax V(d).s4, V(a).s4, V(b).s4),
            (Min | Max, lane) => {
                // The second operand where the comparison fails.
                let mask = vectors[0];
                let comparison = if op == Min { CompareOp::Lt } else { CompareOp::Gt };
                self.compare_lanes(comparison, lane, mask, a, b);
                self.select(d, mask, a, b);
            }
            (Div, _) => return false,
        }
        true
    }

    #[allow(clippy::too_many_arguments)]
    fn multiply_add(&mut self, acc: u8, ty: VType, a: u8, b: u8, by_element: bool, negate: bool, vectors: &[u8]) {
        match (ty.lane, negate, by_element) {
            (Lane::F32, false, false) => a64!(self ; fmla V(acc).s4, V(a).s4, V(b).s4),
            (Lane::F32, true, false) => a64!(self ; fmls V(acc).s4, V(a).s4, V(b).s4),
            (Lane::F32, false, true) => a64!(self ; fmla V(acc).s4, V(a).s4, V(b).s[0]),
            (Lane::F32, true, true) => a64!(self ; fmls V(acc).s4, V(a).s4, V(b).s[0]),
            (Lane::F64, false, false) => a64!(self ; fmla V(acc).d2, V(a).d2, V(b).d2),
            (Lane::F64, true, false) => a64!(self ; fmls V(acc).d2, V(a).d2, V(b).d2),
            (Lane::F64, false, true) => a64!(self ; fmla V(acc).d2, V(a).d2, V(b).d[0]),
            (Lane::F64, true, true) => a64!(self ; fmls V(acc).d2, V(a).d2, V(b).d[0]),
            (Lane::I32, false, _) => a64!(self ; mla V(acc).s4, V(a).s4, V(b).s4),
            (Lane::I32, true, _) => a64!(self ; mls V(acc).s4, V(a).s4, V(b).s4),
            (Lane::I64, ..) => {
                self.binary(VBinary::Mul, ty, vectors[0], a, b, &[]);
                let op = if negate { VBinary::Sub } else { VBinary::Add };
                self.binary(op, ty, acc, acc, vectors[0], &[]);
            }
        }
    }

    fn shift(&mut self, op: ShiftOp, lane: usize, d: u8, a: u8, amount: u8) {
        let bits = 8 * lane as u32;
        let by = u32::from(amount).min(bits - 1);
        match (op, lane) {
            _ if amount == 0 => self.copy(d, a),
            (ShiftOp::Left | ShiftOp::RightLogical, _) if u32::from(amount) >= bits => a64!(self ; movi V(d).b16, 0),
            (ShiftOp::Left, 4) => a64!(self ; shl V(d).s4, V(a).s4, by),
            (ShiftOp::Left, _) => a64!(self ; shl V(d).d2, V(a).d2, by),
            (ShiftOp::RightLogical, 4) => a64!(self ; ushr V(d).s4, V(a).s4, by),
            (ShiftOp::RightLogical, _) => a64!(self ; ushr V(d).d2, V(a).d2, by),
            (ShiftOp::RightArithmetic, 4) => a64!(self ; sshr V(d).s4, V(a).s4, by),
            (ShiftOp::RightArithmetic, _) => a64!(self ; sshr V(d).d2, V(a).d2, by),
        }
    }

    fn compare_lanes(&mut self, op: CompareOp, lane: Lane, d: u8, a: u8, b: u8) {
        // Less is greater with the operands exchanged.
        let (op, a, b) = match op {
            CompareOp::Lt => (CompareOp::Gt, b, a),
            CompareOp::Le => (CompareOp::Ge, b, a),
            other => (other, a, b),
        };
        match (op, lane) {
            (CompareOp::Gt, Lane::F32) => a64!(self ; fcmgt V(d).s4, V(a).s4, V(b).s4),
            (CompareOp::Gt, Lane::F64) => a64!(self ; fcmgt V(d).d2, V(a).d2, V(b).d2),
            (CompareOp::Gt, Lane::I32) => a64!(self ; cmgt V(d).s4, V(a).s4, V(b).s4),
            (CompareOp::Gt, Lane::I64) => a64!(self ; cmgt V(d).d2, V(a).d2, V(b).d2),
            (CompareOp::Ge, Lane::F32) => a64!(self ; fcmge V(d).s4, V(a).s4, V(b).s4),
            (CompareOp::Ge, Lane::F64) => a64!(self ; fcmge V(d).d2, V(a).d2, V(b).d2),
            (CompareOp::Ge, Lane::I32) => a64!(self ; cmge V(d).s4, V(a).s4, V(b).s4),
            (CompareOp::Ge, Lane::I64) => a64!(self ; cmge V(d).d2, V(a).d2, V(b).d2),
            (_, Lane::F32) => a64!(self ; fcmeq V(d).s4, V(a).s4, V(b).s4),
            (_, Lane::F64) => a64!(self ; fcmeq V(d).d2, V(a).d2, V(b).d2),
            (_, Lane::I32) => a64!(self ; cmeq V(d).s4, V(a).s4, V(b).s4),
            (_, Lane::I64) => a64!(self ; cmeq V(d).d2, V(a).d2, V(b).d2),
        }
        if op == CompareOp::Ne {
            a64!(self ; mvn V(d).b16, V(d).b16);
        }
    }

    /// `d = mask ? a : b`, in whatever way keeps `d` among the operands.
    fn select(&mut self, d: u8, mask: u8, a: u8, b: u8) {
        if d == a && d != mask {
            a64!(self ; bif V(d).b16, V(b).b16, V(mask).b16);
        } else if d == b && d != mask {
            a64!(self ; bit V(d).b16, V(a).b16, V(mask).b16);
        } else {
            self.copy(d, mask);
            a64!(self ; bsl V(d).b16, V(a).b16, V(b).b16);
        }
    }

    fn convert(&mut self, d: u8, to: VType, s: u8, from: Lane) {
        match (from, to.lane) {
            (a, b) if a == b => self.copy(d, s),
            (Lane::F32, Lane::F64) => a64!(self ; fcvtl V(d).d2, V(s).s2),
            (Lane::F64, Lane::F32) => a64!(self ; fcvtn V(d).s2, V(s).d2),
            (Lane::F32, Lane::I32) => a64!(self ; fcvtzs V(d).s4, V(s).s4),
            (Lane::F64, Lane::I64) => a64!(self ; fcvtzs V(d).d2, V(s).d2),
            (Lane::F64, Lane::I32) => a64!(self ; fcvtzs V(d).d2, V(s).d2 ; sqxtn V(d).s2, V(d).d2),
            (Lane::F32, Lane::I64) => a64!(self ; fcvtl V(d).d2, V(s).s2 ; fcvtzs V(d).d2, V(d).d2),
            (Lane::I32, Lane::F32) => a64!(self ; scvtf V(d).s4, V(s).s4),
            (Lane::I64, Lane::F64) => a64!(self ; scvtf V(d).d2, V(s).d2),
            (Lane::I32, Lane::F64) => a64!(self ; sxtl V(d).d2, V(s).s2 ; scvtf V(d).d2, V(d).d2),
            (Lane::I32, _) => a64!(self ; sxtl V(d).d2, V(s).s2),
            (Lane::I64, Lane::I32) => a64!(self ; xtn V(d).s2, V(s).d2),
            (Lane::I64, _) => {
                // By way of f64 it would round twice.
                a64!(self ; umov x16, V(s).d[0] ; umov x17, V(s).d[1]
                    ; scvtf S(d), x17 ; fmov w17, S(d) ; scvtf S(d), x16 ; ins V(d).s[1], w17);
            }
            (Lane::F32 | Lane::F64, _) => self.copy(d, s),
        }
    }

    /// Lane `i` with lane `i + half`, until one is left; that one everywhere.
    fn reduce(&mut self, op: VBinary, ty: VType, d: u8, a: u8, vectors: &[u8]) {
        let lane = ty.lane.bytes();
        let mut bytes = ty.lanes as usize * lane;
        let (upper, mut from) = (vectors[0], a);
        while bytes > lane {
            bytes /= 2;
            let ty = VType { lanes: (bytes / lane) as u8, ..ty };
            a64!(self ; ext V(upper).b16, V(from).b16, V(from).b16, bytes as u32);
            self.binary(op, ty, d, from, upper, &vectors[1..]);
            from = d;
        }
        match lane {
            4 => a64!(self ; dup V(d).s4, V(from).s[0]),
            _ => a64!(self ; dup V(d).d2, V(from).d[0]),
        }
    }
}
