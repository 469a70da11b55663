//! Seeded synthetic weights: the recipe in, the same bytes as NumPy's out.
//!
//! A weightless graph keeps, for a tensor without data, external-data entries `location=synthetic`, `distribution`,
//! `seed` and either `low`, `high` (uniform) or `mean`, `std` (normal). Values come from NumPy's generator:
//! `SeedSequence` (O'Neill's seed_seq), PCG64 XSL-RR (O'Neill, "PCG: A family of simple fast space-efficient
//! statistically good algorithms"), and the ziggurat of Marsaglia and Tsang in single precision with 256 layers. The
//! layers are computed here, not listed.

use crate::runtime::{Error, Result};
use std::sync::OnceLock;

/// The contents of a tensor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Recipe {
    /// Even over `low..high`.
    Uniform { seed: u64, low: f64, high: f64 },
    /// Gaussian.
    Normal { seed: u64, mean: f64, std: f64 },
}

impl Recipe {
    /// Reads a recipe from external-data entries; `None` when they say another location.
    pub fn parse<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Option<Recipe>> {
        let entries: Vec<_> = entries.into_iter().collect();
        let find = |key: &str| entries.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        if find("location") != Some("synthetic") {
            return Ok(None);
        }
        let text = |key: &str| find(key).ok_or_else(|| Error::Invalid(format!("synthetic weights without {key:?}")));
        let number = |key: &str| -> Result<f64> {
            let text = text(key)?;
            let value = text.parse::<f64>().ok().filter(|v| v.is_finite());
            value.ok_or_else(|| Error::Invalid(format!("synthetic weights: {key} is {text:?}, not a number")))
        };
        let seed = text("seed")?;
        let seed = seed.parse().map_err(|_| Error::Invalid(format!("synthetic weights: seed is {seed:?}")))?;
        match text("distribution")? {
            "uniform" => Ok(Some(Recipe::Uniform { seed, low: number("low")?, high: number("high")? })),
            "normal" => Ok(Some(Recipe::Normal { seed, mean: number("mean")?, std: number("std")? })),
            other => Err(Error::Invalid(format!("synthetic weights: distribution {other:?} is not known"))),
        }
    }

    /// The first `count` values.
    pub fn fill(self, count: usize) -> Vec<f32> {
        match self {
            Recipe::Uniform { seed, low, high } => {
                let mut random = Pcg64::new(seed);
                let (low, width) = (low as f32, (high - low) as f32);
                (0..count).map(|_| low + width * random.uniform()).collect()
            }
            Recipe::Normal { seed, mean, std } => {
                let mut random = Pcg64::new(seed);
                let layers = LAYERS.get_or_init(layers);
                let (mean, std) = (mean as f32, std as f32);
                (0..count).map(|_| mean + std * random.normal(layers)).collect()
            }
        }
    }
}

/// One layer of the ziggurat: acceptance bound, width per unit, density at its edge.
#[derive(Clone, Copy)]
struct Layer {
    accept: u32,
    width: f32,
    density: f32,
}

static LAYERS: OnceLock<[Layer; 256]> = OnceLock::new();
/// Start of the tail, and area of a layer.
const TAIL: f64 = 3.654_152_885_361_008_8;
const AREA: f64 = 0.004_928_673_233_974_658;

fn layers() -> [Layer; 256] {
    let density = |x: f64| (-0.5 * x * x).exp();
    let mut edge = [0.0; 257];
    edge[256] = AREA / density(TAIL);
    edge[255] = TAIL;
    for i in (1..255).rev() {
        edge[i] = (-2.0 * (density(edge[i + 1]) + AREA / edge[i + 1]).ln()).sqrt();
    }
    let unit = f64::from(1 << 23);
    std::array::from_fn(|i| {
        let (inner, outer) = if i == 0 { (TAIL, edge[256]) } else { (edge[i - 1], edge[i]) };
        Layer {
            accept: (inner / outer * unit).round() as u32,
            width: (outer / unit) as f32,
            density: density(edge[i]) as f32,
        }
    })
}

/// NumPy's `Generator(PCG64(seed))`, as far as single-precision numbers need it.
struct Pcg64 {
    state: u128,
    increment: u128,
    /// The upper half of the last 64 bits, when it is still to be used.
    half: Option<u32>,
}

impl Pcg64 {
    fn new(seed: u64) -> Pcg64 {
        let [a, b, c, d] = seed_sequence(seed);
        let mut random = Pcg64 { state: 0, increment: ((u128::from(c) << 64 | u128::from(d)) << 1) | 1, half: None };
        random.step();
        random.state = random.state.wrapping_add(u128::from(a) << 64 | u128::from(b));
        random.step();
        random
    }

    fn step(&mut self) {
        const MULTIPLIER: u128 = 2_549_297_995_355_413_924 << 64 | 4_865_540_595_714_422_341;
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    fn next(&mut self) -> u32 {
        if let Some(half) = self.half.take() {
            return half;
        }
        self.step();
        let word = ((self.state >> 64) as u64 ^ self.state as u64).rotate_right((self.state >> 122) as u32);
        self.half = Some((word >> 32) as u32);
        word as u32
    }

    /// In 0..1, 24 bits.
    fn uniform(&mut self) -> f32 {
        (self.next() >> 8) as f32 * (1.0 / 16_777_216.0)
    }

    fn normal(&mut self, layers: &[Layer; 256]) -> f32 {
        loop {
            let bits = self.next();
            let index = (bits & 0xff) as usize;
            let magnitude = (bits >> 9) & 0x7f_ffff;
            let layer = layers[index];
            let x = magnitude as f32 * layer.width;
            let x = if bits & 0x100 != 0 { -x } else { x };
            if magnitude < layer.accept {
                return x;
            }
            if index == 0 {
                loop {
                    let beyond = -((1.0 / TAIL) as f32) * (-self.uniform()).ln_1p();
                    let height = -(-self.uniform()).ln_1p();
                    if height + height > beyond * beyond {
                        let x = TAIL as f32 + beyond;
                        return if magnitude & 0x100 != 0 { -x } else { x };
                    }
                }
            }
            let height = (layers[index - 1].density - layer.density) * self.uniform() + layer.density;
            if f64::from(height) < (-0.5 * f64::from(x) * f64::from(x)).exp() {
                return x;
            }
        }
    }
}

/// NumPy's `SeedSequence(seed).generate_state(4, uint64)`.
fn seed_sequence(seed: u64) -> [u64; 4] {
    fn hash(value: u32, constant: &mut u32, multiplier: u32) -> u32 {
        let value = value ^ *constant;
        *constant = constant.wrapping_mul(multiplier);
        let value = value.wrapping_mul(*constant);
        value ^ value >> 16
    }
    fn mix(x: u32, y: u32) -> u32 {
        let r = x.wrapping_mul(0xca01_f9dd).wrapping_sub(y.wrapping_mul(0x4973_f715));
        r ^ r >> 16
    }
    let mut constant = 0x43b0_d7e5;
    let mut pool = [seed as u32, (seed >> 32) as u32, 0, 0].map(|word| hash(word, &mut constant, 0x931e_8875));
    for source in 0..4 {
        for target in (0..4).filter(|&t| t != source) {
            pool[target] = mix(pool[target], hash(pool[source], &mut constant, 0x931e_8875));
        }
    }
    let mut constant = 0x8b51_f9dd;
    let words: [u32; 8] = std::array::from_fn(|i| hash(pool[i % 4], &mut constant, 0x58f3_8ded));
    std::array::from_fn(|i| u64::from(words[2 * i]) | u64::from(words[2 * i + 1]) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crc(values: &[f32]) -> u32 {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        crc32fast::hash(&bytes)
    }

    /// Checksums of NumPy 2.4's bytes: a million values reach every layer and the tail.
    #[test]
    fn same_bytes_as_numpy() {
        const COUNT: usize = 1_000_003;
        assert_eq!(crc(&Recipe::Uniform { seed: 0, low: -0.25, high: 1.5 }.fill(COUNT)), 0x97331ef1);
        assert_eq!(crc(&Recipe::Normal { seed: 0, mean: 0.125, std: 0.02 }.fill(COUNT)), 0xe535712c);
        assert_eq!(crc(&Recipe::Uniform { seed: 7, low: -0.25, high: 1.5 }.fill(COUNT)), 0xc902656e);
        assert_eq!(crc(&Recipe::Normal { seed: 7, mean: 0.125, std: 0.02 }.fill(COUNT)), 0x65ff87c9);
        assert_eq!(crc(&Recipe::Uniform { seed: 4294967301, low: -0.25, high: 1.5 }.fill(COUNT)), 0xe2b2fbb6);
        assert_eq!(crc(&Recipe::Normal { seed: 4294967301, mean: 0.125, std: 0.02 }.fill(COUNT)), 0x153c6346);
    }

    #[test]
    fn recipes_are_read_or_refused() {
        let good = [("location", "synthetic"), ("distribution", "normal"), ("seed", "7"), ("mean", "0"), ("std", "1")];
        assert_eq!(Recipe::parse(good).unwrap(), Some(Recipe::Normal { seed: 7, mean: 0.0, std: 1.0 }));
        assert_eq!(Recipe::parse([("location", "weights.bin")]).unwrap(), None);
        for (at, word) in [(1, "cauchy"), (2, "-1"), (3, "nan"), (4, "x")] {
            let mut bad = good;
            bad[at].1 = word;
            assert!(Recipe::parse(bad).is_err(), "{bad:?}");
            assert!(Recipe::parse(good.into_iter().filter(|e| e.0 != good[at].0)).is_err());
        }
    }
}
