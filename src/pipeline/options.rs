//! How to compile and run: one set of options from the library's user to the last stage.

use crate::codegen::Target;
use crate::codegen::calibration::Calibration;
use crate::codegen::instruction::TensorInstruction;
use crate::graph::import::limits::ImportLimits;
use crate::graph::import::model::Binding;
use crate::language;
use crate::runtime::pool::Pool;
use crate::runtime::{text, threads};
use crate::{Error, Result, Tensor};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

pub use crate::codegen::target::{Accumulate, Quotients};
pub use crate::graph::egraph::EgraphOptions;
pub use crate::graph::rules::algorithm::Algorithm;
pub use crate::graph::rules::precision::Precision;

/// The default of [`Options::max_error`].
pub const DEFAULT_MAX_ERROR: f64 = 1e-4;

/// Target, threads and limits of compiling and running.
#[derive(Clone, Debug)]
pub struct Options {
    /// Processor to compile for; `None` is the best target of this processor, with the features of those of
    /// [`Options::instructions`] that it has.
    pub target: Option<Target>,
    /// Tensor instructions beside the built-in ones, as [`instructions::parse`](crate::instructions::parse) reads them; those whose
    /// features the target lacks are not used. Where this processor has them, check that they do what they say with
    /// [`TensorInstruction::check_on_host`].
    pub instructions: Arc<[TensorInstruction]>,
    /// Constants of cost of one processor, in place of the target's table; where no target is named, it is theirs. Where neither is
    /// named, loop programs have those of this processor's core, where they are known ([`Calibration::cores`]).
    pub machine: Option<Calibration>,
    /// Threads of one run, [`MAX_THREADS`](crate::runtime::threads::MAX_THREADS) at most.
    pub threads: usize,
    /// Threads that compile; the result does not depend on it.
    pub compile_threads: usize,
    /// Threads that other models use too; `None` starts `threads` of its own.
    pub pool: Option<Arc<Pool>>,
    /// Sizes of dynamic dimensions. Those that are not named here are bound by the inputs of each run.
    pub dims: BTreeMap<String, i64>,
    /// Values of inputs that decide shapes, such as axes or sizes: they are constants of what is compiled. Those that are
    /// not named here are bound by the inputs of each run.
    pub values: BTreeMap<String, Arc<Tensor>>,
    /// Dynamic dimensions of a network that grow from run to run, such as a decoder's past: they are compiled for capacities in
    /// powers of two, and their sizes come at run time. The first is counted, the others have a fixed distance from it. In
    /// [`Model::compile_module`](crate::Model::compile_module) the first one's size in `dims` is the capacity.
    pub growing: Vec<String>,
    /// How the convolutions of a network are computed; other than [`Algorithm::Cheapest`] to compare and to measure.
    pub algorithm: Algorithm,
    /// Largest bound of the error of a fast algorithm, relative to the largest output that inputs of the same size can have
    /// (`max|x| · Σ|w|`), from 0 to 1; 0 keeps direct convolution only. Rounding errors are taken as independent: where the
    /// channels of a layer have equal products they may be `5·√channels` times as large.
    pub max_error: f64,
    /// Operands of the products and convolutions that a network has in f32: rounded to 16 bits, with sums in f32, they take half
    /// the memory. Weights are rounded once, when they are compiled. It is right on every target; one without instructions on
    /// 16 bits widens them.
    pub precision: Precision,
    /// Sums of products of f16 that a network has in f32, by [`Options::precision`] or since its file stores f16. In f16 a
    /// vector has twice as many, where the processor adds in f16, and their error is that of f16. A target that does not is refused.
    pub accumulate: Accumulate,
    /// How quotients and square roots of f32 are computed. [`Quotients::Approximate`] takes less time, and its bits depend on the
    /// processor's estimates.
    pub quotients: Quotients,
    /// Effort and rules of the rewriting.
    pub egraph: EgraphOptions,
    /// Memory and effort that the compilation may use.
    pub limits: Limits,
    /// Modules on disk that were compiled before; `None` compiles always.
    pub cache: Option<CacheOptions>,
    /// The report has the price of the loops of each kernel, also where the planner had no choice; pricing takes a few hundredths
    /// of the time of compiling.
    pub prices: bool,
}

/// Modules on disk, by all that decides their bytes: what is compiled again for the same options is read from there.
///
/// The key of a module is a hash of the model's file and its external data (or of the graph or the program), of the sizes and
/// values that are bound, of target and options, and of this compiler. The directory is made for this user alone; it is refused
/// where others own it or may write to it, since a module is a program. Any number of processes may use it at once. What cannot
/// be read is compiled; what cannot be written is a warning in [`Report::warnings`](crate::Report::warnings). Nothing is kept of a model
/// whose files changed after it was loaded. Of a [`Compiled`](crate::Compiled) every binding is kept, and every capacity ([`Options::growing`]);
/// those that are read share equal constants in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Directory of the cache, which is made where there is none.
    pub directory: PathBuf,
    /// Largest size of all its modules together, in bytes: those that were not used for longest are removed for new ones.
    pub max_bytes: u64,
}

impl CacheOptions {
    /// A cache of 10 GiB at most.
    pub fn new(directory: impl Into<PathBuf>) -> CacheOptions {
        CacheOptions { directory: directory.into(), max_bytes: 10 << 30 }
    }
}

impl Default for Options {
    /// This processor's best target, one thread for each of its cores, dynamic dimensions from the inputs.
    fn default() -> Options {
        let threads = threads::cores();
        Options {
            target: None,
            instructions: Arc::default(),
            machine: None,
            threads,
            compile_threads: threads,
            pool: None,
            dims: BTreeMap::new(),
            values: BTreeMap::new(),
            growing: vec![],
            algorithm: Algorithm::Cheapest,
            max_error: DEFAULT_MAX_ERROR,
            precision: Precision::F32,
            accumulate: Accumulate::F32,
            quotients: Quotients::Exact,
            egraph: EgraphOptions::default(),
            limits: Limits::default(),
            cache: None,
            prices: false,
        }
    }
}

impl Options {
    /// The sizes, values and limits that a network is read with.
    pub(crate) fn binding(&self) -> Binding {
        Binding { dims: self.dims.clone(), values: self.values.clone(), growing: None, limits: self.limits.import() }
    }

    /// The target, or this processor's best one, with the constants of [`Options::machine`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] where none is named and this processor runs none of the targets, or sums in f16 are asked for and the
    /// target has no instruction for them; [`Error::Invalid`] where the constants belong to another one or are not plausible.
    pub fn target(&self) -> Result<Target> {
        let named = || self.machine.as_ref().and_then(|m| Target::by_name(&m.target).ok());
        let target = self.target.clone().or_else(named).or_else(Target::host).ok_or_else(|| {
            let names: Vec<String> = Target::all().into_iter().map(|t| t.name).collect();
            Error::Unsupported(format!("this processor runs none of the targets {}", names.join(", ")))
        })?;
        let target = match &self.machine {
            Some(constants) => constants.apply(target)?,
            None if self.target.is_none() => target.with_host_features_of(&self.instructions),
            None => target,
        };
        let target = Target { quotients: self.quotients, accumulate: self.accumulate, ..target };
        let target =
            target.with_instructions(language::instruction::built_in()?.iter().chain(self.instructions.iter()));
        if self.accumulate == Accumulate::F16 && !target.sums_halves() {
            return Err(Error::Unsupported(format!(
                "target {} has no instruction that sums products of f16 in f16 (`--accumulate f16`, `Options::accumulate`): \
                 processors with avx512fp16 or fp16 have, as in x86-64-avx512-vnni+avx512fp16 and aarch64-neon+fp16",
                target.name
            )));
        }
        Ok(target)
    }

    /// A sentence for each tensor instruction of the options that `target` does not run.
    pub(crate) fn unused_instructions(&self, target: &Target) -> Vec<String> {
        let misfits = self.instructions.iter().filter_map(|row| target.misfit(row));
        misfits.map(|why| format!("an instruction is not used: {why}")).collect()
    }
}

/// Memory and work that compiling and running may take; beyond a limit they end with [`Error::Limit`], which says the amount
/// and what raises it. What is counted are tensors and code, not the compiler's own structures. By default no small file
/// takes more than about 2 GiB, unless its weights need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one tensor.
    pub tensor_bytes: u64,
    /// Bytes of all intermediate tensors that live at once.
    pub arena_bytes: u64,
    /// Bytes of scratch memory of all threads together: the arrays that each iteration of a parallel loop has for itself.
    pub scratch_bytes: u64,
    /// Bytes of all inputs, outputs and intermediate tensors of a run together; of a run in parts also of all values that are held
    /// between them, sequences with what each of their values takes beside its elements.
    pub run_bytes: u64,
    /// Bytes of a module's weights.
    pub weights_bytes: u64,
    /// Bytes of machine code.
    pub code_bytes: u64,
    /// Bytes of constants that are computed while a network is read, on top of four times its weights.
    pub constant_bytes: u64,
    /// Element operations that computing these constants takes.
    pub constant_work: u64,
    /// Nodes of a network; of graphs inside of its nodes those that are written out, each time of a loop counted.
    pub nodes: usize,
    /// Steps of a loop that the host runs, since it depends on data.
    pub steps: i64,
    /// Compiled bindings of the dynamic dimensions that are kept; the least recently used one is dropped.
    pub bindings: usize,
    /// Bytes of all of these bindings, those of constants that several share once; the least recently used ones are dropped,
    /// the newest is kept. `None` for what the largest of them needs, and a quarter of it, and 16 MiB.
    pub binding_bytes: Option<u64>,
}

impl Default for Limits {
    fn default() -> Limits {
        let import = ImportLimits::default();
        Limits {
            tensor_bytes: 2 << 30,
            arena_bytes: 2 << 30,
            scratch_bytes: 1 << 30,
            run_bytes: 2 << 30,
            weights_bytes: 1 << 40,
            code_bytes: 256 << 20,
            constant_bytes: import.constant_bytes,
            constant_work: import.constant_work,
            nodes: import.nodes,
            steps: 1 << 20,
            bindings: 1024,
            binding_bytes: None,
        }
    }
}

impl Limits {
    /// Limits for programs that may use `bytes`: no tensor, all weights or run takes more than that. Numbers of
    /// bytes above the defaults raise them; the work stays limited.
    pub fn within(bytes: u64) -> Limits {
        let usual = Limits::default();
        Limits {
            tensor_bytes: bytes,
            arena_bytes: bytes,
            scratch_bytes: bytes,
            run_bytes: bytes,
            weights_bytes: bytes,
            code_bytes: usual.code_bytes.min(bytes),
            constant_bytes: bytes,
            ..usual
        }
    }

    /// The limits of reading a network.
    pub(crate) fn import(&self) -> ImportLimits {
        let Limits { constant_bytes, constant_work, nodes, .. } = *self;
        ImportLimits { constant_bytes, constant_work, nodes }
    }

    /// Refuses a run that needs more bytes than [`Limits::run_bytes`]; `what`: a subject and "needs".
    pub(crate) fn check_run(&self, bytes: u64, what: impl FnOnce() -> String) -> Result<()> {
        exceeds(bytes, self.run_bytes, what, "run_bytes")
    }
}

/// Fails where `bytes` are more than `allowed`; `what`: a subject with its verb, `field` the limit that raises it.
pub(crate) fn exceeds(bytes: u64, allowed: u64, what: impl FnOnce() -> String, field: &str) -> Result<()> {
    if bytes <= allowed {
        return Ok(());
    }
    let (what, bytes, allowed) = (what(), text::bytes(bytes), text::bytes(allowed));
    Err(Error::Limit(format!("{what} {bytes}, {allowed} are allowed (`--max-memory`, `Limits::{field}`)")))
}
