//! Kernels of a probe: assembled, bound to tensors, run repeatedly.

use crate::codegen::Target;
use crate::codegen::assemble::assemble_functions;
use crate::codegen::vcode::{Addr, Function, Gpr, GprOp, Inst, Lane, Operand, VType, Vreg};
use crate::runtime::module::{
    Action, Buffer, BufferPlace, BufferRef, Kernel, Module, ModuleParts, OutputSpec, Phase, Slot, Step, TensorSpec,
};
use crate::runtime::session::Session;
use crate::runtime::{DType, Result, Tensor};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One function of two inputs that writes one output.
pub(super) struct Probe {
    pub(super) session: Session,
    pub(super) inputs: Vec<Tensor>,
}

impl Probe {
    pub(super) fn new(
        target: &Target,
        function: Function,
        inputs: Vec<Tensor>,
        output: (DType, Vec<i64>),
    ) -> Result<Probe> {
        let module = module(target, function, &inputs, output)?;
        Ok(Probe { session: Session::new(Arc::new(module), 1)?, inputs })
    }

    pub(super) fn outputs(&self) -> Result<Vec<Tensor>> {
        let names: Vec<String> = (0..self.inputs.len()).map(input_name).collect();
        let inputs: Vec<(&str, &Tensor)> = names.iter().map(String::as_str).zip(&self.inputs).collect();
        self.session.run(&inputs)
    }

    /// Seconds of one run.
    pub(super) fn run(&self) -> Result<f64> {
        let start = Instant::now();
        self.outputs()?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// A loop over vector instructions.
pub(super) struct Repeated {
    pub(super) name: &'static str,
    pub(super) ty: VType,
    /// Registers that hold the input.
    pub(super) operands: Vec<Vreg>,
    pub(super) before: Vec<Inst>,
    pub(super) body: Vec<Inst>,
    pub(super) steps: i64,
    /// Registers that are stored after the loop, one after the other.
    pub(super) results: Vec<Vreg>,
    /// Vector registers in all.
    pub(super) registers: u32,
}

impl Repeated {
    /// The probe of a function whose input is one vector.
    pub(super) fn probe(self, target: &Target, input: Tensor) -> Result<Probe> {
        let Repeated { name, ty, operands, before, body, steps, results, registers } = self;
        let mem = input.dtype;
        let mut integers = Registers::default();
        let [from, to, count] = [(); 3].map(|()| integers.next());
        let mut insts = vec![Inst::Argument { dst: from, slot: 0 }, Inst::Argument { dst: to, slot: 1 }];
        insts.extend(operands.into_iter().map(|dst| Inst::VLoad { dst, ty, mem, addr: at(from, 0), part: None }));
        insts.extend(before);
        insts.push(Inst::Imm { dst: count, value: steps });
        insts.push(Inst::LoopStart { count, at_least_once: true });
        insts.extend(body);
        insts.push(Inst::LoopEnd);
        let elements = (results.len() * usize::from(ty.lanes)) as i64;
        for (i, src) in results.into_iter().enumerate() {
            insts.push(Inst::VStore { src, ty, mem, addr: at(to, i * ty.bytes()), part: None });
        }
        let function = Function { name: name.into(), insts, gprs: integers.0, vregs: registers, ..Function::default() };
        Probe::new(target, function, vec![input], (mem, vec![elements]))
    }
}

/// The least seconds of each probe's runs, in turn, for `seconds` in all.
pub(super) fn least_seconds(probes: &[Probe], seconds: f64) -> Result<Vec<f64>> {
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
pub(super) struct Registers(pub(super) u32);

impl Registers {
    pub(super) fn next(&mut self) -> Gpr {
        self.0 += 1;
        Gpr(self.0 - 1)
    }
}

pub(super) fn at(base: Gpr, disp: usize) -> Addr {
    Addr { base, index: None, disp: disp as i32 }
}

pub(super) fn advance(register: Gpr, bytes: usize) -> Inst {
    Inst::Int { op: GprOp::Add, dst: register, a: register, b: Operand::Imm(bytes as i64) }
}

/// A whole vector of numbers of this type.
pub(super) fn whole_vector(target: &Target, lane: Lane) -> VType {
    VType { lane, lanes: target.lanes(lane.bytes()) as u8 }
}

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// Moves a pointer on to the begin of a line.
pub(super) fn align(pointer: Gpr) -> [Inst; 3] {
    let line = Operand::Imm(LINE as i64);
    let by_line = |op| Inst::Int { op, dst: pointer, a: pointer, b: line };
    [advance(pointer, LINE - 1), by_line(GprOp::DivFloor), by_line(GprOp::Mul)]
}

pub(super) fn input_name(position: usize) -> String {
    format!("input_{position}")
}

/// A module of one kernel; its arguments are the inputs and then the output.
pub(super) fn module(
    target: &Target,
    function: Function,
    inputs: &[Tensor],
    output: (DType, Vec<i64>),
) -> Result<Module> {
    let assembled = assemble_functions(&[function], target)?;
    let mut specs: Vec<TensorSpec> = vec![];
    for (i, tensor) in inputs.iter().enumerate() {
        specs.push(TensorSpec { name: input_name(i), dtype: tensor.dtype, shape: tensor.shape.clone() });
    }
    specs.push(TensorSpec { name: "output".into(), dtype: output.0, shape: output.1 });
    let count = inputs.len();
    let place = |i: usize| if i < count { BufferPlace::Input(i as u32) } else { BufferPlace::Output(0) };
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
    let parts = ModuleParts {
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
        ..ModuleParts::default()
    };
    // SAFETY: the function was written for this target, and touches the tensors that the slots declare.
    unsafe { Module::new(parts) }
}
