//! `bench`: how long a run takes, and each kernel of it.

use super::decode::StateArguments;
use super::inputs::{Prepared, RunArguments};
use super::progress::Progress;
use super::run::save_outputs;
use crate::model_arguments::{CacheArguments, ModelArguments, sort_parser};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;
use tilewright::AlgorithmReport;
use tilewright::Session;
use tilewright::Target;
use tilewright::internal::codegen::probe::PeakProbe;
use tilewright::internal::runtime::text::{bytes, name};
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
    #[arg(long, value_name = "ORDER", default_value = "time", value_parser = sort_parser())]
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
struct Ready {
    version: &'static str,
    /// From the file to the first outputs, without the making of inputs.
    prepare_ms: f64,
    /// Of the first run, which is part of it.
    first_ms: f64,
}

/// The fields and their names are a contract.
#[derive(Serialize)]
struct Measurement {
    model: String,
    target: String,
    threads: usize,
    /// Time to load and compile.
    compile_ms: f64,
    latency_ms: Latency,
    runs: usize,
    /// Floating-point operations of a run over its median latency.
    gflops: f64,
    /// Rate of a register kernel with operands from the first cache: the median of runs between those of the model, as
    /// the latency is one, on one core; times the threads.
    peak_gflops: f64,
    /// The arithmetic of that limit: `f64` where an output is, `f32` otherwise.
    peak_dtype: &'static str,
    /// Weights, intermediate tensors, scratch memory, inputs and outputs.
    peak_memory_bytes: u64,
    /// Floating-point operations of a run.
    flops: u64,
    /// Bytes of weights, inputs and outputs: the least that a run moves.
    least_bytes: u64,
    /// Of compiling, kernels summed; none for a model that was compiled before.
    stages: Vec<StageTime>,
    kernels: Vec<KernelTime>,
    /// Checks of subscripts that come from inputs; their time is part of the latency.
    checks: Vec<CheckTime>,
    /// Of convolutions; for a network that is compiled in this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithms: Option<AlgorithmReport>,
}

#[derive(Serialize)]
struct Latency {
    min: f64,
    median: f64,
    p95: f64,
}

#[derive(Serialize)]
struct StageTime {
    name: String,
    ms: f64,
}

/// Median over several runs.
#[derive(Serialize)]
struct CheckTime {
    name: String,
    us: f64,
}

#[derive(Serialize)]
struct KernelTime {
    name: String,
    /// Nodes of the model file that it computes; for a model that is compiled in this run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<String>,
    /// Median over several runs.
    us: f64,
    /// By the cost model; for a model that is compiled in this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_us: Option<f64>,
    gflops: f64,
    tensorized: bool,
    opaque: bool,
}

impl Arguments {
    pub fn run(self, progress: &Progress) -> Result<String> {
        if let Some(text) = self.state.run(&self.model, &self.run, progress)? {
            return Ok(text);
        }
        let prepared = self.run.prepare(&self.model, self.cache.options(), progress)?.at_capacity()?;
        let mut outputs = prepared.session.outputs();
        if let Some(folder) = &self.save {
            prepared.session.run_into(&prepared.inputs(), &mut outputs)?;
            save_outputs(prepared.session.module(), &outputs, folder, "npy")?;
        }
        if self.interactive {
            return answer_requests(&prepared, &mut outputs);
        }
        let mut measurement = measure(&prepared, &mut outputs, self.seconds, progress)?;
        if self.sort == Sort::Time {
            measurement.kernels.sort_by(|a, b| b.us.total_cmp(&a.us));
        }
        if self.json {
            let json = serde_json::to_string_pretty(&measurement).map_err(|e| Error::Internal(e.to_string()))?;
            return Ok(json + "\n");
        }
        Ok(table(&measurement, self.sort))
    }
}

pub fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse().ok().filter(|s| *s > 0.0 && *s <= 86400.0);
    seconds.ok_or_else(|| "expected seconds, a day at most".into())
}

fn answer_requests(prepared: &Prepared, outputs: &mut [Tensor]) -> Result<String> {
    let (session, inputs) = (&prepared.session, prepared.inputs());
    let first_ms = session.time_into(&inputs, outputs)?.as_secs_f64() * 1e3;
    let prepare_ms = prepared.compile_ms + prepared.session_ms + first_ms;
    print_line(&Ready { version: env!("CARGO_PKG_VERSION"), prepare_ms, first_ms })?;
    for line in std::io::stdin().lines() {
        let line = line.map_err(|e| Error::Io(format!("cannot read standard input: {e}")))?;
        let (seconds, least) = parse_request(line.trim())?;
        print_line(&latencies(session, &inputs, outputs, seconds, least)?)?;
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
    let mut out = std::io::stdout();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.map_err(|e| Error::Io(format!("cannot write to standard output: {e}")))
}

/// Milliseconds of each run for this long, and of `least` runs in any case. The first run warms up; it counts only where it
/// alone takes as long.
fn latencies(
    session: &Session,
    inputs: &[(&str, &Tensor)],
    outputs: &mut [Tensor],
    seconds: f64,
    least: usize,
) -> Result<Vec<f64>> {
    let first = session.time_into(inputs, outputs)?.as_secs_f64();
    if least <= 1 && first >= seconds {
        return Ok(vec![first * 1e3]);
    }
    let (mut latencies, start) = (vec![], Instant::now());
    while latencies.len() < least || start.elapsed().as_secs_f64() < seconds {
        latencies.push(session.time_into(inputs, outputs)?.as_secs_f64() * 1e3);
    }
    Ok(latencies)
}

/// Parts that the runs are divided into, with runs of the probe of the peak between them.
const ROUNDS: f64 = 10.0;
/// Share of the time that the probe takes beside the runs, and its least seconds in a round.
const PROBE_SHARE: f64 = 0.1;
const PROBE_SECONDS: f64 = 0.005;

fn measure(prepared: &Prepared, outputs: &mut [Tensor], seconds: f64, progress: &Progress) -> Result<Measurement> {
    let (session, inputs) = (&prepared.session, prepared.inputs());
    let module = session.module();
    progress.stage(format!("measuring {} for {seconds} s", module.name()));
    let (latencies, peak) = latencies_and_peak(session, &inputs, outputs, seconds)?;
    let latency_ms =
        Latency { min: quantile(&latencies, 0.0), median: quantile(&latencies, 0.5), p95: quantile(&latencies, 0.95) };
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
        let gflops = if us > 0.0 { (step.flops * runs) as f64 / us / 1e3 } else { 0.0 };
        let report = reports.next();
        let (predicted_us, nodes) = (report.map(|k| k.predicted_us), report.map_or(vec![], |k| k.nodes.clone()));
        kernels.push(KernelTime { name: step.name.clone(), nodes, us, predicted_us, gflops, tensorized, opaque });
    }
    let flops: u64 = module.all_steps().iter().map(|(s, runs)| s.flops.saturating_mul(*runs)).sum();
    let specs = module.inputs().iter().chain(module.outputs().iter().map(|o| &o.tensor));
    let outside: u64 = specs.map(|s| s.bytes()).sum::<Result<u64>>()?;
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
        algorithms: prepared.report.as_ref().and_then(|r| Some(r.rewriting.as_ref()?.algorithms.clone())),
    })
}

/// Milliseconds of each run, sorted, and GFLOP/s of one core: both in turn, so that they are of the same moments. Of what
/// takes longer than `seconds` the first run is the only one.
fn latencies_and_peak(
    session: &Session,
    inputs: &[(&str, &Tensor)],
    outputs: &mut [Tensor],
    seconds: f64,
) -> Result<(Vec<f64>, f64)> {
    let probe = Target::by_name(session.module().target()).map(|target| peak_probe(session.module(), &target));
    let probe = probe.transpose()?;
    let first = session.time_into(inputs, outputs)?.as_secs_f64();
    let (mut times, mut rates, mut spent) = (vec![], vec![], 0.0);
    if first >= seconds {
        (times, spent) = (vec![first * 1e3], first);
    }
    loop {
        if let Some(probe) = &probe {
            rates.extend(probe.rates((PROBE_SHARE * seconds / ROUNDS).max(PROBE_SECONDS))?);
        }
        if spent >= seconds {
            break;
        }
        let start = Instant::now();
        times.extend(latencies(session, inputs, outputs, seconds / ROUNDS, 1)?);
        spent += start.elapsed().as_secs_f64();
    }
    times.sort_by(f64::total_cmp);
    rates.sort_by(f64::total_cmp);
    Ok((times, if rates.is_empty() { 0.0 } else { quantile(&rates, 0.5) }))
}

/// A probe of the limit that a module is held against.
fn peak_probe(module: &Module, target: &Target) -> Result<PeakProbe> {
    match arithmetic(module) {
        DType::F64 => PeakProbe::new::<f64>(target),
        _ => PeakProbe::new::<f32>(target),
    }
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

/// The element of sorted values that is nearest to a quantile.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// Of the slowest kernels and checks, as many are listed; of the nodes of a kernel, as many.
const LISTED: usize = 20;
const LISTED_NODES: usize = 8;

fn table(m: &Measurement, sort: Sort) -> String {
    let mut text = String::new();
    let mut line = |l: String| writeln!(text, "{l}").expect("a string takes all text");
    line(format!("{} on {}, {} threads: loaded and compiled in {:.0} ms", m.model, m.target, m.threads, m.compile_ms));
    let Latency { min, median, p95 } = m.latency_ms;
    line(format!("latency {min:.4} ms minimum, {median:.4} median, {p95:.4} 95th percentile, {} runs", m.runs));
    line(format!("{:.1} GFLOP/s of {:.0}, {} of memory", m.gflops, m.peak_gflops, bytes(m.peak_memory_bytes)));
    let mut rows: Vec<(f64, String)> = vec![];
    for k in &m.kernels {
        let mark = if k.opaque { " opaque" } else { "" };
        rows.push((k.us, format!("{:7.1} GFLOP/s  {}{mark}{}", k.gflops, k.name, nodes_text(&k.nodes))));
    }
    rows.extend(m.checks.iter().map(|c| (c.us, format!("{:15}  {}", "", c.name))));
    if sort == Sort::Time {
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    }
    let total: f64 = rows.iter().map(|row| row.0).sum();
    let checks = match m.checks.len() {
        0 => String::new(),
        n => format!(" and {n} checks of subscripts from inputs"),
    };
    let (which, count) = match sort {
        Sort::Time => ("the slowest", LISTED),
        Sort::Run => ("as they run", rows.len()),
    };
    line(format!("{} kernels{checks}, {total:.0} µs; {which}:", m.kernels.len()));
    for (us, what) in rows.iter().take(count) {
        let share = 100.0 * us / total.max(1e-9);
        line(format!("{us:9.1} µs {share:5.1} % {what}"));
    }
    text
}

/// The nodes of a kernel on a line of their own.
fn nodes_text(nodes: &[String]) -> String {
    let more = nodes.len().saturating_sub(LISTED_NODES);
    let shown: Vec<_> = nodes.iter().take(LISTED_NODES).map(|n| name(n)).collect();
    match (nodes.len(), more) {
        (0, _) => String::new(),
        (_, 0) => format!("\n{:38}{}", "", shown.join(", ")),
        (_, more) => format!("\n{:38}{} and {more} more", "", shown.join(", ")),
    }
}
