//! Plots as inline SVG: bars with their spread, and a roofline. As wide as a phone, in shades that differ in lightness.

use super::contest::Times;
use super::limits::Machine;
use super::table::milliseconds;
use std::fmt::Write;

/// Units of the drawing across; a unit is about a pixel on a phone.
const WIDTH: f64 = 420.0;
/// Height of one bar with its label.
const BAR: f64 = 40.0;

pub struct Bar<'a> {
    pub label: String,
    pub shade: &'static str,
    pub times: &'a Times,
}

/// A bar up to each median, on a linear scale from 0; a line over the quartiles and a tick at the minimum. Escaped labels.
pub fn bars(bars: &[Bar]) -> String {
    let longest = bars.iter().map(|b| b.times.q3.max(b.times.median)).fold(1e-6, f64::max);
    let x = |ms: f64| WIDTH * ms / longest;
    let height = BAR * bars.len() as f64 + 18.0;
    let mut out = open(height, "median times with quartiles");
    for (i, bar) in bars.iter().enumerate() {
        let (top, t) = (BAR * i as f64, bar.times);
        let middle = top + 27.0;
        let Times { min, q1, median, q3, .. } = *t;
        element(&mut out, &format!("<text x='0' y='{:.0}'>{}</text>", top + 14.0, bar.label));
        let time = milliseconds(median);
        element(&mut out, &format!("<text x='{WIDTH}' y='{:.0}' text-anchor='end'>{time} ms</text>", top + 14.0));
        let (width, shade) = (x(median), bar.shade);
        let y = top + 19.0;
        element(&mut out, &format!("<rect x='0' y='{y:.0}' width='{width:.1}' height='16' fill='{shade}'/>"));
        let spread = (x(q1), x(q3));
        element(&mut out, &stroke((spread.0, middle), (spread.1, middle), "#000", 2.0));
        for quartile in [spread.0, spread.1] {
            element(&mut out, &stroke((quartile, middle - 4.0), (quartile, middle + 4.0), "#000", 1.0));
        }
        let minimum = x(min);
        element(&mut out, &stroke((minimum, middle - 8.0), (minimum, middle + 8.0), "#c00", 1.0));
    }
    element(&mut out, &format!("<text class='small' x='0' y='{:.0}'>from 0; red: minimum</text>", height - 3.0));
    out + "</svg>"
}

/// Operations per byte, GFLOP/s, and a number that stands in the point.
pub struct Point {
    pub intensity: f64,
    pub gflops: f64,
    pub number: usize,
    pub shade: &'static str,
}

const HEIGHT: f64 = 300.0;
const LEFT: f64 = 42.0;
const BOTTOM: f64 = 34.0;

/// The roofs of the machine (Williams, Waterman, Patterson 2009) and points below them; `home` is the level whose roof
/// counts.
pub fn roofline(machine: &Machine, peak: f64, home: usize, points: &[Point]) -> String {
    let points: Vec<&Point> = points.iter().filter(|p| p.intensity > 0.0 && p.gflops > 0.0).collect();
    let over = |f: &dyn Fn(&Point) -> f64, start: f64, pick: fn(f64, f64) -> f64| {
        points.iter().map(|p| f(p)).fold(start, pick)
    };
    let ridge = machine.levels.iter().map(|l| peak / l.gb_per_second);
    let right = ridge.clone().fold(over(&|p| p.intensity, 1.0, f64::max), f64::max) * 3.0;
    let left = ridge.fold(over(&|p| p.intensity, 1.0, f64::min), f64::min) / 3.0;
    let low = over(&|p| p.gflops, peak / 10.0, f64::min) / 2.0;
    let high = over(&|p| p.gflops, peak, f64::max) * 1.6;
    let x = |v: f64| LEFT + (WIDTH - LEFT) * (v / left).ln() / (right / left).ln();
    let y = |v: f64| (HEIGHT - BOTTOM) * (1.0 - (v / low).ln() / (high / low).ln());
    let mut out = open(HEIGHT, "roofline");
    for tick in decades(low, high) {
        element(&mut out, &stroke((LEFT, y(tick)), (WIDTH, y(tick)), "#ddd", 1.0));
        let (text_x, text_y) = (LEFT - 4.0, y(tick) + 4.0);
        element(
            &mut out,
            &format!("<text class='small' x='{text_x:.0}' y='{text_y:.0}' text-anchor='end'>{tick}</text>"),
        );
    }
    for tick in decades(left, right) {
        element(&mut out, &stroke((x(tick), 0.0), (x(tick), HEIGHT - BOTTOM), "#ddd", 1.0));
        let (text_x, text_y) = (x(tick), HEIGHT - BOTTOM + 13.0);
        element(
            &mut out,
            &format!("<text class='small' x='{text_x:.0}' y='{text_y:.0}' text-anchor='middle'>{tick}</text>"),
        );
    }
    for (i, level) in machine.levels.iter().enumerate() {
        let start = left.max(low / level.gb_per_second);
        let end = peak / level.gb_per_second;
        let weight = if i == home { 2.5 } else { 1.0 };
        let (from, to) = ((x(start), y(start * level.gb_per_second)), (x(end), y(peak)));
        element(&mut out, &stroke(from, to, "#555", weight));
        // Written along the roof, where it leaves the plot at the left or below.
        let angle = (to.1 - from.1).atan2(to.0 - from.0).to_degrees();
        let (text_x, text_y) = (from.0 + 0.1 * (to.0 - from.0), from.1 + 0.1 * (to.1 - from.1) - 3.0);
        let place = format!("x='{text_x:.0}' y='{text_y:.0}' transform='rotate({angle:.1} {text_x:.0} {text_y:.0})'");
        element(&mut out, &format!("<text class='small' {place}>{}</text>", level.name));
    }
    let nearest = machine.levels.iter().map(|l| peak / l.gb_per_second).fold(f64::INFINITY, f64::min);
    element(&mut out, &stroke((x(nearest), y(peak)), (WIDTH, y(peak)), "#555", 2.5));
    let (text_x, text_y) = (WIDTH - 2.0, y(peak) - 4.0);
    element(
        &mut out,
        &format!("<text class='small' x='{text_x}' y='{text_y:.0}' text-anchor='end'>{peak:.0} GFLOP/s</text>"),
    );
    for p in &points {
        let (cx, cy, shade) = (x(p.intensity), y(p.gflops), p.shade);
        let circle = format!("<circle cx='{cx:.1}' cy='{cy:.1}' r='9' fill='{shade}' stroke='#000'/>");
        element(&mut out, &circle);
        let (text_y, ink) = (cy + 4.0, if shade == DARK { "#fff" } else { "#000" });
        let place = format!("class='small' x='{cx:.1}' y='{text_y:.1}' text-anchor='middle' fill='{ink}'");
        element(&mut out, &format!("<text {place}>{}</text>", p.number));
    }
    let (text_x, text_y) = ((LEFT + WIDTH) / 2.0, HEIGHT - 5.0);
    let text = "operations per byte from where the data lie";
    element(
        &mut out,
        &format!("<text class='small' x='{text_x:.0}' y='{text_y:.0}' text-anchor='middle'>{text}</text>"),
    );
    out + "</svg>"
}

/// Shades that differ in lightness.
pub const DARK: &str = "#1b4f8a";
pub const MIDDLE: &str = "#d9a441";
pub const LIGHT: &str = "#d0d0d0";

/// Powers of ten in a range.
fn decades(low: f64, high: f64) -> Vec<f64> {
    (low.log10().ceil() as i32..=high.log10().floor() as i32).map(|e| 10f64.powi(e)).collect()
}

fn open(height: f64, what: &str) -> String {
    format!("<svg viewBox='0 0 {WIDTH} {height:.0}' role='img' aria-label='{what}'>")
}

fn stroke(from: (f64, f64), to: (f64, f64), colour: &str, width: f64) -> String {
    let ((x1, y1), (x2, y2)) = (from, to);
    format!("<line x1='{x1:.1}' y1='{y1:.1}' x2='{x2:.1}' y2='{y2:.1}' stroke='{colour}' stroke-width='{width}'/>")
}

fn element(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("a string takes all text");
}
