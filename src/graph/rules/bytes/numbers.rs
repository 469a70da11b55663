//! Quantised tensors in the e-graph: the integers of 8 bits, zero point and scale that a class is made of.

use crate::expr::BinaryOp;
use crate::graph::egraph::network::Network;
use crate::graph::fold;
use crate::graph::op::{Op, PoolKind};
use crate::runtime::{DType, Tensor};
use egg::Id;
use std::sync::Arc;

/// A zero point: one for a whole tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zero {
    Known(i32),
    /// A class of one number in i32.
    Computed(Id),
}

/// Integers of 8 bits without their zero point.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    pub number: Id,
    pub zero: Zero,
}

/// `(number - zero)·scale`, with one scale without dimensions or none.
#[derive(Clone, Copy, Debug)]
pub struct Quantised {
    pub number: Id,
    pub zero: Zero,
    pub scale: Option<Id>,
}

/// `number·scale` with numbers in i8 and scales that broadcast.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    pub number: Id,
    pub scale: Option<Id>,
}

/// Most terms of a sum of products of bytes: more may leave i32.
pub const MOST_TERMS: i64 = (i32::MAX / (255 * 255)) as i64;

/// Most steps from a class to the integers that it is made of.
const DEPTH: usize = 4;

/// Returns true for integers of 8 bits.
pub fn is_byte(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::U8)
}

/// Returns true for one number.
pub fn is_single(network: &Network, id: Id) -> bool {
    network.shape(id).iter().all(|&e| e == 1)
}

/// The applications in a class, which may change while they are looked at.
fn applications(network: &Network, id: Id) -> Vec<(Op, Vec<Id>)> {
    network.applications(id).map(|(op, c)| (op.clone(), c.to_vec())).collect()
}

/// The only whole number of a constant.
fn whole(network: &Network, id: Id) -> Option<i32> {
    let t = network.value(id).filter(|t| t.len() == 1)?;
    match t.dtype {
        DType::F32 => Some(t.to_vec::<f32>()[0]).filter(|v| v.fract() == 0.0 && v.abs() <= 65535.0).map(|v| v as i32),
        DType::I32 => Some(t.to_vec::<i32>()[0]).filter(|v| v.unsigned_abs() <= 65535),
        DType::U8 => Some(i32::from(t.data[0])),
        DType::I8 => Some(i32::from(t.data[0] as i8)),
        _ => None,
    }
}

/// A number that is subtracted from integers of 8 bits.
fn zero_of(network: &mut Network, id: Id) -> Option<Zero> {
    if !is_single(network, id) {
        return None;
    }
    if let Some(number) = whole(network, id) {
        return Some(Zero::Known(number));
    }
    let source = widened_bytes(network, id)?;
    let wide = network.op(Op::Cast(DType::I32), &[source])?;
    network.reshape(wide, &[]).map(Zero::Computed)
}

/// Integers of 8 bits less a zero point, in f32 or i32.
fn number(network: &mut Network, id: Id, depth: usize) -> Option<Number> {
    if depth == 0 || network.is_constant(id) {
        return None;
    }
    let shape = network.shape(id).to_vec();
    for (op, c) in applications(network, id) {
        let candidate = match op {
            Op::Cast(DType::F32 | DType::I32) if is_byte(network.ty(c[0]).dtype) => {
                Some(Number { number: c[0], zero: Zero::Known(0) })
            }
            Op::Cast(DType::F32) if network.ty(c[0]).dtype == DType::I32 => number(network, c[0], depth - 1),
            Op::Binary(BinaryOp::Sub) => zero_of(network, c[1]).and_then(|zero| less(network, c[0], zero, depth)),
            Op::Binary(BinaryOp::Add) => match whole(network, c[1]) {
                Some(number) if number != 0 => less(network, c[0], Zero::Known(-number), depth),
                _ => None,
            },
            _ => None,
        };
        if let Some(candidate) = candidate.filter(|n| network.shape(n.number) == shape) {
            return Some(candidate);
        }
    }
    None
}

/// The integers of a class without a zero point of its own, less this one.
fn less(network: &mut Network, id: Id, zero: Zero, depth: usize) -> Option<Number> {
    let inner = number(network, id, depth - 1)?;
    match (inner.zero, zero) {
        (Zero::Known(0), zero) => Some(Number { zero, ..inner }),
        (Zero::Known(a), Zero::Known(b)) => Some(Number { zero: Zero::Known(a + b), ..inner }),
        _ => None,
    }
}

/// A quantised tensor with one scale, or integers in f32.
pub fn quantised(network: &mut Network, id: Id) -> Option<Quantised> {
    let shape = network.shape(id).to_vec();
    for (op, c) in applications(network, id) {
        if op != Op::Binary(BinaryOp::Mul) {
            continue;
        }
        for (n, s) in [(c[0], c[1]), (c[1], c[0])] {
            if !is_single(network, s) || network.shape(n) != shape {
                continue;
            }
            if let Some(Number { number, zero }) = number(network, n, DEPTH) {
                let scale = network.reshape(s, &[])?;
                return Some(Quantised { number, zero, scale: Some(scale) });
            }
        }
    }
    number(network, id, DEPTH).map(|Number { number, zero }| Quantised { number, zero, scale: None })
}

/// A computed tensor as numbers in i8 without a zero point.
pub fn signed(network: &mut Network, id: Id) -> Option<Weights> {
    let Quantised { number, zero, scale } = quantised(network, id)?;
    let Number { number, zero } = of_type(network, number, zero, DType::I8)?;
    (zero == Zero::Known(0)).then_some(Weights { number, scale })
}

/// Constant weights as numbers in i8 with scales.
pub fn weights(network: &mut Network, id: Id) -> Option<Weights> {
    if !network.is_constant(id) {
        return None;
    }
    for (op, c) in applications(network, id) {
        if op != Op::Binary(BinaryOp::Mul) {
            continue;
        }
        for (n, s) in [(c[0], c[1]), (c[1], c[0])] {
            if network.shape(n) == network.shape(id)
                && network.ty(s).dtype == DType::F32
                && let Some(number) = constant_bytes(network, n)
            {
                return Some(Weights { number, scale: Some(s) });
            }
        }
    }
    constant_bytes(network, id).map(|number| Weights { number, scale: None })
}

/// A constant of whole numbers as one in i8, where all fit.
fn constant_bytes(network: &mut Network, id: Id) -> Option<Id> {
    if network.ty(id).dtype == DType::I8 {
        return Some(id);
    }
    if let Some(t) = network.value(id).cloned() {
        let numbers = integers(&t)?;
        return bytes(network, &t.shape, numbers);
    }
    if let Some(source) = widened_bytes(network, id) {
        return constant_bytes(network, source);
    }
    let difference_of = network.applications(id).find_map(|(op, c)| match op {
        Op::Binary(BinaryOp::Sub) => Some((c[0], c[1])),
        _ => None,
    });
    difference_of.and_then(|(a, zero)| difference(network, a, zero))
}

/// The integers of 8 bits that a class is as f32 or i32.
fn widened_bytes(network: &Network, id: Id) -> Option<Id> {
    network.converted_from(id, |from, to| is_byte(from) && matches!(to, DType::F32 | DType::I32))
}

/// Whole numbers of at most 16 bits.
pub fn integers(t: &Tensor) -> Option<Vec<i32>> {
    match t.dtype {
        DType::I8 => Some(t.data.iter().map(|&v| i32::from(v as i8)).collect()),
        DType::U8 => Some(t.data.iter().map(|&v| i32::from(v)).collect()),
        DType::F32 => {
            let (values, _) = t.data.as_chunks::<4>();
            let one = |&bytes: &[u8; 4]| {
                Some(f32::from_le_bytes(bytes)).filter(|v| v.fract() == 0.0 && v.abs() <= 65535.0).map(|v| v as i32)
            };
            values.iter().map(one).collect()
        }
        DType::I32 => Some(t.to_vec::<i32>()).filter(|v| v.iter().all(|v| v.unsigned_abs() <= 65535)),
        _ => None,
    }
}

/// Numbers in i8, where all fit.
fn bytes(network: &mut Network, shape: &[i64], numbers: Vec<i32>) -> Option<Id> {
    let bytes: Option<Vec<i8>> = numbers.into_iter().map(|v| i8::try_from(v).ok()).collect();
    Some(network.constant(Arc::new(Tensor::new(shape, &bytes?))))
}

/// The differences of constant integers and zero points that broadcast.
fn difference(network: &mut Network, a: Id, zero: Id) -> Option<Id> {
    let source = widened_bytes(network, a)?;
    let wide = |t: &Tensor| Some(Tensor::new(&t.shape, &integers(t)?));
    let (numbers, zeros) = (wide(network.value(source)?)?, wide(network.value(zero)?)?);
    let differences = fold::evaluate(&Op::Binary(BinaryOp::Sub), &[&numbers, &zeros]).ok()?.pop()?;
    bytes(network, &differences.shape, differences.to_vec())
}

/// Numbers of 8 bits in this type: those of the other one with another zero point.
pub fn of_type(network: &mut Network, id: Id, zero: Zero, to: DType) -> Option<Number> {
    if network.ty(id).dtype == to {
        return Some(Number { number: id, zero });
    }
    let offset = if to == DType::U8 { 128 } else { -128 };
    let number = match shifted(network, id, to, DEPTH) {
        Some(number) => number,
        None => {
            let top = network.constant(Arc::new(top_bit(network.ty(id).dtype)));
            let turned = network.binary(BinaryOp::Xor, id, top)?;
            network.op(Op::Bitcast(to), &[turned])?
        }
    };
    let zero = match zero {
        Zero::Known(zero) => Zero::Known(zero + offset),
        Zero::Computed(zero) => {
            let offset = network.constant(Arc::new(Tensor::new(&[], &[offset])));
            Zero::Computed(network.binary(BinaryOp::Add, zero, offset)?)
        }
    };
    Some(Number { number, zero })
}

/// The number with the highest bit alone.
fn top_bit(dtype: DType) -> Tensor {
    if dtype == DType::U8 { Tensor::new(&[], &[128u8]) } else { Tensor::new(&[], &[-128i8]) }
}

/// Numbers of 8 bits that are quantised here, perhaps moved, as they are in the other type: quantised with another zero point.
pub fn shifted(network: &mut Network, id: Id, to: DType, depth: usize) -> Option<Id> {
    if depth == 0 {
        return None;
    }
    let (low, high, offset) = if to == DType::U8 { (0.0, 255.0, 128.0) } else { (-128.0, 127.0, -128.0) };
    for (op, c) in applications(network, id) {
        let candidate = match &op {
            Op::Cast(from) if is_byte(*from) && *from != to => {
                let Some(value) = clamped(network, c[0], low - offset, high - offset) else { continue };
                let value = plus(network, value, offset as f32)?;
                let bounds = [(BinaryOp::Max, low), (BinaryOp::Min, high)];
                let mut value = value;
                for (op, bound) in bounds {
                    let bound = network.scalar_f32(bound as f32);
                    value = network.binary(op, value, bound)?;
                }
                network.op(Op::Cast(to), &[value])
            }
            Op::Reshape { .. } | Op::Transpose { .. } | Op::Slice { .. } | Op::Pool { kind: PoolKind::Max, .. } => {
                shifted(network, c[0], to, depth - 1).and_then(|x| network.op(op.clone(), &[x]))
            }
            _ => None,
        };
        if candidate.is_some() {
            return candidate;
        }
    }
    None
}

/// The operand of `min(max(x, low), high)`.
pub fn clamped(network: &Network, id: Id, low: f64, high: f64) -> Option<Id> {
    let operand = |id: Id, wanted: BinaryOp, bound: f64| {
        network.applications(id).find_map(|(op, c)| match op {
            Op::Binary(b) if *b == wanted && network.scalar(c[1]) == Some(bound as f32) => Some(c[0]),
            _ => None,
        })
    };
    operand(operand(id, BinaryOp::Min, high)?, BinaryOp::Max, low)
}

/// `x + offset`, where `x` is a sum with a number already one sum.
fn plus(network: &mut Network, x: Id, offset: f32) -> Option<Id> {
    let inner = network.applications(x).find_map(|(op, c)| match op {
        Op::Binary(BinaryOp::Add) => network.scalar(c[1]).filter(|_| network.rank(c[1]) == 0).map(|v| (c[0], v)),
        _ => None,
    });
    let (x, offset) = inner.map_or((x, offset), |(inner, v)| (inner, v + offset));
    if offset == 0.0 {
        return Some(x);
    }
    let offset = network.scalar_f32(offset);
    network.binary(BinaryOp::Add, x, offset)
}

/// Returns true for sums of products of bytes or of i16, perhaps with terms in i32.
pub fn is_byte_product(network: &Network, id: Id, depth: usize) -> bool {
    depth > 0
        && network.applications(id).any(|(op, c)| match op {
            Op::Conv { .. } | Op::MatMul { .. } => {
                matches!(network.ty(c[0]).dtype, DType::I8 | DType::U8 | DType::I16)
            }
            Op::Binary(BinaryOp::Add) => c.iter().any(|&o| is_byte_product(network, o, depth - 1)),
            _ => false,
        })
}
