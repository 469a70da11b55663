//! Files that a C program links: objects, and libraries made of them by the user's compiler and archiver.

use std::path::{Path, PathBuf};
use std::process::Command;
use tilewright::{Error, Module, ObjectFiles, ObjectOptions, Result};

/// Kinds of files.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Debug)]
pub enum Emit {
    /// FILE.tw, for `run` and `bench`
    Module,
    /// NAME.o, NAME.c and NAME.h
    Object,
    /// libNAME.a and NAME.h
    Static,
    /// libNAME.so and NAME.h
    Shared,
}

/// Where the constants are.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Debug)]
pub enum Weights {
    /// In the object
    Object,
    /// In NAME.weights, which the program maps
    File,
}

#[derive(clap::Args)]
pub struct LinkArguments {
    /// Where the constants are put by `--emit object`, `static` and `shared` [default: object]
    #[arg(long, value_name = "PLACE", value_enum)]
    weights: Option<Weights>,
    /// libtilewright_runtime.a, which a shared library takes in where the model has opaque functions
    #[arg(long, value_name = "FILE.a")]
    runtime: Option<PathBuf>,
}

impl LinkArguments {
    /// Refuses options that a module does not have.
    pub fn check_unused(&self) -> Result<()> {
        match (self.weights.is_some(), self.runtime.is_some()) {
            (false, false) => Ok(()),
            (weights, _) => {
                let option = if weights { "--weights" } else { "--runtime" };
                Err(Error::Invalid(format!("a module has no `{option}`: pass `--emit object`, `static` or `shared`")))
            }
        }
    }

    /// Writes the files of a module to a folder, or to a path without endings; returns what was written. In a folder they have the
    /// name `name`.
    pub fn write(&self, module: &Module, name: &str, output: &Path, emit: Emit) -> Result<String> {
        let (folder, name) = destination(output, name)?;
        let options = ObjectOptions { name, weights_apart: self.weights == Some(Weights::File) };
        let files = ObjectFiles::new(module, &options)?;
        let runtime = match (&files.runtime_functions[..], &self.runtime) {
            ([], Some(_)) => {
                return Err(Error::Invalid("the model has no opaque functions: do not pass `--runtime`".into()));
            }
            (functions, None) if emit == Emit::Shared && !functions.is_empty() => {
                return Err(Error::Invalid(format!(
                    "the model has the opaque functions {}: pass `--runtime` with the path of libtilewright_runtime.a",
                    functions.join(", ")
                )));
            }
            (_, runtime) => runtime.as_deref(),
        };
        let paths = match emit {
            Emit::Module | Emit::Object => files.write(&folder)?,
            Emit::Static | Emit::Shared => {
                let library = Library { module, files: &files, folder: &folder, runtime };
                library.write(emit)?
            }
        };
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let needs = match files.runtime_functions.is_empty() || emit == Emit::Shared {
            true => String::new(),
            false => format!(" (needs libtilewright_runtime.a for {})", files.runtime_functions.join(", ")),
        };
        Ok(paths.join(", ") + &needs)
    }
}

/// The folder and the name of the files. A folder that ends with a slash is made where there is none.
fn destination(output: &Path, name: &str) -> Result<(PathBuf, String)> {
    if output.as_os_str().as_encoded_bytes().ends_with(b"/") {
        let failed = |e| Error::Io(format!("cannot make the folder {}: {e}", output.display()));
        std::fs::create_dir_all(output).map_err(failed)?;
    }
    if output.is_dir() {
        return Ok((output.to_path_buf(), name.to_string()));
    }
    let plain = output.extension().is_some_and(|e| ["o", "c", "h"].iter().any(|ending| e == *ending));
    let path = if plain { output.with_extension("") } else { output.to_path_buf() };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((folder.to_path_buf(), name))
}

/// A library of the files of a module.
struct Library<'a> {
    module: &'a Module,
    files: &'a ObjectFiles,
    folder: &'a Path,
    runtime: Option<&'a Path>,
}

impl Library<'_> {
    fn write(&self, emit: Emit) -> Result<Vec<PathBuf>> {
        let name = &self.files.name;
        let work = WorkFolder::new(self.folder)?;
        self.files.write(&work.0)?;
        let input = |ending: &str| work.0.join(format!("{name}.{ending}"));
        let library = match emit {
            Emit::Shared => {
                let library = format!("lib{name}.so");
                let mut compile = self.tool("CC", "cc", "gcc");
                compile.args(["-std=c99", "-O2", "-fPIC", "-shared", "-o"]).arg(work.0.join(&library));
                compile.args([input("c"), input("o")]).arg(format!("-Wl,-soname,{library}"));
                run(compile.args(self.runtime))?;
                library
            }
            _ => {
                let (library, driver) = (format!("lib{name}.a"), input("driver.o"));
                let mut compile = self.tool("CC", "cc", "gcc");
                run(compile.args(["-std=c99", "-O2", "-fPIC", "-c", "-o"]).args([&driver, &input("c")]))?;
                let mut archive = self.tool("AR", "ar", "ar");
                run(archive.arg("rcs").args([work.0.join(&library), driver, input("o")]))?;
                library
            }
        };
        let weights = format!("{name}.weights");
        let names = [library, format!("{name}.h"), weights];
        let written = names.iter().filter(|name| work.0.join(name).exists()).map(|name| {
            let path = self.folder.join(name);
            let failed = |e| Error::Io(format!("cannot write {}: {e}", path.display()));
            std::fs::rename(work.0.join(name), &path).map_err(failed).map(|()| path.clone())
        });
        written.collect()
    }

    /// The program that a variable of the environment names, with its arguments; or the usual one, or that of a cross compiler.
    fn tool(&self, variable: &str, usual: &str, cross: &str) -> Command {
        let architecture = &self.module.platform().architecture;
        let named = std::env::var(variable).ok().filter(|value| !value.trim().is_empty());
        let words = named.unwrap_or_else(|| match architecture == std::env::consts::ARCH {
            true => usual.to_string(),
            false => format!("{architecture}-linux-gnu-{cross}"),
        });
        let mut words = words.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or(usual));
        command.args(words);
        command
    }
}

/// Runs a program to its end.
fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| {
        Error::Io(format!("cannot run `{program}`: {e}; the variables CC and AR name a compiler and an archiver"))
    })?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr);
            let first: Vec<&str> = text.lines().take(4).collect();
            Err(Error::Io(format!("`{program}` failed ({}): {}", output.status, first.join("; "))))
        }
    }
}

/// A folder beside the files, for those on the way to them; removed at the end.
struct WorkFolder(PathBuf);

impl WorkFolder {
    fn new(beside: &Path) -> Result<WorkFolder> {
        let path = beside.join(format!(".tilewright-link-{}", std::process::id()));
        let failed = |e| Error::Io(format!("cannot write to the folder {}: {e}", beside.display()));
        std::fs::create_dir(&path).map_err(failed)?;
        Ok(WorkFolder(path))
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // What cannot be removed is left to the user, who may not write there any more.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
