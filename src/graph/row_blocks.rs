//! Row blocks: minimal filtering in parts, so that its transformed maps stay in a cache.
//!
//! In: a graph, and the kernel of each node. Out: an equal graph where the input transform, the products and the output transform
//! of a convolution, with the operators in the last kernel, stand once for each block of tile rows. A block reads its rows of the
//! image in place and writes its rows of the result in place (`fusion/slices.rs`). A convolution is divided where its transformed
//! maps exceed the last cache and the predicted time of the blocks is less: maps travel between the kernels of a block through
//! a cache instead of memory. This is the loop over row tiles of Alwani, Chen, Ferdman and Milder, "Fused-Layer CNN
//! Accelerators" (MICRO 2016), around the kernels of one layer, so that nothing is computed twice.
//!
//! Invariant: each block is an operator graph as any other; results do not depend on the number of threads.

mod chain;
mod emit;

use crate::codegen::Target;
use crate::codegen::machine::Machine;
use crate::expr::interval::ceil_div;
use crate::graph::cost::{self, Operand};
use crate::graph::fusion::Placement;
use crate::graph::ir::Graph;
use crate::graph::price::{Application, Prices};
use crate::graph::row_blocks::chain::{Chain, Part};
use crate::graph::row_blocks::emit::Emitter;
use crate::poly::tile::cache::Constants;
use crate::runtime::{Result, text};
use serde::{Deserialize, Serialize};

/// A convolution that runs in blocks of rows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RowBlocks {
    /// Name of the model's node; that of the rewritten graph's where the model has none.
    pub name: String,
    /// Number of blocks.
    pub blocks: i64,
    /// Tile rows of a block; the last one may have fewer.
    pub tile_rows: i64,
    /// Predicted microseconds of all blocks on one thread, with weights in the last cache and without the operators after the
    /// convolution.
    pub predicted_us: f64,
    /// Predicted microseconds of the convolution as a whole, as those of the blocks.
    pub whole_us: f64,
}

/// Sizes of the transformed maps of a block, as multiples of the second cache. Measured on one and two threads with 3x3 convolutions
/// of 64 channels over 224x224, 128 over 112x112 and 256 over 56x56: blocks of 2 to 8 MiB are the fastest, within 5 %, where the second
/// cache has 1.
const CACHE_SHARES: [f64; 2] = [2.0, 4.0];
/// Largest share of the predicted time of the whole for which a convolution is divided. Unmeasured.
const GAIN: f64 = 0.95;

/// Divides the convolutions of `graph` that gain by it. `threads` threads work on predictions.
pub fn divide(
    graph: Graph,
    placements: Vec<Placement>,
    target: &Target,
    threads: usize,
) -> Result<(Graph, Vec<Placement>, Vec<RowBlocks>)> {
    let exceeds = |chain: &Chain| chain.transformed_bytes() > target.machine.usable_bytes(2);
    let chains: Vec<Chain> = chain::find(&graph, &placements)?.into_iter().filter(exceeds).collect();
    if chains.is_empty() {
        return Ok((graph, placements, vec![]));
    }
    let chosen = choose(&chains, target, threads)?;
    let mut emitter = Emitter::new(graph, placements);
    for (chain, blocks) in chains.iter().zip(&chosen) {
        if let Some(blocks) = blocks {
            emitter.divide(chain, blocks.tile_rows)?;
        }
    }
    let (graph, placements) = emitter.finish()?;
    Ok((graph, placements, chosen.into_iter().flatten().collect()))
}

/// The blocks of each convolution; `None` where the whole is predicted to take no longer.
fn choose(chains: &[Chain], target: &Target, threads: usize) -> Result<Vec<Option<RowBlocks>>> {
    let mut forms: Vec<Vec<Form>> = vec![];
    for chain in chains {
        let rows = std::iter::once(chain.tile_rows()).chain(candidates(chain, target));
        forms.push(rows.map(|rows| Ok(Form { rows, parts: chain.parts(0, rows)? })).collect::<Result<_>>()?);
    }
    let parts = forms.iter().flatten().flat_map(|form| &form.parts);
    // Whole or in blocks, weights come from memory once; after the first block they are in the last cache.
    let prices = Prices::new(target, parts.map(application), |_, _| Constants::LastCache, threads);
    let best = |(chain, forms): (&Chain, &Vec<Form>)| {
        let time = |form: &Form| form.time(chain, &prices);
        let (whole, divided) = forms.split_first()?;
        let whole = time(whole)?;
        let divided = divided.iter().filter_map(|form| Some((form.rows, time(form)?)));
        let (tile_rows, time) = divided.min_by(|a, b| a.1.rank().total_cmp(&b.1.rank()))?;
        (time.rank() < GAIN * whole.rank()).then(|| RowBlocks {
            name: chain.name.clone(),
            blocks: ceil_div(chain.tile_rows(), tile_rows),
            tile_rows,
            predicted_us: time.one_thread / 1e3,
            whole_us: whole.one_thread / 1e3,
        })
    };
    Ok(chains.iter().zip(&forms).map(best).collect())
}

/// A convolution in blocks of so many tile rows, and the kernels of one block.
struct Form {
    rows: i64,
    parts: Vec<Part>,
}

/// Predicted nanoseconds.
struct Time {
    one_thread: f64,
    /// On as many threads as `busy_steps` parallel iterations keep busy.
    threads: f64,
}

impl Time {
    /// One code serves any number of threads.
    fn rank(&self) -> f64 {
        (self.one_thread * self.threads).sqrt()
    }
}

impl Form {
    /// The time of all blocks.
    fn time(&self, chain: &Chain, prices: &Prices) -> Option<Time> {
        let machine = &prices.target().machine;
        let number = chain.tile_rows() as f64 / self.rows as f64;
        let mut time = Time { one_thread: 0.0, threads: 0.0 };
        for part in &self.parts {
            let (op, operands, result) = application(part);
            let ns = number * prices.price(op, &operands, result)?;
            // A kernel that is short runs on one thread.
            let steps = if ns / number < machine.serial_ns { 1 } else { part.parallel_steps().min(machine.busy_steps) };
            time.one_thread += ns + number * machine.launch_ns;
            time.threads += ns / steps as f64 + number * machine.launch_ns;
        }
        // Blocks cannot write into another concatenation at once.
        let copied =
            if self.rows < chain.tile_rows() { cost::traffic(2 * chain.copied_bytes, prices.target()) } else { 0.0 };
        let more = copied + number * self.lost_ns(machine);
        Some(Time { one_thread: time.one_thread + more, threads: time.threads + more })
    }

    /// Exposed nanoseconds to write and read the maps of a block in memory which fit the last cache each, but not together:
    /// the price of a kernel knows one of them.
    fn lost_ns(&self, machine: &Machine) -> f64 {
        let maps = || self.parts[..2].iter().map(|part| part.result.bytes() as f64);
        let last = machine.usable_bytes(2);
        if maps().sum::<f64>() <= last {
            return 0.0;
        }
        let slower = 1.0 / machine.bandwidth[3] - 1.0 / machine.bandwidth[2];
        maps().filter(|&bytes| bytes <= last).sum::<f64>() * 2.0 * slower * machine.memory_exposed
    }
}

/// Numbers of tile rows of a block, of equal blocks where they divide the rows.
fn candidates(chain: &Chain, target: &Target) -> Vec<i64> {
    let rows = chain.tile_rows();
    let row_bytes = chain.transformed_bytes() / rows as f64;
    let second = target.machine.cache_bytes[1] as f64;
    let fitting = CACHE_SHARES.map(|share| ((share * second / row_bytes) as i64).max(1));
    let mut even: Vec<i64> = fitting.iter().map(|&r| ceil_div(rows, ceil_div(rows, r))).filter(|&r| r < rows).collect();
    even.dedup();
    even
}

fn application(part: &Part) -> Application<'_> {
    let operands = part.operands.iter();
    let operands = operands.map(|o| Operand { ty: &o.ty, constant: o.constant, value: o.value.as_deref() });
    (&part.op, operands.collect(), &part.result)
}

impl std::fmt::Display for RowBlocks {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let RowBlocks { name, blocks, tile_rows, predicted_us, whole_us } = self;
        let rows = text::count(*tile_rows as usize, "tile row");
        write!(
            f,
            "{}: {blocks} blocks of {rows}, predicted {predicted_us:.1} µs; as a whole {whole_us:.1} µs",
            text::name(name)
        )
    }
}

#[cfg(test)]
mod tests;
