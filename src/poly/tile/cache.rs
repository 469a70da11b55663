//! The order of the tile loops, one more level of tiles for the caches, and blocks of a reduction.
//!
//! In: the block that is in registers, and the loops over blocks. Out: the loops in the order (and with the tiles) that
//! exposes the fewest nanoseconds of transfers between cache levels. For one level, from the innermost loop outwards: a
//! reference that does not depend on a loop is fetched once for all its iterations when what one iteration touches fits
//! the level, otherwise in every iteration; one that depends on the loop is fetched in every iteration, less the
//! overlap of neighbouring iterations when they fit (footprints as in Ferrante, Sarkar, Thrash, "On Estimating and
//! Enhancing Cache Effectiveness", 1991). Constants come from memory at their first use; a packed one whose panels are
//! used again by an inner loop is prefetched and hides behind the arithmetic. Where rows lie so far apart that they
//! meet in few sets of a cache, they fill it sooner; where a block and its innermost loop read only short pieces of
//! them, each piece is waited for, and longest where the pieces lie in many pages.
//!
//! Tried are all orders, cache tiles of 2 … 32 blocks on each loop, and a reduction cut into 2 … 32 parts, between
//! which the accumulators of all blocks inside rest in memory.

use super::register_block::Axis;
use crate::codegen::Target;
use crate::expr::interval::ceil_div;
use crate::expr::{BufferId, Var};
use crate::poly::analysis::access::{Along, PAGE, Reference};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// A loop over tiles of `tile` values of an iterator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TileLoop {
    pub iterator: Var,
    pub tile: i64,
}

/// Where the constants of a kernel are when it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Constants {
    /// In memory: those of other kernels have taken their places in the caches.
    Memory,
    /// In the last cache, which has room for those of all kernels.
    LastCache,
    /// In the second cache, which has room for those of all kernels.
    SecondCache,
}

impl Constants {
    /// The first cache that holds them, 1 for the second one.
    fn level(self) -> usize {
        match self {
            Constants::SecondCache => 1,
            Constants::LastCache => 2,
            Constants::Memory => 3,
        }
    }
}

pub struct Traffic<'a> {
    pub references: &'a [Reference],
    /// Tensors that the second cache holds.
    pub held: &'a [BufferId],
    pub constants: Constants,
    /// Reads from a packed, contiguous copy.
    pub packed: &'a [usize],
    pub axes: &'a [Axis],
    pub target: &'a Target,
    /// Loops that threads do not divide: the code of a block differs between their first, middle and last iterations.
    pub uneven: &'a [Var],
    /// Points of one block along each iterator.
    pub block: &'a dyn Fn(Var) -> i64,
    /// Time of the arithmetic.
    pub compute_ns: f64,
    /// Cycles to read or to write all accumulators in memory lane by lane, where that takes it.
    pub strided_sums: f64,
    /// Reduced iterators that may be cut into parts.
    pub divisible: &'a [Var],
    /// Parts have a multiple of so many terms.
    pub group: i64,
    /// A block is straight-line code: its reads do not wait for each other.
    pub straight: bool,
    /// A block is a product of tiles: transfers from the second cache are waited for, and with one loop over terms what a loop around it moves passes the first
    /// cache.
    pub tiles: bool,
    pub known: Known,
}

/// Results that orders share.
#[derive(Default)]
pub struct Known {
    /// Footprints, for the numbers of values of all axes that were asked for.
    touched: RefCell<FxHashMap<Vec<i64>, Rc<Touched>>>,
    /// Results of `shared`, by the iterator of the outermost loop.
    shared: RefCell<FxHashMap<Var, f64>>,
}

/// Footprints of the references while their iterators take so many neighbouring values.
pub struct Touched {
    /// Bytes, and bytes of the cache that holds them.
    prints: Vec<(f64, f64)>,
    /// Bytes that are fetched one after the other; infinite for what is packed or only written, for which nothing waits.
    runs: Vec<f64>,
    /// The bytes lie in too many pages to be a stream along the innermost loop.
    scattered: Vec<bool>,
}

/// Largest number of loops whose orders are all tried: of more, the outermost ones keep their places.
const MAX_LOOPS: usize = 4;
/// Largest number of loops for which all pairs of a cache tile and a part of a reduction are tried.
const FEW_LOOPS: usize = 2;
/// Share of the time of transfers that threads do not divide in the choice of an order: one thread loses nothing by them, two
/// lose half. Unmeasured.
const COMMON: f64 = 0.25;
/// Bytes of a sum in a tile.
const SUM_BYTES: i64 = 4;
/// Largest ratio of the time with a sum of tiles in parts to that without that makes parts worth it: waiting for a cache hides what the model takes for sums that
/// are stored and loaded in between. Products of bf16 of 49 to 1024 rows in networks lose below it.
const TILE_PARTS: f64 = 0.9;
/// Largest ratio of the transfers of an order to those of the best one so far that makes it better. Unmeasured.
const MARGIN: f64 = 0.98;

impl Traffic<'_> {
    /// The best order of `loops` (which stand in their original order), perhaps with loops more, and its cost in ns.
    pub fn order(&self, loops: &[TileLoop]) -> (Vec<TileLoop>, f64) {
        let (order, _) = self.search(loops);
        let cost = self.cost(&order);
        (order, cost)
    }

    /// The order with the smallest sum of cost and share of what threads have in common.
    fn search(&self, loops: &[TileLoop]) -> (Vec<TileLoop>, f64) {
        let (free, uneven): (Vec<TileLoop>, Vec<TileLoop>) =
            loops.iter().partition(|l| !self.uneven.contains(&l.iterator));
        let loops: Vec<TileLoop> = free.into_iter().chain(uneven).collect();
        let mut best = (loops.clone(), self.cost(&loops) + self.shared(&loops));
        self.permute(&loops, &mut best);
        self.tile(&loops, &mut best);
        let whole = best.clone();
        for part in self.parts() {
            self.permute(&[&[part], &loops[..]].concat(), &mut best);
            self.insert(&whole.0, part, &mut best);
            // A cut may pay only together with a cache tile: all pairs, where they are few.
            for outer in self.cache_tiles(&loops).into_iter().filter(|_| loops.len() <= FEW_LOOPS) {
                self.insert(&[&[outer], &loops[..]].concat(), part, &mut best);
            }
        }
        if best.0.iter().any(|l| self.divisible.contains(&l.iterator)) {
            let cut = best.0.clone();
            for outer in self.cache_tiles(&cut) {
                self.insert(&cut, outer, &mut best);
            }
        }
        let time = |order: &(Vec<TileLoop>, f64)| self.compute_ns + order.1;
        if self.tiles && time(&best) > TILE_PARTS * time(&whole) { whole } else { best }
    }

    /// Tries all orders of `loops`.
    fn permute(&self, loops: &[TileLoop], best: &mut (Vec<TileLoop>, f64)) {
        let (outer, inner) = loops.split_at(loops.len().saturating_sub(MAX_LOOPS + 1));
        permutations(inner, &mut |order| self.consider([outer, order].concat(), best));
    }

    /// Tries all orders with one cache tile more.
    fn tile(&self, loops: &[TileLoop], best: &mut (Vec<TileLoop>, f64)) {
        for outer in self.cache_tiles(loops) {
            self.permute(&[&[outer], loops].concat(), best);
        }
    }

    /// Tries `more` at every place in `order`.
    fn insert(&self, order: &[TileLoop], more: TileLoop, best: &mut (Vec<TileLoop>, f64)) {
        for place in 0..=order.len() {
            let mut order = order.to_vec();
            order.insert(place, more);
            self.consider(order, best);
        }
    }

    fn cache_tiles(&self, loops: &[TileLoop]) -> Vec<TileLoop> {
        let free = |l: &&TileLoop| !self.uneven.contains(&l.iterator) && !self.divisible.contains(&l.iterator);
        let some = loops.len().saturating_sub(MAX_LOOPS + 1);
        let factors = |l: &TileLoop| {
            let (iterator, tile, extent) = (l.iterator, l.tile, self.extent(l.iterator));
            let larger = [2, 4, 8, 16, 32].into_iter().map(move |f| TileLoop { iterator, tile: tile * f });
            larger.filter(move |l| l.tile * 2 <= extent)
        };
        loops[some..].iter().filter(free).flat_map(factors).collect()
    }

    /// Loops over parts of a reduction.
    fn parts(&self) -> Vec<TileLoop> {
        let steps: i64 = self.axes.iter().filter(|a| a.reduced).map(|a| a.extent).product();
        let cut = |&iterator: &Var| {
            let extent = self.extent(iterator);
            let tiles = [2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256]
                .map(|n| ceil_div(ceil_div(extent, n), self.group) * self.group);
            let enough = move |t: &i64| *t < extent && steps / extent * t >= self.target.machine.least_reduction_steps;
            tiles.into_iter().filter(enough).map(move |tile| TileLoop { iterator, tile })
        };
        self.divisible.iter().flat_map(cut).collect()
    }

    /// Replaces the best order by `order` if that is allowed and cheaper.
    fn consider(&self, order: Vec<TileLoop>, best: &mut (Vec<TileLoop>, f64)) {
        let outer_first = order
            .iter()
            .enumerate()
            .all(|(i, a)| order[..i].iter().all(|b| b.iterator != a.iterator || b.tile > a.tile));
        if outer_first
            && self.parallel_steps(&order) >= self.parallel_steps(&best.0).min(self.target.machine.busy_steps)
        {
            let cost = self.cost(&order) + self.shared(&order);
            if cost < best.1 * MARGIN {
                *best = (order, cost);
            }
        }
    }

    /// Part of the time of the transfers that more than one thread makes: of weights that the outermost loop does not divide, and of
    /// tensors between kernels that it divides otherwise than by their outermost dimension, as other kernels do.
    fn shared(&self, order: &[TileLoop]) -> f64 {
        let Some(outermost) = order.first() else { return 0.0 };
        *self
            .known
            .shared
            .borrow_mut()
            .entry(outermost.iterator)
            .or_insert_with(|| self.shared_around(outermost.iterator))
    }

    fn shared_around(&self, outermost: Var) -> f64 {
        let machine = &self.target.machine;
        let ns = self.references.iter().enumerate().map(|(i, r)| {
            let stride = |v: Var| r.strides[v.0 as usize].map(i64::abs);
            let outermost_stride = stride(outermost);
            let farthest = || self.axes.iter().filter(|a| a.extent > 1).filter_map(|a| stride(a.iterator)).max();
            let bandwidth = match r.constant {
                true if outermost_stride != Some(0) => return 0.0,
                true if self.constants == Constants::Memory => machine.bandwidth[3],
                // threads fetch constants of the second cache from the last one
                true => machine.bandwidth[2],
                false if outermost_stride == farthest() => return 0.0,
                false => machine.crossing_bandwidth,
            };
            self.footprint(i, &|v| self.extent(v)).0 / bandwidth
        });
        COMMON * ns.sum::<f64>()
    }

    /// Iterations of the loops that may be divided over threads.
    pub fn parallel_steps(&self, order: &[TileLoop]) -> i64 {
        let serial = |l: &TileLoop| self.divisible.contains(&l.iterator) || self.uneven.contains(&l.iterator);
        let cut = order.iter().position(serial);
        (0..cut.unwrap_or(order.len())).map(|position| self.steps(order, position).0).product()
    }

    /// Iterations of loop `position`, and how many values of its iterator they have.
    fn steps(&self, order: &[TileLoop], position: usize) -> (i64, i64) {
        let l = &order[position];
        let outer = order[..position].iter().filter(|o| o.iterator == l.iterator).map(|o| o.tile).min();
        let outer = outer.unwrap_or(i64::MAX).min(self.extent(l.iterator));
        (ceil_div(outer, l.tile), outer)
    }

    fn extent(&self, v: Var) -> i64 {
        self.axes.iter().find(|a| a.iterator == v).map_or(1, |a| a.extent)
    }

    /// Bytes of reference `i`, and of the cache that holds them.
    fn footprint(&self, i: usize, extent: &impl Fn(Var) -> i64) -> (f64, f64) {
        let machine = &self.target.machine;
        let r = &self.references[i];
        if self.packed.contains(&i) {
            let elements: i64 =
                self.axes.iter().filter(|a| r.depends(a.iterator)).map(|a| extent(a.iterator)).product();
            let bytes = (elements * r.packed_bytes()) as f64;
            return (bytes, bytes);
        }
        let bytes = r.footprint(extent, machine.line_bytes as i64);
        (bytes, bytes / r.spread(extent, machine.line_bytes as i64))
    }

    /// Takes off what a cache still holds of the kernel before: activations that fit it, and constants that stay in it.
    /// `between`: bytes of sums between two parts of a reduction.
    fn forget_held(&self, between: f64, inside: &[(f64, f64)], misses: &mut [Vec<f64>; 3]) {
        for (level, misses) in misses.iter_mut().enumerate().skip(1) {
            let may_be_held = |r: &Reference| !r.constant || level >= self.constants.level();
            for (i, r) in self.references.iter().enumerate().filter(|(_, r)| may_be_held(r)) {
                let fits = inside[i].1 <= self.target.machine.usable_bytes(level);
                // A part of a reduction reads the accumulators too, from further away where they do not stay until then.
                let stay = between <= self.target.machine.usable_bytes(level);
                let visits = if r.access.is_none() && !stay { 2.0 } else { 1.0 };
                misses[i] = match self.held.contains(&r.tensor) {
                    true => 0.0,
                    false => (visits * misses[i] - if fits { inside[i].0 } else { 0.0 }).max(0.0),
                };
            }
        }
    }

    /// Values of an iterator inside of a block, or of a part of a reduction.
    fn inside_of_block(&self, order: &[TileLoop], a: &Axis) -> i64 {
        let part = order.iter().filter(|l| l.iterator == a.iterator).map(|l| l.tile).min();
        // What no loop of the order divides is done inside of a block.
        let whole = a.reduced || order.iter().all(|l| l.iterator != a.iterator);
        let block = if whole { a.extent } else { (self.block)(a.iterator) };
        part.filter(|_| a.reduced).unwrap_or(block).min(a.extent)
    }

    /// ns of exposed transfers for this order, and of visiting the accumulators between parts of a reduction.
    pub fn cost(&self, order: &[TileLoop]) -> f64 {
        let machine = &self.target.machine;
        let count = self.references.len();
        let mut covered: Vec<(Var, i64)> =
            self.axes.iter().map(|a| (a.iterator, self.inside_of_block(order, a))).collect();
        let mut inside = self.touched(&covered);
        let bytes: Vec<f64> = inside.prints.iter().map(|p| p.0).collect();
        // misses[level][reference] in bytes
        let mut misses = [bytes.clone(), bytes.clone(), bytes];
        let first = inside.clone();
        let (single, scattered) = (&first.runs, &first.scattered);
        let mut runs: Option<Vec<f64>> = None;
        let mut uses = vec![Use { times: 1.0, ahead: None }; count];
        let mut between = 0.0;
        for position in (0..order.len()).rev() {
            let l = &order[position];
            let (steps, outer) = self.steps(order, position);
            covered.iter_mut().find(|c| c.0 == l.iterator).expect("a loop over an axis").1 = outer;
            let around = self.touched(&covered);
            let followed = |(i, run): (usize, &f64)| if scattered[i] { single[i] } else { *run };
            runs.get_or_insert_with(|| around.runs.iter().enumerate().map(followed).collect());
            let prints = &inside.prints;
            let occupied = prints.iter().map(|p| p.1).fold(prints.iter().map(|p| p.0).sum(), f64::max);
            self.grow(l.iterator, steps as f64, occupied, [&inside, &around], &mut misses);
            let second = machine.usable_bytes(1);
            let held: f64 = around.prints.iter().map(|p| p.0).sum();
            for (i, seen) in uses.iter_mut().enumerate().filter(|_| steps > 1) {
                if self.references[i].depends(l.iterator) {
                    seen.times = if seen.ahead == Some(true) { 1.0 } else { seen.times };
                    seen.ahead = Some(false);
                } else {
                    let room = held + prints[i].0 <= second;
                    seen.times *= if occupied <= second { steps as f64 } else { 1.0 };
                    seen.ahead = Some(room && seen.ahead.unwrap_or(self.is_panel(i, prints[i].0)));
                }
            }
            if self.divisible.contains(&l.iterator) {
                let sums = (0..count).filter(|&i| self.references[i].access.is_none());
                between = sums.map(|i| around.prints[i].0).sum();
            }
            inside = around;
        }
        self.forget_held(between, &inside.prints, &mut misses);
        let bandwidth = &machine.bandwidth;
        // What comes from memory passes the last cache.
        let beyond = |i: usize| {
            let last: f64 = misses[1][i];
            let memory = misses[2][i].min(last);
            (last - memory) / bandwidth[2] + memory / bandwidth[3]
        };
        let total: f64 = (0..count).map(beyond).sum();
        let runs = runs.unwrap_or_else(|| single.clone());
        let late = |i: usize| {
            if self.straight {
                return 0.0;
            }
            let lines = (runs[i] / machine.line_bytes as f64).min(machine.stream_lines);
            misses[1][i] / runs[i] * lines * if scattered[i] { machine.scattered_line_ns } else { machine.late_line_ns }
        };
        let second = self.second(&misses, total);
        // Lines come from further away while products of tiles wait for the second cache.
        let core = self.compute_ns + if self.tiles { second } else { 0.0 };
        let exposed = |i: usize| {
            let ns = beyond(i);
            let busy = ns * uses[i].times + total - ns;
            let share = match self.straight {
                // Transfers and arithmetic overlap as far as they take equally long.
                true => (1.0 - self.compute_ns / total.max(f64::MIN_POSITIVE)).max(0.0),
                false => (machine.memory_exposed * busy / core).min(1.0),
            };
            ns * share + late(i)
        };
        (0..count).map(exposed).sum::<f64>() + second + self.visits(order)
    }

    /// The misses of all iterations of a loop, given those of one. `occupied`: bytes of a cache that an iteration needs.
    fn grow(
        &self,
        iterator: Var,
        steps: f64,
        occupied: f64,
        [inside, around]: [&Touched; 2],
        misses: &mut [Vec<f64>; 3],
    ) {
        let moves = |r: &Reference| r.depends(iterator);
        let streams = self.tiles && self.axes.iter().filter(|a| a.reduced && a.extent > 1).count() == 1;
        let kept = self.references.iter().zip(&inside.prints).filter(|(r, _)| !moves(r));
        let kept: f64 = kept.map(|(_, print)| print.0).sum();
        for (level, misses) in misses.iter_mut().enumerate() {
            let needed = if streams && level == 0 { kept } else { occupied };
            let fits = needed <= self.target.machine.usable_bytes(level);
            for (i, r) in self.references.iter().enumerate() {
                let more = around.prints[i].0 / inside.prints[i].0;
                let growth = if fits { more.clamp(1.0, steps) } else { steps };
                misses[i] *= if moves(r) || !fits { growth } else { 1.0 };
            }
        }
    }

    /// ns of exposed transfers from the second cache, where those from further away take `total` ns.
    fn second(&self, misses: &[Vec<f64>; 3], total: f64) -> f64 {
        let machine = &self.target.machine;
        let near: f64 = misses[0].iter().sum();
        if self.tiles {
            let own = (near - misses[1].iter().sum::<f64>()).max(0.0);
            return machine.tile_second_exposed * own / machine.bandwidth[1];
        }
        let ns = near / machine.bandwidth[1];
        // What takes longer than the arithmetic and the transfers from further away does not hide behind them.
        (machine.second_exposed * ns).max(ns - self.compute_ns - total)
    }

    /// Footprints of the references when the iterators of all axes take so many values.
    fn touched(&self, covered: &[(Var, i64)]) -> Rc<Touched> {
        let key: Vec<i64> = covered.iter().map(|c| c.1).collect();
        if let Some(known) = self.known.touched.borrow().get(&key) {
            return known.clone();
        }
        let extent = |v: Var| covered.iter().find(|c| c.0 == v).map_or(1, |c| c.1);
        let run = |(i, r): (usize, &Reference)| match self.packed.contains(&i) || r.access.is_none() {
            true => f64::INFINITY,
            false => r.run(&extent).max(self.target.machine.line_bytes as i64) as f64,
        };
        let touched = Rc::new(Touched {
            prints: (0..self.references.len()).map(|i| self.footprint(i, &extent)).collect(),
            runs: self.references.iter().enumerate().map(run).collect(),
            scattered: self.references.iter().map(|r| r.pages(&extent) > self.target.machine.page_streams).collect(),
        });
        self.known.touched.borrow_mut().insert(key, touched.clone());
        touched
    }

    /// Returns true if the next piece of a reference, of so many bytes, is fetched while the present one is used: a
    /// dense one of which all iterations of the reduction loops read the same amount.
    fn is_panel(&self, i: usize, bytes: f64) -> bool {
        let machine = &self.target.machine;
        let r = &self.references[i];
        let uneven = self.axes.iter().any(|a| a.reduced && a.conditioned && r.depends(a.iterator));
        let small = bytes <= machine.cache_bytes[1] as f64 * machine.prefetched_share;
        self.packed.contains(&i) && !uneven && small
    }

    fn is_cut(&self, order: &[TileLoop]) -> bool {
        order.iter().any(|l| self.divisible.contains(&l.iterator))
    }

    /// Returns true if the rows of a block of sums lie in more pages than stores find at once, in a buffer of what the loops inside the parts
    /// work on.
    fn sums_spread(&self, order: &[TileLoop]) -> bool {
        let Some(outermost) = order.iter().position(|l| self.divisible.contains(&l.iterator)) else { return false };
        let column =
            |a: &&Axis| self.references.iter().any(|r| r.access.is_none() && r.along(a.iterator) == Along::Unit);
        let Some(columns) = self.axes.iter().find(column) else { return false };
        let around = order[..outermost].iter().filter(|l| l.iterator == columns.iterator).map(|l| l.tile).min();
        let row = around.unwrap_or(columns.extent).min(columns.extent) * SUM_BYTES;
        let rows = self.axes.iter().filter(|a| !a.reduced && a.iterator != columns.iterator);
        let rows: i64 = rows.map(|a| (self.block)(a.iterator).min(a.extent)).product();
        rows * row.min(PAGE) > self.target.machine.store_pages * PAGE
    }

    /// ns to fetch and to store the accumulators once more for each part of a reduction.
    fn visits(&self, order: &[TileLoop]) -> f64 {
        let machine = &self.target.machine;
        if !self.is_cut(order) {
            return 0.0;
        }
        let parts: i64 = (0..order.len())
            .filter(|&position| self.divisible.contains(&order[position].iterator))
            .map(|position| self.steps(order, position).0)
            .product();
        let (mut blocks, mut points) = (1.0, 1.0);
        for a in self.axes.iter().filter(|a| !a.reduced) {
            let block = (self.block)(a.iterator).min(a.extent);
            blocks *= ceil_div(a.extent, block) as f64;
            points *= block as f64;
        }
        let vectors = points / self.target.lanes(4) as f64;
        // One visit more is that of initialisation and result, in passes of their own; tiles begin and end in those of the parts.
        let visits = if self.tiles { parts - 1 } else { parts + 1 };
        let pages = if self.tiles && self.sums_spread(order) { machine.far_sum_cycles * vectors } else { 0.0 };
        let cycles = visits as f64 * blocks * (machine.edge_cycles(vectors) + pages);
        // Each part reads and writes them; one write is that of a sum that is not cut.
        let strided = (2 * parts - 1) as f64 * self.strided_sums;
        (cycles + strided) / machine.clock_ghz
    }
}

/// Use that the enclosing loops make of the data that they fetch for a reference.
#[derive(Clone, Copy)]
struct Use {
    /// Number of iterations for which it is fetched once.
    times: f64,
    /// Loops have used the same bytes again so far, while the next ones could be fetched.
    ahead: Option<bool>,
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
