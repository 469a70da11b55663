//! Arguments in, text for standard output out. Progress and errors go to standard error.
//!
//! One file a command. Wrong use ends in exit code 2 (by clap), any other failure in one sentence and exit code 1.

mod bench;
mod calibrate;
mod check;
mod compare;
mod compile;
mod decode;
mod demo;
mod explain;
mod inputs;
mod instructions;
mod model_arguments;
mod ocr;
mod ops;
mod output;
mod progress;
mod run;
mod targets;

use clap::{Parser, Subcommand};
use progress::Progress;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use tilewright::Result;
use tilewright::internal::runtime::text::lines;

/// Compiles ONNX models, tensor expressions and loop programs to machine code.
#[derive(Parser)]
#[command(name = "tilewright", version, arg_required_else_help = true)]
pub struct Arguments {
    /// Show no progress on standard error
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
    /// Measure the constants of this processor that costs are computed from, for `--machine`
    Calibrate(calibrate::Arguments),
    /// Measure the latency of a model and of each kernel
    Bench(bench::Arguments),
    /// Show the decisions of the compiler, or any stage as text
    Explain(explain::Arguments),
    /// Prove or refuse every schedule of a .tile file, or say what of an ONNX model would run
    Check(check::Arguments),
    /// List the ONNX operators that are known
    Ops(ops::Arguments),
    /// Measure the schedules of a .tile file beside the ILP's and the original order; for a network, each kernel in both
    Compare(crate::compare::arguments::Arguments),
    /// Hold a file of tensor instructions to this processor
    #[command(hide = true)]
    CheckInstructions(instructions::Arguments),
    /// Read a picture of one line of text with the PP-OCRv4 recogniser
    Demo(demo::Arguments),
}

impl Arguments {
    /// Runs the command.
    pub fn run(self) -> Result<String> {
        let progress = Progress::new(self.quiet);
        match self.command {
            Command::Run(arguments) => arguments.run(&progress),
            Command::Compile(arguments) => arguments.run(&progress),
            Command::Targets(arguments) => arguments.run(&progress),
            Command::Calibrate(arguments) => arguments.run(&progress),
            Command::Bench(arguments) => arguments.run(&progress),
            Command::Explain(arguments) => arguments.run(&progress),
            Command::Check(arguments) => arguments.run(&progress),
            Command::Ops(arguments) => arguments.run(),
            Command::Compare(arguments) => arguments.run(&progress),
            Command::CheckInstructions(arguments) => arguments.run(&progress),
            Command::Demo(arguments) => arguments.run(&progress),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // The library turns a panic into an error; where it happened matters only to those who ask for it.
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    match arguments.run() {
        Ok(text) => match std::io::stdout().lock().write_all(lines(&text).as_bytes()) {
            // A closed pipe, as by `head`, is not an error.
            Err(e) if e.kind() != ErrorKind::BrokenPipe => fail(&format!("cannot write the output: {e}")),
            _ => ExitCode::SUCCESS,
        },
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(message: &str) -> ExitCode {
    // Nothing is left to do when even this cannot be written.
    let _ = writeln!(std::io::stderr(), "tilewright: {}", lines(message));
    ExitCode::FAILURE
}
