//! Expressions as they are written: names with their places, operators, calls; and their text.
//!
//! In: what the parser or a builder makes. Invariant: parse after print is the identity.

use crate::expr::logic::{Condition, Logic};
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::runtime::DType;

/// A range of bytes. Two trees are equal whatever their places: every span equals every other.
#[derive(Clone, Copy, Default, Debug)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset one past the last byte.
    pub end: u32,
}

impl PartialEq for Span {
    fn eq(&self, _: &Span) -> bool {
        true
    }
}

impl Eq for Span {}

impl Span {
    /// From the beginning of `self` to the end of `other`.
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start, end: other.end.max(self.end) }
    }
}

/// A name and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// The name as it is written.
    pub text: String,
    /// Place in the text.
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

/// An expression.
#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    /// The operation, with its operands.
    pub kind: Kind,
    /// Place in the text.
    pub span: Span,
}

/// The forms of an expression.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// An integer literal.
    Integer(i64),
    /// An integer literal from 2^63 on.
    Unsigned(u64),
    /// A literal with a fraction or an exponent, `inf` or `nan`.
    Real(f64),
    /// `true` or `false`.
    Bool(bool),
    /// An index, a size, or an array without dimensions.
    Name(String),
    /// An element of an array.
    Element(Name, Vec<Expr>),
    /// A function of its operands.
    Call(Function, Vec<Expr>),
    /// A conversion to an element type.
    Cast(DType, Box<Expr>),
    /// `-a`.
    Negate(Box<Expr>),
    /// `!a`.
    Not(Box<Expr>),
    /// Two operands joined by an operator.
    Binary(Operator, Box<Expr>, Box<Expr>),
}

/// Operators between two operands, those that bind tighter later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// `||`.
    Or,
    /// `&&`.
    And,
    /// `==`, `!=`, `<`, `<=`, `>`, `>=`.
    Compare(CompareOp),
    /// `+`.
    Add,
    /// `-`.
    Sub,
    /// `*`.
    Mul,
    /// `/`.
    Div,
    /// `%`.
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

/// Precedence of a sign or a `!`.
pub const PREFIX: u8 = 6;

/// Functions that are written as calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// A function of one operand, such as `exp`.
    Unary(UnaryOp),
    /// A function of two operands: `min`, `max`, `pow`.
    Binary(BinaryOp),
    /// `select(condition, a, b)`.
    Select,
}

/// Name, function.
pub const FUNCTIONS: [(&str, Function); 31] = [
    ("exp", Function::Unary(UnaryOp::Exp)),
    ("log", Function::Unary(UnaryOp::Log)),
    ("sqrt", Function::Unary(UnaryOp::Sqrt)),
    ("tanh", Function::Unary(UnaryOp::Tanh)),
    ("erf", Function::Unary(UnaryOp::Erf)),
    ("sin", Function::Unary(UnaryOp::Sin)),
    ("cos", Function::Unary(UnaryOp::Cos)),
    ("tan", Function::Unary(UnaryOp::Tan)),
    ("asin", Function::Unary(UnaryOp::Asin)),
    ("acos", Function::Unary(UnaryOp::Acos)),
    ("atan", Function::Unary(UnaryOp::Atan)),
    ("sinh", Function::Unary(UnaryOp::Sinh)),
    ("cosh", Function::Unary(UnaryOp::Cosh)),
    ("asinh", Function::Unary(UnaryOp::Asinh)),
    ("acosh", Function::Unary(UnaryOp::Acosh)),
    ("atanh", Function::Unary(UnaryOp::Atanh)),
    ("abs", Function::Unary(UnaryOp::Abs)),
    ("floor", Function::Unary(UnaryOp::Floor)),
    ("ceil", Function::Unary(UnaryOp::Ceil)),
    ("round", Function::Unary(UnaryOp::Round)),
    ("min", Function::Binary(BinaryOp::Min)),
    ("max", Function::Binary(BinaryOp::Max)),
    ("pow", Function::Binary(BinaryOp::Pow)),
    ("bit_not", Function::Unary(UnaryOp::Not)),
    ("popcount", Function::Unary(UnaryOp::CountOnes)),
    ("bit_and", Function::Binary(BinaryOp::And)),
    ("bit_or", Function::Binary(BinaryOp::Or)),
    ("bit_xor", Function::Binary(BinaryOp::Xor)),
    ("shl", Function::Binary(BinaryOp::ShiftLeft)),
    ("shr", Function::Binary(BinaryOp::ShiftRight)),
    ("select", Function::Select),
];

impl Function {
    /// Number of operands.
    pub fn operands(self) -> usize {
        match self {
            Function::Unary(_) => 1,
            Function::Binary(_) => 2,
            Function::Select => 3,
        }
    }
}

/// Types that programs compute with.
pub const DTYPES: [DType; 13] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
];

impl Expr {
    /// An expression without a place in a text.
    pub fn new(kind: Kind) -> Expr {
        Expr { kind, span: Span::default() }
    }

    /// An integer literal in the place of a text.
    pub(crate) fn integer(n: i64, span: Span) -> Expr {
        Expr { kind: Kind::Integer(n), span }
    }

    /// A name in the place of a text.
    pub(crate) fn named(name: &str, span: Span) -> Expr {
        Expr { kind: Kind::Name(name.into()), span }
    }

    /// A conversion, in the place of the operand.
    pub(crate) fn cast(self, to: DType) -> Expr {
        Expr { span: self.span, kind: Kind::Cast(to, Box::new(self)) }
    }

    /// Two operands joined by an operator, in the place of both.
    pub(crate) fn joined(self, operator: Operator, other: Expr) -> Expr {
        let span = self.span.to(other.span);
        Expr { kind: Kind::Binary(operator, Box::new(self), Box::new(other)), span }
    }

    /// Calls `f` on every expression, parents first.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        f(self);
        match &self.kind {
            Kind::Integer(_) | Kind::Unsigned(_) | Kind::Real(_) | Kind::Bool(_) | Kind::Name(_) => {}
            Kind::Element(_, operands) | Kind::Call(_, operands) => operands.iter().for_each(|e| e.visit(f)),
            Kind::Cast(_, a) | Kind::Negate(a) | Kind::Not(a) => a.visit(f),
            Kind::Binary(_, a, b) => {
                a.visit(f);
                b.visit(f);
            }
        }
    }
}

impl Condition for Expr {
    fn logic(&self) -> Logic<'_, Expr> {
        match &self.kind {
            Kind::Not(a) => Logic::Not(a),
            Kind::Binary(Operator::And, a, b) => Logic::And(a, b),
            Kind::Binary(Operator::Or, a, b) => Logic::Or(a, b),
            _ => Logic::Part,
        }
    }
}

/// Notation of an element: `A(i,j)` in a `def`, `A[i][j]` in a `loop`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Style {
    /// `A(i,j)`.
    Round,
    /// `A[i][j]`.
    Square,
}

pub fn list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(", ")
}

pub fn square(subscripts: &[Expr]) -> String {
    subscripts.iter().map(|e| format!("[{}]", e.text(Style::Square, 0))).collect()
}

pub fn element(name: &str, subscripts: &[Expr], style: Style) -> String {
    match style {
        Style::Round => format!("{name}({})", list(subscripts, |e| e.text(style, 0))),
        Style::Square => format!("{name}{}", square(subscripts)),
    }
}

impl Expr {
    /// The text.
    pub fn show(&self, style: Style) -> String {
        self.text(style, 0)
    }

    /// The text, in parentheses where operators that bind with `outside` would take it apart.
    pub fn text(&self, style: Style, outside: u8) -> String {
        match &self.kind {
            Kind::Integer(v) => v.to_string(),
            Kind::Unsigned(v) => v.to_string(),
            Kind::Real(v) if v.is_nan() => "nan".into(),
            Kind::Real(v) => format!("{v:?}"),
            Kind::Bool(v) => v.to_string(),
            Kind::Name(name) => name.clone(),
            Kind::Element(name, subscripts) => element(name, subscripts, style),
            Kind::Call(function, operands) => {
                let name = FUNCTIONS.iter().find(|x| x.1 == *function).map_or("?", |x| x.0);
                format!("{name}({})", list(operands, |e| e.text(style, 0)))
            }
            Kind::Cast(dtype, a) => format!("{dtype}({})", a.text(style, 0)),
            Kind::Negate(a) => format!("-{}", a.text(style, PREFIX)),
            Kind::Not(a) => format!("!{}", a.text(style, PREFIX)),
            Kind::Binary(operator, a, b) => {
                let (symbol, binds) = OPERATORS.iter().find(|o| o.1 == *operator).map_or(("?", 0), |o| (o.0, o.2));
                let left = if binds == COMPARISON { binds + 1 } else { binds };
                let text = format!("{} {symbol} {}", a.text(style, left), b.text(style, binds + 1));
                if binds < outside { format!("({text})") } else { text }
            }
        }
    }
}
