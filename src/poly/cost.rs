//! Time of a schedule: nanoseconds of explicit loops on one thread, as a sum of named terms.
//!
//! In: the loops that lowering makes of a schedule tree, and the constants of a machine. Out: a [`Cost`]. Every statement
//! counts. [`execution`] adds up what the ports of a core do and what waits for results of earlier iterations or, by
//! [`forwarding`], for stores;
//! [`traffic`] gives the bytes that come into each cache, which a simulation of caches bears out.
//!
//! Lines come from beyond the second cache while the core works: the longer of the two counts, and a share of the shorter one
//! ([`Machine::transfer_overlap`]), but for the time in which the core waits for results of its own. Of the transfers from the second cache a share counts
//! ([`Machine::second_exposed`]; of those of products of tiles [`Machine::tile_second_exposed`]), which that waiting hides too.
//!
//! [`Machine::transfer_overlap`]: crate::codegen::machine::Machine::transfer_overlap
//! [`Machine::second_exposed`]: crate::codegen::machine::Machine::second_exposed
//! [`Machine::tile_second_exposed`]: crate::codegen::machine::Machine::tile_second_exposed

mod block;
mod chain;
mod code;
pub mod execution;
mod forwarding;
mod seen;
mod tile_loops;
pub mod traffic;

use crate::codegen::Target;
use crate::codegen::loopnest::LoopNest;
use crate::codegen::machine::Machine;
use crate::codegen::{regalloc, select};
use crate::runtime::Result;
use execution::Execution;
use tile_loops::{TileLoops, tile_loops};
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
    /// Transfers into each cache, the first cache first, with the time until the first lines arrive of rows that no prefetcher follows, and of lines
    /// that come into few sets.
    pub transfers: [f64; 3],
    /// Operands are in tiles: transfers from the second cache are waited for, while lines come from further away.
    pub tiles: bool,
    /// The time of the transfers that nothing hides.
    pub exposed: f64,
    /// Rows of neighbouring lines that come into the first cache.
    pub rows: f64,
}

impl Cost {
    /// The predicted time.
    pub fn nanoseconds(&self) -> f64 {
        self.core() + self.exposed
    }

    fn core(&self) -> f64 {
        self.ports + self.chains + self.loops
    }

    /// The cost with what nothing hides of its transfers.
    fn with_exposed(self, machine: &Machine) -> Cost {
        let [near, last, memory] = self.transfers;
        // a line from memory passes by the last cache
        let (core, far) = (self.core(), last.max(memory));
        let beside = machine.transfer_overlap * far.min(core - self.chains);
        if self.tiles {
            let near = machine.tile_second_exposed * near;
            return Cost { exposed: (far - core - near).max(0.0) + beside + near, ..self };
        }
        let near = (machine.second_exposed * near - self.chains).max(0.0);
        Cost { exposed: (far - core).max(0.0) + beside + near, ..self }
    }
}

/// Prices `nest`, whose operands are in the nearest cache that holds all of them when a run begins; of more than the last cache
/// holds, a part is there.
pub fn price(nest: &LoopNest, target: &Target) -> Cost {
    let machine = &target.machine;
    let (traffic, counts) = traffic_and_counts(nest, target);
    let Execution { ports, chains, loops } = execution::cycles(nest, target, &counts);
    let absent = absent_share(traffic.touched / machine.usable_bytes(2));
    let [last, memory] = machine.stream_bandwidth;
    let [near, middle, far] = traffic.fetched;
    // of products of tiles, what comes from further away passes the second cache meanwhile
    let tiles = tile_loops(nest, target) != TileLoops::None;
    let near = if tiles { (near - middle).max(0.0) } else { near };
    // the first lines of each row come slowly; lines that are written go back
    let slow = (traffic.starts[2] * machine.stream_start_lines * machine.line_bytes as f64).min(far);
    let from_memory = slow / machine.bandwidth[3] + (far - slow + traffic.written[2]) / memory;
    let transfers = [
        near / machine.bandwidth[1],
        middle / last + machine.row_start_ns * traffic.starts[1] + machine.crowded_line_ns * traffic.crowded,
        absent * (from_memory + machine.far_row_start_ns * traffic.starts[2]),
    ];
    let ns = |cycles: f64| cycles / machine.clock_ghz;
    let (ports, chains, loops) = (ns(ports), ns(chains), ns(loops));
    Cost { ports, chains, loops, transfers, tiles, exposed: 0.0, rows: traffic.starts[0] }.with_exposed(machine)
}

/// Share of the lines that a cache lacks when they are read again in the same order and all together are `times` as much as it holds. It replaces any line,
/// as last caches nearly do: one stays that none of the lines which came since replaced, of which there are as many as are lacking, so that
/// 1 - share = exp(-times · share).
fn absent_share(times: f64) -> f64 {
    if times <= 1.0 {
        return 0.0;
    }
    (0..FIXED_POINT_STEPS).fold(1.0, |share: f64, _| 1.0 - (-times * share).exp())
}

/// Steps until the share is known to some percent even where all lines nearly fit.
const FIXED_POINT_STEPS: usize = 50;

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
    Ok(Cost { ports, chains, loops: ns(all.loops), ..*cost }.with_exposed(machine))
}

#[cfg(test)]
mod tests;
