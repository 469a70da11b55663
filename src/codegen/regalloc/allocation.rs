//! The result of register allocation: instructions with physical registers, and the moves between them.

use crate::codegen::vcode::operands::{Access, Class, PerClass};
use crate::codegen::vcode::{Function, Inst};
use crate::runtime::{Error, Result};

/// Bytes of a stack frame at most: kernels run on the stacks of threads, and touch frames in no order that the guard page
/// below a stack would notice.
const MAX_FRAME: i64 = 1 << 20;

/// `bytes` of a frame as offsets of an instruction, when they are not too many.
pub fn frame_size(bytes: i64) -> Result<i32> {
    match i32::try_from(bytes) {
        Ok(size) if bytes <= MAX_FRAME => Ok(size),
        _ => Err(Error::Limit(format!("a stack frame of {bytes} bytes, {MAX_FRAME} are allowed"))),
    }
}

/// Returns the offset of a slot's pointer in the argument table, in bytes.
pub fn slot_offset(slot: u32) -> Result<i32> {
    let offset = slot.checked_mul(8).and_then(|n| i32::try_from(n).ok());
    offset.ok_or_else(|| Error::Limit(format!("argument {slot} of a kernel")))
}

/// The location of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Place {
    Register(u8),
    /// Index among the spill slots of the class.
    Slot(u32),
}

/// Numbers of temporary registers that an instruction needs besides its operands; all of them are distinct.
pub type Needs = PerClass<u8>;

/// The registers that a [`Needs`] got.
pub type Temporaries = PerClass<Vec<u8>>;

/// The registers of an instruction set that may be allocated.
pub struct RegisterFile {
    /// In order of preference: those that need not be saved first.
    pub registers: PerClass<&'static [u8]>,
    /// Registers of the calling convention: argument table, first, last, scratch.
    pub incoming: [u8; 4],
    pub needs: fn(&Inst) -> Needs,
}

/// One instruction after allocation.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Instruction `origin` of the function; its register numbers are physical.
    Inst {
        origin: u32,
        inst: Inst,
        /// The location of the operand that VCode does not write out: the counter of LoopStart and LoopEnd, the
        /// argument of the calling convention that Argument, Range, Scratch and Inside read.
        hidden: Option<Place>,
        temporaries: Temporaries,
    },
    /// A constant instruction of the function computed once more; `once` says that the next instruction alone reads it.
    Again { origin: u32, inst: Inst, once: bool },
    /// Register to spill slot.
    Store { class: Class, register: u8, slot: u32 },
    /// Spill slot to register; `once` as in `Again`.
    Load { class: Class, register: u8, slot: u32, once: bool },
}

/// A function whose registers are chosen.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Allocation {
    /// Locations of the used arguments of the calling convention.
    pub entry: [Option<Place>; 4],
    pub steps: Vec<Step>,
    /// Numbers of spill slots.
    pub slots: PerClass<u32>,
}

impl Allocation {
    /// Bit sets of the registers that are written.
    pub fn written(&self) -> PerClass<u64> {
        let mut sets = PerClass::default();
        let mut add = |class, register: u8| sets[class] |= 1u64 << register;
        for place in self.entry.iter().flatten() {
            if let Place::Register(r) = place {
                add(Class::Gpr, *r);
            }
        }
        for step in &self.steps {
            match step {
                Step::Inst { inst, hidden, temporaries, .. } => {
                    inst.registers(|class, access, r| {
                        if access.writes() {
                            add(class, r as u8);
                        }
                    });
                    if let (Inst::LoopStart { .. }, Some(Place::Register(r))) = (inst, hidden) {
                        add(Class::Gpr, *r);
                    }
                    Class::ALL.iter().for_each(|&c| temporaries[c].iter().for_each(|&r| add(c, r)));
                }
                Step::Again { inst, .. } => inst.registers(|class, _, r| add(class, r as u8)),
                Step::Load { class, register, .. } => add(*class, *register),
                Step::Store { .. } => {}
            }
        }
        sets
    }

    /// Number of spill stores and reloads, of each class and in loops of depth `depth` or more.
    #[cfg(test)]
    pub fn spills(&self, depth: usize) -> PerClass<usize> {
        let (mut counts, mut level) = (PerClass::default(), 0);
        for step in &self.steps {
            match step {
                Step::Inst { inst: Inst::LoopStart { .. }, .. } => level += 1,
                Step::Inst { inst: Inst::LoopEnd, .. } => level -= 1,
                Step::Store { class, .. } | Step::Load { class, .. } if level >= depth => counts[*class] += 1,
                _ => {}
            }
        }
        counts
    }
}

/// A register operand with the hidden ones made explicit. Values are numbered through both classes: first the
/// function's general-purpose registers, then the four arguments of the calling convention, then one counter for each
/// loop in order of their starts, then the vector registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueOperand {
    pub value: u32,
    pub access: Access,
    pub hidden: bool,
}

/// The numbering of a function's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Values {
    gprs: u32,
    loops: u32,
    vregs: u32,
}

impl Values {
    pub fn of(function: &Function) -> Values {
        let loops = function.insts.iter().filter(|i| matches!(i, Inst::LoopStart { .. })).count() as u32;
        Values { gprs: function.gprs, loops, vregs: function.vregs }
    }

    pub fn count(&self) -> usize {
        (self.gprs + 4 + self.loops + self.vregs) as usize
    }

    pub fn value(&self, class: Class, register: u32) -> u32 {
        match class {
            Class::Gpr => register,
            Class::Vector => self.gprs + 4 + self.loops + register,
        }
    }

    pub fn class(&self, value: u32) -> Class {
        if value < self.gprs + 4 + self.loops { Class::Gpr } else { Class::Vector }
    }

    /// Argument 0 to 3 of the calling convention.
    pub fn incoming(&self, which: u32) -> u32 {
        self.gprs + which
    }

    pub fn counter(&self, number: u32) -> u32 {
        self.gprs + 4 + number
    }

    /// For messages.
    pub fn name(&self, value: u32) -> String {
        if value < self.gprs {
            format!("r{value}")
        } else if value < self.gprs + 4 {
            format!("argument {}", value - self.gprs)
        } else if value < self.gprs + 4 + self.loops {
            format!("counter {}", value - self.gprs - 4)
        } else {
            format!("v{}", value - self.gprs - 4 - self.loops)
        }
    }

    /// Appends the operands of `inst`; `loop_number` is the loop that a LoopStart or LoopEnd belongs to.
    pub fn operands(&self, inst: &Inst, loop_number: u32, out: &mut Vec<ValueOperand>) {
        inst.registers(|class, access, r| {
            out.push(ValueOperand { value: self.value(class, r), access, hidden: false });
        });
        let hidden = match inst {
            Inst::LoopStart { .. } => Some((self.counter(loop_number), Access::Def)),
            Inst::LoopEnd => Some((self.counter(loop_number), Access::UseDef)),
            Inst::Argument { .. } | Inst::Inside { .. } => Some((self.incoming(0), Access::Use)),
            Inst::Range { which, .. } => Some((self.incoming(1 + *which as u32), Access::Use)),
            Inst::Scratch { .. } => Some((self.incoming(3), Access::Use)),
            _ => None,
        };
        if let Some((value, access)) = hidden {
            out.push(ValueOperand { value, access, hidden: true });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::Target;
    use crate::codegen::assemble;

    #[test]
    fn a_frame_that_no_stack_holds_is_refused() {
        for target in [Target::avx2(), Target::avx512(), Target::neon()] {
            let emit = |vector, gpr| {
                let allocation = Allocation { slots: PerClass { gpr, vector }, ..Allocation::default() };
                assemble::emit(&Function::default(), &allocation, target.isa)
            };
            assert!(emit(100, 100).is_ok(), "{}", target.name);
            for (vectors, gprs) in [(1 << 17, 0), (0, 1 << 18), (1 << 26, 1), (u32::MAX, u32::MAX)] {
                let refused = emit(vectors, gprs);
                assert!(matches!(refused, Err(Error::Limit(_))), "{}: {vectors} {gprs}: {refused:?}", target.name);
            }
        }
        assert!(slot_offset(1 << 20).is_ok());
        assert!(matches!(slot_offset(1 << 28), Err(Error::Limit(_))));
    }
}
