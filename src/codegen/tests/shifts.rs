//! Shifts of each lane by a lane of its own, by fewer bits than it has, by all, and by more; numbers of ones.

use super::cases::{compute, types};
use super::program::Case;
use crate::codegen::Target;
use crate::codegen::target::Isa;
use crate::codegen::vcode::{Inst, Lane, VBinary, VType, VUnary};

/// Cases for x86-64.
pub fn cases(target: &Target) -> Vec<Case> {
    let mut out = vec![];
    let shifted = |ty: &VType| matches!(ty.lane, Lane::I32 | Lane::I64);
    for ty in types(target.vector_bytes).into_iter().filter(shifted) {
        let signed = ty.lane == Lane::I32 || target.isa == Isa::Avx512;
        let ops =
            [VBinary::ShiftLeft, VBinary::ShiftRight].into_iter().chain(signed.then_some(VBinary::ShiftRightSigned));
        for (op, mask) in ops.flat_map(|op| [0x3f, u64::MAX].map(|mask| (op, mask))) {
            out.push(compute(format!("{op:?} {ty:?} {mask:x}"), &[ty, ty], false, ty, |b, r| {
                let (bits, amount, dst) = (b.vreg(), b.vreg(), b.vreg());
                b.push(Inst::VConst { dst: bits, ty, bits: mask });
                b.push(Inst::VBinary { op: VBinary::And, dst: amount, ty, a: r[1], b: bits });
                b.push(Inst::VBinary { op, dst, ty, a: r[0], b: amount });
                b.push(Inst::VBinary { op, dst, ty, a: dst, b: amount });
                dst
            }));
        }
    }
    out
}

/// Numbers of ones by an instruction.
pub fn counts_of_ones(bytes: usize, least: usize) -> Vec<Case> {
    let count = |ty: VType| {
        compute(format!("ones of {ty:?}"), &[ty], false, ty, |b, r| {
            let dst = b.vreg();
            b.push(Inst::VUnary { op: VUnary::CountOnes, dst, ty, a: r[0] });
            dst
        })
    };
    types(bytes).into_iter().filter(|ty| !ty.lane.is_float() && ty.lane.bytes() >= least).map(count).collect()
}
