//! Parser of LoopNest texts (see `print.rs`).

use crate::codegen::instruction::InstructionName;
use crate::codegen::loopnest::{Buffer, BufferKind, LoopKind, LoopNest, Stmt, row_major};
use crate::expr::Bound;
use crate::expr::scalar::Value;
use crate::expr::{Access, BinaryOp, BufferId, CompareOp, Expr, Index, Literals, Scalar, UnaryOp};
use crate::expr::{Affine, Var};
use crate::runtime::{DType, Error, Result};
use rustc_hash::FxHashMap;

/// Parses one kernel. `Invalid` names the line.
pub fn nest(text: &str) -> Result<LoopNest> {
    let mut p = Parser::new("loop nest", text);
    p.expect("kernel")?;
    p.nest.name = p.name()?;
    p.expect("{")?;
    while p.peek_at(1) == ":" {
        p.buffer()?;
    }
    p.nest.body = p.body()?;
    p.end()?;
    Ok(p.nest)
}

/// Tokens with their line numbers. A name may end in `#2`.
fn tokens(text: &str) -> Vec<(String, usize)> {
    let mut out = vec![];
    for (line, row) in text.lines().enumerate() {
        let chars: Vec<char> = row.chars().collect();
        let mut i = 0;
        while i < chars.len() {
            let c = chars[i];
            let start = i;
            i += 1;
            if c.is_whitespace() {
                continue;
            }
            let word = |c: char| c.is_alphanumeric() || c == '_' || c == '\'' || c == '#';
            if c.is_ascii_digit() {
                // 1, 0.5, 1e-7; not the first part of 0..4
                while i < chars.len() {
                    let exponent = matches!(chars[i], '-' | '+') && chars[i - 1] == 'e';
                    let point = chars[i] == '.' && chars.get(i + 1).is_some_and(|c| c.is_ascii_digit());
                    if !(chars[i].is_alphanumeric() || exponent || point) {
                        break;
                    }
                    i += 1;
                }
            } else if word(c) {
                while i < chars.len() && word(chars[i]) {
                    i += 1;
                }
            } else if let Some(two) = chars.get(i).map(|d| format!("{c}{d}"))
                && ["..", ">=", "&&"].contains(&two.as_str())
            {
                i += 1;
            }
            out.push((chars[start..i].iter().collect(), line + 1));
        }
    }
    out
}

/// A parser of expressions, with the names that are known so far.
pub(crate) struct Parser {
    what: &'static str,
    tokens: Vec<(String, usize)>,
    position: usize,
    nest: LoopNest,
    pub buffers: FxHashMap<String, BufferId>,
    pub vars: FxHashMap<String, Var>,
}

impl Parser {
    /// A parser at the beginning of `text`; messages call the text `what`.
    pub(crate) fn new(what: &'static str, text: &str) -> Parser {
        Parser {
            what,
            tokens: tokens(text),
            position: 0,
            nest: LoopNest { name: String::new(), buffers: vec![], vars: vec![], body: vec![] },
            buffers: FxHashMap::default(),
            vars: FxHashMap::default(),
        }
    }

    pub(crate) fn end(&self) -> Result<()> {
        if self.position < self.tokens.len() { self.fail("the end") } else { Ok(()) }
    }

    pub(crate) fn peek_at(&self, ahead: usize) -> &str {
        self.tokens.get(self.position + ahead).map_or("", |t| t.0.as_str())
    }

    pub(crate) fn peek(&self) -> &str {
        self.peek_at(0)
    }

    pub(crate) fn next(&mut self) -> String {
        self.position += 1;
        self.tokens.get(self.position - 1).map_or(String::new(), |t| t.0.clone())
    }

    pub(crate) fn fail<T>(&self, wanted: &str) -> Result<T> {
        let (token, line) = self.tokens.get(self.position).cloned().unwrap_or(("the end".into(), 0));
        Err(Error::Invalid(format!("{}, line {line}: expected {wanted}, found {token}", self.what)))
    }

    pub(crate) fn accept(&mut self, token: &str) -> bool {
        let yes = self.peek() == token;
        self.position += yes as usize;
        yes
    }

    pub(crate) fn expect(&mut self, token: &str) -> Result<()> {
        if self.accept(token) { Ok(()) } else { self.fail(token) }
    }

    pub(crate) fn name(&mut self) -> Result<String> {
        if self.peek().starts_with(|c: char| c.is_alphabetic() || c == '_') {
            Ok(self.next())
        } else {
            self.fail("a name")
        }
    }

    pub(crate) fn integer(&mut self) -> Result<i64> {
        let negative = self.accept("-");
        match self.peek().parse::<i64>() {
            Ok(v) => {
                self.position += 1;
                Ok(if negative { -v } else { v })
            }
            Err(_) => self.fail("an integer"),
        }
    }

    pub(crate) fn dtype(&mut self) -> Result<DType> {
        let Some(dtype) = DType::named(self.peek()) else { return self.fail("an element type") };
        self.position += 1;
        Ok(dtype)
    }

    pub(crate) fn list(&mut self) -> Result<Vec<i64>> {
        let mut out = vec![];
        while self.accept("[") {
            out.push(self.integer()?);
            self.expect("]")?;
        }
        Ok(out)
    }

    fn buffer(&mut self) -> Result<()> {
        let name = self.name()?;
        self.expect(":")?;
        let dtype = self.dtype()?;
        let shape = self.list()?;
        let strides = if self.accept("strides") { self.list()? } else { row_major(&shape) };
        let kind = if self.accept("local") {
            BufferKind::Local
        } else {
            self.expect("argument")?;
            BufferKind::Argument { slot: self.integer()? as u32, written: self.accept("written") }
        };
        let literals = self.literals(dtype)?;
        let (elements, limits) = (self.interval("from")?, self.interval("within")?);
        self.expect(";")?;
        self.buffers.insert(name.clone(), BufferId(self.nest.buffers.len() as u32));
        self.nest.buffers.push(Buffer { name: plain(&name), dtype, shape, strides, kind, literals, elements, limits });
        Ok(())
    }

    /// `from 0 to 8`, if it comes next.
    fn interval(&mut self, word: &str) -> Result<Option<(i64, i64)>> {
        if !self.accept(word) {
            return Ok(None);
        }
        let low = self.integer()?;
        self.expect("to")?;
        Ok(Some((low, self.integer()?)))
    }

    /// `= {1, 0, -0.5}`, if it comes next.
    pub(crate) fn literals(&mut self, dtype: DType) -> Result<Option<Literals>> {
        if !self.accept("=") {
            return Ok(None);
        }
        self.expect("{")?;
        let mut values = vec![];
        while !self.accept("}") {
            if !values.is_empty() {
                self.expect(",")?;
            }
            let negative = self.accept("-");
            match self.number(dtype, negative) {
                Some(bits) => values.push(Scalar { dtype, bits }),
                None => return self.fail("a number"),
            }
        }
        Ok(Some(Literals::new(values)))
    }

    fn bind(&mut self, name: String) -> Var {
        let v = self.nest.new_var(plain(&name));
        self.vars.insert(name, v);
        v
    }

    /// Statements up to the closing brace.
    fn body(&mut self) -> Result<Vec<Stmt>> {
        let mut out = vec![];
        while !self.accept("}") {
            out.push(self.stmt()?);
        }
        Ok(out)
    }

    fn stmt(&mut self) -> Result<Stmt> {
        let kind = match self.peek() {
            "for" => Some(LoopKind::Serial),
            "parallel" => Some(LoopKind::Parallel),
            "unroll" => Some(LoopKind::Unroll),
            "vector" => Some(LoopKind::Vector),
            "instruction" => InstructionName::new(self.peek_at(1)).map(LoopKind::Instruction),
            "waves" => self.peek_at(1).parse().ok().map(|width| LoopKind::Waves { width }),
            _ => None,
        };
        let words = if matches!(kind, Some(LoopKind::Waves { .. } | LoopKind::Instruction(_))) { 2 } else { 1 };
        if let (Some(kind), true) = (kind, self.peek_at(words + 1) == "in") {
            self.position += words;
            let name = self.name()?;
            self.expect("in")?;
            let lower = self.bounds("max", "ceil")?;
            self.expect("..")?;
            let upper = self.bounds("min", "floor")?;
            let step = if self.accept("step") { self.integer()? } else { 1 };
            let var = self.bind(name);
            self.expect("{")?;
            let body = self.body()?;
            return Ok(Stmt::Loop { var, lower, upper, step, kind, body });
        }
        if self.peek() == "let" && self.peek_at(2) == "=" {
            self.position += 1;
            let name = self.name()?;
            self.expect("=")?;
            if let Some(read) = ["clamp", "within"].iter().position(|read| self.accept(read)) {
                return self.read(name, read == 1);
            }
            let Bound { affine: value, divisor } = self.bound("floor")?;
            self.expect(";")?;
            return Ok(Stmt::Let { var: self.bind(name), value, divisor });
        }
        if self.accept("if") {
            let conditions = self.conditions()?;
            self.expect("{")?;
            return Ok(Stmt::If { conditions, body: self.body()? });
        }
        let (buffer, index) = self.element()?;
        let reduce = self.assignment()?;
        let value = self.expr()?;
        self.expect(";")?;
        Ok(Stmt::Store { buffer, index, value, reduce })
    }

    /// `(value, low, high) about expected;`.
    fn read(&mut self, name: String, checked: bool) -> Result<Stmt> {
        self.expect("(")?;
        let value = self.expr()?;
        self.expect(",")?;
        let low = self.integer()?;
        self.expect(",")?;
        let range = (low, self.integer()?);
        self.expect(")")?;
        self.expect("about")?;
        let expected = self.bound("floor")?;
        let recorded = if self.accept("in") { Some([self.element()?.0, self.element()?.0]) } else { None };
        self.expect(";")?;
        Ok(Stmt::Read { var: self.bind(name), value, range, checked, expected, recorded })
    }

    /// `=`, or an operation and `=`.
    pub(crate) fn assignment(&mut self) -> Result<Option<BinaryOp>> {
        let reduce = match self.peek() {
            "=" => None,
            name => match BinaryOp::ALL.iter().find(|op| op.name() == name) {
                None => return self.fail("= or an operation"),
                op => {
                    self.position += 1;
                    op.copied()
                }
            },
        };
        self.expect("=")?;
        Ok(reduce)
    }

    fn bounds(&mut self, many: &str, divided: &str) -> Result<Vec<Bound>> {
        if self.peek() != many || self.peek_at(1) != "(" {
            return Ok(vec![self.bound(divided)?]);
        }
        self.position += 2;
        let mut out = vec![self.bound(divided)?];
        while self.accept(",") {
            out.push(self.bound(divided)?);
        }
        self.expect(")")?;
        Ok(out)
    }

    fn bound(&mut self, divided: &str) -> Result<Bound> {
        if self.peek() != divided || self.peek_at(1) != "(" {
            return Ok(Bound { affine: self.affine()?, divisor: 1 });
        }
        self.position += 2;
        let grouped = self.accept("(");
        let affine = self.affine()?;
        if grouped {
            self.expect(")")?;
        }
        self.expect("/")?;
        let divisor = self.integer()?;
        self.expect(")")?;
        Ok(Bound { affine, divisor })
    }

    pub(crate) fn conditions(&mut self) -> Result<Vec<Affine>> {
        let mut out = vec![];
        loop {
            out.push(self.affine()?);
            self.expect(">=")?;
            self.expect("0")?;
            if !self.accept("&&") {
                return Ok(out);
            }
        }
    }

    pub(crate) fn affine(&mut self) -> Result<Affine> {
        let mut out = Affine::constant(0);
        let mut sign = if self.accept("-") { -1 } else { 1 };
        loop {
            if self.peek().starts_with(|c: char| c.is_ascii_digit()) {
                let c = self.integer()?;
                if self.accept("*") {
                    out = out.plus(self.var()?, sign * c);
                } else {
                    out = out.offset(sign * c);
                }
            } else {
                out = out.plus(self.var()?, sign);
            }
            sign = match self.peek() {
                "+" => 1,
                "-" => -1,
                _ => return Ok(out),
            };
            self.position += 1;
        }
    }

    fn var(&mut self) -> Result<Var> {
        match self.vars.get(self.peek()) {
            Some(&v) => {
                self.position += 1;
                Ok(v)
            }
            None => self.fail("a variable"),
        }
    }

    pub(crate) fn element(&mut self) -> Result<(BufferId, Vec<Index>)> {
        let Some(&buffer) = self.buffers.get(self.peek()) else {
            return self.fail("a buffer");
        };
        self.position += 1;
        let mut index = vec![];
        while self.accept("[") {
            index.push(if self.accept("@") {
                Index::Value(Box::new(self.expr()?))
            } else {
                Index::Affine(self.affine()?)
            });
            self.expect("]")?;
        }
        Ok((buffer, index))
    }

    fn scalar(&mut self) -> Result<Scalar> {
        let dtype = self.dtype()?;
        self.expect("(")?;
        let negative = self.accept("-");
        let bits = match self.peek().strip_prefix('#').map(|hex| u64::from_str_radix(hex, 16).ok()) {
            Some(bits) => {
                self.position += 1;
                bits
            }
            None => self.number(dtype, negative),
        };
        self.expect(")")?;
        match bits {
            Some(bits) => Ok(Scalar { dtype, bits }),
            None => self.fail("a constant"),
        }
    }

    /// The bits of the decimal that comes next.
    fn number(&mut self, dtype: DType, negative: bool) -> Option<u64> {
        let text = self.next();
        let text = if negative { format!("-{text}") } else { text };
        match dtype {
            DType::F64 => text.parse().ok().map(|v| Scalar::from(Value::F64(v)).bits),
            DType::F32 => text.parse().ok().map(|v| Scalar::from(Value::F32(v)).bits),
            DType::Bool => text.parse().ok().map(|v: bool| v as u64),
            _ => text.parse().ok().map(|v| Scalar::from(Value::from_i64(dtype, v)).bits),
        }
    }

    fn arguments(&mut self, count: usize) -> Result<Vec<Expr>> {
        self.expect("(")?;
        let mut out = vec![self.expr()?];
        while out.len() < count {
            self.expect(",")?;
            out.push(self.expr()?);
        }
        self.expect(")")?;
        Ok(out)
    }

    pub(crate) fn expr(&mut self) -> Result<Expr> {
        if self.accept("(") {
            let a = self.expr()?;
            if self.accept("if") {
                let Expr::Load(mut access) = a else { return self.fail("a guarded read") };
                access.guard = self.conditions()?;
                access.otherwise = if self.accept("else") { Some(self.scalar()?) } else { None };
                self.expect(")")?;
                return Ok(Expr::Load(access));
            }
            let op = match self.next().as_str() {
                "+" => BinaryOp::Add,
                "-" => BinaryOp::Sub,
                "*" => BinaryOp::Mul,
                "/" => BinaryOp::Div,
                _ => return self.fail("an operation before this"),
            };
            let b = self.expr()?;
            self.expect(")")?;
            return Ok(Expr::binary(op, a, b));
        }
        let call = self.peek_at(1) == "(";
        let name = self.peek().to_string();
        if name == "cast" && self.peek_at(2) == "(" {
            self.position += 1;
            let to = self.dtype()?;
            return Ok(Expr::cast(to, self.arguments(1)?.remove(0)));
        }
        if name == "bitcast" && self.peek_at(2) == "(" {
            self.position += 1;
            let to = self.dtype()?;
            return Ok(Expr::bitcast(to, self.arguments(1)?.remove(0)));
        }
        if !call {
            let (buffer, index) = self.element()?;
            return Ok(Expr::Load(Access { buffer, index, guard: vec![], otherwise: None }));
        }
        if DType::named(&name).is_some() {
            return Ok(Expr::Const(self.scalar()?));
        }
        self.position += 1;
        if name == "index" {
            self.expect("(")?;
            let a = self.affine()?;
            self.expect(")")?;
            return Ok(Expr::Index(a));
        }
        if let Some(op) = UnaryOp::ALL.iter().find(|op| op.name() == name) {
            return Ok(Expr::unary(*op, self.arguments(1)?.remove(0)));
        }
        let count = if name == "select" { 3 } else { 2 };
        let binary = BinaryOp::ALL.iter().find(|op| op.name() == name);
        let compare = CompareOp::ALL.iter().find(|op| op.name() == name);
        if count == 2 && binary.is_none() && compare.is_none() {
            self.position -= 1;
            return self.fail("an operation");
        }
        let mut operands = self.arguments(count)?.into_iter();
        let mut take = || operands.next().expect("as many as counted");
        let (a, b) = (take(), take());
        Ok(match (binary, compare) {
            (Some(op), _) => Expr::binary(*op, a, b),
            (_, Some(op)) => Expr::compare(*op, a, b),
            _ => Expr::select(a, b, take()),
        })
    }
}

/// The name without `#n`.
fn plain(name: &str) -> String {
    name.split('#').next().unwrap_or(name).to_string()
}

#[cfg(test)]
mod tests;
