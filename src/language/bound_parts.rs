//! Operands of the bounds of loops, and the conditions that those become which are not affine.
//!
//! In: the operands of both bounds, of `max` in a lower one, of `min` in an upper one. Out: a range of affine bounds, and the condition under which
//! a value in it is one of the loop.

use super::scope::combine;
use super::syntax::Range;
use crate::expr::interval::ceil_div;
use crate::expr::syntax::{Expr as Text, Function, Kind, Name, Operator};
use crate::expr::{Affine, BinaryOp, CompareOp, Var};
use crate::language::environment::Scope;
use crate::runtime::DType;

/// The operands of a bound: of `max` in a lower one, of `min` in an upper one.
#[derive(Default)]
pub(super) struct Parts {
    pub affine: Vec<Text>,
    pub data: Vec<Text>,
    /// Those that divide otherwise than as one quotient, each of which has bounds around it among the affine ones.
    pub remainders: Vec<Text>,
    /// Their number, and whether all are affine.
    pub count: usize,
    pub divides: bool,
}

impl Parts {
    /// Those that become conditions.
    pub fn conditions(&self) -> Vec<Text> {
        [&self.data[..], &self.remainders].concat()
    }

    /// All as one bound, in i64.
    pub fn whole(&self, op: BinaryOp) -> Text {
        let all = self.affine.iter().chain(&self.data).chain(&self.remainders).map(|e| e.clone().cast(DType::I64));
        all.reduce(|a, b| Text { span: a.span, kind: Kind::Call(Function::Binary(op), vec![a, b]) })
            .unwrap_or(Text::new(Kind::Integer(0)))
    }

    /// The affine ones as one bound.
    pub fn joined(&self, op: BinaryOp) -> Option<Text> {
        self.affine.iter().cloned().reduce(|a, b| {
            let span = a.span;
            Text { kind: Kind::Call(Function::Binary(op), vec![a, b]), span }
        })
    }
}

/// The loop of steps of one over a range that holds one whose bounds have remainders, or that is walked in longer steps from a bound that divides
/// or is one of several, and the condition of its iterations; `None` for other loops.
pub(super) fn around_remainders(
    index: &Name,
    range: &Range,
    step: i64,
    lower: &Parts,
    upper: &Parts,
) -> Option<(Text, Range)> {
    let start = if step > 0 { lower } else { upper };
    let has_remainders = !lower.remainders.is_empty() || !upper.remainders.is_empty();
    if !(has_remainders || step.abs() != 1 && (start.divides || start.count > 1)) {
        return None;
    }
    let condition = has_remainders.then(|| within_bounds(index, &lower.remainders, &upper.remainders));
    let all = [condition, at_steps(index, range, step)].into_iter().flatten();
    let condition = all.reduce(|a, b| a.joined(Operator::And, b))?;
    Some((condition, Range { lower: lower.joined(BinaryOp::Max)?, upper: upper.joined(BinaryOp::Min)? }))
}

/// `(index - lower) % step == 0`, of a negative step from the last value before the upper bound; `None` for steps of one.
pub(super) fn at_steps(index: &Name, range: &Range, step: i64) -> Option<Text> {
    if step.abs() == 1 {
        return None;
    }
    let bound = if step > 0 { &range.lower } else { &range.upper };
    let (index, number) = (Text::named(index, bound.span), |n: i64| Text::integer(n, bound.span));
    let distance = match step > 0 {
        true => index.joined(Operator::Sub, bound.clone().cast(DType::I64)),
        false => bound.clone().joined(Operator::Sub, number(1)).joined(Operator::Sub, index),
    };
    let rest = distance.joined(Operator::Mod, number(step.abs()));
    Some(rest.joined(Operator::Compare(CompareOp::Eq), number(0)))
}

/// `index >= lower && index < upper`.
pub(super) fn within_bounds(index: &Name, lower: &[Text], upper: &[Text]) -> Text {
    let compared = |op: CompareOp, limit: &Text| {
        Text::named(index, limit.span).joined(Operator::Compare(op), limit.clone().cast(DType::I64))
    };
    let all = lower.iter().map(|e| compared(CompareOp::Ge, e)).chain(upper.iter().map(|e| compared(CompareOp::Lt, e)));
    all.reduce(|a, b| a.joined(Operator::And, b)).unwrap_or(Text::new(Kind::Bool(true)))
}

/// The difference of two operands as `form ± data`.
pub(super) struct Difference<'a> {
    scope: &'a Scope<'a>,
    pub form: Affine,
    /// The only operand that is not affine, and its sign.
    pub data: Option<(i64, &'a Text)>,
}

impl<'a> Difference<'a> {
    /// Of nothing.
    pub fn new(scope: &'a Scope<'a>) -> Difference<'a> {
        Difference { scope, form: Affine::constant(0), data: None }
    }

    /// Adds `sign · e`; `None` where that has several operands which are not affine.
    pub fn add(&mut self, e: &'a Text, sign: i64) -> Option<()> {
        if let Some(affine) = self.scope.affine(e).ok()? {
            self.form = combine(&self.form, &affine, sign)?;
            return Some(());
        }
        // sums of narrower types wrap around
        let is_wide = !matches!(self.scope.dtype(e), Ok(Some(dtype)) if dtype != DType::I64);
        match &e.kind {
            Kind::Binary(Operator::Add, a, b) if is_wide => self.add(a, sign).and_then(|()| self.add(b, sign)),
            Kind::Binary(Operator::Sub, a, b) if is_wide => self.add(a, sign).and_then(|()| self.add(b, -sign)),
            Kind::Negate(a) if is_wide => self.add(a, -sign),
            _ if self.data.is_none() => {
                self.data = Some((sign, e));
                Some(())
            }
            _ => None,
        }
    }
}

/// A sum or a product whose elements are converted to i64; `None` for another expression.
pub(super) fn wide(e: &Text) -> Option<Text> {
    let kind = match &e.kind {
        Kind::Element(..) | Kind::Name(_) => return Some(e.clone().cast(DType::I64)),
        Kind::Integer(_) => return Some(e.clone()),
        Kind::Binary(operator, a, b) => Kind::Binary(*operator, Box::new(wide(a)?), Box::new(wide(b)?)),
        Kind::Negate(a) => Kind::Negate(Box::new(wide(a)?)),
        _ => return None,
    };
    Some(Text { kind, span: e.span })
}

/// An element with a number added, and `by`; `None` for another expression.
pub(super) fn shifted(e: &Text, by: i64) -> Option<(&Text, i64)> {
    match &e.kind {
        Kind::Binary(operator @ (Operator::Add | Operator::Sub), a, b) => match (&a.kind, &b.kind, operator) {
            (_, Kind::Integer(n), Operator::Add) => shifted(a, by.checked_add(*n)?),
            (_, Kind::Integer(n), _) => shifted(a, by.checked_sub(*n)?),
            (Kind::Integer(n), _, Operator::Add) => shifted(b, by.checked_add(*n)?),
            _ => None,
        },
        Kind::Cast(DType::I64, a) if matches!(a.kind, Kind::Element(..) | Kind::Name(_)) => Some((a, by)),
        Kind::Element(..) | Kind::Name(_) => Some((e, by)),
        _ => None,
    }
}

/// The least and the greatest value of a variable that forms of it alone permit where all are ≥ 0.
pub(super) fn values_of(var: Var, facts: &[Affine]) -> (i64, i64) {
    let (mut from, mut to) = (i64::MIN, i64::MAX);
    for fact in facts {
        match fact.terms[..] {
            [(v, c)] if v == var && c > 0 => from = from.max(ceil_div(-fact.constant, c)),
            [(v, c)] if v == var => to = to.min(fact.constant.div_euclid(-c)),
            _ => {}
        }
    }
    (from, to)
}

/// A condition that is `truth` only where an index compares so with numbers, with these comparisons before it.
pub(super) fn with_limits(index: &Name, condition: &Text, truth: bool, limits: &[(CompareOp, i64)]) -> Text {
    let joined = |condition: Text, &(op, number): &(CompareOp, i64)| {
        let (op, operator) = if truth { (op, Operator::And) } else { (op.opposite(), Operator::Or) };
        let (name, number) = (Text::named(index, condition.span), Text::integer(number, condition.span));
        name.joined(Operator::Compare(op), number).joined(operator, condition)
    };
    limits.iter().fold(condition.clone(), joined)
}
