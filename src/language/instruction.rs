//! Declarations of tensor instructions: machine instructions as data, in the text language.
//!
//! In: the text of a file that holds only `instruction` declarations. Out: rows of [`TensorInstruction`] with typed semantics
//! and encodings. Invariants: `parse(print(x)) == x`; an error in a text is one message with file, line, column and caret.

pub mod declare;
pub mod encoding;
pub mod parser;
pub mod print;
mod semantics;
pub mod syntax;

use crate::codegen::instruction::TensorInstruction;
use crate::language::source::Diagnostic;
use crate::runtime::Result;
use syntax::InstructionFile;

/// The rows that a file declares.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) with file, line, column and a caret at the first declaration that has no meaning.
pub fn declare(file: &InstructionFile) -> Result<Vec<TensorInstruction>> {
    let located = |problem: Diagnostic| file.source.error(problem);
    file.instructions.iter().map(|i| declare::declare(i).map_err(located)).collect()
}

#[cfg(test)]
mod tests;
