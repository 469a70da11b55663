//! Statistics of the extraction, for the report of a compilation.

use crate::graph::extract::program::{GAP, SolutionMethod};
use serde::{Deserialize, Serialize};

/// Size, cost and end of an extraction.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ExtractionReport {
    /// Variables of the ILP.
    pub variables: usize,
    /// Constraints of the ILP.
    pub rows: usize,
    /// Predicted time of the greedy answer, in ns.
    pub greedy_ns: f64,
    /// Predicted time of the answer, in ns.
    pub chosen_ns: f64,
    /// No answer is cheaper than this, in ns; `None` when nothing was proven.
    pub bound_ns: Option<f64>,
    /// Constraints that were added because an answer had a cycle or a kernel that is too big.
    pub cuts: usize,
    /// End of the search.
    pub outcome: Outcome,
    /// Multiply-adds of the source graph.
    pub source_work: u64,
    /// Multiply-adds of the answer.
    pub work: u64,
    /// The cheapest answer had more multiply-adds than the source graph.
    pub repaired: bool,
    /// Variables and rows of all programs that were solved on the way.
    #[cfg(test)]
    pub solved: (usize, usize),
}

/// How the search ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// The whole program was solved; the gap says how well.
    Solved(SolutionMethod),
    /// The program has too many variables for one: this many of its windows were solved, each with the rest fixed.
    Windows { solved: usize, of: usize },
    /// Answers still needed cuts after so many rounds: the best of the repaired ones, or the greedy one.
    Interrupted { rounds: usize, mended: bool },
    /// The greedy answer, and why.
    Greedy(String),
}

impl Default for Outcome {
    fn default() -> Outcome {
        Outcome::Greedy("no variables are allowed".into())
    }
}

impl ExtractionReport {
    /// Returns the largest possible distance of the answer from the optimum of the model, as a share.
    pub fn gap(&self) -> Option<f64> {
        self.bound_ns.map(|b| ((self.chosen_ns - b) / self.chosen_ns.max(1.0)).max(0.0))
    }

    /// Formats the bound that was proven and the end of the search.
    pub fn summary(&self) -> String {
        let end = if self.repaired { "; repaired, because it had more multiply-adds than the source" } else { "" };
        self.search() + end
    }

    fn search(&self) -> String {
        match &self.outcome {
            Outcome::Solved(how) if self.gap().is_some_and(|g| g <= GAP) => format!("optimal: {how}"),
            Outcome::Solved(how) => how.to_string(),
            Outcome::Windows { solved, of } => {
                format!("too many variables for one program: {solved} of {of} windows solved, each with the rest held")
            }
            Outcome::Interrupted { rounds, mended } => {
                let answer = if *mended { "the best mended answer" } else { "greedy" };
                format!("{answer}, because answers still needed cuts after {rounds} rounds")
            }
            Outcome::Greedy(why) => format!("greedy, because {why}"),
        }
    }
}

impl std::fmt::Display for ExtractionReport {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let gap = self.gap().map_or("unknown".to_string(), |g| format!("{:.2} %", g * 100.0));
        writeln!(
            f,
            "extraction: {:.1} µs predicted (greedy {:.1} µs), gap {gap}; ILP of {} variables, {} rows, {} cuts: {}",
            self.chosen_ns / 1e3,
            self.greedy_ns / 1e3,
            self.variables,
            self.rows,
            self.cuts,
            self.summary()
        )
    }
}
