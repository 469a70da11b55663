//! List scheduling of innermost loops, for processors that run instructions in program order.
//!
//! In and out: a flat function. The instructions between two branches of an innermost loop are put into another order that keeps
//! every dependence of registers and memory: of those that can start first, with their operands ready and a unit free, the one with the
//! longest path of latencies to the end of the block comes next (Gibbons and Muchnick, 1986), so that loads stand well before what
//! waits for them, and a load and what computes vectors start together. Arguments of a kernel do not overlap. An
//! instruction that would make more registers live than the processor has waits for others that make fewer live. A processor
//! that reorders instructions itself does not gain: its code stays in the order of selection.

mod roots;

use crate::codegen::Target;
use crate::codegen::instruction::TensorInstruction;
use crate::codegen::regalloc::liveness::{Liveness, Loop};
use crate::codegen::select::tree::Root;
use crate::codegen::target::Isa;
use crate::codegen::vcode::operands::{Access, Class, PerClass};
use crate::codegen::vcode::{Addr, Function, Inst};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
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
    let blocks = blocks(&function.insts);
    // What has no live ranges is refused by allocation, with the reason.
    let live = (!blocks.is_empty()).then(|| Liveness::compute(function).ok()).flatten();
    let roots = roots::roots(&function.insts, function.gprs);
    for block in blocks {
        let reserved = usize::from(!function.insts[block.clone()].iter().all(is_one_instruction));
        let shared = shared_registers(&function.insts, &block);
        let beside = reserved + live.as_ref().map_or(0, |live| live_beside(live, &block, &shared));
        let limit = PerClass { gpr: GPRS, vector: target.vector_registers.saturating_sub(beside) };
        let insts = &function.insts[block.clone()];
        let order = Block::new(insts, target, &shared, &function.instructions, &roots).order(limit);
        let ordered: Vec<Inst> = order.into_iter().map(|i| function.insts[block.start + i].clone()).collect();
        function.insts[block].clone_from_slice(&ordered);
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

type Register = (Class, u32);

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

/// The part of a cycle that an instruction occupies when it starts. A cycle has room for two instructions, of which one may be a load or
/// a store and one may compute vectors, as on Cortex-A55, whose two vector units take half a register each.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Unit {
    Memory,
    Vector,
    /// All of the cycle: nothing starts beside a dot product.
    Whole,
    Other,
}

/// Instructions that start in one cycle.
const WIDTH: usize = 2;

impl Unit {
    /// The unit of an instruction; `rows` are those of its function.
    fn of(inst: &Inst, rows: &[TensorInstruction]) -> Unit {
        match inst {
            Inst::VTensor { row: name, .. } => {
                let several = rows.iter().any(|row| row.name == *name && row.terms() > 1);
                if several { Unit::Whole } else { Unit::Vector }
            }
            Inst::LoadInt { .. } | Inst::Prefetch { .. } => Unit::Memory,
            _ if inst.lanes().is_some() || inst.writes_memory() => Unit::Memory,
            _ if inst.ty().is_some() => Unit::Vector,
            _ => Unit::Other,
        }
    }
}

/// The cycle at hand, and what has started in it.
#[derive(Default)]
struct Cycle {
    now: usize,
    started: Vec<Unit>,
}

impl Cycle {
    /// The earliest cycle in which an instruction finds room, if no other comes before it.
    fn start(&self, unit: Unit) -> usize {
        let full = self.started.len() >= WIDTH || self.started.contains(&Unit::Whole);
        let taken = match unit {
            Unit::Memory | Unit::Vector => self.started.contains(&unit),
            Unit::Whole => !self.started.is_empty(),
            Unit::Other => false,
        };
        self.now + usize::from(full || taken)
    }

    fn issue(&mut self, unit: Unit, at: usize) {
        if at > self.now {
            (self.now, self.started) = (at, vec![]);
        }
        self.started.push(unit);
    }
}

/// A block and the dependences between its instructions, which have positions.
struct Block<'a> {
    insts: &'a [Inst],
    /// The instructions that must follow each one.
    successors: Vec<Vec<usize>>,
    /// How many must come before each one.
    predecessors: Vec<usize>,
    /// Cycles from the start of each one until its result can be used.
    latency: Vec<usize>,
    units: Vec<Unit>,
    /// True for the first of two stores that stay neighbours.
    paired: Vec<bool>,
    /// The reads of each register that is written and read in this block alone.
    reads: FxHashMap<Register, usize>,
    /// Registers in use throughout.
    fixed: PerClass<usize>,
}

impl<'a> Block<'a> {
    fn new(
        insts: &'a [Inst],
        target: &Target,
        shared: &FxHashMap<Register, bool>,
        rows: &[TensorInstruction],
        roots: &[Option<Root>],
    ) -> Block<'a> {
        let mut fixed = PerClass::default();
        shared.iter().filter(|(_, shared)| **shared).for_each(|((class, _), _)| fixed[*class] += 1);
        let mut reads: FxHashMap<Register, usize> = FxHashMap::default();
        for inst in insts {
            inst.registers(|class, access, r| {
                if access.reads() && !shared[&(class, r)] {
                    *reads.entry((class, r)).or_insert(0) += 1;
                }
            });
        }
        let mut before = dependences(insts, roots);
        let paired = pairs(insts);
        for first in (0..insts.len()).filter(|&i| paired[i]) {
            let of_second: Vec<usize> = before[first + 1].iter().copied().filter(|&i| i != first).collect();
            before[first].extend(of_second);
            before[first + 1].insert(first);
        }
        let mut successors = vec![vec![]; insts.len()];
        for (to, before) in before.iter().enumerate() {
            before.iter().for_each(|&from| Vec::push(&mut successors[from], to));
        }
        let predecessors = before.iter().map(BTreeSet::len).collect();
        let latency = insts.iter().map(|inst| latency(inst, target)).collect();
        let units = insts.iter().map(|inst| Unit::of(inst, rows)).collect();
        Block { insts, successors, predecessors, latency, units, paired, reads, fixed }
    }

    /// The longest path of latencies from the start of each instruction to the end of the block.
    fn heights(&self) -> Vec<usize> {
        let mut heights = self.latency.clone();
        for i in (0..self.insts.len()).rev() {
            let behind = self.successors[i].iter().map(|&to| heights[to]).max().unwrap_or(0);
            heights[i] += behind;
        }
        heights
    }

    /// The positions of the instructions in their new order.
    fn order(mut self, limit: PerClass<usize>) -> Vec<usize> {
        let heights = self.heights();
        let mut ready_at = vec![0; self.insts.len()];
        let mut candidates: Vec<usize> = (0..self.insts.len()).filter(|&i| self.predecessors[i] == 0).collect();
        let (mut order, mut live): (Vec<usize>, _) = (vec![], self.fixed);
        let mut cycle = Cycle::default();
        while !candidates.is_empty() {
            let fits = |i: &usize| {
                let change = self.pressure(*i);
                Class::ALL.iter().all(|&c| change[c] <= 0 || live[c] as i64 + change[c] <= limit[c] as i64)
            };
            let start = |i: usize| ready_at[i].max(cycle.start(self.units[i]));
            // what starts first, then what is most urgent, then the order of selection
            let rank = |&i: &usize| (start(i), usize::MAX - heights[i], i);
            let second = order.last().filter(|&&last| self.paired[last]).map(|last| *last + 1);
            let next = second.or_else(|| candidates.iter().copied().filter(fits).min_by_key(rank));
            // registers lack: the order of selection
            let Some(next) = next.or_else(|| candidates.iter().copied().min()) else { break };
            let now = start(next);
            cycle.issue(self.units[next], now);
            candidates.retain(|&i| i != next);
            for class in Class::ALL {
                live[class] = (live[class] as i64 + self.pressure(next)[class]).max(0) as usize;
            }
            self.finish_reads(next);
            for to in self.successors[next].clone() {
                ready_at[to] = ready_at[to].max(now + self.latency[next]);
                self.predecessors[to] -= 1;
                if self.predecessors[to] == 0 {
                    candidates.push(to);
                }
            }
            order.push(next);
        }
        order
    }

    /// Registers that become live, less those that are read for the last time.
    fn pressure(&self, i: usize) -> PerClass<i64> {
        let mut change = PerClass::default();
        let mut seen: Vec<Register> = vec![];
        self.insts[i].registers(|class, access, r| {
            let Some(&left) = self.reads.get(&(class, r)) else { return };
            let again = seen.iter().filter(|s| **s == (class, r)).count();
            seen.push((class, r));
            if access.reads() && left == again + 1 {
                change[class] -= 1;
            }
            if access == Access::Def && left > 0 {
                change[class] += 1;
            }
        });
        change
    }

    fn finish_reads(&mut self, i: usize) {
        self.insts[i].registers(|class, access, r| {
            if access.reads()
                && let Some(left) = self.reads.get_mut(&(class, r))
            {
                *left -= 1;
            }
        });
    }
}

/// The instructions that must come before each one: those that write what it reads, and those that access what it writes.
fn dependences(insts: &[Inst], roots: &[Option<Root>]) -> Vec<BTreeSet<usize>> {
    let mut before = vec![BTreeSet::new(); insts.len()];
    let mut writer: FxHashMap<Register, usize> = FxHashMap::default();
    let mut readers: FxHashMap<Register, Vec<usize>> = FxHashMap::default();
    let mut accesses: Vec<(usize, MemoryAccess)> = vec![];
    for (i, inst) in insts.iter().enumerate() {
        if let Some(access) = MemoryAccess::of(inst, roots, |r| writer.get(&(Class::Gpr, r)).copied()) {
            before[i].extend(accesses.iter().filter(|(_, earlier)| earlier.orders(&access)).map(|earlier| earlier.0));
            accesses.push((i, access));
        }
        inst.registers(|class, access, r| {
            let register = (class, r);
            before[i].extend(writer.get(&register).filter(|&&w| w != i));
            if access.writes() {
                before[i]
                    .extend(readers.remove(&register).unwrap_or_default().into_iter().filter(|&reader| reader != i));
                writer.insert(register, i);
            } else {
                readers.entry(register).or_default().push(i);
            }
        });
    }
    before
}

/// The memory that an instruction reads or writes.
struct MemoryAccess {
    writes: bool,
    /// The root of the address, where it is known.
    root: Option<Root>,
    /// The registers of the address, without displacement, with the instructions that wrote them last, and the bytes behind it;
    /// `None` where these are not known.
    bytes: Option<(Addr, [Option<usize>; 2], Range<i64>)>,
}

impl MemoryAccess {
    /// The access of an instruction, where it has one; `writer` tells which instruction of the block wrote a register last.
    fn of(inst: &Inst, roots: &[Option<Root>], writer: impl Fn(u32) -> Option<usize>) -> Option<MemoryAccess> {
        let writes = inst.writes_memory();
        let lanes = inst.lanes();
        let integer = match *inst {
            Inst::LoadInt { mem, addr, .. } | Inst::StoreInt { mem, addr, .. } => Some((addr, mem)),
            _ => None,
        };
        if lanes.is_none() && integer.is_none() {
            return None;
        }
        let base = lanes.map(|l| l.addr.base).or(integer.map(|(addr, _)| addr.base));
        let root = base.and_then(|r| roots[r.index()]);
        let written = |a: Addr| [writer(a.base.0), a.index.and_then(|(r, _)| writer(r.0))];
        let bytes = lanes.filter(|_| !matches!(inst, Inst::VGatherIndex { .. })).map(|l| {
            let ends =
                [l.first, l.first + l.count.max(1) - 1].map(|lane| l.stride * lane as i64 + i64::from(l.addr.disp));
            (l.addr, ends[0].min(ends[1])..ends[0].max(ends[1]) + l.mem.bytes() as i64)
        });
        let bytes = bytes.or(integer.map(|(addr, mem)| {
            let start = i64::from(addr.disp);
            (addr, start..start + mem.bytes() as i64)
        }));
        let bytes = bytes.map(|(addr, range)| (Addr { disp: 0, ..addr }, written(addr), range));
        Some(MemoryAccess { writes, root, bytes })
    }

    /// Returns true if two accesses may not be exchanged.
    fn orders(&self, later: &MemoryAccess) -> bool {
        let apart = match (&self.bytes, &later.bytes) {
            (Some((a, v, x)), Some((b, w, y))) => (a, v) == (b, w) && (x.end <= y.start || y.end <= x.start),
            _ => false,
        };
        let elsewhere = self.root.zip(later.root).is_some_and(|(a, b)| a != b);
        (self.writes || later.writes) && !apart && !elsewhere
    }
}

/// Finds stores of whole neighbouring vectors, which one instruction may do: true for the first of two.
fn pairs(insts: &[Inst]) -> Vec<bool> {
    let place = |inst: &Inst| match inst {
        Inst::VStore { ty, addr, part: None, .. } if addr.index.is_none() => {
            Some((addr.base, i64::from(addr.disp), ty.bytes() as i64))
        }
        _ => None,
    };
    let mut paired = vec![false; insts.len()];
    for i in 1..insts.len() {
        let (Some(a), Some(b)) = (place(&insts[i - 1]), place(&insts[i])) else { continue };
        let neighbours = (a.0, a.2) == (b.0, b.2) && (a.1 - b.1).abs() == a.2;
        paired[i - 1] = neighbours && !(i > 1 && paired[i - 2]);
    }
    paired
}

/// Cycles until the result of an instruction can be used.
fn latency(inst: &Inst, target: &Target) -> usize {
    let machine = &target.machine;
    match inst {
        Inst::Prefetch { .. } => 1,
        _ if inst.writes_memory() => 1,
        _ if inst.lanes().is_some() || matches!(inst, Inst::LoadInt { .. }) => machine.load_latency,
        // of one instruction or several
        _ if inst.ty().is_some() => machine.fma_latency,
        _ => 1,
    }
}

#[cfg(test)]
mod tests;
