//! Instructions that read what another step would load.

use crate::codegen::emit::operand::{self, Source};
use crate::codegen::emit::{Emitter, Encode, Vectors};
use crate::codegen::regalloc::allocation::Step;
use crate::codegen::vcode::{Inst, Vreg};
use crate::runtime::{Error, Result};
use dynasmrt::relocations::Relocation;

impl<'a, R: Relocation, S> Emitter<'a, R, S>
where
    Self: Encode,
{
    /// An instruction whose operand is what another step would load.
    pub(super) fn with_operand(&mut self, step: &'a Step, reload: &Step) -> Result<()> {
        let (Step::Inst { origin, inst, temporaries, .. }, Some((register, operand))) = (step, operand::of(reload))
        else {
            return Err(Error::Internal(format!("{}: no operand in memory", self.function.name)));
        };
        (self.origin, self.temporaries) = (*origin as usize, temporaries);
        let source = |r: Vreg| match r.number() == register {
            true => Source::Memory(operand),
            false => Source::Register(r.number()),
        };
        let is_known = match *inst {
            Inst::VFma { acc, ty, a, b, negate } => {
                self.fused_sum(acc.number(), ty, Source::Register(acc.number()), [a, b].map(source), negate)
            }
            Inst::VFmaSum { dst, ty, c, negate, a, b } => {
                self.fused_sum(dst.number(), ty, source(c), [a, b].map(source), negate)
            }
            Inst::VBinary { op, dst, ty, a, b } => {
                let other = if a.number() == register { b } else { a };
                self.binary_memory(op, ty, dst.number(), other.number(), &operand)
            }
            _ => false,
        };
        match is_known {
            true => Ok(()),
            false => Err(Error::Internal(format!("{}: no operand in memory for {inst:?}", self.function.name))),
        }
    }
}
