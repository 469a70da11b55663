//! Canonical arithmetic: constants to one side, combined.

use crate::expr::{BinaryOp, UnaryOp};
use crate::graph::egraph::network::Network;
use crate::graph::op::Op;
use crate::graph::rules::pattern::Match;
use crate::runtime::{DType, Tensor};
use egg::Id;
use std::sync::Arc;

/// The first operand itself; the row applies where it has the type of the result.
pub fn operand(network: &mut Network, m: &Match) -> Option<Id> {
    let x = m.get('x');
    (network.find(x) != network.find(m.class)).then_some(x)
}

/// `f(c)` when the constant has one element of f32, else an expression of `op`.
fn constant_map(
    network: &mut Network,
    c: Id,
    f: fn(f32) -> f32,
    op: impl Fn(&mut Network) -> Option<Id>,
) -> Option<Id> {
    match network.scalar(c) {
        Some(v) => {
            let shape = network.shape(c).to_vec();
            Some(network.constant(Arc::new(Tensor::new(&shape, &[f(v)]))))
        }
        None => op(network),
    }
}

/// A product with the inverse, which is rounded: not where the quotient becomes a whole number.
pub fn div_constant(network: &mut Network, m: &Match) -> Option<Id> {
    let c = m.get('c');
    if network.ty(c).dtype != DType::F32 || network.is_constant(m.get('x')) || network.becomes_whole(m.class) {
        return None;
    }
    let inverse = constant_map(
        network,
        c,
        |v| 1.0 / v,
        |n| {
            let one = n.scalar_f32(1.0);
            n.binary(BinaryOp::Div, one, c)
        },
    )?;
    network.binary(BinaryOp::Mul, m.get('x'), inverse)
}

pub fn sub_constant(network: &mut Network, m: &Match) -> Option<Id> {
    let c = m.get('c');
    if network.ty(c).dtype != DType::F32 || network.is_constant(m.get('x')) {
        return None;
    }
    let negative = constant_map(network, c, |v| -v, |n| n.unary(UnaryOp::Neg, c))?;
    network.binary(BinaryOp::Add, m.get('x'), negative)
}

/// `a op b` of constants, at once when both have one element.
fn combine(network: &mut Network, op: BinaryOp, a: Id, b: Id) -> Option<Id> {
    match (network.scalar(a), network.scalar(b)) {
        (Some(x), Some(y)) if network.rank(a) == 0 && network.rank(b) == 0 => {
            Some(network.scalar_f32(if op == BinaryOp::Mul { x * y } else { x + y }))
        }
        _ => network.binary(op, a, b),
    }
}

pub fn is_real(network: &Network, id: Id) -> bool {
    network.ty(id).dtype == DType::F32
}

pub fn mul_mul(network: &mut Network, m: &Match) -> Option<Id> {
    if network.is_constant(m.get('x')) || !is_real(network, m.class) {
        return None;
    }
    let factor = combine(network, BinaryOp::Mul, m.get('a'), m.get('b'))?;
    network.binary(BinaryOp::Mul, m.get('x'), factor)
}

pub fn add_add(network: &mut Network, m: &Match) -> Option<Id> {
    if network.is_constant(m.get('x')) || !is_real(network, m.class) {
        return None;
    }
    let term = combine(network, BinaryOp::Add, m.get('a'), m.get('b'))?;
    network.binary(BinaryOp::Add, m.get('x'), term)
}

/// (x + a)·b = x·b + a·b where x is a product with weights that b can go into.
pub fn distribute_scale(network: &mut Network, m: &Match) -> Option<Id> {
    let x = m.get('x');
    let weighted = network.applications(x).any(|(op, c)| {
        matches!(op, Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul { .. }) && network.is_constant(c[1])
    });
    if !weighted || !is_real(network, m.class) {
        return None;
    }
    let scaled = network.binary(BinaryOp::Mul, x, m.get('b'))?;
    let shift = combine(network, BinaryOp::Mul, m.get('a'), m.get('b'))?;
    network.binary(BinaryOp::Add, scaled, shift)
}
