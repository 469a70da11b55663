//! Extraction: the cheapest graph and its kernels, by one ILP.
//!
//! In: an e-graph and the classes that are wanted. Out: one e-node for each class that is needed, without a cycle, the
//! kernel that it runs in, and a report. Algebra, layouts and fusion are one choice: the variables are e-nodes and the
//! edges along which they share a kernel (`rows.rs` has the program), so no later stage decides again what is fused.
//! The greedy answer is the upper bound, the start of branch and bound, and the answer when the ILP may not or cannot
//! be solved.

mod constants;
mod greedy;
mod kernels;
mod problem;
mod program;
mod rows;
mod solve;

use crate::graph::egraph::{Choice, Network, Options};
use crate::graph::fusion::Way;
use crate::graph::{Result, Target};
use egg::Id;
use kernels::Answer;
use problem::Problem;
use program::GAP;
use rows::Rows;
use std::collections::BTreeMap;

pub use program::How;

/// What the extraction did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Variables and rows of the ILP.
    pub variables: usize,
    pub rows: usize,
    /// Predicted time of the greedy answer and of the answer, in ns.
    pub greedy_ns: f64,
    pub chosen_ns: f64,
    /// No answer is cheaper than this, in ns; `None` when nothing was proven.
    pub bound_ns: Option<f64>,
    /// Rows that were added because an answer had a cycle or a kernel that is too big.
    pub cuts: usize,
    pub outcome: Outcome,
}

/// How the search ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The whole program was solved; the gap says how well.
    Solved(How),
    /// The program has too many variables for one: so many of its windows were solved, each with the rest held.
    Windows { solved: usize, of: usize },
    /// The greedy answer, and why.
    Greedy(String),
}

impl Default for Outcome {
    fn default() -> Outcome {
        Outcome::Greedy("no variables are allowed".into())
    }
}

impl Report {
    /// How far the answer may be from the optimum of the model, as a share.
    pub fn gap(&self) -> Option<f64> {
        self.bound_ns.map(|b| ((self.chosen_ns - b) / self.chosen_ns.max(1.0)).max(0.0))
    }

    /// What was proven, and how the search ended.
    pub fn summary(&self) -> String {
        match &self.outcome {
            Outcome::Solved(how) if self.gap().is_some_and(|g| g <= GAP) => format!("optimal: {how}"),
            Outcome::Solved(how) => how.to_string(),
            Outcome::Windows { solved, of } => {
                format!("too many variables for one program: {solved} of {of} windows solved, each with the rest held")
            }
            Outcome::Greedy(why) => format!("greedy, because {why}"),
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let gap = self.gap().map_or("unknown".to_string(), |g| format!("{:.2} %", g * 100.0));
        writeln!(
            f,
            "extraction: {:.1} us predicted (greedy {:.1} us), gap {gap}; ILP of {} variables, {} rows, {} cuts: {}",
            self.chosen_ns / 1e3,
            self.greedy_ns / 1e3,
            self.variables,
            self.rows,
            self.cuts,
            self.summary()
        )
    }
}

/// The choice of e-nodes and their kernels.
#[derive(Clone, Debug, Default)]
pub struct Extraction {
    pub choice: Choice,
    /// The class in whose kernel a class's node runs; the others have a kernel of their own, or none.
    pub with: BTreeMap<Id, Id>,
    /// Classes whose readers read through them.
    pub through: Vec<Id>,
}

/// Chooses an e-node and a kernel for every class that the roots need.
pub fn extract(network: &Network, roots: &[Id], target: &Target, options: &Options) -> Result<(Extraction, Report)> {
    let problem = Problem::new(network, roots, target)?;
    let mut rows = Rows::new(&problem);
    let greedy = greedy::solve(&problem, &mut rows)?;
    let mut report = Report { greedy_ns: rows.program.total(&greedy), ..Report::default() };
    let best = solve::solve(&problem, &mut rows, greedy, options.max_ilp_variables, &mut report);
    report.chosen_ns = rows.program.total(&best);
    let answer = Answer::new(&problem, &rows, &best);
    let mut out = Extraction::default();
    for (class, &id) in problem.ids.iter().enumerate() {
        let Some(k) = answer.chosen[class] else { continue };
        out.choice.insert(id, problem.classes[class][k].position);
        if answer.through[class] {
            out.through.push(id);
        }
        if let Some(edge) = answer.joined[class].map(|e| &problem.edges[e]) {
            let other = if edge.join.way == Way::After { edge.producer } else { edge.reader };
            out.with.insert(id, problem.ids[other.0]);
        }
    }
    out.choice.extend(problem.constants);
    Ok((out, report))
}

#[cfg(test)]
mod tests;
