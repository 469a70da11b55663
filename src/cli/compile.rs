//! `compile`: a model to a file that runs without compiling.

use super::inputs::{self, InputArguments};
use super::progress::Progress;
use crate::model_arguments::{CacheArguments, ModelArguments};
use std::path::{Path, PathBuf};
use tilewright::internal::runtime::text::bytes;
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
    /// The module to write
    #[arg(short, long, value_name = "FILE.tw")]
    output: PathBuf,
}

impl Arguments {
    pub fn run(mut self, progress: &Progress) -> Result<String> {
        self.model.grow = std::mem::take(&mut self.grow);
        if inputs::is_module(&self.model.model)? {
            return Err(Error::Invalid(format!("{} is already compiled", self.model.model.display())));
        }
        let place = |path: &Path| path.canonicalize().ok();
        if place(&self.output).is_some_and(|output| place(&self.model.model) == Some(output)) {
            return Err(Error::Invalid(format!("{} is the model itself", self.output.display())));
        }
        let native = ["so", "o", "a", "dll", "dylib", "exe"];
        if let Some(extension) = self.output.extension().and_then(|e| e.to_str()).filter(|e| native.contains(e)) {
            return Err(Error::Invalid(format!(
                "{} would not be what .{extension} says: `compile` writes a module that `tilewright run` and \
                 `tilewright bench` take, not an object file; call it {}",
                self.output.display(),
                self.output.with_extension("tw").display()
            )));
        }
        let (module, reports) = inputs::compile_bindings(&self.model, &self.inputs, self.cache.options(), progress)?;
        progress.stage(format!("writing {}", self.output.display()));
        module.save(&self.output)?;
        let line = |(module, report): (&Module, &Report)| {
            let dims: Vec<String> = module.dims().iter().map(|(name, size)| format!(" {name}={size}")).collect();
            format!(
                "{}{}: {} kernels for {}, {} of code, {} of weights, {} of intermediate tensors, {} of scratch for each thread, compiled in {:.0} ms{}\n",
                self.output.display(),
                if reports.len() > 1 { dims.concat() } else { String::new() },
                report.kernels.len(),
                report.target,
                bytes(report.code_bytes),
                bytes(report.weights_bytes),
                bytes(report.arena_bytes),
                bytes(report.scratch_bytes),
                report.compile_ms,
                if report.cached { ", now from the cache" } else { "" }
            )
        };
        Ok(module.bindings().zip(&reports).map(line).collect())
    }
}
