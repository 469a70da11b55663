//! The report of a run in parts: each part with its kernels and their times, and what the host does between them.

use crate::graph::import::provenance::Origin;
use crate::pipeline::add_measurements;
use crate::pipeline::report::{Report, Sort, listed};
use crate::runtime::module::Module;
use crate::runtime::text;
use serde::Serialize;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A run of a model that depends on data: the parts that it was compiled to, and the steps between them.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct StagedReport {
    /// Name of the model.
    pub model: String,
    /// Name of the target.
    pub target: String,
    /// Threads of the run.
    pub threads: usize,
    /// Milliseconds of compiling the parts of this run, now or in an earlier run.
    pub compile_ms: f64,
    /// In the order in which they first ran.
    pub parts: Vec<PartReport>,
    /// In the order in which they first ran.
    pub host: Vec<HostReport>,
}

/// A part of a model that depends on data.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct PartReport {
    /// Times that it runs in one run of the model: more than once inside of a loop that the host runs.
    pub runs: u64,
    /// The counts out of data that it is for; `None` where its sizes are exact.
    pub counts: Option<PartCounts>,
    /// Its compilation; the work and the times of its kernels are those of all its runs.
    pub report: Report,
}

/// Sizes out of data that one part is compiled for: the work of its kernels is that of the capacity.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct PartCounts {
    /// The smallest count.
    pub least: i64,
    /// The largest count.
    pub most: i64,
    /// Extent of the dimensions that follow the count.
    pub capacity: i64,
}

/// A node that the host runs between the parts.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct HostReport {
    /// The node of the model file, as in [`KernelReport::nodes`](crate::KernelReport::nodes).
    pub node: String,
    /// Its ONNX operator.
    pub operator: String,
    /// Times that it runs in one run of the model.
    pub runs: u64,
    /// Measured time in microseconds of all its runs; of a branch or a loop, that which its parts and steps do not take.
    pub measured_us: f64,
}

impl StagedReport {
    /// Puts the kernels of each part and the steps of the host in this order, from the order in which they run.
    pub fn sort(&mut self, by: Sort) {
        self.parts.iter_mut().for_each(|part| part.report.sort(by));
        if by == Sort::Time {
            self.host.sort_by(|a, b| b.measured_us.total_cmp(&a.measured_us));
        }
    }
}

impl std::fmt::Display for StagedReport {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let StagedReport { model, target, compile_ms, parts, host, .. } = self;
        writeln!(f, "{model} for {target}: {}, compiled in {compile_ms:.0} ms", text::count(parts.len(), "part"))?;
        for (i, part) in (1..).zip(parts) {
            let times = if part.runs > 1 { format!(", which runs {} times", part.runs) } else { String::new() };
            let counts = part.counts.as_ref().map_or(String::new(), |counts| {
                format!(", for counts of {} to {} with a capacity {}", counts.least, counts.most, counts.capacity)
            });
            write!(f, "part {i}{times}{counts}: {}", part.report)?;
        }
        if !host.is_empty() {
            writeln!(f, "{} of the host between the parts", text::count(host.len(), "step"))?;
        }
        for step in host {
            let mut line = format!("  {:<40} measured {:>8.1} µs", step.operator, step.measured_us);
            if step.runs > 1 {
                let _ = write!(line, "  {} times", step.runs);
            }
            writeln!(f, "{}\n    nodes: {}", text::name(&line), listed(std::slice::from_ref(&step.node)))?;
        }
        Ok(())
    }
}

/// Notes of one run.
#[derive(Default)]
pub(super) struct Profile {
    parts: Vec<PartRuns>,
    host: Vec<HostReport>,
    /// Time of parts and steps so far.
    spent: Duration,
}

struct PartRuns {
    counts: Option<PartCounts>,
    /// Of the compiled part; no other part has this one.
    report: Arc<Report>,
    /// `None` where everything followed from constants.
    module: Option<Arc<Module>>,
    runs: u64,
    times: Vec<Duration>,
}

impl Profile {
    /// Adds a run of a part that took these times.
    pub(super) fn add_part(
        &mut self,
        counts: Option<PartCounts>,
        report: &Arc<Report>,
        module: Option<&Arc<Module>>,
        times: &[Duration],
    ) {
        self.spent += times.iter().sum::<Duration>();
        match self.parts.iter_mut().find(|known| Arc::ptr_eq(&known.report, report)) {
            Some(known) => {
                known.runs += 1;
                known.times.iter_mut().zip(times).for_each(|(sum, time)| *sum += *time);
            }
            None => {
                let (report, module, times) = (report.clone(), module.cloned(), times.to_vec());
                self.parts.push(PartRuns { counts, report, module, runs: 1, times });
            }
        }
    }

    /// The time that a step of the host begins at.
    pub(super) fn begin(&self) -> (Instant, Duration) {
        (Instant::now(), self.spent)
    }

    /// Adds a step of the host; what ran inside of it is not counted again.
    pub(super) fn add_step(&mut self, node: &Origin, operator: &str, (start, spent): (Instant, Duration)) {
        let own = start.elapsed().saturating_sub(self.spent - spent);
        self.spent += own;
        let position = self.host.iter().position(|step| *step.node == **node);
        let step = match position {
            Some(position) => &mut self.host[position],
            None => {
                let (node, operator) = (node.to_string(), operator.to_string());
                self.host.push(HostReport { node, operator, ..HostReport::default() });
                let last = self.host.len() - 1;
                &mut self.host[last]
            }
        };
        step.runs += 1;
        step.measured_us += own.as_secs_f64() * 1e6;
    }

    /// The report of a run on `threads` threads.
    pub(super) fn finish(self, model: &str, target: &str, threads: usize) -> StagedReport {
        let mut all = StagedReport {
            model: model.into(),
            target: target.into(),
            threads,
            host: self.host,
            ..StagedReport::default()
        };
        for PartRuns { counts, report, module, runs, times } in self.parts {
            let mut report = Report::clone(&report);
            report.repeat(runs);
            if let Some(module) = module {
                add_measurements(&mut report, &module, &times, threads);
            }
            all.compile_ms += report.compile_ms;
            all.parts.push(PartReport { runs, counts, report });
        }
        all
    }
}
