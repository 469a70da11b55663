//! Register allocation: linear scan over live intervals with holes, split around loops.
//!
//! In: a function over virtual registers. Out: an [`Allocation`], the same instructions with physical registers and the
//! spills and reloads between them. Invariant, proven for each allocation by `checker.rs`: every read finds the value
//! that the function names.
//!
//! After Poletto and Sarkar (1999) and Wimmer and Mössenböck (2005). Differences: a value has one place for its whole
//! life except in *transits*, spans of loops that it lives through without being mentioned; in a transit it stays in its
//! register or waits in its spill slot, so that no move is ever needed on an edge of the control flow. A value that
//! loses its register becomes a tiny interval at each mention and the scan runs again, so that no register is reserved
//! for spill code. Of several candidates the one whose deepest mention is least deep loses, then the one with the least
//! mentions (each counting 10 to the power of its depth) for the length of its life; a transit counts as mentioned at the
//! depth outside of its loops. Constants are rematerialized instead of spilled.

pub mod allocation;
pub mod checker;
pub mod liveness;

use crate::codegen::Target;
use crate::codegen::regalloc::allocation::{Allocation, Needs, Place, RegisterFile, Step, Temporaries};
use crate::codegen::regalloc::liveness::{Liveness, before};
use crate::codegen::vcode::operands::{Access, Class, PerClass};
use crate::codegen::vcode::{Function, Inst};
use crate::runtime::{Error, Result};
use rustc_hash::FxHashMap;

type Range = (u32, u32);

/// A span of loops through which a value lives unmentioned.
#[derive(Clone, Debug)]
struct Transit {
    value: u32,
    /// First LoopStart and last LoopEnd.
    first: u32,
    last: u32,
    depth: u8,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Main,
    Transit(u32),
    /// The mention of a spilled value by one instruction.
    Tiny(u32),
    /// A temporary of one instruction.
    Temporary(u32),
}

#[derive(Clone, Debug)]
struct Interval {
    kind: Kind,
    /// The value; unused for a temporary.
    value: u32,
    ranges: Vec<Range>,
    cost: Cost,
}

/// Cost of taking the register away: deepest mention, then weight.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
struct Cost(u8, f32);

const NEVER: Cost = Cost(u8::MAX, f32::INFINITY);

/// Chooses registers. Fails when the function is malformed.
pub fn allocate(function: &Function, target: &Target) -> Result<Allocation> {
    allocate_with(function, &RegisterFile::of(target.isa))
}

/// Variant of [`allocate`] for other sets of registers.
fn allocate_with(function: &Function, file: &RegisterFile) -> Result<Allocation> {
    let live = Liveness::compute(function)?;
    let needs = function.insts.iter().map(file.needs).collect();
    let mut scan = Scan::new(function, file, &live, needs);
    while !scan.round()? {}
    Ok(scan.rewrite())
}

struct Scan<'a> {
    function: &'a Function,
    file: &'a RegisterFile,
    live: &'a Liveness,
    needs: Vec<Needs>,
    /// Ranges of each value without its transits.
    main_ranges: Vec<Vec<Range>>,
    transits: Vec<Transit>,
    transits_of: Vec<Vec<u32>>,
    main_cost: Vec<Cost>,
    /// The constant instruction that writes a value, when it is the only one.
    constant: Vec<Option<u32>>,
    /// Values that would like the same register.
    hints: Vec<Vec<u32>>,
    /// Register that the calling convention gives.
    fixed_hint: Vec<Option<u8>>,
    spilled: Vec<bool>,
    // Result of the last round.
    register: Vec<Option<u8>>,
    transit_kept: Vec<bool>,
    tiny: FxHashMap<(u32, u32), u8>,
    temporaries: FxHashMap<u32, Temporaries>,
}

/// The candidates that are free over an interval, and the register whose intervals in the way cost least to evict.
fn competition(
    intervals: &[Interval],
    interval: &Interval,
    candidates: &[u8],
    assigned: &[Vec<usize>],
) -> (Vec<u8>, Option<(Cost, u8)>) {
    let mut lowest: Option<(Cost, u8)> = None;
    let mut free = vec![];
    for &r in candidates {
        let taken = assigned[r as usize].iter().filter(|&&j| intersects(&intervals[j].ranges, &interval.ranges));
        let cost = taken.map(|&j| intervals[j].cost).fold(None, |a: Option<Cost>, c| match a {
            Some(a) if a >= c => Some(a),
            _ => Some(c),
        });
        match cost {
            None => free.push(r),
            Some(c) if lowest.is_none_or(|l| c < l.0) => lowest = Some((c, r)),
            Some(_) => {}
        }
    }
    (free, lowest)
}

/// Returns true for instructions whose result had best be in the register of what they read first.
fn is_hinted(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::Copy { .. }
            | Inst::VCopy { .. }
            | Inst::Int { .. }
            | Inst::Inside { .. }
            | Inst::LoopStart { .. }
            | Inst::Range { .. }
    )
}

impl<'a> Scan<'a> {
    fn new(function: &'a Function, file: &'a RegisterFile, live: &'a Liveness, needs: Vec<Needs>) -> Scan<'a> {
        let count = live.values.count();
        let mut mentions: Vec<Vec<u32>> = vec![vec![]; count];
        let mut constant = vec![None; count];
        let mut definitions = vec![0u32; count];
        let mut hints = vec![vec![]; count];
        let mut weight = vec![0f32; count];
        let mut deepest = vec![0u8; count];
        for (i, inst) in function.insts.iter().enumerate() {
            let operands = live.operands(i);
            for o in operands {
                let v = o.value as usize;
                mentions[v].push(i as u32);
                let sides = o.access.reads() as u8 + o.access.writes() as u8;
                // the table of arguments is rarely read where a subscript lies outside
                let rare = o.hidden && matches!(inst, Inst::Inside { .. });
                if !rare {
                    weight[v] += f32::from(sides) * 10f32.powi(i32::from(live.depth[i].min(20)));
                    deepest[v] = deepest[v].max(live.depth[i]);
                }
                if o.access.writes() {
                    definitions[v] += 1;
                    constant[v] = (inst.is_constant() && definitions[v] == 1).then_some(i as u32);
                }
            }
            let fused = matches!(inst, Inst::VFmaSum { .. });
            if is_hinted(inst) || fused {
                let reads = operands.iter().filter(|o| o.access == Access::Use).take(if fused { 3 } else { 1 });
                let written = operands.iter().find(|o| o.access == Access::Def);
                for (read, written) in reads.filter_map(|read| Some((read, written?))) {
                    hints[read.value as usize].push(written.value);
                    hints[written.value as usize].push(read.value);
                }
            }
        }
        let mut fixed_hint = vec![None; count];
        for (which, &register) in file.incoming.iter().enumerate() {
            fixed_hint[live.values.incoming(which as u32) as usize] = Some(register);
        }
        let transits = find_transits(live, &mentions);
        let mut transits_of = vec![vec![]; count];
        for (t, transit) in transits.iter().enumerate() {
            transits_of[transit.value as usize].push(t as u32);
        }
        let main_ranges: Vec<Vec<Range>> = (0..count)
            .map(|v| {
                let holes = transits_of[v].iter().map(|&t| {
                    let t: &Transit = &transits[t as usize];
                    (before(t.first), before(t.last) + 2)
                });
                subtract(&live.ranges[v], holes)
            })
            .collect();
        let main_cost = (0..count)
            .map(|v| {
                let length: u32 = main_ranges[v].iter().map(|r| r.1 - r.0).sum();
                Cost(deepest[v], weight[v] / length.max(1) as f32)
            })
            .collect();
        Scan {
            function,
            file,
            live,
            needs,
            main_ranges,
            transit_kept: vec![false; transits.len()],
            transits,
            transits_of,
            main_cost,
            constant,
            hints,
            fixed_hint,
            spilled: vec![false; count],
            register: vec![None; count],
            tiny: FxHashMap::default(),
            temporaries: FxHashMap::default(),
        }
    }

    /// One scan of both classes; true when nothing lost its register that was expected to have one.
    fn round(&mut self) -> Result<bool> {
        self.register.fill(None);
        self.transit_kept.fill(false);
        self.tiny.clear();
        self.temporaries.clear();
        let mut done = true;
        for class in Class::ALL {
            let intervals = self.intervals(class);
            done &= self.scan(class, &intervals)?;
        }
        Ok(done)
    }

    /// The intervals of a class, by start.
    fn intervals(&self, class: Class) -> Vec<Interval> {
        let mut out = vec![];
        for v in 0..self.live.values.count() as u32 {
            let i = v as usize;
            if self.live.values.class(v) != class || self.main_ranges[i].is_empty() || self.spilled[i] {
                continue;
            }
            let (ranges, cost) = (self.main_ranges[i].clone(), self.main_cost[i]);
            out.push(Interval { kind: Kind::Main, value: v, ranges, cost });
            for &t in &self.transits_of[i] {
                let transit = &self.transits[t as usize];
                let ranges = vec![(before(transit.first), before(transit.last) + 2)];
                let length = (ranges[0].1 - ranges[0].0) as f32;
                let cost = Cost(transit.depth, 2.0 * 10f32.powi(i32::from(transit.depth.min(20))) / length);
                out.push(Interval { kind: Kind::Transit(t), value: v, ranges, cost });
            }
        }
        for i in 0..self.function.insts.len() as u32 {
            let position = before(i);
            let mut mentioned: Vec<(u32, Range)> = vec![];
            for o in self.live.operands(i as usize) {
                if o.hidden || !self.spilled[o.value as usize] || self.live.values.class(o.value) != class {
                    continue;
                }
                if self.constant[o.value as usize] == Some(i) {
                    continue;
                }
                let range = match o.access {
                    Access::Use => (position, position + 1),
                    Access::Def => (position + 1, position + 2),
                    Access::UseDef => (position, position + 2),
                };
                match mentioned.iter_mut().find(|m| m.0 == o.value) {
                    Some(m) => m.1 = (m.1.0.min(range.0), m.1.1.max(range.1)),
                    None => mentioned.push((o.value, range)),
                }
            }
            for (value, range) in mentioned {
                out.push(Interval { kind: Kind::Tiny(i), value, ranges: vec![range], cost: NEVER });
            }
            for _ in 0..self.needs[i as usize][class] {
                let ranges = vec![(position, position + 2)];
                out.push(Interval { kind: Kind::Temporary(i), value: u32::MAX, ranges, cost: NEVER });
            }
        }
        out.sort_by_key(|i| (i.ranges[0].0, i.value));
        out
    }

    /// Assigns registers in order of interval starts.
    fn scan(&mut self, class: Class, intervals: &[Interval]) -> Result<bool> {
        let registers = self.file.registers[class];
        // Of each register the assigned intervals that may still be live.
        let mut assigned: Vec<Vec<usize>> = vec![vec![]; 64];
        let mut place: Vec<Option<u8>> = vec![None; intervals.len()];
        let mut done = true;
        for (n, interval) in intervals.iter().enumerate() {
            let start = interval.ranges[0].0;
            for &r in registers {
                assigned[r as usize].retain(|&j| intervals[j].ranges.last().expect("not empty").1 > start);
            }
            let value = interval.value as usize;
            let mut choice = None;
            let candidates: &[u8] = match interval.kind {
                // A transit stays where its value is, or not at all.
                Kind::Transit(_) => match &self.register[value] {
                    Some(r) => std::slice::from_ref(r),
                    None => continue,
                },
                _ => registers,
            };
            let (free, lowest) = competition(intervals, interval, candidates, &assigned);
            if !free.is_empty() {
                choice = Some(self.preferred(interval, &free));
            } else if let Some((cost, r)) = lowest
                && cost < interval.cost
            {
                let (lost, kept) = std::mem::take(&mut assigned[r as usize])
                    .into_iter()
                    .partition::<Vec<_>, _>(|&j| intersects(&intervals[j].ranges, &interval.ranges));
                assigned[r as usize] = kept;
                for j in lost {
                    done &= self.evict(&intervals[j]);
                    place[j] = None;
                    if intervals[j].kind == Kind::Main {
                        // Its transits go with it.
                        let value = intervals[j].value;
                        assigned[r as usize].retain(|&k| intervals[k].value != value);
                    }
                }
                choice = Some(r);
            }
            match choice {
                Some(r) => {
                    assigned[r as usize].push(n);
                    place[n] = Some(r);
                    match interval.kind {
                        Kind::Main => self.register[value] = Some(r),
                        Kind::Transit(t) => self.transit_kept[t as usize] = true,
                        Kind::Tiny(_) | Kind::Temporary(_) => {}
                    }
                }
                None if interval.cost == NEVER => {
                    return Err(Error::Internal(format!(
                        "{}: one instruction needs more registers than there are",
                        self.function.name
                    )));
                }
                None => done &= self.evict(interval),
            }
        }
        self.record(class, intervals, &place);
        Ok(done)
    }

    /// Notes the registers of operands and temporaries of single instructions.
    fn record(&mut self, class: Class, intervals: &[Interval], place: &[Option<u8>]) {
        for (interval, place) in intervals.iter().zip(place) {
            match (interval.kind, place) {
                (Kind::Tiny(i), Some(r)) => {
                    self.tiny.insert((i, interval.value), *r);
                }
                (Kind::Temporary(i), Some(r)) => {
                    self.temporaries.entry(i).or_default()[class].push(*r);
                }
                _ => {}
            }
        }
    }

    /// Takes the register away; true when the round stays valid.
    fn evict(&mut self, interval: &Interval) -> bool {
        match interval.kind {
            Kind::Main => {
                self.spilled[interval.value as usize] = true;
                self.register[interval.value as usize] = None;
                false
            }
            Kind::Transit(t) => {
                self.transit_kept[t as usize] = false;
                true
            }
            Kind::Tiny(_) | Kind::Temporary(_) => unreachable!("never the cheapest"),
        }
    }

    fn preferred(&self, interval: &Interval, free: &[u8]) -> u8 {
        if interval.kind == Kind::Main {
            let v = interval.value as usize;
            let hinted = self.hints[v].iter().filter_map(|&h| self.register[h as usize]).chain(self.fixed_hint[v]);
            for r in hinted {
                if free.contains(&r) {
                    return r;
                }
            }
            // Leave alone what a related value that comes later could keep.
            for &h in &self.hints[v] {
                if let Some(r) = self.fixed_hint[h as usize]
                    && self.register[h as usize].is_none()
                    && free.contains(&r)
                {
                    return r;
                }
            }
        }
        free[0]
    }

    /// The instructions with registers, and the moves.
    fn rewrite(&self) -> Allocation {
        let (function, live) = (self.function, self.live);
        let slots = self.slots();
        let mut out = Allocation { slots: slots.counts, ..Allocation::default() };
        for which in 0..4u32 {
            let v = live.values.incoming(which) as usize;
            if !live.ranges[v].is_empty() {
                out.entry[which as usize] = Some(match self.register[v] {
                    Some(r) => Place::Register(r),
                    None => Place::Slot(slots.of[v].expect("spilled")),
                });
            }
        }
        // Transits that wait in a slot, by first and last instruction.
        let mut starts: FxHashMap<u32, Vec<&Transit>> = FxHashMap::default();
        let mut ends: FxHashMap<u32, Vec<&Transit>> = FxHashMap::default();
        for (t, transit) in self.transits.iter().enumerate() {
            if !self.transit_kept[t] && !self.spilled[transit.value as usize] {
                starts.entry(transit.first).or_default().push(transit);
                ends.entry(transit.last).or_default().push(transit);
            }
        }
        for (i, inst) in function.insts.iter().enumerate() {
            let operands = live.operands(i);
            let i = i as u32;
            for transit in starts.get(&i).into_iter().flatten() {
                let v = transit.value as usize;
                if self.constant[v].is_none() {
                    let register = self.register[v].expect("not spilled");
                    let class = live.values.class(transit.value);
                    out.steps.push(Step::Store { class, register, slot: slots.of[v].expect("a slot") });
                }
            }
            let mut loaded: Vec<u32> = vec![];
            for o in operands.iter().filter(|o| !o.hidden && o.access.reads() && self.spilled[o.value as usize]) {
                if !loaded.contains(&o.value) {
                    loaded.push(o.value);
                    self.reload(o.value, self.tiny[&(i, o.value)], true, &slots, &mut out.steps);
                }
            }
            let dropped =
                operands.iter().any(|o| self.spilled[o.value as usize] && self.constant[o.value as usize] == Some(i));
            if !dropped {
                let mut inst = inst.clone();
                let mut next = operands.iter();
                inst.registers_mut(&mut |_, _, r| {
                    let v = next.next().expect("as many operands").value;
                    *r = u32::from(match self.spilled[v as usize] {
                        true => self.tiny[&(i, v)],
                        false => self.register[v as usize].expect("a register"),
                    });
                });
                let hidden = operands.iter().find(|o| o.hidden).map(|o| match self.register[o.value as usize] {
                    Some(r) => Place::Register(r),
                    None => Place::Slot(slots.of[o.value as usize].expect("spilled")),
                });
                let temporaries = self.temporaries.get(&i).cloned().unwrap_or_default();
                out.steps.push(Step::Inst { origin: i, inst, hidden, temporaries });
                for o in operands.iter().filter(|o| !o.hidden && o.access.writes() && self.spilled[o.value as usize]) {
                    let (class, slot) = (live.values.class(o.value), slots.of[o.value as usize].expect("spilled"));
                    out.steps.push(Step::Store { class, register: self.tiny[&(i, o.value)], slot });
                }
            }
            for transit in ends.get(&i).into_iter().flatten() {
                let register = self.register[transit.value as usize].expect("not spilled");
                self.reload(transit.value, register, false, &slots, &mut out.steps);
            }
        }
        out
    }

    fn reload(&self, v: u32, register: u8, once: bool, slots: &Slots, steps: &mut Vec<Step>) {
        match self.constant[v as usize] {
            Some(origin) => {
                let mut inst = self.function.insts[origin as usize].clone();
                inst.registers_mut(&mut |_, _, r| *r = u32::from(register));
                steps.push(Step::Again { origin, inst, once });
            }
            None => {
                let (class, slot) = (self.live.values.class(v), slots.of[v as usize].expect("spilled"));
                steps.push(Step::Load { class, register, slot, once });
            }
        }
    }

    /// Slots of the values that are in memory at some time; values whose lives do not overlap share one.
    fn slots(&self) -> Slots {
        let count = self.live.values.count();
        let mut hulls: Vec<(Range, u32)> = vec![];
        for v in 0..count {
            let waits = self.transits_of[v].iter().any(|&t| !self.transit_kept[t as usize]);
            if let (Some(first), Some(last)) = (self.live.ranges[v].first(), self.live.ranges[v].last())
                && (self.spilled[v] || waits)
                && self.constant[v].is_none()
            {
                hulls.push(((first.0, last.1), v as u32));
            }
        }
        hulls.sort();
        let mut of = vec![None; count];
        let mut ends: PerClass<Vec<u32>> = PerClass::default();
        for ((start, end), v) in hulls {
            let class = self.live.values.class(v);
            let slot = ends[class].iter().position(|&e| e <= start).unwrap_or_else(|| {
                ends[class].push(0);
                ends[class].len() - 1
            });
            ends[class][slot] = end;
            of[v as usize] = Some(slot as u32);
        }
        Slots { of, counts: PerClass { gpr: ends.gpr.len() as u32, vector: ends.vector.len() as u32 } }
    }
}

struct Slots {
    of: Vec<Option<u32>>,
    counts: PerClass<u32>,
}

/// The spans through which values live unmentioned: the outermost such loops, neighbours in one body joined when the
/// value is not mentioned between them.
fn find_transits(live: &Liveness, mentions: &[Vec<u32>]) -> Vec<Transit> {
    let mentioned = |v: u32, from: u32, to: u32| {
        let list = &mentions[v as usize];
        let first = list.partition_point(|&i| i < from);
        list.get(first).is_some_and(|&i| i <= to)
    };
    // With the number of the last loop of each.
    let mut transits: Vec<(Transit, u32)> = vec![];
    let mut latest: FxHashMap<u32, usize> = FxHashMap::default();
    for (number, l) in live.loops.iter().enumerate() {
        for v in live.heads[number].iter() {
            if mentioned(v, l.start, l.end) {
                continue;
            }
            let around = l.parent.map(|p| (&live.loops[p as usize], p as usize));
            if around.is_some_and(|(p, n)| live.heads[n].contains(v) && !mentioned(v, p.start, p.end)) {
                continue;
            }
            if let Some(&t) = latest.get(&v) {
                let (transit, last) = &mut transits[t];
                if live.loops[*last as usize].region == l.region && !mentioned(v, transit.last, l.start) {
                    transit.last = l.end;
                    *last = number as u32;
                    continue;
                }
            }
            let depth = live.depth[l.start as usize];
            latest.insert(v, transits.len());
            transits.push((Transit { value: v, first: l.start, last: l.end, depth }, number as u32));
        }
    }
    transits.into_iter().map(|t| t.0).collect()
}

fn intersects(a: &[Range], b: &[Range]) -> bool {
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        if a[i].1 <= b[j].0 {
            i += 1;
        } else if b[j].1 <= a[i].0 {
            j += 1;
        } else {
            return true;
        }
    }
    false
}

/// `ranges` without `holes`, both in order.
fn subtract(ranges: &[Range], holes: impl Iterator<Item = Range>) -> Vec<Range> {
    let mut out = ranges.to_vec();
    for hole in holes {
        out = out
            .into_iter()
            .flat_map(|r| [(r.0, r.1.min(hole.0)), (r.0.max(hole.1), r.1)])
            .filter(|r| r.0 < r.1)
            .collect();
    }
    out
}
