//! Piecewise affine values of integer expressions over iterators.
//!
//! In: an expression of sums, products with constants, minima, maxima, absolute values, selections, and quotients and remainders by
//! positive constants. Out: pieces, each with conditions under which the expression is one affine form; exactly one piece holds at
//! each point. A quotient that takes more than [`PERIODS`] values has no pieces, nor has one that may round a negative number
//! towards zero.

use crate::expr::narrow::{Interval, dtype_range};
use crate::expr::scalar::Value;
use crate::expr::{Affine, BinaryOp, CompareOp, Expr, UnaryOp, Var};
use crate::runtime::DType;

/// Most values of one quotient: a subscript that leaves its period to both sides takes three.
pub const PERIODS: i64 = 3;

/// Most pieces of an expression.
const PIECES: usize = 32;

/// Greatest divisor and greatest factor of a product.
const FACTOR: u64 = 1 << 40;

/// Greatest coefficient and greatest value: sums, and products with numbers of up to [`FACTOR`] that are checked, stay inside of 64 bits.
const VALUE: i128 = 1 << 60;

/// A value where all of `conditions` are ≥ 0.
#[derive(Clone, PartialEq, Debug)]
pub struct Piece<T> {
    pub conditions: Vec<Affine>,
    pub value: T,
}

/// The values of each variable.
pub type Ranges<'a> = &'a dyn Fn(Var) -> Interval;

/// A quotient or a remainder by a positive constant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Division<'a> {
    pub dividend: &'a Expr,
    pub divisor: i64,
    /// The remainder, which is not negative; otherwise the quotient.
    remainder: bool,
    /// Rounds down; otherwise towards zero.
    floor: bool,
}

/// The division that an expression is: `a / 3`, `a % 3`, `bit_and(a, 7)` or `shift_right(a, 3)`.
pub fn division(e: &Expr) -> Option<Division<'_>> {
    let Expr::Binary(op, a, b) = e else { return None };
    let k = constant(b).filter(|k| k.unsigned_abs() < FACTOR)?;
    let of = |divisor, remainder, floor| Some(Division { dividend: a, divisor, remainder, floor });
    match op {
        BinaryOp::Div if k > 0 => of(k, false, false),
        BinaryOp::Mod if k > 0 => of(k, true, true),
        BinaryOp::And if k > 0 && (k + 1) & k == 0 => of(k + 1, true, true),
        BinaryOp::ShiftRight if (0..40).contains(&k) => of(1 << k, false, true),
        _ => None,
    }
}

fn constant(e: &Expr) -> Option<i64> {
    match e {
        Expr::Const(s) if dtype_range(s.dtype).is_some() => Some(Value::from(*s).as_i64()),
        Expr::Index(a) if a.is_constant() => Some(a.constant),
        // sizes in a bound, as `N - 1`
        Expr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul), a, b) => {
            let (a, b) = (constant(a)?, constant(b)?);
            match op {
                BinaryOp::Add => a.checked_add(b),
                BinaryOp::Sub => a.checked_sub(b),
                _ => a.checked_mul(b),
            }
        }
        _ => None,
    }
}

/// The terms of `a` that `divisor` does not divide, with the remainder of the constant; and the quotient of the others.
pub fn digits(a: &Affine, divisor: i64) -> (Affine, Affine) {
    let low = |&&(_, c): &&(Var, i64)| c % divisor != 0;
    let rest =
        Affine { terms: a.terms.iter().filter(low).copied().collect(), constant: a.constant.rem_euclid(divisor) };
    let high = a.terms.iter().filter(|t| !low(t)).map(|&(v, c)| (v, c / divisor)).collect();
    (rest, Affine { terms: high, constant: a.constant.div_euclid(divisor) })
}

/// The pieces of an integer expression; `None` where there are too many, or the expression reads data.
pub fn pieces(e: &Expr, ranges: Ranges) -> Option<Vec<Piece<Affine>>> {
    let out = match e {
        Expr::Index(a) => vec![Piece { conditions: vec![], value: Some(a.clone()).filter(|a| is_small(a, ranges))? }],
        Expr::Const(_) => {
            let value = Some(Affine::constant(constant(e)?)).filter(|a| is_small(a, ranges))?;
            vec![Piece { conditions: vec![], value }]
        }
        Expr::Cast(_, a) => pieces(a, ranges)?,
        Expr::Unary(UnaryOp::Neg, a) => {
            pieces(a, ranges)?.into_iter().map(|p| Piece { value: p.value.scale(-1), ..p }).collect()
        }
        Expr::Unary(UnaryOp::Abs, a) => {
            let sides = |p: Piece<Affine>| {
                let negative = p.value.scale(-1);
                [p.with(&[&p.value], p.value.clone()), p.with(&[&negative.clone().offset(-1)], negative)]
            };
            pieces(a, ranges)?.into_iter().flat_map(sides).collect()
        }
        Expr::Select(c, a, b) => {
            let (a, b) = (pieces(a, ranges)?, pieces(b, ranges)?);
            let chosen = |c: &Piece<bool>| {
                let of = if c.value { &a } else { &b };
                of.iter().map(|p| p.with(&c.conditions.iter().collect::<Vec<_>>(), p.value.clone())).collect::<Vec<_>>()
            };
            truths(c, ranges)?.iter().flat_map(chosen).collect()
        }
        Expr::Binary(op, a, b) => match division(e) {
            Some(division) => division.pieces(pieces(a, ranges)?, ranges)?,
            None => joined(&pieces(a, ranges)?, &pieces(b, ranges)?, |a, b| operation(*op, a, b))?,
        },
        Expr::Load(_) | Expr::Compare(..) | Expr::Bitcast(..) | Expr::Unary(..) => return None,
    };
    let small = |p: &Piece<Affine>| is_small(&p.value, ranges) && p.conditions.iter().all(|c| is_small(c, ranges));
    let out = Some(out).filter(|out| out.iter().all(small)).and_then(|out| possible(out, ranges))?;
    // an operation of a narrow type may wrap
    let (low, high) = dtype_range(e.dtype(&|_| DType::I64))?;
    let fits = |p: &Piece<Affine>| p.value.bounds(ranges).0 >= low && p.value.bounds(ranges).1 <= high;
    out.iter().all(fits).then_some(out)
}

/// The pieces of a condition.
pub fn truths(e: &Expr, ranges: Ranges) -> Option<Vec<Piece<bool>>> {
    let out = match e {
        Expr::Const(s) if s.dtype == DType::Bool => vec![Piece { conditions: vec![], value: s.bits != 0 }],
        Expr::Unary(UnaryOp::Not, a) => {
            truths(a, ranges)?.into_iter().map(|p| Piece { value: !p.value, ..p }).collect()
        }
        Expr::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => {
            let value =
                |a: &bool, b: &bool| Some(vec![(vec![], if *op == BinaryOp::And { *a && *b } else { *a || *b })]);
            joined(&truths(a, ranges)?, &truths(b, ranges)?, value)?
        }
        Expr::Compare(op, a, b) => joined(&pieces(a, ranges)?, &pieces(b, ranges)?, |a, b| {
            let difference = a.add_scaled(b, -1);
            let holds = |op: CompareOp| match op {
                CompareOp::Ge => vec![difference.clone()],
                CompareOp::Gt => vec![difference.clone().offset(-1)],
                CompareOp::Le => vec![difference.scale(-1)],
                CompareOp::Lt => vec![difference.scale(-1).offset(-1)],
                CompareOp::Eq | CompareOp::Ne => vec![difference.clone(), difference.scale(-1)],
            };
            Some(match op {
                CompareOp::Eq | CompareOp::Ne => {
                    let is = *op == CompareOp::Eq;
                    vec![(holds(CompareOp::Lt), !is), (holds(CompareOp::Eq), is), (holds(CompareOp::Gt), !is)]
                }
                op => vec![(holds(*op), true), (holds(op.opposite()), false)],
            })
        })?,
        _ => return None,
    };
    possible(out, ranges)
}

impl<T> Piece<T> {
    /// A piece where `more` holds as well.
    fn with<U>(&self, more: &[&Affine], value: U) -> Piece<U> {
        let conditions = self.conditions.iter().chain(more.iter().copied()).cloned().collect();
        Piece { conditions, value }
    }
}

impl Division<'_> {
    fn pieces(&self, of: Vec<Piece<Affine>>, ranges: Ranges) -> Option<Vec<Piece<Affine>>> {
        let mut out = vec![];
        for p in of {
            let (low, high) = p.value.bounds(ranges);
            if !self.floor && low < 0 && !self.remainder {
                return None;
            }
            let (rest, above) = digits(&p.value, self.divisor);
            let (first, last) = rest.bounds(ranges);
            let (first, last) = (first.div_euclid(self.divisor), last.div_euclid(self.divisor));
            if low > high || last - first >= PERIODS {
                return None;
            }
            for q in first..=last {
                let within = rest.clone().offset(-q * self.divisor);
                let beyond = within.scale(-1).offset(self.divisor - 1);
                let value = if self.remainder { within.clone() } else { above.clone().offset(q) };
                out.push(p.with(&[&within, &beyond], value));
            }
        }
        Some(out)
    }
}

/// The values of an operation of two affine forms, each with its conditions.
fn operation(op: BinaryOp, a: &Affine, b: &Affine) -> Option<Vec<(Vec<Affine>, Affine)>> {
    let always = |value| Some(vec![(vec![], value)]);
    match op {
        BinaryOp::Add => always(a.add_scaled(b, 1)),
        BinaryOp::Sub => always(a.add_scaled(b, -1)),
        BinaryOp::Mul if b.is_constant() => always(scaled(a, b.constant)?),
        BinaryOp::Mul if a.is_constant() => always(scaled(b, a.constant)?),
        BinaryOp::Min | BinaryOp::Max => {
            let (low, high) = if op == BinaryOp::Min { (a, b) } else { (b, a) };
            let difference = high.add_scaled(low, -1);
            Some(vec![(vec![difference.clone()], a.clone()), (vec![difference.scale(-1).offset(-1)], b.clone())])
        }
        _ => None,
    }
}

/// `k·a`, unless a number leaves 64 bits.
fn scaled(a: &Affine, k: i64) -> Option<Affine> {
    let numbers = a.terms.iter().map(|t| t.1).chain([a.constant]);
    let fits = |c: i64| (c as i128 * k as i128).abs() < VALUE;
    (k.unsigned_abs() < FACTOR && numbers.into_iter().all(fits)).then(|| a.scale(k))
}

/// Returns true if neither the numbers of a form nor its values are near the limits of 64 bits.
fn is_small(a: &Affine, ranges: Ranges) -> bool {
    let most = |(v, c): (Var, i64)| {
        let (low, high) = ranges(v);
        (c as i128).abs() * (low as i128).abs().max((high as i128).abs()).max(1)
    };
    (a.constant as i128).abs() + a.terms.iter().map(|&t| most(t)).sum::<i128>() < VALUE
}

/// The pieces of what `f` makes of each two pieces.
fn joined<A, B>(
    a: &[Piece<A>],
    b: &[Piece<A>],
    f: impl Fn(&A, &A) -> Option<Vec<(Vec<Affine>, B)>>,
) -> Option<Vec<Piece<B>>> {
    let mut out = vec![];
    for x in a {
        for y in b {
            for (conditions, value) in f(&x.value, &y.value)? {
                let more: Vec<&Affine> = y.conditions.iter().chain(&conditions).collect();
                out.push(x.with(&more, value));
            }
        }
    }
    Some(out)
}

/// The pieces that exist in the box, without the conditions that it implies.
fn possible<T>(pieces: Vec<Piece<T>>, ranges: Ranges) -> Option<Vec<Piece<T>>> {
    let exists = |p: &Piece<T>| p.conditions.iter().all(|c| c.bounds(ranges).1 >= 0);
    let mut out: Vec<Piece<T>> = pieces.into_iter().filter(exists).collect();
    for p in &mut out {
        p.conditions.retain(|c| c.bounds(ranges).0 < 0);
        p.conditions.sort();
        p.conditions.dedup();
    }
    (out.len() <= PIECES).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{Scalar, scalar};

    const N: i64 = 12;

    fn i() -> Expr {
        Expr::Index(Affine::var(Var(0)))
    }

    fn c(k: i64) -> Expr {
        Expr::Const(Scalar::i64(k))
    }

    fn bin(op: BinaryOp, a: Expr, b: Expr) -> Expr {
        Expr::binary(op, a, b)
    }

    /// The value of an expression where the variable is `v`.
    fn value(e: &Expr, v: i64) -> Value {
        let of = |e: &Expr| value(e, v);
        match e {
            Expr::Index(a) => Value::I64(a.evaluate(|_| v)),
            Expr::Const(s) => (*s).into(),
            Expr::Unary(op, a) => scalar::unary(*op, of(a)).unwrap(),
            Expr::Binary(op, a, b) => scalar::binary(*op, of(a), of(b)).unwrap(),
            e => panic!("{e:?}"),
        }
    }

    /// Exactly one piece holds at each point, with the value of the expression.
    fn agrees(e: &Expr, count: usize) {
        let pieces = pieces(e, &|_| (0, N - 1)).unwrap_or_else(|| panic!("{e:?} has no pieces"));
        assert_eq!(pieces.len(), count, "{e:?}: {pieces:?}");
        for v in 0..N {
            let holds = |p: &&Piece<Affine>| p.conditions.iter().all(|c| c.evaluate(|_| v) >= 0);
            let values: Vec<i64> = pieces.iter().filter(holds).map(|p| p.value.evaluate(|_| v)).collect();
            assert_eq!(values, [value(e, v).as_i64()], "{e:?} at {v}: {pieces:?}");
        }
    }

    #[test]
    fn subscripts_that_wrap_or_are_kept_inside_have_pieces() {
        agrees(&bin(BinaryOp::Mod, i() + c(1), c(N)), 2);
        agrees(&bin(BinaryOp::Mod, i() - c(1), c(N)), 2);
        agrees(&bin(BinaryOp::Mod, i() + c(N - 1), c(N)), 2);
        agrees(&bin(BinaryOp::Max, i() - c(2), c(0)), 2);
        agrees(&bin(BinaryOp::Min, bin(BinaryOp::Max, i() - c(2), c(0)), c(N - 5)), 3);
        agrees(&Expr::unary(UnaryOp::Abs, i() - c(3)), 2);
        agrees(&bin(BinaryOp::Div, i(), c(5)), 3);
        agrees(&bin(BinaryOp::ShiftRight, i() - c(3), c(3)), 3);
        agrees(&bin(BinaryOp::And, i(), c(7)), 2);
        agrees(&bin(BinaryOp::Mod, i() * c(8) + c(5), c(4)), 1);
        agrees(&bin(BinaryOp::Div, i() * c(8) + c(5), c(4)), 1);
    }

    #[test]
    fn quotients_of_many_values_and_of_negative_numbers_have_none() {
        let none = |e: Expr| assert_eq!(pieces(&e, &|_| (0, N - 1)), None, "{e:?}");
        none(bin(BinaryOp::Mod, i(), c(2)));
        none(bin(BinaryOp::Div, i(), c(2)));
        none(bin(BinaryOp::Div, i() - c(1), c(6)));
        none(bin(BinaryOp::Mod, i(), i()));
        // leaves 64 bits
        none(bin(BinaryOp::And, i() * c(6364136223846793005), c(7)));
        none(bin(BinaryOp::Mod, i() * c(1 << 39) * c(1 << 39), c(7)));
        none(Expr::Index(Affine::constant(0).plus(Var(0), i64::MAX / 2)));
        none(bin(BinaryOp::Mod, i(), c(i64::MAX)));
        // wraps in 8 bits
        none(Expr::cast(DType::U8, i() * c(100)));
    }

    #[test]
    fn conditions_are_divided_by_their_truth() {
        for op in [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge] {
            let e = Expr::compare(op, bin(BinaryOp::Mod, i() + c(2), c(6)), c(4));
            for (e, not) in [(e.clone(), false), (Expr::unary(UnaryOp::Not, e), true)] {
                let pieces = truths(&e, &|_| (0, N - 1)).expect("pieces");
                for v in 0..N {
                    let holds = |p: &&Piece<bool>| p.conditions.iter().all(|c| c.evaluate(|_| v) >= 0);
                    let values: Vec<bool> = pieces.iter().filter(holds).map(|p| p.value).collect();
                    assert_eq!(values, [op.holds(&((v + 2) % 6), &4) != not], "{e:?} at {v}: {pieces:?}");
                }
            }
        }
    }
}
