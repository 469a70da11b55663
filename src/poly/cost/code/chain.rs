//! Latency of the longest cycle of dependences between the iterations of an innermost loop, through registers.

use crate::codegen::Target;
use crate::codegen::select::general_registers::recurrence::{latency, longest_chain, quotient_latency};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{GprOp, Inst};

/// Cycles of an iteration of a loop with this body.
pub(super) fn cycles(body: &[&Inst], target: &Target) -> f64 {
    longest_chain(body, |_| true, |at| Some(latency_of(body[at], target)))
}

fn latency_of(inst: &Inst, target: &Target) -> f64 {
    let machine = &target.machine;
    let mut vectors = false;
    inst.registers(|class, _, _| vectors |= class == Class::Vector);
    match inst {
        _ if inst.address().is_some() && !vectors || inst.lanes().is_some() => machine.load_latency as f64,
        _ if vectors => latency(inst, target, false),
        Inst::Int { op: GprOp::Mul, .. } | Inst::Word { op: GprOp::Mul, .. } => machine.word_product_latency,
        Inst::Int { op: GprOp::DivFloor, .. } => quotient_latency(target),
        Inst::Choose { .. } => 2.0 * machine.word_latency,
        Inst::Imm { .. } | Inst::Copy { .. } => 0.0,
        _ => machine.word_latency,
    }
}
