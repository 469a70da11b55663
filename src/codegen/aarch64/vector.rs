//! Vector arithmetic.

use super::memory::v;
use super::scalar::n;
use super::{ADDRESS, DATA, Emitter};
use crate::codegen::Result;
use crate::codegen::expr::CompareOp;
use crate::codegen::vcode::{Inst, Lane, ShiftOp, VBinary, VType, VUnary};
use dynasmrt::{DynasmApi, DynasmLabelApi, dynasm};

/// Vector temporaries of an arithmetic instruction.
pub(super) fn temporaries(inst: &Inst) -> u8 {
    match inst {
        Inst::VBinary { op: VBinary::Min | VBinary::Max, ty, .. } if ty.lane != Lane::I32 => 1,
        Inst::VReduce { .. } => 2,
        Inst::VSelect { .. } => 1,
        Inst::VConvert { to, from: Lane::I64, .. } if to.lane == Lane::F32 => 1,
        _ => 0,
    }
}

/// One instruction on lanes of 4 or 8 bytes.
macro_rules! by_width {
    ($e:expr, $op:ident, $lane:expr, $d:expr, $a:expr) => {
        match $lane.bytes() {
            4 => dynasm!($e.asm ; .arch aarch64 ; $op V($d).S4, V($a).S4),
            _ => dynasm!($e.asm ; .arch aarch64 ; $op V($d).D2, V($a).D2),
        }
    };
    ($e:expr, $op:ident, $lane:expr, $d:expr, $a:expr, $b:expr) => {
        match $lane.bytes() {
            4 => dynasm!($e.asm ; .arch aarch64 ; $op V($d).S4, V($a).S4, V($b).S4),
            _ => dynasm!($e.asm ; .arch aarch64 ; $op V($d).D2, V($a).D2, V($b).D2),
        }
    };
}

fn is_float(lane: Lane) -> bool {
    matches!(lane, Lane::F32 | Lane::F64)
}

impl Emitter<'_> {
    pub(super) fn vector_inst(&mut self, inst: &Inst, t: &[u8]) -> Result<()> {
        match inst {
            Inst::VConst { dst, ty, bits } => self.constant(v(*dst), ty.lane, *bits),
            Inst::VCopy { dst, src, .. } => self.move_vector(v(*dst), v(*src)),
            Inst::VSplat { dst, ty, src } => self.splat(v(*dst), ty.lane, n(*src)),
            Inst::VIota { dst, ty } => {
                let bytes = match ty.lane.bytes() {
                    4 => (0..4u32).flat_map(u32::to_le_bytes).collect(),
                    _ => (0..2u64).flat_map(u64::to_le_bytes).collect(),
                };
                self.load_constant(v(*dst), bytes);
            }
            Inst::VUnary { op, dst, ty, a } => match (op, is_float(ty.lane)) {
                (VUnary::Abs, true) => by_width!(self, fabs, ty.lane, v(*dst), v(*a)),
                (VUnary::Neg, true) => by_width!(self, fneg, ty.lane, v(*dst), v(*a)),
                (VUnary::Sqrt, true) => by_width!(self, fsqrt, ty.lane, v(*dst), v(*a)),
                (VUnary::Floor, true) => by_width!(self, frintm, ty.lane, v(*dst), v(*a)),
                (VUnary::Ceil, true) => by_width!(self, frintp, ty.lane, v(*dst), v(*a)),
                (VUnary::Round, true) => by_width!(self, frintn, ty.lane, v(*dst), v(*a)),
                (VUnary::Abs, false) => by_width!(self, abs, ty.lane, v(*dst), v(*a)),
                (VUnary::Neg, false) => by_width!(self, neg, ty.lane, v(*dst), v(*a)),
                (VUnary::Not, _) => self.not(v(*dst), v(*a)),
                _ => return self.unsupported(inst),
            },
            Inst::VBinary { op, dst, ty, a, b } => {
                let temporary = t.first().copied().unwrap_or(v(*dst));
                if !self.binary(*op, ty.lane, v(*dst), v(*a), v(*b), temporary) {
                    return self.unsupported(inst);
                }
            }
            Inst::VShift { op, dst, ty, a, amount } => {
                let (d, a, amount) = (v(*dst), v(*a), u32::from(*amount));
                match (op, ty.lane.bytes()) {
                    _ if amount == 0 => self.move_vector(d, a),
                    (ShiftOp::Left, 4) => dynasm!(self.asm ; .arch aarch64 ; shl V(d).S4, V(a).S4, amount),
                    (ShiftOp::Left, _) => dynasm!(self.asm ; .arch aarch64 ; shl V(d).D2, V(a).D2, amount),
                    (ShiftOp::RightLogical, 4) => dynasm!(self.asm ; .arch aarch64 ; ushr V(d).S4, V(a).S4, amount),
                    (ShiftOp::RightLogical, _) => dynasm!(self.asm ; .arch aarch64 ; ushr V(d).D2, V(a).D2, amount),
                    (ShiftOp::RightArithmetic, 4) => dynasm!(self.asm ; .arch aarch64 ; sshr V(d).S4, V(a).S4, amount),
                    (ShiftOp::RightArithmetic, _) => dynasm!(self.asm ; .arch aarch64 ; sshr V(d).D2, V(a).D2, amount),
                }
            }
            Inst::VFma { acc, ty, a, b, negate } => self.fma(ty.lane, v(*acc), v(*a), v(*b), *negate),
            Inst::VCompare { op, dst, ty, a, b } => self.compare(*op, ty.lane, v(*dst), v(*a), v(*b)),
            Inst::VSelect { dst, mask, a, b, .. } => {
                let &[t] = t else { return self.unsupported(inst) };
                self.select(v(*dst), v(*mask), v(*a), v(*b), t);
            }
            Inst::VConvert { dst, to, src, from } => {
                if !self.convert(v(*dst), *to, v(*src), *from, t) {
                    return self.unsupported(inst);
                }
            }
            Inst::VReduce { op, dst, ty, a } => {
                let &[t, u] = t else { return self.unsupported(inst) };
                if !self.reduce(*op, *ty, v(*dst), v(*a), t, u) {
                    return self.unsupported(inst);
                }
            }
            _ => return self.unsupported(inst),
        }
        Ok(())
    }

    /// False where there is no such operation. `t` differs from the operands where Min and Max need it.
    fn binary(&mut self, op: VBinary, lane: Lane, d: u8, a: u8, b: u8, t: u8) -> bool {
        match (op, is_float(lane)) {
            (VBinary::Add, true) => by_width!(self, fadd, lane, d, a, b),
            (VBinary::Sub, true) => by_width!(self, fsub, lane, d, a, b),
            (VBinary::Mul, true) => by_width!(self, fmul, lane, d, a, b),
            (VBinary::Div, true) => by_width!(self, fdiv, lane, d, a, b),
            (VBinary::Add, false) => by_width!(self, add, lane, d, a, b),
            (VBinary::Sub, false) => by_width!(self, sub, lane, d, a, b),
            (VBinary::And, _) => dynasm!(self.asm ; .arch aarch64 ; and V(d).B16, V(a).B16, V(b).B16),
            (VBinary::Or, _) => dynasm!(self.asm ; .arch aarch64 ; orr V(d).B16, V(a).B16, V(b).B16),
            (VBinary::Xor, _) => dynasm!(self.asm ; .arch aarch64 ; eor V(d).B16, V(a).B16, V(b).B16),
            (VBinary::AndNot, _) => dynasm!(self.asm ; .arch aarch64 ; bic V(d).B16, V(b).B16, V(a).B16),
            (VBinary::Mul, false) if lane == Lane::I32 => {
                dynasm!(self.asm ; .arch aarch64 ; mul V(d).S4, V(a).S4, V(b).S4)
            }
            (VBinary::Mul, false) => {
                for i in 0..2 {
                    self.lane_to_gpr(DATA, a, lane, i, false);
                    self.lane_to_gpr(ADDRESS, b, lane, i, false);
                    dynasm!(self.asm ; .arch aarch64 ; mul X(DATA), X(DATA), X(ADDRESS));
                    self.gpr_to_lane(d, lane, i, DATA);
                }
            }
            (VBinary::Min, false) if lane == Lane::I32 => {
                dynasm!(self.asm ; .arch aarch64 ; smin V(d).S4, V(a).S4, V(b).S4)
            }
            (VBinary::Max, false) if lane == Lane::I32 => {
                dynasm!(self.asm ; .arch aarch64 ; smax V(d).S4, V(a).S4, V(b).S4)
            }
            (VBinary::Min | VBinary::Max, _) => {
                // the first operand where it is strictly beyond the second, which also decides for not-a-number
                let op = if op == VBinary::Min { CompareOp::Lt } else { CompareOp::Gt };
                self.compare(op, lane, t, a, b);
                dynasm!(self.asm ; .arch aarch64 ; bsl V(t).B16, V(a).B16, V(b).B16);
                self.move_vector(d, t);
            }
            (VBinary::Div, false) => return false,
        }
        true
    }

    /// `acc ± a·b`.
    fn fma(&mut self, lane: Lane, acc: u8, a: u8, b: u8, negate: bool) {
        match (lane, negate) {
            (Lane::F32 | Lane::F64, false) => by_width!(self, fmla, lane, acc, a, b),
            (Lane::F32 | Lane::F64, true) => by_width!(self, fmls, lane, acc, a, b),
            (Lane::I32, false) => dynasm!(self.asm ; .arch aarch64 ; mla V(acc).S4, V(a).S4, V(b).S4),
            (Lane::I32, true) => dynasm!(self.asm ; .arch aarch64 ; mls V(acc).S4, V(a).S4, V(b).S4),
            (Lane::I64, _) => {
                for i in 0..2 {
                    self.lane_to_gpr(DATA, a, lane, i, false);
                    self.lane_to_gpr(ADDRESS, b, lane, i, false);
                    dynasm!(self.asm ; .arch aarch64 ; mul X(DATA), X(DATA), X(ADDRESS));
                    self.lane_to_gpr(ADDRESS, acc, lane, i, false);
                    match negate {
                        false => dynasm!(self.asm ; .arch aarch64 ; add X(DATA), X(ADDRESS), X(DATA)),
                        true => dynasm!(self.asm ; .arch aarch64 ; sub X(DATA), X(ADDRESS), X(DATA)),
                    }
                    self.gpr_to_lane(acc, lane, i, DATA);
                }
            }
        }
    }

    fn compare(&mut self, op: CompareOp, lane: Lane, d: u8, a: u8, b: u8) {
        match (op, is_float(lane)) {
            (CompareOp::Eq | CompareOp::Ne, true) => by_width!(self, fcmeq, lane, d, a, b),
            (CompareOp::Gt, true) => by_width!(self, fcmgt, lane, d, a, b),
            (CompareOp::Ge, true) => by_width!(self, fcmge, lane, d, a, b),
            (CompareOp::Lt, true) => by_width!(self, fcmgt, lane, d, b, a),
            (CompareOp::Le, true) => by_width!(self, fcmge, lane, d, b, a),
            (CompareOp::Eq | CompareOp::Ne, false) => by_width!(self, cmeq, lane, d, a, b),
            (CompareOp::Gt, false) => by_width!(self, cmgt, lane, d, a, b),
            (CompareOp::Ge, false) => by_width!(self, cmge, lane, d, a, b),
            (CompareOp::Lt, false) => by_width!(self, cmgt, lane, d, b, a),
            (CompareOp::Le, false) => by_width!(self, cmge, lane, d, b, a),
        }
        if op == CompareOp::Ne {
            self.not(d, d);
        }
    }

    fn select(&mut self, d: u8, mask: u8, a: u8, b: u8, t: u8) {
        if d == mask {
            dynasm!(self.asm ; .arch aarch64 ; bsl V(d).B16, V(a).B16, V(b).B16);
        } else if d == a {
            dynasm!(self.asm ; .arch aarch64 ; bif V(d).B16, V(b).B16, V(mask).B16);
        } else if d == b {
            dynasm!(self.asm ; .arch aarch64 ; bit V(d).B16, V(a).B16, V(mask).B16);
        } else {
            self.move_vector(t, mask);
            dynasm!(self.asm ; .arch aarch64 ; bsl V(t).B16, V(a).B16, V(b).B16);
            self.move_vector(d, t);
        }
    }

    /// Halves first: lanes 2 and 3 onto 0 and 1, then neighbours.
    fn reduce(&mut self, op: VBinary, ty: VType, d: u8, a: u8, t: u8, u: u8) -> bool {
        if ty.lanes == 1 {
            self.move_vector(d, a);
            return true;
        }
        let mut from = a;
        if ty.lanes == 4 || ty.lane.bytes() == 8 {
            dynasm!(self.asm ; .arch aarch64 ; ext V(t).B16, V(from).B16, V(from).B16, 8);
            if !self.binary(op, ty.lane, d, from, t, u) {
                return false;
            }
            from = d;
        }
        if ty.lane.bytes() == 4 {
            dynasm!(self.asm ; .arch aarch64 ; rev64 V(t).S4, V(from).S4);
            return self.binary(op, ty.lane, d, from, t, u);
        }
        true
    }

    /// False where there is no such conversion.
    fn convert(&mut self, d: u8, to: VType, s: u8, from: Lane, t: &[u8]) -> bool {
        match (from, to.lane) {
            (a, b) if a == b => self.move_vector(d, s),
            (Lane::F32, Lane::I32) => dynasm!(self.asm ; .arch aarch64 ; fcvtzs V(d).S4, V(s).S4),
            (Lane::I32, Lane::F32) => dynasm!(self.asm ; .arch aarch64 ; scvtf V(d).S4, V(s).S4),
            (Lane::F64, Lane::I64) => dynasm!(self.asm ; .arch aarch64 ; fcvtzs V(d).D2, V(s).D2),
            (Lane::I64, Lane::F64) => dynasm!(self.asm ; .arch aarch64 ; scvtf V(d).D2, V(s).D2),
            (Lane::F32, Lane::F64) => dynasm!(self.asm ; .arch aarch64 ; fcvtl V(d).D2, V(s).S2),
            (Lane::F64, Lane::F32) => dynasm!(self.asm ; .arch aarch64 ; fcvtn V(d).S2, V(s).D2),
            (Lane::I32, Lane::I64) => dynasm!(self.asm ; .arch aarch64 ; sshll V(d).D2, V(s).S2, 0),
            (Lane::I64, Lane::I32) => dynasm!(self.asm ; .arch aarch64 ; xtn V(d).S2, V(s).D2),
            (Lane::I32, Lane::F64) => {
                dynasm!(self.asm ; .arch aarch64 ; sshll V(d).D2, V(s).S2, 0 ; scvtf V(d).D2, V(d).D2)
            }
            (Lane::F64, Lane::I32) => {
                dynasm!(self.asm ; .arch aarch64 ; fcvtzs V(d).D2, V(s).D2 ; xtn V(d).S2, V(d).D2)
            }
            (Lane::F32, Lane::I64) => {
                dynasm!(self.asm ; .arch aarch64 ; fcvtl V(d).D2, V(s).S2 ; fcvtzs V(d).D2, V(d).D2)
            }
            (Lane::I64, Lane::F32) => {
                // by lane, because f64 in between would round twice
                let &[t] = t else { return false };
                dynasm!(self.asm ; .arch aarch64
                    ; umov X(DATA), V(s).D[0]
                    ; umov X(ADDRESS), V(s).D[1]
                    ; scvtf S(d), X(DATA)
                    ; scvtf S(t), X(ADDRESS)
                    ; ins V(d).S[1], V(t).S[0]);
            }
            _ => return false,
        }
        true
    }

    fn constant(&mut self, d: u8, lane: Lane, bits: u64) {
        let bits = if lane.bytes() == 4 { bits & 0xffff_ffff } else { bits };
        if bits == 0 {
            self.zero(d);
        } else {
            self.load_constant(d, bits.to_le_bytes()[..lane.bytes()].repeat(16 / lane.bytes()));
        }
    }

    fn load_constant(&mut self, d: u8, bytes: Vec<u8>) {
        let label = self.pool.label(bytes, &mut self.asm);
        dynasm!(self.asm ; .arch aarch64 ; ldr Q(d), =>label);
    }

    // ---- registers

    pub(super) fn zero(&mut self, d: u8) {
        dynasm!(self.asm ; .arch aarch64 ; movi V(d).D2, 0);
    }

    pub(super) fn move_vector(&mut self, d: u8, s: u8) {
        if d != s {
            dynasm!(self.asm ; .arch aarch64 ; mov V(d).B16, V(s).B16);
        }
    }

    fn not(&mut self, d: u8, a: u8) {
        dynasm!(self.asm ; .arch aarch64 ; not V(d).B16, V(a).B16);
    }

    pub(super) fn splat(&mut self, d: u8, lane: Lane, s: u8) {
        match lane.bytes() {
            4 => dynasm!(self.asm ; .arch aarch64 ; dup V(d).S4, W(s)),
            _ => dynasm!(self.asm ; .arch aarch64 ; dup V(d).D2, X(s)),
        }
    }

    /// All ones in the lanes that are not zero.
    pub(super) fn test_nonzero(&mut self, d: u8, lane: Lane) {
        by_width!(self, cmtst, lane, d, d, d);
    }
}
