//! Stores of interleaved elements: every type and number of members, alone and in a loop, where constants lie in registers.

use super::cases::{dtype, types};
use super::program::{Builder, Case, at, data};
use crate::codegen::vcode::lanes::Interleaved;
use crate::codegen::vcode::{Addr, Gpr, GprOp, Inst, Lane, Operand, VType};
use crate::runtime::DType;

/// Cases for vector registers of `bytes` bytes.
pub fn stores(bytes: usize) -> Vec<Case> {
    let mems = [DType::U8, DType::I8, DType::I16, DType::F16, DType::I32, DType::F32, DType::I64, DType::F64];
    let mut out = vec![];
    for ty in types(bytes) {
        for mem in mems.into_iter().filter(|mem| mem.bytes() < ty.lane.bytes() || *mem == dtype(ty.lane)) {
            for members in (2..=4).filter(|&n| Interleaved::fits(n, ty, mem)) {
                out.extend([false, true].map(|repeated| store(ty, mem, members, repeated)));
            }
        }
    }
    out
}

/// Members from one buffer, stored to another, twice where `repeated`, the second time behind the first.
fn store(ty: VType, mem: DType, members: usize, repeated: bool) -> Case {
    let register = VType { lane: Lane::integer(ty.lane.bytes()), ..ty };
    let mut b = Builder::new(format!("store {members} interleaved {ty:?} {mem} {repeated}"));
    let (source, target) = (b.argument(0), b.argument(1));
    let r: Vec<_> = (0..members).map(|_| b.vreg()).collect();
    for (k, &dst) in r.iter().enumerate() {
        let addr = at(source, (k * ty.bytes()) as i32);
        b.push(Inst::VLoad { dst, ty: register, mem: dtype(register.lane), addr, part: None });
    }
    let (pointer, index) = (b.gpr(), b.imm(3));
    b.push(Inst::Int { op: GprOp::Add, dst: pointer, a: target, b: Operand::Imm(-200) });
    let count: Option<Gpr> = repeated.then(|| b.imm(2));
    if let Some(count) = count {
        b.push(Inst::LoopStart { count, at_least_once: true });
    }
    let addr = Addr { base: pointer, index: (!repeated).then_some((index, 4)), disp: if repeated { 200 } else { 188 } };
    let member = |k: usize| r.get(k).copied();
    b.push(Inst::VStoreInterleaved { ty, mem, addr, a: r[0], b: r[1], c: member(2), d: member(3) });
    let elements = members * usize::from(ty.lanes);
    if repeated {
        let bytes = (elements * mem.bytes()) as i64;
        b.push(Inst::Int { op: GprOp::Add, dst: pointer, a: pointer, b: Operand::Imm(bytes) });
        b.push(Inst::LoopEnd);
    }
    let buffers = vec![
        data(dtype(register.lane), members * usize::from(ty.lanes), 3, false),
        data(mem, if repeated { 2 * elements } else { elements }, 5, false),
    ];
    Case { function: b.function, buffers, range: (0, 1) }
}
