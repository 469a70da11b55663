//! The report of the ILP.

/// The effort of one scheduling.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SchedulingReport {
    /// Band rows in the tree.
    pub rows: usize,
    /// Integer programs solved, and the variables and constraint rows of the largest.
    pub programs: usize,
    pub ilp_variables: usize,
    pub constraint_rows: usize,
    /// Rows times unknowns of all linear relaxations.
    pub entries: usize,
    pub milliseconds: f64,
    /// The schedule used instead of the best one, and the reason.
    pub fallback: Option<String>,
}

impl std::fmt::Display for SchedulingReport {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(
            f,
            "{} rows by {} integer programs of at most {} unknowns and {} constraints, {} entries in all, {:.1} ms",
            self.rows, self.programs, self.ilp_variables, self.constraint_rows, self.entries, self.milliseconds
        )?;
        match &self.fallback {
            None => Ok(()),
            Some(why) => write!(f, "; {why}"),
        }
    }
}
