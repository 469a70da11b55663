//! Bounds of loops that come from data, as conditions: of `select(k >= p[i] && k < p[i + 1], e, 0)`, which is summed, all that lies
//! outside of `p[i]..p[i + 1]` leaves the sum as it is.
//!
//! Source: J. Zhao, M. Kruse, A. Cohen, *A Polyhedral Compilation Framework for Loops with Dynamic Data-Dependent Bounds*, CC 2018.
//! There as here the domain of such a loop has static bounds, and what the data say is a guard inside of it.

use crate::expr::logic::Condition;
use crate::expr::scalar::Value;
use crate::expr::{Affine, BinaryOp, CompareOp, Expr, Index, Scalar, UnaryOp};
use crate::expr::{BufferId, Var};
use crate::runtime::DType;

/// `form ≥ limit`, or `form < limit`.
#[derive(Clone, PartialEq, Debug)]
pub struct DynamicBound<'a> {
    pub lower: bool,
    pub form: Affine,
    /// An integer that is read from memory, or no quasi-affine form of indices, of type i64 or i32.
    pub limit: &'a Expr,
}

/// An assignment or an update of one element.
pub struct Target<'a> {
    pub buffer: BufferId,
    pub index: &'a [Index],
    pub reduce: Option<BinaryOp>,
    pub dtype: DType,
}

impl Target<'_> {
    /// Returns true if the element keeps its value when `value` is assigned to it, or combined with it.
    pub fn is_kept_by(&self, value: &Expr) -> bool {
        match (self.reduce, value) {
            (None, Expr::Load(access)) => {
                access.buffer == self.buffer && access.index == self.index && access.guard.is_empty()
            }
            (Some(op), Expr::Const(c)) => {
                let zero = |c: &Scalar| if c.dtype.is_float() { Value::from(*c).as_f64() == 0.0 } else { c.bits == 0 };
                match op {
                    BinaryOp::Add => zero(c),
                    op => Scalar::neutral(op, self.dtype).is_ok_and(|neutral| neutral == *c),
                }
            }
            _ => false,
        }
    }

    /// The bounds from data among the conditions of which each must hold for `value` to change the element.
    pub fn bounds<'e>(&self, value: &'e Expr) -> Vec<DynamicBound<'e>> {
        let mut out = vec![];
        let mut value = value;
        while let Expr::Select(condition, inside, otherwise) = value
            && self.is_kept_by(otherwise)
        {
            let parts = condition.parts(true).into_iter();
            out.extend(parts.filter_map(|(part, holds)| DynamicBound::of_part(part, holds)));
            value = inside;
        }
        out
    }

    /// `value` without those of its conditions that are known to hold.
    pub fn without(&self, value: &Expr, holds: &dyn Fn(&Expr) -> bool) -> Expr {
        match value {
            Expr::Select(condition, inside, otherwise) if self.is_kept_by(otherwise) => {
                let inside = self.without(inside, holds);
                match remaining(condition, holds) {
                    None => inside,
                    Some(condition) => Expr::select(condition, inside, (**otherwise).clone()),
                }
            }
            value => value.clone(),
        }
    }
}

/// A conjunction without the operands that hold.
fn remaining(e: &Expr, holds: &dyn Fn(&Expr) -> bool) -> Option<Expr> {
    match e {
        Expr::Binary(BinaryOp::And, a, b) => match (remaining(a, holds), remaining(b, holds)) {
            (Some(a), Some(b)) => Some(Expr::binary(BinaryOp::And, a, b)),
            (a, b) => a.or(b),
        },
        e => (!holds(e)).then(|| e.clone()),
    }
}

impl DynamicBound<'_> {
    /// The bound that a comparison states, or its negation.
    pub fn of(e: &Expr) -> Option<DynamicBound<'_>> {
        match e.parts(true)[..] {
            [(part, holds)] => DynamicBound::of_part(part, holds),
            _ => None,
        }
    }

    /// The bound that a comparison states where it holds, or where it does not.
    pub fn of_part(e: &Expr, holds: bool) -> Option<DynamicBound<'_>> {
        let Expr::Compare(op, a, b) = e else { return None };
        let is_data = |e: &Expr| e.any(&mut |e| matches!(e, Expr::Load(_)) || multiplies_indices(e));
        let op = if holds { *op } else { op.opposite() };
        let (op, form, limit) = match (affine(a), affine(b)) {
            (Some(form), None) if is_data(b) => (op, form, &**b),
            (None, Some(form)) if is_data(a) => (swapped(op), form, &**a),
            _ => return None,
        };
        let (lower, form) = match op {
            CompareOp::Ge => (true, form),
            CompareOp::Gt => (true, form.offset(-1)),
            CompareOp::Lt => (false, form),
            CompareOp::Le => (false, form.offset(-1)),
            CompareOp::Eq | CompareOp::Ne => return None,
        };
        Some(DynamicBound { lower, form, limit })
    }

    /// The variables that the limit depends on.
    pub fn variables(&self) -> Vec<Var> {
        let mut out = vec![];
        self.limit.visit(&mut |e| match e {
            Expr::Index(a) => out.extend(a.terms.iter().map(|t| t.0)),
            Expr::Load(access) => out.extend(access.affine_forms().flat_map(|a| a.terms.iter().map(|t| t.0))),
            _ => {}
        });
        out.sort();
        out.dedup();
        out
    }
}

/// Returns true for a product of indices, and for a quotient, a remainder or a shift by an index.
fn multiplies_indices(e: &Expr) -> bool {
    let varies = |e: &Expr| e.any(&mut |e| matches!(e, Expr::Index(a) if !a.is_constant()));
    match e {
        Expr::Binary(BinaryOp::Mul, a, b) => varies(a) && varies(b),
        Expr::Binary(BinaryOp::Div | BinaryOp::Mod | BinaryOp::ShiftLeft | BinaryOp::ShiftRight, _, b) => varies(b),
        _ => false,
    }
}

/// A sum of indices, as i64.
fn affine(e: &Expr) -> Option<Affine> {
    match e.affine_terms() {
        (form, None) if !form.is_constant() => Some(form),
        _ => None,
    }
}

/// The comparison of the same operands in the other order.
pub fn swapped(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Lt => CompareOp::Gt,
        CompareOp::Le => CompareOp::Ge,
        CompareOp::Gt => CompareOp::Lt,
        CompareOp::Ge => CompareOp::Le,
        op => op,
    }
}

/// `-value`, of a selection that of its operands.
pub fn negative(value: Expr) -> Expr {
    match value {
        Expr::Select(condition, a, b) if matches!(*b, Expr::Const(c) if c.dtype.is_float() || c.bits == 0) => {
            let b = match *b {
                Expr::Const(c) if c.dtype.is_float() => Expr::Const(Scalar::of(c.dtype, -Value::from(c).as_f64())),
                b => b,
            };
            Expr::select(*condition, negative(*a), b)
        }
        value => Expr::unary(UnaryOp::Neg, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(v: u32) -> Expr {
        Expr::Index(Affine::var(Var(v)))
    }

    fn row(offset: i64) -> Expr {
        Expr::cast(DType::I64, Expr::load(BufferId(0), vec![Affine::var(Var(0)).offset(offset)]))
    }

    fn guarded(otherwise: f32) -> Expr {
        let and = |a, b| Expr::binary(BinaryOp::And, a, b);
        let from = Expr::compare(CompareOp::Le, row(0), index(1));
        let to = Expr::compare(CompareOp::Lt, index(1), row(1));
        let other = Expr::compare(CompareOp::Gt, index(1), index(0));
        Expr::select(and(from, and(to, other)), Expr::f32(2.0), Expr::f32(otherwise))
    }

    fn target(reduce: Option<BinaryOp>) -> Target<'static> {
        Target { buffer: BufferId(1), index: &[], reduce, dtype: DType::F32 }
    }

    #[test]
    fn a_sum_of_the_neutral_element_has_bounds() {
        let value = guarded(-0.0);
        let bounds = target(Some(BinaryOp::Add)).bounds(&value);
        let [from, to] = &bounds[..] else { panic!("{bounds:?}") };
        assert!(from.lower && !to.lower && *from.limit == row(0) && *to.limit == row(1));
        assert_eq!((&from.form, from.variables()), (&Affine::var(Var(1)), vec![Var(0)]));
        assert!(target(Some(BinaryOp::Mul)).bounds(&value).is_empty());
        assert!(target(None).bounds(&value).is_empty());
        assert!(target(Some(BinaryOp::Add)).bounds(&guarded(1.0)).is_empty());
    }

    #[test]
    fn what_holds_goes() {
        let value = guarded(0.0);
        let sum = target(Some(BinaryOp::Add));
        let left = sum.without(&value, &|c| DynamicBound::of(c).is_some());
        let other = Expr::compare(CompareOp::Gt, index(1), index(0));
        assert_eq!(left, Expr::select(other, Expr::f32(2.0), Expr::f32(0.0)));
        assert_eq!(sum.without(&value, &|_| true), Expr::f32(2.0));
        assert_eq!(sum.without(&value, &|_| false), value);
    }
}
