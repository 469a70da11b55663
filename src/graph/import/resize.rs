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
    /// Output extent before it was cut to a whole number.
    width: f64,
    /// The part of the input that is resized, where the mode has one.
    region: (f64, f64),
}

impl Axis {
    fn sized(input: i64, output: i64, scale: f64) -> Axis {
        Axis { input, output, scale, width: output as f64, region: (0.0, 1.0) }
    }

    /// The extent is the product in single precision, cut, as ONNX Runtime computes it: 10 elements times 0.7 are 7.
    fn scaled(input: i64, scale: f32) -> Axis {
        let width = input as f32 * scale;
        let output = width.floor() as i64;
        Axis { width: f64::from(width), ..Axis::sized(input, output, f64::from(scale)) }
    }
}

/// The rule of the operators that have no `nearest_mode`.
const BEFORE_OPSET_11: &str = "up where it shrinks";

struct Rule {
    coordinates: String,
    nearest: String,
    cubic_a: f64,
    exclude_outside: bool,
    antialias: bool,
    /// The value outside of the input, in the mode that has one.
    extrapolation: f64,
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
            "align_corners" if axis.width != 1.0 => x * (input - 1.0) / (axis.width as f32 - 1.0),
            "align_corners" => 0.0,
            "tf_crop_and_resize" => {
                let (from, to) = (axis.region.0 as f32, axis.region.1 as f32);
                let last = input - 1.0;
                let way = match axis.width {
                    1.0 => (to - from) * last / 2.0,
                    width => x * (to - from) * last / (width as f32 - 1.0),
                };
                from * last + way
            }
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
    let (coordinates, nearest) = if n.opset < 11 {
        ("asymmetric".to_string(), BEFORE_OPSET_11.to_string())
    } else {
        (n.string("coordinate_transformation_mode", "half_pixel"), n.string("nearest_mode", "round_prefer_floor"))
    };
    let plan = plan(g, n, x, coordinates == "tf_crop_and_resize")?;
    let rule = Rule {
        coordinates,
        nearest,
        cubic_a: n.float("cubic_coeff_a", -0.75) as f64,
        exclude_outside: n.flag("exclude_outside", false),
        antialias: n.flag("antialias", false),
        extrapolation: f64::from(n.float("extrapolation_value", 0.0)),
    };
    by_axis(g, x, &plan, &n.string("mode", "nearest"), &rule)
}

/// Changes of each axis.
fn plan(g: &mut Importer, n: &Source, x: ValueId, crops: bool) -> Result<Vec<Axis>> {
    let shape = g.shape(x).to_vec();
    let region = n.optional(1);
    let (scales, sizes) = if n.opset < 11 { (n.optional(1), None) } else { (n.optional(2), n.optional(3)) };
    let axes = match n.ints("axes") {
        Some(a) => g.distinct_axes(a, shape.len())?,
        None => (0..shape.len()).collect(),
    };
    let sizes = sizes.map(|v| g.integers(v, "sizes")).transpose()?.filter(|s| !s.is_empty());
    let scales = scales.map(|v| g.floats(v, "scales")).transpose()?.filter(|s| !s.is_empty());
    let mut plan: Vec<Axis> = shape.iter().map(|&d| Axis::sized(d, d, 1.0)).collect();
    let count = sizes.as_ref().map(Vec::len).or(scales.as_ref().map(Vec::len)).unwrap_or(0);
    if count != axes.len() {
        return Err(Error::Invalid(format!("sizes or scales for {count} of {} dimensions are given", axes.len())));
    }
    if let Some(sizes) = &sizes {
        let ratios = axes.iter().zip(sizes).map(|(&a, &s)| s as f64 / shape[a].max(1) as f64);
        let common = match n.string("keep_aspect_ratio_policy", "stretch").as_str() {
            "stretch" => None,
            "not_larger" => Some(ratios.clone().fold(f64::INFINITY, f64::min)),
            "not_smaller" => Some(ratios.clone().fold(0.0, f64::max)),
            other => return Err(Error::Invalid(format!("keep_aspect_ratio_policy `{other}` is not known"))),
        };
        for ((&a, &s), ratio) in axes.iter().zip(sizes).zip(ratios) {
            plan[a] = match common {
                Some(scale) => Axis::sized(shape[a], (scale * shape[a] as f64 + 0.5) as i64, scale),
                None => Axis::sized(shape[a], s, ratio),
            };
        }
    } else if let Some(scales) = &scales {
        for (&a, &s) in axes.iter().zip(scales) {
            plan[a] = Axis::scaled(shape[a], s);
        }
    }
    if crops {
        let region = region.ok_or_else(|| Error::Invalid("its region is missing".into()))?;
        let region = g.floats(region, "region")?;
        if region.len() != 2 * axes.len() {
            return Err(Error::Invalid(format!(
                "a region of {} numbers does not fit {} axes",
                region.len(),
                axes.len()
            )));
        }
        for (i, &a) in axes.iter().enumerate() {
            plan[a].region = (f64::from(region[i]), f64::from(region[i + axes.len()]));
        }
    }
    Ok(plan)
}

/// The operator of opsets 7 to 9: scales from the corner.
pub(super) fn upsample(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let shape = g.shape(x).to_vec();
    let scales = match n.attribute("scales") {
        Some(a) => a.floats.clone(),
        None if n.opset < 7 => {
            let mut scales = vec![1.0; shape.len().saturating_sub(2)];
            scales.extend([n.float("height_scale", 1.0), n.float("width_scale", 1.0)]);
            scales
        }
        None => {
            let scales = n.input(1)?;
            g.floats(scales, "scales")?
        }
    };
    if scales.len() != shape.len() {
        return Err(Error::Invalid(format!("{} scales for {} dimensions", scales.len(), shape.len())));
    }
    let plan: Vec<Axis> = shape.iter().zip(&scales).map(|(&d, &s)| Axis::scaled(d, s)).collect();
    let rule = Rule {
        coordinates: "asymmetric".into(),
        nearest: BEFORE_OPSET_11.into(),
        cubic_a: -0.75,
        exclude_outside: false,
        antialias: false,
        extrapolation: 0.0,
    };
    let mode = match n.string("mode", "nearest").as_str() {
        "bilinear" => "linear".to_string(),
        other => other.to_string(),
    };
    by_axis(g, x, &plan, &mode, &rule)
}

fn by_axis(g: &mut Importer, mut x: ValueId, plan: &[Axis], mode: &str, rule: &Rule) -> Result<Vec<ValueId>> {
    for p in plan {
        if p.scale.is_nan() || p.scale <= 0.0 || p.output < 0 || p.output > 1 << 24 || p.input == 0 && p.output > 0 {
            let Axis { input, output, scale, .. } = p;
            return Err(Error::Invalid(format!(
                "dimension of extent {input} cannot become {output}, scaled by {scale}"
            )));
        }
    }
    if mode == "nearest" {
        let position = |p: Axis, i: i64| -> Result<i64> {
            Ok(rule.round(p, rule.source(p, i)?)?.clamp(0.0, (p.input - 1).max(0) as f64) as i64)
        };
        let positions: Vec<Vec<i64>> =
            plan.iter().map(|&p| g.positions(p.output, |i| position(p, i))).collect::<Result<_>>()?;
        let factor = |p: &Axis, sources: &[i64]| {
            let f = if p.input > 0 && p.output % p.input == 0 { p.output / p.input } else { return None };
            (f > 0 && sources.iter().enumerate().all(|(i, v)| i as i64 / f == *v)).then_some(f)
        };
        let factors: Option<Vec<i64>> = plan.iter().zip(&positions).map(|(p, sources)| factor(p, sources)).collect();
        let whole = plan.iter().all(|p| p.region == (0.0, 1.0));
        if let Some(factors) = factors.filter(|_| whole) {
            let same = factors.iter().all(|f| *f == 1);
            return Ok(vec![if same { x } else { g.emit(Op::Upsample { factors }, &[x])? }]);
        }
        for (axis, sources) in positions.iter().enumerate() {
            if sources.len() as i64 != plan[axis].input || sources.iter().enumerate().any(|(i, v)| i as i64 != *v) {
                x = g.take(x, axis, sources)?;
            }
            x = extrapolated(g, x, axis, plan[axis], rule)?;
        }
        return Ok(vec![x]);
    }
    for (axis, p) in plan.iter().enumerate() {
        if p.output != p.input || p.scale != 1.0 || p.region != (0.0, 1.0) {
            x = interpolate(g, x, axis, *p, mode, rule)?;
            x = extrapolated(g, x, axis, *p, rule)?;
        }
    }
    Ok(vec![x])
}

/// The value outside of the input where a region reaches beyond it.
fn extrapolated(g: &mut Importer, x: ValueId, axis: usize, p: Axis, rule: &Rule) -> Result<ValueId> {
    if p.region == (0.0, 1.0) {
        return Ok(x);
    }
    g.claim(&[p.output], DType::Bool)?;
    let inside = |i: i64| Ok(u8::from((0.0..=(p.input - 1) as f64).contains(&rule.source(p, i)?)));
    let inside: Vec<u8> = (0..p.output).map(inside).collect::<Result<_>>()?;
    if inside.iter().all(|i| *i == 1) {
        return Ok(x);
    }
    let mut shape = vec![1; g.rank(x)];
    shape[axis] = p.output;
    let inside = g.constant(Tensor { dtype: DType::Bool, shape, data: inside.into() });
    let value = g.scalar_like(x, rule.extrapolation)?;
    g.select(inside, x, value)
}

/// Taps of one axis that a sum of gathers has; more are a product with a matrix.
const MAX_GATHERS: usize = 4;

/// Σ over the taps of (elements at `position`) · `weight`, along one axis.
fn interpolate(g: &mut Importer, x: ValueId, axis: usize, p: Axis, mode: &str, rule: &Rule) -> Result<ValueId> {
    let dtype = g.ty(x).dtype;
    match (p.input, p.output) {
        (_, 0) => return g.take(x, axis, &[]),
        (0, _) => return Err(Error::Invalid(format!("dimension {axis} is empty and cannot become {}", p.output))),
        _ => {}
    }
    if dtype != DType::F32 {
        let wide = g.cast_to(x, DType::F32)?;
        let mut y = interpolate(g, wide, axis, p, mode, rule)?;
        if !dtype.is_float() {
            // a conversion to integers cuts; saturated as the reference of ONNX has it
            let (low, high) = if dtype == DType::U8 { (0.0, 255.0) } else { (-128.0, 127.0) };
            y = if dtype.bytes() == 1 { g.clamp(y, low, high)? } else { y };
        }
        return g.cast_to(y, dtype);
    }
    // where an axis shrinks, the kernel of an antialiasing filter is wider
    let shrink = if rule.antialias { p.scale.min(1.0) } else { 1.0 };
    let support = match mode {
        "linear" => 1.0,
        "cubic" => 2.0,
        other => return Err(Error::Unsupported(format!("mode `{other}`"))),
    };
    let first = (-support / shrink).floor() as i64 + 1;
    let taps: Vec<i64> = (first..2 - first).collect();
    for _ in 0..2 * taps.len() {
        g.claim(&[p.output], DType::I64)?;
    }
    let mut positions = vec![vec![]; taps.len()];
    let mut weights = vec![vec![]; taps.len()];
    for i in 0..p.output {
        let mut source = rule.source(p, i)?;
        if mode == "linear" && shrink == 1.0 {
            source = source.clamp(0.0, (p.input - 1) as f64);
        }
        let fraction = source - source.floor();
        let mut local: Vec<f64> =
            taps.iter().map(|&t| kernel(mode, (fraction - t as f64) * shrink, rule.cubic_a)).collect();
        let sources: Vec<i64> = taps.iter().map(|t| source.floor() as i64 + t).collect();
        if rule.exclude_outside {
            for (w, a) in local.iter_mut().zip(&sources) {
                *w = if *a < 0 || *a >= p.input { 0.0 } else { *w };
            }
        }
        if rule.exclude_outside || shrink < 1.0 {
            let sum: f64 = local.iter().sum();
            local.iter_mut().for_each(|w| *w /= sum);
        }
        for t in 0..taps.len() {
            positions[t].push(sources[t].clamp(0, p.input - 1));
            weights[t].push(local[t] as f32);
        }
    }
    if taps.len() > MAX_GATHERS {
        return by_matrix(g, x, axis, p, &positions, &weights);
    }
    let mut shape = vec![1; g.rank(x)];
    shape[axis] = p.output;
    let mut sum: Option<ValueId> = None;
    for (sources, w) in positions.iter().zip(&weights).filter(|(_, w)| w.iter().any(|w| *w != 0.0)) {
        let part = g.take(x, axis, sources)?;
        let weight = g.constant(Tensor::new(&shape, w));
        let term = g.binary(BinaryOp::Mul, part, weight)?;
        sum = Some(match sum {
            None => term,
            Some(s) => g.binary(BinaryOp::Add, s, term)?,
        });
    }
    sum.ok_or_else(|| Error::Invalid("an interpolation without weights".into()))
}

/// Sums equal to a product with a matrix of the weights.
fn by_matrix(
    g: &mut Importer,
    x: ValueId,
    axis: usize,
    p: Axis,
    positions: &[Vec<i64>],
    weights: &[Vec<f32>],
) -> Result<ValueId> {
    g.claim(&[p.output, p.input], DType::F32)?;
    let mut matrix = vec![0f32; (p.output * p.input) as usize];
    for (positions, weights) in positions.iter().zip(weights) {
        for (i, (position, w)) in positions.iter().zip(weights).enumerate() {
            matrix[i * p.input as usize + *position as usize] += w;
        }
    }
    let mut shape = g.shape(x).to_vec();
    let (outer, inner) = (shape[..axis].iter().product(), shape[axis + 1..].iter().product());
    let matrix = g.constant(Tensor::new(&[p.output, p.input], &matrix));
    let slabs = g.reshape_to(x, vec![outer, p.input, inner])?;
    let y = g.matmul(matrix, slabs, false)?;
    shape[axis] = p.output;
    g.reshape_to(y, shape)
}

/// Weight of an element at a signed distance from the position.
fn kernel(mode: &str, distance: f64, a: f64) -> f64 {
    let d = distance.abs();
    match mode {
        "linear" => (1.0 - d).max(0.0),
        _ if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
        _ if d < 2.0 => ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a,
        _ => 0.0,
    }
}
