//! The stack frame of x86-64 code.

use crate::Result;
use crate::object::unwind::change::{Change, unknown_frame};
use gimli::write::{CallFrameInstruction, Expression};
use gimli::{Register, X86_64};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register as Gpr};

/// The frame at an instruction: where the address behind the return address is found.
#[derive(Clone, Copy, PartialEq)]
enum Base {
    /// So many bytes above the stack pointer.
    Stack(i64),
    /// So many bytes above r11, which holds the stack pointer of before it was aligned; the stack pointer is aligned or not.
    Copied(i64),
    /// So many bytes above the address that the frame holds at an offset.
    Stored { offset: i64, above: i64 },
}

/// The rules of a phase.
pub fn changes(code: &[u8]) -> Result<Vec<Change>> {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let (mut base, mut changes) = (Base::Stack(8), vec![]);
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let end = instruction.next_ip() as u32;
        let Some(next) = step(&instruction, base) else { return Err(unknown_frame(instruction.ip() as usize)) };
        if next != base {
            changes.push((end, rule(next)));
        }
        if let (Base::Stack(after), Some(register)) = (next, number(&instruction)) {
            match instruction.mnemonic() {
                Mnemonic::Push => changes.push((end, CallFrameInstruction::Offset(register, -(after as i32)))),
                Mnemonic::Pop => changes.push((end, CallFrameInstruction::Restore(register))),
                _ => {}
            }
        }
        base = next;
        if instruction.mnemonic() == Mnemonic::Ret {
            return if base == Base::Stack(8) { Ok(changes) } else { Err(unknown_frame(end as usize)) };
        }
    }
    Err(unknown_frame(code.len()))
}

/// The frame behind an instruction; `None` where it is not known.
fn step(instruction: &Instruction, base: Base) -> Option<Base> {
    let writes_stack = instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == Gpr::RSP
        && !matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Cmp | Mnemonic::Test);
    match (instruction.mnemonic(), base) {
        (Mnemonic::Push, Base::Stack(above)) => Some(Base::Stack(above + 8)),
        (Mnemonic::Pop, Base::Stack(above)) => Some(Base::Stack(above - 8)),
        (Mnemonic::Push, Base::Stored { offset, above }) => Some(Base::Stored { offset: offset + 8, above }),
        (Mnemonic::Pop, Base::Stored { offset, above }) => Some(Base::Stored { offset: offset - 8, above }),
        (Mnemonic::Lea, _) if writes_stack && is_frame(instruction, 1) => match (base, displacement(instruction)) {
            (Base::Stack(above), by) => Some(Base::Stack(above - by)),
            (Base::Stored { offset, above }, by) => Some(Base::Stored { offset: offset - by, above }),
            (Base::Copied(_), _) => None,
        },
        (Mnemonic::Push | Mnemonic::Pop | Mnemonic::Call | Mnemonic::Enter | Mnemonic::Leave, _) => None,
        (Mnemonic::Mov, Base::Stack(above))
            if instruction.op0_register() == Gpr::R11 && instruction.op1_register() == Gpr::RSP =>
        {
            Some(Base::Copied(above))
        }
        (Mnemonic::Mov, Base::Copied(above)) if is_frame(instruction, 0) && instruction.op1_register() == Gpr::R11 => {
            Some(Base::Stored { offset: displacement(instruction), above })
        }
        (Mnemonic::Sub, Base::Stack(above)) if writes_stack => Some(Base::Stack(above + immediate(instruction)?)),
        (Mnemonic::Add, Base::Stack(above)) if writes_stack => Some(Base::Stack(above - immediate(instruction)?)),
        (Mnemonic::Sub | Mnemonic::And, Base::Copied(_)) if writes_stack => Some(base),
        (Mnemonic::Mov, Base::Stored { offset, above })
            if writes_stack && is_frame(instruction, 1) && displacement(instruction) == offset =>
        {
            Some(Base::Stack(above))
        }
        _ if writes_stack => None,
        _ => Some(base),
    }
}

/// Returns true if this operand is memory above the stack pointer.
fn is_frame(instruction: &Instruction, operand: u32) -> bool {
    instruction.op_kind(operand) == OpKind::Memory
        && instruction.memory_base() == Gpr::RSP
        && instruction.memory_index() == Gpr::None
}

fn displacement(instruction: &Instruction) -> i64 {
    instruction.memory_displacement64() as i64
}

fn immediate(instruction: &Instruction) -> Option<i64> {
    instruction.try_immediate(1).ok().map(|value| value as i64)
}

fn rule(base: Base) -> CallFrameInstruction {
    match base {
        Base::Stack(above) => CallFrameInstruction::Cfa(X86_64::RSP, above as i32),
        Base::Copied(above) => CallFrameInstruction::Cfa(X86_64::R11, above as i32),
        Base::Stored { offset, above } => {
            let mut address = Expression::new();
            address.op_breg(X86_64::RSP, offset);
            address.op_deref();
            address.op_plus_uconst(above as u64);
            CallFrameInstruction::CfaExpression(address)
        }
    }
}

/// The number that unwind tables have for the first operand, where it is a register that a caller expects back.
fn number(instruction: &Instruction) -> Option<Register> {
    match instruction.op0_register() {
        Gpr::RBX => Some(X86_64::RBX),
        Gpr::RBP => Some(X86_64::RBP),
        Gpr::R12 => Some(X86_64::R12),
        Gpr::R13 => Some(X86_64::R13),
        Gpr::R14 => Some(X86_64::R14),
        Gpr::R15 => Some(X86_64::R15),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CallFrameInstruction::{Cfa, Offset, Restore};

    /// An aligned frame below a saved register.
    const ALIGNED: &[u8] = &[
        0x53, // push rbx
        0x49, 0x89, 0xe3, // mov r11, rsp
        0x48, 0x81, 0xec, 0x80, 0, 0, 0, // sub rsp, 0x80
        0x48, 0x83, 0xe4, 0xc0, // and rsp, -64
        0x4c, 0x89, 0x5c, 0x24, 0x78, // mov [rsp + 0x78], r11
        0x50, // push rax
        0x48, 0x8d, 0x64, 0x24, 0x08, // lea rsp, [rsp + 8]
        0x48, 0x8b, 0x64, 0x24, 0x78, // mov rsp, [rsp + 0x78]
        0x5b, // pop rbx
        0xc3, // ret
        0xff, 0xff, // constants
    ];

    #[test]
    fn the_rules_follow_the_stack() {
        let expected = [
            (1, Cfa(X86_64::RSP, 16)),
            (1, Offset(X86_64::RBX, -16)),
            (4, Cfa(X86_64::R11, 16)),
            (20, rule(Base::Stored { offset: 0x78, above: 16 })),
            (21, rule(Base::Stored { offset: 0x80, above: 16 })),
            (26, rule(Base::Stored { offset: 0x78, above: 16 })),
            (31, Cfa(X86_64::RSP, 16)),
            (32, Cfa(X86_64::RSP, 8)),
            (32, Restore(X86_64::RBX)),
        ];
        assert_eq!(changes(ALIGNED).unwrap(), expected);
    }

    #[test]
    fn a_frame_that_is_not_understood_is_refused() {
        let without = |bytes: std::ops::Range<usize>| [&ALIGNED[..bytes.start], &ALIGNED[bytes.end..]].concat();
        // without an instruction, with another slot, with a stack pointer from elsewhere
        let mut other_slot = ALIGNED.to_vec();
        other_slot[30] = 0x70;
        let broken = [without(20..21), without(26..31), without(31..32), without(32..35)];
        for code in broken.into_iter().chain([other_slot, vec![0x48, 0x89, 0xc4, 0xc3]]) {
            assert!(changes(&code).is_err(), "{code:x?}");
        }
    }
}
