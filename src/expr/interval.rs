//! Facts about the variables at a place of a LoopNest: an interval for each, and affine forms that are not negative.
//!
//! [`Facts::bounds`] encloses the values that an affine form takes there. It is exact for forms over loops with constant
//! bounds, and uses the facts (conditions, guards, non-constant bounds, the two sides of a floor division) one at a time.

use crate::expr::Bound;
use crate::expr::{Affine, Var};

#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Closed interval of each variable; empty (`lo > hi`) where the place is never reached.
    ranges: Vec<(i64, i64)>,
    /// Each is `affine ≥ 0`.
    conditions: Vec<Affine>,
}

impl Facts {
    /// Nothing known of `vars` variables, all taken as 0 until they are bound.
    pub fn new(vars: usize) -> Facts {
        Facts { ranges: vec![(0, 0); vars], conditions: vec![] }
    }

    pub fn range(&self, v: Var) -> (i64, i64) {
        self.ranges.get(v.0 as usize).copied().unwrap_or((0, 0))
    }

    pub fn set_range(&mut self, v: Var, range: (i64, i64)) {
        let i = v.0 as usize;
        if self.ranges.len() <= i {
            self.ranges.resize(i + 1, (0, 0));
        }
        self.ranges[i] = range;
    }

    /// From here on `condition ≥ 0`.
    pub fn assume(&mut self, condition: Affine) {
        if let [(v, c)] = condition.terms[..]
            && (c == 1 || c == -1)
        {
            let (lo, hi) = self.range(v);
            let range = if c == 1 { (lo.max(-condition.constant), hi) } else { (lo, hi.min(condition.constant)) };
            self.set_range(v, range);
        } else if condition.constant < 0 || !condition.is_constant() {
            self.conditions.push(condition);
        }
    }

    /// `var` runs over a loop with these bounds and `step`.
    pub fn enter_loop(&mut self, var: Var, lower: &[Bound], upper: &[Bound], step: i64) {
        let lo = lower.iter().map(|b| ceil_div(self.bounds(&b.affine).0, b.divisor)).max().unwrap_or(0);
        let mut hi = upper.iter().map(|b| self.bounds(&b.affine).1.div_euclid(b.divisor)).min().unwrap_or(0) - 1;
        if let ([l], true) = (lower, hi >= lo)
            && l.affine.is_constant()
        {
            hi -= (hi - lo) % step;
        }
        self.set_range(var, (lo, hi));
        for b in lower.iter().filter(|b| !b.affine.is_constant()) {
            self.assume(Affine::constant(0).plus(var, b.divisor).add_scaled(&b.affine, -1));
        }
        for b in upper.iter().filter(|b| !b.affine.is_constant()) {
            self.assume(b.affine.clone().plus(var, -b.divisor).offset(-b.divisor));
        }
    }

    /// `⌊value / divisor⌋` with the least divisor: `⌊(g·a + r) / (g·d)⌋ = ⌊a / d⌋` where `0 ≤ r < g`.
    pub fn quotient(&self, value: &Affine, divisor: i64) -> (Affine, i64) {
        let mut factors: Vec<i64> = value.terms.iter().map(|t| gcd(divisor, t.1.abs())).filter(|g| *g > 1).collect();
        factors.sort_by_key(|g| -g);
        factors.dedup();
        for g in factors {
            let (whole, rest): (Vec<_>, Vec<_>) = value.terms.iter().partition(|t| t.1 % g == 0);
            let rest = Affine { terms: rest, constant: value.constant.rem_euclid(g) };
            let (lo, hi) = self.bounds(&rest);
            if lo.div_euclid(g) == hi.div_euclid(g) {
                let terms = whole.into_iter().map(|(v, c)| (v, c / g)).collect();
                let whole = Affine { terms, constant: value.constant.div_euclid(g) + lo.div_euclid(g) };
                return self.quotient(&whole, divisor / g);
            }
        }
        (value.clone(), divisor)
    }

    /// `var = ⌊value / divisor⌋`.
    pub fn bind(&mut self, var: Var, value: &Affine, divisor: i64) {
        let (lo, hi) = self.bounds(value);
        self.set_range(var, (lo.div_euclid(divisor), hi.div_euclid(divisor)));
        let remainder = value.clone().plus(var, -divisor);
        self.assume(remainder.scale(-1).offset(divisor - 1));
        self.assume(remainder);
    }

    /// Least and greatest value of `affine`.
    pub fn bounds(&self, affine: &Affine) -> (i64, i64) {
        let (mut lo, mut hi) = self.box_bounds(affine);
        for c in &self.conditions {
            if c.terms.iter().any(|t| affine.uses(t.0)) {
                lo = lo.max(self.box_bounds(&affine.add_scaled(c, -1)).0);
                hi = hi.min(self.box_bounds(&affine.add_scaled(c, 1)).1);
            }
        }
        (lo, hi)
    }

    /// As [`Facts::bounds`], for a form in other units than the facts: each fact is scaled until one of its variables
    /// cancels.
    pub fn scaled_bounds(&self, affine: &Affine) -> (i64, i64) {
        let (mut lo, mut hi) = self.box_bounds(affine);
        for c in &self.conditions {
            for (v, k) in &c.terms {
                let coefficient = affine.coefficient(*v);
                let scale = coefficient / k;
                if scale > 0 && coefficient % k == 0 {
                    lo = lo.max(self.box_bounds(&affine.add_scaled(c, -scale)).0);
                } else if scale < 0 && coefficient % k == 0 {
                    hi = hi.min(self.box_bounds(&affine.add_scaled(c, -scale)).1);
                }
            }
        }
        (lo, hi)
    }

    /// As [`Facts::bounds`], from the intervals alone.
    fn box_bounds(&self, affine: &Affine) -> (i64, i64) {
        affine.bounds(|v| self.range(v))
    }

    /// Decides whether `affine ≥ 0` always (`Some(true)`) or never (`Some(false)`); `None` if unknown.
    pub fn decide(&self, affine: &Affine) -> Option<bool> {
        let (lo, hi) = self.bounds(affine);
        if lo >= 0 {
            Some(true)
        } else if hi < 0 {
            Some(false)
        } else {
            None
        }
    }

    /// Returns true if intervals alone bound the values of `affine`: no fact is over its variables.
    pub fn is_box(&self, affine: &Affine) -> bool {
        !self.conditions.iter().any(|c| c.terms.iter().any(|t| affine.uses(t.0)))
    }

    /// Returns true if the place is never reached.
    pub fn is_empty(&self) -> bool {
        self.ranges.iter().any(|r| r.0 > r.1) || self.conditions.iter().any(|c| self.box_bounds(c).1 < 0)
    }

    /// Returns true if `condition ≥ 0` never holds here, by itself or with one other fact, whatever units they are in.
    pub fn contradicts(&self, condition: &Affine) -> bool {
        let never = |form: &Affine| self.bounds(form).1.min(self.scaled_bounds(form).1) < 0;
        let shares = |c: &&Affine| c.terms.iter().any(|t| condition.uses(t.0));
        never(condition) || self.conditions.iter().filter(shares).any(|c| never(&condition.add_scaled(c, 1)))
    }

    /// As [`Facts::is_empty`], where two facts together say it as well.
    pub fn is_contradictory(&self) -> bool {
        self.is_empty() || self.conditions.iter().any(|c| self.bounds(c).1.min(self.scaled_bounds(c).1) < 0)
    }
}

/// The greatest common divisor of numbers that are not negative.
pub fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// First value and end of a loop with constant bounds.
pub fn constant_range(lower: &[Bound], upper: &[Bound]) -> Option<(i64, i64)> {
    if !lower.iter().chain(upper).all(|b| b.affine.is_constant()) {
        return None;
    }
    let first = lower.iter().map(|b| ceil_div(b.affine.constant, b.divisor)).max()?;
    let end = upper.iter().map(|b| b.affine.constant.div_euclid(b.divisor)).min()?;
    Some((first, end))
}

/// `⌈a / b⌉` for `b > 0`.
pub fn ceil_div(a: i64, b: i64) -> i64 {
    -(-a).div_euclid(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_facts_may_contradict_each_other() {
        let (x, y) = (Var(0), Var(1));
        let of = |last: i64| {
            let mut facts = Facts::new(2);
            facts.enter_loop(x, &[Bound::constant(0)], &[Bound::constant(10)], 1);
            facts.enter_loop(y, &[Bound::constant(0)], &[Bound::constant(10)], 1);
            facts.assume(Affine::var(x).plus(y, -1).offset(-3));
            facts.assume(Affine::var(y).plus(x, -1).offset(last));
            (facts.is_empty(), facts.is_contradictory())
        };
        assert_eq!([of(-1), of(2), of(3)], [(false, true), (false, true), (false, false)]);
    }

    #[test]
    fn three_facts_may_contradict_each_other() {
        let [x, y, z] = [0, 1, 2].map(Var);
        let of = |last: i64| {
            let mut facts = Facts::new(3);
            [x, y, z].into_iter().for_each(|v| facts.set_range(v, (0, 99)));
            facts.assume(Affine::var(x).plus(y, -1));
            facts.assume(Affine::constant(0).plus(y, 4).plus(z, -1));
            // 4x ≥ 4y ≥ z, and z ≥ 4x - last
            let condition = Affine::constant(last).plus(z, 1).plus(x, -4);
            (facts.decide(&condition), facts.contradicts(&condition))
        };
        assert_eq!([of(-1), of(0)], [(None, true), (None, false)]);
    }

    #[test]
    fn a_remainder_lies_below_its_divisor() {
        let (t, q) = (Var(0), Var(1));
        let mut facts = Facts::new(2);
        facts.set_range(t, (0, 99));
        facts.bind(q, &Affine::var(t), 7);
        assert_eq!(facts.range(q), (0, 14));
        assert_eq!(facts.bounds(&Affine::var(t).plus(q, -7)), (0, 6));
    }

    #[test]
    fn a_remainder_that_is_too_small_for_the_divisor_vanishes() {
        let (o, i, j) = (Var(0), Var(1), Var(2));
        let mut facts = Facts::new(3);
        facts.set_range(o, (0, 99));
        facts.set_range(i, (0, 31));
        facts.set_range(j, (0, 32));
        let of = |inner: Var| Affine::constant(0).plus(o, 32).plus(inner, 1);
        assert_eq!(facts.quotient(&of(i), 32), (Affine::var(o), 1));
        assert_eq!(facts.quotient(&of(i).offset(64), 32), (Affine::var(o).offset(2), 1));
        assert_eq!(facts.quotient(&of(i), 96), (Affine::var(o), 3));
        assert_eq!(facts.quotient(&of(i), 48), (Affine::constant(0).plus(o, 32).plus(i, 1), 48));
        assert_eq!(facts.quotient(&of(j), 32), (of(j), 32));
        assert_eq!(facts.quotient(&of(i).offset(1), 32), (of(i).offset(1), 32));
    }

    #[test]
    fn conditions_bound_shifted_forms() {
        let (h, r) = (Var(0), Var(1));
        let mut facts = Facts::new(2);
        facts.set_range(h, (0, 55));
        facts.set_range(r, (0, 2));
        let row = Affine::var(h).plus(r, 1).offset(-1);
        assert_eq!(facts.bounds(&row), (-1, 56));
        facts.assume(row.clone());
        facts.assume(row.scale(-1).offset(55));
        assert_eq!(facts.bounds(&row), (0, 55));
        assert_eq!(facts.decide(&row.offset(1)), Some(true));
    }
}
