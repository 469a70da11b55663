//! The instances of a statement as a polyhedron.

use crate::poly::sets::polyhedron::{Polyhedron, unit};
use crate::poly::statement::Statement;

impl Polyhedron {
    /// The instances of `statement`: its box and its domain.
    pub fn domain(statement: &Statement) -> Polyhedron {
        let mut p = Polyhedron::universe(statement.iterators.len());
        p.add_domain(statement, 0);
        p
    }

    /// Restricts variables `first ..` to the instances of `statement`.
    pub fn add_domain(&mut self, statement: &Statement, first: usize) {
        for (i, it) in statement.iterators.iter().enumerate() {
            self.bound(&unit(self.dims, first + i), 0, it.extent - 1);
        }
        for c in &statement.domain {
            self.inequalities.push(self.form(c, first));
        }
    }
}
