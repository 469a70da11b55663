//! Disjoint sets of numbers, by union and find (Galler and Fischer, 1964), with halved paths.

/// Sets of `0..n`, each known by its least number.
pub struct DisjointSets(Vec<usize>);

impl DisjointSets {
    /// Each number in a set of its own.
    pub fn new(n: usize) -> DisjointSets {
        DisjointSets((0..n).collect())
    }

    /// The least number of the set that holds `member`.
    pub fn least(&mut self, mut member: usize) -> usize {
        while self.0[member] != member {
            self.0[member] = self.0[self.0[member]];
            member = self.0[member];
        }
        member
    }

    /// Makes one set of those that hold `a` and `b`.
    pub fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.least(a), self.least(b));
        self.0[a.max(b)] = a.min(b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_numbers_have_one_least() {
        let mut sets = DisjointSets::new(6);
        for (a, b) in [(4, 2), (5, 4), (0, 1), (2, 5)] {
            sets.join(a, b);
        }
        assert_eq!([0, 1, 2, 3, 4, 5].map(|n| sets.least(n)), [0, 0, 2, 3, 2, 2]);
    }
}
