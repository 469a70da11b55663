//! Arithmetic of integers: numbers are folded, and quotients and remainders by powers of two that are computed, as `k / shl(1, s)`, are
//! shifts and masks.

use crate::expr::narrow::Names;
use crate::expr::scalar::{Value, binary, cast};
use crate::expr::{BinaryOp, Expr, Scalar};
use crate::runtime::DType;

/// `e`, whose operands are simplified, in as simple operations on integers.
pub(super) fn simplified(e: Expr, names: Names) -> Expr {
    match folded(&e) {
        Some(number) => number,
        None => without_division(e, names),
    }
}

/// The value of an operation on two integers that are known.
pub(in crate::codegen::loopnest) fn folded(e: &Expr) -> Option<Expr> {
    let Expr::Binary(op, a, b) = e else { return None };
    let number = |e: &Expr| match e {
        Expr::Const(s) if s.dtype.is_integer() => Some(Value::from(*s)),
        Expr::Index(a) if a.is_constant() => Some(Value::I64(a.constant)),
        _ => None,
    };
    Some(Expr::Const(binary(*op, number(a)?, number(b)?).ok()?.into()))
}

/// `e`, whose operands are simplified, without a division by `shl(c, s)` where `c` is a power of two and the type holds the power for all
/// values of `s`: of dividends that are not negative the quotient, of all the remainder.
fn without_division(e: Expr, names: Names) -> Expr {
    let Expr::Binary(op @ (BinaryOp::Div | BinaryOp::Mod), a, b) = &e else { return e };
    let Some((zeros, amount)) = power(b, names) else { return e };
    let number =
        |like: &Expr, n: i64| Expr::Const(Scalar::from(cast(like.dtype(&|b| (names.dtype)(b)), Value::I64(n))));
    match op {
        BinaryOp::Mod => {
            let mask = Expr::binary(BinaryOp::Sub, (**b).clone(), number(b, 1));
            Expr::binary(BinaryOp::And, (**a).clone(), mask)
        }
        _ if names.range(a).is_some_and(|values| values.0 >= 0) => {
            let amount = match zeros {
                0 => amount.clone(),
                zeros => Expr::binary(BinaryOp::Add, amount.clone(), number(amount, zeros)),
            };
            Expr::binary(BinaryOp::ShiftRight, (**a).clone(), amount)
        }
        _ => e,
    }
}

/// The exponent of a power of two, as a number and an expression to add.
fn power<'e>(e: &'e Expr, names: Names) -> Option<(i64, &'e Expr)> {
    let Expr::Binary(BinaryOp::ShiftLeft, factor, amount) = e else { return None };
    let Expr::Const(factor) = &**factor else { return None };
    let signed = matches!(factor.dtype, DType::I64 | DType::I32 | DType::I16 | DType::I8);
    let value = Some(Value::from(*factor).as_i64()).filter(|&v| signed && v > 0 && v & (v - 1) == 0)?;
    let (zeros, bits) = (i64::from(value.trailing_zeros()), 8 * factor.dtype.bytes() as i64);
    let (least, most) = names.range(amount)?;
    (least >= 0 && most < bits - 1 - zeros).then_some((zeros, amount))
}
