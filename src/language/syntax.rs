//! The syntax tree of `.tile` files and of programs built in Rust.

use super::source::Source;
use crate::expr::syntax::Span;
use crate::expr::syntax::{Expr, Name};
use crate::poly::transform::primitive::Schedule;
use crate::runtime::DType;

/// A file: programs, and schedules for them.
///
/// ```
/// use tilewright::File;
///
/// let text = "def scale(f32(N) x) -> (y) {\n    y(i) = 2 * x(i)\n}\n\nschedule vectors for scale {\n    vectorize i by 8\n}\n";
/// let file = File::parse("scale.tile", text)?;
/// assert_eq!(&*file.programs[0].name, "scale");
/// assert_eq!(file.programs[0].inputs()[0].name.to_string(), "x");
/// assert_eq!(file.to_string(), text);
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Name and text that it was read from.
    pub source: Source,
    /// Programs in the order of the file.
    pub programs: Vec<Program>,
    /// Schedules in the order of the file.
    pub schedules: Vec<Schedule>,
}

/// Files are equal if their syntax trees are, whatever their layout and comments.
impl PartialEq for File {
    fn eq(&self, other: &File) -> bool {
        self.programs == other.programs && self.schedules == other.schedules
    }
}

/// A program: `def` or `loop`.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// Name of the program.
    pub name: Name,
    /// Named sets of sizes.
    pub sizes: Vec<Sizes>,
    /// Initial values of arrays that are not given: equations over the arrays and helpers of their own.
    pub initial: Vec<Equation>,
    /// Contents: tensor expressions or loops.
    pub body: Body,
}

/// Contents of a program.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// Tensor expressions.
    Def {
        /// Arrays that have values before.
        inputs: Vec<Array>,
        /// Results.
        outputs: Vec<Output>,
        /// Equations, in their order.
        equations: Vec<Equation>,
    },
    /// Loops and assignments, in their order.
    Loop {
        /// Sizes.
        parameters: Vec<Parameter>,
        /// Arrays, in the order of their declarations.
        arrays: Vec<Array>,
        /// Statements, in the order in which they run.
        statements: Vec<Statement>,
    },
}

/// `sizes LARGE { N = 1000, M = 1200 }`.
#[derive(Clone, PartialEq, Debug)]
pub struct Sizes {
    /// Name of the set.
    pub name: Name,
    /// Size and its value.
    pub values: Vec<(Name, i64)>,
}

/// A size of a loop program, with the value that it has when nothing else gives one.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameter {
    /// Name of the size.
    pub name: Name,
    /// Value that holds where no other is given.
    pub value: Option<i64>,
}

/// `f32(M,K) A` or `f32 A[M][K]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Array {
    /// Use of the array, where the text says it.
    pub access: Option<Access>,
    /// Element type.
    pub dtype: DType,
    /// Name of the array.
    pub name: Name,
    /// Extent of each dimension.
    pub shape: Vec<Expr>,
}

/// Use of an array by a loop program. Where the text says nothing, an array that is only read is `in`, another `inout`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Has values before, and is only read.
    In,
    /// Is written, and has no values before.
    Out,
    /// Has values before, and is written.
    InOut,
    /// Exists only while the program runs.
    Temporary,
}

/// A result of a `def`, with its type and shape if they are written.
#[derive(Clone, PartialEq, Debug)]
pub struct Output {
    /// Name of the result.
    pub name: Name,
    /// Type and shape.
    pub declared: Option<(DType, Vec<Expr>)>,
}

/// `C(m,n) +=! A(m,k) * B(k,n) where k in 0..4`.
#[derive(Clone, PartialEq, Debug)]
pub struct Equation {
    /// Name of the array that is written.
    pub target: Name,
    /// Indices or expressions that select the element.
    pub subscripts: Vec<Expr>,
    /// Combination with earlier values.
    pub assign: Assign,
    /// Right-hand side.
    pub value: Expr,
    /// Conditions after `where`.
    pub conditions: Vec<Condition>,
    /// Place in the text.
    pub span: Span,
}

/// A condition of an equation.
#[derive(Clone, PartialEq, Debug)]
pub enum Condition {
    /// `k in 0..4`.
    Range(Name, Range),
    /// `k <= i`.
    Holds(Expr),
}

/// Values of an index.
#[derive(Clone, PartialEq, Debug)]
pub struct Range {
    /// First value.
    pub lower: Expr,
    /// One past the last value.
    pub upper: Expr,
}

/// Combination of a value with the element that it is assigned to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assign {
    /// `=`: replaces the element.
    Set,
    /// `+=`: combines with the current value.
    Update(Combine),
    /// `+=!`: combines from the neutral element.
    Reduce(Combine),
}

/// Operation of an update or a reduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combine {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient.
    Div,
    /// The smaller value.
    Min,
    /// The larger value.
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
        /// Name of the loop's index.
        index: Name,
        /// Values of the index.
        range: Range,
        /// Distance of two values; not 0.
        step: i64,
        /// Statements of one iteration.
        body: Vec<Statement>,
    },
    /// `if condition { … } else { … }`.
    If {
        /// Condition. One that is not affine in the indices selects between values.
        condition: Expr,
        /// Statements where it holds.
        body: Vec<Statement>,
        /// Statements where it does not hold.
        otherwise: Vec<Statement>,
    },
    /// An assignment to one element.
    Assign(Assignment),
}

/// `S: A[i] += x[i]`. Schedules name the statement by its label, or else by its target.
#[derive(Clone, PartialEq, Debug)]
pub struct Assignment {
    /// Label, where there is one.
    pub label: Option<Name>,
    /// Name of the array that is written.
    pub target: Name,
    /// Subscripts of the element.
    pub subscripts: Vec<Expr>,
    /// Combination with the element's value.
    pub assign: Assign,
    /// Right-hand side.
    pub value: Expr,
    /// Place in the text.
    pub span: Span,
}

/// The assignments among statements, in the order of the text.
pub fn assignments(statements: &[Statement]) -> Vec<&Assignment> {
    let mut out = vec![];
    for s in statements {
        match s {
            Statement::For { body, .. } => out.extend(assignments(body)),
            Statement::If { body, otherwise, .. } => [body, otherwise].iter().for_each(|b| out.extend(assignments(b))),
            Statement::Assign(a) => out.push(a),
        }
    }
    out
}
