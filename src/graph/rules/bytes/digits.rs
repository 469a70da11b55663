//! Products of few rows of f32 with weights of 8 bits, as products of bytes: each row is made of whole numbers of 24 bits, and these of
//! three digits in base 256.
//!
//! With `s = 2^e` so that every `|x| / s < 2^23`, `x` is `s·(256²·d₂ + 256·d₁ + d₀)` but for half of `s`, and `Σ x·w` is the same sum
//! of the three `Σ d·w`, which are exact in i32: an instruction takes four terms of a digit, and weights are not widened. A number
//! is as exact as the largest one of its row, within 2⁻²⁴ of it, where f32 rounds each by itself (after Ozaki et al., "Error-free
//! transformations of matrix multiplication by using fast routines of matrix multiplication", 2012, with a fixed number of digits). Where a row has
//! not-a-numbers or infinities, so have its results. These products stand beside those of f32, and the extraction takes the
//! cheaper ones.

use crate::expr::{BinaryOp, UnaryOp};
use crate::graph::egraph::network::Network;
use crate::graph::op::{Op, ReduceOp};
use crate::graph::rules::bytes::expanded::few_rows_of_columns;
use crate::graph::rules::bytes::numbers::{MOST_TERMS, Number, Zero, of_type};
use crate::graph::rules::pattern::Match;
use crate::runtime::{DType, Tensor};
use egg::Id;
use std::sync::Arc;

/// The error of a result, relative to the largest |x| of its row and the sum of |w|: half a unit of the digits, and as much for
/// the sum of the three.
const ERROR: f64 = 1.0 / (1 << 22) as f64;
/// Bits of the size of a number in units.
const BITS: i32 = 23;
/// Bound of the units of a number, from `-OFFSET` to `OFFSET - 1`: the digits are those of the units and this.
const OFFSET: i32 = 1 << BITS;
/// The exponent of an f32 among its bits.
const EXPONENT: i32 = 0x7f80_0000;
/// A size below which the numbers of a row are digits of this size: smaller units would be subnormal.
pub const LEAST: f32 = 1.0 / (1u128 << 100) as f32;

/// A product of few rows with constant numbers of 8 bits that have a scale for each column.
pub fn in_digits(network: &mut Network, m: &Match) -> Option<Id> {
    let first = network.byte_products?;
    let (x, weights, scale) = few_rows_of_columns(network, m)?;
    let (terms, columns) = (network.shape(weights)[0], network.shape(weights)[1]);
    if network.max_error < ERROR || terms > MOST_TERMS {
        return None;
    }
    let shape = network.shape(m.class).to_vec();
    let rows: i64 = shape.iter().rev().skip(1).product();
    let x = network.reshape(x, &[rows, terms])?;
    let unit = units(network, x, BITS)?;
    let (digits, zeros) = digits(network, x, unit, first)?;
    let digits = network.reshape(digits, &[3 * rows, terms])?;
    let product = Op::MatMul { transpose_a: false, transpose_b: false };
    let sums = network.op(product, &[digits, weights])?;
    let sums = network.reshape(sums, &[3, rows, columns])?;
    let wide = network.op(Op::Cast(DType::I32), &[weights])?;
    let of_columns = network.op(Op::Reduce { op: ReduceOp::Sum, axes: vec![0], keep: false }, &[wide])?;
    let less = network.constant(Arc::new(Tensor::new(&[3, 1, 1], &zeros.map(|zero| -zero))));
    let correction = network.binary(BinaryOp::Mul, less, of_columns)?;
    let sums = network.binary(BinaryOp::Add, sums, correction)?;
    let sums = network.op(Op::Cast(DType::F32), &[sums])?;
    let places = network.constant(Arc::new(Tensor::new(&[3, 1, 1], &[65536f32, 256.0, 1.0])));
    let sums = network.binary(BinaryOp::Mul, sums, places)?;
    let sum = network.op(Op::Reduce { op: ReduceOp::Sum, axes: vec![0], keep: false }, &[sums])?;
    let sum = network.binary(BinaryOp::Mul, sum, unit)?;
    let sum = network.binary(BinaryOp::Mul, sum, scale)?;
    network.reshape(sum, &shape)
}

/// The unit of each row along the last dimension: a power of two, so that each number is less than 2^`size` units; not-a-number where one
/// of them is.
pub fn units(network: &mut Network, x: Id, size: i32) -> Option<Id> {
    let sizes = network.unary(UnaryOp::Abs, x)?;
    let axis = network.rank(x) - 1;
    let largest = network.op(Op::Reduce { op: ReduceOp::Max, axes: vec![axis], keep: true }, &[sizes])?;
    let least = network.scalar_f32(LEAST);
    let largest = network.binary(BinaryOp::Max, largest, least)?;
    let bits = network.op(Op::Bitcast(DType::I32), &[largest])?;
    let mask = network.constant(Arc::new(Tensor::new(&[], &[EXPONENT])));
    let exponent = network.binary(BinaryOp::And, bits, mask)?;
    let power = network.op(Op::Bitcast(DType::F32), &[exponent])?;
    let share = network.scalar_f32(2.0 / (1i64 << size) as f32);
    let unit = network.binary(BinaryOp::Mul, power, share)?;
    network.binary(BinaryOp::Min, unit, largest)
}

/// The digits of each number of `rows×terms` in its unit as `3×rows×terms` numbers of 8 bits, the highest first, and the zero points
/// of the three.
fn digits(network: &mut Network, x: Id, unit: Id, first: DType) -> Option<(Id, [i32; 3])> {
    let one = network.scalar_f32(1.0);
    let inverse = network.binary(BinaryOp::Div, one, unit)?;
    let mut x = network.binary(BinaryOp::Mul, x, inverse)?;
    x = network.unary(UnaryOp::Round, x)?;
    let last = network.scalar_f32((OFFSET - 1) as f32);
    x = network.binary(BinaryOp::Min, x, last)?;
    x = network.op(Op::Cast(DType::I32), &[x])?;
    let offset = network.constant(Arc::new(Tensor::new(&[], &[OFFSET])));
    x = network.binary(BinaryOp::Add, x, offset)?;
    let places = network.constant(Arc::new(Tensor::new(&[3, 1, 1], &[16i32, 8, 0])));
    x = network.binary(BinaryOp::ShiftRight, x, places)?;
    let low = network.constant(Arc::new(Tensor::new(&[], &[255i32])));
    x = network.binary(BinaryOp::And, x, low)?;
    x = network.op(Op::Cast(DType::U8), &[x])?;
    let Number { number, zero: Zero::Known(zero) } = of_type(network, x, Zero::Known(0), first)? else { return None };
    Some((number, [zero + 128, zero, zero]))
}
