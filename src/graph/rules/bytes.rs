//! Integer products: convolutions and matrix products of quantised tensors as sums in i32, for targets whose instructions
//! multiply bytes.
//!
//! `Σ (x - zx)·sx · w·sw` is `(Σ x·w - zx·Σ w) · sx·sw`: the integers are multiplied as they are stored, the zero point of the
//! image is a bias in i32, and the scales are a factor of the epilogue. Padding is with the zero point, so that the bias is
//! the same everywhere. Sums in i32 are exact, where those in f32 round. What is quantised again has one factor for both
//! scales, and copies between two equal quantisations move the integers. Where few neighbours in memory are summed over, groups of
//! terms are not full: such products of integers stand beside those of f32, and the extraction takes the cheaper ones.
//! The columns of channels-last images of few channels are joined with them, `(s, c)` is one tap of a wider row, so that the
//! terms of a row of the filter are neighbours.
//!
//! Weights of 8 bits alone stay so in products of few rows of f32, which widen them in registers, or are sums of products of bytes.
//!
//! An elementwise function of one number in u8 is an element of a table, where the target holds tables in registers.
//!
//! Where the target multiplies i16 alone, or the weights are not bytes, the integers less their zero points are products of i16: they need
//! neither a bias nor padding, and a zero point may be computed.

mod blocks;
mod digits;
mod expanded;
mod numbers;
mod requantise;
mod tables;
mod words;

use crate::expr::{BinaryOp, UnaryOp};
use crate::graph::cost::{group, terms_in_step};
use crate::graph::egraph::network::Network;
use crate::graph::op::{Layout, Op, ReduceOp, Window};
use crate::graph::rules::algorithm;
use crate::graph::rules::pattern::Keep::{Beside, Instead};
use crate::graph::rules::pattern::{Match, Rule, build};
use crate::runtime::{DType, Tensor};
use blocks::{block_product, matmul_in_digits};
use digits::in_digits;
use egg::Id;
use expanded::expanded;
use numbers::{MOST_TERMS, Number, Weights, Zero, is_byte, is_byte_product, of_type, quantised, shifted, weights};
use requantise::{clip_at_zero, clip_at_zero_point, moved, requantised, requantised_beside};
use std::sync::Arc;
use tables::table;
use words::{scaled_words, small_words};

#[rustfmt::skip]
pub fn rules() -> Vec<Rule> {
    vec![
        build  (Instead, "conv-bytes",              "(conv@c ...)",                      conv_of_bytes),
        build  (Beside,  "conv-few-bytes",          "(conv@c ...)",                      conv_of_few_bytes),
        build  (Beside,  "joined-columns",          "(conv@c ...)",                      joined_columns),
        build  (Instead, "matmul-bytes",            "(matmul@m ...)",                    matmul_of_bytes),
        build  (Beside,  "matmul-few-bytes",        "(matmul@m ...)",                    matmul_of_few_bytes),
        build  (Instead, "conv-words",              "(conv@c ...)",                      conv_of_words),
        build  (Beside,  "conv-few-words",          "(conv@c ...)",                      conv_of_few_words),
        build  (Instead, "matmul-words",            "(matmul@m ...)",                    matmul_of_words),
        build  (Beside,  "matmul-few-words",        "(matmul@m ...)",                    matmul_of_few_words),
        build  (Beside,  "matmul-expanded-bytes",   "(matmul@m ...)",                    expanded),
        build  (Beside,  "matmul-byte-digits",      "(matmul@m ...)",                    in_digits),
        build  (Beside,  "matmul-block-digits",     "(matmul@m ...)",                    matmul_in_digits),
        build  (Instead, "block-product",           "(block_product@p ...)",             block_product),
        build  (Instead, "matmul-parts",            "(matmul@m ...)",                    matmul_in_parts),
        build  (Instead, "whole-sums",              "(cast@i (cast@f ?x))",              whole_sums),
        build  (Beside,  "shifted-bytes",           "(cast@c ?x)",                       shifted_bytes),
        build  (Instead, "requantise",              "(div ?x $c)",                       requantised),
        build  (Beside,  "requantise-beside",       "(div ?x $c)",                       requantised_beside),
        build  (Instead, "clip-quantised",          "(max (round (max ?x 0)) 0)",        clip_at_zero),
        build  (Instead, "clip-quantised-zero",     "(max (add (round (max ?x 0)) $z) $l)", clip_at_zero_point),
        build  (Beside,  "byte-table",              "(cast@c ?x)",                       table),
        build  (Instead, "quantised-copy",          "(cast@q ?x)",                       moved),
    ]
}

/// Columns of a product from which on lanes are full enough. Unmeasured.
const FEW_COLUMNS: i64 = 4;
/// Columns or filters of a product of i16 from which on it takes no longer than one of f32, whose lanes may be elsewhere. Unmeasured.
const FEW_WORDS: i64 = 8;

/// Products of numbers of at most 255 in size whose sum is exact in f32.
const EXACT_TERMS: i64 = (1 << 24) / (255 * 255);
/// Most parts that a product is made in.
const MOST_PARTS: i64 = 64;

/// Returns true where a product of integers of so many neighbours takes no longer than that of f32.
fn fills_groups(neighbours: i64, first: DType) -> bool {
    terms_in_step(neighbours, group(first)) >= 1.0
}

/// A convolution whose channels fill groups.
fn conv_of_bytes(network: &mut Network, m: &Match) -> Option<Id> {
    if fills_groups(channels(network, m)?, DType::U8) { conv_in_integers(network, m, factors_of_bytes) } else { None }
}

/// A convolution whose channels do not fill a group.
fn conv_of_few_bytes(network: &mut Network, m: &Match) -> Option<Id> {
    if fills_groups(channels(network, m)?, DType::U8) { None } else { conv_in_integers(network, m, factors_of_bytes) }
}

/// A convolution whose channels fill groups and whose filters fill lanes, and that minimal filtering does not compute.
fn conv_of_words(network: &mut Network, m: &Match) -> Option<Id> {
    if is_fastest_of_words(network, m)? { conv_in_integers(network, m, factors_of_words) } else { None }
}

/// A convolution of few channels, or that minimal filtering may compute as fast; of few filters where the other form is in i32.
fn conv_of_few_words(network: &mut Network, m: &Match) -> Option<Id> {
    let (Op::Conv { group, .. }, operands) = m.application('c') else { return None };
    let slow = is_slow_of_words(network, m, network.shape(operands[1])[0] / group);
    let depthwise = network.shape(operands[1])[1] == 1 && *group > 1;
    if slow || depthwise || is_fastest_of_words(network, m)? {
        None
    } else {
        conv_in_integers(network, m, factors_of_words)
    }
}

/// Returns true for a product of f32 with so few columns that one of i16 packs more than it multiplies.
fn is_slow_of_words(network: &Network, m: &Match, columns: i64) -> bool {
    columns < FEW_WORDS && network.ty(m.class).dtype == DType::F32
}

/// The channels of a filter.
fn channels(network: &Network, m: &Match) -> Option<i64> {
    network.shape(m.application('c').1[1]).get(1).copied()
}

/// Returns true for a convolution that takes no longer with products of i16, whatever computes it in f32.
fn is_fastest_of_words(network: &Network, m: &Match) -> Option<bool> {
    let (Op::Conv { window, group, .. }, operands) = m.application('c') else { return None };
    let (weights, out) = (network.shape(operands[1]), network.shape(m.class));
    let filtered =
        network.ty(m.class).dtype == DType::F32 && algorithm::is_considered(window, *group, weights, out.get(2..)?);
    let full = fills_groups(channels(network, m)?, DType::I16) && weights[0] / group >= FEW_WORDS;
    Some(!filtered && full)
}

/// The operands of a product of integers: `Σ (x - zero)·w · scale·weights.scale`.
struct Factors {
    x: Id,
    zero: Zero,
    scale: Option<Id>,
    weights: Weights,
}

/// How two tensors are the operands of a product of integers.
type Factoring = fn(&mut Network, [Id; 2]) -> Option<Factors>;

/// Two tensors as bytes, where the target has products of bytes.
fn factors_of_bytes(network: &mut Network, [x, w]: [Id; 2]) -> Option<Factors> {
    let first = network.byte_products?;
    let weights = match network.is_constant(w) {
        true => weights(network, w)?,
        false => numbers::signed(network, w)?,
    };
    let x = quantised(network, x)?;
    let scale = x.scale;
    let Number { number: x, zero } = of_type(network, x.number, x.zero, first)?;
    Some(Factors { x, zero, scale, weights })
}

/// Two tensors as i16, where the target has products of i16 and none of these bytes.
fn factors_of_words(network: &mut Network, operands: [Id; 2]) -> Option<Factors> {
    let [x, w] = operands;
    let constant = operands.iter().all(|&o| network.is_constant(o));
    if !network.word_products || constant || factors_of_bytes(network, operands).is_some() {
        return None;
    }
    let x = scaled_words(network, x, true)?;
    let one_scale = !network.is_constant(w);
    let w = scaled_words(network, w, one_scale)?;
    let weights = Weights { number: w.number, scale: w.scale };
    Some(Factors { x: x.number, zero: Zero::Known(0), scale: x.scale, weights })
}

/// A convolution of a quantised image with quantised weights.
fn conv_in_integers(network: &mut Network, m: &Match, factors: Factoring) -> Option<Id> {
    let (Op::Conv { window, group, layout: Layout::Nchw }, operands) = m.application('c') else { return None };
    let filters = *network.shape(operands[1]).first()?;
    let terms = network.shape(operands[1])[1..].iter().product::<i64>();
    if terms > MOST_TERMS || !is_sum(network, m.class) || !network.is_constant(operands[1]) {
        return None;
    }
    let Factors { x, zero, scale, weights } = factors(network, [operands[0], operands[1]])?;
    let (image, window) = padded(network, x, zero, window)?;
    let mut integers = vec![image, weights.number];
    let correction = correction(network, zero, weights.number, (1..network.rank(weights.number)).collect())?;
    integers.extend(correction);
    let sums = network.op(Op::Conv { window, group: *group, layout: Layout::Nchw }, &integers)?;
    let along = [vec![filters], vec![1; network.rank(m.class) - 2]].concat();
    let y = match network.ty(m.class).dtype {
        DType::I32 => sums,
        _ => rescaled(network, sums, scale, &weights, &along)?,
    };
    match operands.get(2) {
        Some(&bias) => {
            let bias = network.reshape(bias, &along)?;
            network.binary(BinaryOp::Add, y, bias)
        }
        None => Some(y),
    }
}

/// Returns true for sums in f32 or i32.
fn is_sum(network: &Network, id: Id) -> bool {
    matches!(network.ty(id).dtype, DType::F32 | DType::I32)
}

/// A convolution over channels last whose channels fill no groups of terms: over an image of one channel whose columns
/// are the channels of all columns. Padding is a part of that image, so that all terms of a row of the filter are read. For
/// instructions on tiles, which take whole groups, the filter gets columns of zeros, and the image as many more.
fn joined_columns(network: &mut Network, m: &Match) -> Option<Id> {
    if network.byte_products.is_none() && !network.word_products && network.tile_products.is_empty() {
        return None;
    }
    let (Op::Conv { window, group: 1, layout: Layout::Nhwc }, operands) = m.application('c') else { return None };
    let (window, operands) = (&mut window.clone(), operands.to_vec());
    let last = window.kernel.len() - 1;
    let beside = window.pad_before[last] != 0 || window.pad_after[last] != 0;
    let channels = *network.shape(operands[0]).last()?;
    let joins = window.kernel[last] > 1 && window.dilation[last] == 1 && (channels > 1 || beside);
    let dtype = network.ty(operands[0]).dtype;
    let tiles = network.tile_products.contains(&dtype);
    if !joins || channels % group(dtype) == 0 || !(is_byte(dtype) || dtype == DType::I16 || tiles) {
        return None;
    }
    let more = |n: &i64| (window.kernel[last] + n) * channels % group(dtype) == 0;
    let zeros = if tiles { (0..group(dtype)).find(more)? } else { 0 };
    window.pad_after[last] += zeros;
    let pads = || window.pad_before.iter().chain(&window.pad_after);
    let mut image = operands[0];
    if pads().any(|&p| p != 0) {
        let sides = |pads: &[i64]| [&[0], pads, &[0]].concat();
        let op = Op::Pad { before: sides(&window.pad_before), after: sides(&window.pad_after), value: 0 };
        image = network.op(op, &[image])?;
    }
    let rank = network.rank(image);
    let mut shape = network.shape(image).to_vec();
    (shape[rank - 2], shape[rank - 1]) = (shape[rank - 2] * channels, 1);
    let image = network.reshape(image, &shape)?;
    let order: Vec<usize> = std::iter::once(0).chain(2..rank).chain([1]).collect();
    let mut weights = network.transpose(operands[1], &order)?;
    if zeros > 0 {
        let mut after = vec![0; rank];
        after[rank - 2] = zeros;
        weights = network.op(Op::Pad { before: vec![0; rank], after, value: 0 }, &[weights])?;
        window.kernel[last] += zeros;
    }
    let mut shape = network.shape(operands[1]).to_vec();
    (shape[1], shape[rank - 1]) = (1, window.kernel[last] * channels);
    let weights = network.reshape(weights, &shape)?;
    let none = vec![0; window.kernel.len()];
    let mut window = Window { pad_before: none.clone(), pad_after: none, ..window.clone() };
    window.kernel[last] *= channels;
    window.stride[last] *= channels;
    let operands: Vec<Id> = [image, weights].into_iter().chain(operands.get(2).copied()).collect();
    network.op(Op::Conv { window, group: 1, layout: Layout::Nhwc }, &operands)
}

/// The image padded with its zero point, and the window without padding; both as they are where nothing else than 0 is padded.
fn padded(network: &mut Network, x: Id, zero: Zero, window: &Window) -> Option<(Id, Window)> {
    let zero = match zero {
        Zero::Known(0) => return Some((x, window.clone())),
        _ if window.pad_before.iter().chain(&window.pad_after).all(|&p| p == 0) => return Some((x, window.clone())),
        Zero::Known(zero) => zero,
        Zero::Computed(_) => return None,
    };
    let sides = |pads: &[i64]| [&[0, 0], pads].concat();
    let value = u64::from(zero as u8);
    let op = Op::Pad { before: sides(&window.pad_before), after: sides(&window.pad_after), value };
    let none = vec![0; window.kernel.len()];
    Some((network.op(op, &[x])?, Window { pad_before: none.clone(), pad_after: none, ..window.clone() }))
}

/// The part of each sum that the zero point of the first operand makes, `-zero · Σ w` over these dimensions of the second
/// one; `None` inside where it is 0.
fn correction(network: &mut Network, zero: Zero, w: Id, axes: Vec<usize>) -> Option<Option<Id>> {
    let factor = match zero {
        Zero::Known(0) => return Some(None),
        Zero::Known(zero) => network.constant(Arc::new(Tensor::new(&[], &[-zero]))),
        Zero::Computed(zero) => network.unary(UnaryOp::Neg, zero)?,
    };
    let wide = network.op(Op::Cast(DType::I32), &[w])?;
    let sums = network.op(Op::Reduce { op: ReduceOp::Sum, axes, keep: false }, &[wide])?;
    network.binary(BinaryOp::Mul, sums, factor).map(Some)
}

/// `sums` in f32 times the scales of both operands; that of the weights is one number, or has the shape `along`.
fn rescaled(network: &mut Network, sums: Id, scale: Option<Id>, w: &Weights, along: &[i64]) -> Option<Id> {
    let mut y = network.op(Op::Cast(DType::F32), &[sums])?;
    let of_weights = match w.scale {
        Some(scale) if network.shape(scale).iter().all(|&e| e == 1) => Some(network.reshape(scale, &[])?),
        Some(scale) if network.shape(scale).iter().product::<i64>() == along.iter().product::<i64>() => {
            Some(network.reshape(scale, along)?)
        }
        Some(_) => return None,
        None => None,
    };
    let factor = match (scale, of_weights) {
        (Some(a), Some(b)) if network.is_constant(a) => Some(network.binary(BinaryOp::Mul, b, a)?),
        (Some(a), b) => {
            y = network.binary(BinaryOp::Mul, y, a)?;
            b
        }
        (None, b) => b,
    };
    match factor {
        Some(factor) => network.binary(BinaryOp::Mul, y, factor),
        None => Some(y),
    }
}

/// The terms of each sum of a matrix product, and its columns.
fn depth_and_columns(network: &Network, m: &Match) -> Option<(i64, i64)> {
    let (op, operands) = m.application('m');
    let Op::MatMul { transpose_a, .. } = *op else { return None };
    let a = network.shape(operands[0]);
    Some((a[a.len() - if transpose_a { 2 } else { 1 }], *network.shape(m.class).last()?))
}

/// Returns true for a product whose terms fill groups, and whose columns fill lanes.
fn is_full(network: &Network, m: &Match, first: DType) -> Option<bool> {
    let (depth, columns) = depth_and_columns(network, m)?;
    let few = if first == DType::I16 { FEW_WORDS } else { FEW_COLUMNS };
    Some(fills_groups(depth, first) && columns >= few)
}

fn matmul_of_bytes(network: &mut Network, m: &Match) -> Option<Id> {
    if is_full(network, m, DType::U8)? { matmul_in_integers(network, m, factors_of_bytes) } else { None }
}

/// A product of few terms or columns.
fn matmul_of_few_bytes(network: &mut Network, m: &Match) -> Option<Id> {
    if is_full(network, m, DType::U8)? { None } else { matmul_in_integers(network, m, factors_of_bytes) }
}

fn matmul_of_words(network: &mut Network, m: &Match) -> Option<Id> {
    if is_full(network, m, DType::I16)? { matmul_in_integers(network, m, factors_of_words) } else { None }
}

/// A product of few terms or columns.
fn matmul_of_few_words(network: &mut Network, m: &Match) -> Option<Id> {
    let slow = is_slow_of_words(network, m, depth_and_columns(network, m)?.1);
    if slow || is_full(network, m, DType::I16)? { None } else { matmul_in_integers(network, m, factors_of_words) }
}

/// A product of quantised matrices, the second one constant or not.
fn matmul_in_integers(network: &mut Network, m: &Match, factors: Factoring) -> Option<Id> {
    let (op, operands) = m.application('m');
    let Op::MatMul { transpose_b, .. } = *op else { return None };
    let (depth, columns) = depth_and_columns(network, m)?;
    if depth > MOST_TERMS || !is_sum(network, m.class) {
        return None;
    }
    let Factors { x, zero, scale, weights: w } = factors(network, [operands[0], operands[1]])?;
    let rank = network.rank(w.number);
    let per_column = w.scale.is_some_and(|s| network.shape(s).iter().any(|&e| e != 1));
    let plain = rank == 2 || (!per_column && zero == Zero::Known(0));
    let along = if transpose_b { [columns, 1] } else { [1, columns] };
    let fits = w.scale.is_none_or(|s| {
        let shape = network.shape(s);
        shape.iter().all(|&e| e == 1) || shape == along || (!transpose_b && shape == [columns])
    });
    if !plain || !fits {
        return None;
    }
    let mut sums = network.op(op.clone(), &[x, w.number])?;
    let axes = vec![if transpose_b { rank - 1 } else { rank - 2 }];
    if let Some(correction) = correction(network, zero, w.number, axes)? {
        sums = network.binary(BinaryOp::Add, sums, correction)?;
    }
    match network.ty(m.class).dtype {
        DType::I32 => Some(sums),
        _ => rescaled(network, sums, scale, &w, &[columns]),
    }
}

/// A product of small integers in i32 where no instruction takes it: in f32, in parts so short that every sum is exact.
fn matmul_in_parts(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('m');
    let (&Op::MatMul { transpose_a, transpose_b }, Some(_)) = (op, network.shape(m.class).get(1)) else { return None };
    if network.word_products || network.ty(m.class).dtype != DType::I32 {
        return None;
    }
    let (depth, _) = depth_and_columns(network, m)?;
    let (x, w) = (operands[0], operands[1]);
    if depth == 0 || depth > MOST_PARTS * EXACT_TERMS || matmul_in_integers(network, m, factors_of_bytes).is_some() {
        return None;
    }
    small_words(network, x)?;
    small_words(network, w)?;
    let (x, w) = (network.op(Op::Cast(DType::F32), &[x])?, network.op(Op::Cast(DType::F32), &[w])?);
    let mut total = None;
    for start in (0..depth).step_by(EXACT_TERMS as usize) {
        let end = (start + EXACT_TERMS).min(depth);
        let mut part = |operand: Id, back: usize| {
            if end - start == depth {
                return Some(operand);
            }
            let axis = network.rank(operand) - back;
            let (mut starts, mut ends) = (vec![0; axis + back], network.shape(operand).to_vec());
            (starts[axis], ends[axis]) = (start, end);
            let steps = vec![1; starts.len()];
            network.op(Op::Slice { starts, ends, steps }, &[operand])
        };
        let (x, w) = (part(x, 1 + usize::from(transpose_a))?, part(w, 2 - usize::from(transpose_b))?);
        let product = network.op(op.clone(), &[x, w])?;
        let product = network.op(Op::Cast(DType::I32), &[product])?;
        total = Some(match total {
            None => product,
            Some(total) => network.binary(BinaryOp::Add, total, product)?,
        });
    }
    total
}

/// Sums of integers that go through f32 and back are these integers: those that f32 rounds were no others before.
fn whole_sums(network: &mut Network, m: &Match) -> Option<Id> {
    let x = m.get('x');
    let round_trip = (m.application('i').0, m.application('f').0) == (&Op::Cast(DType::I32), &Op::Cast(DType::F32));
    (round_trip && network.ty(x).dtype == DType::I32 && is_byte_product(network, x, 3)).then_some(x)
}

/// Quantised numbers that a product reads with the other sign are read so by everything: they are stored once.
fn shifted_bytes(network: &mut Network, m: &Match) -> Option<Id> {
    let first = network.byte_products?;
    let (Op::Cast(DType::F32), x) = (m.application('c').0, m.get('x')) else { return None };
    let (from, offset) = match (network.ty(x).dtype, first) {
        (DType::I8, DType::U8) => (DType::I8, -128.0),
        (DType::U8, DType::I8) => (DType::U8, 128.0),
        _ => return None,
    };
    debug_assert_ne!(from, first);
    if network.is_constant(x) {
        return None;
    }
    let other = shifted(network, x, first, 4)?;
    let number = network.op(Op::Cast(DType::F32), &[other])?;
    let offset = network.scalar_f32(offset);
    network.binary(BinaryOp::Add, number, offset)
}
