//! Floor division of integers in general-purpose registers by a product and a shift.
//!
//! In: a divisor and the interval of the dividend. Out: a factor, a summand and a shift with which a product of 64 bits gives
//! every quotient (Granlund and Montgomery, Division by invariant integers using multiplication, 1994). A division takes
//! 10 to 20 cycles, a product and a shift four.

use crate::expr::narrow::Interval;
use crate::expr::{Affine, Var};
use rustc_hash::FxHashMap;

/// `⌊x / divisor⌋` is `⌊(x · factor + summand) / 2^shift⌋` for all x of an interval, without overflow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Inverse {
    pub factor: i64,
    pub summand: i64,
    pub shift: u32,
}

/// The inverse with the least shift; `None` where no product of 64 bits has all quotients.
pub fn inverse(divisor: i64, (low, high): Interval) -> Option<Inverse> {
    let (divisor, low, high) = (i128::from(divisor), i128::from(low), i128::from(high));
    let (first, last) = (low.div_euclid(divisor), high.div_euclid(divisor));
    (0..=62u32).find_map(|shift| {
        let power = 1i128 << shift;
        // rounded up: a multiple q·divisor gives q·power + q·excess, so that those below zero take a summand
        let factor = (power + divisor - 1) / divisor;
        let excess = factor * divisor - power;
        let summand = i128::max(0, -first * excess);
        let exact = last * excess + (divisor - 1) * factor + summand < power;
        let fits = [low, high]
            .iter()
            .all(|x| i64::try_from(x * factor + summand).is_ok() && i64::try_from(x * factor).is_ok());
        let inverse = Inverse { factor: factor as i64, summand: summand as i64, shift };
        (exact && fits && i64::try_from(factor).is_ok() && i64::try_from(summand).is_ok()).then_some(inverse)
    })
}

/// The values of integer variables; unknown where there is none.
#[derive(Default)]
pub struct Intervals(FxHashMap<Var, Interval>);

impl Intervals {
    pub fn set(&mut self, v: Var, interval: Option<Interval>) {
        match interval {
            Some(interval) => drop(self.0.insert(v, interval)),
            None => drop(self.0.remove(&v)),
        }
    }

    /// The values of an affine form, where they are known and i64 holds them.
    pub fn of(&self, a: &Affine) -> Option<Interval> {
        let constant = i128::from(a.constant);
        let (mut low, mut high) = (constant, constant);
        for &(v, c) in &a.terms {
            let (least, most) = self.0.get(&v)?;
            let ends = [i128::from(*least) * i128::from(c), i128::from(*most) * i128::from(c)];
            low += ends[0].min(ends[1]);
            high += ends[0].max(ends[1]);
        }
        Some((low.try_into().ok()?, high.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quotient(x: i64, by: Inverse) -> i64 {
        let product = x.checked_mul(by.factor).and_then(|p| p.checked_add(by.summand));
        product.unwrap_or_else(|| panic!("{x} {by:?} overflows")) >> by.shift
    }

    #[test]
    fn every_quotient_of_small_intervals_is_exact() {
        for divisor in 1..70 {
            let ends = [(0, 500), (-300, 200), (-200, -100), (70, 90), (-1, 0)];
            for (low, high) in ends.into_iter().chain((0..100).flat_map(|n| [(0, n), (-n, n), (-n, 0)])) {
                let by = inverse(divisor, (low, high)).unwrap();
                let wrong = (low..=high).find(|&x| quotient(x, by) != x.div_euclid(divisor));
                assert_eq!(wrong, None, "{divisor} {low}..={high} {by:?}");
            }
        }
    }

    #[test]
    fn intervals_of_31_bits_have_an_inverse_and_64_bits_none() {
        for divisor in [3, 5, 7, 25, 1000, (1 << 20) + 1, 40_000_000] {
            for interval in [(0, i64::from(i32::MAX)), (-(1 << 30), (1 << 30) - 1)] {
                assert!(inverse(divisor, interval).is_some(), "{divisor} {interval:?}");
            }
            assert_eq!(inverse(divisor, (i64::MIN, i64::MAX)), None, "{divisor}");
        }
    }

    proptest! {
        /// Errors grow towards the ends of the interval, and are greatest beside multiples.
        #[test]
        fn quotients_are_exact(divisor in 1i64..1 << 40, ends in any::<(i64, i64)>(), cut in 0u32..60, inside in any::<u64>()) {
            let (low, high) = (ends.0.min(ends.1) >> cut, ends.0.max(ends.1) >> cut);
            if let Some(by) = inverse(divisor, (low, high)) {
                let width = (high as i128 - low as i128 + 1) as u128;
                let between = (low as i128 + (inside as u128 % width) as i128) as i64;
                for x in [low, high, between] {
                    let multiple = x - x.rem_euclid(divisor);
                    let near = [x, multiple, multiple - 1, multiple + divisor - 1];
                    for x in near.into_iter().filter(|x| (low..=high).contains(x)) {
                        prop_assert_eq!(quotient(x, by), x.div_euclid(divisor), "{} {:?}", x, by);
                    }
                }
            }
        }
    }
}
