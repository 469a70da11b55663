//! Accumulation on a local tile of the target.

use super::{MAX_TILE, Site, expands, rows_below};
use crate::codegen::loopnest::Stmt;
use crate::expr::{Affine, Var};
use crate::poly::analysis::constant_factor;
use crate::poly::analysis::dependence::reads_sums_from;
use crate::poly::lower::state::Local;
use crate::poly::lower::state::{Lowering, Mode, Placed};
use crate::poly::schedule::{Node, Row};
use crate::poly::sets::isl::Isl;
use crate::poly::statement::StatementId;
use crate::runtime::Result;

impl Lowering<'_> {
    /// Accumulates one update whose target lies in memory on a local tile, if the remaining rows are the reduction
    /// loops and the points: fills the tile from the target and writes it back.
    pub(super) fn accumulate(
        &mut self,
        rows: &[Row],
        child: &Node,
        statements: &[StatementId],
        site: &Site,
        isl: &Isl,
    ) -> Result<Option<Vec<Stmt>>> {
        let &[id] = statements else { return Ok(None) };
        let s = self.scop.statement(id);
        if s.reduce.is_none()
            || s.is_scatter()
            || rows[0].kind.is_shared()
            || site.state.mode != Mode::Body
            || site.state.placed.iter().any(|p| p.sums)
        {
            return Ok(None);
        }
        let below = rows_below(&rows[1..], child, id);
        let remaining: Vec<&Row> = rows[..1].iter().chain(below).collect();
        let reduced = |r: &Row| self.reduces(r, id);
        let point = |r: &Row| expands(r) && site.tile_of(r).is_some();
        if !reduced(&rows[0]) || expands(&rows[0]) || !remaining.iter().all(|r| reduced(r) || point(r)) {
            return Ok(None);
        }
        let fixed = site.rows.iter().filter(|d| d.tile == 1).filter_map(|d| d.phi.iter().find(|p| p.0 == id));
        let fixed: Vec<Affine> = fixed.map(|p| p.1.clone()).collect();
        let order = Some((rows[0].of(id), rows[0].tile));
        if !self.unit_coefficients(id) || reads_sums_from(s, &fixed, order, isl)? {
            return Ok(None);
        }
        // The target's subscripts over variables in scope and points.
        let mut inside = site.clone();
        let mut points = vec![];
        let expanded: Vec<&Row> = remaining.into_iter().filter(|r| point(r) && !reduced(r)).collect();
        for r in expanded {
            let done = site.tile_of(r).expect("seen");
            let e = self.new_var("e", (0, done.tile - 1));
            points.push((e, done.tile));
            let value = done.value.scale(done.tile).plus(e, 1);
            inside.vars.push(e);
            inside.finish(r, value);
        }
        let Ok(solution) = self.iterators(id, &self.equations(&inside), true) else { return Ok(None) };
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
        if shape.iter().product::<i64>() > MAX_TILE {
            return Ok(None);
        }
        let name = format!("{}_tile", self.scop.tensor(s.target).name);
        // Full tiles are in registers, which the stores of partial ones would prevent in a buffer of both.
        let buffer = self.local(Local::TileOf(id, self.nest.buffers.len() as u32), &name, s.target, &shape);
        let mut here = site.clone();
        here.state.placed.push(Placed { tensor: s.target, buffer, origin, sums: true });
        here.state.factor = constant_factor::of_sum(self.scop, id);
        let mut out = vec![];
        for mode in [Mode::Fill, Mode::Body, Mode::Spill] {
            here.state.mode = mode;
            out.extend(self.scan_rows(rows, child, statements, &here, isl)?);
        }
        Ok(Some(out))
    }

    /// Returns true if the rows of a site fix an iterator.
    fn solved(&self, id: StatementId, v: Var, site: &Site) -> bool {
        let n = self.scop.statement(id).iterators.len();
        let covering = site.rows.iter().filter(|d| d.phi.iter().any(|p| p.0 == id));
        let vectors: Vec<Vec<i64>> = covering
            .filter_map(|d| d.row().exact(id))
            .map(|phi| (0..n as u32).map(|i| phi.coefficient(Var(i))).collect())
            .collect();
        let complement = crate::poly::sets::polyhedron::orthogonal_complement(&vectors, n);
        self.scop.statement(id).extent(v) == 1 || complement.iter().all(|c| c[v.0 as usize] == 0)
    }

    /// Returns true if projections of the domain are exact: every coefficient is 1 or -1.
    fn unit_coefficients(&self, id: StatementId) -> bool {
        self.scop.statement(id).domain.iter().all(|a| a.terms.iter().all(|t| t.1.abs() == 1))
    }
}
