//! Checks of operand types, shared by the operators.

use crate::graph::tensor_type::TensorType;
use crate::runtime::DType;

pub(super) type Checked<T> = std::result::Result<T, String>;

pub(super) fn ensure(condition: bool, what: impl FnOnce() -> String) -> Checked<()> {
    if condition { Ok(()) } else { Err(what()) }
}

pub(super) fn shaped(like: &TensorType, shape: Vec<i64>) -> Checked<TensorType> {
    Ok(TensorType { dtype: like.dtype, shape })
}

pub(super) fn defined(x: &TensorType, condition: bool) -> Checked<()> {
    ensure(condition, || format!("not defined for {}", x.dtype))
}

pub(super) fn same_types(inputs: &[&TensorType]) -> Checked<()> {
    ensure(inputs.iter().all(|t| t.dtype == inputs[0].dtype), || "the element types differ".into())
}

pub(super) fn index_type(t: &TensorType) -> Checked<()> {
    ensure(matches!(t.dtype, DType::I64 | DType::I32), || "the indices are not integers".into())
}
