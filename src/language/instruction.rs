//! Declarations of tensor instructions: machine instructions as data, in the text language.
//!
//! In: the text of a file that holds only `instruction` declarations. Out: rows of [`TensorInstruction`] with typed semantics
//! and encodings. Invariants: `parse(print(x)) == x`; an error in a text is one message with file, line, column and caret; the
//! code of a row that [`parse`] returns is the instruction that the row declares.

pub mod declare;
pub mod encoding;
pub mod parser;
pub mod print;
mod semantics;
pub mod syntax;

use crate::codegen::instruction::TensorInstruction;
use crate::expr::syntax::Span;
use crate::language::file::read;
use crate::language::source::{Checked, Diagnostic};
use crate::runtime::Result;
use std::path::Path;
use std::sync::OnceLock;
use syntax::{Instruction, InstructionFile};

/// The file of the built-in rows.
const BUILT_IN: &str = include_str!("instruction/instructions.tile");

/// The rows that every process has, read once. Their code is not decoded: a test does that.
///
/// # Errors
/// None: a test reads the file.
pub fn built_in() -> Result<&'static [TensorInstruction]> {
    static ROWS: OnceLock<Vec<TensorInstruction>> = OnceLock::new();
    if ROWS.get().is_none() {
        let rows = declare(&built_in_file()?)?;
        let _ = ROWS.set(rows);
    }
    Ok(ROWS.get().map_or(&[], |rows| rows))
}

/// The declarations of the built-in rows.
///
/// # Errors
/// None: a test reads the file.
pub fn built_in_file() -> Result<InstructionFile> {
    parser::parse("instructions.tile", BUILT_IN)
}

/// The rows that a user's file declares. The code of each is decoded and compared with what the row declares.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) with file, line, column and a caret at the first declaration that has no meaning, that
/// has the name of a built-in row, or whose code is not what it declares.
pub fn parse(name: &str, text: &str) -> Result<Vec<TensorInstruction>> {
    let file = parser::parse(name, text)?;
    let (rows, built_in) = (declare(&file)?, built_in()?);
    for (instruction, row) in file.instructions.iter().zip(&rows) {
        let checked = match built_in.iter().any(|other| other.name == row.name) {
            true => {
                let message = format!("`{}` is the name of a built-in row: choose another", row.name);
                Err(Diagnostic::invalid(instruction.name.span, message))
            }
            false => check_code(instruction, row),
        };
        checked.map_err(|problem| file.source.error(problem))?;
    }
    Ok(rows)
}

/// The rows that a file declares; their code is not decoded.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) with file, line, column and a caret at the first declaration that has no meaning.
pub fn declare(file: &InstructionFile) -> Result<Vec<TensorInstruction>> {
    let located = |problem: Diagnostic| file.source.error(problem);
    file.instructions.iter().map(|i| declare::declare(i).map_err(located)).collect()
}

/// Decodes the code of `row`, which `instruction` declares.
fn check_code(instruction: &Instruction, row: &TensorInstruction) -> Checked<()> {
    row.check_code().map_err(|problem| {
        let features = || match &instruction.features[..] {
            [first, .., last] => first.span.to(last.span),
            [only] => only.span,
            [] => Span::default(),
        };
        let span = problem.encoding.map_or_else(features, |n| instruction.code[n].line_span);
        Diagnostic::invalid(span, format!("`{}`: {}", instruction.name, problem.message))
    })
}

/// Reads and parses the file of instructions at `path`, as [`parse`] does.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) where the file cannot be read, and the errors of [`parse`].
pub fn load(path: &Path) -> Result<(String, Vec<TensorInstruction>)> {
    let text = read(path)?;
    let rows = parse(&path.display().to_string(), &text)?;
    Ok((text, rows))
}

#[cfg(test)]
mod tests;
