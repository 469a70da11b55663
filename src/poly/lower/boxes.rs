//! Loops over boxes: constant extents, without a solver.
//!
//! A tile row splits the values of its φ into full tiles and one copy of everything further in with the smaller extent that
//! remains, so that all extents further in are constants. Iterators follow from the rows of one value. What the loops do not
//! imply (domains, shifts against the other statements, skewed bounds) becomes a condition around the store.

use super::{kind, loop_over};
use crate::codegen::loopnest::simplify::take_divisions;
use crate::codegen::loopnest::{LoopKind, Stmt};
use crate::expr::Affine;
use crate::expr::interval::ceil_div;
use crate::poly::lower::state::{Lowering, RowValues, Site, Solution, Subtree};
use crate::poly::schedule::{Row, RowKind};
use crate::runtime::{Error, Result};

impl Lowering<'_> {
    /// The loop of the first row, full tiles and the rest apart.
    pub(super) fn box_row(&mut self, tree: Subtree, site: &Site) -> Result<Vec<Stmt>> {
        let (row, rest) = (&tree.rows[0], tree.after(1));
        if site.outermost && row.kind == RowKind::Parallel {
            return self.parallel(tree, site);
        }
        let (k, mut site) = self.values(row, site)?;
        let RowValues { base, extent, .. } = site.rows[k].clone();
        // The loop of an instruction says which one it is.
        let instruction = matches!(row.kind, RowKind::Instruction(_));
        if extent <= row.tile && !instruction {
            return self.rows(rest, &site);
        }
        site.coincident &= row.coincident;
        let (full, left) = (extent / row.tile, extent % row.tile);
        let mut out = vec![];
        let mut inside = |l: &mut Self, base: Affine, extent: i64| {
            (site.rows[k].base, site.rows[k].extent) = (base, extent);
            l.rows(rest, &site)
        };
        if full == 1 && !instruction {
            out.extend(inside(self, base.clone(), row.tile)?);
        } else {
            let v = self.new_var(&row.name, (0, full - 1));
            let mut body = inside(self, base.clone().plus(v, row.tile), row.tile)?;
            out.extend(take_divisions(v, &mut body));
            if !body.is_empty() {
                out.push(loop_over(v, full, kind(row.kind), body));
            }
        }
        if left > 0 {
            out.extend(inside(self, base.offset(full * row.tile), left)?);
        }
        Ok(out)
    }

    /// The site with the values of a row that is to be a loop, and where they are in it.
    fn values(&self, row: &Row, site: &Site) -> Result<(usize, Site)> {
        let mut site = Site { loops: site.loops + 1, outermost: false, ..site.clone() };
        if let Some(k) = site.rows.iter().position(|r| r.covers(row)) {
            return Ok((k, site));
        }
        if site.rows.iter().any(|r| row.phi.iter().any(|p| r.phi.contains(p) && !p.1.is_constant())) {
            return Err(Error::Unsupported(format!(
                "row {} of {} continues different rows for its statements",
                row.name, self.scop.name
            )));
        }
        let (lo, hi) = row.range(self.scop);
        let base = lo.div_euclid(row.tile) * row.tile;
        site.rows.push(RowValues { phi: row.phi.clone(), base: Affine::constant(base), extent: hi - base + 1 });
        Ok((site.rows.len() - 1, site))
    }

    /// Those of the conditions of an instance that intervals do not answer; `None` where one cannot hold.
    pub(super) fn open_in_boxes(&self, solution: Solution) -> Option<Vec<Affine>> {
        let (range, mut conditions) = (self.range(), solution.conditions);
        if conditions.iter().any(|c| c.bounds(&range).1 < 0) {
            return None;
        }
        conditions.retain(|c| c.bounds(&range).0 < 0);
        conditions.sort();
        conditions.dedup();
        Some(conditions)
    }

    /// The phase of a band that starts with parallel rows. The last of them varies fastest in the parallel variable.
    fn parallel(&mut self, tree: Subtree, site: &Site) -> Result<Vec<Stmt>> {
        let count = tree.rows.iter().take_while(|r| r.kind == RowKind::Parallel).count();
        let (rows, rest) = (&tree.rows[..count], tree.after(count));
        // Steps of each row, a partial tile included. A row whose φ an outer one has tiled has the steps of a full tile.
        let mut inside = site.clone();
        let mut steps = vec![];
        for row in rows {
            let (k, next) = self.values(row, &inside)?;
            inside = next;
            let c = &mut inside.rows[k];
            steps.push(ceil_div(c.extent, row.tile));
            c.extent = c.extent.min(row.tile);
        }
        let total = steps.iter().product();
        let t = self.new_var("t", (0, total - 1));
        let mut body = vec![];
        let mut left = Affine::var(t);
        let mut value = vec![Affine::constant(0); rows.len()];
        for i in (0..rows.len()).rev() {
            let outer: i64 = steps[..i].iter().product();
            if steps[i] == 1 {
                continue;
            }
            if outer == 1 {
                value[i] = left.clone();
                break;
            }
            let quotient = self.new_var(&format!("t{i}"), (0, outer - 1));
            body.push(Stmt::Let { var: quotient, value: left.clone(), divisor: steps[i] });
            let v = self.new_var(&rows[i].name, (0, steps[i] - 1));
            body.push(Stmt::Let { var: v, value: left.plus(quotient, -steps[i]), divisor: 1 });
            value[i] = Affine::var(v);
            left = Affine::var(quotient);
        }
        body.extend(self.split(rows, &steps, &value, rest, site)?);
        Ok(vec![loop_over(t, total, LoopKind::Parallel, body)])
    }

    /// The rows, tree and statements `inside` for given values of the parallel rows, full and partial tiles apart.
    fn split(
        &mut self,
        rows: &[Row],
        steps: &[i64],
        value: &[Affine],
        inside: Subtree,
        site: &Site,
    ) -> Result<Vec<Stmt>> {
        let Some((row, inner)) = rows.split_first() else { return self.rows(inside, site) };
        let (k, mut site) = self.values(row, site)?;
        site.coincident &= row.coincident;
        let (base, extent) = (site.rows[k].base.clone(), site.rows[k].extent);
        let (full, left) = (extent / row.tile, extent % row.tile);
        let mut branch = |l: &mut Self, base: Affine, extent: i64| {
            site.rows[k].base = base;
            site.rows[k].extent = extent;
            l.split(inner, &steps[1..], &value[1..], inside, &site)
        };
        let here = full + i64::from(left > 0);
        // In a partial tile of an outer row there are fewer steps than the parallel loop makes.
        let surplus = here < steps[0];
        let v = &value[0];
        if here == 1 {
            let body = branch(self, base, extent.min(row.tile))?;
            let first = v.scale(-1);
            return Ok(if surplus { vec![Stmt::If { conditions: vec![first], body }] } else { body });
        }
        let at_tile = base.add_scaled(v, row.tile);
        if left == 0 && !surplus {
            return branch(self, at_tile, row.tile);
        }
        let var = v.terms[0].0;
        let whole = self.ranges[var.0 as usize];
        self.ranges[var.0 as usize] = (0, full - 1);
        let main = branch(self, at_tile, row.tile)?;
        let mut out = vec![Stmt::If { conditions: vec![v.scale(-1).offset(full - 1)], body: main }];
        if left > 0 {
            self.ranges[var.0 as usize] = (full, full);
            let partial = branch(self, base.offset(full * row.tile), left)?;
            let mut conditions = vec![v.clone().offset(-full)];
            if surplus {
                conditions.push(v.scale(-1).offset(full));
            }
            out.push(Stmt::If { conditions, body: partial });
        }
        self.ranges[var.0 as usize] = whole;
        Ok(out)
    }
}
