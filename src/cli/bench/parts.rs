//! How long a model takes that runs in parts, and each kernel and step of the host.

use super::measurement::{HostTime, KernelTime, Latency, Measurement, StageTime, latencies_and_peak, quantile};
use crate::inputs::PreparedParts;
use std::time::{Duration, Instant};
use tilewright::{DType, Report, Result, StagedReport, Value};

type Inputs<'a> = [(&'a str, &'a Value)];

/// The time of one run.
pub fn time(parts: &PreparedParts, inputs: &Inputs) -> Result<Duration> {
    let start = Instant::now();
    parts.compiled.run_values(inputs)?;
    Ok(start.elapsed())
}

/// Measures for `seconds`, after a run that compiles the parts.
pub fn measure(parts: &PreparedParts, inputs: &Inputs, seconds: f64) -> Result<Measurement> {
    let outputs = parts.compiled.run_values(inputs)?;
    let first = parts.compiled.report_in_parts(inputs)?;
    let is_double = |value: &Value| matches!(value, Value::Tensor(tensor) if tensor.dtype == DType::F64);
    let dtype = if outputs.iter().any(is_double) { DType::F64 } else { DType::F32 };
    let (latencies, peak) = latencies_and_peak(&mut || time(parts, inputs), seconds, &first.target, dtype)?;
    let latency_ms = Latency::of(&latencies);
    let (mut reports, start) = (vec![], Instant::now());
    while reports.is_empty() || start.elapsed().as_secs_f64() < seconds / 5.0 {
        reports.push(parts.compiled.report_in_parts(inputs)?);
    }
    let all = || first.parts.iter().map(|part| &part.report);
    let flops = all().flat_map(|report| &report.kernels).map(|kernel| kernel.flops).fold(0, u64::saturating_add);
    let weights: u64 = all().map(|report| report.weights_bytes).sum();
    let outside: u64 = inputs.iter().map(|i| bytes(i.1)).sum::<u64>() + outputs.iter().map(bytes).sum::<u64>();
    let most = |size: fn(&Report) -> u64| all().map(size).max().unwrap_or(0);
    let scratch = most(|report| report.scratch_bytes) * first.threads as u64;
    Ok(Measurement {
        model: first.model.clone(),
        target: first.target.clone(),
        threads: first.threads,
        compile_ms: parts.load_ms + first.compile_ms,
        gflops: flops as f64 / latency_ms.median / 1e6,
        latency_ms,
        runs: latencies.len(),
        peak_gflops: peak * first.threads as f64,
        peak_dtype: dtype.name(),
        flops,
        least_bytes: weights + outside,
        peak_memory_bytes: weights + most(|report| report.arena_bytes) + scratch + outside,
        stages: stages(all()),
        kernels: kernels(&first, &reports),
        checks: vec![],
        host: host(&first, &reports),
        algorithms: None,
    })
}

/// Times of stages, those of the same name summed.
fn stages<'r>(reports: impl Iterator<Item = &'r Report>) -> Vec<StageTime> {
    let mut stages: Vec<StageTime> = vec![];
    for (name, ms) in reports.flat_map(|report| &report.stages) {
        match stages.iter_mut().find(|stage| stage.name == name.trim()) {
            Some(stage) => stage.ms += ms,
            None => stages.push(StageTime { name: name.trim().into(), ms: *ms }),
        }
    }
    stages
}

/// The kernels of all parts with the medians of their times.
fn kernels(first: &StagedReport, reports: &[StagedReport]) -> Vec<KernelTime> {
    let mut kernels = vec![];
    for (p, part) in first.parts.iter().enumerate() {
        for (k, kernel) in part.report.kernels.iter().enumerate() {
            let time = |report: &StagedReport| report.parts.get(p)?.report.kernels.get(k)?.measured_us;
            let us = median(reports.iter().filter_map(time).collect());
            kernels.push(KernelTime {
                name: kernel.name.clone(),
                nodes: kernel.nodes.clone(),
                us,
                predicted_us: Some(kernel.predicted_us),
                gflops: if us > 0.0 { kernel.flops as f64 / us / 1e3 } else { 0.0 },
                tensorized: kernel.tensorized,
                opaque: kernel.opaque,
                part: Some(p + 1),
            });
        }
    }
    kernels
}

/// The steps of the host with the medians of their times.
fn host(first: &StagedReport, reports: &[StagedReport]) -> Vec<HostTime> {
    let step = |(s, step): (usize, &tilewright::HostReport)| HostTime {
        node: step.node.clone(),
        operator: step.operator.clone(),
        us: median(reports.iter().filter_map(|report| Some(report.host.get(s)?.measured_us)).collect()),
    };
    first.host.iter().enumerate().map(step).collect()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    if times.is_empty() { 0.0 } else { quantile(&times, 0.5) }
}

fn bytes(value: &Value) -> u64 {
    match value {
        Value::Tensor(tensor) => tensor.data.len() as u64,
        Value::Sequence(values) => values.iter().map(bytes).sum(),
        Value::Optional(value) => value.as_deref().map_or(0, bytes),
    }
}
