//! The report as one page that needs nothing else: kernels, the terms of their predicted times as bars, runners-up, words.

use crate::html::{begin, escape, put};
use tilewright::{BlockReport, CandidateReport, KernelReport, Report};

const STYLE: &str = "
h2 { font-size: 1.1rem; } td, th { text-align: left; }
td.n, th.n { text-align: right; white-space: nowrap; } .bar { display: flex; width: 20rem; height: 1rem; }
.bar span { height: 100%; outline: 1px solid #fff; }
";

/// Shades of the terms, in the order in which a candidate has them.
const SHADES: [(&str, &str); 4] = [("ports", "#111"), ("chains", "#555"), ("loops", "#888"), ("transfers", "#4a7ab5")];

/// The whole page; `words` has the candidates as [`tilewright::Stage::Candidates`] prints them.
pub fn page(report: &Report, words: &str) -> String {
    let (model, target) = (escape(&report.model), escape(&report.target));
    let mut out = begin(&format!("{}: schedules", report.model), STYLE);
    put(&mut out, &format!("<h1>{model}</h1>"));
    let measured =
        if report.measured_threads > 0 { format!("; measured on {}", report.measured_threads) } else { String::new() };
    let legend = SHADES.map(|(name, shade)| format!("<span style='color:{shade}'>■</span> {name}")).join(" ");
    put(&mut out, &format!("<p>{target}; times of one run predicted for 1 thread{measured}. Terms: {legend}"));
    for kernel in report.kernels.iter().filter(|k| !k.opaque) {
        section(&mut out, kernel);
    }
    put(&mut out, &format!("<h2>Words</h2><pre>{}</pre>", escape(words)));
    out
}

fn section(out: &mut String, kernel: &KernelReport) {
    let measured = kernel.measured_us.map_or(String::new(), |us| format!(", measured {us:.1} µs"));
    let (name, us) = (escape(&kernel.name), kernel.predicted_us);
    put(out, &format!("<h2>{name}</h2><p>{}: predicted {us:.1} µs{measured}", escape(&kernel.operators.join(" + "))));
    let most = kernel.candidates.iter().map(|c| c.predicted_ns).fold(0.0, f64::max);
    put(out, "<div class=wide><table><tr><th><th>schedule<th class=n>µs<th>terms<th>");
    for (i, candidate) in kernel.candidates.iter().enumerate() {
        row(out, if i == 0 { "chosen" } else { "runner-up" }, candidate, most);
    }
    put(out, "</table></div>");
    for phase in kernel.phases.iter().filter(|p| p.blocks.len() > 1) {
        let blocks: Vec<String> = phase.blocks.iter().map(|b: &BlockReport| escape(&b.to_string())).collect();
        put(out, &format!("<p>Register blocks of {}:<ol><li>{}</ol>", escape(&phase.statement), blocks.join("<li>")));
    }
}

/// A candidate, with its terms as parts of a bar as long as its share of the slowest one.
fn row(out: &mut String, what: &str, candidate: &CandidateReport, most: f64) {
    let part = |(name, ns): &(String, f64)| {
        let shade = SHADES.iter().find(|s| s.0 == name).map_or("#c33", |s| s.1);
        let (percent, us) = (100.0 * ns / most.max(f64::MIN_POSITIVE), ns / 1e3);
        format!("<span style='width:{percent:.1}%;background:{shade}' title='{} {us:.2} µs'></span>", escape(name))
    };
    let bar: String = candidate.terms.iter().map(part).collect();
    let terms: Vec<String> =
        candidate.terms.iter().map(|(name, ns)| format!("{} {:.2}", escape(name), ns / 1e3)).collect();
    let (name, us) = (escape(&candidate.name), candidate.predicted_ns / 1e3);
    let cells =
        format!("<td>{what}<td>{name}<td class=n>{us:.2}<td><div class=bar>{bar}</div><td>{}", terms.join(" + "));
    put(out, &format!("<tr>{cells}"));
}
