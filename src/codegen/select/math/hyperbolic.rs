//! sinh, cosh and the inverse hyperbolic functions.
//!
//! sinh and cosh: sum and difference of e^|x|/2, which does not overflow before they do, and its inverse; near 0 the series
//! of sinh. The inverses are log(1 + u) of a u that keeps its digits near 0; what 1 + u rounds off is added to the
//! logarithm, divided by 1 + u.

use super::{Builder, format, log, polynomial, reduce};
use std::f64::consts::LN_2;

/// 1/3!, 1/5!, …: (sinh(x) - x) / x³ in x².
const SINH: [f64; 9] = [
    1.0 / 6.0,
    1.0 / 120.0,
    1.0 / 5040.0,
    1.0 / 362880.0,
    1.0 / 39916800.0,
    1.0 / 6227020800.0,
    1.0 / 1307674368000.0,
    1.0 / 355687428096000.0,
    1.0 / 121645100408832000.0,
];

/// e^a / 2 for 0 ≤ a.
fn half_exp<B: Builder>(b: &mut B, a: B::V) -> B::V {
    let f = format(b, a);
    let double = b.double(a);
    let (r, q, n) = reduce(b, a);
    let one = b.float(a, 1.0);
    let p = b.fma(q, r, one);
    let step = b.pattern(a, 1);
    let n = b.int_sub(n, step);
    let n = b.shift_left(n, f.mantissa);
    let scaled = b.int_add(p, n);
    let limit = b.float(a, if double { 710.475860073943 } else { 89.415985 });
    let finite = b.less_equal(a, limit);
    // infinity for what is too large, not-a-number for itself
    let infinity = b.float(a, f64::INFINITY);
    let beyond = b.mul(a, infinity);
    b.select(finite, scaled, beyond)
}

/// Hyperbolic sine.
pub fn sinh<B: Builder>(b: &mut B, x: B::V) -> B::V {
    let terms = if b.double(x) { 9 } else { 4 };
    let a = b.abs(x);
    let e = half_exp(b, a);
    let quarter = b.float(x, 0.25);
    let inverse = b.div(quarter, e);
    let large = b.sub(e, inverse);
    let z = b.mul(a, a);
    let p = polynomial(b, z, &SINH[..terms]);
    let az = b.mul(a, z);
    let small = b.fma(az, p, a);
    let border = b.float(x, 1.0);
    let is_small = b.less(a, border);
    let r = b.select(is_small, small, large);
    let sign = b.float(x, -0.0);
    let sign = b.and(x, sign);
    b.or(r, sign)
}

/// Hyperbolic cosine.
pub fn cosh<B: Builder>(b: &mut B, x: B::V) -> B::V {
    let a = b.abs(x);
    let e = half_exp(b, a);
    let quarter = b.float(x, 0.25);
    let inverse = b.div(quarter, e);
    b.add(e, inverse)
}

/// log(1 + u), or log(large) + ln 2 where `is_large`.
fn log_one_plus<B: Builder>(b: &mut B, u: B::V, large: Option<(B::V, B::V)>) -> B::V {
    let f = format(b, u);
    let (zero, one) = (b.float(u, 0.0), b.float(u, 1.0));
    let sum = b.add(one, u);
    let kept = b.sub(sum, one);
    let lost = b.sub(u, kept);
    let correction = b.div(lost, sum);
    let infinity = b.pattern(u, f.infinity_bits);
    let finite = b.less(sum, infinity);
    let correction = b.select(finite, correction, zero);
    let (argument, correction) = match large {
        None => (sum, correction),
        Some((is_large, large)) => {
            let doubled = b.float(u, LN_2);
            (b.select(is_large, large, sum), b.select(is_large, doubled, correction))
        }
    };
    let l = log(b, argument);
    b.add(l, correction)
}

/// The bound beyond which √(x² ± 1) is |x|, with room: 2^14 in f32, 2^28 in f64.
fn border<B: Builder>(b: &mut B, like: B::V) -> B::V {
    let v = if b.double(like) { 268435456.0 } else { 16384.0 };
    b.float(like, v)
}

/// Inverse hyperbolic sine: log(1 + a + a² / (1 + √(a² + 1))), a = |x|.
pub fn asinh<B: Builder>(b: &mut B, x: B::V) -> B::V {
    let a = b.abs(x);
    let one = b.float(x, 1.0);
    let square = b.mul(a, a);
    let sum = b.add(square, one);
    let root = b.sqrt(sum);
    let below = b.add(root, one);
    let part = b.div(square, below);
    let u = b.add(a, part);
    let border = border(b, x);
    let is_large = b.less(border, a);
    let r = log_one_plus(b, u, Some((is_large, a)));
    let sign = b.float(x, -0.0);
    let sign = b.and(x, sign);
    b.or(r, sign)
}

/// Inverse hyperbolic cosine: log(1 + t + √(2t + t²)), t = x - 1. Not-a-number below 1.
pub fn acosh<B: Builder>(b: &mut B, x: B::V) -> B::V {
    let one = b.float(x, 1.0);
    let t = b.sub(x, one);
    let two = b.float(x, 2.0);
    let more = b.add(t, two);
    let product = b.mul(t, more);
    let root = b.sqrt(product);
    let u = b.add(t, root);
    let border = border(b, x);
    let is_large = b.less(border, x);
    let r = log_one_plus(b, u, Some((is_large, x)));
    let below = b.less(x, one);
    let nan = b.float(x, f64::NAN);
    b.select(below, nan, r)
}

/// Inverse hyperbolic tangent: log(1 + 2a / (1 - a)) / 2, a = |x|. Not-a-number beyond -1 and 1.
pub fn atanh<B: Builder>(b: &mut B, x: B::V) -> B::V {
    let a = b.abs(x);
    let one = b.float(x, 1.0);
    let double = b.add(a, a);
    let less = b.sub(one, a);
    let u = b.div(double, less);
    let r = log_one_plus(b, u, None);
    let half = b.float(x, 0.5);
    let r = b.mul(r, half);
    let sign = b.float(x, -0.0);
    let sign = b.and(x, sign);
    b.or(r, sign)
}
