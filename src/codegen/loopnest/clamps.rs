//! Integers that are brought into an interval, as subscripts from data are.

use crate::expr::narrow::dtype_range;
use crate::expr::scalar::Value;
use crate::expr::{BinaryOp, Expr};
use crate::runtime::DType;

/// The operand of conversions to i64.
pub fn widened(mut e: &Expr) -> &Expr {
    while let Expr::Cast(DType::I64, inner) = e {
        e = inner;
    }
    e
}

/// An integer that is brought between two numbers, and these.
pub fn clamped(e: &Expr) -> Option<(&Expr, i64, i64)> {
    let (mut e, mut low, mut high) = (widened(e), i64::MIN, i64::MAX);
    while let Expr::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) = e {
        let (inner, limit) = [(a, b), (b, a)].into_iter().find_map(|(a, b)| Some((a, number(b)?)))?;
        match op {
            // outer limits come last
            BinaryOp::Max if high == i64::MAX || limit <= high => low = low.max(limit),
            BinaryOp::Min if low == i64::MIN || limit >= low => high = high.min(limit),
            _ => return None,
        }
        e = widened(inner);
    }
    Some((e, low, high))
}

/// The value of an integer that is a number.
pub fn number(e: &Expr) -> Option<i64> {
    match widened(e) {
        Expr::Const(s) if dtype_range(s.dtype).is_some() => Some(Value::from(*s).as_i64()),
        Expr::Index(a) if a.is_constant() => Some(a.constant),
        _ => None,
    }
}
