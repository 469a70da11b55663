//! Scale and shift into the weights of convolutions and matrix products.

use crate::expr::BinaryOp;
use crate::graph::egraph::network::Network;
use crate::graph::op::{Layout, Op, ReduceOp};
use crate::graph::rules::pattern::Match;
use egg::Id;

/// A constant that varies at most along dimension `axis` of a tensor of rank `rank`, as a vector of `count` (or 1) elements.
fn along(network: &mut Network, c: Id, rank: usize, axis: usize, count: i64) -> Option<Id> {
    let shape = network.shape(c).to_vec();
    let offset = rank.checked_sub(shape.len())?;
    let flat = shape.iter().enumerate().all(|(d, &e)| e == 1 || (d + offset == axis && e == count));
    let extent: i64 = shape.iter().product();
    if flat { network.reshape(c, &[extent]) } else { None }
}

fn channel_axis(layout: Layout, rank: usize) -> Option<usize> {
    match layout {
        Layout::Nchw => Some(1),
        Layout::Nhwc => Some(rank - 1),
        Layout::Blocked(_) => None,
    }
}

/// Layout, groups and filters of a convolution of either kind, and its weights' shape.
struct Filters {
    layout: Layout,
    group: i64,
    filters: i64,
    weights: Vec<i64>,
    transposed: bool,
}

fn filters(network: &Network, op: &Op, operands: &[Id]) -> Option<Filters> {
    if !network.is_constant(operands[1]) || operands.get(2).is_some_and(|&b| !network.is_constant(b)) {
        return None;
    }
    let weights = network.shape(operands[1]).to_vec();
    match *op {
        Op::Conv { group, layout, .. } => {
            Some(Filters { layout, group, filters: weights[0], weights, transposed: false })
        }
        Op::ConvTranspose { group, layout, .. } => {
            Some(Filters { layout, group, filters: weights[1] * group, weights, transposed: true })
        }
        _ => None,
    }
}

pub fn conv_scale(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('c');
    let Filters { layout, group, filters, weights, transposed } = filters(network, op, operands)?;
    let rank = network.rank(operands[0]);
    let s = along(network, m.get('s'), rank, channel_axis(layout, rank)?, filters)?;
    let (mut inner, mut factor) = (weights.clone(), vec![1; weights.len()]);
    if transposed {
        // (C, F/group, k…) as (group, C/group, F/group, k…).
        inner = [vec![group, weights[0] / group], weights[1..].to_vec()].concat();
        factor = vec![1; inner.len()];
        (factor[0], factor[2]) = (group, weights[1]);
    } else {
        factor[0] = filters;
    }
    let split = network.reshape(operands[1], &inner)?;
    let scale = spread(network, s, filters, &factor)?;
    let scaled = network.binary(BinaryOp::Mul, split, scale)?;
    let mut out = vec![operands[0], network.reshape(scaled, &weights)?];
    if let Some(&bias) = operands.get(2) {
        out.push(network.binary(BinaryOp::Mul, bias, s)?);
    }
    network.op(op.clone(), &out)
}

/// A vector of `count` elements (or of one) in the given shape.
fn spread(network: &mut Network, vector: Id, count: i64, shape: &[i64]) -> Option<Id> {
    let whole = if network.shape(vector) == [count] {
        vector
    } else {
        network.op(Op::Expand { shape: vec![count] }, &[vector])?
    };
    network.reshape(whole, shape)
}

pub fn conv_shift(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('c');
    let Filters { layout, filters, .. } = filters(network, op, operands)?;
    let rank = network.rank(operands[0]);
    let s = along(network, m.get('s'), rank, channel_axis(layout, rank)?, filters)?;
    let bias = match operands.get(2) {
        Some(&bias) => network.binary(BinaryOp::Add, bias, s)?,
        None => spread(network, s, filters, &[filters])?,
    };
    network.op(op.clone(), &[operands[0], operands[1], bias])
}

/// An operand of form `x op constant`: x and the constant. Where x is the operand itself, as in `x + 0`, there is nothing to
/// gain, and each result would have such an operand again.
fn with_constant(network: &Network, id: Id, wanted: BinaryOp) -> Option<(Id, Id)> {
    let pairs = network.applications(id).filter_map(|(op, c)| match op {
        Op::Binary(b) if *b == wanted && network.is_constant(c[1]) && !network.is_constant(c[0]) => Some((c[0], c[1])),
        Op::Binary(b) if *b == wanted && network.is_constant(c[0]) && !network.is_constant(c[1]) => Some((c[1], c[0])),
        _ => None,
    });
    pairs.into_iter().find(|pair| network.find(pair.0) != network.find(id))
}

/// The factor of each weight that stands for a factor (or term) of each input channel: shape (F, C/group, 1…).
fn per_input_channel(network: &mut Network, s: Id, f: &Filters) -> Option<Id> {
    let [filters, per_group] = [f.weights[0], f.weights[1]];
    let ones = vec![1; f.weights.len() - 2];
    let by_group = spread(network, s, per_group * f.group, &[vec![f.group, 1, per_group], ones.clone()].concat())?;
    if f.group == 1 {
        return network.reshape(by_group, &[vec![1, per_group], ones].concat());
    }
    let shape = [vec![f.group, filters / f.group, per_group], ones.clone()].concat();
    let stretched = network.op(Op::Expand { shape }, &[by_group])?;
    network.reshape(stretched, &[vec![filters, per_group], ones].concat())
}

/// The image of a convolution as `x op s`: x, and for each weight the constant of its input channel.
fn with_constant_of_channels(network: &mut Network, m: &Match, wanted: BinaryOp) -> Option<(Id, Id)> {
    let (op, operands) = m.application('c');
    let f = filters(network, op, operands)?;
    let (x, s) = with_constant(network, operands[0], wanted)?;
    let rank = network.rank(operands[0]);
    // Bytes wrap around before they are widened.
    if network.shape(x) != network.shape(operands[0]) || network.ty(x).dtype != network.ty(m.class).dtype {
        return None;
    }
    let s = along(network, s, rank, channel_axis(f.layout, rank)?, f.weights[1] * f.group)?;
    Some((x, per_input_channel(network, s, &f)?))
}

/// conv(x·s) with a factor for each channel: into the weights. Padding stays zero.
pub fn scale_before_conv(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('c');
    let (x, factor) = with_constant_of_channels(network, m, BinaryOp::Mul)?;
    let weights = network.binary(BinaryOp::Mul, operands[1], factor)?;
    let mut out = operands.to_vec();
    (out[0], out[1]) = (x, weights);
    network.op(op.clone(), &out)
}

/// conv(x + s) without padding: the sum over the window goes into the bias.
pub fn shift_before_conv(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('c');
    let Op::Conv { window, .. } = op else { return None };
    if window.pad_before.iter().chain(&window.pad_after).any(|&p| p != 0) {
        return None;
    }
    let (x, term) = with_constant_of_channels(network, m, BinaryOp::Add)?;
    let products = network.binary(BinaryOp::Mul, operands[1], term)?;
    let axes = (1..network.rank(operands[1])).collect();
    let mut bias = network.op(Op::Reduce { op: ReduceOp::Sum, axes, keep: false }, &[products])?;
    if let Some(&before) = operands.get(2) {
        bias = network.binary(BinaryOp::Add, before, bias)?;
    }
    network.op(op.clone(), &[x, operands[1], bias])
}

/// Zero padding of the image goes into the window, but where instructions on tiles need it in the image.
pub fn pad_before_conv(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('c');
    let Op::Conv { window, group, layout } = op else { return None };
    if *layout == Layout::Nhwc && network.tile_products.contains(&network.ty(operands[0]).dtype) {
        return None;
    }
    let padding = network.applications(operands[0]).find_map(|(op, c)| match op {
        Op::Pad { before, after, value: 0 } => Some((before.clone(), after.clone(), c[0])),
        _ => None,
    });
    let (before, after, x) = padding?;
    let rank = before.len();
    let spatial = match layout {
        Layout::Nchw => 2..rank,
        Layout::Nhwc => 1..rank - 1,
        Layout::Blocked(_) => return None,
    };
    if (0..rank).any(|d| !spatial.contains(&d) && before[d] + after[d] != 0) {
        return None;
    }
    let mut window = window.clone();
    for (i, d) in spatial.enumerate() {
        window.pad_before[i] += before[d];
        window.pad_after[i] += after[d];
    }
    let mut out = operands.to_vec();
    out[0] = x;
    network.op(Op::Conv { window, group: *group, layout: *layout }, &out)
}

pub fn transposes(op: &Op) -> (bool, bool) {
    match *op {
        Op::MatMul { transpose_a, transpose_b } => (transpose_a, transpose_b),
        _ => unreachable!("a matrix product"),
    }
}

pub fn matmul_scale(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('m');
    if network.is_constant(m.get('x')) || network.rank(operands[1]) != 2 {
        return None;
    }
    let (_, transpose_b) = transposes(op);
    let rank = network.rank(m.class);
    let n = network.shape(m.class)[rank - 1];
    let s = along(network, m.get('s'), rank, rank - 1, n)?;
    let s = if transpose_b { spread(network, s, n, &[n, 1])? } else { s };
    let weights = network.binary(BinaryOp::Mul, operands[1], s)?;
    network.op(op.clone(), &[operands[0], weights])
}

pub fn scale_before_matmul(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('m');
    let (transpose_a, transpose_b) = transposes(op);
    let x = m.get('x');
    let scaled = network.shape(operands[0]).to_vec();
    let widened = network.ty(x).dtype != network.ty(m.class).dtype;
    let constant = network.is_constant(x);
    if constant || widened || transpose_a || network.rank(operands[1]) != 2 || network.shape(x) != scaled {
        return None;
    }
    let k = *scaled.last()?;
    let s = along(network, m.get('s'), scaled.len(), scaled.len() - 1, k)?;
    let s = if transpose_b { s } else { spread(network, s, k, &[k, 1])? };
    let weights = network.binary(BinaryOp::Mul, operands[1], s)?;
    network.op(op.clone(), &[x, weights])
}
