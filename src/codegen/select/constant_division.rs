//! Division of integers by constants, without a division: by shifts, by the upper half of a product, or by a product in f64.
//!
//! In: a dividend in lanes and a constant that is not 0. Out: the quotient towards zero, or the remainder with the sign of the
//! divisor. A quotient of n bits is the upper part of a product with 2^s / d rounded up (Granlund and Montgomery, Division by
//! invariant integers using multiplication, 1994), of the magnitude of the dividend, with the sign put back. The interval of the
//! dividend often allows a short factor. Of 64 bits, which have no upper half of a product in lanes, the product in f64 is off by
//! less than one, and the remainder tells by its sign what to correct. A remainder of less than twice the divisor is a difference.

use crate::codegen::select::state::{Selected, Selector, Val};
use crate::codegen::vcode::{Lane, ShiftOp, VBinary, VUnary};
use crate::expr::narrow::Interval;
use crate::expr::{BinaryOp, CompareOp, Expr};
use crate::runtime::DType;

/// `x / divisor` is `x · factor >> shift` for all x up to a limit.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Reciprocal {
    factor: u64,
    shift: u32,
}

/// The reciprocal with the least shift, from `least` on, whose factor is below `factors` and whose products with numbers up to
/// `most` are below `products`.
fn reciprocal(divisor: u64, most: u64, least: u32, factors: u64, products: u64) -> Option<Reciprocal> {
    (least..least + 17).find_map(|shift| {
        let factor = (1u64 << shift).div_ceil(divisor);
        let excess = factor * divisor - (1 << shift);
        let small = factor < factors && factor.checked_mul(most.max(1)).is_some_and(|p| p < products);
        (small && most * excess < 1 << shift).then_some(Reciprocal { factor, shift })
    })
}

/// The reciprocal for lanes of 32 bits, whose products have no more.
fn short_reciprocal(divisor: u64, most: u64) -> Option<Reciprocal> {
    reciprocal(divisor, most, 0, 1 << 32, 1 << 32).or_else(|| reciprocal(divisor, most, 16, 1 << 32, 1 << 32))
}

fn magnitude((low, high): Interval) -> u64 {
    low.unsigned_abs().max(high.unsigned_abs())
}

/// Returns true if lanes as wide as those of the type do for a quotient or a remainder by a constant.
pub fn is_divided_in_lanes(dtype: DType, dividend: Option<Interval>, divisor: i64) -> bool {
    let short = |d| magnitude(d) < 1 << 32 && short_reciprocal(divisor.unsigned_abs(), magnitude(d)).is_some();
    dtype != DType::U64
        && !wraps(dtype, divisor)
        && (divisor.unsigned_abs().is_power_of_two() || dividend.is_some_and(short))
}

/// Returns true where a quotient may be beyond 64 bits: it takes the way of divisors that are not known.
fn wraps(dtype: DType, divisor: i64) -> bool {
    dtype == DType::I64 && divisor == -1
}

/// Quotients below it are off by less than a half after three roundings in f64.
const NEAREST: u64 = 1 << 50;

/// Returns true for dividends that a product in f64 does not divide exactly.
fn is_long(lane: Lane, range: Interval) -> bool {
    lane == Lane::I64 && magnitude(range) >= 1 << 33
}

/// Returns true if a remainder is the dividend or that less the divisor.
fn is_reduced_once(lane: Lane, range: Interval, divisor: i64) -> bool {
    let held = lane == Lane::I64 || lane == Lane::I32 && range.1 <= i32::MAX.into();
    held && divisor > 0 && range.0 >= 0 && range.1 / 2 < divisor
}

impl Selector<'_> {
    /// `a / divisor` or `a % divisor`, the dividend within its interval; `None` for u64, and for divisors that the lanes do not hold.
    pub fn divided_by_constant(&mut self, op: BinaryOp, a: &Expr, divisor: i64) -> Selected<Option<Val>> {
        let range = self.range(a);
        let a = self.value(a)?;
        let lane_bits = 8 * a.lane.bytes() as u32;
        let beyond = lane_bits == 32 && (divisor > i32::MAX.into() || divisor < i32::MIN.into());
        if a.dtype == DType::U64 || beyond || wraps(a.dtype, divisor) {
            return Ok(None);
        }
        let Some(range) = range else { return Ok(None) };
        if op == BinaryOp::Mod && divisor > 0 && divisor.count_ones() == 1 {
            let mask = self.integer_like(a, divisor - 1);
            return Ok(Some(self.vector_binary(VBinary::And, a, mask)));
        }
        if op == BinaryOp::Mod && is_reduced_once(a.lane, range, divisor) {
            let factor = self.integer_like(a, divisor);
            let less = self.vector_binary(VBinary::Sub, a, factor);
            let zero = self.integer_like(a, 0);
            let below = self.vector_compare(CompareOp::Lt, less, zero);
            return Ok(Some(self.vector_select(below, a, less)));
        }
        if is_long(a.lane, range) && !divisor.unsigned_abs().is_power_of_two() {
            return self.long_division(op, a, range, divisor).map(Some);
        }
        let Some(quotient) = self.constant_quotient(a, range, divisor)? else { return Ok(None) };
        // the quotient by -1 of the least number alone is beyond the type
        if op == BinaryOp::Div {
            return if divisor > 0 { Ok(Some(quotient)) } else { self.normalized(quotient).map(Some) };
        }
        let factor = self.integer_like(a, divisor);
        let back = self.vector_binary(VBinary::Mul, quotient, factor);
        let remainder = self.vector_binary(VBinary::Sub, a, back);
        if divisor > 0 && range.0 >= 0 {
            return Ok(Some(remainder));
        }
        let zero = self.integer_like(a, 0);
        let opposite = self.vector_compare(if divisor > 0 { CompareOp::Lt } else { CompareOp::Gt }, remainder, zero);
        let step = self.vector_binary(VBinary::And, Val { lane: a.lane, dtype: a.dtype, ..opposite }, factor);
        Ok(Some(self.vector_binary(VBinary::Add, remainder, step)))
    }

    /// As [`Selector::divided_by_constant`] in lanes of 64 bits, of any dividend.
    fn long_division(&mut self, op: BinaryOp, a: Val, range: Interval, divisor: i64) -> Selected<Val> {
        let size = divisor.unsigned_abs();
        let (mut quotient, mut remainder) = self.nearest_quotient(a, size, magnitude(range))?;
        if magnitude(range) / size >= NEAREST {
            // what the first one leaves is short
            let (more, rest) = self.nearest_quotient(remainder, size, size + (1 << 13))?;
            (quotient, remainder) = (self.vector_binary(VBinary::Add, quotient, more), rest);
        }
        let zero = self.integer_like(a, 0);
        let compare = |s: &mut Self, op, v| Val { dtype: a.dtype, ..s.vector_compare(op, v, zero) };
        if op == BinaryOp::Mod {
            let opposite = compare(self, if divisor > 0 { CompareOp::Lt } else { CompareOp::Gt }, remainder);
            let factor = self.integer_like(a, divisor);
            let moved = self.vector_binary(VBinary::Add, remainder, factor);
            return Ok(self.vector_select(opposite, moved, remainder));
        }
        // towards zero the remainder has the sign of the dividend; a mask is -1
        let below = compare(self, CompareOp::Lt, remainder);
        if range.0 >= 0 {
            quotient = self.vector_binary(VBinary::Add, quotient, below);
        } else {
            let (above, negative) = (compare(self, CompareOp::Gt, remainder), compare(self, CompareOp::Lt, a));
            let less = self.vector_binary(VBinary::AndNot, negative, below);
            let more = self.vector_binary(VBinary::And, negative, above);
            quotient = self.vector_binary(VBinary::Add, quotient, less);
            quotient = self.vector_binary(VBinary::Sub, quotient, more);
        }
        Ok(if divisor > 0 { quotient } else { self.vector_binary(VBinary::Sub, zero, quotient) })
    }

    /// The integer next to the product of `a`, of a magnitude up to `most`, and the inverse in f64, and what `a` has beyond it: less than
    /// the divisor, of either sign, where the quotient is below [`NEAREST`]. Three roundings, of `a`, of the inverse and of the product, are
    /// an error of 3·2^-53 of the quotient; beyond it an error of 3·2^-53 of `a` comes to that. The sum of a quotient below
    /// [`NEAREST`] and 1.5·2^52 is rounded to an integer, which stands in its lowest bits.
    fn nearest_quotient(&mut self, a: Val, divisor: u64, most: u64) -> Selected<(Val, Val)> {
        let wide = self.converted(a, Lane::F64);
        let inverse = self.number(wide, 1.0 / divisor as f64);
        let quotient = if most / divisor < NEAREST {
            const SHIFT: f64 = 1.5 * (1u64 << 52) as f64;
            let shift = self.number(wide, SHIFT);
            let sum = self.fused(wide, inverse, shift, false);
            let bits = self.integer_like(a, SHIFT.to_bits() as i64);
            self.vector_binary(VBinary::Sub, Val { lane: a.lane, dtype: a.dtype, ..sum }, bits)
        } else {
            let product = self.vector_binary(VBinary::Mul, wide, inverse);
            let whole = self.vector_unary(VUnary::Round, product);
            Val { dtype: a.dtype, ..self.converted(whole, a.lane) }
        };
        let factor = self.integer_like(a, divisor as i64);
        let back = self.vector_binary(VBinary::Mul, quotient, factor);
        Ok((quotient, self.vector_binary(VBinary::Sub, a, back)))
    }

    fn integer_like(&mut self, like: Val, v: i64) -> Val {
        Val { reg: self.bits(like.lane, v as u64), uniform: true, ..like }
    }

    fn constant_quotient(&mut self, a: Val, range: Interval, divisor: i64) -> Selected<Option<Val>> {
        let size = divisor.unsigned_abs();
        let positive = range.0 >= 0;
        let quotient = match a.lane {
            _ if size == 1 => a,
            _ if size.is_power_of_two() => self.shifted_towards_zero(a, size.trailing_zeros() as u8, range),
            Lane::I16 | Lane::U16 => {
                self.of_magnitude(a, positive, &mut |s, x| s.word_quotient(x, magnitude(range), size))
            }
            Lane::I32 => match short_reciprocal(size, magnitude(range)) {
                Some(by) => self.of_magnitude(a, positive, &mut |s, x| {
                    let factor = s.integer_like(x, by.factor as i64);
                    let product = s.vector_binary(VBinary::Mul, x, factor);
                    s.shift(ShiftOp::RightLogical, product, by.shift as u8)
                }),
                None => self.quotient_in_f64(a, size)?,
            },
            Lane::I64 => self.quotient_in_f64(a, size)?,
            _ => return Ok(None),
        };
        if divisor > 0 {
            return Ok(Some(quotient));
        }
        let zero = self.integer_like(a, 0);
        Ok(Some(self.vector_binary(VBinary::Sub, zero, quotient)))
    }

    /// `a / 2^bits`. The upper bits of a number that has fewer are its sign.
    fn shifted_towards_zero(&mut self, a: Val, bits: u8, range: Interval) -> Val {
        if range.0 >= 0 {
            return self.shift(ShiftOp::RightLogical, a, bits);
        }
        let lane_bits = 8 * a.lane.bytes() as u8;
        let most = i64::MAX >> (63 + bits - lane_bits);
        let sign = match range.0 > -most && range.1 <= most {
            true => a,
            false => self.shift(ShiftOp::RightArithmetic, a, lane_bits - 1),
        };
        let bias = self.shift(ShiftOp::RightLogical, sign, lane_bits - bits);
        let biased = self.vector_binary(VBinary::Add, a, bias);
        self.shift(ShiftOp::RightArithmetic, biased, bits)
    }

    /// A function of the magnitude of a number that has its sign.
    fn of_magnitude(&mut self, a: Val, positive: bool, f: &mut dyn FnMut(&mut Self, Val) -> Val) -> Val {
        if positive {
            return f(self, a);
        }
        let sign = self.shift(ShiftOp::RightArithmetic, a, 8 * a.lane.bytes() as u8 - 1);
        let size = self.vector_unary(VUnary::Abs, a);
        let result = f(self, size);
        let flipped = self.vector_binary(VBinary::Xor, result, sign);
        self.vector_binary(VBinary::Sub, flipped, sign)
    }

    /// A quotient of numbers without a sign in lanes of 16 bits.
    fn word_quotient(&mut self, x: Val, most: u64, divisor: u64) -> Val {
        let words = Val { lane: Lane::U16, ..x };
        let of = |s: &mut Self, factor: u64| {
            let factor = s.integer_like(words, factor as i64);
            s.vector_binary(VBinary::MulHigh, words, factor)
        };
        let quotient = match reciprocal(divisor, most, 16, 1 << 16, u64::MAX) {
            Some(by) => {
                let upper = of(self, by.factor);
                self.shift(ShiftOp::RightLogical, upper, by.shift as u8 - 16)
            }
            None => {
                // a factor of 17 bits: the highest of them by a sum
                let bits = divisor.next_power_of_two().trailing_zeros();
                let upper = of(self, (1u64 << (16 + bits)).div_ceil(divisor) - (1 << 16));
                let less = self.vector_binary(VBinary::Sub, words, upper);
                let half = self.shift(ShiftOp::RightLogical, less, 1);
                let sum = self.vector_binary(VBinary::Add, half, upper);
                self.shift(ShiftOp::RightLogical, sum, bits as u8 - 1)
            }
        };
        Val { lane: x.lane, ..quotient }
    }

    /// By the inverse rounded up: the product exceeds the quotient by less than what is between it and the next integer, for
    /// dividends of up to 33 bits.
    fn quotient_in_f64(&mut self, a: Val, divisor: u64) -> Selected<Val> {
        let wide = self.converted(a, Lane::F64);
        let inverse = self.number(wide, (1.0 / divisor as f64).next_up());
        let product = self.vector_binary(VBinary::Mul, wide, inverse);
        Ok(self.converted(product, a.lane))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reciprocals_divide_all_numbers_up_to_the_limit() {
        let mut count = 0;
        for divisor in (3..300).chain([1000, 4095, 32767, 32769, 65535]) {
            for most in [100, 255, 2295, 32768, 65535] {
                for by in [reciprocal(divisor, most, 16, 1 << 16, u64::MAX), short_reciprocal(divisor, most)]
                    .into_iter()
                    .flatten()
                {
                    let wrong = (0..=most).find(|x| (x * by.factor) >> by.shift != x / divisor);
                    assert_eq!(wrong, None, "{divisor} {most} {by:?}");
                    count += 1;
                }
            }
        }
        assert!(count > 2000, "{count}");
    }
}
