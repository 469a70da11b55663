//! AArch64 code: Advanced SIMD.
//!
//! In: a function and its allocation. Out: position-independent bytes, constants included, for the procedure call standard
//! of AAPCS64.
//!
//! x16 and x17 are scratch; x18, x29 and x30 are never touched. Every vector register is allocated: an instruction that
//! needs another asks for a temporary. Frame, from the stack pointer upwards, each part only when used: vector spill
//! slots, general-purpose spill slots, saved registers.

mod memory;
mod scalar;
mod vector;

use crate::codegen::allocation::{Allocation, Needs, Place, RegisterFile, Step};
use crate::codegen::operands::Class;
use crate::codegen::pool::Pool;
use crate::codegen::vcode::{Function, Inst};
use crate::codegen::{Error, Result};
use dynasmrt::aarch64::Aarch64Relocation;
use dynasmrt::{DynamicLabel, VecAssembler, dynasm};

const SP: u8 = 31;
/// Scratch registers of single instructions: data, address.
const DATA: u8 = 16;
const ADDRESS: u8 = 17;

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

/// Temporaries of an instruction.
fn needs(inst: &Inst) -> Needs {
    let vectors = match inst {
        Inst::VStore { .. } | Inst::VGatherIndex { .. } => memory::temporaries(inst),
        _ => vector::temporaries(inst),
    };
    Needs { gprs: 0, vectors }
}

/// The machine code of a function.
pub fn emit(function: &Function, allocation: &Allocation) -> Result<Vec<u8>> {
    let (gprs, vectors) = allocation.written();
    let saved_gprs: Vec<u8> = (19..=28).filter(|r| gprs >> r & 1 != 0).collect();
    let saved_vectors: Vec<u8> = (8..=15).filter(|r| vectors >> r & 1 != 0).collect();
    let gpr_slots = 16 * allocation.vector_slots;
    let saved = gpr_slots + 8 * allocation.gpr_slots;
    let size = (saved + 8 * (saved_gprs.len() + saved_vectors.len()) as u32 + 15) & !15;
    let mut e = Emitter {
        name: &function.name,
        asm: VecAssembler::new(0),
        pool: Pool::default(),
        frame: Frame { gpr_slots, saved, size },
        bodies: vec![],
    };
    e.prologue(allocation, &saved_gprs, &saved_vectors);
    for step in &allocation.steps {
        e.step(step)?;
    }
    e.epilogue(&saved_gprs, &saved_vectors);
    e.pool.emit(&mut e.asm);
    e.asm.finalize().map_err(|error| Error::Internal(format!("{}: {error}", function.name)))
}

/// Offsets from the stack pointer.
#[derive(Clone, Copy)]
struct Frame {
    gpr_slots: u32,
    saved: u32,
    size: u32,
}

impl Frame {
    fn slot(&self, class: Class, slot: u32) -> i64 {
        match class {
            Class::Gpr => i64::from(self.gpr_slots + 8 * slot),
            Class::Vector => i64::from(16 * slot),
        }
    }
}

struct Body {
    head: DynamicLabel,
    end: DynamicLabel,
}

struct Emitter<'a> {
    name: &'a str,
    asm: VecAssembler<Aarch64Relocation>,
    pool: Pool,
    frame: Frame,
    bodies: Vec<Body>,
}

impl Emitter<'_> {
    fn unsupported<T>(&self, inst: &Inst) -> Result<T> {
        Err(Error::Internal(format!("{}: no AArch64 code for {inst:?}", self.name)))
    }

    fn prologue(&mut self, allocation: &Allocation, gprs: &[u8], vectors: &[u8]) {
        if self.frame.size > 0 {
            self.add_constant(SP, SP, -i64::from(self.frame.size));
        }
        let mut at = i64::from(self.frame.saved);
        for &r in gprs {
            self.store_gpr(r, SP, at, 8);
            at += 8;
        }
        for &r in vectors {
            self.store_vector(r, SP, at, 8);
            at += 8;
        }
        self.move_arguments(&allocation.entry);
    }

    /// Brings the arguments of the calling convention to their places, all at once.
    fn move_arguments(&mut self, entry: &[Option<Place>; 4]) {
        let mut moves = vec![];
        for (place, from) in entry.iter().zip(register_file().incoming) {
            match place {
                Some(Place::Slot(s)) => self.store_gpr(from, SP, self.frame.slot(Class::Gpr, *s), 8),
                Some(Place::Register(to)) if *to != from => moves.push((*to, from)),
                _ => {}
            }
        }
        while !moves.is_empty() {
            let free = (0..moves.len()).find(|&i| moves.iter().all(|m| m.1 != moves[i].0));
            let (to, from) = moves.remove(free.unwrap_or(0));
            if free.is_none() {
                // A cycle: the value that is overwritten waits in the scratch register.
                self.move_gpr(DATA, to);
                moves.iter_mut().filter(|m| m.1 == to).for_each(|m| m.1 = DATA);
            }
            self.move_gpr(to, from);
        }
    }

    fn epilogue(&mut self, gprs: &[u8], vectors: &[u8]) {
        let mut at = i64::from(self.frame.saved);
        for &r in gprs {
            self.load_gpr(r, SP, at, 8);
            at += 8;
        }
        for &r in vectors {
            self.load_vector(r, SP, at, 8);
            at += 8;
        }
        if self.frame.size > 0 {
            self.add_constant(SP, SP, i64::from(self.frame.size));
        }
        dynasm!(self.asm ; .arch aarch64 ; ret);
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Inst { inst, hidden, temporaries, .. } => self.inst(inst, *hidden, &temporaries.vectors),
            Step::Again { inst, .. } => self.inst(inst, None, &[]),
            Step::Store { class, register, slot } => {
                let at = self.frame.slot(*class, *slot);
                match class {
                    Class::Gpr => self.store_gpr(*register, SP, at, 8),
                    Class::Vector => self.store_vector(*register, SP, at, 16),
                }
                Ok(())
            }
            Step::Load { class, register, slot } => {
                let at = self.frame.slot(*class, *slot);
                match class {
                    Class::Gpr => self.load_gpr(*register, SP, at, 8),
                    Class::Vector => self.load_vector(*register, SP, at, 16),
                }
                Ok(())
            }
        }
    }

    fn inst(&mut self, inst: &Inst, hidden: Option<Place>, temporaries: &[u8]) -> Result<()> {
        match inst {
            Inst::Imm { .. }
            | Inst::Copy { .. }
            | Inst::Int { .. }
            | Inst::LoadInt { .. }
            | Inst::Argument { .. }
            | Inst::Range { .. }
            | Inst::Scratch { .. }
            | Inst::LoopStart { .. }
            | Inst::LoopEnd
            | Inst::IfStart { .. }
            | Inst::IfEnd => self.scalar_inst(inst, hidden),
            Inst::VLoad { .. }
            | Inst::VStore { .. }
            | Inst::VBroadcast { .. }
            | Inst::VGather { .. }
            | Inst::VScatter { .. }
            | Inst::VGatherIndex { .. } => self.memory_inst(inst, temporaries),
            _ => self.vector_inst(inst, temporaries),
        }
    }
}
