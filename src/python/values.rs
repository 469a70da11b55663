//! Values of inputs and outputs that are not tensors: sequences are lists, absent optionals are `None`.

use crate::arrays;
use crate::errors::invalid;
use pyo3::prelude::*;
use pyo3::types::PyList;
use tilewright::{Kind, Value};

/// A value of this kind. Tensors are copied.
pub fn value(object: &Bound<'_, PyAny>, kind: &Kind, what: &str) -> PyResult<Value> {
    match kind {
        Kind::Tensor => Ok(arrays::input(object, &|| what.to_string(), true)?.to_tensor().into()),
        Kind::Optional(_) if object.is_none() => Ok(Value::Optional(None)),
        Kind::Optional(of) => Ok(Value::Optional(Some(Box::new(value(object, of, what)?)))),
        Kind::Sequence(of) => {
            if !object.is_instance_of::<PyList>() && !object.is_instance_of::<pyo3::types::PyTuple>() {
                return Err(invalid(object.py(), format!("{what} is a sequence: pass a list of its values")));
            }
            object.try_iter()?.map(|item| value(&item?, of, what)).collect::<PyResult<Vec<Value>>>().map(Value::from)
        }
    }
}

/// A value as a Python object.
pub fn object<'py>(py: Python<'py>, value: Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Optional(None) => Ok(py.None().into_bound(py)),
        Value::Optional(Some(value)) => object(py, *value),
        Value::Sequence(values) => {
            let items = std::sync::Arc::unwrap_or_clone(values)
                .into_iter()
                .map(|value| object(py, value))
                .collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, items)?.into_any())
        }
        Value::Tensor(tensor) => arrays::array(py, std::sync::Arc::unwrap_or_clone(tensor)),
    }
}
