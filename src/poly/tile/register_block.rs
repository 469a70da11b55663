//! Register block: the vector iterator, and the numbers of vectors and rows of them in registers at a time.
//!
//! In: the accesses and extents of the dominant statement. Out: the block with the fewest predicted cycles. Every
//! parallel iterator is tried as vector with nr = u·lanes points, and up to two others with m points each; a reduced
//! iterator with unit stride may be the vector too, its lanes combined at the end. One step of the reduction over a block
//! with `u·m` accumulators takes
//!
//! ```text
//! cycles = max(operations / ports, loads / load ports, latency) + overlap · (the others) + stream · bytes / L2 bandwidth + loop
//! ```
//!
//! and a statement takes Σ over its full and partial blocks of blocks · (steps · cycles + edge), so that extents that a
//! block does not divide count as what they cost. Blocks that are nearly as good are candidates too, with operands that
//! are given at run time read where they lie or from packed copies: what they cost in memory decides
//! ([`super::cache`]). Accumulators, the vectors of one row and two more fit the registers. This is the micro-kernel
//! part of Low, Igual, Smith, Quintana-Ortí, "Analytical Modeling Is Enough for High-Performance BLIS" (TOMS 2016),
//! with accesses instead of fixed operands and with the edges counted.

use crate::codegen::Target;
use crate::expr::Var;
use crate::expr::interval::{ceil_div, gcd};
use crate::poly::analysis::access::{Along, Reference};
use crate::poly::instruction::group::Grouped;
use crate::poly::statement::Statement;
use std::borrow::Cow;

/// An iterator of the dominant statement that has a loop of its own.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    pub iterator: Var,
    pub extent: i64,
    /// Iterations may run at the same time.
    pub parallel: bool,
    /// Summed over: the target does not depend on it.
    pub reduced: bool,
    /// May be split and moved innermost.
    pub movable: bool,
    /// Points of a block along it differ in where the statement runs at all (padding).
    pub conditioned: bool,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Block {
    /// Vector axis and its points; for a reduced axis the whole extent.
    pub vector: Option<(Var, i64)>,
    /// The lanes are combined.
    pub lanes_reduced: bool,
    /// Unrolled axes with their points, outermost first.
    pub unrolled: Vec<(Var, i64)>,
    /// Reads that are packed (positions in the list of references).
    pub packed: Vec<usize>,
    /// Time of all instances, in cycles, without packing.
    pub cycles: f64,
    /// The tensor instruction that the block is made of.
    pub tensor: Option<Grouped>,
}

/// Facts about the dominant statement.
pub struct Problem<'a> {
    pub statement: &'a Statement,
    /// Vector instructions of one instance.
    pub operations: f64,
    pub references: &'a [Reference],
    pub axes: &'a [Axis],
    pub target: &'a Target,
    /// Bytes of a lane.
    pub element: i64,
    /// Cycles that the other statements lose when the vector runs along an iterator.
    pub elsewhere: &'a dyn Fn(Var) -> f64,
    /// Tensor instructions that match the statement.
    pub grouped: &'a [Grouped],
    /// Blocks whose sums lowering unrolls are straight-line code.
    pub unrolled: bool,
    /// Sums of other statements that stay in registers for each one of this statement.
    pub sums_beside: i64,
    /// Registers of each vector of an operand that several rows read.
    pub operand_parts: i64,
}

/// Largest ratio of a candidate block's cycles to those of the best one. Unmeasured.
const NEARLY: f64 = 1.12;

/// Vector instructions that a conversion of f16 or bf16 counts for: x86-64 takes two micro-operations, and AArch64 one of twice the
/// usual time or of half of the units.
const CONVERSION: f64 = 2.0;

impl Problem<'_> {
    fn lanes(&self) -> i64 {
        self.target.lanes(self.element as usize) as i64
    }

    fn instances(&self) -> f64 {
        self.axes.iter().map(|a| a.extent as f64).product()
    }

    /// The best block. Without any axis that a vector may run along, a block of scalars.
    pub fn best(&self) -> Block {
        self.candidates().0.swap_remove(0)
    }

    /// Returns the best block of each vector axis, without and with operands packed at run time: the best one first, then those
    /// within a factor [`NEARLY`] of it, and the number of both; then the rest.
    pub fn candidates(&self) -> (Vec<Block>, usize) {
        let mut best = self.scalar();
        let mut others = vec![];
        for v in self.axes.iter().filter(|v| v.extent > 1 && v.movable) {
            let blocks = match (v.parallel, v.reduced) {
                (true, _) => {
                    let (constants, run_time) = self.packable(v.iterator);
                    let all = [&constants[..], &run_time[..]].concat();
                    let with = if run_time.is_empty() { None } else { self.along_parallel(v, &all, None) };
                    let converted = self.convertible(v.iterator);
                    let all = [&all[..], &converted].concat();
                    let apart = if converted.is_empty() { None } else { self.along_parallel(v, &all, None) };
                    [self.along_parallel(v, &constants, None), with, apart].map(|block| self.with_panels(v, block?))
                }
                (_, true) => [self.along_reduced(v), None, None],
                _ => [None, None, None],
            };
            let tensors = if v.parallel { self.along_tensors(v) } else { vec![] };
            for block in blocks.into_iter().flatten().chain(tensors) {
                let better = block.cycles + self.copying(&block) < (best.cycles + self.copying(&best)) * 0.999;
                others.push(if better { std::mem::replace(&mut best, block) } else { block });
            }
        }
        let most = best.cycles * NEARLY;
        let (near, far): (Vec<Block>, Vec<Block>) = others.into_iter().partition(|b| b.cycles <= most);
        let count = near.len() + 1;
        (std::iter::once(best).chain(near).chain(far).collect(), count)
    }

    /// The references of a block, and those of them that are read from panels. What tensor instructions read is not converted; a
    /// converted copy of what is the same in all lanes has the order of its source.
    pub(super) fn references_of(&self, block: &Block) -> (Cow<'_, [Reference]>, Vec<usize>) {
        let in_panels = |i: &usize| block.vector.is_none_or(|(v, _)| self.references[*i].depends(v));
        let (panels, others): (Vec<usize>, Vec<usize>) = block.packed.iter().partition(|i| in_panels(i));
        if self.references.iter().all(|r| r.converted.is_none()) {
            return (self.references.into(), panels);
        }
        let mut references = self.references.to_vec();
        others.iter().for_each(|&i| references[i].bytes = references[i].packed_bytes());
        if block.tensor.is_some() {
            references.iter_mut().for_each(|r| r.converted = None);
        }
        (references.into(), panels)
    }

    /// Time to pack the operands of a block that are given at run time, in cycles.
    pub fn copying(&self, block: &Block) -> f64 {
        let machine = &self.target.machine;
        let Some((v, _)) = block.vector else { return 0.0 };
        let is_tensor = block.tensor.is_some();
        let run_time = block.packed.iter().map(|&i| &self.references[i]).filter(|r| !r.constant);
        let cycles = run_time.map(|r| {
            let depends = self.axes.iter().filter(|a| r.depends(a.iterator));
            let elements: f64 = depends.map(|a| a.extent as f64).product();
            // It is read, its place is fetched, and it is written.
            let written = if is_tensor { r.bytes } else { r.packed_bytes() };
            let bytes = elements * (r.bytes + 2 * written) as f64 / 3.0;
            let level = if 2.0 * bytes <= machine.cache_bytes[1] as f64 { 1 } else { 2 };
            let moved = (machine.launch_ns + 3.0 * bytes / machine.bandwidth[level]) * machine.clock_ghz;
            if r.along(v) == Along::Unit || !r.depends(v) {
                moved
            } else {
                moved.max(elements * machine.strided_lane_cycles * machine.store_factor)
            }
        });
        cycles.sum()
    }

    fn scalar(&self) -> Block {
        let loads = self.references.len() as f64;
        let cycles = self.instances() * (self.operations.max(loads) + self.target.machine.fma_latency as f64);
        Block { cycles, ..Block::default() }
    }

    /// Reads that may be packed when the vector runs along `v`: constants that are strided or of two or more dimensions,
    /// whose packed copy is free and contiguous, and operands given at run time whose elements are used often.
    pub fn packable(&self, v: Var) -> (Vec<usize>, Vec<usize>) {
        let (mut constants, mut given) = (vec![], vec![]);
        for (i, r) in self.references.iter().enumerate() {
            if !r.packable(self.statement) || !r.depends(v) || r.along(v) == Along::Gathered {
                continue;
            }
            let dims = r.strides.iter().filter(|s| **s != Some(0)).count();
            let unit = r.along(v) == Along::Unit;
            let reduces = self.statement.reduce.is_some();
            if r.constant {
                if !unit || dims > 1 && reduces {
                    constants.push(i);
                }
                continue;
            }
            let elements: i64 =
                self.axes.iter().filter(|a| r.depends(a.iterator)).map(|a| a.extent).product::<i64>().max(1);
            if reduces && (self.instances() / elements as f64) as i64 >= self.target.machine.pack_reuse {
                given.push(i);
            }
        }
        (constants, given)
    }

    /// Reads of operands given at run time that a copy converts once, whose elements are the same in all lanes when the vector runs
    /// along `v` and are used often.
    fn convertible(&self, v: Var) -> Vec<usize> {
        let is = |r: &Reference| {
            let others = self.axes.iter().filter(|a| !r.depends(a.iterator)).map(|a| a.extent);
            let uses = others.fold(1, i64::saturating_mul);
            let free = r.converted.is_some() && !r.constant && !r.depends(v) && r.packable(self.statement);
            free && uses >= self.target.machine.pack_reuse
        };
        (0..self.references.len()).filter(|&i| is(&self.references[i])).collect()
    }

    /// The best block along `v` whose vectors are the panels of a constant that memory has packed, where it reads one. It
    /// counts with the cycles of the free choice, so that the axis of the vector, and with it the order of sums, does not
    /// depend on what memory has.
    fn with_panels(&self, v: &Axis, free: Block) -> Option<Block> {
        let panel = |i: &usize| {
            let (subscript, points) = self.references[*i].panel.as_ref()?;
            subscript.terms.contains(&(v.iterator, 1)).then_some(*points)
        };
        let Some(points) = free.packed.iter().find_map(panel) else { return Some(free) };
        let bound = self.along_parallel(v, &free.packed, Some(points));
        Some(bound.map_or(free.clone(), |block| Block { cycles: free.cycles, ..block }))
    }

    /// `panel`: the only number of points along `v` that a block may have.
    pub(super) fn along_parallel(&self, v: &Axis, packed: &[usize], panel: Option<i64>) -> Option<Block> {
        let machine = &self.target.machine;
        let lanes = self.lanes();
        let reduces = self.statement.reduce.is_some();
        // Of equals the axis further in is unrolled: its points are neighbours in memory.
        let free = |a: &&Axis| a.parallel && a.movable && a.iterator != v.iterator && a.extent > 1;
        let mut others: Vec<&Axis> = self.axes.iter().filter(free).collect();
        others.reverse();
        let most = ceil_div(v.extent, lanes);
        let registers = self.target.vector_registers as i64;
        let streams =
            !reduces && self.references.iter().all(|r| matches!(r.along(v.iterator), Along::Unit | Along::Invariant));
        let mut best: Option<Block> = None;
        let mut consider = |u: i64, unrolled: &[(&Axis, i64)]| {
            if panel.is_some_and(|points| points != u * lanes) {
                return;
            }
            let cycles = self.cycles(v, u * lanes, unrolled, packed);
            // The first of near equals wins: one unrolled axis before two, few conditions before many.
            let margin = match unrolled.iter().filter(|u| u.0.conditioned).count() {
                0 | 1 if unrolled.len() < 2 => 1.0 - 1e-9,
                0 | 1 => 0.99,
                _ => 0.94,
            };
            if best.as_ref().is_none_or(|b| cycles < b.cycles * margin) {
                best = Some(Block {
                    vector: Some((v.iterator, (u * lanes).min(most * lanes))),
                    unrolled: unrolled.iter().map(|(a, m)| (a.iterator, *m)).collect(),
                    packed: packed.to_vec(),
                    cycles,
                    ..Block::default()
                });
            }
        };
        let rows_of = |u: i64, unrolled: &[&Axis]| self.most_rows(v, u, unrolled);
        if streams {
            // Nothing is kept in registers: one long vector loop, cut by the caller; several rows when they are short.
            consider(most, &[]);
            if let Some(a) = others.first().filter(|_| most < machine.short_row_vectors) {
                consider(most, &[(a, a.extent.min(ceil_div(machine.short_row_vectors, most)))]);
            }
            let mut best = best?;
            best.vector = Some((v.iterator, v.extent));
            return Some(best);
        }
        // Enough accumulators to hide the latency, when there is only the vector to take them from.
        let alone = (machine.fma_latency * machine.fma_per_cycle) as i64;
        for u in 1..=most.min(if reduces { registers / 2 } else { machine.stream_block_vectors }) {
            if rows_of(u, &[]) < 1 {
                break;
            }
            if u <= alone {
                consider(u, &[]);
            }
            for a in &others {
                for m in 2..=a.extent.min(rows_of(u, &[a])) {
                    consider(u, &[(a, m)]);
                }
            }
        }
        for u in 1..=most.min(if reduces { registers / 2 } else { machine.stream_block_vectors }) {
            for (i, a) in others.iter().enumerate() {
                for b in &others[..i] {
                    let rows = rows_of(u, &[b, a]);
                    for m in 2..=b.extent.min(rows) {
                        for n in 2..=a.extent.min(rows / m) {
                            consider(u, &[(a, n), (b, m)]);
                        }
                    }
                }
            }
        }
        best
    }

    /// The rows, of points of the unrolled axes, that blocks of `u` vectors along `v` have at most: their sums, or what they stream, fit
    /// the registers.
    fn most_rows(&self, v: &Axis, u: i64, unrolled: &[&Axis]) -> i64 {
        if self.statement.reduce.is_none() {
            return self.target.machine.stream_block_vectors / u;
        }
        let reads = || self.references.iter().filter(|r| r.access.is_some() && r.depends(v.iterator));
        let operands = if reads().next().is_some() { u } else { 1 };
        // An operand that varies along the vector and an unrolled axis has a register for each accumulator.
        let wide = reads().filter(|r| unrolled.iter().any(|a| r.depends(a.iterator))).count() as i64;
        // Beside several parts of an operand, what is broadcast stays in memory.
        let (parts, passing) = match self.operand_parts {
            parts if parts > 1 && !unrolled.is_empty() => (parts, 0),
            _ => (1, 2),
        };
        (self.target.vector_registers as i64 - operands * parts - passing) / (u * (1 + wide + self.sums_beside))
    }

    fn along_reduced(&self, v: &Axis) -> Option<Block> {
        let machine = &self.target.machine;
        let contiguous = self.references.iter().all(|r| matches!(r.along(v.iterator), Along::Unit | Along::Invariant));
        if !contiguous || self.statement.reduce.is_none() {
            return None;
        }
        let lanes = self.lanes();
        let rows = self.instances() / v.extent as f64;
        let vectors = ceil_div(v.extent, lanes) as f64;
        let reads = self.references.iter().filter(|r| r.access.is_some()).count() as f64;
        let work = (self.operations / machine.fma_per_cycle as f64)
            .max(reads / machine.loads_per_cycle as f64)
            .max(machine.fma_latency as f64 / 4.0);
        let combine = machine.combine_cycles * (lanes as f64).log2() + machine.fma_latency as f64 * 2.0;
        let cycles = rows * (vectors * work + combine) + (self.elsewhere)(v.iterator);
        Some(Block { vector: Some((v.iterator, v.extent)), lanes_reduced: true, cycles, ..Block::default() })
    }

    /// Predicted cycles of all instances with blocks of `nr` points along `v` and the unrolled axes.
    pub(super) fn cycles(&self, v: &Axis, nr: i64, unrolled: &[(&Axis, i64)], packed: &[usize]) -> f64 {
        let machine = &self.target.machine;
        let steps: f64 = self.axes.iter().filter(|a| a.reduced).map(|a| a.extent as f64).product();
        let mut outer: f64 = 1.0;
        for a in self.axes.iter().filter(|a| !a.reduced) {
            if a.iterator != v.iterator && !unrolled.iter().any(|u| u.0.iterator == a.iterator) {
                outer *= a.extent as f64;
            }
        }
        let lanes = self.lanes();
        let edge = |p: i64, rows: i64, straight: bool| {
            let vectors = (ceil_div(p, lanes) * rows) as f64;
            match self.statement.reduce {
                Some(_) if straight => machine.vector_edge_cycles * vectors,
                Some(_) => machine.edge_cycles(vectors),
                None => 0.0,
            }
        };
        let mut total = 0.0;
        let parts = |extent: i64, tile: i64| [(extent / tile, tile), (i64::from(extent % tile > 0), extent % tile)];
        for (nv, pv) in parts(v.extent, nr) {
            if nv == 0 {
                continue;
            }
            let first = unrolled.first().map_or([(1, 1), (0, 0)], |u| parts(u.0.extent, u.1));
            for (n1, p1) in first {
                let second = unrolled.get(1).map_or([(1, 1), (0, 0)], |u| parts(u.0.extent, u.1));
                for (n2, p2) in second {
                    let count = (nv * n1 * n2) as f64;
                    if count > 0.0 {
                        let points =
                            [(v.iterator, pv)].into_iter().chain(unrolled.iter().map(|u| u.0.iterator).zip([p1, p2]));
                        let points: Vec<(Var, i64)> = points.collect();
                        let straight = self.is_straight(&points);
                        total += count * (steps * self.step(v, &points, packed) + edge(pv, p1 * p2, straight));
                    }
                }
            }
        }
        // Lanes that do not all take part need masks that differ from block to block.
        let masks = if v.conditioned { 2.0 } else { 1.0 };
        total * outer * masks + (self.elsewhere)(v.iterator)
    }

    /// The number of lines of a read of elements of so many bytes, one for each point of an unrolled axis, that compete for one set
    /// of the first cache.
    fn alias(&self, r: &Reference, bytes: i64, points: &[(Var, i64)]) -> i64 {
        let machine = &self.target.machine;
        let line = machine.line_bytes as i64;
        let sets = (machine.cache_bytes[0] / machine.line_bytes / machine.cache_ways_l1) as i64;
        points
            .iter()
            .filter(|p| p.1 > 1)
            .map(|&(v, m)| {
                let bytes = r.strides[v.0 as usize].unwrap_or(0).abs() * bytes;
                if bytes == 0 || bytes % line != 0 {
                    return 1;
                }
                let distinct = sets / gcd(bytes / line, sets);
                ceil_div(m, distinct)
            })
            .product()
    }

    /// The share of the work of a block that remains when a read is a literal in its code, which takes no load and no
    /// product with 0: all its subscripts are unrolled. `None` for a read from memory.
    fn remaining(&self, r: &Reference, points: &[(Var, i64)]) -> Option<f64> {
        let share = r.nonzero?;
        let mut operations = self.vectors(points);
        let depends = self.axes.iter().filter(|a| r.depends(a.iterator));
        let unrolled = depends.clone().filter(|a| !a.reduced).all(|a| points[1..].contains(&(a.iterator, a.extent)));
        operations *= depends.filter(|a| a.reduced).map(|a| a.extent).product::<i64>();
        (unrolled && self.target.machine.unrolls(operations as f64 * share)).then_some(share)
    }

    /// The points of a block: those of the vector first, then those of the unrolled axes.
    pub fn points(&self, block: &Block) -> Vec<(Var, i64)> {
        block.vector.filter(|_| !block.lanes_reduced).into_iter().chain(block.unrolled.iter().copied()).collect()
    }

    /// Returns true if a block has no loop inside: all steps of its sum are unrolled with their literals, and the latency of
    /// one block is hidden by the next ones.
    pub fn is_straight(&self, points: &[(Var, i64)]) -> bool {
        let literals = || self.references.iter().any(|r| self.remaining(r, points).is_some());
        !points.is_empty() && (self.unrolled && self.is_unrolled(points) || literals())
    }

    /// Returns true if lowering unrolls the sums of a block with these points.
    fn is_unrolled(&self, points: &[(Var, i64)]) -> bool {
        let summed: Vec<&Axis> = self.axes.iter().filter(|a| a.reduced).collect();
        let instances = summed.iter().fold(self.vectors(points), |n, a| n.saturating_mul(a.extent));
        !summed.is_empty() && summed.iter().all(|a| !a.conditioned) && self.target.machine.unrolls(instances as f64)
    }

    /// Vectors of a block with these points.
    fn vectors(&self, points: &[(Var, i64)]) -> i64 {
        points[1..].iter().fold(ceil_div(points[0].1, self.lanes()), |n, p| n * p.1)
    }

    /// Time of one reduction step of a block with these points, in cycles.
    fn step(&self, v: &Axis, points: &[(Var, i64)], packed: &[usize]) -> f64 {
        let machine = &self.target.machine;
        let lanes = self.lanes();
        let vectors = ceil_div(points[0].1, lanes);
        let rows: i64 = points[1..].iter().map(|p| p.1).product();
        let reduces = self.statement.reduce.is_some();
        let steps: i64 = self.axes.iter().filter(|a| a.reduced).map(|a| a.extent).product();
        let straight = self.is_straight(points);
        let mut work = self.operations * (vectors * rows) as f64;
        let (mut loads, mut conversions, mut streamed) = (0.0, 0.0, 0.0);
        for (i, r) in self.references.iter().enumerate() {
            if r.access.is_none() && reduces {
                continue;
            }
            if let Some(share) = self.remaining(r, points) {
                work *= share;
                continue;
            }
            let copies: i64 = points[1..].iter().filter(|p| r.depends(p.0)).map(|p| p.1).product();
            let is_packed = packed.contains(&i);
            let along = if is_packed && r.depends(v.iterator) { Along::Unit } else { r.along(v.iterator) };
            // Vectors, and elements that are the same in all lanes, are converted once for all that reads them.
            if r.converted.is_some() && (r.constant || !is_packed) {
                conversions += CONVERSION * (if along == Along::Invariant { copies } else { vectors * copies }) as f64;
            }
            let bytes = if is_packed { r.packed_bytes() } else { r.bytes };
            let one = match along {
                Along::Invariant => 1.0,
                Along::Unit => vectors as f64,
                // A scatter costs more than a gather, lane by lane.
                Along::Strided(_) | Along::Gathered => {
                    let store = if r.access.is_some() { 1.0 } else { machine.store_factor };
                    let lane = store * machine.strided_lane_cycles;
                    points[0].1 as f64 * lane * machine.loads_per_cycle as f64
                }
            };
            loads += one * copies as f64;
            // Rows that evict each other from the first cache come from the second every time.
            let crowded = self.alias(r, bytes, &points[1..]) * 4 > machine.cache_ways_l1 as i64 * 3;
            if reduces && crowded && along == Along::Invariant {
                streamed += (copies * machine.line_bytes as i64) as f64 / machine.stream_exposed;
            }
            // A panel that does not stay in the first cache comes from the second in every block.
            let panel = points[0].1 * copies * steps * bytes;
            if along == Along::Unit && reduces && panel * 2 > machine.cache_bytes[0] as i64 {
                streamed += (points[0].1 * copies * bytes) as f64;
            }
        }
        let parts = [
            (work + conversions) / machine.fma_per_cycle as f64,
            loads / machine.loads_per_cycle as f64,
            if reduces && !straight { machine.fma_latency as f64 } else { 0.0 },
        ];
        let longest = parts.iter().fold(0.0f64, |a, &b| a.max(b));
        longest
            + machine.port_overlap * (parts[0] + parts[1] - longest.min(parts[0] + parts[1]))
            + machine.stream_exposed * streamed * machine.clock_ghz / machine.bandwidth[1]
            + if straight { 0.0 } else { machine.loop_cycles }
    }
}

/// The vector instructions of an instance, of so many with conversions, when operands are converted once for a block.
pub(super) fn without_conversions(operations: f64, references: &[Reference]) -> f64 {
    let conversions = references.iter().filter(|r| r.converted.is_some()).count() as f64;
    (operations - conversions).max(1.0)
}
