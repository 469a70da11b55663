//! Algorithms: a convolution by minimal filtering beside the direct one; the extraction chooses by price, or [`Algorithm`]
//! says which.
//!
//! F(m, r) along each axis (`toom_cook.rs`): tiles of the image are transformed, multiplied with transformed weights as one
//! matrix product for each place in a tile, and transformed back. Weights are transformed in double precision when
//! constants are folded, and rounded once. A row applies where its bound of the error is at most
//! [`Network::max_error`](crate::graph::egraph::network::Network::max_error).

use crate::expr::BinaryOp;
use crate::expr::choice::choice;
use crate::expr::interval::ceil_div;
use crate::graph::egraph::network::Network;
use crate::graph::op::{Layout, Op, Window};
use crate::graph::rules::layout::{channels_first, channels_last};
use crate::graph::rules::pattern::Keep::{Beside, Instead};
use crate::graph::rules::pattern::{Match, Rule, build};
use crate::graph::rules::precision::unrounded;
use crate::graph::rules::strassen;
use crate::graph::rules::toom_cook::{Transforms, error_bound, numbers};
use crate::runtime::{DType, Tensor};
use egg::Id;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::sync::Arc;

/// How convolutions and products with constant weights are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// By the algorithm of the least predicted time, each operator for itself.
    #[default]
    Cheapest,
    /// By their definition.
    Direct,
    /// By minimal filtering (Winograd) with tiles of so many outputs along each axis, 2, 4 or 6, wherever it applies and its
    /// bound of the error allows it, whatever the predicted time; the others by their definition.
    Winograd(u32),
    /// Matrix products with constant weights by one level of Strassen's recursion, wherever their extents are even and its bound
    /// of the error allows it, whatever the predicted time; convolutions by their definition.
    Strassen,
}

choice!(
    Algorithm,
    "algorithm",
    [
        ("cheapest", Algorithm::Cheapest),
        ("direct", Algorithm::Direct),
        ("winograd-2", Algorithm::Winograd(2)),
        ("winograd-4", Algorithm::Winograd(4)),
        ("winograd-6", Algorithm::Winograd(6)),
        ("strassen", Algorithm::Strassen),
    ],
    |other| match other {
        Algorithm::Winograd(tile) => format!("winograd-{tile}"),
        other => format!("{other:?}"),
    }
);

impl Serialize for Algorithm {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Algorithm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Algorithm, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The rules that an algorithm needs.
#[rustfmt::skip]
pub fn rules(algorithm: Algorithm) -> Vec<Rule> {
    let beside = vec![
        build  (Beside,  "conv-winograd-2",         "(conv@c ...)",                      competing::<2>),
        build  (Beside,  "conv-winograd-4",         "(conv@c ...)",                      competing::<4>),
        build  (Beside,  "conv-winograd-6",         "(conv@c ...)",                      competing::<6>),
        build  (Beside,  "product-strassen",        "(matmul ?x $w)",                    strassen::competing),
    ];
    let instead = [
        build  (Instead, "conv-winograd-2",         "(conv@c ...)",                      winograd_in_any_layout::<2>),
        build  (Instead, "conv-winograd-4",         "(conv@c ...)",                      winograd_in_any_layout::<4>),
        build  (Instead, "conv-winograd-6",         "(conv@c ...)",                      winograd_in_any_layout::<6>),
    ];
    let direct = vec![build(Beside, "conv-padded-image", "(conv@c ...)", padded_image)];
    match algorithm {
        Algorithm::Cheapest => direct.into_iter().chain(beside).collect(),
        Algorithm::Direct => direct,
        Algorithm::Strassen => {
            let halves = build(Instead, "product-strassen", "(matmul ?x $w)", strassen::always);
            direct.into_iter().chain([halves]).collect()
        }
        Algorithm::Winograd(tile) => {
            let name = format!("conv-winograd-{tile}");
            instead.into_iter().filter(|rule| rule.name == name).collect()
        }
    }
}

/// The tiles that the rows try.
const TILES: [i64; 3] = [2, 4, 6];
/// Multiply-adds that take as long as one element of a tile's transform to compute and to move. Measured: 0.4 ns against
/// 25 multiply-adds in a ns on one core with AVX2.
const TRANSFORM: f64 = 10.0;
/// Multiply-adds that take as long as it takes to fetch one transformed weight from memory. Unmeasured.
const FETCH: f64 = 20.0;
/// Multiply-adds for a weight in the last cache. Unmeasured.
const FETCH_CACHED: f64 = 4.0;
/// A tile is not a candidate where its estimate exceeds the least one by this factor: the prices decide between the
/// others. Unmeasured.
const HOPELESS: f64 = 1.4;

/// Fewest channels and filters: with fewer the transforms cost more than the products that they save.
const LEAST_CHANNELS: i64 = 8;

/// Returns true if the convolution is one of those that have a fast algorithm: with enough channels, and transforms.
pub fn is_considered(window: &Window, group: i64, weights: &[i64], out: &[i64]) -> bool {
    (weights[0] / group).min(weights[1]) >= LEAST_CHANNELS && transforms(window, 2, out).is_some()
}

/// The transforms of a convolution along each axis, in tiles of `m` outputs; `None` where it has none: strides, windows of
/// one tap.
pub fn transforms(window: &Window, m: i64, out: &[i64]) -> Option<Vec<Transforms>> {
    let taps = &window.kernel;
    if window.stride.iter().any(|&s| s != 1)
        || taps.iter().all(|&r| r == 1)
        || taps.iter().any(|r| ![1, 3, 5, 7].contains(r))
    {
        return None;
    }
    let phases = phases(window);
    let extents = out.iter().zip(&phases).map(|(&extent, &d)| ceil_div(extent, d));
    let axes = taps.iter().zip(extents).map(|(&r, extent)| match r {
        1 => Transforms::new(1, 1),
        // A larger tile than the smallest one has to fit.
        r => Some(m).filter(|&m| m == 2 || m <= extent + 1).and_then(|m| Transforms::new(m, r)),
    });
    axes.collect()
}

/// The number of phases along each axis: outputs that are dilated taps apart have no input in common with the others.
fn phases(window: &Window) -> Vec<i64> {
    window.kernel.iter().zip(&window.dilation).map(|(&taps, &d)| if taps == 1 { 1 } else { d }).collect()
}

/// A convolution over channels last by an instruction on tiles, whose rows all have to be in the image: over a padded copy of it.
fn padded_image(network: &mut Network, m: &Match) -> Option<Id> {
    let (Op::Conv { window, group, layout: Layout::Nhwc }, operands) = m.application('c') else { return None };
    let ty = network.ty(operands[0]);
    let channels = ty.shape.last()? / group;
    let mut pads = window.pad_before.iter().chain(&window.pad_after);
    if !network.tile_products.contains(&ty.dtype) || pads.all(|&p| p == 0) || channels < LEAST_CHANNELS {
        return None;
    }
    let sides = |pads: &[i64]| [&[0], pads, &[0]].concat();
    let pad = Op::Pad { before: sides(&window.pad_before), after: sides(&window.pad_after), value: 0 };
    let none = vec![0; window.kernel.len()];
    let window = Window { pad_before: none.clone(), pad_after: none, ..window.clone() };
    let conv = Op::Conv { window, group: *group, layout: Layout::Nhwc };
    let image = network.op(pad, &operands[..1])?;
    let operands: Vec<Id> = std::iter::once(image).chain(operands[1..].iter().copied()).collect();
    network.op(conv, &operands)
}

/// As [`winograd`], where no other tile is estimated to be far better.
fn competing<const M: i64>(network: &mut Network, m: &Match) -> Option<Id> {
    let (Op::Conv { window, group, layout: Layout::Nhwc }, operands) = m.application('c') else { return None };
    let out = network.shape(m.class);
    let (size, phases) = (&out[1..out.len() - 1], phases(window));
    let [channels, filters] = [network.shape(operands[0]).last()?, out.last()?].map(|n| n / group);
    let images = out[0] * group * phases.iter().product::<i64>();
    let estimate_of = |m: i64| {
        let axes = transforms(window, m, size)?;
        let exact = error_bound(&axes, channels) <= network.max_error;
        let fetch = if network.constants_cached { FETCH_CACHED } else { FETCH };
        let tiles = images * tiles(&axes, size, &phases).iter().product::<i64>();
        exact.then(|| estimate(&axes, tiles, [channels, filters], fetch * *group as f64))
    };
    let least = TILES.into_iter().filter_map(estimate_of).fold(f64::INFINITY, f64::min);
    if estimate_of(M)? > HOPELESS * least { None } else { winograd::<M>(network, m) }
}

fn winograd<const M: i64>(network: &mut Network, m: &Match) -> Option<Id> {
    let (Op::Conv { window, group, layout: Layout::Nhwc }, operands) = m.application('c') else { return None };
    // what becomes a whole number stays as exact as it is
    if network.becomes_whole(m.class) {
        return None;
    }
    let out = network.shape(m.class).to_vec();
    minimal_filtering(network, window, *group, M, operands, &out)
}

/// Replaces a convolution over NCHW too: with it the direct algorithm would remain.
fn winograd_in_any_layout<const M: i64>(network: &mut Network, m: &Match) -> Option<Id> {
    let (Op::Conv { window, group, layout: Layout::Nchw }, operands) = m.application('c') else {
        return winograd::<M>(network, m);
    };
    if network.becomes_whole(m.class) {
        return None;
    }
    let rank = network.rank(m.class);
    let out: Vec<i64> = channels_last(rank).iter().map(|&d| network.shape(m.class)[d]).collect();
    let mut operands = operands.to_vec();
    operands[0] = network.transpose(operands[0], &channels_last(rank))?;
    let result = minimal_filtering(network, window, *group, M, &operands, &out)?;
    network.transpose(result, &channels_first(rank))
}

/// The convolution over NHWC in tiles of `m` outputs along each axis.
fn minimal_filtering(
    network: &mut Network,
    window: &Window,
    group: i64,
    m: i64,
    operands: &[Id],
    out: &[i64],
) -> Option<Id> {
    let (x, w) = (unrounded(network, operands[0])?, unrounded(network, operands[1])?);
    let ty = network.ty(x);
    let dims = window.kernel.len();
    let size = &out[1..=dims];
    let [channels, filters] = [ty.shape[dims + 1], out[dims + 1]].map(|n| n / group);
    if ty.dtype != DType::F32 || !network.is_constant(w) || channels.min(filters) < LEAST_CHANNELS {
        return None;
    }
    let axes = transforms(window, m, size)?;
    if error_bound(&axes, channels) > network.max_error {
        return None;
    }
    let tile: Vec<i64> = axes.iter().map(|t| t.output.len() as i64).collect();
    let mut places: Vec<i64> = axes.iter().map(|t| t.input.len() as i64).collect();
    places[dims - 1] *= group;
    let dilation = phases(window);
    let tiles = tiles(&axes, size, &dilation);
    let products: i64 = places.iter().product();
    let images = out[0] * dilation.iter().product::<i64>();
    let positions = images * tiles.iter().product::<i64>();
    let of = |network: &mut Network, pick: fn(&Transforms) -> &Vec<Vec<num_rational::Ratio<i64>>>| -> Vec<Id> {
        axes.iter().map(|t| matrix(network, pick(t))).collect()
    };
    let matrices = of(network, |t| &t.input);
    let (pad, numbers) = (window.pad_before.clone(), tiles.clone());
    let op = Op::WinogradInput { tile, pad, tiles: numbers, dilation: dilation.clone(), group };
    let image = network.op(op, &[&[x], &matrices[..]].concat())?;
    let image = network.reshape(image, &[products, positions, channels])?;
    let weights = transformed_weights(network, w, &axes, group)?;
    let product = network.op(Op::MatMul { transpose_a: false, transpose_b: false }, &[image, weights])?;
    let product = network.reshape(product, &[&places[..], &[images], &tiles, &[filters]].concat())?;
    let matrices = of(network, |t| &t.output);
    let op = Op::WinogradOutput { size: size.to_vec(), dilation, group };
    let result = network.op(op, &[&[product], &matrices[..]].concat())?;
    match operands.get(2) {
        Some(&bias) => network.binary(BinaryOp::Add, result, bias),
        None => Some(result),
    }
}

/// The number of tiles along each axis of one phase.
fn tiles(axes: &[Transforms], size: &[i64], phases: &[i64]) -> Vec<i64> {
    axes.iter().zip(size).zip(phases).map(|((t, &e), &d)| ceil_div(ceil_div(e, d), t.output.len() as i64)).collect()
}

/// Multiply-adds of an algorithm and what takes as long: transforms of so many tiles, and weights.
fn estimate(axes: &[Transforms], tiles: i64, channels: [i64; 2], fetch: f64) -> f64 {
    let places: f64 = axes.iter().map(|t| t.input.len() as f64).product();
    let tiles = tiles as f64;
    let [channels, filters] = channels.map(|n| n as f64);
    let weights = channels * filters;
    places * (tiles * (weights + TRANSFORM * (channels + filters)) + fetch * weights)
}

/// A matrix as a constant, rounded once.
fn matrix(network: &mut Network, rows: &[Vec<num_rational::Ratio<i64>>]) -> Id {
    let values: Vec<f32> = numbers(rows).into_iter().map(|v| v as f32).collect();
    network.constant(Arc::new(Tensor::new(&[rows.len() as i64, rows[0].len() as i64], &values)))
}

/// The weights (F, C, taps..) as places, C, F: `G g Gᵀ` along the axes, in double precision; places and groups are one
/// dimension, and F the filters of one group.
fn transformed_weights(network: &mut Network, w: Id, axes: &[Transforms], group: i64) -> Option<Id> {
    let mut operands = vec![w];
    for t in axes {
        let (rows, taps) = (t.filter.len() as i64, t.filter[0].len() as i64);
        operands.push(network.constant(Arc::new(Tensor::new(&[rows, taps], &numbers(&t.filter)))));
    }
    let transformed = network.op(Op::WinogradWeights, &operands)?;
    if group == 1 {
        return Some(transformed);
    }
    let [places, channels, filters] = network.shape(transformed)[..] else { return None };
    let split = network.reshape(transformed, &[places, channels, group, filters / group])?;
    let turned = network.transpose(split, &[0, 2, 1, 3])?;
    network.reshape(turned, &[places * group, channels, filters / group])
}
