//! Operands in memory, and reloads that become some: a constant or a spilled register that one instruction reads.
//!
//! In: the steps from a reload on. Out: which reload is the memory operand of the instruction behind it. A reload for one instruction
//! writes a register that nothing else reads, so that it need not be written.

use crate::codegen::regalloc::allocation::Step;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Addr, Inst, VBinary, VType, Vreg};

/// An operand in memory.
#[derive(Clone, Copy)]
pub enum MemoryOperand {
    /// As many elements as there are lanes, or one that is broadcast.
    At { addr: Addr, broadcast: bool },
    /// These bits in every lane.
    Constant(u64),
    /// The register that a spill slot holds.
    Slot(u32),
}

/// An operand in a register or in memory.
#[derive(Clone, Copy)]
pub enum Source {
    Register(u8),
    Memory(MemoryOperand),
}

/// The number of reloads for one instruction with which the steps begin, and which of them that instruction reads from memory.
pub fn reloaded(steps: &[Step]) -> Option<(usize, usize)> {
    let once = |step: &&Step| matches!(step, Step::Again { once: true, .. } | Step::Load { once: true, .. });
    let reloads = steps.iter().take_while(once).count();
    let Some(Step::Inst { inst, .. }) = steps.get(reloads) else { return None };
    let folded = |step: &Step| {
        let fits = |ty: VType| match step {
            Step::Again { inst: Inst::VConst { ty: of, .. }, .. } => of.lane.bytes() == ty.lane.bytes(),
            _ => true,
        };
        of(step).is_some_and(|(register, _)| reads_from_memory(inst, register).is_some_and(fits))
    };
    steps[..reloads].iter().position(folded).map(|k| (reloads, k))
}

/// The vector register that a reload writes, and where its value is; `None` for what takes no memory.
pub fn of(reload: &Step) -> Option<(u8, MemoryOperand)> {
    match *reload {
        Step::Again { inst: Inst::VConst { dst, ty, bits }, .. } => {
            let bits = bits & ty.lane.all_ones();
            let in_memory = bits != 0 && bits != ty.lane.all_ones();
            in_memory.then_some((dst.number(), MemoryOperand::Constant(bits)))
        }
        Step::Load { class: Class::Vector, register, slot, .. } => Some((register, MemoryOperand::Slot(slot))),
        _ => None,
    }
}

/// The type of an instruction that can read this register from memory: its only mention of it.
fn reads_from_memory(inst: &Inst, register: u8) -> Option<VType> {
    let is = |r: Vreg| r.number() == register;
    let mentions = |registers: &[Vreg]| registers.iter().filter(|&&r| is(r)).count();
    match *inst {
        Inst::VFma { acc, ty, a, b, .. } if ty.lane.is_float() && mentions(&[acc, a, b]) == 1 && !is(acc) => Some(ty),
        Inst::VFmaSum { ty, c, a, b, .. } if mentions(&[c, a, b]) == 1 => Some(ty),
        Inst::VBinary { op, ty, a, b, .. } if ty.lane.is_float() && mentions(&[a, b]) == 1 => {
            let commutes = matches!(op, VBinary::Add | VBinary::Mul);
            let ordered = matches!(op, VBinary::Sub | VBinary::Div | VBinary::Min | VBinary::Max);
            (commutes || ordered && is(b)).then_some(ty)
        }
        _ => None,
    }
}
