//! Intervals of numbers of floating point.
//!
//! In: intervals of operands. Out: one with every value that an operation has, in whatever order sums and products are taken: extremes,
//! magnitudes and roundings to integers keep the order of numbers and are exact, sums, products and quotients have room for the rounding of each way to compute them.
//! Values that may be infinite, or are of 16 bits, are unknown until a minimum or a maximum limits them. Invariant: a value outside of the interval is not-a-number, and only where that is said.

use crate::expr::{BinaryOp, UnaryOp};
use crate::runtime::DType;

/// Values from `low` to `high`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FloatInterval {
    pub low: f64,
    pub high: f64,
    pub may_be_nan: bool,
}

/// Rounding errors of a sum or a product, relative to its operands, with room for other orders; `None` for types whose operations are not looked at.
fn error(dtype: DType) -> Option<f64> {
    match dtype {
        DType::F32 => Some(f64::from_bits((1023 - 20) << 52)),
        DType::F64 => Some(f64::from_bits((1023 - 48) << 52)),
        _ => None,
    }
}

/// The largest magnitude of which sums and products are sure to be finite.
fn limit(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e300 } else { 1e36 }
}

/// More than the rounding errors of numbers that are near to 0.
fn tiny(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-300 } else { 1e-37 }
}

/// The error of quotients and functions, relative to the result: some are approximations.
const APPROXIMATION: f64 = 1.0 / 1024.0;

impl FloatInterval {
    /// Nothing is known.
    pub const ANY: FloatInterval = FloatInterval { low: f64::NEG_INFINITY, high: f64::INFINITY, may_be_nan: true };

    pub fn constant(v: f64) -> FloatInterval {
        if v.is_nan() { FloatInterval::ANY } else { FloatInterval { low: v, high: v, may_be_nan: false } }
    }

    /// The smallest that has both.
    pub fn hull(self, other: FloatInterval) -> FloatInterval {
        let may_be_nan = self.may_be_nan || other.may_be_nan;
        FloatInterval { low: self.low.min(other.low), high: self.high.max(other.high), may_be_nan }
    }

    /// Integers converted to a type.
    pub fn of_integers((low, high): (i64, i64), dtype: DType) -> FloatInterval {
        FloatInterval { low: low as f64, high: high as f64, may_be_nan: false }.rounded_to(dtype)
    }

    /// The values, rounded to a type.
    pub fn rounded_to(self, dtype: DType) -> FloatInterval {
        let most = self.magnitude();
        match error(dtype) {
            // integers of 24 bits are exact
            Some(_) if self.low.fract() == 0.0 && self.high.fract() == 0.0 && most <= 16_777_216.0 => self,
            Some(error) if most < limit(dtype) => self.widened(error * most),
            _ => FloatInterval::ANY,
        }
    }

    /// The integers that a conversion in a range makes of the values: toward zero, and 0 of not-a-number.
    pub fn to_integers(self, (least, most): (i64, i64)) -> (i64, i64) {
        let (low, high) = ((self.low as i64).clamp(least, most), (self.high as i64).clamp(least, most));
        if self.may_be_nan { (low.min(0), high.max(0)) } else { (low, high) }
    }

    pub fn unary(self, op: UnaryOp, dtype: DType) -> FloatInterval {
        let FloatInterval { low, high, may_be_nan } = self;
        let monotone = |f: fn(f64) -> f64| FloatInterval { low: f(low), high: f(high), may_be_nan };
        let limited = |most: f64| FloatInterval { low: -most, high: most, may_be_nan };
        match op {
            UnaryOp::Neg => FloatInterval { low: -high, high: -low, may_be_nan },
            UnaryOp::Abs if low >= 0.0 => self,
            UnaryOp::Abs => FloatInterval { low: (-high).max(0.0), high: high.max(-low), may_be_nan },
            UnaryOp::Floor => monotone(f64::floor),
            UnaryOp::Ceil => monotone(f64::ceil),
            UnaryOp::Round => monotone(f64::round_ties_even),
            _ if error(dtype).is_none() => FloatInterval::ANY,
            UnaryOp::Sqrt if low >= 0.0 && high < limit(dtype) => FloatInterval {
                low: low.sqrt() * (1.0 - APPROXIMATION),
                high: high.sqrt() * (1.0 + APPROXIMATION),
                may_be_nan,
            },
            UnaryOp::Sin | UnaryOp::Cos if self.magnitude() < limit(dtype) => limited(1.0 + APPROXIMATION),
            UnaryOp::Tanh | UnaryOp::Erf => limited(1.0 + APPROXIMATION),
            _ => FloatInterval::ANY,
        }
    }

    pub fn binary(self, op: BinaryOp, other: FloatInterval, dtype: DType) -> FloatInterval {
        let (x, y) = (self, other);
        let may_be_nan = x.may_be_nan || y.may_be_nan;
        match op {
            BinaryOp::Min => return FloatInterval { high: x.high.min(y.high), ..x.hull(y) }.with_other(x, y),
            BinaryOp::Max => return FloatInterval { low: x.low.max(y.low), ..x.hull(y) }.with_other(x, y),
            _ => {}
        }
        let Some(error) = error(dtype) else { return FloatInterval::ANY };
        let (a, b) = (x.magnitude(), y.magnitude());
        let between = |ends: &[f64]| FloatInterval {
            low: ends.iter().copied().fold(f64::INFINITY, f64::min),
            high: ends.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            may_be_nan,
        };
        let corners =
            |f: fn(f64, f64) -> f64| between(&[f(x.low, y.low), f(x.low, y.high), f(x.high, y.low), f(x.high, y.high)]);
        // no way to compute it changes a sign that its operands give
        let (exact, room, signs) = match op {
            BinaryOp::Add => (between(&[x.low + y.low, x.high + y.high]), error * (a + b), [x.sign(), y.sign()]),
            BinaryOp::Sub => {
                (between(&[x.low - y.high, x.high - y.low]), error * (a + b), [x.sign(), y.sign().map(|s| -s)])
            }
            BinaryOp::Mul => (corners(|x, y| x * y), error * a * b, [x.sign().zip(y.sign()).map(|(s, t)| s * t); 2]),
            BinaryOp::Div if y.low > 1e-30 || y.high < -1e-30 => {
                let exact = corners(|x, y| x / y);
                (exact, APPROXIMATION * exact.magnitude(), [x.sign().zip(y.sign()).map(|(s, t)| s * t); 2])
            }
            _ => return FloatInterval::ANY,
        };
        if a.max(b).max(exact.magnitude()) >= limit(dtype) {
            return FloatInterval::ANY;
        }
        let out = exact.widened(room + tiny(dtype));
        match signs {
            [Some(1), Some(1)] => FloatInterval { low: out.low.max(0.0), ..out },
            [Some(-1), Some(-1)] => FloatInterval { high: out.high.min(0.0), ..out },
            _ => out,
        }
    }

    /// An extreme of two values, which beside not-a-number may be the other one.
    fn with_other(self, x: FloatInterval, y: FloatInterval) -> FloatInterval {
        let others = [(x, y), (y, x)].into_iter().filter(|(a, _)| a.may_be_nan);
        others.fold(self, |out, (_, other)| out.hull(other))
    }

    /// 1 where no value is negative, -1 where none is positive.
    fn sign(self) -> Option<i8> {
        match self {
            FloatInterval { low, .. } if low >= 0.0 => Some(1),
            FloatInterval { high, .. } if high <= 0.0 => Some(-1),
            _ => None,
        }
    }

    fn magnitude(self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    fn widened(self, by: f64) -> FloatInterval {
        FloatInterval { low: self.low - by, high: self.high + by, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(low: f64, high: f64) -> FloatInterval {
        FloatInterval { low, high, may_be_nan: false }
    }

    /// Operations of numbers in intervals are in the intervals of the operations, fused and in other orders too.
    #[test]
    fn operations_stay_inside() {
        let ends = [-300.7f32, -1.0, -0.001, 0.0, 1e-20, 0.3, 1.0, 511.5, 1e7];
        let ops = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Min, BinaryOp::Max];
        for (i, &a) in ends.iter().enumerate() {
            for &b in &ends[i..] {
                for (j, &c) in ends.iter().enumerate() {
                    for &d in &ends[j..] {
                        let (x, y) = (interval(a.into(), b.into()), interval(c.into(), d.into()));
                        for op in ops {
                            let range = x.binary(op, y, DType::F32);
                            for (p, q) in [(a, c), (a, d), (b, c), (b, d), ((a + b) / 2.0, (c + d) / 2.0)] {
                                let v = match op {
                                    BinaryOp::Add => p + q,
                                    BinaryOp::Sub => p - q,
                                    BinaryOp::Mul => p * q,
                                    BinaryOp::Div => p / q,
                                    BinaryOp::Min => p.min(q),
                                    _ => p.max(q),
                                };
                                let inside = range.low <= v.into() && f64::from(v) <= range.high;
                                assert!(inside || v.is_nan() && range.may_be_nan, "{op:?} {p} {q}: {v} {range:?}");
                            }
                        }
                    }
                }
            }
        }
        // a product and a sum, rounded once, and a product over a sum
        let (x, y) = (interval(0.0, 3.0), interval(-1.0, 1.0 / 3.0));
        let fused = x.binary(BinaryOp::Mul, y, DType::F32).binary(BinaryOp::Add, x, DType::F32);
        let v = 3.0f32.mul_add(1.0 / 3.0, 3.0);
        assert!(f64::from(v) <= fused.high && fused.high < 4.0001);
    }

    #[test]
    fn extremes_limit_what_is_unknown() {
        let any = FloatInterval::ANY;
        let most = FloatInterval::constant(f64::from(512.0f32 - 1.001));
        let limited = any.binary(BinaryOp::Min, most, DType::F32);
        let x = limited.binary(BinaryOp::Max, FloatInterval::constant(0.0), DType::F32);
        assert_eq!(x.to_integers((-1000, 1000)), (0, 510));
        // not-a-number is 0 as an integer
        let above = x.binary(BinaryOp::Max, FloatInterval::constant(7.0), DType::F32);
        assert_eq!(above.to_integers((-1000, 1000)), (0, 510));
        assert_eq!(limited.to_integers((-1000, 1000)), (-1000, 510));
        // beside not-a-number an extreme is the other operand
        assert_eq!(any.binary(BinaryOp::Max, any.binary(BinaryOp::Min, most, DType::F32), DType::F32), any);
        let other = x.binary(BinaryOp::Min, FloatInterval::constant(1000.0), DType::F32);
        assert_eq!(other.to_integers((-1000, 1000)), (0, 1000));
        // a product that is not negative is not below 0
        let scaled = FloatInterval::of_integers((0, 799), DType::F32);
        let scaled = scaled.binary(BinaryOp::Mul, FloatInterval::constant(0.037f32.into()), DType::F32);
        assert_eq!(scaled.unary(UnaryOp::Floor, DType::F32).to_integers((-1000, 1000)), (0, 29));
        // beyond the numbers of the type there are infinities, and differences of these
        assert_eq!(interval(0.0, 1e38).binary(BinaryOp::Mul, interval(0.0, 10.0), DType::F32), any);
        assert_eq!(any.binary(BinaryOp::Sub, any, DType::F32), any);
        assert_eq!(interval(1.0, 2.0).binary(BinaryOp::Add, interval(1.0, 2.0), DType::F16), any);
    }
}
