//! NumPy: element types, arrays as inputs and outputs, new arrays.
//!
//! In: an object with the buffer protocol, an array of a type of `ml_dtypes`, or an object with `__dlpack__`. Out: its memory as
//! a tensor. Types that NumPy does not have itself are those of the package `ml_dtypes`, where it is installed.

use crate::errors::{exception, invalid};
use crate::memory::{Input, Memory, Output};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use tilewright::{DType, Error, Tensor};

/// Element type, its name in NumPy or `ml_dtypes`, and, of the latter, the type of NumPy with as many bytes.
const TYPES: [(DType, &str, Option<&str>); 23] = [
    (DType::F64, "float64", None),
    (DType::F32, "float32", None),
    (DType::F16, "float16", None),
    (DType::BF16, "bfloat16", Some("uint16")),
    (DType::I64, "int64", None),
    (DType::I32, "int32", None),
    (DType::I8, "int8", None),
    (DType::U8, "uint8", None),
    (DType::Bool, "bool", None),
    (DType::I16, "int16", None),
    (DType::U16, "uint16", None),
    (DType::U32, "uint32", None),
    (DType::U64, "uint64", None),
    (DType::I4, "int4", Some("int8")),
    (DType::U4, "uint4", Some("uint8")),
    (DType::I2, "int2", Some("int8")),
    (DType::U2, "uint2", Some("uint8")),
    (DType::F8E4M3Fn, "float8_e4m3fn", Some("uint8")),
    (DType::F8E4M3FnUz, "float8_e4m3fnuz", Some("uint8")),
    (DType::F8E5M2, "float8_e5m2", Some("uint8")),
    (DType::F8E5M2FnUz, "float8_e5m2fnuz", Some("uint8")),
    (DType::F8E8M0, "float8_e8m0fnu", Some("uint8")),
    (DType::F4E2M1, "float4_e2m1fn", Some("uint8")),
];

/// The name of an element type in NumPy or `ml_dtypes`.
pub fn name(dtype: DType) -> &'static str {
    TYPES.iter().find(|t| t.0 == dtype).map_or("", |t| t.1)
}

/// The type of NumPy in which elements are stored, where `ml_dtypes` has the type itself.
fn storage(dtype: DType) -> Option<&'static str> {
    TYPES.iter().find(|t| t.0 == dtype).and_then(|t| t.2)
}

/// Functions and classes of NumPy.
struct NumPy {
    empty: Py<PyAny>,
    ndarray: Py<PyAny>,
    generic: Py<PyAny>,
    asarray: Py<PyAny>,
    ascontiguousarray: Py<PyAny>,
    from_dlpack: Py<PyAny>,
    /// By element type: that of new arrays, and that of views of them, where it is another one.
    types: [PyOnceLock<(Py<PyAny>, Option<Py<PyAny>>)>; 23],
}

static NUMPY: PyOnceLock<NumPy> = PyOnceLock::new();

fn numpy(py: Python<'_>) -> PyResult<&NumPy> {
    NUMPY.get_or_try_init(py, || {
        let module = py.import("numpy")?;
        let get = |name: &str| module.getattr(name).map(Bound::unbind);
        Ok(NumPy {
            empty: get("empty")?,
            ndarray: get("ndarray")?,
            generic: get("generic")?,
            asarray: get("asarray")?,
            ascontiguousarray: get("ascontiguousarray")?,
            from_dlpack: get("from_dlpack")?,
            types: [const { PyOnceLock::new() }; 23],
        })
    })
}

/// The type objects of new arrays and of their views.
fn type_objects(py: Python<'_>, dtype: DType) -> PyResult<&(Py<PyAny>, Option<Py<PyAny>>)> {
    numpy(py)?.types[dtype as usize].get_or_try_init(py, || {
        let class = py.import("numpy")?.getattr("dtype")?;
        let Some(storage) = storage(dtype) else {
            return Ok((class.call1((name(dtype),))?.unbind(), None));
        };
        let view = py.import("ml_dtypes").and_then(|module| module.getattr(name(dtype)));
        let view = view.map_err(|_| {
            let name = name(dtype);
            let text = format!("NumPy has no type {name}: install the package ml_dtypes, in a version that has it");
            exception(py, Error::Unsupported(text))
        })?;
        Ok((class.call1((storage,))?.unbind(), Some(class.call1((view,))?.unbind())))
    })
}

/// The element type of a buffer's items: a letter of the module `struct`. `what` names the buffer in errors.
fn dtype_of_format(py: Python, format: &str, bytes: usize, what: &dyn Fn() -> String) -> PyResult<DType> {
    let code = format.strip_prefix(['@', '=', '<']).unwrap_or(format);
    if format.starts_with(['>', '!']) && bytes > 1 {
        let text = format!("{} is big-endian: pass `x.astype(x.dtype.newbyteorder('='))`", what());
        return Err(invalid(py, text));
    }
    let dtype = match (code.trim_start_matches(['>', '!']), bytes) {
        ("?", 1) => DType::Bool,
        ("b", 1) => DType::I8,
        ("B", 1) => DType::U8,
        ("h", 2) => DType::I16,
        ("H", 2) => DType::U16,
        ("i" | "l" | "q" | "n", 4) => DType::I32,
        ("I" | "L" | "Q" | "N", 4) => DType::U32,
        ("i" | "l" | "q" | "n", 8) => DType::I64,
        ("I" | "L" | "Q" | "N", 8) => DType::U64,
        ("e", 2) => DType::F16,
        ("f", 4) => DType::F32,
        ("d", 8) => DType::F64,
        _ => {
            let text = format!("{} has elements of the format `{format}`, which no model has", what());
            return Err(invalid(py, text));
        }
    };
    Ok(dtype)
}

/// The memory of an object as a tensor. One that is not contiguous is copied where `copies` allow it.
pub fn input(value: &Bound<'_, PyAny>, what: &dyn Fn() -> String, copies: bool) -> PyResult<Input> {
    let py = value.py();
    let Ok(buffer) = PyUntypedBuffer::get(value) else { return input_without_buffer(value, what, copies) };
    let format = buffer.format().to_str().unwrap_or_default();
    let dtype = dtype_of_format(py, format, buffer.item_size(), what)?;
    let shape = buffer.shape().iter().map(|&extent| extent as i64).collect();
    match Input::new(buffer, dtype, shape) {
        Some(input) => Ok(input),
        None if copies => {
            let copy = numpy(py)?.ascontiguousarray.bind(py).call1((value,))?;
            input(&copy, what, false)
        }
        None => Err(invalid(py, format!("{} is not contiguous in row-major (C) order", what()))),
    }
}

/// As [`input`], of an object that lends no buffer in its own shape and type.
fn input_without_buffer(value: &Bound<'_, PyAny>, what: &dyn Fn() -> String, copies: bool) -> PyResult<Input> {
    let py = value.py();
    let numpy = numpy(py)?;
    if value.is_instance(numpy.generic.bind(py))? {
        return input_without_buffer(&numpy.asarray.bind(py).call1((value,))?, what, copies);
    }
    if !value.is_instance(numpy.ndarray.bind(py))? {
        if value.hasattr(intern!(py, "__dlpack__"))? {
            let array = numpy.from_dlpack.bind(py).call1((value,)).map_err(|cause| {
                let error = invalid(py, format!("{}: numpy.from_dlpack refuses it: {}", what(), cause.value(py)));
                error.set_cause(py, Some(cause));
                error
            })?;
            return input(&array, what, copies);
        }
        let text = format!(
            "{} is a {}: pass a NumPy array, or an object with a buffer or with __dlpack__",
            what(),
            value.get_type().name()?
        );
        return Err(invalid(py, text));
    }
    let shape: Vec<i64> = value.getattr("shape")?.extract()?;
    let type_name: String = value.getattr("dtype")?.getattr("name")?.extract()?;
    let dtype = match TYPES.iter().find(|t| t.1 == type_name) {
        Some(found) => found.0,
        None => return Err(invalid(py, format!("{} has elements of type {type_name}, which no model has", what()))),
    };
    // An array without dimensions lends a buffer without a shape, and one of `ml_dtypes` lends none.
    let mut array = value.clone();
    let contiguous = |array: &Bound<'_, PyAny>| array.getattr("flags")?.getattr("c_contiguous")?.extract::<bool>();
    if !contiguous(&array)? {
        if !copies {
            return Err(invalid(py, format!("{} is not contiguous in row-major (C) order", what())));
        }
        array = numpy.ascontiguousarray.bind(py).call1((array,))?;
    }
    if shape.is_empty() {
        array = array.call_method1("reshape", (1,))?;
    }
    if let Some(storage) = storage(dtype) {
        array = array.call_method1("view", (storage,))?;
    }
    let buffer = PyUntypedBuffer::get(&array)?;
    let is_big = buffer.format().to_bytes().first().is_some_and(|c| b">!".contains(c)) && dtype.bytes() > 1;
    if is_big {
        dtype_of_format(py, ">", 8, what)?;
    }
    Input::new(buffer, dtype, shape).ok_or_else(|| invalid(py, format!("{} changes while it is read", what())))
}

/// The memory of an array that a run writes.
pub fn output(value: &Bound<'_, PyAny>, what: &dyn Fn() -> String) -> PyResult<Output> {
    let input = input(value, what, false)?;
    Output::new(input).ok_or_else(|| invalid(value.py(), format!("{} is read-only", what())))
}

/// A new array of any contents, and its memory.
pub fn empty<'py>(py: Python<'py>, dtype: DType, shape: &[i64]) -> PyResult<(Bound<'py, PyAny>, Output)> {
    let (storage, view) = type_objects(py, dtype)?;
    // An array without dimensions lends a buffer without a shape.
    let extents = if shape.is_empty() { &[1][..] } else { shape };
    let new = numpy(py)?.empty.bind(py).call1((PyTuple::new(py, extents)?, storage))?;
    let lent = Input::new(PyUntypedBuffer::get(&new)?, dtype, shape.to_vec()).and_then(Output::new);
    let output = lent.ok_or_else(|| exception(py, Error::Internal("a new array cannot be written".into())))?;
    let array = match view {
        Some(view) => new.call_method1(intern!(py, "view"), (view,))?,
        None => new,
    };
    let array =
        if shape.is_empty() { array.call_method1(intern!(py, "reshape"), (PyTuple::empty(py),))? } else { array };
    Ok((array, output))
}

/// A tensor as an array that has its memory.
pub fn array<'py>(py: Python<'py>, tensor: Tensor) -> PyResult<Bound<'py, PyAny>> {
    let Tensor { dtype, shape, data } = tensor;
    let (storage, view) = type_objects(py, dtype)?;
    let arguments = PyDict::new(py);
    arguments.set_item("shape", PyTuple::new(py, &shape)?)?;
    arguments.set_item("dtype", view.as_ref().unwrap_or(storage))?;
    arguments.set_item("buffer", Bound::new(py, Memory::new(data))?)?;
    numpy(py)?.ndarray.bind(py).call((), Some(&arguments))
}
