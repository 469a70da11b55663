//! Module: a compiled model. Machine code, memory plan, steps and packed weights; built by the pipeline, or read from a
//! `.tw` file (see `format`).
//!
//! Invariant: a module that [`Module::verify`] accepts makes no step touch memory outside of its buffers, as far as data
//! can say. That the code keeps to the declared bytes of its argument slots follows from where the module comes from: only
//! the compiler makes modules, and [`Module::load`] is `unsafe` because its caller vouches for the file. No field can be
//! changed from outside of the crate.

mod format;
mod in_place;
mod layout;
mod share;
mod verify;
mod weights;

use crate::bounds::Bounds;
use crate::{DType, Error, Platform, Result, Tensor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

pub use format::FORMAT_VERSION;
#[doc(hidden)]
pub use layout::Layout;
pub use weights::{WEIGHTS_ALIGNMENT, WeakWeightRange, WeightRange, Weights};

/// A compiled model. [`Module::save`] writes it to a file, [`Module::load`] reads it; a
/// [`Session`](crate::Session) runs it.
///
/// ```
/// use tilewright_runtime::{Module, Session, Tensor};
/// # use tilewright_runtime::{DType, Platform, module::*};
/// # let spec = |name: &str| TensorSpec { name: name.into(), dtype: DType::F32, shape: vec![3] };
/// # let buffer = Buffer { name: "x".into(), dtype: DType::F32, shape: vec![3], place: BufferPlace::Input(0) };
/// # let parts = ModuleParts {
/// #     platform: Platform::host(),
/// #     inputs: vec![spec("x")],
/// #     outputs: vec![OutputSpec { tensor: spec("y"), source: BufferRef(0) }],
/// #     buffers: vec![buffer],
/// #     ..ModuleParts::default()
/// # };
/// # let path = std::env::temp_dir().join(format!("tilewright-module-{}.tw", std::process::id()));
/// # // SAFETY: there is no code.
/// # unsafe { Module::new(parts) }?.save(&path)?;
///
/// // SAFETY: the compiler wrote this file, and nobody changes it while it is in use.
/// let module = unsafe { Module::load(&path) }?;
/// assert_eq!((&*module.inputs()[0].name, &module.inputs()[0].shape[..]), ("x", &[3][..]));
/// let session = Session::new(module.into(), 1)?;
/// let outputs = session.run(&[("x", &Tensor::new(&[3], &[1f32, 2.0, 3.0]))])?;
/// assert_eq!(outputs[0].to_vec::<f32>(), [1.0, 2.0, 3.0]);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), tilewright_runtime::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Module(pub(crate) ModuleParts);

/// The contents of a module, as a compiler puts them together. [`Module::new`] makes a module of them.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ModuleParts {
    /// Name of the model.
    pub name: String,
    /// Name of the target that it was compiled for.
    pub target: String,
    /// Requirements of the code.
    pub platform: Platform,
    /// Position-independent machine code of all kernels.
    pub code: Vec<u8>,
    /// Machine code that steps call, by number.
    pub kernels: Vec<Kernel>,
    /// Memory that steps name, by number.
    pub buffers: Vec<Buffer>,
    /// Bytes of memory for intermediate tensors.
    pub arena_bytes: u64,
    /// Steps of a run, in order.
    pub steps: Vec<Step>,
    /// Inputs in the model's order.
    pub inputs: Vec<TensorSpec>,
    /// Outputs in the model's order.
    pub outputs: Vec<OutputSpec>,
    /// Sizes of the model's dynamic dimensions, by their symbols.
    pub dims: BTreeMap<String, i64>,
    /// Values of inputs that decided shapes: the module is for these only.
    pub values: BTreeMap<String, Tensor>,
    /// Capacities of dimensions that grow; `None` where all sizes are exact.
    pub bounds: Option<Bounds>,
    /// Key and value strings that the model file carries.
    pub metadata: BTreeMap<String, String>,
    /// Computes the values of inputs that are not given: its outputs have their names. It has neither inputs, nor weights,
    /// nor initial values of its own.
    pub initial: Option<Arc<Module>>,
    /// Modules of this model for other sizes of its dynamic dimensions; none of these has further ones or initial values.
    pub others: Vec<Arc<Module>>,
    /// Constants, packed where a kernel wants them packed.
    pub weights: Weights,
}

impl Module {
    /// A module of its parts.
    ///
    /// # Errors
    /// [`Error::Internal`] where an index, an offset or a length does not lie where it must ([`Module::verify`]).
    ///
    /// # Safety
    /// Sessions run `parts.code`: it must be machine code for `parts.platform` that follows the calling convention of
    /// kernels and keeps to the declared bytes of its argument slots and scratch memory.
    pub unsafe fn new(parts: ModuleParts) -> Result<Module> {
        let module = Module(parts);
        module.verify().map_err(|e| Error::Internal(e.to_string()))?;
        Ok(module)
    }

    /// Records sizes of the model's dynamic dimensions, by their symbols.
    pub fn with_dims(mut self, dims: BTreeMap<String, i64>) -> Module {
        self.0.dims = dims;
        self
    }

    /// Adds modules of the same model for other sizes of its dynamic dimensions. A session runs the one that fits its inputs, and
    /// one file holds all, with the constants that they share once.
    ///
    /// # Errors
    /// [`Error::Invalid`] where two have equal sizes, the models or targets differ, or one has initial values or bindings of its
    /// own.
    pub fn with_bindings(mut self, others: Vec<Arc<Module>>) -> Result<Module> {
        self.0.others.extend(others);
        self.verify()?;
        Ok(self)
    }

    /// Records the values of inputs that decided shapes; runs on others are refused.
    pub fn with_values(mut self, values: BTreeMap<String, Tensor>) -> Module {
        self.0.values = values;
        self
    }

    /// Records the capacities of dimensions that grow.
    ///
    /// # Errors
    /// [`Error::Internal`] where they do not fit the inputs and outputs.
    pub fn with_bounds(mut self, bounds: Option<Bounds>) -> Result<Module> {
        self.0.bounds = bounds;
        self.verify().map_err(|e| Error::Internal(e.to_string()))?;
        Ok(self)
    }

    /// Records key and value strings of the model's file.
    pub fn with_metadata(mut self, metadata: BTreeMap<String, String>) -> Module {
        self.0.metadata = metadata;
        self
    }
}

impl Module {
    /// Name of the model.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Name of the target that it was compiled for.
    pub fn target(&self) -> &str {
        &self.0.target
    }

    /// Requirements of the code.
    pub fn platform(&self) -> &Platform {
        &self.0.platform
    }

    /// Position-independent machine code of all kernels.
    pub fn code(&self) -> &[u8] {
        &self.0.code
    }

    /// Machine code that steps call, by number.
    pub fn kernels(&self) -> &[Kernel] {
        &self.0.kernels
    }

    /// Memory that steps name, by number.
    pub fn buffers(&self) -> &[Buffer] {
        &self.0.buffers
    }

    /// Memory for intermediate tensors.
    pub fn arena_bytes(&self) -> u64 {
        self.0.arena_bytes
    }

    /// Steps of a run, in order.
    pub fn steps(&self) -> &[Step] {
        &self.0.steps
    }

    /// Steps of a run and the steps inside of each after it, with how often each runs at most.
    pub fn all_steps(&self) -> Vec<(&Step, u64)> {
        let mut steps = vec![];
        collect(&self.0.steps, 1, &mut steps);
        steps
    }

    /// Inputs in the model's order.
    pub fn inputs(&self) -> &[TensorSpec] {
        &self.0.inputs
    }

    /// Outputs in the model's order.
    pub fn outputs(&self) -> &[OutputSpec] {
        &self.0.outputs
    }

    /// Sizes of the model's dynamic dimensions, by their symbols.
    pub fn dims(&self) -> &BTreeMap<String, i64> {
        &self.0.dims
    }

    /// The modules of all bindings of the dynamic dimensions, this one first.
    pub fn bindings(&self) -> impl Iterator<Item = &Module> {
        std::iter::once(self).chain(self.0.others.iter().map(|other| &**other))
    }

    /// The sizes of all bindings, for messages: `length=64; length=128`.
    pub fn binding_names(&self) -> String {
        let dims = |module: &Module| {
            let sizes: Vec<String> = module.dims().iter().map(|(name, size)| format!("{name}={size}")).collect();
            sizes.join(", ")
        };
        self.bindings().map(dims).collect::<Vec<_>>().join("; ")
    }

    /// Values of inputs that decided shapes: the module is for these only.
    pub fn values(&self) -> &BTreeMap<String, Tensor> {
        &self.0.values
    }

    /// Capacities of dimensions that grow; `None` where all sizes are exact.
    pub fn bounds(&self) -> Option<&Bounds> {
        self.0.bounds.as_ref()
    }

    /// Key and value strings that the model file carries.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.0.metadata
    }

    /// Computes the values of inputs that are not given: its outputs have their names.
    pub fn initial(&self) -> Option<&Arc<Module>> {
        self.0.initial.as_ref()
    }

    /// Constants, packed where a kernel wants them packed.
    pub fn weights(&self) -> &Weights {
        &self.0.weights
    }
}

/// Machine code that steps call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// Name of the kernel.
    pub name: String,
    /// Run one after the other.
    pub phases: Vec<Phase>,
    /// The argument table.
    pub slots: Vec<Slot>,
    /// Its inner loops use vector instructions.
    pub vectorized: bool,
    /// A tensor instruction was matched.
    pub tensorized: bool,
}

/// Part of a kernel that all threads finish before the next one starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Where its code starts in [`Module::code`].
    pub offset: u64,
    /// Length of its code, constants included.
    pub bytes: u64,
    /// Iterations to divide among the threads.
    pub parallel: Option<i64>,
    /// Iterations that are independent: after so many of them all threads wait for each other. `None` for all.
    pub wave: Option<i64>,
    /// Scratch memory for each thread.
    pub scratch_bytes: u64,
}

/// Memory that a kernel may touch through one argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    /// Bytes that the kernel may touch from the argument on.
    pub bytes: u64,
    /// The kernel writes them.
    pub written: bool,
}

/// Index into [`Module::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BufferRef(pub u32);

/// Memory of one tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    /// Name of the tensor.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<i64>,
    /// Location of its bytes.
    pub place: BufferPlace,
}

/// Location of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BufferPlace {
    /// The memory of the caller's input tensor.
    Input(u32),
    /// The memory of the caller's output tensor.
    Output(u32),
    /// Byte offset into the arena.
    Arena(u64),
    /// Byte offset into the weights.
    Weights(u64),
    /// Part of an earlier buffer that moves from one step of a loop to the next. Only that loop's body touches it.
    Window {
        /// The whole buffer.
        of: BufferRef,
        /// Byte offset at the first step of the loop.
        offset: u64,
        /// Bytes from one step to the next; negative where the loop goes backwards.
        stride: i64,
        /// Number of the loop ([`Action::Loop`]).
        number: u32,
    },
}

/// Step of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Name, for reports.
    pub name: String,
    /// Floating-point operations, for rates in reports.
    pub flops: u64,
    /// Work of the step.
    pub action: Action,
}

/// Work of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// A call of a kernel.
    Kernel {
        /// Index into [`Module::kernels`].
        kernel: u32,
        /// A buffer for each of the kernel's slots.
        arguments: Vec<BufferRef>,
    },
    /// A call of a function of the runtime, written in Rust.
    Opaque {
        /// Name of the function.
        function: String,
        /// Attributes, in the function's order.
        attributes: Vec<i64>,
        /// Buffers that it reads.
        inputs: Vec<BufferRef>,
        /// Buffers that it writes.
        outputs: Vec<BufferRef>,
    },
    /// The bytes of one buffer to another, which a kernel updates in place.
    Copy {
        /// Buffer that is read.
        from: BufferRef,
        /// Buffer that is written, of equal size.
        to: BufferRef,
    },
    /// Elements `offset, offset + stride, …` of an integer tensor must lie in `lower..=upper`: the kernels after it use
    /// them as subscripts.
    CheckIndices {
        /// Buffer of the integer tensor.
        tensor: BufferRef,
        /// First element that is checked.
        offset: u64,
        /// Distance of two checked elements.
        stride: u64,
        /// Smallest value that is allowed.
        lower: i64,
        /// Largest value that is allowed.
        upper: i64,
    },
    /// Steps that run several times, on buffers of which some move.
    Loop {
        /// Number of the loop, by which windows name it; no other loop of the module has it.
        number: u32,
        /// Times that the body runs, at least once.
        trips: u64,
        /// Value of one bool that is looked at before each time: the loop ends where it is false. A run fails where it
        /// is still true after [`MAX_TRIPS`] times.
        condition: Option<BufferRef>,
        /// Values that one time leaves to the next.
        carried: Vec<Carried>,
        /// Steps of one time, in order.
        #[serde(deserialize_with = "format::nested")]
        body: Vec<Step>,
    },
    /// One of two lists of steps.
    If {
        /// Buffer of one bool.
        condition: BufferRef,
        /// Steps where it is true.
        #[serde(deserialize_with = "format::nested")]
        then: Vec<Step>,
        /// Steps where it is false.
        #[serde(deserialize_with = "format::nested")]
        otherwise: Vec<Step>,
    },
}

/// A value that one time of a loop leaves to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    /// Copied to `current` before the first time.
    pub initial: BufferRef,
    /// Value at the start of each time, and after the loop.
    pub current: BufferRef,
    /// Copied to `current` after each time.
    pub next: BufferRef,
}

/// The most times of a loop that only its condition ends: then the run fails.
pub const MAX_TRIPS: u64 = 1 << 24;

/// Bytes of a buffer or a step, with its name and what sessions and reports keep of it.
const TABLE_ENTRY: usize = 500;

/// The most loops and branches around a step.
pub const MAX_DEPTH: usize = 8;

impl Action {
    /// True where the step computes something of the model by itself; the others check and copy, or hold steps.
    pub fn is_work(&self) -> bool {
        matches!(self, Action::Kernel { .. } | Action::Opaque { .. })
    }

    /// The lists of steps inside, and how often each runs at most.
    pub fn inside(&self) -> impl Iterator<Item = (&[Step], u64)> {
        let lists: [Option<(&[Step], u64)>; 2] = match self {
            Action::Loop { trips, body, .. } => [Some((body, *trips)), None],
            Action::If { then, otherwise, .. } => [Some((then, 1)), Some((otherwise, 1))],
            _ => [None, None],
        };
        lists.into_iter().flatten()
    }
}

/// Adds the steps of a list and all inside of them, in order, with how often each runs at most.
fn collect<'a>(steps: &'a [Step], runs: u64, out: &mut Vec<(&'a Step, u64)>) {
    for step in steps {
        out.push((step, runs));
        step.action.inside().for_each(|(steps, times)| collect(steps, runs.saturating_mul(times), out));
    }
}

/// Name, element type and shape of an input or an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorSpec {
    /// Name by which runs give the tensor.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<i64>,
}

/// An output of a module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputSpec {
    /// Name, element type and shape.
    pub tensor: TensorSpec,
    /// Where the value stands after the last step; copied when this is not the output's own memory.
    pub source: BufferRef,
}

impl TensorSpec {
    /// Size in bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] where an extent is negative or the size has no 64-bit number.
    pub fn bytes(&self) -> Result<u64> {
        size(&self.name, self.dtype, &self.shape)
    }
}

impl Buffer {
    /// Size in bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] where an extent is negative or the size has no 64-bit number.
    pub fn bytes(&self) -> Result<u64> {
        size(&self.name, self.dtype, &self.shape)
    }
}

fn size(name: &str, dtype: DType, shape: &[i64]) -> Result<u64> {
    // an empty tensor may have extents whose product has no number
    if shape.contains(&0) && shape.iter().all(|&d| d >= 0) {
        return Ok(0);
    }
    shape
        .iter()
        .try_fold(dtype.bytes() as i64, |n, &d| if d < 0 { None } else { n.checked_mul(d) })
        .map(|n| n as u64)
        .ok_or_else(|| Error::Invalid(format!("tensor `{name}` of shape {shape:?} is larger than any memory")))
}

impl Module {
    /// Refuses code that this process cannot run.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with what is missing.
    pub fn check_host(&self) -> Result<()> {
        self.0
            .platform
            .check_host()
            .map_err(|e| e.context(&format!("module `{}` is for {}", self.0.name, self.0.target)))
    }

    /// About the bytes of memory that a session needs for code, steps and buffers, and not for constants or for runs.
    pub fn table_bytes(&self) -> u64 {
        // Code stands in the module and on executable pages; the other figure was measured on networks.
        let entries = self.0.buffers.len() + self.all_steps().len();
        (2 * self.0.code.len() + TABLE_ENTRY * entries) as u64
    }

    /// Scratch memory that each thread needs: the most of any phase.
    pub fn scratch_bytes(&self) -> u64 {
        self.0.kernels.iter().flat_map(|k| &k.phases).map(|p| p.scratch_bytes).max().unwrap_or(0)
    }
}

#[cfg(test)]
#[path = "module_tests.rs"]
mod tests;
