//! Types of operator outputs: element type and shape from those of the inputs.
//!
//! In: an operator and the types of its inputs. Out: the types of its outputs, or why they do not fit. What this accepts,
//! `define` can define (or the operator is opaque).

mod check;
mod control;
mod opaque;
mod region;
mod scatter;
mod tiles;

use crate::expr::interval::ceil_div;
use crate::expr::narrow::is_table_of_bytes;
use crate::expr::{BinaryOp, UnaryOp};
use crate::graph::infer::check::{Checked, defined, ensure, index_type, same_types, shaped};
use crate::graph::op::{Layout, Op, PoolKind, ReduceOp, Window};
use crate::graph::tensor_type::TensorType;
use crate::runtime::{DType, Error, Result, text};

/// The output types of `op` on inputs of these types.
pub fn infer(op: &Op, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
    let fail = |what: String| {
        let types: Vec<String> = inputs.iter().map(|t| t.to_string()).collect();
        Error::Invalid(format!("{op} of ({}): {what}", text::list(&types)))
    };
    let (least, most) = op.arity().into_inner();
    if !op.arity().contains(&inputs.len()) {
        return Err(fail(format!(
            "{} operands are needed",
            if least == most { least.to_string() } else { format!("{least} or more") }
        )));
    }
    let types = match op {
        Op::Opaque { function, attributes } => opaque::types(function, attributes, inputs),
        Op::Scan { .. } | Op::If { .. } => control::types(op, inputs),
        _ => output(op, inputs).map(|t| vec![t]),
    }
    .map_err(&fail)?;
    for t in &types {
        t.check().map_err(|e| fail(e.to_string()))?;
    }
    Ok(types)
}

/// Returns the broadcast shape of several operands as in NumPy; `None` if they do not fit.
pub fn broadcast<'a>(shapes: impl IntoIterator<Item = &'a [i64]>) -> Option<Vec<i64>> {
    shapes.into_iter().try_fold(vec![], |a: Vec<i64>, b| {
        let rank = a.len().max(b.len());
        let extent = |s: &[i64], d: usize| if d + s.len() < rank { 1 } else { s[d + s.len() - rank] };
        (0..rank)
            .map(|d| match (extent(&a, d), extent(b, d)) {
                (x, y) if x == y => Some(x),
                (1, y) => Some(y),
                (x, 1) => Some(x),
                _ => None,
            })
            .collect()
    })
}

fn output(op: &Op, inputs: &[&TensorType]) -> Checked<TensorType> {
    let x = *inputs.first().ok_or("no operand")?;
    match op {
        Op::Unary(op) => {
            defined(x, has_unary(*op, x.dtype))?;
            Ok(x.clone())
        }
        Op::Binary(op) => {
            same_types(inputs)?;
            defined(x, has_binary(*op, x.dtype))?;
            shaped(x, joined(inputs)?)
        }
        Op::Compare(_) => {
            same_types(inputs)?;
            defined(x, !x.dtype.is_storage())?;
            Ok(TensorType { dtype: DType::Bool, shape: joined(inputs)? })
        }
        Op::Select => {
            ensure(x.dtype == DType::Bool, || "the condition is not bool".into())?;
            same_types(&inputs[1..])?;
            shaped(inputs[1], joined(inputs)?)
        }
        Op::Cast(to) => {
            defined(x, !x.dtype.is_storage())?;
            ensure(!to.is_storage(), || format!("{to} is a storage type: its conversion is made of others"))?;
            retyped(x, *to)
        }
        Op::Bitcast(to) => {
            let fits = x.dtype.bytes() == to.bytes() && x.dtype != DType::Bool && *to != DType::Bool;
            ensure(fits, || format!("{to} does not have the bits of {}", x.dtype))?;
            retyped(x, *to)
        }
        Op::PRelu => {
            same_types(inputs)?;
            defined(x, is_number(x.dtype))?;
            shaped(x, joined(inputs)?)
        }
        Op::Sigmoid
        | Op::Silu
        | Op::HardSigmoid { .. }
        | Op::HardSwish
        | Op::Gelu
        | Op::Elu { .. }
        | Op::ThresholdedRelu { .. } => {
            defined(x, x.dtype.is_float())?;
            Ok(x.clone())
        }
        Op::Transpose { perm } => transpose(x, perm),
        Op::Reshape { shape } => reshape(x, shape),
        Op::Expand { shape } => expand(x, shape),
        Op::Slice { starts, ends, steps } => slice(x, starts, ends, steps),
        Op::Concat { axis } => concat(inputs, *axis),
        Op::Pad { before, after, .. } => pad(x, before, after),
        Op::Block { block: b } => block(x, *b),
        Op::Unblock { channels } => unblock(x, *channels),
        Op::Upsample { factors } => upsample(x, factors),
        Op::Gather { axis } => gather(x, inputs[1], *axis),
        Op::GatherElements { axis } => gather_elements(x, inputs[1], *axis),
        Op::Lookup => gather(x, inputs[1], 0),
        Op::Table => table(x, inputs[1]),
        Op::GatherNd { batch_dims } => gather_nd(x, inputs[1], *batch_dims),
        Op::ScatterElements { axis, reduction } => scatter::elements(inputs, *axis, *reduction),
        Op::ScatterNd { reduction } => scatter::slices(inputs, *reduction),
        Op::Reduce { op, axes, keep } => reduce(x, *op, axes, *keep),
        Op::Softmax { axis, .. } => softmax(x, *axis),
        Op::LayerNorm { axis, .. } => layer_norm(inputs, *axis),
        Op::Pool { kind, window, layout } => pool(x, *kind, window, *layout),
        Op::MatMul { transpose_a, transpose_b } => matmul(inputs, *transpose_a, *transpose_b),
        Op::BlockProduct { digits, packed } => block_product(inputs, *digits, *packed),
        Op::Conv { window, group, layout } => conv(inputs, window, *group, *layout),
        Op::ConvTranspose { window, group, output_pad, layout } => {
            conv_transpose(inputs, window, *group, output_pad, *layout)
        }
        Op::WinogradInput { .. } | Op::WinogradWeights | Op::WinogradOutput { .. } => tiles::output(op, inputs),
        Op::Opaque { .. } | Op::Scan { .. } | Op::If { .. } => Err("opaque".into()),
    }
}

fn retyped(x: &TensorType, dtype: DType) -> Checked<TensorType> {
    Ok(TensorType { dtype, shape: x.shape.clone() })
}

fn has_unary(op: UnaryOp, dtype: DType) -> bool {
    match op {
        UnaryOp::Not => dtype == DType::Bool || dtype.is_integer(),
        UnaryOp::CountOnes => dtype.is_integer(),
        UnaryOp::Neg | UnaryOp::Abs => is_number(dtype),
        _ => dtype.is_float(),
    }
}

fn has_binary(op: BinaryOp, dtype: DType) -> bool {
    match op {
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => dtype == DType::Bool || dtype.is_integer(),
        BinaryOp::ShiftLeft | BinaryOp::ShiftRight => dtype.is_integer(),
        _ => is_number(dtype),
    }
}

/// Returns true for types with arithmetic.
fn is_number(dtype: DType) -> bool {
    dtype.is_float() || dtype.is_integer()
}

fn joined(operands: &[&TensorType]) -> Checked<Vec<i64>> {
    broadcast(operands.iter().map(|t| &t.shape[..])).ok_or_else(|| "the shapes do not broadcast".to_string())
}

fn transpose(x: &TensorType, perm: &[usize]) -> Checked<TensorType> {
    let (shape, rank) = (&x.shape, x.shape.len());
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    ensure(sorted.into_iter().eq(0..rank), || "not a permutation of the dimensions".into())?;
    shaped(x, perm.iter().map(|&p| shape[p]).collect())
}

fn expand(x: &TensorType, to: &[i64]) -> Checked<TensorType> {
    ensure(broadcast([&x.shape[..], to]).as_deref() == Some(to), || "the operand does not stretch".into())?;
    shaped(x, to.to_vec())
}

fn reshape(x: &TensorType, to: &[i64]) -> Checked<TensorType> {
    let shape = &x.shape;
    ensure(to.iter().all(|&d| d >= 0), || "an extent is negative".into())?;
    let count = |s: &[i64]| s.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
    ensure(count(to).is_some_and(|n| Some(n) == count(shape)), || "the numbers of elements differ".into())?;
    shaped(x, to.to_vec())
}

/// `starts`, `ends` and `steps` of every dimension.
fn slice(x: &TensorType, starts: &[i64], ends: &[i64], steps: &[i64]) -> Checked<TensorType> {
    let (shape, rank) = (&x.shape, x.shape.len());
    ensure([starts, ends, steps].iter().all(|v| v.len() == rank), || "one range for each dimension".into())?;
    let extent = |d: usize| -> Checked<i64> {
        let (start, end, step, n) = (starts[d], ends[d], steps[d], shape[d]);
        let inside = |i: i64| (-1..=n).contains(&i);
        ensure(inside(start) && inside(end) && step != 0, || format!("the range leaves dimension {d}"))?;
        let length = if step > 0 { end - start } else { start - end };
        if length <= 0 {
            return Ok(0);
        }
        let fits = if step > 0 { start >= 0 } else { start < n };
        ensure(fits, || format!("the range leaves dimension {d}"))?;
        Ok((length - 1) / step.unsigned_abs().min(i64::MAX as u64) as i64 + 1)
    };
    shaped(x, (0..rank).map(extent).collect::<Checked<_>>()?)
}

fn concat(inputs: &[&TensorType], axis: usize) -> Checked<TensorType> {
    let x = inputs[0];
    let (shape, rank) = (&x.shape, x.shape.len());
    same_types(inputs)?;
    ensure(axis < rank, || "no such axis".into())?;
    let mut out = shape.clone();
    for t in &inputs[1..] {
        let fits = t.shape.len() == rank && (0..rank).all(|d| d == axis || t.shape[d] == shape[d]);
        ensure(fits, || "the shapes differ outside of the axis".into())?;
        out[axis] = out[axis].saturating_add(t.shape[axis]);
    }
    shaped(x, out)
}

fn pad(x: &TensorType, before: &[i64], after: &[i64]) -> Checked<TensorType> {
    let (shape, rank) = (&x.shape, x.shape.len());
    let fits = before.len() == rank && after.len() == rank && before.iter().chain(after).all(|&p| p >= 0);
    ensure(fits, || "one padding ≥ 0 for each side of each dimension".into())?;
    shaped(x, (0..rank).map(|d| shape[d].saturating_add(before[d]).saturating_add(after[d])).collect())
}

fn block(x: &TensorType, block: u32) -> Checked<TensorType> {
    let (shape, rank) = (&x.shape, x.shape.len());
    ensure(rank >= 2 && block >= 1, || "no channels to block".into())?;
    let b = block as i64;
    shaped(x, from_channels_first(Layout::Blocked(block), shape, ceil_div(shape[1], b) * b))
}

fn unblock(x: &TensorType, channels: i64) -> Checked<TensorType> {
    let (shape, rank) = (&x.shape, x.shape.len());
    ensure(rank >= 3, || "not a blocked tensor".into())?;
    let b = shape[rank - 1];
    ensure(b >= 1 && ceil_div(channels, b) == shape[1], || "the number of channels does not fit".into())?;
    let mut out = shape[..rank - 1].to_vec();
    out[1] = channels;
    shaped(x, out)
}

fn upsample(x: &TensorType, factors: &[i64]) -> Checked<TensorType> {
    let (shape, rank) = (&x.shape, x.shape.len());
    ensure(factors.len() == rank && factors.iter().all(|&f| f >= 1), || "one factor for each dimension".into())?;
    shaped(x, (0..rank).map(|d| shape[d].saturating_mul(factors[d])).collect())
}

fn gather(x: &TensorType, indices: &TensorType, axis: usize) -> Checked<TensorType> {
    let (shape, rank) = (&x.shape, x.shape.len());
    index_type(indices)?;
    ensure(axis < rank, || "no such axis".into())?;
    shaped(x, [&shape[..axis], &indices.shape[..], &shape[axis + 1..]].concat())
}

fn table(x: &TensorType, places: &TensorType) -> Checked<TensorType> {
    ensure(is_table_of_bytes(x.dtype, &x.shape), || "a table has 256 integers of 8 bits".into())?;
    ensure(places.dtype == DType::U8, || "the places in a table are u8".into())?;
    shaped(x, places.shape.clone())
}

fn gather_elements(x: &TensorType, indices: &TensorType, axis: usize) -> Checked<TensorType> {
    let (shape, rank) = (&x.shape, x.shape.len());
    index_type(indices)?;
    let index = &indices.shape;
    let fits = index.len() == rank && axis < rank && (0..rank).all(|d| d == axis || index[d] <= shape[d]);
    ensure(fits, || "the indices do not fit the operand".into())?;
    shaped(x, index.clone())
}

fn gather_nd(x: &TensorType, indices: &TensorType, batch_dims: usize) -> Checked<TensorType> {
    let (shape, rank) = (&x.shape, x.shape.len());
    index_type(indices)?;
    let (index, b) = (&indices.shape, batch_dims);
    ensure(index.len() > b && rank > b && index[..b] == shape[..b], || "the batch dimensions differ".into())?;
    let depth = index[index.len() - 1];
    ensure((1..=(rank - b) as i64).contains(&depth), || "indices are longer than the operand's rank".into())?;
    shaped(x, [&index[..index.len() - 1], &shape[b + depth as usize..]].concat())
}

fn reduce(x: &TensorType, op: ReduceOp, axes: &[usize], keep: bool) -> Checked<TensorType> {
    let (shape, rank) = (&x.shape, x.shape.len());
    ensure(axes.windows(2).all(|w| w[0] < w[1]), || "the axes are not sorted".into())?;
    ensure(axes.iter().all(|&a| a < rank), || "no such axis".into())?;
    let fits = match op {
        ReduceOp::L2 | ReduceOp::LogSum | ReduceOp::LogSumExp => x.dtype.is_float(),
        ReduceOp::Max | ReduceOp::Min => !x.dtype.is_storage(),
        _ => is_number(x.dtype),
    };
    defined(x, fits)?;
    let remaining = (0..rank).filter(|d| keep || !axes.contains(d));
    shaped(x, remaining.map(|d| if axes.contains(&d) { 1 } else { shape[d] }).collect())
}

fn layer_norm(inputs: &[&TensorType], axis: usize) -> Checked<TensorType> {
    let x = inputs[0];
    let (shape, rank) = (&x.shape, x.shape.len());
    defined(x, x.dtype.is_float())?;
    same_types(inputs)?;
    ensure(axis < rank, || "no such axis".into())?;
    for t in &inputs[1..] {
        let fits = broadcast([&t.shape[..], &shape[axis..]]).as_deref() == Some(&shape[axis..]);
        ensure(fits, || "scale or bias does not fit the normalized dimensions".into())?;
    }
    shaped(x, shape.clone())
}

fn pool(x: &TensorType, kind: PoolKind, window: &Window, layout: Layout) -> Checked<TensorType> {
    let shape = &x.shape;
    let fits = if kind == PoolKind::Max { is_number(x.dtype) } else { x.dtype.is_float() };
    defined(x, fits)?;
    let image = Image::of(layout, shape)?;
    shaped(x, from_channels_first(layout, &windowed(window, &image)?, image.stored_channels))
}

fn matmul(inputs: &[&TensorType], transpose_a: bool, transpose_b: bool) -> Checked<TensorType> {
    let x = inputs[0];
    let (shape, rank) = (&x.shape, x.shape.len());
    let dtype = sum_type(x, inputs[1]);
    let bytes = x.dtype == DType::F32 && matches!(inputs[1].dtype, DType::I8 | DType::U8);
    if dtype == x.dtype && !bytes && !is_widened(x, inputs[1]) {
        same_types(inputs)?;
    }
    defined(x, is_number(x.dtype))?;
    let b = &inputs[1].shape;
    ensure(rank >= 2 && b.len() >= 2, || "an operand has fewer than 2 dimensions".into())?;
    let last = |s: &[i64], transposed: bool| {
        let (r, c) = (s[s.len() - 2], s[s.len() - 1]);
        if transposed { (c, r) } else { (r, c) }
    };
    let ((m, k), (k2, n)) = (last(shape, transpose_a), last(b, transpose_b));
    ensure(k == k2, || format!("inner extents {k} and {k2} differ"))?;
    let mut out = broadcast([&shape[..rank - 2], &b[..b.len() - 2]])
        .ok_or_else(|| "the batch dimensions do not broadcast".to_string())?;
    out.extend([m, n]);
    Ok(TensorType { dtype, shape: out })
}

fn softmax(x: &TensorType, axis: usize) -> Checked<TensorType> {
    defined(x, x.dtype.is_float())?;
    ensure(axis < x.shape.len(), || "no such axis".into())?;
    Ok(x.clone())
}

fn block_product(inputs: &[&TensorType], digits: i64, packed: bool) -> Checked<TensorType> {
    let (x, w) = (inputs[0], inputs[1]);
    let (&[rows, blocks, terms], &[of_blocks, in_bytes, columns]) = (&x.shape[..], &w.shape[..]) else {
        return Err("x and weights have three dimensions".into());
    };
    let bytes = [DType::I8, DType::U8].contains(&w.dtype);
    let fits = if packed { terms == 2 * in_bytes } else { terms == in_bytes };
    ensure(bytes && blocks == of_blocks && fits, || "the weights do not have the blocks of x, in bytes".into())?;
    ensure((1..=3).contains(&digits), || format!("{digits} digits, not 1 to 3"))?;
    let expected: &[(DType, [i64; 2])] = match x.dtype {
        DType::F32 if !packed => &[(DType::F32, [blocks, columns])],
        DType::I8 => &[
            (DType::F32, [blocks, columns]),
            (DType::F32, [rows, blocks]),
            (DType::I32, [rows, blocks]),
            (DType::U8, [blocks, columns]),
        ],
        _ => return Err("x is not f32 or i8".into()),
    };
    let least = if x.dtype == DType::I8 { 3 } else { 1 };
    let given = &inputs[2..];
    let fits = |(t, (dtype, shape)): (&&TensorType, &(DType, [i64; 2]))| t.dtype == *dtype && t.shape == *shape;
    let all = (least..=expected.len()).contains(&given.len()) && given.iter().zip(expected).all(fits);
    ensure(all, || "scales, factors, numbers to add or zero points do not fit".into())?;
    Ok(TensorType { dtype: DType::F32, shape: vec![rows, columns] })
}

/// The type of the sums of the products of two tensors: i32 for integers of 8 bits, signed or not each, and for two of i16, f32
/// for two of f16 or of bf16, or else that of the first one.
fn sum_type(a: &TensorType, b: &TensorType) -> DType {
    let all = |types: &[DType]| [a, b].iter().all(|t| types.contains(&t.dtype));
    if all(&[DType::I8, DType::U8]) || all(&[DType::I16]) {
        DType::I32
    } else if all(&[DType::F16]) || all(&[DType::BF16]) {
        DType::F32
    } else {
        a.dtype
    }
}

/// Returns true for a factor of 16 bits that a factor in f32 is multiplied with: it is widened.
fn is_widened(x: &TensorType, w: &TensorType) -> bool {
    x.dtype == DType::F32 && matches!(w.dtype, DType::F16 | DType::BF16)
}

fn conv(inputs: &[&TensorType], window: &Window, group: i64, layout: Layout) -> Checked<TensorType> {
    let x = inputs[0];
    let shape = &x.shape;
    defined(x, is_number(x.dtype))?;
    let dtype = sum_type(x, inputs[1]);
    if dtype == x.dtype && !is_widened(x, inputs[1]) {
        same_types(inputs)?;
    }
    let of_sums = inputs.get(2).is_none_or(|bias| bias.dtype == dtype);
    ensure(of_sums, || format!("the bias is not {dtype}, as the sums are"))?;
    let image = Image::of(layout, shape)?;
    let weights = &inputs[1].shape;
    weights_fit(window, weights, &image)?;
    let (f, c) = (weights[0], weights[1]);
    ensure(group >= 1 && f % group == 0, || "the groups do not divide the filters".into())?;
    let channels = c.checked_mul(group).ok_or("too many channels")?;
    ensure(image.holds(channels), || format!("the weights expect {channels} channels"))?;
    bias_fits(inputs.get(2), f)?;
    grouped_blocks(layout, group, channels, f)?;
    let mut out = windowed(window, &image)?;
    out[1] = f;
    Ok(TensorType { dtype, shape: from_channels_first(layout, &out, layout.stored(f)) })
}

fn conv_transpose(
    inputs: &[&TensorType],
    window: &Window,
    group: i64,
    output_pad: &[i64],
    layout: Layout,
) -> Checked<TensorType> {
    let x = inputs[0];
    let shape = &x.shape;
    defined(x, x.dtype.is_float())?;
    match inputs {
        [_, w] if is_widened(x, w) => {}
        [_, w, bias] if is_widened(x, w) => same_types(&[x, bias])?,
        _ => same_types(inputs)?,
    }
    let image = Image::of(layout, shape)?;
    let weights = &inputs[1].shape;
    weights_fit(window, weights, &image)?;
    ensure(group >= 1 && weights[0] % group == 0, || "the groups do not divide the channels".into())?;
    ensure(image.holds(weights[0]), || format!("the weights expect {} channels", weights[0]))?;
    let f = weights[1].checked_mul(group).ok_or("too many channels")?;
    bias_fits(inputs.get(2), f)?;
    grouped_blocks(layout, group, weights[0], f)?;
    check_window(window, image.spatial.len())?;
    ensure(output_pad.len() == image.spatial.len(), || "one output padding for each dimension".into())?;
    let mut out = vec![image.batch, f];
    for (d, pad) in output_pad.iter().enumerate() {
        let full = (image.spatial[d] - 1)
            .checked_mul(window.stride[d])
            .and_then(|e| e.checked_add((window.kernel[d] - 1) * window.dilation[d] + 1 + pad))
            .ok_or("the output is too large")?;
        let extent = full - window.pad_before[d] - window.pad_after[d];
        ensure(image.spatial[d] > 0, || format!("spatial dimension {d} is empty"))?;
        ensure(extent >= 0, || "the padding leaves nothing".into())?;
        out.push(extent);
    }
    shaped(x, from_channels_first(layout, &out, layout.stored(f)))
}

impl Layout {
    /// Channels that are stored for `channels` channels.
    pub fn stored(self, channels: i64) -> i64 {
        match self {
            Layout::Blocked(b) => ceil_div(channels, b as i64) * b as i64,
            _ => channels,
        }
    }
}

/// Extents of an image tensor, whatever its layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    pub batch: i64,
    /// Of a blocked image, a multiple of the block.
    pub stored_channels: i64,
    pub spatial: Vec<i64>,
    block: i64,
}

impl Image {
    /// Reads the extents of a tensor in `layout`.
    pub fn of(layout: Layout, shape: &[i64]) -> std::result::Result<Image, String> {
        let rank = shape.len();
        let (spatial, stored_channels, block) = match layout {
            Layout::Nchw if rank >= 3 => (&shape[2..], shape[1], 1),
            Layout::Nhwc if rank >= 3 => (&shape[1..rank - 1], shape[rank - 1], 1),
            Layout::Blocked(b) if rank >= 4 && shape[rank - 1] == b as i64 && b >= 1 => {
                (&shape[2..rank - 1], shape[1].saturating_mul(b as i64), b as i64)
            }
            _ => return Err(format!("not an image in {layout}")),
        };
        if spatial.len() > 3 {
            return Err("more than 3 spatial dimensions".into());
        }
        Ok(Image { batch: shape[0], stored_channels, spatial: spatial.to_vec(), block })
    }

    /// Can the image have exactly `channels` channels?
    fn holds(&self, channels: i64) -> bool {
        ceil_div(channels, self.block) * self.block == self.stored_channels
    }
}

/// The shape in `layout` of an image with extents `nchw`, whose channels become `stored`.
fn from_channels_first(layout: Layout, nchw: &[i64], stored: i64) -> Vec<i64> {
    match layout {
        Layout::Nchw => [&[nchw[0], stored], &nchw[2..]].concat(),
        Layout::Nhwc => [&[nchw[0]], &nchw[2..], &[stored]].concat(),
        Layout::Blocked(b) => [&[nchw[0], stored / b as i64], &nchw[2..], &[b as i64]].concat(),
    }
}

fn check_window(window: &Window, spatial: usize) -> Checked<()> {
    const MOST: i64 = 1 << 24;
    let Window { kernel, stride, dilation, pad_before, pad_after } = window;
    let counts = [kernel, stride, dilation, pad_before, pad_after].iter().all(|v| v.len() == spatial);
    ensure(counts, || format!("the window does not have {spatial} dimensions"))?;
    let within = |v: &Vec<i64>, least| v.iter().all(|n| (least..=MOST).contains(n));
    ensure(within(kernel, 1) && within(stride, 1) && within(dilation, 1), || "the window is empty or huge".into())?;
    ensure(within(pad_before, 0) && within(pad_after, 0), || "a padding is negative or huge".into())
}

/// Extents N, C, spatial… after sliding a window.
fn windowed(window: &Window, image: &Image) -> Checked<Vec<i64>> {
    check_window(window, image.spatial.len())?;
    let mut out = vec![image.batch, image.stored_channels];
    for (d, &extent) in image.spatial.iter().enumerate() {
        let room =
            extent + window.pad_before[d] + window.pad_after[d] - (window.kernel[d] - 1) * window.dilation[d] - 1;
        ensure(room >= 0, || format!("the window does not fit spatial dimension {d}"))?;
        out.push(room / window.stride[d] + 1);
    }
    Ok(out)
}

fn weights_fit(window: &Window, weights: &[i64], image: &Image) -> Checked<()> {
    let fits = weights.len() == image.spatial.len() + 2 && weights[2..] == window.kernel;
    ensure(fits, || "the weights do not fit the window".into())?;
    ensure(weights[0] >= 1 && weights[1] >= 1, || "the weights are empty".into())
}

fn bias_fits(bias: Option<&&TensorType>, f: i64) -> Checked<()> {
    ensure(bias.is_none_or(|b| b.shape == [f]), || format!("the bias does not have the shape [{f}]"))
}

/// Groups of a blocked convolution are whole blocks, or single channels.
fn grouped_blocks(layout: Layout, group: i64, channels: i64, filters: i64) -> Checked<()> {
    let Layout::Blocked(b) = layout else { return Ok(()) };
    let whole = (channels / group) % b as i64 == 0 && (filters / group) % b as i64 == 0;
    let depthwise = group == channels && group == filters;
    ensure(group == 1 || whole || depthwise, || format!("groups are not whole blocks of {b} channels"))
}

#[cfg(test)]
mod tests;
