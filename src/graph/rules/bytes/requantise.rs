//! Quantisation after a product, and copies between two quantisations.

use crate::expr::{BinaryOp, UnaryOp};
use crate::graph::egraph::network::{Head, Network};
use crate::graph::op::{Op, PoolKind};
use crate::graph::rules::bytes::numbers::{Zero, clamped, quantised};
use crate::graph::rules::pattern::Match;
use crate::runtime::DType;
use egg::Id;

/// Most operators between a product and its quantisation that factors go through, and most copies between two.
const DEPTH: usize = 4;

/// [`one_factor`] where the products are integers and nothing else.
pub fn requantised(network: &mut Network, m: &Match) -> Option<Id> {
    if is_also_of_floats(network, m.get('x'), DEPTH) { None } else { one_factor(network, m) }
}

/// [`one_factor`] where products of f32 stand beside those of integers.
pub fn requantised_beside(network: &mut Network, m: &Match) -> Option<Id> {
    if is_also_of_floats(network, m.get('x'), DEPTH) { one_factor(network, m) } else { None }
}

/// Returns true for products of f32 that no rule replaced, perhaps with activations and biases.
fn is_also_of_floats(network: &Network, id: Id, depth: usize) -> bool {
    let current = || network.terms(id).iter().filter(|t| network.is_current(t));
    depth > 0
        && current().any(|t| match &t.head {
            Head::Op(Op::Conv { .. } | Op::MatMul { .. }) => true,
            Head::Op(Op::Binary(BinaryOp::Add | BinaryOp::Max | BinaryOp::Min)) => {
                is_also_of_floats(network, t.children[0], depth - 1)
            }
            _ => false,
        })
}

/// A sum of integers times its scale, divided by the scale of what it is quantised to: one factor for both. Activations
/// and biases between them are scaled.
fn one_factor(network: &mut Network, m: &Match) -> Option<Id> {
    if network.byte_products.is_none() && !network.word_products {
        return None;
    }
    let divisor = m.get('c');
    let scale = network.scalar(divisor)?;
    if !(scale > 0.0 && scale.is_normal() && (1.0 / scale).is_normal()) {
        return None;
    }
    scaled(network, m.get('x'), divisor, DEPTH)
}

fn scaled(network: &mut Network, id: Id, divisor: Id, depth: usize) -> Option<Id> {
    if depth == 0 || network.is_constant(id) {
        return None;
    }
    let list: Vec<(Op, Vec<Id>)> = network.applications(id).map(|(op, c)| (op.clone(), c.to_vec())).collect();
    for (op, c) in list {
        let Op::Binary(b) = op else { continue };
        if network.shape(c[0]) != network.shape(id) || !network.is_constant(c[1]) {
            continue;
        }
        let operand = match b {
            BinaryOp::Mul if is_of_integers(network, c[0]) => Some(c[0]),
            BinaryOp::Add | BinaryOp::Max | BinaryOp::Min => scaled(network, c[0], divisor, depth - 1),
            _ => None,
        };
        let Some(operand) = operand else { continue };
        let factor = quotient(network, c[1], divisor)?;
        return network.binary(b, operand, factor);
    }
    None
}

/// `a / b` of constants, at once where both are numbers.
fn quotient(network: &mut Network, a: Id, b: Id) -> Option<Id> {
    match (network.scalar(a), network.scalar(b)) {
        (Some(x), Some(y)) if network.rank(a) == 0 => Some(network.scalar_f32(x / y)),
        _ => network.binary(BinaryOp::Div, a, b),
    }
}

/// Returns true for sums in i32 as f32.
fn is_of_integers(network: &Network, id: Id) -> bool {
    network.applications(id).any(|(op, c)| *op == Op::Cast(DType::F32) && network.ty(c[0]).dtype == DType::I32)
}

/// A clip at 0 before the quantisation that clips there itself.
pub fn clip_at_zero(network: &mut Network, m: &Match) -> Option<Id> {
    let rounded = network.unary(UnaryOp::Round, m.get('x'))?;
    let zero = network.scalar_f32(0.0);
    network.binary(BinaryOp::Max, rounded, zero)
}

/// A clip at 0 before the quantisation that clips at its zero point.
pub fn clip_at_zero_point(network: &mut Network, m: &Match) -> Option<Id> {
    let (zero, least) = (m.get('z'), m.get('l'));
    if network.scalar(zero)? != network.scalar(least)? {
        return None;
    }
    let rounded = network.unary(UnaryOp::Round, m.get('x'))?;
    let sum = network.binary(BinaryOp::Add, rounded, zero)?;
    network.binary(BinaryOp::Max, sum, least)
}

/// A quantisation: the tensor in f32, its scale, and its zero point.
struct Quantisation {
    x: Id,
    scale: f32,
    zero: i32,
    dtype: DType,
}

fn quantisation(network: &Network, m: &Match) -> Option<Quantisation> {
    let Op::Cast(dtype) = *m.application('q').0 else { return None };
    let (low, high) = match dtype {
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        _ => return None,
    };
    let value = clamped(network, m.get('x'), low, high)?;
    let quotient = |id: Id| {
        let rounded = network.applications(id).find(|(op, _)| **op == Op::Unary(UnaryOp::Round))?.1[0];
        network.applications(rounded).find_map(|(op, c)| match op {
            Op::Binary(BinaryOp::Div) => network.scalar(c[1]).map(|scale| (c[0], scale)),
            _ => None,
        })
    };
    let sum = network.applications(value).find_map(|(op, c)| match op {
        Op::Binary(BinaryOp::Add) => Some((quotient(c[0])?, network.scalar(c[1])?)),
        _ => None,
    });
    let ((x, scale), zero) = sum.or_else(|| Some((quotient(value)?, 0.0)))?;
    Some(Quantisation { x, scale, zero: zero as i32, dtype })
}

/// Integers that become numbers, are copied, and are quantised with the same scale and zero point: the copies move the
/// integers. `(q - zero)·scale / scale` is off by less than a half.
pub fn moved(network: &mut Network, m: &Match) -> Option<Id> {
    let q = quantisation(network, m)?;
    if !(q.scale > 0.0 && q.scale.is_normal() && (q.scale * 255.0).is_finite()) {
        return None;
    }
    copied(network, q.x, &q, DEPTH)
}

fn copied(network: &mut Network, id: Id, q: &Quantisation, depth: usize) -> Option<Id> {
    if depth == 0 || network.is_constant(id) {
        return None;
    }
    if let Some(source) = quantised(network, id) {
        let scale = source.scale.and_then(|s| network.scalar(s));
        let same = scale == Some(q.scale) && source.zero == Zero::Known(q.zero);
        if same && network.ty(source.number).dtype == q.dtype {
            return Some(source.number);
        }
    }
    let list: Vec<(Op, Vec<Id>)> = network.applications(id).map(|(op, c)| (op.clone(), c.to_vec())).collect();
    for (op, c) in list {
        let copy = match op {
            Op::Reshape { .. } | Op::Transpose { .. } | Op::Slice { .. } | Op::Concat { .. } | Op::Upsample { .. } => {
                true
            }
            Op::Pool { kind, .. } => kind == PoolKind::Max,
            _ => false,
        };
        if !copy {
            continue;
        }
        let operands: Option<Vec<Id>> = c.iter().map(|&o| copied(network, o, q, depth - 1)).collect();
        if let Some(moved) = operands.and_then(|operands| network.op(op, &operands)) {
            return Some(moved);
        }
    }
    None
}
