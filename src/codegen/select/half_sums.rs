//! Sums in f16: a tensor instruction that adds a product to each of a vector of f16, and the loops around it in which its sums stay
//! in registers.
//!
//! In: point loops ([`point_loops`](super::point_loops)) around one sum whose row adds to f16 ([`TensorInstruction::sums_halves`]).
//! Out: before the outermost loop that the sums do not depend on, their bits are loaded in lanes of 16 bits; in the innermost loop an
//! instruction for each vector; behind the loops they are stored. All other code has f16 in lanes of f32, so that the buffer of the
//! sums is memory.

use crate::codegen::instruction::{Form, Part, TensorInstruction};
use crate::codegen::loopnest::Stmt;
use crate::codegen::select::point_loops::{Block, block, region};
use crate::codegen::select::state::{Address, Chunk, LANE, LocalMode, Selected, Selector, Stop, Val, View};
use crate::codegen::select::tree::Node;
use crate::codegen::vcode::{Inst, Lane, VType, Vreg};
use crate::expr::{Access, Affine, Expr, Var};
use crate::runtime::DType;

/// The bits of f16 in lanes.
const BITS: View = View { dtype: DType::I16, group: 1 };

/// Bytes of a lane.
const LANE_BYTES: usize = 2;

/// A vector of sums: the iterations of the unrolled loops, the first column and the number of columns.
#[derive(Clone, Copy)]
struct Place {
    outer: i64,
    row: i64,
    column: i64,
    width: i64,
}

impl Selector<'_> {
    /// Selects `stmt` where it is a sum of f16, with the loops in which it stays in registers; false for other statements.
    pub fn half_sums(&mut self, stmt: &Stmt) -> Selected<bool> {
        let rows = &self.target.instructions;
        if !rows.iter().any(TensorInstruction::sums_halves) {
            return Ok(false);
        }
        if let Some(sums) = self.half_sums.clone() {
            let Some(block) = block(rows, TensorInstruction::sums_halves, stmt) else { return Ok(false) };
            self.half_products(&block, &sums)?;
            return Ok(true);
        }
        let Some((block, _)) = region(rows, TensorInstruction::sums_halves, stmt) else { return Ok(false) };
        if self.in_registers(block.buffer) {
            return Err(Stop::Retry(block.buffer, LocalMode::Memory { offset: 0 }));
        }
        let places = self.places(&block);
        let mut sums = vec![];
        for &place in &places {
            let old = self.at_place(&block, place, &mut |s| {
                let at = s.address(block.buffer, block.index)?;
                s.load_address(&at)
            })?;
            // The instructions change it: a register of its own.
            let (reg, ty) = (self.fresh(), self.whole_halves());
            self.out.push(Node::Inst(Inst::VCopy { dst: reg, src: old.reg, ty }));
            sums.push(Val { reg, ..old });
        }
        self.half_sums = Some(sums.iter().map(|sum| sum.reg).collect());
        self.statement(stmt)?;
        self.half_sums = None;
        for (&place, &sum) in places.iter().zip(&sums) {
            self.at_place(&block, place, &mut |s| {
                let at: Address = s.address(block.buffer, block.index)?;
                s.store_lanes(&at, sum, BITS.dtype)
            })?;
        }
        Ok(true)
    }

    fn whole_halves(&self) -> VType {
        VType { lane: Lane::I16, lanes: self.target.lanes(LANE_BYTES) as u8 }
    }

    /// The vectors of sums of a block, columns innermost.
    fn places(&self, block: &Block) -> Vec<Place> {
        let points = |axis: Option<(Var, i64)>| axis.map_or(1, |a| a.1);
        let (lanes, columns) = (self.target.lanes(LANE_BYTES) as i64, points(block.columns));
        let mut places = vec![];
        for outer in 0..points(block.outer) {
            for row in 0..points(block.rows) {
                let starts = (0..columns).step_by(lanes as usize);
                places.extend(starts.map(|column| Place { outer, row, column, width: lanes.min(columns - column) }));
            }
        }
        places
    }

    /// Calls `f` where the lanes at work are those of a vector of sums, as bits.
    fn at_place<T>(&mut self, block: &Block, place: Place, f: &mut dyn FnMut(&mut Self) -> Selected<T>) -> Selected<T> {
        for (axis, value) in [(block.outer, place.outer), (block.rows, place.row), (Some((block.terms, 1)), 0)] {
            if let Some((v, _)) = axis {
                self.env[v.0 as usize] = Affine::constant(value);
            }
        }
        if let Some((v, _)) = block.columns {
            self.env[v.0 as usize] = Affine::var(LANE).offset(place.column);
        }
        let lanes = self.target.lanes(LANE_BYTES) as u8;
        let chunk = Chunk { lanes, first: 0, count: place.width as u8, widest: LANE_BYTES };
        let (chunk, view) = (std::mem::replace(&mut self.chunk, chunk), self.view.replace(BITS));
        self.facts.set_range(LANE, (0, place.width - 1));
        let out = f(self);
        self.facts.set_range(LANE, (0, 0));
        (self.chunk, self.view) = (chunk, view);
        out
    }

    /// The instructions of one step of the innermost loop.
    fn half_products(&mut self, block: &Block, sums: &[Vreg]) -> Selected<()> {
        let places = self.places(block);
        for (&place, &acc) in places.iter().zip(sums) {
            self.at_place(block, place, &mut |s| {
                s.under(block.conditions, &mut |s| {
                    let [a, b] = s.factors(block)?;
                    if let Some(local) = [a, b].into_iter().find(|access| s.in_registers(access.buffer)) {
                        return Err(Stop::Retry(local.buffer, LocalMode::Memory { offset: 0 }));
                    }
                    let (a, b) = (s.load(a)?, s.load(b)?);
                    let (constant, temporaries) = (s.constant_of(block.row), block.row.temporaries() as u8);
                    let ty = s.whole_halves();
                    s.out.push(Node::Inst(Inst::VTensor {
                        acc,
                        row: block.row.name,
                        ty,
                        a: a.reg,
                        b: b.reg,
                        constant,
                        temporaries,
                    }));
                    s.changed(acc);
                    Ok(())
                })
            })?;
        }
        Ok(())
    }

    /// The reads of the row's operands: an operand that is broadcast does not vary from lane to lane.
    fn factors<'b>(&self, block: &Block<'b>) -> Selected<[&'b Access; 2]> {
        let fits = &mut |n: usize, part: &Part| {
            let (o, lanes) = (&block.row.operands[n], self.varies(&Expr::Load(part.access.clone())));
            o.is_part(part, self.nest.buffer(part.access.buffer).dtype) && (o.form == Form::Vector || !lanes)
        };
        match block.row.unify(block.value, fits).map(<[&Access; 2]>::try_from) {
            Some(Ok(operands)) => Ok(operands),
            _ => self.internal(&format!("the terms of a sum are not those of `{}`", block.row.name)),
        }
    }
}
