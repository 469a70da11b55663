//! Local buffers that live in registers: one register for each vector whose place is known at compile time.
//!
//! A buffer for which that fails asks for the selection to be done again with the buffer in memory, or with writes of
//! fewer lanes than are in use blended ([`Stop::Retry`]).

use crate::codegen::loopnest::BufferKind;
use crate::codegen::select::state::Address;
use crate::codegen::select::state::Slot;
use crate::codegen::select::state::Val;
use crate::codegen::select::state::{LANE, LocalMode, Selected, Selector, Stop};
use crate::codegen::vcode::{Inst, VType};
use crate::expr::BufferId;
use crate::runtime::DType;

impl Selector<'_> {
    pub fn blends(&self, b: BufferId) -> bool {
        self.locals[b.0 as usize] == LocalMode::Registers { blend: true }
    }

    pub fn in_registers(&self, b: BufferId) -> bool {
        self.nest.buffer(b).kind == BufferKind::Local
            && matches!(self.locals[b.0 as usize], LocalMode::Registers { .. })
    }

    /// The register of an element or vector of a local buffer; `None` when the buffer is in memory.
    pub fn slot(&mut self, a: &Address) -> Selected<Option<Slot>> {
        if !self.in_registers(a.buffer) {
            return Ok(None);
        }
        let memory = Err(Stop::Retry(a.buffer, LocalMode::Memory { offset: 0 }));
        let (lane, start) = (a.linear.coefficient(LANE), a.linear.constant);
        let constant = a.linear.terms.iter().all(|t| t.0 == LANE) && a.gather.is_empty();
        let dtype = self.nest.buffer(a.buffer).dtype;
        if !constant || !(0..=1).contains(&lane) || dtype == DType::Bool {
            return memory;
        }
        let uniform = lane == 0;
        let kind = self.lane(dtype)?;
        let lanes = self.ty(kind, uniform).lanes;
        let covered = if uniform { 1 } else { self.chunk.lanes as i64 };
        for element in start..start + covered {
            let owner = *self.owners.entry((a.buffer, element)).or_insert(start);
            if owner != start && element < start + (self.chunk.first + self.chunk.count) as i64 {
                return memory;
            }
        }
        if let Some(slot) = self.slots.get_mut(&(a.buffer, start)) {
            if slot.uniform != uniform || slot.lane != kind || uniform && slot.lanes < lanes {
                return memory;
            }
            slot.lanes = slot.lanes.max(lanes);
            return Ok(Some(*slot));
        }
        let slot = Slot { reg: self.fresh(), uniform, lane: kind, lanes, valid: 0 };
        self.slots.insert((a.buffer, start), slot);
        Ok(Some(slot))
    }

    /// The slot is read with the lanes at work.
    pub fn read_slot(&mut self, a: &Address) -> Selected<()> {
        self.settle(a);
        let key = (a.buffer, a.linear.constant);
        let slot = self.slots[&key];
        if !slot.uniform && self.chunk.first + self.chunk.count > slot.valid && slot.valid > 0 && !self.blends(a.buffer)
        {
            return Err(Stop::Retry(a.buffer, LocalMode::Registers { blend: true }));
        }
        for frame in self.frames.iter_mut().rev() {
            if frame.written.contains(&key) {
                break;
            }
            frame.exposed.insert(key);
        }
        Ok(())
    }

    /// The slot has been written with the lanes at work; `fresh` when its old value does not matter.
    pub fn wrote_slot(&mut self, a: &Address, fresh: bool) {
        let key = (a.buffer, a.linear.constant);
        self.forget_branches(a.buffer);
        let (blends, end) = (self.blends(a.buffer), self.chunk.first + self.chunk.count);
        if let Some(slot) = self.slots.get_mut(&key) {
            let end = if slot.uniform { slot.lanes } else { end };
            slot.valid = if blends { slot.valid.max(end) } else { end };
        }
        if let (true, Some(frame)) = (fresh, self.frames.last_mut()) {
            frame.written.insert(key);
        }
    }

    /// Writes `v` to a register of a local buffer.
    pub fn write_slot(&mut self, a: &Address, slot: Slot, v: Val) -> Selected<()> {
        let v = self.with_lane(v, slot.lane)?;
        let partial = self.chunk.first > 0 || self.chunk.first + self.chunk.count < slot.valid;
        let keep = !slot.uniform && partial && slot.valid > 0;
        if keep && (self.chunk.first > 0 && !self.blends(a.buffer)) {
            return Err(Stop::Retry(a.buffer, LocalMode::Registers { blend: true }));
        }
        if keep {
            self.settle(a);
        } else {
            self.drop_deferred(a);
        }
        if keep && self.blends(a.buffer) {
            let mask = self.lane_mask(slot.lane.bytes());
            let ty = VType { lane: slot.lane, lanes: slot.lanes };
            let (new, old) = (v.reg, slot.reg);
            let blended = self.emit(|dst| Inst::VSelect { dst, ty, mask, a: new, b: old });
            self.move_to(slot.reg, blended, ty);
        } else {
            let ty =
                if slot.uniform { VType { lane: slot.lane, lanes: slot.lanes } } else { self.ty(slot.lane, false) };
            self.move_to(slot.reg, v.reg, ty);
        }
        self.wrote_slot(a, !keep);
        Ok(())
    }
}
