//! Separation of full and partial tiles: a loop is divided into the part in which no statement needs a condition, and
//! the rest.

use super::{MAX_STORES, Shadow};
use crate::poly::lower::bounds::within_loop;
use crate::poly::lower::contraction::expands;
use crate::poly::lower::state::{Lowering, RowValues, Site, Subtree};
use crate::poly::schedule::Row;
use crate::poly::sets::polyhedron::{Form, Polyhedron, minus};
use crate::poly::statement::StatementId;
use crate::runtime::Result;

impl Lowering<'_> {
    /// The parts of a loop (the last variable of `inside`) that are worth code of their own, each with all that is
    /// known there.
    pub(super) fn regions(
        &mut self,
        tree: Subtree,
        shadows: &[Shadow],
        inside: &Site,
        own: &Polyhedron,
    ) -> Result<Vec<(Polyhedron, Polyhedron)>> {
        let full = match tree.rows[0].pad {
            1 => self.full_part(tree, shadows, inside, own)?,
            _ => vec![],
        };
        let mut regions = vec![];
        for region in divide(&full, inside.vars.len()) {
            let mut here = inside.clone();
            here.require(own);
            here.require(&region);
            if !self.isl.is_empty(&here.context)? {
                regions.push((region, here.context));
            }
        }
        Ok(regions)
    }

    /// Constraints under which no statement below needs a condition on the loop's variable (the last one): where all points
    /// of unrolled and vector rows exist, or where all statements of an innermost loop run.
    fn full_part(&mut self, tree: Subtree, shadows: &[Shadow], inside: &Site, own: &Polyhedron) -> Result<Vec<Form>> {
        let dims = inside.vars.len();
        let mut wanted = Polyhedron::universe(dims);
        if self.stores > MAX_STORES {
            return Ok(vec![]);
        }
        let mut innermost = shadows.len() > 1;
        for (id, shadow) in shadows {
            let below = tree.after(1).rows_of(*id);
            innermost &= below.is_empty();
            let blocks: Vec<(&Row, &RowValues)> = below
                .iter()
                .filter(|r| expands(r) && r.pad == 1)
                .filter_map(|r| inside.tile_of(r).map(|d| (*r, d)))
                .collect();
            if !blocks.is_empty() {
                wanted.inequalities.extend(self.corners(*id, &blocks, inside)?);
            }
            if innermost {
                wanted.inequalities.extend(shadow.as_inequalities());
            }
        }
        if wanted.inequalities.is_empty() {
            return Ok(vec![]);
        }
        let mut context = inside.context.clone();
        context.intersect(own);
        let with = within_loop(&self.isl.gist(&wanted, &context)?);
        context.intersect(&with);
        Ok(if self.isl.is_empty(&context)? { vec![] } else { with.inequalities })
    }

    /// Returns the conditions on the variables in scope under which all points of the blocks exist: the constraints on
    /// points at their worst corner.
    fn corners(&self, id: StatementId, blocks: &[(&Row, &RowValues)], inside: &Site) -> Result<Vec<Form>> {
        let (dims, m) = (inside.vars.len(), blocks.len());
        let mut open = inside.clone();
        open.rows
            .retain(|d| !blocks.iter().any(|b| std::ptr::eq(d.phi.as_ptr(), b.1.phi.as_ptr()) || d.phi == b.1.phi));
        let statement = self.scop.statement(id);
        // Variables: those in scope, the points, the iterators.
        let mut p = Polyhedron::universe(dims + m + statement.iterators.len());
        let inner = self.instances(id, &open);
        let shift = |f: &Form| -> Form {
            f[..dims].iter().copied().chain(std::iter::repeat_n(0, m)).chain(f[dims..].iter().copied()).collect()
        };
        p.equalities = inner.equalities.iter().map(shift).collect();
        p.inequalities = inner.inequalities.iter().map(shift).collect();
        for (k, (row, _)) in blocks.iter().enumerate() {
            let mut e = p.form(row.of(id), dims + m);
            e[dims + k] -= 1;
            p.equalities.push(e);
        }
        if self.isl.is_empty(&p)? {
            return Ok(vec![]);
        }
        let shadow = self.isl.project(&p, dims + m)?;
        let mut out = vec![];
        for f in shadow.as_inequalities().into_iter().filter(|f| f[dims..dims + m].iter().any(|&c| c != 0)) {
            let mut corner: Form = f[..dims].iter().copied().chain([f[dims + m]]).collect();
            for (k, (_, done)) in blocks.iter().enumerate() {
                let c = f[dims + k];
                let base = inside.form(&done.base.scale(c), dims);
                corner.iter_mut().zip(&base).for_each(|(a, b)| *a += b);
                corner[dims] += (c * (done.extent - 1)).min(0);
            }
            out.push(corner);
        }
        Ok(out)
    }
}

/// Divides a loop (the last variable) by the constraints of its full part, in the order of its values: the parts that break
/// a lower bound, the full part, the parts that break an upper bound. They are disjoint.
fn divide(full: &[Form], dims: usize) -> Vec<Polyhedron> {
    let (lower, upper): (Vec<&Form>, Vec<&Form>) = full.iter().partition(|f| f[dims - 1] > 0);
    let part = |inequalities: Vec<Form>| Polyhedron::of_inequalities(dims, inequalities);
    let hold = |forms: &[&Form]| forms.iter().map(|f| (*f).clone()).collect::<Vec<_>>();
    let mut out = vec![];
    for j in (0..lower.len()).rev() {
        out.push(part([vec![minus(-1, lower[j])], hold(&lower[j + 1..])].concat()));
    }
    out.push(part(full.to_vec()));
    for j in (0..upper.len()).rev() {
        out.push(part([hold(&lower), hold(&upper[..j]), vec![minus(-1, upper[j])]].concat()));
    }
    out
}
