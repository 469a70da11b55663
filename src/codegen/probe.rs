//! The limit that a register kernel can reach on this processor, measured with the project's own instructions.
//!
//! In: a target that runs here. Out: GFLOP/s of one core for f32 fused multiply-adds, once with operands that stay in
//! registers and once with operands loaded from the first cache, as an outer product does: two vectors of one operand and
//! broadcasts of the other. Data are random, because zeros let the clock run higher.

use crate::codegen::assemble::assemble_functions;
use crate::codegen::vcode::{Addr, Function, Gpr, GprOp, Inst, Lane, Operand, VType, Vreg};
use crate::codegen::{DType, Isa, Result, Target, Tensor};
use crate::runtime::module::{
    Action, Buffer, BufferRef, Kernel, Module, OutputSpec, Phase, Place, Slot, Step, TensorSpec,
};
use crate::runtime::session::Session;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// GFLOP/s of one core.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Limits {
    pub target: String,
    /// Operands stay in registers.
    pub from_registers: f64,
    /// Operands are loaded from the first cache.
    pub from_l1: f64,
}

/// Steps of the outer product, and how often they are repeated in a run.
const DEPTH: i64 = 128;
const REPEAT: i64 = 1000;
/// Vectors of one operand.
const COLUMNS: usize = 2;

/// Measures the limits for `seconds` in all, the two kernels in turn.
pub fn measure(target: &Target, seconds: f64) -> Result<Limits> {
    let kernels = [Probe::new(target, false)?, Probe::new(target, true)?];
    let mut best = [f64::INFINITY; 2];
    let (start, budget) = (Instant::now(), Duration::from_secs_f64(seconds));
    while best[1].is_infinite() || start.elapsed() < budget {
        for (kernel, best) in kernels.iter().zip(&mut best) {
            *best = best.min(kernel.run()?);
        }
    }
    let rate = |seconds: f64| kernels[0].flops / seconds / 1e9;
    Ok(Limits { target: target.name.clone(), from_registers: rate(best[0]), from_l1: rate(best[1]) })
}

struct Probe {
    session: Session,
    inputs: [Tensor; 2],
    flops: f64,
}

impl Probe {
    fn new(target: &Target, loads: bool) -> Result<Probe> {
        let rows = rows(target);
        let lanes = target.lanes(4);
        let shapes = [[DEPTH, rows as i64], [DEPTH, (COLUMNS * lanes) as i64]];
        let module = module(target, function(target, loads), &shapes)?;
        let inputs = [0, 1].map(|i| Tensor::seeded(DType::F32, &shapes[i], 1, i as u64, 2));
        let flops = 2.0 * (REPEAT * DEPTH) as f64 * (rows * COLUMNS * lanes) as f64;
        Ok(Probe { session: Session::new(Arc::new(module), 1)?, inputs, flops })
    }

    /// Seconds of one run.
    fn run(&self) -> Result<f64> {
        let start = Instant::now();
        self.session.run(&[("a", &self.inputs[0]), ("b", &self.inputs[1])])?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Rows of accumulators: what the operands leave of the registers.
fn rows(target: &Target) -> usize {
    (target.vector_registers - COLUMNS - 1) / COLUMNS
}

/// `c[v] = Σ a[k][i] · b[k][v]` over and over, or the same multiply-adds on what the first step has loaded.
fn function(target: &Target, loads: bool) -> Function {
    let ty = VType { lane: Lane::F32, lanes: target.lanes(4) as u8 };
    let (rows, bytes) = (rows(target), target.vector_bytes as i32);
    let (mut insts, mut gprs) = (vec![], 0);
    let mut gpr = || {
        gprs += 1;
        Gpr(gprs - 1)
    };
    let [a, b, c, from_a, from_b, repeat, depth] = [(); 7].map(|()| gpr());
    for (slot, dst) in [a, b, c].into_iter().enumerate() {
        insts.push(Inst::Argument { dst, slot: slot as u32 });
    }
    let accumulator = |row: usize, column: usize| Vreg((row * COLUMNS + column) as u32);
    let column = |j: usize| Vreg((rows * COLUMNS + j) as u32);
    let broadcast = Vreg((rows * COLUMNS + COLUMNS) as u32);
    for v in 0..rows * COLUMNS {
        insts.push(Inst::VConst { dst: Vreg(v as u32), ty, bits: 0 });
    }
    let at = |base: Gpr, disp: i32| Addr { base, index: None, disp };
    let load =
        |j: usize| Inst::VLoad { dst: column(j), ty, mem: DType::F32, addr: at(from_b, j as i32 * bytes), part: None };
    let spread = |i: usize| Inst::VBroadcast { dst: broadcast, ty, mem: DType::F32, addr: at(from_a, 4 * i as i32) };
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
    let step = |r: Gpr, bytes: usize| {
        let b = Operand::Imm(bytes as i64);
        Inst::Int { op: GprOp::Add, dst: r, a: r, b }
    };
    insts.extend([step(from_a, 4 * rows), step(from_b, COLUMNS * target.vector_bytes), Inst::LoopEnd, Inst::LoopEnd]);
    // Every accumulator is stored, so that none of the work is without effect.
    for v in 0..rows * COLUMNS {
        insts.push(Inst::VStore {
            src: Vreg(v as u32),
            ty,
            mem: DType::F32,
            addr: at(c, v as i32 * bytes),
            part: None,
        });
    }
    let vregs = (rows * COLUMNS + COLUMNS + 1) as u32;
    Function { name: "probe".into(), insts, gprs, vregs, scratch_bytes: 0, parallel: None }
}

fn module(target: &Target, function: Function, shapes: &[[i64; 2]; 2]) -> Result<Module> {
    let assembled = assemble_functions(&[function], target)?;
    let stored = vec![(rows(target) * COLUMNS) as i64, target.lanes(4) as i64];
    let tensors = [("a", shapes[0].to_vec()), ("b", shapes[1].to_vec()), ("c", stored)];
    let spec =
        |(name, shape): &(&str, Vec<i64>)| TensorSpec { name: (*name).into(), dtype: DType::F32, shape: shape.clone() };
    let places = [Place::Input(0), Place::Input(1), Place::Output(0)];
    let buffer = |(t, place): (&(&str, Vec<i64>), Place)| Buffer {
        name: t.0.into(),
        dtype: DType::F32,
        shape: t.1.clone(),
        place,
    };
    let slot =
        |(i, t): (usize, &(&str, Vec<i64>))| Slot { bytes: 4 * t.1.iter().product::<i64>() as u64, written: i == 2 };
    let architecture = if target.isa == Isa::Neon { "aarch64" } else { "x86_64" };
    Ok(Module {
        name: "probe".into(),
        target: target.name.clone(),
        architecture: architecture.into(),
        code: assembled.phases[0].code.clone(),
        kernels: vec![Kernel {
            name: "probe".into(),
            phases: vec![Phase { offset: 0, parallel: None, scratch_bytes: 0 }],
            slots: tensors.iter().enumerate().map(slot).collect(),
            vectorized: true,
            tensorized: true,
        }],
        buffers: tensors.iter().zip(places).map(buffer).collect(),
        steps: vec![Step {
            name: "probe".into(),
            flops: 0,
            action: Action::Kernel { kernel: 0, arguments: [0, 1, 2].map(BufferRef).into() },
        }],
        inputs: tensors[..2].iter().map(spec).collect(),
        outputs: vec![OutputSpec { tensor: spec(&tensors[2]), source: BufferRef(2) }],
        ..Module::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_computes_what_it_counts() {
        for target in Target::all().into_iter().filter(Target::runs_on_host) {
            let probe = Probe::new(&target, true).unwrap();
            let [a, b] = [0, 1].map(|i| probe.inputs[i].to_vec::<f32>());
            let c = probe.session.run(&[("a", &probe.inputs[0]), ("b", &probe.inputs[1])]).unwrap();
            let c = c[0].to_vec::<f32>();
            let (rows, width) = (rows(&target), COLUMNS * target.lanes(4));
            for (i, v) in [(0, 0), (rows - 1, width - 1), (1, width / 2)] {
                let sum: f32 = (0..DEPTH as usize).map(|k| a[k * rows + i] * b[k * width + v]).sum();
                let got = c[i * width + v] / REPEAT as f32;
                assert!((got - sum).abs() < 1e-2 * (1.0 + sum.abs()), "{}: {got} instead of {sum}", target.name);
            }
            let limits = measure(&target, 0.01).unwrap();
            assert!(limits.from_registers > 0.5 && limits.from_l1 > 0.5, "{limits:?}");
        }
    }
}
