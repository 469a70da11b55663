//! Live ranges over structured control flow.
//!
//! In: a function. Out: for each value the positions where it is live, precise to the instruction: backward dataflow
//! with the set live at the head of each loop as the only unknown (a few passes reach its fixpoint).
//!
//! Instruction `i` reads at position `2i + 2` and writes at `2i + 3`; the arguments of the calling convention are written
//! at position 1. A range `(a, b)` holds the positions `a..b`. A value that survives only the path around a body (a loop
//! not entered, a condition that fails) is not live in the part of the body before it is written there.

use crate::codegen::regalloc::allocation::{ValueOperand, Values};
use crate::codegen::vcode::{Function, Inst};
use crate::runtime::{Error, Result};

/// The position where instruction `i` reads.
pub fn before(i: u32) -> u32 {
    2 * i + 2
}

/// A set of values.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ValueSet(Vec<u64>);

impl ValueSet {
    pub fn new(count: usize) -> ValueSet {
        ValueSet(vec![0; count.div_ceil(64)])
    }
    pub fn contains(&self, v: u32) -> bool {
        self.0[v as usize / 64] >> (v % 64) & 1 != 0
    }
    pub fn insert(&mut self, v: u32) {
        self.0[v as usize / 64] |= 1 << (v % 64);
    }
    pub fn remove(&mut self, v: u32) {
        self.0[v as usize / 64] &= !(1 << (v % 64));
    }
    /// Adds `other` and calls `f` on each value that was not there.
    fn merge(&mut self, other: &ValueSet, mut f: impl FnMut(u32)) {
        for (w, (mine, theirs)) in self.0.iter_mut().zip(&other.0).enumerate() {
            let mut new = theirs & !*mine;
            *mine |= theirs;
            while new != 0 {
                f(w as u32 * 64 + new.trailing_zeros());
                new &= new - 1;
            }
        }
    }
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0
            .iter()
            .enumerate()
            .flat_map(|(w, &bits)| (0..64u32).filter(move |b| bits >> b & 1 != 0).map(move |b| w as u32 * 64 + b))
    }
}

/// A loop of the function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loop {
    /// Indices of LoopStart and LoopEnd.
    pub start: u32,
    pub end: u32,
    pub parent: Option<u32>,
    /// The body (loop or conditional, 0 for the function) in which the loop itself stands.
    pub region: u32,
}

/// A function with its control structure, operands and live ranges.
pub struct Liveness {
    pub values: Values,
    pub loops: Vec<Loop>,
    /// For LoopStart and LoopEnd the number of the loop.
    pub loop_number: Vec<u32>,
    /// Number of loops around each instruction; a LoopStart stands outside of its loop, a LoopEnd inside.
    pub depth: Vec<u8>,
    operands: Vec<ValueOperand>,
    operand_start: Vec<u32>,
    /// Values live at the head of each loop.
    pub heads: Vec<ValueSet>,
    /// Of each value, in order, disjoint.
    pub ranges: Vec<Vec<(u32, u32)>>,
}

impl Liveness {
    /// Fails when loops and conditionals do not nest, a register number is too large, or a value may be read before it
    /// is written.
    pub fn compute(function: &Function) -> Result<Liveness> {
        let mut live = Liveness::structure(function)?;
        while live.pass(function, &mut None) {}
        let mut ranges = Some(vec![vec![]; live.values.count()]);
        live.pass(function, &mut ranges);
        live.ranges = ranges.expect("still there");
        for (v, ranges) in live.ranges.iter_mut().enumerate() {
            ranges.reverse();
            let incoming = (0..4).any(|i| live.values.incoming(i) == v as u32);
            if !incoming && ranges.first().is_some_and(|r| r.0 == 1) {
                let name = live.values.name(v as u32);
                return Err(Error::Internal(format!(
                    "{}: {name} may be read before it is written (a loop that may run zero times does not count)",
                    function.name
                )));
            }
        }
        Ok(live)
    }

    /// The operands of instruction `i`.
    pub fn operands(&self, i: usize) -> &[ValueOperand] {
        &self.operands[self.operand_start[i] as usize..self.operand_start[i + 1] as usize]
    }

    fn structure(function: &Function) -> Result<Liveness> {
        let wrong = |what: &str| Error::Internal(format!("{}: {what}", function.name));
        let values = Values::of(function);
        let (mut loops, mut depth): (Vec<Loop>, _) = (vec![], vec![]);
        let mut loop_number = vec![0; function.insts.len()];
        let (mut operands, mut operand_start) = (vec![], vec![0]);
        // Open bodies: region number and the loop, when it is one.
        let mut open: Vec<(u32, Option<u32>)> = vec![(0, None)];
        let mut regions = 0;
        for (i, inst) in function.insts.iter().enumerate() {
            let mut level = open.iter().filter(|o| o.1.is_some()).count();
            match inst {
                Inst::LoopStart { .. } => {
                    let number = loops.len() as u32;
                    loop_number[i] = number;
                    let parent = open.iter().rev().find_map(|o| o.1);
                    let region = open.last().expect("the function").0;
                    loops.push(Loop { start: i as u32, end: 0, parent, region });
                    regions += 1;
                    open.push((regions, Some(number)));
                }
                Inst::LoopEnd => {
                    let Some((_, Some(number))) = open.pop() else { return Err(wrong("LoopEnd without LoopStart")) };
                    loops[number as usize].end = i as u32;
                    loop_number[i] = number;
                }
                Inst::IfStart { .. } => {
                    regions += 1;
                    open.push((regions, None));
                }
                Inst::IfEnd if !matches!(open.pop(), Some((r, None)) if r != 0) => {
                    return Err(wrong("IfEnd without IfStart"));
                }
                _ => {}
            }
            if let Inst::LoopEnd = inst {
                level = open.iter().filter(|o| o.1.is_some()).count() + 1;
            }
            depth.push(level as u8);
            values.operands(inst, loop_number[i], &mut operands);
            operand_start.push(operands.len() as u32);
        }
        if open.len() != 1 {
            return Err(wrong("a body is not closed"));
        }
        let too_large = function.insts.iter().any(|inst| {
            let mut bad = false;
            inst.registers(|class, _, r| bad |= r >= function.registers()[class]);
            bad
        });
        if too_large {
            return Err(wrong("a register number exceeds the count of the function"));
        }
        let heads = vec![ValueSet::new(values.count()); loops.len()];
        Ok(Liveness { values, loops, loop_number, depth, operands, operand_start, heads, ranges: vec![] })
    }

    /// One backward pass; true when the set at the head of some loop grew. Ranges are built, last first, when asked for.
    fn pass(&mut self, function: &Function, ranges: &mut Option<Vec<Vec<(u32, u32)>>>) -> bool {
        let mut live = ValueSet::new(self.values.count());
        let mut end = vec![0u32; self.values.count()];
        let mut after: Vec<ValueSet> = vec![];
        let mut changed = false;
        for (i, inst) in function.insts.iter().enumerate().rev() {
            let position = before(i as u32);
            let number = self.loop_number[i] as usize;
            match inst {
                Inst::LoopEnd => {
                    after.push(live.clone());
                    live.merge(&self.heads[number], |v| end[v as usize] = position + 2);
                }
                Inst::IfEnd => after.push(live.clone()),
                Inst::LoopStart { at_least_once, .. } => {
                    if self.heads[number] != live {
                        self.heads[number] = live.clone();
                        changed = true;
                    }
                    let after = after.pop().expect("matched");
                    if !at_least_once {
                        live.merge(&after, |v| end[v as usize] = position + 2);
                    }
                }
                Inst::IfStart { .. } => {
                    let after = after.pop().expect("matched");
                    live.merge(&after, |v| end[v as usize] = position + 2);
                }
                _ => {}
            }
            for o in self.operands(i).iter().filter(|o| o.access.writes()) {
                let v = o.value as usize;
                if !live.contains(o.value) {
                    end[v] = position + 2;
                }
                live.remove(o.value);
                if o.access.reads() {
                    live.insert(o.value);
                } else if let Some(ranges) = ranges {
                    ranges[v].push((position + 1, end[v]));
                }
            }
            for o in self.operands(i).iter().filter(|o| o.access == crate::codegen::vcode::operands::Access::Use) {
                if !live.contains(o.value) {
                    end[o.value as usize] = position + 1;
                    live.insert(o.value);
                }
            }
        }
        if let Some(ranges) = ranges {
            for v in live.iter() {
                ranges[v as usize].push((1, end[v as usize]));
            }
        }
        changed
    }
}
