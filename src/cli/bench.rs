//! `bench`: how long a run takes, and each kernel of it.

mod measurement;
mod parts;

use super::decode::StateArguments;
use super::inputs::{Prepared, PreparedParts, Ready, RunArguments, outside_bytes};
use super::progress::Progress;
use super::run::{save_outputs, save_values};
use crate::model_arguments::{CacheArguments, ModelArguments, choice};
use crate::output::print;
use measurement::{
    CheckTime, KernelTime, Latency, Measurement, Run, StageTime, latencies, latencies_and_peak, quantile,
};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;
use tilewright::Session;
use tilewright::module::{Action, Module};
use tilewright::{DType, Error, Result, Sort, Tensor};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    cache: CacheArguments,
    /// Measure for this long
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Order of the kernels: those that take longest first, or as they run
    #[arg(long, value_name = "ORDER", default_value = "time", value_parser = choice::<Sort>(Sort::NAMES))]
    sort: Sort,
    /// Measure on request, so that programs can be measured in turn: for each line of standard input, a number of seconds or
    /// "N runs", print one line of JSON, the latencies in ms; a line is printed first when all is ready
    #[arg(long, conflicts_with_all = ["json", "seconds"])]
    interactive: bool,
    /// Write the outputs of one run as DIR/output_0.npy, ...
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    #[command(flatten)]
    state: StateArguments,
}

/// The first line of `--interactive`.
#[derive(Serialize)]
struct FirstRun {
    version: &'static str,
    /// From the file to the first outputs, without the making of inputs.
    prepare_ms: f64,
    /// Of the first run, which is part of it.
    first_ms: f64,
}

impl Arguments {
    pub fn run(self, progress: &Progress) -> Result<String> {
        if let Some(text) = self.state.run(&self.model, &self.run, progress)? {
            return Ok(text);
        }
        let prepared = match self.run.prepare(&self.model, self.cache.options(), progress)? {
            Ready::Whole(prepared) => prepared.at_capacity()?,
            Ready::Parts(parts, _) => return self.in_parts(&parts, progress),
        };
        let mut outputs = prepared.session.outputs();
        if let Some(folder) = &self.save {
            prepared.session.run_into(&prepared.inputs(), &mut outputs)?;
            save_outputs(prepared.session.module(), &outputs, folder, "npy")?;
        }
        if self.interactive {
            let inputs = prepared.inputs();
            let mut run = || prepared.session.time_into(&inputs, &mut outputs);
            return answer_requests(&mut run, prepared.compile_ms + prepared.session_ms);
        }
        measure(&prepared, &mut outputs, self.seconds, progress)?.text(self.sort, self.json)
    }

    /// Measures a model that depends on data.
    fn in_parts(&self, parts: &PreparedParts, progress: &Progress) -> Result<String> {
        let inputs = parts.inputs();
        if let Some(folder) = &self.save {
            save_values(&parts.compiled.model().output_names(), &parts.compiled.run_values(&inputs)?, folder, "npy")?;
        }
        if self.interactive {
            return answer_requests(&mut || parts::time(parts, &inputs), parts.load_ms);
        }
        progress.stage(format!("measuring {} for {} s", self.model.model.display(), self.seconds));
        parts::measure(parts, &inputs, self.seconds)?.text(self.sort, self.json)
    }
}

pub fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse().ok().filter(|s| *s > 0.0 && *s <= 86400.0);
    seconds.ok_or_else(|| "expected seconds, more than 0 and a day at most".into())
}

/// Measures on request; it took `ready_ms` until the model could run.
fn answer_requests(run: Run, ready_ms: f64) -> Result<String> {
    let first_ms = run()?.as_secs_f64() * 1e3;
    let prepare_ms = ready_ms + first_ms;
    print_line(&FirstRun { version: env!("CARGO_PKG_VERSION"), prepare_ms, first_ms })?;
    for line in std::io::stdin().lines() {
        let line = line.map_err(|e| Error::Io(format!("cannot read standard input: {e}")))?;
        let (seconds, least) = parse_request(line.trim())?;
        print_line(&latencies(run, seconds, least)?)?;
    }
    Ok(String::new())
}

/// `0.25`, or `12 runs`: seconds and least number of runs.
fn parse_request(line: &str) -> Result<(f64, usize)> {
    let wrong = |_| Error::Invalid(format!("`{line}` is not a number of seconds, nor of runs"));
    if let Some(runs) = line.strip_suffix(" runs") {
        return Ok((0.0, runs.parse::<u32>().map_err(|e| wrong(e.to_string()))? as usize));
    }
    Ok((parse_seconds(line).map_err(wrong)?, 1))
}

fn print_line(value: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string(value).map_err(|e| Error::Internal(e.to_string()))?;
    print(&(line + "\n"))
}

fn measure(prepared: &Prepared, outputs: &mut [Tensor], seconds: f64, progress: &Progress) -> Result<Measurement> {
    let (session, inputs) = (&prepared.session, prepared.inputs());
    let module = session.module();
    progress.stage(format!("measuring {} for {seconds} s", module.name()));
    let mut run = || session.time_into(&inputs, outputs);
    let (latencies, peak) = latencies_and_peak(&mut run, seconds, module.target(), arithmetic(module))?;
    let latency_ms = Latency::of(&latencies);
    let times = step_times(session, &inputs, seconds / 5.0)?;
    let stages = prepared.report.iter().flat_map(|report| &report.stages);
    let stages = stages.map(|(name, ms)| StageTime { name: name.trim().into(), ms: *ms }).collect();
    // In the order of the steps.
    let mut reports = prepared.report.iter().flat_map(|report| &report.kernels);
    let (mut kernels, mut checks) = (vec![], vec![]);
    for ((step, runs), us) in module.all_steps().into_iter().zip(times) {
        let (tensorized, opaque) = match &step.action {
            Action::Kernel { kernel, .. } => (module.kernels()[*kernel as usize].tensorized, false),
            Action::Opaque { .. } => (false, true),
            Action::CheckIndices { .. } => {
                checks.push(CheckTime { name: step.name.clone(), us });
                continue;
            }
            Action::Copy { .. } | Action::Loop { .. } | Action::If { .. } => continue,
        };
        let gflops = if us > 0.0 { step.flops.saturating_mul(runs) as f64 / us / 1e3 } else { 0.0 };
        let report = reports.next();
        let (predicted_us, nodes) = (report.map(|k| k.predicted_us), report.map_or(vec![], |k| k.nodes.clone()));
        kernels.push(KernelTime {
            name: step.name.clone(),
            nodes,
            us,
            predicted_us,
            gflops,
            tensorized,
            opaque,
            part: None,
        });
    }
    let flops: u64 =
        module.all_steps().iter().map(|(s, runs)| s.flops.saturating_mul(*runs)).fold(0, u64::saturating_add);
    let outside = outside_bytes(module)?;
    Ok(Measurement {
        model: module.name().to_string(),
        target: module.target().to_string(),
        threads: session.threads(),
        compile_ms: prepared.compile_ms,
        gflops: flops as f64 / latency_ms.median / 1e6,
        latency_ms,
        runs: latencies.len(),
        peak_gflops: peak * session.threads() as f64,
        peak_dtype: arithmetic(module).name(),
        flops,
        least_bytes: module.weights().len() + outside,
        peak_memory_bytes: module.weights().len()
            + module.arena_bytes()
            + module.scratch_bytes() * session.threads() as u64
            + outside,
        stages,
        kernels,
        checks,
        host: vec![],
        algorithms: prepared.report.as_ref().and_then(|r| Some(r.rewriting.as_ref()?.algorithms.clone())),
    })
}

/// The arithmetic whose limit a module is held against.
fn arithmetic(module: &Module) -> DType {
    match module.outputs().iter().any(|o| o.tensor.dtype == DType::F64) {
        true => DType::F64,
        false => DType::F32,
    }
}

/// Median microseconds of each step of the module, of runs in about `seconds` after one that is not counted.
fn step_times(session: &Session, inputs: &[(&str, &Tensor)], seconds: f64) -> Result<Vec<f64>> {
    let mut times: Vec<Vec<f64>> = vec![vec![]; session.profile(inputs)?.len()];
    let start = Instant::now();
    while times.first().is_some_and(Vec::is_empty) || start.elapsed().as_secs_f64() < seconds {
        for (times, time) in times.iter_mut().zip(session.profile(inputs)?) {
            times.push(time.as_secs_f64() * 1e6);
        }
    }
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    Ok(times.iter().map(|times| quantile(times, 0.5)).collect())
}
