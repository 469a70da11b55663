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
mod report;
mod rows;
mod solve;

use crate::graph::egraph::network::{Choice, Network};
use crate::graph::fusion::Way;
use crate::graph::{Result, Target};
use egg::Id;
use kernels::Answer;
use problem::Problem;
use rows::Rows;
use std::collections::BTreeMap;

pub use program::How;
pub use report::{Outcome, Report};

/// The choice of e-nodes and their kernels.
#[derive(Clone, Debug, Default)]
pub struct Extraction {
    pub choice: Choice,
    /// The class in whose kernel a class's node runs; the others have a kernel of their own, or none.
    pub with: BTreeMap<Id, Id>,
    /// Classes whose readers read through them.
    pub through: Vec<Id>,
}

/// Chooses an e-node and a kernel for every class that the roots need. A program of more than `max_variables` is solved in
/// parts of that size.
pub fn extract(network: &Network, roots: &[Id], target: &Target, max_variables: usize) -> Result<(Extraction, Report)> {
    let problem = Problem::new(network, roots, target)?;
    let mut rows = Rows::new(&problem);
    let greedy = greedy::solve(&problem, &mut rows)?;
    let mut report = Report { greedy_ns: rows.program.total(&greedy), ..Report::default() };
    let best = solve::solve(&problem, &mut rows, greedy, max_variables, &mut report);
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
