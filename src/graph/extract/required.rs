//! Dominators: the values that every way to compute a value computes as well.
//!
//! In: the classes of a [`Problem`]. Out: for each value a set of values near it in the order of the classes. A set reaches
//! over at most [`REACH`] words; what lies farther is left out, so that the sets of a graph grow linearly with it. Every
//! subset of the dominators is sound: the sets tighten the relaxation and rule out edges that would be cut later.

use crate::graph::extract::candidate::Candidate;
use crate::graph::op::FusionKind;

/// Number of 64-bit words of a set: in graphs of up to 64 times as many classes the sets are complete. Unmeasured.
const REACH: usize = 96;

/// One set of classes for each class; it reaches over at most [`REACH`] words.
#[derive(Default)]
pub struct Bands {
    pub width: usize,
    /// Words that the classes take.
    total: usize,
    sets: Vec<u64>,
}

impl Bands {
    pub fn new(classes: usize, word: u64) -> Bands {
        let total = classes.div_ceil(64);
        let width = total.min(REACH);
        Bands { width, total, sets: vec![word; classes * width] }
    }

    /// The first word of the set of `v`.
    fn first(&self, v: usize) -> usize {
        (v / 64).saturating_sub(self.width * 3 / 4).min(self.total - self.width)
    }

    fn set(&self, v: usize) -> &[u64] {
        &self.sets[v * self.width..(v + 1) * self.width]
    }

    /// Replaces the set of `v`; returns true if it changed.
    pub fn put(&mut self, v: usize, set: &[u64]) -> bool {
        let before = &mut self.sets[v * self.width..(v + 1) * self.width];
        let changed = before != set;
        before.copy_from_slice(set);
        changed
    }

    /// Adds `v` to its own set.
    pub fn mark(&self, v: usize, set: &mut [u64]) {
        set[v / 64 - self.first(v)] |= 1 << (v % 64);
    }

    /// Adds the set of `d` to one that reaches as far as that of `v`.
    pub fn unite(&self, d: usize, v: usize, union: &mut [u64]) {
        let (from, to) = (self.first(d), self.first(v));
        let (skip, shift) = (to.saturating_sub(from), from.saturating_sub(to));
        let words = self.set(d).iter().skip(skip);
        union.iter_mut().skip(shift).zip(words).for_each(|(a, b)| *a |= b);
    }

    /// Returns true if `u` is in the set of `v`.
    pub fn has(&self, v: usize, u: usize) -> bool {
        let word = (u / 64).checked_sub(self.first(v)).and_then(|w| self.set(v).get(w));
        word.is_some_and(|w| w >> (u % 64) & 1 == 1)
    }

    /// The members of a set that reaches as far as that of `v`.
    pub fn list<'a>(&self, v: usize, set: &'a [u64]) -> impl Iterator<Item = usize> + 'a {
        let first = self.first(v);
        set.iter().enumerate().flat_map(move |(i, &word)| {
            std::iter::successors((word != 0).then_some(word), |w| Some(w & (w - 1)).filter(|&w| w != 0))
                .map(move |w| 64 * (first + i) + w.trailing_zeros() as usize)
        })
    }
}

/// The dominators of each value.
#[derive(Default)]
pub struct Required(Bands);

impl Required {
    /// Without `required`, each value stands in its own set. With it, only those count that some kernel other than the value's
    /// own must compute; `required` has the sets without this restriction.
    pub fn new(classes: &[Vec<Candidate>], value: &[usize], required: Option<&Required>) -> Required {
        let n = classes.len();
        // The values that a candidate needs, and whether it may run in the kernel of those.
        let mut ways: Vec<Vec<(Vec<usize>, bool)>> = vec![vec![]; n];
        for (c, list) in classes.iter().enumerate() {
            for candidate in list.iter().filter(|k| !k.converts) {
                let fuses = candidate.op.is_some_and(|op| op.kind() == FusionKind::Injective);
                ways[value[c]].push((candidate.children.iter().map(|&d| value[d]).collect(), fuses));
            }
        }
        let mut out = Bands::new(n, u64::MAX);
        let (mut set, mut union) = (vec![0u64; out.width], vec![0u64; out.width]);
        let mut changed = true;
        while std::mem::replace(&mut changed, false) {
            for (v, ways) in ways.iter().enumerate() {
                set.fill(u64::MAX);
                for (way, fuses) in ways {
                    union.fill(0);
                    let below = required.filter(|_| !*fuses).map_or(&out, |required| &required.0);
                    way.iter().for_each(|&d| below.unite(d, v, &mut union));
                    set.iter_mut().zip(&union).for_each(|(a, b)| *a &= b);
                }
                if required.is_none() {
                    out.mark(v, &mut set);
                }
                changed |= out.put(v, &set);
            }
        }
        Required(out)
    }

    /// Returns true if every way to compute `v` computes `u`, as far as the set of `v` reaches.
    pub fn has(&self, v: usize, u: usize) -> bool {
        self.0.has(v, u)
    }

    /// The values in the set of `v`.
    pub fn members(&self, v: usize) -> impl Iterator<Item = usize> {
        self.0.list(v, self.0.set(v))
    }

    /// The values that every answer computes: those of the roots and what these require. `sole` has the operands of a value
    /// that there is only one way to compute.
    pub fn always(&self, roots: impl Iterator<Item = usize>, sole: impl Fn(usize) -> Vec<usize>) -> Vec<bool> {
        let (width, total) = (self.0.width, self.0.total);
        let mut always = vec![0u64; total];
        let mut open: Vec<usize> = roots.collect();
        let mut seen = vec![false; total * 64];
        while let Some(v) = open.pop() {
            if std::mem::replace(&mut seen[v], true) {
                continue;
            }
            always[v / 64] |= 1 << (v % 64);
            let first = self.0.first(v);
            always[first..first + width].iter_mut().zip(self.0.set(v)).for_each(|(a, b)| *a |= b);
            open.extend(sole(v));
            // What the set does not reach is required by its farthest member.
            if self.0.first(v) > 0 {
                open.extend(self.members(v).next());
            }
        }
        (0..total * 64).map(|v| always[v / 64] >> (v % 64) & 1 == 1).collect()
    }
}
