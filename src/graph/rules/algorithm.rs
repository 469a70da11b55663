//! Algorithms: a convolution by minimal filtering beside the direct one; the extraction chooses by price.
//!
//! F(m, r) along each axis (`toom_cook.rs`): tiles of the image are transformed, multiplied with transformed weights as one
//! matrix product for each place in a tile, and transformed back. Weights are transformed in double precision when
//! constants are folded, and rounded once. A row applies where its bound of the error is at most
//! [`Network::max_error`](crate::graph::egraph::network::Network::max_error).

use crate::expr::BinaryOp;
use crate::graph::egraph::network::Network;
use crate::graph::op::{Layout, Op, Window};
use crate::graph::rules::pattern::Keep::Beside;
use crate::graph::rules::pattern::{Match, Rule, build};
use crate::graph::rules::toom_cook::{Transforms, error_bound, numbers};
use crate::runtime::{DType, Tensor};
use egg::Id;
use std::sync::Arc;

#[rustfmt::skip]
pub fn rules() -> Vec<Rule> {
    vec![
        build  (Beside,  "conv-winograd-2",         "(conv@c ...)",                      winograd::<2>),
        build  (Beside,  "conv-winograd-4",         "(conv@c ...)",                      winograd::<4>),
        build  (Beside,  "conv-winograd-6",         "(conv@c ...)",                      winograd::<6>),
    ]
}

/// The tiles that the rows try.
const TILES: [i64; 3] = [2, 4, 6];
/// Multiply-adds that take as long as one element of a tile's transform to compute and to move. Measured: 0.35 ns against
/// 70 multiply-adds in a ns on one core with AVX-512.
const TRANSFORM: f64 = 25.0;
/// Multiply-adds that take as long as it takes to fetch one transformed weight from memory.
const FETCH: f64 = 20.0;
/// A tile is no candidate where its estimate exceeds the least one by this factor: the prices decide between the others.
const HOPELESS: f64 = 1.4;

/// Fewest channels and filters: with fewer the transforms cost more than the products that they save.
const LEAST_CHANNELS: i64 = 8;

/// Returns true if the convolution is one of those that have a fast algorithm: with enough channels, and transforms.
pub fn is_considered(window: &Window, group: i64, weights: &[i64], out: &[i64]) -> bool {
    weights[0].min(weights[1]) >= LEAST_CHANNELS && transforms(window, group, 2, out).is_some()
}

/// The transforms of a convolution along each axis, in tiles of `m` outputs; `None` where it has none: strides,
/// dilations, groups, windows of one tap.
pub fn transforms(window: &Window, group: i64, m: i64, out: &[i64]) -> Option<Vec<Transforms>> {
    let plain = window.stride.iter().chain(&window.dilation).all(|&e| e == 1) && group == 1;
    let taps = &window.kernel;
    if !plain || taps.iter().all(|&r| r == 1) || taps.iter().any(|r| ![1, 3, 5, 7].contains(r)) {
        return None;
    }
    let axes = taps.iter().zip(out).map(|(&r, &extent)| match r {
        1 => Transforms::new(1, 1),
        // A larger tile than the smallest one has to fit.
        r => Some(m).filter(|&m| m == 2 || m <= extent + 1).and_then(|m| Transforms::new(m, r)),
    });
    axes.collect()
}

fn winograd<const M: i64>(network: &mut Network, m: &Match) -> Option<Id> {
    let (Op::Conv { window, group, layout: Layout::Nhwc }, operands) = m.application('c') else { return None };
    let (x, w) = (operands[0], operands[1]);
    let (ty, out) = (network.ty(x), network.shape(m.class).to_vec());
    let dims = window.kernel.len();
    let (batch, filters, size) = (out[0], out[dims + 1], &out[1..=dims]);
    let channels = ty.shape[dims + 1];
    if ty.dtype != DType::F32 || !network.is_constant(w) || channels.min(filters) < LEAST_CHANNELS {
        return None;
    }
    let exact = |m: i64| {
        let axes = transforms(window, *group, m, size)?;
        (error_bound(&axes, channels) <= network.max_error).then_some(axes)
    };
    let axes = exact(M)?;
    let estimates = TILES.into_iter().filter_map(|m| Some(estimate(&exact(m)?, batch, size, channels, filters)));
    if estimate(&axes, batch, size, channels, filters) > HOPELESS * estimates.fold(f64::INFINITY, f64::min) {
        return None;
    }
    let tile: Vec<i64> = axes.iter().map(|t| t.output.len() as i64).collect();
    let places: Vec<i64> = axes.iter().map(|t| t.input.len() as i64).collect();
    let tiles: Vec<i64> = size.iter().zip(&tile).map(|(e, m)| (e + m - 1) / m).collect();
    let products: i64 = places.iter().product();
    let positions = batch * tiles.iter().product::<i64>();
    let of = |network: &mut Network, pick: fn(&Transforms) -> &Vec<Vec<num_rational::Ratio<i64>>>| -> Vec<Id> {
        axes.iter().map(|t| matrix(network, pick(t))).collect()
    };
    let matrices = of(network, |t| &t.input);
    let op = Op::WinogradInput { tile, pad: window.pad_before.clone(), tiles: tiles.clone() };
    let image = network.op(op, &[&[x], &matrices[..]].concat())?;
    let image = network.reshape(image, &[products, positions, channels])?;
    let weights = transformed_weights(network, w, &axes)?;
    let product = network.op(Op::MatMul { transpose_a: false, transpose_b: false }, &[image, weights])?;
    let product = network.reshape(product, &[&places[..], &[batch], &tiles, &[filters]].concat())?;
    let matrices = of(network, |t| &t.output);
    let result = network.op(Op::WinogradOutput { size: size.to_vec() }, &[&[product], &matrices[..]].concat())?;
    match operands.get(2) {
        Some(&bias) => network.binary(BinaryOp::Add, result, bias),
        None => Some(result),
    }
}

/// Multiply-adds of an algorithm and what takes as long: transforms and weights.
fn estimate(axes: &[Transforms], batch: i64, size: &[i64], channels: i64, filters: i64) -> f64 {
    let places: f64 = axes.iter().map(|t| t.input.len() as f64).product();
    let tiles = axes.iter().zip(size).map(|(t, &e)| (e as f64 / t.output.len() as f64).ceil());
    let tiles = tiles.product::<f64>() * batch as f64;
    let (channels, filters) = (channels as f64, filters as f64);
    let weights = channels * filters;
    places * (tiles * (weights + TRANSFORM * (channels + filters)) + FETCH * weights)
}

/// A matrix as a constant, rounded once.
fn matrix(network: &mut Network, rows: &[Vec<num_rational::Ratio<i64>>]) -> Id {
    let values: Vec<f32> = numbers(rows).into_iter().map(|v| v as f32).collect();
    network.constant(Arc::new(Tensor::new(&[rows.len() as i64, rows[0].len() as i64], &values)))
}

/// The weights (F, C, taps..) as places, C, F: `G g Gᵀ` along the axes, in double precision.
fn transformed_weights(network: &mut Network, w: Id, axes: &[Transforms]) -> Option<Id> {
    let mut operands = vec![w];
    for t in axes {
        let (rows, taps) = (t.filter.len() as i64, t.filter[0].len() as i64);
        operands.push(network.constant(Arc::new(Tensor::new(&[rows, taps], &numbers(&t.filter)))));
    }
    network.op(Op::WinogradWeights, &operands)
}
