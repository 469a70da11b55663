//! Elements that a run checks before it begins, and the limits that are known to lie in a range since they are such elements.

use crate::codegen::loopnest::LoopNest;
use crate::expr::scalar::Value;
use crate::expr::{Affine, BinaryOp, BufferId, Expr};
use crate::runtime::DType;

/// Elements `offset, offset + stride, …` of a buffer, of which the run refuses those outside of `lower..=upper`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CheckedElements {
    pub buffer: BufferId,
    pub offset: i64,
    pub stride: i64,
    pub lower: i64,
    pub upper: i64,
}

/// Returns true if `limit` is an element, with a number added, that the checks keep in `first..=end`.
pub fn is_checked(nest: &LoopNest, checks: &[CheckedElements], limit: &Expr, (first, end): (i64, i64)) -> bool {
    let (mut value, mut offset) = (limit, 0i64);
    loop {
        value = match value {
            // exact, unlike a conversion to a narrower type, and sums in one
            Expr::Cast(DType::I64, a) if matches!(**a, Expr::Load(_)) => a,
            Expr::Binary(BinaryOp::Add, a, b) => match &**b {
                Expr::Const(c) if !c.dtype.is_float() => {
                    // a sum of constants that wraps is none
                    let Some(sum) = offset.checked_add(Value::from(*c).as_i64()) else { return false };
                    offset = sum;
                    a
                }
                _ => return false,
            },
            // where a guard fails the value is no element
            Expr::Load(access) if access.guard.is_empty() => {
                let place = nest.buffer(access.buffer).place(&access.index);
                return checks.iter().filter(|c| c.buffer == access.buffer).any(|c| {
                    let limits = c.lower.checked_add(offset).zip(c.upper.checked_add(offset));
                    limits.is_some_and(|(low, high)| first <= low && high <= end) && c.has(place.as_ref())
                });
            }
            _ => return false,
        };
    }
}

impl CheckedElements {
    /// Returns true if the element at a place is one of these, `None` for one from data.
    fn has(&self, place: Option<&Affine>) -> bool {
        let whole = |n: i64| n % self.stride.max(1) == 0;
        match place {
            _ if (self.offset, self.stride) == (0, 1) => true,
            // places are not negative, so that one in step with `offset` is not below it where `offset < stride`
            Some(place) => {
                self.offset < self.stride
                    && place.terms.iter().all(|t| whole(t.1))
                    && whole(place.constant - self.offset)
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::loopnest::parse;
    use crate::expr::{Access, Index, Scalar, Var};

    #[test]
    fn elements_of_a_check_are_known_to_lie_inside() {
        let nest = parse::nest("kernel k { P: i32[4][2] argument 0; parallel i in 0..4 { } }").unwrap();
        let element = |column: i64| {
            let index = vec![Affine::var(Var(0)), Affine::constant(column)];
            Expr::cast(DType::I64, Expr::load(BufferId(0), index))
        };
        let of = |offset, stride| [CheckedElements { buffer: BufferId(0), offset, stride, lower: 0, upper: 9 }];
        for (offset, stride, columns) in [(0, 1, [true, true]), (0, 2, [true, false]), (1, 2, [false, true])] {
            for (column, inside) in columns.into_iter().enumerate() {
                let limit = element(column as i64);
                assert_eq!(is_checked(&nest, &of(offset, stride), &limit, (0, 9)), inside);
                assert!(!is_checked(&nest, &of(offset, stride), &limit, (0, 8)));
                assert!(!is_checked(&nest, &[], &limit, (0, 9)));
            }
        }
        let Expr::Cast(_, read) = element(0) else { unreachable!() };
        let wrapped = Expr::cast(DType::I64, Expr::cast(DType::I8, *read));
        assert!(!is_checked(&nest, &of(0, 1), &wrapped, (0, 9)));
        let next = Expr::binary(BinaryOp::Add, element(0), Expr::Const(Scalar::i64(1)));
        assert!(is_checked(&nest, &of(0, 1), &next, (0, 10)));
        assert!(!is_checked(&nest, &of(0, 1), &next, (0, 9)));
        let far = |e, n| Expr::binary(BinaryOp::Add, e, Expr::Const(Scalar::i64(n)));
        let wrapped = far(far(far(element(0), -i64::MAX), i64::MAX), i64::MAX);
        assert!(!is_checked(&nest, &of(0, 1), &wrapped, (-9, 9)));
        let Expr::Cast(_, mut guarded) = element(0) else { unreachable!() };
        if let Expr::Load(access) = &mut *guarded {
            access.guard.push(Affine::var(Var(0)).offset(-1));
        }
        assert!(!is_checked(&nest, &of(0, 1), &Expr::cast(DType::I64, *guarded), (0, 9)));
        let index = vec![Index::Value(Box::new(element(0))), Index::Affine(Affine::constant(0))];
        let data = Expr::Load(Access { buffer: BufferId(0), index, guard: vec![], otherwise: None });
        assert!(is_checked(&nest, &of(0, 1), &data, (0, 9)) && !is_checked(&nest, &of(0, 2), &data, (0, 9)));
    }
}
