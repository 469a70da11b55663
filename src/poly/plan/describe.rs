//! Candidates as data for reports: names, and terms of their predicted times.

use crate::poly::cost::Cost;
use crate::poly::plan::Candidate;
use crate::poly::plan::order::name;
use crate::poly::tile::report::CandidateReport;

impl Candidate {
    /// The candidate for reports.
    pub fn report(&self) -> CandidateReport {
        priced(name(self.order, self.style), &self.cost)
    }
}

/// A schedule of this cost for reports.
pub fn priced(name: String, cost: &Cost) -> CandidateReport {
    let Cost { ports, chains, loops, exposed, .. } = *cost;
    let predicted_ns = cost.nanoseconds();
    let terms = [("ports", ports), ("chains", chains), ("loops", loops), ("transfers", exposed)];
    // half a picosecond is a rounding error of the sum
    let terms = terms.into_iter().filter(|term| term.1 > 5e-4).map(|(name, ns)| (name.into(), ns)).collect();
    CandidateReport { name, predicted_ns, terms }
}
