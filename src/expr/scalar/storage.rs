//! The meaning of storage types: small integers and floats that are kept in a byte and have no arithmetic.
//!
//! A float is described by its fields; [`decode`] reads them. [`encode`] is defined by its results: the representable
//! number that is nearest, ties to the one whose last bit is 0. Conversions in machine code are held to both.

use crate::runtime::DType;

/// The fields of a small float, from the most significant: sign, exponent, fraction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    pub signed: bool,
    pub exponent: u32,
    pub fraction: u32,
    pub bias: i32,
    pub special: Special,
}

/// Which patterns are not numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    None,
    /// The greatest exponent, as in IEEE 754: infinities and not-a-number.
    Ieee,
    /// All bits set but the sign: not-a-number.
    AllOnes,
    /// The pattern of -0: not-a-number.
    NegativeZero,
}

impl Fields {
    /// The fields of a storage type; `None` for other types.
    pub fn of(dtype: DType) -> Option<Fields> {
        let fields = |signed, exponent, fraction, bias, special| Fields { signed, exponent, fraction, bias, special };
        Some(match dtype {
            DType::F8E4M3Fn => fields(true, 4, 3, 7, Special::AllOnes),
            DType::F8E4M3FnUz => fields(true, 4, 3, 8, Special::NegativeZero),
            DType::F8E5M2 => fields(true, 5, 2, 15, Special::Ieee),
            DType::F8E5M2FnUz => fields(true, 5, 2, 16, Special::NegativeZero),
            DType::F8E8M0 => fields(false, 8, 0, 127, Special::AllOnes),
            DType::F4E2M1 => fields(true, 2, 1, 1, Special::None),
            _ => return None,
        })
    }

    /// Number of bits without the sign.
    pub fn magnitude_bits(self) -> u32 {
        self.exponent + self.fraction
    }

    /// The largest finite magnitude, as its bits.
    pub fn largest(self) -> u8 {
        let all = ((1u32 << self.magnitude_bits()) - 1) as u8;
        match self.special {
            Special::None | Special::NegativeZero => all,
            Special::AllOnes => all - 1,
            Special::Ieee => all - (1 << self.fraction),
        }
    }

    /// The bits of not-a-number; `None` where there is none.
    pub fn nan(self) -> Option<u8> {
        let all = ((1u32 << self.magnitude_bits()) - 1) as u8;
        match self.special {
            Special::None => None,
            Special::AllOnes => Some(all),
            Special::Ieee => Some(all & !(1 << self.fraction >> 2)),
            Special::NegativeZero => Some(1 << self.magnitude_bits()),
        }
    }

    fn decode(self, bits: u8) -> f64 {
        let bits = u32::from(bits);
        let magnitude = bits & ((1 << self.magnitude_bits()) - 1);
        let negative = self.signed && bits >> self.magnitude_bits() & 1 == 1;
        let (exponent, fraction) = (magnitude >> self.fraction, magnitude & ((1 << self.fraction) - 1));
        let special = match self.special {
            Special::None => None,
            Special::Ieee if exponent == (1 << self.exponent) - 1 => {
                Some(if fraction == 0 { f64::INFINITY } else { f64::NAN })
            }
            Special::AllOnes if magnitude == (1 << self.magnitude_bits()) - 1 => Some(f64::NAN),
            Special::NegativeZero if negative && magnitude == 0 => Some(f64::NAN),
            _ => None,
        };
        let unit = 2f64.powi(-(self.fraction as i32));
        let value = special.unwrap_or(match exponent {
            0 if self.signed => f64::from(fraction) * unit * 2f64.powi(1 - self.bias),
            e => (1.0 + f64::from(fraction) * unit) * 2f64.powi(e as i32 - self.bias),
        });
        if negative { -value } else { value }
    }
}

/// Bits of a small integer, and whether it has a sign; `None` for other types.
pub fn integer(dtype: DType) -> Option<(u32, bool)> {
    match dtype {
        DType::I4 => Some((4, true)),
        DType::U4 => Some((4, false)),
        DType::I2 => Some((2, true)),
        DType::U2 => Some((2, false)),
        _ => None,
    }
}

/// Bits of an element of a storage type.
pub fn width(dtype: DType) -> u32 {
    match (integer(dtype), Fields::of(dtype)) {
        (Some((bits, _)), _) => bits,
        (_, Some(f)) => f.magnitude_bits() + u32::from(f.signed),
        _ => 8 * dtype.bytes() as u32,
    }
}

/// The byte that holds the low bits of `bits`: small signed integers fill it with their sign.
pub fn canonical(dtype: DType, bits: u8) -> u8 {
    let unused = 8u32.saturating_sub(width(dtype));
    match integer(dtype) {
        Some((_, true)) => (((bits << unused) as i8) >> unused) as u8,
        _ => bits << unused >> unused,
    }
}

/// The number that a byte of a storage type stands for.
pub fn decode(dtype: DType, byte: u8) -> f64 {
    match (integer(dtype), Fields::of(dtype)) {
        (Some((_, true)), _) => f64::from(canonical(dtype, byte) as i8),
        (_, Some(fields)) => fields.decode(byte),
        _ => f64::from(canonical(dtype, byte)),
    }
}

/// The byte of the nearest number, ties to even. Integers are cut and keep their low bits; floats saturate.
pub fn encode(dtype: DType, v: f64) -> u8 {
    let Some(fields) = Fields::of(dtype) else { return canonical(dtype, v as i64 as u8) };
    if v.is_nan() {
        return fields.nan().unwrap_or(if fields.signed { 1 << fields.magnitude_bits() } else { 0 });
    }
    let target = if fields.signed { v.abs() } else { v.max(0.0) };
    let distance = |bits: u8| (fields.decode(bits) - target).abs();
    let largest = fields.largest();
    let beyond = target > fields.decode(largest);
    let nearest = (0..=largest).min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
    let magnitude = if beyond { largest } else { nearest.unwrap_or(0) };
    let negative = fields.signed && v.is_sign_negative();
    let no_zero = magnitude == 0 && fields.special == Special::NegativeZero;
    if negative && !no_zero { magnitude | 1 << fields.magnitude_bits() } else { magnitude }
}
