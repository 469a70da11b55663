//! Latency of the longest cycle of dependences between the iterations of an innermost loop, through registers.

use crate::codegen::Target;
use crate::codegen::select::general_registers::recurrence::latency;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{GprOp, Inst};
use std::collections::HashMap;

/// Iterations over which the chains are followed: those of several registers take turns.
const ITERATIONS: usize = 4;

/// Cycles of an iteration of a loop with this body.
pub(super) fn cycles(body: &[&Inst], target: &Target) -> f64 {
    let mut ready: HashMap<(Class, u32), f64> = HashMap::new();
    let mut ends = [0.0f64; ITERATIONS];
    for end in &mut ends {
        for inst in body {
            let mut from = 0.0f64;
            let (mut vectors, memory) = (false, inst.address().is_some());
            inst.registers(|class, access, r| {
                vectors |= class == Class::Vector;
                if access.reads() {
                    from = from.max(ready.get(&(class, r)).copied().unwrap_or(0.0));
                }
            });
            let latency = match inst {
                _ if memory && !vectors || inst.lanes().is_some() => target.machine.load_latency as f64,
                _ if vectors => latency(inst, target, false),
                Inst::Int { op: GprOp::Mul, .. } | Inst::Word { op: GprOp::Mul, .. } => {
                    target.machine.word_product_latency
                }
                Inst::Int { op: GprOp::DivFloor, .. } => 8.0,
                Inst::Choose { .. } => 2.0 * target.machine.word_latency,
                Inst::Imm { .. } | Inst::Copy { .. } => 0.0,
                _ => target.machine.word_latency,
            };
            inst.registers(|class, access, r| {
                if access.writes() {
                    ready.insert((class, r), from + latency);
                }
            });
        }
        *end = ready.values().copied().fold(0.0, f64::max);
    }
    (ends[ITERATIONS - 1] - ends[0]) / (ITERATIONS - 1) as f64
}
