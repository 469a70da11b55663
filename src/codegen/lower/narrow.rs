//! Divisions and square roots of which one lane is used are computed in one lane.
//!
//! Uniform values stand in every lane of a full register (see `select.rs`). For most instructions that costs nothing, but a
//! division of a full register takes four times as long as one of a single element.
//!
//! In and out: a function. Invariant: only lanes that nothing reads become unspecified.

use crate::codegen::vcode::{Function, Inst, VBinary, VUnary, Vreg};

/// Lanes of every register that are read, at most.
const ALL: u8 = u8::MAX;

/// Narrows divisions and square roots to what is read of them.
pub fn narrow(function: &mut Function) {
    let slow =
        |inst: &Inst| matches!(inst, Inst::VBinary { op: VBinary::Div, .. } | Inst::VUnary { op: VUnary::Sqrt, .. });
    if !function.insts.iter().any(slow) {
        return;
    }
    let read = lanes_read(function);
    for inst in &mut function.insts {
        match inst {
            Inst::VBinary { op: VBinary::Div, dst, ty, .. } | Inst::VUnary { op: VUnary::Sqrt, dst, ty, .. }
                if read[dst.index()] == 1 =>
            {
                ty.lanes = 1;
            }
            _ => {}
        }
    }
}

/// The number of low lanes of each register that some instruction reads.
fn lanes_read(function: &Function) -> Vec<u8> {
    let mut read = vec![0; function.vregs as usize];
    loop {
        let mut changed = false;
        let mut note = |read: &mut Vec<u8>, v: Vreg, lanes: u8| {
            if read[v.index()] < lanes {
                read[v.index()] = lanes;
                changed = true;
            }
        };
        for inst in &function.insts {
            match *inst {
                Inst::VStore { src, ty, part: None, .. } => note(&mut read, src, ty.lanes),
                Inst::VCopy { dst, src: a, ty } | Inst::VUnary { dst, a, ty, .. } => {
                    let lanes = read[dst.index()].min(ty.lanes);
                    note(&mut read, a, lanes);
                }
                Inst::VBinary { dst, a, b, ty, .. } | Inst::VFma { acc: dst, a, b, ty, .. } => {
                    let lanes = read[dst.index()].min(ty.lanes);
                    note(&mut read, a, lanes);
                    note(&mut read, b, lanes);
                }
                _ => {
                    let mut used = vec![];
                    inst.registers(|class, access, register| {
                        if class == crate::codegen::operands::Class::Vector && access.reads() {
                            used.push(Vreg(register));
                        }
                    });
                    used.into_iter().for_each(|v| note(&mut read, v, ALL));
                }
            }
        }
        if !changed {
            return read;
        }
    }
}
