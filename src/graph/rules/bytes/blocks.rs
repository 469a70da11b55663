//! Products of few rows of f32 with weights of 8 or 4 bits that have a scale for each block of terms, as products of bytes.
//!
//! In each block of a row, numbers are whole numbers of a unit of the block, and these have up to three digits in base 256, from -128
//! to 127: three where the product is one of f32, fewer where the file permits it ([`Op::BlockProduct`]). The sums of a block are exact in i32; the
//! block's scale and unit follow in the same kernel. Weights that have 16 neighbouring values in each block of a column, such as those of 4 bits less a
//! zero point, stay numbers of 4 bits, two in a byte, which are taken apart in registers: the product takes little longer than
//! reading them. Zero points are a term of each block's sum, the sum of its digits times the zero point.
//!
//! A number is as exact as the largest one of its block: [`ERRORS`]. Where a block has not-a-numbers or infinities, so have the
//! results of its row. Targets without products of bytes may have those of numbers of 4 bits; else they widen the weights for a single row, and
//! multiply f32 for more.

use crate::expr::{BinaryOp, UnaryOp};
use crate::graph::cost::group;
use crate::graph::egraph::network::Network;
use crate::graph::op::{Op, ReduceOp};
use crate::graph::rules::bytes::digits::{LEAST, units};
use crate::graph::rules::bytes::expanded::{few_rows_of_blocks, few_rows_of_columns, sum_of_blocks};
use crate::graph::rules::bytes::numbers::MOST_TERMS;
use crate::graph::rules::pattern::Match;
use crate::runtime::{DType, Tensor};
use egg::Id;
use std::sync::Arc;

/// The error of a result with one, two and three digits, relative to the largest |x| and the sum of |w|: half a unit of the largest
/// block, and as much for the sum of the blocks.
const ERRORS: [f64; 3] = [1.0 / (1 << 7) as f64, 1.0 / (1 << 15) as f64, 1.0 / (1 << 21) as f64];
/// Digits of a product of f32.
const OF_FLOATS: i64 = 3;
/// The largest sizes of whole numbers of one digit, and of two, from -128 to 127 each.
const LARGEST: [i32; 2] = [127, 127 * 256 + 127];
/// Bits of the size of a whole number of three digits.
const BITS: i32 = 22;
/// Zero point of numbers of 8 bits that are stored without a sign, and of numbers of 4 bits.
const MIDDLE: [i32; 2] = [128, 8];

/// The product that an importer made, which targets compute in digits, or else with weights in f32 or widened ones.
pub fn block_product(network: &mut Network, m: &Match) -> Option<Id> {
    let (&Op::BlockProduct { digits, packed: false }, operands) = m.application('p') else { return None };
    let &[x, weights, scales] = operands else { return None };
    let (&[rows, blocks, terms], &[_, columns]) = (network.shape(x), network.shape(scales)) else { return None };
    // Of several rows in f32 the price decides: the product below is one that other rules see.
    if (rows == 1 || digits < OF_FLOATS)
        && let Some(product) = in_digits(network, [x, weights, scales], digits)
    {
        return Some(product);
    }
    let scales = network.reshape(scales, &[blocks, 1, columns])?;
    if rows == 1 {
        let parts = network.transpose(x, &[1, 0, 2])?;
        return sum_of_blocks(network, parts, weights, scales);
    }
    let wide = network.op(Op::Cast(DType::F32), &[weights])?;
    let weights = network.binary(BinaryOp::Mul, wide, scales)?;
    let weights = network.reshape(weights, &[blocks * terms, columns])?;
    let x = network.reshape(x, &[rows, blocks * terms])?;
    network.op(Op::MatMul { transpose_a: false, transpose_b: false }, &[x, weights])
}

/// A product of few rows of f32 with constant numbers of 8 bits whose columns have a scale for each block of rows, or with numbers of 4 bits
/// whose columns are one block each.
pub fn matmul_in_digits(network: &mut Network, m: &Match) -> Option<Id> {
    type_of_weights(network)?;
    let (x, weights, scales) = few_rows_of_blocks(network, m).or_else(|| rows_of_one_block(network, m))?;
    let &[blocks, _, columns] = network.shape(weights) else { return None };
    let scales = network.reshape(scales, &[blocks, columns])?;
    let product = in_digits(network, [x, weights, scales], OF_FLOATS)?;
    let shape = network.shape(m.class).to_vec();
    network.reshape(product, &shape)
}

/// The rows (rows, 1, terms), numbers of 4 bits (1, terms, columns) and scales (1, columns) of a product of few rows whose weights have a scale
/// for each column.
fn rows_of_one_block(network: &mut Network, m: &Match) -> Option<(Id, Id, Id)> {
    let (x, number, scale) = few_rows_of_columns(network, m)?;
    let tensor = network.value(number).filter(|t| t.dtype == DType::I8)?.clone();
    let &[terms, columns] = &tensor.shape[..] else { return None };
    let in_bytes = terms % (2 * group(DType::I8)) == 0;
    let numbers = Tensor { shape: vec![1, terms, columns], ..Tensor::clone(&tensor) };
    if !in_bytes || network.shape(scale) != [columns] || zero_points(&numbers).is_none() {
        return None;
    }
    let rows: i64 = network.shape(m.class).iter().rev().skip(1).product();
    let numbers = network.constant(Arc::new(numbers));
    Some((network.reshape(x, &[rows, 1, terms])?, numbers, network.reshape(scale, &[1, columns])?))
}

/// The type of weights that the target multiplies with digits in i8: with all numbers of that type, or with those of 4 bits.
fn type_of_weights(network: &Network) -> Option<DType> {
    network.byte_products.or(network.four_bit_products.then_some(DType::U8))
}

/// The product of `x` (rows, blocks, terms) in f32 with constant weights (blocks, terms, columns) in i8 and scales (blocks, columns), in so many
/// digits.
fn in_digits(network: &mut Network, [x, weights, scales]: [Id; 3], count: i64) -> Option<Id> {
    let first = type_of_weights(network)?;
    let (&[rows, blocks, terms], DType::F32) = (network.shape(x), network.ty(x).dtype) else { return None };
    let error = *ERRORS.get(count as usize - 1)?;
    // Fewer digits than those of f32 are what the file permits, whatever their error.
    let permitted = if count < OF_FLOATS { network.max_error > 0.0 } else { network.max_error >= error };
    if !permitted || terms > MOST_TERMS || terms % group(first) != 0 {
        return None;
    }
    let weights = Weights::of(network, weights, first)?;
    if network.byte_products.is_none() && !weights.packed {
        return None;
    }
    let unit = match count {
        OF_FLOATS => units(network, x, BITS)?,
        _ => units_of(network, x, LARGEST[count as usize - 1])?,
    };
    let digits = digits(network, x, unit, count)?;
    let wide = network.op(Op::Cast(DType::I32), &[digits])?;
    let sums = network.op(Op::Reduce { op: ReduceOp::Sum, axes: vec![3], keep: false }, &[wide])?;
    let less =
        network.constant(Arc::new(Tensor::new(&[], &[if weights.zeros.is_some() { -1 } else { -weights.zero }])));
    let offsets = network.binary(BinaryOp::Mul, sums, less)?;
    let unit = network.reshape(unit, &[1, rows, blocks])?;
    let powers: Vec<f32> = (0..count).rev().map(|place| (1 << (8 * place)) as f32).collect();
    let places = network.constant(Arc::new(Tensor::new(&[count, 1, 1], &powers)));
    let factors = network.binary(BinaryOp::Mul, places, unit)?;
    let all = [digits, factors, offsets].into_iter().zip([vec![terms], vec![], vec![]]);
    let of_rows = all.map(|(id, last)| network.reshape(id, &[vec![count * rows, blocks], last].concat()));
    let &[digits, factors, offsets] = &of_rows.collect::<Option<Vec<Id>>>()?[..] else { return None };
    let mut operands = vec![digits, weights.numbers, scales, factors, offsets];
    operands.extend(weights.zeros);
    let product = network.op(Op::BlockProduct { digits: count, packed: weights.packed }, &operands)?;
    if count == 1 {
        return Some(product);
    }
    let columns = network.shape(product)[1];
    let product = network.reshape(product, &[count, rows, columns])?;
    network.op(Op::Reduce { op: ReduceOp::Sum, axes: vec![0], keep: false }, &[product])
}

/// The unit of each block, so that its largest number is so many units; not-a-number where one of them is.
fn units_of(network: &mut Network, x: Id, largest: i32) -> Option<Id> {
    let sizes = network.unary(UnaryOp::Abs, x)?;
    let axis = network.rank(x) - 1;
    let most = network.op(Op::Reduce { op: ReduceOp::Max, axes: vec![axis], keep: true }, &[sizes])?;
    let least = network.scalar_f32(LEAST);
    let most = network.binary(BinaryOp::Max, most, least)?;
    let share = network.scalar_f32(1.0 / largest as f32);
    network.binary(BinaryOp::Mul, most, share)
}

/// The digits of each number of `x` in its unit as so many tensors of i8 in one, the highest first.
fn digits(network: &mut Network, x: Id, unit: Id, count: i64) -> Option<Id> {
    let one = network.scalar_f32(1.0);
    let inverse = network.binary(BinaryOp::Div, one, unit)?;
    let mut x = network.binary(BinaryOp::Mul, x, inverse)?;
    x = network.unary(UnaryOp::Round, x)?;
    x = network.op(Op::Cast(DType::I32), &[x])?;
    let shape = [&[1], network.shape(x)].concat();
    x = network.reshape(x, &shape)?;
    if count > 1 {
        // Digits from -128 to 127 are those from 0 to 255 of a number that is larger by 128 in each place.
        let middle = |network: &mut Network, v: i32| network.constant(Arc::new(Tensor::new(&[], &[v])));
        let all = middle(network, (0..count).map(|place| 128 << (8 * place)).sum());
        x = network.binary(BinaryOp::Add, x, all)?;
        let amounts: Vec<i32> = (0..count as i32).rev().map(|place| 8 * place).collect();
        let amounts = network.constant(Arc::new(Tensor::new(&[count, 1, 1, 1], &amounts)));
        x = network.binary(BinaryOp::ShiftRight, x, amounts)?;
        let low = middle(network, 255);
        x = network.binary(BinaryOp::And, x, low)?;
        let one = middle(network, 128);
        x = network.binary(BinaryOp::Sub, x, one)?;
    }
    network.op(Op::Cast(DType::I8), &[x])
}

/// Weights as an instruction multiplies them with numbers in i8.
struct Weights {
    numbers: Id,
    /// Two numbers of 4 bits in a byte.
    packed: bool,
    /// The zero point of all numbers, or those of each block of a column.
    zero: i32,
    zeros: Option<Id>,
}

impl Weights {
    /// Constant numbers (blocks, terms, columns) in i8; `first` is the type of the first operand of the products of bytes, of which the
    /// second one is i8. The other way round the second one has that type.
    fn of(network: &mut Network, id: Id, first: DType) -> Option<Weights> {
        let tensor = network.value(id).filter(|t| t.dtype == DType::I8)?.clone();
        let &[blocks, terms, columns] = &tensor.shape[..] else { return None };
        let constant = |network: &mut Network, data: Vec<u8>, terms: i64| {
            let mut numbers = Tensor::zeros(first, &[blocks, terms, columns]);
            numbers.data.copy_from_slice(&data);
            network.constant(Arc::new(numbers))
        };
        if let Some((zero, zeros)) = zero_points(&tensor).filter(|_| terms % (2 * group(first)) == 0) {
            let packed = packed(&tensor, zero, zeros.as_deref());
            let numbers = constant(network, packed, terms / 2);
            let zeros = zeros.map(|z| network.constant(Arc::new(Tensor::new(&[blocks, columns], &z))));
            return Some(Weights { numbers, packed: true, zero, zeros });
        }
        let (top, zero) = if first == DType::U8 { (128, MIDDLE[0]) } else { (0, 0) };
        let numbers = constant(network, tensor.data.iter().map(|v| v ^ top).collect(), terms);
        Some(Weights { numbers, packed: false, zero, zeros: None })
    }
}

/// The zero point with which all numbers have 4 bits without a sign, or the zero point of each block of each column where there
/// is none for all; `None` where numbers have more bits.
fn zero_points(tensor: &Tensor) -> Option<(i32, Option<Vec<u8>>)> {
    let &[_, terms, columns] = &tensor.shape[..] else { return None };
    let numbers = || tensor.data.iter().map(|&v| i32::from(v as i8));
    let (low, high) = numbers().fold((0, 0), |(low, high), v| (v.min(low), v.max(high)));
    if low >= -MIDDLE[1] && high < 16 - MIDDLE[1] {
        return Some((MIDDLE[1], None));
    }
    if high - low > 30 {
        return None;
    }
    let mut zeros = vec![];
    for block in tensor.data.chunks_exact((terms * columns) as usize) {
        let mut range = vec![(0i32, 0i32); columns as usize];
        for row in block.chunks_exact(columns as usize) {
            for (range, &v) in range.iter_mut().zip(row) {
                *range = (range.0.min(i32::from(v as i8)), range.1.max(i32::from(v as i8)));
            }
        }
        for (low, high) in range {
            zeros.push(u8::try_from(-low).ok().filter(|_| high - low < 16)?);
        }
    }
    Some((0, Some(zeros)))
}

/// Numbers of 4 bits, each the number and its zero point: the first half of the terms of a block in the low bits of bytes, the other
/// half in the high ones.
fn packed(tensor: &Tensor, zero: i32, zeros: Option<&[u8]>) -> Vec<u8> {
    let (terms, columns) = (tensor.shape[1] as usize, tensor.shape[2] as usize);
    let mut out = Vec::with_capacity(tensor.data.len() / 2);
    for (b, block) in tensor.data.chunks_exact(terms * columns).enumerate() {
        let (low, high) = block.split_at(terms / 2 * columns);
        let zero = |i: usize| zeros.map_or(zero as u8, |z| z[b * columns + i % columns]);
        let each = low.iter().zip(high).enumerate();
        out.extend(each.map(|(i, (l, h))| l.wrapping_add(zero(i)) | h.wrapping_add(zero(i)) << 4));
    }
    out
}
