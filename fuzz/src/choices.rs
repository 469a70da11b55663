//! Choices of a generator: from the bytes of a fuzzer as long as there are any, then from a seed.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A source of choices.
pub struct Choices<'a> {
    bytes: &'a [u8],
    random: StdRng,
}

impl Choices<'static> {
    /// The choices for input `number` of a seed.
    pub fn seeded(seed: u64, number: u64) -> Choices<'static> {
        // any odd factor keeps the streams of neighbours apart
        Choices { bytes: &[], random: StdRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number) }
    }
}

impl<'a> Choices<'a> {
    /// The choices that bytes stand for.
    pub fn of(bytes: &'a [u8]) -> Choices<'a> {
        let seed = bytes.iter().fold(0u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Choices { bytes, random: StdRng::seed_from_u64(seed) }
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        let width = if n <= 256 { 1 } else { 4 };
        match self.bytes.split_at_checked(width) {
            Some((head, rest)) => {
                self.bytes = rest;
                head.iter().fold(0, |number, &b| number << 8 | usize::from(b)) % n
            }
            None => self.random.random_range(0..n),
        }
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as usize) as i64
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// An integer, mostly small, at times at the edge of a type.
    pub fn integer(&mut self) -> i64 {
        const EDGES: [i64; 14] = [
            0,
            1,
            -1,
            2,
            i32::MAX as i64,
            i32::MIN as i64,
            1 << 31,
            1 << 32,
            1 << 40,
            1 << 62,
            i64::MAX,
            i64::MIN,
            i64::MAX - 1,
            1 << 29,
        ];
        if self.chance(30) { self.pick(&EDGES) } else { self.between(-4, 40) }
    }
}
