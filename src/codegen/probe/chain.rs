//! Latencies: chains of operations each of which needs the result of the one before.

use crate::codegen::Target;
use crate::codegen::probe::kernel::{Probe, Registers, at, least_seconds};
use crate::codegen::vcode::{Function, Inst, Lane, VBinary, VType, Vreg};
use crate::runtime::{DType, Result, Tensor};

/// Operations of a step, and steps of a run.
const CHAIN: usize = 64;
const STEPS: i64 = 5000;

/// Vector operations whose latency is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Fma,
    Add,
    /// Of integers.
    IntegerAdd,
}

/// Nanoseconds from the start of one operation until the next one can use its result.
pub(super) fn measure_latency(target: &Target, operation: Operation, seconds: f64) -> Result<f64> {
    let least = least_seconds(&[probe(target, operation)?], seconds)?[0];
    Ok(least * 1e9 / (CHAIN as i64 * STEPS) as f64)
}

fn probe(target: &Target, operation: Operation) -> Result<Probe> {
    let (lane, mem) = match operation {
        Operation::IntegerAdd => (Lane::I32, DType::I32),
        Operation::Fma | Operation::Add => (Lane::F32, DType::F32),
    };
    let ty = VType { lane, lanes: target.lanes(4) as u8 };
    let mut registers = Registers::default();
    let [input, output, steps] = [(); 3].map(|()| registers.next());
    let (sum, one) = (Vreg(0), Vreg(1));
    let mut insts = vec![Inst::Argument { dst: input, slot: 0 }, Inst::Argument { dst: output, slot: 1 }];
    for dst in [sum, one] {
        insts.push(Inst::VLoad { dst, ty, mem, addr: at(input, 0), part: None });
    }
    insts.push(Inst::Imm { dst: steps, value: STEPS });
    insts.push(Inst::LoopStart { count: steps, at_least_once: true });
    let next = match operation {
        Operation::Fma => Inst::VFma { acc: sum, ty, a: one, b: one, negate: false },
        Operation::Add | Operation::IntegerAdd => Inst::VBinary { op: VBinary::Add, dst: sum, ty, a: sum, b: one },
    };
    insts.extend((0..CHAIN).map(|_| next.clone()));
    insts.push(Inst::LoopEnd);
    insts.push(Inst::VStore { src: sum, ty, mem, addr: at(output, 0), part: None });
    let function = Function { name: "chain".into(), insts, gprs: registers.0, vregs: 2, ..Function::default() };
    let shape = vec![target.lanes(4) as i64];
    let ones = match mem {
        DType::I32 => Tensor::new(&shape, &vec![1i32; target.lanes(4)]),
        _ => Tensor::new(&shape, &vec![1f32; target.lanes(4)]),
    };
    Probe::new(target, function, vec![ones], (mem, shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_as_long_as_counted() {
        for target in Target::all().into_iter().filter(Target::runs_on_host) {
            for operation in [Operation::Fma, Operation::Add, Operation::IntegerAdd] {
                let sum = &probe(&target, operation).unwrap().outputs().unwrap()[0];
                let sums: Vec<i64> = match operation {
                    Operation::IntegerAdd => sum.to_vec::<i32>().into_iter().map(i64::from).collect(),
                    _ => sum.to_vec::<f32>().into_iter().map(|x| x as i64).collect(),
                };
                assert!(sums.iter().all(|s| *s == 1 + CHAIN as i64 * STEPS), "{operation:?}: {sums:?}");
                assert!(measure_latency(&target, operation, 0.01).unwrap() > 0.1);
            }
        }
    }
}
