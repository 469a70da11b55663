//! Loads and stores of the lanes where a mask is set: all numbers of lanes, the others before and behind the buffer.

use super::cases::dtype;
use super::program::{Buffer, Builder, Case, at, data};
use crate::codegen::vcode::{Inst, Lane, VType};

/// Cases of loads for x86 with vector registers of `bytes` bytes.
pub fn loads(bytes: usize) -> Vec<Case> {
    all(bytes, &load)
}

/// Cases of stores for x86 with vector registers of `bytes` bytes.
pub fn stores(bytes: usize) -> Vec<Case> {
    all(bytes, &store)
}

/// Lanes `first..first + count`, of which `sparse` takes every other one.
#[derive(Clone, Copy)]
struct Taken {
    first: usize,
    count: usize,
    sparse: bool,
}

impl Taken {
    fn has(self, i: usize) -> bool {
        (self.first..self.first + self.count).contains(&i) && (!self.sparse || (i - self.first).is_multiple_of(2))
    }

    /// The mask in memory.
    fn mask(self, integer: VType) -> Buffer {
        let (size, lanes) = (integer.lane.bytes(), usize::from(integer.lanes));
        let bytes = (0..lanes).flat_map(|i| vec![if self.has(i) { 0xff } else { 0 }; size]).collect();
        Buffer { dtype: dtype(integer.lane), bytes }
    }
}

fn all(bytes: usize, case: &dyn Fn(VType, Taken) -> Case) -> Vec<Case> {
    let mut out = vec![];
    for lane in [Lane::F32, Lane::F64, Lane::I32, Lane::I64] {
        for lanes in [2, 4, 8, 16].into_iter().filter(|n| (16..=bytes).contains(&(n * lane.bytes()))) {
            for (first, count) in [(0, lanes), (0, 1), (1, lanes - 1), (lanes - 1, 1), (lanes / 2, 1), (1, 0)] {
                for sparse in [false, true] {
                    out.push(case(VType { lane, lanes: lanes as u8 }, Taken { first, count, sparse }));
                }
            }
        }
    }
    out
}

/// A buffer that holds the lanes from the first to the last one taken alone.
fn load(ty: VType, taken: Taken) -> Case {
    let Taken { first, count, sparse } = taken;
    let (size, mem) = (ty.lane.bytes(), dtype(ty.lane));
    let integer = VType { lane: Lane::integer(size), ..ty };
    let mut b = Builder::new(format!("load {ty:?} where {first}, {count}, {sparse}"));
    let (memory, masks, output) = (b.argument(0), b.argument(1), b.argument(2));
    let (mask, dst) = (b.vreg(), b.vreg());
    b.push(Inst::VLoad { dst: mask, ty: integer, mem: dtype(integer.lane), addr: at(masks, 0), part: None });
    b.push(Inst::VLoadWhere { dst, ty, mem, addr: at(memory, -((first * size) as i32)), mask });
    b.push(Inst::VStore { src: dst, ty, mem, addr: at(output, 0), part: None });
    let buffers =
        vec![data(mem, count.max(1), 3, false), taken.mask(integer), data(mem, usize::from(ty.lanes), 5, false)];
    Case { function: b.function, buffers, range: (0, 1) }
}

/// As [`load`], of a store: what is not taken keeps its value.
fn store(ty: VType, taken: Taken) -> Case {
    let Taken { first, count, sparse } = taken;
    let (size, mem) = (ty.lane.bytes(), dtype(ty.lane));
    let integer = VType { lane: Lane::integer(size), ..ty };
    let mut b = Builder::new(format!("store {ty:?} where {first}, {count}, {sparse}"));
    let (memory, masks, input) = (b.argument(0), b.argument(1), b.argument(2));
    let (mask, src) = (b.vreg(), b.vreg());
    b.push(Inst::VLoad { dst: mask, ty: integer, mem: dtype(integer.lane), addr: at(masks, 0), part: None });
    b.push(Inst::VLoad { dst: src, ty, mem, addr: at(input, 0), part: None });
    b.push(Inst::VStoreWhere { src, ty, mem, addr: at(memory, -((first * size) as i32)), mask });
    let buffers =
        vec![data(mem, count.max(1), 3, false), taken.mask(integer), data(mem, usize::from(ty.lanes), 5, false)];
    Case { function: b.function, buffers, range: (0, 1) }
}
