//! Symbols of code that runs in place, for `perf` and `gdb`: a profile and a stack name kernels, as those of linked objects do.
//!
//! In: a module and the memory that its code was copied to. Out: a file in the jitdump format and an entry of gdb's list of
//! generated code, where the environment variable [`VARIABLE`] names a folder; nothing otherwise.

#[cfg(target_os = "linux")]
mod gdb;
#[cfg(target_os = "linux")]
mod jitdump;
#[cfg(target_os = "linux")]
mod list;

use crate::executable::Executable;
use crate::module::Module;
use crate::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Names the folder of the files for `perf`, which holds one for each process.
pub const VARIABLE: &str = "TILEWRIGHT_JITDUMP";

/// Symbols that gdb knows until this is dropped.
pub struct Symbols {
    #[cfg(target_os = "linux")]
    _entry: Option<gdb::Entry>,
}

impl Symbols {
    /// Makes the kernels of a module known, if the environment asks for it.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be written; [`Error::Unsupported`] on systems without these programs.
    pub fn new(module: &Module, code: &Executable) -> Result<Symbols> {
        static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
        let folder =
            FOLDER.get_or_init(|| std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from));
        Symbols::made_known(folder.as_deref(), module, code)
    }

    #[cfg(target_os = "linux")]
    fn made_known(folder: Option<&Path>, module: &Module, code: &Executable) -> Result<Symbols> {
        let Some(folder) = folder else { return Ok(Symbols { _entry: None }) };
        let symbols = list::symbols(module)?;
        jitdump::write(folder, code.bytes(), &symbols)
            .map_err(|error| Error::Io(format!("{VARIABLE}: {}: {error}", folder.display())))?;
        Ok(Symbols { _entry: Some(gdb::Entry::new(code.bytes(), &symbols)?) })
    }

    #[cfg(not(target_os = "linux"))]
    fn made_known(folder: Option<&Path>, _: &Module, _: &Executable) -> Result<Symbols> {
        match folder {
            None => Ok(Symbols {}),
            Some(_) => Err(Error::Unsupported(format!("{VARIABLE}: there is `perf` on Linux alone"))),
        }
    }
}
