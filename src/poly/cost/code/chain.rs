//! Latency of the longest cycle of dependences between the iterations of an innermost loop, through registers.

use crate::codegen::Target;
use crate::codegen::select::general_registers::recurrence::{latency, longest_chain, word_latency};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Inst, VBinary};

/// Cycles of an iteration of a loop with this body.
pub(super) fn cycles(body: &[&Inst], target: &Target) -> f64 {
    // additions of one element follow each other sooner than other operations follow them
    let alone = body.iter().filter(|i| computes_float(i)).all(|i| is_addition(i));
    longest_chain(body, |_| true, |at| Some(latency_of(body[at], alone, target)))
}

/// Returns true for what is not a move.
fn computes_float(inst: &Inst) -> bool {
    let moves = matches!(inst, Inst::VCopy { .. } | Inst::VConst { .. } | Inst::VSplat { .. });
    !moves && inst.lanes().is_none() && inst.ty().is_some_and(|ty| ty.lane.is_float())
}

/// Returns true for an addition of one float.
fn is_addition(inst: &Inst) -> bool {
    let one = inst.ty().is_some_and(|ty| ty.lanes == 1 && ty.lane.is_float());
    let (Inst::VBinary { op, .. } | Inst::VBinaryMemory { op, .. }) = inst else { return false };
    one && matches!(op, VBinary::Add | VBinary::Sub)
}

/// `alone` says that nothing else is computed of floats than sums.
fn latency_of(inst: &Inst, alone: bool, target: &Target) -> f64 {
    let machine = &target.machine;
    let mut vectors = false;
    inst.registers(|class, _, _| vectors |= class == Class::Vector);
    match inst {
        _ if alone && is_addition(inst) => machine.scalar_add_latency,
        Inst::VBinaryMemory { op: VBinary::Add | VBinary::Sub | VBinary::Min | VBinary::Max, .. } => {
            machine.add_latency
        }
        _ if inst.address().is_some() && !vectors || inst.lanes().is_some() => machine.load_latency as f64,
        _ if vectors => latency(inst, target, false),
        _ => word_latency(inst, target),
    }
}
