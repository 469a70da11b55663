//! How to compile and run: one set of options from the library's user to the last stage.

use crate::codegen::Target;
use crate::runtime::pool::Pool;
use crate::{Error, Result, Tensor};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

pub use crate::graph::egraph::EgraphOptions;
pub use crate::graph::rules::algorithm::Algorithm;

/// The default of [`Options::max_error`].
pub const DEFAULT_MAX_ERROR: f64 = 1e-4;

/// Target, threads and limits of compiling and running.
#[derive(Clone, Debug)]
pub struct Options {
    /// Processor to compile for; `None` is the best target of this processor.
    pub target: Option<Target>,
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
    /// How the convolutions of a network are computed; other than [`Algorithm::Cheapest`] to compare and to measure.
    pub algorithm: Algorithm,
    /// Largest bound of the error of a fast algorithm, relative to the largest output that inputs of the same size can have
    /// (`max|x| · Σ|w|`), from 0 to 1; 0 keeps direct convolution only. Rounding errors are taken as independent: where the
    /// channels of a layer have equal products they may be `5·√channels` times as large.
    pub max_error: f64,
    /// Effort and rules of the rewriting.
    pub egraph: EgraphOptions,
    /// Memory and effort that the compilation may use.
    pub limits: Limits,
    /// Modules on disk that were compiled before; `None` compiles always.
    pub cache: Option<CacheOptions>,
}

/// Modules on disk, by all that decides their bytes: what is compiled again for the same options is read from there.
///
/// The key of a module is a hash of the model's file and its external data (or of the graph or the program), of the sizes and
/// values that are bound, of target and options, and of this compiler. The directory is made for this user alone; it is refused
/// where others own it or may write to it, since a module is a program. Any number of processes may use it at once. What cannot
/// be read or written is compiled, with a warning in [`Report::warnings`](crate::Report::warnings). Nothing is kept of a model
/// whose files changed after it was loaded.
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
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            target: None,
            threads,
            compile_threads: threads,
            pool: None,
            dims: BTreeMap::new(),
            values: BTreeMap::new(),
            algorithm: Algorithm::Cheapest,
            max_error: DEFAULT_MAX_ERROR,
            egraph: EgraphOptions::default(),
            limits: Limits::default(),
            cache: None,
        }
    }
}

impl Options {
    /// The target, or this processor's best one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where none is named and this processor runs none of the targets.
    pub fn target(&self) -> Result<Target> {
        self.target.clone().or_else(Target::host).ok_or_else(|| {
            let names: Vec<String> = Target::all().into_iter().map(|t| t.name).collect();
            Error::Unsupported(format!("this processor runs none of the targets {}", names.join(", ")))
        })
    }
}

/// Memory that a compilation may use; beyond it ends with [`Error::Limit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one tensor.
    pub tensor_bytes: u64,
    /// Bytes of all intermediate tensors that live at once.
    pub arena_bytes: u64,
    /// Bytes of scratch memory of all threads together: the arrays that each iteration of a parallel loop has for itself.
    pub scratch_bytes: u64,
    /// Compiled bindings of the dynamic dimensions that are kept; the least recently used one is dropped.
    pub bindings: usize,
    /// Bytes of all of these bindings, those of constants that several share once; the least recently used ones are dropped,
    /// the newest is kept. `None` for what the largest of them needs, and a quarter of it, and 16 MiB.
    pub binding_bytes: Option<u64>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            tensor_bytes: 4 << 30,
            arena_bytes: 8 << 30,
            scratch_bytes: 2 << 30,
            bindings: 1024,
            binding_bytes: None,
        }
    }
}

impl Limits {
    /// The defaults, none of them above `bytes`.
    pub fn within(bytes: u64) -> Limits {
        let all = Limits::default();
        Limits {
            tensor_bytes: all.tensor_bytes.min(bytes),
            arena_bytes: all.arena_bytes.min(bytes),
            scratch_bytes: all.scratch_bytes.min(bytes),
            ..all
        }
    }
}
