//! Affine forms over variables.

use serde::{Deserialize, Serialize};

/// An iterator of a statement, or a loop variable: an index into the owner's list of names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Var(pub u32);

/// `constant + Σ coefficient·var`, terms sorted by variable, no zero coefficients.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Affine {
    pub terms: Vec<(Var, i64)>,
    pub constant: i64,
}

impl Affine {
    pub fn constant(c: i64) -> Affine {
        Affine { terms: vec![], constant: c }
    }

    pub fn var(v: Var) -> Affine {
        Affine { terms: vec![(v, 1)], constant: 0 }
    }

    /// The coefficient of `v`, zero when absent.
    pub fn coefficient(&self, v: Var) -> i64 {
        self.terms.binary_search_by_key(&v, |t| t.0).map_or(0, |i| self.terms[i].1)
    }

    pub fn is_constant(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn uses(&self, v: Var) -> bool {
        self.coefficient(v) != 0
    }

    /// `self + k·v`.
    pub fn plus(mut self, v: Var, k: i64) -> Affine {
        match self.terms.binary_search_by_key(&v, |t| t.0) {
            Ok(i) => {
                self.terms[i].1 += k;
                if self.terms[i].1 == 0 {
                    self.terms.remove(i);
                }
            }
            Err(i) if k != 0 => self.terms.insert(i, (v, k)),
            Err(_) => {}
        }
        self
    }

    /// `self + k·other`.
    pub fn add_scaled(&self, other: &Affine, k: i64) -> Affine {
        let mut out = self.clone();
        out.constant += k * other.constant;
        for &(v, c) in &other.terms {
            out = out.plus(v, k * c);
        }
        out
    }

    pub fn offset(mut self, c: i64) -> Affine {
        self.constant += c;
        self
    }

    pub fn scale(&self, k: i64) -> Affine {
        Affine::constant(0).add_scaled(self, k)
    }

    /// Replaces each variable by `map(variable)`.
    pub fn substitute(&self, mut map: impl FnMut(Var) -> Affine) -> Affine {
        self.terms.iter().fold(Affine::constant(self.constant), |acc, &(v, c)| acc.add_scaled(&map(v), c))
    }

    /// Composition: each variable `v` is replaced by `values[v]`.
    pub fn compose(&self, values: &[Affine]) -> Affine {
        self.substitute(|v| values[v.0 as usize].clone())
    }

    pub fn evaluate(&self, mut value: impl FnMut(Var) -> i64) -> i64 {
        self.terms.iter().fold(self.constant, |acc, &(v, c)| acc + c * value(v))
    }

    /// Least and greatest value when each variable lies in the closed interval `range(variable)`.
    pub fn bounds(&self, mut range: impl FnMut(Var) -> (i64, i64)) -> (i64, i64) {
        self.terms.iter().fold((self.constant, self.constant), |(lo, hi), &(v, c)| {
            let (a, b) = range(v);
            if c > 0 { (lo + c * a, hi + c * b) } else { (lo + c * b, hi + c * a) }
        })
    }
}

/// `⌈affine / divisor⌉` as a lower bound, `⌊affine / divisor⌋` as an exclusive upper bound; divisor ≥ 1.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bound {
    pub affine: Affine,
    pub divisor: i64,
}

impl Bound {
    pub fn constant(c: i64) -> Bound {
        Bound { affine: Affine::constant(c), divisor: 1 }
    }
}
