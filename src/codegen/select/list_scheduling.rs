//! List scheduling of innermost loops, for processors that run instructions in program order.
//!
//! In and out: a flat function. The instructions between two branches of an innermost loop are put into another order that keeps
//! every dependence of registers and memory: of those that can start first, with their operands ready and a unit free, the one with the
//! longest path of latencies to the end of the block comes next (Gibbons and Muchnick, 1986), so that loads stand well before what
//! waits for them, and a load and what computes vectors start together. Arguments of a kernel do not overlap. An
//! instruction that would make more registers live than the processor has waits for others that make fewer live; where that leaves an
//! instruction without a register, the order stays near one that computes a result after the other (`depth_first`). Far addresses get
//! a base of their own before (`far_addresses`), and loops begin an iteration beside the one before where that saves cycles (`rotation`).
//! A processor that reorders instructions itself does not gain: its code stays in the order of selection.

mod block;
mod depth_first;
mod far_addresses;
mod roots;
mod rotation;

use crate::codegen::Target;
use crate::codegen::regalloc::allocate;
use crate::codegen::regalloc::liveness::{Liveness, Loop};
use crate::codegen::select::list_scheduling::block::{Block, Register, Surroundings};
use crate::codegen::target::Isa;
use crate::codegen::vcode::operands::{Access, Class, PerClass};
use crate::codegen::vcode::{Function, Inst};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Instructions of the longest block that is scheduled: the effort grows with the square.
const MOST_INSTRUCTIONS: usize = 1024;

/// General-purpose registers that a block may use.
const GPRS: usize = 20;

/// Schedules the innermost loops of a function.
pub fn schedule_loops(function: &mut Function, target: &Target) {
    if target.isa != Isa::Neon {
        return;
    }
    let far = blocks(&function.insts);
    far_addresses::shorten(function, &far);
    let blocks = blocks(&function.insts);
    // What has no live ranges is refused by allocation, with the reason.
    let live = (!blocks.is_empty()).then(|| Liveness::compute(function).ok()).flatten();
    let roots = roots::roots(&function.insts, function.gprs);
    let mut pipelined = vec![];
    for range in blocks {
        let reserved = usize::from(!function.insts[range.clone()].iter().all(is_one_instruction));
        let shared = shared_registers(&function.insts, &range);
        let beside = reserved + live.as_ref().map_or(0, |live| live_beside(live, &range, &shared));
        let limit = PerClass { gpr: GPRS, vector: target.vector_registers.saturating_sub(beside) };
        let of = Surroundings { target, shared: &shared, rows: &function.instructions, roots: &roots };
        let order = Block::new(&function.insts[range.clone()], &of).order(limit).order;
        let ordered: Vec<Inst> = order.into_iter().map(|i| function.insts[range.start + i].clone()).collect();
        pipelined.extend(rotation::rotate(function, &range, &ordered, &of, limit));
        function.insts[range].clone_from_slice(&ordered);
    }
    if !pipelined.is_empty() {
        let mut rotated = function.clone();
        pipelined.into_iter().rev().for_each(|loop_| loop_.replace(&mut rotated));
        let spilled = |function: &Function| allocate(function, target).map(|a| a.slots.vector + a.slots.gpr);
        if let (Ok(before), Ok(after)) = (spilled(function), spilled(&rotated))
            && after <= before
        {
            *function = rotated;
        }
    }
}

/// The blocks without branches of innermost loops.
pub(super) fn blocks(insts: &[Inst]) -> Vec<Range<usize>> {
    let (mut blocks, mut of_loop, mut start) = (vec![], None, 0);
    for (index, inst) in insts.iter().enumerate() {
        if !inst.is_control() {
            continue;
        }
        if let Some(open) = &mut of_loop {
            Vec::push(open, start..index);
        }
        match inst {
            Inst::LoopStart { .. } => of_loop = Some(vec![]),
            Inst::LoopEnd => blocks.extend(of_loop.take().unwrap_or_default()),
            _ => {}
        }
        start = index + 1;
    }
    blocks.retain(|block: &Range<usize>| (2..=MOST_INSTRUCTIONS).contains(&block.len()));
    blocks
}

/// Returns true for loads, stores, fused products and tensor instructions whose code has no temporaries.
fn is_one_instruction(inst: &Inst) -> bool {
    let whole = inst.lanes().is_none_or(|l| l.mem.bytes() == l.lane_bytes());
    match inst {
        Inst::VLoad { .. } | Inst::VBroadcast { .. } | Inst::VStore { .. } => whole,
        Inst::VFma { ty, .. } => ty.lane.is_float(),
        Inst::VTensor { temporaries, .. } => *temporaries == 0,
        _ => inst.ty().is_none(),
    }
}

/// The registers of a block, and whether they count as live in all of it: those that others mention, those that are read before
/// they are written, and those that are written more than once.
pub(super) fn shared_registers(insts: &[Inst], block: &Range<usize>) -> FxHashMap<Register, bool> {
    let mut shared = FxHashMap::default();
    for inst in &insts[block.clone()] {
        inst.registers(|class, access, r| {
            let again = access == Access::Def;
            shared.entry((class, r)).and_modify(|shared| *shared |= again).or_insert(access.reads());
        });
    }
    for inst in insts[..block.start].iter().chain(&insts[block.end..]) {
        inst.registers(|class, _, r| {
            shared.entry((class, r)).and_modify(|shared| *shared = true);
        });
    }
    shared
}

/// Vector registers that are live throughout the loop of a block, which does not mention them.
pub(super) fn live_beside(live: &Liveness, block: &Range<usize>, shared: &FxHashMap<Register, bool>) -> usize {
    let around = |l: &Loop| (l.start as usize) < block.start && block.end <= l.end as usize;
    let Some(innermost) = live.loops.iter().rposition(around) else { return 0 };
    let mentioned: Vec<u32> = shared.keys().map(|&(class, r)| live.values.value(class, r)).collect();
    let vectors = live.heads[innermost].iter().filter(|&v| live.values.class(v) == Class::Vector);
    vectors.filter(|v| !mentioned.contains(v)).count()
}

#[cfg(test)]
mod tests;
