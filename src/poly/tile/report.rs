//! The result of tiling: the tree, the packed operands, and what is expected of each phase.

use crate::poly::analysis::operation_count::flops;
use crate::poly::packing::Packing;
use crate::poly::schedule::Schedule;
use crate::poly::scop::Scop;
use crate::poly::statement::{Role, StatementId};
use serde::{Deserialize, Serialize};

/// A tiled schedule with its packed operands and its report.
#[derive(Clone, PartialEq, Debug)]
pub struct Tiled {
    pub schedule: Schedule,
    pub packings: Vec<Packing>,
    pub report: TilingReport,
}

/// Decisions of the tile model for one kernel, and its predictions.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TilingReport {
    pub name: String,
    /// Floating-point operations of one run.
    pub flops: f64,
    /// Bytes of all external tensors.
    pub bytes: f64,
    /// Time on one thread.
    pub predicted_ns: f64,
    pub phases: Vec<PhaseReport>,
    /// Of the statements that accumulate, the one with most work is computed by a tensor instruction.
    pub tensorized: bool,
}

/// A schedule that the planner considered for a kernel.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CandidateReport {
    /// The properties in which candidates differ: the order, the tiles, the loops that are vectors.
    pub name: String,
    /// Predicted time of one run on one thread, in ns.
    pub predicted_ns: f64,
    /// Parts of that time, which add up to it, in ns: instructions on the busiest `ports`; waiting for results of earlier
    /// iterations (`chains`); starts, counters and branches of `loops`; `transfers` from caches and memory that nothing hides,
    /// with the first lines of rows that no prefetcher follows.
    pub terms: Vec<(String, f64)>,
}

/// One phase of a kernel.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PhaseReport {
    /// Name of the dominant statement.
    pub statement: String,
    /// The vector iterator of the dominant statement.
    pub vector: Option<String>,
    /// The register block: `w 14 × f 32`.
    pub block: String,
    /// The tile loops, outermost first: `f/32 h w/14`.
    pub tiles: String,
    /// The tensor instruction that computes it.
    pub instruction: Option<String>,
    /// Why no instruction matches, with the operand.
    pub mismatch: String,
    /// Predicted time on one thread, in ns.
    pub predicted_ns: f64,
    /// Its iterations are divided among threads.
    pub parallel: bool,
    /// The register blocks that competed, at most four, the best first; empty where there was no such choice.
    pub blocks: Vec<BlockReport>,
}

/// A register block of the dominant statement of a phase.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BlockReport {
    /// Points of the block, those of the vector last: `w 14 × f 32`; empty for scalars.
    pub block: String,
    /// Tensors that are read from packed copies.
    pub packed: Vec<String>,
    /// Predicted time of its arithmetic, loads and packing on one thread, in ns.
    pub core_ns: f64,
    /// With transfers from caches and memory, in the order of loops over blocks that suits it; `None` where the block was too slow
    /// without them already.
    pub total_ns: Option<f64>,
}

impl PhaseReport {
    /// The tensor instruction, or why there is none.
    pub fn instruction_text(&self) -> String {
        self.instruction.clone().unwrap_or_else(|| format!("no tensor instruction: {}", self.mismatch))
    }
}

/// Of the form `w 14 × f 32, packs W: 12.5 µs`.
impl std::fmt::Display for BlockReport {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(if self.block.is_empty() { "scalars" } else { &self.block })?;
        if !self.packed.is_empty() {
            write!(f, ", packs {}", self.packed.join(" and "))?;
        }
        match self.total_ns {
            Some(total) => write!(f, ": {:.2} µs", total / 1e3),
            None => write!(f, ": {:.2} µs without transfers", self.core_ns / 1e3),
        }
    }
}

/// Of the form `ILP's order, tiles: 12.5 µs = ports 8.0 + chains 4.5`.
impl std::fmt::Display for CandidateReport {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let terms: Vec<String> = self.terms.iter().map(|(name, ns)| format!("{name} {:.2}", ns / 1e3)).collect();
        write!(f, "{}: {:.2} µs", self.name, self.predicted_ns / 1e3)?;
        if terms.is_empty() { Ok(()) } else { write!(f, " = {}", terms.join(" + ")) }
    }
}

impl std::fmt::Display for TilingReport {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let gflops = self.flops / self.predicted_ns.max(1.0);
        writeln!(f, "{}: {:.1} us predicted, {gflops:.1} GFLOP/s", self.name, self.predicted_ns / 1e3)?;
        for p in &self.phases {
            write!(f, "  {}: block {}, loops {}", p.statement, p.block, p.tiles)?;
            write!(f, "{}, ", if p.parallel { " in parallel" } else { "" })?;
            writeln!(f, "{}", p.instruction_text())?;
        }
        Ok(())
    }
}

/// A report of nothing but the work.
pub(super) fn work(scop: &Scop) -> TilingReport {
    TilingReport { name: scop.name.clone(), flops: flops(scop), bytes: external_bytes(scop), ..TilingReport::default() }
}

pub(super) fn instances(scop: &Scop, s: StatementId) -> f64 {
    scop.statement(s).iterators.iter().map(|i| i.extent as f64).product()
}

pub(super) fn external_bytes(scop: &Scop) -> f64 {
    let external = scop.tensors.iter().filter(|t| t.role != Role::Temporary);
    external.map(|t| (t.shape.iter().product::<i64>() as usize * t.dtype.bytes()) as f64).sum()
}
