//! Bounds of loops that divide, as `1 + t % 2`, `i - i % 4` and `i / 2 + i / 3`: ranges that hold them.
//!
//! In: a bound. Out: bounds without remainders, and with no more than one quotient each, that are never above it, or never below it, so that the
//! loop between such bounds has all iterations of the one that is written. A sum of quotients `⌊a / c⌋` lies between sums of `a / c` and of
//! `(a - (c - 1)) / c`; a remainder `a % c` is `a - c·⌊a / c⌋`. Where the intervals of the quotients say more, a number is a bound as well.

use super::scope::combine;
use super::source::Checked;
use crate::expr::interval::{ceil_div, gcd};
use crate::expr::narrow::range_over_elements;
use crate::expr::syntax::{Expr as Text, Function, Kind, Operator, Span};
use crate::expr::{Affine, BinaryOp, BufferId};
use crate::language::environment::Scope;
use crate::runtime::DType;

/// Beyond the bounds of loops.
const FAR: i64 = 1 << 40;

/// Least and greatest value.
pub type Interval = (i64, i64);

/// Largest divisor and factor: products of them with loop bounds stay inside of 64 bits.
const LARGEST: i64 = 1 << 16;

/// Bounds around the bound `e` without remainders, and whose sums have one quotient at most, which no number multiplies: never below it where
/// `greatest`, else never above it. `None` where `e` is such a bound. The indices lie in `ranges`.
pub fn around(scope: &Scope, ranges: &[Interval], e: &Text, greatest: bool) -> Checked<Option<Vec<Text>>> {
    if !divides_apart(scope, e)? {
        return Ok(None);
    }
    let Some(sum) = Sum::of(scope, ranges, e)? else {
        let bound = without_remainders(scope, e, greatest)?;
        return Ok((bound != *e).then(|| vec![bound]));
    };
    Ok(sum.bounds(scope, ranges, greatest, e.span))
}

/// The greatest value of a bound with a product of indices, or with a quotient, a remainder or a shift by an index, where `greatest`, else its least one;
/// `None` of another bound, and where its operations do not say it. The indices lie in `ranges`.
pub fn extreme(scope: &Scope, ranges: &[Interval], e: &Text, greatest: bool) -> Checked<Option<Text>> {
    let mut is_curved = false;
    let varies = |e: &Text| scope.affine(e).is_ok_and(|form| form.is_none_or(|form| !form.is_constant()));
    e.visit(&mut |e| {
        is_curved |= match &e.kind {
            Kind::Binary(Operator::Mul, a, b) => varies(a) && varies(b),
            Kind::Binary(Operator::Div | Operator::Mod, _, b) => varies(b),
            Kind::Call(Function::Binary(BinaryOp::ShiftLeft | BinaryOp::ShiftRight), operands) => varies(&operands[1]),
            _ => false,
        }
    });
    let known = if is_curved { interval(scope, ranges, e)? } else { None };
    let is_near = |(low, high): &Interval| -FAR < *low && *high < FAR;
    Ok(known.filter(is_near).map(|(low, high)| Text::integer(if greatest { high } else { low }, e.span)))
}

/// The least and the greatest value of an index between two bounds; `None` where they are of another form, or from data.
pub fn reach(scope: &Scope, ranges: &[Interval], lower: &Text, upper: &Text) -> Checked<Option<Interval>> {
    let (least, most) = (interval(scope, ranges, lower)?, interval(scope, ranges, upper)?);
    Ok(least.zip(most).and_then(|(least, most)| Some((least.0, most.1.checked_sub(1)?.max(least.0)))))
}

/// Returns true for a bound with a remainder, with a product of a quotient, or with two quotients that are added.
fn divides_apart(scope: &Scope, e: &Text) -> Checked<bool> {
    let quotients = |e: &Text| -> Checked<bool> {
        let mut divides = false;
        e.visit(&mut |e| divides |= matches!(e.kind, Kind::Binary(Operator::Div, ..)));
        Ok(divides && scope.affine(e)?.is_none())
    };
    Ok(match &e.kind {
        _ if scope.affine(e)?.is_some() => false,
        Kind::Binary(Operator::Mod, ..) => true,
        Kind::Binary(Operator::Add | Operator::Sub, a, b) if quotients(a)? && quotients(b)? => true,
        Kind::Binary(Operator::Mul, a, b) => {
            let by = |e: &Text| Ok(scope.affine(e)?.filter(Affine::is_constant).map(|c| c.constant));
            let by = by(a)?.or(by(b)?);
            by.is_some_and(|by| by.abs() > 1) || divides_apart(scope, a)? || divides_apart(scope, b)?
        }
        Kind::Binary(_, a, b) => divides_apart(scope, a)? || divides_apart(scope, b)?,
        Kind::Negate(a) => divides_apart(scope, a)?,
        _ => false,
    })
}

/// `affine + Σ factor·⌊form / divisor⌋`.
#[derive(Clone)]
struct Sum {
    affine: Affine,
    quotients: Vec<(i64, Affine, i64)>,
}

impl Sum {
    /// The sum that an expression is; `None` for a value of another form, and for a quotient that may be negative.
    fn of(scope: &Scope, ranges: &[Interval], e: &Text) -> Checked<Option<Sum>> {
        if let Some(affine) = scope.affine(e)? {
            return Ok(Some(Sum { affine, quotients: vec![] }));
        }
        let of = |e: &Text| Sum::of(scope, ranges, e);
        let number = |e: &Text| -> Checked<Option<i64>> {
            Ok(scope.affine(e)?.filter(|c| c.is_constant() && c.constant.abs() <= LARGEST).map(|c| c.constant))
        };
        Ok(match &e.kind {
            Kind::Negate(a) => of(a)?.and_then(|a| a.scaled(-1)),
            Kind::Binary(Operator::Add, a, b) => of(a)?.zip(of(b)?).and_then(|(a, b)| a.plus(b)),
            Kind::Binary(Operator::Sub, a, b) => of(a)?.zip(of(b)?).and_then(|(a, b)| a.plus(b.scaled(-1)?)),
            Kind::Binary(Operator::Mul, a, b) => match (number(a)?, number(b)?) {
                (Some(by), _) => of(b)?.and_then(|b| b.scaled(by)),
                (_, Some(by)) => of(a)?.and_then(|a| a.scaled(by)),
                _ => None,
            },
            Kind::Binary(operator @ (Operator::Div | Operator::Mod), a, b) => {
                let Some((a, by)) = of(a)?.zip(number(b)?.filter(|by| *by > 0)) else { return Ok(None) };
                // the language divides towards zero
                let is_floor = *operator == Operator::Mod || a.interval(ranges).is_some_and(|(least, _)| least >= 0);
                let quotient = a.divided(by).filter(|_| is_floor);
                match operator {
                    Operator::Div => quotient,
                    _ => quotient.and_then(|quotient| a.plus(quotient.scaled(-by)?)),
                }
            }
            _ => None,
        })
    }

    fn scaled(&self, by: i64) -> Option<Sum> {
        let of = |(k, form, divisor): &(i64, Affine, i64)| {
            Some((k.checked_mul(by).filter(|k| k.abs() <= LARGEST)?, form.clone(), *divisor))
        };
        let affine = combine(&Affine::constant(0), &self.affine, by)?;
        Some(Sum { affine, quotients: self.quotients.iter().map(of).collect::<Option<_>>()? })
    }

    fn plus(mut self, other: Sum) -> Option<Sum> {
        self.affine = combine(&self.affine, &other.affine, 1)?;
        for (k, form, divisor) in other.quotients {
            match self.quotients.iter_mut().find(|q| (&q.1, q.2) == (&form, divisor)) {
                Some(known) => known.0 += k,
                None => self.quotients.push((k, form, divisor)),
            }
        }
        self.quotients.retain(|q| q.0 != 0);
        Some(self)
    }

    /// `⌊self / by⌋`, of one quotient at most: `⌊(⌊a / c⌋ + b) / by⌋ = ⌊(a + c·b) / (c·by)⌋`.
    fn divided(&self, by: i64) -> Option<Sum> {
        let (form, divisor) = match &self.quotients[..] {
            [] => (self.affine.clone(), 1),
            [(1, form, divisor)] => (combine(form, &self.affine, *divisor)?, *divisor),
            _ => return None,
        };
        let divisor = divisor.checked_mul(by).filter(|divisor| *divisor <= LARGEST)?;
        Some(Sum { affine: Affine::constant(0), quotients: vec![(1, form, divisor)] })
    }

    /// Least and greatest value, each quotient by itself; `None` beyond 64 bits.
    fn interval(&self, ranges: &[Interval]) -> Option<Interval> {
        let (mut least, mut most) = bounds(&self.affine, ranges)?;
        for (k, form, divisor) in &self.quotients {
            let (low, high) = bounds(form, ranges)?;
            let ends = [low, high].map(|end| end.div_euclid(*divisor).checked_mul(*k));
            let [a, b] = [ends[0]?, ends[1]?];
            (least, most) = (least.checked_add(a.min(b))?, most.checked_add(a.max(b))?);
        }
        Some((least, most))
    }

    /// Bounds of one quotient, or none, that the sum does not exceed, or that do not exceed it; `None` where their numbers are too large.
    fn bounds(&self, scope: &Scope, ranges: &[Interval], greatest: bool, span: Span) -> Option<Vec<Text>> {
        let common = self.quotients.iter().try_fold(1i64, |common, (_, _, divisor)| {
            common.checked_mul(divisor / gcd(common, *divisor)).filter(|common| *common <= LARGEST)
        })?;
        // common · sum = form + slack, where slack ≥ least and ≤ most
        let mut form = combine(&Affine::constant(0), &self.affine, common)?;
        let (mut least, mut most) = (0, 0);
        for (k, of, divisor) in &self.quotients {
            let times = common / divisor * k;
            form = combine(&form, of, times)?;
            let end = -times * (divisor - 1);
            (least, most) = (least + end.min(0), most + end.max(0));
        }
        let factor = form.terms.iter().fold(common, |factor, (_, c)| gcd(factor, c.abs()));
        let form = if greatest { form.offset(most) } else { form.offset(least + common - 1) };
        let divisor = common / factor;
        let form = Affine {
            terms: form.terms.iter().map(|&(v, c)| (v, c / factor)).collect(),
            constant: form.constant.div_euclid(factor),
        };
        let (low, high) = bounds(&form, ranges)?;
        let mut out = vec![quotient(scope, form, divisor, low, span)];
        let (from, to) = self.interval(ranges)?;
        let number = if greatest { to } else { from };
        let says_more = if greatest { to < high.div_euclid(divisor) } else { from > low.div_euclid(divisor) };
        out.extend(says_more.then(|| Text::integer(number, span)));
        Some(out)
    }
}

/// `⌊form / divisor⌋` as a text, where the form is at least `low`.
fn quotient(scope: &Scope, form: Affine, divisor: i64, low: i64, span: Span) -> Text {
    let number = |n: i64| Text::integer(n, span);
    if divisor == 1 {
        return affine_text(scope, &form, span);
    }
    // the language divides towards zero
    let shift = ceil_div(-low, divisor).max(0);
    let quotient = affine_text(scope, &form.offset(shift * divisor), span).joined(Operator::Div, number(divisor));
    if shift == 0 { quotient } else { quotient.joined(Operator::Sub, number(shift)) }
}

fn affine_text(scope: &Scope, form: &Affine, span: Span) -> Text {
    let terms = form.terms.iter().map(|&(v, c)| {
        let name = Text::named(scope.name(v), span);
        if c == 1 { name } else { Text::integer(c, span).joined(Operator::Mul, name) }
    });
    let constant = (form.constant != 0 || form.terms.is_empty()).then(|| Text::integer(form.constant, span));
    terms.chain(constant).reduce(|a, b| a.joined(Operator::Add, b)).expect("a term or a constant")
}

/// Least and greatest value of a form; `None` beyond 64 bits.
fn bounds(form: &Affine, ranges: &[Interval]) -> Option<Interval> {
    let (mut least, mut most) = (form.constant, form.constant);
    for &(v, c) in &form.terms {
        let (low, high) = ranges[v.0 as usize];
        let (a, b) = (low.checked_mul(c)?, high.checked_mul(c)?);
        (least, most) = (least.checked_add(a.min(b))?, most.checked_add(a.max(b))?);
    }
    Some((least, most))
}

/// Least and greatest value of a bound; `None` where its operations do not say them.
fn interval(scope: &Scope, ranges: &[Interval], e: &Text) -> Checked<Option<Interval>> {
    if let Kind::Call(Function::Binary(op @ (BinaryOp::Min | BinaryOp::Max)), operands) = &e.kind {
        let (a, b) = (interval(scope, ranges, &operands[0])?, interval(scope, ranges, &operands[1])?);
        return Ok(a.zip(b).map(|(a, b)| match op {
            BinaryOp::Min => (a.0.min(b.0), a.1.min(b.1)),
            _ => (a.0.max(b.0), a.1.max(b.1)),
        }));
    }
    if let Some(of_sum) = Sum::of(scope, ranges, e)?.and_then(|sum| sum.interval(ranges)) {
        return Ok(Some(of_sum));
    }
    // a value of another type is refused where the loop is entered
    let Ok(value) = scope.value(e, DType::I64) else { return Ok(None) };
    let everything = (i64::MIN, i64::MAX);
    let dtype = |b: BufferId| scope.arrays[b.0 as usize].dtype;
    let of_form = |form: &Affine| bounds(form, ranges).unwrap_or(everything);
    let known = range_over_elements(&dtype, &|_| None, &of_form, &value);
    Ok(known.filter(|(low, high)| *low > i64::MIN && *high < i64::MAX))
}

/// `e` with the greatest remainder in the place of each, or the least.
fn without_remainders(scope: &Scope, e: &Text, greatest: bool) -> Checked<Text> {
    let of = |e: &Text, greatest| without_remainders(scope, e, greatest).map(Box::new);
    let positive = |e: &Text| -> Checked<Option<i64>> {
        Ok(scope.affine(e)?.filter(|c| c.is_constant() && c.constant > 0).map(|c| c.constant))
    };
    let kind = match &e.kind {
        Kind::Binary(Operator::Mod, _, divisor) => match positive(divisor)? {
            Some(divisor) if scope.affine(e)?.is_none() => Kind::Integer(if greatest { divisor - 1 } else { 0 }),
            _ => return Ok(e.clone()),
        },
        Kind::Binary(Operator::Add, a, b) => Kind::Binary(Operator::Add, of(a, greatest)?, of(b, greatest)?),
        Kind::Binary(Operator::Sub, a, b) => Kind::Binary(Operator::Sub, of(a, greatest)?, of(b, !greatest)?),
        Kind::Binary(Operator::Mul, a, b) if positive(a)?.is_some() => {
            Kind::Binary(Operator::Mul, a.clone(), of(b, greatest)?)
        }
        Kind::Binary(Operator::Mul, a, b) if positive(b)?.is_some() => {
            Kind::Binary(Operator::Mul, of(a, greatest)?, b.clone())
        }
        kind => kind.clone(),
    };
    Ok(Text { kind, span: e.span })
}
