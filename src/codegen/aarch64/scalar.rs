//! Addresses, integers, loops and conditionals.

use crate::codegen::aarch64::emitter::{Emitter, X16, X17};
use crate::codegen::emit::{Comparison, Frame, Scalars};
use crate::codegen::regalloc::allocation::Place;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Addr, GprOp, Lane, Operand, ShiftOp};
use crate::expr::CompareOp;
use crate::runtime::{DType, Error, Result};
use dynasmrt::{DynamicLabel, DynasmApi, DynasmLabelApi};

impl Scalars for Emitter<'_> {
    /// `d = value`, by 16 bits at a time.
    fn immediate(&mut self, d: u8, value: i64) {
        let inverted = (0..4).filter(|i| value >> (16 * i) & 0xffff == 0xffff).count()
            > (0..4).filter(|i| value >> (16 * i) & 0xffff == 0).count();
        let rest = if inverted { 0xffff } else { 0 };
        let mut started = false;
        for i in 0..4u32 {
            let part = (value >> (16 * i) & 0xffff) as u32;
            if part == rest {
                continue;
            }
            let shift = 16 * i;
            match (started, inverted) {
                (true, _) => a64!(self ; movk X(d), part, lsl shift),
                (false, false) => a64!(self ; movz X(d), part, lsl shift),
                (false, true) => {
                    let part = !part & 0xffff;
                    a64!(self ; movn X(d), part, lsl shift);
                }
            }
            started = true;
        }
        if !started {
            match inverted {
                false => a64!(self ; movz X(d), 0),
                true => a64!(self ; movn X(d), 0),
            }
        }
    }

    fn int(&mut self, op: GprOp, d: u8, a: u8, b: Operand) -> Result<()> {
        match (op, b) {
            (GprOp::Add, Operand::Imm(v)) => self.add_immediate(d, a, v),
            (GprOp::Sub, Operand::Imm(v)) => self.add_immediate(d, a, v.wrapping_neg()),
            (GprOp::Mul, Operand::Imm(v)) if v > 0 && v & (v - 1) == 0 => {
                a64!(self ; lsl X(d), X(a), v.trailing_zeros());
            }
            (GprOp::DivFloor, Operand::Imm(v)) if v > 0 && v & (v - 1) == 0 => {
                a64!(self ; asr X(d), X(a), v.trailing_zeros());
            }
            (GprOp::DivFloor, Operand::Imm(v)) if v > 0 => {
                // The quotient is rounded to zero: one less where the remainder is negative.
                self.immediate(X16, v);
                a64!(self
                    ; sdiv x17, X(a), x16
                    ; msub x16, x17, x16, X(a)
                    ; add X(d), x17, x16, asr 63);
            }
            (GprOp::DivFloor, _) => {
                return Err(Error::Internal(format!("{}: division by {b:?}", self.function.name)));
            }
            (GprOp::Add, Operand::Reg(b)) => a64!(self ; add X(d), X(a), X(b.number())),
            (GprOp::Sub, Operand::Reg(b)) => a64!(self ; sub X(d), X(a), X(b.number())),
            (_, b) => {
                let b = self.in_register(b);
                match op {
                    GprOp::Mul => a64!(self ; mul X(d), X(a), X(b)),
                    GprOp::And => a64!(self ; and X(d), X(a), X(b)),
                    GprOp::Or => a64!(self ; orr X(d), X(a), X(b)),
                    GprOp::Xor => a64!(self ; eor X(d), X(a), X(b)),
                    GprOp::ShiftLeft => a64!(self ; lsl X(d), X(a), X(b)),
                    GprOp::ShiftRight => a64!(self ; asr X(d), X(a), X(b)),
                    GprOp::Min => a64!(self ; cmp X(a), X(b) ; csel X(d), X(a), X(b), lt),
                    _ => a64!(self ; cmp X(a), X(b) ; csel X(d), X(a), X(b), gt),
                }
            }
        }
        Ok(())
    }

    fn word(&mut self, op: GprOp, d: u8, a: u8, b: Operand) -> Result<()> {
        let b = match (op, b) {
            (GprOp::Add, Operand::Imm(v @ 0..4096)) => {
                a64!(self ; add WSP(d), WSP(a), v as u32);
                return Ok(());
            }
            (GprOp::Sub, Operand::Imm(v @ 0..4096)) => {
                a64!(self ; sub WSP(d), WSP(a), v as u32);
                return Ok(());
            }
            (_, Operand::Imm(v)) => self.in_register(Operand::Imm(i64::from(v as i32))),
            (_, b) => self.in_register(b),
        };
        match op {
            GprOp::Add => a64!(self ; add W(d), W(a), W(b)),
            GprOp::Sub => a64!(self ; sub W(d), W(a), W(b)),
            GprOp::Mul => a64!(self ; mul W(d), W(a), W(b)),
            GprOp::Min => a64!(self ; cmp W(a), W(b) ; csel W(d), W(a), W(b), lt),
            GprOp::Max => a64!(self ; cmp W(a), W(b) ; csel W(d), W(a), W(b), gt),
            GprOp::And => a64!(self ; and W(d), W(a), W(b)),
            GprOp::Or => a64!(self ; orr W(d), W(a), W(b)),
            GprOp::Xor => a64!(self ; eor W(d), W(a), W(b)),
            GprOp::DivFloor | GprOp::ShiftLeft | GprOp::ShiftRight => {
                return Err(Error::Internal(format!("{}: {op:?} of words", self.function.name)));
            }
        }
        Ok(())
    }

    fn shift_int(&mut self, op: ShiftOp, lane: Lane, d: u8, a: u8, amount: u8) {
        let amount = u32::from(amount);
        match (op, lane == Lane::I32) {
            (ShiftOp::Left, true) => a64!(self ; lsl W(d), W(a), amount),
            (ShiftOp::Left, false) => a64!(self ; lsl X(d), X(a), amount),
            (ShiftOp::RightLogical, true) => a64!(self ; lsr W(d), W(a), amount),
            (ShiftOp::RightLogical, false) => a64!(self ; lsr X(d), X(a), amount),
            (ShiftOp::RightArithmetic, true) => a64!(self ; asr W(d), W(a), amount),
            (ShiftOp::RightArithmetic, false) => a64!(self ; asr X(d), X(a), amount),
        }
    }

    fn extend(&mut self, mem: DType, d: u8, a: u8) {
        match mem {
            DType::I64 | DType::U64 | DType::F64 => self.move_gpr(d, a),
            DType::I32 => a64!(self ; sxtw X(d), W(a)),
            DType::F32 | DType::U32 => a64!(self ; mov W(d), W(a)),
            DType::I8 => a64!(self ; sxtb X(d), W(a)),
            DType::I16 => a64!(self ; sxth X(d), W(a)),
            DType::F16 | DType::BF16 | DType::U16 => a64!(self ; uxth W(d), W(a)),
            _ => a64!(self ; uxtb W(d), W(a)),
        }
    }

    fn choose_int(&mut self, c: &Comparison, d: u8, yes: u8, no: u8) {
        match c.lane {
            Lane::I32 => {
                let b = match c.b {
                    Operand::Imm(v) => self.in_register(Operand::Imm(i64::from(v as i32))),
                    b => self.in_register(b),
                };
                a64!(self ; cmp W(c.a), W(b));
            }
            _ => self.compare_gpr(c.a, c.b),
        }
        match c.op {
            CompareOp::Eq => a64!(self ; csel X(d), X(yes), X(no), eq),
            CompareOp::Ne => a64!(self ; csel X(d), X(yes), X(no), ne),
            CompareOp::Lt => a64!(self ; csel X(d), X(yes), X(no), lt),
            CompareOp::Le => a64!(self ; csel X(d), X(yes), X(no), le),
            CompareOp::Gt => a64!(self ; csel X(d), X(yes), X(no), gt),
            CompareOp::Ge => a64!(self ; csel X(d), X(yes), X(no), ge),
        }
    }

    fn store_int(&mut self, s: u8, addr: &Addr, mem: DType) -> Result<()> {
        let (b, offset) = self.operand(addr, mem.bytes() as i64);
        let (scaled, o) = (offset >= 0 && offset % mem.bytes() as i32 == 0, offset as u32);
        match (mem.bytes(), scaled) {
            (8, true) => a64!(self ; str X(s), [XSP(b), o]),
            (8, false) => a64!(self ; stur X(s), [XSP(b), offset]),
            (4, true) => a64!(self ; str W(s), [XSP(b), o]),
            (4, false) => a64!(self ; stur W(s), [XSP(b), offset]),
            (2, true) => a64!(self ; strh W(s), [XSP(b), o]),
            (2, false) => a64!(self ; sturh W(s), [XSP(b), offset]),
            (_, true) => a64!(self ; strb W(s), [XSP(b), o]),
            (_, false) => a64!(self ; sturb W(s), [XSP(b), offset]),
        }
        Ok(())
    }

    fn load_int(&mut self, d: u8, addr: &Addr, mem: DType) -> Result<()> {
        let (b, offset) = self.operand(addr, mem.bytes() as i64);
        let (scaled, o) = (offset >= 0 && offset % mem.bytes() as i32 == 0, offset as u32);
        match (mem, scaled) {
            (DType::I64 | DType::U64 | DType::F64, true) => a64!(self ; ldr X(d), [XSP(b), o]),
            (DType::I64 | DType::U64 | DType::F64, false) => a64!(self ; ldur X(d), [XSP(b), offset]),
            (DType::I32, true) => a64!(self ; ldrsw X(d), [XSP(b), o]),
            (DType::I32, false) => a64!(self ; ldursw X(d), [XSP(b), offset]),
            (DType::F32 | DType::U32, true) => a64!(self ; ldr W(d), [XSP(b), o]),
            (DType::F32 | DType::U32, false) => a64!(self ; ldur W(d), [XSP(b), offset]),
            (DType::I8, true) => a64!(self ; ldrsb X(d), [XSP(b), o]),
            (DType::I8, false) => a64!(self ; ldursb X(d), [XSP(b), offset]),
            (DType::I16, true) => a64!(self ; ldrsh X(d), [XSP(b), o]),
            (DType::I16, false) => a64!(self ; ldursh X(d), [XSP(b), offset]),
            (DType::F16 | DType::BF16 | DType::U16, true) => a64!(self ; ldrh W(d), [XSP(b), o]),
            (DType::F16 | DType::BF16 | DType::U16, false) => a64!(self ; ldurh W(d), [XSP(b), offset]),
            (_, true) => a64!(self ; ldrb W(d), [XSP(b), o]),
            (_, false) => a64!(self ; ldurb W(d), [XSP(b), offset]),
        }
        Ok(())
    }

    fn prefetch(&mut self, addr: &Addr) -> Result<()> {
        // prfm pldl2keep, [base, #offset]: 12 bits, in units of 8 bytes; dynasm does not have it
        let (b, offset) = match addr {
            Addr { index: None, disp, base } if disp % 8 == 0 && (0..8 << 12).contains(disp) => (base.number(), *disp),
            _ => (self.address(addr, 0), 0),
        };
        self.asm.push_u32(0xf980_0000 | (offset as u32 / 8) << 10 | u32::from(b) << 5 | 0b00010);
        Ok(())
    }

    fn skip_loop(&mut self, count: u8, end: DynamicLabel) {
        a64!(self ; cmp XSP(count), 0 ; b.le =>end);
    }

    /// At a multiple of 32 bytes where three words at most are missing, else of 16: what a fetch brings.
    fn align_loop(&mut self) {
        const NOP: u32 = 0xd503_201f;
        let missing = |to: usize, at: usize| at.next_multiple_of(to) - at;
        let at = self.asm.offset().0;
        let bytes = Some(missing(32, at)).filter(|&bytes| bytes <= 12).unwrap_or(missing(16, at));
        (0..bytes / 4).for_each(|_| self.asm.push_u32(NOP));
    }

    /// Cortex-A55 has the flags three cycles after the subtraction, and starts two instructions in a cycle.
    const COUNTED_AHEAD: usize = 4;

    fn count_down(&mut self, counter: Place) {
        match counter {
            Place::Register(counter) => a64!(self ; subs X(counter), XSP(counter), 1),
            Place::Slot(s) => {
                self.reload(Class::Gpr, X17, s);
                a64!(self ; sub x17, x17, 1);
                self.spill(Class::Gpr, X17, s);
                a64!(self ; cmp x17, 0);
            }
        }
    }

    fn repeat(&mut self, head: DynamicLabel) {
        a64!(self ; b.ne =>head);
    }

    fn jump_outside(&mut self, a: u8, extent: i64, to: DynamicLabel) {
        self.compare_gpr(a, Operand::Imm(extent));
        a64!(self ; b.hs =>to);
    }

    fn jump(&mut self, to: DynamicLabel) {
        a64!(self ; b =>to);
    }

    /// Scratch registers, which hold nothing between instructions.
    fn borrow(&mut self, _: [u8; 3]) -> [u8; 2] {
        [X17, X16]
    }

    fn jump_unless(&mut self, op: CompareOp, a: u8, b: Operand, end: DynamicLabel) {
        self.compare_gpr(a, b);
        match op {
            CompareOp::Eq => a64!(self ; b.ne =>end),
            CompareOp::Ne => a64!(self ; b.eq =>end),
            CompareOp::Lt => a64!(self ; b.ge =>end),
            CompareOp::Le => a64!(self ; b.gt =>end),
            CompareOp::Gt => a64!(self ; b.le =>end),
            CompareOp::Ge => a64!(self ; b.lt =>end),
        }
    }
}

impl Emitter<'_> {
    /// `d = a + value`; x17 may change.
    pub(super) fn add_immediate(&mut self, d: u8, a: u8, value: i64) {
        let size = value.unsigned_abs();
        if size == 0 {
            self.move_gpr(d, a);
        } else if size < 4096 || (size.is_multiple_of(4096) && size < 4096 * 4096) {
            let (part, shift) = if size < 4096 { (size as u32, 0) } else { ((size / 4096) as u32, 12) };
            match value > 0 {
                true => a64!(self ; add XSP(d), XSP(a), part, lsl shift),
                false => a64!(self ; sub XSP(d), XSP(a), part, lsl shift),
            }
        } else {
            self.immediate(X17, value);
            a64!(self ; add X(d), X(a), x17);
        }
    }

    /// The register of an operand; an immediate goes to x16.
    fn in_register(&mut self, b: Operand) -> u8 {
        match b {
            Operand::Reg(b) => b.number(),
            Operand::Imm(v) => {
                self.immediate(X16, v);
                X16
            }
        }
    }

    fn compare_gpr(&mut self, a: u8, b: Operand) {
        match b {
            Operand::Reg(b) => a64!(self ; cmp X(a), X(b.number())),
            Operand::Imm(v) if (0..4096).contains(&v) => a64!(self ; cmp XSP(a), v as u32),
            Operand::Imm(v) => {
                self.immediate(X16, v);
                a64!(self ; cmp X(a), x16);
            }
        }
    }

    /// A base register and an offset that loads and stores of `size` bytes take for `addr`; either a multiple of the
    /// size or within 255 bytes. x16 and x17 may change, and x16 may be the base.
    pub(super) fn operand(&mut self, addr: &Addr, size: i64) -> (u8, i32) {
        let mut base = addr.base.number();
        let mut offset = i64::from(addr.disp);
        if let Some((index, scale)) = addr.index {
            a64!(self ; add x16, X(base), X(index.number()), lsl scale.trailing_zeros());
            base = X16;
        }
        if !is_encodable(offset, size) {
            // The part of the offset that one shifted addition reaches, when the rest is encodable.
            let rest = offset.rem_euclid(4096);
            let high = offset - rest;
            if is_encodable(rest, size) && high.unsigned_abs() < 4096 * 4096 {
                self.add_immediate(X16, base, high);
                offset = rest;
            } else {
                self.add_immediate(X16, base, offset);
                offset = 0;
            }
            base = X16;
        }
        (base, offset as i32)
    }

    /// x16 or the base register itself = the address plus `extra`.
    pub(super) fn address(&mut self, addr: &Addr, extra: i64) -> u8 {
        let mut base = addr.base.number();
        if let Some((index, scale)) = addr.index {
            a64!(self ; add x16, X(base), X(index.number()), lsl scale.trailing_zeros());
            base = X16;
        }
        match i64::from(addr.disp) + extra {
            0 => base,
            offset => {
                self.add_immediate(X16, base, offset);
                X16
            }
        }
    }
}

fn is_encodable(offset: i64, size: i64) -> bool {
    (-256..256).contains(&offset) || (offset >= 0 && offset % size == 0 && offset / size < 4096)
}
