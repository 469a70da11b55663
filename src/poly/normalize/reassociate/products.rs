//! Products in recurrences: one fused operation between an iteration and the one that waits for it.
//!
//! In: sums whose latest operand is last. Out: of two products, the sum takes the latest without rounding it, which codegen does
//! with the first one ([`crate::codegen::select::value`]); of a constant and a sum whose latest operand is an element, or a
//! constant times one, each operand gets its own product: `0.5*A[i][j-1] + 0.5*(A[i+1][j] + B[j])` for
//! `0.5*(A[i+1][j] + B[j] + A[i][j-1])`.

use super::{Recurrence, share_elements};
use crate::codegen::select::value::{contracts, product};
use crate::expr::scalar::Value;
use crate::expr::{BinaryOp, Expr, Scalar, UnaryOp};
use crate::runtime::DType;

impl Recurrence<'_> {
    /// A sum or difference of floats. Where both operands are products, the latest comes first.
    pub(super) fn latest_fused(&self, e: Expr, dtype: DType) -> Expr {
        match e {
            Expr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b)
                if contracts(dtype) && product(&a).is_some() && product(&b).is_some() =>
            {
                let (first, second) = (self.age(&a), self.age(&b));
                match op {
                    BinaryOp::Add if second > first => Expr::binary(op, *b, *a),
                    BinaryOp::Sub if first > second => Expr::binary(BinaryOp::Add, *a, Expr::unary(UnaryOp::Neg, *b)),
                    _ => Expr::Binary(op, a, b),
                }
            }
            e => e,
        }
    }

    /// The product of two floats. Of a constant and a sum whose latest operand is linear in one element, it is the sum of the
    /// products of each operand.
    pub(super) fn distributed_product(&self, e: Expr, dtype: DType) -> Expr {
        let Expr::Binary(BinaryOp::Mul, a, b) = &e else { return e };
        let (factor, sum) = match (&**a, &**b) {
            (Expr::Const(factor), sum) | (sum, Expr::Const(factor)) => (*factor, sum),
            _ => return e,
        };
        let Expr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) = sum else { return e };
        let (first, second) = (self.age(a), self.age(b));
        let latest = if first > second { a } else { b };
        if !contracts(dtype) || first == second || !is_linear(latest) || share_elements([&**a, &**b]) {
            return e;
        }
        self.latest_fused(Expr::binary(*op, scaled(factor, a), scaled(factor, b)), dtype)
    }
}

/// Returns true for an element and for the product of a constant and an element.
fn is_linear(e: &Expr) -> bool {
    match e {
        Expr::Load(_) => true,
        Expr::Binary(BinaryOp::Mul, a, b) => {
            matches!((&**a, &**b), (Expr::Const(_), Expr::Load(_)) | (Expr::Load(_), Expr::Const(_)))
        }
        _ => false,
    }
}

/// `e` times a constant, with one constant.
fn scaled(factor: Scalar, e: &Expr) -> Expr {
    let number = |s: Scalar| Value::from(s).as_f64();
    match e {
        Expr::Binary(BinaryOp::Mul, a, b) => match (&**a, &**b) {
            (Expr::Const(c), e) | (e, Expr::Const(c)) => {
                let both = Scalar::of(factor.dtype, number(factor) * number(*c));
                Expr::binary(BinaryOp::Mul, Expr::Const(both), e.clone())
            }
            _ => Expr::binary(BinaryOp::Mul, Expr::Const(factor), e.clone()),
        },
        e => Expr::binary(BinaryOp::Mul, Expr::Const(factor), e.clone()),
    }
}
