//! AArch64 Advanced SIMD code through dynasm.
//!
//! In: a function and its allocation. Out: position-independent bytes, constants included.
//!
//! Vector instructions work on whole 128-bit registers; lanes beyond the type are unspecified. x16 and x17 are scratch for
//! addresses and constants; x18, x29 and x30 are not touched. A broadcast that only feeds multiply-adds is loaded as a
//! scalar and multiplied by element. Frame, from the stack pointer upwards: vector spill slots, general-purpose spill
//! slots, the caller's registers.

macro_rules! a64 {
    ($e:expr ; $($t:tt)*) => {
        dynasmrt::dynasm!($e.asm ; .arch aarch64 ; $($t)*)
    };
}

mod by_element;
pub mod emitter;
mod interleaved;
mod memory;
mod numbers;
mod scalar;
mod vector;

use crate::codegen::aarch64::by_element::ByElement;
use crate::codegen::aarch64::emitter::{Aarch64, Emitter, Frame, X16};
use crate::codegen::aarch64::numbers::Numbers;
use crate::codegen::emit::{self, Frame as _, Scalars};
use crate::codegen::regalloc::allocation::{Allocation, Needs, RegisterFile, frame_size};
use crate::codegen::vcode::operands::{Class, PerClass};
use crate::codegen::vcode::{Function, Inst};
use crate::runtime::Result;
use dynasmrt::DynasmApi;

/// FPCR while kernels run, its upper half: round to nearest, no exception traps, subnormal operands and results become zero.
const CONTROL_WORD_HIGH: u32 = 1 << (24 - 16);
/// `mrs x0, fpcr` and `msr fpcr, x0`.
const READ_FPCR: u32 = 0xd53b_4400;
const WRITE_FPCR: u32 = 0xd51b_4400;

/// The registers that may be allocated.
pub fn register_file() -> RegisterFile {
    RegisterFile {
        registers: PerClass {
            gpr: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28],
            vector: &[
                0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 8, 9, 10, 11,
                12, 13, 14, 15,
            ],
        },
        incoming: Emitter::INCOMING,
        needs,
    }
}

fn needs(inst: &Inst) -> Needs {
    Needs { gpr: 0, vector: vector::needs(inst).max(memory::needs(inst)) }
}

/// The machine code of a function, and where the code of each step starts; the last entry is the end of the last step.
pub fn emit(function: &Function, allocation: &Allocation) -> Result<(Vec<u8>, Vec<usize>)> {
    let frame = Frame::of(allocation)?;
    let arch = Aarch64 { frame, by_element: ByElement::of(function, allocation), numbers: Numbers::of(function) };
    let (code, starts, _) = Emitter::emit(function, allocation, arch)?;
    Ok((code, starts))
}

impl Frame {
    fn of(allocation: &Allocation) -> Result<Frame> {
        let written = allocation.written();
        let saved_gprs = (19..=28).filter(|r| written.gpr >> r & 1 != 0).map(|r| (Class::Gpr, r));
        let saved_vectors = (8..=15).filter(|r| written.vector >> r & 1 != 0).map(|r| (Class::Vector, r));
        let saved: Vec<_> = saved_gprs.chain(saved_vectors).collect();
        let gpr_slots = 16 * i64::from(allocation.slots.vector);
        let saved_at = gpr_slots + 8 * i64::from(allocation.slots.gpr);
        let size = (saved_at + 8 * saved.len() as i64 + 15) & !15;
        // Larger frames in steps that one addition reaches.
        let size = if size < 4096 { size } else { (size + 4095) & !4095 };
        let size = frame_size(size)? as u32;
        // below the size, which fits
        Ok(Frame { gpr_slots: gpr_slots as u32, saved, saved_at: saved_at as u32, size })
    }
}

impl emit::Frame for Emitter<'_> {
    const NAME: &'static str = "AArch64";
    const INCOMING: [u8; 4] = [0, 1, 2, 3];

    fn prologue(&mut self) {
        // Nothing of the caller's mode counts: it waits at the top of the frame.
        a64!(self ; sub sp, sp, 16);
        self.asm.push_u32(READ_FPCR | u32::from(X16));
        a64!(self ; str x16, [sp] ; movz x16, CONTROL_WORD_HIGH, lsl 16);
        self.asm.push_u32(WRITE_FPCR | u32::from(X16));
        let size = self.arch.frame.size;
        match size {
            0 => {}
            1..4096 => a64!(self ; sub sp, sp, size),
            _ => {
                self.immediate(X16, i64::from(size));
                a64!(self ; sub sp, sp, x16);
            }
        }
        for (class, r, slot) in self.saved() {
            let (base, offset) = self.stack(slot, 8);
            match class {
                Class::Gpr => a64!(self ; str X(r), [XSP(base), offset]),
                Class::Vector => a64!(self ; str D(r), [XSP(base), offset]),
            }
        }
        self.move_arguments();
    }

    fn epilogue(&mut self) {
        for (class, r, slot) in self.saved() {
            let (base, offset) = self.stack(slot, 8);
            match class {
                Class::Gpr => a64!(self ; ldr X(r), [XSP(base), offset]),
                Class::Vector => a64!(self ; ldr D(r), [XSP(base), offset]),
            }
        }
        let size = self.arch.frame.size;
        match size {
            0 => {}
            1..4096 => a64!(self ; add sp, sp, size),
            _ => {
                self.immediate(X16, i64::from(size));
                a64!(self ; add sp, sp, x16);
            }
        }
        a64!(self ; ldr x16, [sp]);
        self.asm.push_u32(WRITE_FPCR | u32::from(X16));
        a64!(self ; add sp, sp, 16 ; ret);
    }

    fn move_gpr(&mut self, d: u8, s: u8) {
        if d != s {
            a64!(self ; mov X(d), X(s));
        }
    }

    /// One value waits in scratch.
    fn break_cycle(&mut self, moves: &mut Vec<(u8, u8)>) {
        let waiting = moves[0].1;
        a64!(self ; mov x16, X(waiting));
        moves[0].1 = X16;
    }

    fn spill(&mut self, class: Class, s: u8, slot: u32) {
        let (base, offset) = self.slot(class, slot);
        match class {
            Class::Gpr => a64!(self ; str X(s), [XSP(base), offset]),
            Class::Vector => a64!(self ; str Q(s), [XSP(base), offset]),
        }
    }

    fn reload(&mut self, class: Class, d: u8, slot: u32) {
        let (base, offset) = self.slot(class, slot);
        match class {
            Class::Gpr => a64!(self ; ldr X(d), [XSP(base), offset]),
            Class::Vector => a64!(self ; ldr Q(d), [XSP(base), offset]),
        }
    }
}

impl Emitter<'_> {
    /// The registers that the caller expects back, and where they wait above the stack pointer.
    fn saved(&self) -> Vec<(Class, u8, i64)> {
        let frame = &self.arch.frame;
        (frame.saved.iter().enumerate()).map(|(i, &(c, r))| (c, r, i64::from(frame.saved_at) + 8 * i as i64)).collect()
    }

    fn slot(&mut self, class: Class, slot: u32) -> (u8, u32) {
        match class {
            Class::Gpr => self.stack(i64::from(self.arch.frame.gpr_slots + 8 * slot), 8),
            Class::Vector => self.stack(i64::from(16 * slot), 16),
        }
    }

    /// A base register and offset that a load or store of `size` bytes takes for `offset` bytes above the stack pointer.
    fn stack(&mut self, offset: i64, size: i64) -> (u8, u32) {
        const SP: u8 = 31;
        if offset < 4096 * size {
            return (SP, offset as u32);
        }
        self.immediate(X16, offset);
        a64!(self ; add x16, sp, x16);
        (X16, 0)
    }
}
