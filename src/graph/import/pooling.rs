//! Pooling: maxima and their positions, means, norms.

use super::arithmetic::count;
use super::convolution::{check_fit, padding, per_axis, spatial};
use super::node::Source;
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{Layout, Op, PoolKind, ReduceOp, Window};
use crate::runtime::{DType, Error, Result, Tensor};

/// Where a pooling has its windows.
enum Windows {
    /// The window, and the declared padding after each dimension.
    Placed(Window, Vec<i64>),
    /// There is none, so that the result of this shape has no elements.
    Nowhere(Vec<i64>),
}

/// The windows of a pooling; with `ceil_mode` the padding after is extended so that a last, partial window fits.
///
/// A window that is larger than the padded image by less than its stride has one place, and takes the part of it inside the
/// image; one that is larger by exactly its stride has none. So it follows from the quotient towards zero in the shape
/// inference of the standard.
fn pool_windows(g: &Importer, n: &Source, x: ValueId) -> Result<Windows> {
    let input = spatial(g, x)?;
    let rank = input.len();
    let mut kernel = per_axis(n, "kernel_shape", rank, 0, 1)?;
    let mut stride = per_axis(n, "strides", rank, 1, 1)?;
    let dilation = per_axis(n, "dilations", rank, 1, 1)?;
    let (pad_before, mut pad_after) = padding(n, &input, &kernel, &stride, &dilation)?;
    let declared = pad_after.clone();
    let ceil = n.flag("ceil_mode", false);
    let mut shape = g.shape(x).to_vec();
    for i in 0..rank {
        let reach = (kernel[i] - 1) * dilation[i] + 1;
        if pad_before[i].max(pad_after[i]) >= reach {
            return Err(Error::Invalid(format!("the padding of spatial dimension {i} is as large as the window")));
        }
        let extent = input[i] + pad_before[i] + pad_after[i];
        let room = extent - reach;
        if room < 0 {
            let places = if ceil { 1 + (room + stride[i] - 1).div_euclid(stride[i]) } else { 1 + room / stride[i] };
            if places < 0 || extent < 1 {
                return Err(Error::Invalid(format!(
                    "a window of {reach} does not fit into spatial dimension {i} of extent {}",
                    input[i]
                )));
            }
            (kernel[i], stride[i]) = ((extent - 1) / dilation[i] + 1, stride[i].max(extent));
            shape[i + 2] = places;
        } else if ceil {
            let mut steps = (room + stride[i] - 1).div_euclid(stride[i]);
            // the last window starts inside the input or the padding before it
            if steps * stride[i] >= input[i] + pad_before[i] {
                steps -= 1;
            }
            pad_after[i] += (steps * stride[i] - room).max(0);
            shape[i + 2] = steps + 1;
        } else {
            shape[i + 2] = room / stride[i] + 1;
        }
    }
    if shape[2..].contains(&0) {
        return Ok(Windows::Nowhere(shape));
    }
    let window = Window { kernel, stride, dilation, pad_before, pad_after };
    check_fit(&window, &input)?;
    Ok(Windows::Placed(window, declared))
}

pub(super) fn max_pool(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let window = match pool_windows(g, n, x)? {
        Windows::Placed(window, _) => window,
        Windows::Nowhere(shape) => {
            let y = g.zeros(g.ty(x).dtype, &shape)?;
            return Ok(if n.wants_output(1) { vec![y, g.zeros(DType::I64, &shape)?] } else { vec![y] });
        }
    };
    let y = g.emit(Op::Pool { kind: PoolKind::Max, window: window.clone(), layout: Layout::Nchw }, &[x])?;
    if !n.wants_output(1) {
        return Ok(vec![y]);
    }
    Ok(vec![y, positions_of_maxima(g, x, y, &window, n.flag("storage_order", false))?])
}

/// The position of each maximum in the whole operand: the least one of the elements of its window that equal it.
fn positions_of_maxima(
    g: &mut Importer,
    x: ValueId,
    y: ValueId,
    window: &Window,
    columns_first: bool,
) -> Result<ValueId> {
    let (shape, outputs) = (g.shape(x).to_vec(), g.shape(y).to_vec());
    let (extents, planes) = (&shape[2..], shape[0] * shape[1]);
    let (elements, points, taps) = (count(extents), count(&outputs[2..]), count(&window.kernel));
    g.claim(&[points, taps, 2], DType::I64)?;
    let (mut from, mut numbers) = (vec![], vec![]);
    for (p, k) in (0..points).flat_map(|p| (0..taps).map(move |k| (p, k))) {
        let (mut p, mut k, mut step, mut element) = (p, k, 1, Some(0));
        for d in (0..extents.len()).rev() {
            let (output, kernel) = (outputs[d + 2], window.kernel[d]);
            let coordinate = p % output * window.stride[d] - window.pad_before[d] + k % kernel * window.dilation[d];
            (p, k) = (p / output, k / kernel);
            element = element.filter(|_| (0..extents[d]).contains(&coordinate)).map(|e| e + coordinate * step);
            step *= extents[d];
        }
        from.push(element.unwrap_or(0));
        numbers.push(element.unwrap_or(elements));
    }
    let from = g.constant(Tensor::new(&[points, taps], &from));
    let numbers = g.constant(Tensor::new(&[1, points, taps], &numbers));
    let rows = g.reshape_to(x, vec![planes, elements])?;
    let read = g.emit(Op::Gather { axis: 1 }, &[rows, from])?;
    let best = g.reshape_to(y, vec![planes, points, 1])?;
    let equal = g.compare(CompareOp::Eq, read, best)?;
    let none = g.scalar_like(numbers, elements as f64)?;
    let numbers = g.select(equal, numbers, none)?;
    let mut place = g.emit(Op::Reduce { op: ReduceOp::Min, axes: vec![2], keep: false }, &[numbers])?;
    if columns_first {
        let (mut turned, mut before): (Option<ValueId>, i64) = (None, 1);
        for d in 0..extents.len() {
            let after = g.scalar_like(place, count(&extents[d + 1..]) as f64)?;
            let extent = g.scalar_like(place, extents[d] as f64)?;
            let i = g.div(place, after)?;
            let i = g.binary(BinaryOp::Mod, i, extent)?;
            let i = g.times(i, before as f64)?;
            turned = Some(turned.map_or(Ok(i), |t| g.add(t, i))?);
            before *= extents[d];
        }
        place = turned.unwrap_or(place);
    }
    let plane = g.counting(planes, 0, 2)?;
    let plane = g.times(plane, elements as f64)?;
    let place = g.add(place, plane)?;
    g.reshape_to(place, outputs)
}

/// Writes each element to its position in zeros. A write through positions has no affine expression here.
pub(super) fn max_unpool(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, positions, wanted) = (n.input(0)?, n.input(1)?, n.optional(2));
    let input = spatial(g, x)?;
    let rank = input.len();
    let kernel = per_axis(n, "kernel_shape", rank, 0, 1)?;
    let stride = per_axis(n, "strides", rank, 1, 1)?;
    let pads = per_axis(n, "pads", 2 * rank, 0, 0)?;
    let planes = g.shape(x)[..2].to_vec();
    let inferred: Vec<i64> =
        (0..rank).map(|d| (input[d] - 1) * stride[d] + kernel[d] - pads[d] - pads[rank + d]).collect();
    let inferred = [&planes[..], &inferred].concat();
    let shape = match wanted {
        Some(shape) => g.integers(shape, "output_shape")?,
        None => inferred.clone(),
    };
    if shape.len() != inferred.len() || shape.iter().zip(&inferred).any(|(s, i)| s < i) {
        return Err(Error::Invalid(format!("output_shape {shape:?} is smaller than {inferred:?}")));
    }
    if g.shape(positions) != g.shape(x) {
        return Err(Error::Invalid(format!(
            "positions of shape {:?} do not fit values of shape {:?}",
            g.shape(positions),
            g.shape(x)
        )));
    }
    // positions count in the tensor that was pooled, whose extents are the inferred ones
    let y = g.emit_all(Op::Opaque { function: "max_unpool".into(), attributes: inferred.clone() }, &[x, positions])?[0];
    if shape == inferred {
        return Ok(vec![y]);
    }
    let after = shape.iter().zip(&inferred).map(|(s, i)| s - i).collect();
    Ok(vec![g.emit(Op::Pad { before: vec![0; shape.len()], after, value: 0 }, &[y])?])
}

/// The exponent of a norm; before operator set 2 it is a float.
fn exponent(n: &Source) -> Result<f64> {
    let p = if n.opset < 2 { f64::from(n.float("p", 2.0)) } else { n.int("p", 2) as f64 };
    if p > 0.0 { Ok(p) } else { Err(Error::Invalid(format!("`p` is {p}, which is not positive"))) }
}

impl Importer<'_> {
    /// `|x|^p`.
    fn magnitude_power(&mut self, x: ValueId, p: f64) -> Result<ValueId> {
        if p == 2.0 {
            return self.mul(x, x);
        }
        let x = self.unary(UnaryOp::Abs, x)?;
        self.power(x, p)
    }

    /// `x^p` of numbers that are not negative.
    fn power(&mut self, x: ValueId, p: f64) -> Result<ValueId> {
        if p == 1.0 {
            return Ok(x);
        }
        if p == 0.5 {
            return self.unary(UnaryOp::Sqrt, x);
        }
        let p = self.scalar_like(x, p)?;
        self.binary(BinaryOp::Pow, x, p)
    }
}

/// The p-th root of the sum of the p-th powers in each window.
pub(super) fn lp_pool(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    g.require_float(x)?;
    let p = exponent(n)?;
    let window = match pool_windows(g, n, x)? {
        Windows::Placed(window, _) => window,
        Windows::Nowhere(shape) => return Ok(vec![g.zeros(g.ty(x).dtype, &shape)?]),
    };
    let powers = g.magnitude_power(x, p)?;
    let elements = count(&window.kernel) as f64;
    let kind = PoolKind::Average { count_padding: true };
    let mean = g.emit(Op::Pool { kind, window, layout: Layout::Nchw }, &[powers])?;
    let sum = g.times(mean, elements)?;
    Ok(vec![g.power(sum, 1.0 / p)?])
}

pub(super) fn global_lp_pool(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    g.require_float(x)?;
    let p = exponent(n)?;
    let axes: Vec<usize> = (2..g.rank(x)).collect();
    let powers = g.magnitude_power(x, p)?;
    let sum = g.reduce_kept(ReduceOp::Sum, powers, &axes)?;
    Ok(vec![g.power(sum, 1.0 / p)?])
}

pub(super) fn average_pool(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    Ok(vec![averages(g, n, x)?])
}

/// The means of the windows of `x` that the attributes of a node say.
pub(super) fn averages(g: &mut Importer, n: &Source, mut x: ValueId) -> Result<ValueId> {
    let (mut window, declared) = match pool_windows(g, n, x)? {
        Windows::Placed(window, declared) => (window, declared),
        Windows::Nowhere(shape) => return g.zeros(g.ty(x).dtype, &shape),
    };
    let mut count_padding = n.flag("count_include_pad", false);
    if count_padding && window.pad_after != declared {
        // the declared padding counts, the extension of ceil_mode does not
        let outer = |pads: &[i64]| [&[0, 0], pads].concat();
        let pad = Op::Pad { before: outer(&window.pad_before), after: outer(&declared), value: 0 };
        x = g.emit(pad, &[x])?;
        for (i, d) in declared.iter().enumerate() {
            window.pad_before[i] = 0;
            window.pad_after[i] -= d;
        }
        count_padding = false;
    }
    g.emit(Op::Pool { kind: PoolKind::Average { count_padding }, window, layout: Layout::Nchw }, &[x])
}
