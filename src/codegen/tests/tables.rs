//! Cases of tables that are looked up in registers.

use super::cases::compute;
use super::program::Case;
use crate::codegen::vcode::{Inst, Lane, VType};

/// Tables of bytes with and without a sign; the destination is new, or one of the operands.
pub fn lookups() -> Vec<Case> {
    let case = |lane: Lane, keep: usize| {
        let ty = VType { lane, lanes: 64 };
        compute(format!("lookup {lane:?} {keep}"), &[ty; 5], false, ty, |b, r| {
            let dst = if keep == 5 { b.vreg() } else { r[keep] };
            b.push(Inst::VLookup { dst, ty, index: r[0], a: r[1], b: r[2], c: r[3], d: r[4] });
            dst
        })
    };
    [Lane::U8, Lane::I8].into_iter().flat_map(|lane| (0..6).map(move |keep| case(lane, keep))).collect()
}
