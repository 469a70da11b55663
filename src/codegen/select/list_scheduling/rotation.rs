//! Software pipelining of innermost loops by rotation.
//!
//! In: the scheduled body of a loop with a constant number of iterations. Out: the loop that runs the first instructions of the body for
//! the next iteration beside the others of this one, where that takes fewer cycles. Rotation scheduling (Chao, LaPaugh and Sha, 1997): the
//! body `a b` becomes `a`, a loop of `b a`, and `b`, which run the same instructions in the same order, and the list scheduling orders
//! `b a` anew. No register is renamed: what `a` writes anew waits for what reads it in `b`.

use crate::codegen::select::list_scheduling::block::{Block, Cycle, Register, Surroundings};
use crate::codegen::vcode::operands::{Class, PerClass};
use crate::codegen::vcode::{Function, Inst};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// Iterations of a loop below which it stays, for the code before and behind it.
const LEAST_ITERATIONS: i64 = 16;

/// Instructions of a body up to which it is written twice.
const MOST_INSTRUCTIONS: usize = 320;

/// Parts of a body between which it is cut.
const PARTS: usize = 16;

/// Registers that stay free: where live ranges lie around a loop, allocation needs more than are live at once.
const SPARE: usize = 4;

/// Cycles that a rotated loop takes at most, of those of the loop as it was.
const SHARE: f64 = 0.95;

/// Cycles of an iteration that are saved at least.
const LEAST_CYCLES: f64 = 3.0;

/// A loop that is rotated: the place of its body, that of the number of its iterations, and the instructions before, in and behind it.
pub struct Rotated {
    body: Range<usize>,
    count: usize,
    parts: [Vec<Inst>; 3],
    /// Registers of the body whose values do not leave the part that writes them.
    local: FxHashSet<Register>,
}

impl Rotated {
    /// Writes the loop; those behind it in the function are written before.
    pub fn replace(self, function: &mut Function) {
        let [mut before, inside, mut behind] = self.parts;
        // Allocation finds places more easily for values of one part.
        rename(&mut before, &self.local, function);
        rename(&mut behind, &self.local, function);
        if let Inst::Imm { value, .. } = &mut function.insts[self.count] {
            *value -= 1;
        }
        let end = self.body.end + 1;
        function.insts.splice(end..end, behind);
        function.insts.splice(self.body.clone(), inside);
        let start = self.body.start - 1;
        function.insts.splice(start..start, before);
    }
}

/// Gives registers of a part their own numbers.
fn rename(part: &mut [Inst], local: &FxHashSet<Register>, function: &mut Function) {
    let mut renamed: FxHashMap<Register, u32> = FxHashMap::default();
    for inst in part {
        inst.registers_mut(&mut |class, _, r| {
            if local.contains(&(class, *r)) {
                *r = *renamed.entry((class, *r)).or_insert_with(|| {
                    let count = match class {
                        Class::Gpr => &mut function.gprs,
                        Class::Vector => &mut function.vregs,
                    };
                    *count += 1;
                    *count - 1
                });
            }
        });
    }
}

/// Rotates a loop with this body, if that pays; `ordered` is the body as it is scheduled otherwise.
pub fn rotate(
    function: &Function,
    body: &Range<usize>,
    ordered: &[Inst],
    of: &Surroundings,
    limit: PerClass<usize>,
) -> Option<Rotated> {
    let count = counted(function, body)?;
    let before = steady_cycles(ordered, of);
    let limit = PerClass { vector: limit.vector.saturating_sub(SPARE), ..limit };
    let insts = &function.insts[body.clone()];
    let attempt = Block::new(insts, of).order(limit);
    if attempt.forced > 0 {
        return None;
    }
    let ordered: Vec<Inst> = attempt.order.iter().map(|&i| insts[i].clone()).collect();
    let mut best: Option<(f64, usize, Vec<Inst>, FxHashSet<Register>)> = None;
    for part in 1..PARTS {
        let first = ordered.len() * part / PARTS;
        let (a, b) = ordered.split_at(first);
        let rotated = [b, a].concat();
        let block = Block::new(&rotated, of);
        let attempt = block.near(limit, 0, || (0..rotated.len()).collect());
        if attempt.forced > 0 {
            continue;
        }
        let inside: Vec<Inst> = attempt.order.iter().map(|&i| rotated[i].clone()).collect();
        let cycles = steady_cycles(&inside, of);
        if best.as_ref().is_none_or(|best| cycles < best.0) {
            best = Some((cycles, first, inside, block.local()));
        }
    }
    let (_, first, inside, local) = best.filter(|best| best.0 <= (SHARE * before).min(before - LEAST_CYCLES))?;
    let parts = [ordered[..first].to_vec(), inside, ordered[first..].to_vec()];
    Some(Rotated { body: body.clone(), count, parts, local })
}

/// The place of the constant number of iterations of a loop that is nothing but this body, where only the loop reads it.
fn counted(function: &Function, body: &Range<usize>) -> Option<usize> {
    let insts = &function.insts;
    let start = body.start.checked_sub(1)?;
    let (Inst::LoopStart { count, .. }, Inst::LoopEnd) = (&insts[start], insts.get(body.end)?) else { return None };
    if body.len() > MOST_INSTRUCTIONS {
        return None;
    }
    let mentions = |inst: &Inst| {
        let mut mentions = 0;
        inst.registers(|class, _, r| {
            mentions += usize::from(class == Class::Gpr && r == count.0);
        });
        mentions
    };
    let place = (0..start).rev().find(|&i| mentions(&insts[i]) > 0)?;
    let constant = matches!(insts[place], Inst::Imm { value, .. } if value >= LEAST_ITERATIONS);
    // Nothing else, or another loop, stands between.
    let straight = !insts[place..start].iter().any(Inst::is_control);
    let alone = insts.iter().map(mentions).sum::<usize>() == 2;
    (constant && straight && alone).then_some(place)
}

/// Cycles from an iteration of a loop with this body to the next.
fn steady_cycles(body: &[Inst], of: &Surroundings) -> f64 {
    const ITERATIONS: usize = 4;
    let block = Block::new(body, of);
    let mut ready: FxHashMap<Register, usize> = FxHashMap::default();
    let mut cycle = Cycle::default();
    let mut ends = vec![];
    for _ in 0..ITERATIONS {
        for (i, inst) in body.iter().enumerate() {
            let mut start = cycle.start(block.units[i]);
            inst.registers(|class, access, r| {
                if access.reads() {
                    start = start.max(ready.get(&(class, r)).copied().unwrap_or(0));
                }
            });
            cycle.issue(block.units[i], start);
            inst.registers(|class, access, r| {
                if access.writes() {
                    ready.insert((class, r), start + block.latency[i]);
                }
            });
        }
        ends.push(cycle.now);
    }
    (ends[ITERATIONS - 1] - ends[1]) as f64 / (ITERATIONS - 2) as f64
}
