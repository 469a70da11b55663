//! Time of cache lines that no prefetcher brings: one of each of many rows in turn, and lines in any order.

use crate::codegen::Target;
use crate::codegen::probe::kernel::{LINE, Probe, Registers, advance, align, at, least_seconds, whole_vector};
use crate::codegen::vcode::{Addr, Function, GprOp, Inst, Lane, Operand, VBinary, Vreg};
use crate::runtime::{DType, Result, Tensor};

/// Bytes between rows: more than a page, and not a multiple of what the sets of caches repeat after.
const PITCH: usize = 8192 + LINE;
/// Lines that are read in one run in any order.
const ANY_ORDER: i64 = 1 << 18;
/// A generator of pseudo-random numbers of full period modulo a power of two (Knuth, section 3.2.1).
const MULTIPLIER: i64 = 1_103_515_245;
const INCREMENT: i64 = 12_345;

/// Nanoseconds for each line where the lines of a row of `rows` rows are read column by column.
pub(super) fn measure_rows(target: &Target, rows: usize, seconds: f64) -> Result<f64> {
    let least = least_seconds(&[probe(target, rows * PITCH, by_columns(target, rows))?], seconds)?[0];
    Ok(least * 1e9 / (rows * (PITCH / LINE)) as f64)
}

/// Nanoseconds for each of the lines of `bytes`, a power of two, in an order that nothing foresees. Their addresses do not
/// depend on each other, so that many are on their way at a time.
pub(super) fn measure_any_order(target: &Target, bytes: usize, seconds: f64) -> Result<f64> {
    let least = least_seconds(&[probe(target, bytes, in_any_order(target, bytes))?], seconds)?[0];
    Ok(least * 1e9 / ANY_ORDER as f64)
}

fn probe(target: &Target, bytes: usize, function: Function) -> Result<Probe> {
    let values = vec![1f32; bytes / 4 + LINE / 4];
    let input = Tensor::new(&[values.len() as i64], &values);
    Probe::new(target, function, vec![input], (DType::F32, vec![target.lanes(4) as i64]))
}

/// A function around loops: its two arguments, a sum that the loops add to, and its store.
fn around(
    target: &Target,
    registers: &mut Registers,
    loops: impl FnOnce(&mut Registers, Addr) -> Vec<Inst>,
) -> Function {
    let (ty, mem) = (whole_vector(target, Lane::F32), DType::F32);
    let [input, output] = [(); 2].map(|()| registers.next());
    let mut insts = vec![Inst::Argument { dst: input, slot: 0 }, Inst::Argument { dst: output, slot: 1 }];
    insts.extend(align(input));
    insts.push(Inst::VConst { dst: Vreg(0), ty, bits: 0 });
    insts.extend(loops(registers, at(input, 0)));
    insts.push(Inst::VStore { src: Vreg(0), ty, mem, addr: at(output, 0), part: None });
    Function { name: "walk".into(), insts, gprs: registers.0, vregs: 2, ..Function::default() }
}

/// Loads the line at an address and adds it to the sum.
fn read(target: &Target, addr: Addr) -> [Inst; 2] {
    let ty = whole_vector(target, Lane::F32);
    [
        Inst::VLoad { dst: Vreg(1), ty, mem: DType::F32, addr, part: None },
        Inst::VBinary { op: VBinary::Add, dst: Vreg(0), ty, a: Vreg(0), b: Vreg(1) },
    ]
}

fn by_columns(target: &Target, rows: usize) -> Function {
    around(target, &mut Registers::default(), |registers, input| {
        let [from, column, columns, count] = [(); 4].map(|()| registers.next());
        let mut insts = vec![
            Inst::Copy { dst: column, src: input.base },
            Inst::Imm { dst: columns, value: (PITCH / LINE) as i64 },
            Inst::LoopStart { count: columns, at_least_once: true },
            Inst::Copy { dst: from, src: column },
            Inst::Imm { dst: count, value: rows as i64 },
            Inst::LoopStart { count, at_least_once: true },
        ];
        insts.extend(read(target, at(from, 0)));
        insts.extend([advance(from, PITCH), Inst::LoopEnd, advance(column, LINE), Inst::LoopEnd]);
        insts
    })
}

fn in_any_order(target: &Target, bytes: usize) -> Function {
    around(target, &mut Registers::default(), |registers, input| {
        let [number, whole, place, count] = [(); 4].map(|()| registers.next());
        let lines = (bytes / LINE) as i64;
        let int = |op, dst, a, b| Inst::Int { op, dst, a, b };
        let mut insts = vec![
            Inst::Imm { dst: number, value: 1 },
            Inst::Imm { dst: count, value: ANY_ORDER },
            Inst::LoopStart { count, at_least_once: true },
            int(GprOp::Mul, number, number, Operand::Imm(MULTIPLIER)),
            int(GprOp::Add, number, number, Operand::Imm(INCREMENT)),
            // number modulo lines
            int(GprOp::DivFloor, whole, number, Operand::Imm(lines)),
            int(GprOp::Mul, whole, whole, Operand::Imm(lines)),
            int(GprOp::Sub, place, number, Operand::Reg(whole)),
            int(GprOp::Mul, place, place, Operand::Imm(LINE as i64)),
            int(GprOp::Add, place, place, Operand::Reg(input.base)),
        ];
        insts.extend(read(target, at(place, 0)));
        insts.push(Inst::LoopEnd);
        insts
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_as_often_as_counted() {
        for target in Target::all().into_iter().filter(Target::runs_on_host) {
            let sum = |bytes: usize, function: Function| {
                probe(&target, bytes, function).unwrap().outputs().unwrap()[0].to_vec::<f32>()[0]
            };
            assert_eq!(sum(3 * PITCH, by_columns(&target, 3)), (3 * PITCH / LINE) as f32);
            assert_eq!(sum(1 << 20, in_any_order(&target, 1 << 20)), ANY_ORDER as f32);
        }
    }
}
