//! Which load of a loop body finds its value in a register, and how many registers the values take that iterations wait for.

use crate::codegen::select::scalar_replacement::accesses::{Accesses, Reference, Shape, is_apart};
use crate::codegen::select::scalar_replacement::registers::Registers;
use crate::codegen::select::tree::{Loop, Node, Pointer, Root};
use crate::expr::Var;
use crate::expr::interval::Facts;
use rustc_hash::{FxHashMap, FxHashSet};

/// Iterations that a value is kept, at most.
pub const MAX_DISTANCE: i64 = 4;

/// The registers that scalar replacement gives to values which a loop without inner loops stores and a later iteration loads. They come
/// before those of invariants: iterations wait for a store and the load of what it wrote, and no iteration waits for an invariant.
pub fn carried_registers(l: &Loop, pointers: &[Pointer], vregs: u32, facts: &Facts) -> usize {
    let roots = |stores: bool| -> FxHashSet<Root> {
        let root = |n: &Node| match n {
            Node::Inst(i) if i.writes_memory() == stores => i.address().map(|a| pointers[a.base.0 as usize].root),
            _ => None,
        };
        l.body.iter().filter_map(root).collect()
    };
    if l.parallel || roots(true).is_disjoint(&roots(false)) {
        return 0;
    }
    let registers = &Registers::of(&l.body, vregs);
    let accesses = &Accesses::of(&l.body, pointers, registers);
    let defined = &l.body.iter().filter_map(Node::defines).collect();
    // scalar replacement itself knows no more of them
    let unknown = &l.body.iter().filter(|n| !matches!(n, Node::Let { .. })).filter_map(Node::defines).collect();
    let chains = LoopBody { l, accesses, registers, facts, defined, unknown }.chains(MAX_DISTANCE);
    chains.iter().filter(|(g, _)| accesses.all[**g].store).map(|(_, consumers)| longest(consumers) as usize).sum()
}

/// The iterations that a value is kept for its loads, each with its distance.
pub fn longest(consumers: &[(usize, i64)]) -> i64 {
    consumers.iter().map(|c| c.1).max().unwrap_or(0)
}

/// A loop body, and what decides where its accesses meet.
pub struct LoopBody<'a> {
    pub l: &'a Loop,
    pub accesses: &'a Accesses,
    pub registers: &'a Registers,
    pub facts: &'a Facts,
    /// Variables that the body defines.
    pub defined: &'a FxHashSet<Var>,
    /// Variables without a useful range.
    pub unknown: &'a FxHashSet<Var>,
}

/// The source of a consumer's value: access `generator`, `distance` iterations before.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Reuse {
    generator: usize,
    distance: i64,
}

impl LoopBody<'_> {
    /// The loads (with their distances) that find the value of each access.
    pub fn chains(&self, farthest: i64) -> FxHashMap<usize, Vec<(usize, i64)>> {
        let mut chains: FxHashMap<usize, Vec<(usize, i64)>> = FxHashMap::default();
        for (consumer, reuse) in self.reuses(farthest).iter().enumerate() {
            if let Some(r) = reuse {
                chains.entry(r.generator).or_default().push((consumer, r.distance));
            }
        }
        chains
    }

    /// Finds the source of each access's value, by index; values of values are followed to the access that has it
    /// first.
    fn reuses(&self, farthest: i64) -> Vec<Option<Reuse>> {
        let references = &self.accesses.all;
        let nearest: Vec<Option<Reuse>> = (0..references.len()).map(|c| self.nearest(c, farthest)).collect();
        let follow = |c: usize| {
            let mut reuse = nearest[c]?;
            let mut seen = FxHashSet::from_iter([c]);
            while let Some(next) = nearest[reuse.generator] {
                if !seen.insert(reuse.generator) {
                    return None;
                }
                reuse = Reuse { generator: next.generator, distance: reuse.distance + next.distance };
            }
            let (r, ..) = references[c].value?;
            let (.., lanes) = references[reuse.generator].value?;
            let enough = match references[c].value?.1 {
                // a load is as near as a register of another class, a store and a load after it are not
                _ if references[c].integer => references[reuse.generator].store,
                // a load has zeros in the lanes beyond its part, the register of a store has anything
                Shape::Lanes { part: Some(p), .. } => {
                    !references[reuse.generator].store || self.registers.lanes_read(r) <= p.count
                }
                Shape::Lanes { .. } => true,
                Shape::Element { .. } => self.registers.lanes_read(r) <= lanes,
            };
            (reuse.distance <= farthest && enough).then_some(reuse)
        };
        let mut reuses: Vec<Option<Reuse>> = (0..references.len()).map(follow).collect();
        // A generator must keep its own load.
        for c in 0..references.len() {
            if reuses[c].is_some_and(|r| reuses[r.generator].is_some()) {
                reuses[c] = None;
            }
        }
        reuses
    }

    /// The last access of the address of load `c` before it.
    fn nearest(&self, c: usize, farthest: i64) -> Option<Reuse> {
        let LoopBody { l, accesses, facts, defined, unknown, .. } = *self;
        let references = &accesses.all;
        let consumer = &references[c];
        let (_, shape, _) = consumer.value.filter(|_| !consumer.store)?;
        // what the body defines differs between iterations
        let farthest = if consumer.bytes.terms.iter().any(|t| defined.contains(&t.0)) { 0 } else { farthest };
        let advance = consumer.bytes.coefficient(l.var) * l.step;
        let distance = |g: &Reference| -> Option<i64> {
            if g.integer || g.root != consumer.root || g.bytes.terms != consumer.bytes.terms || g.value?.1 != shape {
                return None;
            }
            let ahead = g.bytes.constant - consumer.bytes.constant;
            let earlier = g.at < consumer.at;
            match advance {
                0 => (ahead == 0).then_some(i64::from(!earlier)),
                s if ahead % s == 0 => Some(ahead / s).filter(|&d| d > 0 || d == 0 && earlier),
                _ => None,
            }
        };
        let candidates = references.iter().enumerate().filter(|(g, _)| *g != c);
        let candidates = candidates.filter_map(|(g, r)| Some((distance(r)?, std::cmp::Reverse(r.at), g)));
        let (distance, _, generator) = candidates.min().filter(|d| d.0 <= farthest)?;
        let from = references[generator].at;
        let between = |index: usize, before: i64| match before {
            0 if distance == 0 => from < index && index < consumer.at,
            0 => index < consumer.at,
            b if b == distance => from < index,
            _ => true,
        };
        let kept = |before: i64| {
            !accesses.clobbered.iter().any(|(index, root)| between(*index, before) && *root == consumer.root)
                && references
                    .iter()
                    .filter(|w| w.store && w.root == consumer.root && between(w.at, before))
                    .all(|w| is_apart(w, before * l.step, l.var, consumer, facts, unknown))
        };
        (0..=distance).all(kept).then_some(Reuse { generator, distance })
    }
}
