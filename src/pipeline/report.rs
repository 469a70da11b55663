//! The report of a compilation, for people and for programs.

use crate::expr::choice::choice;
use crate::graph::egraph;
use crate::graph::import::provenance::Absent;
use crate::poly::tile::report::{CandidateReport, PhaseReport};
use crate::runtime::module::Module;
use crate::runtime::text;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Every choice of one compilation.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Name of the model.
    pub model: String,
    /// Name of the target.
    pub target: String,
    /// Stage of the pipeline, milliseconds. Indented names are parts of the stage before, summed over threads.
    pub stages: Vec<(String, f64)>,
    /// Milliseconds of the whole compilation.
    pub compile_ms: f64,
    /// The module was compiled before and comes from the cache: all times are those of its compilation.
    pub cached: bool,
    /// Of the distinct kernels, those that were compiled before and come from the cache.
    pub cached_kernels: usize,
    /// Statements of the model file about itself that do not hold, and troubles of the cache: a sentence for each.
    pub warnings: Vec<String>,
    /// `None` for a program of the text language.
    pub rewriting: Option<egraph::OptimizationReport>,
    /// Threads of the runs that `measured_us` is of; 0 where nothing was measured. Predictions are for one thread.
    pub measured_threads: usize,
    /// In the order of the module's kernel and opaque steps.
    pub kernels: Vec<KernelReport>,
    /// Loops and branches, in the order of the module's steps; what runs inside of them is among the kernels.
    pub control: Vec<ControlReport>,
    /// Nodes of the model file whose results are constants; named as in [`KernelReport::nodes`].
    pub folded: Vec<String>,
    /// Nodes of the model file that compute nothing at run time: their results are other values under another shape or name,
    /// or no output needs them.
    pub aliases: Vec<String>,
    /// Kernels with machine code of their own; the others share it.
    pub distinct_kernels: usize,
    /// Bytes of machine code.
    pub code_bytes: u64,
    /// Bytes of constants.
    pub weights_bytes: u64,
    /// Peak memory of intermediate tensors.
    pub arena_bytes: u64,
    /// Memory that each thread needs besides, for arrays of a single iteration.
    pub scratch_bytes: u64,
}

/// One kernel or opaque function of the module.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct KernelReport {
    /// Name of the kernel.
    pub name: String,
    /// The nodes of the model file whose values it computes, alone or together with other kernels. Nodes without a name are
    /// called by their operator and first result, `Add(sum)`; nodes inside of another one `loop/Add(sum)`.
    pub nodes: Vec<String>,
    /// The graph operators in it.
    pub operators: Vec<String>,
    /// Index of its machine code among the distinct kernels.
    pub code: Option<usize>,
    /// Times that it runs in one run of the model, at most: more than once inside of a loop.
    pub runs: u64,
    /// Floating-point operations of one run of the model.
    pub flops: u64,
    /// Predicted time in microseconds, of all its runs in one run of the model.
    pub predicted_us: f64,
    /// Measured time in microseconds; `None` where nothing was measured.
    pub measured_us: Option<f64>,
    /// Runs as a function of the runtime, not as generated code.
    pub opaque: bool,
    /// Uses a tensor instruction.
    pub tensorized: bool,
    /// Part of the kernel that works on vectors.
    pub vectorization: Vectorization,
    /// One entry for each phase.
    pub phases: Vec<PhaseReport>,
    /// The schedules that the planner compared: the chosen one first, then at most three others by predicted time. Predictions
    /// and terms are those of the model of loops; where tiles follow from register blocks, `predicted_us` is that of the tiles.
    pub candidates: Vec<CandidateReport>,
    /// Reason for which the scheduler kept the original order, if it did.
    pub fallback: Option<String>,
}

/// A loop or a branch of the module.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ControlReport {
    /// Name of the step.
    pub name: String,
    /// The nodes of the model file that it stands for.
    pub nodes: Vec<String>,
    /// Steps of a loop, at most; `None` for a branch.
    pub trips: Option<u64>,
    /// Times that it runs in one run of the model, at most.
    pub runs: u64,
    /// Measured time in microseconds that the kernels inside do not take; `None` where nothing was measured.
    pub measured_us: Option<f64>,
}

/// The order in which kernels are listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sort {
    /// Those that take longest first: by measured times, or else by predicted ones.
    #[default]
    Time,
    /// As they run.
    Run,
}

choice!(Sort, "order of kernels", [("time", Sort::Time), ("run", Sort::Run)]);

/// The part of a kernel that works on vectors, by its machine code and, of a part, by its statements.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Vectorization {
    /// Every innermost loop.
    Whole,
    /// Some loops store single elements: those of these statements, or, where none is named, the edges of loops whose other
    /// iterations are vectors.
    Part(Vec<String>),
    /// No loop.
    #[default]
    None,
}

impl KernelReport {
    /// Measured or else predicted time in microseconds.
    pub fn us(&self) -> f64 {
        self.measured_us.unwrap_or(self.predicted_us)
    }

    /// Rate of a measured or else predicted run in GFLOP/s.
    pub fn gflops(&self) -> f64 {
        let us = self.us();
        if us > 0.0 { self.flops as f64 / us / 1e3 } else { 0.0 }
    }
}

impl Report {
    /// The report of a module without anything on how it was made.
    pub fn of_module(model: &str, module: &Module) -> Report {
        Report {
            model: model.into(),
            target: module.target().into(),
            distinct_kernels: module.kernels().len(),
            code_bytes: module.code().len() as u64,
            weights_bytes: module.weights().len(),
            arena_bytes: module.arena_bytes(),
            scratch_bytes: module.scratch_bytes(),
            ..Report::default()
        }
    }

    /// The nodes of the model file that kernels, loops and branches stand for; some of them several times.
    pub fn computed_nodes(&self) -> impl Iterator<Item = &str> {
        let kernels = self.kernels.iter().flat_map(|kernel| &kernel.nodes);
        kernels.chain(self.control.iter().flat_map(|control| &control.nodes)).map(String::as_str)
    }

    /// Adds nodes of the model file that the compiled graph does not have.
    pub(crate) fn add_absent(&mut self, absent: &[Absent]) {
        for node in absent {
            let list = if node.folded { &mut self.folded } else { &mut self.aliases };
            list.push(node.origin.to_string());
        }
    }

    /// Makes the work of one run that of so many.
    pub(crate) fn repeat(&mut self, runs: u64) {
        for kernel in &mut self.kernels {
            kernel.runs = kernel.runs.saturating_mul(runs);
            kernel.flops = kernel.flops.saturating_mul(runs);
            kernel.predicted_us *= runs as f64;
        }
        self.control.iter_mut().for_each(|control| control.runs = control.runs.saturating_mul(runs));
    }

    /// Puts the kernels in this order, from the order in which they run.
    pub fn sort(&mut self, by: Sort) {
        if by == Sort::Time {
            self.kernels.sort_by(|a, b| b.us().total_cmp(&a.us()));
        }
    }

    /// Kernels with loops that store single elements.
    pub fn unvectorized(&self) -> Vec<&str> {
        let scalar = |k: &&KernelReport| !k.opaque && k.vectorization != Vectorization::Whole;
        self.kernels.iter().filter(scalar).map(|k| k.name.as_str()).collect()
    }

    /// Kernels that run without tiles and vectors because those were refused, with the reason.
    pub fn fallbacks(&self) -> Vec<(&str, &str)> {
        self.kernels.iter().filter_map(|k| Some((k.name.as_str(), k.fallback.as_deref()?))).collect()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let cached = if self.cached { ", now from the cache" } else { "" };
        // Some exporters name a graph by a sentence.
        let model = self.model.trim_end_matches('.');
        writeln!(f, "{model} for {}: compiled in {:.0} ms{cached}", self.target, self.compile_ms)?;
        for (stage, ms) in &self.stages {
            writeln!(f, "  {stage:<24} {ms:>9.1} ms")?;
        }
        if let Some(rewriting) = &self.rewriting {
            write!(f, "{rewriting}")?;
        }
        writeln!(
            f,
            "memory: {} code, {} weights, {} intermediate tensors, {} scratch for each thread",
            text::bytes(self.code_bytes),
            text::bytes(self.weights_bytes),
            text::bytes(self.arena_bytes),
            text::bytes(self.scratch_bytes)
        )?;
        let threads = match self.measured_threads {
            0 => "predicted for 1 thread".to_string(),
            n => format!("predicted for 1 thread, measured on {}", text::count(n, "thread")),
        };
        let cached = match self.cached_kernels {
            0 => String::new(),
            n => format!(", {n} of these from the cache"),
        };
        let kernels = text::count(self.kernels.len(), "kernel");
        writeln!(f, "{kernels}, {} distinct{cached}; {threads}", self.distinct_kernels)?;
        for kernel in &self.kernels {
            f.write_str(&kernel.text())?;
        }
        for control in &self.control {
            f.write_str(&control.text())?;
        }
        for (what, nodes) in [("computed when compiled", &self.folded), ("nothing to compute", &self.aliases)] {
            if !nodes.is_empty() {
                let more = match nodes.len().saturating_sub(SHOWN) {
                    0 => String::new(),
                    n => format!(", and {n} more"),
                };
                writeln!(f, "{what}: {}{more}", listed(&nodes[..nodes.len().min(SHOWN)]))?;
            }
        }
        let opaque: Vec<&str> = self.kernels.iter().filter(|k| k.opaque).map(|k| k.name.as_str()).collect();
        if !opaque.is_empty() {
            writeln!(f, "opaque functions: {}", opaque.join(", "))?;
        }
        let kernels: Vec<&KernelReport> = self.kernels.iter().filter(|k| !k.opaque).collect();
        let part = kernels.iter().filter(|k| matches!(k.vectorization, Vectorization::Part(_)));
        let none = kernels.iter().filter(|k| k.vectorization == Vectorization::None);
        for (word, names) in [
            ("PARTLY VECTORIZED", part.map(|k| k.name.as_str()).collect::<Vec<_>>()),
            ("NOT VECTORIZED", none.map(|k| k.name.as_str()).collect()),
        ] {
            if !names.is_empty() {
                writeln!(f, "{word}: {}", names.join(", "))?;
            }
        }
        Ok(())
    }
}

impl KernelReport {
    fn text(&self) -> String {
        let mut out = format!("  {:<40} predicted {:>8.1} µs", self.name, self.predicted_us);
        if let Some(us) = self.measured_us {
            let _ = write!(out, "  measured {us:>8.1} µs");
        }
        let _ = write!(out, "  {:>6.1} GFLOP/s", self.gflops());
        let vectorization = match &self.vectorization {
            _ if self.opaque => "",
            Vectorization::Whole => "vectorized",
            Vectorization::Part(_) => "partly vectorized",
            Vectorization::None => "not vectorized",
        };
        let flags = [(self.opaque, "opaque"), (self.tensorized, "tensorized"), (!self.opaque, vectorization)];
        for (_, word) in flags.iter().filter(|flag| flag.0) {
            let _ = write!(out, "  {word}");
        }
        if self.runs > 1 {
            let _ = write!(out, "  {} times", self.runs);
        }
        let _ = writeln!(out, "\n    {}", self.operators.join(" + "));
        if !self.nodes.is_empty() {
            let _ = writeln!(out, "    nodes: {}", listed(&self.nodes));
        }
        for p in &self.phases {
            let vector = p.vector.as_ref().map_or("no vector".to_string(), |v| format!("vector {v}"));
            let threads = if p.parallel { "parallel" } else { "serial" };
            let _ = writeln!(
                out,
                "    {}: {threads}; tiles {}; block {}; {vector}; {}",
                p.statement,
                shown(&p.tiles),
                shown(&p.block),
                p.instruction_text()
            );
            if p.blocks.len() > 1 {
                let blocks: Vec<String> = p.blocks.iter().map(|b| b.to_string()).collect();
                let _ = writeln!(out, "      blocks: {}", blocks.join("; "));
            }
        }
        for (i, candidate) in self.candidates.iter().enumerate() {
            let what = if i == 0 { "chosen" } else { "runner-up" };
            let _ = writeln!(out, "    {what}: {candidate}");
        }
        match &self.vectorization {
            Vectorization::Part(statements) if statements.is_empty() => {
                let _ = writeln!(out, "    edges of vector loops run element by element");
            }
            Vectorization::Part(statements) => {
                let _ = writeln!(out, "    element by element: {}", statements.join(", "));
            }
            _ => {}
        }
        if let Some(reason) = &self.fallback {
            let _ = writeln!(out, "    {reason}");
        }
        out
    }
}

impl ControlReport {
    fn text(&self) -> String {
        let what = match self.trips {
            Some(trips) => format!("loop of {trips} steps"),
            None => "branch".into(),
        };
        let times = if self.runs > 1 { format!(", {} times", self.runs) } else { String::new() };
        let time = self.measured_us.map_or(String::new(), |us| format!(", {us:.1} µs beside its kernels"));
        format!("  {:<40} {what}{times}{time}\n    nodes: {}\n", text::name(&self.name), listed(&self.nodes))
    }
}

/// Nodes without a kernel that the text of a report names; `Report::folded` and `Report::aliases` have all.
const SHOWN: usize = 12;

/// Names from a file as a list.
pub fn listed(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|n| text::name(n)).collect();
    names.join(", ")
}

fn shown(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_as_the_name_of_a_graph_goes_on_in_the_heading() {
        let heading = |model: &str| {
            let report = Report { model: model.into(), target: "x86-64-avx2".into(), ..Report::default() };
            report.to_string().lines().next().unwrap().to_string()
        };
        assert_eq!(heading("Model from PaddlePaddle."), "Model from PaddlePaddle for x86-64-avx2: compiled in 0 ms");
        assert_eq!(heading("v1.5"), "v1.5 for x86-64-avx2: compiled in 0 ms");
    }
}
