//! Resizing: axis by axis, each as a weighted sum of gathers at constant positions. Whole-number repetition of the nearest
//! element is [`Op::Upsample`].

use super::node::Source;
use crate::expr::BinaryOp;
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::runtime::{DType, Error, Result, Tensor};

/// One axis: output extent, and output over input extent as the model states it.
#[derive(Clone, Copy)]
struct Axis {
    input: i64,
    output: i64,
    scale: f64,
}

impl Axis {
    /// The extent is the product in single precision, cut, as ONNX Runtime computes it: 10 elements times 0.7 are 7.
    fn scaled(input: i64, scale: f32) -> Axis {
        Axis { input, output: (input as f32 * scale).floor() as i64, scale: f64::from(scale) }
    }
}

/// The rule of the operators that have no `nearest_mode`.
const BEFORE_OPSET_11: &str = "up where it shrinks";

struct Rule {
    coordinates: String,
    nearest: String,
    cubic_a: f64,
    exclude_outside: bool,
}

impl Rule {
    /// The position in the input that output element `i` stands for. In single precision, as ONNX Runtime computes it: a
    /// position half way between two elements is rounded the same way.
    fn source(&self, axis: Axis, i: i64) -> Result<f64> {
        let (x, scale) = (i as f32, axis.scale as f32);
        let (input, output) = (axis.input as f32, axis.output as f32);
        let half = (x + 0.5) / scale - 0.5;
        let source = match self.coordinates.as_str() {
            "asymmetric" => x / scale,
            "half_pixel" => half,
            "half_pixel_symmetric" => input / 2.0 * (1.0 - output / (scale * input)) + half,
            "pytorch_half_pixel" if axis.output > 1 => half,
            "pytorch_half_pixel" => 0.0,
            "align_corners" if axis.output > 1 => x * (input - 1.0) / (output - 1.0),
            "align_corners" => 0.0,
            "tf_half_pixel_for_nn" => (x + 0.5) / scale,
            other => return Err(Error::Unsupported(format!("coordinate_transformation_mode `{other}`"))),
        };
        Ok(f64::from(source))
    }

    fn round(&self, axis: Axis, x: f64) -> Result<f64> {
        Ok(match self.nearest.as_str() {
            BEFORE_OPSET_11 if axis.scale < 1.0 => x.ceil(),
            BEFORE_OPSET_11 => x.floor(),
            "round_prefer_floor" => (x - 0.5).ceil(),
            "round_prefer_ceil" => (x + 0.5).floor(),
            "floor" => x.floor(),
            "ceil" => x.ceil(),
            other => return Err(Error::Unsupported(format!("nearest_mode `{other}`"))),
        })
    }
}

pub(super) fn resize(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let shape = g.shape(x).to_vec();
    // the region of interest, which only a mode that is not known reads
    n.optional(1);
    let (scales, sizes) = if n.opset < 11 { (n.optional(1), None) } else { (n.optional(2), n.optional(3)) };
    let axes = match n.ints("axes") {
        Some(a) => g.distinct_axes(a, shape.len())?,
        None => (0..shape.len()).collect(),
    };
    let sizes = sizes.map(|v| g.integers(v, "sizes")).transpose()?.filter(|s| !s.is_empty());
    let scales = scales.map(|v| g.floats(v, "scales")).transpose()?.filter(|s| !s.is_empty());
    let mut plan: Vec<Axis> = shape.iter().map(|&d| Axis { input: d, output: d, scale: 1.0 }).collect();
    let count = sizes.as_ref().map(Vec::len).or(scales.as_ref().map(Vec::len)).unwrap_or(0);
    if count != axes.len() {
        return Err(Error::Invalid(format!("sizes or scales for {count} of {} dimensions are given", axes.len())));
    }
    if let Some(sizes) = &sizes {
        if n.string("keep_aspect_ratio_policy", "stretch") != "stretch" {
            return Err(Error::Unsupported("keep_aspect_ratio_policy".into()));
        }
        for (&a, &s) in axes.iter().zip(sizes) {
            plan[a] = Axis { input: shape[a], output: s, scale: s as f64 / shape[a].max(1) as f64 };
        }
    } else if let Some(scales) = &scales {
        for (&a, &s) in axes.iter().zip(scales) {
            plan[a] = Axis::scaled(shape[a], s);
        }
    }
    let mode = n.string("mode", "nearest");
    let (coordinates, nearest) = if n.opset < 11 {
        ("asymmetric".to_string(), BEFORE_OPSET_11.to_string())
    } else {
        (n.string("coordinate_transformation_mode", "half_pixel"), n.string("nearest_mode", "round_prefer_floor"))
    };
    let rule = Rule {
        coordinates,
        nearest,
        cubic_a: n.float("cubic_coeff_a", -0.75) as f64,
        exclude_outside: n.flag("exclude_outside", false),
    };
    if n.flag("antialias", false) && plan.iter().any(|p| p.output < p.input) {
        return Err(Error::Unsupported("antialias".into()));
    }
    by_axis(g, x, &plan, &mode, &rule)
}

/// The operator of opsets 7 to 9: scales from the corner.
pub(super) fn upsample(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let shape = g.shape(x).to_vec();
    let scales = match n.attribute("scales") {
        Some(a) => a.floats.clone(),
        None => {
            let scales = n.input(1)?;
            g.floats(scales, "scales")?
        }
    };
    if scales.len() != shape.len() {
        return Err(Error::Invalid(format!("{} scales for {} dimensions", scales.len(), shape.len())));
    }
    let plan: Vec<Axis> = shape.iter().zip(&scales).map(|(&d, &s)| Axis::scaled(d, s)).collect();
    let nearest = BEFORE_OPSET_11.into();
    let rule = Rule { coordinates: "asymmetric".into(), nearest, cubic_a: -0.75, exclude_outside: false };
    by_axis(g, x, &plan, &n.string("mode", "nearest"), &rule)
}

fn by_axis(g: &mut Importer, mut x: ValueId, plan: &[Axis], mode: &str, rule: &Rule) -> Result<Vec<ValueId>> {
    for p in plan {
        if p.scale.is_nan() || p.scale <= 0.0 || p.output < 0 || p.output > 1 << 24 || p.input == 0 && p.output > 0 {
            return Err(Error::Invalid(format!("dimension of extent {} cannot become {}", p.input, p.output)));
        }
    }
    if mode == "nearest" {
        let position = |p: Axis, i: i64| -> Result<i64> {
            Ok(rule.round(p, rule.source(p, i)?)?.clamp(0.0, (p.input - 1).max(0) as f64) as i64)
        };
        let positions: Vec<Vec<i64>> =
            plan.iter().map(|&p| g.positions(p.output, |i| position(p, i))).collect::<Result<_>>()?;
        let factor = |p: &Axis, at: &[i64]| {
            let f = if p.input > 0 && p.output % p.input == 0 { p.output / p.input } else { return None };
            (f > 0 && at.iter().enumerate().all(|(i, v)| i as i64 / f == *v)).then_some(f)
        };
        let factors: Option<Vec<i64>> = plan.iter().zip(&positions).map(|(p, at)| factor(p, at)).collect();
        if let Some(factors) = factors {
            let same = factors.iter().all(|f| *f == 1);
            return Ok(vec![if same { x } else { g.emit(Op::Upsample { factors }, &[x])? }]);
        }
        for (axis, at) in positions.iter().enumerate() {
            if at.len() as i64 != plan[axis].input || at.iter().enumerate().any(|(i, v)| i as i64 != *v) {
                x = g.take(x, axis, at)?;
            }
        }
        return Ok(vec![x]);
    }
    for (axis, p) in plan.iter().enumerate() {
        if p.output != p.input || p.scale != 1.0 {
            x = interpolate(g, x, axis, *p, mode, rule)?;
        }
    }
    Ok(vec![x])
}

/// Σ over the taps of (elements at `position`) · `weight`, along one axis.
fn interpolate(g: &mut Importer, x: ValueId, axis: usize, p: Axis, mode: &str, rule: &Rule) -> Result<ValueId> {
    if g.ty(x).dtype != DType::F32 {
        return Err(Error::Unsupported(format!("mode `{mode}` on elements of type {}", g.ty(x).dtype)));
    }
    let taps: &[i64] = match mode {
        "linear" => &[0, 1],
        "cubic" => &[-1, 0, 1, 2],
        other => return Err(Error::Unsupported(format!("mode `{other}`"))),
    };
    for _ in taps {
        g.claim(&[p.output], DType::I64)?;
        g.claim(&[p.output], DType::F32)?;
    }
    let mut positions = vec![vec![]; taps.len()];
    let mut weights = vec![vec![]; taps.len()];
    for i in 0..p.output {
        let mut source = rule.source(p, i)?;
        if mode == "linear" {
            source = source.clamp(0.0, (p.input - 1) as f64);
        }
        let fraction = source - source.floor();
        let mut local: Vec<f64> = taps.iter().map(|&t| kernel(mode, t, fraction, rule.cubic_a)).collect();
        let at: Vec<i64> = taps.iter().map(|t| source.floor() as i64 + t).collect();
        if rule.exclude_outside {
            for (w, a) in local.iter_mut().zip(&at) {
                *w = if *a < 0 || *a >= p.input { 0.0 } else { *w };
            }
            let sum: f64 = local.iter().sum();
            local.iter_mut().for_each(|w| *w /= sum);
        }
        for t in 0..taps.len() {
            positions[t].push(at[t].clamp(0, p.input - 1));
            weights[t].push(local[t] as f32);
        }
    }
    let mut shape = vec![1; g.rank(x)];
    shape[axis] = p.output;
    let mut sum: Option<ValueId> = None;
    for (at, w) in positions.iter().zip(&weights).filter(|(_, w)| w.iter().any(|w| *w != 0.0)) {
        let part = g.take(x, axis, at)?;
        let weight = g.constant(Tensor::new(&shape, w));
        let term = g.binary(BinaryOp::Mul, part, weight)?;
        sum = Some(match sum {
            None => term,
            Some(s) => g.binary(BinaryOp::Add, s, term)?,
        });
    }
    sum.ok_or_else(|| Error::Invalid("an interpolation without weights".into()))
}

/// Weight of the tap at distance `tap` from the element before the position.
fn kernel(mode: &str, tap: i64, fraction: f64, a: f64) -> f64 {
    if mode == "linear" {
        return if tap == 0 { 1.0 - fraction } else { fraction };
    }
    let d = (fraction - tap as f64).abs();
    if d <= 1.0 { ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0 } else { ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a }
}
