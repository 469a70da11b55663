//! Vector arithmetic between registers.

use crate::codegen::aarch64::emitter::Emitter;
use crate::codegen::emit::{Tiles, Vectors};
use crate::codegen::vcode::{Addr, Inst, Lane, ShiftOp, VBinary, VType, VUnary, Vreg, Zip};
use crate::expr::CompareOp;
use dynasmrt::{DynasmApi, DynasmLabelApi};

fn binary_needs(op: VBinary, lane: Lane) -> u8 {
    let compares = matches!(op, VBinary::Min | VBinary::Max) && (lane.is_float() || lane == Lane::I64);
    (compares || matches!(op, VBinary::MulHigh | VBinary::MulPairs)) as u8
}

/// Temporaries of an instruction.
pub(super) fn needs(inst: &Inst) -> u8 {
    match inst {
        Inst::VUnary { op: VUnary::InverseApproximate, .. } => 2,
        Inst::VBinary { op, ty, .. } => binary_needs(*op, ty.lane),
        Inst::VFma { ty, .. } => (ty.lane == Lane::I64) as u8,
        Inst::VReduce { op, ty, .. } => 1 + binary_needs(*op, ty.lane),
        Inst::VReduceFour { op, ty, .. } => 3 + binary_needs(*op, ty.lane),
        Inst::VTensor { temporaries, .. } => *temporaries,
        Inst::VShuffle { .. } => 1,
        _ => 0,
    }
}

impl Tiles for Emitter<'_> {}

impl Vectors for Emitter<'_> {
    fn in_lowest_lane(&self, r: Vreg) -> bool {
        self.arch.by_element.contains(r)
    }

    fn zip(&mut self, op: Zip, ty: VType, d: u8, a: u8, b: u8) {
        match (op, ty.lane.bytes()) {
            (Zip::Low, 4) => a64!(self ; zip1 V(d).s4, V(a).s4, V(b).s4),
            (Zip::High, 4) => a64!(self ; zip2 V(d).s4, V(a).s4, V(b).s4),
            (Zip::Even, 4) => a64!(self ; uzp1 V(d).s4, V(a).s4, V(b).s4),
            (Zip::Odd, 4) => a64!(self ; uzp2 V(d).s4, V(a).s4, V(b).s4),
            (Zip::Low, 2) => a64!(self ; zip1 V(d).h8, V(a).h8, V(b).h8),
            (Zip::High, 2) => a64!(self ; zip2 V(d).h8, V(a).h8, V(b).h8),
            (Zip::Even, 2) => a64!(self ; uzp1 V(d).h8, V(a).h8, V(b).h8),
            (Zip::Odd, 2) => a64!(self ; uzp2 V(d).h8, V(a).h8, V(b).h8),
            (Zip::Low, 1) => a64!(self ; zip1 V(d).b16, V(a).b16, V(b).b16),
            (Zip::High, 1) => a64!(self ; zip2 V(d).b16, V(a).b16, V(b).b16),
            (Zip::Even, 1) => a64!(self ; uzp1 V(d).b16, V(a).b16, V(b).b16),
            (Zip::Odd, 1) => a64!(self ; uzp2 V(d).b16, V(a).b16, V(b).b16),
            (Zip::Low | Zip::Even, _) => a64!(self ; zip1 V(d).d2, V(a).d2, V(b).d2),
            (Zip::High | Zip::Odd, _) => a64!(self ; zip2 V(d).d2, V(a).d2, V(b).d2),
        }
    }

    fn splat(&mut self, d: u8, s: u8, ty: VType) {
        match ty.lane.bytes() {
            1 => a64!(self ; dup V(d).b16, W(s)),
            2 => a64!(self ; dup V(d).h8, W(s)),
            4 => a64!(self ; dup V(d).s4, W(s)),
            _ => a64!(self ; dup V(d).d2, X(s)),
        }
    }

    fn first_lane(&mut self, d: u8, s: u8, ty: VType) {
        match ty.lane {
            Lane::I32 => a64!(self ; smov X(d), V(s).s[0]),
            _ => a64!(self ; mov X(d), V(s).d[0]),
        }
    }

    fn spread(&mut self, d: u8, s: u8, ty: VType) {
        match ty.lane.bytes() {
            1 => a64!(self ; dup V(d).b16, V(s).b[0]),
            2 => a64!(self ; dup V(d).h8, V(s).h[0]),
            4 => a64!(self ; dup V(d).s4, V(s).s[0]),
            _ => a64!(self ; dup V(d).d2, V(s).d[0]),
        }
    }

    fn upper_half(&mut self, d: u8, s: u8, bytes: usize) {
        a64!(self ; ext V(d).b16, V(s).b16, V(s).b16, bytes as u32);
    }

    fn copy(&mut self, d: u8, s: u8, _: VType) {
        if d != s {
            a64!(self ; mov V(d).b16, V(s).b16);
        }
    }

    fn pooled(&mut self, d: u8, bytes: Vec<u8>) {
        let label = self.pool_label(bytes);
        a64!(self ; ldr Q(d), =>label);
    }

    fn constant(&mut self, d: u8, ty: VType, bits: u64) {
        let lane = ty.lane.bytes();
        let all = ty.lane.all_ones();
        match bits & all {
            0 => a64!(self ; movi V(d).b16, 0),
            b if b == all => a64!(self ; movi V(d).b16, 255),
            _ => self.pooled(d, bits.to_le_bytes()[..lane].repeat(16 / lane)),
        }
    }

    fn unary(&mut self, op: VUnary, ty: VType, d: u8, a: u8) -> bool {
        match (op, ty.lane) {
            (VUnary::Not, _) => a64!(self ; mvn V(d).b16, V(a).b16),
            (VUnary::Abs, Lane::F32) => a64!(self ; fabs V(d).s4, V(a).s4),
            (VUnary::Abs, Lane::F64) => a64!(self ; fabs V(d).d2, V(a).d2),
            (VUnary::Abs, Lane::I32) => a64!(self ; abs V(d).s4, V(a).s4),
            (VUnary::Abs, Lane::I64) => a64!(self ; abs V(d).d2, V(a).d2),
            (VUnary::Abs, Lane::I16) => a64!(self ; abs V(d).h8, V(a).h8),
            (VUnary::Abs, Lane::I8) => a64!(self ; abs V(d).b16, V(a).b16),
            (VUnary::Abs, Lane::U16 | Lane::U8) => self.copy(d, a, ty),
            (VUnary::CountOnes, lane) if !lane.is_float() => {
                a64!(self ; cnt V(d).b16, V(a).b16);
                if lane.bytes() >= 2 {
                    a64!(self ; uaddlp V(d).h8, V(d).b16);
                }
                if lane.bytes() >= 4 {
                    a64!(self ; uaddlp V(d).s4, V(d).h8);
                }
                if lane.bytes() == 8 {
                    a64!(self ; uaddlp V(d).d2, V(d).s4);
                }
            }
            (VUnary::Neg, Lane::F32) => a64!(self ; fneg V(d).s4, V(a).s4),
            (VUnary::Neg, Lane::F64) => a64!(self ; fneg V(d).d2, V(a).d2),
            (VUnary::Neg, lane) => self.negate_lanes(d, a, lane.bytes()),
            (VUnary::Sqrt, Lane::F32) => a64!(self ; fsqrt V(d).s4, V(a).s4),
            (VUnary::Sqrt, Lane::F64) => a64!(self ; fsqrt V(d).d2, V(a).d2),
            (VUnary::InverseApproximate, Lane::F32) => {
                let [y, t] = [self.temporaries.vector[0], self.temporaries.vector[1]];
                // an estimate of 8 bits and two steps, which keep what is zero or infinite
                a64!(self ; frecpe V(y).s4, V(a).s4
                    ; frecps V(t).s4, V(a).s4, V(y).s4 ; fmul V(y).s4, V(y).s4, V(t).s4
                    ; frecps V(t).s4, V(a).s4, V(y).s4 ; fmul V(d).s4, V(y).s4, V(t).s4);
            }
            (VUnary::Floor, Lane::F32) => a64!(self ; frintm V(d).s4, V(a).s4),
            (VUnary::Floor, Lane::F64) => a64!(self ; frintm V(d).d2, V(a).d2),
            (VUnary::Ceil, Lane::F32) => a64!(self ; frintp V(d).s4, V(a).s4),
            (VUnary::Ceil, Lane::F64) => a64!(self ; frintp V(d).d2, V(a).d2),
            (VUnary::Round, Lane::F32) => a64!(self ; frintn V(d).s4, V(a).s4),
            (VUnary::Round, Lane::F64) => a64!(self ; frintn V(d).d2, V(a).d2),
            (VUnary::WidenHalf, Lane::F32) if self.is_half_in_lowest_lane() => a64!(self ; fcvtl V(d).s4, V(a).h4),
            (VUnary::WidenHalf, Lane::F32 | Lane::I32) => {
                a64!(self ; xtn V(d).h4, V(a).s4 ; fcvtl V(d).s4, V(d).h4);
            }
            (VUnary::NarrowHalf, Lane::F32 | Lane::I32) => {
                self.narrow_to_half(d, a);
                a64!(self ; uxtl V(d).s4, V(d).h4);
            }
            (VUnary::RoundHalf, Lane::F32 | Lane::I32) => {
                self.narrow_to_half(d, a);
                a64!(self ; fcvtl V(d).s4, V(d).h4);
            }
            _ => return false,
        }
        true
    }

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
            (Add, Lane::I8 | Lane::U8) => a64!(self ; add V(d).b16, V(a).b16, V(b).b16),
            (Add, Lane::I16 | Lane::U16) => a64!(self ; add V(d).h8, V(a).h8, V(b).h8),
            (Sub, Lane::F32) => a64!(self ; fsub V(d).s4, V(a).s4, V(b).s4),
            (Sub, Lane::F64) => a64!(self ; fsub V(d).d2, V(a).d2, V(b).d2),
            (Sub, Lane::I32) => a64!(self ; sub V(d).s4, V(a).s4, V(b).s4),
            (Sub, Lane::I64) => a64!(self ; sub V(d).d2, V(a).d2, V(b).d2),
            (Sub, Lane::I8 | Lane::U8) => a64!(self ; sub V(d).b16, V(a).b16, V(b).b16),
            (Sub, Lane::I16 | Lane::U16) => a64!(self ; sub V(d).h8, V(a).h8, V(b).h8),
            (Mul, Lane::F32) => a64!(self ; fmul V(d).s4, V(a).s4, V(b).s4),
            (Mul, Lane::F64) => a64!(self ; fmul V(d).d2, V(a).d2, V(b).d2),
            (Mul, Lane::I32) => a64!(self ; mul V(d).s4, V(a).s4, V(b).s4),
            (Mul, Lane::I8 | Lane::U8) => a64!(self ; mul V(d).b16, V(a).b16, V(b).b16),
            (Mul, Lane::I16 | Lane::U16) => a64!(self ; mul V(d).h8, V(a).h8, V(b).h8),
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
            (Min, Lane::I8) => a64!(self ; smin V(d).b16, V(a).b16, V(b).b16),
            (Min, Lane::U8) => a64!(self ; umin V(d).b16, V(a).b16, V(b).b16),
            (Min, Lane::I16) => a64!(self ; smin V(d).h8, V(a).h8, V(b).h8),
            (Min, Lane::U16) => a64!(self ; umin V(d).h8, V(a).h8, V(b).h8),
            (Max, Lane::I8) => a64!(self ; smax V(d).b16, V(a).b16, V(b).b16),
            (Max, Lane::U8) => a64!(self ; umax V(d).b16, V(a).b16, V(b).b16),
            (Max, Lane::I16) => a64!(self ; smax V(d).h8, V(a).h8, V(b).h8),
            (Max, Lane::U16) => a64!(self ; umax V(d).h8, V(a).h8, V(b).h8),
            (MulHigh, Lane::I16) => {
                let low = vectors[0];
                a64!(self ; smull V(low).s4, V(a).h4, V(b).h4 ; smull2 V(d).s4, V(a).h8, V(b).h8
                    ; uzp2 V(d).h8, V(low).h8, V(d).h8);
            }
            (MulHigh, Lane::U16) => {
                let low = vectors[0];
                a64!(self ; umull V(low).s4, V(a).h4, V(b).h4 ; umull2 V(d).s4, V(a).h8, V(b).h8
                    ; uzp2 V(d).h8, V(low).h8, V(d).h8);
            }
            (Min | Max, _) if self.bounded(op, ty, d, a, b) => {}
            (Min | Max, _) => {
                // The second operand where the comparison fails.
                let mask = vectors[0];
                let comparison = if op == Min { CompareOp::Lt } else { CompareOp::Gt };
                self.compare(comparison, ty, mask, a, b);
                self.select(ty, d, mask, a, b);
            }
            (MulPairs, Lane::I32) => {
                let low = vectors[0];
                a64!(self ; smull V(low).s4, V(a).h4, V(b).h4 ; smull2 V(d).s4, V(a).h8, V(b).h8
                    ; addp V(d).s4, V(low).s4, V(d).s4);
            }
            (Div | Scale | MulHigh | MulPairs | ShiftLeft | ShiftRight | ShiftRightSigned, _) => return false,
        }
        true
    }

    fn multiply_add(&mut self, acc: u8, ty: VType, a: u8, b: u8, negate: bool) -> bool {
        let by_element = |r| self.arch.by_element.contains(r);
        let (a, b, by_element) = match self.function.insts[self.origin] {
            Inst::VFma { a: first, .. } if by_element(first) => (b, a, true),
            Inst::VFma { b: second, .. } => (a, b, by_element(second)),
            _ => (a, b, false),
        };
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
            (Lane::I16 | Lane::U16, false, _) => a64!(self ; mla V(acc).h8, V(a).h8, V(b).h8),
            (Lane::I16 | Lane::U16, true, _) => a64!(self ; mls V(acc).h8, V(a).h8, V(b).h8),
            (Lane::I8 | Lane::U8, false, _) => a64!(self ; mla V(acc).b16, V(a).b16, V(b).b16),
            (Lane::I8 | Lane::U8, true, _) => a64!(self ; mls V(acc).b16, V(a).b16, V(b).b16),
            (Lane::I64, ..) => return false,
        }
        true
    }

    fn shift(&mut self, op: ShiftOp, ty: VType, d: u8, a: u8, amount: u8) {
        let lane = ty.lane.bytes();
        let bits = 8 * lane as u32;
        let by = u32::from(amount).min(bits - 1);
        match (op, lane) {
            _ if amount == 0 => self.copy(d, a, ty),
            (ShiftOp::Left | ShiftOp::RightLogical, _) if u32::from(amount) >= bits => a64!(self ; movi V(d).b16, 0),
            (ShiftOp::Left, 4) => a64!(self ; shl V(d).s4, V(a).s4, by),
            (ShiftOp::Left, 2) => a64!(self ; shl V(d).h8, V(a).h8, by),
            (ShiftOp::Left, 1) => a64!(self ; shl V(d).b16, V(a).b16, by),
            (ShiftOp::Left, _) => a64!(self ; shl V(d).d2, V(a).d2, by),
            (ShiftOp::RightLogical, 4) => a64!(self ; ushr V(d).s4, V(a).s4, by),
            (ShiftOp::RightLogical, 2) => a64!(self ; ushr V(d).h8, V(a).h8, by),
            (ShiftOp::RightLogical, 1) => a64!(self ; ushr V(d).b16, V(a).b16, by),
            (ShiftOp::RightLogical, _) => a64!(self ; ushr V(d).d2, V(a).d2, by),
            (ShiftOp::RightArithmetic, 4) => a64!(self ; sshr V(d).s4, V(a).s4, by),
            (ShiftOp::RightArithmetic, 2) => a64!(self ; sshr V(d).h8, V(a).h8, by),
            (ShiftOp::RightArithmetic, 1) => a64!(self ; sshr V(d).b16, V(a).b16, by),
            (ShiftOp::RightArithmetic, _) => a64!(self ; sshr V(d).d2, V(a).d2, by),
        }
    }

    /// By instructions that add neighbours, in the order of the tree: lanes 0 and 2, 1 and 3, then both sums.
    fn reduce_all(&mut self, op: VBinary, ty: VType, d: u8, a: u8) -> bool {
        let t = self.temporaries.vector[0];
        match (op, ty.lane, ty.lanes) {
            (VBinary::Add, Lane::F32, 4) => a64!(self ; ext V(t).b16, V(a).b16, V(a).b16, 8
                ; fadd V(d).s4, V(a).s4, V(t).s4 ; faddp V(d).s4, V(d).s4, V(d).s4),
            (VBinary::Add, Lane::F64, 2) => a64!(self ; faddp V(d).d2, V(a).d2, V(a).d2),
            (VBinary::Add, Lane::I64, 2) => a64!(self ; addp V(d).d2, V(a).d2, V(a).d2),
            (VBinary::Add, Lane::I32, 4) => {
                a64!(self ; addp V(d).s4, V(a).s4, V(a).s4 ; addp V(d).s4, V(d).s4, V(d).s4);
            }
            (VBinary::Min, Lane::I32, 4) => {
                a64!(self ; sminp V(d).s4, V(a).s4, V(a).s4 ; sminp V(d).s4, V(d).s4, V(d).s4);
            }
            (VBinary::Max, Lane::I32, 4) => {
                a64!(self ; smaxp V(d).s4, V(a).s4, V(a).s4 ; smaxp V(d).s4, V(d).s4, V(d).s4);
            }
            _ => return false,
        }
        true
    }

    /// Halves of two registers side by side are combined at once, then even and odd lanes of both.
    fn reduce_four(&mut self, op: VBinary, ty: VType, d: u8, [a, b, c, e]: [u8; 4]) -> bool {
        if ty.lanes != 4 {
            return false;
        }
        let temporaries = self.temporaries.vector.clone();
        let (t, u, v, others) = (temporaries[0], temporaries[1], temporaries[2], &temporaries[3..]);
        let halves = VType { lane: Lane::I64, lanes: 2 };
        self.zip(Zip::Low, halves, t, a, b);
        self.zip(Zip::High, halves, u, a, b);
        let first = self.binary(op, ty, t, t, u, others);
        self.zip(Zip::Low, halves, u, c, e);
        self.zip(Zip::High, halves, v, c, e);
        let second = self.binary(op, ty, u, u, v, others);
        self.zip(Zip::Even, ty, v, t, u);
        self.zip(Zip::Odd, ty, t, t, u);
        first && second && self.binary(op, ty, d, v, t, others)
    }

    fn compare(&mut self, op: CompareOp, ty: VType, d: u8, a: u8, b: u8) {
        // Less is greater with the operands exchanged.
        let (op, a, b) = match op {
            CompareOp::Lt => (CompareOp::Gt, b, a),
            CompareOp::Le => (CompareOp::Ge, b, a),
            other => (other, a, b),
        };
        match (op, ty.lane) {
            (CompareOp::Gt, Lane::F32) => a64!(self ; fcmgt V(d).s4, V(a).s4, V(b).s4),
            (CompareOp::Gt, Lane::F64) => a64!(self ; fcmgt V(d).d2, V(a).d2, V(b).d2),
            (CompareOp::Gt, Lane::I32) => a64!(self ; cmgt V(d).s4, V(a).s4, V(b).s4),
            (CompareOp::Gt, Lane::I64) => a64!(self ; cmgt V(d).d2, V(a).d2, V(b).d2),
            (CompareOp::Ge, Lane::F32) => a64!(self ; fcmge V(d).s4, V(a).s4, V(b).s4),
            (CompareOp::Ge, Lane::F64) => a64!(self ; fcmge V(d).d2, V(a).d2, V(b).d2),
            (CompareOp::Ge, Lane::I32) => a64!(self ; cmge V(d).s4, V(a).s4, V(b).s4),
            (CompareOp::Ge, Lane::I64) => a64!(self ; cmge V(d).d2, V(a).d2, V(b).d2),
            (CompareOp::Gt, Lane::I8) => a64!(self ; cmgt V(d).b16, V(a).b16, V(b).b16),
            (CompareOp::Gt, Lane::U8) => a64!(self ; cmhi V(d).b16, V(a).b16, V(b).b16),
            (CompareOp::Gt, Lane::I16) => a64!(self ; cmgt V(d).h8, V(a).h8, V(b).h8),
            (CompareOp::Gt, Lane::U16) => a64!(self ; cmhi V(d).h8, V(a).h8, V(b).h8),
            (CompareOp::Ge, Lane::I8) => a64!(self ; cmge V(d).b16, V(a).b16, V(b).b16),
            (CompareOp::Ge, Lane::U8) => a64!(self ; cmhs V(d).b16, V(a).b16, V(b).b16),
            (CompareOp::Ge, Lane::I16) => a64!(self ; cmge V(d).h8, V(a).h8, V(b).h8),
            (CompareOp::Ge, Lane::U16) => a64!(self ; cmhs V(d).h8, V(a).h8, V(b).h8),
            (_, Lane::F32) => a64!(self ; fcmeq V(d).s4, V(a).s4, V(b).s4),
            (_, Lane::F64) => a64!(self ; fcmeq V(d).d2, V(a).d2, V(b).d2),
            (_, Lane::I32) => a64!(self ; cmeq V(d).s4, V(a).s4, V(b).s4),
            (_, Lane::I64) => a64!(self ; cmeq V(d).d2, V(a).d2, V(b).d2),
            (_, Lane::I16 | Lane::U16) => a64!(self ; cmeq V(d).h8, V(a).h8, V(b).h8),
            (_, Lane::I8 | Lane::U8) => a64!(self ; cmeq V(d).b16, V(a).b16, V(b).b16),
        }
        if op == CompareOp::Ne {
            a64!(self ; mvn V(d).b16, V(d).b16);
        }
    }

    /// In whatever way keeps `d` among the operands.
    fn select(&mut self, ty: VType, d: u8, mask: u8, a: u8, b: u8) {
        if d == a && d != mask {
            a64!(self ; bif V(d).b16, V(b).b16, V(mask).b16);
        } else if d == b && d != mask {
            a64!(self ; bit V(d).b16, V(a).b16, V(mask).b16);
        } else {
            self.copy(d, mask, ty);
            a64!(self ; bsl V(d).b16, V(a).b16, V(b).b16);
        }
    }

    fn shuffle(&mut self, _ty: VType, d: u8, index: u8, table: &Addr) -> bool {
        let t = self.temporaries.vector[0];
        let (b, offset) = self.operand(table, 16);
        self.load_scalar(t, b, offset, 16);
        a64!(self ; tbl V(d).b16, {V(t).b16 * 1}, V(index).b16);
        true
    }

    fn convert(&mut self, d: u8, to: VType, s: u8, from: Lane) -> bool {
        match (from, to.lane) {
            (a, b) if a == b || !a.is_float() && !b.is_float() && a.bytes() == b.bytes() => self.copy(d, s, to),
            (Lane::F32, Lane::F64) => a64!(self ; fcvtl V(d).d2, V(s).s2),
            (Lane::F64, Lane::F32) => a64!(self ; fcvtn V(d).s2, V(s).d2),
            (Lane::F32, Lane::I32) => a64!(self ; fcvtzs V(d).s4, V(s).s4),
            (Lane::F64, Lane::I64) => a64!(self ; fcvtzs V(d).d2, V(s).d2),
            (Lane::F64, Lane::I32) => a64!(self ; fcvtzs V(d).d2, V(s).d2 ; sqxtn V(d).s2, V(d).d2),
            (Lane::F32, Lane::I64) => a64!(self ; fcvtl V(d).d2, V(s).s2 ; fcvtzs V(d).d2, V(d).d2),
            (Lane::I32, Lane::F32) => a64!(self ; scvtf V(d).s4, V(s).s4),
            (Lane::I64, Lane::F64) => a64!(self ; scvtf V(d).d2, V(s).d2),
            (Lane::I32, Lane::F64) => a64!(self ; sxtl V(d).d2, V(s).s2 ; scvtf V(d).d2, V(d).d2),
            (Lane::I32, Lane::I64) => a64!(self ; sxtl V(d).d2, V(s).s2),
            (Lane::I64, Lane::I32) => a64!(self ; xtn V(d).s2, V(s).d2),
            (Lane::I64, Lane::F32) => {
                // By way of f64 it would round twice.
                a64!(self ; umov x16, V(s).d[0] ; umov x17, V(s).d[1]
                    ; scvtf S(d), x17 ; fmov w17, S(d) ; scvtf S(d), x16 ; ins V(d).s[1], w17);
            }
            _ => return false,
        }
        true
    }
}

impl Emitter<'_> {
    /// Least or greatest of `a` and `b`, `b` where they do not compare, by one instruction: of a number other than zero in `a`, the result is
    /// not a number where `b` is not; of a number in `b`, it is that where `a` is not a number, and quiet.
    fn bounded(&mut self, op: VBinary, ty: VType, d: u8, a: u8, b: u8) -> bool {
        let Inst::VBinary { a: first, b: second, .. } = self.function.insts[self.origin] else { return false };
        if self.arch.numbers.is_nonzero(first) {
            match (op, ty.lane) {
                (VBinary::Min, Lane::F32) => a64!(self ; fmin V(d).s4, V(a).s4, V(b).s4),
                (VBinary::Max, Lane::F32) => a64!(self ; fmax V(d).s4, V(a).s4, V(b).s4),
                (VBinary::Min, Lane::F64) => a64!(self ; fmin V(d).d2, V(a).d2, V(b).d2),
                (VBinary::Max, Lane::F64) => a64!(self ; fmax V(d).d2, V(a).d2, V(b).d2),
                _ => return false,
            }
            return true;
        }
        if !self.arch.numbers.is_quiet(first) || !self.arch.numbers.keeps_sign(op, second) {
            return false;
        }
        match (op, ty.lane) {
            (VBinary::Min, Lane::F32) => a64!(self ; fminnm V(d).s4, V(a).s4, V(b).s4),
            (VBinary::Max, Lane::F32) => a64!(self ; fmaxnm V(d).s4, V(a).s4, V(b).s4),
            (VBinary::Min, Lane::F64) => a64!(self ; fminnm V(d).d2, V(a).d2, V(b).d2),
            (VBinary::Max, Lane::F64) => a64!(self ; fmaxnm V(d).d2, V(a).d2, V(b).d2),
            _ => return false,
        }
        true
    }

    /// Returns true if the instruction at hand reads the lowest lane alone.
    fn is_half_in_lowest_lane(&self) -> bool {
        matches!(self.function.insts[self.origin], Inst::VUnary { a, .. } if self.arch.by_element.contains(a))
    }

    /// `fcvtn Vd.4H, Va.4S`, a form that the assembler lacks.
    fn narrow_to_half(&mut self, d: u8, a: u8) {
        self.asm.push_u32(0x0e21_6800 | u32::from(a) << 5 | u32::from(d));
    }
}
