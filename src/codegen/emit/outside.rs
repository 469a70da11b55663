//! Subscripts that are compared with their extent: see [`Inst::Inside`].
//!
//! The loop has a comparison and a branch that is taken where the subscript lies outside. What records it and brings it inside stands behind the function.

use crate::codegen::emit::{Emitter, Encode, Frame, Outside, Scalars};
use crate::codegen::regalloc::allocation::{Place, slot_offset};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Addr, Gpr, Inst, Operand};
use crate::expr::CompareOp;
use crate::runtime::{DType, Result};
use dynasmrt::DynasmLabelApi;
use dynasmrt::relocations::Relocation;

impl<R: Relocation, S> Emitter<'_, R, S>
where
    Self: Encode,
{
    /// Compares a subscript with its extent; false for other instructions, and without a place of the table of arguments.
    pub(super) fn inside(&mut self, inst: &Inst, table: Option<Place>) -> bool {
        let (&Inst::Inside { dst, src, extent, mem, least, greatest }, Some(table)) = (inst, table) else {
            return false;
        };
        let (code, back) = (self.asm.new_dynamic_label(), self.asm.new_dynamic_label());
        let (value, result, extremes) = (src.number(), dst.number(), [least, greatest]);
        self.jump_outside(value, extent, code);
        self.move_gpr(result, value);
        self.asm.dynamic_label(back);
        self.outside.push(Outside { code, back, value, result, extent, mem, extremes, table });
        true
    }

    /// Records a subscript outside of its dimension and brings it inside.
    pub(super) fn record(&mut self, o: &Outside) -> Result<()> {
        let end = self.asm.new_dynamic_label();
        self.asm.dynamic_label(o.code);
        let table = if let Place::Register(r) = o.table { r } else { o.value };
        let [pointer, known] = self.borrow([o.value, o.result, table]);
        match o.table {
            Place::Register(r) => self.move_gpr(pointer, r),
            Place::Slot(s) => self.reload(Class::Gpr, pointer, s),
        }
        let at = |disp| Addr { base: Gpr(u32::from(pointer)), index: None, disp };
        let above = self.asm.new_dynamic_label();
        self.jump_unless(CompareOp::Lt, o.value, Operand::Imm(0), above);
        for (slot, op, inside) in [(o.extremes[0], CompareOp::Lt, 0), (o.extremes[1], CompareOp::Gt, o.extent - 1)] {
            let kept = self.asm.new_dynamic_label();
            self.load_int(pointer, &at(slot_offset(slot)?), DType::I64)?;
            self.load_int(known, &at(0), o.mem)?;
            self.jump_unless(op, o.value, Operand::Reg(Gpr(u32::from(known))), kept);
            self.store_int(o.value, &at(0), o.mem)?;
            self.asm.dynamic_label(kept);
            self.immediate(o.result, inside);
            if op == CompareOp::Lt {
                self.jump(end);
                self.asm.dynamic_label(above);
            }
        }
        self.asm.dynamic_label(end);
        self.give_back([pointer, known]);
        self.jump(o.back);
        Ok(())
    }
}
