//! Types of functions of the runtime.

use super::region;
use crate::graph::infer::check::{Checked, defined, ensure, index_type, same_types, shaped};
use crate::graph::tensor_type::TensorType;
use crate::runtime::DType;

/// The types of the results of a function of the runtime.
pub(super) fn types(function: &str, attributes: &[i64], inputs: &[&TensorType]) -> Checked<Vec<TensorType>> {
    let x = *inputs.first().ok_or("no operand")?;
    if function == "append" {
        return append(attributes, inputs);
    }
    let fits = !matches!(x.dtype, DType::F16 | DType::BF16) && !x.dtype.is_storage();
    ensure(fits, || format!("elements of type {}", x.dtype))?;
    let axis = |i: usize| -> Checked<usize> {
        let axis = *attributes.get(i).ok_or("attributes are missing")?;
        usize::try_from(axis).ok().filter(|&a| a < x.shape.len()).ok_or("no such axis".into())
    };
    match function {
        "argmax" | "argmin" => {
            let axis = axis(0)?;
            let mut shape = x.shape.clone();
            let some = shape.iter().enumerate().all(|(i, &d)| i == axis || d > 0);
            ensure(shape[axis] > 0 || !some, || "the axis is empty".into())?;
            if attributes.get(1) == Some(&0) {
                shape.remove(axis);
            } else {
                shape[axis] = 1;
            }
            Ok(vec![TensorType { dtype: DType::I64, shape }])
        }
        "topk" => {
            let axis = axis(1)?;
            let mut shape = x.shape.clone();
            ensure((0..=shape[axis]).contains(&attributes[0]), || "k is larger than the axis".into())?;
            shape[axis] = attributes[0];
            Ok(vec![TensorType { dtype: x.dtype, shape: shape.clone() }, TensorType { dtype: DType::I64, shape }])
        }
        "ngrams" => {
            index_type(x)?;
            let columns = *attributes.get(4).ok_or("attributes are missing")?;
            ensure(x.shape.len() <= 2 && columns >= 1, || "neither a row nor rows".into())?;
            let rows = &x.shape[..x.shape.len().saturating_sub(1)];
            Ok(vec![TensorType { dtype: DType::F32, shape: [rows, &[columns]].concat() }])
        }
        "cumsum" => {
            axis(0)?;
            ensure(x.dtype != DType::Bool, || "a sum of bool".into())?;
            Ok(vec![x.clone()])
        }
        "roi_align" | "max_roi_pool" => region::pool(function, attributes, inputs),
        "determinant" => {
            let (outer, square) = x.shape.split_at(x.shape.len().saturating_sub(2));
            defined(x, matches!(x.dtype, DType::F32 | DType::F64))?;
            ensure(matches!(square, [a, b] if a == b), || "the matrices are not square".into())?;
            Ok(vec![shaped(x, outer.to_vec())?, x.clone()])
        }
        "max_unpool" => region::max_unpool(attributes, inputs),
        _ => Err("the runtime has no such function".into()),
    }
}

/// A tensor, rows along an axis, and the place of the first of them.
fn append(attributes: &[i64], inputs: &[&TensorType]) -> Checked<Vec<TensorType>> {
    let (&[axis], &[x, rows, place]) = (attributes, inputs) else { return Err("three operands are needed".into()) };
    let axis = usize::try_from(axis).ok().filter(|&a| a < x.shape.len()).ok_or("no such axis")?;
    same_types(&[x, rows])?;
    let fits =
        rows.shape.len() == x.shape.len() && (0..x.shape.len()).all(|d| d == axis || rows.shape[d] == x.shape[d]);
    ensure(fits && rows.shape[axis] <= x.shape[axis], || "the rows do not fit".into())?;
    ensure(place.dtype == DType::I64 && place.elements() == 1, || "the place is not one i64".into())?;
    Ok(vec![x.clone()])
}
