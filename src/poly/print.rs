//! Scop and Schedule as text. [`super::parse`] reads it back: `parse(print(x)) == x`.
//!
//! ```text
//! scop gemm {
//!     input f32 A[64][32]
//!     constant f32 B[32][48]
//!     output f32 C[64][48]
//!     temporary f32 C_acc[64][48]
//!     C_init(m < 64, n < 48): C_acc[m][n] = f32(0.0)
//!     C_update(m < 64, n < 48, k < 32): C_acc[m][n] += A[m][k] * B[k][n]
//!     C(m < 64, n < 48): C[m][n] = max(C_acc[m][n], f32(0.0))
//! }
//! ```
//! A domain restriction follows the iterators, `if h + r - 1 >= 0, …`; a guarded read is `A[h + r - 1] ? h + r - 1 >= 0 : f32(0.0)`
//! in parentheses; a computed subscript stands in braces, `T[{ids[i]}][j]`; `{h + 1}` alone is an affine form as a value.

use crate::codegen::expr::{Access, Affine, BinaryOp, CompareOp, Expr, Index, Scalar, UnaryOp};
use crate::poly::DType;
use crate::poly::schedule::{Node, RowKind, Schedule};
use crate::poly::scop::{Role, Scop, Statement, StatementId};
use std::fmt::Write;

pub(super) const ROLES: [(Role, &str); 4] =
    [(Role::Input, "input"), (Role::Constant, "constant"), (Role::Output, "output"), (Role::Temporary, "temporary")];
pub(super) const UNARY: [(UnaryOp, &str); 11] = [
    (UnaryOp::Neg, "neg"),
    (UnaryOp::Abs, "abs"),
    (UnaryOp::Sqrt, "sqrt"),
    (UnaryOp::Exp, "exp"),
    (UnaryOp::Log, "log"),
    (UnaryOp::Tanh, "tanh"),
    (UnaryOp::Erf, "erf"),
    (UnaryOp::Floor, "floor"),
    (UnaryOp::Ceil, "ceil"),
    (UnaryOp::Round, "round"),
    (UnaryOp::Not, "not"),
];
/// Operators between their operands, with their precedence.
pub(super) const INFIX: [(BinaryOp, &str, u8); 5] = [
    (BinaryOp::Add, "+", 1),
    (BinaryOp::Sub, "-", 1),
    (BinaryOp::Mul, "*", 2),
    (BinaryOp::Div, "/", 2),
    (BinaryOp::Mod, "%", 2),
];
pub(super) const PREFIX: [(BinaryOp, &str); 6] = [
    (BinaryOp::Min, "min"),
    (BinaryOp::Max, "max"),
    (BinaryOp::Pow, "pow"),
    (BinaryOp::And, "and"),
    (BinaryOp::Or, "or"),
    (BinaryOp::Xor, "xor"),
];
pub(super) const COMPARE: [(CompareOp, &str); 6] = [
    (CompareOp::Eq, "eq"),
    (CompareOp::Ne, "ne"),
    (CompareOp::Lt, "lt"),
    (CompareOp::Le, "le"),
    (CompareOp::Gt, "gt"),
    (CompareOp::Ge, "ge"),
];
pub(super) const KINDS: [(RowKind, &str); 4] = [
    (RowKind::Serial, "serial"),
    (RowKind::Parallel, "parallel"),
    (RowKind::Unroll, "unroll"),
    (RowKind::Vector, "vector"),
];

pub(super) fn name_of<T: PartialEq + Copy>(table: &[(T, &'static str)], x: T) -> &'static str {
    table.iter().find(|e| e.0 == x).map_or("?", |e| e.1)
}

/// An affine form over iterators with the given names: `2*h + r - 1`.
pub fn affine(a: &Affine, name: &dyn Fn(u32) -> String) -> String {
    let mut out = String::new();
    for &(v, c) in &a.terms {
        let sign = match (out.is_empty(), c < 0) {
            (true, true) => "-",
            (true, false) => "",
            (false, true) => " - ",
            (false, false) => " + ",
        };
        out += sign;
        if c.abs() != 1 {
            let _ = write!(out, "{}*", c.unsigned_abs());
        }
        out += &name(v.0);
    }
    match a.constant {
        c if out.is_empty() => out = c.to_string(),
        0 => {}
        c if c < 0 => _ = write!(out, " - {}", c.unsigned_abs()),
        c => _ = write!(out, " + {c}"),
    }
    out
}

/// A typed constant: `f32(1.5)`, `i64(3)`, `bool(1)`; what is no plain number is given by its bits, `f32(0x7fc00000)`.
pub fn scalar(s: Scalar) -> String {
    let value = match s.dtype {
        DType::F32 if !f32::from_bits(s.bits as u32).is_nan() => format!("{:?}", f32::from_bits(s.bits as u32)),
        DType::F64 if !f64::from_bits(s.bits).is_nan() => format!("{:?}", f64::from_bits(s.bits)),
        DType::I64 => (s.bits as i64).to_string(),
        DType::I32 if s.bits >> 32 == 0 => (s.bits as u32 as i32).to_string(),
        DType::I8 if s.bits >> 8 == 0 => (s.bits as u8 as i8).to_string(),
        DType::U8 | DType::Bool => s.bits.to_string(),
        _ => format!("0x{:x}", s.bits),
    };
    format!("{}({value})", s.dtype)
}

impl std::fmt::Display for StatementId {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "S{}", self.0)
    }
}

struct Names<'a> {
    scop: &'a Scop,
    statement: &'a Statement,
}

impl Names<'_> {
    fn affine(&self, a: &Affine) -> String {
        let iterators = &self.statement.iterators;
        affine(a, &|v| iterators.get(v as usize).map_or_else(|| format!("i{v}"), |it| it.name.clone()))
    }

    fn conditions(&self, conditions: &[Affine]) -> String {
        conditions.iter().map(|c| format!("{} >= 0", self.affine(c))).collect::<Vec<_>>().join(", ")
    }

    fn access(&self, a: &Access) -> String {
        let mut out = self.scop.tensor(a.buffer).name.clone();
        for i in &a.index {
            let _ = match i {
                Index::Affine(i) => write!(out, "[{}]", self.affine(i)),
                Index::Value(e) => write!(out, "[{{{}}}]", self.expr(e, 0)),
            };
        }
        if a.guard.is_empty() && a.otherwise.is_none() {
            return out;
        }
        let otherwise = a.otherwise.map_or_else(|| "none".into(), scalar);
        format!("({out} ? {} : {otherwise})", self.conditions(&a.guard))
    }

    fn expr(&self, e: &Expr, precedence: u8) -> String {
        let list = |name: &str, es: &[&Expr]| {
            let parts: Vec<String> = es.iter().map(|e| self.expr(e, 0)).collect();
            format!("{name}({})", parts.join(", "))
        };
        match e {
            Expr::Const(s) => scalar(*s),
            Expr::Index(a) => format!("{{{}}}", self.affine(a)),
            Expr::Load(a) => self.access(a),
            Expr::Unary(op, a) => list(name_of(&UNARY, *op), &[a]),
            Expr::Binary(op, a, b) => match INFIX.iter().find(|x| x.0 == *op) {
                Some(&(_, symbol, own)) => {
                    let text = format!("{} {symbol} {}", self.expr(a, own), self.expr(b, own + 1));
                    if own < precedence { format!("({text})") } else { text }
                }
                None => list(name_of(&PREFIX, *op), &[a, b]),
            },
            Expr::Compare(op, a, b) => list(name_of(&COMPARE, *op), &[a, b]),
            Expr::Select(c, a, b) => list("select", &[c, a, b]),
            Expr::Cast(t, a) => list(t.name(), &[a]),
        }
    }
}

impl std::fmt::Display for Scop {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        writeln!(f, "scop {} {{", self.name)?;
        for t in &self.tensors {
            let shape: String = t.shape.iter().map(|e| format!("[{e}]")).collect();
            writeln!(f, "    {} {} {}{shape}", name_of(&ROLES, t.role), t.dtype, t.name)?;
        }
        for s in &self.statements {
            let names = Names { scop: self, statement: s };
            let iterators: Vec<String> = s.iterators.iter().map(|it| format!("{} < {}", it.name, it.extent)).collect();
            write!(f, "    {}({})", s.name, iterators.join(", "))?;
            if !s.domain.is_empty() {
                write!(f, " if {}", names.conditions(&s.domain))?;
            }
            let write = Access {
                buffer: s.target,
                index: s.write.iter().cloned().map(Index::Affine).collect(),
                guard: vec![],
                otherwise: None,
            };
            let assign = match s.reduce {
                None => "=".to_string(),
                Some(op) => match INFIX.iter().find(|x| x.0 == op) {
                    Some(x) => format!("{}=", x.1),
                    None => format!("{}=", name_of(&PREFIX, op)),
                },
            };
            writeln!(f, ": {} {assign} {}", names.access(&write), names.expr(&s.body, 0))?;
        }
        writeln!(f, "}}")
    }
}

impl Schedule {
    /// The tree as indented text, with the names of `scop`.
    pub fn print(&self, scop: &Scop) -> String {
        let mut out = String::new();
        print_node(&self.root, scop, 0, &mut out);
        out
    }
}

fn print_node(node: &Node, scop: &Scop, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match node {
        Node::Leaf => _ = writeln!(out, "{indent}leaf"),
        Node::Sequence(children) => {
            let _ = writeln!(out, "{indent}sequence");
            for (ids, child) in children {
                let names: Vec<&str> = ids.iter().map(|&id| scop.statement(id).name.as_str()).collect();
                let _ = writeln!(out, "{indent}  {{{}}}", names.join(", "));
                print_node(child, scop, depth + 2, out);
            }
        }
        Node::Band(band, child) => {
            let _ = writeln!(out, "{indent}band{}", if band.permutable { " permutable" } else { "" });
            for row in &band.rows {
                let mut words = vec![name_of(&KINDS, row.kind).to_string()];
                if row.coincident {
                    words.push("coincident".into());
                }
                if row.tile != 1 {
                    words.push(format!("tile {}", row.tile));
                }
                let phi: Vec<String> = row
                    .phi
                    .iter()
                    .map(|(id, a)| {
                        let s = scop.statement(*id);
                        let name = |v: u32| s.iterators.get(v as usize).map_or(format!("i{v}"), |it| it.name.clone());
                        format!("{}({})", s.name, affine(a, &name))
                    })
                    .collect();
                let _ = writeln!(out, "{indent}  {} [{}] {}", row.name, words.join(" "), phi.join(", "));
            }
            print_node(child, scop, depth + 1, out);
        }
    }
}
