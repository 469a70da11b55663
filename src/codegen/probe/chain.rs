//! Latencies: chains of operations each of which needs the result of the one before.

use crate::codegen::Target;
use crate::codegen::probe::kernel::{Probe, Repeated, least_seconds, whole_vector};
use crate::codegen::vcode::{Inst, Lane, VBinary, Vreg};
use crate::runtime::{Result, Tensor};

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
    let lanes = target.lanes(4);
    let (lane, ones) = match operation {
        Operation::IntegerAdd => (Lane::I32, Tensor::new(&[lanes as i64], &vec![1i32; lanes])),
        Operation::Fma | Operation::Add => (Lane::F32, Tensor::new(&[lanes as i64], &vec![1f32; lanes])),
    };
    let ty = whole_vector(target, lane);
    let (sum, one) = (Vreg(0), Vreg(1));
    let next = match operation {
        Operation::Fma => Inst::VFma { acc: sum, ty, a: one, b: one, negate: false },
        Operation::Add | Operation::IntegerAdd => Inst::VBinary { op: VBinary::Add, dst: sum, ty, a: sum, b: one },
    };
    let chain = Repeated {
        name: "chain",
        ty,
        operands: vec![sum, one],
        before: vec![],
        body: vec![next; CHAIN],
        steps: STEPS,
        results: vec![sum],
        registers: 2,
    };
    chain.probe(target, ones)
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
