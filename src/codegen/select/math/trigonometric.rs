//! sin, cos, tan and their inverses.
//!
//! The argument of sin, cos and tan is reduced to `x - n·π/2` by Cody and Waite's method, with π/2 in three parts and fused
//! products: the first difference is exact, so that no digits are lost. That holds for |n| ≤ 2^22 in f32 (|x| up to 6.5e6)
//! and 2^50 in f64. Beyond, results lie between -1 and 1 (those of tan anywhere) but are not those of the argument;
//! infinities give not-a-number.
//!
//! The polynomials are Taylor's, a term longer than fitted ones between -π/4 and π/4; they reach to 1, as far as r goes where n
//! is large and its rounding is not sure. atan: three intervals as
//! in Cephes (S. Moshier), in the middle of which t = (|x| - 1) / (|x| + 1); asin and acos by atan of a quotient of the
//! factors of 1 - x².

use super::{Builder, polynomial};
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, FRAC_PI_4};

/// -1/3!, 1/5!, …: (sin(r) - r) / r³ in r².
const SINE: [f64; 8] = [
    -1.0 / 6.0,
    1.0 / 120.0,
    -1.0 / 5040.0,
    1.0 / 362880.0,
    -1.0 / 39916800.0,
    1.0 / 6227020800.0,
    -1.0 / 1307674368000.0,
    1.0 / 355687428096000.0,
];

/// 1/4!, -1/6!, …: (cos(r) - 1 + r²/2) / r⁴ in r².
const COSINE: [f64; 8] = [
    1.0 / 24.0,
    -1.0 / 720.0,
    1.0 / 40320.0,
    -1.0 / 3628800.0,
    1.0 / 479001600.0,
    -1.0 / 87178291200.0,
    1.0 / 20922789888000.0,
    -1.0 / 6402373705728000.0,
];

/// π/2 in three parts for each format; each is rounded to nearest, the next one holds the rest.
const PARTS_F32: [f64; 3] = [1.5707963705062866, -4.371138828673793e-8, -1.7151245100058848e-15];
const PARTS_F64: [f64; 3] = [FRAC_PI_2, 6.123233995736766e-17, -1.4973849048591833e-33];

/// An angle as `n·π/2 + r`.
struct Reduced<V> {
    /// n in its low bits.
    quadrant: V,
    sin: V,
    cos: V,
}

/// The bits of 1.5 · 2^mantissa are even, so that adding it leaves n in the low bits.
fn reduce<B: Builder>(b: &mut B, x: B::V) -> Reduced<B::V> {
    let double = b.double(x);
    let (parts, magic, terms) = if double { (PARTS_F64, 6755399441055744.0, 8) } else { (PARTS_F32, 12582912.0, 4) };
    let (scale, magic) = (b.float(x, FRAC_2_PI), b.float(x, magic));
    let quadrant = b.fma(x, scale, magic);
    let n = b.sub(quadrant, magic);
    let mut r = x;
    for part in parts {
        let part = b.float(x, -part);
        r = b.fma(n, part, r);
    }
    // beyond the range of the reduction; not-a-number stays, being the second operand
    let (low, high) = (b.float(x, -1.2), b.float(x, 1.2));
    let r = b.min(high, r);
    let r = b.max(low, r);
    let z = b.mul(r, r);
    let p = polynomial(b, z, &SINE[..terms]);
    let rz = b.mul(r, z);
    let sin = b.fma(rz, p, r);
    let q = polynomial(b, z, &COSINE[..terms]);
    let (one, half) = (b.float(x, 1.0), b.float(x, -0.5));
    let zq = b.fma(z, q, half);
    let cos = b.fma(z, zq, one);
    Reduced { quadrant, sin, cos }
}

/// The lowest bit of `bits` in every bit of its lane.
fn spread<B: Builder>(b: &mut B, bits: B::V) -> B::V {
    let top = if b.double(bits) { 63 } else { 31 };
    let shifted = b.shift_left(bits, top);
    b.shift_right(shifted, top)
}

/// `a` with the sign changed where bit 1 of `quadrant` is set.
fn signed<B: Builder>(b: &mut B, a: B::V, quadrant: B::V) -> B::V {
    let to_sign = if b.double(a) { 62 } else { 30 };
    let shifted = b.shift_left(quadrant, to_sign);
    let sign = b.float(a, -0.0);
    let sign = b.and(shifted, sign);
    flip(b, a, sign)
}

/// `a` with the sign changed where `sign`, a bit or nothing, has it.
fn flip<B: Builder>(b: &mut B, a: B::V, sign: B::V) -> B::V {
    let one = b.float(a, 1.0);
    let factor = b.or(sign, one);
    b.mul(a, factor)
}

/// Sine.
pub fn sin<B: Builder>(b: &mut B, x: B::V) -> B::V {
    let Reduced { quadrant, sin, cos } = reduce(b, x);
    let odd = spread(b, quadrant);
    let value = b.select(odd, cos, sin);
    signed(b, value, quadrant)
}

/// Cosine: the sine a quarter of a turn further.
pub fn cos<B: Builder>(b: &mut B, x: B::V) -> B::V {
    let Reduced { quadrant, sin, cos } = reduce(b, x);
    let odd = spread(b, quadrant);
    let value = b.select(odd, sin, cos);
    let one = b.pattern(x, 1);
    let next = b.int_add(quadrant, one);
    signed(b, value, next)
}

/// Tangent: sin/cos, or -cos/sin in odd quadrants.
pub fn tan<B: Builder>(b: &mut B, x: B::V) -> B::V {
    let Reduced { quadrant, sin, cos } = reduce(b, x);
    let odd = spread(b, quadrant);
    let sign = b.float(x, -0.0);
    let sign = b.and(odd, sign);
    let above = b.select(odd, cos, sin);
    let below = b.select(odd, sin, cos);
    let below = flip(b, below, sign);
    b.div(above, below)
}

/// (atan(t) - t) / t³ in t², for |t| ≤ tan(π/8), in f32.
const ATAN_F32: [f64; 5] =
    [-0.3333333181341899, 0.19999550075853273, -0.14264232550905076, 0.1074629841105608, -0.0645937620073922];

/// Arcus tangent.
pub fn atan<B: Builder>(b: &mut B, x: B::V) -> B::V {
    let double = b.double(x);
    let sign = b.float(x, -0.0);
    let sign = b.and(x, sign);
    let a = b.abs(x);
    let (one, minus, zero) = (b.float(x, 1.0), b.float(x, -1.0), b.float(x, 0.0));
    let (inner, outer) = (b.float(x, 0.41421356), b.float(x, 2.41421356));
    let middle = b.less(inner, a);
    let far = b.less(outer, a);
    let (less, more) = (b.sub(a, one), b.add(a, one));
    let above = b.select(middle, less, a);
    let above = b.select(far, minus, above);
    let below = b.select(middle, more, one);
    let below = b.select(far, a, below);
    let t = b.div(above, below);
    let (quarter, half) = (b.float(x, FRAC_PI_4), b.float(x, FRAC_PI_2));
    let base = b.select(middle, quarter, zero);
    let base = b.select(far, half, base);
    let z = b.mul(t, t);
    let p = if double {
        let series: Vec<f64> = (1..22).map(|k| if k % 2 == 0 { 1.0 } else { -1.0 } / (2 * k + 1) as f64).collect();
        polynomial(b, z, &series)
    } else {
        polynomial(b, z, &ATAN_F32)
    };
    let tz = b.mul(t, z);
    let small = b.mul(tz, p);
    // what the rounded π/4 and π/2 leave out
    let half_pi = if double { PARTS_F64[1] } else { PARTS_F32[1] };
    let (quarter, half) = (b.float(x, half_pi / 2.0), b.float(x, half_pi));
    let low = b.select(middle, quarter, zero);
    let low = b.select(far, half, low);
    let small = b.add(small, low);
    let r = b.add(small, t);
    let r = b.add(base, r);
    b.or(r, sign)
}

/// 1 - x and 1 + x: their product is 1 - x² without its cancellation, their quotient the square of a half angle's tangent.
fn factors<B: Builder>(b: &mut B, x: B::V) -> (B::V, B::V) {
    let one = b.float(x, 1.0);
    (b.sub(one, x), b.add(one, x))
}

/// Arcus sine: atan(x / √(1 - x²)). Not-a-number beyond -1 and 1.
pub fn asin<B: Builder>(b: &mut B, x: B::V) -> B::V {
    let (less, more) = factors(b, x);
    let product = b.mul(less, more);
    let root = b.sqrt(product);
    let t = b.div(x, root);
    atan(b, t)
}

/// Arcus cosine: 2·atan(√((1 - x) / (1 + x))). Not-a-number beyond -1 and 1.
pub fn acos<B: Builder>(b: &mut B, x: B::V) -> B::V {
    let (less, more) = factors(b, x);
    let quotient = b.div(less, more);
    let root = b.sqrt(quotient);
    let half = atan(b, root);
    b.add(half, half)
}
