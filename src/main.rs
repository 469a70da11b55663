//! The command line.

mod cli;

use clap::Parser;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use tilewright::runtime::text::lines;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    // The library turns a panic into an error; where it happened matters only to those who ask for it.
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    match arguments.run() {
        Ok(text) => match std::io::stdout().lock().write_all(lines(&text).as_bytes()) {
            // A reader that has seen enough, such as `head`, is no failure.
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
