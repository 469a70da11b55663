//! The syntax tree of files of tensor instructions.

use crate::codegen::instruction::{Form, SumOrder};
use crate::expr::syntax::{Expr, Name, Span};
use crate::language::source::Source;
use crate::runtime::DType;

/// A file: declarations of instructions, and nothing else.
#[derive(Clone, Debug, Default)]
pub struct InstructionFile {
    /// Name and text that it was read from.
    pub source: Source,
    pub instructions: Vec<Instruction>,
}

/// Files are equal if their syntax trees are, whatever their layout and comments.
impl PartialEq for InstructionFile {
    fn eq(&self, other: &InstructionFile) -> bool {
        self.instructions == other.instructions
    }
}

/// `instruction NAME needs FEATURE FEATURE { … }`.
#[derive(Clone, PartialEq, Debug)]
pub struct Instruction {
    pub name: Name,
    /// Processor features, in the words of Rust's feature detection.
    pub features: Vec<Name>,
    pub accumulator: Operand,
    /// The operands that are read, in their order.
    pub reads: Vec<Operand>,
    /// `constant i16 ones = 1`: a number in each lane of a register.
    pub constant: Option<Constant>,
    /// Registers for what one instruction of the row leaves for the next.
    pub temporaries: Vec<Name>,
    pub semantics: Semantics,
    /// One line for each machine instruction, in the order in which they run; those `by element` are the last ones.
    pub code: Vec<Code>,
}

/// `acc i32(16) C in vector`, `read u8(4) A broadcast` or `read u8(16, 4) B in vector from 0 to 15`.
#[derive(Clone, PartialEq, Debug)]
pub struct Operand {
    pub dtype: DType,
    /// Elements along each dimension, outermost first.
    pub shape: Vec<i64>,
    pub name: Name,
    pub form: Form,
    /// The least and the greatest number, where the text gives them.
    pub range: Option<(i64, i64)>,
    /// Place in the text.
    pub span: Span,
}

/// `constant i16 ones = 1`.
#[derive(Clone, PartialEq, Debug)]
pub struct Constant {
    pub dtype: DType,
    pub name: Name,
    pub value: i64,
    /// Place in the text.
    pub span: Span,
}

/// `C(j) += i32(A(q)) * i32(B(j,q)) summed over q ascending`.
#[derive(Clone, PartialEq, Debug)]
pub struct Semantics {
    pub target: Name,
    pub subscripts: Vec<Expr>,
    /// The term of each point.
    pub value: Expr,
    /// The order of the sum, where the text gives it.
    pub order: Option<Order>,
    /// Place in the text.
    pub span: Span,
}

/// `summed over p, q descending`.
#[derive(Clone, PartialEq, Debug)]
pub struct Order {
    /// The iterators that are summed over, outermost first.
    pub iterators: Vec<Name>,
    pub order: SumOrder,
}

/// `encode "EVEX.512.66.0F38.W0 50 /r" reg = C, vvvv = A, rm = B`.
#[derive(Clone, PartialEq, Debug)]
pub struct Code {
    /// `encode by element "…"`: the operand that is broadcast stands in the lowest lane alone.
    pub by_element: bool,
    /// The opcode line of the manual, or the pattern of a word.
    pub line: String,
    /// Place of the line, with its quotation marks.
    pub line_span: Span,
    /// Fields and their contents.
    pub fields: Vec<(Name, Field)>,
}

/// Contents of a field of an encoding.
#[derive(Clone, PartialEq, Debug)]
pub enum Field {
    /// The number of the register of an operand or a temporary.
    Register(Name),
    /// A number.
    Number(i64, Span),
}
