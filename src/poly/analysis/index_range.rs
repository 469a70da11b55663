//! Subscripts from data: which values of an index tensor keep a gather or a scatter inside its dimension.
//!
//! In: a tensor expression. Out: for each index tensor that is known from outside the interval in which its elements must
//! lie. A subscript is followed through temporaries, casts, sums, products with constants, minima, maxima and selections,
//! as a piecewise affine function of one element; the interval is the preimage of the dimension, less what iterators add to it
//! anywhere in their box. Invariant: elements
//! inside the interval never reach out of bounds. A subscript of another form is inside by the
//! intervals of its operations, or `Unsupported`, never an unchecked access.

use crate::expr::narrow::{Interval, range_over_elements};
use crate::expr::{Access, Affine, BinaryOp, BufferId, CompareOp, Expr, Index};
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
/// their type suffices.
///
/// # Errors
/// `Unsupported` for a value that is not of elements of one tensor.
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
    range_of(&Program { tensors, definitions: vec![] }, iterators, of, value)
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
    let inside = known.is_some_and(|(low, high)| 0 <= low && high < tensor.shape[d]);
    let function = function_of(program, program.definitions.len(), &of_data);
    if inside && (function.is_none() || (least, most) != (0, 0)) {
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

/// Intervals in their order, those that meet as one.
pub(super) fn merged(mut intervals: Vec<(i128, i128)>) -> Vec<(i128, i128)> {
    intervals.sort_unstable();
    intervals.into_iter().fold(vec![], |mut merged: Vec<(i128, i128)>, (lo, hi)| {
        match merged.last_mut() {
            Some(last) if lo <= last.1 + 1 => last.1 = last.1.max(hi),
            _ => merged.push((lo, hi)),
        }
        merged
    })
}

/// The error of a subscript that is neither inside by its operations nor of elements of one tensor.
fn may_be_outside(tensor: &TensorDecl, d: usize, value: &Expr, known: Option<Interval>) -> Error {
    let (name, extent) = (&tensor.name, tensor.shape[d]);
    match known {
        Some((low, high)) if !value.any(&mut |e| matches!(e, Expr::Load(_))) => Error::Invalid(format!(
            "subscript {d} of `{name}` may be from {low} to {high}, outside of 0..{extent}: keep it inside with `min`, `max` \
             or `%`"
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
fn operations_range(tensors: &[TensorDecl], iterators: &[Iterator], value: &Expr) -> Option<Interval> {
    let elements = |b: BufferId| tensors[b.0 as usize].assigned();
    let bounds = |a: &Affine| {
        if iterators.is_empty() && !a.is_constant() { (i64::MIN, i64::MAX) } else { a.bounds(ranges(iterators)) }
    };
    range_over_elements(&|b| tensors[b.0 as usize].dtype, &elements, &bounds, value)
}

/// Elements of a tensor known from outside.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Source {
    pub tensor: BufferId,
    pub offset: u64,
    pub stride: u64,
    /// Values that stand for elements outside of guards.
    pub otherwise: Vec<i128>,
    /// Subscripts of the element, and of those of temporaries that hold it: two elements of one tensor are two numbers.
    pub element: Vec<Vec<Index>>,
}

/// On `lo..=hi` the value is `slope·x + base`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub lo: i128,
    pub hi: i128,
    pub slope: i128,
    pub base: i128,
}

/// A piecewise affine function of one element of `source`, or a constant.
pub(super) struct Function {
    pub source: Option<Source>,
    pub pieces: Vec<Piece>,
}

/// Beyond every integer type, and small enough for products.
const INFINITY: i128 = 1 << 80;

/// The values of an integer type; `None` for others.
pub fn type_range(dtype: DType) -> Option<(i128, i128)> {
    match dtype {
        DType::I64 => Some((i64::MIN.into(), i64::MAX.into())),
        DType::I32 => Some((i32::MIN.into(), i32::MAX.into())),
        DType::I16 => Some((i16::MIN.into(), i16::MAX.into())),
        DType::I8 => Some((i8::MIN.into(), i8::MAX.into())),
        DType::U64 => Some((0, u64::MAX.into())),
        DType::U32 => Some((0, u32::MAX.into())),
        DType::U16 => Some((0, u16::MAX.into())),
        DType::U8 => Some((0, 255)),
        DType::Bool => Some((0, 1)),
        _ => None,
    }
}

/// The function that an expression is, through temporaries that the first `before` definitions assign.
pub(super) fn function_of(program: &Program, before: usize, e: &Expr) -> Option<Function> {
    match e {
        Expr::Const(s) => {
            let value = match s.dtype {
                DType::I64 => s.bits as i64 as i128,
                DType::I32 => s.bits as i32 as i128,
                _ => return None,
            };
            Some(Function { source: None, pieces: vec![Piece { lo: -INFINITY, hi: INFINITY, slope: 0, base: value }] })
        }
        Expr::Load(access) => load(program, before, access),
        Expr::Cast(to, a) => {
            let (low, high) = type_range(*to)?;
            let mut f = function_of(program, before, a)?;
            f.pieces = f.pieces.iter().flat_map(|p| within(*p, low, high)).collect();
            Some(f)
        }
        Expr::Binary(op, a, b) => {
            let (a, b) = (function_of(program, before, a)?, function_of(program, before, b)?);
            combine(a, b, |x, y, out| {
                let piece = |slope, base| Piece { slope, base, ..x };
                match op {
                    BinaryOp::Add => out.push(piece(x.slope + y.slope, x.base + y.base)),
                    BinaryOp::Sub => out.push(piece(x.slope - y.slope, x.base - y.base)),
                    BinaryOp::Mul if y.slope == 0 => out.push(scaled(x, y.base)?),
                    BinaryOp::Mul if x.slope == 0 => out.push(scaled(Piece { lo: x.lo, hi: x.hi, ..y }, x.base)?),
                    BinaryOp::Min | BinaryOp::Max => {
                        for (lo, hi, sign) in signs(x.lo, x.hi, x.slope - y.slope, x.base - y.base) {
                            let chosen = if (sign < 0) == (*op == BinaryOp::Min) { x } else { y };
                            out.push(Piece { lo, hi, ..chosen });
                        }
                    }
                    _ => return None,
                }
                Some(())
            })
        }
        Expr::Select(condition, a, b) => {
            let Expr::Compare(op, l, r) = &**condition else { return None };
            let (l, r) = (function_of(program, before, l)?, function_of(program, before, r)?);
            let truth = combine(l, r, |x, y, out| {
                for (lo, hi, sign) in signs(x.lo, x.hi, x.slope - y.slope, x.base - y.base) {
                    let holds = match op {
                        CompareOp::Eq => sign == 0,
                        CompareOp::Ne => sign != 0,
                        CompareOp::Lt => sign < 0,
                        CompareOp::Le => sign <= 0,
                        CompareOp::Gt => sign > 0,
                        CompareOp::Ge => sign >= 0,
                    };
                    out.push(Piece { lo, hi, slope: 0, base: holds as i128 });
                }
                Some(())
            })?;
            let choose = |f: Function, wanted: i128| {
                let truth = Function { source: truth.source.clone(), pieces: truth.pieces.clone() };
                combine(f, truth, |x, t, out| {
                    out.extend((t.base == wanted).then_some(x));
                    Some(())
                })
            };
            let (mut a, b) =
                (choose(function_of(program, before, a)?, 1)?, choose(function_of(program, before, b)?, 0)?);
            if a.source.is_some() && b.source.is_some() && a.source != b.source {
                return None;
            }
            a.source = a.source.or(b.source);
            a.pieces.extend(b.pieces);
            Some(a)
        }
        Expr::Index(_) | Expr::Unary(..) | Expr::Compare(..) | Expr::Bitcast(..) => None,
    }
}

fn load(program: &Program, before: usize, access: &Access) -> Option<Function> {
    let tensor = &program.tensors[access.buffer.0 as usize];
    let outside = access.otherwise.filter(|_| !access.guard.is_empty()).map(|s| match s.dtype {
        DType::I32 => s.bits as i32 as i128,
        _ => s.bits as i64 as i128,
    });
    if tensor.role == Role::Temporary {
        let mut writers = program.definitions.iter().enumerate().filter(|(_, d)| d.target == access.buffer);
        let ((writer, definition), None) = (writers.next()?, writers.next()) else { return None };
        if definition.reduce.is_some() || outside.is_some() || writer >= before {
            return None;
        }
        // Subscripts decide only which component of the index tensor is read, so a component that is fixed by the reader
        // survives where the temporary's own subscripts are plain iterators.
        let mut body = definition.body.clone();
        for (written, read) in definition.write.iter().zip(&access.index) {
            if let ([(v, 1)], 0, Index::Affine(to)) = (&written.terms[..], written.constant, read)
                && to.is_constant()
            {
                body = body.substitute(&mut |var| {
                    if var == *v { to.clone() } else { Affine::var(var) }
                });
            }
        }
        let mut function = function_of(program, writer, &body)?;
        if let Some(source) = &mut function.source {
            source.element.push(access.index.clone());
        }
        return Some(function);
    }
    if tensor.role.is_written() {
        return None;
    }
    let (lo, hi) = type_range(tensor.dtype)?;
    let fixed = match (access.index.last(), tensor.shape.last()) {
        (Some(Index::Affine(a)), Some(&extent)) if a.is_constant() && extent > 1 => {
            Some((u64::try_from(a.constant).ok()?, extent as u64))
        }
        _ => None,
    };
    let (offset, stride) = fixed.unwrap_or((0, 1));
    let (otherwise, element) = (outside.into_iter().collect(), vec![access.index.clone()]);
    let source = Source { tensor: access.buffer, offset, stride, otherwise, element };
    Some(Function { source: Some(source), pieces: vec![Piece { lo, hi, slope: 1, base: 0 }] })
}

/// Applies `f` to the two functions' pieces on each common interval.
fn combine(
    a: Function,
    b: Function,
    mut f: impl FnMut(Piece, Piece, &mut Vec<Piece>) -> Option<()>,
) -> Option<Function> {
    let source = match (a.source, b.source) {
        (Some(x), Some(y)) if x != y => return None,
        (x, y) => x.or(y),
    };
    let mut pieces = vec![];
    for x in &a.pieces {
        for y in &b.pieces {
            let (lo, hi) = (x.lo.max(y.lo), x.hi.min(y.hi));
            if lo <= hi {
                f(Piece { lo, hi, ..*x }, Piece { lo, hi, ..*y }, &mut pieces)?;
            }
        }
    }
    Some(Function { source, pieces })
}

fn scaled(p: Piece, factor: i128) -> Option<Piece> {
    let small = factor.abs() < 1 << 40 && p.slope.abs() < 1 << 40 && p.base.abs() < 1 << 80;
    small.then(|| Piece { slope: p.slope * factor, base: p.base * factor, ..p })
}

/// The part of a piece whose values lie in `low..=high`.
fn within(p: Piece, low: i128, high: i128) -> Vec<Piece> {
    let mut out = vec![];
    for (lo, hi, sign) in signs(p.lo, p.hi, p.slope, p.base - low) {
        if sign >= 0 {
            let below = signs(lo, hi, p.slope, p.base - high).into_iter().filter(|s| s.2 <= 0);
            out.extend(below.map(|(lo, hi, _)| Piece { lo, hi, ..p }));
        }
    }
    out
}

/// Divides `lo..=hi` by the sign of `slope·x + base`.
pub(super) fn signs(lo: i128, hi: i128, slope: i128, base: i128) -> Vec<(i128, i128, i128)> {
    if slope == 0 {
        return vec![(lo, hi, base.signum())];
    }
    // The first x (for a positive slope) at which the value is at least 0, and at least 1.
    let up = slope.signum();
    let steep = slope.abs();
    let ceil = |n: i128| -((-n).div_euclid(steep));
    let (zero, one) = if up > 0 { (ceil(-base), ceil(1 - base)) } else { (ceil(base), ceil(base + 1)) };
    // For a negative slope the roles of negative and positive are exchanged: values fall from positive to negative.
    [(lo, hi.min(zero - 1), -up), (lo.max(zero), hi.min(one - 1), 0), (lo.max(one), hi, up)]
        .into_iter()
        .filter(|p| p.0 <= p.1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Scalar;
    use crate::expr::Var;
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

    #[test]
    fn signs_divide_exactly() {
        for slope in -3..=3 {
            for base in -7..=7 {
                let parts = signs(-10, 10, slope, base);
                for x in -10i128..=10 {
                    let sign = parts.iter().find(|p| (p.0..=p.1).contains(&x)).unwrap().2;
                    assert_eq!(sign, (slope * x + base).signum(), "{slope}·{x} + {base}");
                }
            }
        }
    }
}
