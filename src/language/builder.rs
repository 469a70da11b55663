//! Programs built in Rust: the same tree that the parser makes, so that everything that takes a file takes them too.
//!
//! ```
//! use tilewright::DType::F32;
//! use tilewright::builder::*;
//!
//! let (m, n, k) = (name("m"), name("n"), name("k"));
//! let (a, b, c) = (array("A"), array("B"), array("C"));
//! let gemm = def("gemm")
//!     .input(F32, "A", ("M", "K"))
//!     .input(F32, "B", ("K", "N"))
//!     .output("C")
//!     .equation(c.at((m, n)), "+=!", a.at((m, k)) * b.at((k, n)))
//!     .build()?;
//! assert_eq!(gemm.to_string(), "def gemm(f32(M, K) A, f32(K, N) B) -> (C) {\n    C(m, n) +=! A(m, k) * B(k, n)\n}\n");
//!
//! let i = name("i");
//! let x = array("x");
//! let prefix_sum = loops("prefix_sum")
//!     .size("N", None)
//!     .array(F32, "x", "N")
//!     .statement(each(i, 1, "N", [set(x.at(i), "+=", x.at(i - 1))]))
//!     .build()?;
//! assert!(prefix_sum.to_string().contains("for i in 1..N {\n        x[i] += x[i - 1]\n    }\n"));
//! # Ok::<(), tilewright::Error>(())
//! ```

mod schedule;

use crate::expr::syntax::{Expr, Function, Kind, Name, Operator};
pub use schedule::Primitives;

use super::syntax::*;
use crate::expr::syntax::Style;
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::poly::transform::primitive::Schedule;
use crate::runtime::{DType, Error, Result};

/// An index, a size or an array without dimensions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Named<'a>(&'a str);

/// The index or size called `text`.
pub fn name(text: &str) -> Named<'_> {
    Named(text)
}

/// An array whose elements are named with [`Tensor::at`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tensor<'a>(&'a str);

/// The array called `text`.
pub fn array(text: &str) -> Tensor<'_> {
    Tensor(text)
}

impl Tensor<'_> {
    /// The element at one subscript or a tuple of them; `()` for an array without dimensions.
    pub fn at(&self, subscripts: impl List) -> Expr {
        Expr::new(Kind::Element(self.0.into(), subscripts.list()))
    }
}

impl From<Named<'_>> for Expr {
    fn from(n: Named) -> Expr {
        Expr::new(Kind::Name(n.0.into()))
    }
}

impl From<&str> for Expr {
    fn from(name: &str) -> Expr {
        Expr::new(Kind::Name(name.into()))
    }
}

impl From<i64> for Expr {
    fn from(v: i64) -> Expr {
        Expr::new(Kind::Integer(v))
    }
}

impl From<f64> for Expr {
    fn from(v: f64) -> Expr {
        Expr::new(Kind::Real(v))
    }
}

impl From<bool> for Expr {
    fn from(v: bool) -> Expr {
        Expr::new(Kind::Bool(v))
    }
}

/// One expression, or several in a tuple.
pub trait List {
    /// The expressions in order.
    fn list(self) -> Vec<Expr>;
}

impl<T: Into<Expr>> List for T {
    fn list(self) -> Vec<Expr> {
        vec![self.into()]
    }
}

macro_rules! lists {
    ($(($($t:ident $i:tt),*))*) => {$(
        impl<$($t: Into<Expr>),*> List for ($($t,)*) {
            fn list(self) -> Vec<Expr> {
                vec![$(self.$i.into()),*]
            }
        }
    )*};
}
lists!(() (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) (A 0, B 1, C 2, D 3, E 4) (A 0, B 1, C 2, D 3, E 4, F 5));

fn binary(operator: Operator, a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
    Expr::new(Kind::Binary(operator, Box::new(a.into()), Box::new(b.into())))
}

macro_rules! operators {
    ($($trait:ident $method:ident $operator:ident),*) => {$(
        impl<T: Into<Expr>> std::ops::$trait<T> for Expr {
            type Output = Expr;
            fn $method(self, other: T) -> Expr {
                binary(Operator::$operator, self, other)
            }
        }
        impl<T: Into<Expr>> std::ops::$trait<T> for Named<'_> {
            type Output = Expr;
            fn $method(self, other: T) -> Expr {
                binary(Operator::$operator, self, other)
            }
        }
        operators!(@ $trait $method $operator, i64 f64);
    )*};
    (@ $trait:ident $method:ident $operator:ident, $($number:ty)*) => {$(
        impl std::ops::$trait<Expr> for $number {
            type Output = Expr;
            fn $method(self, other: Expr) -> Expr {
                binary(Operator::$operator, self, other)
            }
        }
        impl std::ops::$trait<Named<'_>> for $number {
            type Output = Expr;
            fn $method(self, other: Named<'_>) -> Expr {
                binary(Operator::$operator, self, other)
            }
        }
    )*};
}
operators!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div, Rem rem Mod);

impl std::ops::Neg for Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        Expr::new(match self.kind {
            Kind::Integer(v) if v >= 0 => Kind::Integer(-v),
            Kind::Real(v) if v >= 0.0 => Kind::Real(-v),
            kind => Kind::Negate(Box::new(Expr { kind, span: self.span })),
        })
    }
}

impl std::ops::Not for Expr {
    type Output = Expr;
    fn not(self) -> Expr {
        Expr::new(Kind::Not(Box::new(self)))
    }
}

macro_rules! functions {
    ($($name:ident $op:ident: $doc:literal),*) => {$(
        #[doc = $doc]
        pub fn $name(a: impl Into<Expr>) -> Expr {
            Expr::new(Kind::Call(Function::Unary(UnaryOp::$op), vec![a.into()]))
        }
    )*};
}
functions!(
    exp Exp: "e to the power of a.", log Log: "The natural logarithm.", sqrt Sqrt: "The square root.",
    sin Sin: "The sine.", cos Cos: "The cosine.", tan Tan: "The tangent.", asin Asin: "The inverse of the sine.",
    acos Acos: "The inverse of the cosine.", atan Atan: "The inverse of the tangent.", sinh Sinh: "The hyperbolic sine.",
    cosh Cosh: "The hyperbolic cosine.", asinh Asinh: "The inverse of the hyperbolic sine.",
    acosh Acosh: "The inverse of the hyperbolic cosine.", atanh Atanh: "The inverse of the hyperbolic tangent.",
    bit_not Not: "Every bit of an integer inverted.", popcount CountOnes: "The number of bits of an integer that are one.", tanh Tanh: "The hyperbolic tangent.", erf Erf: "The error function.", abs Abs: "The absolute value.",
    floor Floor: "The next integer below.", ceil Ceil: "The next integer above.",
    round Round: "The nearest integer, ties to even."
);

macro_rules! comparisons {
    ($($name:ident $op:ident $symbol:literal),*) => {$(
        #[doc = concat!("`a ", $symbol, " b`.")]
        pub fn $name(a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
            binary(Operator::Compare(CompareOp::$op), a, b)
        }
    )*};
}
comparisons!(equal Eq "==", unequal Ne "!=", less Lt "<", at_most Le "<=", greater Gt ">", at_least Ge ">=");

fn call(function: Function, operands: Vec<Expr>) -> Expr {
    Expr::new(Kind::Call(function, operands))
}

/// The bits that both integers have.
pub fn bit_and(a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
    call(Function::Binary(BinaryOp::And), vec![a.into(), b.into()])
}

/// The bits that one of two integers has, or both.
pub fn bit_or(a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
    call(Function::Binary(BinaryOp::Or), vec![a.into(), b.into()])
}

/// The bits that exactly one of two integers has.
pub fn bit_xor(a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
    call(Function::Binary(BinaryOp::Xor), vec![a.into(), b.into()])
}

/// The integer `a` times 2 to the power of `b`.
pub fn shl(a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
    call(Function::Binary(BinaryOp::ShiftLeft), vec![a.into(), b.into()])
}

/// The integer `a` divided by 2 to the power of `b`, rounded down.
pub fn shr(a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
    call(Function::Binary(BinaryOp::ShiftRight), vec![a.into(), b.into()])
}

/// The smaller of two values.
pub fn min(a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
    call(Function::Binary(BinaryOp::Min), vec![a.into(), b.into()])
}

/// The larger of two values.
pub fn max(a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
    call(Function::Binary(BinaryOp::Max), vec![a.into(), b.into()])
}

/// `a` to the power of `b`.
pub fn pow(a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
    call(Function::Binary(BinaryOp::Pow), vec![a.into(), b.into()])
}

/// `a` where `condition` holds, else `b`.
pub fn select(condition: Expr, a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
    call(Function::Select, vec![condition, a.into(), b.into()])
}

/// Conversion to an element type.
pub fn cast(dtype: DType, a: impl Into<Expr>) -> Expr {
    Expr::new(Kind::Cast(dtype, Box::new(a.into())))
}

/// `a && b`.
pub fn both(a: Expr, b: Expr) -> Expr {
    binary(Operator::And, a, b)
}

/// `a || b`.
pub fn either(a: Expr, b: Expr) -> Expr {
    binary(Operator::Or, a, b)
}

/// `for i in lower..upper body`.
pub fn each(
    index: Named,
    lower: impl Into<Expr>,
    upper: impl Into<Expr>,
    body: impl IntoIterator<Item = Statement>,
) -> Statement {
    let range = Range { lower: lower.into(), upper: upper.into() };
    Statement::For { index: index.0.into(), range, step: 1, body: body.into_iter().collect() }
}

/// `if condition body`.
pub fn when(condition: Expr, body: impl IntoIterator<Item = Statement>) -> Statement {
    Statement::If { condition, body: body.into_iter().collect(), otherwise: vec![] }
}

/// `target update value`; the update is `=`, `+=`, `max=` and so on, checked when the program is built.
pub fn set(target: Expr, update: &str, value: impl Into<Expr>) -> Statement {
    let (target, subscripts, span) = element(target);
    let assign = assignment(update).unwrap_or(Assign::Reduce(Combine::Div));
    Statement::Assign(Assignment { label: None, target, subscripts, assign, value: value.into(), span })
}

/// `label: target update value`: a statement that schedules call by its label instead of its target.
pub fn set_as(label: &str, target: Expr, update: &str, value: impl Into<Expr>) -> Statement {
    match set(target, update, value) {
        Statement::Assign(a) => Statement::Assign(Assignment { label: Some(label.into()), ..a }),
        other => other,
    }
}

fn element(target: Expr) -> (Name, Vec<Expr>, crate::expr::syntax::Span) {
    match target.kind {
        Kind::Element(name, subscripts) => (name, subscripts, target.span),
        kind => (Expr::new(kind).show(Style::Square).as_str().into(), vec![], target.span),
    }
}

fn assignment(symbol: &str) -> Option<Assign> {
    ASSIGNMENTS.iter().find(|a| a.0 == symbol).map(|a| a.1)
}

/// A program under construction. [`build`](Builder::build) parses its text, so that errors are those of the language.
#[derive(Clone, Debug)]
pub struct Builder {
    program: Program,
    schedules: Vec<Schedule>,
    wrong: Option<String>,
}

/// A program of tensor expressions.
pub fn def(name: &str) -> Builder {
    Builder::new(name, Body::Def { inputs: vec![], outputs: vec![], equations: vec![] })
}

/// A program of loops.
pub fn loops(name: &str) -> Builder {
    Builder::new(name, Body::Loop { parameters: vec![], arrays: vec![], statements: vec![] })
}

impl Builder {
    fn new(name: &str, body: Body) -> Builder {
        let program = Program { name: name.into(), sizes: vec![], initial: vec![], body };
        Builder { program, schedules: vec![], wrong: None }
    }

    fn refuse(mut self, what: &str) -> Builder {
        self.wrong.get_or_insert_with(|| what.into());
        self
    }

    /// An input of a `def`.
    pub fn input(mut self, dtype: DType, name: &str, shape: impl List) -> Builder {
        let array = Array { access: None, dtype, name: name.into(), shape: shape.list() };
        match &mut self.program.body {
            Body::Def { inputs, .. } => inputs.push(array),
            Body::Loop { .. } => return self.refuse("a loop program has arrays, not inputs"),
        }
        self
    }

    /// An output of a `def`; type and shape follow from its equation.
    pub fn output(mut self, name: &str) -> Builder {
        match &mut self.program.body {
            Body::Def { outputs, .. } => outputs.push(Output { name: name.into(), declared: None }),
            Body::Loop { .. } => return self.refuse("a loop program has arrays, not outputs"),
        }
        self
    }

    /// `target assign value`, where assign is `=`, `+=!` and so on.
    pub fn equation(self, target: Expr, assign: &str, value: impl Into<Expr>) -> Builder {
        self.equation_where(target, assign, value, [])
    }

    /// [`equation`](Builder::equation) with conditions: see [`within`] and [`holds`].
    pub fn equation_where(
        mut self,
        target: Expr,
        assign: &str,
        value: impl Into<Expr>,
        conditions: impl IntoIterator<Item = Condition>,
    ) -> Builder {
        let Some(assign) = assignment(assign) else { return self.refuse("no such assignment") };
        let (target, subscripts, span) = element(target);
        let conditions = conditions.into_iter().collect();
        let equation = Equation { target, subscripts, assign, value: value.into(), conditions, span };
        match &mut self.program.body {
            Body::Def { equations, .. } => equations.push(equation),
            Body::Loop { .. } => return self.refuse("a loop program has statements, not equations"),
        }
        self
    }

    /// A size of a loop program.
    pub fn size(mut self, name: &str, value: Option<i64>) -> Builder {
        match &mut self.program.body {
            Body::Loop { parameters, .. } => parameters.push(Parameter { name: name.into(), value }),
            Body::Def { .. } => return self.refuse("the sizes of a def are those of its inputs"),
        }
        self
    }

    /// An array of a loop program.
    pub fn array(self, dtype: DType, name: &str, shape: impl List) -> Builder {
        self.declare(None, dtype, name, shape)
    }

    /// An array that exists only inside a loop program.
    pub fn temporary(self, dtype: DType, name: &str, shape: impl List) -> Builder {
        self.declare(Some(Access::Temporary), dtype, name, shape)
    }

    fn declare(mut self, access: Option<Access>, dtype: DType, name: &str, shape: impl List) -> Builder {
        match &mut self.program.body {
            Body::Loop { arrays, .. } => {
                arrays.push(Array { access, dtype, name: name.into(), shape: shape.list() });
                self
            }
            Body::Def { .. } => self.refuse("a def has inputs and outputs, not arrays"),
        }
    }

    /// A statement of a loop program.
    pub fn statement(mut self, statement: Statement) -> Builder {
        match &mut self.program.body {
            Body::Loop { statements, .. } => statements.push(statement),
            Body::Def { .. } => return self.refuse("a def has equations, not statements"),
        }
        self
    }

    /// Initial values of an array that is not given.
    pub fn initial(mut self, target: Expr, value: impl Into<Expr>) -> Builder {
        let (target, subscripts, span) = element(target);
        let (assign, conditions) = (Assign::Set, vec![]);
        self.program.initial.push(Equation { target, subscripts, assign, value: value.into(), conditions, span });
        self
    }

    /// A set of sizes.
    pub fn sizes(mut self, name: &str, values: &[(&str, i64)]) -> Builder {
        let values = values.iter().map(|v| (v.0.into(), v.1)).collect();
        self.program.sizes.push(Sizes { name: name.into(), values });
        self
    }

    /// The program and its schedules as a file of their own.
    ///
    /// # Errors
    /// [`Error::Invalid`] where a part is of the other form of program, and as [`File::parse`] for the text of the
    /// program.
    pub fn build(self) -> Result<File> {
        match self.wrong {
            Some(what) => Err(Error::Invalid(format!("`{}`: {what}", self.program.name))),
            None => {
                let parts = self.schedules.iter().map(|s| format!("\n{s}"));
                super::parse(&self.program.name, &parts.fold(self.program.to_string(), |text, s| text + &s))
            }
        }
    }
}

/// `index in lower..upper`.
pub fn within(index: Named, lower: impl Into<Expr>, upper: impl Into<Expr>) -> Condition {
    Condition::Range(index.0.into(), Range { lower: lower.into(), upper: upper.into() })
}

/// A condition on indices.
pub fn holds(condition: Expr) -> Condition {
    Condition::Holds(condition)
}
