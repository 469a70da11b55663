//! The comparison as one page that needs nothing else: bars with spread, a roofline, the loops side by side.

use super::contest::Times;
use super::limits::{Machine, Work};
use super::network::{Kernel, Network};
use super::plot::{self, Bar, DARK, LIGHT, MIDDLE, Point};
use super::program::{Origin, Program, Schedule};
use super::table::{milliseconds, operations, percent};
use crate::compare::report::ComparisonReport;
use crate::html::{begin, escape, put};
use tilewright::internal::runtime::text::{bytes, count};

const STYLE: &str = "
h2 { margin-top: 2rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1.5rem; }
.nests { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { color: #444; font-size: .9rem; }
svg { width: 100%; height: auto; } svg text { font: 13px system-ui, sans-serif; } svg .small { font-size: 11px; }
table { white-space: nowrap; } td, th { text-align: right; }
td:first-child, th:first-child { text-align: left; }
mark { background: #ffe9a8; font-weight: bold; } summary { font-weight: 600; cursor: pointer; }
@media print { body { max-width: none; } pre { white-space: pre-wrap; font-size: .6rem; } h2 { break-before: page; } }
";

/// The whole page.
pub fn page(report: &ComparisonReport) -> String {
    let mut out = begin(&format!("{}: schedules side by side", report.file), STYLE);
    let (file, target) = (escape(&report.file), &report.target);
    let threads = count(report.threads, "thread");
    put(&mut out, &format!("<h1>{file}</h1><p>tilewright {}, {target}, {threads}.", report.version));
    for p in &report.programs {
        program(&mut out, p, &report.machine);
    }
    if let Some(n) = &report.network {
        network(&mut out, n, &report.machine);
    }
    limits(&mut out, &report.machine);
    out
}

fn shade(origin: Origin) -> &'static str {
    match origin {
        Origin::Untransformed => LIGHT,
        Origin::Ilp => DARK,
        Origin::Hand => MIDDLE,
    }
}

fn program(out: &mut String, p: &Program, machine: &Machine) {
    let sizes: Vec<String> = p.sizes.iter().map(|(name, size)| format!("{}={size}", escape(name))).collect();
    put(out, &format!("<h2>{} {}</h2>", escape(&p.name), sizes.join(", ")));
    put(out, &bounds(&p.work));
    let measured: Vec<(&Schedule, _)> =
        p.schedules.iter().filter_map(|s| s.measurement.as_ref().map(|m| (s, m))).collect();
    let bars: Vec<Bar> = measured
        .iter()
        .enumerate()
        .map(|(i, (s, m))| Bar {
            label: format!("{} {}", i + 1, escape(&s.name)),
            shade: shade(s.origin),
            times: &m.time_ms,
        })
        .collect();
    let home = machine.home(p.work.bytes);
    let point = |(i, (s, m)): (usize, &(&Schedule, &super::program::Measurement))| Point {
        intensity: p.work.flops / m.traffic.bytes_from(home).max(1.0),
        gflops: m.gflops,
        number: i + 1,
        shade: shade(s.origin),
    };
    let points: Vec<Point> = measured.iter().enumerate().map(point).collect();
    plots(out, &bars, machine, &p.work, &points);
    table(out, p);
    put(out, "<h3>Where the schedules differ</h3><ul>");
    for s in p.schedules.iter().filter(|s| s.origin != Origin::Ilp && !s.tree.is_empty()) {
        let place = s.differs_from_ilp.as_ref().map_or("nowhere".to_string(), |d| d.sentence("ilp"));
        put(out, &format!("<li><b>{}</b> {}", escape(&s.name), escape(&place)));
    }
    put(out, "</ul><h3>Tensor instructions</h3><ul>");
    for s in p.schedules.iter().filter(|s| s.origin != Origin::Untransformed && !s.tree.is_empty()) {
        put(out, &format!("<li><b>{}</b> {}", escape(&s.name), escape(&s.instructions())));
    }
    put(out, "</ul><h3>Loops</h3><div class=nests>");
    let ilp = p.schedules.iter().find(|s| s.origin == Origin::Ilp).map_or("", |s| &s.loops);
    for s in p.schedules.iter().filter(|s| !s.loops.is_empty()) {
        nest(out, &s.name, &s.loops, if s.origin == Origin::Ilp { &s.loops } else { ilp }, true);
    }
    put(out, "</div><h3>Schedule trees</h3><div class=nests>");
    let ilp = p.schedules.iter().find(|s| s.origin == Origin::Ilp).map_or("", |s| &s.tree);
    for s in p.schedules.iter().filter(|s| !s.tree.is_empty()) {
        nest(out, &s.name, &s.tree, if s.origin == Origin::Ilp { &s.tree } else { ilp }, false);
    }
    put(out, "</div>");
}

/// A row of measurements for each schedule, or why there are none.
fn table(out: &mut String, p: &Program) {
    let header = [
        "schedule",
        "median",
        "min",
        "quartiles",
        "runs",
        "GFLOP/s",
        "of peak",
        "of bandwidth",
        "into L1",
        "into L2",
        "into L3",
    ];
    put(out, &format!("<div class=wide><table><tr>{}", cells("th", &header.map(String::from))));
    for s in &p.schedules {
        let Some(m) = &s.measurement else {
            let text = format!("{}: {}", s.status, escape(s.message.as_deref().unwrap_or("")));
            put(out, &format!("<tr><td>{}<td colspan=10 style='text-align:left'><pre>{text}</pre>", escape(&s.name)));
            continue;
        };
        let Times { min, q1, median, q3, runs } = m.time_ms;
        let row = [
            escape(&s.name),
            format!("{} ms", milliseconds(median)),
            format!("{} ms", milliseconds(min)),
            format!("{} to {}", milliseconds(q1), milliseconds(q3)),
            runs.to_string(),
            format!("{:.1}", m.gflops),
            m.share_of_peak.map_or(String::new(), percent),
            percent(m.share_of_bandwidth),
            bytes(m.traffic.into_l1_bytes as u64),
            bytes(m.traffic.into_l2_bytes as u64),
            bytes(m.traffic.into_l3_bytes as u64),
        ];
        put(out, &format!("<tr>{}", cells("td", &row)));
    }
    put(out, "</table></div>");
}

/// Kernels that are drawn.
const DRAWN: usize = 20;

fn network(out: &mut String, n: &Network, machine: &Machine) {
    put(out, &format!("<h2>{}</h2>{}", escape(&n.name), bounds(&n.work)));
    let ratio = n.untransformed.median / n.ilp.median.max(1e-6);
    let (ilp, untransformed) = (milliseconds(n.ilp.median), milliseconds(n.untransformed.median));
    put(out, &format!("<p>{ilp} ms by the ILP, {untransformed} ms in the original order: {ratio:.1} times as long."));
    let mut kernels: Vec<&Kernel> = n.kernels.iter().collect();
    kernels.sort_by(|a, b| b.ilp.time_ms.median.total_cmp(&a.ilp.time_ms.median));
    let mut bars = vec![];
    for (i, k) in kernels.iter().take(DRAWN).enumerate() {
        bars.push(Bar { label: format!("{} {}", i + 1, escape(&k.name)), shade: DARK, times: &k.ilp.time_ms });
        bars.push(Bar { label: "untransformed".into(), shade: LIGHT, times: &k.untransformed.time_ms });
    }
    let home = machine.home(n.work.bytes);
    let mut points = vec![];
    for (i, k) in kernels.iter().take(DRAWN).enumerate() {
        for (order, shade) in [(&k.untransformed, LIGHT), (&k.ilp, DARK)] {
            let intensity = k.flops / order.traffic.bytes_from(home).max(1.0);
            points.push(Point { intensity, gflops: order.gflops, number: i + 1, shade });
        }
    }
    plots(out, &bars, machine, &n.work, &points);
    let header =
        ["kernel", "ilp", "GFLOP/s", "of peak", "into L2", "untransformed", "GFLOP/s", "into L2", "ratio", "operators"];
    put(out, &format!("<div class=wide><table><tr>{}", cells("th", &header.map(String::from))));
    for k in &kernels {
        let row = [
            escape(&k.name),
            format!("{} ms", milliseconds(k.ilp.time_ms.median)),
            format!("{:.1}", k.ilp.gflops),
            k.ilp.share_of_peak.map_or(String::new(), percent),
            bytes(k.ilp.traffic.into_l2_bytes as u64),
            format!("{} ms", milliseconds(k.untransformed.time_ms.median)),
            format!("{:.1}", k.untransformed.gflops),
            bytes(k.untransformed.traffic.into_l2_bytes as u64),
            format!("{:.2}", k.ratio),
            escape(&k.operators.join(" + ")),
        ];
        put(out, &format!("<tr>{}", cells("td", &row)));
    }
    put(out, "</table></div><h3>Loops</h3>");
    for k in &kernels {
        put(out, &format!("<details><summary>{}</summary><div class=nests>", escape(&k.name)));
        nest(out, "ilp", &k.ilp.loops, &k.ilp.loops, true);
        nest(out, "untransformed", &k.untransformed.loops, &k.ilp.loops, true);
        put(out, "</div></details>");
    }
}

fn bounds(work: &Work) -> String {
    let compute = work.compute_bound_ms.map_or(String::new(), |ms| {
        format!(" At the peak of the processor the operations take {} ms.", milliseconds(ms))
    });
    format!(
        "<p>{} of {} on {}.{compute} Bringing the data once from {} takes {} ms.",
        operations(work.flops),
        work.dtype,
        bytes(work.bytes),
        work.home,
        milliseconds(work.bandwidth_bound_ms)
    )
}

fn plots(out: &mut String, bars: &[Bar], machine: &Machine, work: &Work, points: &[Point]) {
    let caption = "Median time of a run; the line is over the quartiles.";
    put(out, &format!("<div class=plots><figure>{}<figcaption>{caption}</figcaption></figure>", plot::bars(bars)));
    if let Some(peak) = work.peak_gflops.filter(|_| work.flops > 0.0) {
        let roofs = plot::roofline(machine, peak, machine.home(work.bytes), points);
        let caption =
            "GFLOP/s over the operations for each byte that, by the cache model, comes from where the data lie: ";
        let rest = "a point near the sloping roof waits for data, one near the flat roof computes as fast as the processor can.";
        put(out, &format!("<figure>{roofs}<figcaption>{caption}{}; {rest}</figcaption></figure>", work.home));
    }
    put(out, "</div>");
}

/// Text with its first line that `other` does not have at the same place marked.
fn nest(out: &mut String, name: &str, text: &str, other: &str, open: bool) {
    let mut others = other.lines();
    let (mut marked, mut body) = (false, String::new());
    for line in text.lines() {
        let differs = !marked && others.next() != Some(line);
        marked |= differs;
        let line = escape(line);
        put(&mut body, &if differs { format!("<mark>{line}</mark>") } else { line });
    }
    let open = if open { " open" } else { "" };
    put(out, &format!("<details{open}><summary>{}</summary><pre>{body}</pre></details>", escape(name)));
}

fn limits(out: &mut String, machine: &Machine) {
    put(out, "<h2>The machine, measured in this run</h2><ul>");
    let (f32, f64, clock) = (machine.peak_f32, machine.peak_f64, machine.clock_ghz);
    let threads = count(machine.threads, "thread");
    put(out, &format!("<li>{f32:.0} GFLOP/s of f32 and {f64:.0} of f64 with operands from L1, by {threads}"));
    put(out, &format!("<li>{clock:.2} GHz"));
    for level in &machine.levels {
        put(out, &format!("<li>{:.0} GB/s from {}", level.gb_per_second, level.name));
    }
    put(out, "</ul>");
}

fn cells(tag: &str, texts: &[String]) -> String {
    texts.iter().map(|t| format!("<{tag}>{t}")).collect()
}
