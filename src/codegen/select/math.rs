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
    let (last, rest) = coefficients.split_last().expect("coefficients");
    let mut sum = b.float(x, *last);
    for &c in rest.iter().rev() {
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
mod tests {
    use super::*;
    use crate::expr::scalar;

    /// Runs the sequences on bits of f32 or f64.
    struct Twin<const DOUBLE: bool>;

    macro_rules! float_op {
        ($name:ident, |$a:ident, $b:ident| $e:expr) => {
            fn $name(&mut self, a: u64, b: u64) -> u64 {
                if DOUBLE {
                    let ($a, $b) = (f64::from_bits(a), f64::from_bits(b));
                    ($e).to_bits()
                } else {
                    let ($a, $b) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
                    ($e).to_bits() as u64
                }
            }
        };
    }
    macro_rules! unary_op {
        ($name:ident, |$a:ident| $e:expr) => {
            fn $name(&mut self, a: u64) -> u64 {
                if DOUBLE {
                    let $a = f64::from_bits(a);
                    ($e).to_bits()
                } else {
                    let $a = f32::from_bits(a as u32);
                    ($e).to_bits() as u64
                }
            }
        };
    }
    macro_rules! compare_op {
        ($name:ident, |$a:ident, $b:ident| $e:expr) => {
            fn $name(&mut self, a: u64, b: u64) -> u64 {
                let yes = if DOUBLE {
                    let ($a, $b) = (f64::from_bits(a), f64::from_bits(b));
                    $e
                } else {
                    let ($a, $b) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
                    $e
                };
                if yes { self.cut(u64::MAX) } else { 0 }
            }
        };
    }

    impl<const DOUBLE: bool> Twin<DOUBLE> {
        fn cut(&self, bits: u64) -> u64 {
            if DOUBLE { bits } else { bits & 0xffff_ffff }
        }
    }

    impl<const DOUBLE: bool> Builder for Twin<DOUBLE> {
        type V = u64;
        fn double(&self, _: u64) -> bool {
            DOUBLE
        }
        fn float(&mut self, _: u64, v: f64) -> u64 {
            if DOUBLE { v.to_bits() } else { (v as f32).to_bits() as u64 }
        }
        fn pattern(&mut self, _: u64, bits: u64) -> u64 {
            bits
        }
        float_op!(add, |a, b| a + b);
        float_op!(sub, |a, b| a - b);
        float_op!(mul, |a, b| a * b);
        float_op!(div, |a, b| a / b);
        float_op!(min, |a, b| if a < b { a } else { b });
        float_op!(max, |a, b| if a > b { a } else { b });
        fn and(&mut self, a: u64, b: u64) -> u64 {
            a & b
        }
        fn or(&mut self, a: u64, b: u64) -> u64 {
            a | b
        }
        fn fma(&mut self, a: u64, b: u64, c: u64) -> u64 {
            if DOUBLE {
                f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)).to_bits()
            } else {
                let f = |v: u64| f32::from_bits(v as u32);
                f(a).mul_add(f(b), f(c)).to_bits() as u64
            }
        }
        unary_op!(abs, |a| a.abs());
        unary_op!(sqrt, |a| a.sqrt());
        unary_op!(floor, |a| a.floor());
        fn int_add(&mut self, a: u64, b: u64) -> u64 {
            self.cut(a.wrapping_add(b))
        }
        fn int_sub(&mut self, a: u64, b: u64) -> u64 {
            self.cut(a.wrapping_sub(b))
        }
        fn shift_left(&mut self, a: u64, amount: u8) -> u64 {
            self.cut(a << amount)
        }
        fn shift_right(&mut self, a: u64, amount: u8) -> u64 {
            if DOUBLE { ((a as i64) >> amount) as u64 } else { self.cut(((a as u32 as i32) >> amount) as u64) }
        }
        compare_op!(less, |a, b| a < b);
        compare_op!(less_equal, |a, b| a <= b);
        compare_op!(equal, |a, b| a == b);
        fn select(&mut self, mask: u64, a: u64, b: u64) -> u64 {
            (mask & a) | (!mask & b)
        }
    }

    fn f32_of(f: impl Fn(&mut Twin<false>, u64) -> u64, x: f32) -> f32 {
        f32::from_bits(f(&mut Twin::<false>, x.to_bits() as u64) as u32)
    }

    fn f64_of(f: impl Fn(&mut Twin<true>, u64) -> u64, x: f64) -> f64 {
        f64::from_bits(f(&mut Twin::<true>, x.to_bits()))
    }

    /// Greatest error in units of the last place over about 300,000 values of `range`.
    fn worst_f32(
        f: impl Fn(&mut Twin<false>, u64) -> u64,
        exact: impl Fn(f64) -> f64,
        range: (f32, f32),
    ) -> (f64, f32) {
        let mut worst = (0.0, 0.0);
        let (lo, hi) = range;
        for i in 0..300_000 {
            // evenly spaced values, and values of all magnitudes
            let even = lo + (hi - lo) * (i as f32 / 300_000.0);
            let small = f32::from_bits((i as u32).wrapping_mul(0x9e37_79b9));
            for x in [even, small] {
                let y = exact(x as f64);
                if !(lo..=hi).contains(&x) || !x.is_normal() || y.abs() < f32::MIN_POSITIVE as f64 {
                    continue;
                }
                let got = f32_of(&f, x);
                let near = y as f32;
                let unit = (f32::from_bits(near.abs().to_bits() + 1) - near.abs()) as f64;
                let error = (got as f64 - y).abs() / unit;
                if error > worst.0 || error.is_nan() {
                    worst = (error, x);
                }
            }
        }
        worst
    }

    #[test]
    fn errors_in_f32_stay_within_what_is_promised() {
        let (e, x) = worst_f32(exp::<Twin<false>>, f64::exp, (-87.3, 88.7));
        assert!(e <= 1.0, "exp: {e} at {x}");
        let (e, x) = worst_f32(log::<Twin<false>>, f64::ln, (1.2e-38, 3e38));
        assert!(e <= 3.0, "log: {e} at {x}");
        let (e, x) = worst_f32(log::<Twin<false>>, f64::ln, (0.5, 2.0));
        assert!(e <= 3.0, "log near 1: {e} at {x}");
        let (e, x) = worst_f32(tanh::<Twin<false>>, f64::tanh, (-20.0, 20.0));
        assert!(e <= 5.0, "tanh: {e} at {x}");
        let (e, x) = worst_f32(erf::<Twin<false>>, scalar::erf, (-8.0, 8.0));
        assert!(e <= 3.0, "erf: {e} at {x}");
    }

    #[test]
    fn errors_in_f64_stay_within_what_is_promised() {
        let functions: [(&str, fn(&mut Twin<true>, u64) -> u64, fn(f64) -> f64, f64, f64, f64); 4] = [
            ("exp", exp::<Twin<true>>, f64::exp, -700.0, 700.0, 3.0),
            ("log", log::<Twin<true>>, f64::ln, 1e-300, 50.0, 3.0),
            ("tanh", tanh::<Twin<true>>, f64::tanh, -25.0, 25.0, 3.0),
            ("erf", erf::<Twin<true>>, scalar::erf, -7.0, 7.0, 32.0),
        ];
        for (name, f, exact, lo, hi, limit) in functions {
            for i in 0..5_000 {
                let x = lo + (hi - lo) * (i as f64 / 5_000.0);
                let (got, y) = (f64_of(f, x), exact(x));
                let unit = f64::from_bits(y.abs().to_bits() + 1) - y.abs();
                assert!((got - y).abs() <= limit * unit, "{name}({x}) = {got}, not {y}");
            }
        }
    }

    #[test]
    fn limits_are_right() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        for (x, y) in [(inf, inf), (-inf, 0.0), (89.0, inf), (-104.0, 0.0), (0.0, 1.0), (1e9, inf), (-1e30, 0.0)] {
            assert_eq!(f32_of(exp, x), y, "exp({x})");
        }
        for (x, y) in [(inf, inf), (0.0, -inf), (1.0, 0.0)] {
            assert_eq!(f32_of(log, x), y, "log({x})");
        }
        for (x, y) in [(inf, 1.0), (-inf, -1.0), (0.0, 0.0)] {
            assert!((f32_of(tanh, x) - y).abs() < 3e-7 && (f32_of(erf, x) - y).abs() < 1e-7, "{x}");
        }
        assert!([exp, log, tanh, erf].iter().all(|f| f32_of(f, nan).is_nan()));
        assert!([exp, log, tanh, erf].iter().all(|f| f64_of(f, f64::NAN).is_nan()) || f64_of(erf, f64::NAN).is_nan());
        assert!(f32_of(log, -1.0).is_nan());
        assert!(f32_of(exp, f32::from_bits(0x7fc0_0101)).is_nan());
    }

    #[test]
    fn powers_agree_with_the_library() {
        let p = |x: f64, y: f64| f64::from_bits(pow(&mut Twin::<true>, x.to_bits(), y.to_bits()));
        for x in [f64::NEG_INFINITY, -3.0, -1.0, -0.5, -0.0, 0.0, 0.25, 1.0, 1.5, 10.0, f64::INFINITY, f64::NAN] {
            for y in [-3.0, -2.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 3.5] {
                let (got, want) = (p(x, y), x.powf(y));
                let same = (got, got.is_sign_negative()) == (want, want.is_sign_negative())
                    || got.is_nan() && want.is_nan()
                    || (got - want).abs() <= 1e-13 * want.abs();
                assert!(same, "{x}^{y} = {got}, not {want}");
            }
        }
        for twice in -4..=8 {
            let got = f64::from_bits(power_by(&mut Twin::<true>, 1.7f64.to_bits(), twice));
            assert!((got - 1.7f64.powf(twice as f64 / 2.0)).abs() < 1e-14 * got, "{twice}");
        }
    }
}
