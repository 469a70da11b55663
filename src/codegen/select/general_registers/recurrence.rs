//! Iterations of innermost loops: their chains of dependences, and the instructions that keep ports busy.
//!
//! In: a loop without loops in it, and registers that may move. Out: the cycles of an iteration that moving saves: of the longest chain
//! through its iterations, or of the operations where these take longer. Values that go through memory are not part of chains, and general-purpose
//! registers are only where a lane becomes a subscript; what is in a conditional counts as if it always ran.

use super::forms::Forms;
use crate::codegen::vcode::lanes::Lanes;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, GprOp, Inst, ShiftOp, VBinary};
use crate::codegen::{Isa, Target};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;

/// Iterations over which the chains are followed: those of several registers take turns.
const ITERATIONS: usize = 4;

/// Operations on general-purpose registers that start in a cycle.
const OPERATIONS_PER_CYCLE: f64 = 4.0;

/// Cycles that an instruction counts for where no limit is on it.
const INSTRUCTION: f64 = 0.01;

/// The body of an innermost loop.
pub struct Innermost {
    /// The places of its instructions.
    pub body: Range<usize>,
    /// Ten for each loop around and for itself.
    pub weight: f64,
    /// Vector registers that it mentions.
    mentioned: BTreeSet<u32>,
}

/// The innermost loops.
pub fn innermost(function: &Function) -> Vec<Innermost> {
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
                    let mut mentioned = BTreeSet::new();
                    for inst in &function.insts[body.clone()] {
                        inst.registers(|class, _, r| mentioned.extend((class == Class::Vector).then_some(r)));
                    }
                    loops.push(Innermost { body, weight, mentioned });
                }
            }
            _ => {}
        }
    }
    loops
}

impl Innermost {
    /// Returns true if one of the registers is mentioned.
    pub fn mentions(&self, registers: &[u32]) -> bool {
        registers.iter().any(|r| self.mentioned.contains(r))
    }

    /// The number of instructions.
    pub fn instructions(&self) -> usize {
        self.body.len()
    }

    /// Cycles of an iteration with the registers `moved` in general-purpose registers.
    pub fn cycles(&self, function: &Function, target: &Target, forms: &Forms, moved: impl Fn(u32) -> bool) -> f64 {
        let chain = cycles(self.body.clone(), function, target, forms, &moved);
        let (mut words, mut vectors, mut permutations) = (0.0, 0.0, 0.0);
        for index in self.body.clone() {
            let (word, vector, permutation) = operations(function, target, index, forms, &moved);
            words += word;
            vectors += vector;
            permutations += permutation;
        }
        let bound = chain.max(words / OPERATIONS_PER_CYCLE).max(vectors).max(permutations);
        // of two that take the same time, that of fewer instructions
        let instructions =
            if target.isa == Isa::Neon { 0.0 } else { words + vectors * target.machine.scalar_per_cycle };
        bound + INSTRUCTION * instructions
    }
}

/// Cycles of an iteration in the longest chain through vector registers.
fn cycles(body: Range<usize>, function: &Function, target: &Target, forms: &Forms, moved: impl Fn(u32) -> bool) -> f64 {
    let insts: Vec<&Inst> = function.insts[body.clone()].iter().collect();
    let subscripts = insts.iter().any(|inst| matches!(inst, Inst::FirstLane { .. }));
    let latency_of = |at: usize| {
        let (inst, index) = (insts[at], body.start + at);
        if inst.lanes().is_some() {
            return subscripts.then_some(target.machine.load_latency as f64);
        }
        let (mut named, mut vectors) = (false, false);
        inst.registers(|class, _, r| {
            vectors |= class == Class::Vector;
            named |= class == Class::Vector && moved(r);
        });
        if !vectors {
            return Some(word_latency(inst, target));
        }
        Some(match (forms.dividend_of_part(index), forms.dividend(index)) {
            (Some(dividend), _) if moved(dividend.0) => 0.0,
            (_, Some(dividend)) if moved(dividend.0) => quotient_latency(target),
            _ => latency(inst, target, named),
        })
    };
    longest_chain(&insts, |class| subscripts || class == Class::Vector, latency_of)
}

/// Cycles until the result of an instruction on general-purpose registers alone can be used.
pub fn word_latency(inst: &Inst, target: &Target) -> f64 {
    let machine = &target.machine;
    match inst {
        _ if inst.address().is_some() => machine.load_latency as f64,
        Inst::Int { op: GprOp::Mul, .. } | Inst::Word { op: GprOp::Mul, .. } => machine.word_product_latency,
        Inst::Int { op: GprOp::DivFloor, .. } => quotient_latency(target),
        Inst::Choose { .. } => 2.0 * machine.word_latency,
        // a comparison with a branch that is predicted
        Inst::Imm { .. } | Inst::Copy { .. } | Inst::Inside { .. } => 0.0,
        _ => machine.word_latency,
    }
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
        Inst::FirstLane { .. } if moved => machine.word_latency,
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

/// Operations on general-purpose registers of an instruction where registers move, or of its form there; cycles of the ports of vectors,
/// and of the one among them that permutes. Cores for AArch64 move elements of any width between memory and vectors without a permutation,
/// and differ in what they do at a time: vectors do not count there.
fn operations(
    function: &Function,
    target: &Target,
    index: usize,
    forms: &Forms,
    moved: impl Fn(u32) -> bool,
) -> (f64, f64, f64) {
    let inst = &function.insts[index];
    let (mut named, mut vectors) = (false, false);
    inst.registers(|class, _, r| {
        vectors |= class == Class::Vector;
        named |= class == Class::Vector && moved(r);
    });
    let words = |n: f64| (n, 0.0, 0.0);
    let is_free = |inst: &Inst| {
        let no_code = matches!(inst, Inst::Expect { .. } | Inst::IfEnd | Inst::LoopEnd);
        no_code || matches!(inst, Inst::Imm { .. } | Inst::Copy { .. }) || inst.address().is_some()
    };
    match inst {
        _ if !vectors => words(if is_free(inst) { 0.0 } else { 1.0 }),
        _ if !named && target.isa == Isa::Neon => words(0.0),
        _ if !named => {
            let permutations = inst.lanes().map_or(0.0, |l| permutations(inst, &l));
            let steps = if inst.lanes().is_none() { steps(inst) } else { 0.0 };
            (0.0, (permutations + steps) / target.machine.scalar_per_cycle, permutations)
        }
        _ if inst.lanes().is_some() => words(0.0),
        _ if forms.dividend(index).is_some() => words(5.0),
        _ if forms.is_part(index) => words(0.0),
        // copies
        Inst::VSplat { .. } | Inst::FirstLane { .. } | Inst::VCopy { .. } => words(0.0),
        Inst::VBinary { op: VBinary::Min | VBinary::Max, .. } => words(2.0),
        Inst::VShift { op: ShiftOp::Left, amount: 16 | 24, .. } | Inst::VConst { .. } => words(0.0),
        _ => words(1.0),
    }
}

/// Operations of an instruction on vectors of x86-64.
fn steps(inst: &Inst) -> f64 {
    match inst {
        Inst::VConst { .. } | Inst::VCopy { .. } => 0.0,
        Inst::VBinary { op: VBinary::Mul, ty, .. } => ty.lane.product_operations(),
        _ => 1.0,
    }
}

/// Permutations of a move of one element between memory and a vector register of x86-64: one of less than four bytes is copied to all lanes and
/// widened, or is taken out of the lowest lane.
fn permutations(inst: &Inst, lanes: &Lanes) -> f64 {
    match lanes.ty.lanes == 1 && lanes.mem.bytes() <= 2 {
        true if inst.writes_memory() => 1.0,
        true => 2.0,
        false => 0.0,
    }
}
