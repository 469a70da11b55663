//! Convolution, local response and batch normalization.

use super::node::Source;
use crate::expr::BinaryOp;
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{Layout, Op, PoolKind, ReduceOp, Window};
use crate::runtime::{DType, Error, Result, Tensor};

/// Padding rule of the `auto_pad` attribute.
enum AutoPad {
    Given,
    Valid,
    SameUpper,
    SameLower,
}

fn auto_pad(n: &Source) -> Result<AutoPad> {
    Ok(match n.string("auto_pad", "NOTSET").as_str() {
        "NOTSET" | "" => AutoPad::Given,
        "VALID" => AutoPad::Valid,
        "SAME_UPPER" => AutoPad::SameUpper,
        "SAME_LOWER" => AutoPad::SameLower,
        other => return Err(Error::Invalid(format!("auto_pad `{other}` is not known"))),
    })
}

/// An attribute with one number for each spatial dimension.
pub(super) fn per_axis(n: &Source, name: &str, rank: usize, default: i64, least: i64) -> Result<Vec<i64>> {
    let values = n.ints(name).unwrap_or_else(|| vec![default; rank]);
    if values.len() != rank {
        return Err(Error::Invalid(format!("`{name}` has {} numbers for {rank} spatial dimensions", values.len())));
    }
    if let Some(v) = values.iter().find(|v| **v < least || **v > 1 << 20) {
        return Err(Error::Invalid(format!("`{name}` contains {v}")));
    }
    Ok(values)
}

/// Padding before and after each spatial dimension of extent `input`.
pub(super) fn padding(
    n: &Source,
    input: &[i64],
    kernel: &[i64],
    stride: &[i64],
    dilation: &[i64],
) -> Result<(Vec<i64>, Vec<i64>)> {
    let rank = input.len();
    match auto_pad(n)? {
        AutoPad::Given => {
            let pads = per_axis(n, "pads", 2 * rank, 0, 0)?;
            Ok((pads[..rank].to_vec(), pads[rank..].to_vec()))
        }
        AutoPad::Valid => Ok((vec![0; rank], vec![0; rank])),
        rule => {
            let total = |i: usize| {
                let output = (input[i] + stride[i] - 1) / stride[i];
                ((output - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 - input[i]).max(0)
            };
            let small: Vec<i64> = (0..rank).map(|i| total(i) / 2).collect();
            let large: Vec<i64> = (0..rank).map(|i| total(i) - small[i]).collect();
            Ok(if matches!(rule, AutoPad::SameUpper) { (small, large) } else { (large, small) })
        }
    }
}

/// The extents after batch and channels.
pub(super) fn spatial(g: &Importer, x: ValueId) -> Result<Vec<i64>> {
    let shape = g.shape(x);
    match shape.len() {
        3..=5 => Ok(shape[2..].to_vec()),
        rank => Err(Error::Unsupported(format!("{} spatial dimensions (1 to 3 are known)", rank as i64 - 2))),
    }
}

/// Checks that the window fits in the padded input.
pub(super) fn check_fit(window: &Window, input: &[i64]) -> Result<()> {
    for (i, &extent) in input.iter().enumerate() {
        let reach = (window.kernel[i] - 1) * window.dilation[i] + 1;
        if extent + window.pad_before[i] + window.pad_after[i] < reach {
            return Err(Error::Invalid(format!(
                "a window of {reach} does not fit into spatial dimension {i} of extent {extent}"
            )));
        }
    }
    Ok(())
}

/// The window of a convolution of `x` with weights of this shape.
pub(super) fn conv_window(g: &Importer, n: &Source, x: ValueId, weights: &[i64]) -> Result<Window> {
    let input = spatial(g, x)?;
    if weights.len() != input.len() + 2 {
        return Err(Error::Invalid(format!("weights of shape {weights:?} do not fit its operand")));
    }
    let rank = input.len();
    let kernel = weights[2..].to_vec();
    if n.ints("kernel_shape").is_some_and(|k| k != kernel) {
        return Err(Error::Invalid(format!("kernel_shape differs from the weights' {kernel:?}")));
    }
    let stride = per_axis(n, "strides", rank, 1, 1)?;
    let dilation = per_axis(n, "dilations", rank, 1, 1)?;
    let (pad_before, pad_after) = padding(n, &input, &kernel, &stride, &dilation)?;
    let window = Window { kernel, stride, dilation, pad_before, pad_after };
    check_fit(&window, &input)?;
    Ok(window)
}

pub(super) fn conv(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    n.input(1)?;
    let operands = n.present();
    Ok(vec![conv_of(g, n, &operands)?])
}

/// The convolution of an image, weights and perhaps a bias, with the attributes of a node.
pub(super) fn conv_of(g: &mut Importer, n: &Source, operands: &[ValueId]) -> Result<ValueId> {
    let [x, w, ..] = *operands else { return Err(Error::Invalid("operand 1 is missing".into())) };
    let window = conv_window(g, n, x, g.shape(w))?;
    let op = Op::Conv { window, group: n.int("group", 1), layout: Layout::Nchw };
    let mut operands = operands.to_vec();
    if let Some(bias) = operands.get_mut(2).filter(|_| g.ty(x).dtype.bytes() == 1) {
        *bias = g.cast_to(*bias, DType::I32)?;
    }
    g.wrapped(op, &operands)
}

pub(super) fn conv_transpose(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, w) = (n.input(0)?, n.input(1)?);
    let input = spatial(g, x)?;
    let weights = g.shape(w).to_vec();
    if weights.len() != input.len() + 2 {
        return Err(Error::Invalid(format!("weights of shape {weights:?} do not fit its operand")));
    }
    let rank = input.len();
    let kernel = weights[2..].to_vec();
    let stride = per_axis(n, "strides", rank, 1, 1)?;
    let dilation = per_axis(n, "dilations", rank, 1, 1)?;
    let mut output_pad = per_axis(n, "output_padding", rank, 0, 0)?;
    let full = |i: usize| (input[i] - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1;
    let (mut pad_before, mut pad_after) = match auto_pad(n)? {
        AutoPad::Given => {
            let pads = per_axis(n, "pads", 2 * rank, 0, 0)?;
            (pads[..rank].to_vec(), pads[rank..].to_vec())
        }
        AutoPad::Valid => (vec![0; rank], vec![0; rank]),
        rule => {
            let total = |i: usize| (full(i) + output_pad[i] - input[i] * stride[i]).max(0);
            let small: Vec<i64> = (0..rank).map(|i| total(i) / 2).collect();
            let large: Vec<i64> = (0..rank).map(|i| total(i) - small[i]).collect();
            if matches!(rule, AutoPad::SameUpper) { (small, large) } else { (large, small) }
        }
    };
    if let Some(output) = n.ints("output_shape") {
        let wanted = &output[output.len().saturating_sub(rank)..];
        if wanted.len() != rank || wanted.iter().any(|d| !(0..=1 << 40).contains(d)) {
            return Err(Error::Invalid(format!("output_shape {output:?} is not a shape of {rank} spatial dimensions")));
        }
        let upper = matches!(auto_pad(n)?, AutoPad::SameUpper);
        for i in 0..rank {
            let total = full(i) + output_pad[i] - wanted[i];
            if total < 0 {
                output_pad[i] -= total;
            }
            let total = total.max(0);
            let (small, large) = (total / 2, total - total / 2);
            (pad_before[i], pad_after[i]) = if upper { (small, large) } else { (large, small) };
        }
    }
    let window = Window { kernel, stride, dilation, pad_before, pad_after };
    let op = Op::ConvTranspose { window, group: n.int("group", 1), output_pad, layout: Layout::Nchw };
    let operands = n.present();
    Ok(vec![g.emit(op, &operands)?])
}

/// `x / (bias + alpha·a)^beta`, where `a` is the average of the squares of `size` channels around.
pub(super) fn local_response_normalization(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    g.require_float(x)?;
    let (shape, size) = (g.shape(x).to_vec(), n.int("size", 0));
    if shape.len() < 2 || !(1..=4096).contains(&size) {
        return Err(Error::Invalid(format!(
            "`size` is {size}, not within 1 to 4096, or shape {shape:?} has no channels"
        )));
    }
    if shape.contains(&0) {
        return Ok(vec![x]);
    }
    let square = g.binary(BinaryOp::Mul, x, x)?;
    let rows = g.reshape_to(square, vec![shape[0], 1, shape[1], shape[2..].iter().product()])?;
    let before = (size - 1) / 2;
    let (kernel, ones) = (vec![size, 1], vec![1, 1]);
    let (pad_before, pad_after) = (vec![before, 0], vec![size - 1 - before, 0]);
    let window = Window { kernel, stride: ones.clone(), dilation: ones, pad_before, pad_after };
    let kind = PoolKind::Average { count_padding: true };
    let average = g.emit(Op::Pool { kind, window, layout: Layout::Nchw }, &[rows])?;
    let average = g.reshape_to(average, shape)?;
    let [alpha, beta, bias] = [("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)].map(|(name, or)| n.float(name, or));
    let alpha = g.scalar_like(x, f64::from(alpha))?;
    let bias = g.scalar_like(x, f64::from(bias))?;
    let scaled = g.binary(BinaryOp::Mul, average, alpha)?;
    let sum = g.binary(BinaryOp::Add, scaled, bias)?;
    let exponent = g.scalar_like(x, f64::from(-beta))?;
    let factor = g.binary(BinaryOp::Pow, sum, exponent)?;
    Ok(vec![g.binary(BinaryOp::Mul, x, factor)?])
}

/// Mean and variance of the batch and the running ones after it, where a node asks for those of the batch.
fn batch_statistics(g: &mut Importer, n: &Source, x: ValueId, before: [ValueId; 2]) -> Result<[[ValueId; 2]; 2]> {
    let axes: Vec<usize> = (0..g.rank(x)).filter(|d| *d != 1).collect();
    let channels = g.shape(x)[1];
    let mean = g.reduce_kept(ReduceOp::Mean, x, &axes)?;
    let centred = g.sub(x, mean)?;
    let square = g.mul(centred, centred)?;
    let variance = g.reduce_kept(ReduceOp::Mean, square, &axes)?;
    let now = [g.reshape_to(mean, vec![channels])?, g.reshape_to(variance, vec![channels])?];
    let momentum = f64::from(n.float("momentum", 0.9));
    let mut running = now;
    for (running, before) in running.iter_mut().zip(before) {
        let (old, new) = (g.times(before, momentum)?, g.times(*running, 1.0 - momentum)?);
        *running = g.add(old, new)?;
    }
    Ok([now, running])
}

/// Inference: `x·s + (bias - mean·s)` with `s = scale/√(variance + ε)`, constants folded.
pub(super) fn batch_normalization(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    if n.opset < 9 && !n.flag("spatial", true) {
        return Err(Error::Unsupported("statistics for each position (spatial = 0)".into()));
    }
    let x = n.input(0)?;
    let rank = g.rank_of_two(x)?;
    let channels = g.shape(x)[1];
    let [scale, bias, mut mean, mut variance] = [n.input(1)?, n.input(2)?, n.input(3)?, n.input(4)?];
    let mut results = vec![];
    if n.opset >= 14 && n.flag("training_mode", false) {
        let [now, running] = batch_statistics(g, n, x, [mean, variance])?;
        [mean, variance] = now;
        results.extend(running);
    }
    let epsilon = n.float("epsilon", 1e-5);
    let epsilon = g.constant(Tensor::new(&[], &[epsilon]));
    let epsilon = g.cast_to(epsilon, g.ty(variance).dtype)?;
    let shifted = g.binary(BinaryOp::Add, variance, epsilon)?;
    let deviation = g.unary(crate::expr::UnaryOp::Sqrt, shifted)?;
    let factor = g.binary(BinaryOp::Div, scale, deviation)?;
    let product = g.binary(BinaryOp::Mul, mean, factor)?;
    let offset = g.binary(BinaryOp::Sub, bias, product)?;
    let mut shape = vec![1; rank];
    shape[1] = channels;
    let factor = g.emit(Op::Reshape { shape: shape.clone() }, &[factor])?;
    let offset = g.emit(Op::Reshape { shape }, &[offset])?;
    let scaled = g.binary(BinaryOp::Mul, x, factor)?;
    results.insert(0, g.binary(BinaryOp::Add, scaled, offset)?);
    Ok(results)
}
