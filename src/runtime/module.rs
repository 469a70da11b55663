//! Module: a compiled model. Machine code, memory plan, steps and packed weights; built by the pipeline, or read from a
//! `.tw` file (see `format`).
//!
//! Invariant: a module that [`Module::verify`] accepts makes no step touch memory outside of its buffers, as far as data
//! can say. That the code keeps to the declared bytes of its argument slots follows from where the module comes from: only
//! the compiler makes modules, and [`Module::load`] is `unsafe` because its caller vouches for the file. No field can be
//! changed from outside of the crate.

mod format;

use crate::bytes::advise_huge_pages;
use crate::opaque;
use crate::{DType, Error, Platform, Result};
use memmap2::{Mmap, MmapMut};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

pub use format::FORMAT_VERSION;

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
    /// Key and value strings that the model file carries.
    pub metadata: BTreeMap<String, String>,
    /// Computes the values of inputs that are not given: its outputs have their names. It has neither inputs, nor weights,
    /// nor initial values of its own.
    pub initial: Option<Arc<Module>>,
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

    /// Key and value strings that the model file carries.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.0.metadata
    }

    /// Computes the values of inputs that are not given: its outputs have their names.
    pub fn initial(&self) -> Option<&Arc<Module>> {
        self.0.initial.as_ref()
    }

    /// Constants, packed where a kernel wants them packed.
    pub fn weights(&self) -> &[u8] {
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
}

impl Action {
    /// True where the step computes something of the model; the others check and copy.
    pub fn is_work(&self) -> bool {
        matches!(self, Action::Kernel { .. } | Action::Opaque { .. })
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
    shape
        .iter()
        .try_fold(dtype.bytes() as i64, |n, &d| if d < 0 { None } else { n.checked_mul(d) })
        .map(|n| n as u64)
        .ok_or_else(|| Error::Invalid(format!("tensor `{name}` of shape {shape:?} is larger than any memory")))
}

/// Read-only bytes at a 64-byte aligned address: in memory, or mapped from the module's file.
#[derive(Clone, Default)]
pub struct Weights(Option<Arc<Mapping>>);

struct Mapping {
    pages: Mmap,
    range: Range<usize>,
}

impl Weights {
    /// A copy of `bytes`.
    ///
    /// # Errors
    /// [`Error::Io`] where the system has no memory.
    pub fn new(bytes: &[u8]) -> Result<Weights> {
        Weights::filled(bytes.len(), |memory| memory.copy_from_slice(bytes))
    }

    /// `length` bytes that `fill` writes in place; they are zero before.
    ///
    /// # Errors
    /// [`Error::Io`] where the system has no memory.
    pub fn filled(length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Weights> {
        if length == 0 {
            fill(&mut []);
            return Ok(Weights(None));
        }
        let failed = |e: std::io::Error| Error::Io(format!("memory for {length} bytes of weights: {e}"));
        let mut pages = MmapMut::map_anon(length).map_err(failed)?;
        advise_huge_pages(&pages);
        fill(&mut pages);
        let pages = pages.make_read_only().map_err(failed)?;
        Ok(Weights(Some(Arc::new(Mapping { pages, range: 0..length }))))
    }
}

impl std::ops::Deref for Weights {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |m| &m.pages[m.range.clone()])
    }
}

impl PartialEq for Weights {
    fn eq(&self, other: &Weights) -> bool {
        **self == **other
    }
}

impl std::fmt::Debug for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "Weights({} bytes)", self.len())
    }
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

    /// Scratch memory that each thread needs: the most of any phase.
    pub fn scratch_bytes(&self) -> u64 {
        self.0.kernels.iter().flat_map(|k| &k.phases).map(|p| p.scratch_bytes).max().unwrap_or(0)
    }

    /// Checks that every index, offset and length lies where it must.
    ///
    /// # Errors
    /// [`Error::Invalid`] at the first index, offset or length that does not.
    pub fn verify(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::Invalid(format!("inconsistent module `{}`: {what}", self.0.name)));
        if self.0.arena_bytes > isize::MAX as u64 {
            return wrong(format!("an arena of {} bytes", self.0.arena_bytes));
        }
        if self.scratch_bytes() > isize::MAX as u64 {
            return wrong(format!("scratch memory of {} bytes", self.scratch_bytes()));
        }
        for kernel in &self.0.kernels {
            let inside = |p: &Phase| p.offset.checked_add(p.bytes).is_some_and(|end| end <= self.0.code.len() as u64);
            if !kernel.phases.iter().all(|p| p.bytes > 0 && inside(p)) {
                return wrong(format!("kernel `{}` lies outside of the code", kernel.name));
            }
            if kernel.phases.iter().any(|p| p.parallel.is_some_and(|n| n < 0)) {
                return wrong(format!("kernel `{}` has a negative number of iterations", kernel.name));
            }
            if kernel.phases.iter().any(|p| p.wave.is_some_and(|n| n < 1)) {
                return wrong(format!("kernel `{}` has waves of no iterations", kernel.name));
            }
        }
        let mut names = BTreeSet::new();
        for spec in &self.0.inputs {
            spec.bytes()?;
            if !names.insert(&spec.name) {
                return wrong(format!("two inputs `{}`", spec.name));
            }
        }
        for buffer in &self.0.buffers {
            let bytes = buffer.bytes()?;
            let fits = match buffer.place {
                BufferPlace::Input(i) => {
                    self.0.inputs.get(i as usize).is_some_and(|s| s.bytes().is_ok_and(|b| bytes <= b))
                }
                BufferPlace::Output(i) => {
                    self.0.outputs.get(i as usize).is_some_and(|s| s.tensor.bytes().is_ok_and(|b| bytes <= b))
                }
                BufferPlace::Arena(at) => at.checked_add(bytes).is_some_and(|end| end <= self.0.arena_bytes),
                BufferPlace::Weights(at) => at.checked_add(bytes).is_some_and(|end| end <= self.0.weights.len() as u64),
            };
            if !fits {
                return wrong(format!("buffer `{}` lies outside of {:?}", buffer.name, buffer.place));
            }
        }
        for output in &self.0.outputs {
            let bytes = output.tensor.bytes()?;
            if self.extent(output.source)?.bytes != bytes {
                return wrong(format!("output `{}` has no value of its size", output.tensor.name));
            }
        }
        if let Some(initial) = &self.0.initial {
            let input = |o: &OutputSpec| self.0.inputs.contains(&o.tensor);
            if !initial.inputs().is_empty() || initial.initial().is_some() || !initial.outputs().iter().all(input) {
                return wrong("initial values of something else than its inputs".into());
            }
            initial.verify()?;
        }
        self.0.steps.iter().try_for_each(|step| self.verify_step(step))
    }

    fn verify_step(&self, step: &Step) -> Result<()> {
        let wrong = |what: &str| Err(Error::Invalid(format!("inconsistent module `{}`: {what}", step.name)));
        match &step.action {
            Action::Kernel { kernel, arguments } => {
                let Some(kernel) = self.0.kernels.get(*kernel as usize) else { return wrong("no such kernel") };
                if kernel.slots.len() != arguments.len() {
                    return wrong("arguments and slots differ in number");
                }
                let extents = arguments.iter().map(|&a| self.extent(a)).collect::<Result<Vec<_>>>()?;
                if extents.iter().zip(&kernel.slots).any(|(e, s)| e.bytes < s.bytes) {
                    return wrong("an argument is smaller than its slot");
                }
                disjoint(step, extents.iter().zip(&kernel.slots).map(|(e, s)| (e, s.written)))
            }
            Action::Opaque { function, attributes: _, inputs, outputs } => {
                if opaque::lookup(function).is_none() {
                    return wrong(&format!("no opaque function `{function}`"));
                }
                if inputs.len() > opaque::MAX_OPERANDS || outputs.len() > opaque::MAX_OPERANDS {
                    return wrong("too many operands");
                }
                let inputs = inputs.iter().map(|&a| self.extent(a)).collect::<Result<Vec<_>>>()?;
                let outputs = outputs.iter().map(|&a| self.extent(a)).collect::<Result<Vec<_>>>()?;
                disjoint(step, inputs.iter().map(|e| (e, false)).chain(outputs.iter().map(|e| (e, true))))
            }
            Action::Copy { from, to } => {
                let (from, to) = (self.extent(*from)?, self.extent(*to)?);
                if from.bytes != to.bytes {
                    return wrong("a copy between buffers of different sizes");
                }
                disjoint(step, [(&from, false), (&to, true)].into_iter())
            }
            Action::CheckIndices { tensor, stride, .. } => {
                self.extent(*tensor)?;
                match self.0.buffers[tensor.0 as usize].dtype {
                    _ if *stride == 0 => wrong("a stride of 0"),
                    dtype if dtype.is_integer() || dtype == DType::Bool => Ok(()),
                    _ => wrong("subscripts that are not integers"),
                }
            }
        }
    }

    fn extent(&self, buffer: BufferRef) -> Result<Extent> {
        let Some(b) = self.0.buffers.get(buffer.0 as usize) else {
            return Err(Error::Invalid(format!("inconsistent module `{}`: no buffer {}", self.0.name, buffer.0)));
        };
        Ok(Extent { place: b.place, bytes: b.bytes()? })
    }
}

/// Where a buffer lies.
struct Extent {
    place: BufferPlace,
    bytes: u64,
}

/// Checks that buffers that a step writes are writable and overlap no other buffer of the step.
fn disjoint<'a>(step: &Step, extents: impl Iterator<Item = (&'a Extent, bool)>) -> Result<()> {
    let extents: Vec<(&Extent, bool)> = extents.collect();
    for (i, (a, written)) in extents.iter().enumerate().filter(|(_, e)| e.1) {
        let overlaps = |b: &Extent| match (a.place, b.place) {
            (BufferPlace::Arena(x), BufferPlace::Arena(y)) => x < y + b.bytes && y < x + a.bytes,
            (x, y) => x == y && a.bytes > 0 && b.bytes > 0,
        };
        let readable_only = matches!(a.place, BufferPlace::Input(_) | BufferPlace::Weights(_));
        if *written && (readable_only || extents.iter().enumerate().any(|(j, (b, _))| i != j && overlaps(b))) {
            return Err(Error::Invalid(format!("inconsistent module: step `{}` writes over what it reads", step.name)));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "module_tests.rs"]
mod tests;
