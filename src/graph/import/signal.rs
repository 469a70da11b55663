//! Signals: Fourier transforms as products with constant matrices, windows, the mel scale.
//!
//! Sines and cosines are computed at import, in double precision.

use super::node::Source;
use super::tensor::dtype;
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{Layout, Op, Window};
use crate::runtime::{DType, Error, Result, Tensor};
use std::f64::consts::TAU;

/// Largest extent of a transform or window.
const MAX_LENGTH: i64 = 1 << 24;

/// A transform of `length` points along one axis.
struct Transform {
    length: i64,
    inverse: bool,
    onesided: bool,
}

impl Transform {
    /// Numbers of points read, of `extent` that there are.
    fn inputs(&self, extent: i64) -> i64 {
        let whole = if self.inverse && self.onesided { self.length / 2 + 1 } else { self.length };
        extent.min(whole)
    }

    fn outputs(&self) -> i64 {
        if self.onesided && !self.inverse { self.length / 2 + 1 } else { self.length }
    }

    /// Real and imaginary parts of a result: those of a one-sided inverse are real.
    fn parts(&self) -> i64 {
        if self.onesided && self.inverse { 1 } else { 2 }
    }

    /// The factor by which point `k` of the operand (its real or imaginary part) adds to part `q` of point `m` of the result.
    fn factor(&self, (k, p): (i64, i64), (m, q): (i64, i64)) -> f64 {
        let turn = (k as i128 * m as i128 % self.length as i128) as f64 / self.length as f64 * TAU;
        let (cos, sin) = (turn.cos(), if self.inverse { turn.sin() } else { -turn.sin() });
        let value = match (p, q) {
            (0, 0) | (1, 1) => cos,
            (0, _) => sin,
            _ => -sin,
        };
        // a point of half a spectrum stands for its mirror image too
        let alone = k == 0 || 2 * k == self.length;
        let twice = if self.inverse && self.onesided && !alone { 2.0 } else { 1.0 };
        if self.inverse { value * twice / self.length as f64 } else { value }
    }

    /// The matrix over `points` of `parts` parts: rows are what it reads, columns what it makes.
    fn matrix(&self, g: &mut Importer, like: ValueId, points: i64, parts: i64) -> Result<ValueId> {
        let (outputs, made) = (self.outputs(), self.parts());
        let shape = [points * parts, outputs * made];
        g.claim(&shape, DType::F64)?;
        let rows = (0..points).flat_map(|k| (0..parts).map(move |p| (k, p)));
        let column = |from| (0..outputs).flat_map(move |m| (0..made).map(move |q| (from, (m, q))));
        let values: Vec<f64> = rows.flat_map(column).map(|(from, to)| self.factor(from, to)).collect();
        g.numbers(like, &shape, &values)
    }
}

/// A discrete Fourier transform: a product along the axis with a constant matrix.
pub(super) fn dft(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let rank = g.rank(x);
    let length = n.optional(1);
    let axis = match (n.opset < 20, if n.opset < 20 { None } else { n.optional(2) }) {
        (true, _) => n.int("axis", 1),
        (false, Some(axis)) => g.known_integer(axis, "axis")?,
        (false, None) => -2,
    };
    let axis = g.axis(axis, rank)?;
    let shape = g.shape(x).to_vec();
    let parts = shape.last().copied().unwrap_or(0);
    if axis + 1 >= rank || !(1..=2).contains(&parts) {
        return Err(Error::Invalid(format!("axis {axis} of shape {shape:?}, whose last dimension has 1 or 2 parts")));
    }
    let (inverse, onesided) = (n.flag("inverse", false), n.flag("onesided", false));
    let length = match length {
        Some(length) => g.known_integer(length, "dft_length")?,
        None if inverse && onesided => 2 * (shape[axis] - 1),
        None => shape[axis],
    };
    if !(1..=MAX_LENGTH).contains(&length) {
        return Err(Error::Invalid(format!("a transform has {length} points, not within 1 to {MAX_LENGTH}")));
    }
    let transform = Transform { length, inverse, onesided };
    let points = transform.inputs(shape[axis]);
    let mut order: Vec<usize> = (0..rank - 1).filter(|&d| d != axis).collect();
    order.extend([axis, rank - 1]);
    let rows = g.slice(x, axis, 0, points)?;
    let rows = g.permuted(rows, &order)?;
    let outer: Vec<i64> = order[..rank - 2].iter().map(|&d| shape[d]).collect();
    let rows = g.reshape_to(rows, vec![outer.iter().product(), points * parts])?;
    let matrix = transform.matrix(g, x, points, parts)?;
    let y = g.matmul(rows, matrix, false)?;
    let y = g.reshape_to(y, [&outer[..], &[transform.outputs(), transform.parts()]].concat())?;
    let back: Vec<usize> = (0..rank).map(|d| order.iter().position(|&o| o == d).unwrap_or(d)).collect();
    Ok(vec![g.permuted(y, &back)?])
}

/// Transforms of the frames of a signal: a convolution whose filters are the rows of the transform, times the window.
pub(super) fn stft(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, step) = (n.input(0)?, n.input(1)?);
    let (window, length) = (n.optional(2), n.optional(3));
    let step = g.known_integer(step, "frame_step")?;
    let (batch, extent, parts) = match *g.shape(x) {
        [batch, extent] => (batch, extent, 1),
        [batch, extent, parts @ 1..=2] => (batch, extent, parts),
        ref other => {
            return Err(Error::Invalid(format!(
                "a signal of shape {other:?} does not have 2 dimensions, or 3 of which the last has 1 or 2 parts"
            )));
        }
    };
    let length = match (length, window) {
        (Some(length), _) => g.known_integer(length, "frame_length")?,
        (None, Some(window)) => g.shape(window).first().copied().unwrap_or(0),
        (None, None) => return Err(Error::Invalid("neither window nor frame_length is given".into())),
    };
    if !(1..=extent.min(MAX_LENGTH)).contains(&length) || !(1..=MAX_LENGTH).contains(&step) {
        return Err(Error::Invalid(format!(
            "frames of {length} elements every {step} do not fit a signal of {extent}"
        )));
    }
    if let Some(window) = window.filter(|&w| g.shape(w) != [length]) {
        return Err(Error::Invalid(format!("a window of shape {:?} does not fit frames of {length}", g.shape(window))));
    }
    let transform = Transform { length, inverse: false, onesided: n.flag("onesided", true) };
    let matrix = transform.matrix(g, x, length, parts)?;
    let filters = transform.outputs() * 2;
    let matrix = g.reshape_to(matrix, vec![length, parts, filters])?;
    let mut weights = g.permuted(matrix, &[2, 1, 0])?;
    if let Some(window) = window {
        let window = g.reshape_to(window, vec![1, 1, length])?;
        weights = g.mul(weights, window)?;
    }
    let x = g.reshape_to(x, vec![batch, extent, parts])?;
    let x = if parts == 1 { g.reshape_to(x, vec![batch, 1, extent])? } else { g.permuted(x, &[0, 2, 1])? };
    let window =
        Window { kernel: vec![length], stride: vec![step], dilation: vec![1], pad_before: vec![0], pad_after: vec![0] };
    let y = g.emit(Op::Conv { window, group: 1, layout: Layout::Nchw }, &[x, weights])?;
    let y = g.permuted(y, &[0, 2, 1])?;
    let frames = g.shape(y)[1];
    Ok(vec![g.reshape_to(y, vec![batch, frames, transform.outputs(), 2])?])
}

/// A window that is a sum of cosines: `Σ factors[k] · cos(k · 2π · i / period)`.
pub(super) fn window(g: &mut Importer, n: &Source, factors: &[f64]) -> Result<Vec<ValueId>> {
    let size = n.input(0)?;
    let size = g.known_integer(size, "size")?;
    if !(0..=MAX_LENGTH).contains(&size) {
        return Err(Error::Invalid(format!("a window has {size} elements, not within 0 to {MAX_LENGTH}")));
    }
    let period = if n.flag("periodic", true) { size } else { size - 1 }.max(1) as f64;
    g.claim(&[size], DType::F64)?;
    let value = |i: i64| (0..).zip(factors).map(|(k, f)| f * (TAU * (k * i) as f64 / period).cos()).sum::<f64>();
    let values: Vec<f64> = (0..size).map(value).collect();
    let window = g.constant(Tensor::new(&[size], &values));
    Ok(vec![g.cast_to(window, dtype(n.int("output_datatype", 1) as i32)?)?])
}

/// Triangles over the bins of a spectrum, whose corners are equally far apart on the mel scale.
pub(super) fn mel_weight_matrix(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (bands, length, rate) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let edges = [n.input(3)?, n.input(4)?];
    let bands = g.known_integer(bands, "num_mel_bins")?;
    let length = g.known_integer(length, "dft_length")?;
    let rate = g.known_integer(rate, "sample_rate")?;
    let [low, high] = [g.known_number(edges[0], "lower edge")?, g.known_number(edges[1], "upper edge")?];
    let bins = length / 2 + 1;
    let fits = (1..=1 << 16).contains(&bands) && (0..=MAX_LENGTH).contains(&length) && rate > 0;
    if !fits || low.is_nan() || high.is_nan() || low < 0.0 || high < low {
        return Err(Error::Invalid(format!(
            "{bands} bands of {length} points from {low} to {high} at {rate} hertz are not possible"
        )));
    }
    g.claim(&[bins, bands], DType::F64)?;
    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let step = (mel(high) - mel(low)) / (bands + 2) as f64;
    let corner = |i: i64| {
        let hertz = 700.0 * (10f64.powf((i as f64 * step + mel(low)) / 2595.0) - 1.0);
        ((length + 1) as f64 * hertz / rate as f64).floor() as i64
    };
    let mut values = vec![0.0; (bins * bands) as usize];
    for band in 0..bands {
        let [left, centre, right] = [corner(band), corner(band + 1), corner(band + 2)];
        if centre >= bins || right > bins {
            return Err(Error::Invalid(format!("band {band} ends above bin {bins}")));
        }
        let mut put = |bin: i64, value: f64| values[(bin * bands + band) as usize] = value;
        for bin in left..=centre {
            put(bin, if centre > left { (bin - left) as f64 / (centre - left) as f64 } else { 1.0 });
        }
        for bin in centre..right {
            put(bin, (right - bin) as f64 / (right - centre) as f64);
        }
    }
    let matrix = g.constant(Tensor::new(&[bins, bands], &values));
    Ok(vec![g.cast_to(matrix, dtype(n.int("output_datatype", 1) as i32)?)?])
}
