//! The instances of a statement as a polyhedron.

use crate::poly::sets::polyhedron::Polyhedron;
use crate::poly::statement::Statement;

impl Polyhedron {
    /// The instances of `statement`: its box and its domain.
    pub fn domain(statement: &Statement) -> Polyhedron {
        let dims = statement.iterators.len();
        let mut p = Polyhedron { dims, ..Polyhedron::default() };
        p.add_domain(statement, 0);
        p
    }

    /// Restricts variables `first ..` to the instances of `statement`.
    pub fn add_domain(&mut self, statement: &Statement, first: usize) {
        for (i, it) in statement.iterators.iter().enumerate() {
            let mut low = vec![0; self.dims + 1];
            low[first + i] = 1;
            let mut high = vec![0; self.dims + 1];
            (high[first + i], high[self.dims]) = (-1, it.extent - 1);
            self.inequalities.extend([low, high]);
        }
        for c in &statement.domain {
            self.inequalities.push(self.form(c, first));
        }
    }
}
