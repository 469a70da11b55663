//! `compile`: a model to a file that runs without compiling, or to files that a C program links.

mod linkage;

use super::inputs::{self, InputArguments};
use super::progress::Progress;
use crate::model_arguments::{CacheArguments, ModelArguments};
use linkage::{Emit, LinkArguments};
use std::path::{Path, PathBuf};
use tilewright::internal::runtime::text::{bytes, count};
use tilewright::{Error, Module, Report, Result};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    inputs: InputArguments,
    #[command(flatten)]
    cache: CacheArguments,
    /// Dimension whose size is given to each run: the size that `--dim` gives is its capacity, and that of the extents that follow
    /// from it. With several, the first one is counted and the others keep their distance from it
    #[arg(long, value_name = "NAME")]
    grow: Vec<String>,
    /// The module to write; for other kinds a folder, or the path of the files without their endings
    #[arg(short, long, value_name = "FILE.tw|FOLDER|PREFIX")]
    output: PathBuf,
    /// Write a module; or an object with a driver in C and a header; or these as a static or shared library and a header, by
    /// the compiler that CC names and the archiver that AR names
    #[arg(long, value_name = "KIND", value_enum, default_value = "module")]
    emit: Emit,
    #[command(flatten)]
    linkage: LinkArguments,
}

impl Arguments {
    pub fn run(mut self, progress: &Progress) -> Result<String> {
        self.model.grow = std::mem::take(&mut self.grow);
        if inputs::is_module(&self.model.model)? {
            return Err(Error::Invalid(format!("{} is already compiled", self.model.model.display())));
        }
        self.check_output()?;
        let (module, reports) = inputs::compile_bindings(&self.model, &self.inputs, self.cache.options(), progress)?;
        progress.stage(format!("writing {}", self.output.display()));
        let written = match self.emit {
            Emit::Module => {
                module.save(&self.output)?;
                self.output.display().to_string()
            }
            _ => {
                let name = match inputs::is_program(&self.model)? {
                    true => module.name().to_string(),
                    false => self.model.model.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
                };
                self.linkage.write(&module, &name, &self.output, self.emit)?
            }
        };
        let line = |(module, report): (&Module, &Report)| {
            let dims: Vec<String> = module.dims().iter().map(|(name, size)| format!(" {name}={size}")).collect();
            summary(&written, &if reports.len() > 1 { dims.concat() } else { String::new() }, report)
        };
        Ok(module.bindings().zip(&reports).map(line).collect())
    }

    /// Refuses an output that is the model, or a module with the name of another kind of file.
    fn check_output(&self) -> Result<()> {
        let place = |path: &Path| path.canonicalize().ok();
        if place(&self.output).is_some_and(|output| place(&self.model.model) == Some(output)) {
            return Err(Error::Invalid(format!("{} is the model itself", self.output.display())));
        }
        if self.emit != Emit::Module {
            return Ok(());
        }
        self.linkage.check_unused()?;
        let native = ["so", "o", "a", "dll", "dylib", "exe"];
        match self.output.extension().and_then(|e| e.to_str()).filter(|e| native.contains(e)) {
            Some(extension) => Err(Error::Invalid(format!(
                "{} would not be what .{extension} says: `compile` writes a module that `tilewright run` and \
                 `tilewright bench` take, unless `--emit object`, `static` or `shared` is passed; call it {}",
                self.output.display(),
                self.output.with_extension("tw").display()
            ))),
            None => Ok(()),
        }
    }
}

/// A line about what was written.
fn summary(written: &str, dims: &str, report: &Report) -> String {
    format!(
        "{written}{dims}: {} for {}, {} of code, {} of weights, {} of intermediate tensors, {} of scratch for each thread, compiled in {:.0} ms{}\n",
        count(report.kernels.len(), "kernel"),
        report.target,
        bytes(report.code_bytes),
        bytes(report.weights_bytes),
        bytes(report.arena_bytes),
        bytes(report.scratch_bytes),
        report.compile_ms,
        if report.cached { ", now from the cache" } else { "" }
    )
}
