//! The limits of this processor, measured with the project's own instructions: multiply-adds, clock, bandwidth.
//!
//! In: a target that runs here. Out: what one core reaches at most. A share of the limit says more of a kernel than its
//! time: GFLOP/s of the outer product that register kernels are made of (with operands in registers, and with operands
//! loaded from the first cache), GB/s read from each level of the memory. Data are random, because zeros let the clock run
//! higher.

mod outer_product;
mod stream;

use crate::codegen::assemble::assemble_functions;
use crate::codegen::vcode::{Addr, Function, Gpr, GprOp, Inst, Operand};
use crate::codegen::{DType, Result, Target, Tensor};
use crate::runtime::module::{
    Action, Buffer, BufferRef, Kernel, Module, OutputSpec, Phase, Place, Slot, Step, TensorSpec,
};
use crate::runtime::session::Session;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use outer_product::{PeakProbe, Rates, measure_rates};
pub use stream::Level;

/// What one core reaches on a target.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Limits {
    pub target: String,
    /// GFLOP/s with 32-bit elements.
    pub f32: Rates,
    /// GFLOP/s with 64-bit elements.
    pub f64: Rates,
    /// GHz while integers are added one after the other.
    pub clock_ghz: f64,
    /// Reading from each cache that the target describes, and from memory.
    pub bandwidth: Vec<Level>,
}

/// Measures everything in about `seconds`.
pub fn measure(target: &Target, seconds: f64) -> Result<Limits> {
    let part = seconds / 8.0;
    Ok(Limits {
        target: target.name.clone(),
        f32: measure_rates::<f32>(target, 2.0 * part)?,
        f64: measure_rates::<f64>(target, 2.0 * part)?,
        clock_ghz: stream::measure_clock(target, part)?,
        bandwidth: stream::measure_bandwidth(target, part)?,
    })
}

/// One function of two inputs that writes one output.
struct Probe {
    session: Session,
    inputs: Vec<Tensor>,
}

impl Probe {
    fn new(target: &Target, function: Function, inputs: Vec<Tensor>, output: (DType, Vec<i64>)) -> Result<Probe> {
        let module = module(target, function, &inputs, output)?;
        Ok(Probe { session: Session::new(Arc::new(module), 1)?, inputs })
    }

    fn outputs(&self) -> Result<Vec<Tensor>> {
        let names: Vec<String> = (0..self.inputs.len()).map(input_name).collect();
        let inputs: Vec<(&str, &Tensor)> = names.iter().map(String::as_str).zip(&self.inputs).collect();
        self.session.run(&inputs)
    }

    /// Seconds of one run.
    fn run(&self) -> Result<f64> {
        let start = Instant::now();
        self.outputs()?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// The least seconds of each probe's runs, in turn, for `seconds` in all.
fn least_seconds(probes: &[Probe], seconds: f64) -> Result<Vec<f64>> {
    let mut best = vec![f64::INFINITY; probes.len()];
    let (start, budget) = (Instant::now(), Duration::from_secs_f64(seconds));
    while best.iter().any(|b| b.is_infinite()) || start.elapsed() < budget {
        for (probe, best) in probes.iter().zip(&mut best) {
            *best = best.min(probe.run()?);
        }
    }
    Ok(best)
}

/// Hands out the registers of a function.
#[derive(Default)]
struct Registers(u32);

impl Registers {
    fn next(&mut self) -> Gpr {
        self.0 += 1;
        Gpr(self.0 - 1)
    }
}

fn at(base: Gpr, disp: usize) -> Addr {
    Addr { base, index: None, disp: disp as i32 }
}

fn advance(register: Gpr, bytes: usize) -> Inst {
    Inst::Int { op: GprOp::Add, dst: register, a: register, b: Operand::Imm(bytes as i64) }
}

fn input_name(position: usize) -> String {
    format!("input_{position}")
}

/// A module of one kernel; its arguments are the inputs and then the output.
fn module(target: &Target, function: Function, inputs: &[Tensor], output: (DType, Vec<i64>)) -> Result<Module> {
    let assembled = assemble_functions(&[function], target)?;
    let mut specs: Vec<TensorSpec> = vec![];
    for (i, tensor) in inputs.iter().enumerate() {
        specs.push(TensorSpec { name: input_name(i), dtype: tensor.dtype, shape: tensor.shape.clone() });
    }
    specs.push(TensorSpec { name: "output".into(), dtype: output.0, shape: output.1 });
    let count = inputs.len();
    let place = |i: usize| if i < count { Place::Input(i as u32) } else { Place::Output(0) };
    let buffer = |(i, s): (usize, &TensorSpec)| Buffer {
        name: s.name.clone(),
        dtype: s.dtype,
        shape: s.shape.clone(),
        place: place(i),
    };
    let mut slots = vec![];
    for (i, spec) in specs.iter().enumerate() {
        slots.push(Slot { bytes: spec.bytes()?, written: i == count });
    }
    let references = |n: usize| (0..n as u32).map(BufferRef);
    let code = assembled.phases[0].code.clone();
    Ok(Module {
        name: "probe".into(),
        target: target.name.clone(),
        platform: target.platform(),
        kernels: vec![Kernel {
            name: "probe".into(),
            phases: vec![Phase { offset: 0, bytes: code.len() as u64, parallel: None, wave: None, scratch_bytes: 0 }],
            slots,
            vectorized: true,
            tensorized: true,
        }],
        code,
        buffers: specs.iter().enumerate().map(buffer).collect(),
        steps: vec![Step {
            name: "probe".into(),
            flops: 0,
            action: Action::Kernel { kernel: 0, arguments: references(count + 1).collect() },
        }],
        inputs: specs[..count].to_vec(),
        outputs: vec![OutputSpec { tensor: specs[count].clone(), source: BufferRef(count as u32) }],
        ..Module::default()
    })
}
