//! The syntax tree: what a `.tile` file says, word for word. Also what a program built in Rust is made of.

use super::source::Source;
use crate::expr::syntax::Span;
use crate::expr::syntax::{Expr, Name};
use crate::poly::transform::primitive::Schedule;
use crate::runtime::DType;

/// A file: programs, and schedules for them.
#[derive(Clone, Debug, Default)]
pub struct File {
    pub source: Source,
    pub programs: Vec<Program>,
    pub schedules: Vec<Schedule>,
}

/// Files are equal when they say the same, whatever their layout and comments.
impl PartialEq for File {
    fn eq(&self, other: &File) -> bool {
        self.programs == other.programs && self.schedules == other.schedules
    }
}

/// A program: `def` or `loop`.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    pub name: Name,
    pub sizes: Vec<Sizes>,
    /// Initial values of arrays that are not given: equations over the arrays and helpers of their own.
    pub initial: Vec<Equation>,
    pub body: Body,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// Tensor expressions.
    Def { inputs: Vec<Array>, outputs: Vec<Output>, equations: Vec<Equation> },
    /// Loops and assignments, in their order.
    Loop { parameters: Vec<Parameter>, arrays: Vec<Array>, statements: Vec<Statement> },
}

/// `sizes LARGE { N = 1000, M = 1200 }`.
#[derive(Clone, PartialEq, Debug)]
pub struct Sizes {
    pub name: Name,
    pub values: Vec<(Name, i64)>,
}

/// A size of a loop program, with the value that it has when nothing else gives one.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameter {
    pub name: Name,
    pub value: Option<i64>,
}

/// `f32(M,K) A` or `f32 A[M][K]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Array {
    pub access: Option<Access>,
    pub dtype: DType,
    pub name: Name,
    pub shape: Vec<Expr>,
}

/// What a loop program does with an array. Where nothing is said, an array that is only read is `in`, another `inout`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    In,
    Out,
    InOut,
    Temporary,
}

/// A result of a `def`, with its type and shape where they are said.
#[derive(Clone, PartialEq, Debug)]
pub struct Output {
    pub name: Name,
    pub declared: Option<(DType, Vec<Expr>)>,
}

/// `C(m,n) +=! A(m,k) * B(k,n) where k in 0..4`.
#[derive(Clone, PartialEq, Debug)]
pub struct Equation {
    pub target: Name,
    pub subscripts: Vec<Expr>,
    pub assign: Assign,
    pub value: Expr,
    pub conditions: Vec<Condition>,
    pub span: Span,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Condition {
    /// `k in 0..4`.
    Range(Name, Range),
    /// `k <= i`.
    Holds(Expr),
}

#[derive(Clone, PartialEq, Debug)]
pub struct Range {
    pub lower: Expr,
    /// One past the last value.
    pub upper: Expr,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assign {
    Set,
    /// `+=`: combines with what is there.
    Update(Combine),
    /// `+=!`: combines from the neutral element.
    Reduce(Combine),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combine {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
}

/// Symbol, meaning. Reductions may be reordered; a difference and a quotient have no neutral element.
pub const ASSIGNMENTS: [(&str, Assign); 11] = [
    ("=", Assign::Set),
    ("+=", Assign::Update(Combine::Add)),
    ("-=", Assign::Update(Combine::Sub)),
    ("*=", Assign::Update(Combine::Mul)),
    ("/=", Assign::Update(Combine::Div)),
    ("min=", Assign::Update(Combine::Min)),
    ("max=", Assign::Update(Combine::Max)),
    ("+=!", Assign::Reduce(Combine::Add)),
    ("*=!", Assign::Reduce(Combine::Mul)),
    ("min=!", Assign::Reduce(Combine::Min)),
    ("max=!", Assign::Reduce(Combine::Max)),
];

/// A statement of a loop program.
#[derive(Clone, PartialEq, Debug)]
pub enum Statement {
    /// `for i in lower..upper step n`; a negative step walks the same interval down from its last value.
    For {
        index: Name,
        range: Range,
        step: i64,
        body: Vec<Statement>,
    },
    If {
        condition: Expr,
        body: Vec<Statement>,
        otherwise: Vec<Statement>,
    },
    Assign(Assignment),
}

/// `S: A[i] += x[i]`. Schedules name the statement by its label, or else by its target.
#[derive(Clone, PartialEq, Debug)]
pub struct Assignment {
    pub label: Option<Name>,
    pub target: Name,
    pub subscripts: Vec<Expr>,
    pub assign: Assign,
    pub value: Expr,
    pub span: Span,
}
