//! Operands of the bounds of loops, and the conditions that those become which are not affine.
//!
//! In: the operands of both bounds, of `max` in a lower one, of `min` in an upper one. Out: a range of affine bounds, and the condition under which
//! a value in it is one of the loop.

use super::syntax::Range;
use crate::expr::syntax::{Expr as Text, Function, Kind, Name, Operator, Span};
use crate::expr::{BinaryOp, CompareOp};
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

    /// The affine ones as one bound.
    pub fn joined(&self, op: BinaryOp) -> Option<Text> {
        self.affine.iter().cloned().reduce(|a, b| {
            let span = a.span;
            Text { kind: Kind::Call(Function::Binary(op), vec![a, b]), span }
        })
    }
}

/// The loop of steps of one over a range that holds one whose bounds have remainders, or that is walked in longer steps from a bound that divides,
/// and the condition of its iterations; `None` for other loops, and for longer steps from one of several bounds.
pub(super) fn around_remainders(
    index: &Name,
    range: &Range,
    step: i64,
    lower: &Parts,
    upper: &Parts,
) -> Option<(Text, Range)> {
    let (start, bound) = if step > 0 { (lower, &range.lower) } else { (upper, &range.upper) };
    let is_long = step.abs() != 1;
    let has_remainders = !lower.remainders.is_empty() || !upper.remainders.is_empty();
    if !(has_remainders || is_long && start.divides) || is_long && start.count > 1 {
        return None;
    }
    let mut condition = within_bounds(index, &lower.remainders, &upper.remainders);
    if is_long {
        let span = bound.span;
        let at = |kind: Kind| Text { kind, span };
        let join = |operator, a: Text, b: Text| at(Kind::Binary(operator, Box::new(a), Box::new(b)));
        let (number, index) = (|n: i64| at(Kind::Integer(n)), at(Kind::Name(index.text.clone())));
        let distance = match step > 0 {
            true => join(Operator::Sub, index, bound.clone()),
            false => join(Operator::Sub, join(Operator::Sub, bound.clone(), number(1)), index),
        };
        let rest = join(Operator::Mod, distance, number(step.abs()));
        let whole = join(Operator::Compare(CompareOp::Eq), rest, number(0));
        condition = if has_remainders { join(Operator::And, condition, whole) } else { whole };
    }
    Some((condition, Range { lower: lower.joined(BinaryOp::Max)?, upper: upper.joined(BinaryOp::Min)? }))
}

/// `index >= lower && index < upper`.
pub(super) fn within_bounds(index: &Name, lower: &[Text], upper: &[Text]) -> Text {
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
