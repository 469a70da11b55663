//! Whole blocks of sums at the border of a domain that is not a box.
//!
//! In: an update that is summed on a local tile, where only a part of the tile's elements belongs to the domain. Out: the
//! conditions under which its operands exist. The other elements of the tile are computed as well, from whatever the
//! operands hold there, and are never written back: a triangle is computed in whole register blocks.

use crate::expr::{Affine, BinaryOp, BufferId, Expr, Index, Var};
use crate::poly::lower::state::{Lowering, Mode, Site};
use crate::poly::statement::StatementId;

impl Lowering<'_> {
    /// The conditions of an update of a local tile, or of the copy that fills it, in place of those that choose elements
    /// of its target: that the subscripts of all that is read lie within their tensors. `value` is the iterators, of which
    /// the sum's are not known in a copy. `None` where other conditions count.
    pub(super) fn whole_block(&self, id: StatementId, value: &[Affine], site: &Site) -> Option<Vec<Affine>> {
        let s = self.scop.statement(id);
        let summed = site.placed.iter().any(|p| p.sums && p.tensor == s.target);
        let mut divides = false;
        s.body.visit(&mut |e| divides |= matches!(e, Expr::Binary(BinaryOp::Div | BinaryOp::Mod | BinaryOp::Pow, ..)));
        if !summed || site.mode == Mode::Spill || divides && !self.scop.tensor(s.target).dtype.is_float() {
            return None;
        }
        // Integers may trap where they are divided. Each element of the tile has one value of the iterators that are not summed over.
        let free: Vec<Var> = s.vars().filter(|&v| s.writes_along(v)).collect();
        if !free.iter().all(|&v| s.is_subscript(v)) {
            return None;
        }
        if !self.holds(s.target, &s.write.iter().map(|w| w.compose(value)).collect::<Vec<_>>(), site) {
            return None;
        }
        let mut out = vec![];
        let mut inside = |index: Affine, extent: i64| {
            out.push(index.scale(-1).offset(extent - 1));
            out.push(index);
        };
        if site.mode == Mode::Fill {
            let shape = &self.scop.tensor(s.target).shape;
            s.write.iter().zip(shape).for_each(|(w, &n)| inside(w.compose(value), n));
            return Some(out);
        }
        let mut readable = true;
        s.body.visit_accesses(&mut |a| {
            if let Some(p) = self.packing_of(id, a) {
                // A copy has the elements of all instances, which may be fewer than those of what it is a copy of.
                let shape = &self.nest.buffer(self.packed[p]).shape;
                match self.tiled.packings[p].subscripts(value, &self.range()) {
                    Ok(index) => index.iter().zip(shape).for_each(|(i, &n)| inside(i.clone(), n)),
                    Err(_) => readable = false,
                }
                return;
            }
            let placed = site.placed.iter().any(|p| p.tensor == a.buffer);
            let whole = self.tensors[a.buffer.0 as usize].is_some() && self.scop.private(a.buffer).is_none();
            readable &= whole && !placed && a.guard.is_empty();
            for (index, &n) in a.index.iter().zip(&self.scop.tensor(a.buffer).shape) {
                match index {
                    Index::Affine(form) => inside(form.compose(value), n),
                    Index::Value(_) => readable = false,
                }
            }
        });
        // What the sum runs over.
        let of_sum = |a: &Affine| a.terms.iter().any(|t| !free.contains(&t.0));
        out.extend(s.domain.iter().filter(|a| of_sum(a)).map(|a| a.compose(value)));
        for (v, it) in s.vars().zip(&s.iterators).filter(|(v, _)| !free.contains(v)) {
            let value = &value[v.0 as usize];
            out.extend([value.clone(), value.scale(-1).offset(it.extent - 1)]);
        }
        for row in site.rows.iter().filter(|r| r.extent > 1) {
            if let Some((_, phi)) = row.phi.iter().find(|p| p.0 == id && of_sum(&p.1)) {
                let offset = phi.compose(value).add_scaled(&row.base, -1);
                out.extend([offset.scale(-1).offset(row.extent - 1), offset]);
            }
        }
        readable.then_some(out)
    }

    /// Returns true if the memory of a tensor has the element for all values of the variables in scope, as far as the tensor
    /// has it: private memory has a box around what instances touch.
    fn holds(&self, tensor: BufferId, element: &[Affine], site: &Site) -> bool {
        let Some(memory) = site.placed.iter().find(|p| p.tensor == tensor && !p.sums) else {
            return self.scop.private(tensor).is_none();
        };
        let inside = |(d, n): (usize, &i64)| {
            let (low, high) = element[d].add_scaled(&memory.origin[d], -1).bounds(self.range());
            low >= 0 && high < *n
        };
        self.scop.private(tensor).is_none_or(|p| p.layout.is_empty())
            && self.nest.buffer(memory.buffer).shape.iter().enumerate().all(inside)
    }
}
