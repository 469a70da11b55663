//! Loops of any legal schedule, by scanning polyhedra.
//!
//! In: a tree with skewed, shifted or reversed rows, parallelogram tiles, statements of different and non-rectangular
//! domains in common loops. Out: loops with exact bounds, the greatest and least of affine forms over divisors (the shadow
//! of the instances on the loop variables, by isl), after Quilleré, Rajopadhye and Wilde, "Generation of Efficient Nested
//! Loops from Polyhedra" (IJPP 2000).
//!
//! A loop over statements of different bounds runs over their hull; what the loops around a statement do not imply becomes
//! a condition around it. Loops are divided where it pays: a loop over blocks of unrolled or vector rows into the part in
//! which all of their points exist and the rest, an innermost loop over several statements into the part in which all of
//! them run and the rest. In the rest, unrolled and vector rows are loops with exact bounds.
//!
//! Invariant: an instance runs exactly once whatever the hull and the shadows leave in, for the conditions at the leaf are
//! complete: the iterators are solved for, and all that the domain and the rows say is asked for.

mod private_storage;
mod separation;
mod serial_steps;
mod wavefront;
mod whole_block;

use super::{condition, kind, loop_over};
use crate::codegen::loopnest::{LoopKind, Stmt};
use crate::expr::Bound;
use crate::expr::{Affine, Var};
use crate::poly::lower::bounds::{lanes, lift, within_loop};
use crate::poly::lower::contraction::expands;
use crate::poly::lower::state::{Lowering, Mode, RowValues, Site, Solution, Subtree, quotient};
use crate::poly::schedule::{Row, RowKind};
use crate::poly::sets::polyhedron::{Form, Polyhedron, Reduced, difference, minus};
use crate::poly::statement::StatementId;
use crate::runtime::Result;

/// Number of stores beyond which loops are no longer divided. Unmeasured.
const MAX_STORES: usize = 600;

/// A statement, and where it has instances in the loops around.
type Shadow = (StatementId, Polyhedron);

impl Lowering<'_> {
    /// The loops of the first row, within exact bounds.
    pub(super) fn scan_row(&mut self, tree: Subtree, site: &Site) -> Result<Vec<Stmt>> {
        let (row, rest, statements) = (&tree.rows[0], tree.after(1), tree.statements);
        if row.kind == RowKind::Wavefront && site.outermost && tree.rows.len() > 1 {
            return self.waves(tree, site);
        }
        if expands(row)
            && let Some(expanded) = self.expand(tree, site)?
        {
            return Ok(expanded);
        }
        let z = self.new_var(&row.name, (0, 0));
        let mut inside = site.with(z);
        inside.fix(row, Affine::var(z));
        let dims = inside.vars.len();
        let Some((shadows, hull)) = self.shadows(statements, &inside)? else { return Ok(vec![]) };
        let bounds = match self.padded(row, &inside, site) {
            Some(padded) => padded,
            None => self.isl.gist(&hull, &inside.context)?,
        };
        // A row with one value at this place is not a loop.
        if let Some(e) = bounds.equalities.iter().find(|e| e[dims - 1].abs() == 1) {
            let sign = -e[dims - 1];
            let mut form = e.clone();
            form[dims - 1] = 0;
            let value = inside.affine(&form).scale(sign);
            let mut here = site.clone();
            here.fix(row, value);
            return self.rows(rest, &here);
        }
        let own = within_loop(&bounds);
        if let Some((value, divisor)) = as_quotient(&own) {
            // One value, a quotient of what is known.
            let mut here = inside.clone();
            here.outermost = site.outermost;
            here.require(&own);
            let outer = self.beyond_loop(&bounds, &own, site, &inside)?;
            here.require(&lift(&outer, dims));
            self.note_range(z, &here);
            let body = self.rows(rest, &here)?;
            let quotient = Stmt::Let { var: z, value: inside.affine(&value), divisor };
            let all = if body.is_empty() { vec![] } else { [vec![quotient], body].concat() };
            return Ok(condition(outer.inequalities.iter().map(|f| site.affine(f)).collect(), all));
        }
        let outer = self.beyond_loop(&bounds, &own, site, &inside)?;
        let mut guarded = site.clone();
        guarded.require(&outer);
        inside.require(&lift(&outer, dims));

        let regions = self.regions(tree, &shadows, &inside, &own)?;
        let mut out = vec![];
        let parallel = row.kind == RowKind::Parallel && site.outermost;
        if parallel && regions.len() > 1 {
            inside.require(&own);
            self.note_range(z, &inside);
            let body = self.branches(rest, &regions, &inside)?;
            out.extend(self.bounded(z, &own, &inside, LoopKind::Parallel, body));
        } else {
            for (k, (region, _)) in regions.iter().enumerate() {
                let v = if k == 0 { z } else { self.new_var(&row.name, (0, 0)) };
                let mut here = guarded.with(v);
                here.fix(row, Affine::var(v));
                let mut all = own.clone();
                all.intersect(region);
                let mut around = vec![];
                let mut beyond = Polyhedron::universe(dims);
                if !region.inequalities.is_empty() {
                    let both = self.isl.gist(&all, &here.context)?;
                    all = within_loop(&both);
                    beyond = lift(&self.beyond_loop(&both, &all, &guarded, &here)?, dims);
                    around = beyond.inequalities.iter().map(|f| guarded.affine(f)).collect();
                    here.require(&beyond);
                }
                here.require(&all);
                self.note_range(v, &here);
                let lanes = (row.kind == RowKind::Vector && expands(row)).then(|| lanes(&all)).flatten();
                if let Some((first, extent)) = lanes {
                    let e = self.new_var(&row.name, (0, extent - 1));
                    let mut here = guarded.with(e);
                    here.fix(row, guarded.affine(&first).plus(e, 1));
                    let unit = here.form(&Affine::var(e), dims);
                    here.require(&beyond);
                    here.context.bound(&unit, 0, extent - 1);
                    let body = self.rows(rest, &here)?;
                    let lanes =
                        if body.is_empty() { vec![] } else { vec![loop_over(e, extent, LoopKind::Vector, body)] };
                    out.extend(condition(around, lanes));
                    continue;
                }
                let body = self.rows(rest, &here)?;
                let kind = if parallel { LoopKind::Parallel } else { LoopKind::Serial };
                out.extend(condition(around, self.bounded(v, &all, &here, kind, body)));
            }
        }
        Ok(condition(outer.inequalities.iter().map(|f| site.affine(f)).collect(), out))
    }

    /// Returns, for each statement, the part of the loops of `inside` in which it has instances, and the hull of these
    /// parts; `None` if no statement has any.
    fn shadows(&self, statements: &[StatementId], inside: &Site) -> Result<Option<(Vec<Shadow>, Polyhedron)>> {
        let mut shadows = vec![];
        for &id in statements {
            let p = self.instances(id, inside);
            if !self.isl.is_empty(&p)? {
                shadows.push((id, self.isl.project(&p, inside.vars.len())?));
            }
        }
        if shadows.is_empty() {
            return Ok(None);
        }
        let hull = self.isl.hull(&shadows.iter().map(|s| s.1.clone()).collect::<Vec<_>>())?;
        Ok(Some((shadows, hull)))
    }

    /// The body of a loop, each of its parts where its condition holds.
    fn branches(&mut self, rest: Subtree, regions: &[(Polyhedron, Polyhedron)], inside: &Site) -> Result<Vec<Stmt>> {
        let mut body = vec![];
        for (region, context) in regions {
            let here = Site { context: context.clone(), ..inside.clone() };
            let part = self.rows(rest, &here)?;
            body.extend(condition(region.inequalities.iter().map(|f| inside.affine(f)).collect(), part));
        }
        Ok(body)
    }

    /// All values of a padded row, which is the last variable of `inside`: those of its tile, or of a multiple of the
    /// padding.
    fn padded(&self, row: &Row, inside: &Site, site: &Site) -> Option<Polyhedron> {
        if row.pad == 1 {
            return None;
        }
        let dims = inside.vars.len();
        let around = |d: &&RowValues| d.extent > row.tile && d.extent % row.tile == 0 && d.covers(row);
        let tile = site.rows.iter().rev().find(around).and_then(|d| Some((d, quotient(&d.base, row.tile)?)));
        let (first, count) = match tile {
            Some((d, first)) => (first, d.extent / row.tile),
            None => {
                let (lo, hi) = row.values(self.scop);
                (Affine::constant(lo), (hi - lo + row.pad) / row.pad * row.pad)
            }
        };
        let above = difference(&inside.form(&Affine::var(inside.vars[dims - 1]), dims), &inside.form(&first, dims));
        let mut values = Polyhedron::universe(dims);
        values.bound(&above, 0, count - 1);
        Some(values)
    }

    /// Returns the constraints of a loop's bounds on the variables outside of it, as far as the loop's own bounds do
    /// not imply them.
    fn beyond_loop(&self, bounds: &Polyhedron, own: &Polyhedron, site: &Site, inside: &Site) -> Result<Polyhedron> {
        let outer = site.vars.len();
        let drop = |f: &Form| f[..outer].iter().chain(&f[outer + 1..]).copied().collect::<Form>();
        let inequalities: Vec<Form> = bounds.as_inequalities().iter().filter(|f| f[outer] == 0).map(drop).collect();
        let said = Polyhedron::of_inequalities(outer, inequalities);
        if said.inequalities.is_empty() {
            return Ok(said);
        }
        let mut loops = inside.context.clone();
        loops.intersect(own);
        if self.isl.is_empty(&loops)? {
            return Ok(said);
        }
        let rest = self.isl.gist(&said, &self.isl.project(&loops, outer)?)?;
        Ok(Polyhedron::of_inequalities(outer, rest.as_inequalities()))
    }

    /// A row of points as an unrolled or vector loop: when all of them exist, or when they live in a local tile.
    fn expand(&mut self, tree: Subtree, site: &Site) -> Result<Option<Vec<Stmt>>> {
        let row = &tree.rows[0];
        let Some(done) = site.tile_of(row) else { return Ok(None) };
        let (tile, base) = (done.extent, done.base.clone());
        let e = self.new_var(&row.name, (0, tile - 1));
        let mut inside = site.with(e);
        inside.fix(row, base.plus(e, 1));
        let dims = inside.vars.len();
        let mut points = Polyhedron::universe(dims);
        points.bound(&inside.form(&Affine::var(e), dims), 0, tile - 1);
        inside.require(&points);
        let summed = site.placed.iter().any(|p| p.sums);
        let local = site.mode == Mode::Body && summed || site.mode == Mode::Fill || row.pad > 1;
        if !local {
            for &id in tree.statements {
                let mut p = self.instances(id, &inside);
                if self.isl.is_empty(&p)? {
                    return Ok(None);
                }
                // The points are what the domain leaves of them.
                let lifted = lift(&points, p.dims);
                p.inequalities.retain(|f| !lifted.inequalities.contains(f));
                let shadow = self.isl.project(&p, dims)?;
                let open = self.isl.gist(&shadow, &inside.context)?;
                if !open.equalities.is_empty() || !open.inequalities.is_empty() {
                    return Ok(None);
                }
            }
        }
        let body = self.rows(tree.after(1), &inside)?;
        if body.is_empty() {
            return Ok(Some(vec![]));
        }
        Ok(Some(vec![loop_over(e, tile, kind(row.kind), body)]))
    }

    /// The loop `v` within the bounds, over the variables of `site`, of which it is the last.
    fn bounded(&self, v: Var, bounds: &Polyhedron, site: &Site, kind: LoopKind, body: Vec<Stmt>) -> Vec<Stmt> {
        if body.is_empty() {
            return vec![];
        }
        let position = site.vars.iter().position(|w| *w == v).expect("in scope");
        let (mut lower, mut upper) = (vec![], vec![]);
        for f in bounds.as_inequalities() {
            let c = f[position];
            let mut bound = f.clone();
            bound[position] = 0;
            let bound = site.affine(&bound);
            match c {
                0 => {}
                1.. => lower.push(Bound { affine: bound.scale(-1), divisor: c }),
                _ => upper.push(Bound { affine: bound.offset(-c), divisor: -c }),
            }
        }
        vec![Stmt::Loop { var: v, lower, upper, step: 1, kind, body }]
    }

    /// Notes the interval of a loop variable.
    fn note_range(&mut self, v: Var, site: &Site) {
        let reduced = Reduced::new(&site.context);
        let form = site.form(&Affine::var(v), site.vars.len());
        if let (Some(lo), Some(hi)) = reduced.range(&reduced.pull(&form)) {
            self.ranges[v.0 as usize] = (lo, hi);
        }
    }

    /// The instances of a statement that run at this place: over the variables in scope, then the iterators.
    fn instances(&self, id: StatementId, site: &Site) -> Polyhedron {
        let s = self.scop.statement(id);
        let first = site.vars.len();
        let mut p = lift(&site.context, first + s.iterators.len());
        p.add_domain(s, first);
        for done in &site.rows {
            let Some((_, phi)) = done.phi.iter().find(|d| d.0 == id) else { continue };
            let offset = difference(&p.form(phi, first), &site.form(&done.base, p.dims));
            if done.extent == 1 {
                p.equalities.push(offset);
            } else {
                p.bound(&offset, 0, done.extent - 1);
            }
        }
        p
    }

    /// Those of the conditions of an instance that its place does not imply; `None` where it has no instance.
    pub(super) fn open(
        &mut self,
        id: StatementId,
        solution: Solution,
        lets: &[Stmt],
        site: &Site,
    ) -> Result<Option<Vec<Affine>>> {
        let mut scope = site.clone();
        for l in lets {
            let Stmt::Let { var, value, divisor } = l else { continue };
            scope = scope.with(*var);
            let dims = scope.vars.len();
            let remainder = scope.form(&value.clone().plus(*var, -divisor), dims);
            scope.context.bound(&remainder, 0, divisor - 1);
        }
        let dims = scope.vars.len();
        let forms = |all: &[Affine]| {
            let inequalities = all.iter().map(|a| scope.form(a, dims)).collect();
            Polyhedron::of_inequalities(dims, inequalities)
        };
        let asked = if site.mode == Mode::Body {
            forms(&solution.conditions)
        } else {
            // The instances for some value of the iterators that are not yet known.
            let p = self.instances(id, site);
            if self.isl.is_empty(&p)? {
                return Ok(None);
            }
            lift(&self.isl.project(&p, site.vars.len())?, dims)
        };
        let mut exists = scope.context.clone();
        exists.intersect(&asked);
        if self.isl.is_empty(&exists)? {
            return Ok(None);
        }
        let whole = if solution.is_exact { self.whole_block(id, &solution.iterators, &scope) } else { None };
        let asked = whole.map_or(asked, |all| forms(&all));
        let open = self.isl.gist(&asked, &scope.context)?;
        Ok(Some(open.as_inequalities().iter().map(|f| scope.affine(f)).collect()))
    }
}

/// The form and the divisor of which these bounds say that the last variable is the quotient.
fn as_quotient(bounds: &Polyhedron) -> Option<(Form, i64)> {
    let last = bounds.dims - 1;
    let [a, b] = &bounds.inequalities[..] else { return None };
    let (low, high) = if a[last] > 0 { (a, b) } else { (b, a) };
    let c = low[last];
    // form - c·z ≥ 0 and c·z - form + c - 1 ≥ 0
    let is_quotient = c > 1 && *low == minus(c - 1, high);
    let mut form = high.clone();
    form[last] = 0;
    is_quotient.then_some((form, c))
}
