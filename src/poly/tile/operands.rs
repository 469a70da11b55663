//! Packing decisions: the operands of a phase that are read from packed copies, and the layouts of these.
//!
//! In: the loops around a statement. Out: a [`Packing`] for each operand, in the order of the loops: tiles, reductions,
//! points, the vector last.

use super::register_block::{Axis, Problem, without_conversions};
use crate::expr::Var;
use crate::poly::analysis::access::{Reference, operations, references};
use crate::poly::packing::{PackedDim, Packing};
use crate::poly::schedule::Row;
use crate::poly::statement::StatementId;
use crate::poly::tile::plan::{Phase, Shared, unit};

/// The loops around the main statement of a leaf, as far as its packed operands need them.
pub(super) struct Group {
    pub statement: StatementId,
    pub axes: Vec<Axis>,
    /// Reduction loops in their order.
    pub reductions: Vec<Var>,
    /// Iterators with a point loop, and its size.
    pub points: Vec<(Var, i64)>,
    pub vector: Option<Var>,
    /// The reduced iterator of which a tensor instruction takes so many terms together.
    pub terms: Option<(Var, i64)>,
}

impl Phase<'_> {
    /// Facts about a statement beside the dominant one, in lanes as wide as `statements` need.
    pub(super) fn problem<'p>(
        &'p self,
        id: StatementId,
        statements: &[StatementId],
        references: &'p [Reference],
        axes: &'p [Axis],
    ) -> Problem<'p> {
        Problem {
            statement: self.scop.statement(id),
            operations: without_conversions(operations(self.scop, id), references),
            references,
            axes,
            target: self.target,
            element: self.widest(statements),
            elsewhere: &|_| 0.0,
            grouped: &[],
            unrolled: false,
            sums_beside: 0,
            operand_parts: 1,
        }
    }

    /// Packed copies of what the main statement of a group reads: the dominant statement's by its block, for the other
    /// updates their constants.
    pub(super) fn packings(&self, g: &Group, rows: &[Row], shared: &Shared, axes: &[Axis]) -> Vec<Packing> {
        let Some(vector) = g.vector else { return vec![] };
        let refs = references(self.scop, g.statement);
        let s = self.scop.statement(g.statement);
        let mut own: Vec<Axis> = rows.iter().filter_map(|r| self.axis(r, g.statement, true)).collect();
        own.extend(g.axes.iter().cloned());
        let packed = if g.statement == shared.dominant {
            shared.block.packed.clone()
        } else if s.reduce.is_some() {
            self.problem(g.statement, &[g.statement], &refs, &own).packable(vector).0
        } else {
            vec![]
        };
        let points = |v: Var| g.points.iter().find(|p| p.0 == v).map(|p| p.1);
        let part = |v: Var| shared.part(v, g.statement);
        let together = |v: Var| g.terms.filter(|t| t.0 == v).map(|t| t.1);
        let mut loops: Vec<(Var, PackedDim)> = vec![];
        let around = rows.iter().filter_map(|r| unit(r, g.statement)).chain(g.reductions.iter().copied());
        let own = axes.iter().filter(|_| g.statement == shared.dominant).map(|a| a.iterator);
        for v in around.chain(own).chain(g.points.iter().map(|p| p.0)) {
            if !loops.iter().any(|l| l.0 == v) {
                let tile = part(v).or(points(v)).or(together(v));
                loops.push((v, tile.map_or(PackedDim::Whole, PackedDim::Tile)));
            }
        }
        let inside = |v: Var| match (part(v)?, together(v)) {
            (part, Some(terms)) => Some((v, PackedDim::Middle(part, terms))),
            (part, None) => Some((v, PackedDim::Point(part))),
        };
        loops.extend(g.reductions.iter().filter_map(|&v| inside(v)));
        packed.iter().filter_map(|&i| self.packing(g, &refs[i], vector, &loops)).collect()
    }

    /// The packed copy of a read in the order of the loops: tiles, reductions, points, the vector last.
    fn packing(&self, g: &Group, r: &Reference, vector: Var, loops: &[(Var, PackedDim)]) -> Option<Packing> {
        let access = r.access.clone()?;
        if !r.depends(vector) {
            return Some(Packing { statement: g.statement, access, dims: in_source_order(r) });
        }
        let size = g.points.iter().find(|p| p.0 == vector)?.1;
        let mut dims = vec![];
        if !loops.iter().any(|l| l.0 == vector) {
            dims.push((vector, PackedDim::Tile(size)));
        }
        dims.extend(loops.iter().filter(|l| r.depends(l.0)));
        for &(v, n) in g.points.iter().filter(|p| p.0 != vector && r.depends(p.0)) {
            dims.push((v, PackedDim::Point(n)));
        }
        dims.push((vector, PackedDim::Point(size)));
        dims.extend(g.terms.filter(|t| r.depends(t.0)).map(|(v, terms)| (v, PackedDim::Point(terms))));
        // An iterator without a loop of its own is left out of the copy.
        let all = self.scop.statement(g.statement).vars().all(|v| !r.depends(v) || dims.iter().any(|d| d.0 == v));
        all.then_some(Packing { statement: g.statement, access, dims })
    }
}

/// The iterators of a read, the longest strides outermost: the order of its elements in memory.
fn in_source_order(r: &Reference) -> Vec<(Var, PackedDim)> {
    let strides = (0..).map(Var).zip(&r.strides).filter_map(|(v, stride)| Some((v, stride.filter(|s| *s != 0)?.abs())));
    let mut strides: Vec<(Var, i64)> = strides.collect();
    strides.sort_by_key(|(_, stride)| -stride);
    strides.into_iter().map(|(v, _)| (v, PackedDim::Whole)).collect()
}
