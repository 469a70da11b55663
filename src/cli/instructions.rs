//! `check-instructions`, and `--instructions` of other commands: a file of tensor instructions, held to this processor.
//!
//! Each row that this processor has runs in a process of its own, so that code which it refuses ends only that.

use super::progress::Progress;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use tilewright::instructions::TensorInstruction;
use tilewright::internal::language::instruction::{self, load};
use tilewright::{Error, Result};

#[derive(clap::Args)]
pub struct Arguments {
    /// A file of tensor instructions
    file: PathBuf,
    /// Run this row in this process; the text comes on standard input
    #[arg(long, value_name = "NAME", hide = true)]
    row: Option<String>,
}

/// The word before the reason that a child refuses a row for.
const REFUSED: &str = "refused: ";

impl Arguments {
    pub fn run(self, progress: &Progress) -> Result<String> {
        match self.row {
            Some(name) => run_row(&self.file, &name),
            None => {
                let (text, rows) = load(&self.file)?;
                let lines =
                    rows.iter().map(|row| Ok(format!("{}: {}\n", row.name, check(&self.file, &text, row, progress)?)));
                let lines: String = lines.collect::<Result<_>>()?;
                Ok(lines)
            }
        }
    }
}

/// The rows of the file that `--instructions` names, each held to this processor if that has it.
pub fn checked(path: Option<&Path>, progress: &Progress) -> Result<Arc<[TensorInstruction]>> {
    let Some(path) = path else { return Ok(Arc::default()) };
    let (text, rows) = load(path)?;
    for row in &rows {
        check(path, &text, row, progress)?;
    }
    Ok(rows.into())
}

/// Runs `row` of the file in a child; says how it was checked.
fn check(path: &Path, text: &str, row: &TensorInstruction, progress: &Progress) -> Result<&'static str> {
    if !row.runs_on_host() {
        return Ok("the code is what it declares; not run, since this processor lacks a feature");
    }
    progress.stage(format!("checking {}", row.name));
    let failed = |e: std::io::Error| Error::Io(format!("cannot check `{}` in a process of its own: {e}", row.name));
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program)
        .arg("check-instructions")
        .arg(path)
        .args(["--row", &row.name.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // A child that has ended says why in its status.
        let _ = input.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    let verdict = String::from_utf8_lossy(&output.stdout);
    let refused = |reason: &str| Err(Error::Invalid(format!("{}: {}", path.display(), reason.trim())));
    match (verdict.strip_prefix(REFUSED), output.status.success()) {
        (Some(reason), _) => refused(reason),
        (None, true) => Ok("the code does what the semantics say"),
        (None, false) => match output.status.code() {
            Some(_) => refused(&String::from_utf8_lossy(&output.stderr)),
            None => refused(&format!("this processor does not run the code of `{}`: {}", row.name, output.status)),
        },
    }
}

/// The child: runs one row of the text on standard input.
fn run_row(path: &Path, name: &str) -> Result<String> {
    let mut text = String::new();
    let failed = |e: std::io::Error| Error::Io(format!("cannot read standard input: {e}"));
    std::io::stdin().lock().read_to_string(&mut text).map_err(failed)?;
    let rows = instruction::parse(&path.display().to_string(), &text)?;
    let row = rows.iter().find(|row| row.name.as_str() == name);
    let row = row.ok_or_else(|| Error::Invalid(format!("{} has no instruction `{name}`", path.display())))?;
    match row.check_on_host() {
        Ok(()) => Ok(String::new()),
        Err(Error::Invalid(reason)) => Ok(format!("{REFUSED}{reason}\n")),
        Err(error) => Err(error),
    }
}
