//! The syntax tree: what a `.tile` file says, word for word. Also what a program built in Rust is made of.

use super::primitive::Schedule;
use super::source::{Source, Span};
use crate::poly::DType;
use crate::poly::expr::{BinaryOp, CompareOp, UnaryOp};

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

/// A name and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    pub text: String,
    pub span: Span,
}

impl From<&str> for Name {
    fn from(text: &str) -> Name {
        Name { text: text.into(), span: Span::default() }
    }
}

impl std::ops::Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.text)
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

/// An expression.
#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    pub kind: Kind,
    pub span: Span,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    Integer(i64),
    Real(f64),
    Bool(bool),
    /// An index, a size, or an array without dimensions.
    Name(String),
    /// An element of an array.
    Element(Name, Vec<Expr>),
    Call(Function, Vec<Expr>),
    Cast(DType, Box<Expr>),
    Negate(Box<Expr>),
    Not(Box<Expr>),
    Binary(Operator, Box<Expr>, Box<Expr>),
}

/// Operators between two operands, those that bind tighter later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    Or,
    And,
    Compare(CompareOp),
    Add,
    Sub,
    Mul,
    Div,
    Mod,
}

/// Symbol, operator, how tightly it binds. Comparisons do not associate, all others to the left.
pub const OPERATORS: [(&str, Operator, u8); 13] = [
    ("||", Operator::Or, 1),
    ("&&", Operator::And, 2),
    ("==", Operator::Compare(CompareOp::Eq), COMPARISON),
    ("!=", Operator::Compare(CompareOp::Ne), COMPARISON),
    ("<=", Operator::Compare(CompareOp::Le), COMPARISON),
    (">=", Operator::Compare(CompareOp::Ge), COMPARISON),
    ("<", Operator::Compare(CompareOp::Lt), COMPARISON),
    (">", Operator::Compare(CompareOp::Gt), COMPARISON),
    ("+", Operator::Add, 4),
    ("-", Operator::Sub, 4),
    ("*", Operator::Mul, 5),
    ("/", Operator::Div, 5),
    ("%", Operator::Mod, 5),
];
pub const COMPARISON: u8 = 3;
/// How tightly a sign or a `!` binds.
pub const PREFIX: u8 = 6;

/// Functions that are written as calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    Unary(UnaryOp),
    Binary(BinaryOp),
    Select,
}

/// Name, function.
pub const FUNCTIONS: [(&str, Function); 13] = [
    ("exp", Function::Unary(UnaryOp::Exp)),
    ("log", Function::Unary(UnaryOp::Log)),
    ("sqrt", Function::Unary(UnaryOp::Sqrt)),
    ("tanh", Function::Unary(UnaryOp::Tanh)),
    ("erf", Function::Unary(UnaryOp::Erf)),
    ("abs", Function::Unary(UnaryOp::Abs)),
    ("floor", Function::Unary(UnaryOp::Floor)),
    ("ceil", Function::Unary(UnaryOp::Ceil)),
    ("round", Function::Unary(UnaryOp::Round)),
    ("min", Function::Binary(BinaryOp::Min)),
    ("max", Function::Binary(BinaryOp::Max)),
    ("pow", Function::Binary(BinaryOp::Pow)),
    ("select", Function::Select),
];

impl Function {
    pub fn operands(self) -> usize {
        match self {
            Function::Unary(_) => 1,
            Function::Binary(_) => 2,
            Function::Select => 3,
        }
    }
}

pub const DTYPES: [DType; 9] =
    [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8, DType::U8, DType::Bool];

impl Expr {
    pub fn new(kind: Kind) -> Expr {
        Expr { kind, span: Span::default() }
    }

    /// Calls `f` on every expression, parents first.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        f(self);
        match &self.kind {
            Kind::Integer(_) | Kind::Real(_) | Kind::Bool(_) | Kind::Name(_) => {}
            Kind::Element(_, operands) | Kind::Call(_, operands) => operands.iter().for_each(|e| e.visit(f)),
            Kind::Cast(_, a) | Kind::Negate(a) | Kind::Not(a) => a.visit(f),
            Kind::Binary(_, a, b) => {
                a.visit(f);
                b.visit(f);
            }
        }
    }
}
