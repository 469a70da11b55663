//! Statements that accumulate: into registers, into memory, and over the lanes of a vector loop.
//!
//! A reduction over lanes has several accumulators, so that no addition waits for the one before; they are combined in a
//! fixed tree when the loop has been expanded.

use crate::codegen::loopnest::Stmt;
use crate::codegen::select::state::Address;
use crate::codegen::select::state::Reduction;
use crate::codegen::select::state::Val;
use crate::codegen::select::state::{Selected, Selector};
use crate::codegen::select::tree::Node;
use crate::codegen::select::value::{contracts, product};
use crate::codegen::vcode::{Inst, VBinary};
use crate::expr::Var;
use crate::expr::scalar::numbers_only;
use crate::expr::{BinaryOp, CompareOp, Expr, Index, Scalar};
use crate::runtime::DType;

impl Selector<'_> {
    /// `target = op(target, value)`.
    pub fn accumulate(&mut self, target: Address, op: BinaryOp, value: &Expr) -> Selected<()> {
        let dtype = self.nest.buffer(target.buffer).dtype;
        let slot = self.slot(&target)?;
        let summand = product(value).filter(|_| op == BinaryOp::Add && contracts(dtype));
        if let Some(product) = summand.and_then(|(a, b, negate)| self.scaled(a, b, negate)) {
            return self.accumulate_scaled(&target, slot, product);
        }
        if let (Some(slot), Some((a, b, negate))) = (slot, summand) {
            let (a, b) = (self.value(a)?, self.value(b)?);
            let whole = self.chunk.first == 0 && self.chunk.count >= slot.valid;
            if whole || slot.uniform || !self.blends(target.buffer) && self.chunk.first == 0 {
                self.read_slot(&target)?;
                let ty = self.ty(slot.lane, slot.uniform);
                self.out.push(Node::Inst(Inst::VFma { acc: slot.reg, ty, a: a.reg, b: b.reg, negate }));
                self.changed(slot.reg);
                self.wrote_slot(&target, false);
                return Ok(());
            }
        }
        if let Some((a, b, negate)) = summand {
            let (a, b) = (self.value(a)?, self.value(b)?);
            let old = self.load_address(&target)?;
            let new = self.fused(a, b, old, negate);
            return self.store_value(&target, new);
        }
        let (value, keeps) = self.reduced_value(op, value)?;
        let old = self.load_address(&target)?;
        let new = self.combine_total(op, old, value, keeps)?;
        self.store_value(&target, new)
    }

    /// The value of the body of a reduction, and whether its not-a-numbers have to be kept.
    fn reduced_value(&mut self, op: BinaryOp, body: &Expr) -> Selected<(Val, bool)> {
        if let (Some(var), Expr::Binary(BinaryOp::Mul, a, b)) = (self.pair, body) {
            return Ok((self.pair_of_products(var, a, b)?, false));
        }
        let numbers = numbers_only(op, body);
        let value = self.value(numbers.unwrap_or(body))?;
        let keeps = matches!(op, BinaryOp::Min | BinaryOp::Max) && value.dtype.is_float() && numbers.is_none();
        Ok((value, keeps))
    }

    /// One step of a reduction. The instructions of minima and maxima leave a not-a-number that the total is as it is; one
    /// that `value` is becomes the total: where `value` differs from itself, all bits are set, which is one as well, or `value` is
    /// taken where the comparison of whole registers is a mask.
    fn combine_total(&mut self, op: BinaryOp, total: Val, value: Val, keeps: bool) -> Selected<Val> {
        let combined = self.combine(op, total, value)?;
        if !keeps {
            return Ok(combined);
        }
        let value = self.with_lane(value, combined.lane)?;
        let broken = self.vector_compare(CompareOp::Ne, value, value);
        let ty = self.ty(combined.lane, broken.uniform && combined.uniform);
        Ok(if ty.compares_to_mask(self.target) {
            self.vector_select(broken, value, combined)
        } else {
            self.vector_binary(VBinary::Or, combined, broken)
        })
    }

    /// Combines the lanes of a total by the instruction for it; every lane of the result has all bits set where a lane is
    /// not a number and has to be kept.
    fn combine_lanes(&mut self, op: VBinary, v: Val, keeps: bool) -> Val {
        if v.dtype == DType::U64 && matches!(op, VBinary::Min | VBinary::Max) {
            return self.extreme_of_lanes(op, v);
        }
        let ty = self.ty(v.lane, false);
        let reduced =
            Val { reg: self.emit(|dst| Inst::VReduce { op, dst, ty, a: v.reg, first: false }), uniform: true, ..v };
        if !keeps {
            return reduced;
        }
        let broken = self.vector_compare(CompareOp::Ne, v, v);
        let ty = self.ty(broken.lane, false);
        let reg = self.emit(|dst| Inst::VReduce { op: VBinary::Or, dst, ty, a: broken.reg, first: false });
        self.vector_binary(VBinary::Or, reduced, Val { reg, uniform: true, ..broken })
    }

    /// One chunk of `target = op over lanes`, into one of several accumulators.
    pub fn accumulate_lanes(&mut self, stmt: &Stmt, target: Address, op: BinaryOp, value: &Expr) -> Selected<()> {
        const ACCUMULATORS: usize = 8;
        let scaled =
            product(value).filter(|_| op == BinaryOp::Add).and_then(|(a, b, negate)| self.scaled(a, b, negate));
        if scaled.is_some_and(|product| product.factor == 0.0) {
            return Ok(());
        }
        let position = self.reductions.iter().position(|r| std::ptr::eq(r.stmt, stmt) && r.target == target);
        let reduction = position.unwrap_or_else(|| {
            let r = Reduction { stmt, target, op, keeps: false, accumulators: vec![], next: 0 };
            self.reductions.push(r);
            self.reductions.len() - 1
        });
        let whole = self.chunk.first == 0 && self.chunk.count == self.chunk.lanes;
        let next = self.reductions[reduction].next;
        self.reductions[reduction].next = (next + 1) % ACCUMULATORS;
        if let (Some((a, b, negate)), true, BinaryOp::Add, Some(&acc)) =
            (product(value), whole, op, self.reductions[reduction].accumulators.get(next))
            && contracts(acc.dtype)
            && scaled.is_none_or(|product| product.factor != 1.0)
        {
            let (a, b) = (self.value(a)?, self.value(b)?);
            let ty = self.ty(acc.lane, false);
            self.out.push(Node::Inst(Inst::VFma { acc: acc.reg, ty, a: a.reg, b: b.reg, negate }));
            self.changed(acc.reg);
            return Ok(());
        }
        let (mut v, keeps) = self.reduced_value(op, value)?;
        self.reductions[reduction].keeps |= keeps;
        // A total may not fit into the lanes that its values fit into.
        let lane = self.lane(v.dtype)?;
        v = self.with_lane(v, lane)?;
        if !whole {
            let neutral = self.constant(Scalar::neutral(op, v.dtype)?)?;
            let mask = self.lane_mask(v.lane.bytes());
            let (neutral, lane) = (self.with_lane(neutral, v.lane)?, v.lane);
            let ty = self.ty(lane, false);
            let (a, b) = (v.reg, neutral.reg);
            v.reg = self.emit(|dst| Inst::VSelect { dst, ty, mask, a, b });
        }
        v.uniform = false;
        match self.reductions[reduction].accumulators.get(next).copied() {
            None => {
                let reg = self.fresh();
                let ty = self.ty(v.lane, false);
                self.move_to(reg, v.reg, ty);
                self.reductions[reduction].accumulators.push(Val { reg, ..v });
            }
            Some(acc) => {
                let new = self.combine_total(op, acc, v, keeps)?;
                let ty = self.ty(acc.lane, false);
                self.move_to(acc.reg, new.reg, ty);
            }
        }
        Ok(())
    }

    /// Accumulators are combined pairwise, then lanes, then with the old value of the target.
    pub fn finish_reduction(&mut self, r: Reduction) -> Selected<()> {
        let mut values = r.accumulators;
        while values.len() > 1 {
            let half = values.len().div_ceil(2);
            for i in half..values.len() {
                values[i - half] = self.combine_total(r.op, values[i - half], values[i], r.keeps)?;
            }
            values.truncate(half);
        }
        let Some(v) = values.pop() else { return Ok(()) };
        let mask = v.dtype == DType::Bool;
        let op = match r.op {
            BinaryOp::Add => VBinary::Add,
            BinaryOp::Mul => VBinary::Mul,
            BinaryOp::Min => VBinary::Min,
            BinaryOp::Max => VBinary::Max,
            // a mask is 0 or -1
            BinaryOp::And if mask => VBinary::Max,
            BinaryOp::Or if mask => VBinary::Min,
            _ => return self.internal("a reduction over lanes that no instruction does"),
        };
        let op = match (mask, op) {
            (true, VBinary::Max) if r.op == BinaryOp::Max => VBinary::Min,
            (true, VBinary::Min) if r.op == BinaryOp::Min => VBinary::Max,
            _ => op,
        };
        let lanes = self.combine_lanes(op, v, r.keeps);
        let v = self.normalized(lanes)?;
        let old = self.load_address(&r.target)?;
        let new = self.combine_total(r.op, old, v, r.keeps)?;
        self.store_value(&r.target, new)
    }
}

/// Returns true if some statement accumulates into an element that does not depend on `var`.
pub fn accumulates_over(body: &[Stmt], var: Var) -> bool {
    body.iter().any(|s| match s {
        Stmt::Store { index, reduce, .. } => {
            reduce.is_some() && index.iter().all(|i| matches!(i, Index::Affine(a) if !a.uses(var)))
        }
        other => accumulates_over(other.body(), var),
    })
}
