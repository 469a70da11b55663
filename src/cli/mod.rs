//! Arguments in, text for standard output out. Progress and errors go to standard error.
//!
//! One file a command. Wrong use ends in exit code 2 (by clap), any other failure in one sentence and exit code 1.

mod bench;
mod check;
mod compare;
mod compile;
mod demo;
mod explain;
mod inputs;
mod ocr;
mod progress;
mod run;
mod targets;

use clap::{Args, Parser, Subcommand};
use progress::Progress;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use tilewright::codegen::target::Target;
use tilewright::runtime::error::unknown;
use tilewright::runtime::text::lines;
use tilewright::{Error, Result};

/// A polyhedral compiler with an e-graph front: ONNX models and loop programs in, machine code out.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
pub struct Arguments {
    /// No progress on standard error
    #[arg(long, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a model once and print its outputs
    Run(run::Arguments),
    /// Compile a model into a file that `run` and `bench` take
    Compile(compile::Arguments),
    /// List the targets and mark those that this processor runs
    Targets(targets::Arguments),
    /// Measure a model's latency and that of each kernel
    Bench(bench::Arguments),
    /// Show what the compiler did, or any stage as text
    Explain(explain::Arguments),
    /// Prove or refuse every schedule of a .tile file
    Check(check::Arguments),
    /// Run the schedules of a .tile file, the ILP's and the untransformed program in turn; for a network, every kernel twice
    Compare(compare::Arguments),
    /// Read the picture of a line of text with the PP-OCRv4 recogniser
    Demo(demo::Arguments),
}

impl Arguments {
    /// Carries the command out.
    pub fn run(self) -> Result<String> {
        let progress = Progress::new(self.quiet);
        match self.command {
            Command::Run(arguments) => arguments.run(&progress),
            Command::Compile(arguments) => arguments.run(&progress),
            Command::Targets(arguments) => arguments.run(&progress),
            Command::Bench(arguments) => arguments.run(&progress),
            Command::Explain(arguments) => arguments.run(&progress),
            Command::Check(arguments) => arguments.run(&progress),
            Command::Compare(arguments) => arguments.run(&progress),
            Command::Demo(arguments) => arguments.run(&progress),
        }
    }
}

/// Which model, and how it is compiled.
#[derive(Args)]
pub struct ModelArguments {
    /// An ONNX file, a `.tile` program, or a module made by `compile`
    model: PathBuf,
    /// The program of a .tile file; its first one by default
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// A schedule of the .tile file, instead of the one that the ILP finds
    #[arg(long, value_name = "NAME")]
    schedule: Option<String>,
    /// The set of sizes of a .tile program, for those that --dim does not give
    #[arg(long, value_name = "NAME")]
    size: Option<String>,
    /// Compile for this target; one of `tilewright targets`, the host's best by default
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Bind a dynamic dimension or a program's size; those not given are taken from the inputs, or 1
    #[arg(long = "dim", value_name = "NAME=N", value_parser = parse_dim)]
    dims: Vec<(String, i64)>,
    /// Make only the first N rewrites of a network: the one that breaks it is found by halving
    #[arg(long, value_name = "N")]
    stop_after: Option<usize>,
}

impl ModelArguments {
    /// The target asked for, or the best that runs here.
    fn target(&self) -> Result<Target> {
        target(self.target.as_deref())
    }

    /// The dimensions given, each once.
    fn dims(&self) -> Result<BTreeMap<String, i64>> {
        bind_once(&self.dims)
    }
}

/// The target of this name, or the best that runs here.
fn target(name: Option<&str>) -> Result<Target> {
    match name {
        None => Target::host().ok_or_else(|| {
            Error::Unsupported("this processor runs none of the targets: see `tilewright targets`".into())
        }),
        Some(name) => Target::by_name(name).ok_or_else(|| {
            let names: Vec<_> = Target::all().into_iter().map(|t| t.name).collect();
            Error::Invalid(unknown("target", name, &names))
        }),
    }
}

/// Names with their sizes; an error for a name that comes twice.
fn bind_once(given: &[(String, i64)]) -> Result<BTreeMap<String, i64>> {
    let mut dims = BTreeMap::new();
    for (name, size) in given {
        if dims.insert(name.clone(), *size).is_some() {
            return Err(Error::Invalid(format!("dimension '{name}' is bound twice")));
        }
    }
    Ok(dims)
}

/// Writes results to standard output at once, where an error is still to follow.
fn print(text: &str) -> Result<()> {
    let io = |e| Error::Io(format!("cannot write to standard output: {e}"));
    std::io::stdout().lock().write_all(lines(text).as_bytes()).map_err(io)
}

fn parse_dim(text: &str) -> std::result::Result<(String, i64), String> {
    // The last `=`: names may contain one.
    let (name, size) = text.rsplit_once('=').ok_or("expected NAME=N")?;
    match size.parse() {
        Ok(size) if size > 0 && !name.is_empty() => Ok((name.to_string(), size)),
        _ => Err("expected NAME=N with a positive number N".into()),
    }
}
