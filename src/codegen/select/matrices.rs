//! Sums in matrices: a tensor instruction whose vector registers hold two rows of two sums, and the loops around it in which its
//! sums stay there.
//!
//! In: point loops ([`point_loops`](super::point_loops)) around one sum whose row has matrices
//! ([`TensorInstruction::is_matrix`]). Out: before the outermost loop that the sums do not depend on, the vectors of each two
//! rows are interleaved by pairs of columns; in the innermost loop each two rows of the operands are put together in a register
//! where they are not neighbours in memory; behind the loops the same interleaving makes vectors of rows again, so that what
//! follows finds the sums in vectors, in registers or in memory. A row or column without a partner is its own, and its sums are
//! the same twice. Nothing outside of the operands is read.

use crate::codegen::instruction::{MATRIX_COLUMNS, MATRIX_SIDE, TensorInstruction};
use crate::codegen::loopnest::Stmt;
use crate::codegen::select::point_loops::{Block, block, region};
use crate::codegen::select::state::{Address, Chunk, LANE, LocalMode, Selected, Selector, Stop, Val};
use crate::codegen::select::tree::Node;
use crate::codegen::vcode::{Inst, Lane, VType, Vreg, Zip};
use crate::expr::{Access, Affine, Var};
use crate::runtime::DType;

/// Halves of a register: a row of a matrix of sums, or the terms of a row or column.
const HALVES: VType = VType { lane: Lane::I64, lanes: 2 };

/// The interleavings that make two matrices of two vectors of rows, and the other way round.
const PAIRS: [Zip; 2] = [Zip::Low, Zip::High];

/// Points of an axis that stand together: the first one and their number.
type Part = (i64, i64);

/// The parts of `extent` points with `size` points each, the last one with what is left.
fn parts(extent: i64, size: i64) -> impl Iterator<Item = Part> {
    (0..extent).step_by(size as usize).map(move |first| (first, size.min(extent - first)))
}

/// Rows of sums whose matrices share a row: the iteration of the outer loop, and the rows.
fn pairs_of_rows(block: &Block) -> Vec<(i64, Part)> {
    let [outer, rows] = [block.outer, block.rows].map(|axis| axis.map_or(1, |a| a.1));
    (0..outer).flat_map(|o| parts(rows, MATRIX_SIDE).map(move |pair| (o, pair))).collect()
}

fn columns(block: &Block) -> i64 {
    block.columns.map_or(1, |a| a.1)
}

impl Selector<'_> {
    /// Selects `stmt` where it is a sum in matrices, with the loops in which they stay; false for other statements.
    pub fn matrices(&mut self, stmt: &Stmt) -> Selected<bool> {
        let rows = self.target.instructions.clone();
        if !rows.iter().any(TensorInstruction::is_matrix) {
            return Ok(false);
        }
        if let Some(sums) = self.matrices.clone() {
            let Some(block) = block(&rows, TensorInstruction::is_matrix, stmt) else { return Ok(false) };
            self.under(block.conditions, &mut |s| s.matrix_products(&block, &sums))?;
            return Ok(true);
        }
        let Some((block, _)) = region(&rows, TensorInstruction::is_matrix, stmt) else { return Ok(false) };
        let sums = self.rows_to_matrices(&block)?;
        self.matrices = Some(sums.clone());
        self.statement(stmt)?;
        self.matrices = None;
        self.matrices_to_rows(&block, &sums)?;
        Ok(true)
    }

    /// The matrices of all sums, in the order of [`pairs_of_rows`] and of the columns.
    fn rows_to_matrices(&mut self, block: &Block) -> Selected<Vec<Vreg>> {
        let mut sums = vec![];
        for (outer, (row, height)) in pairs_of_rows(block) {
            for (column, width) in parts(columns(block), MATRIX_COLUMNS) {
                let mut vectors = vec![];
                for row in row..row + height {
                    let load = |s: &mut Self, at: &Address| s.load_address(at);
                    vectors.push(self.with_vector(block, [outer, row], (column, width), load)?.reg);
                }
                let (a, b) = (vectors[0], vectors[vectors.len() - 1]);
                for &op in &PAIRS[..(width + 1) as usize / 2] {
                    sums.push(self.interleaved(op, a, b));
                }
            }
        }
        Ok(sums)
    }

    fn matrices_to_rows(&mut self, block: &Block, sums: &[Vreg]) -> Selected<()> {
        let dtype = self.nest.buffer(block.buffer).dtype;
        let (lane, uniform) = (self.lane(dtype)?, block.columns.is_none());
        let mut sums = sums.iter();
        for (outer, (row, height)) in pairs_of_rows(block) {
            for (column, width) in parts(columns(block), MATRIX_COLUMNS) {
                let matrices: Vec<Vreg> = sums.by_ref().take((width + 1) as usize / 2).copied().collect();
                let (a, b) = (matrices[0], matrices[matrices.len() - 1]);
                for (row, &op) in (row..row + height).zip(&PAIRS) {
                    let v = Val { reg: self.interleaved(op, a, b), lane, dtype, uniform };
                    let store = |s: &mut Self, at: &Address| s.store_value(at, v);
                    self.with_vector(block, [outer, row], (column, width), store)?;
                }
            }
        }
        Ok(())
    }

    fn interleaved(&mut self, op: Zip, a: Vreg, b: Vreg) -> Vreg {
        let dst = self.fresh();
        self.out.push(Node::Inst(Inst::VZip { dst, op, ty: HALVES, a, b }));
        dst
    }

    /// Calls `f` with the address of a vector of sums, its lanes at work.
    fn with_vector<T>(
        &mut self,
        block: &Block,
        [outer, row]: [i64; 2],
        (column, width): Part,
        mut f: impl FnMut(&mut Self, &Address) -> Selected<T>,
    ) -> Selected<T> {
        self.enter(block.outer, outer);
        self.enter(block.rows, row);
        if let Some((v, _)) = block.columns {
            self.env[v.0 as usize] = Affine::var(LANE).offset(column);
        }
        let lanes = (width as u64).next_power_of_two() as u8;
        let chunk = Chunk { lanes, first: 0, count: width as u8, widest: 4 };
        let outside = std::mem::replace(&mut self.chunk, chunk);
        self.facts.set_range(LANE, (0, width - 1));
        let at = self.address(block.buffer, block.index)?;
        let out = f(self, &at)?;
        self.facts.set_range(LANE, (0, 0));
        self.chunk = outside;
        Ok(out)
    }

    fn enter(&mut self, axis: Option<(Var, i64)>, value: i64) {
        if let Some((v, _)) = axis {
            self.env[v.0 as usize] = Affine::constant(value);
        }
    }

    /// The instructions of one step of the innermost loop.
    fn matrix_products(&mut self, block: &Block, sums: &[Vreg]) -> Selected<()> {
        let [a, b] = self.operands(block)?;
        let group = block.row.terms_in_lane();
        for access in [a, b] {
            let bytes = self.nest.buffer(access.buffer).dtype.bytes() as i64;
            if self.in_registers(access.buffer) {
                return Err(Stop::Retry(access.buffer, LocalMode::Memory { offset: 0 }));
            }
            if group * bytes != 8 || self.stride(access.buffer, &access.index, Some((block.terms, 0)))? != bytes {
                return self.internal(&format!("the operands of `{}` do not stand as the row says", block.row.name));
            }
            if access.guard.iter().any(|g| self.facts.decide(&self.resolve(g)) != Some(true)) {
                return self.internal("an operand of matrices under a guard");
            }
        }
        self.env[block.terms.0 as usize] = Affine::constant(0);
        self.enter(block.outer, 0);
        self.enter(block.rows, 0);
        let mut in_columns = vec![];
        for part in parts(columns(block), MATRIX_SIDE) {
            in_columns.push(self.group_of_two(b, block.columns, part)?);
        }
        let lane = self.lane(self.nest.buffer(block.buffer).dtype)?;
        let (constant, temporaries) = (self.constant_of(block.row), block.row.temporaries() as u8);
        let (ty, mut sums) = (VType { lane, lanes: MATRIX_COLUMNS as u8 }, sums.iter());
        for (outer, pair) in pairs_of_rows(block) {
            self.enter(block.outer, outer);
            self.enter(block.columns, 0);
            let a = self.group_of_two(a, block.rows, pair)?;
            for (&b, &acc) in in_columns.iter().zip(sums.by_ref()) {
                self.out.push(Node::Inst(Inst::VTensor { acc, row: block.row.name, ty, a, b, constant, temporaries }));
                self.changed(acc);
            }
        }
        Ok(())
    }

    /// The terms of two points of an axis in a register, or those of one twice.
    fn group_of_two(&mut self, access: &Access, axis: Option<(Var, i64)>, (first, count): Part) -> Selected<Vreg> {
        if count == 2 && self.stride(access.buffer, &access.index, axis)? == 8 {
            self.enter(axis, first);
            return self.terms_at(access, HALVES);
        }
        let mut groups = vec![];
        for point in first..first + count {
            self.enter(axis, point);
            groups.push(self.terms_at(access, VType { lanes: 1, ..HALVES })?);
        }
        let (a, b) = (groups[0], groups[groups.len() - 1]);
        Ok(self.emit(|dst| Inst::VZip { dst, op: Zip::Low, ty: HALVES, a, b }))
    }

    fn terms_at(&mut self, access: &Access, ty: VType) -> Selected<Vreg> {
        let at = self.address(access.buffer, &access.index)?;
        if !at.gather.is_empty() || at.linear.uses(LANE) {
            return self.internal("matrices at subscripts from data");
        }
        let (addr, span) = self.bytes_at(&at, ty.bytes() as i64);
        Ok(self.emit_from(Some(span), |dst| Inst::VLoad { dst, ty, mem: DType::I64, addr, part: None }))
    }
}
