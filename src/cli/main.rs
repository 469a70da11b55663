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
mod html;
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
#[command(
    name = "tilewright",
    version,
    arg_required_else_help = true,
    after_help = "Start with `tilewright check MODEL.onnx`, then `run` and `explain`. The manual begins at docs/README.md.\n\
                  Exit codes: 2 for arguments that cannot be parsed, 1 for any other failure."
)]
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
    /// Compile a model into a module for `run` and `bench`, or into an object for a C program
    Compile(compile::Arguments),
    /// List the targets and mark those that this processor runs
    Targets(targets::Arguments),
    /// Measure the constants of this processor's cost model, for `--machine`
    Calibrate(calibrate::Arguments),
    /// Measure the latency of a model and of each kernel
    Bench(bench::Arguments),
    /// Show the decisions of the compiler, or any stage as text
    Explain(explain::Arguments),
    /// Check the programs of a .tile file, and prove or refuse its schedules; or say what of an ONNX model runs, and why the rest does not
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

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::Parser;
    use clap::error::ErrorKind;
    use std::path::Path;

    /// Lines of code blocks and spans that begin with the program's name, without comments and what the shell does after them.
    fn commands(page: &str) -> Vec<Vec<&str>> {
        let blocks = page.split("```").enumerate();
        let lines = blocks.flat_map(|(i, text)| match i % 2 {
            0 => text.split('`').skip(1).step_by(2).collect::<Vec<_>>(),
            _ => text.lines().collect(),
        });
        let words = lines.map(|line| line.trim_start_matches("$ ").split_whitespace().collect::<Vec<_>>());
        let ours = words.filter(|words| words.len() > 1 && words[0] == "tilewright" && !words.contains(&"…"));
        let end = |word: &&str| !word.starts_with(['#', '|', '>', '&', ';']);
        ours.map(|words| words.into_iter().take_while(end).map(|word| word.trim_matches('\'')).collect()).collect()
    }

    #[test]
    fn the_commands_of_the_pages_parse() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let book = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
        let pages = book.filter(|path| path.extension().is_some_and(|e| e == "md"));
        let (mut wrong, mut seen) = (vec![], 0);
        for page in pages.chain([root.join("README.md"), root.join("CONTRIBUTING.md")]) {
            for words in commands(&std::fs::read_to_string(&page).unwrap()) {
                seen += 1;
                match Arguments::try_parse_from(&words) {
                    // A command is named alone.
                    Err(error) if words.len() == 2 && error.kind() == ErrorKind::MissingRequiredArgument => {}
                    Err(error) if error.exit_code() != 0 => {
                        wrong.push(format!("{}: {}\n{error}", page.display(), words.join(" ")));
                    }
                    _ => {}
                }
            }
        }
        assert!(seen > 50, "only {seen} commands are seen");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
