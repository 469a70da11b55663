//! Primitives for the rows of one statement that is alone in its loops.
//!
//! In: its rows as they are and as they should be. Out: reverse, shift and skew until the rows over single values have their
//! times, split for each row over tiles (changed where its time is that of no row over single values), reorder. The times
//! over single values are reduced to those of the program by adding multiples of one to another, which is what skew undoes.

use crate::expr::Affine;
use crate::expr::syntax::Name;
use crate::poly::schedule::Row;
use crate::poly::sets::polyhedron::orthogonal_complement;
use crate::poly::statement::StatementId;
use crate::poly::transform::primitive::{Loops, Primitive};
use crate::poly::transform::to_primitives::context::Link;
use crate::poly::transform::to_primitives::context::{Emitter, kind};
use crate::runtime::{Error, Result};

impl Emitter<'_> {
    /// Emits the primitives that turn the rows `from` into `to`, both below the rows `outer`, and those for rows that
    /// are not serial and not shared with another statement. Loops over one value end up innermost where the others
    /// become `shared`.
    pub(super) fn chain(
        &mut self,
        id: StatementId,
        outer: &[Row],
        from: &[Row],
        to: &[Row],
        shared: bool,
    ) -> Result<()> {
        let link = |r: &Row| Link { name: r.name.clone(), phi: r.of(id).clone() };
        let fixed: Vec<Link> = outer.iter().map(link).collect();
        let constant = |r: &&Row| r.of(id).is_constant();
        let (spare, moving): (Vec<&Row>, Vec<&Row>) = from.iter().partition(constant);
        let mut spare: Vec<Link> = spare.into_iter().map(link).collect();
        let varying = to.iter().filter(|r| r.tile == 1 && !constant(r)).map(|r| r.of(id).clone());
        let points = self.points(id, &fixed, moving.into_iter().map(link).collect(), &varying.collect::<Vec<_>>())?;
        let mut points = points.into_iter();
        let mut rows = fixed.clone();
        for row in to.iter().filter(|r| r.tile == 1) {
            let point = if constant(&row) { self.settle(id, &mut spare, row.of(id)) } else { points.next() };
            rows.push(point.ok_or_else(|| self.inexpressible("loops", id))?);
        }
        let moved = |r: &&Row| shared || spare.iter().all(|s| s.name != r.name);
        let mut order: Vec<String> = from.iter().filter(moved).map(|r| r.name.clone()).collect();
        let mut links = vec![];
        let mut next = rows[fixed.len()..].iter();
        for row in to {
            if row.tile == 1 {
                links.extend(next.next().cloned());
                continue;
            }
            let link = Link { name: row.name.clone(), phi: row.of(id).clone() };
            let base = self.tiles(id, &rows, fixed.len(), &link, row.tile)?;
            let position = order.iter().position(|n| *n == base).unwrap_or(0);
            order.insert(position, link.name.clone());
            links.push(link);
        }
        let innermost = spare.iter().filter(|_| shared).map(|l| l.name.as_str());
        let wanted: Vec<&str> = links.iter().map(|l: &Link| l.name.as_str()).chain(innermost).collect();
        if order != wanted {
            let names = wanted.into_iter().map(Name::from).collect();
            self.primitives.push(Primitive::Reorder { which: Loops { statement: Some(self.statement(id)), names } });
        }
        let links = [fixed, links].concat();
        for (row, link) in outer.iter().chain(to).zip(&links).filter(|(r, _)| r.phi.len() == 1) {
            self.primitives.extend(kind(row.kind, self.one(id, &link.name)));
        }
        self.links.insert(id, links);
        Ok(())
    }

    fn inexpressible(&self, what: &str, id: StatementId) -> Error {
        Error::Unsupported(format!(
            "the {what} of `{}` cannot be expressed as primitives",
            self.scop.statement(id).name
        ))
    }

    /// Emits the primitives that give a loop over one value the time `to`.
    fn settle(&mut self, id: StatementId, spare: &mut Vec<Link>, to: &Affine) -> Option<Link> {
        let index = spare.iter().position(|l| l.phi == *to).unwrap_or(0);
        if index == spare.len() {
            return None;
        }
        let link = spare.remove(index);
        let by = to.constant - link.phi.constant;
        if by != 0 {
            self.primitives.push(Primitive::Shift { which: self.one(id, &link.name), by });
        }
        Some(Link { phi: to.clone(), ..link })
    }

    /// Emits the primitives that give the loops `from` the times `to`; returns the loops in the order of `to`.
    fn points(&mut self, id: StatementId, fixed: &[Link], from: Vec<Link>, to: &[Affine]) -> Result<Vec<Link>> {
        if from.len() != to.len() {
            return Err(self.inexpressible("loops", id));
        }
        let weight = |a: &Affine| -> i64 {
            let outer = |v| fixed.iter().any(|f| f.phi.uses(v));
            a.terms.iter().filter(|t| !outer(t.0)).map(|t| t.1.abs()).sum()
        };
        let mut reduced = to.to_vec();
        let mut steps: Vec<(usize, i64, usize)> = vec![];
        loop {
            let mut best: Option<(i64, usize, i64, usize, Affine)> = None;
            for a in 0..to.len() {
                for b in (0..to.len()).filter(|b| *b != a) {
                    for factor in [1, -1] {
                        let less = reduced[a].add_scaled(&reduced[b], -factor);
                        let gain = weight(&reduced[a]) - weight(&less);
                        if gain > best.as_ref().map_or(0, |b| b.0) {
                            best = Some((gain, a, factor, b, less));
                        }
                    }
                }
            }
            let Some((_, a, factor, b, less)) = best else { break };
            reduced[a] = less;
            steps.push((a, factor, b));
        }
        let mut links = vec![];
        for wanted in &reduced {
            let link = from.iter().find(|l| l.phi.terms.iter().any(|t| wanted.uses(t.0)));
            let Some(link) = link.filter(|_| weight(wanted) == 1) else {
                return Err(self.inexpressible("loops", id));
            };
            let mut phi = link.phi.clone();
            let which = self.one(id, &link.name);
            let v = phi.terms[0].0;
            if phi.coefficient(v) != wanted.coefficient(v) {
                self.primitives.push(Primitive::Reverse { which: which.clone() });
                phi = phi.scale(-1);
            }
            let mut rest = wanted.add_scaled(&phi, -1);
            for f in fixed {
                let Some(&(v, c)) = f.phi.terms.first() else { continue };
                let factor = rest.coefficient(v) * c;
                if factor != 0 {
                    self.skew(id, &link.name, factor, &f.name);
                    rest = rest.add_scaled(&f.phi, -factor);
                }
            }
            if !rest.is_constant() {
                return Err(self.inexpressible("loops", id));
            }
            if rest.constant != 0 {
                self.primitives.push(Primitive::Shift { which, by: rest.constant });
            }
            links.push(Link { name: link.name.clone(), phi: wanted.clone() });
        }
        let mut names: Vec<&str> = links.iter().map(|l| l.name.as_str()).collect();
        names.sort();
        names.dedup();
        if names.len() != from.len() {
            return Err(self.inexpressible("loops", id));
        }
        for &(a, factor, b) in steps.iter().rev() {
            self.skew(id, &links[a].name.clone(), factor, &links[b].name.clone());
            links[a].phi = links[a].phi.add_scaled(&links[b].phi.clone(), factor);
        }
        Ok(links)
    }

    fn skew(&mut self, id: StatementId, which: &str, factor: i64, by: &str) {
        self.primitives.push(Primitive::Skew { which: self.one(id, which), factor, by: by.into() });
    }

    /// Emits the primitives that make a loop over tiles; returns the name of the loop that is split.
    fn tiles(&mut self, id: StatementId, times: &[Link], fixed: usize, link: &Link, tile: i64) -> Result<String> {
        let points = &times[fixed..];
        let base = match points.iter().find(|p| p.phi == link.phi) {
            Some(same) => same,
            None => {
                let parts = combination(times, &link.phi, self.scop.statement(id).iterators.len());
                let unit = parts.iter().flatten().zip(times).skip(fixed).find(|(c, _)| c.abs() == 1);
                match unit.map(|x| x.1).or(points.last()) {
                    Some(base) => base,
                    None => return Err(self.inexpressible("tiles", id)),
                }
            }
        };
        let into = [link.name.as_str().into(), base.name.as_str().into()];
        self.primitives.push(Primitive::Split { which: self.one(id, &base.name), by: tile, into });
        let mut phi = base.phi.clone();
        if phi != link.phi {
            let difference = link.phi.add_scaled(&phi, -1);
            let parts = combination(times, &difference, self.scop.statement(id).iterators.len());
            for (factor, by) in parts.iter().flatten().zip(times).filter(|x| *x.0 != 0) {
                self.skew(id, &link.name, *factor, &by.name);
                phi = phi.add_scaled(&by.phi, *factor);
            }
            let by = link.phi.constant - phi.constant;
            if by != 0 {
                self.primitives.push(Primitive::Shift { which: self.one(id, &link.name), by });
            }
        }
        Ok(base.name.clone())
    }
}

/// The integers by which `times` add up to the linear part of `phi`.
fn combination(times: &[Link], phi: &Affine, iterators: usize) -> Option<Vec<i64>> {
    let of_times = |v: u32| times.iter().map(move |l| l.phi.coefficient(crate::expr::Var(v)));
    let coefficient = |v: u32| phi.coefficient(crate::expr::Var(v));
    let equations: Vec<Vec<i64>> =
        (0..iterators as u32).map(|v| of_times(v).chain([coefficient(v)]).collect()).collect();
    let complement = orthogonal_complement(&equations, times.len() + 1);
    let solution = complement.iter().find(|c| c[times.len()] != 0)?;
    let scale = -solution[times.len()];
    let exact = solution[..times.len()].iter().all(|c| c % scale == 0);
    exact.then(|| solution[..times.len()].iter().map(|c| c / scale).collect())
}
