//! Subscripts from data under conditions on the same data: which values of an index tensor keep `best[v - s[c]]` inside where `v >= s[c]`.
//!
//! In: a subscript that is an iterator plus or minus a function of one element, over a box, and conditions that bound the iterator by
//! functions of the same element. Out: the interval in which the element must lie so that the subscript is inside wherever all
//! conditions hold. It is exact: an element outside of it leads out of the dimension. Of a subscript that is a function of one element alone, as
//! `y[q[i]]` where `q[i] >= 0`, [`elements_under`] adds the elements for which a condition fails.

use crate::expr::dynamic_bounds::DynamicBound;
use crate::expr::logic::Condition;
use crate::expr::{Affine, BinaryOp, Expr, Index, Scalar, UnaryOp, Var};
use crate::poly::analysis::element_function::{Function, Source, function_of, merged, signs, type_range};
use crate::poly::analysis::index_range::IndexRange;
use crate::poly::statement::{Iterator, Program, TensorDecl, ranges};

/// The elements that keep a subscript inside of `0..extent` where all `conditions` are as said; `None` where that is no interval of one
/// tensor's elements that the program only reads.
pub fn conditional_range(
    tensors: &[TensorDecl],
    iterators: &[Iterator],
    conditions: &[(Expr, bool)],
    value: &Expr,
    extent: i64,
) -> Option<IndexRange> {
    let (form, rest) = value.affine_terms();
    let ([(var, sign @ (1 | -1))], Some(rest)) = (&form.terms[..], rest) else { return None };
    let number = |v: i64| Expr::Const(Scalar::i64(v));
    let (least, most) = form.bounds(ranges(iterators));
    let (mut low, mut high) = (number(least), number(most));
    for (condition, holds) in conditions {
        for (part, holds) in condition.parts(*holds) {
            let bound = DynamicBound::of_part(part, holds)?;
            let [(of, scale @ (1 | -1))] = bound.form.terms[..] else { return None };
            if of != *var {
                return None;
            }
            // of the sum of indices, `scale · sum + offset`
            let scale = scale * sign;
            let offset = bound.form.constant.checked_sub(scale.checked_mul(form.constant)?)?;
            let limit = Expr::binary(BinaryOp::Sub, bound.limit.clone(), number(offset));
            // sum ≥ limit, or sum ≤ limit - 1
            let limit = if scale > 0 { limit } else { Expr::binary(BinaryOp::Sub, number(0), limit) };
            let from = |e: Expr, by: i64| Expr::binary(BinaryOp::Add, e, number(by));
            match (bound.lower, scale > 0) {
                (true, true) => low = Expr::binary(BinaryOp::Max, low, limit),
                (true, false) => high = Expr::binary(BinaryOp::Min, high, limit),
                (false, true) => high = Expr::binary(BinaryOp::Min, high, from(limit, -1)),
                (false, false) => low = Expr::binary(BinaryOp::Max, low, from(limit, 1)),
            }
        }
    }
    let program = Program { tensors: tensors.to_vec(), definitions: vec![] };
    let function = |op, a: &Expr, b: &Expr| function_of(&program, 0, &Expr::binary(op, a.clone(), b.clone()));
    let length = function(BinaryOp::Sub, &high, &low)?;
    let (first, last) = (function(BinaryOp::Add, &low, &rest)?, function(BinaryOp::Add, &high, &rest)?);
    if ![&length, &first, &last].iter().all(|f| f.is_whole) {
        return None;
    }
    let source = first.source.clone().filter(|s| Some(s) == last.source.as_ref() && s.otherwise.is_empty())?;
    if length.source.as_ref().is_some_and(|s| *s != source) || source.element.iter().flatten().any(|i| uses(i, *var)) {
        return None;
    }
    let (lower, upper) = match merged(good(&length, &first, &last, extent.into()))[..] {
        [interval] => interval,
        _ => return None,
    };
    let whole = type_range(tensors[source.tensor.0 as usize].dtype)?;
    let (lower, upper) = (i64::try_from(lower.max(whole.0)).ok()?, i64::try_from(upper.min(whole.1)).ok()?);
    Some(IndexRange { tensor: source.tensor, offset: source.offset, stride: source.stride, lower, upper })
}

/// The elements with which there is no sum of indices, or all are inside.
fn good(length: &Function, first: &Function, last: &Function, extent: i128) -> Vec<(i128, i128)> {
    let mut out = vec![];
    for l in &length.pieces {
        for a in &first.pieces {
            for z in &last.pieces {
                let (lo, hi) = (l.lo.max(a.lo).max(z.lo), l.hi.min(a.hi).min(z.hi));
                for (lo, hi, sign) in signs(lo, hi, l.slope, l.base) {
                    if sign < 0 {
                        out.push((lo, hi));
                        continue;
                    }
                    let above = signs(lo, hi, a.slope, a.base).into_iter().filter(|p| p.2 >= 0);
                    let inside = above.flat_map(|(lo, hi, _)| signs(lo, hi, z.slope, z.base - extent));
                    out.extend(inside.filter(|p| p.2 < 0).map(|(lo, hi, _)| (lo, hi)));
                }
            }
        }
    }
    out
}

/// The elements with which a subscript that is a function of one of them counts.
#[derive(PartialEq, Debug)]
pub enum Elements {
    /// Conditions say nothing of them: those that keep it inside.
    Inside,
    /// Those that keep it inside, and those for which a condition fails.
    Range(IndexRange),
    /// They are no interval.
    Several,
}

/// The elements with which a subscript is inside wherever the conditions are as said, where those in `inside` keep it so. What a condition says of anything
/// but the same element does not count.
pub fn elements_under(
    tensors: &[TensorDecl],
    conditions: &[(Expr, bool)],
    value: &Expr,
    inside: IndexRange,
) -> Elements {
    let program = Program { tensors: tensors.to_vec(), definitions: vec![] };
    let function = function_of(&program, 0, value).and_then(|f| f.source);
    let Some(source) = function.filter(|s| s.otherwise.is_empty()) else { return Elements::Inside };
    let mut good = vec![(i128::from(inside.lower), i128::from(inside.upper))];
    let Some(whole) = type_range(tensors[source.tensor.0 as usize].dtype) else { return Elements::Inside };
    let mut are_several = false;
    for (part, holds) in conditions.iter().flat_map(|(condition, holds)| condition.parts(*holds)) {
        match truth_of(&program, part, &source, whole) {
            Truth::Holds(holding) => good.extend(if holds { complement(holding, whole) } else { holding }),
            Truth::Several => are_several = true,
            Truth::Other => {}
        }
    }
    let within = |(lo, hi): (i128, i128)| Some((lo.max(whole.0), hi.min(whole.1))).filter(|(lo, hi)| lo <= hi);
    let number = |limit: i128| limit.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    // an element beyond i64 is one below 0 to a check
    let is_beyond = |upper: i128| upper > i64::MAX.into();
    match merged(good.into_iter().filter_map(within).collect())[..] {
        [all] if all == whole && is_beyond(whole.1) => {
            Elements::Range(IndexRange { lower: i64::MIN, upper: i64::MAX, ..inside })
        }
        [(lower, upper)] if (!are_several || (lower, upper) == whole) && !is_beyond(upper) => {
            let range = IndexRange { lower: number(lower), upper: number(upper), ..inside };
            if range == inside { Elements::Inside } else { Elements::Range(range) }
        }
        _ => Elements::Several,
    }
}

/// A condition as a set of elements.
enum Truth {
    /// The intervals of the elements for which it holds.
    Holds(Vec<(i128, i128)>),
    /// It is a function of the element, but not of intervals, as `q[i] % 2 == 0` is.
    Several,
    /// It depends on something else.
    Other,
}

fn truth_of(program: &Program, condition: &Expr, source: &Source, whole: (i128, i128)) -> Truth {
    let of = |e: &Expr| truth_of(program, e, source, whole);
    match condition {
        Expr::Unary(UnaryOp::Not, a) => match of(a) {
            Truth::Holds(holding) => Truth::Holds(complement(holding, whole)),
            other => other,
        },
        Expr::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => match (of(a), of(b)) {
            (Truth::Holds(a), Truth::Holds(b)) if *op == BinaryOp::Or => Truth::Holds(merged([a, b].concat())),
            (Truth::Holds(a), Truth::Holds(b)) => {
                let fails = [complement(a, whole), complement(b, whole)].concat();
                Truth::Holds(complement(merged(fails), whole))
            }
            (Truth::Other, _) | (_, Truth::Other) => Truth::Other,
            _ => Truth::Several,
        },
        _ => {
            let [yes, no] = [1, 0].map(|truth| Expr::Const(Scalar::i64(truth)));
            let truth = function_of(program, 0, &Expr::select(condition.clone(), yes, no));
            match truth.filter(|t| t.is_whole && t.source.as_ref() == Some(source)) {
                Some(truth) => {
                    let holds = truth.pieces.iter().filter(|p| p.lo <= p.hi && p.base == 1);
                    Truth::Holds(merged(holds.map(|p| (p.lo, p.hi)).collect()))
                }
                None if is_of(program, condition, source) => Truth::Several,
                None => Truth::Other,
            }
        }
    }
}

/// Returns true for what reads one element and nothing else.
fn is_of(program: &Program, e: &Expr, source: &Source) -> bool {
    let mut reads = false;
    let is_other = e.any(&mut |e| match e {
        Expr::Load(_) => {
            reads = true;
            function_of(program, 0, e).is_none_or(|f| f.source.as_ref() != Some(source))
        }
        Expr::Index(form) => !form.is_constant(),
        _ => false,
    });
    reads && !is_other
}

/// The numbers of `whole` that lie in none of the intervals, which are in their order.
fn complement(intervals: Vec<(i128, i128)>, (low, high): (i128, i128)) -> Vec<(i128, i128)> {
    let ends = intervals.iter().map(|i| i.0 - 1).chain([high]);
    let starts = [low].into_iter().chain(intervals.iter().map(|i| i.1 + 1));
    starts.zip(ends).map(|(lo, hi)| (lo.max(low), hi.min(high))).filter(|(lo, hi)| lo <= hi).collect()
}

fn uses(index: &Index, var: Var) -> bool {
    let of = |a: &Affine| a.uses(var);
    match index {
        Index::Affine(a) => of(a),
        Index::Value(e) => e.any(&mut |e| match e {
            Expr::Index(a) => of(a),
            Expr::Load(access) => access.affine_forms().any(of),
            _ => false,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{BufferId, CompareOp};
    use crate::poly::statement::Role;
    use crate::runtime::DType;

    /// Runs over all elements of a small range: the interval is exact.
    #[test]
    fn intervals_are_exact() {
        let (extent, count) = (9, 7);
        let tensors = [TensorDecl::new("s", DType::I64, [4], Role::Input)];
        let iterators = [Iterator::new("c", 4), Iterator::new("v", count)];
        let s = || Expr::load(BufferId(0), vec![Affine::var(Var(0))]);
        let index = |scale: i64, offset: i64| Expr::Index(Affine::constant(offset).plus(Var(1), scale));
        let mut found = 0;
        for (scale, offset) in [(1, 0), (1, 2), (-1, 6), (-1, 8)] {
            for (op, minus) in [(BinaryOp::Sub, true), (BinaryOp::Add, false)] {
                for (compare, holds) in [CompareOp::Ge, CompareOp::Gt, CompareOp::Le, CompareOp::Lt]
                    .into_iter()
                    .flat_map(|c| [(c, true), (c, false)])
                {
                    for (of, by) in [(1, 0), (1, -3), (-1, 5)] {
                        let value = Expr::binary(op, index(scale, offset), s());
                        let condition = (Expr::compare(compare, index(of, by), s()), holds);
                        let range = conditional_range(&tensors, &iterators, &[condition], &value, extent);
                        let inside = |x: i64| {
                            (0..count).all(|v| {
                                let (l, at) = (of * v + by, scale * v + offset + if minus { -x } else { x });
                                let truth = match compare {
                                    CompareOp::Ge => l >= x,
                                    CompareOp::Gt => l > x,
                                    CompareOp::Le => l <= x,
                                    _ => l < x,
                                };
                                truth != holds || (0..extent).contains(&at)
                            })
                        };
                        let Some(range) = range else { continue };
                        found += 1;
                        for x in -40..40 {
                            assert_eq!((range.lower..=range.upper).contains(&x), inside(x), "{x} {range:?} {value:?}");
                        }
                    }
                }
            }
        }
        assert!(found > 40, "{found}");
    }

    #[test]
    fn elements_for_which_a_condition_fails_are_good() {
        let tensors =
            [TensorDecl::new("q", DType::I32, [4], Role::Input), TensorDecl::new("p", DType::I32, [4], Role::Input)];
        let element = |b: u32| Expr::cast(DType::I64, Expr::load(BufferId(b), vec![Affine::var(Var(0))]));
        let number = |v: i64| Expr::Const(Scalar::i64(v));
        let compared = |op, b: u32, v: i64| Expr::compare(op, element(b), number(v));
        let both = |op, a, b| Expr::binary(op, a, b);
        let inside = IndexRange { tensor: BufferId(0), offset: 0, stride: 1, lower: 0, upper: 8 };
        let under =
            |condition: Expr, holds: bool| match elements_under(&tensors, &[(condition, holds)], &element(0), inside) {
                Elements::Range(r) => Some((r.lower, r.upper)),
                Elements::Inside => Some((0, 8)),
                Elements::Several => None,
            };
        let (least, most) = (i64::from(i32::MIN), i64::from(i32::MAX));
        let not_negative = || compared(CompareOp::Ge, 0, 0);
        assert_eq!(under(not_negative(), true), Some((least, 8)));
        assert_eq!(under(Expr::unary(UnaryOp::Not, not_negative()), false), Some((least, 8)));
        assert_eq!(under(compared(CompareOp::Lt, 0, 0), false), Some((least, 8)));
        assert_eq!(under(both(BinaryOp::And, not_negative(), compared(CompareOp::Gt, 1, 5)), true), Some((least, 8)));
        assert_eq!(
            under(both(BinaryOp::And, not_negative(), compared(CompareOp::Lt, 0, 9)), true),
            Some((least, most))
        );
        assert_eq!(under(compared(CompareOp::Ne, 0, -1), true), Some((-1, 8)));
        assert_eq!(under(compared(CompareOp::Ne, 0, 99), true), None);
        let or = |a, b| both(BinaryOp::Or, a, b);
        let [three, five] = [3, 5].map(|v| compared(CompareOp::Eq, 0, v));
        assert_eq!(under(or(three.clone(), five.clone()), true), Some((least, most)));
        assert_eq!(under(both(BinaryOp::And, not_negative(), or(three.clone(), five)), true), Some((least, most)));
        assert_eq!(under(or(three, compared(CompareOp::Gt, 0, 20)), true), Some((least, 20)));
        let apart = or(compared(CompareOp::Eq, 0, -9), compared(CompareOp::Eq, 0, 99));
        assert_eq!(under(apart, true), None);
        let rest = both(BinaryOp::Mod, element(0), number(2));
        assert_eq!(under(Expr::compare(CompareOp::Eq, rest, number(0)), true), None);
        // too little, a disjunction with another element, another element
        assert_eq!(under(compared(CompareOp::Gt, 0, -5), true), None);
        assert_eq!(under(both(BinaryOp::Or, not_negative(), compared(CompareOp::Gt, 1, 5)), true), Some((0, 8)));
        assert_eq!(under(compared(CompareOp::Ge, 1, 0), true), Some((0, 8)));
    }

    #[test]
    fn other_conditions_are_not_judged() {
        let tensors = [TensorDecl::new("s", DType::I64, [7], Role::Input)];
        let iterators = [Iterator::new("c", 7), Iterator::new("v", 7)];
        let s = |of: u32| Expr::load(BufferId(0), vec![Affine::var(Var(of))]);
        let v = || Expr::Index(Affine::var(Var(1)));
        let range =
            |value: Expr, condition: Expr| conditional_range(&tensors, &iterators, &[(condition, true)], &value, 7);
        let value = |of: u32| Expr::binary(BinaryOp::Sub, v(), s(of));
        let at_least = |of: u32| Expr::compare(CompareOp::Ge, v(), s(of));
        let found = range(value(0), at_least(0)).expect("an interval");
        assert_eq!((found.lower, found.upper), (0, i64::MAX));
        // the iterator chooses the element; another element; no bound
        assert_eq!(range(value(1), at_least(1)), None);
        assert_eq!(range(value(0), at_least(1)), None);
        assert_eq!(range(value(0), Expr::compare(CompareOp::Ne, v(), s(0))), None);
    }
}
