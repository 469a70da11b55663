//! exp, log, tanh, erf and pow as sequences of vector operations.
//!
//! The sequences are written once over a [`Builder`]: instruction selection builds vector instructions from them, the tests
//! run them on Rust floats against f64. Greatest errors in f32: exp 1, log 3, tanh 5, erf 3 units in the last place; pow is
//! computed in f64. In f64: exp, log and tanh 3, erf 32 units.
//!
//! Not-a-number stays not-a-number, infinities give the limits. Subnormal results of exp are 0, subnormal operands of log
//! count as 0.
//!
//! exp: 2^n · e^r with a Chebyshev polynomial; log: the series of artanh((m-1)/(m+1)); tanh: Eigen's rational
//! approximation; erf: polynomial and 1 - exp(polynomial) after N. Juffa.

pub mod hyperbolic;
pub mod trigonometric;

use crate::expr::scalar::Value;
use crate::expr::{Expr, Scalar};

/// Operations on vectors of f32 or of f64. Masks are values too.
pub trait Builder {
    type V: Copy;
    /// Returns true if the lanes of `like` are f64.
    fn double(&self, like: Self::V) -> bool;
    /// A constant of the type of `like`.
    fn float(&mut self, like: Self::V, v: f64) -> Self::V;
    /// A constant given by its bits.
    fn pattern(&mut self, like: Self::V, bits: u64) -> Self::V;
    fn add(&mut self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(&mut self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(&mut self, a: Self::V, b: Self::V) -> Self::V;
    fn div(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// The second operand where the operands do not compare.
    fn min(&mut self, a: Self::V, b: Self::V) -> Self::V;
    fn max(&mut self, a: Self::V, b: Self::V) -> Self::V;
    fn and(&mut self, a: Self::V, b: Self::V) -> Self::V;
    fn or(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// `a·b + c`, rounded once.
    fn fma(&mut self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    fn abs(&mut self, a: Self::V) -> Self::V;
    fn sqrt(&mut self, a: Self::V) -> Self::V;
    /// Returns true if an instruction multiplies with powers of two.
    fn scales(&self) -> bool {
        false
    }
    /// `a·2^n` for a whole `n`, zero where that is not normal; of builders that [scale](Builder::scales).
    fn scale(&mut self, a: Self::V, _n: Self::V) -> Self::V {
        a
    }
    fn floor(&mut self, a: Self::V) -> Self::V;
    /// On the bits as integers.
    fn int_add(&mut self, a: Self::V, b: Self::V) -> Self::V;
    fn int_sub(&mut self, a: Self::V, b: Self::V) -> Self::V;
    fn shift_left(&mut self, a: Self::V, amount: u8) -> Self::V;
    /// Arithmetic.
    fn shift_right(&mut self, a: Self::V, amount: u8) -> Self::V;
    fn less(&mut self, a: Self::V, b: Self::V) -> Self::V;
    fn less_equal(&mut self, a: Self::V, b: Self::V) -> Self::V;
    fn equal(&mut self, a: Self::V, b: Self::V) -> Self::V;
    fn select(&mut self, mask: Self::V, a: Self::V, b: Self::V) -> Self::V;
}

/// `c[0] + c[1]·x + …`.
fn polynomial<B: Builder>(b: &mut B, x: B::V, coefficients: &[f64]) -> B::V {
    let (last, lower) = coefficients.split_last().expect("coefficients");
    let mut sum = b.float(x, *last);
    for &c in lower.iter().rev() {
        let c = b.float(x, c);
        sum = b.fma(sum, x, c);
    }
    sum
}

/// Constants that differ between f32 and f64.
struct Format {
    mantissa: u8,
    /// 1.5 · 2^mantissa: adding it rounds to an integer, which then stands in the low bits.
    magic: f64,
    /// ln 2 in two parts; multiples of the first are exact.
    ln2: (f64, f64),
    /// Bounds beyond which exp overflows, and below which its result is not normal.
    exp_limits: (f64, f64),
    least_normal: f64,
    infinity_bits: u64,
}

const F32: Format = Format {
    mantissa: 23,
    magic: 12582912.0,
    ln2: (0.693145751953125, 1.428606765330187e-6),
    exp_limits: (88.722_84, -87.336_54),
    least_normal: f32::MIN_POSITIVE as f64,
    infinity_bits: 0x7f80_0000,
};

const F64: Format = Format {
    mantissa: 52,
    magic: 6755399441055744.0,
    ln2: (0.693147180369123816490, 1.90821492927058770002e-10),
    exp_limits: (709.782712893384, -708.396418532264),
    least_normal: f64::MIN_POSITIVE,
    infinity_bits: 0x7ff0_0000_0000_0000,
};

fn format<B: Builder>(b: &B, like: B::V) -> &'static Format {
    if b.double(like) { &F64 } else { &F32 }
}

/// (e^r - 1) / r for |r| ≤ ln(2)/2 in f32.
const EXP_F32: [f64; 6] =
    [1.0, 0.5, 0.16666504740715027, 0.04166635125875473, 0.008369223214685917, 0.001394121558405459];

/// 1/(k+1)!.
const EXP_F64: [f64; 13] = [
    1.0,
    1.0 / 2.0,
    1.0 / 6.0,
    1.0 / 24.0,
    1.0 / 120.0,
    1.0 / 720.0,
    1.0 / 5040.0,
    1.0 / 40320.0,
    1.0 / 362880.0,
    1.0 / 3628800.0,
    1.0 / 39916800.0,
    1.0 / 479001600.0,
    1.0 / 6227020800.0,
];

/// `x = n·ln 2 + r`: r, the polynomial (e^r - 1) / r, and n in the low bits.
fn reduce<B: Builder>(b: &mut B, x: B::V) -> (B::V, B::V, B::V) {
    let f = format(b, x);
    let (log2e, magic) = (b.float(x, std::f64::consts::LOG2_E), b.float(x, f.magic));
    let shifted = b.fma(x, log2e, magic);
    let n = b.sub(shifted, magic);
    let (high, low) = (b.float(x, -f.ln2.0), b.float(x, -f.ln2.1));
    let r = b.fma(n, high, x);
    let r = b.fma(n, low, r);
    let q = polynomial(b, r, if f.mantissa == 52 { &EXP_F64 } else { &EXP_F32 });
    (r, q, shifted)
}

/// e^x.
pub fn exp<B: Builder>(b: &mut B, x: B::V) -> B::V {
    let f = format(b, x);
    if b.scales() {
        // beyond these the power of two alone makes the result infinite or zero; not-a-number stays
        let (high, low) = (b.float(x, f.exp_limits.0 + 4.0), b.float(x, f.exp_limits.1 - 4.0));
        let x = b.min(high, x);
        let x = b.max(low, x);
        let (r, q, shifted) = reduce(b, x);
        let (one, magic) = (b.float(x, 1.0), b.float(x, f.magic));
        let p = b.fma(q, r, one);
        let n = b.sub(shifted, magic);
        return b.scale(p, n);
    }
    let (r, q, n) = reduce(b, x);
    let one = b.float(x, 1.0);
    let p = b.fma(q, r, one);
    let n = b.shift_left(n, f.mantissa);
    let scaled = b.int_add(p, n);
    let (high, low) = (b.float(x, f.exp_limits.0), b.float(x, f.exp_limits.1));
    let normal = b.less_equal(low, x);
    let result = b.and(scaled, normal);
    let finite = b.less_equal(x, high);
    // infinity for what is too large, not-a-number for itself
    let infinity = b.float(x, f64::INFINITY);
    let beyond = b.mul(x, infinity);
    b.select(finite, result, beyond)
}

/// e^x - 1 for 0 ≤ x, finite results.
fn exp_minus_one<B: Builder>(b: &mut B, x: B::V) -> B::V {
    let f = format(b, x);
    let (r, q, n) = reduce(b, x);
    let n = b.shift_left(n, f.mantissa);
    let one = b.float(x, 1.0);
    let scale = b.int_add(one, n);
    let qr = b.mul(q, r);
    let less = b.sub(scale, one);
    b.fma(qr, scale, less)
}

/// Natural logarithm.
pub fn log<B: Builder>(b: &mut B, x: B::V) -> B::V {
    let f = format(b, x);
    let one = b.float(x, 1.0);
    // x = 2^n · m with √½ ≤ m < √2
    let root = b.float(x, std::f64::consts::FRAC_1_SQRT_2);
    let offset = b.int_sub(x, root);
    let exponent = b.shift_right(offset, f.mantissa);
    let shifted = b.shift_left(exponent, f.mantissa);
    let m = b.int_sub(x, shifted);
    // the integer n as a float, by the magic constant
    let magic = b.float(x, f.magic);
    let n = b.int_add(exponent, magic);
    let n = b.sub(n, magic);
    let (numerator, denominator) = (b.sub(m, one), b.add(m, one));
    let s = b.div(numerator, denominator);
    let z = b.mul(s, s);
    let terms = if f.mantissa == 52 { 11 } else { 5 };
    let series: Vec<f64> = (1..terms).map(|k| 2.0 / (2 * k + 1) as f64).collect();
    let q = polynomial(b, z, &series);
    // 2s + s·z·q, with the exact part of n·ln 2 added last
    let zq = b.mul(z, q);
    let (high, low) = (b.float(x, f.ln2.0), b.float(x, f.ln2.1));
    let tail = b.mul(n, low);
    let tail = b.fma(s, zq, tail);
    let two = b.add(s, s);
    let sum = b.add(two, tail);
    let result = b.fma(n, high, sum);
    let (zero, infinity) = (b.float(x, 0.0), b.pattern(x, f.infinity_bits));
    let finite = b.less(x, infinity);
    let result = b.select(finite, result, x);
    let least = b.float(x, f.least_normal);
    let small = b.less(x, least);
    let bottom = b.float(x, f64::NEG_INFINITY);
    let result = b.select(small, bottom, result);
    let negative = b.less(x, zero);
    let nan = b.float(x, f64::NAN);
    b.select(negative, nan, result)
}

/// Hyperbolic tangent.
pub fn tanh<B: Builder>(b: &mut B, x: B::V) -> B::V {
    if b.double(x) {
        let sign = b.float(x, -0.0);
        let sign = b.and(x, sign);
        let a = b.abs(x);
        let limit = b.float(x, 20.0);
        let a = b.min(limit, a);
        let a = b.add(a, a);
        let e = exp_minus_one(b, a);
        let two = b.float(x, 2.0);
        let below = b.add(e, two);
        let t = b.div(e, below);
        return b.or(t, sign);
    }
    let (high, low) = (b.float(x, 7.90531110763549805), b.float(x, -7.90531110763549805));
    let clamped = b.min(high, x);
    let clamped = b.max(low, clamped);
    let z = b.mul(clamped, clamped);
    let p = polynomial(
        b,
        z,
        &[
            4.89352455891786e-03,
            6.37261928875436e-04,
            1.48572235717979e-05,
            5.12229709037114e-08,
            -8.60467152213735e-11,
            2.00018790482477e-13,
            -2.76076847742355e-16,
        ],
    );
    let q = polynomial(b, z, &[4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839466702e-06]);
    let p = b.mul(clamped, p);
    let ratio = b.div(p, q);
    let tiny = b.float(x, 4e-4);
    let a = b.abs(x);
    let small = b.less(a, tiny);
    b.select(small, x, ratio)
}

/// The error function.
pub fn erf<B: Builder>(b: &mut B, x: B::V) -> B::V {
    let sign = b.float(x, -0.0);
    let sign = b.and(x, sign);
    let a = b.abs(x);
    if b.double(x) {
        // 2/√π · exp(-a²) · a · (1 + z/3 · (1 + z/5 · …)), z = 2a²
        let limit = b.float(x, 6.0);
        let a = b.min(limit, a);
        let square = b.mul(a, a);
        let z = b.add(square, square);
        let one = b.float(x, 1.0);
        let mut sum = one;
        for k in (1..150).rev() {
            let inverse = b.float(x, 1.0 / (2 * k + 1) as f64);
            let zk = b.mul(z, inverse);
            sum = b.fma(zk, sum, one);
        }
        let zero = b.float(x, 0.0);
        let minus = b.sub(zero, square);
        let e = exp(b, minus);
        let scale = b.float(x, std::f64::consts::FRAC_2_SQRT_PI);
        let scaled = b.mul(a, scale);
        let e = b.mul(e, scaled);
        let r = b.mul(e, sum);
        let r = b.min(one, r);
        return b.or(r, sign);
    }
    let z = b.mul(a, a);
    let near = polynomial(
        b,
        z,
        &[1.28379166e-1, -3.76125336e-1, 1.12819925e-1, -2.67681349e-2, 4.99119423e-3, -5.96761703e-4],
    );
    let near = b.fma(near, a, a);
    let far = polynomial(
        b,
        a,
        &[-1.28717512e-1, -6.34846687e-1, -1.06777877e-1, 2.42546219e-2, -3.88396438e-3, 3.83197126e-4, -1.72853470e-5],
    );
    let zero = b.float(x, 0.0);
    let minus = b.sub(zero, a);
    let far = b.fma(far, a, minus);
    let e = exp(b, far);
    let one = b.float(x, 1.0);
    let far = b.sub(one, e);
    let border = b.float(x, 0.921875);
    let is_near = b.less(a, border);
    let r = b.select(is_near, near, far);
    b.or(r, sign)
}

/// `x^y` for f64. Negative bases have powers with whole exponents only.
pub fn pow<B: Builder>(b: &mut B, x: B::V, y: B::V) -> B::V {
    let (zero, one) = (b.float(x, 0.0), b.float(x, 1.0));
    let a = b.abs(x);
    let l = log(b, a);
    let t = b.mul(y, l);
    let r = exp(b, t);
    // an odd power has the sign of its base; broken powers of a finite negative base do not exist
    let negative = b.less(x, zero);
    let floor = b.floor(y);
    let whole = b.equal(floor, y);
    let half = b.float(x, 0.5);
    let halved = b.mul(y, half);
    let floor = b.floor(halved);
    let even = b.equal(floor, halved);
    let sign = b.float(x, -0.0);
    let sign = b.and(x, sign);
    let flipped = b.or(r, sign);
    let signed = b.select(even, r, flipped);
    let nan = b.float(x, f64::NAN);
    let infinite_base = b.pattern(x, F64.infinity_bits);
    let finite = b.less(a, infinite_base);
    let broken = b.select(finite, nan, r);
    let broken = b.select(negative, broken, r);
    let r = b.select(whole, signed, broken);
    // x^0 and 1^y are 1 even of not-a-number
    let no_power = b.equal(y, zero);
    let unit = b.equal(x, one);
    let is_one = b.or(no_power, unit);
    b.select(is_one, one, r)
}

/// A constant exponent that needs no logarithm: twice the exponent, from -4 to 8.
pub fn simple_power(exponent: &Expr) -> Option<i64> {
    let Expr::Const(s) = exponent else { return None };
    let twice = 2.0 * Value::from(Scalar { ..*s }).as_f64();
    (twice.fract() == 0.0 && (-4.0..=8.0).contains(&twice)).then_some(twice as i64)
}

/// `x^(twice/2)` by products, a square root and a quotient.
pub fn power_by<B: Builder>(b: &mut B, x: B::V, twice: i64) -> B::V {
    let one = b.float(x, 1.0);
    let mut result = None;
    let mut multiply = |b: &mut B, factor: B::V| {
        result = Some(result.map_or(factor, |r| b.mul(r, factor)));
    };
    let whole = twice.abs() / 2;
    let mut square = x;
    for bit in 0..3 {
        if whole >> bit & 1 == 1 {
            multiply(b, square);
        }
        if whole >> (bit + 1) != 0 {
            square = b.mul(square, square);
        }
    }
    if twice % 2 != 0 {
        let root = b.sqrt(x);
        multiply(b, root);
    }
    match result {
        None => one,
        Some(r) if twice < 0 => b.div(one, r),
        Some(r) => r,
    }
}

#[cfg(test)]
mod tests;
