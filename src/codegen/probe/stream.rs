//! Bandwidth kernel that reads a buffer repeatedly, and clock kernel: a chain of dependent additions.

use crate::codegen::Target;
use crate::codegen::probe::kernel::{LINE, Probe, Registers, advance, align, at, least_seconds, whole_vector};
use crate::codegen::vcode::{Function, GprOp, Inst, Lane, Operand, VBinary, VType, Vreg};
use crate::runtime::{DType, Result, Tensor};
use serde::Serialize;

/// Rate at which one core reads from one level of the memory.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Level {
    pub name: &'static str,
    /// Bytes that are read again and again.
    pub bytes: usize,
    pub gb_per_second: f64,
}

/// Vectors read by a step of the loop; as many accumulators hide the latency of an addition.
const UNROLL: usize = 8;
/// Bytes read in one run, at least.
const RUN_BYTES: usize = 64 << 20;

/// GB/s from each cache of the target and from memory, `seconds` for each.
pub fn measure_bandwidth(target: &Target, seconds: f64) -> Result<Vec<Level>> {
    let [l1, l2, l3] = target.machine.cache_bytes;
    let sizes = [("L1", l1 / 2), ("L2", l2 / 2), ("L3", (l3 / 2).max(2 * l2)), ("memory", (8 * l3).max(256 << 20))];
    let mut levels = vec![];
    for (name, bytes) in sizes {
        let bytes = bytes / (UNROLL * target.vector_bytes) * (UNROLL * target.vector_bytes);
        let repeat = RUN_BYTES.div_ceil(bytes);
        let least = least_seconds(&[probe(target, bytes, repeat)?], seconds)?[0];
        levels.push(Level { name, bytes, gb_per_second: (bytes * repeat) as f64 / least / 1e9 });
    }
    Ok(levels)
}

fn probe(target: &Target, bytes: usize, repeat: usize) -> Result<Probe> {
    let values: Vec<f32> = (0..bytes / 4 + LINE / 4).map(|i| 1.0 + (i % 2) as f32).collect();
    let input = Tensor::new(&[values.len() as i64], &values);
    let output = (DType::F32, vec![UNROLL as i64, target.lanes(4) as i64]);
    Probe::new(target, sum(target, bytes, repeat), vec![input], output)
}

/// The sum of the buffer in each lane of each accumulator, `repeat` times.
fn sum(target: &Target, bytes: usize, repeat: usize) -> Function {
    let (ty, mem) = (whole_vector(target, Lane::F32), DType::F32);
    let mut registers = Registers::default();
    let [input, output, from, again, steps] = [(); 5].map(|()| registers.next());
    let mut insts = vec![Inst::Argument { dst: input, slot: 0 }, Inst::Argument { dst: output, slot: 1 }];
    let (total, loaded) = (|i: usize| Vreg(i as u32), |i: usize| Vreg((UNROLL + i % 4) as u32));
    // vectors that lie across two lines would cost two reads
    insts.extend(align(input));
    for i in 0..UNROLL {
        insts.push(Inst::VConst { dst: total(i), ty, bits: 0 });
    }
    insts.push(Inst::Imm { dst: again, value: repeat as i64 });
    insts.push(Inst::LoopStart { count: again, at_least_once: true });
    insts.push(Inst::Copy { dst: from, src: input });
    insts.push(Inst::Imm { dst: steps, value: (bytes / (UNROLL * target.vector_bytes)) as i64 });
    insts.push(Inst::LoopStart { count: steps, at_least_once: true });
    for i in 0..UNROLL {
        insts.push(Inst::VLoad { dst: loaded(i), ty, mem, addr: at(from, i * target.vector_bytes), part: None });
        insts.push(Inst::VBinary { op: VBinary::Add, dst: total(i), ty, a: total(i), b: loaded(i) });
    }
    insts.extend([advance(from, UNROLL * target.vector_bytes), Inst::LoopEnd, Inst::LoopEnd]);
    for i in 0..UNROLL {
        insts.push(Inst::VStore { src: total(i), ty, mem, addr: at(output, i * target.vector_bytes), part: None });
    }
    let vregs = (UNROLL + 4) as u32;
    Function { name: "sum".into(), insts, gprs: registers.0, vregs, ..Function::default() }
}

/// Additions of a step, and steps of a run.
const CHAIN: usize = 64;
const CHAIN_STEPS: i64 = 20_000;

/// GHz: additions a second where each needs the result of the one before, one a cycle.
pub fn measure_clock(target: &Target, seconds: f64) -> Result<f64> {
    let mut registers = Registers::default();
    let [output, sum, one, steps] = [(); 4].map(|()| registers.next());
    let mut insts = vec![
        Inst::Argument { dst: output, slot: 1 },
        Inst::Imm { dst: sum, value: 0 },
        Inst::Imm { dst: one, value: 1 },
        Inst::Imm { dst: steps, value: CHAIN_STEPS },
        Inst::LoopStart { count: steps, at_least_once: true },
    ];
    // A constant would be added while registers are renamed, several in a cycle.
    insts.extend((0..CHAIN).map(|_| Inst::Int { op: GprOp::Add, dst: sum, a: sum, b: Operand::Reg(one) }));
    insts.push(Inst::LoopEnd);
    let (ty, mem) = (VType { lane: Lane::I64, lanes: 1 }, DType::I64);
    insts.push(Inst::VSplat { dst: Vreg(0), ty, src: sum });
    insts.push(Inst::VStore { src: Vreg(0), ty, mem, addr: at(output, 0), part: None });
    let function = Function { name: "chain".into(), insts, gprs: registers.0, vregs: 1, ..Function::default() };
    let probe = Probe::new(target, function, vec![Tensor::zeros(DType::I64, &[1])], (DType::I64, vec![1]))?;
    let least = least_seconds(std::slice::from_ref(&probe), seconds)?[0];
    Ok((CHAIN as i64 * CHAIN_STEPS) as f64 / least / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_is_read_as_often_as_counted() {
        for target in Target::all().into_iter().filter(Target::runs_on_host) {
            let (bytes, repeat) = (UNROLL * target.vector_bytes * 21, 3);
            let probe = probe(&target, bytes, repeat).unwrap();
            let expected = 1.5 * (bytes / 4) as f32;
            let sums = probe.outputs().unwrap()[0].to_vec::<f32>();
            assert_eq!(sums.iter().sum::<f32>(), expected * repeat as f32, "{}", target.name);
            assert!(measure_clock(&target, 0.01).unwrap() > 0.1);
        }
    }
}
