//! Seeded contents for inputs that are not given: the same on every machine and in every language.
//!
//! Element `i` of input `k` comes from `u = number(mix(seed ^ mix(k)), i)`, where `number` is SplitMix64 (Steele, Lea and
//! Flood). Floating point: the upper 24 bits of `u`, even over -1..1. Integers: `u` modulo a bound, 0 or 1 unless said
//! otherwise, so that they are valid as subscripts and as masks.

use crate::{DType, Tensor};

/// Number `i` of the sequence that begins at `start` (SplitMix64).
pub fn number(start: u64, i: u64) -> u64 {
    mix(start.wrapping_add(i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// The output function of SplitMix64.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl Tensor {
    /// The seeded contents of input number `position`; integers lie in `0..bound`.
    pub fn seeded(dtype: DType, shape: &[i64], seed: u64, position: u64, bound: u64) -> Tensor {
        let mut tensor = Tensor::zeros(dtype, shape);
        let start = mix(seed ^ mix(position));
        for (i, bytes) in tensor.data.chunks_exact_mut(dtype.bytes()).enumerate() {
            let u = number(start, i as u64);
            let real = (u >> 40) as f32 * (2.0 / 16_777_216.0) - 1.0;
            match dtype {
                DType::F64 => bytes.copy_from_slice(&f64::from(real).to_le_bytes()),
                DType::F32 => bytes.copy_from_slice(&real.to_le_bytes()),
                // Cut after 8 bits of significand: a bf16, and as a multiple of 1/128 below 1 a f16 too.
                DType::BF16 | DType::F16 => bytes.copy_from_slice(&half(dtype, (real * 128.0).trunc() / 128.0)),
                DType::Bool => bytes[0] = (u & 1) as u8,
                // Numbers of all storage types fit in two bits.
                dtype if dtype.is_storage() => bytes[0] = (u & 1) as u8,
                _ => bytes.copy_from_slice(&(u % bound.max(1)).to_le_bytes()[..bytes.len()]),
            }
        }
        tensor
    }
}

/// The bits of a multiple of 1/128 in -1..1.
fn half(dtype: DType, value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    let top = if dtype == DType::BF16 {
        (bits >> 16) as u16
    } else if value == 0.0 {
        0
    } else {
        let exponent = ((bits >> 23) & 0xff) + 15 - 127;
        (bits >> 16 & 0x8000) as u16 | (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16
    };
    top.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_fixed() {
        let t = Tensor::seeded(DType::F32, &[4], 0, 0, 2);
        assert_eq!(
            t.to_vec::<f32>(),
            [0.7666215896606445, -0.13694405555725098, -0.9471324682235718, 0.9417638778686523]
        );
        assert_eq!(Tensor::seeded(DType::I64, &[6], 7, 1, 1000).to_vec::<i64>(), [176, 579, 862, 324, 383, 733]);
        assert_ne!(t, Tensor::seeded(DType::F32, &[4], 1, 0, 2));
        assert_ne!(t, Tensor::seeded(DType::F32, &[4], 0, 1, 2));
        let values = Tensor::seeded(DType::F32, &[10_000], 3, 0, 2).to_vec::<f32>();
        assert!(values.iter().all(|v| (-1.0..1.0).contains(v)));
        assert!((values.iter().sum::<f32>() / 1e4).abs() < 0.02);
    }

    #[test]
    fn halves_stand_for_the_same_number() {
        assert_eq!(half(DType::F16, -0.5), 0xb800u16.to_le_bytes());
        assert_eq!(half(DType::F16, 0.0078125), 0x2000u16.to_le_bytes());
        assert_eq!(half(DType::BF16, -0.5), 0xbf00u16.to_le_bytes());
    }
}
