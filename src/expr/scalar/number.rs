//! The operations on the Rust types that elements are computed in, and the conversions of halves.

use crate::expr::{BinaryOp, UnaryOp};

/// The operations on a Rust type that elements are computed in.
pub trait Number: Copy + PartialOrd {
    const ZERO: Self;
    /// `None` where the operation does not exist for the type.
    fn unary(op: UnaryOp, a: Self) -> Option<Self>;
    fn binary(op: BinaryOp, a: Self, b: Self) -> Option<Self>;
}

macro_rules! float_number {
    ($t:ty) => {
        impl Number for $t {
            const ZERO: $t = 0.0;
            #[inline(always)]
            fn unary(op: UnaryOp, a: $t) -> Option<$t> {
                Some(match op {
                    UnaryOp::Neg => -a,
                    UnaryOp::Abs => a.abs(),
                    UnaryOp::Sqrt => a.sqrt(),
                    UnaryOp::Exp => (a as f64).exp() as $t,
                    UnaryOp::Log => (a as f64).ln() as $t,
                    UnaryOp::Tanh => (a as f64).tanh() as $t,
                    UnaryOp::Erf => erf(a as f64) as $t,
                    UnaryOp::Floor => a.floor(),
                    UnaryOp::Ceil => a.ceil(),
                    UnaryOp::Round => a.round_ties_even(),
                    UnaryOp::Sin => (a as f64).sin() as $t,
                    UnaryOp::Cos => (a as f64).cos() as $t,
                    UnaryOp::Tan => (a as f64).tan() as $t,
                    UnaryOp::Asin => (a as f64).asin() as $t,
                    UnaryOp::Acos => (a as f64).acos() as $t,
                    UnaryOp::Atan => (a as f64).atan() as $t,
                    UnaryOp::Sinh => (a as f64).sinh() as $t,
                    UnaryOp::Cosh => (a as f64).cosh() as $t,
                    UnaryOp::Asinh => (a as f64).asinh() as $t,
                    UnaryOp::Acosh => (a as f64).acosh() as $t,
                    // the library's function cancels near -1
                    UnaryOp::Atanh => (a as f64).abs().atanh().copysign(a as f64) as $t,
                    UnaryOp::Not | UnaryOp::CountOnes => return None,
                })
            }
            #[inline(always)]
            fn binary(op: BinaryOp, a: $t, b: $t) -> Option<$t> {
                Some(match op {
                    BinaryOp::Add => a + b,
                    BinaryOp::Sub => a - b,
                    BinaryOp::Mul => a * b,
                    BinaryOp::Div => a / b,
                    BinaryOp::Mod => a % b,
                    BinaryOp::Min => {
                        if b < a {
                            b
                        } else {
                            a
                        }
                    }
                    BinaryOp::Max => {
                        if b > a {
                            b
                        } else {
                            a
                        }
                    }
                    BinaryOp::Pow => (a as f64).powf(b as f64) as $t,
                    BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => return None,
                    BinaryOp::ShiftLeft | BinaryOp::ShiftRight => return None,
                })
            }
        }
    };
}
float_number!(f64);
float_number!(f32);

macro_rules! integer_number {
    ($t:ty, $abs:expr) => {
        impl Number for $t {
            const ZERO: $t = 0;
            #[inline(always)]
            fn unary(op: UnaryOp, a: $t) -> Option<$t> {
                Some(match op {
                    UnaryOp::Neg => a.wrapping_neg(),
                    UnaryOp::Abs => $abs(a),
                    UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round => a,
                    UnaryOp::Not => !a,
                    UnaryOp::CountOnes => a.count_ones() as $t,
                    _ => return None,
                })
            }
            #[inline(always)]
            fn binary(op: BinaryOp, a: $t, b: $t) -> Option<$t> {
                Some(match op {
                    BinaryOp::Add => a.wrapping_add(b),
                    BinaryOp::Sub => a.wrapping_sub(b),
                    BinaryOp::Mul => a.wrapping_mul(b),
                    BinaryOp::Div if b == 0 => 0,
                    BinaryOp::Div => a.wrapping_div(b),
                    BinaryOp::Mod if b == 0 => 0,
                    BinaryOp::Mod => {
                        let r = a.wrapping_rem(b);
                        let opposite = r != 0 && (r < <$t as Number>::ZERO) != (b < <$t as Number>::ZERO);
                        if opposite { r.wrapping_add(b) } else { r }
                    }
                    BinaryOp::Min => a.min(b),
                    BinaryOp::Max => a.max(b),
                    BinaryOp::Pow => (a as f64).powf(b as f64) as $t,
                    BinaryOp::And => a & b,
                    BinaryOp::Or => a | b,
                    BinaryOp::Xor => a ^ b,
                    BinaryOp::ShiftLeft => u32::try_from(b).ok().and_then(|b| a.checked_shl(b)).unwrap_or(0),
                    BinaryOp::ShiftRight => match u32::try_from(b).ok().and_then(|b| a.checked_shr(b)) {
                        Some(shifted) => shifted,
                        None if a < <$t as Number>::ZERO => !<$t as Number>::ZERO,
                        None => 0,
                    },
                })
            }
        }
    };
}
integer_number!(i64, i64::wrapping_abs);
integer_number!(i32, i32::wrapping_abs);
integer_number!(i16, i16::wrapping_abs);
integer_number!(i8, i8::wrapping_abs);
integer_number!(u64, std::convert::identity);
integer_number!(u32, std::convert::identity);
integer_number!(u16, std::convert::identity);
integer_number!(u8, std::convert::identity);

impl Number for bool {
    const ZERO: bool = false;
    #[inline(always)]
    fn unary(op: UnaryOp, a: bool) -> Option<bool> {
        match op {
            UnaryOp::Not => Some(!a),
            _ => None,
        }
    }
    #[inline(always)]
    fn binary(op: BinaryOp, a: bool, b: bool) -> Option<bool> {
        match op {
            BinaryOp::And | BinaryOp::Min | BinaryOp::Mul => Some(a & b),
            BinaryOp::Or | BinaryOp::Max => Some(a | b),
            BinaryOp::Xor => Some(a ^ b),
            _ => None,
        }
    }
}

/// Rounds to the nearest f16, ties to even, and widens again.
pub fn round_f16(v: f32) -> f32 {
    f16_to_f32(f32_to_f16(v))
}

/// Rounds to the nearest bf16, ties to even, and widens again.
pub fn round_bf16(v: f32) -> f32 {
    f32::from_bits((f32_to_bf16(v) as u32) << 16)
}

/// The bits of the nearest f16, ties to even.
pub fn f32_to_f16(v: f32) -> u16 {
    let bits = v.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    if magnitude >= 0x4780_0000 {
        return sign | 0x7c00;
    }
    if magnitude < 0x3880_0000 {
        // Subnormal or zero: adding 0.5 leaves the multiple of 2^-24 in the low bits, rounded by the hardware.
        let shifted = f32::from_bits(magnitude) + 0.5;
        return sign | (shifted.to_bits() - 0.5f32.to_bits()) as u16;
    }
    let odd = (magnitude >> 13) & 1;
    sign | ((magnitude - 0x3800_0000 + 0xfff + odd) >> 13) as u16
}

pub fn f16_to_f32(h: u16) -> f32 {
    let sign = ((h & 0x8000) as u32) << 16;
    let exponent = (h >> 10) & 0x1f;
    let fraction = (h & 0x3ff) as u32;
    match exponent {
        0 => f32::from_bits(sign | (fraction as f32 * 2f32.powi(-24)).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        e => f32::from_bits(sign | (e as u32 + 112) << 23 | fraction << 13),
    }
}

/// The bits of the nearest bf16, ties to even.
pub fn f32_to_bf16(v: f32) -> u16 {
    let bits = v.to_bits();
    if v.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// The error function, to about 1e-15: Taylor's series of erf(x)·exp(x²), whose terms are all of one sign.
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() {
        return x;
    }
    if a > 6.0 {
        return 1f64.copysign(x);
    }
    let (mut term, mut sum, mut n) = (a, a, 0.0);
    while term > sum * 1e-17 {
        n += 1.0;
        term *= 2.0 * a * a / (2.0 * n + 1.0);
        sum += term;
    }
    (std::f64::consts::FRAC_2_SQRT_PI * (-a * a).exp() * sum).min(1.0).copysign(x)
}
