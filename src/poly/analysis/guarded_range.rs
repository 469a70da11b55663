//! Subscripts without data under conditions on themselves: `composite[i * j]` where `i * j < N`.
//!
//! In: an integer expression over a box, and conditions that compare it, or it with a sum of indices added, with numbers or sums of indices. Out: the interval in
//! which it lies wherever the conditions are as said. What wraps around beyond 64 bits has none.

use crate::expr::dynamic_bounds::swapped;
use crate::expr::logic::Condition;
use crate::expr::{BinaryOp, CompareOp, Expr};
use crate::poly::analysis::index_range::operations_range;
use crate::poly::statement::{Iterator, TensorDecl};

/// Values far from the limits of 64 bits.
const FAR: i64 = 1 << 61;

/// The least and the greatest value of `value` where the conditions are as said; `None` where its operations may wrap around.
pub fn guarded_range(
    tensors: &[TensorDecl],
    iterators: &[Iterator],
    conditions: &[(Expr, bool)],
    value: &Expr,
) -> Option<(i64, i64)> {
    let range = |e: &Expr| operations_range(tensors, iterators, e).filter(|(low, high)| -FAR < *low && *high < FAR);
    let (form, rest) = value.affine_terms();
    let (rest, (mut low, mut high)) = (rest?, range(value)?);
    range(&rest)?;
    for (part, holds) in conditions.iter().flat_map(|(condition, holds)| condition.parts(*holds)) {
        let Expr::Compare(op, a, b) = part else { continue };
        let op = if holds { *op } else { op.opposite() };
        for (compared, other, op) in [(a, b, op), (b, a, swapped(op))] {
            if let Some(most) = product_below(&range, &rest, compared, op, other)
                && let Some((_, added)) = range(&Expr::Index(form.clone()))
            {
                high = high.min(most + added);
            }
            let (of_compared, same) = compared.affine_terms();
            if same.as_ref() != Some(&rest) || range(compared).is_none() {
                continue;
            }
            // value = compared + form - of_compared
            let by = form.add_scaled(&of_compared, -1);
            let limit = match other.affine_terms() {
                (of_other, None) => Expr::Index(of_other.add_scaled(&by, 1)),
                _ => Expr::binary(BinaryOp::Add, (**other).clone(), Expr::Index(by)),
            };
            let Some((least, most)) = range(&limit) else { continue };
            match op {
                CompareOp::Lt => high = high.min(most - 1),
                CompareOp::Le => high = high.min(most),
                CompareOp::Gt => low = low.max(least + 1),
                CompareOp::Ge => low = low.max(least),
                CompareOp::Eq => (low, high) = (low.max(least), high.min(most)),
                CompareOp::Ne => {}
            }
        }
    }
    Some((low, high))
}

/// The greatest value of a product `x · y` of which a comparison `y < n / x + 1`, or `y ≤ n / x`, limits one factor by a quotient by the other one.
fn product_below(
    range: &dyn Fn(&Expr) -> Option<(i64, i64)>,
    product: &Expr,
    compared: &Expr,
    op: CompareOp,
    limit: &Expr,
) -> Option<i64> {
    let Expr::Binary(BinaryOp::Mul, a, b) = product else { return None };
    let (Expr::Index(compared), (added, Some(Expr::Binary(BinaryOp::Div, number, divisor)))) =
        (compared, limit.affine_terms())
    else {
        return None;
    };
    let below = match op {
        CompareOp::Lt => 1,
        CompareOp::Le => 0,
        _ => return None,
    };
    let is_limited = |(x, y): (&Expr, &Expr)| {
        let Expr::Index(y) = y else { return false };
        // y ≤ number / divisor + excess
        let excess = y.add_scaled(compared, -1).add_scaled(&added, 1).offset(-below);
        *x == *divisor && excess.is_constant() && excess.constant <= 0
    };
    let (least, most) = (range(divisor.as_ref())?.0, range(number.as_ref())?);
    let limited = least > 0 && most.0 >= 0 && [(&**a, &**b), (&**b, &**a)].into_iter().any(is_limited);
    limited.then_some(most.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{Affine, Scalar, Var};

    #[test]
    fn a_comparison_of_the_value_limits_it() {
        let iterators = [Iterator::new("i", 100), Iterator::new("j", 100)];
        let index = |v| Expr::Index(Affine::var(Var(v)));
        let number = |n| Expr::Const(Scalar::i64(n));
        let product = || Expr::binary(BinaryOp::Mul, index(0), index(1));
        let plus = |e, n| Expr::binary(BinaryOp::Add, e, number(n));
        let under = |condition: Expr, holds, value: Expr| guarded_range(&[], &iterators, &[(condition, holds)], &value);
        let less = |a, b| Expr::compare(CompareOp::Lt, a, b);
        assert_eq!(under(less(product(), number(50)), true, product()), Some((0, 49)));
        assert_eq!(under(less(product(), number(50)), false, product()), Some((50, 9801)));
        assert_eq!(under(less(number(50), product()), true, plus(product(), 3)), Some((54, 9804)));
        assert_eq!(under(less(plus(product(), 7), number(50)), true, product()), Some((0, 42)));
        // i * j < i + 5, and another product
        assert_eq!(under(less(product(), plus(index(0), 5)), true, product()), Some((0, 103)));
        let other = Expr::binary(BinaryOp::Mul, index(0), index(0));
        assert_eq!(under(less(other, number(50)), true, product()), Some((0, 9801)));
    }

    #[test]
    fn a_quotient_by_one_factor_limits_the_product() {
        let iterators = [Iterator::new("i", 100), Iterator::new("j", 100)];
        let index = |v, by| Expr::Index(Affine::var(Var(v)).offset(by));
        let number = |n| Expr::Const(Scalar::i64(n));
        let product = |by| Expr::binary(BinaryOp::Mul, index(0, 1), index(1, by));
        // j < 49 / (i + 1) + more
        let under = |more, value| {
            let quotient = Expr::binary(BinaryOp::Div, number(49), index(0, 1));
            let limit = Expr::binary(BinaryOp::Add, quotient, number(more));
            guarded_range(&[], &iterators, &[(Expr::compare(CompareOp::Lt, index(1, 0), limit), true)], &value)
        };
        assert_eq!(under(1, product(0)), Some((0, 49)));
        assert_eq!(under(2, product(0)), Some((0, 9900)));
        assert_eq!(under(1, product(1)), Some((1, 10000)));
        assert_eq!(under(0, product(1)), Some((1, 49)));
        // every iteration that the condition leaves is inside
        for (i, j) in (0..100).flat_map(|i| (0..100).map(move |j| (i, j))) {
            assert!(j > 49 / (i + 1) || (i + 1) * j <= 49);
        }
    }

    #[test]
    fn a_product_that_wraps_around_has_no_interval() {
        let iterators = [Iterator::new("i", 1 << 39), Iterator::new("j", 1 << 39)];
        let index = |v| Expr::Index(Affine::var(Var(v)));
        let product = Expr::binary(BinaryOp::Mul, index(0), index(1));
        let less = Expr::compare(CompareOp::Lt, product.clone(), Expr::Const(Scalar::i64(9)));
        assert_eq!(guarded_range(&[], &iterators, &[(less, true)], &product), None);
    }
}
