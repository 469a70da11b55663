//! Accumulators whose first value is not in their register yet.
//!
//! In a nest with literals, `acc = 0` is noted and not computed: the first product `l·x` then becomes the value of the
//! accumulator without an addition, for `l` = 1 without any instruction. What else reads the accumulator, and the
//! borders of loops and branches, bring the value into its register first.
//!
//! Invariant: the register of a deferred value is not the register of a slot, whose value may change.

use crate::codegen::select::literal::Scaled;
use crate::codegen::select::state::{Address, Deferred, Selected, Selector, Slot, Val};
use crate::codegen::select::tree::Node;
use crate::codegen::select::value::contracts;
use crate::codegen::vcode::{Inst, VType, Vreg};
use crate::expr::{BufferId, Expr, Scalar};

fn key(a: &Address) -> (BufferId, i64) {
    (a.buffer, a.linear.constant)
}

impl Selector<'_> {
    /// The registers of a slot that an instruction with the lanes at work writes.
    fn slot_type(&self, slot: &Slot) -> VType {
        if slot.uniform { VType { lane: slot.lane, lanes: slot.lanes } } else { self.ty(slot.lane, false) }
    }

    /// Notes `target = value` if that is a zero for an accumulator in registers; returns false otherwise.
    pub fn defer_zero(&mut self, target: &Address, value: &Expr) -> Selected<bool> {
        let dtype = self.nest.buffer(target.buffer).dtype;
        let literals = self.nest.buffers.iter().any(|b| b.literals.is_some());
        if !literals || !contracts(dtype) || *value != Expr::Const(Scalar { dtype, bits: 0 }) {
            return Ok(false);
        }
        let Some(slot) = self.slot(target)?.filter(|slot| self.covers(slot)) else { return Ok(false) };
        self.drop_deferred(target);
        self.wrote_slot(target, true);
        let ty = self.slot_type(&slot);
        self.deferred.push(Deferred { slot: key(target), chunk: self.chunk, ty, value: None });
        Ok(true)
    }

    /// Returns true if the lanes at work are all that the slot holds.
    fn covers(&self, slot: &Slot) -> bool {
        slot.uniform || self.chunk.first == 0 && self.chunk.count >= slot.valid
    }

    /// The slot is overwritten: its deferred value does not matter.
    pub fn drop_deferred(&mut self, a: &Address) {
        self.deferred.retain(|d| d.slot != key(a));
    }

    /// Brings the deferred value of a slot into its register.
    pub fn settle(&mut self, a: &Address) {
        if let Some(position) = self.deferred.iter().position(|d| d.slot == key(a)) {
            let deferred = self.deferred.remove(position);
            self.write_deferred(deferred);
        }
    }

    /// Brings all deferred values into their registers: a border of a block follows.
    pub fn settle_all(&mut self) {
        for deferred in std::mem::take(&mut self.deferred) {
            self.write_deferred(deferred);
        }
    }

    fn write_deferred(&mut self, d: Deferred) {
        let dst = self.slots[&d.slot].reg;
        match d.value {
            None => {
                let zero = self.bits(d.ty.lane, 0);
                self.move_to(dst, zero, d.ty);
            }
            Some(v) => {
                self.out.push(Node::Inst(Inst::VCopy { dst, src: v.reg, ty: d.ty }));
                self.changed(dst);
            }
        }
    }

    /// Returns true if a deferred value is in this register, so that it has to stay there.
    pub fn is_deferred(&self, reg: Vreg) -> bool {
        self.deferred.iter().any(|d| d.value.is_some_and(|v| v.reg == reg))
    }

    /// `target += factor · operand`.
    pub fn accumulate_scaled(&mut self, target: &Address, slot: Option<Slot>, product: Scaled) -> Selected<()> {
        let factor = product.factor;
        if factor == 0.0 {
            return Ok(());
        }
        let x = self.value(product.operand)?;
        let Some(slot) = slot.filter(|slot| self.covers(slot)) else {
            let old = self.load_address(target)?;
            let new = self.plus_scaled(old, factor, x);
            return self.store_value(target, new);
        };
        let position = self.deferred.iter().position(|d| d.slot == key(target) && d.chunk == self.chunk);
        let new = match position.map(|position| self.deferred.remove(position)) {
            Some(Deferred { value: None, .. }) if factor == 1.0 && !self.slots.values().any(|s| s.reg == x.reg) => {
                let ty = self.slot_type(&slot);
                self.deferred.push(Deferred { slot: key(target), chunk: self.chunk, ty, value: Some(x) });
                return Ok(());
            }
            Some(Deferred { value: None, .. }) => self.scale(factor, x),
            Some(Deferred { value: Some(first), .. }) => self.plus_scaled(first, factor, x),
            None => {
                self.read_slot(target)?;
                let dtype = self.nest.buffer(target.buffer).dtype;
                let old = Val { reg: slot.reg, lane: slot.lane, dtype, uniform: slot.uniform };
                if factor.abs() == 1.0 {
                    self.plus_scaled(old, factor, x)
                } else {
                    let (ty, size) = (self.ty(slot.lane, slot.uniform), self.number(x, factor.abs()));
                    let negate = factor < 0.0;
                    self.out.push(Node::Inst(Inst::VFma { acc: slot.reg, ty, a: size.reg, b: x.reg, negate }));
                    self.changed(slot.reg);
                    old
                }
            }
        };
        let ty = self.slot_type(&slot);
        self.move_to(slot.reg, new.reg, ty);
        self.wrote_slot(target, false);
        Ok(())
    }
}
