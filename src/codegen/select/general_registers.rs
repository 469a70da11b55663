//! Integers of one lane in general-purpose registers.
//!
//! Selection gives every value a vector register. There a wrap to 8 or 16 bits is two shifts, a quotient by a constant two
//! conversions and a product, and on some processors each operation takes two cycles. In general-purpose registers a wrap is one
//! instruction and most operations take one cycle, but extremes take two instructions, and address arithmetic has the same ports.
//!
//! In and out: a flat function. Vector registers are joined to sets by the instructions that name several of them; a set moves
//! when every instruction that names one of its registers has a form on general-purpose registers (`forms`), when that shortens the
//! iterations of an innermost loop (`recurrence`), and when the registers suffice. Invariant: memory gets the same bytes.

mod conditions;
mod forms;
mod low_bits;
pub mod recurrence;

use crate::codegen::Target;
use crate::codegen::regalloc::allocation::RegisterFile;
use crate::codegen::regalloc::liveness::Liveness;
use crate::codegen::select::dead_code::remove_unread;
use crate::codegen::vcode::operands::{Class, Group};
use crate::codegen::vcode::{Function, Inst, Lane, Vreg};
use forms::{Forms, Rewriter, is_one_integer, number};
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};

/// General-purpose registers left for temporaries and for what instructions need.
const SPARE: usize = 2;

/// Instructions that are looked at to find what pays.
const MOST_WORK: usize = 1 << 20;

/// Cycles that pay: more than what rounding leaves.
const LEAST_SAVED: f64 = 1e-6;

/// Moves integers of one lane to general-purpose registers, where that shortens iterations.
pub fn move_integers(function: &mut Function, target: &Target) {
    let is_candidate = |inst: &Inst| inst.ty().is_some_and(is_one_integer) && inst.group() == Group::Vector;
    if !function.insts.iter().any(is_candidate) {
        return;
    }
    let forms = Forms::of(function);
    let constants = constants(function, &forms);
    let sets = sets(function, &forms, &constants);
    let sets = shorter(function, target, &forms, sets);
    let moved = within_registers(function, target, sets);
    if !moved.is_empty() {
        Rewriter::rewrite(function, &forms, &constants, moved);
        low_bits::drop_extensions(function);
        conditions::join(function);
        remove_unread(function);
    }
}

/// Vector registers that hold one constant wherever they are read, with the constant as a number.
fn constants(function: &Function, forms: &Forms) -> BTreeMap<u32, i64> {
    let mut written: BTreeMap<u32, Option<(Lane, i64)>> = BTreeMap::new();
    for inst in &function.insts {
        inst.registers(|class, access, r| {
            if class == Class::Vector && access.writes() {
                let value = match *inst {
                    Inst::VConst { ty, bits, .. } => number(ty.lane, bits).map(|n| (ty.lane, n)),
                    _ => None,
                };
                written.entry(r).and_modify(|v| *v = None).or_insert(value);
            }
        });
    }
    for (index, inst) in function.insts.iter().enumerate() {
        let lane = match *inst {
            Inst::VConvert { from, .. } => Some(from),
            Inst::VGatherIndex { index_lane, .. } => Some(index_lane),
            _ => inst.ty().map(|ty| ty.lane),
        };
        for r in forms.movable(index, inst) {
            if let Some(value) = written.get_mut(&r.0)
                && value.is_some_and(|v| Some(v.0) != lane)
            {
                *value = None;
            }
        }
    }
    written.into_iter().filter_map(|(r, value)| Some((r, value?.1))).collect()
}

/// Registers that move together.
type Set = Vec<u32>;

/// The sets of registers that may move.
fn sets(function: &Function, forms: &Forms, constants: &BTreeMap<u32, i64>) -> Vec<Set> {
    let mut parent: Vec<u32> = (0..function.vregs).collect();
    fn root(parent: &mut [u32], mut r: u32) -> u32 {
        while parent[r as usize] != r {
            parent[r as usize] = parent[parent[r as usize] as usize];
            r = parent[r as usize];
        }
        r
    }
    let (mut fits, mut named) = (vec![true; function.vregs as usize], vec![false; function.vregs as usize]);
    for (index, inst) in function.insts.iter().enumerate().filter(|i| !forms.is_part(i.0)) {
        let movable = forms.movable(index, inst);
        inst.registers(|class, _, r| {
            if class == Class::Vector && !movable.contains(&Vreg(r)) {
                fits[r as usize] = false;
            }
        });
        let mut first = None;
        for r in movable.iter().map(|r| r.0).filter(|r| !constants.contains_key(r)) {
            named[r as usize] = true;
            let (a, b) = (root(&mut parent, r), root(&mut parent, *first.get_or_insert(r)));
            parent[a as usize] = b;
        }
    }
    let mut refused = BTreeSet::new();
    for r in (0..function.vregs).filter(|&r| !fits[r as usize]) {
        refused.insert(root(&mut parent, r));
    }
    let mut sets: BTreeMap<u32, Set> = BTreeMap::new();
    for r in 0..function.vregs {
        let root = root(&mut parent, r);
        if named[r as usize] && !refused.contains(&root) {
            sets.entry(root).or_default().push(r);
        }
    }
    sets.into_values().collect()
}

/// The sets that shorten the iterations of innermost loops, those that save the most first. Each is asked beside those that come before.
fn shorter(function: &Function, target: &Target, forms: &Forms, sets: Vec<Set>) -> Vec<Set> {
    let loops = recurrence::innermost(function);
    let mut work = 0;
    let mut saves = |set: &Set, others: &BTreeSet<u32>| -> f64 {
        let within = loops.iter().filter(|l| l.mentions(set));
        let mut saved = 0.0;
        for l in within {
            work += l.instructions();
            if work > MOST_WORK {
                return 0.0;
            }
            let with = |r: u32| others.contains(&r) || set.binary_search(&r).is_ok();
            let before = l.cycles(function, target, forms, |r| others.contains(&r));
            saved += l.weight * (before - l.cycles(function, target, forms, with));
        }
        saved
    };
    let none = BTreeSet::new();
    let mut sets: Vec<(f64, Set)> = sets.into_iter().map(|set| (saves(&set, &none), set)).collect();
    sets.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut chosen, mut moved) = (vec![], BTreeSet::new());
    // what a first set hides may count once it has moved
    for _ in 0..2 {
        sets.retain(|(_, set)| {
            let pays = saves(set, &moved) > LEAST_SAVED;
            if pays {
                moved.extend(set.iter().copied());
                chosen.push(set.clone());
            }
            !pays
        });
    }
    chosen
}

/// The registers of the sets that fit into the registers of the target beside what is there, the first sets first.
fn within_registers(function: &Function, target: &Target, sets: Vec<Set>) -> BTreeSet<u32> {
    let mut moved = BTreeSet::new();
    if sets.is_empty() {
        return moved;
    }
    let Ok(live) = Liveness::compute(function) else { return moved };
    let limit = RegisterFile::of(target.isa).registers[Class::Gpr].len() - SPARE;
    let mentions = Mentions::of(function, &live);
    let mut pressure = vec![0usize; 2 * function.insts.len() + 4];
    for v in (0..live.values.count()).filter(|&v| live.values.class(v as u32) == Class::Gpr) {
        mentions.positions(&live, v).for_each(|position| pressure[position] += 1);
    }
    for set in sets {
        let mut with = pressure.clone();
        let mut fits = true;
        for &r in &set {
            for position in mentions.positions(&live, live.values.value(Class::Vector, r) as usize) {
                with[position] += 1;
                fits &= with[position] <= limit;
            }
        }
        if fits {
            pressure = with;
            moved.extend(set);
        }
    }
    moved
}

/// The loops in which values are mentioned. A value that lives through a loop unmentioned can wait in memory, and all can outside of innermost
/// loops.
struct Mentions {
    /// For each instruction the innermost loop around it.
    around: Vec<Option<u32>>,
    /// Loops with others inside.
    outer: FxHashSet<u32>,
    /// Values and the loops whose bodies mention them.
    mentioned: FxHashSet<(u32, u32)>,
}

impl Mentions {
    fn of(function: &Function, live: &Liveness) -> Mentions {
        let mut open = vec![];
        let mut around = Vec::with_capacity(function.insts.len());
        let (mut mentioned, mut outer) = (FxHashSet::default(), FxHashSet::default());
        for (index, inst) in function.insts.iter().enumerate() {
            around.push(open.last().copied());
            match inst {
                Inst::LoopStart { .. } => {
                    outer.extend(open.last().copied());
                    open.push(live.loop_number[index]);
                }
                Inst::LoopEnd => {
                    open.pop();
                }
                _ => {}
            }
            let inside = open.iter().chain(matches!(inst, Inst::LoopEnd).then_some(&live.loop_number[index]));
            for number in inside {
                mentioned.extend(live.operands(index).iter().map(|o| (o.value, *number)));
            }
        }
        Mentions { around, outer, mentioned }
    }

    /// The positions where a value lives, and is mentioned in the innermost loop around, if there are loops around.
    fn positions<'a>(&'a self, live: &'a Liveness, v: usize) -> impl Iterator<Item = usize> + 'a {
        let positions = live.ranges[v].iter().flat_map(|&(from, to)| from as usize..to as usize);
        positions.filter(move |position| {
            let around = position.checked_sub(2).and_then(|p| self.around.get(p / 2).copied().flatten());
            around.is_none_or(|number| !self.outer.contains(&number) && self.mentioned.contains(&(v as u32, number)))
        })
    }
}

#[cfg(test)]
mod tests;
