//! Time of a schedule: nanoseconds of explicit loops on one thread, as a sum of named terms.
//!
//! In: the loops that lowering makes of a schedule tree, and the constants of a machine. Out: a [`Cost`]. Every statement
//! counts. [`execution`] adds up what the ports of a core do and what waits for results of earlier iterations or, by
//! [`forwarding`], for stores;
//! [`traffic`] gives the bytes that come into each cache, which a simulation of caches bears out.
//!
//! The time of a transfer is hidden behind arithmetic but for a share that depends on the distance
//! ([`Machine::second_exposed`], [`Machine::memory_exposed`]); what waits for results of earlier iterations hides that share
//! too. No run is shorter than the transfers from beyond the second cache.
//!
//! [`Machine::second_exposed`]: crate::codegen::machine::Machine::second_exposed
//! [`Machine::memory_exposed`]: crate::codegen::machine::Machine::memory_exposed

mod block;
mod chain;
mod code;
pub mod execution;
mod forwarding;
mod seen;
pub mod traffic;

use crate::codegen::Target;
use crate::codegen::loopnest::LoopNest;
use crate::codegen::{regalloc, select};
use crate::runtime::Result;
use execution::Execution;
use traffic::traffic_and_counts;

/// Terms of the time of one run on one thread, in ns.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cost {
    /// Instructions on the busiest ports, in loops that wait for nothing.
    pub ports: f64,
    /// Time beyond [`Cost::ports`] of loops that wait for results of their earlier iterations, and of loads that wait for stores.
    pub chains: f64,
    /// Starts, counters and branches of loops.
    pub loops: f64,
    /// Transfers into each cache, the first cache first.
    pub transfers: [f64; 3],
    /// The share of the transfers that nothing hides.
    pub exposed: f64,
    /// Until the first lines arrive of rows that no prefetcher follows.
    pub starts: f64,
    /// Rows of neighbouring lines that come into the first cache.
    pub rows: f64,
}

impl Cost {
    /// The predicted time.
    pub fn nanoseconds(&self) -> f64 {
        let core = self.ports + self.chains + self.loops + self.starts;
        self.transfers[1..].iter().fold(core + self.exposed, |most, &t| most.max(t))
    }
}

/// Prices `nest`, whose operands are in the nearest cache that holds all of them when a run begins.
pub fn price(nest: &LoopNest, target: &Target) -> Cost {
    let machine = &target.machine;
    let (traffic, counts) = traffic_and_counts(nest, target);
    let Execution { ports, chains, loops } = execution::cycles(nest, target, &counts);
    let mut transfers = [0.0; 3];
    for (level, time) in transfers.iter_mut().enumerate() {
        let resident = level == 2 && traffic.touched <= machine.usable_bytes(2);
        *time = if resident { 0.0 } else { traffic.fetched[level] / machine.bandwidth[level + 1] };
    }
    let exposed = machine.second_exposed * transfers[0] + machine.memory_exposed * (transfers[1] + transfers[2]);
    let far = if transfers[2] > 0.0 { traffic.starts[2] } else { 0.0 };
    let starts = machine.row_start_ns * traffic.starts[1] + (machine.far_row_start_ns - machine.row_start_ns) * far;
    let ns = |cycles: f64| cycles / machine.clock_ghz;
    let exposed = (exposed - ns(chains)).max(0.0);
    let rows = traffic.starts[0];
    Cost { ports: ns(ports), chains: ns(chains), loops: ns(loops), transfers, exposed, starts, rows }
}

/// As `cost`, the price of `nest`, with what the core does counted in the machine code.
///
/// # Errors
/// Those of code generation.
pub fn refine(cost: &Cost, nest: &LoopNest, target: &Target) -> Result<Cost> {
    let (machine, mut all, mut columns) = (&target.machine, Execution::default(), 0.0);
    for function in select::lower(nest, target)? {
        let code = code::price(&function, &regalloc::allocate(&function, target)?, target);
        all.add(code.cycles, 1.0);
        columns += code.columns;
    }
    let ns = |cycles: f64| cycles / machine.clock_ghz;
    // one element of each line of a column: as a lane of its own, where the line is not in the first cache any more
    let [line, near] =
        [machine.line_lane_cycles / machine.loads_per_cycle as f64, 1.0 / machine.narrow_loads_per_cycle as f64];
    let ports = ns(all.ports + columns.min(cost.rows) * (line - near).max(0.0));
    // values that pass through memory wait as they do in the loops
    let chains = ns(all.chains).max(cost.chains - (ports - cost.ports).max(0.0));
    let exposed = (cost.exposed + cost.chains - chains).max(0.0);
    Ok(Cost { ports, chains, loops: ns(all.loops), exposed, ..*cost })
}

#[cfg(test)]
mod tests;
