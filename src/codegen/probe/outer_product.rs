//! The outer product of register kernels: as many accumulators as registers allow, two vectors of one operand, broadcasts of
//! the other.

use crate::codegen::Target;
use crate::codegen::probe::kernel::{Probe, Registers, advance, at, least_seconds, whole_vector};
use crate::codegen::vcode::{Function, Inst, Lane, Vreg};
use crate::runtime::{DType, Result, Tensor};
use serde::Serialize;
use std::time::Instant;

/// GFLOP/s of one core; a multiply-add counts two.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Rates {
    /// Operands stay in registers.
    pub from_registers: f64,
    /// Operands are loaded from the first cache.
    pub from_l1: f64,
}

/// An element type that the probe multiplies.
pub trait Real {
    const DTYPE: DType;
    const LANE: Lane;
}

impl Real for f32 {
    const DTYPE: DType = DType::F32;
    const LANE: Lane = Lane::F32;
}

impl Real for f64 {
    const DTYPE: DType = DType::F64;
    const LANE: Lane = Lane::F64;
}

/// Steps of the outer product, and how often they are repeated in a run.
const DEPTH: i64 = 128;
const REPEAT: i64 = 1000;
/// Vectors of one operand.
const COLUMNS: usize = 2;

/// Measures both rates for `seconds` in all, the two kernels in turn.
pub fn measure_rates<T: Real>(target: &Target, seconds: f64) -> Result<Rates> {
    let seconds = least_seconds(&[probe::<T>(target, false)?, probe::<T>(target, true)?], seconds)?;
    let rate = |seconds: f64| flops::<T>(target) / seconds / 1e9;
    Ok(Rates { from_registers: rate(seconds[0]), from_l1: rate(seconds[1]) })
}

/// The kernel with operands from the first cache, to be run between the runs of something else whose rate is set beside it:
/// what the clock and other programs do at that moment is then in both.
pub struct PeakProbe {
    probe: Probe,
    flops: f64,
}

impl PeakProbe {
    /// A probe of one core in arithmetic of `T`.
    pub fn new<T: Real>(target: &Target) -> Result<PeakProbe> {
        Ok(PeakProbe { probe: probe::<T>(target, true)?, flops: flops::<T>(target) })
    }

    /// GFLOP/s of each run in about `seconds`, of one run at least.
    pub fn rates(&self, seconds: f64) -> Result<Vec<f64>> {
        let (mut rates, start) = (vec![], Instant::now());
        while rates.is_empty() || start.elapsed().as_secs_f64() < seconds {
            rates.push(self.flops / self.probe.run()? / 1e9);
        }
        Ok(rates)
    }
}

/// Operations of one run.
fn flops<T: Real>(target: &Target) -> f64 {
    let width = COLUMNS * target.lanes(T::LANE.bytes());
    2.0 * (REPEAT * DEPTH) as f64 * (rows(target) * width) as f64
}

fn probe<T: Real>(target: &Target, loads: bool) -> Result<Probe> {
    let (rows, lanes) = (rows(target) as i64, target.lanes(T::LANE.bytes()) as i64);
    let input = |position, width| Tensor::seeded(T::DTYPE, &[DEPTH, width], 1, position, 2);
    let inputs = vec![input(0, rows), input(1, COLUMNS as i64 * lanes)];
    Probe::new(target, function::<T>(target, loads), inputs, (T::DTYPE, vec![rows * COLUMNS as i64, lanes]))
}

/// Number of rows of accumulators in the registers that the operands leave free.
fn rows(target: &Target) -> usize {
    (target.vector_registers - COLUMNS - 1) / COLUMNS
}

/// `c[v] = Σ a[k][i] · b[k][v]` over and over, or the same multiply-adds on the operands of the first step.
fn function<T: Real>(target: &Target, loads: bool) -> Function {
    let ty = whole_vector(target, T::LANE);
    let (rows, bytes, mem) = (rows(target), target.vector_bytes, T::DTYPE);
    let (mut insts, mut registers) = (vec![], Registers::default());
    let [a, b, c, from_a, from_b, repeat, depth] = [(); 7].map(|()| registers.next());
    for (slot, dst) in [a, b, c].into_iter().enumerate() {
        insts.push(Inst::Argument { dst, slot: slot as u32 });
    }
    let accumulator = |row: usize, column: usize| Vreg((row * COLUMNS + column) as u32);
    let column = |j: usize| Vreg((rows * COLUMNS + j) as u32);
    let broadcast = Vreg((rows * COLUMNS + COLUMNS) as u32);
    for v in 0..rows * COLUMNS {
        insts.push(Inst::VConst { dst: Vreg(v as u32), ty, bits: 0 });
    }
    let load = |j: usize| Inst::VLoad { dst: column(j), ty, mem, addr: at(from_b, j * bytes), part: None };
    let spread = |i: usize| Inst::VBroadcast { dst: broadcast, ty, mem, addr: at(from_a, T::LANE.bytes() * i) };
    insts.extend([Inst::Copy { dst: from_a, src: a }, Inst::Copy { dst: from_b, src: b }]);
    insts.extend((0..COLUMNS).map(load));
    insts.push(spread(0));
    insts.push(Inst::Imm { dst: repeat, value: REPEAT });
    insts.push(Inst::LoopStart { count: repeat, at_least_once: true });
    insts.extend([Inst::Copy { dst: from_a, src: a }, Inst::Copy { dst: from_b, src: b }]);
    insts.push(Inst::Imm { dst: depth, value: DEPTH });
    insts.push(Inst::LoopStart { count: depth, at_least_once: true });
    if loads {
        insts.extend((0..COLUMNS).map(load));
    }
    for i in 0..rows {
        if loads {
            insts.push(spread(i));
        }
        let fma = |j| Inst::VFma { acc: accumulator(i, j), ty, a: broadcast, b: column(j), negate: false };
        insts.extend((0..COLUMNS).map(fma));
    }
    insts.extend([advance(from_a, T::LANE.bytes() * rows), advance(from_b, COLUMNS * bytes)]);
    insts.extend([Inst::LoopEnd, Inst::LoopEnd]);
    // Every accumulator is stored, so that none of the work is without effect.
    for v in 0..rows * COLUMNS {
        insts.push(Inst::VStore { src: Vreg(v as u32), ty, mem, addr: at(c, v * bytes), part: None });
    }
    let vregs = (rows * COLUMNS + COLUMNS + 1) as u32;
    Function { name: "probe".into(), insts, gprs: registers.0, vregs, ..Function::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_computes_what_it_counts() {
        for target in Target::all().into_iter().filter(Target::runs_on_host) {
            let probe = probe::<f32>(&target, true).unwrap();
            let [a, b] = [0, 1].map(|i| probe.inputs[i].to_vec::<f32>());
            let c = probe.outputs().unwrap()[0].to_vec::<f32>();
            let (rows, width) = (rows(&target), COLUMNS * target.lanes(4));
            for (i, v) in [(0, 0), (rows - 1, width - 1), (1, width / 2)] {
                let sum: f32 = (0..DEPTH as usize).map(|k| a[k * rows + i] * b[k * width + v]).sum();
                let got = c[i * width + v] / REPEAT as f32;
                assert!((got - sum).abs() < 1e-2 * (1.0 + sum.abs()), "{}: {got} instead of {sum}", target.name);
            }
            for rates in [measure_rates::<f32>(&target, 0.01).unwrap(), measure_rates::<f64>(&target, 0.01).unwrap()] {
                assert!(rates.from_registers > 0.5 && rates.from_l1 > 0.5, "{rates:?}");
            }
        }
    }
}
