//! Throughput of quotients, inverses and roots: operations none of which waits for another.

use crate::codegen::Target;
use crate::codegen::probe::kernel::{Probe, Repeated, least_seconds, whole_vector};
use crate::codegen::vcode::{Inst, Lane, VBinary, VUnary, Vreg};
use crate::runtime::{Result, Tensor};

/// Operations of a step, steps of a run, and results that are live at a time.
const OPERATIONS: usize = 64;
const STEPS: i64 = 2000;
const RESULTS: u32 = 8;

/// Instructions for quotients and roots. The inverse and what uses it are AVX-512's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Division,
    Inverse,
    /// A quotient by a known inverse.
    Quotient,
    Root,
    /// A root without the divider.
    InverseRoot,
}

/// Nanoseconds of one operation on a whole vector of elements of `bytes` bytes.
pub(super) fn measure(target: &Target, operation: Operation, bytes: usize, seconds: f64) -> Result<f64> {
    let least = least_seconds(&[probe(target, operation, bytes)?], seconds)?[0];
    Ok(least * 1e9 / (OPERATIONS as i64 * STEPS) as f64)
}

fn probe(target: &Target, operation: Operation, bytes: usize) -> Result<Probe> {
    let lanes = target.lanes(bytes);
    let numbers = (0..lanes).map(|i| 1.5 + i as f64);
    let (lane, input) = match bytes {
        8 => (Lane::F64, Tensor::new(&[lanes as i64], &numbers.collect::<Vec<f64>>())),
        _ => (Lane::F32, Tensor::new(&[lanes as i64], &numbers.map(|x| x as f32).collect::<Vec<f32>>())),
    };
    let ty = whole_vector(target, lane);
    let [a, b, inverse] = [0, 1, 2].map(Vreg);
    let results: Vec<Vreg> = (3..3 + RESULTS).map(Vreg).collect();
    let instruction = |dst: Vreg| match operation {
        Operation::Division => Inst::VBinary { op: VBinary::Div, dst, ty, a, b },
        Operation::Inverse => Inst::VUnary { op: VUnary::Inverse, dst, ty, a },
        Operation::Quotient => Inst::VQuotient { dst, ty, a, b, inverse },
        Operation::Root => Inst::VUnary { op: VUnary::Sqrt, dst, ty, a },
        Operation::InverseRoot => Inst::VUnary { op: VUnary::Root, dst, ty, a },
    };
    let inverse_of_divisor = Inst::VUnary { op: VUnary::Inverse, dst: inverse, ty, a: b };
    let divider = Repeated {
        name: "divider",
        ty,
        operands: vec![a, b],
        before: if operation == Operation::Quotient { vec![inverse_of_divisor] } else { vec![] },
        body: results.iter().cycle().take(OPERATIONS).map(|&dst| instruction(dst)).collect(),
        steps: STEPS,
        results,
        registers: 3 + RESULTS,
    };
    divider.probe(target, input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::target::Isa;

    #[test]
    fn operations_give_what_they_are_called() {
        for target in Target::all().into_iter().filter(Target::runs_on_host) {
            let all: &[Operation] = match target.isa {
                Isa::Avx512 => &[
                    Operation::Division,
                    Operation::Inverse,
                    Operation::Quotient,
                    Operation::Root,
                    Operation::InverseRoot,
                ],
                _ => &[Operation::Division, Operation::Root],
            };
            for &operation in all {
                let found = probe(&target, operation, 4).unwrap().outputs().unwrap()[0].to_vec::<f32>();
                for (i, y) in found.iter().enumerate() {
                    let x = 1.5 + (i % target.lanes(4)) as f32;
                    let wanted = match operation {
                        Operation::Division | Operation::Quotient => 1.0,
                        Operation::Inverse => 1.0 / x,
                        Operation::Root | Operation::InverseRoot => x.sqrt(),
                    };
                    assert_eq!(*y, wanted, "{operation:?} {x}");
                }
                assert!(measure(&target, operation, 4, 0.01).unwrap() > 0.1);
            }
        }
    }
}
