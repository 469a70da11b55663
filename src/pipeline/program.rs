//! A program of the text language to a module of one kernel.
//!
//! In: what a program computes for known sizes, and its schedule as data. Out: a [`Module`](crate::Module) and a report.
//! An array that the program updates in place is an input and an output: a step copies the one to the other before the kernel
//! runs. Declared initial values become a module of their own, which gives the inputs that nobody gives.

use crate::codegen::Target;
use crate::language;
use crate::language::lowered::{Computation, LoweredProgram};
use crate::language::subscript_checks::checked_dimension;
use crate::language::syntax::File;
use crate::pipeline::kernel::{self, CompiledKernel, Stage, Statements};
use crate::pipeline::linkable::{Argument, LinkableKernel};
use crate::pipeline::options::exceeds;
use crate::pipeline::report::Report;
use crate::pipeline::{Clock, Compilation, Options, Order, check_memory, link, words};
use crate::poly::statement::{ElementRange, Role, TensorDecl};
use crate::poly::transform::primitive::Schedule;
use crate::poly::transform::state::{Proven, SourceProgram};
use crate::runtime::module::{Action, Buffer, BufferPlace, BufferRef, ModuleParts, OutputSpec, Step, TensorSpec};
use crate::{DType, Error, Result};
use std::sync::Arc;
use std::time::Instant;

/// A program of known sizes and the order that it shall run in.
pub struct ProgramSource<'a> {
    pub file: &'a File,
    pub lowered: &'a LoweredProgram,
    pub order: Order<'a>,
}

impl ProgramSource<'_> {
    /// The statements of the program in their order.
    fn statements(&self, target: &Target) -> Result<Statements> {
        let lowered = self.lowered;
        let proven = match self.order {
            Order::Ilp => return free_statements(&lowered.name, &lowered.computation),
            Order::ByHand(schedule, source) => {
                let normal = || lowered.normal();
                let original = SourceProgram { written: self.file.written(lowered)?, normal: &normal, target };
                words::apply(source, &original, schedule)?
            }
            Order::Kernels(_) => return Err(Error::Internal("schedules of kernels for a program".into())),
            Order::Untransformed => {
                let proven = Proven::in_original_order(self.file.written(lowered)?);
                proven.map_err(|e| in_program(&lowered.name, e))?
            }
        };
        Ok(Statements::by_hand(proven, lowered.computation.index_ranges()?))
    }

    fn kernel(&self, target: &Target) -> Result<CompiledKernel> {
        kernel::compile(self.statements(target)?, target).map_err(|e| in_program(&self.lowered.name, e))
    }
}

fn free_statements(name: &str, computation: &Computation) -> Result<Statements> {
    let statements = match computation {
        Computation::Def(program) => Statements::of_expression(name, program),
        Computation::Loop(_) => computation.normal(name).and_then(|scop| Statements::of_loops(&scop)),
    };
    statements.map_err(|e| in_program(name, e))
}

fn in_program(name: &str, error: Error) -> Error {
    error.context(&format!("`{name}`"))
}

/// Compiles a program.
pub fn compile(source: &ProgramSource, options: &Options) -> Result<Compilation> {
    let (start, lowered, target) = (Instant::now(), source.lowered, options.target()?.for_loops());
    let mut clock = Clock::default();
    check_sizes(lowered, options)?;
    let kernel = clock.time("kernel", || source.kernel(&target))?;
    clock.add_laps(kernel.times);
    let linkable = LinkableKernel::new(&kernel, options.prices.then_some(&target));
    let mut parts = clock.time("link", || link_kernel(&linkable, lowered.arrays()))?;
    if let Some(program) = &lowered.initial {
        let initial = clock.time("initial values", || {
            let name = format!("{}_initial", lowered.name);
            let kernel = Statements::of_expression(&name, program)
                .and_then(|statements| kernel::compile(statements, &target))
                .map_err(|e| in_program(&name, e))?;
            super::finish(link_kernel(&LinkableKernel::new(&kernel, None), &program.tensors)?, &target)
        })?;
        parts.initial = Some(Arc::new(initial));
    }
    parts.dims = lowered.sizes.clone();
    let module = clock.time("verify module", || super::finish(parts, &target))?;
    check_memory(&module, 1, &options.limits)?;
    let kernels = vec![linkable.report(0, vec![lowered.name.clone()], 1)];
    let report = Report {
        stages: clock.stages,
        compile_ms: start.elapsed().as_secs_f64() * 1e3,
        kernels,
        warnings: options.unused_instructions(&target),
        ..Report::of_module(&lowered.name, &module)
    };
    Ok(Compilation { module, report, kernels: vec![Arc::new(kernel)] })
}

/// The text of one stage. Where the ILP has found the schedule it is expressed in the text language too, as primitives for
/// the program as it is written, with the trees as comments.
pub fn explain(source: &ProgramSource, options: &Options, stage: Stage) -> Result<String> {
    let (lowered, target) = (source.lowered, options.target()?.for_loops());
    match stage {
        Stage::C => return language::c::print(lowered, 0),
        Stage::Graph | Stage::Rewritten => {
            let name = &lowered.name;
            return Err(Error::Invalid(format!(
                "`{name}` is not a network: its stages are c, scop and those after it"
            )));
        }
        Stage::Scop => return Ok(source.statements(&target)?.scop().to_string()),
        _ => {}
    }
    let kernel = source.kernel(&target)?;
    if stage == Stage::LoopsC {
        return language::c::print_kernel(lowered, &kernel.kernel, 0);
    }
    let by_hand = if let Order::ByHand(schedule, _) = source.order { Some(schedule) } else { None };
    let normal = || lowered.normal();
    let original =
        || Ok::<_, Error>(SourceProgram { written: source.file.written(lowered)?, normal: &normal, target: &target });
    if stage == Stage::Candidates {
        return words::candidates(&original()?, &lowered.name, &kernel, by_hand);
    }
    let text = kernel.text(stage, target.isa)?;
    if stage != Stage::Schedule || kernel.ilp.is_none() {
        return Ok(text);
    }
    let original = original()?;
    let words = words::express(&original, &lowered.name, &kernel.scop, &kernel.tiled)?;
    let sizes: Vec<String> = lowered.sizes.iter().map(|(name, n)| format!("{name} = {n}")).collect();
    let sizes = if sizes.is_empty() { String::new() } else { format!(", for {}", sizes.join(", ")) };
    Ok(words::comment(&text) + &words::text(words, &sizes))
}

/// No array, and not all together, may need more memory than is allowed.
fn check_sizes(lowered: &LoweredProgram, options: &Options) -> Result<()> {
    let initial = lowered.initial.iter().flat_map(|p| &p.tensors);
    let mut total = 0u64;
    for array in lowered.arrays().iter().chain(initial) {
        let size = array.shape.iter().try_fold(array.dtype.bytes() as u64, |n, &d| n.checked_mul(d as u64));
        let bytes = size.unwrap_or(u64::MAX);
        let what = || format!("array `{}` of shape {:?} needs", array.name, array.shape);
        exceeds(bytes, options.limits.tensor_bytes, what, "tensor_bytes")?;
        total = total.saturating_add(bytes);
    }
    options.limits.check_run(total, || format!("the arrays of `{}` need", lowered.name))
}

/// A module with one kernel: its inputs and outputs are the arrays that are not temporary, in their order.
fn link_kernel(compiled: &LinkableKernel, arrays: &[TensorDecl]) -> Result<ModuleParts> {
    let spec = |a: &TensorDecl| TensorSpec { name: a.name.clone(), dtype: a.dtype, shape: a.shape.clone() };
    let mut module = ModuleParts { name: compiled.name.clone(), ..ModuleParts::default() };
    link::add_code(&mut module, compiled);
    let mut buffers = vec![];
    for array in arrays {
        if array.role == Role::Temporary {
            buffers.push((None, None));
            continue;
        }
        let mut place = |place: BufferPlace| {
            let (name, dtype, shape) = (array.name.clone(), array.dtype, array.shape.clone());
            module.buffers.push(Buffer { name, dtype, shape, place });
            BufferRef(module.buffers.len() as u32 - 1)
        };
        if array.role == Role::Check {
            let name = checked_dimension(arrays, array);
            buffers.push((None, Some(in_arena(&mut module, &name, array.dtype, array.shape.clone())?)));
            continue;
        }
        let input = array.role.is_given().then(|| place(BufferPlace::Input(module.inputs.len() as u32)));
        let output = array.role.is_written().then(|| place(BufferPlace::Output(module.outputs.len() as u32)));
        if input.is_some() {
            module.inputs.push(spec(array));
        }
        if let Some(source) = output {
            module.outputs.push(OutputSpec { tensor: spec(array), source });
        }
        buffers.push((input, output));
    }
    let step = |name: String, action| Step { name, flops: 0, action };
    for range in &compiled.index_ranges {
        let array = range.tensor.0 as usize;
        let Some((Some(tensor), None)) = buffers.get(array) else {
            return Err(Error::Internal(format!(
                "`{}` takes subscripts from a tensor that is not an input",
                compiled.name
            )));
        };
        let (offset, stride, lower, upper) = (range.offset, range.stride, range.lower, range.upper);
        let action = Action::CheckIndices { tensor: *tensor, offset, stride, lower, upper };
        module.steps.push(step(format!("check {}", arrays[array].name), action));
    }
    for (array, buffers) in arrays.iter().zip(&buffers) {
        if let (Some(from), Some(to)) = *buffers {
            module.steps.push(step(format!("copy {}", array.name), Action::Copy { from, to }));
        }
    }
    let mut arguments = vec![];
    for argument in &compiled.arguments {
        arguments.push(match argument {
            Argument::Tensor(id) => match buffers.get(id.0 as usize) {
                Some((_, Some(output))) => *output,
                Some((Some(input), None)) => *input,
                _ => {
                    return Err(Error::Internal(format!("`{}` takes a temporary array as an argument", compiled.name)));
                }
            },
            Argument::Packed { .. } => {
                return Err(Error::Internal(format!("`{}` packs an operand that is not constant", compiled.name)));
            }
            Argument::Workspace { bytes } => in_arena(&mut module, "workspace", DType::U8, vec![*bytes as i64])?,
        });
    }
    let action = Action::Kernel { kernel: 0, arguments };
    module.steps.push(Step { name: compiled.name.clone(), flops: compiled.flops, action });
    for (array, buffers) in arrays.iter().zip(&buffers).filter(|(array, _)| array.role == Role::Check) {
        let tensor = buffers.1.ok_or_else(|| Error::Internal(format!("`{}` has no memory", array.name)))?;
        for &ElementRange { offset, stride, lower, upper } in &array.ranges {
            let action = Action::CheckIndices { tensor, offset, stride, lower, upper };
            module.steps.push(step(format!("check {}", checked_dimension(arrays, array)), action));
        }
    }
    Ok(module)
}

/// A buffer of its own in the arena.
fn in_arena(module: &mut ModuleParts, name: &str, dtype: DType, shape: Vec<i64>) -> Result<BufferRef> {
    let buffer = Buffer { name: name.into(), dtype, shape, place: BufferPlace::Arena(module.arena_bytes) };
    module.arena_bytes += buffer.bytes()?.next_multiple_of(crate::runtime::arena::ALIGNMENT);
    module.buffers.push(buffer);
    Ok(BufferRef(module.buffers.len() as u32 - 1))
}

impl File {
    /// Applies `schedule` to a program and proves the order; `tensorize` takes instructions of `target`.
    ///
    /// # Errors
    /// `Schedule` when a primitive is refused.
    #[doc(hidden)]
    pub fn schedule(&self, lowered: &LoweredProgram, schedule: &Schedule, target: &Target) -> Result<Proven> {
        let normal = || lowered.normal();
        let original = SourceProgram { written: self.written(lowered)?, normal: &normal, target };
        words::apply(&self.source, &original, schedule)
    }
}
