//! The whole way, stage by stage.
//!
//! In: a graph with every shape known. Out: a module and a report. Invariant: the same graph, target and options give the
//! same bytes; threads only divide the work.

pub mod kernel;
mod laps;
mod link;
pub mod linkable;
mod options;
pub mod program;
pub mod report;
pub mod sharing;
mod steps;
mod unit;
pub mod words;

use crate::codegen::Target;
use crate::graph::fusion;
use crate::graph::ir::Graph;
use crate::language::source::Source;
use crate::language::syntax::File;
use crate::pipeline::kernel::{CompiledKernel, Statements};
use crate::pipeline::laps::Times;
use crate::pipeline::link::link;
use crate::pipeline::linkable::{KernelStore, LinkableKernel};
use crate::pipeline::options::exceeds;
use crate::pipeline::report::Report;
use crate::pipeline::sharing::Sharing;
use crate::pipeline::steps::add_steps;
use crate::pipeline::unit::{Programs, Unit, Work, check_sizes, rewrite};
use crate::poly::statement::Program;
use crate::poly::transform::primitive::Schedule;
use crate::runtime::error::unknown;
use crate::runtime::module::{Action, Module, ModuleParts, TensorSpec};
use crate::runtime::text;
use crate::runtime::threads;
use crate::{Error, Result};
use std::sync::Arc;
use std::time::Instant;

pub use crate::pipeline::kernel::Stage;
pub use crate::pipeline::options::{
    Accumulate, Algorithm, CacheOptions, DEFAULT_MAX_ERROR, EgraphOptions, Limits, Options, Precision, Quotients,
};

/// Which order the statements of a kernel run in.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Order<'a> {
    /// As the ILP finds it.
    Ilp,
    /// As they are written: what schedules are compared with.
    Untransformed,
    /// A program by this schedule, which stands in this text.
    ByHand(&'a Schedule, &'a Source),
    /// The kernels of a network by the schedules of this file that name them, the others as the ILP finds it.
    Kernels(&'a File),
}

/// A module, its report and its kernels.
pub struct Compilation {
    pub module: Module,
    pub report: Report,
    /// The distinct kernels, by the numbers that the report has for them; none where some of them come from a store.
    pub kernels: Vec<Arc<CompiledKernel>>,
}

/// Compiles a graph.
///
/// # Errors
/// `Invalid` where the graph is not well formed or a rule is unknown; `Limit` where the memory exceeds the limits;
/// `Unsupported` where a subscript from data cannot be checked.
pub fn compile(source: &Graph, order: Order, options: &Options) -> Result<Compilation> {
    compile_sharing(source, order, options, &Sharing::default(), None)
}

/// As [`compile`]; what `sharing` has of the model's constants is not made again, nor are the kernels that `store` has.
///
/// # Errors
/// As [`compile`].
pub fn compile_sharing(
    source: &Graph,
    order: Order,
    options: &Options,
    sharing: &Sharing,
    store: Option<&dyn KernelStore>,
) -> Result<Compilation> {
    let (start, target) = (Instant::now(), options.target()?);
    let mut clock = Clock::default();
    clock.time("verify", || source.verify())?;
    check_graph(source, &options.limits)?;
    let optimized = clock.time("rewrite", || rewrite(source, &target, options, sharing.folded()))?;
    let rewriting = optimized.report.clone();
    let groups = clock.time("fuse", || fusion::fuse(&optimized.graph, &optimized.placements))?;
    let mut programs = Programs::new(sharing);
    let unit = clock.time("tensor expressions", || Unit::new(optimized, groups, &target, options, &mut programs, 0))?;
    check_order(&programs.list, order)?;
    // Schedules by hand name kernels; prices are of loops that a store does not have.
    let store = store.filter(|_| order == Order::Ilp && !options.prices);
    let compiled = clock.time("kernels", || compile_kernels(&programs.list, order, &target, options, store))?;
    clock.add_laps(Times::sum(compiled.iter().filter_map(|(_, kernel)| Some(kernel.as_ref()?.times))));
    let cached_kernels = compiled.iter().filter(|(_, kernel)| kernel.is_none()).count();
    let (linkable, kernels): (Vec<LinkableKernel>, Vec<Option<Arc<CompiledKernel>>>) = compiled.into_iter().unzip();
    let kernels = kernels.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default();
    let mut steps = Report::default();
    add_steps(&mut steps, source, &unit, &linkable);
    let mut parts = clock.time("link", || link(unit, &linkable, options.compile_threads, sharing))?;
    parts.name = source.name.clone();
    let module = clock.time("verify module", || finish(parts, &target))?;
    check_memory(&module, 1, &options.limits)?;
    let report = Report {
        stages: clock.stages,
        compile_ms: start.elapsed().as_secs_f64() * 1e3,
        rewriting: Some(rewriting),
        kernels: steps.kernels,
        control: steps.control,
        folded: steps.folded,
        aliases: steps.aliases,
        cached_kernels,
        warnings: options.unused_instructions(&target),
        ..Report::of_module(&source.name, &module)
    };
    Ok(Compilation { module, report, kernels })
}

/// Prints one stage, of all kernels or of those whose name contains `filter`. Later stages are not run.
///
/// # Errors
/// Those of [`compile`]; `Invalid` where a network has no such stage or no kernel has such a name.
pub fn explain(source: &Graph, order: Order, options: &Options, stage: Stage, filter: Option<&str>) -> Result<String> {
    source.verify()?;
    let target = options.target()?;
    if stage == Stage::C {
        return Err(Error::Invalid(format!(
            "`{}` is a network: only programs of the text language print as C",
            source.name
        )));
    }
    if stage == Stage::Graph {
        return Ok(source.to_string());
    }
    let sharing = Sharing::default();
    let optimized = rewrite(source, &target, options, sharing.folded())?;
    let groups = fusion::fuse(&optimized.graph, &optimized.placements)?;
    let mut programs = Programs::new(&sharing);
    let unit = Unit::new(optimized, groups, &target, options, &mut programs, 0)?;
    if stage == Stage::Rewritten {
        return Ok(rewritten(&unit));
    }
    let programs = programs.list;
    check_order(&programs, order)?;
    let mut text = String::new();
    for (name, program) in &programs {
        if filter.is_some_and(|f| !name.contains(f)) {
            continue;
        }
        let explained = statements(name, program, order, &target).and_then(|statements| match stage {
            Stage::Scop => Ok(statements.scop().to_string()),
            Stage::Schedule | Stage::Candidates => {
                let by_hand = match order {
                    Order::Kernels(file) => file.schedules.iter().find(|s| *s.program == *name),
                    _ => None,
                };
                words::of_kernel(&kernel::compile(statements, &target)?, name, stage, by_hand, &target)
            }
            _ => kernel::compile(statements, &target)?.text(stage, target.isa),
        });
        text.push_str(&format!("# {name}\n{}\n", explained.map_err(|e| in_kernel(name, e))?));
    }
    if let (true, Some(wanted)) = (text.is_empty(), filter) {
        let names: Vec<&str> = programs.iter().map(|p| p.0.as_str()).collect();
        return Err(Error::Invalid(unknown("kernel", wanted, &names)));
    }
    Ok(match stage {
        _ if !text.is_empty() => text,
        Stage::Schedule | Stage::Candidates => words::comment("no kernels"),
        _ => "no kernels\n".into(),
    })
}

/// The module of linked parts, for `target`.
fn finish(parts: ModuleParts, target: &Target) -> Result<Module> {
    let parts = ModuleParts { target: target.name.clone(), platform: target.platform(), ..parts };
    // SAFETY: the code was assembled for this target from loop nests that were verified, and `link` declares for each
    // argument the bytes that its loop nest spans.
    unsafe { Module::new(parts) }
}

/// Checks the memory of a module and of its runs on `threads` threads.
///
/// # Errors
/// `Limit` where it exceeds the limits.
pub fn check_memory(module: &Module, threads: usize, limits: &Limits) -> Result<()> {
    exceeds(module.arena_bytes(), limits.arena_bytes, || "intermediate tensors need".into(), "arena_bytes")?;
    exceeds(module.code().len() as u64, limits.code_bytes, || "the machine code needs".into(), "code_bytes")?;
    exceeds(module.weights().len(), limits.weights_bytes, || "the weights need".into(), "weights_bytes")?;
    let tensors = module.inputs().iter().chain(module.outputs().iter().map(|o| &o.tensor));
    let bytes = tensors.map(TensorSpec::bytes).try_fold(module.arena_bytes(), |n, b| Ok(n.saturating_add(b?)))?;
    limits.check_run(bytes, || "inputs, outputs and intermediate tensors need".into())?;
    check_scratch(module, threads, limits)
}

/// Refuses what is too large before any work is done for it.
///
/// # Errors
/// `Limit` with the amount and what is allowed.
pub fn check_graph(graph: &Graph, limits: &Limits) -> Result<()> {
    check_sizes(graph, limits.tensor_bytes)?;
    if graph.nodes.len() > limits.nodes {
        let (count, most) = (graph.nodes.len(), limits.nodes);
        return Err(Error::Limit(format!("the network has {count} nodes, {most} are allowed (`Limits::nodes`)")));
    }
    let ends = graph.inputs.iter().chain(&graph.outputs);
    let bytes = ends.fold(0u64, |n, &v| n.saturating_add(graph.value(v).ty.bytes() as u64));
    limits.check_run(bytes, || "inputs and outputs need".into())
}

/// Checks the scratch memory of `threads` threads.
///
/// # Errors
/// `Limit` where it exceeds the limits.
pub fn check_scratch(module: &Module, threads: usize, limits: &Limits) -> Result<()> {
    let each = module.scratch_bytes();
    if each.checked_mul(threads.max(1) as u64).is_none_or(|bytes| bytes > limits.scratch_bytes) {
        let (each, allowed) = (text::bytes(each), text::bytes(limits.scratch_bytes));
        return Err(Error::Limit(format!(
            "scratch memory of {each} for each thread, of {threads}, is more than the {allowed} that are allowed \
             (`--max-memory`, `Limits::scratch_bytes`)"
        )));
    }
    Ok(())
}

/// The rewritten graph and its groups, and those of the graphs inside of its operators.
fn rewritten(unit: &Unit) -> String {
    let mut text = format!("{}\ngroups:\n{}", unit.graph, fusion::describe(&unit.graph, &unit.groups));
    for work in &unit.work {
        if let Work::Nested(node, inside) = work {
            let name = &unit.graph.nodes[*node as usize].name;
            inside.iter().for_each(|n| text.push_str(&format!("\ninside of {name}:\n{}", rewritten(&n.unit))));
        }
    }
    text
}

/// Refuses an order that names kernels that there are not.
fn check_order(programs: &[(String, Program)], order: Order) -> Result<()> {
    let Order::Kernels(file) = order else { return Ok(()) };
    words::check_names(file, &programs.iter().map(|p| p.0.as_str()).collect::<Vec<_>>())
}

/// The statements of a kernel, in the order that is asked for.
fn statements(name: &str, program: &Program, order: Order, target: &Target) -> Result<Statements> {
    match order {
        Order::Ilp => Statements::of_expression(name, program),
        Order::Untransformed => Statements::untransformed(name, program),
        Order::Kernels(file) => words::statements(file, name, program, target),
        Order::ByHand(..) => Err(Error::Internal("a schedule by hand for a network".into())),
    }
}

/// Compiles every program, several at a time, but for those that the store has, which have no stages.
fn compile_kernels(
    programs: &[(String, Program)],
    order: Order,
    target: &Target,
    options: &Options,
    store: Option<&dyn KernelStore>,
) -> Result<Vec<(LinkableKernel, Option<Arc<CompiledKernel>>)>> {
    let compile = |(name, program): &(String, Program)| {
        if let Some(kernel) = store.and_then(|store| store.find(program)) {
            return Ok((kernel.named(name), None));
        }
        let compiled =
            statements(name, program, order, target).and_then(|statements| kernel::compile(statements, target));
        let compiled = compiled.map_err(|e| in_kernel(name, e))?;
        Ok((LinkableKernel::new(&compiled, options.prices.then_some(target)), Some(Arc::new(compiled))))
    };
    let kernels = threads::map(programs, options.compile_threads, compile).into_iter().collect::<Result<Vec<_>>>()?;
    if let Some(store) = store {
        let new = programs.iter().zip(&kernels).filter(|(_, (_, compiled))| compiled.is_some());
        store.keep(&new.map(|((_, program), (kernel, _))| (program, kernel)).collect::<Vec<_>>());
    }
    Ok(kernels)
}

/// Names the kernel in an error.
fn in_kernel(name: &str, error: Error) -> Error {
    error.context(&format!("kernel `{name}`"))
}

/// Adds times measured on `threads` threads, one for each step of the module, to the kernels, loops and branches of the
/// report, which are in the order of the steps.
pub fn add_measurements(report: &mut Report, module: &Module, times: &[std::time::Duration], threads: usize) {
    report.measured_threads = threads;
    let (mut kernels, mut control) = (report.kernels.iter_mut(), report.control.iter_mut());
    for ((step, _), time) in module.all_steps().into_iter().zip(times) {
        let measured = match step.action {
            Action::Kernel { .. } | Action::Opaque { .. } => kernels.next().map(|kernel| &mut kernel.measured_us),
            Action::Loop { .. } | Action::If { .. } => control.next().map(|control| &mut control.measured_us),
            Action::Copy { .. } | Action::CheckIndices { .. } => None,
        };
        if let Some(measured) = measured {
            *measured = Some(time.as_secs_f64() * 1e6);
        }
    }
}

/// Times stages.
#[derive(Default)]
struct Clock {
    stages: Vec<(String, f64)>,
}

impl Clock {
    fn time<T>(&mut self, stage: &str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.stages.push((stage.into(), start.elapsed().as_secs_f64() * 1e3));
        result
    }

    /// Adds the parts of the stage before.
    fn add_laps(&mut self, times: Times) {
        self.stages.extend(times.named().map(|(lap, ms)| (format!("  {lap}"), ms)));
    }
}
