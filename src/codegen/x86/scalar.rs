//! Addresses, integers, loops and conditionals.

use crate::codegen::regalloc::allocation::{Place, slot_offset};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Addr, Gpr, GprOp, Inst, Operand};
use crate::codegen::x86::emitter::Body;
use crate::codegen::x86::emitter::Emitter;
use crate::expr::CompareOp;
use crate::runtime::{DType, Error, Result};
use dynasmrt::{DynasmApi, DynasmLabelApi, dynasm};

impl Emitter<'_> {
    pub(super) fn scalar_inst(&mut self, inst: &Inst, hidden: Option<Place>, innermost: bool) -> Result<()> {
        match inst {
            Inst::Imm { dst, value } => self.immediate(n(*dst), *value),
            Inst::Copy { dst, src } => self.move_gpr(n(*dst), n(*src)),
            Inst::Int { op, dst, a, b } => self.int(*op, n(*dst), n(*a), *b)?,
            Inst::LoadInt { dst, addr, mem } => self.load_int(n(*dst), addr, 0, *mem)?,
            Inst::Prefetch { addr } => self.prefetch(addr)?,
            Inst::Argument { dst, slot } => {
                let (d, offset) = (n(*dst), slot_offset(*slot)?);
                let table = self.hidden(d, hidden)?;
                dynasm!(self.asm ; .arch x64 ; mov Rq(d), [Rq(table) + offset]);
            }
            Inst::Range { dst, .. } | Inst::Scratch { dst } => {
                let from = self.hidden(n(*dst), hidden)?;
                self.move_gpr(n(*dst), from);
            }
            Inst::LoopStart { count, at_least_once } => {
                let (count, end, head) = (n(*count), self.asm.new_dynamic_label(), self.asm.new_dynamic_label());
                if !at_least_once {
                    dynasm!(self.asm ; .arch x64 ; test Rq(count), Rq(count) ; jle =>end);
                }
                match hidden {
                    Some(Place::Register(counter)) => self.move_gpr(counter, count),
                    Some(Place::Slot(s)) => {
                        let at = self.frame.slot(Class::Gpr, s);
                        dynasm!(self.asm ; .arch x64 ; mov [rsp + at], Rq(count));
                    }
                    None => return self.unsupported(inst),
                }
                if innermost {
                    self.align_loop();
                }
                dynasm!(self.asm ; .arch x64 ; =>head);
                self.bodies.push(Body { head, end });
            }
            Inst::LoopEnd => {
                let Some(Body { head, end }) = self.bodies.pop() else { return self.unsupported(inst) };
                match hidden {
                    Some(Place::Register(counter)) => dynasm!(self.asm ; .arch x64 ; sub Rq(counter), BYTE 1),
                    Some(Place::Slot(s)) => {
                        let at = self.frame.slot(Class::Gpr, s);
                        dynasm!(self.asm ; .arch x64 ; sub QWORD [rsp + at], BYTE 1);
                    }
                    None => return self.unsupported(inst),
                }
                dynasm!(self.asm ; .arch x64 ; jnz =>head ; =>end);
            }
            Inst::IfStart { op, a, b } => {
                let end = self.asm.new_dynamic_label();
                self.compare(n(*a), *b);
                // Past the body when the condition fails.
                match op {
                    CompareOp::Eq => dynasm!(self.asm ; .arch x64 ; jne =>end),
                    CompareOp::Ne => dynasm!(self.asm ; .arch x64 ; je =>end),
                    CompareOp::Lt => dynasm!(self.asm ; .arch x64 ; jge =>end),
                    CompareOp::Le => dynasm!(self.asm ; .arch x64 ; jg =>end),
                    CompareOp::Gt => dynasm!(self.asm ; .arch x64 ; jle =>end),
                    CompareOp::Ge => dynasm!(self.asm ; .arch x64 ; jl =>end),
                }
                self.bodies.push(Body { head: end, end });
            }
            Inst::IfEnd => {
                let Some(Body { end, .. }) = self.bodies.pop() else { return self.unsupported(inst) };
                dynasm!(self.asm ; .arch x64 ; =>end);
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
                dynasm!(self.asm ; .arch x64 ; mov Rq(dst), [rsp + at]);
                Ok(dst)
            }
            None => Err(Error::Internal(format!("{}: an argument without a place", self.name))),
        }
    }

    pub(super) fn move_gpr(&mut self, dst: u8, src: u8) {
        if dst != src {
            dynasm!(self.asm ; .arch x64 ; mov Rq(dst), Rq(src));
        }
    }

    /// Flags may change.
    pub(super) fn immediate(&mut self, dst: u8, value: i64) {
        if value == 0 {
            dynasm!(self.asm ; .arch x64 ; xor Rd(dst), Rd(dst));
        } else if let Ok(v) = u32::try_from(value) {
            dynasm!(self.asm ; .arch x64 ; mov Rd(dst), DWORD v as i32);
        } else if let Ok(v) = i32::try_from(value) {
            dynasm!(self.asm ; .arch x64 ; mov Rq(dst), DWORD v);
        } else {
            dynasm!(self.asm ; .arch x64 ; mov Rq(dst), QWORD value);
        }
    }

    /// `dst += value`.
    pub(super) fn add_immediate(&mut self, dst: u8, value: i32) {
        match i8::try_from(value) {
            Ok(0) => {}
            Ok(v) => dynasm!(self.asm ; .arch x64 ; add Rq(dst), BYTE v),
            Err(_) => dynasm!(self.asm ; .arch x64 ; add Rq(dst), DWORD value),
        }
    }

    fn compare(&mut self, a: u8, b: Operand) {
        match b {
            Operand::Reg(b) => dynasm!(self.asm ; .arch x64 ; cmp Rq(a), Rq(n(b))),
            Operand::Imm(v) => match i32::try_from(v) {
                Ok(v) => dynasm!(self.asm ; .arch x64 ; cmp Rq(a), v),
                Err(_) => {
                    let label = self.pool.label(v.to_le_bytes().to_vec(), &mut self.asm);
                    dynasm!(self.asm ; .arch x64 ; cmp Rq(a), [=>label]);
                }
            },
        }
    }

    fn int(&mut self, op: GprOp, d: u8, a: u8, b: Operand) -> Result<()> {
        match (op, b) {
            (GprOp::Add, Operand::Reg(b)) => match n(b) {
                b if b == d => dynasm!(self.asm ; .arch x64 ; add Rq(d), Rq(a)),
                b if a == d => dynasm!(self.asm ; .arch x64 ; add Rq(d), Rq(b)),
                b => dynasm!(self.asm ; .arch x64 ; lea Rq(d), [Rq(a) + Rq(b)]),
            },
            (GprOp::Sub, Operand::Reg(b)) => match n(b) {
                b if a == d => dynasm!(self.asm ; .arch x64 ; sub Rq(d), Rq(b)),
                b if b == d => dynasm!(self.asm ; .arch x64 ; neg Rq(d) ; add Rq(d), Rq(a)),
                b => dynasm!(self.asm ; .arch x64 ; mov Rq(d), Rq(a) ; sub Rq(d), Rq(b)),
            },
            (GprOp::Mul, Operand::Reg(b)) => match n(b) {
                b if b == d => dynasm!(self.asm ; .arch x64 ; imul Rq(d), Rq(a)),
                b => {
                    self.move_gpr(d, a);
                    dynasm!(self.asm ; .arch x64 ; imul Rq(d), Rq(b));
                }
            },
            (GprOp::Min | GprOp::Max, Operand::Reg(b)) => {
                // Both are symmetric.
                let (a, b) = if n(b) == d { (n(b), a) } else { (a, n(b)) };
                self.move_gpr(d, a);
                dynasm!(self.asm ; .arch x64 ; cmp Rq(d), Rq(b));
                match op {
                    GprOp::Min => dynasm!(self.asm ; .arch x64 ; cmovg Rq(d), Rq(b)),
                    _ => dynasm!(self.asm ; .arch x64 ; cmovl Rq(d), Rq(b)),
                }
            }
            (GprOp::Add | GprOp::Sub, Operand::Imm(v)) => {
                let v = if op == GprOp::Sub { v.wrapping_neg() } else { v };
                match i32::try_from(v) {
                    Ok(v) if a == d => self.add_immediate(d, v),
                    Ok(v) => dynasm!(self.asm ; .arch x64 ; lea Rq(d), [Rq(a) + v]),
                    Err(_) => {
                        self.move_gpr(d, a);
                        let label = self.pool.label(v.to_le_bytes().to_vec(), &mut self.asm);
                        dynasm!(self.asm ; .arch x64 ; add Rq(d), [=>label]);
                    }
                }
            }
            (GprOp::Mul, Operand::Imm(v)) => match i32::try_from(v) {
                Ok(v) if v > 0 && v & (v - 1) == 0 => {
                    self.move_gpr(d, a);
                    if v > 1 {
                        let shift = v.trailing_zeros() as i8;
                        dynasm!(self.asm ; .arch x64 ; shl Rq(d), BYTE shift);
                    }
                }
                Ok(v) => dynasm!(self.asm ; .arch x64 ; imul Rq(d), Rq(a), DWORD v),
                Err(_) => {
                    self.move_gpr(d, a);
                    let label = self.pool.label(v.to_le_bytes().to_vec(), &mut self.asm);
                    dynasm!(self.asm ; .arch x64 ; imul Rq(d), [=>label]);
                }
            },
            (GprOp::Min | GprOp::Max, Operand::Imm(v)) => {
                self.move_gpr(d, a);
                self.compare(d, Operand::Imm(v));
                let label = self.pool.label(v.to_le_bytes().to_vec(), &mut self.asm);
                match op {
                    GprOp::Min => dynasm!(self.asm ; .arch x64 ; cmovg Rq(d), [=>label]),
                    _ => dynasm!(self.asm ; .arch x64 ; cmovl Rq(d), [=>label]),
                }
            }
            (GprOp::DivFloor, Operand::Imm(v)) if v > 0 => self.divide_floor(d, a, v),
            (GprOp::DivFloor, _) => {
                return Err(Error::Internal(format!("{}: division by {b:?}", self.name)));
            }
        }
        Ok(())
    }

    /// `d = ⌊a / divisor⌋`, every other register preserved.
    fn divide_floor(&mut self, d: u8, a: u8, divisor: i64) {
        if divisor & (divisor - 1) == 0 {
            self.move_gpr(d, a);
            if divisor > 1 {
                let shift = divisor.trailing_zeros() as i8;
                dynasm!(self.asm ; .arch x64 ; sar Rq(d), BYTE shift);
            }
            return;
        }
        let label = self.pool.label(divisor.to_le_bytes().to_vec(), &mut self.asm);
        dynasm!(self.asm ; .arch x64 ; push rax ; push rdx);
        self.move_gpr(0, a);
        // The quotient is rounded to zero: one less where the remainder is negative.
        dynasm!(self.asm ; .arch x64
            ; cqo ; idiv QWORD [=>label] ; sar rdx, 63 ; add rax, rdx ; pop rdx);
        if d == 0 {
            dynasm!(self.asm ; .arch x64 ; lea rsp, [rsp + 8]);
        } else {
            dynasm!(self.asm ; .arch x64 ; mov Rq(d), rax ; pop rax);
        }
    }

    /// `dst` = the integer at `addr + offset`, extended to 64 bits.
    pub(super) fn load_int(&mut self, d: u8, addr: &Addr, offset: i64, mem: DType) -> Result<()> {
        let m = crate::codegen::x86::emitter::at(addr, offset)?;
        let (b, disp) = (m.base.unwrap_or(0), m.displacement);
        macro_rules! load {
            ($op:ident $register:ident $size:tt) => {
                match m.index {
                    None => dynasm!(self.asm ; .arch x64 ; $op $register(d), $size [Rq(b) + disp]),
                    Some((i, 1)) => dynasm!(self.asm ; .arch x64 ; $op $register(d), $size [Rq(b) + Rq(i) + disp]),
                    Some((i, 2)) => dynasm!(self.asm ; .arch x64 ; $op $register(d), $size [Rq(b) + Rq(i) * 2 + disp]),
                    Some((i, 4)) => dynasm!(self.asm ; .arch x64 ; $op $register(d), $size [Rq(b) + Rq(i) * 4 + disp]),
                    Some((i, _)) => dynasm!(self.asm ; .arch x64 ; $op $register(d), $size [Rq(b) + Rq(i) * 8 + disp]),
                }
            };
        }
        match mem {
            DType::I64 | DType::F64 => load!(mov Rq QWORD),
            DType::I32 => load!(movsxd Rq DWORD),
            DType::F32 => load!(mov Rd DWORD),
            DType::I8 => load!(movsx Rq BYTE),
            DType::U8 | DType::Bool => load!(movzx Rd BYTE),
            DType::F16 | DType::BF16 => load!(movzx Rd WORD),
        }
        Ok(())
    }

    fn prefetch(&mut self, addr: &Addr) -> Result<()> {
        let m = crate::codegen::x86::emitter::at(addr, 0)?;
        let (b, disp) = (m.base.unwrap_or(0), m.displacement);
        match m.index {
            None => dynasm!(self.asm ; .arch x64 ; prefetcht1 [Rq(b) + disp]),
            Some((i, 1)) => dynasm!(self.asm ; .arch x64 ; prefetcht1 [Rq(b) + Rq(i) + disp]),
            Some((i, 2)) => dynasm!(self.asm ; .arch x64 ; prefetcht1 [Rq(b) + Rq(i) * 2 + disp]),
            Some((i, 4)) => dynasm!(self.asm ; .arch x64 ; prefetcht1 [Rq(b) + Rq(i) * 4 + disp]),
            Some((i, _)) => dynasm!(self.asm ; .arch x64 ; prefetcht1 [Rq(b) + Rq(i) * 8 + disp]),
        }
        Ok(())
    }

    /// `d` = the address itself.
    pub(super) fn address(&mut self, d: u8, addr: &Addr, offset: i64) -> Result<()> {
        let (b, disp) = (n(addr.base), addr.disp);
        match addr.index.map(|(i, scale)| (n(i), scale)) {
            None => dynasm!(self.asm ; .arch x64 ; lea Rq(d), [Rq(b) + disp]),
            Some((i, 1)) => dynasm!(self.asm ; .arch x64 ; lea Rq(d), [Rq(b) + Rq(i) + disp]),
            Some((i, 2)) => dynasm!(self.asm ; .arch x64 ; lea Rq(d), [Rq(b) + Rq(i) * 2 + disp]),
            Some((i, 4)) => dynasm!(self.asm ; .arch x64 ; lea Rq(d), [Rq(b) + Rq(i) * 4 + disp]),
            Some((i, _)) => dynasm!(self.asm ; .arch x64 ; lea Rq(d), [Rq(b) + Rq(i) * 8 + disp]),
        }
        self.add_large(d, offset);
        Ok(())
    }

    /// `d += value`.
    pub(super) fn add_large(&mut self, d: u8, value: i64) {
        match i32::try_from(value) {
            Ok(v) => self.add_immediate(d, v),
            Err(_) => {
                let label = self.pool.label(value.to_le_bytes().to_vec(), &mut self.asm);
                dynasm!(self.asm ; .arch x64 ; add Rq(d), [=>label]);
            }
        }
    }

    /// The next instruction starts a 32-byte block; filled with long no-operations.
    fn align_loop(&mut self) {
        const NOPS: [&[u8]; 9] = [
            &[0x90],
            &[0x66, 0x90],
            &[0x0f, 0x1f, 0x00],
            &[0x0f, 0x1f, 0x40, 0x00],
            &[0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
            &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
            &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
        ];
        let mut missing = self.asm.offset().0.wrapping_neg() % 32;
        while missing > 0 {
            let length = missing.min(9);
            self.asm.extend(NOPS[length - 1].iter());
            missing -= length;
        }
    }
}

pub(super) fn n(r: Gpr) -> u8 {
    r.0 as u8
}
