//! Subscripts under conditions on what they are made of: `composite[i * j]` where `i * j < N`, `X[y][x + 1]` where `x >= 0 && x < N - 1`, `x[i + offset[d]]`.
//!
//! In: an integer expression over a box, and conditions. Out: the interval in which it lies wherever the conditions are as said. Comparisons are inequalities between sums of
//! indices and of operands that are no sums, as elements of arrays; each bounds its operands by what is known of the others, in turn, and the
//! expression by what it differs by from it (bounds propagation: E. Davis, *Constraint propagation with interval labels*, Artificial Intelligence 32, 1987). A sum that may wrap around is an operand as a
//! whole: what a condition says of it, it says of the same sum alone.

use crate::expr::dynamic_bounds::swapped;
use crate::expr::logic::{Condition, Logic};
use crate::expr::narrow::{Interval, dtype_range, range_over_elements};
use crate::expr::scalar::Value;
use crate::expr::{Affine, BinaryOp, BufferId, CompareOp, Expr, UnaryOp, Var};
use crate::poly::statement::{Iterator, TensorDecl, ranges};
use crate::runtime::DType;

/// Values far from the limits of 64 bits.
const FAR: i64 = 1 << 61;

/// Rounds in which inequalities bound operands. Unmeasured.
const ROUNDS: usize = 3;

/// Alternatives of disjunctions that are looked at, at most. Unmeasured.
const ALTERNATIVES: usize = 8;

/// The variable that stands for the first operand with bounds of its own; those of the others follow.
const BOUNDED: u32 = 1 << 29;

/// The iterations in which an expression counts.
pub struct Instances<'a> {
    pub iterators: &'a [Iterator],
    /// Conditions on indices, each ≥ 0.
    pub domain: &'a [Affine],
    /// Conditions, each with whether it holds.
    pub conditions: &'a [(Expr, bool)],
}

/// The least and the greatest value of `value` where the conditions are as said; `None` for what is no integer, or u64.
pub fn guarded_range(tensors: &[TensorDecl], instances: &Instances, value: &Expr) -> Option<Interval> {
    let parts = instances.conditions.iter().flat_map(|(condition, holds)| condition.parts(*holds)).collect();
    let known = Known { tensors, iterators: instances.iterators, bounded: vec![] };
    known.range_under(instances.domain, parts, value, &mut 0)
}

/// A sum of indices and of operands, each with a factor, of integers without limits.
#[derive(Clone)]
struct Sum {
    form: Affine,
    operands: Vec<(Expr, i64)>,
}

impl Sum {
    fn of_form(form: Affine) -> Sum {
        Sum { form, operands: vec![] }
    }

    /// `self + k·other`.
    fn add_scaled(&self, other: &Sum, k: i64) -> Sum {
        let mut out = Sum { form: self.form.add_scaled(&other.form, k), operands: self.operands.clone() };
        for (e, factor) in &other.operands {
            match out.operands.iter_mut().find(|(own, _)| own == e) {
                Some((_, own)) => *own += k * factor,
                None => out.operands.push((e.clone(), k * factor)),
            }
        }
        out.operands.retain(|(_, factor)| *factor != 0);
        out
    }

    fn offset(mut self, c: i64) -> Sum {
        self.form = self.form.offset(c);
        self
    }
}

/// Knowledge of the operands of an expression.
#[derive(Clone)]
struct Known<'a> {
    tensors: &'a [TensorDecl],
    iterators: &'a [Iterator],
    /// Operands with bounds from conditions.
    bounded: Vec<(Expr, Interval)>,
}

impl Known<'_> {
    /// The interval of `value` under conditions on indices, each ≥ 0, and others; alternatives of disjunctions are counted in `alternatives`.
    fn range_under(
        mut self,
        domain: &[Affine],
        mut parts: Vec<(&Expr, bool)>,
        value: &Expr,
        alternatives: &mut usize,
    ) -> Option<Interval> {
        if let Some(at) = parts.iter().position(|(part, _)| !matches!(part.logic(), Logic::Part)) {
            let (part, holds) = parts.remove(at);
            let (Logic::And(a, b) | Logic::Or(a, b)) = part.logic() else { return None };
            if *alternatives == ALTERNATIVES {
                return self.range_under(domain, parts, value, alternatives);
            }
            *alternatives += 1;
            let first = [parts.clone(), a.parts(holds)].concat();
            let (a, b) = (
                self.clone().range_under(domain, first, value, alternatives)?,
                self.range_under(domain, [parts, b.parts(holds)].concat(), value, alternatives)?,
            );
            return Some((a.0.min(b.0), a.1.max(b.1)));
        }
        let of_domain: Vec<Sum> = domain.iter().map(|c| Sum::of_form(c.clone())).collect();
        let mut inequalities = of_domain.clone();
        for _ in 0..ROUNDS {
            inequalities.clone_from(&of_domain);
            inequalities.extend(parts.iter().flat_map(|&(part, holds)| self.inequalities(part, holds)));
            let before = self.bounded.clone();
            inequalities.iter().for_each(|i| self.bound_operands(i));
            parts.iter().for_each(|&part| self.bound_products(part, value));
            if self.bounded == before {
                break;
            }
        }
        let sum = self.sum(value)?;
        let (mut low, mut high) = self.range(value)?;
        let mut meet = |(least, most): (i128, i128), of_low: bool, of_high: bool| {
            low = if of_low { low.max(near(least)) } else { low };
            high = if of_high { high.min(near(most)) } else { high };
        };
        meet(self.bounds(&sum)?, true, true);
        for i in &inequalities {
            // sum = (sum - i) + i, and sum = (sum + i) - i, where i ≥ 0
            meet(self.bounds(&sum.add_scaled(i, -1))?, true, false);
            meet(self.bounds(&sum.add_scaled(i, 1))?, false, true);
        }
        Some((low, high))
    }

    fn dtype(&self, e: &Expr) -> DType {
        e.dtype(&|b| self.tensors[b.0 as usize].dtype)
    }

    /// `e` with a variable in the place of each operand that has bounds.
    fn with_variables(&self, e: &Expr) -> Expr {
        match (BOUNDED..).zip(&self.bounded).find(|(_, (own, _))| own == e) {
            Some((v, _)) => Expr::cast(self.dtype(e), Expr::Index(Affine::var(Var(v)))),
            None => e.map_children(&mut |e| self.with_variables(e)),
        }
    }

    /// The interval of an integer expression.
    fn range(&self, e: &Expr) -> Option<Interval> {
        let elements = |b: BufferId| self.tensors[b.0 as usize].assigned();
        let bounds = |a: &Affine| match a.terms[..] {
            [(v, 1)] if v.0 >= BOUNDED => self.bounded[(v.0 - BOUNDED) as usize].1,
            _ => a.bounds(ranges(self.iterators)),
        };
        let dtype = |b: BufferId| self.tensors[b.0 as usize].dtype;
        range_over_elements(&dtype, &elements, &bounds, &self.with_variables(e)).filter(|(low, high)| low <= high)
    }

    /// An integer expression as a sum; what may wrap around, or is no sum, is an operand. `None` where its type has no interval.
    fn sum(&self, e: &Expr) -> Option<Sum> {
        let own = dtype_range(self.dtype(e))?;
        let is_far = |v: i64| !(-FAR..FAR).contains(&v);
        let operand = || Sum { form: Affine::constant(0), operands: vec![(e.clone(), 1)] };
        // of 64 bits, far from the limits
        let holds = |(low, high): (i64, i64)| own.0 <= low && high <= own.1 && !is_far(low) && !is_far(high);
        let is_exact = |op: BinaryOp, a: &Expr, b: &Expr| {
            let (Some(a), Some(b)) = (self.range(a), self.range(b)) else { return false };
            let ends = match op {
                BinaryOp::Add => a.0.checked_add(b.0).zip(a.1.checked_add(b.1)),
                _ => a.0.checked_sub(b.1).zip(a.1.checked_sub(b.0)),
            };
            ends.is_some_and(holds) && holds(a) && holds(b)
        };
        let sum = match e {
            Expr::Index(a) => Some(Sum::of_form(a.clone())),
            Expr::Const(c) => {
                let value = Some(Value::from(*c).as_i64()).filter(|v| !is_far(*v));
                value.map(|v| Sum::of_form(Affine::constant(v)))
            }
            Expr::Cast(_, a) if !self.dtype(a).is_float() && self.range(a).is_some_and(holds) => self.sum(a),
            Expr::Unary(UnaryOp::Neg, a) if self.range(a).is_some_and(|(low, high)| holds((-high, -low))) => {
                Some(Sum::of_form(Affine::constant(0)).add_scaled(&self.sum(a)?, -1))
            }
            Expr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) if is_exact(*op, a, b) => {
                Some(self.sum(a)?.add_scaled(&self.sum(b)?, if *op == BinaryOp::Add { 1 } else { -1 }))
            }
            _ => None,
        };
        Some(sum.filter(|sum| !is_far(sum.form.constant)).unwrap_or_else(operand))
    }

    /// The bounds of a sum.
    fn bounds(&self, sum: &Sum) -> Option<(i128, i128)> {
        let (low, high) = sum.form.bounds(ranges(self.iterators));
        let mut out = (i128::from(low), i128::from(high));
        for (e, factor) in &sum.operands {
            let (low, high) = self.range(e)?;
            let ends = [low, high].map(|end| i128::from(end) * i128::from(*factor));
            out = (out.0 + ends[0].min(ends[1]), out.1 + ends[0].max(ends[1]));
        }
        Some(out)
    }

    /// The sums that are not negative where a comparison of integers is as said.
    fn inequalities(&self, part: &Expr, holds: bool) -> Vec<Sum> {
        let Expr::Compare(op, a, b) = part else { return vec![] };
        let op = if holds { *op } else { op.opposite() };
        let (Some(a), Some(b)) = (self.sum(a), self.sum(b)) else { return vec![] };
        let (above, below) = (a.add_scaled(&b, -1), b.add_scaled(&a, -1));
        match op {
            CompareOp::Ge => vec![above],
            CompareOp::Gt => vec![above.offset(-1)],
            CompareOp::Le => vec![below],
            CompareOp::Lt => vec![below.offset(-1)],
            CompareOp::Eq => vec![above, below],
            CompareOp::Ne => vec![],
        }
    }

    /// Bounds the operands of a sum that is not negative.
    fn bound_operands(&mut self, sum: &Sum) {
        for (n, (e, factor)) in sum.operands.iter().enumerate() {
            let mut others = sum.clone();
            others.operands.remove(n);
            let Some((_, most)) = self.bounds(&others) else { continue };
            // factor · e ≥ -most
            let by = i128::from(*factor);
            self.bound(
                e,
                match *factor {
                    1.. => (near(-most.div_euclid(by)), i64::MAX),
                    _ => (i64::MIN, near(most.div_euclid(-by))),
                },
            );
        }
    }

    /// Bounds the products in `value` by a comparison of one factor with a quotient by the other.
    fn bound_products(&mut self, (part, holds): (&Expr, bool), value: &Expr) {
        let Expr::Compare(op, a, b) = part else { return };
        let op = if holds { *op } else { op.opposite() };
        let Some(sum) = self.sum(value) else { return };
        for (product, _) in &sum.operands {
            for (compared, other, op) in [(a, b, op), (b, a, swapped(op))] {
                let range = |e: &Expr| self.range(e).filter(|(low, high)| -FAR < *low && *high < FAR);
                if let Some(most) = product_below(&range, product, compared, op, other)
                    && range(product).is_some()
                {
                    self.bound(product, (i64::MIN, most));
                }
            }
        }
    }

    /// Keeps that `e` lies in an interval; what no value satisfies says nothing.
    fn bound(&mut self, e: &Expr, (low, high): Interval) {
        let Some(own) = self.range(e) else { return };
        let within = (own.0.max(low), own.1.min(high));
        if within == own || within.0 > within.1 {
            return;
        }
        match self.bounded.iter_mut().find(|(known, _)| known == e) {
            Some((_, known)) => *known = within,
            None => self.bounded.push((e.clone(), within)),
        }
    }
}

/// The nearest number of 64 bits.
fn near(v: i128) -> i64 {
    v.clamp(i64::MIN.into(), i64::MAX.into()) as i64
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
    use crate::expr::Scalar;
    use crate::poly::statement::Role;

    fn number(n: i64) -> Expr {
        Expr::Const(Scalar::i64(n))
    }

    /// The interval over a box of `extents` of an expression of elements `x` and `z` of i32 and `w` of i64, where a condition holds, or not.
    fn under(extents: &[i64], (condition, holds): (Expr, bool), value: Expr) -> Option<Interval> {
        let iterators: Vec<Iterator> = extents.iter().map(|&extent| Iterator::new("i", extent)).collect();
        let tensor = |name, dtype| TensorDecl::new(name, dtype, [], Role::Input);
        let tensors = [tensor("x", DType::I32), tensor("z", DType::I32), tensor("w", DType::I64)];
        let conditions = [(condition, holds)];
        guarded_range(&tensors, &Instances { iterators: &iterators, domain: &[], conditions: &conditions }, &value)
    }

    fn element(n: u32) -> Expr {
        Expr::load(BufferId(n), vec![])
    }

    fn i32(n: i32) -> Expr {
        Expr::Const(Scalar::of(DType::I32, n.into()))
    }

    fn plus(a: Expr, b: Expr) -> Expr {
        Expr::binary(BinaryOp::Add, a, b)
    }

    fn both(a: Expr, b: Expr) -> Expr {
        Expr::binary(BinaryOp::And, a, b)
    }

    fn compare(op: CompareOp, a: Expr, b: Expr) -> Expr {
        Expr::compare(op, a, b)
    }

    const I32: Interval = (i32::MIN as i64, i32::MAX as i64);

    #[test]
    fn conditions_on_an_element_bound_what_differs_by_a_number() {
        let (x, least) = (|| element(0), || compare(CompareOp::Ge, element(0), i32(0)));
        let inside = || both(least(), compare(CompareOp::Lt, x(), i32(99)));
        assert_eq!(under(&[], (inside(), true), x()), Some((0, 98)));
        assert_eq!(under(&[], (inside(), true), plus(x(), i32(1))), Some((1, 99)));
        assert_eq!(under(&[], (inside(), true), Expr::cast(DType::I64, plus(x(), i32(1)))), Some((1, 99)));
        // of i32, x + 1 wraps around where x is the greatest
        let of_sum = || both(least(), compare(CompareOp::Lt, plus(x(), i32(1)), i32(99)));
        assert_eq!(under(&[], (of_sum(), true), plus(x(), i32(1))), Some((I32.0, 98)));
        assert_eq!(under(&[], (of_sum(), true), x()), Some((0, I32.1)));
        // another element, and one in i64
        assert_eq!(under(&[], (inside(), true), element(1)), Some(I32));
        let of_i64 = compare(CompareOp::Eq, number(7), element(2));
        assert_eq!(under(&[], (of_i64, true), plus(element(2), number(1))), Some((8, 8)));
        let product = Expr::binary(BinaryOp::Mul, x(), i32(4));
        assert_eq!(under(&[], (inside(), true), plus(product, i32(3))), Some((3, 395)));
    }

    #[test]
    fn negations_and_alternatives_bound() {
        let x = || element(0);
        let outside = || {
            let below = compare(CompareOp::Lt, x(), i32(0));
            Expr::binary(BinaryOp::Or, below, compare(CompareOp::Ge, x(), i32(99)))
        };
        assert_eq!(under(&[], (outside(), false), x()), Some((0, 98)));
        assert_eq!(under(&[], (Expr::unary(UnaryOp::Not, outside()), true), x()), Some((0, 98)));
        assert_eq!(under(&[], (outside(), true), x()), Some(I32));
        let few = |n| both(compare(CompareOp::Gt, x(), i32(n)), compare(CompareOp::Le, x(), i32(n + 3)));
        let either = Expr::binary(BinaryOp::Or, few(10), few(50));
        assert_eq!(under(&[], (either, true), x()), Some((11, 53)));
    }

    #[test]
    fn elements_are_compared_with_indices_and_with_each_other() {
        let (i, x) = (|| Expr::Index(Affine::var(Var(0))), || Expr::cast(DType::I64, element(0)));
        // x > i, i >= x
        assert_eq!(under(&[50], (compare(CompareOp::Gt, x(), i()), true), element(0)), Some((1, I32.1)));
        let difference = Expr::binary(BinaryOp::Sub, i(), x());
        let above = under(&[50], (compare(CompareOp::Ge, i(), x()), true), difference);
        assert_eq!(above, Some((0, 49 - I32.0)));
        // 0 <= z < 40 and x < z, x >= 0
        let between = |e: Expr| both(compare(CompareOp::Ge, e.clone(), i32(0)), compare(CompareOp::Lt, e, i32(40)));
        let ordered = both(compare(CompareOp::Lt, element(0), element(1)), compare(CompareOp::Ge, element(0), i32(0)));
        assert_eq!(under(&[], (both(between(element(1)), ordered), true), element(0)), Some((0, 38)));
        // a sum of i64 that may wrap around, and the same sum
        let sum = || plus(i(), element(2));
        let inside = || both(compare(CompareOp::Ge, sum(), number(0)), compare(CompareOp::Lt, sum(), number(60)));
        assert_eq!(under(&[60], (inside(), true), sum()), Some((0, 59)));
        assert_eq!(under(&[60], (inside(), true), element(2)), Some((i64::MIN, i64::MAX)));
        // what no value satisfies says nothing
        let never = both(compare(CompareOp::Lt, element(0), i32(0)), compare(CompareOp::Gt, element(0), i32(9)));
        assert!(under(&[], (never, true), element(0)).is_some());
    }

    #[test]
    fn every_value_that_a_condition_leaves_is_in_the_interval() {
        let c = |n| Expr::Const(Scalar::of(DType::I8, f64::from(n)));
        let tensors = [TensorDecl::new("x", DType::I8, [], Role::Input)];
        let (x, ops) =
            (element(0), [CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge, CompareOp::Eq, CompareOp::Ne]);
        for op in ops {
            for (holds, by, limit) in [true, false]
                .into_iter()
                .flat_map(|h| [-128, -3, 0, 1, 100].map(|b| (h, b)))
                .flat_map(|(h, b)| [-128, -100, 0, 5, 127].map(|l| (h, b, l)))
            {
                let condition = compare(op, plus(x.clone(), c(by)), c(limit));
                for (value, add) in [-1, 0, 1, 127].map(|n| (plus(x.clone(), c(n)), n)) {
                    let instances =
                        Instances { iterators: &[], domain: &[], conditions: &[(condition.clone(), holds)] };
                    let (low, high) = guarded_range(&tensors, &instances, &value).unwrap();
                    for v in i8::MIN..=i8::MAX {
                        let compared = v.wrapping_add(by as i8);
                        let truth = match op {
                            CompareOp::Lt => compared < limit as i8,
                            CompareOp::Le => compared <= limit as i8,
                            CompareOp::Gt => compared > limit as i8,
                            CompareOp::Ge => compared >= limit as i8,
                            CompareOp::Eq => compared == limit as i8,
                            CompareOp::Ne => compared != limit as i8,
                        };
                        let found = i64::from(v.wrapping_add(add as i8));
                        assert!(
                            truth != holds || (low..=high).contains(&found),
                            "{op:?} {by} {limit} {v} {low} {high}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_comparison_of_the_value_limits_it() {
        let index = |v| Expr::Index(Affine::var(Var(v)));
        let product = || Expr::binary(BinaryOp::Mul, index(0), index(1));
        let under = |condition: Expr, holds, value: Expr| under(&[100, 100], (condition, holds), value);
        let less = |a, b| compare(CompareOp::Lt, a, b);
        assert_eq!(under(less(product(), number(50)), true, product()), Some((0, 49)));
        assert_eq!(under(less(product(), number(50)), false, product()), Some((50, 9801)));
        assert_eq!(under(less(number(50), product()), true, plus(product(), number(3))), Some((54, 9804)));
        assert_eq!(under(less(plus(product(), number(7)), number(50)), true, product()), Some((0, 42)));
        // i * j < i + 5, and another product
        assert_eq!(under(less(product(), plus(index(0), number(5))), true, product()), Some((0, 103)));
        let other = Expr::binary(BinaryOp::Mul, index(0), index(0));
        assert_eq!(under(less(other, number(50)), true, product()), Some((0, 9801)));
    }

    #[test]
    fn a_quotient_by_one_factor_limits_the_product() {
        let index = |v, by| Expr::Index(Affine::var(Var(v)).offset(by));
        let product = |by| Expr::binary(BinaryOp::Mul, index(0, 1), index(1, by));
        // j < 49 / (i + 1) + more
        let under = |more, value| {
            let quotient = Expr::binary(BinaryOp::Div, number(49), index(0, 1));
            let limit = plus(quotient, number(more));
            under(&[100, 100], (compare(CompareOp::Lt, index(1, 0), limit), true), value)
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
    fn a_product_that_wraps_around_is_compared_as_it_is() {
        let index = |v| Expr::Index(Affine::var(Var(v)));
        let product = Expr::binary(BinaryOp::Mul, index(0), index(1));
        let less = compare(CompareOp::Lt, product.clone(), number(9));
        assert_eq!(under(&[1 << 39, 1 << 39], (less, true), product), Some((i64::MIN, 8)));
    }
}
