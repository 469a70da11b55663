//! Relaxation of an integer program, which is solved again when rows are added.
//!
//! In: a program, and the relaxation of one with the same costs and the first of its rows. Out: values from 0 to 1 of least
//! cost that satisfy the rows. The values before satisfy all but a few of the new rows; each of these takes a few steps of
//! the dual simplex from where it stands, and the solution from the start takes one or more for each variable.

use crate::graph::extract::program::{BinaryProgram, Constraint};
use good_lp::SolverModel;
use microlp::{ComparisonOp, LinearExpr, Solution, Variable};
use std::collections::BTreeMap;

/// Largest number of rows that are added to one solution: each takes about a hundredth of the time of a new one.
const MAX_ADDED: usize = 48;
/// Distance by which values may miss a row.
const MISSED: f64 = 1e-7;

pub struct Relaxation {
    rows: Vec<Constraint>,
    /// Rows that the solution satisfies without having them.
    left_out: Vec<usize>,
    variables: Vec<Variable>,
    solution: Solution,
}

impl Relaxation {
    pub fn new(program: &BinaryProgram) -> Result<Relaxation, String> {
        let solution = program.model(false).solve().map_err(|e| e.to_string())?.into_inner();
        let variables = solution.iter().map(|(v, _)| v).collect();
        Ok(Relaxation { rows: program.rows.clone(), left_out: vec![], variables, solution })
    }

    /// The relaxation with the further rows of a program of the same costs; `None` when it has other rows, or so many that
    /// it had better be solved anew.
    pub fn extended(mut self, program: &BinaryProgram) -> Option<Relaxation> {
        let more = program.rows.strip_prefix(&self.rows[..])?;
        self.left_out.extend(self.rows.len()..program.rows.len());
        self.rows.extend_from_slice(more);
        for _ in 0..MAX_ADDED {
            let values = self.values();
            let Some(broken) = self.left_out.iter().position(|&r| misses(&self.rows[r], &values)) else {
                return Some(self);
            };
            let row = &self.rows[self.left_out.remove(broken)];
            let (sum, least) = (sum(row, &self.variables), f64::from(row.least));
            self.solution = self.solution.add_constraint(sum, comparison(row), least).ok()?.into_solution().ok()?;
        }
        None
    }

    pub fn values(&self) -> Vec<f64> {
        self.variables.iter().map(|&v| self.solution.var_value(v)).collect()
    }
}

fn sum(row: &Constraint, variables: &[Variable]) -> LinearExpr {
    let mut terms: BTreeMap<usize, i32> = BTreeMap::new();
    row.terms.iter().for_each(|&(v, k)| *terms.entry(v).or_default() += k);
    let mut sum = LinearExpr::empty();
    terms.into_iter().filter(|t| t.1 != 0).for_each(|(v, k)| sum.add(variables[v], f64::from(k)));
    sum
}

fn comparison(row: &Constraint) -> ComparisonOp {
    if row.equal { ComparisonOp::Eq } else { ComparisonOp::Ge }
}

fn misses(row: &Constraint, values: &[f64]) -> bool {
    let above = row.terms.iter().map(|&(v, k)| f64::from(k) * values[v]).sum::<f64>() - f64::from(row.least);
    above < -MISSED || row.equal && above > MISSED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(terms: &[(usize, i32)]) -> Constraint {
        Constraint { terms: terms.to_vec(), least: 1, equal: false }
    }

    #[test]
    fn rows_are_added_to_a_solution() {
        let mut program = BinaryProgram { cost: vec![3.0, 2.0, 4.0], rows: vec![row(&[(0, 1), (1, 1)])] };
        let first = Relaxation::new(&program).unwrap();
        assert_eq!(first.values(), [0.0, 1.0, 0.0]);
        // One that holds already, one that does not, and one that then does not.
        program.rows.extend([row(&[(1, 1), (2, 1)]), row(&[(0, 1), (1, -1), (2, 1)]), row(&[(0, 2), (2, -1)])]);
        let second = first.extended(&program).unwrap();
        assert!(second.left_out.len() < 3);
        let cold = Relaxation::new(&program).unwrap().values();
        let total = |values: &[f64]| program.cost.iter().zip(values).map(|(c, v)| c * v).sum::<f64>();
        assert!((total(&second.values()) - total(&cold)).abs() < 1e-6);
        assert!(program.rows.iter().all(|row| !misses(row, &second.values())));
        program.rows.remove(0);
        assert!(second.extended(&program).is_none());
    }

    #[test]
    fn many_rows_take_a_new_solution() {
        let mut program = BinaryProgram { cost: vec![1.0; 100], rows: vec![row(&[(0, 1), (1, 1)])] };
        let first = Relaxation::new(&program).unwrap();
        program.rows.extend((2..100).map(|v| row(&[(v, 1)])));
        assert!(first.extended(&program).is_none());
    }
}
