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
pub mod execution;
mod forwarding;
mod seen;
pub mod traffic;

use crate::codegen::Target;
use crate::codegen::loopnest::LoopNest;
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
    Cost { ports: ns(ports), chains: ns(chains), loops: ns(loops), transfers, exposed, starts }
}

#[cfg(test)]
mod tests;
