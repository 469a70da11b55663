//! Text of LoopNest and VCode. A LoopNest is read back by `parse.rs`: parse ∘ print is the identity up to the numbering of
//! variables.
//!
//! ```text
//! kernel relu {
//!   X: f32[64] argument 0;
//!   Y: f32[64] argument 1 written;
//!   P: f32[2][2] argument 2 = {1, 0, -1, 0.5};
//!   parallel t in 0..4 {
//!     vector i in 0..16 {
//!       Y[16*t + i] = max(X[16*t + i], f32(0.0));
//!     }
//!   }
//! }
//! ```

use crate::codegen::loopnest::{Buffer, BufferKind, LoopKind, LoopNest, Stmt, row_major};
use crate::expr::Bound;
use crate::expr::text::{self, affine, literals, scalar};
use crate::expr::{Access, BinaryOp, BufferId, Expr, Index};
use crate::expr::{Affine, Var};
use rustc_hash::FxHashMap;
use std::fmt::Write;

impl std::fmt::Display for LoopNest {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&nest(self))
    }
}

/// The text of a nest.
pub fn nest(nest: &LoopNest) -> String {
    let names = Names {
        buffers: unique_names(nest.buffers.iter().map(|b| b.name.as_str())),
        vars: nest.vars.iter().map(|n| identifier(n)).collect(),
    };
    let mut p = Printer { nest, names, seen: FxHashMap::default(), out: String::new() };
    let _ = writeln!(p.out, "kernel {} {{", identifier(&nest.name));
    for (b, name) in nest.buffers.iter().zip(&p.names.buffers) {
        let _ = writeln!(p.out, "  {name}: {};", buffer_type(b));
    }
    p.body(&nest.body, 1);
    p.out.push_str("}\n");
    p.out
}

/// A name without the characters that have a meaning in the text.
pub(crate) fn identifier(name: &str) -> String {
    let ok = |c: char| c.is_alphanumeric() || c == '_' || c == '\'';
    let mut out: String = name.chars().map(|c| if ok(c) { c } else { '_' }).collect();
    if !out.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        out.insert(0, '_');
    }
    out
}

/// The names, later ones with `#n` where an earlier one has the same.
pub(crate) fn unique_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut seen = FxHashMap::default();
    names.map(|n| number(&mut seen, identifier(n))).collect()
}

fn number(seen: &mut FxHashMap<String, usize>, name: String) -> String {
    let n = seen.entry(name.clone()).or_insert(0);
    *n += 1;
    if *n == 1 { name } else { format!("{name}#{n}") }
}

fn buffer_type(b: &Buffer) -> String {
    let mut out = b.dtype.name().to_string();
    for n in &b.shape {
        let _ = write!(out, "[{n}]");
    }
    if b.strides != row_major(&b.shape) {
        out.push_str(" strides ");
        for s in &b.strides {
            let _ = write!(out, "[{s}]");
        }
    }
    match b.kind {
        BufferKind::Local => out.push_str(" local"),
        BufferKind::Argument { slot, written } => {
            let _ = write!(out, " argument {slot}{}", if written { " written" } else { "" });
        }
    }
    out.push_str(&literals(b.literals.as_ref()));
    if let Some((lower, upper)) = b.elements {
        let _ = write!(out, " from {lower} to {upper}");
    }
    if let Some((lower, upper)) = b.limits {
        let _ = write!(out, " within {lower} to {upper}");
    }
    out
}

/// The text of expressions: names of buffers and variables by their numbers.
pub(crate) struct Names {
    pub buffers: Vec<String>,
    pub vars: Vec<String>,
}

struct Printer<'a> {
    nest: &'a LoopNest,
    names: Names,
    seen: FxHashMap<String, usize>,
    out: String,
}

impl Printer<'_> {
    fn bind(&mut self, v: Var) -> String {
        let name = number(&mut self.seen, identifier(&self.nest.vars[v.0 as usize]));
        self.names.vars[v.0 as usize] = name.clone();
        name
    }

    fn body(&mut self, body: &[Stmt], depth: usize) {
        let pad = "  ".repeat(depth);
        for stmt in body {
            match stmt {
                Stmt::Loop { var, lower, upper, step, kind, body } => {
                    let (lower, upper) = (self.bounds(lower, "max", true), self.bounds(upper, "min", false));
                    let name = self.bind(*var);
                    let kind = match kind {
                        LoopKind::Serial => "for".to_string(),
                        LoopKind::Parallel => "parallel".to_string(),
                        LoopKind::Waves { width } => format!("waves {width}"),
                        LoopKind::Unroll => "unroll".to_string(),
                        LoopKind::Vector => "vector".to_string(),
                        LoopKind::Instruction(name) => format!("instruction {name}"),
                    };
                    let step = if *step == 1 { String::new() } else { format!(" step {step}") };
                    let _ = writeln!(self.out, "{pad}{kind} {name} in {lower}..{upper}{step} {{");
                    self.body(body, depth + 1);
                    let _ = writeln!(self.out, "{pad}}}");
                }
                Stmt::Let { var, value, divisor } => {
                    let value = self.quotient("floor", value, *divisor);
                    let name = self.bind(*var);
                    let _ = writeln!(self.out, "{pad}let {name} = {value};");
                }
                Stmt::Read { var, value, range, checked, expected, recorded } => {
                    let (value, expected) =
                        (self.names.expr(value), self.bounds(std::slice::from_ref(expected), "", false));
                    let name = self.bind(*var);
                    let ((low, high), read) = (range, if *checked { "within" } else { "clamp" });
                    let of = |b: &BufferId| self.names.buffers[b.0 as usize].as_str();
                    let recorded = recorded.as_ref().map_or(String::new(), |[a, b]| format!(" in {} {}", of(a), of(b)));
                    let text = format!("let {name} = {read}({value}, {low}, {high}) about {expected}{recorded};");
                    let _ = writeln!(self.out, "{pad}{text}");
                }
                Stmt::If { conditions, body } => {
                    let _ = writeln!(self.out, "{pad}if {} {{", self.names.conditions(conditions));
                    self.body(body, depth + 1);
                    let _ = writeln!(self.out, "{pad}}}");
                }
                Stmt::Store { buffer, index, value, reduce } => {
                    let op = reduce.map_or(String::new(), |op| format!("{} ", op.name()));
                    let (target, value) = (self.names.element(*buffer, index), self.names.expr(value));
                    let _ = writeln!(self.out, "{pad}{target} {op}= {value};");
                }
            }
        }
    }

    fn quotient(&self, name: &str, a: &Affine, divisor: i64) -> String {
        match self.names.affine(a) {
            a if a.contains(' ') => format!("{name}(({a}) / {divisor})"),
            a => format!("{name}({a} / {divisor})"),
        }
    }

    fn bounds(&self, bounds: &[Bound], name: &str, ceil: bool) -> String {
        let printed = |b: &Bound| match (b.divisor, ceil) {
            (1, _) => self.names.affine(&b.affine),
            (d, true) => self.quotient("ceil", &b.affine, d),
            (d, false) => self.quotient("floor", &b.affine, d),
        };
        match bounds {
            [b] => printed(b),
            _ => format!("{name}({})", bounds.iter().map(printed).collect::<Vec<_>>().join(", ")),
        }
    }
}

impl Names {
    pub(crate) fn affine(&self, a: &Affine) -> String {
        affine(a, |v| self.vars[v.0 as usize].clone())
    }

    pub(crate) fn conditions(&self, conditions: &[Affine]) -> String {
        text::conditions(conditions, |c| self.affine(c))
    }

    pub(crate) fn element(&self, buffer: BufferId, index: &[Index]) -> String {
        let mut out = self.buffers[buffer.0 as usize].clone();
        for i in index {
            match i {
                Index::Affine(a) => {
                    let _ = write!(out, "[{}]", self.affine(a));
                }
                Index::Value(e) => {
                    let _ = write!(out, "[@{}]", self.expr(e));
                }
            }
        }
        out
    }

    pub(crate) fn access(&self, a: &Access) -> String {
        let element = self.element(a.buffer, &a.index);
        if a.guard.is_empty() && a.otherwise.is_none() {
            return element;
        }
        let otherwise = a.otherwise.map_or(String::new(), |s| format!(" else {}", scalar(s)));
        format!("({element} if {}{otherwise})", self.conditions(&a.guard))
    }

    pub(crate) fn expr(&self, e: &Expr) -> String {
        match e {
            Expr::Const(s) => scalar(*s),
            Expr::Index(a) => format!("index({})", self.affine(a)),
            Expr::Load(a) => self.access(a),
            Expr::Unary(op, a) => format!("{}({})", op.name(), self.expr(a)),
            Expr::Binary(op, a, b) => {
                let sign = match op {
                    BinaryOp::Add => "+",
                    BinaryOp::Sub => "-",
                    BinaryOp::Mul => "*",
                    BinaryOp::Div => "/",
                    _ => return format!("{}({}, {})", op.name(), self.expr(a), self.expr(b)),
                };
                format!("({} {sign} {})", self.expr(a), self.expr(b))
            }
            Expr::Compare(op, a, b) => format!("{}({}, {})", op.name(), self.expr(a), self.expr(b)),
            Expr::Select(c, a, b) => format!("select({}, {}, {})", self.expr(c), self.expr(a), self.expr(b)),
            Expr::Cast(to, a) => format!("cast {to}({})", self.expr(a)),
            Expr::Bitcast(to, a) => format!("bitcast {to}({})", self.expr(a)),
        }
    }
}
