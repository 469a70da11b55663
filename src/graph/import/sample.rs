//! Images read between their elements: grids of positions, regions of interest, deformed convolutions.
//!
//! Every point reads a few elements around its position along each axis (taps). An image is rows of channels; a point is a
//! gather of rows, times weights, summed over the taps.

use super::arithmetic::count;
use super::convolution::{self, per_axis};
use super::node::Source;
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{Op, ReduceOp};
use crate::runtime::{DType, Error, Result};

/// Which elements around a position count.
#[derive(Clone, Copy, PartialEq)]
enum Interpolation {
    Nearest,
    Linear,
    /// Keys' kernel with a = -3/4.
    Cubic,
}

/// Elements outside of an image.
#[derive(Clone, Copy, PartialEq)]
enum Outside {
    Zeros,
    Border,
    /// Mirrored at the centres of the outermost elements, or at their edges.
    Reflection {
        at_centres: bool,
    },
}

/// The elements of one axis that points read: a last dimension of taps after those of the points.
struct Taps {
    /// Position of the element, inside of the image; a float.
    element: ValueId,
    weight: Option<ValueId>,
    /// Holds where the element is one of the image; `None`: always.
    inside: Option<ValueId>,
    count: usize,
}

impl Interpolation {
    fn named(name: &str) -> Result<Interpolation> {
        match name {
            "nearest" => Ok(Interpolation::Nearest),
            "linear" | "bilinear" => Ok(Interpolation::Linear),
            "cubic" | "bicubic" => Ok(Interpolation::Cubic),
            other => Err(Error::Invalid(format!("mode `{other}` is not known"))),
        }
    }

    /// Weights of the taps at a distance `t` (0 to 1) after the second of four, or the first of two.
    fn weights(self, g: &mut Importer, t: ValueId) -> Result<Option<ValueId>> {
        const A: f64 = -0.75;
        let one = g.scalar_like(t, 1.0)?;
        let complement = g.sub(one, t)?;
        let axis = g.rank(t) - 1;
        let parts = match self {
            Interpolation::Nearest => return Ok(None),
            Interpolation::Linear => vec![complement, t],
            Interpolation::Cubic => {
                let near = [A + 2.0, -(A + 3.0), 0.0, 1.0];
                let far = [A, -5.0 * A, 8.0 * A, -4.0 * A];
                let (after, before) = (g.plus(t, 1.0)?, g.plus(complement, 1.0)?);
                vec![
                    g.polynomial(after, &far)?,
                    g.polynomial(t, &near)?,
                    g.polynomial(complement, &near)?,
                    g.polynomial(before, &far)?,
                ]
            }
        };
        Ok(Some(g.joined(axis, &parts)?))
    }
}

impl Importer<'_> {
    /// A polynomial by Horner's rule, the highest coefficient first.
    fn polynomial(&mut self, x: ValueId, coefficients: &[f64]) -> Result<ValueId> {
        let mut value = self.scalar_like(x, coefficients[0])?;
        for &c in &coefficients[1..] {
            value = self.mul(value, x)?;
            value = self.plus(value, c)?;
        }
        Ok(value)
    }

    /// A position mirrored into the image.
    fn reflected(&mut self, x: ValueId, extent: i64, at_centres: bool) -> Result<ValueId> {
        let (low, range) = if at_centres { (0.0, extent as f64 - 1.0) } else { (-0.5, extent as f64) };
        if range <= 0.0 {
            return self.times(x, 0.0);
        }
        let way = self.plus(x, -low)?;
        let way = self.unary(UnaryOp::Abs, way)?;
        let period = self.scalar_like(x, 2.0 * range)?;
        let way = self.binary(BinaryOp::Mod, way, period)?;
        let back = self.sub(period, way)?;
        let way = self.binary(BinaryOp::Min, way, back)?;
        self.plus(way, low)
    }

    /// The taps of an axis of `extent` elements at these positions.
    fn taps(&mut self, position: ValueId, extent: i64, how: Interpolation, outside: Outside) -> Result<Taps> {
        let axis = self.rank(position);
        let mut x = self.unsqueezed(position, axis)?;
        if how == Interpolation::Nearest {
            x = self.unary(UnaryOp::Round, x)?;
        }
        let last = (extent - 1).max(0) as f64;
        let moved = |g: &mut Self, x: ValueId| match outside {
            Outside::Zeros => Ok(x),
            Outside::Border => g.clamp(x, 0.0, last),
            Outside::Reflection { at_centres } => g.reflected(x, extent, at_centres),
        };
        // the taps of a cubic are moved one by one, as PyTorch and ONNX Runtime do it
        if how != Interpolation::Cubic {
            x = moved(self, x)?;
        }
        let offsets: &[f64] = match how {
            Interpolation::Nearest => &[0.0],
            Interpolation::Linear => &[0.0, 1.0],
            Interpolation::Cubic => &[-1.0, 0.0, 1.0, 2.0],
        };
        let floor = self.unary(UnaryOp::Floor, x)?;
        let fraction = self.sub(x, floor)?;
        let weight = how.weights(self, fraction)?;
        let offset = self.numbers(x, &[offsets.len() as i64], offsets)?;
        let element = self.add(floor, offset)?;
        let inside = if outside == Outside::Zeros { Some(self.within(element, 0.0, last)?) } else { None };
        let element = moved(self, element)?;
        let element = self.clamp(element, 0.0, last)?;
        Ok(Taps { element, weight, inside, count: offsets.len() })
    }

    /// `low ≤ x ≤ high`.
    fn within(&mut self, x: ValueId, low: f64, high: f64) -> Result<ValueId> {
        let (low, high) = (self.scalar_like(x, low)?, self.scalar_like(x, high)?);
        let above = self.compare(CompareOp::Ge, x, low)?;
        let below = self.compare(CompareOp::Le, x, high)?;
        self.binary(BinaryOp::And, above, below)
    }

    /// The weighted elements of an image at points: `(points.., taps, channels)`. `rows` is `(images · elements, channels)`,
    /// `image` the number of the image of each point, which broadcasts to the points. The taps of each axis broadcast to
    /// the points but for their last dimension.
    fn sampled(&mut self, rows: ValueId, image: ValueId, extents: &[i64], axes: &[Taps]) -> Result<ValueId> {
        let points = self.rank(axes[0].element) - 1;
        let apart = |g: &mut Self, x: ValueId, axis: usize| -> Result<ValueId> {
            let mut shape = g.shape(x).to_vec();
            let taps = shape.pop().unwrap_or(1);
            shape.extend((0..axes.len()).map(|a| if a == axis { taps } else { 1 }));
            g.reshape_to(x, shape)
        };
        let mut shape = self.shape(image).to_vec();
        shape.extend(vec![1; axes.len()]);
        let mut index = self.reshape_to(image, shape)?;
        let (mut weight, mut inside): (Option<ValueId>, Option<ValueId>) = (None, None);
        for (a, taps) in axes.iter().enumerate() {
            let element = self.cast_to(taps.element, DType::I64)?;
            let element = apart(self, element, a)?;
            index = self.times(index, extents[a] as f64)?;
            index = self.add(index, element)?;
            if let Some(w) = taps.weight {
                let w = apart(self, w, a)?;
                weight = Some(match weight {
                    Some(weight) => self.mul(weight, w)?,
                    None => w,
                });
            }
            if let Some(i) = taps.inside {
                let i = apart(self, i, a)?;
                inside = Some(match inside {
                    Some(inside) => self.binary(BinaryOp::And, inside, i)?,
                    None => i,
                });
            }
        }
        let total: usize = axes.iter().map(|t| t.count).product();
        let mut flat = self.shape(index)[..points].to_vec();
        flat.push(total as i64);
        let index = self.reshape_to(index, flat.clone())?;
        let mut values = self.emit(Op::Gather { axis: 0 }, &[rows, index])?;
        flat.push(1);
        let full = self.shape(index).to_vec();
        let spread = |g: &mut Self, x: ValueId| -> Result<ValueId> {
            let wide = [&full[..points], &axes.iter().map(|t| t.count as i64).collect::<Vec<_>>()].concat();
            let x = g.expanded(x, &wide)?;
            g.reshape_to(x, flat.clone())
        };
        if let Some(inside) = inside {
            let inside = spread(self, inside)?;
            let zero = self.scalar_like(values, 0.0)?;
            values = self.select(inside, values, zero)?;
        }
        if let Some(weight) = weight {
            let weight = spread(self, weight)?;
            let weight = self.cast_to(weight, self.ty(values).dtype)?;
            values = self.mul(values, weight)?;
        }
        Ok(values)
    }

    /// `(images, channels, extents..)` as rows of channels, and the extents.
    fn rows_of(&mut self, x: ValueId) -> Result<(ValueId, Vec<i64>)> {
        let shape = self.shape(x).to_vec();
        if shape.len() < 3 || shape[2..].contains(&0) {
            return Err(Error::Invalid(format!(
                "an image of shape {shape:?} has fewer than 3 dimensions or no elements"
            )));
        }
        let elements = count(&shape[2..]);
        let x = self.reshape_to(x, vec![shape[0], shape[1], elements])?;
        let x = self.permuted(x, &[0, 2, 1])?;
        let x = self.reshape_to(x, vec![shape[0] * elements, shape[1]])?;
        Ok((x, shape[2..].to_vec()))
    }
}

pub(super) fn grid_sample(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, grid) = (n.input(0)?, n.input(1)?);
    let (shape, places) = (g.shape(x).to_vec(), g.shape(grid).to_vec());
    let axes = shape.len() as i64 - 2;
    if axes < 1 || places.len() != shape.len() || places[0] != shape[0] || places.last() != Some(&axes) {
        return Err(Error::Invalid(format!("a grid of shape {places:?} does not fit an image of shape {shape:?}")));
    }
    let how = Interpolation::named(&n.string("mode", "linear"))?;
    let at_centres = n.flag("align_corners", false);
    let outside = match n.string("padding_mode", "zeros").as_str() {
        "zeros" => Outside::Zeros,
        "border" => Outside::Border,
        "reflection" => Outside::Reflection { at_centres },
        other => return Err(Error::Invalid(format!("padding_mode `{other}` is not known"))),
    };
    let points = count(&places[1..places.len() - 1]);
    let grid = g.reshape_to(grid, vec![places[0], points, axes])?;
    let (rows, extents) = g.rows_of(x)?;
    let mut taps = vec![];
    for (axis, &extent) in extents.iter().enumerate() {
        let column = axes - 1 - axis as i64;
        let coordinate = g.slice(grid, 2, column, column + 1)?;
        let coordinate = g.reshape_to(coordinate, vec![places[0], points])?;
        // -1 and 1 are the centres of the outermost elements, or their edges
        let coordinate = g.plus(coordinate, 1.0)?;
        let coordinate = if at_centres {
            g.times(coordinate, (extent - 1) as f64 / 2.0)?
        } else {
            let coordinate = g.times(coordinate, extent as f64 / 2.0)?;
            g.plus(coordinate, -0.5)?
        };
        taps.push(g.taps(coordinate, extent, how, outside)?);
    }
    let image = g.counting(places[0], 0, 2)?;
    let values = g.sampled(rows, image, &extents, &taps)?;
    let y = g.sum_over(values, &[2])?;
    let y = g.permuted(y, &[0, 2, 1])?;
    let result = [&shape[..2], &places[1..places.len() - 1]].concat();
    Ok(vec![g.reshape_to(y, result)?])
}

/// Positions of a grid under affine maps, one for each image.
pub(super) fn affine_grid(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (theta, size) = (n.input(0)?, n.input(1)?);
    let size = g.integers(size, "size")?;
    let axes = size.len() as i64 - 2;
    if !(1..=3).contains(&axes) || g.shape(theta) != [size[0], axes, axes + 1] {
        return Err(Error::Invalid(format!("maps of shape {:?} do not fit images of shape {size:?}", g.shape(theta))));
    }
    let extents = &size[2..];
    if extents.iter().any(|d| !(0..=1 << 24).contains(d)) {
        return Err(Error::Invalid(format!("an image of shape {size:?} has a negative or too large extent")));
    }
    let at_centres = n.flag("align_corners", false);
    let points = extents.iter().try_fold(1i64, |a, d| a.checked_mul(*d)).unwrap_or(i64::MAX / 8);
    g.claim(&[points, axes + 1], DType::F64)?;
    let mut rows = Vec::with_capacity((points * (axes + 1)) as usize);
    for p in 0..points {
        let (mut remainder, mut place) = (p, vec![1.0; axes as usize + 1]);
        for (a, &extent) in extents.iter().enumerate().rev() {
            let i = (remainder % extent) as f64;
            remainder /= extent;
            let ends = extent as f64 - 1.0;
            place[axes as usize - 1 - a] = match at_centres {
                true if ends > 0.0 => 2.0 * i / ends - 1.0,
                true => -1.0,
                false => (2.0 * i + 1.0) / extent as f64 - 1.0,
            };
        }
        rows.extend(place);
    }
    let places = g.numbers(theta, &[points, axes + 1], &rows)?;
    let grid = g.matmul(places, theta, true)?;
    let shape = [&size[..1], extents, &[axes]].concat();
    Ok(vec![g.reshape_to(grid, shape)?])
}

/// Means or maxima of points in the cells of regions. Without `sampling_ratio` the number of points depends on the size of
/// the region, which has no affine expression.
pub(super) fn roi_align(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, regions, image) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (&[_, channels, height, width], &[count, 4]) = (g.shape(x), g.shape(regions)) else {
        return Err(Error::Invalid(format!(
            "regions of shape {:?} do not fit an image of shape {:?}: a region has 4 numbers, an image 4 dimensions",
            g.shape(regions),
            g.shape(x)
        )));
    };
    if g.shape(image) != [count] {
        return Err(Error::Invalid(format!(
            "{count} regions do not fit numbers of images of shape {:?}",
            g.shape(image)
        )));
    }
    let cells = [n.int("output_height", 1), n.int("output_width", 1)];
    let ratio = n.int("sampling_ratio", 0);
    if cells.iter().any(|c| !(1..=1 << 16).contains(c)) || !(0..=1 << 10).contains(&ratio) {
        return Err(Error::Invalid(format!("{cells:?} cells with {ratio} points are not possible")));
    }
    let largest = match n.string("mode", "avg").as_str() {
        "avg" => false,
        "max" => true,
        other => return Err(Error::Invalid(format!("mode `{other}` is not known"))),
    };
    let half =
        if n.opset < 16 { false } else { n.string("coordinate_transformation_mode", "half_pixel") == "half_pixel" };
    let scale = n.float("spatial_scale", 1.0);
    if ratio == 0 {
        let flags = [largest as i64, half as i64, i64::from(scale.to_bits())];
        let attributes = [&cells[..], &flags].concat();
        return g.emit_all(Op::Opaque { function: "roi_align".into(), attributes }, &[x, regions, image]);
    }
    let regions = g.times(regions, f64::from(scale))?;
    let regions = if half { g.plus(regions, -0.5)? } else { regions };
    let mut taps = vec![];
    for (axis, extent) in [(0, height), (1, width)] {
        let from = g.slice(regions, 1, 1 - axis, 2 - axis)?;
        let to = g.slice(regions, 1, 3 - axis, 4 - axis)?;
        let mut length = g.sub(to, from)?;
        if !half {
            let one = g.scalar_like(length, 1.0)?;
            length = g.binary(BinaryOp::Max, length, one)?;
        }
        let cell = g.times(length, 1.0 / cells[axis as usize] as f64)?;
        let points = cells[axis as usize] * ratio;
        let places: Vec<f64> = (0..points).map(|p| (p as f64 + 0.5) / ratio as f64).collect();
        let places = g.numbers(cell, &[1, points], &places)?;
        let way = g.mul(cell, places)?;
        let coordinate = g.add(from, way)?;
        let shape = if axis == 0 { vec![count, points, 1] } else { vec![count, 1, points] };
        let coordinate = g.reshape_to(coordinate, shape)?;
        let near = g.within(coordinate, -1.0, extent as f64)?;
        let near = g.unsqueezed(near, 3)?;
        let coordinate = g.clamp(coordinate, 0.0, (extent - 1) as f64)?;
        let mut axis_taps = g.taps(coordinate, extent, Interpolation::Linear, Outside::Border)?;
        axis_taps.inside = Some(near);
        taps.push(axis_taps);
    }
    let (rows, extents) = g.rows_of(x)?;
    let image = g.reshape_to(image, vec![count, 1, 1])?;
    let image = g.cast_to(image, DType::I64)?;
    let values = g.sampled(rows, image, &extents, &taps)?;
    let y = g.reshape_to(values, vec![count, cells[0], ratio, cells[1], ratio, 4, channels])?;
    let op = if largest { ReduceOp::Max } else { ReduceOp::Sum };
    let y = g.emit(Op::Reduce { op, axes: vec![2, 4, 5], keep: false }, &[y])?;
    let y = if largest { y } else { g.times(y, 1.0 / (ratio * ratio) as f64)? };
    Ok(vec![g.permuted(y, &[0, 3, 1, 2])?])
}

/// A convolution whose taps are moved by offsets, and weighed by a mask: a product with sampled elements.
pub(super) fn deform_conv(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, w, offset) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (bias, mask) = (n.optional(3), n.optional(4));
    let (shape, weights) = (g.shape(x).to_vec(), g.shape(w).to_vec());
    let window = convolution::conv_window(g, n, x, &weights)?;
    let (axes, group, parts) = (window.kernel.len(), n.int("group", 1), n.int("offset_group", 1));
    let taps = count(&window.kernel);
    let outputs: Vec<i64> = (0..axes)
        .map(|d| {
            let reach = (window.kernel[d] - 1) * window.dilation[d] + 1;
            (shape[d + 2] + window.pad_before[d] + window.pad_after[d] - reach) / window.stride[d] + 1
        })
        .collect();
    let (batch, channels, points) = (shape[0], shape[1], count(&outputs));
    let fits = group >= 1
        && parts >= 1
        && channels % parts == 0
        && weights[0] % group == 0
        && weights[1].checked_mul(group) == Some(channels)
        && g.shape(offset) == [&[batch, parts * taps * axes as i64], &outputs[..]].concat()
        && mask.is_none_or(|m| g.shape(m) == [&[batch, parts * taps], &outputs[..]].concat());
    if !fits {
        return Err(Error::Invalid(format!(
            "operands of shapes {shape:?}, {weights:?} and {:?} do not fit",
            g.shape(offset)
        )));
    }
    let offset = g.reshape_to(offset, vec![batch * parts, taps, axes as i64, points])?;
    let mut read = vec![];
    for d in 0..axes {
        // the place of each tap of each output without its offset
        let (inner, after) = (count(&window.kernel[d + 1..]), count(&outputs[d + 1..]));
        let base: Vec<f64> = (0..taps)
            .flat_map(|k| (0..points).map(move |p| (k, p)))
            .map(|(k, p)| {
                let (k, p) = (k / inner % window.kernel[d], p / after % outputs[d]);
                (p * window.stride[d] - window.pad_before[d] + k * window.dilation[d]) as f64
            })
            .collect();
        let base = g.numbers(offset, &[1, taps, points], &base)?;
        let moved = g.slice(offset, 2, d as i64, d as i64 + 1)?;
        let moved = g.reshape_to(moved, vec![batch * parts, taps, points])?;
        let coordinate = g.add(moved, base)?;
        read.push(g.taps(coordinate, shape[d + 2], Interpolation::Linear, Outside::Zeros)?);
    }
    let x = g.reshape_to(x, [&[batch * parts, channels / parts], &shape[2..]].concat())?;
    let (rows, extents) = g.rows_of(x)?;
    let image = g.counting(batch * parts, 0, 3)?;
    let values = g.sampled(rows, image, &extents, &read)?;
    let mut columns = g.sum_over(values, &[3])?;
    if let Some(mask) = mask {
        let mask = g.reshape_to(mask, vec![batch * parts, taps, points, 1])?;
        columns = g.mul(columns, mask)?;
    }
    let columns = g.permuted(columns, &[0, 3, 1, 2])?;
    let columns = g.reshape_to(columns, vec![batch, group, channels / group * taps, points])?;
    let w = g.reshape_to(w, vec![group, weights[0] / group, weights[1] * taps])?;
    let y = g.matmul(w, columns, false)?;
    let y = g.reshape_to(y, [&[batch, weights[0]], &outputs[..]].concat())?;
    let Some(bias) = bias else { return Ok(vec![y]) };
    let mut shape = vec![1; axes + 2];
    shape[1] = weights[0];
    let bias = g.reshape_to(bias, shape)?;
    Ok(vec![g.add(y, bias)?])
}

/// Maxima of the cells of regions, whose bounds are elements: which ones depends on the regions, so that there is no
/// affine expression.
pub(super) fn max_roi_pool(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let cells = per_axis(n, "pooled_shape", 2, 1, 1)?;
    let (x, regions) = (n.input(0)?, n.input(1)?);
    let attributes = [&cells[..], &[i64::from(n.float("spatial_scale", 1.0).to_bits())]].concat();
    g.emit_all(Op::Opaque { function: "max_roi_pool".into(), attributes }, &[x, regions])
}
