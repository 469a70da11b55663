//! Expressions with a meaning: names resolved, types found, subscripts affine.
//!
//! In: an expression of the tree, the sizes, the indices and the arrays that it may name. Out: an affine form over the
//! indices, or a typed scalar expression.

use super::condition;
use super::source::{Checked, Diagnostic};
use crate::expr::scalar::Value;
use crate::expr::syntax::Span;
use crate::expr::syntax::Style;
use crate::expr::syntax::{Expr as Text, Function, Kind, Name, Operator};
use crate::expr::{Access, BinaryOp, BufferId, Expr, Index, Scalar, UnaryOp};
use crate::expr::{Affine, Var};
use crate::language::environment::{Reader, Scope};
use crate::poly::statement::TensorDecl;
use crate::runtime::error::did_you_mean;
use crate::runtime::text::count;
use crate::runtime::{DType, Error};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// An expression as a form over indices.
enum Form {
    Affine(Affine),
    /// Affine, but for a number that forms do not hold.
    TooLarge(Diagnostic),
    Other,
}

/// A read that nothing is added to.
pub fn plain(_: Span, access: Access, _: &[Affine]) -> Checked<Access> {
    Ok(access)
}

impl<'a> Scope<'a> {
    pub fn new(
        sizes: &'a BTreeMap<String, i64>,
        indices: &'a [String],
        arrays: &'a [TensorDecl],
        read: &'a Reader<'a>,
        style: Style,
    ) -> Scope<'a> {
        Scope { sizes, indices, arrays, read, style, facts: RefCell::default() }
    }

    /// As it is written.
    pub fn show(&self, e: &Text) -> String {
        e.show(self.style)
    }
}

impl Scope<'_> {
    /// The name of an index.
    pub fn name(&self, v: Var) -> &str {
        &self.indices[v.0 as usize]
    }

    pub fn index(&self, name: &str) -> Option<Var> {
        self.indices.iter().position(|i| i == name).map(|i| Var(i as u32))
    }

    pub fn array(&self, name: &str) -> Option<BufferId> {
        self.arrays.iter().position(|a| a.name == name).map(|i| BufferId(i as u32))
    }

    fn decl(&self, id: BufferId) -> &TensorDecl {
        &self.arrays[id.0 as usize]
    }

    fn unknown(&self, span: Span, name: &str) -> Diagnostic {
        let arrays: Vec<&str> = self.arrays.iter().map(|a| a.name.as_str()).collect();
        let indices: Vec<&str> = self.indices.iter().map(String::as_str).collect();
        let sizes: Vec<&str> = self.sizes.keys().map(String::as_str).collect();
        let near = did_you_mean(name, &[&arrays[..], &indices, &sizes].concat());
        let list = |names: Vec<&str>| if names.is_empty() { "none".to_string() } else { names.join(", ") };
        let [arrays, indices, sizes] = [arrays, indices, sizes].map(list);
        let message =
            format!("`{name}` is not defined here: arrays are {arrays}; indices {indices}; sizes {sizes}{near}");
        Diagnostic::invalid(span, message)
    }

    /// Refuses to assign a value to a name that stands for nothing.
    pub fn expect_declared(&self, target: &Name, subscripts: usize, value: &Text) -> Checked<()> {
        let name = &target.text;
        if self.array(name).is_some() || self.index(name).is_some() || self.sizes.contains_key(name) {
            return Ok(());
        }
        let mut problem = self.unknown(target.span, name);
        let dtype = self.dtype(value).ok().flatten().unwrap_or(DType::F32);
        if let Error::Invalid(message) = &mut problem.error {
            let extents = if subscripts == 0 { "" } else { "[…]" };
            message.push_str(&format!(
                "; declare what is assigned before the statements, as in `temp {dtype} {name}{extents}`"
            ));
        }
        Err(problem)
    }

    /// The array called `name`, read or written with `rank` subscripts.
    pub fn resolve(&self, span: Span, name: &str, rank: usize) -> Checked<BufferId> {
        let Some(id) = self.array(name) else {
            let what = if self.index(name).is_some() { "an index" } else { "a size" };
            return Err(match self.index(name).is_some() || self.sizes.contains_key(name) {
                true => Diagnostic::invalid(span, format!("`{name}` is {what}, not an array")),
                false => self.unknown(span, name),
            });
        };
        let dims = self.decl(id).shape.len();
        if dims != rank {
            let message = format!("`{name}` has {}, but {}", count(dims, "dimension"), count(rank, "subscript"));
            return Err(Diagnostic::invalid(span, message));
        }
        Ok(id)
    }

    /// The value of an expression over sizes alone.
    pub fn constant(&self, e: &Text) -> Checked<i64> {
        match self.affine(e)? {
            Some(a) if a.is_constant() => Ok(a.constant),
            _ => Err(Diagnostic::invalid(
                e.span,
                format!("`{}` is not a number: only sizes are allowed here", self.show(e)),
            )),
        }
    }

    /// The affine form of `e`, `None` when it is something else; numbers that are too large for one are an error.
    pub fn affine(&self, e: &Text) -> Checked<Option<Affine>> {
        match self.form(e)? {
            Form::Affine(a) => Ok(Some(a)),
            Form::TooLarge(problem) => Err(problem),
            Form::Other => Ok(None),
        }
    }

    fn form(&self, e: &Text) -> Checked<Form> {
        let checked = |a: Option<Affine>| match a {
            Some(a) => Form::Affine(a),
            None => Form::TooLarge(Diagnostic::invalid(e.span, format!("`{}` is too large a number", self.show(e)))),
        };
        let zero = Affine::constant(0);
        Ok(match &e.kind {
            Kind::Integer(v) => Form::Affine(Affine::constant(*v)),
            Kind::Name(name) => match (self.index(name), self.sizes.get(name)) {
                (Some(v), _) => Form::Affine(Affine::var(v)),
                (None, Some(size)) => Form::Affine(Affine::constant(*size)),
                (None, None) if self.array(name).is_some() => Form::Other,
                (None, None) => return Err(self.unknown(e.span, name)),
            },
            Kind::Negate(a) => match self.form(a)? {
                Form::Affine(a) => checked(combine(&zero, &a, -1)),
                other => other,
            },
            Kind::Binary(operator, a, b) => {
                let (x, y) = match (self.form(a)?, self.form(b)?) {
                    (Form::Affine(x), Form::Affine(y)) => (x, y),
                    (large @ Form::TooLarge(_), _) | (_, large @ Form::TooLarge(_)) => return Ok(large),
                    _ => return Ok(Form::Other),
                };
                match operator {
                    Operator::Add => checked(combine(&x, &y, 1)),
                    Operator::Sub => checked(combine(&x, &y, -1)),
                    Operator::Mul if y.is_constant() => checked(combine(&zero, &x, y.constant)),
                    Operator::Mul if x.is_constant() => checked(combine(&zero, &y, x.constant)),
                    Operator::Div | Operator::Mod if x.is_constant() && y.is_constant() => {
                        if y.constant == 0 {
                            return Err(Diagnostic::invalid(e.span, format!("`{}` divides by zero", self.show(e))));
                        }
                        let quotient = match operator {
                            Operator::Div => x.constant.checked_div(y.constant),
                            _ => x.constant.checked_rem_euclid(y.constant).filter(|_| y.constant > 0),
                        };
                        checked(quotient.map(Affine::constant))
                    }
                    _ => Form::Other,
                }
            }
            _ => Form::Other,
        })
    }

    /// Subscripts of a write.
    pub fn affine_subscripts(&self, name: &str, subscripts: &[Text]) -> Checked<Vec<Affine>> {
        subscripts.iter().map(|e| self.affine(e)?.ok_or_else(|| self.not_affine(name, e))).collect()
    }

    fn not_affine(&self, name: &str, e: &Text) -> Diagnostic {
        let data = self.reads_data(e);
        let why = if data { "it depends on data" } else { "sums of indices times numbers are" };
        Diagnostic::invalid(e.span, format!("the subscript `{}` of `{name}` is not affine: {why}", self.show(e)))
    }

    /// Returns true if the value depends on an array.
    pub fn reads_data(&self, e: &Text) -> bool {
        let mut contains = false;
        e.visit(&mut |e| {
            contains |= match &e.kind {
                Kind::Element(..) => true,
                Kind::Name(name) => self.index(name).is_none() && self.array(name).is_some(),
                _ => false,
            }
        });
        contains
    }

    /// The element type, `None` for numbers and sizes, which take any.
    pub fn dtype(&self, e: &Text) -> Checked<Option<DType>> {
        let either = |a: &Text, b: &Text| {
            let (x, y) = (self.dtype(a)?, self.dtype(b)?);
            match (x, y) {
                (Some(x), Some(y)) if x != y => Err(self.mixed(e.span, a, x, b, y)),
                _ => Ok(x.or(y)),
            }
        };
        match &e.kind {
            Kind::Integer(_) | Kind::Unsigned(_) | Kind::Real(_) => Ok(None),
            Kind::Bool(_) | Kind::Not(_) => Ok(Some(DType::Bool)),
            Kind::Name(name) if self.index(name).is_some() => Ok(Some(DType::I64)),
            Kind::Name(name) if self.sizes.contains_key(name) => Ok(None),
            Kind::Name(name) => Ok(Some(self.decl(self.resolve(e.span, name, 0)?).dtype)),
            Kind::Element(name, subscripts) => {
                Ok(Some(self.decl(self.resolve(name.span.to(e.span), name, subscripts.len())?).dtype))
            }
            Kind::Call(Function::Select, operands) => either(&operands[1], &operands[2]),
            Kind::Call(Function::Binary(_), operands) => either(&operands[0], &operands[1]),
            Kind::Call(Function::Unary(_), operands) => self.dtype(&operands[0]),
            Kind::Cast(dtype, _) => Ok(Some(*dtype)),
            Kind::Negate(a) => self.dtype(a),
            Kind::Binary(Operator::And | Operator::Or | Operator::Compare(_), ..) => Ok(Some(DType::Bool)),
            Kind::Binary(_, a, b) => either(a, b),
        }
    }

    fn mixed(&self, span: Span, a: &Text, x: DType, b: &Text, y: DType) -> Diagnostic {
        let (from, to) = if x.is_float() { (b, x) } else { (a, y) };
        let (a, b, from) = (self.show(a), self.show(b), self.show(from));
        let message = format!("`{a}` is {x} and `{b}` is {y}: convert one, for example `{to}({from})`");
        Diagnostic::invalid(span, message)
    }

    /// The typed expression; `Invalid` when it is not of type `want`.
    pub fn value(&self, e: &Text, want: DType) -> Checked<Expr> {
        if let Some(is) = self.dtype(e)?
            && is != want
        {
            let advice =
                match operands_as(e, want).filter(|_| is.is_integer() && !matches!(is, DType::I64 | DType::U64)) {
                    Some(converted) => format!(
                        "convert its operands, since it would wrap around in {is}, as in `{}`",
                        self.show(&converted)
                    ),
                    None => format!("convert it with `{want}(…)`"),
                };
            let message = format!("`{}` is {is}, but {want} is expected: {advice}", self.show(e));
            return Err(Diagnostic::invalid(e.span, message));
        }
        let undefined = |what: &str| Diagnostic::invalid(e.span, format!("{what} is not defined for {want}"));
        match &e.kind {
            Kind::Integer(v) => self.number(e, *v, want),
            Kind::Unsigned(v) if want == DType::U64 => Ok(Expr::Const(Scalar { dtype: DType::U64, bits: *v })),
            Kind::Unsigned(v) if want.is_float() => self.real(e, *v as f64, want),
            Kind::Unsigned(v) => Err(Diagnostic::invalid(e.span, format!("the number {v} is too large for {want}"))),
            Kind::Real(v) if want.is_float() => self.real(e, *v, want),
            Kind::Real(_) => Err(Diagnostic::invalid(e.span, format!("`{}` is not of type {want}", self.show(e)))),
            Kind::Bool(v) => Ok(Expr::Const(Scalar::bool(*v))),
            Kind::Name(name) => match (self.index(name), self.sizes.get(name)) {
                (Some(v), _) => Ok(Expr::Index(Affine::var(v))),
                (None, Some(size)) => self.number(e, *size, want),
                (None, None) => self.element(e.span, name, &[]),
            },
            Kind::Element(name, subscripts) => self.element(e.span, name, subscripts),
            Kind::Call(Function::Select, o) => {
                let condition = self.value(&o[0], DType::Bool)?;
                let chosen = |e: &Text, truth| self.under(&o[0], truth, || self.value(e, want));
                Ok(Expr::select(condition, chosen(&o[1], true)?, chosen(&o[2], false)?))
            }
            Kind::Call(Function::Binary(op), o) => {
                let exists = match op {
                    BinaryOp::Min | BinaryOp::Max => want != DType::Bool,
                    BinaryOp::Pow => want.is_float(),
                    _ => want.is_integer(),
                };
                if !exists {
                    return Err(undefined(op.name()));
                }
                Ok(Expr::binary(*op, self.value(&o[0], want)?, self.value(&o[1], want)?))
            }
            Kind::Call(Function::Unary(op), o) => {
                let exists = match op {
                    UnaryOp::Abs => want != DType::Bool,
                    UnaryOp::Not | UnaryOp::CountOnes => want.is_integer(),
                    _ => want.is_float(),
                };
                if !exists {
                    return Err(undefined(op.name()));
                }
                Ok(Expr::unary(*op, self.value(&o[0], want)?))
            }
            Kind::Cast(_, a) => {
                let from = self.dtype(a)?.unwrap_or(want);
                let inner = self.value(a, from)?;
                // a cast of a product to its own type says that it is rounded, and not contracted with a sum
                let rounds = matches!(inner, Expr::Binary(BinaryOp::Mul, ..)) && want.is_float();
                Ok(if from == want && !rounds { inner } else { Expr::cast(want, inner) })
            }
            Kind::Not(a) => Ok(Expr::unary(UnaryOp::Not, self.value(a, DType::Bool)?)),
            Kind::Negate(_) if want == DType::Bool => Err(undefined("negation")),
            Kind::Negate(a) => match self.index_form(e, want)? {
                Some(affine) => Ok(Expr::Index(affine)),
                None => Ok(Expr::unary(UnaryOp::Neg, self.value(a, want)?)),
            },
            Kind::Binary(operator, a, b) => self.operation(e, *operator, a, b, want),
        }
    }

    /// Runs `work` under the facts that follow from `condition` = `truth`.
    fn under<T>(&self, condition: &Text, truth: bool, work: impl FnOnce() -> Checked<T>) -> Checked<T> {
        let before = self.facts.borrow().len();
        let facts = condition::facts(self, condition, truth);
        self.facts.borrow_mut().extend(facts);
        let result = work();
        self.facts.borrow_mut().truncate(before);
        result
    }

    fn operation(&self, e: &Text, operator: Operator, a: &Text, b: &Text, want: DType) -> Checked<Expr> {
        let op = match operator {
            Operator::And | Operator::Or => {
                let and = operator == Operator::And;
                let left = self.value(a, DType::Bool)?;
                // the right operand decides only where the left one does not
                let right = self.under(a, and, || self.value(b, DType::Bool))?;
                return Ok(Expr::binary(if and { BinaryOp::And } else { BinaryOp::Or }, left, right));
            }
            Operator::Compare(op) => {
                let [a, b] = &self.widened_pair(a, b)?;
                let (x, y) = (self.dtype(a)?, self.dtype(b)?);
                let of = match (x, y) {
                    (Some(x), Some(y)) if x != y => return Err(self.mixed(e.span, a, x, b, y)),
                    (Some(x), _) | (None, Some(x)) => x,
                    (None, None) => DType::F64,
                };
                return Ok(Expr::compare(op, self.value(a, of)?, self.value(b, of)?));
            }
            Operator::Add => BinaryOp::Add,
            Operator::Sub => BinaryOp::Sub,
            Operator::Mul => BinaryOp::Mul,
            Operator::Div => BinaryOp::Div,
            Operator::Mod => BinaryOp::Mod,
        };
        if want == DType::Bool {
            return Err(Diagnostic::invalid(
                e.span,
                format!("`{}` is arithmetic, but a condition is expected", self.show(e)),
            ));
        }
        if let Some(affine) = self.index_form(e, want)? {
            return Ok(Expr::Index(affine));
        }
        Ok(Expr::binary(op, self.value(a, want)?, self.value(b, want)?))
    }

    /// Integer arithmetic on indices in one piece; numbers that are too large for that are left to the operations.
    fn index_form(&self, e: &Text, want: DType) -> Checked<Option<Affine>> {
        if want != DType::I64 || self.reads_data(e) {
            return Ok(None);
        }
        Ok(match self.form(e)? {
            Form::Affine(a) if !a.is_constant() => Some(a),
            _ => None,
        })
    }

    fn real(&self, e: &Text, v: f64, want: DType) -> Checked<Expr> {
        let value = Value::from_f64(want, v);
        if v.is_finite() && !value.as_f64().is_finite() {
            return Err(Diagnostic::invalid(e.span, format!("`{}` is too large for {want}", self.show(e))));
        }
        Ok(Expr::Const(value.into()))
    }

    fn number(&self, e: &Text, v: i64, want: DType) -> Checked<Expr> {
        if want.is_float() {
            return self.real(e, v as f64, want);
        }
        let value = Value::from_i64(want, v);
        if want == DType::Bool || value.as_i64() != v {
            return Err(Diagnostic::invalid(e.span, format!("`{}` is not of type {want}", self.show(e))));
        }
        Ok(Expr::Const(value.into()))
    }

    fn element(&self, span: Span, name: &str, subscripts: &[Text]) -> Checked<Expr> {
        let buffer = self.resolve(span, name, subscripts.len())?;
        let index = subscripts.iter().map(|e| self.subscript(e)).collect::<Checked<_>>()?;
        let access = Access { buffer, index, guard: vec![], otherwise: None };
        let facts = self.facts.borrow().clone();
        (self.read)(span, access, &facts).map(Expr::Load)
    }

    /// A subscript: affine, or another integer expression over indices and arrays.
    pub fn subscript(&self, e: &Text) -> Checked<Index> {
        if let Some(affine) = self.affine(e)? {
            return Ok(Index::Affine(affine));
        }
        let e = &self.widened(e)?;
        let dtype = self.dtype(e)?.unwrap_or(DType::I64);
        if dtype.is_float() || dtype == DType::Bool {
            let message = format!("`{}` is {dtype}, which is not a type of subscripts", self.show(e));
            return Err(Diagnostic::invalid(e.span, message));
        }
        Ok(Index::Value(Box::new(self.value(e, dtype)?)))
    }

    /// An expression in which an operand of type i32 beside one of type i64, as an index is, is converted to i64.
    pub(super) fn widened(&self, e: &Text) -> Checked<Text> {
        let kind = match &e.kind {
            Kind::Binary(
                operator @ (Operator::Add | Operator::Sub | Operator::Mul | Operator::Div | Operator::Mod),
                a,
                b,
            ) => {
                let [a, b] = self.widened_pair(a, b)?;
                Kind::Binary(*operator, Box::new(a), Box::new(b))
            }
            Kind::Call(function @ Function::Binary(_), o) => {
                Kind::Call(*function, self.widened_pair(&o[0], &o[1])?.into())
            }
            Kind::Call(function @ Function::Select, o) => {
                let [a, b] = self.widened_pair(&o[1], &o[2])?;
                Kind::Call(*function, vec![o[0].clone(), a, b])
            }
            Kind::Call(function @ Function::Unary(_), o) => Kind::Call(*function, vec![self.widened(&o[0])?]),
            Kind::Negate(a) => Kind::Negate(Box::new(self.widened(a)?)),
            _ => return Ok(e.clone()),
        };
        Ok(Text { kind, span: e.span })
    }

    fn widened_pair(&self, a: &Text, b: &Text) -> Checked<[Text; 2]> {
        let (a, b) = (self.widened(a)?, self.widened(b)?);
        let wide = |e: Text| Text { span: e.span, kind: Kind::Cast(DType::I64, Box::new(e)) };
        Ok(match (self.dtype(&a)?, self.dtype(&b)?) {
            (Some(DType::I64), Some(DType::I32)) => [a, wide(b)],
            (Some(DType::I32), Some(DType::I64)) => [wide(a), b],
            _ => [a, b],
        })
    }
}

/// A sum, a difference or a product with its operands converted; `None` for another expression.
fn operands_as(e: &Text, to: DType) -> Option<Text> {
    let of = |e: &Text| match &e.kind {
        Kind::Integer(_) => e.clone(),
        _ => operands_as(e, to).unwrap_or_else(|| e.clone().cast(to)),
    };
    let kind = match &e.kind {
        Kind::Binary(operator @ (Operator::Add | Operator::Sub | Operator::Mul), a, b) => {
            Kind::Binary(*operator, Box::new(of(a)), Box::new(of(b)))
        }
        Kind::Negate(a) => Kind::Negate(Box::new(of(a))),
        _ => return None,
    };
    Some(Text { kind, span: e.span })
}

/// `a + k·b`, `None` when a number leaves 64 bits.
pub fn combine(a: &Affine, b: &Affine, k: i64) -> Option<Affine> {
    let scaled = |x: i64| x.checked_mul(k);
    let mut out = Affine::constant(a.constant.checked_add(scaled(b.constant)?)?);
    for &(v, _) in a.terms.iter().chain(&b.terms) {
        if !out.uses(v) {
            out = out.plus(v, a.coefficient(v).checked_add(scaled(b.coefficient(v))?)?);
        }
    }
    // Sums of products of these with loop bounds stay inside 64 bits.
    (out.constant.unsigned_abs() < 1 << 44 && out.terms.iter().all(|t| t.1.unsigned_abs() < 1 << 26)).then_some(out)
}
