//! Constant factors of sums: `Σ c·x` is `c·Σ x`, one product instead of one for each step.
//!
//! In: the body of an update by addition. Out: the constant and what is left to sum. Sums of products with one common
//! constant count too. Floating point only, where sums may be reordered anyway.

use crate::expr::scalar;
use crate::expr::scalar::Value;
use crate::expr::{BinaryOp, Expr, Scalar, UnaryOp};
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;
use crate::runtime::DType;

/// Splits the term that an update adds into a constant factor and the remaining term, which is summed in registers.
pub fn of_sum(scop: &Scop, id: StatementId) -> Option<(Scalar, Expr)> {
    let s = scop.statement(id);
    let sums = s.reduce == Some(BinaryOp::Add);
    sums.then(|| factor(&s.body, scop.tensor(s.target).dtype)).flatten()
}

/// `body`, of type `dtype`, as a constant times the rest.
fn factor(body: &Expr, dtype: DType) -> Option<(Scalar, Expr)> {
    let factor = |e: &Expr| factor(e, dtype);
    match body {
        Expr::Unary(UnaryOp::Neg, inner) => {
            let (c, rest) = match factor(inner) {
                Some((c, rest)) => (negated(c)?, rest),
                None => (minus_one(dtype)?, (**inner).clone()),
            };
            Some((c, rest))
        }
        Expr::Binary(BinaryOp::Mul, a, b) => match (&**a, &**b) {
            (Expr::Const(_), Expr::Const(_)) => None,
            (Expr::Const(c), rest) | (rest, Expr::Const(c)) if is_float(c.dtype) => match factor(rest) {
                Some((d, rest)) => Some((product(*c, d)?, rest)),
                None => Some((*c, rest.clone())),
            },
            (a, b) => match (factor(a), factor(b)) {
                (None, None) => None,
                (Some((c, a)), None) => Some((c, Expr::binary(BinaryOp::Mul, a, b.clone()))),
                (None, Some((c, b))) => Some((c, Expr::binary(BinaryOp::Mul, a.clone(), b))),
                (Some((c, a)), Some((d, b))) => Some((product(c, d)?, Expr::binary(BinaryOp::Mul, a, b))),
            },
        },
        Expr::Binary(BinaryOp::Add, a, b) => {
            let ((c, a), (d, b)) = (factor(a)?, factor(b)?);
            (c == d).then(|| (c, Expr::binary(BinaryOp::Add, a, b)))
        }
        _ => None,
    }
}

/// `c·x`.
pub fn scaled(c: Scalar, x: Expr) -> Expr {
    if minus_one(c.dtype) == Some(c) {
        Expr::unary(UnaryOp::Neg, x)
    } else {
        Expr::binary(BinaryOp::Mul, Expr::Const(c), x)
    }
}

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}

fn minus_one(dtype: DType) -> Option<Scalar> {
    match dtype {
        DType::F32 => Some(Scalar::f32(-1.0)),
        DType::F64 => Some(Scalar::f64(-1.0)),
        _ => None,
    }
}

fn negated(c: Scalar) -> Option<Scalar> {
    product(c, minus_one(c.dtype)?)
}

fn product(a: Scalar, b: Scalar) -> Option<Scalar> {
    let value = scalar::binary(BinaryOp::Mul, Value::from(a), Value::from(b)).ok()?;
    match a.dtype {
        DType::F32 => Some(Scalar::f32(value.as_f64() as f32)),
        DType::F64 => Some(Scalar::f64(value.as_f64())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::BufferId;

    #[test]
    fn constants_come_out_of_products_and_their_sums() {
        let load = |b| Expr::load(BufferId(b), vec![]);
        let c = |x| Expr::Const(Scalar::f64(x));
        let mul = |a, b| Expr::binary(BinaryOp::Mul, a, b);
        let one = |e: Expr| factor(&e, DType::F64);
        assert_eq!(one(load(0)), None);
        assert_eq!(one(mul(mul(c(1.5), load(0)), load(1))), Some((Scalar::f64(1.5), mul(load(0), load(1)))));
        let negative = Expr::unary(UnaryOp::Neg, mul(load(0), load(1)));
        assert_eq!(one(negative.clone()), Some((Scalar::f64(-1.0), mul(load(0), load(1)))));
        assert_eq!(one(mul(c(2.0), negative)), Some((Scalar::f64(-2.0), mul(load(0), load(1)))));
        let sum = |x, y| Expr::binary(BinaryOp::Add, mul(c(x), load(0)), mul(load(1), c(y)));
        assert_eq!(one(sum(3.0, 3.0)), Some((Scalar::f64(3.0), Expr::binary(BinaryOp::Add, load(0), load(1)))));
        assert_eq!(one(sum(3.0, 2.0)), None);
        assert_eq!(factor(&Expr::unary(UnaryOp::Neg, load(0)), DType::I64), None);
    }
}
