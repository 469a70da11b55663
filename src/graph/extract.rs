//! Extraction: the cheapest graph and its kernels, by one ILP.
//!
//! In: an e-graph and its root classes. Out: one e-node for each class that is needed, without a cycle, the
//! kernel that it runs in, and a report. Algebra, layouts and fusion are one choice: the variables are e-nodes and the
//! edges along which they share a kernel (`constraint_set.rs` has the program), so no later stage decides again what is fused.
//! The greedy answer is the upper bound, the start of branch and bound, and the answer when the ILP is not allowed
//! or cannot be solved.

mod apart;
mod bounds;
mod build;
mod candidate;
mod competition;
mod constants;
mod constraint_set;
mod conversions;
mod exchange;
mod greedy;
mod kernels;
mod problem;
mod program;
mod relaxation;
mod report;
mod required;
mod solve;
mod work;

use crate::graph::egraph::network::{Choice, Facts, Network, Term};
use crate::graph::fusion::Way;
use crate::graph::price::{Application, Prices};
use crate::runtime::Result;
use candidate::Terms;
use constraint_set::Constraints;
use egg::Id;
use kernels::Answer;
use problem::Problem;
use std::collections::BTreeMap;

pub use competition::{AlgorithmReport, LayerReport, TimedAlgorithm, slower};
pub use program::SolutionMethod;
pub use report::{ExtractionReport, Outcome};

/// The choice of e-nodes and their kernels.
#[derive(Clone, Debug, Default)]
pub struct Extraction {
    pub choice: Choice,
    /// The class in whose kernel a class's node runs; the others have a kernel of their own, or none.
    pub with: BTreeMap<Id, Id>,
    /// Classes whose readers read through them.
    pub through: Vec<Id>,
}

/// Chooses an e-node and a kernel for every class that the roots need. The graph has no more multiply-adds than the source
/// graph: where the cheapest has, candidates are exchanged for those with fewer, and if that does not suffice only the
/// e-nodes of the source graph are allowed.
pub fn extract(
    network: &Network,
    roots: &[Id],
    prices: &Prices,
    max_variables: usize,
) -> Result<(Extraction, ExtractionReport)> {
    let budget = work::of_source(network, roots);
    let problem = Problem::new(network, roots, prices, Terms::Current)?;
    let mut rows = Constraints::new(&problem);
    let mut report = ExtractionReport { source_work: budget, ..ExtractionReport::default() };
    let (greedy, start) = greedy::solve(&problem, &mut rows)?;
    report.greedy_ns = rows.program.total(&start);
    let mut best = solve::solve(&problem, &mut rows, &greedy, start, max_variables, &mut report);
    let mut answer = Answer::new(&problem, &rows, &best);
    if work::of(&problem, &answer.chosen) > budget {
        report.repaired = true;
        let Some(values) = greedy::with_less_work(&problem, &mut rows, &greedy, &answer, budget) else {
            return from_source(network, roots, prices, report);
        };
        best = values;
        answer = Answer::new(&problem, &rows, &best);
    }
    report.chosen_ns = rows.program.total(&best);
    report.work = work::of(&problem, &answer.chosen);
    Ok((problem.extraction(&answer), report))
}

/// The operators that the extraction may choose.
pub fn applications(network: &Network) -> impl Iterator<Item = Application<'_>> {
    let of_class = move |class: &egg::EClass<Term, Facts>| {
        let id = class.id;
        network.applications(id).filter_map(move |(op, children)| {
            let result = network.facts(id).types.first()?;
            Some((op, children.iter().map(|&c| network.operand(c)).collect(), result))
        })
    };
    network.egraph.classes().flat_map(of_class)
}

/// The e-nodes of the source graph, with kernels as the greedy answer joins them.
fn from_source(
    network: &Network,
    roots: &[Id],
    prices: &Prices,
    report: ExtractionReport,
) -> Result<(Extraction, ExtractionReport)> {
    let problem = Problem::new(network, roots, prices, Terms::Source)?;
    let mut rows = Constraints::new(&problem);
    let (_, values) = greedy::solve(&problem, &mut rows)?;
    let answer = Answer::new(&problem, &rows, &values);
    let (chosen_ns, work) = (rows.program.total(&values), work::of(&problem, &answer.chosen));
    Ok((problem.extraction(&answer), ExtractionReport { chosen_ns, work, bound_ns: None, ..report }))
}

impl Problem<'_> {
    fn extraction(&self, answer: &Answer) -> Extraction {
        let mut out = Extraction::default();
        for (class, &id) in self.ids.iter().enumerate() {
            let Some(k) = answer.chosen[class] else { continue };
            out.choice.insert(id, self.classes[class][k].position);
            if answer.through[class] {
                out.through.push(id);
            }
            if let Some(edge) = answer.joined[class].map(|e| &self.edges[e]) {
                let other = if edge.join.way == Way::After { edge.producer } else { edge.reader };
                out.with.insert(id, self.ids[other.0]);
            }
        }
        out.choice.extend(&self.constants);
        out
    }
}

#[cfg(test)]
mod alternative_tests;
#[cfg(test)]
mod tests;
