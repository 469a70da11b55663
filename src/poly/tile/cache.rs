//! The order of the tile loops, and one more level of tiles for the caches.
//!
//! In: the block that is in registers, and the loops over blocks. Out: the loops in the order (and with the cache tile)
//! that moves the fewest nanoseconds' worth of bytes between cache levels. For one level, from the innermost loop outwards:
//! a reference that does not depend on a loop is fetched once for all its iterations when what one iteration touches
//! fits the level, otherwise in every iteration; one that depends on the loop is fetched in every iteration, less the
//! overlap of neighbouring iterations when they fit (footprints as in Ferrante, Sarkar, Thrash, "On Estimating and Enhancing Cache
//! Effectiveness", 1991). Tried are all orders, and cache tiles of 2 … 32 blocks on each loop.

use super::access::Reference;
use super::register_block::Axis;
use crate::codegen::expr::Var;
use crate::poly::Target;

/// A loop over tiles of `tile` values of an iterator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TileLoop {
    pub iterator: Var,
    pub tile: i64,
}

pub struct Traffic<'a> {
    pub references: &'a [Reference],
    /// Reads from a packed, contiguous copy.
    pub packed: &'a [usize],
    pub axes: &'a [Axis],
    pub target: &'a Target,
    /// Loops that stay innermost: the code of a block differs between their first, middle and last iterations.
    pub pinned: &'a [Var],
    /// Points of one block along each iterator.
    pub block: &'a dyn Fn(Var) -> i64,
}

/// Share of a cache that the model fills.
const FILL: f64 = 0.7;
/// Share of the time of a transfer from the next level that does not hide behind arithmetic, by level.
const EXPOSED: [f64; 3] = [0.1, 0.5, 0.8];
/// Orders of more loops than this are not all tried: the outermost ones stay as they are.
const MAX_LOOPS: usize = 4;

impl Traffic<'_> {
    /// The best order of `loops` (which stand in their original order), perhaps with one loop more, and its cost in ns.
    pub fn order(&self, loops: &[TileLoop]) -> (Vec<TileLoop>, f64) {
        let pinned = |l: &&TileLoop| self.pinned.contains(&l.iterator);
        let loops: Vec<TileLoop> =
            loops.iter().filter(|l| !pinned(l)).chain(loops.iter().filter(pinned)).copied().collect();
        let loops = &loops[..];
        let mut best = (loops.to_vec(), self.cost(loops));
        let fixed = loops.len().saturating_sub(MAX_LOOPS);
        let mut consider = |tiles: &[TileLoop]| {
            let (outer, inner) = tiles.split_at(fixed.min(tiles.len()));
            permutations(inner, &mut |order| {
                let outer_first = order
                    .iter()
                    .enumerate()
                    .all(|(i, a)| order[..i].iter().all(|b| b.iterator != a.iterator || b.tile > a.tile));
                let pinned = |l: &TileLoop| self.pinned.contains(&l.iterator);
                let pinned_last = order.windows(2).all(|w| !pinned(&w[0]) || pinned(&w[1]));
                if outer_first && pinned_last {
                    let all: Vec<TileLoop> = outer.iter().chain(order).copied().collect();
                    let cost = self.cost(&all);
                    if cost < best.1 * 0.98 {
                        best = (all, cost);
                    }
                }
            });
        };
        consider(loops);
        for l in &loops[fixed..] {
            let extent = self.extent(l.iterator);
            for factor in [2, 4, 8, 16, 32] {
                if l.tile * factor * 2 <= extent && loops.len() <= MAX_LOOPS && !pinned(&l) {
                    let mut more = loops.to_vec();
                    more.insert(0, TileLoop { iterator: l.iterator, tile: l.tile * factor });
                    consider(&more);
                }
            }
        }
        best
    }

    fn extent(&self, v: Var) -> i64 {
        self.axes.iter().find(|a| a.iterator == v).map_or(1, |a| a.extent)
    }

    fn footprint(&self, i: usize, extent: &impl Fn(Var) -> i64) -> f64 {
        let r = &self.references[i];
        if self.packed.contains(&i) {
            let elements: i64 =
                self.axes.iter().filter(|a| r.depends(a.iterator)).map(|a| extent(a.iterator)).product();
            return (elements * r.bytes) as f64;
        }
        r.footprint(extent, self.target.line_bytes as i64)
    }

    /// ns of exposed transfers for this order.
    pub fn cost(&self, order: &[TileLoop]) -> f64 {
        let count = self.references.len();
        let mut covered: Vec<(Var, i64)> = self
            .axes
            .iter()
            .map(|a| (a.iterator, if a.reduced { a.extent } else { (self.block)(a.iterator).min(a.extent) }))
            .collect();
        let prints = |covered: &[(Var, i64)]| -> Vec<f64> {
            let extent = |v: Var| covered.iter().find(|c| c.0 == v).map_or(1, |c| c.1);
            (0..count).map(|i| self.footprint(i, &extent)).collect()
        };
        let mut inside = prints(&covered);
        // misses[level][reference] in bytes
        let mut misses = [inside.clone(), inside.clone(), inside.clone()];
        for l in order.iter().rev() {
            let c = covered.iter_mut().find(|c| c.0 == l.iterator).expect("a loop over an axis");
            let outer = order
                .iter()
                .take_while(|o| *o != l)
                .filter(|o| o.iterator == l.iterator)
                .map(|o| o.tile)
                .min()
                .unwrap_or(i64::MAX)
                .min(self.extent(l.iterator));
            let steps = ((outer + l.tile - 1) / l.tile) as f64;
            c.1 = outer;
            let around = prints(&covered);
            let total: f64 = inside.iter().sum();
            for (level, misses) in misses.iter_mut().enumerate() {
                let fits = total <= self.target.cache_bytes[level] as f64 * FILL;
                for (i, r) in self.references.iter().enumerate() {
                    let growth = if fits { (around[i] / inside[i]).clamp(1.0, steps) } else { steps };
                    misses[i] *= if r.depends(l.iterator) || !fits { growth } else { 1.0 };
                }
            }
            inside = around;
        }
        // What a cache still holds of the kernel before: activations that fit it. Constants are in the last one at best.
        for (level, misses) in misses.iter_mut().enumerate() {
            for (i, r) in self.references.iter().enumerate() {
                let fits = inside[i] <= self.target.cache_bytes[level] as f64 * FILL;
                if fits && level > 0 && (level == 2 || !r.constant) {
                    misses[i] = (misses[i] - inside[i]).max(0.0);
                }
            }
        }
        let bandwidth = &self.target.bandwidth;
        (0..3).map(|level| misses[level].iter().sum::<f64>() / bandwidth[level + 1] * EXPOSED[level]).sum()
    }
}

fn permutations(items: &[TileLoop], f: &mut impl FnMut(&[TileLoop])) {
    fn go(done: &mut Vec<TileLoop>, left: &mut Vec<TileLoop>, f: &mut impl FnMut(&[TileLoop])) {
        if left.is_empty() {
            return f(done);
        }
        for i in 0..left.len() {
            let x = left.remove(i);
            done.push(x);
            go(done, left, f);
            done.pop();
            left.insert(i, x);
        }
    }
    go(&mut vec![], &mut items.to_vec(), f);
}
