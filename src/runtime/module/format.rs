//! The file of a module.
//!
//! | bytes | contents |
//! |---|---|
//! | 0..8 | magic |
//! | 8..12 | format version |
//! | 12..16 | CRC-32 of everything after |
//! | 16..40 | length of the description, offset and length of the weights |
//! | 40.. | the description (postcard): the module of each binding with the places of its constants, and the one of the
//! initial values if there is one |
//! | at a multiple of 64, to the end | weights, used in place |
//!
//! All numbers are little-endian. The checksum finds damage; it is not a signature.

use super::layout::{self, Layout, Placed};
use super::weights::{WEIGHTS_ALIGNMENT, WeightRange, Weights};
use super::{Buffer, Kernel, MAX_DEPTH, Module, ModuleParts, OutputSpec, Step, TensorSpec};
use crate::bounds::Bounds;
use crate::{Error, Platform, Result, Tensor, file, threads};
use memmap2::{Mmap, MmapMut, MmapOptions};
use serde::{Deserialize, Serialize};
use serde::{Deserializer, de};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Changes whenever an older reader would misunderstand a newer file.
pub const FORMAT_VERSION: u32 = 8;
const MAGIC: [u8; 8] = *b"tilewrt\x1a";
const HEADER: usize = 40;
/// Bytes of which one thread computes the checksum at once.
pub(super) const PIECE: usize = 4 << 20;

/// The description of a module without its initial values: one module holds one more at most, so reading does not
/// recur.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ModuleParts")]
struct Description {
    name: String,
    target: String,
    platform: Platform,
    #[serde(with = "serde_bytes_vec")]
    code: Vec<u8>,
    kernels: Vec<Kernel>,
    buffers: Vec<Buffer>,
    arena_bytes: u64,
    steps: Vec<Step>,
    inputs: Vec<TensorSpec>,
    outputs: Vec<OutputSpec>,
    dims: BTreeMap<String, i64>,
    values: BTreeMap<String, Tensor>,
    bounds: Option<Bounds>,
    metadata: BTreeMap<String, String>,
    #[serde(skip)]
    initial: Option<Arc<Module>>,
    #[serde(skip)]
    others: Vec<Arc<Module>>,
    #[serde(skip)]
    weights: Weights,
}

impl Description {
    fn write(module: &Module, layout: &Layout) -> postcard::Result<Vec<u8>> {
        let mut serializer = postcard::Serializer { output: postcard::ser_flavors::StdVec::new() };
        Description::serialize(&module.0, &mut serializer)?;
        layout.modules[0].serialize(&mut serializer)?;
        module.initial().is_some().serialize(&mut serializer)?;
        if let Some(initial) = module.initial() {
            Description::serialize(&initial.0, &mut serializer)?;
        }
        (module.0.others.len() as u32).serialize(&mut serializer)?;
        for (other, placed) in module.0.others.iter().zip(&layout.modules[1..]) {
            Description::serialize(&other.0, &mut serializer)?;
            placed.serialize(&mut serializer)?;
        }
        postcard::ser_flavors::Flavor::finalize(serializer.output)
    }

    /// The modules of all bindings with the places of their constants, the first with its initial values, and the bytes left
    /// over.
    fn read(bytes: &[u8]) -> postcard::Result<(Vec<(ModuleParts, Vec<Placed>)>, &[u8])> {
        let mut deserializer = postcard::Deserializer::from_bytes(bytes);
        let mut first = Description::deserialize(&mut deserializer)?;
        let placed = Vec::deserialize(&mut deserializer)?;
        if bool::deserialize(&mut deserializer)? {
            first.initial = Some(Arc::new(Module(Description::deserialize(&mut deserializer)?)));
        }
        let mut modules = vec![(first, placed)];
        for _ in 0..u32::deserialize(&mut deserializer)? {
            let other = Description::deserialize(&mut deserializer)?;
            modules.push((other, Vec::deserialize(&mut deserializer)?));
        }
        Ok((modules, deserializer.finalize()?))
    }
}

impl Module {
    /// Writes the module to a file. Who runs an older module of that name keeps it; a failure leaves the older one.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be written; [`Error::Internal`] where the module has more initial values
    /// than its file can hold.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let layout = self.layout();
        let head = self.head(&layout)?;
        file::write(path.as_ref(), |out| {
            out.write_all(&head)?;
            layout.constants.chunks().try_for_each(|bytes| out.write_all(bytes))
        })
    }

    /// The contents of the module's file.
    ///
    /// # Errors
    /// [`Error::Internal`] where the module has more initial values than its file can hold.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let layout = self.layout();
        let mut bytes = self.head(&layout)?;
        layout.constants.chunks().for_each(|chunk| bytes.extend_from_slice(chunk));
        Ok(bytes)
    }

    /// The constants of all bindings, those that they share once.
    #[doc(hidden)]
    pub fn layout(&self) -> Layout {
        Layout::new(self.bindings().map(Module::weights).collect::<Vec<_>>().into_iter())
    }

    /// The bytes of the module's file before the constants, and these.
    ///
    /// # Errors
    /// As [`Module::to_bytes`].
    #[doc(hidden)]
    pub fn file_parts(&self) -> Result<(Vec<u8>, Weights)> {
        let layout = self.layout();
        Ok((self.head(&layout)?, layout.constants))
    }

    /// Returns the bytes before the weights.
    fn head(&self, layout: &Layout) -> Result<Vec<u8>> {
        if self.initial().is_some_and(|i| i.initial().is_some() || !i.weights().is_empty()) {
            return Err(Error::Internal(format!("module `{}` has initial values with more than code", self.name())));
        }
        let description = Description::write(self, layout)
            .map_err(|e| Error::Internal(format!("module `{}` cannot be written: {e}", self.name())))?;
        let weights_at = (HEADER + description.len()).next_multiple_of(WEIGHTS_ALIGNMENT);
        let mut out = Vec::with_capacity(weights_at);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for n in [description.len() as u64, weights_at as u64, layout.constants.len()] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend_from_slice(&description);
        out.resize(weights_at, 0);
        let crc = checksum([&out[16..]].into_iter().chain(layout.constants.chunks()));
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        Ok(out)
    }

    /// True where a file that begins with `start` is meant to be a module.
    pub fn is_magic(start: &[u8]) -> bool {
        start.starts_with(&MAGIC)
    }

    /// Maps a module's file into memory. Refuses a file that is damaged, of another version, or for another platform.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be read; [`Error::Invalid`] where it is not a module, is damaged, or of another
    /// version; [`Error::Unsupported`] where it is for another platform.
    ///
    /// # Safety
    /// A module is machine code: running it is running a program. The file must have been written by [`Module::save`] from a
    /// module of this compiler, and nobody may have changed it since; the checksum only finds accidents. It must not be
    /// written to while the module is in use, since its weights are read in place ([`Module::save`] never writes to a file
    /// that is there: it replaces it).
    pub unsafe fn load(path: impl AsRef<Path>) -> Result<Module> {
        let path = path.as_ref();
        let failed = |e: std::io::Error| Error::Io(format!("{}: {e}", path.display()));
        let file = file::open(path)?;
        let length = file.metadata().map_err(failed)?.len();
        if length < HEADER as u64 {
            return Err(Error::Invalid(format!(
                "{} is not a tilewright module: it has only {length} bytes",
                path.display()
            )));
        }
        // SAFETY: the caller vouches for the file.
        let module = unsafe { Module::map(&file, 0) }.map_err(|e| match e {
            Error::Invalid(m) => Error::Invalid(format!("{}: {m}", path.display())),
            Error::Io(m) => Error::Io(format!("{}: {m}", path.display())),
            other => other,
        })?;
        module.check_host()?;
        Ok(module)
    }

    /// Maps a module that starts at byte `offset` of a file, a multiple of 64, and ends where the file ends. It may be for another
    /// platform.
    ///
    /// # Errors
    /// As [`Module::from_bytes`].
    ///
    /// # Safety
    /// As for [`Module::load`].
    #[doc(hidden)]
    pub unsafe fn map(file: &File, offset: u64) -> Result<Module> {
        // SAFETY: the mapping is private, so that nobody writes through it; that nobody changes the file itself while it
        // is mapped is asked of the caller above.
        let pages = unsafe { MmapOptions::new().offset(offset).map_copy_read_only(file) };
        let pages = pages.map_err(|e| Error::Io(e.to_string()))?;
        let parts = Module::describe(&pages)?;
        Module::parse(pages, parts)
    }

    /// Reads a module from the contents of its file. It may be for another platform.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the bytes are not a module, are damaged, or have another version; [`Error::Io`] where the system
    /// has no memory.
    ///
    /// # Safety
    /// As for [`Module::load`]: whoever runs the module trusts these bytes like an executable.
    pub unsafe fn from_bytes(bytes: &[u8]) -> Result<Module> {
        let failed = |e: std::io::Error| Error::Io(format!("memory for a module of {} bytes: {e}", bytes.len()));
        let description = Module::describe(bytes)?;
        let mut pages = MmapMut::map_anon(bytes.len()).map_err(failed)?;
        pages.copy_from_slice(bytes);
        Module::parse(pages.make_read_only().map_err(failed)?, description)
    }

    /// Checks everything that can be checked before the description is parsed; where the description and the weights are.
    fn describe(bytes: &[u8]) -> Result<(Range<usize>, Range<usize>)> {
        if bytes.len() < HEADER || bytes[..8] != MAGIC {
            return Err(Error::Invalid("not a tilewright module: it does not start with the magic number".into()));
        }
        let word = |offset: usize| u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"));
        let version = word(8);
        if version != FORMAT_VERSION {
            return Err(Error::Invalid(format!(
                "module format {version}, but this tilewright reads format {FORMAT_VERSION}: compile the model again"
            )));
        }
        if checksum([&bytes[16..]].into_iter()) != word(12) {
            return Err(Error::Invalid("damaged module: its checksum does not match".into()));
        }
        let long = |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"));
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
        let (modules, unread) = Description::read(&pages[description])
            .map_err(|e| Error::Invalid(format!("damaged module: its description cannot be read ({e})")))?;
        if !unread.is_empty() {
            return Err(Error::Invalid("damaged module: bytes left over after its description".into()));
        }
        let constants = (!weights.is_empty()).then(|| WeightRange::mapped(pages, weights));
        let bind = |(parts, placed): (ModuleParts, Vec<Placed>)| {
            let weights = layout::read(&placed, constants.as_ref())?;
            Ok(Module(ModuleParts { weights, ..parts }))
        };
        let mut modules = modules.into_iter().map(bind);
        let mut module = modules.next().expect("the first is always there")?;
        module.0.others = modules.map(|other| other.map(Arc::new)).collect::<Result<_>>()?;
        module.verify()?;
        Ok(module)
    }
}

/// The CRC-32 of parts that follow each other. Pieces are read on all cores: a module may have gigabytes of weights.
pub(super) fn checksum<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u32 {
    let sum = |piece: &[u8]| {
        let mut sum = crc32fast::Hasher::new();
        sum.update(piece);
        sum
    };
    let sums = threads::map(parts.flat_map(|part| part.chunks(PIECE)), threads::cores(), sum);
    let mut whole = crc32fast::Hasher::new();
    sums.iter().for_each(|sum| whole.combine(sum));
    whole.finalize()
}

/// Reads the steps inside of a step, at most [`MAX_DEPTH`] deep: hostile bytes would overflow the stack.
pub(super) fn nested<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<Step>, D::Error> {
    thread_local!(static DEPTH: Cell<usize> = const { Cell::new(0) });
    let depth = DEPTH.get();
    if depth == MAX_DEPTH {
        return Err(de::Error::custom("steps are nested too deeply"));
    }
    DEPTH.set(depth + 1);
    let steps = Vec::deserialize(deserializer);
    DEPTH.set(depth);
    steps
}

/// A byte vector as one block; serde would write it element by element.
mod serde_bytes_vec {
    use serde::{Deserializer, Serializer, de::Visitor};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
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

/// A file under a right checksum whose description is that of `module` over and over, each announcing the next.
#[cfg(test)]
pub fn forge(module: &Module, depth: usize) -> Vec<u8> {
    let mut description = Description::write(module, &Layout::new([module.weights()].into_iter())).unwrap();
    assert_eq!(description.pop(), Some(0), "no other bindings");
    assert_eq!(description.pop(), Some(0), "no initial values");
    description.push(1);
    let mut descriptions = description.repeat(depth);
    *descriptions.last_mut().unwrap() = 0;
    descriptions.push(0);
    let weights_at = (HEADER + descriptions.len()).next_multiple_of(WEIGHTS_ALIGNMENT);
    let mut out = [&MAGIC[..], &FORMAT_VERSION.to_le_bytes(), &[0; 4]].concat();
    for n in [descriptions.len(), weights_at, 0] {
        out.extend_from_slice(&(n as u64).to_le_bytes());
    }
    out.extend_from_slice(&descriptions);
    out.resize(weights_at, 0);
    let crc = crc32fast::hash(&out[16..]);
    out[12..16].copy_from_slice(&crc.to_le_bytes());
    out
}
