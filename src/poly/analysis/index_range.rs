//! Subscripts from data: which values of an index tensor keep a gather or a scatter inside its dimension.
//!
//! In: a tensor expression. Out: for each index tensor that is known from outside the interval in which its elements must
//! lie. A subscript is followed through temporaries, casts, sums, products with constants, minima, maxima and selections,
//! as a piecewise affine function of one element; the interval is the preimage of the dimension, less what iterators add to it
//! anywhere in their box. Invariant: elements
//! inside the interval never reach out of bounds. A subscript of another form is inside by the
//! intervals of its operations, or `Unsupported`, never an unchecked access.

use crate::expr::narrow::{Interval, range_over_elements};
use crate::expr::{Affine, BufferId, Expr, Index};
use crate::poly::analysis::element_function::{function_of, merged, signs, type_range};
use crate::poly::statement::{Definition, ElementRange, Iterator, Program, Role, TensorDecl, ranges};
use crate::runtime::{DType, Error, Result};
use serde::{Deserialize, Serialize};

/// Elements `offset, offset + stride, …` of `tensor` must lie in `lower..=upper`; when that is empty, none is good.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IndexRange {
    pub tensor: BufferId,
    pub offset: u64,
    pub stride: u64,
    pub lower: i64,
    pub upper: i64,
}

/// The ranges that every gather and scatter of the program needs; none when the types of the index tensors suffice.
pub fn index_ranges(program: &Program) -> Result<Vec<IndexRange>> {
    let mut ranges: Vec<IndexRange> = vec![];
    for (tensor, decl) in (0..).map(BufferId).zip(&program.tensors).filter(|t| t.1.role == Role::Input) {
        for &ElementRange { offset, stride, lower, upper } in &decl.ranges {
            add(&mut ranges, IndexRange { tensor, offset, stride, lower, upper });
        }
    }
    program.definitions.iter().try_for_each(|definition| add_ranges(program, definition, &mut ranges))?;
    Ok(ranges)
}

/// Returns the first definition with a subscript that is not known to stay inside of its dimension, and why not.
pub fn unbounded_subscript(program: &Program) -> Option<(usize, Error)> {
    let of = |(i, definition)| Some((i, add_ranges(program, definition, &mut vec![]).err()?));
    program.definitions.iter().enumerate().find_map(of)
}

/// Returns true if `value`, over these iterators, lies in `0..extent` whatever the data are.
pub fn is_inside(tensors: &[TensorDecl], iterators: &[Iterator], value: &Expr, extent: i64) -> bool {
    operations_range(tensors, iterators, value).is_some_and(|(low, high)| 0 <= low && high < extent)
        || is_inside_by_parts(tensors, iterators, value, extent)
}

/// Adds the ranges that the subscripts of one definition need.
fn add_ranges(program: &Program, definition: &Definition, ranges: &mut Vec<IndexRange>) -> Result<()> {
    let mut failure = None;
    let mut need = |buffer: BufferId, index: &[Index]| {
        for (d, index) in index.iter().enumerate() {
            if let Index::Value(value) = index {
                match range_of(program, &definition.iterators, (buffer, d), value) {
                    Ok(Some(range)) => add(ranges, range),
                    Ok(None) => {}
                    Err(e) => failure = failure.take().or(Some(e)),
                }
            }
        }
    };
    need(definition.target, &definition.subscripts());
    for e in definition.computed.iter().map(|c| &c.1).chain([&definition.body]) {
        e.visit_accesses(&mut |access| need(access.buffer, &access.index));
    }
    failure.map_or(Ok(()), Err)
}

fn add(ranges: &mut Vec<IndexRange>, new: IndexRange) {
    let same = |r: &&mut IndexRange| (r.tensor, r.offset, r.stride) == (new.tensor, new.offset, new.stride);
    match ranges.iter_mut().find(same) {
        Some(old) => {
            old.lower = old.lower.max(new.lower);
            old.upper = old.upper.min(new.upper);
        }
        None => ranges.push(new),
    }
}

/// Returns the interval in which the elements of a tensor must lie for `value` to be in `0..extent` for all values of the iterators; `None` where
/// their type suffices. It is exact.
///
/// # Errors
/// `Unsupported` for a value that is not of elements of one tensor, or wraps around in a conversion to a type that is too narrow for them.
pub fn element_range(
    tensors: &[TensorDecl],
    iterators: &[Iterator],
    value: &Expr,
    extent: i64,
) -> Result<Option<IndexRange>> {
    // the value, as the subscript of a tensor of its own
    let mut tensors = tensors.to_vec();
    let of = (BufferId(tensors.len() as u32), 0);
    tensors.push(TensorDecl::new("bound", DType::I64, [extent], Role::Input));
    let program = Program { tensors, definitions: vec![] };
    let range = range_of(&program, iterators, of, value)?;
    let wraps = || function_of(&program, 0, &without_iterators(iterators, value).0).is_some_and(|f| !f.is_whole);
    if range.is_some() && wraps() {
        return Err(Error::Unsupported("a bound or a subscript that wraps around".into()));
    }
    Ok(range)
}

/// Returns the interval in which the elements of the index tensor must lie for dimension `d` of a tensor, subscripted by
/// `value`.
fn range_of(
    program: &Program,
    iterators: &[Iterator],
    (buffer, d): (BufferId, usize),
    value: &Expr,
) -> Result<Option<IndexRange>> {
    let tensor = &program.tensors[buffer.0 as usize];
    let unsupported =
        |why: &str| Err(Error::Unsupported(format!("subscripts of `{}`, dimension {d}: {why}", tensor.name)));
    let (of_data, (least, most)) = without_iterators(iterators, value);
    let known = operations_range(&program.tensors, iterators, value);
    let inside = known.is_some_and(|(low, high)| 0 <= low && high < tensor.shape[d])
        || is_inside_by_parts(&program.tensors, iterators, value, tensor.shape[d]);
    let function = function_of(program, program.definitions.len(), &of_data);
    if inside && (function.as_ref().is_none_or(|f| !f.is_whole) || (least, most) != (0, 0)) {
        return Ok(None);
    }
    let Some(function) = function else { return Err(may_be_outside(tensor, d, value, known)) };
    let extent = tensor.shape[d] as i128;
    let mut good: Vec<(i128, i128)> = vec![];
    for piece in &function.pieces {
        for (lo, hi, sign) in signs(piece.lo, piece.hi, piece.slope, piece.base + least) {
            if sign >= 0 {
                let below = signs(lo, hi, piece.slope, piece.base + most - extent).into_iter().filter(|p| p.2 < 0);
                good.extend(below.map(|(lo, hi, _)| (lo, hi)));
            }
        }
    }
    let merged = merged(good);
    let Some(source) = function.source else {
        return if merged.is_empty() { unsupported("a constant subscript is out of bounds") } else { Ok(None) };
    };
    let index = &program.tensors[source.tensor.0 as usize];
    // an element beyond i64 is one below 0 to a check, and good nowhere
    let far = i128::from(i64::MAX);
    let narrow = index.dtype == DType::U64 && merged.len() > 1;
    let merged: Vec<(i128, i128)> = merged.into_iter().filter(|i| !narrow || i.0 <= far).collect();
    let (lower, upper) = match merged[..] {
        [] => (0, -1),
        [(lower, upper)] => (lower, upper),
        _ => return unsupported("the valid subscripts are not an interval"),
    };
    if source.otherwise.iter().any(|o| !(lower..=upper).contains(o)) {
        return unsupported("the value outside of a guard is not a subscript");
    }
    if Some((lower, upper)) == type_range(index.dtype) {
        return Ok(None);
    }
    Ok(Some(IndexRange {
        tensor: source.tensor,
        offset: source.offset,
        stride: source.stride,
        lower: lower as i64,
        upper: upper as i64,
    }))
}

/// The error of a subscript that is neither inside by its operations nor of elements of one tensor.
fn may_be_outside(tensor: &TensorDecl, d: usize, value: &Expr, known: Option<Interval>) -> Error {
    let (name, extent) = (&tensor.name, tensor.shape[d]);
    match known {
        Some((low, high)) if !value.any(&mut |e| matches!(e, Expr::Load(_))) => Error::Invalid(format!(
            "subscript {d} of `{name}` may be from {low} to {high}, outside of 0..{extent}: keep it inside with `min`, `max` \
             or `%`, or under a condition that compares the subscript itself, as in `if e < {extent} {name}[e]`"
        )),
        known => {
            let range = known.filter(|&known| known != (i64::MIN, i64::MAX));
            let outside = range.map_or(String::new(), |(low, high)| {
                format!("it may be from {low} to {high}, outside of 0..{extent}: ")
            });
            Error::Unsupported(format!(
                "subscripts of `{name}`, dimension {d}: {outside}a subscript from data is one element of an integer array, with \
                 numbers added or multiplied and indices added, as in `i + x[j]`; of other elements it is kept inside with `min` \
                 and `max`, `%` or `bit_and`"
            ))
        }
    }
}

/// A subscript without the iterators that are added to it, and their least and greatest sum over the box of the iterators.
fn without_iterators(iterators: &[Iterator], value: &Expr) -> (Expr, (i128, i128)) {
    match value.affine_terms() {
        (affine, Some(rest)) if !affine.is_constant() && !iterators.is_empty() => {
            let (least, most) = affine.bounds(ranges(iterators));
            (rest, (least.into(), most.into()))
        }
        _ => (value.clone(), (0, 0)),
    }
}

/// Returns the interval of a subscript whatever the data are, by its operations and what the program assigns: that of the low bits of a number, say.
pub(super) fn operations_range(tensors: &[TensorDecl], iterators: &[Iterator], value: &Expr) -> Option<Interval> {
    let elements = |b: BufferId| tensors[b.0 as usize].assigned();
    let bounds = |a: &Affine| {
        if iterators.is_empty() && !a.is_constant() { (i64::MIN, i64::MAX) } else { a.bounds(ranges(iterators)) }
    };
    range_over_elements(&|b| tensors[b.0 as usize].dtype, &elements, &bounds, value)
}

/// Parts of the box of a subscript's iterators that are looked at, at most. Unmeasured.
const PARTS: usize = 1000;

/// Returns true if a subscript of indices alone is inside in each part of the box of its iterators: halves of it, of the shortest side that is left,
/// until the intervals of its operations say so.
fn is_inside_by_parts(tensors: &[TensorDecl], iterators: &[Iterator], value: &Expr, extent: i64) -> bool {
    if iterators.is_empty() || value.any(&mut |e| matches!(e, Expr::Load(_))) {
        return false;
    }
    let mut used = vec![false; iterators.len()];
    value.any(&mut |e| {
        if let Expr::Index(a) = e {
            a.terms.iter().for_each(|t| used[t.0.0 as usize] = true);
        }
        false
    });
    let sides = iterators.iter().zip(used).map(|(it, used)| if used { (0, it.extent - 1) } else { (0, 0) });
    let mut open: Vec<Vec<Interval>> = vec![sides.collect()];
    for _ in 0..PARTS {
        let Some(part) = open.pop() else { return true };
        let bounds = |a: &Affine| a.bounds(|v| part[v.0 as usize]);
        let range = range_over_elements(&|b| tensors[b.0 as usize].dtype, &|_| None, &bounds, value);
        if range.is_some_and(|(low, high)| 0 <= low && high < extent) {
            continue;
        }
        let sides = part.iter().enumerate().filter(|(_, side)| side.0 < side.1);
        let Some((v, &(low, high))) = sides.min_by_key(|(_, side)| side.1 - side.0) else { return false };
        let middle = low + (high - low) / 2;
        for half in [(low, middle), (middle + 1, high)] {
            let mut halved = part.clone();
            halved[v] = half;
            open.push(halved);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{Access, BinaryOp, CompareOp, Scalar, Var};
    use crate::poly::statement::TensorDecl;

    const N: i64 = 10;

    /// `y(i) = data(subscript)` with `data` of N elements (0), index tensors `ids` (1, i64 × 6 × 2) and `small` (2, u8 × 6),
    /// and a temporary `t` (4, i64 × 6) that is `body` of the index tensors.
    fn found(subscript: Expr, body: Option<Expr>) -> Result<Vec<IndexRange>> {
        let tensor = |name: &str, dtype, shape: &[i64], role| TensorDecl::new(name, dtype, shape, role);
        let define = |target, body| Definition {
            target: BufferId(target),
            iterators: vec![Iterator::new("i", 6)],
            outer: 1,
            write: vec![Affine::var(Var(0))],
            computed: vec![],
            reduce: None,
            conditions: vec![],
            body,
        };
        let access = Access {
            buffer: BufferId(0),
            index: vec![Index::Value(Box::new(subscript))],
            guard: vec![],
            otherwise: None,
        };
        let mut definitions: Vec<Definition> = body.map(|b| define(4, b)).into_iter().collect();
        definitions.push(define(3, Expr::Load(access)));
        index_ranges(&Program {
            tensors: vec![
                tensor("data", DType::F32, &[N], Role::Constant),
                tensor("ids", DType::I64, &[6, 2], Role::Input),
                tensor("small", DType::U8, &[6], Role::Input),
                tensor("y", DType::F32, &[6], Role::Output),
                tensor("t", DType::I64, &[6], Role::Temporary),
            ],
            definitions,
        })
    }

    fn ids(component: i64) -> Expr {
        Expr::load(BufferId(1), vec![Affine::var(Var(0)), Affine::constant(component)])
    }

    fn c(v: i64) -> Expr {
        Expr::Const(Scalar::i64(v))
    }

    fn bin(op: BinaryOp, a: Expr, b: Expr) -> Expr {
        Expr::binary(op, a, b)
    }

    fn interval(subscript: Expr) -> (i64, i64) {
        let needed = found(subscript, None).unwrap();
        assert_eq!(needed.len(), 1);
        (needed[0].lower, needed[0].upper)
    }

    /// A negative subscript counts from the end.
    fn wrapped(x: Expr) -> Expr {
        let negative = Expr::compare(CompareOp::Lt, x.clone(), c(0));
        Expr::select(negative, bin(BinaryOp::Add, x.clone(), c(N)), x)
    }

    #[test]
    fn plain_and_wrapped_subscripts() {
        assert_eq!(interval(ids(0)), (0, N - 1));
        assert_eq!(interval(wrapped(ids(0))), (-N, N - 1));
        assert_eq!(interval(wrapped(Expr::cast(DType::I64, Expr::cast(DType::I32, ids(0))))), (-N, N - 1));
    }

    #[test]
    fn arithmetic_on_subscripts() {
        assert_eq!(interval(bin(BinaryOp::Add, ids(0), c(3))), (-3, N - 4));
        assert_eq!(interval(bin(BinaryOp::Sub, c(3), ids(0))), (3 - N + 1, 3));
        assert_eq!(interval(bin(BinaryOp::Mul, ids(0), c(4))), (0, 2));
        assert_eq!(interval(bin(BinaryOp::Mul, c(-4), ids(0))), (-2, 0));
        assert_eq!(interval(bin(BinaryOp::Max, ids(0), c(0))), (i64::MIN, N - 1));
        let clamped = bin(BinaryOp::Min, bin(BinaryOp::Max, ids(0), c(0)), c(N - 1));
        assert_eq!(found(clamped, None).unwrap(), []);
        let empty = interval(bin(BinaryOp::Max, ids(0), c(N)));
        assert!(empty.0 > empty.1);
    }

    #[test]
    fn iterators_that_are_added_narrow_the_interval() {
        let i = || Expr::Index(Affine::var(Var(0)));
        assert_eq!(interval(bin(BinaryOp::Add, i(), ids(0))), (0, N - 1 - 5));
        assert_eq!(interval(bin(BinaryOp::Sub, ids(0), i())), (5, N - 1));
        assert_eq!(interval(bin(BinaryOp::Sub, i(), ids(0))), (5 - N + 1, 0));
        assert_eq!(interval(bin(BinaryOp::Add, bin(BinaryOp::Mul, ids(0), c(2)), i())), (0, 2));
        // wider than the dimension
        let spread = Expr::Index(Affine::constant(0).plus(Var(0), 2));
        let empty = interval(bin(BinaryOp::Add, ids(0), spread));
        assert!(empty.0 > empty.1);
    }

    #[test]
    fn components_are_checked_by_themselves() {
        let needed = found(ids(1), None).unwrap();
        assert_eq!((needed[0].tensor, needed[0].offset, needed[0].stride), (BufferId(1), 1, 2));
        let t = Expr::load(BufferId(4), vec![Affine::var(Var(0))]);
        let through = found(wrapped(t), Some(bin(BinaryOp::Add, ids(1), c(1)))).unwrap();
        assert_eq!((through[0].offset, through[0].lower, through[0].upper), (1, -N - 1, N - 2));
    }

    #[test]
    fn what_cannot_be_judged_is_refused() {
        let sum_of_two = bin(BinaryOp::Add, ids(0), ids(1));
        assert!(matches!(found(sum_of_two, None), Err(Error::Unsupported(_))));
        // two elements of one tensor, read there or from a temporary
        let first = |buffer: u32, at: Affine| {
            let index = if buffer == 1 { vec![at, Affine::constant(0)] } else { vec![at] };
            Expr::load(BufferId(buffer), index)
        };
        for buffer in [1, 4] {
            let elements = |b: Affine| bin(BinaryOp::Sub, first(buffer, Affine::var(Var(0))), first(buffer, b));
            let difference = elements(Affine::constant(3));
            assert!(matches!(found(difference, Some(ids(0))), Err(Error::Unsupported(_))));
            assert_eq!(found(elements(Affine::var(Var(0))), Some(ids(0))).unwrap(), []);
        }
        let quotient = bin(BinaryOp::Div, ids(0), c(2));
        assert!(matches!(found(quotient, None), Err(Error::Unsupported(_))));
        assert!(matches!(found(c(N), None), Err(Error::Unsupported(_))));
        assert_eq!(found(c(N - 1), None).unwrap(), []);
    }

    #[test]
    fn what_operations_keep_inside_needs_no_check() {
        let masked = |bits: i64| bin(BinaryOp::And, ids(0), c(bits));
        let both = bin(BinaryOp::And, ids(1), masked(5));
        let sum = bin(BinaryOp::Add, masked(7), bin(BinaryOp::Mod, ids(1), c(3)));
        for inside in [masked(N - 1), bin(BinaryOp::Mod, ids(0), c(N)), both, sum] {
            assert_eq!(found(inside, None).unwrap(), []);
        }
        let beyond = bin(BinaryOp::Add, masked(7), bin(BinaryOp::Mod, ids(1), c(4)));
        let below = bin(BinaryOp::Sub, masked(7), c(1));
        let signed = bin(BinaryOp::And, ids(0), c(-8));
        let open = bin(BinaryOp::Min, masked(7), ids(1));
        for outside in [masked(N), bin(BinaryOp::Mod, ids(0), c(N + 1)), beyond, below, signed, open] {
            assert!(matches!(found(outside, None), Err(Error::Unsupported(_))));
        }
    }

    #[test]
    fn narrow_types_need_a_check_only_when_they_reach_out() {
        let small = Expr::cast(DType::I64, Expr::load(BufferId(2), vec![Affine::var(Var(0))]));
        assert_eq!(interval(small.clone()), (0, N - 1));
        assert_eq!(found(bin(BinaryOp::Min, small, c(9)), None).unwrap(), []);
    }
}
