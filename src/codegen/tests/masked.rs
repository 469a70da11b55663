//! Loads of the lanes where a mask is set: all numbers of lanes, the others before and behind the buffer.

use super::cases::dtype;
use super::program::{Buffer, Builder, Case, at, data};
use crate::codegen::vcode::{Inst, Lane, VType};

/// Cases for x86 with vector registers of `bytes` bytes.
pub fn loads(bytes: usize) -> Vec<Case> {
    let mut out = vec![];
    for lane in [Lane::F32, Lane::F64, Lane::I32, Lane::I64] {
        for lanes in [2, 4, 8, 16].into_iter().filter(|n| (16..=bytes).contains(&(n * lane.bytes()))) {
            for (first, count) in [(0, lanes), (0, 1), (1, lanes - 1), (lanes - 1, 1), (lanes / 2, 1), (1, 0)] {
                for sparse in [false, true] {
                    out.push(load(VType { lane, lanes: lanes as u8 }, first, count, sparse));
                }
            }
        }
    }
    out
}

/// A buffer that holds lanes `first..first + count` alone, of which `sparse` takes every other one.
fn load(ty: VType, first: usize, count: usize, sparse: bool) -> Case {
    let (size, mem) = (ty.lane.bytes(), dtype(ty.lane));
    let integer = VType { lane: Lane::integer(size), ..ty };
    let mut b = Builder::new(format!("load {ty:?} where {first}, {count}, {sparse}"));
    let (memory, masks, output) = (b.argument(0), b.argument(1), b.argument(2));
    let (mask, dst) = (b.vreg(), b.vreg());
    b.push(Inst::VLoad { dst: mask, ty: integer, mem: dtype(integer.lane), addr: at(masks, 0), part: None });
    b.push(Inst::VLoadWhere { dst, ty, mem, addr: at(memory, -((first * size) as i32)), mask });
    b.push(Inst::VStore { src: dst, ty, mem, addr: at(output, 0), part: None });
    let taken = |i: usize| (first..first + count).contains(&i) && (!sparse || (i - first).is_multiple_of(2));
    let lanes = ty.lanes as usize;
    let bits = (0..lanes).flat_map(|i| vec![if taken(i) { 0xff } else { 0 }; size]).collect();
    let buffers = vec![
        data(mem, count.max(1), 3, false),
        Buffer { dtype: dtype(integer.lane), bytes: bits },
        data(mem, lanes, 5, false),
    ];
    Case { function: b.function, buffers, range: (0, 1) }
}
