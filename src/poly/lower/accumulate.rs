//! Accumulation on a local tile of the target.

use crate::codegen::loopnest::Stmt;
use crate::expr::{Affine, Var};
use crate::poly::analysis::constant_factor;
use crate::poly::analysis::dependence::reads_sums_from;
use crate::poly::lower::contraction::expands;
use crate::poly::lower::state::Local;
use crate::poly::lower::state::{Lowering, Mode, Placed, Site, Subtree};
use crate::poly::schedule::{Row, RowKind};
use crate::poly::statement::StatementId;
use crate::runtime::Result;

/// Largest number of elements of a local tile of an update's target. Unmeasured.
const MAX_TILE: i64 = 4096;

impl Lowering<'_> {
    /// Accumulates one update whose target lies in memory on a local tile, if the remaining rows are the reduction
    /// loops and the points: fills the tile from the target and writes it back.
    pub(super) fn accumulate(&mut self, tree: Subtree, site: &Site) -> Result<Option<Vec<Stmt>>> {
        let &[id] = tree.statements else { return Ok(None) };
        let s = self.scop.statement(id);
        let summed = site.placed.iter().any(|p| p.sums && p.tensor == s.target);
        let row = &tree.rows[0];
        // Points are summed where their block is.
        let apart = match row.kind {
            RowKind::Parallel | RowKind::Wavefront | RowKind::Instruction(_) => true,
            _ if site.boxes => expands(row) && summed,
            _ => expands(row) || summed,
        };
        if s.reduce.is_none() || s.is_scatter() || site.mode != Mode::Body || apart {
            return Ok(None);
        }
        let remaining = tree.rows_of(id);
        let reduced = |r: &Row| self.reduces(r, id);
        let point = |r: &Row| expands(r) && (site.boxes || site.tile_of(r).is_some());
        if !reduced(row) || !remaining.iter().all(|r| reduced(r) || point(r)) {
            return Ok(None);
        }
        let tile = if site.boxes { self.box_of_sum(id, site) } else { self.tile_of_sum(tree, id, site)? };
        let Some((origin, shape)) = tile.filter(|t| t.1.iter().product::<i64>() <= MAX_TILE) else { return Ok(None) };
        let name = format!("{}_tile", self.scop.tensor(s.target).name);
        // Full tiles are in registers, which the stores of partial ones would prevent in a buffer of both.
        let key = if site.boxes { Local::Tile(id) } else { Local::TileOf(id, self.nest.buffers.len() as u32) };
        let buffer = self.local(key, &name, s.target, &shape);
        let mut here = site.clone();
        here.placed.push(Placed { tensor: s.target, buffer, origin, sums: true });
        here.factor = constant_factor::of_sum(self.scop, id);
        let mut out = vec![];
        for mode in [Mode::Fill, Mode::Body, Mode::Spill] {
            here.mode = mode;
            out.extend(self.rows(tree, &here)?);
        }
        Ok(Some(out))
    }

    /// Origin and extents of the part of the target that an update over boxes accumulates in; `None` where it stays.
    fn box_of_sum(&self, id: StatementId, site: &Site) -> Option<(Vec<Affine>, Vec<i64>)> {
        let s = self.scop.statement(id);
        let tile = self.contract(s.target, &[id], site).filter(|_| !s.body.reads(s.target))?;
        let placed = site.placed.iter().rev().find(|p| p.tensor == s.target);
        // Registers already: the buffer of the target is no larger.
        placed.is_none_or(|p| self.nest.buffer(p.buffer).shape != tile.1).then_some(tile)
    }

    /// As for boxes: of points in tiles, where the loops fix the target's other subscripts.
    fn tile_of_sum(&mut self, tree: Subtree, id: StatementId, site: &Site) -> Result<Option<(Vec<Affine>, Vec<i64>)>> {
        let (s, row) = (self.scop.statement(id), &tree.rows[0]);
        let fixed = site.rows.iter().filter(|d| d.extent == 1).filter_map(|d| d.phi.iter().find(|p| p.0 == id));
        let fixed: Vec<Affine> = fixed.map(|p| p.1.clone()).collect();
        let order = Some((row.of(id), row.tile));
        if !self.unit_coefficients(id) || reads_sums_from(s, &fixed, order, &self.isl)? {
            return Ok(None);
        }
        // The target's subscripts over variables in scope and points.
        let mut inside = site.clone();
        let mut points = vec![];
        for r in tree.rows_of(id).into_iter().filter(|r| !self.reduces(r, id)).collect::<Vec<_>>() {
            let done = site.tile_of(r).expect("seen");
            let e = self.new_var("e", (0, done.extent - 1));
            points.push((e, done.extent));
            let value = done.base.clone().plus(e, 1);
            inside.vars.push(e);
            inside.fix(r, value);
        }
        let Ok(solution) = self.iterators(id, &inside, true) else { return Ok(None) };
        let solved = |w: &Affine| w.terms.iter().all(|t| self.solved(id, t.0, &inside));
        if !solution.lets.is_empty() || !s.write.iter().all(solved) {
            return Ok(None);
        }
        let (mut origin, mut shape) = (vec![], vec![]);
        for w in &s.write {
            let subscript = w.compose(&solution.iterators);
            let (mut low, mut high) = (0, 0);
            let mut fixed = subscript.clone();
            for &(e, tile) in &points {
                let c = subscript.coefficient(e);
                fixed = fixed.plus(e, -c);
                if c > 0 { high += c * (tile - 1) } else { low += c * (tile - 1) }
            }
            origin.push(fixed.offset(low));
            shape.push(high - low + 1);
        }
        Ok(Some((origin, shape)))
    }

    /// Returns true if the row has only reduced iterators of the statement.
    pub(super) fn reduces(&self, row: &Row, id: StatementId) -> bool {
        let write = &self.scop.statement(id).write;
        !write.iter().any(|w| row.of(id).terms.iter().any(|t| w.uses(t.0)))
    }

    /// Returns true if the rows of a site fix an iterator.
    fn solved(&self, id: StatementId, v: Var, site: &Site) -> bool {
        let n = self.scop.statement(id).iterators.len();
        let covering = site.rows.iter().filter(|d| d.phi.iter().any(|p| p.0 == id));
        let vectors: Vec<Vec<i64>> = covering
            .filter_map(|d| d.equation(id))
            .map(|(phi, _)| (0..n as u32).map(|i| phi.coefficient(Var(i))).collect())
            .collect();
        let complement = crate::poly::sets::polyhedron::orthogonal_complement(&vectors, n);
        self.scop.statement(id).extent(v) == 1 || complement.iter().all(|c| c[v.0 as usize] == 0)
    }

    /// Returns true if projections of the domain are exact: every coefficient is 1 or -1.
    fn unit_coefficients(&self, id: StatementId) -> bool {
        self.scop.statement(id).domain.iter().all(|a| a.terms.iter().all(|t| t.1.abs() == 1))
    }
}
