//! Module: a compiled model. Machine code, memory plan, steps and packed weights; built by the pipeline, or read from a
//! `.tw` file.
//!
//! Invariant: a module that [`Module::verify`] accepts makes no step touch memory outside of its buffers, as far as data
//! can say; that the code keeps to the declared bytes of its argument slots is what the checksum vouches for. The file:
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic |
//! | 8..12 | format version |
//! | 12..16 | CRC-32 of everything after |
//! | 16..40 | length of the description, offset and length of the weights |
//! | 40.. | the description (postcard) |
//! | at a multiple of 64, to the end | weights, used in place |
//!
//! All numbers are little-endian.

use crate::runtime::bytes::advise_huge_pages;
use crate::runtime::opaque;
use crate::runtime::{DType, Error, Result};
use memmap2::{Mmap, MmapMut, MmapOptions};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Changes whenever an older reader would misunderstand a newer file.
pub const FORMAT_VERSION: u32 = 4;
const MAGIC: [u8; 8] = *b"tilewrt\x1a";
const HEADER: usize = 40;
const WEIGHTS_ALIGNMENT: usize = 64;

/// A compiled model.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Module {
    pub name: String,
    /// Name of the target that it was compiled for.
    pub target: String,
    /// Processor architecture: `x86_64` or `aarch64`.
    pub architecture: String,
    /// Processor features that the code needs, in the words of Rust's feature detection.
    pub features: Vec<String>,
    /// Position-independent machine code of all kernels.
    #[serde(with = "serde_bytes_vec")]
    pub code: Vec<u8>,
    pub kernels: Vec<Kernel>,
    pub buffers: Vec<Buffer>,
    pub arena_bytes: u64,
    pub steps: Vec<Step>,
    pub inputs: Vec<TensorSpec>,
    pub outputs: Vec<OutputSpec>,
    /// What the symbols of the model's dynamic dimensions are bound to.
    pub dims: BTreeMap<String, i64>,
    /// Key and value strings that the model file carries.
    pub metadata: BTreeMap<String, String>,
    /// Computes the values of inputs that are not given: its outputs have their names. It has neither inputs nor weights.
    pub initial: Option<Arc<Module>>,
    /// Constants, packed where a kernel wants them packed. Not part of the description.
    #[serde(skip)]
    pub weights: Weights,
}

/// Machine code that steps call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Where its code starts in [`Module::code`].
    pub offset: u64,
    /// Iterations to divide among the threads.
    pub parallel: Option<i64>,
    /// Iterations that are independent: after so many of them all threads wait for each other. `None` for all.
    pub wave: Option<i64>,
    /// Scratch memory for each thread.
    pub scratch_bytes: u32,
}

/// What a kernel may touch through one argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    pub bytes: u64,
    pub written: bool,
}

/// Index into [`Module::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BufferRef(pub u32);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<i64>,
    pub place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// The memory of the caller's input tensor.
    Input(u32),
    /// The memory of the caller's output tensor.
    Output(u32),
    /// Byte offset into the arena.
    Arena(u64),
    /// Byte offset into the weights.
    Weights(u64),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub name: String,
    /// Floating-point operations, for rates in reports.
    pub flops: u64,
    pub action: Action,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Action {
    Kernel {
        kernel: u32,
        arguments: Vec<BufferRef>,
    },
    /// A function of [`opaque`](crate::runtime::opaque).
    Opaque {
        function: String,
        attributes: Vec<i64>,
        inputs: Vec<BufferRef>,
        outputs: Vec<BufferRef>,
    },
    /// The bytes of one buffer to another, which a kernel updates in place.
    Copy {
        from: BufferRef,
        to: BufferRef,
    },
    /// Elements `offset, offset + stride, …` of an integer tensor must lie in `lower..=upper`: the kernels after it use
    /// them as subscripts.
    CheckIndices {
        tensor: BufferRef,
        offset: u64,
        stride: u64,
        lower: i64,
        upper: i64,
    },
}

impl Action {
    /// Whether it computes something of the model; the others check and copy.
    pub fn is_work(&self) -> bool {
        matches!(self, Action::Kernel { .. } | Action::Opaque { .. })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorSpec {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputSpec {
    pub tensor: TensorSpec,
    /// Where the value stands after the last step; copied when this is not the output's own memory.
    pub source: BufferRef,
}

impl TensorSpec {
    /// Size in bytes.
    pub fn bytes(&self) -> Result<u64> {
        size(&self.name, self.dtype, &self.shape)
    }
}

impl Buffer {
    /// Size in bytes.
    pub fn bytes(&self) -> Result<u64> {
        size(&self.name, self.dtype, &self.shape)
    }
}

fn size(name: &str, dtype: DType, shape: &[i64]) -> Result<u64> {
    shape
        .iter()
        .try_fold(dtype.bytes() as i64, |n, &d| if d < 0 { None } else { n.checked_mul(d) })
        .map(|n| n as u64)
        .ok_or_else(|| Error::Invalid(format!("tensor `{name}` of shape {shape:?} is no size that memory can have")))
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
    pub fn new(bytes: &[u8]) -> Result<Weights> {
        Weights::filled(bytes.len(), |memory| memory.copy_from_slice(bytes))
    }

    /// `length` bytes that `fill` writes in place; they are zero before.
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
    /// Writes the module to a file.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let head = self.head()?;
        let write = || {
            let mut file = std::fs::File::create(path)?;
            file.write_all(&head)?;
            file.write_all(&self.weights)
        };
        write().map_err(|e: std::io::Error| Error::Io(format!("{}: {e}", path.display())))
    }

    /// The contents of the module's file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        Ok([&self.head()?[..], &self.weights[..]].concat())
    }

    /// What stands before the weights.
    fn head(&self) -> Result<Vec<u8>> {
        let description = postcard::to_stdvec(self)
            .map_err(|e| Error::Internal(format!("module `{}` cannot be written: {e}", self.name)))?;
        let weights_at = (HEADER + description.len()).next_multiple_of(WEIGHTS_ALIGNMENT);
        let mut out = Vec::with_capacity(weights_at);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for n in [description.len(), weights_at, self.weights.len()] {
            out.extend_from_slice(&(n as u64).to_le_bytes());
        }
        out.extend_from_slice(&description);
        out.resize(weights_at, 0);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&out[16..]);
        crc.update(&self.weights);
        out[12..16].copy_from_slice(&crc.finalize().to_le_bytes());
        Ok(out)
    }

    /// Whether a file that begins like this is meant to be a module.
    pub fn is_magic(start: &[u8]) -> bool {
        start.starts_with(&MAGIC)
    }

    /// Maps a module's file into memory. Refuses a file that is damaged, of another version, or for another processor.
    ///
    /// The file must not be changed while the module is in use: its weights are read in place.
    pub fn load(path: impl AsRef<Path>) -> Result<Module> {
        let path = path.as_ref();
        let failed = |e: std::io::Error| Error::Io(format!("{}: {e}", path.display()));
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(Error::Invalid(format!("{}: this is no regular file", path.display())));
        }
        let file = std::fs::File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length < HEADER as u64 {
            return Err(Error::Invalid(format!("{}: no tilewright module: only {length} bytes", path.display())));
        }
        // SAFETY: the mapping is private, so that nobody writes through it; that nobody changes the file itself while it
        // is mapped is asked of the caller above.
        let pages = unsafe { MmapOptions::new().map_copy_read_only(&file) }.map_err(failed)?;
        let described = Module::describe(&pages).and_then(|parts| Module::parse(pages, parts));
        let module = described.map_err(|e| match e {
            Error::Invalid(m) => Error::Invalid(format!("{}: {m}", path.display())),
            other => other,
        })?;
        module.check_host()?;
        Ok(module)
    }

    /// Reads a module from the contents of its file. It may be for another processor.
    pub fn from_bytes(bytes: &[u8]) -> Result<Module> {
        let failed = |e: std::io::Error| Error::Io(format!("memory for a module of {} bytes: {e}", bytes.len()));
        let description = Module::describe(bytes)?;
        let mut pages = MmapMut::map_anon(bytes.len()).map_err(failed)?;
        pages.copy_from_slice(bytes);
        Module::parse(pages.make_read_only().map_err(failed)?, description)
    }

    /// Checks everything that can be checked before the description is parsed; where the description and the weights are.
    fn describe(bytes: &[u8]) -> Result<(Range<usize>, Range<usize>)> {
        if bytes.len() < HEADER || bytes[..8] != MAGIC {
            return Err(Error::Invalid("no tilewright module: it does not start with the magic number".into()));
        }
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let version = word(8);
        if version != FORMAT_VERSION {
            return Err(Error::Invalid(format!(
                "module format {version}, but this tilewright reads format {FORMAT_VERSION}: compile the model again"
            )));
        }
        if crc32fast::hash(&bytes[16..]) != word(12) {
            return Err(Error::Invalid("damaged module: its checksum does not match".into()));
        }
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (length, weights_at, weights) = (long(16), long(24), long(32));
        let total = bytes.len() as u64;
        let fits = length <= total - HEADER as u64
            && HEADER as u64 + length <= weights_at
            && weights_at <= total
            && weights == total - weights_at
            && weights_at.is_multiple_of(WEIGHTS_ALIGNMENT as u64);
        if !fits {
            return Err(Error::Invalid("damaged module: its parts do not add up to its length".into()));
        }
        Ok((HEADER..HEADER + length as usize, weights_at as usize..bytes.len()))
    }

    fn parse(pages: Mmap, (description, weights): (Range<usize>, Range<usize>)) -> Result<Module> {
        let (mut module, rest) = postcard::take_from_bytes::<Module>(&pages[description])
            .map_err(|e| Error::Invalid(format!("damaged module: its description cannot be read ({e})")))?;
        if !rest.is_empty() {
            return Err(Error::Invalid("damaged module: bytes left over after its description".into()));
        }
        if !weights.is_empty() {
            module.weights = Weights(Some(Arc::new(Mapping { pages, range: weights })));
        }
        module.verify()?;
        Ok(module)
    }

    /// Whether this processor can run the code; if not, an error that names what is missing.
    pub fn check_host(&self) -> Result<()> {
        if self.architecture != std::env::consts::ARCH {
            return Err(Error::Unsupported(format!(
                "module `{}` is for {} ({}), but this processor is {}",
                self.name,
                self.architecture,
                self.target,
                std::env::consts::ARCH
            )));
        }
        let missing: Vec<&str> = self.features.iter().map(String::as_str).filter(|f| !host_has(f)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::Unsupported(format!(
            "module `{}` is for {}, but this processor lacks {}",
            self.name,
            self.target,
            missing.join(", ")
        )))
    }

    /// Checks that every index, offset and length lies where it must.
    pub fn verify(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::Invalid(format!("inconsistent module `{}`: {what}", self.name)));
        if self.arena_bytes > isize::MAX as u64 {
            return wrong(format!("an arena of {} bytes", self.arena_bytes));
        }
        for kernel in &self.kernels {
            if kernel.phases.iter().any(|p| p.offset >= self.code.len() as u64) {
                return wrong(format!("kernel `{}` starts outside of the code", kernel.name));
            }
            if kernel.phases.iter().any(|p| p.parallel.is_some_and(|n| n < 0)) {
                return wrong(format!("kernel `{}` has a negative number of iterations", kernel.name));
            }
            if kernel.phases.iter().any(|p| p.wave.is_some_and(|n| n < 1)) {
                return wrong(format!("kernel `{}` has waves of no iterations", kernel.name));
            }
        }
        let mut names = BTreeSet::new();
        for spec in &self.inputs {
            spec.bytes()?;
            if !names.insert(&spec.name) {
                return wrong(format!("two inputs `{}`", spec.name));
            }
        }
        for buffer in &self.buffers {
            let bytes = buffer.bytes()?;
            let fits = match buffer.place {
                Place::Input(i) => self.inputs.get(i as usize).is_some_and(|s| s.bytes().is_ok_and(|b| bytes <= b)),
                Place::Output(i) => {
                    self.outputs.get(i as usize).is_some_and(|s| s.tensor.bytes().is_ok_and(|b| bytes <= b))
                }
                Place::Arena(at) => at.checked_add(bytes).is_some_and(|end| end <= self.arena_bytes),
                Place::Weights(at) => at.checked_add(bytes).is_some_and(|end| end <= self.weights.len() as u64),
            };
            if !fits {
                return wrong(format!("buffer `{}` lies outside of {:?}", buffer.name, buffer.place));
            }
        }
        for output in &self.outputs {
            let bytes = output.tensor.bytes()?;
            if self.extent(output.source)?.bytes != bytes {
                return wrong(format!("output `{}` has no value of its size", output.tensor.name));
            }
        }
        if let Some(initial) = &self.initial {
            let input = |o: &OutputSpec| self.inputs.contains(&o.tensor);
            if !initial.inputs.is_empty() || initial.initial.is_some() || !initial.outputs.iter().all(input) {
                return wrong("initial values of something else than its inputs".into());
            }
            initial.verify()?;
        }
        self.steps.iter().try_for_each(|step| self.verify_step(step))
    }

    fn verify_step(&self, step: &Step) -> Result<()> {
        let wrong = |what: &str| Err(Error::Invalid(format!("inconsistent module `{}`: {what}", step.name)));
        match &step.action {
            Action::Kernel { kernel, arguments } => {
                let Some(kernel) = self.kernels.get(*kernel as usize) else { return wrong("no such kernel") };
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
                match self.buffers[tensor.0 as usize].dtype {
                    _ if *stride == 0 => wrong("a stride of 0"),
                    DType::I64 | DType::I32 | DType::I8 | DType::U8 | DType::Bool => Ok(()),
                    _ => wrong("subscripts that are no integers"),
                }
            }
        }
    }

    fn extent(&self, buffer: BufferRef) -> Result<Extent> {
        let Some(b) = self.buffers.get(buffer.0 as usize) else {
            return Err(Error::Invalid(format!("inconsistent module `{}`: no buffer {}", self.name, buffer.0)));
        };
        Ok(Extent { place: b.place, bytes: b.bytes()? })
    }
}

/// Where a buffer lies.
struct Extent {
    place: Place,
    bytes: u64,
}

/// What a step writes lies in memory that may be written and overlaps nothing else that it touches.
fn disjoint<'a>(step: &Step, extents: impl Iterator<Item = (&'a Extent, bool)>) -> Result<()> {
    let extents: Vec<(&Extent, bool)> = extents.collect();
    for (i, (a, written)) in extents.iter().enumerate().filter(|(_, e)| e.1) {
        let overlaps = |b: &Extent| match (a.place, b.place) {
            (Place::Arena(x), Place::Arena(y)) => x < y + b.bytes && y < x + a.bytes,
            (x, y) => x == y && a.bytes > 0 && b.bytes > 0,
        };
        let readable_only = matches!(a.place, Place::Input(_) | Place::Weights(_));
        if *written && (readable_only || extents.iter().enumerate().any(|(j, (b, _))| i != j && overlaps(b))) {
            return Err(Error::Invalid(format!("inconsistent module: step `{}` writes over what it reads", step.name)));
        }
    }
    Ok(())
}

/// Whether this processor has a feature, in the words of Rust's feature detection. Unknown words are absent features.
fn host_has(feature: &str) -> bool {
    macro_rules! table {
        ($detect:ident: $($name:tt)*) => { match feature { $($name => std::arch::$detect!($name),)* _ => false } };
    }
    #[cfg(target_arch = "x86_64")]
    return table!(is_x86_feature_detected: "avx2" "fma" "avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vnni");
    #[cfg(target_arch = "aarch64")]
    return table!(is_aarch64_feature_detected: "neon" "dotprod" "i8mm" "bf16" "fp16");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = feature;
        false
    }
}

/// A byte vector as one block; serde would write it element by element.
mod serde_bytes_vec {
    use serde::{Deserializer, Serializer, de::Visitor};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
#[path = "module_tests.rs"]
mod tests;
