//! Loops whose bounds come from data: `for k in p[i]..p[i + 1]`.
//!
//! In: a loop program. Out: a program in which all bounds are affine. Such a loop runs over its static range, and its body stands
//! under `k >= p[i] && k < p[i + 1]`. The static range are the values of the index that keep it inside of the arrays which it
//! subscripts alone, or what the bounds say themselves, as in `min(p[i + 1], N)`. Where they do not, the elements of the arrays that bound
//! the loop must lie in the range when the program runs. Source: J. Zhao, M. Kruse, A. Cohen, *A Polyhedral Compilation Framework for
//! Loops with Dynamic Data-Dependent Bounds*, CC 2018.

use super::scope::plain;
use super::source::{Checked, Diagnostic};
use super::syntax::{Assign, Body, Equation, Program, Range, Statement, assignments};
use crate::expr::interval::ceil_div;
use crate::expr::syntax::{Expr as Text, Function, Kind, Name, Operator, Span, Style};
use crate::expr::{Affine, BinaryOp, BufferId, CompareOp, Expr, Scalar, Var};
use crate::language::environment::Scope;
use crate::poly::analysis::element_function::type_range;
use crate::poly::analysis::index_range::{IndexRange, element_range};
use crate::poly::statement::{ElementRange, Role, TensorDecl};
use crate::runtime::DType;
use std::collections::{BTreeMap, BTreeSet};

/// A program with affine bounds, and the ranges in which elements of its arrays must lie.
pub struct Converted {
    pub program: Program,
    pub ranges: Vec<IndexRange>,
}

/// Converts the loops of a program.
///
/// # Errors
/// `Invalid` or `Unsupported` at a bound without a static range, from what the program writes, or of a form that cannot be checked.
pub fn convert(program: &Program, sizes: &BTreeMap<String, i64>, known: &[TensorDecl]) -> Checked<Converted> {
    let mut out = program.clone();
    let mut ranges = vec![];
    if let Body::Loop { statements, .. } = &mut out.body {
        let written = assignments(statements).iter().map(|a| a.target.text.clone()).collect();
        let mut conversion = Conversion { sizes, known, written, indices: vec![], ranges: vec![] };
        conversion.block(statements)?;
        ranges = conversion.ranges;
    }
    Ok(Converted { program: out, ranges })
}

struct Conversion<'a> {
    sizes: &'a BTreeMap<String, i64>,
    known: &'a [TensorDecl],
    written: BTreeSet<String>,
    /// Indices of the loops around the statement.
    indices: Vec<String>,
    ranges: Vec<IndexRange>,
}

/// The operands of a bound: of `max` in a lower one, of `min` in an upper one.
struct Parts {
    affine: Vec<Text>,
    data: Vec<Text>,
}

impl Conversion<'_> {
    fn block(&mut self, statements: &mut [Statement]) -> Checked<()> {
        for s in statements {
            match s {
                Statement::For { index, range, step, body } => {
                    let (lower, upper) =
                        (self.parts(&range.lower, BinaryOp::Max)?, self.parts(&range.upper, BinaryOp::Min)?);
                    if !lower.data.is_empty() || !upper.data.is_empty() {
                        if *step != 1 {
                            let message =
                                format!("a step of {step} between bounds from data: they are walked one by one");
                            return Err(Diagnostic::unsupported(range.lower.span, message));
                        }
                        let condition = condition(index, &lower.data, &upper.data);
                        *range = self.static_range(index, range, lower, upper, body)?;
                        *body = vec![Statement::If { condition, body: std::mem::take(body), otherwise: vec![] }];
                    }
                    self.indices.push(index.text.clone());
                    let done = self.block(body);
                    self.indices.pop();
                    done?;
                }
                Statement::If { body, otherwise, .. } => {
                    self.block(body)?;
                    self.block(otherwise)?;
                }
                Statement::Assign(_) => {}
            }
        }
        Ok(())
    }

    fn scope(&self) -> Scope<'_> {
        Scope::new(self.sizes, &self.indices, self.known, &plain, Style::Square)
    }

    fn parts(&self, e: &Text, op: BinaryOp) -> Checked<Parts> {
        let mut out = Parts { affine: vec![], data: vec![] };
        let mut open = vec![e];
        while let Some(e) = open.pop() {
            if let Kind::Call(Function::Binary(called), operands) = &e.kind
                && *called == op
            {
                open.extend(operands);
                continue;
            }
            let scope = self.scope();
            match scope.affine(e)? {
                None if scope.reads_data(e) => {
                    self.only_read(e)?;
                    out.data.push(e.clone())
                }
                _ => out.affine.push(e.clone()),
            }
        }
        Ok(out)
    }

    fn only_read(&self, e: &Text) -> Checked<()> {
        let mut written = None;
        e.visit(&mut |e| {
            if let Kind::Element(Name { text: name, .. }, _) | Kind::Name(name) = &e.kind
                && self.written.contains(name)
            {
                written = Some(name.clone());
            }
        });
        let Some(name) = written else { return Ok(()) };
        let message = format!("the bound `{}` is from `{name}`, which the program writes", self.scope().show(e));
        Err(Diagnostic::unsupported(e.span, message))
    }

    /// The static range of a loop, in which its bounds from data must lie where they do not say it.
    fn static_range(
        &mut self,
        index: &Name,
        range: &Range,
        lower: Parts,
        upper: Parts,
        body: &[Statement],
    ) -> Checked<Range> {
        let inside = self.inside(index, body)?;
        let mut bound = |parts: Parts, at: &Text, op: BinaryOp| -> Checked<Text> {
            let joined = parts.affine.into_iter().reduce(|a, b| {
                let span = a.span;
                Text { kind: Kind::Call(Function::Binary(op), vec![a, b]), span }
            });
            if let Some(joined) = joined {
                return Ok(joined);
            }
            let Some((first, end)) = inside else {
                let shown = at.show(Style::Square);
                let message = format!(
                    "the loop `{index}` has a bound from data, and no array is subscripted by `{index}` alone, whose extent would \
                     limit it: write the limit, as in `{}`",
                    if op == BinaryOp::Min { format!("min({shown}, N)") } else { format!("max({shown}, 0)") }
                );
                return Err(Diagnostic::invalid(at.span, message));
            };
            for e in &parts.data {
                self.check(e, (first, end))?;
            }
            Ok(Text { kind: Kind::Integer(if op == BinaryOp::Min { end } else { first }), span: at.span })
        };
        let lower = bound(lower, &range.lower, BinaryOp::Max)?;
        Ok(Range { lower, upper: bound(upper, &range.upper, BinaryOp::Min)? })
    }

    /// The values of an index, from the first to one past the last, that keep it inside of all arrays that it subscripts alone; `None` where
    /// there are none of these.
    fn inside(&self, index: &Name, body: &[Statement]) -> Checked<Option<(i64, i64)>> {
        let mut indices = self.indices.clone();
        indices.push(index.text.clone());
        let var = Var(indices.len() as u32 - 1);
        let mut accesses = vec![];
        collect(body, &mut indices, &mut accesses);
        let scope = Scope::new(self.sizes, &indices, self.known, &plain, Style::Square);
        let mut out: Option<(i64, i64)> = None;
        for (name, subscripts) in &accesses {
            let Some(array) = self.known.iter().find(|a| a.name == *name) else { continue };
            for (e, &extent) in subscripts.iter().zip(&array.shape) {
                let Ok(Some(form)) = scope.affine(e) else { continue };
                let Affine { terms, constant } = form;
                let [(v, c)] = terms[..] else { continue };
                if v != var {
                    continue;
                }
                // 0 ≤ c·v + constant < extent
                let (low, high) =
                    if c > 0 { (-constant, extent - 1 - constant) } else { (constant + 1 - extent, constant) };
                let (first, last) = (ceil_div(low, c.abs()), high.div_euclid(c.abs()));
                let (a, b) = out.unwrap_or((i64::MIN, i64::MAX));
                out = Some((first.max(a), (last + 1).min(b)));
            }
        }
        Ok(out.map(|(first, end)| (first, end.max(first))))
    }

    /// Requires that a bound lies in `first..=end`.
    fn check(&mut self, e: &Text, (first, end): (i64, i64)) -> Checked<()> {
        let cast = Text { kind: Kind::Cast(DType::I64, Box::new(e.clone())), span: e.span };
        let value = self.scope().value(&cast, DType::I64)?;
        let offset = Expr::Const(Scalar::i64(first));
        let value = if first == 0 { value } else { Expr::binary(BinaryOp::Sub, value, offset) };
        match element_range(self.known, &[], &value, end - first + 1) {
            Ok(range) => {
                self.ranges.extend(range);
                Ok(())
            }
            Err(_) => {
                let shown = self.scope().show(e);
                let message = format!(
                    "the bound `{shown}` is not one element of an integer array, with numbers added or multiplied: keep it inside, as in \
                     `max({first}, min({shown}, {end}))`"
                );
                Err(Diagnostic::unsupported(e.span, message))
            }
        }
    }
}

/// `index >= lower && index < upper`.
fn condition(index: &Name, lower: &[Text], upper: &[Text]) -> Text {
    let compared = |op: CompareOp, limit: &Text| {
        let span = limit.span;
        let limit = Text { kind: Kind::Cast(DType::I64, Box::new(limit.clone())), span };
        let index = Text { kind: Kind::Name(index.text.clone()), span: index.span };
        Text { kind: Kind::Binary(Operator::Compare(op), Box::new(index), Box::new(limit)), span }
    };
    let all = lower.iter().map(|e| compared(CompareOp::Ge, e)).chain(upper.iter().map(|e| compared(CompareOp::Lt, e)));
    let and = |a: Text, b: Text| {
        let span = a.span.to(b.span);
        Text { kind: Kind::Binary(Operator::And, Box::new(a), Box::new(b)), span }
    };
    all.reduce(and).unwrap_or(Text { kind: Kind::Bool(true), span: Span::default() })
}

/// The elements that statements read and write, and the indices of their loops.
fn collect(body: &[Statement], indices: &mut Vec<String>, out: &mut Vec<(String, Vec<Text>)>) {
    let mut of = |e: &Text| {
        e.visit(&mut |e| {
            if let Kind::Element(name, subscripts) = &e.kind {
                out.push((name.text.clone(), subscripts.clone()));
            }
        })
    };
    for s in body {
        match s {
            Statement::Assign(a) => {
                a.subscripts.iter().for_each(&mut of);
                of(&a.value);
            }
            Statement::If { condition, .. } => of(condition),
            Statement::For { range, .. } => [&range.lower, &range.upper].into_iter().for_each(&mut of),
        }
    }
    for s in body {
        match s {
            Statement::Assign(a) => out.push((a.target.text.clone(), a.subscripts.clone())),
            Statement::If { body, otherwise, .. } => {
                collect(body, indices, out);
                collect(otherwise, indices, out);
            }
            Statement::For { index, body, .. } => {
                indices.push(index.text.clone());
                collect(body, indices, out);
            }
        }
    }
}

/// Initial values of the arrays that bound loops, where `given` has none: numbers that grow from the first to the last value of the range, by a
/// share of it that differs from element to element. A range up to the greatest number of the type says nothing of them.
pub fn initial(arrays: &[TensorDecl], given: &[Equation]) -> Vec<Equation> {
    let of = |array: &TensorDecl| {
        let ([range], [elements]) = (&array.ranges[..], &array.shape[..]) else { return None };
        let named = given.iter().any(|e| *e.target == *array.name);
        let (rows, count) = ((elements - 1).max(1), range.upper.checked_sub(range.lower)?);
        // (1024 · i + 421 · (i mod rows) mod 1024) · count / (1024 · rows)
        rows.checked_mul(1024)?.checked_mul(count.max(1))?;
        let open = type_range(array.dtype).is_none_or(|(_, most)| i128::from(range.upper) == most);
        if named || array.role != Role::Input || (range.offset, range.stride) != (0, 1) || open {
            return None;
        }
        let mut index = "i".to_string();
        while arrays.iter().any(|a| a.name == index) {
            index.push('_');
        }
        let at = |kind: Kind| Text { kind, span: Span::default() };
        let number = |n: i64| at(Kind::Integer(n));
        let join = |operator, a: Text, b: Text| at(Kind::Binary(operator, Box::new(a), Box::new(b)));
        let i = || at(Kind::Name(index.clone()));
        let uneven = join(Operator::Mul, join(Operator::Mod, i(), number(rows)), number(421));
        let uneven = join(Operator::Mod, uneven, number(1024));
        let steps = join(Operator::Add, join(Operator::Mul, i(), number(1024)), uneven);
        let share = join(Operator::Div, join(Operator::Mul, steps, number(count)), number(1024 * rows));
        let value = at(Kind::Cast(array.dtype, Box::new(join(Operator::Add, share, number(range.lower)))));
        Some(Equation {
            target: Name::from(&*array.name),
            subscripts: vec![i()],
            assign: Assign::Set,
            value,
            conditions: vec![],
            span: Span::default(),
        })
    };
    arrays.iter().filter_map(of).collect()
}

/// Adds what must hold of the elements of arrays to their declarations.
pub fn declare(arrays: &mut [TensorDecl], ranges: &[IndexRange]) {
    for range in ranges {
        let BufferId(array) = range.tensor;
        let new = ElementRange { offset: range.offset, stride: range.stride, lower: range.lower, upper: range.upper };
        let known = &mut arrays[array as usize].ranges;
        if !known.contains(&new) {
            known.push(new);
        }
    }
}
