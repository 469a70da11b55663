//! Text of LoopNest and VCode. A LoopNest is read back by `parse.rs`: parse ∘ print is the identity up to the numbering of
//! variables.
//!
//! ```text
//! kernel relu {
//!   X: f32[64] argument 0;
//!   Y: f32[64] argument 1 written;
//!   parallel t in 0..4 {
//!     vector i in 0..16 {
//!       Y[16*t + i] = max(X[16*t + i], f32(0.0));
//!     }
//!   }
//! }
//! ```

use crate::codegen::expr::{Access, Affine, BinaryOp, BufferId, Expr, Index, Scalar, Var};
use crate::codegen::loopnest::{Bound, Buffer, BufferKind, LoopKind, LoopNest, Stmt, row_major};
use crate::codegen::scalar::Value;
use crate::codegen::vcode::{Addr, Function, Inst, LaneRange, Operand, VType};
use std::collections::HashMap;
use std::fmt::Write;

impl std::fmt::Display for LoopNest {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&nest(self))
    }
}

impl std::fmt::Display for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&function(self))
    }
}

/// The text of a nest.
pub fn nest(nest: &LoopNest) -> String {
    let names = Names {
        buffers: unique_names(nest.buffers.iter().map(|b| b.name.as_str())),
        vars: nest.vars.iter().map(|n| identifier(n)).collect(),
    };
    let mut p = Printer { nest, names, seen: HashMap::new(), out: String::new() };
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
    let mut seen = HashMap::new();
    names.map(|n| number(&mut seen, identifier(n))).collect()
}

fn number(seen: &mut HashMap<String, usize>, name: String) -> String {
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
    seen: HashMap<String, usize>,
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
        let one = |b: &Bound| match (b.divisor, ceil) {
            (1, _) => self.names.affine(&b.affine),
            (d, true) => self.quotient("ceil", &b.affine, d),
            (d, false) => self.quotient("floor", &b.affine, d),
        };
        match bounds {
            [b] => one(b),
            _ => format!("{name}({})", bounds.iter().map(one).collect::<Vec<_>>().join(", ")),
        }
    }
}

impl Names {
    pub(crate) fn affine(&self, a: &Affine) -> String {
        affine(a, |v| self.vars[v.0 as usize].clone())
    }

    pub(crate) fn conditions(&self, conditions: &[Affine]) -> String {
        conditions.iter().map(|c| format!("{} >= 0", self.affine(c))).collect::<Vec<_>>().join(" && ")
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
        }
    }
}

/// `2*i - j + 3`, variables by `name`.
pub fn affine(a: &Affine, name: impl Fn(Var) -> String) -> String {
    let mut out = String::new();
    for &(v, c) in &a.terms {
        let sign = match (out.is_empty(), c < 0) {
            (true, true) => "-",
            (true, false) => "",
            (false, true) => " - ",
            (false, false) => " + ",
        };
        out.push_str(sign);
        if c.unsigned_abs() != 1 {
            let _ = write!(out, "{}*", c.unsigned_abs());
        }
        out.push_str(&name(v));
    }
    match (out.is_empty(), a.constant) {
        (true, c) => out = c.to_string(),
        (false, 0) => {}
        (false, c) if c < 0 => {
            let _ = write!(out, " - {}", c.unsigned_abs());
        }
        (false, c) => {
            let _ = write!(out, " + {c}");
        }
    }
    out
}

/// `f32(1.5)`; by its bits, `f32(#7fc00000)`, where decimals would not read back.
fn scalar(s: Scalar) -> String {
    let decimal = match Value::from(s) {
        Value::F64(v) if v.is_finite() => format!("{v:?}"),
        Value::F32(v) if v.is_finite() => format!("{v:?}"),
        Value::I64(v) => v.to_string(),
        Value::I32(v) => v.to_string(),
        Value::I8(v) => v.to_string(),
        Value::U8(v) => v.to_string(),
        Value::Bool(v) => v.to_string(),
        _ => format!("#{:x}", s.bits),
    };
    format!("{}({decimal})", s.dtype)
}

/// The text of a function, an instruction a line, indented by loops.
pub fn function(f: &Function) -> String {
    let mut out = String::new();
    let parallel = f.parallel.map_or("serial".to_string(), |n| format!("parallel {n}"));
    let _ = writeln!(
        out,
        "function {} ({parallel}, {} gpr, {} vector registers, {} scratch bytes) {{",
        f.name, f.gprs, f.vregs, f.scratch_bytes
    );
    let mut depth = 1;
    for i in &f.insts {
        if matches!(i, Inst::LoopEnd | Inst::IfEnd) {
            depth -= 1;
        }
        let _ = writeln!(out, "{}{}", "  ".repeat(depth), inst(i));
        if matches!(i, Inst::LoopStart { .. } | Inst::IfStart { .. }) {
            depth += 1;
        }
    }
    out.push_str("}\n");
    out
}

fn addr(a: &Addr) -> String {
    let mut out = format!("[r{}", a.base.0);
    if let Some((index, scale)) = a.index {
        let _ = write!(out, " + {scale}*r{}", index.0);
    }
    match a.disp {
        0 => {}
        d if d < 0 => {
            let _ = write!(out, " - {}", d.unsigned_abs());
        }
        d => {
            let _ = write!(out, " + {d}");
        }
    }
    out + "]"
}

fn operand(o: Operand) -> String {
    match o {
        Operand::Reg(r) => format!("r{}", r.0),
        Operand::Imm(i) => i.to_string(),
    }
}

fn ty(t: VType) -> String {
    format!("{}x{}", format!("{:?}", t.lane).to_lowercase(), t.lanes)
}

fn part(p: &Option<LaneRange>) -> String {
    p.map_or(String::new(), |p| format!(" lanes {}..{}", p.first, p.first + p.count))
}

/// One instruction as text.
pub fn inst(i: &Inst) -> String {
    let low = |op: &dyn std::fmt::Debug| format!("{op:?}").to_lowercase();
    match i {
        Inst::Imm { dst, value } => format!("r{} = {value}", dst.0),
        Inst::Copy { dst, src } => format!("r{} = r{}", dst.0, src.0),
        Inst::Int { op, dst, a, b } => format!("r{} = {} r{}, {}", dst.0, low(op), a.0, operand(*b)),
        Inst::LoadInt { dst, addr: a, mem } => format!("r{} = load {mem} {}", dst.0, addr(a)),
        Inst::Prefetch { addr: a } => format!("prefetch {}", addr(a)),
        Inst::Argument { dst, slot } => format!("r{} = argument {slot}", dst.0),
        Inst::Range { dst, which: 0 } => format!("r{} = first", dst.0),
        Inst::Range { dst, .. } => format!("r{} = last", dst.0),
        Inst::Scratch { dst } => format!("r{} = scratch", dst.0),
        Inst::LoopStart { count, at_least_once } => {
            format!("loop r{}{} {{", count.0, if *at_least_once { " (at least once)" } else { "" })
        }
        Inst::LoopEnd | Inst::IfEnd => "}".into(),
        Inst::IfStart { op, a, b } => format!("if {} r{}, {} {{", low(op), a.0, operand(*b)),
        Inst::VConst { dst, ty: t, bits } => format!("v{} = const {} #{bits:x}", dst.0, ty(*t)),
        Inst::VCopy { dst, src, ty: t } => format!("v{} = copy {} v{}", dst.0, ty(*t), src.0),
        Inst::VLoad { dst, ty: t, mem, addr: a, part: p } => {
            format!("v{} = load {} {mem} {}{}", dst.0, ty(*t), addr(a), part(p))
        }
        Inst::VStore { src, ty: t, mem, addr: a, part: p } => {
            format!("store {} {mem} {}, v{}{}", ty(*t), addr(a), src.0, part(p))
        }
        Inst::VBroadcast { dst, ty: t, mem, addr: a } => {
            format!("v{} = broadcast {} {mem} {}", dst.0, ty(*t), addr(a))
        }
        Inst::VGather { dst, ty: t, mem, addr: a, stride, part: p } => {
            format!("v{} = gather {} {mem} {} stride {stride}{}", dst.0, ty(*t), addr(a), part(p))
        }
        Inst::VScatter { src, ty: t, mem, addr: a, stride, part: p } => {
            format!("scatter {} {mem} {} stride {stride}, v{}{}", ty(*t), addr(a), src.0, part(p))
        }
        Inst::VGatherIndex { dst, ty: t, mem, base, index, index_lane, part: p } => {
            let lane = low(index_lane);
            format!("v{} = gather {} {mem} [r{} + v{} as {lane}]{}", dst.0, ty(*t), base.0, index.0, part(p))
        }
        Inst::VSplat { dst, ty: t, src } => format!("v{} = splat {} r{}", dst.0, ty(*t), src.0),
        Inst::VIota { dst, ty: t } => format!("v{} = iota {}", dst.0, ty(*t)),
        Inst::VUnary { op, dst, ty: t, a } => format!("v{} = {} {} v{}", dst.0, low(op), ty(*t), a.0),
        Inst::VBinary { op, dst, ty: t, a, b } => format!("v{} = {} {} v{}, v{}", dst.0, low(op), ty(*t), a.0, b.0),
        Inst::VShift { op, dst, ty: t, a, amount } => {
            format!("v{} = shift {} {} v{}, {amount}", dst.0, low(op), ty(*t), a.0)
        }
        Inst::VFma { acc, ty: t, a, b, negate } => {
            format!("v{} {}= {} v{} * v{}", acc.0, if *negate { "-" } else { "+" }, ty(*t), a.0, b.0)
        }
        Inst::VCompare { op, dst, ty: t, a, b } => format!("v{} = {} {} v{}, v{}", dst.0, low(op), ty(*t), a.0, b.0),
        Inst::VSelect { dst, ty: t, mask, a, b } => {
            format!("v{} = select {} v{}, v{}, v{}", dst.0, ty(*t), mask.0, a.0, b.0)
        }
        Inst::VConvert { dst, to, src, from } => {
            format!("v{} = convert {} from {} v{}", dst.0, ty(*to), low(from), src.0)
        }
        Inst::VReduce { op, dst, ty: t, a } => format!("v{} = reduce {} {} v{}", dst.0, low(op), ty(*t), a.0),
    }
}
