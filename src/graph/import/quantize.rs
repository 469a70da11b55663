//! Quantised operators: scales and zero points for a tensor, an axis or blocks of one, and products of integers.

use super::node::Source;
use super::storage::{PowerRounding, Rounding};
use super::tensor;
use crate::expr::scalar::storage::{Fields, integer};
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::import::importer::Importer;
use crate::graph::infer::infer;
use crate::graph::ir::ValueId;
use crate::graph::op::{Op, ReduceOp};
use crate::graph::proto::NodeProto;
use crate::graph::tensor_type::TensorType;
use crate::runtime::{DType, Error, Result, Tensor};

/// Scale and zero point of a tensor.
#[derive(Clone, Copy)]
pub(super) struct Quantised {
    pub scale: ValueId,
    pub zero: Option<ValueId>,
}

impl Importer<'_> {
    /// `round(x / scale) + zero` for one scale, as `to`.
    pub(super) fn quantised(&mut self, x: ValueId, by: Quantised, to: DType) -> Result<ValueId> {
        let (scale, zero) = (self.single(by.scale)?, by.zero.map(|z| self.single(z)).transpose()?);
        let quotient = self.binary(BinaryOp::Div, x, scale)?;
        to_integers(self, quotient, zero, to)
    }

    /// `(x - zero) · scale` for one scale, in f32.
    pub(super) fn dequantised(&mut self, x: ValueId, by: Quantised) -> Result<ValueId> {
        let (scale, zero) = (self.single(by.scale)?, by.zero.map(|z| self.single(z)).transpose()?);
        reals_of(self, x, Quantised { scale, zero })
    }

    /// As [`Importer::emit`], of constants too: the e-graph sees what they are made of before it folds them.
    fn emit_unfolded(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        let types = {
            let operands: Vec<&TensorType> = inputs.iter().map(|&i| self.ty(i)).collect();
            infer(&op, &operands)?
        };
        types.iter().try_for_each(|ty| self.claim(&ty.shape, ty.dtype))?;
        Ok(self.append(op, inputs, types)[0])
    }

    /// A value of one element without dimensions.
    pub(super) fn single(&mut self, x: ValueId) -> Result<ValueId> {
        match self.shape(x).iter().product::<i64>() {
            1 => self.reshape_to(x, vec![]),
            _ => Err(Error::Invalid(format!(
                "a scale or zero point of shape {:?} does not have one element",
                self.shape(x)
            ))),
        }
    }
}

/// The least and the greatest number of an integer type that tensors are quantised to.
fn range(dtype: DType) -> Option<(f64, f64)> {
    if let Some((bits, signed)) = integer(dtype) {
        let half = f64::from(1 << (bits - 1));
        return Some(if signed { (-half, half - 1.0) } else { (0.0, 2.0 * half - 1.0) });
    }
    match dtype {
        DType::I16 => Some((-32768.0, 32767.0)),
        DType::I8 => Some((-128.0, 127.0)),
        DType::U16 => Some((0.0, 65535.0)),
        DType::U8 => Some((0.0, 255.0)),
        _ => None,
    }
}

/// A scale or zero point that broadcasts to `shape`: one number, one for each place along the axis, or one for each block.
fn spread(g: &mut Importer, n: &Source, value: ValueId, shape: &[i64]) -> Result<ValueId> {
    let own = g.shape(value).to_vec();
    if own.iter().product::<i64>() == 1 {
        return g.single(value);
    }
    let axis = g.axis(n.int("axis", 1), shape.len())?;
    let block = n.int("block_size", 0);
    if block == 0 {
        if own != [shape[axis]] {
            return Err(Error::Invalid(format!(
                "a scale or zero point of shape {own:?} does not fit axis {axis} of {shape:?}"
            )));
        }
        let mut along = vec![1; shape.len()];
        along[axis] = shape[axis];
        return g.emit(Op::Reshape { shape: along }, &[value]);
    }
    let blocks = if block > 0 { (shape[axis] as u64).div_ceil(block as u64) as i64 } else { -1 };
    let fits = own.len() == shape.len() && (0..own.len()).all(|d| own[d] == if d == axis { blocks } else { shape[d] });
    if !fits {
        return Err(Error::Invalid(format!(
            "a scale or zero point of shape {own:?} for blocks of {block} of {shape:?}"
        )));
    }
    let mut split = own.clone();
    split.insert(axis + 1, 1);
    let value = g.emit(Op::Reshape { shape: split.clone() }, &[value])?;
    split[axis + 1] = block;
    let value = g.emit(Op::Expand { shape: split }, &[value])?;
    let mut whole = own;
    whole[axis] = blocks * block;
    let value = g.emit(Op::Reshape { shape: whole }, &[value])?;
    let cut = Op::Slice { starts: vec![0; shape.len()], ends: shape.to_vec(), steps: vec![1; shape.len()] };
    g.emit(cut, &[value])
}

/// `x / scale` rounded, and the zero point added, within the range of the type. In f32, where all sums that are in range
/// are exact.
fn to_integers(g: &mut Importer, quotient: ValueId, zero: Option<ValueId>, to: DType) -> Result<ValueId> {
    let (low, high) = range(to).ok_or_else(|| Error::Unsupported(format!("tensors quantised to {to}")))?;
    let quotient = g.cast_to(quotient, DType::F32)?;
    let mut value = g.unary(UnaryOp::Round, quotient)?;
    if let Some(zero) = other_than_zero(g, zero) {
        let zero = g.computable(zero)?;
        let zero = g.cast_to(zero, DType::F32)?;
        value = g.binary(BinaryOp::Add, value, zero)?;
    }
    let value = g.with_constant(BinaryOp::Max, value, low)?;
    let value = g.with_constant(BinaryOp::Min, value, high)?;
    g.converted(value, to, Rounding { saturate: true, scale: PowerRounding::Up })
}

/// A zero point, unless it is known to be 0 everywhere.
fn other_than_zero(g: &Importer, zero: Option<ValueId>) -> Option<ValueId> {
    zero.filter(|&z| g.graph.constant(z).is_none_or(|t| t.dtype.is_storage() || t.data.iter().any(|&byte| byte != 0)))
}

/// The type named by an attribute with the code of one; 0 names none.
fn named_type(n: &Source, attribute: &str) -> Result<Option<DType>> {
    match n.int(attribute, 0) {
        0 => Ok(None),
        code => Ok(Some(tensor::dtype(code as i32)?)),
    }
}

pub(super) fn quantize_linear(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, scale, zero) = (n.input(0)?, n.input(1)?, n.optional(2));
    let named = named_type(n, "output_dtype")?;
    let to = zero.map(|z| g.ty(z).dtype).or(named).unwrap_or(DType::U8);
    if named.is_some_and(|named| named != to) {
        return Err(Error::Invalid(format!("its output_dtype is not {to}, the type of its zero point")));
    }
    let shape = g.shape(x).to_vec();
    let scale = spread(g, n, scale, &shape)?;
    let zero = other_than_zero(g, zero).map(|z| spread(g, n, z, &shape)).transpose()?;
    let precision = named_type(n, "precision")?.unwrap_or(g.ty(scale).dtype);
    if let Some(numbers) = dequantised_from(g, x, scale, zero, to).filter(|_| precision == DType::F32) {
        return Ok(vec![numbers]);
    }
    let (x, scale) = (g.cast_to(x, precision)?, g.cast_to(scale, precision)?);
    let mut quotient = g.binary(BinaryOp::Div, x, scale)?;
    if Fields::of(to).is_none() {
        return Ok(vec![to_integers(g, quotient, zero, to)?]);
    }
    if let (DType::F4E2M1, Some(zero)) = (to, zero) {
        let zero = g.computable(zero)?;
        let zero = g.cast_to(zero, precision)?;
        quotient = g.binary(BinaryOp::Add, quotient, zero)?;
    }
    let rounding = Rounding { saturate: n.flag("saturate", true), scale: PowerRounding::Up };
    Ok(vec![g.converted(quotient, to, rounding)?])
}

/// The numbers of type `to` that `x` was made of with this very scale and zero point, where quantising it gives them again:
/// `(q - zero) · scale / scale` is off by less than a half for up to 16 bits, if the product is a normal number.
fn dequantised_from(g: &Importer, x: ValueId, scale: ValueId, zero: Option<ValueId>, to: DType) -> Option<ValueId> {
    let (least, greatest) = range(to)?;
    let sources = |value: ValueId, op: &Op| {
        let (node, _) = g.graph.producer(value)?;
        (node.op == *op).then_some(&node.inputs[..])
    };
    let same = |a: ValueId, b: ValueId| match (g.graph.constant(a), g.graph.constant(b)) {
        (Some(a), Some(b)) => (a.dtype, &a.shape, &a.data) == (b.dtype, &b.shape, &b.data),
        _ => false,
    };
    let &[offset, by] = sources(x, &Op::Binary(BinaryOp::Mul))? else { return None };
    let scales = g.graph.constant(scale).filter(|s| s.dtype == DType::F32)?.to_vec::<f32>();
    let most = (greatest - least) as f32;
    if !same(by, scale) || !scales.iter().all(|s| s.is_normal() && (s * most).is_finite()) {
        return None;
    }
    let number = match (zero, sources(offset, &Op::Binary(BinaryOp::Sub))) {
        (Some(zero), Some(&[number, own])) => {
            let (zero, own) = (g.graph.constant(zero)?, g.graph.constant(own)?);
            let equal = zero.shape == own.shape && reals(zero)? == reals(own)?;
            equal.then_some(number)?
        }
        (None, None) => offset,
        _ => return None,
    };
    let &[numbers] = sources(number, &Op::Cast(DType::F32))? else { return None };
    (g.ty(numbers).dtype == to && g.shape(numbers) == g.shape(x)).then_some(numbers)
}

/// The elements of a zero point of 8 or 16 bits, or as it is subtracted.
fn reals(zero: &Tensor) -> Option<Vec<f32>> {
    Some(match zero.dtype {
        DType::F32 => zero.to_vec(),
        DType::U8 => zero.data.iter().map(|&v| f32::from(v)).collect(),
        DType::I8 => zero.data.iter().map(|&v| f32::from(v as i8)).collect(),
        DType::U16 => zero.data.chunks_exact(2).map(|v| f32::from(u16::from_le_bytes([v[0], v[1]]))).collect(),
        DType::I16 => zero.data.chunks_exact(2).map(|v| f32::from(i16::from_le_bytes([v[0], v[1]]))).collect(),
        _ => return None,
    })
}

/// `(x - zero) · scale` in f32.
pub(super) fn dequantize_linear(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, scale, zero) = (n.input(0)?, n.input(1)?, n.optional(2));
    let to = named_type(n, "output_dtype")?.unwrap_or(g.ty(scale).dtype);
    let shape = g.shape(x).to_vec();
    let weights = to == DType::F32 && are_weights(g, n, x);
    if let Some(axis) = blocked_axis(g, n, [x, scale]).filter(|_| weights) {
        return Ok(vec![blocked_weights(g, x, Quantised { scale, zero }, axis)?]);
    }
    let scale = spread(g, n, scale, &shape)?;
    let scale = g.cast_to(scale, DType::F32)?;
    let float = Fields::of(g.ty(x).dtype).is_some();
    let zero = zero.filter(|_| !float).map(|zero| spread(g, n, zero, &shape)).transpose()?;
    if weights && n.int("block_size", 0) == 0 {
        return Ok(vec![weights_of(g, x, Quantised { scale, zero })?]);
    }
    let value = reals_of(g, x, Quantised { scale, zero })?;
    Ok(vec![g.cast_to(value, to)?])
}

/// The axis along which blocks that fill an operand have scales of their own; `None` where there are none.
fn blocked_axis(g: &Importer, n: &Source, [x, scale]: [ValueId; 2]) -> Option<usize> {
    let (shape, scales, block) = (g.shape(x), g.shape(scale), n.int("block_size", 0));
    let axis = g.axis(n.int("axis", 1), shape.len()).ok()?;
    let fits = |d: usize| scales[d] == if d == axis { shape[d] / block } else { shape[d] };
    let whole = block > 0 && shape[axis] % block == 0 && scales.len() == shape.len();
    (whole && (0..scales.len()).all(fits)).then_some(axis)
}

/// [`weights_of`] with a scale for each block along an axis, which is split into blocks and joined again.
fn blocked_weights(g: &mut Importer, x: ValueId, by: Quantised, axis: usize) -> Result<ValueId> {
    let shape = g.shape(x).to_vec();
    let blocks = g.shape(by.scale)[axis];
    let mut split = shape.clone();
    split[axis] = blocks;
    split.insert(axis + 1, 1);
    let reshaped = |g: &mut Importer, value: ValueId, shape: &[i64]| {
        let value = g.computable(value)?;
        g.emit(Op::Reshape { shape: shape.to_vec() }, &[value])
    };
    let zero = by.zero.map(|zero| reshaped(g, zero, &split)).transpose()?;
    let scale = reshaped(g, by.scale, &split)?;
    let scale = g.cast_to(scale, DType::F32)?;
    split[axis + 1] = shape[axis] / blocks;
    let x = reshaped(g, x, &split)?;
    let value = weights_of(g, x, Quantised { scale, zero })?;
    g.emit_unfolded(Op::Reshape { shape }, &[value])
}

/// Returns true for constant integers of up to 8 bits that only products read.
fn are_weights(g: &Importer, n: &Source, x: ValueId) -> bool {
    let dtype = g.ty(x).dtype;
    let bytes = (matches!(dtype, DType::I8 | DType::U8) || integer(dtype).is_some()) && g.rank(x) >= 2;
    let reads = |node: &&NodeProto| node.input.iter().any(|i| Some(i) == n.proto.output.first());
    let products = ["Conv", "MatMul", "Gemm"];
    let is_output = || g.proto.output.iter().any(|o| Some(&o.name) == n.proto.output.first());
    bytes
        && g.graph.constant(x).is_some()
        && g.proto.node.iter().filter(reads).all(|node| products.contains(&node.op_type.as_str()))
        && !is_output()
}

/// `(x - zero) · scale` in f32 of constants, left to the e-graph: a product may read the integers.
fn weights_of(g: &mut Importer, x: ValueId, by: Quantised) -> Result<ValueId> {
    let x = g.computable(x)?;
    let mut value = g.emit_unfolded(Op::Cast(DType::F32), &[x])?;
    if let Some(zero) = other_than_zero(g, by.zero) {
        let zero = g.computable(zero)?;
        let zero = g.cast_to(zero, DType::F32)?;
        value = g.emit_unfolded(Op::Binary(BinaryOp::Sub), &[value, zero])?;
    }
    g.emit_unfolded(Op::Binary(BinaryOp::Mul), &[value, by.scale])
}

/// `(x - zero) · scale` in f32, for a scale and a zero point that broadcast to the shape of `x`.
fn reals_of(g: &mut Importer, x: ValueId, by: Quantised) -> Result<ValueId> {
    let x = g.computable(x)?;
    let mut value = g.cast_to(x, DType::F32)?;
    if let Some(zero) = other_than_zero(g, by.zero) {
        let zero = g.computable(zero)?;
        let zero = g.cast_to(zero, DType::F32)?;
        value = g.binary(BinaryOp::Sub, value, zero)?;
    }
    g.binary(BinaryOp::Mul, value, by.scale)
}

pub(super) fn dynamic_quantize_linear(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (y, by) = dynamically(g, n.input(0)?)?;
    let zero = by.zero.ok_or_else(|| Error::Internal("no zero point".into()))?;
    Ok(vec![y, by.scale, zero])
}

/// The quantised elements; scale and zero point follow from the least and the greatest element and 0.
pub(super) fn dynamically(g: &mut Importer, x: ValueId) -> Result<(ValueId, Quantised)> {
    let axes: Vec<usize> = (0..g.rank(x)).collect();
    let extreme = |g: &mut Importer, op: ReduceOp, bound: BinaryOp| {
        let value = g.emit(Op::Reduce { op, axes: axes.clone(), keep: false }, &[x])?;
        g.with_constant(bound, value, 0.0)
    };
    let most = extreme(g, ReduceOp::Max, BinaryOp::Max)?;
    let least = extreme(g, ReduceOp::Min, BinaryOp::Min)?;
    let width = g.binary(BinaryOp::Sub, most, least)?;
    let flat = g.compared(CompareOp::Eq, width, 0.0)?;
    let scale = g.with_constant(BinaryOp::Div, width, 255.0)?;
    let scale = g.replaced(flat, 1.0, scale)?;
    let offset = g.binary(BinaryOp::Div, least, scale)?;
    let offset = g.unary(UnaryOp::Neg, offset)?;
    let zero = to_integers(g, offset, None, DType::U8)?;
    let by = Quantised { scale, zero: Some(zero) };
    Ok((g.quantised(x, by, DType::U8)?, by))
}

/// An operand of a product of integers as i32, its zero point subtracted. One of a row each has the shape of a column.
fn centred(g: &mut Importer, value: ValueId, zero: Option<ValueId>, rows: bool) -> Result<ValueId> {
    let value = g.cast_to(value, DType::I32)?;
    let Some(zero) = other_than_zero(g, zero) else { return Ok(value) };
    let mut zero = g.cast_to(zero, DType::I32)?;
    if rows && g.rank(zero) == 1 && g.shape(zero) != [1] {
        let shape = vec![g.shape(zero)[0], 1];
        zero = g.emit(Op::Reshape { shape }, &[zero])?;
    }
    let shape = g.shape(value).to_vec();
    if super::movement::broadcast(&shape, g.shape(zero))? != shape {
        return Err(Error::Invalid(format!("its zero point of shape {:?} does not fit {shape:?}", g.shape(zero))));
    }
    g.binary(BinaryOp::Sub, value, zero)
}

/// Sums in i32.
pub(super) fn matmul_integer(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (a, b) = (n.input(0)?, n.input(1)?);
    Ok(vec![integer_product(g, [a, b], [n.optional(2), n.optional(3)])?])
}

/// Beyond, not every whole number is an f32.
const EXACT: i64 = 1 << 24;

/// The product of matrices of 8 bits without their zero points, in i32. It is made in f32, whose instructions are faster,
/// where every sum is exact; rules make other products of integers or in parts.
pub(super) fn integer_product(
    g: &mut Importer,
    operands: [ValueId; 2],
    zeros: [Option<ValueId>; 2],
) -> Result<ValueId> {
    let narrow = operands.iter().all(|&v| matches!(g.ty(v).dtype, DType::I8 | DType::U8));
    let a = centred(g, operands[0], zeros[0], true)?;
    let b = centred(g, operands[1], zeros[1], false)?;
    let depth = *g.shape(a).last().unwrap_or(&1);
    // both operands are at most 255 in size; sums of the columns of constant weights are known
    let columns = if g.rank(b) == 2 { g.graph.constant(b).map(|t| largest_column(t)) } else { None };
    let whole = columns.unwrap_or(255 * depth).saturating_mul(255) <= EXACT;
    if !narrow || g.rank(a) < 1 || g.rank(b) < 1 || !whole || depth == 0 {
        return g.product(a, b);
    }
    let a = g.cast_to(a, DType::F32)?;
    // a single row reads each weight once, and takes as long as that
    let b = match g.graph.constant(b).filter(|_| g.is_single_row(a)).and_then(|t| bytes_of(t)) {
        Some(bytes) => g.constant(bytes),
        None => g.cast_to(b, DType::F32)?,
    };
    let product = g.product(a, b)?;
    g.cast_to(product, DType::I32)
}

/// Numbers in i8, where all fit.
fn bytes_of(numbers: &Tensor) -> Option<Tensor> {
    let bytes: Option<Vec<i8>> = numbers.to_vec::<i32>().into_iter().map(|v| i8::try_from(v).ok()).collect();
    Some(Tensor::new(&numbers.shape, &bytes?))
}

/// Weights of 8 bits without their zero points: in f32 where every sum of products with numbers of 8 bits is exact, or else in i32.
pub(super) fn exact_weights(g: &mut Importer, weights: ValueId, zero: Option<ValueId>) -> Result<ValueId> {
    let weights = centred(g, weights, zero, false)?;
    let depth = g.shape(weights)[0];
    let column = g.graph.constant(weights).map_or(255 * depth, |t| largest_column(t));
    if column.saturating_mul(255) <= EXACT { g.cast_to(weights, DType::F32) } else { Ok(weights) }
}

/// The product of a matrix, quantised by its own least and greatest element, with [`exact_weights`]; as real numbers.
pub(super) fn dynamic_product(g: &mut Importer, x: ValueId, weights: ValueId, scale: ValueId) -> Result<ValueId> {
    let (x, by) = dynamically(g, x)?;
    let x = centred(g, x, by.zero, false)?;
    let x = g.cast_to(x, g.ty(weights).dtype)?;
    let sum = g.product(x, weights)?;
    let sum = g.cast_to(sum, DType::F32)?;
    let scale = g.binary(BinaryOp::Mul, by.scale, scale)?;
    g.binary(BinaryOp::Mul, sum, scale)
}

/// The largest sum of the sizes of a column of a matrix.
fn largest_column(matrix: &Tensor) -> i64 {
    let columns = matrix.shape[1].max(1) as usize;
    let mut sums = vec![0i64; columns];
    for row in matrix.to_vec::<i32>().chunks(columns) {
        sums.iter_mut().zip(row).for_each(|(sum, v)| *sum += i64::from(v.unsigned_abs()));
    }
    sums.into_iter().max().unwrap_or(0)
}

/// The product, scaled and rounded to the type of the result's zero point.
pub(super) fn quantized_matmul(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let [a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero] = operands(n)?;
    let sums = integer_product(g, [a, b], [Some(a_zero), Some(b_zero)])?;
    let a_scale = column(g, a_scale)?;
    Ok(vec![rescaled(g, sums, [a_scale, b_scale, y_scale], y_zero)?])
}

/// Weights as i32, with a zero point for all or one for each filter.
fn centred_weights(g: &mut Importer, weights: ValueId, zero: Option<ValueId>) -> Result<ValueId> {
    let zero = zero.map(|z| along(g, z, 0, weights)).transpose()?;
    centred(g, weights, zero, false)
}

/// One number for all, or a vector along dimension `axis` of something with the rank of `like`.
fn along(g: &mut Importer, value: ValueId, axis: usize, like: ValueId) -> Result<ValueId> {
    let count: i64 = g.shape(value).iter().product();
    let mut shape = vec![1; if count == 1 { 0 } else { g.rank(like) }];
    if let Some(extent) = shape.get_mut(axis) {
        *extent = count;
    }
    g.emit(Op::Reshape { shape }, &[value])
}

/// Sums in i32; the image is padded with its zero point.
pub(super) fn conv_integer(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let operands = [n.input(0)?, n.input(1)?];
    Ok(vec![integer_convolution(g, n, operands, [n.optional(2), n.optional(3)])?])
}

/// The convolution of an image and weights without their zero points, in i32; in f32 where constant weights keep all sums
/// exact. A result that becomes a whole number is not transformed by minimal filtering.
fn integer_convolution(
    g: &mut Importer,
    n: &Source,
    [x, w]: [ValueId; 2],
    [x_zero, w_zero]: [Option<ValueId>; 2],
) -> Result<ValueId> {
    let narrow = [x, w].iter().all(|&v| matches!(g.ty(v).dtype, DType::I8 | DType::U8));
    let x = centred(g, x, x_zero, false)?;
    let w = centred_weights(g, w, w_zero)?;
    let filters = g.shape(w).first().copied().unwrap_or(0);
    let sums = g.graph.constant(w).filter(|_| filters > 0).map(|t| largest_row(t, filters));
    if !narrow || sums.is_none_or(|sum| sum.saturating_mul(255) > EXACT) {
        return super::convolution::conv_of(g, n, &[x, w]);
    }
    let (x, w) = (g.cast_to(x, DType::F32)?, g.cast_to(w, DType::F32)?);
    let y = super::convolution::conv_of(g, n, &[x, w])?;
    g.cast_to(y, DType::I32)
}

/// The largest sum of the sizes of the weights of a filter.
fn largest_row(weights: &Tensor, filters: i64) -> i64 {
    let each = (weights.len() / filters as usize).max(1);
    let sum = |row: &[i32]| row.iter().map(|v| i64::from(v.unsigned_abs())).sum();
    weights.to_vec::<i32>().chunks(each).map(sum).max().unwrap_or(0)
}

/// The convolution, scaled and rounded to the type of the result's zero point.
pub(super) fn quantized_conv(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let [x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero] = operands(n)?;
    let w_scale = along(g, w_scale, 1, w)?;
    let mut sums = integer_convolution(g, n, [x, w], [Some(x_zero), Some(w_zero)])?;
    if let Some(bias) = n.optional(8) {
        let bias = along(g, bias, 1, sums)?;
        sums = g.binary(BinaryOp::Add, sums, bias)?;
    }
    Ok(vec![rescaled(g, sums, [x_scale, w_scale, y_scale], y_zero)?])
}

fn operands(n: &Source) -> Result<[ValueId; 8]> {
    let mut operands = vec![];
    for i in 0..8 {
        operands.push(n.input(i)?);
    }
    operands.try_into().map_err(|_| Error::Internal("eight operands were read".into()))
}

/// A vector as a matrix of one column.
fn column(g: &mut Importer, value: ValueId) -> Result<ValueId> {
    match *g.shape(value) {
        [rows] if rows != 1 => g.emit(Op::Reshape { shape: vec![rows, 1] }, &[value]),
        _ => Ok(value),
    }
}

/// `sums · a·b/y`, rounded, with the zero point added.
fn rescaled(g: &mut Importer, sums: ValueId, [a, b, y]: [ValueId; 3], zero: ValueId) -> Result<ValueId> {
    let shape = g.shape(sums).to_vec();
    let scale = g.binary(BinaryOp::Mul, a, b)?;
    let scale = g.binary(BinaryOp::Div, scale, y)?;
    let scale = g.cast_to(scale, DType::F32)?;
    let sums = g.cast_to(sums, DType::F32)?;
    let scaled = g.binary(BinaryOp::Mul, sums, scale)?;
    let to = g.ty(zero).dtype;
    let value = to_integers(g, scaled, Some(zero), to)?;
    g.emit(Op::Reshape { shape }, &[value])
}

#[cfg(test)]
mod tests {
    use super::reals;
    use crate::runtime::Tensor;

    #[test]
    fn zero_points_are_read_as_they_are_subtracted() {
        assert_eq!(reals(&Tensor::new(&[2], &[-3i8, 7])), Some(vec![-3.0, 7.0]));
        assert_eq!(reals(&Tensor::new(&[1], &[200u8])), Some(vec![200.0]));
        assert_eq!(reals(&Tensor::new(&[1], &[1i32])), None);
    }
}
