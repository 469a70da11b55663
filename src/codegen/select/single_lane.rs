//! Lane narrowing: each instruction computes only the lanes that are read of its result.
//!
//! Uniform values stand in every lane of a full register (see `select.rs`). Where only the first lane is read, as in a
//! scalar statement, the shortest register does: a division of a full register takes four times as long as one of a
//! single element, a plain load is faster than a broadcast, and a full register of AVX-512 has fewer ports.
//!
//! In and out: a function. Invariant: only lanes that nothing reads become unspecified.

use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Inst, VType, Vreg};
use crate::runtime::DType;

/// Lanes of every register that are read, at most.
const ALL: u8 = u8::MAX;

/// Narrows every instruction to the lanes that are read of its result.
pub fn narrow(function: &mut Function) {
    let read = lanes_read(&function.insts, function.vregs);
    let fit = |ty: &mut VType, dst: Vreg| {
        if read[dst.index()] < ty.lanes {
            ty.lanes = read[dst.index()].max(1).next_power_of_two();
        }
    };
    for inst in &mut function.insts {
        match inst {
            Inst::VBinary { dst, ty, .. }
            | Inst::VUnary { dst, ty, .. }
            | Inst::VShift { dst, ty, .. }
            | Inst::VFma { acc: dst, ty, .. }
            | Inst::VCompare { dst, ty, .. }
            | Inst::VSelect { dst, ty, .. }
            | Inst::VChoose { dst, ty, .. }
            | Inst::VCopy { dst, ty, .. }
            | Inst::VConvert { dst, to: ty, .. }
            | Inst::VConst { dst, ty, .. }
            | Inst::VIota { dst, ty, .. }
            | Inst::VSplat { dst, ty, .. }
            | Inst::VBroadcast { dst, ty, .. } => fit(ty, *dst),
            Inst::VReduce { dst, first, .. } => *first |= read[dst.index()] <= 1,
            _ => {}
        }
        if let Inst::VBroadcast { dst, ty: ty @ VType { lanes: 1, .. }, mem, addr } = *inst
            && (mem.bytes() == ty.lane.bytes() || matches!(mem, DType::I8 | DType::U8 | DType::I16 | DType::U16))
        {
            *inst = Inst::VLoad { dst, ty, mem, addr, part: None };
        }
    }
}

/// The number of low lanes of each register that some instruction reads.
pub fn lanes_read(insts: &[Inst], vregs: u32) -> Vec<u8> {
    let mut read = vec![0; vregs as usize];
    loop {
        let mut changed = false;
        for inst in insts.iter().rev() {
            let lanes = match *inst {
                Inst::VStore { ty, part: None, .. }
                | Inst::VScatter { ty, part: None, .. }
                | Inst::VStoreInterleaved { ty, .. } => ty.lanes,
                Inst::FirstLane { .. } => 1,
                Inst::VStore { part: Some(p), .. } | Inst::VScatter { part: Some(p), .. } => p.first + p.count,
                Inst::VCopy { dst, ty, .. }
                | Inst::VUnary { dst, ty, .. }
                | Inst::VShift { dst, ty, .. }
                | Inst::VConvert { dst, to: ty, .. }
                | Inst::VBinary { dst, ty, .. }
                | Inst::VCompare { dst, ty, .. }
                | Inst::VSelect { dst, ty, .. }
                | Inst::VChoose { dst, ty, .. }
                | Inst::VFma { acc: dst, ty, .. } => read[dst.index()].min(ty.lanes),
                _ => ALL,
            };
            inst.registers(|class, access, r| {
                if class == Class::Vector && access.reads() && read[r as usize] < lanes {
                    read[r as usize] = lanes;
                    changed = true;
                }
            });
        }
        if !changed {
            return read;
        }
    }
}
