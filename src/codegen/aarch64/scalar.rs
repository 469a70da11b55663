//! Addresses, integers, loops and conditionals.

use super::{ADDRESS, Body, DATA, Emitter};
use crate::codegen::allocation::Place;
use crate::codegen::expr::CompareOp;
use crate::codegen::operands::Class;
use crate::codegen::vcode::{Addr, Gpr, GprOp, Inst, Operand};
use crate::codegen::{DType, Error, Result};
use dynasmrt::{DynasmApi, DynasmLabelApi, dynasm};

impl Emitter<'_> {
    pub(super) fn scalar_inst(&mut self, inst: &Inst, hidden: Option<Place>) -> Result<()> {
        match inst {
            Inst::Imm { dst, value } => self.immediate(n(*dst), *value),
            Inst::Copy { dst, src } => self.move_gpr(n(*dst), n(*src)),
            Inst::Int { op, dst, a, b } => self.int(*op, n(*dst), n(*a), *b)?,
            Inst::LoadInt { dst, addr, mem } => {
                let (base, offset) = self.locate(addr, 0);
                self.load_int(n(*dst), base, offset, *mem)?;
            }
            Inst::Argument { dst, slot } => {
                let table = self.hidden(n(*dst), hidden)?;
                self.load_gpr(n(*dst), table, 8 * i64::from(*slot), 8);
            }
            Inst::Range { dst, .. } => {
                let from = self.hidden(n(*dst), hidden)?;
                self.move_gpr(n(*dst), from);
            }
            Inst::Scratch { dst, offset } => {
                let scratch = self.hidden(n(*dst), hidden)?;
                self.add_constant(n(*dst), scratch, i64::from(*offset));
            }
            Inst::LoopStart { count, at_least_once } => {
                let (count, end, head) = (n(*count), self.asm.new_dynamic_label(), self.asm.new_dynamic_label());
                if !at_least_once {
                    dynasm!(self.asm ; .arch aarch64 ; cmp XSP(count), 0 ; b.le =>end);
                }
                match hidden {
                    Some(Place::Register(counter)) => self.move_gpr(counter, count),
                    Some(Place::Slot(s)) => {
                        let at = self.frame.slot(Class::Gpr, s);
                        self.store_gpr(count, super::SP, at, 8);
                    }
                    None => return self.unsupported(inst),
                }
                dynasm!(self.asm ; .arch aarch64 ; =>head);
                self.bodies.push(Body { head, end });
            }
            Inst::LoopEnd => {
                let Some(Body { head, end }) = self.bodies.pop() else { return self.unsupported(inst) };
                match hidden {
                    Some(Place::Register(c)) => {
                        dynasm!(self.asm ; .arch aarch64 ; sub XSP(c), XSP(c), 1 ; cbnz X(c), =>head)
                    }
                    Some(Place::Slot(s)) => {
                        let at = self.frame.slot(Class::Gpr, s);
                        self.load_gpr(DATA, super::SP, at, 8);
                        dynasm!(self.asm ; .arch aarch64 ; sub XSP(DATA), XSP(DATA), 1);
                        self.store_gpr(DATA, super::SP, at, 8);
                        dynasm!(self.asm ; .arch aarch64 ; cbnz X(DATA), =>head);
                    }
                    None => return self.unsupported(inst),
                }
                dynasm!(self.asm ; .arch aarch64 ; =>end);
            }
            Inst::IfStart { op, a, b } => {
                let end = self.asm.new_dynamic_label();
                let b = self.operand(*b);
                dynasm!(self.asm ; .arch aarch64 ; cmp X(n(*a)), X(b));
                // Past the body when the condition fails.
                match op {
                    CompareOp::Eq => dynasm!(self.asm ; .arch aarch64 ; b.ne =>end),
                    CompareOp::Ne => dynasm!(self.asm ; .arch aarch64 ; b.eq =>end),
                    CompareOp::Lt => dynasm!(self.asm ; .arch aarch64 ; b.ge =>end),
                    CompareOp::Le => dynasm!(self.asm ; .arch aarch64 ; b.gt =>end),
                    CompareOp::Gt => dynasm!(self.asm ; .arch aarch64 ; b.le =>end),
                    CompareOp::Ge => dynasm!(self.asm ; .arch aarch64 ; b.lt =>end),
                }
                self.bodies.push(Body { head: end, end });
            }
            Inst::IfEnd => {
                let Some(Body { end, .. }) = self.bodies.pop() else { return self.unsupported(inst) };
                dynasm!(self.asm ; .arch aarch64 ; =>end);
            }
            _ => return self.unsupported(inst),
        }
        Ok(())
    }

    /// The register of an argument of the calling convention; loaded into `dst` when it waits in a slot.
    fn hidden(&mut self, dst: u8, hidden: Option<Place>) -> Result<u8> {
        match hidden {
            Some(Place::Register(r)) => Ok(r),
            Some(Place::Slot(s)) => {
                let at = self.frame.slot(Class::Gpr, s);
                self.load_gpr(dst, super::SP, at, 8);
                Ok(dst)
            }
            None => Err(Error::Internal(format!("{}: an argument without a place", self.name))),
        }
    }

    /// A register with the operand's value: its own, or the scratch register.
    fn operand(&mut self, operand: Operand) -> u8 {
        match operand {
            Operand::Reg(r) => n(r),
            Operand::Imm(v) => {
                self.immediate(DATA, v);
                DATA
            }
        }
    }

    pub(super) fn move_gpr(&mut self, dst: u8, src: u8) {
        if dst != src {
            dynasm!(self.asm ; .arch aarch64 ; mov X(dst), X(src));
        }
    }

    /// By parts of 16 bits; a negative value starts from all ones.
    pub(super) fn immediate(&mut self, d: u8, value: i64) {
        let bits = value as u64;
        let part = |i: u32| (bits >> (16 * i)) as u16;
        let background = if value < 0 { 0xffff } else { 0 };
        let parts: Vec<u32> = (0..4).filter(|&i| part(i) != background).collect();
        let first = parts.first().copied().unwrap_or(0);
        let start = if value < 0 { !part(first) } else { part(first) } as u32;
        match (value < 0, first) {
            (false, 0) => dynasm!(self.asm ; .arch aarch64 ; movz X(d), start),
            (false, 1) => dynasm!(self.asm ; .arch aarch64 ; movz X(d), start, lsl 16),
            (false, 2) => dynasm!(self.asm ; .arch aarch64 ; movz X(d), start, lsl 32),
            (false, _) => dynasm!(self.asm ; .arch aarch64 ; movz X(d), start, lsl 48),
            (true, 0) => dynasm!(self.asm ; .arch aarch64 ; movn X(d), start),
            (true, 1) => dynasm!(self.asm ; .arch aarch64 ; movn X(d), start, lsl 16),
            (true, 2) => dynasm!(self.asm ; .arch aarch64 ; movn X(d), start, lsl 32),
            (true, _) => dynasm!(self.asm ; .arch aarch64 ; movn X(d), start, lsl 48),
        }
        for i in parts.into_iter().skip(1) {
            let v = part(i) as u32;
            match i {
                1 => dynasm!(self.asm ; .arch aarch64 ; movk X(d), v, lsl 16),
                2 => dynasm!(self.asm ; .arch aarch64 ; movk X(d), v, lsl 32),
                _ => dynasm!(self.asm ; .arch aarch64 ; movk X(d), v, lsl 48),
            }
        }
    }

    /// `d = a + value`; either may be the stack pointer. Beyond 2²⁴ the data scratch
    /// register changes where `d` is `a`.
    pub(super) fn add_constant(&mut self, d: u8, a: u8, value: i64) {
        let magnitude = value.unsigned_abs();
        let (low, high) = ((magnitude & 0xfff) as u32, (magnitude >> 12) as u32);
        if magnitude == 0 {
            if d != a {
                dynasm!(self.asm ; .arch aarch64 ; mov XSP(d), XSP(a));
            }
        } else if magnitude < 1 << 24 {
            let mut from = a;
            if high != 0 {
                match value < 0 {
                    true => dynasm!(self.asm ; .arch aarch64 ; sub XSP(d), XSP(from), high, lsl 12),
                    false => dynasm!(self.asm ; .arch aarch64 ; add XSP(d), XSP(from), high, lsl 12),
                }
                from = d;
            }
            if low != 0 {
                match value < 0 {
                    true => dynasm!(self.asm ; .arch aarch64 ; sub XSP(d), XSP(from), low),
                    false => dynasm!(self.asm ; .arch aarch64 ; add XSP(d), XSP(from), low),
                }
            }
        } else {
            let by = if d == a || d == super::SP { DATA } else { d };
            self.immediate(by, value);
            dynasm!(self.asm ; .arch aarch64 ; add XSP(d), XSP(a), X(by), uxtx);
        }
    }

    fn int(&mut self, op: GprOp, d: u8, a: u8, b: Operand) -> Result<()> {
        match (op, b) {
            (GprOp::Add, Operand::Imm(v)) => self.add_constant(d, a, v),
            (GprOp::Sub, Operand::Imm(v)) => self.add_constant(d, a, v.wrapping_neg()),
            (GprOp::DivFloor, Operand::Imm(v)) if v > 0 && v & (v - 1) == 0 => match v.trailing_zeros() {
                0 => self.move_gpr(d, a),
                shift => dynasm!(self.asm ; .arch aarch64 ; asr X(d), X(a), shift),
            },
            (GprOp::DivFloor, Operand::Imm(v)) if v > 0 => {
                // The quotient is rounded to zero: one less where the remainder is negative.
                self.immediate(DATA, v);
                dynasm!(self.asm ; .arch aarch64
                    ; sdiv X(ADDRESS), X(a), X(DATA)
                    ; msub X(DATA), X(ADDRESS), X(DATA), X(a)
                    ; add X(d), X(ADDRESS), X(DATA), asr 63);
            }
            (GprOp::DivFloor, _) => return Err(Error::Internal(format!("{}: division by {b:?}", self.name))),
            (op, b) => {
                let b = self.operand(b);
                match op {
                    GprOp::Add => dynasm!(self.asm ; .arch aarch64 ; add X(d), X(a), X(b)),
                    GprOp::Sub => dynasm!(self.asm ; .arch aarch64 ; sub X(d), X(a), X(b)),
                    GprOp::Mul => dynasm!(self.asm ; .arch aarch64 ; mul X(d), X(a), X(b)),
                    GprOp::Min => dynasm!(self.asm ; .arch aarch64 ; cmp X(a), X(b) ; csel X(d), X(a), X(b), lt),
                    _ => dynasm!(self.asm ; .arch aarch64 ; cmp X(a), X(b) ; csel X(d), X(a), X(b), gt),
                }
            }
        }
        Ok(())
    }

    // ---- memory

    /// Base register and offset of `addr + extra`; with an index the base is the address scratch register.
    pub(super) fn locate(&mut self, addr: &Addr, extra: i64) -> (u8, i64) {
        let offset = i64::from(addr.disp) + extra;
        let Some((index, scale)) = addr.index else { return (n(addr.base), offset) };
        let (b, i, shift) = (n(addr.base), n(index), scale.trailing_zeros());
        dynasm!(self.asm ; .arch aarch64 ; add X(ADDRESS), X(b), X(i), lsl shift);
        (ADDRESS, offset)
    }

    /// The address itself in the address scratch register.
    pub(super) fn address(&mut self, addr: &Addr, extra: i64) {
        let (base, offset) = self.locate(addr, extra);
        self.add_constant(ADDRESS, base, offset);
    }

    /// A base and offset that a load or store of `size` bytes can encode: the offset is scaled and positive (`true`), or
    /// within -256..256 (`false`).
    pub(super) fn reach(&mut self, base: u8, offset: i64, size: i64) -> (u8, i64, bool) {
        if offset >= 0 && offset % size == 0 && offset < 4096 * size {
            (base, offset, true)
        } else if (-256..256).contains(&offset) {
            (base, offset, false)
        } else {
            // the multiple of 4096 apart, so that one addition suffices most of the time
            let near = offset.rem_euclid(4096);
            if near % size == 0 {
                self.add_constant(ADDRESS, base, offset - near);
                (ADDRESS, near, true)
            } else {
                self.add_constant(ADDRESS, base, offset);
                (ADDRESS, 0, true)
            }
        }
    }

    pub(super) fn load_gpr(&mut self, r: u8, base: u8, offset: i64, size: i64) {
        let (b, o, scaled) = self.reach(base, offset, size);
        let (u, s) = (o as u32, o as i32);
        match (size, scaled) {
            (8, true) => dynasm!(self.asm ; .arch aarch64 ; ldr X(r), [XSP(b), u]),
            (8, false) => dynasm!(self.asm ; .arch aarch64 ; ldur X(r), [XSP(b), s]),
            (4, true) => dynasm!(self.asm ; .arch aarch64 ; ldr W(r), [XSP(b), u]),
            (4, false) => dynasm!(self.asm ; .arch aarch64 ; ldur W(r), [XSP(b), s]),
            (_, true) => dynasm!(self.asm ; .arch aarch64 ; ldrb W(r), [XSP(b), u]),
            (_, false) => dynasm!(self.asm ; .arch aarch64 ; ldurb W(r), [XSP(b), s]),
        }
    }

    pub(super) fn store_gpr(&mut self, r: u8, base: u8, offset: i64, size: i64) {
        let (b, o, scaled) = self.reach(base, offset, size);
        let (u, s) = (o as u32, o as i32);
        match (size, scaled) {
            (8, true) => dynasm!(self.asm ; .arch aarch64 ; str X(r), [XSP(b), u]),
            (8, false) => dynasm!(self.asm ; .arch aarch64 ; stur X(r), [XSP(b), s]),
            (4, true) => dynasm!(self.asm ; .arch aarch64 ; str W(r), [XSP(b), u]),
            (4, false) => dynasm!(self.asm ; .arch aarch64 ; stur W(r), [XSP(b), s]),
            (_, true) => dynasm!(self.asm ; .arch aarch64 ; strb W(r), [XSP(b), u]),
            (_, false) => dynasm!(self.asm ; .arch aarch64 ; sturb W(r), [XSP(b), s]),
        }
    }

    /// `d` = the integer of type `mem`, extended to 64 bits.
    pub(super) fn load_int(&mut self, d: u8, base: u8, offset: i64, mem: DType) -> Result<()> {
        match mem {
            DType::I64 | DType::F64 => self.load_gpr(d, base, offset, 8),
            DType::F32 => self.load_gpr(d, base, offset, 4),
            DType::U8 | DType::Bool => self.load_gpr(d, base, offset, 1),
            DType::I32 => {
                self.load_gpr(d, base, offset, 4);
                dynasm!(self.asm ; .arch aarch64 ; sxtw X(d), W(d));
            }
            DType::I8 => {
                self.load_gpr(d, base, offset, 1);
                dynasm!(self.asm ; .arch aarch64 ; sxtb X(d), W(d));
            }
            DType::F16 | DType::BF16 => {
                return Err(Error::Unsupported(format!("{}: integers from {mem}", self.name)));
            }
        }
        Ok(())
    }
}

pub(super) fn n(r: Gpr) -> u8 {
    r.0 as u8
}
