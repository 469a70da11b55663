//! Cases of tables that are looked up in registers, and of shuffles of 16 bytes in memory.

use super::cases::compute;
use super::program::{Case, at, data};
use crate::codegen::vcode::{Inst, Lane, VBinary, VType};
use crate::runtime::DType;

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

/// Shuffles in registers of `bytes` bytes, of the first 16 bytes of memory and of later ones; the destination is new, or the subscripts.
pub fn shuffles(bytes: usize) -> Vec<Case> {
    let case = |lane: Lane, start: i32, keep: bool| {
        let ty = VType { lane, lanes: bytes as u8 };
        let mut case = compute(format!("shuffle {lane:?} {bytes} {start} {keep}"), &[ty; 2], false, ty, |b, r| {
            let (table, low, index) = (b.argument(1), b.vreg(), b.vreg());
            b.push(Inst::VConst { dst: low, ty, bits: 15 });
            b.push(Inst::VBinary { op: VBinary::And, dst: index, ty, a: r[0], b: low });
            let dst = if keep { index } else { b.vreg() };
            b.push(Inst::VShuffle { dst, ty, index, addr: at(table, start) });
            dst
        });
        let later = data(DType::U8, 64, 5, false).bytes;
        case.buffers[1].bytes.extend(later);
        case
    };
    let kinds = [0, 13, 32].into_iter().flat_map(|start| [(Lane::U8, start, false), (Lane::I8, start, true)]);
    kinds.map(|(lane, start, keep)| case(lane, start, keep)).collect()
}
