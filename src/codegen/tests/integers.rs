//! Every instruction on integers in general-purpose registers, where operands share registers and where they do not, and loops.

use super::program::{Builder, Case, at, data};
use crate::codegen::vcode::{Addr, Gpr, GprOp, Inst, Lane, Operand, ShiftOp, VBinary, VType};
use crate::expr::CompareOp;
use crate::runtime::DType;

pub const INTEGERS_IN_MEMORY: [DType; 8] =
    [DType::I64, DType::I32, DType::I16, DType::U16, DType::I8, DType::U8, DType::Bool, DType::F32];

pub const SHIFTS: [GprOp; 2] = [GprOp::ShiftLeft, GprOp::ShiftRight];

pub const INTEGERS: [GprOp; 8] =
    [GprOp::Add, GprOp::Sub, GprOp::Mul, GprOp::Min, GprOp::Max, GprOp::And, GprOp::Or, GprOp::Xor];

const VALUES: [i64; 12] =
    [0, 1, -1, 7, -8, 127, -129, 40_000, i32::MAX as i64, i64::MIN / 3, (1 << 40) + 0x8000_8080, -(1 << 33) - 5];

const LANES: [Lane; 2] = [Lane::I32, Lane::I64];

/// A case that stores what `body` computes of two values of the list, for each of its values.
fn case(name: String, mut body: impl FnMut(&mut Builder, Gpr, Gpr) -> Gpr) -> Case {
    let mut b = Builder::new(name);
    let output = b.argument(0);
    for (i, &value) in VALUES.iter().enumerate() {
        let (x, y) = (b.imm(value), b.imm(VALUES[(5 * i + 3) % VALUES.len()]));
        let src = body(&mut b, x, y);
        b.push(Inst::StoreInt { mem: DType::I64, src, addr: at(output, 8 * i as i32) });
    }
    Case { function: b.function, buffers: vec![data(DType::I64, VALUES.len(), 1, true)], range: (0, 1) }
}

/// Destination and operands: all apart, one the same, all the same.
fn forms(b: &mut Builder, x: Gpr, y: Gpr, form: usize) -> (Gpr, Gpr, Gpr) {
    match form {
        0 => (b.gpr(), x, y),
        1 => (x, x, y),
        2 => (y, x, y),
        _ => (x, x, x),
    }
}

/// All cases.
pub fn all() -> Vec<Case> {
    let mut out = vec![];
    for lane in LANES {
        out.push(case(format!("first lane {lane:?}"), |b, x, _| {
            let (ty, src, dst) = (VType { lane, lanes: 1 }, b.vreg(), b.gpr());
            b.push(Inst::VSplat { dst: src, ty, src: x });
            b.push(Inst::FirstLane { dst, ty, src });
            dst
        }));
    }
    for op in INTEGERS {
        for form in 0..4 {
            out.push(case(format!("word {op:?} registers {form}"), |b, x, y| {
                let (dst, a, c) = forms(b, x, y, form);
                b.push(Inst::Word { op, dst, a, b: Operand::Reg(c) });
                b.push(Inst::Int { op: GprOp::Add, dst, a: dst, b: Operand::Reg(y) });
                dst
            }));
        }
        for value in [0, 1, -1, 8, 4095, 4096, -4096, 0xff00ff, i64::from(i32::MIN), 1 << 40] {
            for in_place in [false, true] {
                out.push(case(format!("word {op:?} {value} {in_place}"), |b, x, _| {
                    let dst = if in_place { x } else { b.gpr() };
                    b.push(Inst::Word { op, dst, a: x, b: Operand::Imm(value) });
                    dst
                }));
            }
        }
    }
    for lane in LANES {
        for op in [ShiftOp::Left, ShiftOp::RightLogical, ShiftOp::RightArithmetic] {
            for amount in [0, 1, 7, 31, 63].into_iter().filter(|&n| n < 8 * lane.bytes()) {
                for in_place in [false, true] {
                    out.push(case(format!("shift {op:?} {lane:?} {amount} {in_place}"), |b, x, _| {
                        let dst = if in_place { x } else { b.gpr() };
                        b.push(Inst::Shift { dst, op, lane, a: x, amount: amount as u8 });
                        dst
                    }));
                }
            }
        }
    }
    choices(&mut out);
    subscripts(&mut out);
    memory(&mut out);
    control(&mut out);
    out
}

fn choices(out: &mut Vec<Case>) {
    for lane in LANES {
        for op in [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge] {
            for form in 0..6 {
                out.push(case(format!("choose {op:?} {lane:?} {form}"), |b, x, y| {
                    let (yes, no) = (b.imm(-3), b.imm(1 << 33));
                    // the result takes the place of a, b, yes, no or of both
                    let (dst, yes, no) = match form {
                        0 => (b.gpr(), yes, no),
                        1 => (x, yes, no),
                        2 => (y, yes, no),
                        3 => (yes, yes, no),
                        4 => (no, yes, no),
                        _ => (x, y, x),
                    };
                    b.push(Inst::Choose { dst, op, lane, a: x, b: Operand::Reg(y), yes, no });
                    dst
                }));
            }
            for value in [0, -1, 5000, -129, 1 << 40] {
                out.push(case(format!("choose {op:?} {lane:?} than {value}"), |b, x, y| {
                    let dst = b.gpr();
                    b.push(Inst::Choose { dst, op, lane, a: x, b: Operand::Imm(value), yes: y, no: x });
                    dst
                }));
            }
        }
    }
}

/// Values brought into an interval, those outside recorded; the table of arguments in a register, and in a spill slot.
fn subscripts(out: &mut Vec<Case>) {
    for mem in [DType::I64, DType::I32, DType::I16, DType::U8] {
        for extent in [1, 8, 4096, 40_001, i64::from(i32::MAX)] {
            for (in_place, live) in [(false, 0), (true, 0), (false, 40)] {
                let mut b = Builder::new(format!("inside {extent} of {mem} {in_place} {live}"));
                let output = b.argument(0);
                let others: Vec<Gpr> = (0..live).map(|value| b.imm(value)).collect();
                for (i, &value) in VALUES.iter().enumerate() {
                    let src = b.imm(value);
                    let dst = if in_place { src } else { b.gpr() };
                    b.push(Inst::Inside { dst, src, extent, mem, least: 1, greatest: 2 });
                    b.push(Inst::Int { op: GprOp::Sub, dst, a: dst, b: Operand::Reg(src) });
                    b.push(Inst::StoreInt { mem: DType::I64, src: dst, addr: at(output, 8 * i as i32) });
                }
                for (i, &src) in others.iter().enumerate() {
                    b.push(Inst::StoreInt { mem: DType::I64, src, addr: at(output, 8 * (VALUES.len() + i) as i32) });
                }
                let buffers = vec![
                    data(DType::I64, VALUES.len() + others.len(), 1, true),
                    data(mem, 1, 2, true),
                    data(mem, 1, 3, true),
                ];
                out.push(Case { function: b.function, buffers, range: (0, 1) });
            }
        }
    }
}

fn memory(out: &mut Vec<Case>) {
    for mem in INTEGERS_IN_MEMORY {
        for in_place in [false, true] {
            out.push(case(format!("extend {mem} {in_place}"), |b, x, _| {
                let dst = if in_place { x } else { b.gpr() };
                b.push(Inst::Extend { dst, mem, src: x });
                dst
            }));
        }
        let mut b = Builder::new(format!("integer to {mem}"));
        let output = b.argument(0);
        let bytes = mem.bytes() as i32;
        for (i, &value) in VALUES.iter().enumerate() {
            let value = if mem == DType::Bool { value & 1 } else { value };
            let (src, index) = (b.imm(value), b.imm(i as i64));
            let addr = match i % 3 {
                0 => at(output, bytes * i as i32),
                1 => Addr { base: output, index: Some((index, bytes as u8)), disp: 0 },
                _ => Addr { base: output, index: Some((index, 1)), disp: (bytes - 1) * i as i32 },
            };
            b.push(Inst::StoreInt { mem, src, addr });
        }
        // 300 elements from a base that lies behind them
        let far = b.gpr();
        b.push(Inst::Int { op: GprOp::Add, dst: far, a: output, b: Operand::Imm(i64::from(300 * bytes)) });
        let src = b.imm(1);
        b.push(Inst::StoreInt { mem, src, addr: at(far, -280 * bytes) });
        out.push(Case { function: b.function, buffers: vec![data(mem, 301, 1, true)], range: (0, 1) });
    }
}

/// Loops that run zero times, nested ones, the range of the calling convention and scratch memory.
fn control(out: &mut Vec<Case>) {
    let ty = VType { lane: Lane::I64, lanes: 1 };
    for (outer, inner) in [(0, 3), (3, 0), (1, 1), (4, 5), (-2, 7)] {
        let mut b = Builder::new(format!("loops {outer} {inner}"));
        let (output, sum, one) = (b.argument(0), b.vreg(), b.vreg());
        b.push(Inst::VConst { dst: sum, ty, bits: 0 });
        b.push(Inst::VConst { dst: one, ty, bits: 1 });
        let (first, last, n, m) = (b.gpr(), b.gpr(), b.imm(outer), b.imm(inner));
        b.push(Inst::Range { dst: first, which: 0 });
        b.push(Inst::Range { dst: last, which: 1 });
        b.push(Inst::LoopStart { count: n, at_least_once: outer > 0 });
        b.push(Inst::Int { op: GprOp::Add, dst: first, a: first, b: Operand::Reg(last) });
        b.push(Inst::LoopStart { count: m, at_least_once: false });
        b.push(Inst::VBinary { op: VBinary::Add, dst: sum, ty, a: sum, b: one });
        b.push(Inst::LoopEnd);
        b.push(Inst::LoopEnd);
        b.push(Inst::VStore { src: sum, ty, mem: DType::I64, addr: at(output, 0), part: None });
        let (scratch, v) = (b.gpr(), b.vreg());
        b.push(Inst::Scratch { dst: scratch });
        // more than an immediate of 32 bits holds, there and back
        for by in [5 << 32, 64 - (5 << 32)] {
            b.push(Inst::Int { op: GprOp::Add, dst: scratch, a: scratch, b: Operand::Imm(by) });
        }
        b.push(Inst::VSplat { dst: v, ty, src: first });
        b.push(Inst::VStore { src: v, ty, mem: DType::I64, addr: at(scratch, 8), part: None });
        b.push(Inst::VLoad { dst: v, ty, mem: DType::I64, addr: at(scratch, 8), part: None });
        b.push(Inst::VStore { src: v, ty, mem: DType::I64, addr: at(output, 8), part: None });
        b.function.scratch_bytes = 128;
        out.push(Case { function: b.function, buffers: vec![data(DType::I64, 2, 2, true)], range: (17, 40) });
    }
}
