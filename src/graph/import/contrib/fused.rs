//! Products and convolutions with what follows them, activations.

use crate::expr::interval::ceil_div;
use crate::expr::{BinaryOp, UnaryOp};
use crate::graph::cost::FEW_ROWS;
use crate::graph::import::convolution::conv_window;
use crate::graph::import::importer::Importer;
use crate::graph::import::node::Source;
use crate::graph::ir::ValueId;
use crate::graph::op::{F32, Layout, Op};
use crate::runtime::{DType, Error, Result, Tensor};

/// Numbers that an activation takes, by name of the attribute or by place in `activation_params`.
fn parameter(n: &Source, place: usize, name: &str, default: f32) -> f64 {
    let listed = n.floats("activation_params").and_then(|p| p.get(place).copied());
    f64::from(listed.unwrap_or_else(|| n.float(name, default)))
}

/// The activation that a fused node names.
fn activated(g: &mut Importer, n: &Source, x: ValueId) -> Result<ValueId> {
    match n.string("activation", "").as_str() {
        "" => Ok(x),
        "Relu" => {
            let zero = g.scalar_like(x, 0.0)?;
            g.binary(BinaryOp::Max, x, zero)
        }
        "Tanh" => g.unary(UnaryOp::Tanh, x),
        "Sigmoid" => g.emit(Op::Sigmoid, &[x]),
        "LeakyRelu" => {
            let slope = g.scalar_like(x, parameter(n, 0, "activation_alpha", 0.01))?;
            g.emit(Op::PRelu, &[x, slope])
        }
        "HardSigmoid" => {
            let alpha = F32::new(parameter(n, 0, "activation_alpha", 0.2) as f32);
            let beta = F32::new(parameter(n, 1, "activation_beta", 0.5) as f32);
            g.emit(Op::HardSigmoid { alpha, beta }, &[x])
        }
        "Clip" => {
            let low = parameter(n, 0, "activation_alpha", f32::MIN);
            let high = parameter(n, 1, "activation_beta", f32::MAX);
            g.clamp(x, low, high)
        }
        other => Err(Error::Unsupported(format!("the activation `{other}`"))),
    }
}

/// `alpha · A · B`, where operands may be transposed: their last two dimensions, or the first of a batch to the last but one.
pub(in crate::graph::import) fn matmul(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let mut turned = |i: usize, last: &str, batch: &str| -> Result<ValueId> {
        let x = n.input(i)?;
        let rank = g.rank(x);
        let mut order: Vec<usize> = (0..rank).collect();
        if n.flag(batch, false) && rank > 2 {
            let first = order.remove(0);
            order.insert(rank - 2, first);
        }
        if n.flag(last, false) && rank >= 2 {
            order.swap(rank - 2, rank - 1);
        }
        g.permuted(x, &order)
    };
    let (a, b) = (turned(0, "transA", "transBatchA")?, turned(1, "transB", "transBatchB")?);
    let y = g.product(a, b)?;
    Ok(vec![g.times(y, f64::from(n.float("alpha", 1.0)))?])
}

pub(in crate::graph::import) fn gemm(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let y = crate::graph::import::reduction::gemm(g, n)?[0];
    Ok(vec![activated(g, n, y)?])
}

/// A convolution, plus another tensor, under an activation.
pub(in crate::graph::import) fn conv(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, w) = (n.input(0)?, n.input(1)?);
    let (bias, other) = (n.optional(2), n.optional(3));
    let mut y = convolution(g, n, [Some(x), Some(w), bias])?;
    if let Some(other) = other {
        y = g.add(y, other)?;
    }
    Ok(vec![activated(g, n, y)?])
}

fn convolution(g: &mut Importer, n: &Source, [x, w, bias]: [Option<ValueId>; 3]) -> Result<ValueId> {
    let (Some(image), Some(weights)) = (x, w) else { return Err(Error::Invalid("an operand is missing".into())) };
    let window = conv_window(g, n, image, g.shape(weights))?;
    let operands: Vec<ValueId> = [x, w, bias].into_iter().flatten().collect();
    g.emit(Op::Conv { window, group: n.int("group", 1), layout: Layout::Nchw }, &operands)
}

/// A convolution of an image whose channels are its last dimension.
pub(in crate::graph::import) fn nhwc_conv(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, w, bias) = (n.input(0)?, n.input(1)?, n.optional(2));
    let rank = g.rank(x);
    if rank < 3 {
        return Err(Error::Invalid(format!("an image of shape {:?} has fewer than 3 dimensions", g.shape(x))));
    }
    let first: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    let last: Vec<usize> = std::iter::once(0).chain(2..rank).chain([1]).collect();
    let x = g.permuted(x, &first)?;
    let y = convolution(g, n, [Some(x), Some(w), bias])?;
    let y = g.permuted(y, &last)?;
    Ok(vec![activated(g, n, y)?])
}

/// `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))` of the operand plus a bias.
pub(in crate::graph::import) fn fast_gelu(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = biased(g, n)?;
    Ok(vec![g.gelu_by_tanh(x)?])
}

/// `Gelu` of the sum of the operands.
pub(in crate::graph::import) fn bias_gelu(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = biased(g, n)?;
    Ok(vec![g.emit(Op::Gelu, &[x])?])
}

/// The sum of the first two operands, of which the second may be absent.
fn biased(g: &mut Importer, n: &Source) -> Result<ValueId> {
    let x = n.input(0)?;
    n.optional(1).map_or(Ok(x), |bias| g.add(x, bias))
}

/// `x · sigmoid(alpha · x)`.
pub(in crate::graph::import) fn quick_gelu(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let scaled = g.times(x, f64::from(n.float("alpha", 1.702)))?;
    let gate = g.emit(Op::Sigmoid, &[scaled])?;
    Ok(vec![g.mul(x, gate)?])
}

/// The digits of 8 bits that the rows of `MatMulNBits` may be rounded to in each block. Without a level, or with that of f32, they keep
/// their precision; f16 and bf16 have less than two digits.
fn permitted_digits(accuracy_level: i64) -> i64 {
    match accuracy_level {
        4 => 1,
        2 | 3 => 2,
        _ => 3,
    }
}

/// Few rows by a matrix of i8, `(blocks, block, columns)`, with a scale for each block of each column. The rows may be rounded to so many
/// digits of 8 bits in each block.
fn rows_by_blocks(
    g: &mut Importer,
    a: ValueId,
    (weights, scales): (Tensor, &[f32]),
    digits: i64,
    bias: Option<ValueId>,
) -> Result<ValueId> {
    let (blocks, block, columns) = (weights.shape[0], weights.shape[1], weights.shape[2]);
    let mut shape = g.shape(a).to_vec();
    let (dtype, count) = (g.ty(a).dtype, rows(g, a));
    let a = g.cast_to(a, DType::F32)?;
    let weights = g.constant(weights);
    let by_block = (0..blocks).flat_map(|b| (0..columns).map(move |c| (c * blocks + b) as usize));
    let scales: Vec<f32> = by_block.map(|i| scales[i]).collect();
    let a = g.reshape_to(a, vec![count, blocks, block])?;
    let scales = g.constant(Tensor::new(&[blocks, columns], &scales));
    let sum = g.emit(Op::BlockProduct { digits, packed: false }, &[a, weights, scales])?;
    if let Some(last) = shape.last_mut() {
        *last = columns;
    }
    let y = g.reshape_to(sum, shape)?;
    let y = g.cast_to(y, dtype)?;
    match bias {
        Some(bias) => g.add(y, bias),
        None => Ok(y),
    }
}

/// The rows of a matrix, or of several.
fn rows(g: &Importer, a: ValueId) -> i64 {
    g.shape(a).iter().rev().skip(1).product()
}

/// A product with a matrix whose columns are blocks of 2, 4 or 8 bits with a scale each. The matrix is unpacked when the model is
/// imported: to f32, or to i8 for few rows, which are multiplied in about the time that reading the weights takes.
pub(in crate::graph::import) fn matmul_n_bits(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (a, packed, scales, zeros) = (n.input(0)?, n.input(1)?, n.input(2)?, n.optional(3));
    let (order, bias) = (n.optional(4), n.optional(5));
    let (k, columns, bits, block) = (n.int("K", 0), n.int("N", 0), n.int("bits", 4), n.int("block_size", 32));
    if order.is_some() {
        return Err(Error::Unsupported("an order of groups (g_idx)".into()));
    }
    let sizes = [(k, 1 << 24), (columns, 1 << 24), (block, 1 << 16)];
    if sizes.iter().any(|&(v, most)| !(1..=most).contains(&v)) || ![2, 4, 8].contains(&bits) || block * bits % 8 != 0 {
        return Err(Error::Invalid(format!(
            "N = {columns}, K = {k}, bits = {bits} and block_size = {block} do not fit: elements have 2, 4 or 8 bits, blocks whole bytes"
        )));
    }
    let blocks = ceil_div(k, block);
    let constant = |g: &Importer, id: ValueId, what: &str| -> Result<std::sync::Arc<Tensor>> {
        let tensor = g.graph.constant(id).cloned();
        tensor.ok_or_else(|| Error::Unsupported(format!("its {what} depends on the values of inputs")))
    };
    let (bytes, scales) = (constant(g, packed, "weights")?, g.floats(scales, "scales")?);
    let size = block * bits / 8;
    let zero_row = (blocks * bits + 7) / 8;
    let (zero_bytes, zero_numbers) = match zeros {
        Some(z) if g.ty(z).dtype == DType::U8 => (Some(constant(g, z, "zero points")?), None),
        Some(z) => (None, Some(g.floats(z, "zero points")?)),
        None => (None, None),
    };
    let fits = bytes.dtype == DType::U8
        && bytes.data.len() as i64 == columns * blocks * size
        && scales.len() as i64 == columns * blocks
        && zero_bytes.as_ref().is_none_or(|z| z.data.len() as i64 == columns * zero_row)
        && zero_numbers.as_ref().is_none_or(|z| z.len() as i64 == columns * blocks);
    if !fits {
        return Err(Error::Invalid("weights, scales or zero points do not fit".into()));
    }
    let few = (1..=FEW_ROWS).contains(&rows(g, a)) && k % block == 0 && zero_numbers.is_none();
    g.claim(&[columns, k], DType::F32)?;
    let number = |data: &[u8], i: i64| {
        let bit = i * bits;
        i64::from(data[(bit / 8) as usize] >> (bit % 8)) & ((1 << bits) - 1)
    };
    if few {
        let zero = |column: i64, part: i64| match &zero_bytes {
            Some(z) => number(&z.data[(column * zero_row) as usize..], part),
            None => 1 << (bits - 1),
        };
        let centred = |i: i64, column: i64| {
            let byte = ((column * blocks + i / block) * size) as usize;
            number(&bytes.data[byte..], i % block) - zero(column, i / block)
        };
        let places = (0..k).flat_map(|i| (0..columns).map(move |column| (i, column)));
        let numbers: Option<Vec<i8>> = places.map(|(i, column)| i8::try_from(centred(i, column)).ok()).collect();
        if let Some(numbers) = numbers {
            let weights = Tensor::new(&[blocks, block, columns], &numbers);
            let digits = permitted_digits(n.int("accuracy_level", 0));
            return Ok(vec![rows_by_blocks(g, a, (weights, &scales), digits, bias)?]);
        }
    }
    let mut values = Vec::with_capacity((columns * k) as usize);
    for column in 0..columns {
        for i in 0..k {
            let block_index = column * blocks + i / block;
            let zero = match (&zero_bytes, &zero_numbers) {
                (Some(z), _) => number(&z.data[(column * zero_row) as usize..], i / block) as f32,
                (_, Some(z)) => z[block_index as usize],
                _ => (1 << (bits - 1)) as f32,
            };
            let value = number(&bytes.data[(block_index * size) as usize..], i % block) as f32;
            values.push((value - zero) * scales[block_index as usize]);
        }
    }
    let weights = g.constant(Tensor::new(&[columns, k], &values));
    let weights = g.cast_to(weights, g.ty(a).dtype)?;
    let mut y = g.matmul(a, weights, true)?;
    if let Some(bias) = bias {
        y = g.add(y, bias)?;
    }
    Ok(vec![y])
}
