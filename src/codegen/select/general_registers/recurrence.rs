//! Recurrences: the chains of dependences through the iterations of an innermost loop.
//!
//! In: a loop without control flow in it, and registers that may move. Out: the cycles of an iteration that moving saves, as far as
//! they follow from values in registers. Values that go through memory do not count.

use super::forms::Forms;
use crate::codegen::Target;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Inst, ShiftOp, VBinary};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;

/// Iterations over which the chains are followed: those of several registers take turns.
const ITERATIONS: usize = 4;

/// Operations on general-purpose registers that start in a cycle.
const OPERATIONS_PER_CYCLE: f64 = 4.0;

/// The body of an innermost loop.
pub struct Innermost {
    body: Range<usize>,
    /// Ten for each loop around and for itself.
    pub weight: f64,
    /// Registers that an iteration reads before it writes them: every recurrence goes through one of them.
    carried: BTreeSet<u32>,
    /// Cycles of an iteration in the longest chain, with all registers where they are.
    chain: f64,
}

/// The innermost loops without conditionals that carry something in vector registers.
pub fn innermost(function: &Function, target: &Target, forms: &Forms) -> Vec<Innermost> {
    let (mut loops, mut open) = (vec![], vec![]);
    let mut last_start = None;
    for (index, inst) in function.insts.iter().enumerate() {
        match inst {
            Inst::LoopStart { .. } => {
                open.push(index);
                last_start = Some(index);
            }
            Inst::LoopEnd => {
                let start = open.pop();
                if let Some(start) = start.filter(|_| start == last_start) {
                    let (body, weight) = (start + 1..index, 10f64.powi(open.len() as i32 + 1));
                    let carried = carried(&function.insts[body.clone()]);
                    if !carried.is_empty() {
                        let chain = cycles(body.clone(), function, target, forms, |_| false);
                        loops.push(Innermost { body, weight, carried, chain });
                    }
                }
            }
            Inst::IfStart { .. } | Inst::IfEnd => last_start = None,
            _ => {}
        }
    }
    loops
}

/// Registers that a body reads before it writes them, and writes.
fn carried(body: &[Inst]) -> BTreeSet<u32> {
    let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
    for inst in body {
        inst.registers(|class, access, r| {
            if class == Class::Vector {
                if access.reads() && !written.contains(&r) {
                    read.insert(r);
                }
                if access.writes() {
                    written.insert(r);
                }
            }
        });
    }
    read.intersection(&written).copied().collect()
}

impl Innermost {
    /// Returns true if one of the registers is carried from iteration to iteration.
    pub fn carries(&self, registers: &[u32]) -> bool {
        registers.iter().any(|r| self.carried.contains(r))
    }

    /// Cycles of an iteration that moving saves; below zero where it takes more.
    pub fn saved(&self, function: &Function, target: &Target, forms: &Forms, moved: impl Fn(u32) -> bool) -> f64 {
        let chain = cycles(self.body.clone(), function, target, forms, &moved);
        let operations: f64 = self.body.clone().map(|index| operations(function, index, forms, &moved)).sum();
        self.chain - chain.max(operations / OPERATIONS_PER_CYCLE)
    }
}

/// Cycles of an iteration in the longest chain through vector registers.
fn cycles(body: Range<usize>, function: &Function, target: &Target, forms: &Forms, moved: impl Fn(u32) -> bool) -> f64 {
    let insts: Vec<&Inst> = function.insts[body.clone()].iter().collect();
    let latency_of = |at: usize| {
        let (inst, index) = (insts[at], body.start + at);
        if inst.lanes().is_some() {
            return None;
        }
        let mut named = false;
        inst.registers(|class, _, r| named |= class == Class::Vector && moved(r));
        Some(match (forms.dividend_of_part(index), forms.dividend(index)) {
            (Some(dividend), _) if moved(dividend.0) => 0.0,
            (_, Some(dividend)) if moved(dividend.0) => quotient_latency(target),
            _ => latency(inst, target, named),
        })
    };
    longest_chain(&insts, |class| class == Class::Vector, latency_of)
}

/// Cycles of an iteration of a loop with this body in the longest chain of dependences through registers of the classes that are
/// followed. `latency` is that of an instruction, by its place; `None` where it waits for nothing.
pub fn longest_chain(body: &[&Inst], follows: impl Fn(Class) -> bool, latency: impl Fn(usize) -> Option<f64>) -> f64 {
    let mut ready: FxHashMap<(Class, u32), f64> = FxHashMap::default();
    let mut ends = [0.0f64; ITERATIONS];
    for end in &mut ends {
        for (at, inst) in body.iter().enumerate() {
            let mut from = 0.0f64;
            inst.registers(|class, access, r| {
                if access.reads() && follows(class) {
                    from = from.max(ready.get(&(class, r)).copied().unwrap_or(0.0));
                }
            });
            let done = latency(at).map_or(0.0, |latency| from + latency);
            inst.registers(|class, access, r| {
                if access.writes() && follows(class) {
                    ready.insert((class, r), done);
                }
            });
        }
        *end = ready.values().copied().fold(0.0, f64::max);
    }
    (ends[ITERATIONS - 1] - ends[0]) / (ITERATIONS - 1) as f64
}

/// Cycles of a quotient by a constant in general-purpose registers: a product, a sum, and the extension and the shift of the dividend.
pub fn quotient_latency(target: &Target) -> f64 {
    target.machine.word_product_latency + 3.0 * target.machine.word_latency
}

/// Cycles until the result of an instruction can be used, in vector registers or moved.
pub fn latency(inst: &Inst, target: &Target, moved: bool) -> f64 {
    let machine = &target.machine;
    let product = machine.fma_latency as f64;
    let simple = if moved { machine.word_latency } else { machine.integer_latency };
    match inst {
        Inst::VCopy { .. } | Inst::VConst { .. } | Inst::VSplat { .. } => 0.0,
        Inst::VConvert { to, from, .. } if to.lane.is_float() || from.is_float() => product,
        Inst::VBinary { op: VBinary::Mul | VBinary::MulPairs, .. } if moved => machine.word_product_latency,
        Inst::VBinary { op: VBinary::Min | VBinary::Max, .. } if moved => 2.0 * simple,
        // there and back is one instruction
        Inst::VShift { op: ShiftOp::Left, amount: 16 | 24, .. } if moved => 0.0,
        Inst::VBinary { op: VBinary::Mul | VBinary::MulPairs, .. } => product,
        Inst::VBinary { ty, .. } | Inst::VUnary { ty, .. } if ty.lane.is_float() => machine.add_latency,
        Inst::VBinary { .. } | Inst::VUnary { .. } | Inst::VShift { .. } => simple,
        Inst::VCompare { .. } | Inst::VSelect { .. } | Inst::VConvert { .. } => simple,
        _ => product,
    }
}

/// Operations on general-purpose registers where registers move: those that are there, and the forms of those that move.
fn operations(function: &Function, index: usize, forms: &Forms, moved: impl Fn(u32) -> bool) -> f64 {
    let inst = &function.insts[index];
    let (mut named, mut vectors) = (false, false);
    inst.registers(|class, _, r| {
        vectors |= class == Class::Vector;
        named |= class == Class::Vector && moved(r);
    });
    match inst {
        _ if !vectors => 1.0,
        _ if !named || inst.lanes().is_some() => 0.0,
        _ if forms.dividend(index).is_some() => 5.0,
        _ if forms.is_part(index) => 0.0,
        Inst::VBinary { op: VBinary::Min | VBinary::Max, .. } => 2.0,
        Inst::VShift { op: ShiftOp::Left, amount: 16 | 24, .. } | Inst::VConst { .. } => 0.0,
        _ => 1.0,
    }
}
