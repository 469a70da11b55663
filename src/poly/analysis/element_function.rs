//! Piecewise affine functions of one element: what a subscript from data is of the element that it reads.
//!
//! In: an expression. Out: its value as pieces `slope·x + base` of an element x, through temporaries, casts, sums, products with constants, minima, maxima
//! and selections. Invariant: on the interval of each piece the value is exact; sums and products do not wrap around there, conversions do.

use crate::expr::scalar::Value;
use crate::expr::{Access, Affine, BinaryOp, BufferId, CompareOp, Expr, Index, Scalar};
use crate::poly::statement::{Program, Role};
use crate::runtime::DType;

/// Elements of a tensor known from outside.
#[derive(Clone, PartialEq, Debug)]
pub struct Source {
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
pub struct Piece {
    pub lo: i128,
    pub hi: i128,
    pub slope: i128,
    pub base: i128,
}

/// A piecewise affine function of one element of `source`, or a constant.
pub struct Function {
    pub source: Option<Source>,
    pub pieces: Vec<Piece>,
    /// There are pieces for all elements that the function takes: none is left out since a conversion wraps it around.
    pub is_whole: bool,
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

/// Intervals in their order, those that meet as one.
pub fn merged(mut intervals: Vec<(i128, i128)>) -> Vec<(i128, i128)> {
    intervals.sort_unstable();
    intervals.into_iter().fold(vec![], |mut merged: Vec<(i128, i128)>, (lo, hi)| {
        match merged.last_mut() {
            Some(last) if lo <= last.1 + 1 => last.1 = last.1.max(hi),
            _ => merged.push((lo, hi)),
        }
        merged
    })
}

fn integer(s: Scalar) -> Option<i128> {
    type_range(s.dtype)?;
    Some(if s.dtype == DType::U64 { s.bits.into() } else { Value::from(s).as_i64().into() })
}

fn constant(base: i128) -> Function {
    Function { source: None, pieces: vec![Piece { lo: -INFINITY, hi: INFINITY, slope: 0, base }], is_whole: true }
}

/// The function that an expression is, through temporaries that the first `before` definitions assign.
pub fn function_of(program: &Program, before: usize, e: &Expr) -> Option<Function> {
    match e {
        // sums and products of narrower types wrap around
        Expr::Const(s) if matches!(s.dtype, DType::I64 | DType::I32) => integer(*s).map(constant),
        Expr::Const(_) => None,
        Expr::Load(access) => load(program, before, access),
        Expr::Cast(to, a) => converted(function_of(program, before, a)?, *to),
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
            let compared = |e: &Expr| match e {
                Expr::Const(s) => integer(*s).map(constant),
                e => function_of(program, before, e),
            };
            let (l, r) = (compared(l)?, compared(r)?);
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
                let truth = Function { source: truth.source.clone(), pieces: truth.pieces.clone(), ..truth };
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
            a.is_whole &= b.is_whole;
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
    Some(Function { source: Some(source), pieces: vec![Piece { lo, hi, slope: 1, base: 0 }], is_whole: true })
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
    let is_whole = a.is_whole && b.is_whole;
    let mut pieces = vec![];
    for x in &a.pieces {
        for y in &b.pieces {
            let (lo, hi) = (x.lo.max(y.lo), x.hi.min(y.hi));
            if lo <= hi {
                f(Piece { lo, hi, ..*x }, Piece { lo, hi, ..*y }, &mut pieces)?;
            }
        }
    }
    Some(Function { source, pieces, is_whole })
}

fn scaled(p: Piece, factor: i128) -> Option<Piece> {
    let small = factor.abs() < 1 << 40 && p.slope.abs() < 1 << 40 && p.base.abs() < 1 << 80;
    small.then(|| Piece { slope: p.slope * factor, base: p.base * factor, ..p })
}

/// A function converted to an integer type.
fn converted(f: Function, to: DType) -> Option<Function> {
    let (range, mut is_whole) = (type_range(to)?, f.is_whole);
    let of = |p: Piece| match to {
        DType::Bool => truth(p),
        _ => wrapped(p, range).unwrap_or_else(|| {
            is_whole = false;
            within(p, range.0, range.1)
        }),
    };
    let pieces = f.pieces.into_iter().flat_map(of).collect();
    Some(Function { pieces, is_whole, ..f })
}

/// Most times that a conversion of one piece may wrap around.
const PERIODS: i128 = 8;

/// A piece converted to an integer type, which wraps around; `None` where it does so more than [`PERIODS`] times.
fn wrapped(p: Piece, (low, high): (i128, i128)) -> Option<Vec<Piece>> {
    let count = high - low + 1;
    let period = |x: i128| (p.slope * x + p.base - low).div_euclid(count);
    let (first, last) = if p.slope == 0 { (period(0), period(0)) } else { (period(p.lo), period(p.hi)) };
    let (first, last) = (first.min(last), first.max(last));
    let of = |n: i128| {
        let part = within(p, low + n * count, high + n * count);
        part.into_iter().map(move |p| Piece { base: p.base - n * count, ..p })
    };
    (last - first < PERIODS).then(|| (first..=last).flat_map(of).collect())
}

/// A piece converted to a bool: 1 unless it is 0.
fn truth(p: Piece) -> Vec<Piece> {
    let parts = signs(p.lo, p.hi, p.slope, p.base).into_iter();
    parts.map(|(lo, hi, sign)| Piece { lo, hi, slope: 0, base: (sign != 0).into() }).collect()
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
pub fn signs(lo: i128, hi: i128, slope: i128, base: i128) -> Vec<(i128, i128, i128)> {
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

    #[test]
    fn conversions_wrap_around() {
        for slope in [-3, -1, 0, 1, 2] {
            for base in [-300, 0, 5, 200] {
                let pieces = wrapped(Piece { lo: -150, hi: 150, slope, base }, (-128, 127)).expect("few periods");
                for x in -150..=150 {
                    let of = pieces.iter().filter(|p| (p.lo..=p.hi).contains(&x));
                    let values: Vec<i128> = of.map(|p| p.slope * x + p.base).collect();
                    assert_eq!(values, [i128::from((slope * x + base) as i8)], "{slope}·{x} + {base}");
                }
            }
        }
        assert!(wrapped(Piece { lo: 0, hi: 1 << 32, slope: 1, base: 0 }, (0, 255)).is_none());
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
