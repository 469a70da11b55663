//! The order of elements of any type, and which of them are zero.

use crate::DType;

/// A number that orders elements of one type: equal for equal ones, of which both zeros are two; greatest for what is not
/// a number.
pub type Key = i128;

/// The key of an element.
pub fn key(dtype: DType, bytes: &[u8]) -> Key {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let (bits, unused) = (u64::from_le_bytes(wide), 64 - 8 * bytes.len() as u32);
    // The magnitude of infinity, in bits; that of what is not a number is greater.
    let infinity = match dtype {
        DType::F64 => 0x7ff << 52,
        DType::F32 => 0xff << 23,
        DType::F16 => 0x1f << 10,
        DType::BF16 => 0xff << 7,
        DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::I4 | DType::I2 => {
            return (((bits << unused) as i64) >> unused).into();
        }
        // floats of 4 and 8 bits, which no operator orders, by their bits
        _ => return bits.into(),
    };
    let sign = 1 << (63 - unused);
    let magnitude = bits & (sign - 1);
    match magnitude > infinity {
        true => Key::MAX,
        false if bits & sign != 0 => -Key::from(magnitude),
        false => magnitude.into(),
    }
}

/// The keys of all elements.
pub fn keys(dtype: DType, data: &[u8]) -> Vec<Key> {
    data.chunks_exact(dtype.bytes()).map(|bytes| key(dtype, bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_elements_of_each_type() {
        let sorted = [f64::NEG_INFINITY, -2.5, -1e-310, 0.0, 1e-310, 1.5, f64::INFINITY, f64::NAN];
        let of = |v: f64| key(DType::F64, &v.to_le_bytes());
        assert!(sorted.windows(2).all(|w| of(w[0]) < of(w[1])));
        assert!(of(-0.0) == of(0.0) && of(0.0) == 0 && of(-f64::NAN) == of(f64::NAN));
        let half = |bits: u16| key(DType::F16, &bits.to_le_bytes());
        assert!(half(0xfc00) < half(0xbc00) && half(0xbc00) < half(0x8000) && half(0x8000) == half(0));
        assert!(half(1) < half(0x7c00) && half(0x7c00) < half(0xfe00) && half(0xfe00) == half(0x7c01));
        let bf16 = |bits: u16| key(DType::BF16, &bits.to_le_bytes());
        assert!(bf16(0xff80) < bf16(0xbf80) && bf16(0x3f80) < bf16(0x7f80) && bf16(0x7f80) < bf16(0x7fc0));
        assert_eq!(key(DType::I64, &i64::MIN.to_le_bytes()), i64::MIN.into());
        assert_eq!(key(DType::I8, &[0xff]), -1);
        assert_eq!(key(DType::U8, &[0xff]), 255);
    }
}
