//! Integers of 16 bits in the e-graph: bytes less their zero points, which products of i16 read.

use super::numbers::{integers, is_byte, is_single};
use crate::expr::BinaryOp;
use crate::graph::egraph::network::Network;
use crate::graph::op::Op;
use crate::runtime::{DType, Tensor};
use egg::Id;
use std::sync::Arc;

/// Most steps from a class to the bytes that it is made of.
const DEPTH: usize = 4;
/// Largest size of a byte less a zero point.
const LARGEST: i64 = 255;

/// Numbers in i16, and the least and the greatest that they may be.
#[derive(Clone, Copy, Debug)]
struct Words {
    number: Id,
    bounds: [i64; 2],
}

/// `number·scale` with numbers in i16 of at most 255 in size.
#[derive(Clone, Copy, Debug)]
pub struct ScaledWords {
    pub number: Id,
    pub scale: Option<Id>,
}

/// A tensor in f32 or i32 as integers and their scale: one without dimensions where `one_scale`.
pub fn scaled_words(network: &mut Network, id: Id, one_scale: bool) -> Option<ScaledWords> {
    if !matches!(network.ty(id).dtype, DType::F32 | DType::I32 | DType::I8) {
        return None;
    }
    let shape = network.shape(id).to_vec();
    let products = network.applications(id).filter(|(op, _)| **op == Op::Binary(BinaryOp::Mul));
    let products: Vec<[Id; 2]> = products.flat_map(|(_, c)| [[c[0], c[1]], [c[1], c[0]]]).collect();
    for [n, s] in products {
        let fits = network.ty(s).dtype == DType::F32 && (!one_scale || is_single(network, s));
        if !fits || network.shape(n) != shape {
            continue;
        }
        if let Some(number) = small_words(network, n) {
            let scale = if one_scale { network.reshape(s, &[])? } else { s };
            return Some(ScaledWords { number, scale: Some(scale) });
        }
    }
    small_words(network, id).map(|number| ScaledWords { number, scale: None })
}

/// A class of whole numbers of at most [`LARGEST`] in size, as one of i16 with the same shape.
pub fn small_words(network: &mut Network, id: Id) -> Option<Id> {
    let Words { number, bounds } = words(network, id, DEPTH)?;
    let small = bounds.iter().all(|b| b.abs() <= LARGEST);
    (small && network.shape(number) == network.shape(id)).then_some(number)
}

fn words(network: &mut Network, id: Id, depth: usize) -> Option<Words> {
    if depth == 0 {
        return None;
    }
    if let Some(value) = network.value(id).cloned() {
        return constant_words(network, &value);
    }
    let list: Vec<(Op, Vec<Id>)> = network.applications(id).map(|(op, c)| (op.clone(), c.to_vec())).collect();
    for (op, c) in list {
        let candidate = match op {
            Op::Cast(DType::F32 | DType::I32) if is_byte(network.ty(c[0]).dtype) => of_bytes(network, c[0]),
            Op::Cast(DType::F32) if network.ty(c[0]).dtype == DType::I32 => words(network, c[0], depth - 1),
            Op::Reshape { .. } => {
                words(network, c[0], depth - 1).and_then(|w| Some(Words { number: network.op(op, &[w.number])?, ..w }))
            }
            Op::Binary(sign @ (BinaryOp::Add | BinaryOp::Sub)) => match words(network, c[0], depth - 1) {
                Some(a) => words(network, c[1], depth - 1).and_then(|b| sum(network, sign, a, b)),
                None => None,
            },
            _ => None,
        };
        if candidate.is_some() {
            return candidate;
        }
    }
    None
}

fn of_bytes(network: &mut Network, bytes: Id) -> Option<Words> {
    let bounds = if network.ty(bytes).dtype == DType::U8 { [0, 255] } else { [-128, 127] };
    Some(Words { number: network.op(Op::Cast(DType::I16), &[bytes])?, bounds })
}

/// A constant of whole numbers of at most [`LARGEST`] in size.
fn constant_words(network: &mut Network, value: &Tensor) -> Option<Words> {
    let numbers = integers(value)?;
    let bounds = [numbers.iter().min(), numbers.iter().max()].map(|n| n.map_or(0, |&n| i64::from(n)));
    if bounds.iter().any(|b| b.abs() > LARGEST) {
        return None;
    }
    let words: Vec<i16> = numbers.into_iter().map(|v| v as i16).collect();
    Some(Words { number: network.constant(Arc::new(Tensor::new(&value.shape, &words))), bounds })
}

/// The sum or difference of two, which is the first one where the second one is 0.
fn sum(network: &mut Network, op: BinaryOp, a: Words, b: Words) -> Option<Words> {
    if b.bounds == [0, 0] && network.is_constant(b.number) {
        return Some(a);
    }
    let [low, high] = if op == BinaryOp::Add { b.bounds } else { [-b.bounds[1], -b.bounds[0]] };
    // A byte less a zero point of its own type.
    let of_type = |w: &Words| [[0, 255], [-128, 127]].into_iter().find(|t| t[0] <= w.bounds[0] && w.bounds[1] <= t[1]);
    let same = op == BinaryOp::Sub && of_type(&a).is_some() && of_type(&a) == of_type(&b);
    let bounds = if same { [-LARGEST, LARGEST] } else { [a.bounds[0] + low, a.bounds[1] + high] };
    Some(Words { number: network.binary(op, a.number, b.number)?, bounds })
}
