//! Casts from and to storage types, made of operations on integers and small tables.
//!
//! From a float of 4 or 8 bits: an element of a table of all its numbers. To one: the bits of the f32 are rounded to its
//! fraction and the bias changed; below its normal numbers the f32 is scaled to a whole number and rounded. Small integers
//! are the low bits of larger ones. `expr::scalar::storage` says what the bytes mean.

use super::node::Source;
use super::{legacy, tensor};
use crate::expr::scalar::storage::{Fields, Special, decode, integer};
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::runtime::{DType, Error, Result, Tensor};

/// Treatment of numbers that a small float does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rounding {
    /// Numbers beyond the largest become the largest, not infinity or not-a-number.
    pub saturate: bool,
    /// To a power of two.
    pub scale: PowerRounding,
}

/// Directions in which a magnitude is rounded to a power of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PowerRounding {
    Up,
    Down,
    Nearest,
}

impl Rounding {
    /// The attributes `saturate` and `round_mode` of a cast.
    pub fn of(n: &Source) -> Result<Rounding> {
        let scale = match n.string("round_mode", "up").as_str() {
            "up" => PowerRounding::Up,
            "down" => PowerRounding::Down,
            "nearest" => PowerRounding::Nearest,
            other => return Err(Error::Invalid(format!("its round_mode is `{other}`, not up, down or nearest"))),
        };
        Ok(Rounding { saturate: n.flag("saturate", true), scale })
    }
}

pub(super) fn cast(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let to = if n.opset < 6 { legacy::type_named(&n.string("to", ""))? } else { tensor::dtype(n.int("to", 0) as i32)? };
    let x = n.input(0)?;
    Ok(vec![g.converted(x, to, Rounding::of(n)?)?])
}

pub(super) fn cast_like(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, to) = (n.input(0)?, g.ty(n.input(1)?).dtype);
    Ok(vec![g.converted(x, to, Rounding::of(n)?)?])
}

impl Importer<'_> {
    /// `value` cast to any type.
    pub(super) fn converted(&mut self, value: ValueId, to: DType, rounding: Rounding) -> Result<ValueId> {
        let from = self.ty(value).dtype;
        if from == to {
            return Ok(value);
        }
        let value = self.computable(value)?;
        if !to.is_storage() {
            return self.cast_to(value, to);
        }
        if let Some((bits, signed)) = integer(to) {
            return self.small_integer(value, to, bits, signed);
        }
        let fields = Fields::of(to).ok_or_else(|| Error::Internal(format!("{to} is not a storage type")))?;
        let value = self.cast_to(value, DType::F32)?;
        let byte = match to {
            DType::F8E8M0 => self.power_of_two(value, rounding)?,
            _ => self.small_float(value, fields, rounding.saturate)?,
        };
        let byte = self.cast_to(byte, DType::U8)?;
        self.view_as(byte, to)
    }

    /// Elements of a storage type in a type with arithmetic that has all their values; others as they are.
    pub(super) fn computable(&mut self, value: ValueId) -> Result<ValueId> {
        let dtype = self.ty(value).dtype;
        if let Some((_, signed)) = integer(dtype) {
            return self.view_as(value, if signed { DType::I8 } else { DType::U8 });
        }
        if !dtype.is_storage() {
            return Ok(value);
        }
        let table: Vec<f32> = (0..=255).map(|byte| decode(dtype, byte) as f32).collect();
        let byte = self.view_as(value, DType::U8)?;
        self.looked_up(Tensor::new(&[256], &table), byte)
    }

    /// The low bits of a number, whose fraction is cut.
    fn small_integer(&mut self, value: ValueId, to: DType, bits: u32, signed: bool) -> Result<ValueId> {
        let wide = self.cast_to(value, DType::I32)?;
        let low = if signed {
            let high = self.with_constant(BinaryOp::ShiftLeft, wide, (32 - bits).into())?;
            self.with_constant(BinaryOp::ShiftRight, high, (32 - bits).into())?
        } else {
            self.with_constant(BinaryOp::And, wide, ((1 << bits) - 1) as f64)?
        };
        let byte = self.cast_to(low, if signed { DType::I8 } else { DType::U8 })?;
        self.view_as(byte, to)
    }

    /// The byte (as i32) of the nearest number of a small float, ties to even.
    fn small_float(&mut self, value: ValueId, f: Fields, saturate: bool) -> Result<ValueId> {
        let bits = self.view_as(value, DType::I32)?;
        let magnitude = self.with_constant(BinaryOp::And, bits, f64::from(i32::MAX))?;
        let dropped = f64::from(23 - f.fraction);
        // normal numbers: the fraction rounded at its last kept bit, a carry goes to the exponent
        let kept = self.with_constant(BinaryOp::ShiftRight, magnitude, dropped)?;
        let odd = self.with_constant(BinaryOp::And, kept, 1.0)?;
        let less_than_half = f64::from((1 << (22 - f.fraction)) - 1);
        let raised = self.with_constant(BinaryOp::Add, magnitude, less_than_half)?;
        let raised = self.binary(BinaryOp::Add, raised, odd)?;
        let rounded = self.with_constant(BinaryOp::ShiftRight, raised, dropped)?;
        let rebias = f64::from((127 - f.bias) << f.fraction);
        let normal = self.with_constant(BinaryOp::Sub, rounded, rebias)?;
        // below them: a multiple of the least number
        let size = self.unary(UnaryOp::Abs, value)?;
        let least_normal = 2f64.powi(1 - f.bias);
        let scaled = self.with_constant(BinaryOp::Mul, size, 2f64.powi(f.fraction as i32) / least_normal)?;
        let whole = self.unary(UnaryOp::Round, scaled)?;
        let subnormal = self.cast_to(whole, DType::I32)?;
        let is_small = self.compared(CompareOp::Lt, size, least_normal)?;
        let finite = self.select(is_small, subnormal, normal)?;
        let (magnitudes, largest) = ((1 << f.magnitude_bits()) - 1, f64::from(f.largest()));
        let beyond = match f.special {
            _ if saturate || f.special == Special::None => largest,
            Special::Ieee => f64::from(magnitudes - (1 << f.fraction) + 1),
            _ => f64::from(f.nan().unwrap_or_default()),
        };
        let is_beyond = self.compared(CompareOp::Gt, finite, largest)?;
        let finite_bits = self.replaced(is_beyond, beyond, finite)?;
        let sign = self.with_constant(BinaryOp::ShiftRight, bits, f64::from(31 - f.magnitude_bits()))?;
        let sign = self.with_constant(BinaryOp::And, sign, f64::from(1 << f.magnitude_bits()))?;
        let signed = self.binary(BinaryOp::Or, finite_bits, sign)?;
        // one zero, and one not-a-number that has a sign of its own
        let signed = match f.special {
            Special::NegativeZero => {
                let is_zero = self.compared(CompareOp::Eq, finite_bits, 0.0)?;
                let signed = self.replaced(is_zero, 0.0, signed)?;
                if saturate { signed } else { self.replaced(is_beyond, beyond, signed)? }
            }
            _ => signed,
        };
        let broken = self.compare(CompareOp::Ne, value, value)?;
        self.replaced(broken, f64::from(f.nan().unwrap_or(1 << f.magnitude_bits())), signed)
    }

    /// The exponent (as i32) of a power of two next to a magnitude; 255 for what is not finite.
    fn power_of_two(&mut self, value: ValueId, rounding: Rounding) -> Result<ValueId> {
        let bits = self.view_as(value, DType::I32)?;
        let magnitude = self.with_constant(BinaryOp::And, bits, f64::from(i32::MAX))?;
        let exponent = self.with_constant(BinaryOp::ShiftRight, magnitude, 23.0)?;
        let fraction = self.with_constant(BinaryOp::And, magnitude, 8388607.0)?;
        let up = match rounding.scale {
            PowerRounding::Down => return Ok(exponent),
            PowerRounding::Up => self.compared(CompareOp::Gt, fraction, 0.0)?,
            // a tie goes up, but to the least power down
            PowerRounding::Nearest => {
                let above = self.compared(CompareOp::Gt, fraction, 4194304.0)?;
                let tie = self.compared(CompareOp::Eq, fraction, 4194304.0)?;
                let normal = self.compared(CompareOp::Gt, exponent, 0.0)?;
                let tie = self.binary(BinaryOp::And, tie, normal)?;
                self.binary(BinaryOp::Or, above, tie)?
            }
        };
        let next = self.with_constant(BinaryOp::Add, exponent, 1.0)?;
        let most = self.scalar_like(next, if rounding.saturate { 254.0 } else { 255.0 })?;
        let next = self.binary(BinaryOp::Min, next, most)?;
        let rounded = self.select(up, next, exponent)?;
        let special = self.compared(CompareOp::Eq, exponent, 255.0)?;
        self.replaced(special, 255.0, rounded)
    }
}
