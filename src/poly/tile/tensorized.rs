//! Register blocks of tensor instructions: the block of vectors and rows whose sums take several terms at a time.
//!
//! In: a statement and the rows that match it. Out: the block with the fewest predicted cycles for each. One step of the
//! reduction takes a group of terms of both operands: the model of the block is that of a statement whose elements are as
//! wide as a group and whose reduction has as many steps as groups.

use crate::codegen::instruction::{MATRIX_COLUMNS, MATRIX_SIDE, TILE_ROWS, tile_extents, tile_rows};
use crate::expr::Var;
use crate::expr::interval::ceil_div;
use crate::poly::analysis::access::{Along, Reference};
use crate::poly::instruction::group::{Grouped, Sums, match_grouped};
use crate::poly::instruction::is_fma;
use crate::poly::statement::StatementId;
use crate::poly::tile::plan::Phase;
use crate::poly::tile::register_block::{Axis, Block, Problem};

impl Problem<'_> {
    /// The best blocks of each matched row whose lanes run along `v`, with its operand in lanes packed.
    pub(super) fn along_tensors(&self, v: &Axis) -> Vec<Block> {
        let along = |g: &Grouped| match g.sums {
            Sums::Tile => self.along_tiles(v, g),
            Sums::Matrix => self.along_matrices(v, g).into_iter().collect(),
            Sums::Vector => self.along_tensor(v, g),
        };
        self.grouped.iter().filter(|g| g.lane == v.iterator).flat_map(along).collect()
    }

    /// The best block of sums in vectors, with its operand in lanes packed; and, of a row of one term, the best one that reads it as it lies,
    /// where packing it is not free.
    fn along_tensor(&self, v: &Axis, matched: &Grouped) -> Vec<Block> {
        let Grouped { terms, vector, .. } = *matched;
        let Some(row) = self.target.instructions.iter().find(|row| row.name == matched.row) else { return vec![] };
        if row.sums_halves() && v.conditioned {
            return vec![];
        }
        let (axes, references) = self.in_groups(matched);
        let problem = Problem {
            operations: matched.products as f64 * self.target.row_factor(row),
            operand_parts: matched.products as i64,
            references: &references,
            axes: &axes,
            element: row.operands[0].dtype.bytes() as i64,
            grouped: &[],
            unrolled: false,
            ..*self
        };
        let as_it_lies = terms == 1 && self.references[vector].along(v.iterator) == Along::Unit;
        let (constants, given) = self.packable(v.iterator);
        let orders: &[&[usize]] = match as_it_lies {
            false => &[&[vector]],
            true if constants.contains(&vector) => &[&[vector]],
            true if given.contains(&vector) => &[&[], &[vector]],
            true => &[&[]],
        };
        let blocks = orders.iter().filter_map(|packed| problem.along_parallel(v, packed, None));
        blocks.map(|block| Block { tensor: Some(matched.clone()), ..block }).collect()
    }

    /// The axes and references where a group of terms is one element of the reads, and one step of the sum.
    fn in_groups(&self, matched: &Grouped) -> (Vec<Axis>, Vec<Reference>) {
        let Grouped { group, terms, .. } = *matched;
        let groups = |a: &Axis| ceil_div(a.extent, terms);
        let axes: Vec<Axis> = self
            .axes
            .iter()
            .map(|a| Axis { extent: if a.iterator == group { groups(a) } else { a.extent }, ..a.clone() })
            .collect();
        let wide = |r: &Reference| -> Reference {
            if r.access.is_none() {
                return r.clone();
            }
            let stride = |(n, s): (usize, &Option<i64>)| match s {
                Some(s) if Var(n as u32) != group => Some((s + s.signum() * (terms - 1)) / terms),
                s => *s,
            };
            Reference {
                bytes: r.bytes * terms,
                converted: None,
                strides: r.strides.iter().enumerate().map(stride).collect(),
                ..r.clone()
            }
        };
        (axes, self.references.iter().map(wide).collect())
    }

    /// The best block of matrices whose columns run along `v`: vectors of columns times an even number of rows. Two rows of the
    /// other operand take an instruction to stand in one register.
    fn along_matrices(&self, v: &Axis, matched: &Grouped) -> Option<Block> {
        let rows = self.rows_of_tiles(v, matched).filter(|_| !v.conditioned)?;
        let (axes, mut references) = self.in_groups(matched);
        // Two columns fill a register: a vector of them takes two loads.
        let again = Reference { bytes: 0, ..references[matched.vector].clone() };
        references.push(again);
        let packed = [matched.vector, references.len() - 1];
        let (lanes, registers) = (MATRIX_COLUMNS, self.target.vector_registers as i64);
        let mut best: Option<Block> = None;
        for a in rows {
            // A last row without a partner takes as long as two.
            let pairs = Axis { extent: ceil_div(a.extent, MATRIX_SIDE) * MATRIX_SIDE, ..a.clone() };
            let even = |x: &Axis| if x.iterator == a.iterator { pairs.clone() } else { x.clone() };
            let axes: Vec<Axis> = axes.iter().map(even).collect();
            for u in 1..=ceil_div(v.extent, lanes) {
                let most = ((registers - IN_PASSING) / u - MATRIX_SIDE).min(pairs.extent);
                for m in (MATRIX_SIDE..=most).step_by(MATRIX_SIDE as usize) {
                    let operations = 1.0 + 1.0 / (MATRIX_SIDE * u) as f64;
                    let own = Problem { operations, references: &references, axes: &axes, grouped: &[], ..*self };
                    let own = Problem { unrolled: false, ..own };
                    let cycles = own.cycles(v, u * lanes, &[(&pairs, m)], &packed);
                    if best.as_ref().is_none_or(|b| cycles < b.cycles * (1.0 - 1e-9)) {
                        best = Some(Block {
                            vector: Some((v.iterator, u * lanes)),
                            unrolled: vec![(a.iterator, m.min(a.extent))],
                            packed: vec![matched.vector],
                            cycles,
                            tensor: Some(matched.clone()),
                            ..Block::default()
                        });
                    }
                }
            }
        }
        best
    }
}

/// Registers that two rows of an operand pass through.
const IN_PASSING: i64 = 3;

/// Rows and columns of a tile of sums, and groups of terms that an instruction takes.
const SIDE: i64 = TILE_ROWS as i64;

/// Tiles of sums along rows and columns in registers, beside those of operands.
const GRIDS: [(i64, i64); 6] = [(2, 2), (1, 4), (4, 1), (1, 2), (2, 1), (1, 1)];

/// Rows of a block of tiles: points of the iterator of the rows, and of one around it.
#[derive(Clone, Copy)]
struct Rows<'a> {
    inner: (&'a Axis, i64),
    outer: Option<(&'a Axis, i64)>,
    /// Rows of neighbouring points of the outer iterator lie at the distance of all others: tiles divide the rows of both. Each
    /// point of the outer one has tiles of its own otherwise.
    dense: bool,
}

impl Problem<'_> {
    /// The best block of tiles whose columns run along `v`, for each grid.
    fn along_tiles(&self, v: &Axis, matched: &Grouped) -> Vec<Block> {
        let Some(axes) = self.rows_of_tiles(v, matched).filter(|_| !v.conditioned) else { return vec![] };
        let elsewhere = (self.elsewhere)(v.iterator);
        let grids = GRIDS.iter().filter(|(_, across)| *across <= ceil_div(v.extent, SIDE));
        let best = grids.filter_map(|&(along, across)| {
            let candidates = axes.iter().flat_map(|inner| self.rows(matched, inner, &axes, along));
            let priced = candidates.map(|rows| (rows, self.cycles_of_tiles(v, rows, across, matched) + elsewhere));
            priced.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(rows, cycles)| (rows, across, cycles))
        });
        best.map(|(rows, across, cycles)| {
            let unrolled = rows.outer.into_iter().chain([rows.inner]).map(|(a, n)| (a.iterator, n));
            Block {
                vector: Some((v.iterator, across * SIDE)),
                unrolled: unrolled.collect(),
                packed: vec![matched.vector],
                cycles,
                tensor: Some(matched.clone()),
                ..Block::default()
            }
        })
        .collect()
    }

    /// The rows of blocks of `along` tiles whose innermost iterator is that of `inner`.
    fn rows<'a>(&self, matched: &Grouped, inner: &'a Axis, axes: &[&'a Axis], along: i64) -> Vec<Rows<'a>> {
        let tiles = ceil_div(inner.extent, SIDE);
        // Whole tiles, about equal blocks, or equal parts of all rows.
        let points: Vec<i64> = match tiles <= along {
            true => vec![inner.extent],
            false => {
                let equal = (12..SIDE).rev().map(|height| height * along).find(|n| inner.extent % n == 0);
                let about = ceil_div(inner.extent, ceil_div(inner.extent, along * SIDE));
                [along * SIDE, about].into_iter().chain(equal).collect()
            }
        };
        let mut found: Vec<Rows> =
            points.iter().map(|&n| Rows { inner: (inner, n), outer: None, dense: false }).collect();
        let other = self.references.iter().enumerate().find(|(n, r)| *n != matched.vector && r.access.is_some());
        let stride = |a: &Axis| other.and_then(|(_, r)| r.strides[a.iterator.0 as usize]).unwrap_or(0);
        for &outer in axes.iter().filter(|o| tiles <= along && o.iterator != inner.iterator) {
            let dense = stride(outer) == inner.extent * stride(inner);
            let most = if dense { along * SIDE / inner.extent } else { along / tiles }.min(outer.extent);
            if most > 1 {
                found.push(Rows { inner: (inner, inner.extent), outer: Some((outer, most)), dense });
            }
        }
        found
    }

    /// The axes that rows of tiles may run along: the other operand moves along them, the one in columns does not.
    fn rows_of_tiles(&self, v: &Axis, matched: &Grouped) -> Option<Vec<&Axis>> {
        let other = self.references.iter().enumerate().find(|(n, r)| *n != matched.vector && r.access.is_some())?.1;
        let columns = &self.references[matched.vector];
        let guarded = |a: &Axis| other.access.iter().flat_map(|access| &access.guard).any(|g| g.uses(a.iterator));
        let rows = self.axes.iter().filter(|a| {
            let free = a.parallel && a.movable && a.iterator != v.iterator && a.extent > 1 && !a.conditioned;
            let moves = other.strides[a.iterator.0 as usize].is_some_and(|stride| stride != 0);
            free && moves && !guarded(a) && !columns.depends(a.iterator)
        });
        let mut rows: Vec<&Axis> = rows.collect();
        // Of equals the axis is taken whose points are nearest in memory.
        rows.sort_by_key(|a| other.strides[a.iterator.0 as usize].map(i64::abs));
        Some(rows)
    }

    /// Predicted cycles of all instances with such blocks, `across` tiles wide.
    fn cycles_of_tiles(&self, v: &Axis, rows: Rows, across: i64, matched: &Grouped) -> f64 {
        let machine = &self.target.machine;
        let steps = |a: &Axis| match a.iterator == matched.group {
            true => ceil_div(a.extent / matched.terms, SIDE),
            false => a.extent,
        };
        let steps: f64 = self.axes.iter().filter(|a| a.reduced).map(|a| steps(a) as f64).product();
        let is_tiled = |a: &Axis| [Some(v), Some(rows.inner.0), rows.outer.map(|o| o.0)].contains(&Some(a));
        let others: f64 = self.axes.iter().filter(|a| !a.reduced && !is_tiled(a)).map(|a| a.extent as f64).product();
        let parts =
            |extent: i64, part: i64| [(extent / part, part), (1, extent % part)].into_iter().filter(|p| p.0 * p.1 > 0);
        let outer = rows.outer.map_or((1, 1), |(a, n)| (a.extent, n));
        let (mut total, mut passes) = (0.0, 0);
        let mut shapes: Vec<[i64; 3]> = vec![];
        for (times, copies) in parts(outer.0, outer.1) {
            for (blocks, points) in parts(rows.inner.0.extent, rows.inner.1) {
                let (height, m) = match rows.dense {
                    true => tile_rows(points * copies),
                    false => tile_rows(points),
                };
                let m = if rows.dense { m } else { m * copies };
                for (columns, width) in parts(v.extent, across * SIDE) {
                    let n: i64 = tile_extents(width, SIDE).map(|(_, count)| count).sum();
                    let products = (m * n * height) as f64 * machine.tile_row_cycles;
                    // A line is loaded for each row: of sums in one operand, of terms in the other.
                    let loads = (m * height + n * SIDE) as f64 / SIDE as f64 * machine.tile_load_cycles;
                    let sums = (m * n) as f64 * machine.tile_sum_cycles;
                    let edge = sums + machine.vector_edge_cycles * (m * n * height) as f64;
                    let step = products.max(loads) + machine.port_overlap * products.min(loads) + machine.loop_cycles;
                    total += (times * blocks * columns) as f64 * (steps * step + edge);
                    passes += times * blocks * columns;
                    for (columns, _) in tile_extents(width, SIDE) {
                        shapes.push([height, columns, m * n]);
                    }
                }
            }
        }
        shapes.sort_unstable();
        shapes.dedup();
        // One shape for all is loaded once.
        let shaping = if shapes.len() > 1 { passes as f64 * machine.tile_shape_cycles } else { 0.0 };
        (total + shaping) * others
    }
}

impl Phase<'_> {
    /// The tensor instructions of the target that match a statement, for each pair of a parallel axis and a reduced one of
    /// which `inside` holds.
    pub(super) fn grouped(
        &self,
        id: StatementId,
        references: &[Reference],
        axes: &[Axis],
        inside: &dyn Fn(Var) -> bool,
    ) -> Vec<Grouped> {
        let mut matches = vec![];
        let sums = self.scop.tensor(self.scop.statement(id).target).dtype;
        for row in self.target.instructions.iter().filter(|row| row.operands[0].dtype == sums && !is_fma(row)) {
            for lane in axes.iter().filter(|a| a.parallel && a.movable && a.extent > 1) {
                for group in axes.iter().filter(|a| a.extent > 1 && inside(a.iterator)) {
                    let pair = [lane.iterator, group.iterator];
                    matches.extend(match_grouped(row, self.scop, id, references, pair));
                }
            }
        }
        matches
    }
}

impl Block {
    /// Terms of a reduced iterator that one step takes together; 1 for others.
    pub fn terms(&self, v: Var) -> i64 {
        self.tensor.as_ref().filter(|t| t.group == v).map_or(1, |t| t.terms)
    }

    /// Returns true if the sums are in tile registers.
    pub(super) fn is_of_tiles(&self) -> bool {
        self.tensor.as_ref().is_some_and(|t| t.sums == Sums::Tile)
    }

    /// Reduced iterators that may be cut into parts, of a multiple of [`Block::least_part`] terms. Of a sum of tiles over several iterators, as that of a
    /// convolution, the parts would read operands anew that its loops find in the first cache.
    pub(super) fn divisible(&self, axes: &[Axis]) -> Vec<Var> {
        let several = axes.iter().filter(|a| a.reduced && a.extent > 1).count() > 1;
        if self.lanes_reduced || self.is_of_tiles() && several {
            return vec![];
        }
        let terms = self.terms_along(axes);
        let cut = |(a, terms): &(&Axis, &i64)| a.reduced && a.movable && !a.conditioned && 8 % **terms == 0;
        axes.iter().zip(&terms).filter(cut).map(|(a, _)| a.iterator).collect()
    }

    /// Parts of a sum are multiples of so many terms: of four or eight, or in tiles of as many as fill them.
    pub(super) fn least_part(&self, axes: &[Axis]) -> i64 {
        let terms = self.terms_along(axes).into_iter().fold(4, i64::max);
        if self.is_of_tiles() { SIDE * terms } else { terms }
    }

    /// [`Block::terms`] of each axis.
    pub(super) fn terms_along(&self, axes: &[Axis]) -> Vec<i64> {
        match &self.tensor {
            Some(t) => axes.iter().map(|a| if a.iterator == t.group { t.terms } else { 1 }).collect(),
            None => vec![1; axes.len()],
        }
    }
}
