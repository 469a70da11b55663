//! Register blocks of tensor instructions: the block of vectors and rows whose sums take several terms at a time.
//!
//! In: a statement and the rows that match it. Out: the block with the fewest predicted cycles for each. One step of the
//! reduction takes a group of terms of both operands: the model of the block is that of a statement whose elements are as
//! wide as a group and whose reduction has as many steps as groups.

use crate::expr::Var;
use crate::expr::interval::ceil_div;
use crate::poly::analysis::access::{Along, Reference};
use crate::poly::instruction::group::{Grouped, match_grouped};
use crate::poly::instruction::is_fma;
use crate::poly::statement::StatementId;
use crate::poly::tile::plan::Phase;
use crate::poly::tile::register_block::{Axis, Block, Problem};

impl Problem<'_> {
    /// The best block of each matched row whose lanes run along `v`, with its operand in lanes packed.
    pub(super) fn along_tensors(&self, v: &Axis) -> Vec<Block> {
        self.grouped.iter().filter(|g| g.lane == v.iterator).filter_map(|g| self.along_tensor(v, g)).collect()
    }

    fn along_tensor(&self, v: &Axis, matched: &Grouped) -> Option<Block> {
        let Grouped { group, terms, vector, .. } = *matched;
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
                strides: r.strides.iter().enumerate().map(stride).collect(),
                ..r.clone()
            }
        };
        let references: Vec<Reference> = self.references.iter().map(wide).collect();
        let problem = Problem { operations: 1.0, references: &references, axes: &axes, grouped: &[], ..*self };
        let as_it_lies = terms == 1 && self.references[vector].along(v.iterator) == Along::Unit;
        let packed: &[usize] = if as_it_lies { &[] } else { &[vector] };
        let block = problem.along_parallel(v, packed, None)?;
        Some(Block { tensor: Some(matched.clone()), ..block })
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
        let mut found = vec![];
        for row in self.target.instructions.iter().filter(|row| !is_fma(row)) {
            for lane in axes.iter().filter(|a| a.parallel && a.movable && a.extent > 1) {
                for group in axes.iter().filter(|a| a.extent > 1 && inside(a.iterator)) {
                    let pair = [lane.iterator, group.iterator];
                    found.extend(match_grouped(row, self.scop, id, references, pair));
                }
            }
        }
        found
    }
}

impl Block {
    /// Terms of a reduced iterator that one step takes together; 1 for others.
    pub fn terms(&self, v: Var) -> i64 {
        self.tensor.as_ref().filter(|t| t.group == v).map_or(1, |t| t.terms)
    }
}
