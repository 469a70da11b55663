//! A block of instructions in another order, by list scheduling.
//!
//! In: the instructions between two branches. Out: their positions in an order that keeps every dependence of registers and memory, and
//! that leaves no instruction without a register where there is such an order.

use crate::codegen::Target;
use crate::codegen::instruction::TensorInstruction;
use crate::codegen::select::list_scheduling::depth_first;
use crate::codegen::select::tree::Root;
use crate::codegen::vcode::operands::{Access, Class, PerClass};
use crate::codegen::vcode::{Addr, Inst};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::iter::successors;
use std::ops::Range;

pub type Register = (Class, u32);

/// The target, and the surroundings of a block.
pub struct Surroundings<'a> {
    pub target: &'a Target,
    /// The registers of the block, and whether they count as live in all of it.
    pub shared: &'a FxHashMap<Register, bool>,
    /// Tensor instructions of the function.
    pub rows: &'a [TensorInstruction],
    /// The root that each register points into, where that is known.
    pub roots: &'a [Option<Root>],
}

/// The part of a cycle that an instruction occupies when it starts. A cycle has room for three instructions, of which one may be a load or
/// a store and two may compute vectors, as on Cortex-A510. A core that starts fewer runs the same order: there the distance of a result
/// from what waits for it is greater.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Unit {
    Memory,
    Vector,
    /// All of the cycle: nothing starts beside a dot product.
    Whole,
    Other,
}

/// Instructions that start in one cycle, and of these those that compute vectors.
const WIDTH: usize = 3;
const VECTORS: usize = 2;

impl Unit {
    /// The unit of an instruction; `rows` are those of its function.
    fn of(inst: &Inst, rows: &[TensorInstruction]) -> Unit {
        match inst {
            Inst::VTensor { row: name, .. } => {
                let several = rows.iter().any(|row| row.name == *name && row.terms() > 1);
                if several { Unit::Whole } else { Unit::Vector }
            }
            Inst::LoadInt { .. } | Inst::Prefetch { .. } => Unit::Memory,
            _ if inst.is_loaded_constant() => Unit::Memory,
            _ if inst.lanes().is_some() || inst.writes_memory() => Unit::Memory,
            _ if inst.ty().is_some() => Unit::Vector,
            _ => Unit::Other,
        }
    }
}

/// The cycle at hand, and what has started in it.
#[derive(Default)]
pub struct Cycle {
    pub now: usize,
    started: Vec<Unit>,
}

impl Cycle {
    /// The earliest cycle in which an instruction finds room, if no other comes before it.
    pub fn start(&self, unit: Unit) -> usize {
        let full = self.started.len() >= WIDTH || self.started.contains(&Unit::Whole);
        let count = |unit: Unit| self.started.iter().filter(|&&started| started == unit).count();
        let taken = match unit {
            Unit::Memory => count(unit) > 0,
            Unit::Vector => count(unit) >= VECTORS,
            Unit::Whole => !self.started.is_empty(),
            Unit::Other => false,
        };
        self.now + usize::from(full || taken)
    }

    pub fn issue(&mut self, unit: Unit, at: usize) {
        if at > self.now {
            (self.now, self.started) = (at, vec![]);
        }
        self.started.push(unit);
    }
}

/// A block and the dependences between its instructions, which have positions.
pub struct Block<'a> {
    insts: &'a [Inst],
    /// The accesses of each one to registers of this loop alone.
    accesses: Vec<Vec<(Register, Access)>>,
    /// The instructions that must follow each one.
    successors: Vec<Vec<usize>>,
    /// How many must come before each one.
    predecessors: Vec<usize>,
    /// Pairs of instructions of which the second reads a register that the first writes: it waits for the result.
    values: FxHashSet<(usize, usize)>,
    /// Cycles from the start of each one until its result can be used.
    pub latency: Vec<usize>,
    pub units: Vec<Unit>,
    /// True for the first of two stores that stay neighbours.
    paired: Vec<bool>,
    /// The reads of each register that is written and read in this loop alone; of one that an earlier iteration wrote, those up to where
    /// it is written again.
    reads: FxHashMap<Register, usize>,
    /// The reads of a register that an earlier iteration wrote behind the place where it is written again, and one of the next iteration.
    again: FxHashMap<Register, usize>,
    /// Registers in use throughout.
    fixed: PerClass<usize>,
}

impl<'a> Block<'a> {
    pub fn new(insts: &'a [Inst], of: &Surroundings) -> Block<'a> {
        let mut fixed = PerClass::default();
        of.shared.iter().filter(|(_, shared)| **shared).for_each(|((class, _), _)| fixed[*class] += 1);
        let (reads, again) = reads(insts, of.shared);
        let accesses = insts.iter().map(|inst| own_accesses(inst, of.shared)).collect();
        let (mut before, values) = dependences(insts, of.roots);
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
        let latency = insts.iter().map(|inst| latency(inst, of.target)).collect();
        let units = insts.iter().map(|inst| Unit::of(inst, of.rows)).collect();
        Block { insts, accesses, successors, predecessors, values, latency, units, paired, reads, again, fixed }
    }

    /// The registers of this loop alone that are written before they are read.
    pub fn local(&self) -> FxHashSet<Register> {
        self.reads.keys().filter(|register| !self.again.contains_key(register)).copied().collect()
    }

    /// Cycles from the start of an instruction to that of one which must follow it.
    fn delay(&self, from: usize, to: usize) -> usize {
        if self.values.contains(&(from, to)) { self.latency[from] } else { 0 }
    }

    /// The longest path of latencies from the start of each instruction to the end of the block.
    fn heights(&self) -> Vec<usize> {
        let mut heights = self.latency.clone();
        for i in (0..self.insts.len()).rev() {
            let behind = self.successors[i].iter().map(|&to| heights[to] + self.delay(i, to)).max().unwrap_or(0);
            heights[i] = heights[i].max(behind);
        }
        heights
    }

    /// The positions of the instructions in their new order: by urgency alone where the registers suffice. Where they do not, near the
    /// order that computes one result after the other, in the widest window of it that leaves no instruction without a register.
    pub fn order(&self, limit: PerClass<usize>) -> Attempt {
        let ends = |i: usize| self.insts[i].writes_memory() || self.successors[i].is_empty();
        self.near(limit, usize::MAX, || depth_first::order(&self.successors, ends))
    }

    /// As `order`, with another order that needs few registers; it ends where more than `most` instructions find no register.
    pub fn near(&self, limit: PerClass<usize>, most: usize, near: impl Fn() -> Vec<usize>) -> Attempt {
        let heights = self.heights();
        let all: Vec<usize> = (0..self.insts.len()).collect();
        let mut best = self.within(&all, all.len(), &heights, limit, most);
        if best.forced == 0 {
            return best;
        }
        let near = near();
        let mut places = vec![0; near.len()];
        near.iter().enumerate().for_each(|(place, &i)| places[i] = near.len() - place);
        for window in successors(Some(near.len()), |&window| (window > 1).then_some(window / 2)) {
            for urgency in [&heights, &places] {
                let attempt = self.within(&near, window, urgency, limit, best.forced);
                if (attempt.forced, attempt.cycles) < (best.forced, best.cycles) {
                    best = attempt;
                }
            }
            if best.forced == 0 {
                break;
            }
        }
        best
    }

    /// Schedules by urgency, where an instruction waits for those of `near` that stand `window` places before it there. The order ends
    /// where more than `most` instructions find no register.
    fn within(&self, near: &[usize], window: usize, urgency: &[usize], limit: PerClass<usize>, most: usize) -> Attempt {
        let mut place = vec![0; near.len()];
        near.iter().enumerate().for_each(|(position, &i)| place[i] = position);
        let mut state = State::new(self);
        let mut ready_at = vec![0; self.insts.len()];
        let (mut first, mut cycle) = (0, Cycle::default());
        let mut attempt = Attempt::default();
        while !state.ready.is_empty() && attempt.forced <= most {
            first += near[first..].iter().take_while(|&&i| state.done[i]).count();
            let fits = |i: &usize| {
                let change = state.pressure(*i);
                let few = |c: Class| change[c] <= 0 || state.live[c] + change[c] <= limit[c] as i64;
                place[*i] < first + window && Class::ALL.into_iter().all(few)
            };
            let start = |i: usize| ready_at[i].max(cycle.start(self.units[i]));
            // what starts first, then what is most urgent, then the order of selection
            let rank = |&i: &usize| (start(i), usize::MAX - urgency[i], i);
            let second = attempt.order.last().filter(|&&last| self.paired[last]).map(|last| *last + 1);
            let next = second.or_else(|| state.ready.iter().copied().filter(fits).min_by_key(rank));
            let Some(next) = next.or_else(|| {
                // registers lack
                attempt.forced += 1;
                state.ready.iter().copied().min_by_key(|&i| place[i])
            }) else {
                break;
            };
            let now = start(next);
            cycle.issue(self.units[next], now);
            attempt.cycles = attempt.cycles.max(now + self.latency[next]);
            for &to in &self.successors[next] {
                ready_at[to] = ready_at[to].max(now + self.delay(next, to));
            }
            state.schedule(next);
            attempt.order.push(next);
        }
        attempt
    }
}

/// An order, the cycles that it takes, and how many of its instructions found no register free.
#[derive(Default)]
pub struct Attempt {
    pub order: Vec<usize>,
    cycles: usize,
    pub forced: usize,
}

/// The state of scheduling.
struct State<'a> {
    block: &'a Block<'a>,
    done: Vec<bool>,
    /// Instructions of which all that must come before them is scheduled.
    ready: Vec<usize>,
    /// How many must come before each one.
    predecessors: Vec<usize>,
    /// Reads that are left of each register of the block.
    reads: FxHashMap<Register, usize>,
    live: PerClass<i64>,
}

impl<'a> State<'a> {
    fn new(block: &'a Block<'a>) -> State<'a> {
        let ready = (0..block.insts.len()).filter(|&i| block.predecessors[i] == 0).collect();
        let mut live = PerClass { gpr: block.fixed.gpr as i64, vector: block.fixed.vector as i64 };
        block.again.keys().for_each(|(class, _)| live[*class] += 1);
        let (predecessors, reads) = (block.predecessors.clone(), block.reads.clone());
        State { block, done: vec![false; block.insts.len()], ready, predecessors, reads, live }
    }

    fn schedule(&mut self, i: usize) {
        self.ready.retain(|&r| r != i);
        self.done[i] = true;
        let change = self.pressure(i);
        for class in Class::ALL {
            self.live[class] = (self.live[class] + change[class]).max(0);
        }
        for (register, access) in &self.block.accesses[i] {
            if access.reads()
                && let Some(left) = self.reads.get_mut(register)
            {
                *left -= 1;
            }
            if *access == Access::Def
                && let Some(&reads) = self.block.again.get(register)
            {
                self.reads.insert(*register, reads);
            }
        }
        for &to in &self.block.successors[i] {
            self.predecessors[to] -= 1;
            if self.predecessors[to] == 0 {
                self.ready.push(to);
            }
        }
    }

    /// Registers that become live, less those that are read for the last time.
    fn pressure(&self, i: usize) -> PerClass<i64> {
        let mut change = PerClass::default();
        let accesses = &self.block.accesses[i];
        for (k, (register, access)) in accesses.iter().enumerate() {
            let Some(&left) = self.reads.get(register) else { continue };
            let earlier = accesses[..k].iter().filter(|earlier| earlier.0 == *register).count();
            if access.reads() && left == earlier + 1 {
                change[register.0] -= 1;
            }
            if *access == Access::Def && (left > 0 || self.block.again.contains_key(register)) {
                change[register.0] += 1;
            }
        }
        change
    }
}

/// The accesses of an instruction to registers that are not shared.
fn own_accesses(inst: &Inst, shared: &FxHashMap<Register, bool>) -> Vec<(Register, Access)> {
    let mut accesses = vec![];
    inst.registers(|class, access, r| {
        if !shared[&(class, r)] {
            accesses.push(((class, r), access));
        }
    });
    accesses
}

type Reads = FxHashMap<Register, usize>;

/// See [`Block`].
fn reads(insts: &[Inst], shared: &FxHashMap<Register, bool>) -> (Reads, Reads) {
    let (mut reads, mut again) = (Reads::default(), Reads::default());
    let mut written = FxHashSet::default();
    let mut late = Reads::default();
    for inst in insts {
        inst.registers(|class, access, r| {
            let register = (class, r);
            if shared[&register] {
                return;
            }
            if access.reads() && !written.contains(&register) {
                *reads.entry(register).or_insert(0) += 1;
            } else if access.reads() {
                *late.entry(register).or_insert(0) += 1;
            }
            if access == Access::Def {
                written.insert(register);
            }
        });
    }
    for register in written {
        let late = late.get(&register).copied().unwrap_or(0);
        match reads.entry(register) {
            Entry::Occupied(_) => {
                again.insert(register, late + 1);
            }
            Entry::Vacant(none) => {
                none.insert(late);
            }
        }
    }
    (reads, again)
}

/// The instructions that must come before each one: those that write what it reads, and those that access what it writes; and the
/// pairs of which the second reads what the first writes.
fn dependences(insts: &[Inst], roots: &[Option<Root>]) -> (Vec<BTreeSet<usize>>, FxHashSet<(usize, usize)>) {
    let mut before = vec![BTreeSet::new(); insts.len()];
    let mut values = FxHashSet::default();
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
            if let Some(&from) = writer.get(&register).filter(|&&from| from != i) {
                before[i].insert(from);
                if access.reads() {
                    values.insert((from, i));
                }
            }
            if access.writes() {
                before[i]
                    .extend(readers.remove(&register).unwrap_or_default().into_iter().filter(|&reader| reader != i));
                writer.insert(register, i);
            } else {
                readers.entry(register).or_default().push(i);
            }
        });
    }
    (before, values)
}

/// The memory that an instruction reads or writes.
struct MemoryAccess {
    writes: bool,
    /// The root of the address, where it is known; of a subscript that is compared with its extent, those of its extremes.
    roots: [Option<Root>; 2],
    /// The registers of the address, without displacement, with the instructions that wrote them last, and the bytes behind it;
    /// `None` where these are not known.
    bytes: Option<(Addr, [Option<usize>; 2], Range<i64>)>,
}

impl MemoryAccess {
    /// The access of an instruction, where it has one; `writer` tells which instruction of the block wrote a register last.
    fn of(inst: &Inst, roots: &[Option<Root>], writer: impl Fn(u32) -> Option<usize>) -> Option<MemoryAccess> {
        if let Inst::Inside { least, greatest, .. } = *inst {
            let roots = [least, greatest].map(|slot| Some(Root::Argument(slot)));
            return Some(MemoryAccess { writes: true, roots, bytes: None });
        }
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
        Some(MemoryAccess { writes, roots: [root; 2], bytes })
    }

    /// Returns true if two accesses may not be exchanged.
    fn orders(&self, later: &MemoryAccess) -> bool {
        let apart = match (&self.bytes, &later.bytes) {
            (Some((a, v, x)), Some((b, w, y))) => (a, v) == (b, w) && (x.end <= y.start || y.end <= x.start),
            _ => false,
        };
        let differ = |(a, b): (&Option<Root>, &Option<Root>)| a.zip(*b).is_some_and(|(a, b)| a != b);
        let mut pairs = self.roots.iter().flat_map(|a| later.roots.iter().map(move |b| (a, b)));
        let elsewhere = pairs.all(differ);
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
        Inst::LoadInt { .. } => machine.load_latency,
        _ if inst.lanes().is_some() || inst.is_loaded_constant() => machine.load_latency,
        // of one instruction or several
        _ if inst.ty().is_some() => machine.fma_latency,
        _ => 1,
    }
}
