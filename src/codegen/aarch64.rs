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

pub mod emitter;
mod memory;
mod scalar;
mod vector;

use crate::codegen::aarch64::emitter::ByElement;
use crate::codegen::aarch64::emitter::{Emitter, Frame, X16};
use crate::codegen::constant_pool::Pool;
use crate::codegen::regalloc::allocation::{Allocation, Needs, Place, RegisterFile, Step, frame_size};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Inst};
use crate::runtime::{Error, Result};
use dynasmrt::{DynasmApi, VecAssembler};

/// FPCR while kernels run, its upper half: round to nearest, no exception traps, subnormal operands and results become zero.
const CONTROL_WORD_HIGH: u32 = 1 << (24 - 16);
/// `mrs x0, fpcr` and `msr fpcr, x0`.
const READ_FPCR: u32 = 0xd53b_4400;
const WRITE_FPCR: u32 = 0xd51b_4400;

/// The registers that may be allocated.
pub fn register_file() -> RegisterFile {
    RegisterFile {
        gprs: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28],
        vectors: &[
            0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 8, 9, 10, 11, 12,
            13, 14, 15,
        ],
        incoming: [0, 1, 2, 3],
        needs,
    }
}

fn needs(inst: &Inst) -> Needs {
    Needs { gprs: 0, vectors: vector::needs(inst).max(memory::needs(inst)) }
}

/// The machine code of a function.
pub fn emit(function: &Function, allocation: &Allocation) -> Result<Vec<u8>> {
    let mut e = Emitter {
        name: &function.name,
        asm: VecAssembler::new(0),
        pool: Pool::default(),
        frame: Frame::of(allocation)?,
        bodies: vec![],
        by_element: ByElement::of(function),
    };
    e.prologue(allocation);
    for step in &allocation.steps {
        e.step(function, step)?;
    }
    e.epilogue();
    e.pool.emit(&mut e.asm);
    e.asm.finalize().map_err(|error| Error::Internal(format!("{}: {error}", function.name)))
}

impl Frame {
    fn of(allocation: &Allocation) -> Result<Frame> {
        let (gprs, vectors) = allocation.written();
        let saved_gprs = (19..=28).filter(|r| gprs >> r & 1 != 0).map(|r| (Class::Gpr, r));
        let saved_vectors = (8..=15).filter(|r| vectors >> r & 1 != 0).map(|r| (Class::Vector, r));
        let saved: Vec<_> = saved_gprs.chain(saved_vectors).collect();
        let gpr_slots = 16 * i64::from(allocation.vector_slots);
        let saved_at = gpr_slots + 8 * i64::from(allocation.gpr_slots);
        let size = (saved_at + 8 * saved.len() as i64 + 15) & !15;
        // Larger frames in steps that one addition reaches.
        let size = if size < 4096 { size } else { (size + 4095) & !4095 };
        let size = frame_size(size)? as u32;
        // below the size, which fits
        Ok(Frame { gpr_slots: gpr_slots as u32, saved, saved_at: saved_at as u32, size })
    }

    fn slot(&self, class: Class, slot: u32) -> i64 {
        match class {
            Class::Gpr => i64::from(self.gpr_slots + 8 * slot),
            Class::Vector => i64::from(16 * slot),
        }
    }
}

impl Emitter<'_> {
    fn unsupported<T>(&self, inst: &Inst) -> Result<T> {
        Err(Error::Internal(format!("{}: no AArch64 code for {inst:?}", self.name)))
    }

    fn prologue(&mut self, allocation: &Allocation) {
        // Nothing of the caller's mode counts: it waits at the top of the frame.
        a64!(self ; sub sp, sp, 16);
        self.asm.push_u32(READ_FPCR | u32::from(X16));
        a64!(self ; str x16, [sp] ; movz x16, CONTROL_WORD_HIGH, lsl 16);
        self.asm.push_u32(WRITE_FPCR | u32::from(X16));
        let size = self.frame.size;
        match size {
            0 => {}
            1..4096 => a64!(self ; sub sp, sp, size),
            _ => {
                self.immediate(X16, i64::from(size));
                a64!(self ; sub sp, sp, x16);
            }
        }
        for (i, &(class, r)) in self.frame.saved.clone().iter().enumerate() {
            let (base, offset) = self.stack(i64::from(self.frame.saved_at) + 8 * i as i64, 8);
            match class {
                Class::Gpr => a64!(self ; str X(r), [XSP(base), offset]),
                Class::Vector => a64!(self ; str D(r), [XSP(base), offset]),
            }
        }
        self.move_arguments(&allocation.entry);
    }

    /// Brings the arguments of the calling convention to their places, all at once.
    fn move_arguments(&mut self, entry: &[Option<Place>; 4]) {
        let mut moves = vec![];
        for (place, from) in entry.iter().zip(register_file().incoming) {
            match place {
                Some(Place::Slot(s)) => self.store_slot(Class::Gpr, from, *s),
                Some(Place::Register(to)) if *to != from => moves.push((*to, from)),
                _ => {}
            }
        }
        while !moves.is_empty() {
            match (0..moves.len()).find(|&i| moves.iter().all(|m| m.1 != moves[i].0)) {
                Some(i) => {
                    let (to, from) = moves.remove(i);
                    a64!(self ; mov X(to), X(from));
                }
                None => {
                    // A cycle: one value waits in scratch.
                    let waiting = moves[0].1;
                    a64!(self ; mov x16, X(waiting));
                    moves[0].1 = X16;
                }
            }
        }
    }

    fn epilogue(&mut self) {
        for (i, &(class, r)) in self.frame.saved.clone().iter().enumerate() {
            let (base, offset) = self.stack(i64::from(self.frame.saved_at) + 8 * i as i64, 8);
            match class {
                Class::Gpr => a64!(self ; ldr X(r), [XSP(base), offset]),
                Class::Vector => a64!(self ; ldr D(r), [XSP(base), offset]),
            }
        }
        let size = self.frame.size;
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

    fn step(&mut self, function: &Function, step: &Step) -> Result<()> {
        match step {
            Step::Inst { origin, inst, hidden, temporaries } => {
                let virtual_inst = &function.insts[*origin as usize];
                match inst {
                    Inst::Imm { .. }
                    | Inst::Copy { .. }
                    | Inst::Int { .. }
                    | Inst::LoadInt { .. }
                    | Inst::Prefetch { .. }
                    | Inst::Argument { .. }
                    | Inst::Range { .. }
                    | Inst::Scratch { .. }
                    | Inst::LoopStart { .. }
                    | Inst::LoopEnd
                    | Inst::IfStart { .. }
                    | Inst::IfEnd => self.scalar_inst(inst, *hidden),
                    Inst::VLoad { .. }
                    | Inst::VStore { .. }
                    | Inst::VBroadcast { .. }
                    | Inst::VGather { .. }
                    | Inst::VScatter { .. }
                    | Inst::VGatherIndex { .. } => self.memory_inst(inst, virtual_inst, &temporaries.vectors),
                    _ => self.vector_inst(inst, virtual_inst, &temporaries.vectors),
                }
            }
            Step::Again { inst, .. } => match inst {
                Inst::Imm { .. } => self.scalar_inst(inst, None),
                _ => self.vector_inst(inst, inst, &[]),
            },
            Step::Store { class, register, slot } => {
                self.store_slot(*class, *register, *slot);
                Ok(())
            }
            Step::Load { class, register, slot } => {
                self.load_slot(*class, *register, *slot);
                Ok(())
            }
        }
    }

    fn store_slot(&mut self, class: Class, r: u8, slot: u32) {
        let at = self.frame.slot(class, slot);
        match class {
            Class::Gpr => {
                let (base, offset) = self.stack(at, 8);
                a64!(self ; str X(r), [XSP(base), offset]);
            }
            Class::Vector => {
                let (base, offset) = self.stack(at, 16);
                a64!(self ; str Q(r), [XSP(base), offset]);
            }
        }
    }

    fn load_slot(&mut self, class: Class, r: u8, slot: u32) {
        let at = self.frame.slot(class, slot);
        match class {
            Class::Gpr => {
                let (base, offset) = self.stack(at, 8);
                a64!(self ; ldr X(r), [XSP(base), offset]);
            }
            Class::Vector => {
                let (base, offset) = self.stack(at, 16);
                a64!(self ; ldr Q(r), [XSP(base), offset]);
            }
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
