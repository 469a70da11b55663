//! Candidates as data for reports: names, and terms of their predicted times.

use crate::poly::cost::Cost;
use crate::poly::plan::{Candidate, Order};
use crate::poly::tile::report::CandidateReport;
use crate::poly::tile::{Style, Vectors};

impl Candidate {
    /// The candidate for reports.
    pub fn report(&self) -> CandidateReport {
        priced(self.name(), &self.cost)
    }

    /// The properties in which candidates differ.
    fn name(&self) -> String {
        let Style { boxes, tiles, vectors, inside, strips, waves, sums, unrolled, jam } = self.style;
        let order = match self.order {
            Order::Ilp => "ILP's order",
            Order::Original => "original order",
            Order::Contiguous => "contiguous loops innermost",
            Order::Apart => "sums in nests of their own",
        };
        let vectors = match vectors {
            Vectors::None => "no vectors",
            Vectors::Contiguous => "vectors along contiguous loops",
            Vectors::Outermost => "vectors along the outermost loop",
            Vectors::Any => "vectors along any loop",
        };
        let parts = [
            (true, order),
            (tiles, "tiles"),
            (waves, "waves of tiles"),
            (boxes, "register blocks"),
            (true, vectors),
            (inside, "vectors inside of loops that carry something"),
            (strips, "in strips for threads"),
            (sums, "sums as vectors"),
            (unrolled, "blocks for unrolled sums"),
            (jam > 1, "unroll and jam"),
        ];
        parts.iter().filter(|part| part.0).map(|part| part.1).collect::<Vec<_>>().join(", ")
    }
}

/// A schedule of this cost for reports.
pub fn priced(name: String, cost: &Cost) -> CandidateReport {
    let Cost { ports, chains, loops, exposed, starts, .. } = *cost;
    let predicted_ns = cost.nanoseconds();
    let bandwidth = predicted_ns - (ports + chains + loops + exposed + starts);
    let terms = [
        ("ports", ports),
        ("chains", chains),
        ("loops", loops),
        ("transfers", exposed),
        ("first lines", starts),
        ("bandwidth", bandwidth),
    ];
    // half a picosecond is a rounding error of the sum
    let terms = terms.into_iter().filter(|term| term.1 > 5e-4).map(|(name, ns)| (name.into(), ns)).collect();
    CandidateReport { name, predicted_ns, terms }
}
