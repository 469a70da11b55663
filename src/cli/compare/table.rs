//! The comparison as text.

use super::contest::Times;
use super::limits::{Machine, Work};
use super::network::Network;
use super::program::{Origin, Program};
use crate::compare::report::ComparisonReport;
use std::fmt::Write;
use tilewright::internal::runtime::text::{bytes, count};

/// The whole comparison for a terminal.
pub fn text(report: &ComparisonReport) -> String {
    let mut out = String::new();
    for p in &report.programs {
        program(&mut out, p, report);
    }
    if let Some(n) = &report.network {
        network(&mut out, n, report);
    }
    out
}

fn program(out: &mut String, p: &Program, report: &ComparisonReport) {
    let sizes: Vec<String> = p.sizes.iter().map(|(name, size)| format!("{name}={size}")).collect();
    let sizes = if sizes.is_empty() { String::new() } else { format!(" ({})", sizes.join(", ")) };
    heading(out, &format!("{}{sizes}", p.name), &p.work, &report.machine, &report.target);
    line(out, &row(&HEADER.map(str::to_string)));
    for s in &p.schedules {
        let Some(m) = &s.measurement else {
            line(out, &format!("  {:24} {}", s.name, s.status.to_string().to_uppercase()));
            continue;
        };
        let Times { min, q1, median, q3, runs } = m.time_ms;
        line(
            out,
            &row(&[
                s.name.clone(),
                milliseconds(median),
                milliseconds(min),
                format!("{}..{}", milliseconds(q1), milliseconds(q3)),
                runs.to_string(),
                format!("{:.1}", m.gflops),
                m.share_of_peak.map_or("-".into(), percent),
                percent(m.share_of_bandwidth),
                bytes(m.traffic.into_l1_bytes as u64),
                bytes(m.traffic.into_l2_bytes as u64),
                bytes(m.traffic.into_l3_bytes as u64),
            ]),
        );
    }
    line(out, "where they differ from the ILP's schedule:");
    for s in p.schedules.iter().filter(|s| s.origin != Origin::Ilp && !s.tree.is_empty()) {
        let place = s.differs_from_ilp.as_ref().map_or("nowhere".to_string(), |d| d.sentence("ilp"));
        line(out, &format!("  {}: {place}", s.name));
    }
    line(out, "tensor instructions:");
    for s in p.schedules.iter().filter(|s| s.origin != Origin::Untransformed && !s.tree.is_empty()) {
        line(out, &format!("  {}: {}", s.name, s.instructions()));
    }
    for s in &p.schedules {
        if let Some(message) = &s.message {
            line(out, &format!("{}: {message}", s.name));
        }
    }
}

const HEADER: [&str; 11] = [
    "schedule",
    "median ms",
    "min",
    "quartiles",
    "runs",
    "GFLOP/s",
    "of peak",
    "of bandw.",
    "into L1",
    "into L2",
    "into L3",
];

fn row(cells: &[String; 11]) -> String {
    let [name, rest @ ..] = cells;
    let widths = [9, 9, 19, 6, 8, 8, 9, 10, 10, 10];
    let rest: Vec<String> = rest.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
    format!("  {name:24} {}", rest.join(" "))
}

fn network(out: &mut String, n: &Network, report: &ComparisonReport) {
    heading(out, &n.name, &n.work, &report.machine, &report.target);
    for (name, t) in [("ilp", &n.ilp), ("untransformed", &n.untransformed)] {
        let Times { min, q1, median, q3, runs } = t;
        let (q1, q3) = (milliseconds(*q1), milliseconds(*q3));
        let (median, min) = (milliseconds(*median), milliseconds(*min));
        line(out, &format!("  {name:14} {median} ms median, {min} minimum, quartiles {q1}..{q3}, {runs} runs"));
    }
    let mut kernels: Vec<_> = n.kernels.iter().collect();
    kernels.sort_by(|a, b| b.ilp.time_ms.median.total_cmp(&a.ilp.time_ms.median));
    line(out, "  kernel, by its time            ilp ms   of peak   into L2  untransf. ms   of peak   into L2    ratio");
    for k in kernels {
        let order = |o: &super::network::Order, width: usize| {
            let share = o.share_of_peak.map_or("-".into(), percent);
            let l2 = bytes(o.traffic.into_l2_bytes as u64);
            format!("{:>width$} {share:>9} {l2:>9}", milliseconds(o.time_ms.median))
        };
        let (ilp, untransformed) = (order(&k.ilp, 9), order(&k.untransformed, 13));
        line(out, &format!("  {:27} {ilp} {untransformed} {:8.2}", k.name, k.ratio));
    }
    for o in &n.opaque {
        line(out, &format!("  {:27} {:>9} opaque", o.name, milliseconds(o.time_ms.median)));
    }
}

fn heading(out: &mut String, name: &str, work: &Work, machine: &Machine, target: &str) {
    let threads = count(machine.threads, "thread");
    let (flops, moved) = (operations(work.flops), bytes(work.bytes));
    line(out, &format!("{name} on {target}, {threads}: {flops} on {moved} of {}", work.dtype));
    let peak = work
        .peak_gflops
        .zip(work.compute_bound_ms)
        .map_or("no peak is known".into(), |(peak, ms)| format!("{peak:.0} GFLOP/s make {} ms", milliseconds(ms)));
    let rate = machine.levels.iter().find(|l| l.name == work.home).map_or(0.0, |l| l.gb_per_second);
    let ms = milliseconds(work.bandwidth_bound_ms);
    line(out, &format!("at best: {peak}; {rate:.0} GB/s from {} make {ms} ms", work.home));
}

/// Formats a number of operations, in millions from ten thousand on.
pub fn operations(flops: f64) -> String {
    if flops < 1e4 { format!("{flops:.0} operations") } else { format!("{:.2} million operations", flops / 1e6) }
}

/// With three digits that count.
pub fn milliseconds(ms: f64) -> String {
    let decimals = (2 - ms.max(1e-6).log10().floor() as i32).clamp(0, 6) as usize;
    format!("{ms:.decimals$}")
}

pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("a string takes all text");
}
