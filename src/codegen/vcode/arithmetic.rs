//! Arithmetic of one lane, whose value is its bits.
//!
//! In: operands as bits, of which those of the lane type count. Out: the bits of the result, or nothing where the operation
//! has no meaning in lanes of the type. Subnormal floats are zero in arithmetic.

use crate::codegen::vcode::{Lane, ShiftOp, VBinary, VUnary};
use crate::expr::scalar::number::{Number, f16_to_f32, f32_to_bf16, f32_to_f16, round_f16};
use crate::expr::{BinaryOp, CompareOp, UnaryOp};

/// A float without subnormal numbers: these are zero in arithmetic.
pub fn flush(lane: Lane, bits: u64) -> u64 {
    match lane {
        Lane::F32 if f32::from_bits(bits as u32).is_subnormal() => bits & 1 << 31,
        Lane::F64 if f64::from_bits(bits).is_subnormal() => bits & 1 << 63,
        _ => bits,
    }
}

/// A number in a lane, as its bits.
trait Bits: Number {
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! bits {
    ($($t:ident: $of:expr, $bits:expr;)*) => {$(
        impl Bits for $t {
            fn of(bits: u64) -> $t {
                $of(bits)
            }
            fn bits(self) -> u64 {
                $bits(self)
            }
        }
    )*};
}
bits! {
    f32: |b| f32::from_bits(b as u32), |x: f32| u64::from(x.to_bits());
    f64: f64::from_bits, f64::to_bits;
    i32: |b| b as i32, |x| x as u64;
    i64: |b| b as i64, |x| x as u64;
    i16: |b| b as i16, |x| x as u64;
    u16: |b| b as u16, u64::from;
    i8: |b| b as i8, |x| x as u64;
    u8: |b| b as u8, u64::from;
}

/// Runs `$body` with the type of the lane.
macro_rules! with_type {
    ($lane:expr, $t:ident => $body:expr) => {
        with_type!(@ $lane, $t => $body; F32 f32, F64 f64, I32 i32, I64 i64, I16 i16, U16 u16, I8 i8, U8 u8)
    };
    (@ $lane:expr, $t:ident => $body:expr; $($variant:ident $type:ident),*) => {
        match $lane {
            $(Lane::$variant => {
                type $t = $type;
                $body
            })*
        }
    };
}

pub fn compare_lane(op: CompareOp, lane: Lane, a: u64, b: u64) -> bool {
    let [a, b] = [a, b].map(|x| flush(lane, x));
    with_type!(lane, T => op.holds(&T::of(a), &T::of(b)))
}

/// The exact number of an approximation, rounded to f32.
fn approximated(op: VUnary, bits: u64) -> u64 {
    let x = f64::from(f32::from_bits(flush(Lane::F32, bits) as u32));
    let exact = match op {
        VUnary::InverseApproximate => 1.0 / x,
        VUnary::RootApproximate => x.sqrt(),
        _ => 1.0 / x.sqrt(),
    };
    flush(Lane::F32, u64::from((exact as f32).to_bits()))
}

/// An f32 rounded to bf16.
pub fn rounded_to_bf16(bits: u64) -> u64 {
    u64::from(f32_to_bf16(f32::from_bits(flush(Lane::F32, bits) as u32)))
}

pub fn unary(op: VUnary, lane: Lane, a: u64) -> Option<u64> {
    let float = lane.is_float();
    let (op, a) = match op {
        VUnary::Not => return Some(!a),
        VUnary::CountOnes => return (!float).then(|| u64::from((a & lane.all_ones()).count_ones())),
        VUnary::WidenHalf | VUnary::NarrowHalf | VUnary::RoundHalf | VUnary::NarrowBf16 => {
            return (lane.bytes() == 4).then(|| match op {
                VUnary::WidenHalf => u64::from(f16_to_f32(a as u16).to_bits()),
                VUnary::NarrowHalf => u64::from(f32_to_f16(f32::from_bits(a as u32))),
                VUnary::NarrowBf16 => rounded_to_bf16(a),
                _ => u64::from(round_f16(f32::from_bits(a as u32)).to_bits()),
            });
        }
        VUnary::Inverse => return inverse(lane, a),
        VUnary::InverseApproximate | VUnary::RootApproximate | VUnary::InverseRootApproximate => {
            return (lane == Lane::F32).then(|| approximated(op, a));
        }
        VUnary::Neg => (UnaryOp::Neg, a),
        VUnary::Abs => (UnaryOp::Abs, a),
        _ if !float => return None,
        VUnary::Root if lane != Lane::F32 => return None,
        VUnary::Sqrt | VUnary::Root => (UnaryOp::Sqrt, flush(lane, a)),
        VUnary::Floor => (UnaryOp::Floor, flush(lane, a)),
        VUnary::Ceil => (UnaryOp::Ceil, flush(lane, a)),
        VUnary::Round => (UnaryOp::Round, flush(lane, a)),
    };
    with_type!(lane, T => T::unary(op, T::of(a)).map(T::bits))
}

/// The number of bits of a shift by a lane: none where nothing is left of a number; `None` for lanes that are not shifted so.
fn by_lane(lane: Lane, b: u64) -> Option<Option<u32>> {
    let bits = 8 * lane.bytes() as u64;
    matches!(lane, Lane::I32 | Lane::I64).then(|| Some(b & lane.all_ones()).filter(|n| *n < bits).map(|n| n as u32))
}

pub fn binary(op: VBinary, lane: Lane, a: u64, b: u64) -> Option<u64> {
    let float = lane.is_float();
    let [x, y] = [a, b].map(|x| flush(lane, x));
    let (op, x, y) = match op {
        VBinary::And => return Some(a & b),
        VBinary::Or => return Some(a | b),
        VBinary::Xor => return Some(a ^ b),
        VBinary::AndNot => return Some(!a & b),
        VBinary::ShiftLeft => return by_lane(lane, b).map(|n| n.map_or(0, |n| a << n)),
        VBinary::ShiftRight => return by_lane(lane, b).map(|n| n.map_or(0, |n| (a & lane.all_ones()) >> n)),
        VBinary::ShiftRightSigned => {
            let bits = 8 * lane.bytes() as u32;
            let signed = (a << (64 - bits)) as i64 >> (64 - bits);
            return by_lane(lane, b).map(|n| (signed >> n.unwrap_or(bits - 1)) as u64);
        }
        VBinary::Add => (BinaryOp::Add, x, y),
        VBinary::Sub => (BinaryOp::Sub, x, y),
        VBinary::Mul => (BinaryOp::Mul, x, y),
        VBinary::MulHigh => {
            return match lane {
                Lane::I16 => Some(((i32::from(a as i16) * i32::from(b as i16)) >> 16) as u64),
                Lane::U16 => Some(((a & 0xffff) * (b & 0xffff)) >> 16),
                _ => None,
            };
        }
        VBinary::MulPairs => {
            let half = |x: u64, n: u32| i32::from((x >> (16 * n)) as i16);
            let sum = |n| half(a, n).wrapping_mul(half(b, n));
            return (lane == Lane::I32).then(|| sum(0).wrapping_add(sum(1)) as u64);
        }
        VBinary::Scale => return scaled(lane, x, y),
        VBinary::Div if !float => return None,
        VBinary::Div => (BinaryOp::Div, x, y),
        // the second operand where neither is less: the first of the scalar operation
        VBinary::Min => (BinaryOp::Min, y, x),
        VBinary::Max => (BinaryOp::Max, y, x),
    };
    with_type!(lane, T => T::binary(op, T::of(x), T::of(y)).map(|v| flush(lane, v.bits())))
}

/// `a·2^⌊b⌋`, zero where that is subnormal before it is rounded.
fn scaled(lane: Lane, a: u64, b: u64) -> Option<u64> {
    let (a, b, least) = match lane {
        Lane::F32 => (f32::from_bits(a as u32).into(), f32::from_bits(b as u32).into(), -126.0),
        Lane::F64 => (f64::from_bits(a), f64::from_bits(b), -1022.0),
        _ => return None,
    };
    let vanishes = ((a.to_bits() >> 52 & 0x7ff) as f64 - 1023.0) + b.floor() < least && a.is_finite();
    // in two steps, whose powers are numbers
    let [p, q] = [(b / 2.0).floor(), b.floor() - (b / 2.0).floor()].map(|n| n.clamp(-1074.0, 1023.0).exp2());
    let result = if vanishes { 0f64.copysign(a) } else { a * p * q };
    Some(if lane == Lane::F32 { (result as f32).to_bits().into() } else { result.to_bits() })
}

/// The inverse, where it and the number are normal.
fn inverse(lane: Lane, b: u64) -> Option<u64> {
    let (one, nan) = match lane {
        Lane::F32 => (1f32.to_bits().into(), f32::NAN.to_bits().into()),
        Lane::F64 => (1f64.to_bits(), f64::NAN.to_bits()),
        _ => return None,
    };
    let normal = |x: u64| match lane {
        Lane::F32 => f32::from_bits(x as u32).is_normal(),
        _ => f64::from_bits(x).is_normal(),
    };
    let inverse = binary(VBinary::Div, lane, one, b)?;
    Some(if normal(b) && normal(inverse) { inverse } else { nan })
}

/// `a / b` by the product with the inverse `y` and a correction by the rest; by a division where the product is a negative
/// zero, infinite or not-a-number.
pub fn quotient(lane: Lane, a: u64, b: u64, y: u64) -> Option<u64> {
    let product = binary(VBinary::Mul, lane, a, y)?;
    let divided = match lane {
        Lane::F32 => !f32::from_bits(product as u32).is_finite() || product as u32 == 1 << 31,
        _ => !f64::from_bits(product).is_finite() || product == 1 << 63,
    };
    if divided {
        return binary(VBinary::Div, lane, a, b);
    }
    Some(fma(lane, product, fma(lane, a, b, product, true), y, false))
}

/// `c + a·b` or `c - a·b`.
pub fn fma(lane: Lane, c: u64, a: u64, b: u64, negate: bool) -> u64 {
    let [a, b, c] = [a, b, c].map(|x| flush(lane, x));
    let value = match lane {
        Lane::F32 => {
            let [a, b, c] = [a, b, c].map(|x| f32::from_bits(x as u32));
            u64::from(if negate { -a } else { a }.mul_add(b, c).to_bits())
        }
        Lane::F64 => {
            let [a, b, c] = [a, b, c].map(f64::from_bits);
            if negate { -a } else { a }.mul_add(b, c).to_bits()
        }
        _ => {
            let product = a.wrapping_mul(b);
            if negate { c.wrapping_sub(product) } else { c.wrapping_add(product) }
        }
    };
    flush(lane, value)
}

pub fn shift(op: ShiftOp, lane: Lane, a: u64, amount: u8) -> u64 {
    let bits = 8 * lane.bytes() as u32;
    let wide = u32::from(amount);
    match (op, bits) {
        (ShiftOp::RightArithmetic, 8) => ((a as i8) >> wide.min(7)) as u64,
        (ShiftOp::RightArithmetic, 16) => ((a as i16) >> wide.min(15)) as u64,
        (ShiftOp::RightArithmetic, 32) => ((a as i32) >> wide.min(31)) as u64,
        (ShiftOp::RightArithmetic, _) => ((a as i64) >> wide.min(63)) as u64,
        _ if wide >= bits => 0,
        (ShiftOp::Left, _) => a << wide,
        (ShiftOp::RightLogical, _) => a >> wide,
    }
}

pub fn convert(a: u64, from: Lane, to: Lane) -> u64 {
    let a = flush(from, a);
    macro_rules! to {
        ($a:expr) => {{
            let a = $a;
            match to {
                Lane::F32 => u64::from((a as f32).to_bits()),
                Lane::F64 => (a as f64).to_bits(),
                Lane::I32 => a as i32 as u64,
                Lane::I64 => a as i64 as u64,
                Lane::I16 => a as i16 as u64,
                Lane::U16 => a as u16 as u64,
                Lane::I8 => a as i8 as u64,
                Lane::U8 => a as u8 as u64,
            }
        }};
    }
    let value = match from {
        Lane::F32 => to!(f32::from_bits(a as u32)),
        Lane::F64 => to!(f64::from_bits(a)),
        Lane::I32 => to!(a as i32),
        Lane::I64 => to!(a as i64),
        Lane::I16 => to!(a as i16),
        Lane::U16 => to!(a as u16),
        Lane::I8 => to!(a as i8),
        Lane::U8 => to!(a as u8),
    };
    flush(to, value)
}
