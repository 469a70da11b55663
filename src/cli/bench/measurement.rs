//! Latencies, and what `bench` prints of them.

use crate::output;
use serde::Serialize;
use std::fmt::Write;
use std::time::{Duration, Instant};
use tilewright::internal::codegen::probe::PeakProbe;
use tilewright::internal::runtime::text::{bytes, count, name};
use tilewright::{AlgorithmReport, DType, Result, Sort, Target};

/// The fields and their names are a contract.
#[derive(Serialize)]
pub struct Measurement {
    pub model: String,
    pub target: String,
    pub threads: usize,
    /// Time to load and compile.
    pub compile_ms: f64,
    pub latency_ms: Latency,
    pub runs: usize,
    /// Floating-point operations of a run over its median latency.
    pub gflops: f64,
    /// Rate of a register kernel with operands from the first cache: the median of runs between those of the model, as
    /// the latency is one, on one core; times the threads.
    pub peak_gflops: f64,
    /// The arithmetic of that limit: `f64` where an output is, `f32` otherwise.
    pub peak_dtype: &'static str,
    /// Weights, intermediate tensors, scratch memory, inputs and outputs.
    pub peak_memory_bytes: u64,
    /// Floating-point operations of a run.
    pub flops: u64,
    /// Bytes of weights, inputs and outputs: the least that a run moves.
    pub least_bytes: u64,
    /// Of compiling, kernels summed; none for a model that was compiled before.
    pub stages: Vec<StageTime>,
    pub kernels: Vec<KernelTime>,
    /// Checks of subscripts that come from inputs; their time is part of the latency.
    pub checks: Vec<CheckTime>,
    /// Steps of the host between the parts of a model that depends on data.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostTime>,
    /// Of convolutions; for a network that is compiled in this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithms: Option<AlgorithmReport>,
}

#[derive(Serialize)]
pub struct Latency {
    pub min: f64,
    pub median: f64,
    pub p95: f64,
}

#[derive(Serialize)]
pub struct StageTime {
    pub name: String,
    pub ms: f64,
}

/// Median over several runs.
#[derive(Serialize)]
pub struct CheckTime {
    pub name: String,
    pub us: f64,
}

#[derive(Serialize)]
pub struct KernelTime {
    pub name: String,
    /// Nodes of the model file that it computes; for a model that is compiled in this run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Median over several runs.
    pub us: f64,
    /// By the cost model; for a model that is compiled in this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_us: Option<f64>,
    pub gflops: f64,
    pub tensorized: bool,
    pub opaque: bool,
    /// The part that it belongs to, from 1; for a model that runs in parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<usize>,
}

/// A step of the host between the parts of a model: median over several runs.
#[derive(Serialize)]
pub struct HostTime {
    pub node: String,
    pub operator: String,
    pub us: f64,
}

impl Latency {
    /// Of sorted times.
    pub fn of(sorted: &[f64]) -> Latency {
        Latency { min: quantile(sorted, 0.0), median: quantile(sorted, 0.5), p95: quantile(sorted, 0.95) }
    }
}

/// Runs once; the time that it took.
pub type Run<'r> = &'r mut dyn FnMut() -> Result<Duration>;

/// Milliseconds of each run for this long, and of `least` runs in any case. The first run warms up; it counts only where it
/// alone takes as long.
pub fn latencies(run: Run, seconds: f64, least: usize) -> Result<Vec<f64>> {
    let first = run()?.as_secs_f64();
    if least <= 1 && first >= seconds {
        return Ok(vec![first * 1e3]);
    }
    let (mut latencies, start) = (vec![], Instant::now());
    while latencies.len() < least || start.elapsed().as_secs_f64() < seconds {
        latencies.push(run()?.as_secs_f64() * 1e3);
    }
    Ok(latencies)
}

/// Parts that the runs are divided into, with runs of the probe of the peak between them.
const ROUNDS: f64 = 10.0;
/// Share of the time that the probe takes beside the runs, and its least seconds in a round.
const PROBE_SHARE: f64 = 0.1;
const PROBE_SECONDS: f64 = 0.005;

/// Milliseconds of each run, sorted, and GFLOP/s of one core: both in turn, so that they are of the same moments. Of what
/// takes longer than `seconds` the first run is the only one.
pub fn latencies_and_peak(run: Run, seconds: f64, target: &str, dtype: DType) -> Result<(Vec<f64>, f64)> {
    let probe = Target::by_name(target).ok().map(|target| peak_probe(dtype, &target));
    let probe = probe.transpose()?;
    let first = run()?.as_secs_f64();
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
        times.extend(latencies(run, seconds / ROUNDS, 1)?);
        spent += start.elapsed().as_secs_f64();
    }
    times.sort_by(f64::total_cmp);
    rates.sort_by(f64::total_cmp);
    Ok((times, if rates.is_empty() { 0.0 } else { quantile(&rates, 0.5) }))
}

/// A probe of the limit of this arithmetic.
fn peak_probe(dtype: DType, target: &Target) -> Result<PeakProbe> {
    match dtype {
        DType::F64 => PeakProbe::new::<f64>(target),
        _ => PeakProbe::new::<f32>(target),
    }
}

/// The element of sorted values that is nearest to a quantile.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

impl Measurement {
    /// The text for the terminal or JSON, with the kernels in this order.
    pub fn text(mut self, sort: Sort, json: bool) -> Result<String> {
        if sort == Sort::Time {
            self.kernels.sort_by(|a, b| b.us.total_cmp(&a.us));
            self.host.sort_by(|a, b| b.us.total_cmp(&a.us));
        }
        if !json {
            return Ok(table(&self, sort));
        }
        output::json(&self)
    }
}

/// Of the slowest kernels and checks, as many are listed; of the nodes of a kernel, as many.
const LISTED: usize = 20;
const LISTED_NODES: usize = 8;

fn table(m: &Measurement, sort: Sort) -> String {
    let mut text = String::new();
    let mut line = |l: String| writeln!(text, "{l}").expect("a string takes all text");
    let threads = count(m.threads, "thread");
    line(format!("{} on {}, {threads}: loaded and compiled in {:.0} ms", m.model, m.target, m.compile_ms));
    let Latency { min, median, p95 } = m.latency_ms;
    line(format!("latency {min:.4} ms minimum, {median:.4} median, {p95:.4} 95th percentile, {} runs", m.runs));
    line(format!("{:.1} GFLOP/s of {:.0}, {} of memory", m.gflops, m.peak_gflops, bytes(m.peak_memory_bytes)));
    let mut rows: Vec<(f64, String)> = vec![];
    for k in &m.kernels {
        let mark = if k.opaque { " opaque" } else { "" };
        let part = k.part.map_or(String::new(), |part| format!(" of part {part}"));
        let nodes = nodes_text(&k.nodes);
        rows.push((k.us, format!("{:7.1} GFLOP/s  {}{part}{mark}{nodes}", k.gflops, k.name)));
    }
    rows.extend(m.host.iter().map(|h| {
        (h.us, format!("{:15}  {} by the host{}", "", h.operator, nodes_text(std::slice::from_ref(&h.node))))
    }));
    rows.extend(m.checks.iter().map(|c| (c.us, format!("{:15}  {}", "", c.name))));
    if sort == Sort::Time {
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    }
    // the sum of no floats is -0
    let total = rows.iter().fold(0.0, |total, row| total + row.0);
    let checks = match m.checks.len() {
        0 => String::new(),
        n => format!(" and {} of subscripts from inputs", count(n, "check")),
    };
    let (which, most) = match sort {
        Sort::Time => ("the slowest", LISTED),
        Sort::Run => ("as they run", rows.len()),
    };
    line(format!("{}{checks}, {total:.0} µs; {which}:", count(m.kernels.len(), "kernel")));
    for (us, what) in rows.iter().take(most) {
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
