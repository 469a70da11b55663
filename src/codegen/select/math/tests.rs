use super::*;
use crate::codegen::vcode::{Lane, VBinary, arithmetic};
use crate::expr::scalar::number;

/// Runs the sequences on bits of f32 or f64.
/// Where it scales, results beyond the powers of two are as those of the instruction.
struct Twin<const DOUBLE: bool, const SCALES: bool = false>;

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

impl<const DOUBLE: bool, const SCALES: bool> Twin<DOUBLE, SCALES> {
    fn cut(&self, bits: u64) -> u64 {
        if DOUBLE { bits } else { bits & 0xffff_ffff }
    }
}

impl<const DOUBLE: bool, const SCALES: bool> Builder for Twin<DOUBLE, SCALES> {
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
    fn scales(&self) -> bool {
        SCALES
    }
    fn scale(&mut self, a: u64, n: u64) -> u64 {
        let lane = if DOUBLE { Lane::F64 } else { Lane::F32 };
        arithmetic::binary(VBinary::Scale, lane, a, n).unwrap()
    }
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
fn worst_f32(f: impl Fn(&mut Twin<false>, u64) -> u64, exact: impl Fn(f64) -> f64, range: (f32, f32)) -> (f64, f32) {
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
    let (e, x) = worst_f32(erf::<Twin<false>>, number::erf, (-8.0, 8.0));
    assert!(e <= 3.0, "erf: {e} at {x}");
}

/// A function: its name, its sequences for f32 and f64, its definition, a range, greatest errors in f32 and in f64.
type Row = (
    &'static str,
    fn(&mut Twin<false>, u64) -> u64,
    fn(&mut Twin<true>, u64) -> u64,
    fn(f64) -> f64,
    (f32, f32),
    f64,
    f64,
);

macro_rules! row {
    ($name:literal, $f:path, $exact:expr, $range:expr, $single:expr, $double:expr) => {
        (
            $name,
            $f as fn(&mut Twin<false>, u64) -> u64,
            $f as fn(&mut Twin<true>, u64) -> u64,
            $exact,
            $range,
            $single,
            $double,
        )
    };
}

#[test]
fn errors_of_trigonometric_functions_stay_within_what_is_promised() {
    use super::{hyperbolic::*, trigonometric::*};
    let rows: [Row; 12] = [
        row!("sin", sin, f64::sin, (-1e4, 1e4), 2.0, 2.0),
        row!("cos", cos, f64::cos, (-1e4, 1e4), 2.0, 2.0),
        row!("sin of a large angle", sin, f64::sin, (1e6, 6.5e6), 3.0, 2.0),
        row!("tan", tan, f64::tan, (-1e4, 1e4), 4.0, 4.0),
        row!("asin", asin, f64::asin, (-1.0, 1.0), 4.0, 4.0),
        row!("acos", acos, f64::acos, (-1.0, 1.0), 4.0, 4.0),
        row!("atan", atan, f64::atan, (-1e6, 1e6), 2.0, 2.0),
        row!("sinh", sinh, f64::sinh, (-89.4, 89.4), 3.0, 3.0),
        row!("cosh", cosh, f64::cosh, (-89.4, 89.4), 3.0, 3.0),
        row!("asinh", asinh, f64::asinh, (-3e38, 3e38), 5.0, 6.0),
        row!("acosh", acosh, f64::acosh, (1.0, 3e38), 5.0, 6.0),
        row!("atanh", atanh, |x: f64| x.abs().atanh().copysign(x), (-0.9999, 0.9999), 5.0, 6.0),
    ];
    for (name, single, double, exact, range, most, most_double) in rows {
        let (e, x) = worst_f32(single, exact, range);
        assert!(e <= most, "{name}: {e} at {x}");
        // the library's own error counts in f64
        let (low, high) = (f64::from(range.0), f64::from(range.1));
        for i in 1..5_000 {
            let even = low + (high - low) * (f64::from(i) / 5_000.0);
            for x in [even, even * 1e-3, even * 1e-9] {
                let (got, y) = (f64_of(double, x), exact(x));
                let unit = f64::from_bits(y.abs().to_bits() + 1) - y.abs();
                let fits = (got - y).abs() <= most_double * unit || !y.is_finite();
                assert!(fits, "{name}({x}) = {got}, not {y}");
            }
        }
    }
}

#[test]
fn trigonometric_functions_have_the_right_limits() {
    use super::{hyperbolic::*, trigonometric::*};
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let half = std::f32::consts::FRAC_PI_2;
    for (name, got, x, want) in [
        ("sin", f32_of(sin, inf), inf, nan),
        ("cos", f32_of(cos, -inf), -inf, nan),
        ("tan", f32_of(tan, nan), nan, nan),
        ("cos", f32_of(cos, 0.0), 0.0, 1.0),
        ("atan", f32_of(atan, inf), inf, half),
        ("atan", f32_of(atan, -inf), -inf, -half),
        ("asin", f32_of(asin, 1.0), 1.0, half),
        ("asin", f32_of(asin, -1.0), -1.0, -half),
        ("asin", f32_of(asin, 1.5), 1.5, nan),
        ("acos", f32_of(acos, 1.0), 1.0, 0.0),
        ("acos", f32_of(acos, -1.0), -1.0, 2.0 * half),
        ("acos", f32_of(acos, -1.5), -1.5, nan),
        ("sinh", f32_of(sinh, inf), inf, inf),
        ("sinh", f32_of(sinh, -90.0), -90.0, -inf),
        ("cosh", f32_of(cosh, -inf), -inf, inf),
        ("cosh", f32_of(cosh, 0.0), 0.0, 1.0),
        ("asinh", f32_of(asinh, -inf), -inf, -inf),
        ("acosh", f32_of(acosh, inf), inf, inf),
        ("acosh", f32_of(acosh, 1.0), 1.0, 0.0),
        ("acosh", f32_of(acosh, 0.5), 0.5, nan),
        ("acosh", f32_of(acosh, -1e9), -1e9, nan),
        ("atanh", f32_of(atanh, 1.0), 1.0, inf),
        ("atanh", f32_of(atanh, -1.0), -1.0, -inf),
        ("atanh", f32_of(atanh, 2.0), 2.0, nan),
        ("sinh", f32_of(sinh, nan), nan, nan),
        ("atan", f32_of(atan, nan), nan, nan),
        ("asinh", f32_of(asinh, nan), nan, nan),
    ] {
        assert!(got == want || got.is_nan() && want.is_nan(), "{name}({x}) = {got}, not {want}");
    }
}

#[test]
fn errors_in_f64_stay_within_what_is_promised() {
    let functions: [(&str, fn(&mut Twin<true>, u64) -> u64, fn(f64) -> f64, f64, f64, f64); 4] = [
        ("exp", exp::<Twin<true>>, f64::exp, -700.0, 700.0, 3.0),
        ("log", log::<Twin<true>>, f64::ln, 1e-300, 50.0, 3.0),
        ("tanh", tanh::<Twin<true>>, f64::tanh, -25.0, 25.0, 3.0),
        ("erf", erf::<Twin<true>>, number::erf, -7.0, 7.0, 32.0),
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

#[test]
fn exp_by_powers_of_two_is_exp() {
    let mut worst = 0.0f64;
    for i in 0..1 << 20 {
        let x = f32::from_bits((i as u32).wrapping_mul(0x9e37_79b9));
        let even = -88.0 + i as f32 * (178.0 / (1 << 20) as f32);
        for x in [x, even, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 88.8, -87.4, f32::MAX, f32::MIN] {
            let got = f32::from_bits(exp(&mut Twin::<false, true>, x.to_bits().into()) as u32);
            let by_bits = f32_of(exp::<Twin<false>>, x);
            let exact = f64::from(x).exp();
            let near_least = (exact / f64::from(f32::MIN_POSITIVE) - 1.0).abs() < 1e-5;
            assert!(
                got.to_bits() == by_bits.to_bits() || got.is_nan() && by_bits.is_nan() || near_least,
                "{x:e}: {got:e} {by_bits:e}"
            );
            worst = worst.max(if got.is_normal() { (f64::from(got) - exact).abs() / exact } else { 0.0 });
        }
    }
    assert!(worst < 1.2e-7, "{worst}");
    for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, 1.0, -700.0, 700.0, 710.0, -710.0, f64::MAX, 0.3, -17.25]
    {
        let got = f64::from_bits(exp(&mut Twin::<true, true>, x.to_bits()));
        let by_bits = f64_of(exp::<Twin<true>>, x);
        assert!(got.to_bits() == by_bits.to_bits() || got.is_nan() && by_bits.is_nan(), "{x:e}: {got:e} {by_bits:e}");
    }
}
