//! Addresses, integers, loops and conditionals.

use crate::codegen::emit::{Comparison, Frame, Scalars};
use crate::codegen::regalloc::allocation::Place;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Addr, Gpr, GprOp, Lane, Operand, ShiftOp};
use crate::codegen::x86::emitter::{Emitter, at};
use crate::expr::CompareOp;
use crate::runtime::{DType, Error, Result};
use dynasmrt::{DynamicLabel, DynasmApi, DynasmLabelApi, dynasm};

/// An instruction whose last operand is in memory.
macro_rules! with_memory {
    ($e:ident, $m:ident ; $($t:tt)*) => {{
        let (b, disp) = ($m.base.unwrap_or(0), $m.displacement);
        match $m.index {
            None => dynasm!($e.asm ; .arch x64 ; $($t)* [Rq(b) + disp]),
            Some((i, 1)) => dynasm!($e.asm ; .arch x64 ; $($t)* [Rq(b) + Rq(i) + disp]),
            Some((i, 2)) => dynasm!($e.asm ; .arch x64 ; $($t)* [Rq(b) + Rq(i) * 2 + disp]),
            Some((i, 4)) => dynasm!($e.asm ; .arch x64 ; $($t)* [Rq(b) + Rq(i) * 4 + disp]),
            Some((i, _)) => dynasm!($e.asm ; .arch x64 ; $($t)* [Rq(b) + Rq(i) * 8 + disp]),
        }
    }};
}

/// A store to memory of the last operand.
macro_rules! to_memory {
    ($e:ident, $m:ident ; $name:ident $size:ident ; $($t:tt)*) => {{
        let (b, disp) = ($m.base.unwrap_or(0), $m.displacement);
        match $m.index {
            None => dynasm!($e.asm ; .arch x64 ; $name $size [Rq(b) + disp], $($t)*),
            Some((i, 1)) => dynasm!($e.asm ; .arch x64 ; $name $size [Rq(b) + Rq(i) + disp], $($t)*),
            Some((i, 2)) => dynasm!($e.asm ; .arch x64 ; $name $size [Rq(b) + Rq(i) * 2 + disp], $($t)*),
            Some((i, 4)) => dynasm!($e.asm ; .arch x64 ; $name $size [Rq(b) + Rq(i) * 4 + disp], $($t)*),
            Some((i, _)) => dynasm!($e.asm ; .arch x64 ; $name $size [Rq(b) + Rq(i) * 8 + disp], $($t)*),
        }
    }};
}

impl Scalars for Emitter<'_> {
    /// Flags may change.
    fn immediate(&mut self, dst: u8, value: i64) {
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

    fn int(&mut self, op: GprOp, d: u8, a: u8, b: Operand) -> Result<()> {
        match (op, b) {
            (GprOp::Add, Operand::Reg(b)) => match b.number() {
                b if b == d => dynasm!(self.asm ; .arch x64 ; add Rq(d), Rq(a)),
                b if a == d => dynasm!(self.asm ; .arch x64 ; add Rq(d), Rq(b)),
                b => dynasm!(self.asm ; .arch x64 ; lea Rq(d), [Rq(a) + Rq(b)]),
            },
            (GprOp::Sub, Operand::Reg(b)) => match b.number() {
                b if a == d => dynasm!(self.asm ; .arch x64 ; sub Rq(d), Rq(b)),
                b if b == d => dynasm!(self.asm ; .arch x64 ; neg Rq(d) ; add Rq(d), Rq(a)),
                b => dynasm!(self.asm ; .arch x64 ; mov Rq(d), Rq(a) ; sub Rq(d), Rq(b)),
            },
            (GprOp::Mul, Operand::Reg(b)) => match b.number() {
                b if b == d => dynasm!(self.asm ; .arch x64 ; imul Rq(d), Rq(a)),
                b => {
                    self.move_gpr(d, a);
                    dynasm!(self.asm ; .arch x64 ; imul Rq(d), Rq(b));
                }
            },
            (GprOp::Min | GprOp::Max, Operand::Reg(b)) => {
                // Both are symmetric.
                let (a, b) = if b.number() == d { (b.number(), a) } else { (a, b.number()) };
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
                        let label = self.pool_label(v.to_le_bytes().to_vec());
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
                    let label = self.pool_label(v.to_le_bytes().to_vec());
                    dynasm!(self.asm ; .arch x64 ; imul Rq(d), [=>label]);
                }
            },
            (GprOp::Min | GprOp::Max, Operand::Imm(v)) => {
                self.move_gpr(d, a);
                self.compare_gpr(d, Operand::Imm(v));
                let label = self.pool_label(v.to_le_bytes().to_vec());
                match op {
                    GprOp::Min => dynasm!(self.asm ; .arch x64 ; cmovg Rq(d), [=>label]),
                    _ => dynasm!(self.asm ; .arch x64 ; cmovl Rq(d), [=>label]),
                }
            }
            (GprOp::And | GprOp::Or | GprOp::Xor, b) => self.bitwise(op, d, a, b),
            (GprOp::ShiftLeft | GprOp::ShiftRight, Operand::Reg(b)) => {
                self.shift_integer_by(op == GprOp::ShiftLeft, d, a, b.number());
            }
            (GprOp::ShiftLeft | GprOp::ShiftRight, Operand::Imm(amount)) => {
                let op = if op == GprOp::ShiftLeft { ShiftOp::Left } else { ShiftOp::RightArithmetic };
                self.shift_int(op, Lane::I64, d, a, (amount & 63) as u8);
            }
            (GprOp::DivFloor, Operand::Imm(v)) if v > 0 => self.divide_floor(d, a, v),
            (GprOp::DivFloor, _) => {
                return Err(Error::Internal(format!("{}: division by {b:?}", self.function.name)));
            }
        }
        Ok(())
    }

    fn word(&mut self, op: GprOp, d: u8, a: u8, b: Operand) -> Result<()> {
        if matches!(op, GprOp::DivFloor | GprOp::ShiftLeft | GprOp::ShiftRight) {
            return Err(Error::Internal(format!("{}: {op:?} of words by {b:?}", self.function.name)));
        }
        let commutes = op != GprOp::Sub;
        let (a, b) = match b {
            Operand::Reg(r) if commutes && r.number() == d => (d, Operand::Reg(Gpr(u32::from(a)))),
            b => (a, b),
        };
        match (op, b) {
            (GprOp::Sub, Operand::Reg(b)) if b.number() == d && a != d => {
                dynasm!(self.asm ; .arch x64 ; neg Rd(d) ; add Rd(d), Rd(a));
            }
            (GprOp::Add, Operand::Reg(b)) if a != d => {
                dynasm!(self.asm ; .arch x64 ; lea Rd(d), [Rq(a) + Rq(b.number())])
            }
            (GprOp::Add, Operand::Imm(v)) if a != d => dynasm!(self.asm ; .arch x64 ; lea Rd(d), [Rq(a) + v as i32]),
            (GprOp::Sub, Operand::Imm(v)) if a != d => {
                dynasm!(self.asm ; .arch x64 ; lea Rd(d), [Rq(a) + (v as i32).wrapping_neg()]);
            }
            (GprOp::Mul, Operand::Imm(v)) => dynasm!(self.asm ; .arch x64 ; imul Rd(d), Rd(a), DWORD v as i32),
            (_, b) => {
                if a != d {
                    dynasm!(self.asm ; .arch x64 ; mov Rd(d), Rd(a));
                }
                self.word_in_place(op, d, b);
            }
        }
        Ok(())
    }

    fn shift_int(&mut self, op: ShiftOp, lane: Lane, d: u8, a: u8, amount: u8) {
        self.move_gpr(d, a);
        let amount = amount as i8;
        match (op, lane == Lane::I32) {
            (ShiftOp::Left, true) => dynasm!(self.asm ; .arch x64 ; shl Rd(d), BYTE amount),
            (ShiftOp::Left, false) => dynasm!(self.asm ; .arch x64 ; shl Rq(d), BYTE amount),
            (ShiftOp::RightLogical, true) => dynasm!(self.asm ; .arch x64 ; shr Rd(d), BYTE amount),
            (ShiftOp::RightLogical, false) => dynasm!(self.asm ; .arch x64 ; shr Rq(d), BYTE amount),
            (ShiftOp::RightArithmetic, true) => dynasm!(self.asm ; .arch x64 ; sar Rd(d), BYTE amount),
            (ShiftOp::RightArithmetic, false) => dynasm!(self.asm ; .arch x64 ; sar Rq(d), BYTE amount),
        }
    }

    fn extend(&mut self, mem: DType, d: u8, a: u8) {
        match mem {
            DType::I64 | DType::U64 | DType::F64 => self.move_gpr(d, a),
            DType::I32 => dynasm!(self.asm ; .arch x64 ; movsxd Rq(d), Rd(a)),
            DType::F32 | DType::U32 => dynasm!(self.asm ; .arch x64 ; mov Rd(d), Rd(a)),
            DType::I8 => dynasm!(self.asm ; .arch x64 ; movsx Rq(d), Rb(a)),
            DType::I16 => dynasm!(self.asm ; .arch x64 ; movsx Rq(d), Rw(a)),
            DType::F16 | DType::BF16 | DType::U16 => dynasm!(self.asm ; .arch x64 ; movzx Rd(d), Rw(a)),
            _ => dynasm!(self.asm ; .arch x64 ; movzx Rd(d), Rb(a)),
        }
    }

    fn choose_int(&mut self, c: &Comparison, d: u8, yes: u8, no: u8) {
        match c.lane {
            Lane::I32 => self.compare_words(c.a, c.b),
            _ => self.compare_gpr(c.a, c.b),
        }
        // a move leaves the flags
        let (op, other) = if d == yes { (c.op.opposite(), no) } else { (c.op, yes) };
        if d != yes {
            self.move_gpr(d, no);
        }
        match op {
            CompareOp::Eq => dynasm!(self.asm ; .arch x64 ; cmove Rq(d), Rq(other)),
            CompareOp::Ne => dynasm!(self.asm ; .arch x64 ; cmovne Rq(d), Rq(other)),
            CompareOp::Lt => dynasm!(self.asm ; .arch x64 ; cmovl Rq(d), Rq(other)),
            CompareOp::Le => dynasm!(self.asm ; .arch x64 ; cmovle Rq(d), Rq(other)),
            CompareOp::Gt => dynasm!(self.asm ; .arch x64 ; cmovg Rq(d), Rq(other)),
            CompareOp::Ge => dynasm!(self.asm ; .arch x64 ; cmovge Rq(d), Rq(other)),
        }
    }

    fn store_int(&mut self, s: u8, addr: &Addr, mem: DType) -> Result<()> {
        let m = at(addr, 0)?;
        match mem.bytes() {
            8 => to_memory!(self, m ; mov QWORD ; Rq(s)),
            4 => to_memory!(self, m ; mov DWORD ; Rd(s)),
            2 => to_memory!(self, m ; mov WORD ; Rw(s)),
            _ => to_memory!(self, m ; mov BYTE ; Rb(s)),
        }
        Ok(())
    }

    fn load_int(&mut self, d: u8, addr: &Addr, mem: DType) -> Result<()> {
        let m = at(addr, 0)?;
        match mem {
            DType::I64 | DType::U64 | DType::F64 => with_memory!(self, m ; mov Rq(d), QWORD),
            DType::I32 => with_memory!(self, m ; movsxd Rq(d), DWORD),
            DType::F32 | DType::U32 => with_memory!(self, m ; mov Rd(d), DWORD),
            DType::I8 => with_memory!(self, m ; movsx Rq(d), BYTE),
            DType::I16 => with_memory!(self, m ; movsx Rq(d), WORD),
            DType::F16 | DType::BF16 | DType::U16 => with_memory!(self, m ; movzx Rd(d), WORD),
            _ => with_memory!(self, m ; movzx Rd(d), BYTE),
        }
        Ok(())
    }

    fn prefetch(&mut self, addr: &Addr) -> Result<()> {
        let m = at(addr, 0)?;
        with_memory!(self, m ; prefetcht1);
        Ok(())
    }

    fn skip_loop(&mut self, count: u8, end: DynamicLabel) {
        dynasm!(self.asm ; .arch x64 ; test Rq(count), Rq(count) ; jle =>end);
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

    fn count_down(&mut self, counter: Place) {
        match counter {
            Place::Register(counter) => dynasm!(self.asm ; .arch x64 ; sub Rq(counter), BYTE 1),
            Place::Slot(s) => {
                let at = self.arch.frame.slot(Class::Gpr, s);
                dynasm!(self.asm ; .arch x64 ; sub QWORD [rsp + at], BYTE 1);
            }
        }
    }

    fn repeat(&mut self, head: DynamicLabel) {
        dynasm!(self.asm ; .arch x64 ; jnz =>head);
    }

    fn jump_outside(&mut self, a: u8, extent: i64, to: DynamicLabel) {
        self.compare_gpr(a, Operand::Imm(extent));
        dynasm!(self.asm ; .arch x64 ; jae =>to);
    }

    fn jump(&mut self, to: DynamicLabel) {
        dynasm!(self.asm ; .arch x64 ; jmp =>to);
    }

    /// They wait below the stack, which nothing else uses in a function that calls none.
    fn borrow(&mut self, taken: [u8; 3]) -> [u8; 2] {
        const FREE: [u8; 5] = [0, 1, 2, 3, 6];
        let mut free = FREE.into_iter().filter(|r| !taken.contains(r));
        let registers = std::array::from_fn(|_| free.next().unwrap_or_default());
        let [a, b] = registers;
        dynasm!(self.asm ; .arch x64 ; mov [rsp - 8], Rq(a) ; mov [rsp - 16], Rq(b));
        registers
    }

    fn give_back(&mut self, [a, b]: [u8; 2]) {
        dynasm!(self.asm ; .arch x64 ; mov Rq(a), [rsp - 8] ; mov Rq(b), [rsp - 16]);
    }

    fn jump_unless(&mut self, op: CompareOp, a: u8, b: Operand, end: DynamicLabel) {
        self.compare_gpr(a, b);
        match op {
            CompareOp::Eq => dynasm!(self.asm ; .arch x64 ; jne =>end),
            CompareOp::Ne => dynasm!(self.asm ; .arch x64 ; je =>end),
            CompareOp::Lt => dynasm!(self.asm ; .arch x64 ; jge =>end),
            CompareOp::Le => dynasm!(self.asm ; .arch x64 ; jg =>end),
            CompareOp::Gt => dynasm!(self.asm ; .arch x64 ; jle =>end),
            CompareOp::Ge => dynasm!(self.asm ; .arch x64 ; jl =>end),
        }
    }
}

impl Emitter<'_> {
    /// `dst += value`.
    pub(super) fn add_immediate(&mut self, dst: u8, value: i32) {
        match i8::try_from(value) {
            Ok(0) => {}
            Ok(v) => dynasm!(self.asm ; .arch x64 ; add Rq(dst), BYTE v),
            Err(_) => dynasm!(self.asm ; .arch x64 ; add Rq(dst), DWORD value),
        }
    }

    /// `d = op(a, b)` of bits.
    fn bitwise(&mut self, op: GprOp, d: u8, a: u8, b: Operand) {
        let (a, b) = match b {
            Operand::Reg(r) if r.number() == d => (d, Operand::Reg(Gpr(u32::from(a)))),
            b => (a, b),
        };
        self.move_gpr(d, a);
        let small = |v: i64| i32::try_from(v).ok();
        match (op, b) {
            (GprOp::And, Operand::Reg(b)) => dynasm!(self.asm ; .arch x64 ; and Rq(d), Rq(b.number())),
            (GprOp::Or, Operand::Reg(b)) => dynasm!(self.asm ; .arch x64 ; or Rq(d), Rq(b.number())),
            (_, Operand::Reg(b)) => dynasm!(self.asm ; .arch x64 ; xor Rq(d), Rq(b.number())),
            (_, Operand::Imm(v)) => match (op, small(v)) {
                (GprOp::And, Some(v)) => dynasm!(self.asm ; .arch x64 ; and Rq(d), DWORD v),
                (GprOp::Or, Some(v)) => dynasm!(self.asm ; .arch x64 ; or Rq(d), DWORD v),
                (_, Some(v)) => dynasm!(self.asm ; .arch x64 ; xor Rq(d), DWORD v),
                (_, None) => {
                    let label = self.pool_label(v.to_le_bytes().to_vec());
                    match op {
                        GprOp::And => dynasm!(self.asm ; .arch x64 ; and Rq(d), [=>label]),
                        GprOp::Or => dynasm!(self.asm ; .arch x64 ; or Rq(d), [=>label]),
                        _ => dynasm!(self.asm ; .arch x64 ; xor Rq(d), [=>label]),
                    }
                }
            },
        }
    }

    /// `d = op(d, b)` of the lower 32 bits.
    fn word_in_place(&mut self, op: GprOp, d: u8, b: Operand) {
        match (op, b) {
            (GprOp::Min | GprOp::Max, b) => {
                let label = match b {
                    Operand::Imm(v) => Some(self.pool_label((v as i32).to_le_bytes().to_vec())),
                    Operand::Reg(_) => None,
                };
                self.compare_words(d, b);
                match (op, b, label) {
                    (GprOp::Min, _, Some(label)) => dynasm!(self.asm ; .arch x64 ; cmovg Rd(d), [=>label]),
                    (_, _, Some(label)) => dynasm!(self.asm ; .arch x64 ; cmovl Rd(d), [=>label]),
                    (GprOp::Min, Operand::Reg(b), _) => dynasm!(self.asm ; .arch x64 ; cmovg Rd(d), Rd(b.number())),
                    (_, Operand::Reg(b), _) => dynasm!(self.asm ; .arch x64 ; cmovl Rd(d), Rd(b.number())),
                    _ => {}
                }
            }
            (_, Operand::Reg(b)) => {
                let b = b.number();
                match op {
                    GprOp::Add => dynasm!(self.asm ; .arch x64 ; add Rd(d), Rd(b)),
                    GprOp::Sub => dynasm!(self.asm ; .arch x64 ; sub Rd(d), Rd(b)),
                    GprOp::Mul => dynasm!(self.asm ; .arch x64 ; imul Rd(d), Rd(b)),
                    GprOp::And => dynasm!(self.asm ; .arch x64 ; and Rd(d), Rd(b)),
                    GprOp::Or => dynasm!(self.asm ; .arch x64 ; or Rd(d), Rd(b)),
                    _ => dynasm!(self.asm ; .arch x64 ; xor Rd(d), Rd(b)),
                }
            }
            (_, Operand::Imm(v)) => {
                let v = v as i32;
                match op {
                    GprOp::Add => dynasm!(self.asm ; .arch x64 ; add Rd(d), v),
                    GprOp::Sub => dynasm!(self.asm ; .arch x64 ; sub Rd(d), v),
                    GprOp::And => dynasm!(self.asm ; .arch x64 ; and Rd(d), v),
                    GprOp::Or => dynasm!(self.asm ; .arch x64 ; or Rd(d), v),
                    _ => dynasm!(self.asm ; .arch x64 ; xor Rd(d), v),
                }
            }
        }
    }

    fn compare_words(&mut self, a: u8, b: Operand) {
        match b {
            Operand::Reg(b) => dynasm!(self.asm ; .arch x64 ; cmp Rd(a), Rd(b.number())),
            Operand::Imm(v) => dynasm!(self.asm ; .arch x64 ; cmp Rd(a), v as i32),
        }
    }

    fn compare_gpr(&mut self, a: u8, b: Operand) {
        match b {
            Operand::Reg(b) => dynasm!(self.asm ; .arch x64 ; cmp Rq(a), Rq(b.number())),
            Operand::Imm(v) => match i32::try_from(v) {
                Ok(v) => dynasm!(self.asm ; .arch x64 ; cmp Rq(a), v),
                Err(_) => {
                    let label = self.pool_label(v.to_le_bytes().to_vec());
                    dynasm!(self.asm ; .arch x64 ; cmp Rq(a), [=>label]);
                }
            },
        }
    }

    /// `d = a << amount` or `a >> amount`. Processors with AVX-512 have BMI2; elsewhere the amount has to be in `cl`.
    fn shift_integer_by(&mut self, left: bool, d: u8, a: u8, amount: u8) {
        const RAX: u8 = 0;
        const RCX: u8 = 1;
        const RDX: u8 = 2;
        match left {
            true if self.arch.evex => return dynasm!(self.asm ; .arch x64 ; shlx Rq(d), Rq(a), Rq(amount)),
            false if self.arch.evex => return dynasm!(self.asm ; .arch x64 ; sarx Rq(d), Rq(a), Rq(amount)),
            _ => {}
        }
        // where the result goes: `cl` is in the way of its own register
        let (kept, to) = match d {
            RCX => (if amount == RAX { RDX } else { RAX }, if amount == RAX { RDX } else { RAX }),
            d => (RCX, d),
        };
        dynasm!(self.asm ; .arch x64 ; push Rq(kept));
        if d == RCX {
            self.move_gpr(to, a);
            self.move_gpr(RCX, amount);
        } else {
            self.move_gpr(RCX, amount);
            match a {
                RCX => dynasm!(self.asm ; .arch x64 ; mov Rq(to), [rsp]),
                a => self.move_gpr(to, a),
            }
        }
        match left {
            true => dynasm!(self.asm ; .arch x64 ; shl Rq(to), cl),
            false => dynasm!(self.asm ; .arch x64 ; sar Rq(to), cl),
        }
        self.move_gpr(d, to);
        dynasm!(self.asm ; .arch x64 ; pop Rq(kept));
    }

    /// `d = ⌊a / divisor⌋`, every other register preserved. Of a number below zero the quotient is that of its complement,
    /// inverted; of 63 bits it is the upper part of the product with the inverse, rounded up (Granlund and Montgomery 1994).
    fn divide_floor(&mut self, d: u8, a: u8, divisor: i64) {
        const RAX: u8 = 0;
        const RDX: u8 = 2;
        if divisor & (divisor - 1) == 0 {
            self.move_gpr(d, a);
            if divisor > 1 {
                let shift = divisor.trailing_zeros() as i8;
                dynasm!(self.asm ; .arch x64 ; sar Rq(d), BYTE shift);
            }
            return;
        }
        let digits = 64 - divisor.leading_zeros();
        let inverse = (1u128 << (63 + digits)).div_ceil(divisor as u128) as u64;
        let label = self.pool_label(inverse.to_le_bytes().to_vec());
        dynasm!(self.asm ; .arch x64 ; push rax ; push rdx);
        self.move_gpr(RAX, a);
        let shift = digits as i8 - 1;
        dynasm!(self.asm ; .arch x64 ; cqo ; xor rax, rdx ; mul QWORD [=>label] ; shr rdx, BYTE shift);
        match a {
            RAX => dynasm!(self.asm ; .arch x64 ; mov rax, [rsp + 8]),
            RDX => dynasm!(self.asm ; .arch x64 ; mov rax, [rsp]),
            a => self.move_gpr(RAX, a),
        }
        dynasm!(self.asm ; .arch x64 ; sar rax, 63 ; xor rax, rdx ; pop rdx);
        if d == RAX {
            dynasm!(self.asm ; .arch x64 ; lea rsp, [rsp + 8]);
        } else {
            dynasm!(self.asm ; .arch x64 ; mov Rq(d), rax ; pop rax);
        }
    }

    /// `d` = the address itself.
    pub(super) fn address(&mut self, d: u8, addr: &Addr, offset: i64) -> Result<()> {
        let m = at(addr, 0)?;
        with_memory!(self, m ; lea Rq(d),);
        self.add_large(d, offset);
        Ok(())
    }

    /// `d += value`.
    pub(super) fn add_large(&mut self, d: u8, value: i64) {
        match i32::try_from(value) {
            Ok(v) => self.add_immediate(d, v),
            Err(_) => {
                let label = self.pool_label(value.to_le_bytes().to_vec());
                dynasm!(self.asm ; .arch x64 ; add Rq(d), [=>label]);
            }
        }
    }
}
