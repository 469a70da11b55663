//! Broadcasts that are multiplied by element: one element is loaded as a scalar, and products take it from the lowest lane.
//!
//! In: a function and its allocation. Out: the virtual registers that hold one broadcast element and are only ever factors of products
//! with code by element. Some of that code names the lower 16 registers alone: then the allocation must have chosen such ones. A half that is
//! broadcast into a lane of 32 bits is widened there.

use crate::codegen::instruction::{Form, Slot, TensorInstruction};
use crate::codegen::regalloc::allocation::{Allocation, Step};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Inst, Lane, VType, VUnary, Vreg};
use crate::runtime::DType;

/// The virtual registers whose element stands in the lowest lane alone.
pub(super) struct ByElement(Vec<bool>);

impl ByElement {
    pub(super) fn of(function: &Function, allocation: &Allocation) -> ByElement {
        let mut by_element = vec![false; function.vregs as usize];
        let mut widened = vec![];
        for inst in &function.insts {
            if let Some(dst) = broadcast(inst) {
                by_element[dst.index()] = true;
            } else if let Some((dst, a)) = widening(inst)
                && by_element[a.index()]
            {
                by_element[dst.index()] = true;
                widened.push((dst, a));
            }
        }
        for inst in &function.insts {
            match *inst {
                _ if broadcast(inst).is_some() => {}
                _ if widening(inst).is_some_and(|both| widened.contains(&both)) => {}
                Inst::VFma { acc, a, b, ty, .. } if matches!(ty.lane, Lane::F32 | Lane::F64) => {
                    by_element[acc.index()] = false;
                    // One of the two factors stays a whole vector.
                    if by_element[a.index()] && by_element[b.index()] {
                        by_element[b.index()] = false;
                    }
                }
                Inst::VTensor { acc, a, b, .. } => {
                    by_element[acc.index()] = false;
                    let row = row(function, inst);
                    for (n, r) in [(1, a), (2, b)] {
                        let broadcast = row.is_some_and(|row| row.operands[n].form == Form::Broadcast);
                        by_element[r.index()] &= broadcast && a != b;
                    }
                }
                _ => inst.registers(|class, _, r| {
                    if class == Class::Vector {
                        by_element[r as usize] = false;
                    }
                }),
            }
        }
        for step in &allocation.steps {
            let Step::Inst { origin, inst: Inst::VTensor { a, b, .. }, .. } = step else { continue };
            let virtual_inst = &function.insts[*origin as usize];
            let (Inst::VTensor { a: first, b: second, .. }, Some(row)) = (virtual_inst, row(function, virtual_inst))
            else {
                continue;
            };
            for (n, physical, r) in [(1, a, first), (2, b, second)] {
                let low = row.element.iter().any(|e| e.is_low(Slot::Operand(n)));
                by_element[r.index()] &= !low || physical.number() < 16;
            }
        }
        // Both stand in the lowest lane, or none.
        while let Some((dst, a)) = widened.iter().find(|(dst, a)| by_element[dst.index()] != by_element[a.index()]) {
            (by_element[dst.index()], by_element[a.index()]) = (false, false);
        }
        ByElement(by_element)
    }

    pub(super) fn contains(&self, r: Vreg) -> bool {
        self.0[r.index()]
    }
}

/// The row of a tensor instruction, where it has code by element.
fn row<'a>(function: &'a Function, inst: &Inst) -> Option<&'a TensorInstruction> {
    let Inst::VTensor { row, .. } = *inst else { return None };
    function.instructions.iter().find(|r| r.name == row && !r.element.is_empty())
}

/// The registers of an instruction that widens halves in the lanes of one to floats in another.
fn widening(inst: &Inst) -> Option<(Vreg, Vreg)> {
    match *inst {
        Inst::VUnary { op: VUnary::WidenHalf, dst, ty: VType { lane: Lane::F32, .. }, a } if dst != a => Some((dst, a)),
        _ => None,
    }
}

/// The register that an instruction fills with an element of 2, 4 or 8 bytes, as it stands in memory.
fn broadcast(inst: &Inst) -> Option<Vreg> {
    match *inst {
        Inst::VBroadcast { dst, mem: DType::F32 | DType::F64, .. } => Some(dst),
        Inst::VBroadcast { dst, mem: DType::I32, ty, .. } if ty.lane == Lane::I32 => Some(dst),
        Inst::VBroadcast { dst, mem, ty, .. } if mem.bytes() == 2 && ty.lane.bytes() == 2 => Some(dst),
        Inst::VBroadcast { dst, mem: DType::F16, ty, .. } if ty.lane == Lane::I32 => Some(dst),
        _ => None,
    }
}
