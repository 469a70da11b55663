//! TensorProto to [`Tensor`]: every way in which ONNX stores elements.

use crate::graph::proto::TensorProto;
use crate::graph::synthetic::Recipe;
use crate::graph::{DType, Error, Result, Tensor};
use std::path::{Component, Path};

/// The largest tensor that is taken from a file or made while folding, in bytes.
pub const MAX_TENSOR_BYTES: i64 = 4 << 30;

/// The element type of an ONNX `data_type` code.
pub fn dtype(code: i32) -> Result<DType> {
    Ok(match code {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        11 => DType::F64,
        _ => {
            let names = [
                (4, "uint16"),
                (5, "int16"),
                (8, "string"),
                (10, "float16"),
                (12, "uint32"),
                (13, "uint64"),
                (14, "complex64"),
                (15, "complex128"),
                (16, "bfloat16"),
            ];
            let name = names.iter().find(|n| n.0 == code).map_or("unknown", |n| n.1);
            return Err(Error::Unsupported(format!("element type {name} (code {code})")));
        }
    })
}

/// Number of elements of `shape`; an error where a dimension is negative or the tensor would exceed the limit.
pub fn checked_len(shape: &[i64], dtype: DType, what: &str) -> Result<usize> {
    let mut len: i64 = 1;
    for &d in shape {
        if d < 0 {
            return Err(Error::Invalid(format!("{what} has the negative dimension {d}")));
        }
        len = len
            .checked_mul(d)
            .filter(|l| *l <= MAX_TENSOR_BYTES / dtype.bytes() as i64)
            .ok_or_else(|| Error::Limit(format!("{what} of shape {shape:?} is larger than 4 GiB")))?;
    }
    Ok(len as usize)
}

/// Reads a tensor, from the message itself or from a file in `directory`.
pub fn read(proto: &TensorProto, directory: &Path) -> Result<Tensor> {
    let what = format!("tensor '{}'", proto.name);
    let dtype = dtype(proto.data_type).map_err(|e| Error::Unsupported(format!("{what}: {e}")))?;
    let len = checked_len(&proto.dims, dtype, &what)?;
    let bytes = len * dtype.bytes();
    let data = if proto.data_location == 1 {
        external(proto, directory, &what, bytes)?
    } else if !proto.raw_data.is_empty() {
        proto.raw_data.clone()
    } else {
        typed(proto, dtype)
    };
    if data.len() != bytes {
        let found = data.len();
        return Err(Error::Invalid(format!(
            "{what} of shape {:?} and type {dtype} needs {bytes} bytes, but {found} are stored",
            proto.dims
        )));
    }
    Ok(Tensor { dtype, shape: proto.dims.clone(), data })
}

fn typed(proto: &TensorProto, dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F32 => proto.float_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::F64 => proto.double_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::I64 => proto.int64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::I32 => proto.int32_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::Bool => proto.int32_data.iter().map(|v| (*v != 0) as u8).collect(),
        _ => proto.int32_data.iter().map(|v| *v as u8).collect(),
    }
}

fn external(proto: &TensorProto, directory: &Path, what: &str, bytes: usize) -> Result<Vec<u8>> {
    let entry = |key: &str| proto.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str());
    let location =
        entry("location").ok_or_else(|| Error::Invalid(format!("{what} is external but names no location")))?;
    let entries = proto.external_data.iter().map(|e| (e.key.as_str(), e.value.as_str()));
    if let Some(recipe) = Recipe::parse(entries).map_err(|e| e.context(what))? {
        if proto.data_type != 1 {
            return Err(Error::Unsupported(format!("{what}: synthetic weights of another type than f32")));
        }
        return Ok(recipe.fill(bytes / 4).into_iter().flat_map(f32::to_le_bytes).collect());
    }
    let relative = Path::new(location);
    if relative.components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir)) {
        return Err(Error::Invalid(format!(
            "{what}: external file '{location}' lies outside of the model's directory"
        )));
    }
    let number = |key: &str| -> Result<Option<u64>> {
        entry(key)
            .map(|v| v.parse().map_err(|_| Error::Invalid(format!("{what}: external {key} '{v}' is not a number"))))
            .transpose()
    };
    let offset = number("offset")?.unwrap_or(0);
    if let Some(length) = number("length")?
        && length != bytes as u64
    {
        return Err(Error::Invalid(format!("{what} needs {bytes} bytes, but its external length is {length}")));
    }
    let path = directory.join(relative);
    let fail = |reason: String| Error::Io(format!("{what}: external file '{}': {reason}", path.display()));
    let size = std::fs::metadata(&path).map_err(|e| fail(e.to_string()))?.len();
    if offset.checked_add(bytes as u64).is_none_or(|end| end > size) {
        return Err(fail(format!("{bytes} bytes at offset {offset} are past its end ({size} bytes)")));
    }
    use std::io::{Read, Seek, SeekFrom};
    let mut file = std::fs::File::open(&path).map_err(|e| fail(e.to_string()))?;
    file.seek(SeekFrom::Start(offset)).map_err(|e| fail(e.to_string()))?;
    let mut data = vec![0; bytes];
    file.read_exact(&mut data).map_err(|e| fail(e.to_string()))?;
    Ok(data)
}
