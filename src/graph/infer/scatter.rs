//! Types of scatters: data, indices, updates.

use crate::expr::BinaryOp;
use crate::graph::infer::check::{Checked, defined, ensure, index_type};
use crate::graph::tensor_type::TensorType;
use crate::runtime::DType;

pub(super) fn elements(inputs: &[&TensorType], axis: usize, reduction: Option<BinaryOp>) -> Checked<TensorType> {
    let (x, indices, updates) = operands(inputs, reduction)?;
    let (shape, index, new) = (&x.shape, &indices.shape, &updates.shape);
    let fits = new.len() == shape.len() && axis < shape.len();
    let fits = fits && (0..shape.len()).all(|d| d == axis || new[d] <= shape[d]);
    ensure(fits, || "the updates do not fit the data".into())?;
    let stretches = index.len() == new.len() && index.iter().zip(new).all(|(i, n)| i == n || *i == 1);
    ensure(stretches, || "there is not one index for each update".into())?;
    Ok(x.clone())
}

pub(super) fn slices(inputs: &[&TensorType], reduction: Option<BinaryOp>) -> Checked<TensorType> {
    let (x, indices, updates) = operands(inputs, reduction)?;
    let (&depth, places) = indices.shape.split_last().ok_or("the indices are a scalar")?;
    ensure((1..=x.shape.len() as i64).contains(&depth), || "indices are longer than the data's rank".into())?;
    let expected = [places, &x.shape[depth as usize..]].concat();
    ensure(updates.shape == expected, || format!("the updates do not have the shape {expected:?}"))?;
    Ok(x.clone())
}

fn operands<'a>(
    inputs: &[&'a TensorType],
    reduction: Option<BinaryOp>,
) -> Checked<(&'a TensorType, &'a TensorType, &'a TensorType)> {
    let &[x, indices, updates] = inputs else { return Err("data, indices and updates are needed".into()) };
    index_type(indices)?;
    ensure(x.dtype == updates.dtype, || "the element types of data and updates differ".into())?;
    let reduces = matches!(reduction, None | Some(BinaryOp::Add | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max));
    ensure(reduces, || "updates are sums, products, minima or maxima".into())?;
    defined(x, reduction.is_none() || x.dtype != DType::Bool)?;
    Ok((x, indices, updates))
}
