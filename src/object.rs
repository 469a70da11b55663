//! Object files: a module as files that a C compiler links.
//!
//! In: a [`Module`]. Out: an ELF object with the kernels and the constants ([`elf`]), a driver in C99 that runs the steps in
//! order ([`driver`]), and a header with its prototypes ([`header`]). The code is the module's own, byte for byte, so that the
//! results have the bits that a [`Session`](crate::Session) gives. Invariant: the driver calls nothing but the kernels, `memcpy`,
//! `mmap` and `madvise` for memory in large pages and, where the module has opaque steps, one function of the runtime.

mod bindings;
mod driver;
mod elf;
mod header;
mod helpers;
mod large_pages;
pub mod names;
mod signature;
mod steps;
mod unwind;
mod weights;

use crate::runtime::error::guard;
use crate::runtime::file;
use crate::runtime::module::{Action, Module, Step};
use crate::runtime::text;
use crate::{Error, Result};
use driver::driver;
use header::header;
use names::identifier;
use signature::Signature;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The most bytes of constants in an object: what references with 32 bits reach, beside code and data of the program.
const MOST_WEIGHTS: u64 = 1 << 30;

/// How [`ObjectFiles`] are made.
#[derive(Clone, Debug, Default)]
pub struct ObjectOptions {
    /// Name of the files without their endings; the C function has it too, with `_` for what C does not allow. Empty for the
    /// module's name.
    pub name: String,
    /// The constants are a file of their own, which the program maps, instead of a section of the object.
    pub weights_apart: bool,
}

/// An object, its driver in C, a header, and constants in a file of their own where that was asked for.
///
/// ```
/// use tilewright::{Model, ObjectFiles, ObjectOptions, Options};
///
/// # fn main() -> tilewright::Result<()> {
/// let model = Model::load("tests/fixtures/operators/matmul_bias_relu.onnx")?;
/// let (module, _) = model.compile_module(&Options::default())?;
/// let files = ObjectFiles::new(&module, &ObjectOptions { name: "dense".into(), ..ObjectOptions::default() })?;
/// assert!(files.header.contains("void dense(const float *a, float *y);"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectFiles {
    /// Name of the files without their endings.
    pub name: String,
    /// `NAME.o`: an ELF object.
    pub object: Vec<u8>,
    /// `NAME.c`: the driver, in C99.
    pub source: String,
    /// `NAME.h`: the prototypes.
    pub header: String,
    /// `NAME.weights`: the constants, where they are apart.
    pub weights: Option<Vec<u8>>,
    /// The functions of the runtime that the driver calls, by name. Where there are any, the program needs
    /// `libtilewright_runtime.a`.
    pub runtime_functions: Vec<String>,
}

impl ObjectFiles {
    /// Makes the files of a module. The same module gives the same bytes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the module is not for Linux on x86-64 or AArch64, or has more constants than an object
    /// holds; [`Error::Invalid`] where the module is inconsistent or the name holds a `/`, a quote or a control character.
    pub fn new(module: &Module, options: &ObjectOptions) -> Result<ObjectFiles> {
        guard(|| {
            module.verify()?;
            check(module)?;
            let name = if options.name.is_empty() { identifier(module.name()) } else { options.name.clone() };
            if name.contains(|c: char| c.is_control() || ['/', '\\', '"'].contains(&c)) {
                return Err(Error::Invalid(format!("the files cannot have the name `{name}`")));
            }
            let signature = Signature::new(module, &name, options.weights_apart)?;
            check_size(module, &signature)?;
            let weights = signature.weights_apart.then(|| weights::file(signature.constants.constants()));
            Ok(ObjectFiles {
                object: elf::object(module, &signature)?,
                source: driver(module, &signature)?,
                header: header(module, &signature)?,
                runtime_functions: runtime_functions(module),
                weights,
                name,
            })
        })
    }

    /// Writes the files to a folder, which must exist, and returns their paths. Each file is replaced in one step.
    ///
    /// # Errors
    /// [`Error::Io`] where a file cannot be written.
    pub fn write(&self, folder: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
        let contents = [
            ("o", Some(&self.object[..])),
            ("c", Some(self.source.as_bytes())),
            ("h", Some(self.header.as_bytes())),
            ("weights", self.weights.as_deref()),
        ];
        let mut paths = vec![];
        for (ending, bytes) in contents {
            let Some(bytes) = bytes else { continue };
            let path = folder.as_ref().join(format!("{}.{ending}", self.name));
            file::write(&path, |out| out.write_all(bytes))?;
            paths.push(path);
        }
        Ok(paths)
    }
}

/// Refuses a module for another system.
fn check(module: &Module) -> Result<()> {
    match module.platform().system.as_str() {
        "unix" => Ok(()),
        other => Err(refused(module, format!("it is for `{other}`, and objects are for Linux"))),
    }
}

/// Refuses more constants than an object holds.
fn check_size(module: &Module, signature: &Signature) -> Result<()> {
    let weights = signature.constants.constants().len();
    if weights <= MOST_WEIGHTS || signature.weights_apart {
        return Ok(());
    }
    let [found, most] = [weights, MOST_WEIGHTS].map(text::bytes);
    Err(refused(
        module,
        format!(
            "{found} of weights, of which it holds {most} at most; put them in a file of their own (`--weights file`)"
        ),
    ))
}

fn refused(module: &Module, what: String) -> Error {
    Error::Unsupported(format!("an object file of `{}`: {what}", module.name()))
}

/// The opaque functions that the steps call, each once.
fn runtime_functions(module: &Module) -> Vec<String> {
    let steps = module.bindings().flat_map(Module::all_steps);
    let function = |(step, _): (&Step, u64)| match &step.action {
        Action::Opaque { function, .. } => Some(function.clone()),
        _ => None,
    };
    steps.filter_map(function).collect::<BTreeSet<String>>().into_iter().collect()
}
