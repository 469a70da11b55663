//! Products of few rows in f32 with weights of 8 bits, which are widened in registers.
//!
//! Such a product takes as long as its weights take to read: `Σ x·(w·s)` is `(Σ x·w)·s`, where a scale belongs to a column, and
//! a sum of such products, where it belongs to a block of rows. These products stand beside those of f32, and the extraction takes
//! the cheaper ones.

use crate::expr::BinaryOp;
use crate::graph::cost::FEW_ROWS;
use crate::graph::egraph::network::Network;
use crate::graph::op::{Op, ReduceOp};
use crate::graph::rules::bytes::numbers::{Weights, weights};
use crate::graph::rules::pattern::Match;
use crate::runtime::DType;
use egg::Id;

/// A product of few rows with constant numbers of 8 bits times scales.
pub fn expanded(network: &mut Network, m: &Match) -> Option<Id> {
    if let Some((x, number, scale)) = few_rows_of_columns(network, m) {
        let sums = network.op(Op::MatMul { transpose_a: false, transpose_b: false }, &[x, number])?;
        return network.binary(BinaryOp::Mul, sums, scale);
    }
    let (x, number, scale) = few_rows_of_blocks(network, m)?;
    let parts = network.transpose(x, &[1, 0, 2])?;
    let sum = sum_of_blocks(network, parts, number, scale)?;
    let shape = network.shape(m.class).to_vec();
    network.reshape(sum, &shape)
}

/// The operands of a product in f32 of few rows with a constant matrix.
fn few_rows(network: &Network, m: &Match) -> Option<[Id; 2]> {
    let (Op::MatMul { transpose_a: false, transpose_b: false }, operands) = m.application('m') else { return None };
    let (x, w) = (operands[0], operands[1]);
    let rows: i64 = network.shape(m.class).iter().rev().skip(1).product();
    let of_floats = [x, m.class].iter().all(|&id| network.ty(id).dtype == DType::F32);
    let few = of_floats && !network.is_constant(x) && network.rank(w) == 2 && rows <= FEW_ROWS;
    few.then_some([x, w])
}

/// The rows, numbers and scales of such a product whose weights are numbers in i8 with a scale for each column, or one for all.
pub fn few_rows_of_columns(network: &mut Network, m: &Match) -> Option<(Id, Id, Id)> {
    let [x, w] = few_rows(network, m)?;
    let Weights { number, scale: Some(scale) } = weights(network, w)? else { return None };
    let columns = *network.shape(number).last()?;
    let shape = network.shape(scale);
    let scale = match shape.iter().product::<i64>() {
        1 => network.reshape(scale, &[])?,
        count if count == columns && shape.last() == Some(&columns) => network.reshape(scale, &[columns])?,
        _ => return None,
    };
    Some((x, number, scale))
}

/// The rows (rows, blocks, terms), numbers (blocks, terms, columns) and scales (blocks, 1, columns) of such a product whose weights are numbers in i8
/// that have a scale for each block of rows.
pub fn few_rows_of_blocks(network: &mut Network, m: &Match) -> Option<(Id, Id, Id)> {
    let [x, w] = few_rows(network, m)?;
    if weights(network, w).is_some() {
        return None;
    }
    let blocked = network.applications(w).find_map(|(op, c)| match op {
        Op::Reshape { .. } if network.rank(c[0]) == 3 => Some(c[0]),
        _ => None,
    })?;
    let [blocks, block, columns] = network.shape(blocked)[..] else { return None };
    if network.shape(w) != [blocks * block, columns] {
        return None;
    }
    let Weights { number, scale: Some(scale) } = weights(network, blocked)? else { return None };
    if network.shape(scale) != [blocks, 1, columns] {
        return None;
    }
    let rows: i64 = network.shape(m.class).iter().rev().skip(1).product();
    let x = network.reshape(x, &[rows, blocks, block])?;
    Some((x, number, scale))
}

/// A product for each block, and the sum of these times their scales: `(blocks, rows, terms)` by `(blocks, terms, columns)`, scales
/// `(blocks, 1, columns)`.
pub fn sum_of_blocks(network: &mut Network, parts: Id, number: Id, scale: Id) -> Option<Id> {
    let sums = network.op(Op::MatMul { transpose_a: false, transpose_b: false }, &[parts, number])?;
    let sums = network.binary(BinaryOp::Mul, sums, scale)?;
    network.op(Op::Reduce { op: ReduceOp::Sum, axes: vec![0], keep: false }, &[sums])
}
