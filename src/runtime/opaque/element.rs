//! The elements of tensors that opaque functions work on: little-endian bytes to numbers with an order and a sum.

use crate::{Error, Result};

/// A type of elements of `N` bytes.
pub trait Element<const N: usize>: Copy + PartialOrd {
    /// A key that orders elements: equal for equal elements, greatest for not-a-number.
    type Rank: Copy + Ord;
    const ZERO: Self;
    fn decode(bytes: [u8; N]) -> Self;
    fn encode(self) -> [u8; N];
    fn rank(self) -> Self::Rank;
    /// The sum; that of integers wraps.
    fn plus(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty, $n:literal;)*) => {$(
        impl Element<$n> for $t {
            type Rank = $t;
            const ZERO: $t = 0;
            fn decode(bytes: [u8; $n]) -> $t {
                <$t>::from_le_bytes(bytes)
            }
            fn encode(self) -> [u8; $n] {
                self.to_le_bytes()
            }
            fn rank(self) -> $t {
                self
            }
            fn plus(self, other: $t) -> $t {
                self.wrapping_add(other)
            }
        }
    )*};
}

macro_rules! floats {
    ($($t:ty, $bits:ty, $n:literal;)*) => {$(
        impl Element<$n> for $t {
            type Rank = $bits;
            const ZERO: $t = 0.0;
            fn decode(bytes: [u8; $n]) -> $t {
                <$t>::from_le_bytes(bytes)
            }
            fn encode(self) -> [u8; $n] {
                self.to_le_bytes()
            }
            fn rank(self) -> $bits {
                // one zero; the magnitude of what is negative counts down
                let bits = (self + 0.0).to_bits() as $bits;
                let rank = bits ^ ((bits >> ($n * 8 - 1)) & <$bits>::MAX);
                if self.is_nan() { <$bits>::MAX } else { rank }
            }
            fn plus(self, other: $t) -> $t {
                self + other
            }
        }
    )*};
}

integers! { i64, 8; i32, 4; i16, 2; i8, 1; u64, 8; u32, 4; u16, 2; u8, 1; }
floats! { f32, i32, 4; f64, i64, 8; }

/// Calls `$function::<T, N>` for the type of the elements.
macro_rules! with_elements {
    ($dtype:expr, $function:ident, $($argument:expr),*) => {
        match $dtype {
            DType::F32 => $function::<f32, 4>($($argument),*),
            DType::F64 => $function::<f64, 8>($($argument),*),
            DType::I64 => $function::<i64, 8>($($argument),*),
            DType::I32 => $function::<i32, 4>($($argument),*),
            DType::I16 => $function::<i16, 2>($($argument),*),
            DType::I8 => $function::<i8, 1>($($argument),*),
            DType::U64 => $function::<u64, 8>($($argument),*),
            DType::U32 => $function::<u32, 4>($($argument),*),
            DType::U16 => $function::<u16, 2>($($argument),*),
            DType::U8 | DType::Bool => $function::<u8, 1>($($argument),*),
            _ => return Err(misuse(stringify!($function))),
        }
    };
}
pub(super) use with_elements;

/// The error for operands that do not fit.
pub fn misuse(name: &str) -> Error {
    Error::Internal(format!("opaque function `{name}` got operands that do not fit it"))
}

/// Numbers of elements before, along and after an axis of a tensor.
#[derive(Clone, Copy)]
pub struct AxisExtents {
    pub outer: usize,
    pub extent: usize,
    pub inner: usize,
}

impl AxisExtents {
    pub fn axis(shape: &[i64], axis: i64) -> Result<AxisExtents> {
        let axis = usize::try_from(axis).ok().filter(|&a| a < shape.len());
        let axis = axis.ok_or_else(|| Error::Invalid(format!("no such axis in shape {shape:?}")))?;
        let product = |dims: &[i64]| dims.iter().product::<i64>() as usize;
        Ok(AxisExtents {
            outer: product(&shape[..axis]),
            extent: shape[axis] as usize,
            inner: product(&shape[axis + 1..]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_order_floats() {
        let sorted = [f32::NEG_INFINITY, -2.0, -f32::MIN_POSITIVE, 0.0, 1e-40, 1.5, f32::INFINITY, f32::NAN];
        assert!(sorted.windows(2).all(|w| w[0].rank() < w[1].rank()));
        assert_eq!((-0.0f32).rank(), 0.0f32.rank());
        assert_eq!((-f64::NAN).rank(), f64::NAN.rank());
        assert!((-1.0f64).rank() < (-0.5f64).rank());
    }
}
