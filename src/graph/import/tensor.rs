//! TensorProto to [`Tensor`]: every way in which ONNX stores elements.

use super::external::Folder;
use crate::graph::proto::TensorProto;
use crate::runtime::{DType, Error, Result, Tensor};

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

/// The ONNX `data_type` code of an element type.
pub fn code(ty: DType) -> Option<i32> {
    (1..64).find(|&code| dtype(code).is_ok_and(|d| d == ty))
}

/// Number of elements of `shape`; an error where a dimension is negative or the tensor would exceed the limit.
pub fn checked_len(shape: &[i64], dtype: DType, what: &str) -> Result<usize> {
    if let Some(d) = shape.iter().find(|d| **d < 0) {
        return Err(Error::Invalid(format!("{what} has the negative dimension {d}")));
    }
    // a dimension of 0 must not hide that the product of others overflows
    let most = MAX_TENSOR_BYTES / dtype.bytes() as i64;
    let product = shape.iter().try_fold(1i64, |n, &d| n.checked_mul(d.max(1)).filter(|n| *n <= most));
    product.ok_or_else(|| Error::Limit(format!("{what} of shape {shape:?} is larger than 4 GiB")))?;
    Ok(shape.iter().product::<i64>() as usize)
}

/// Reads a tensor, from the message itself or from a file in `folder`.
pub(super) fn read(mut proto: TensorProto, folder: &Folder) -> Result<Tensor> {
    let what = format!("tensor `{}`", proto.name);
    let dtype = dtype(proto.data_type).map_err(|e| Error::Unsupported(format!("{what}: {e}")))?;
    let len = checked_len(&proto.dims, dtype, &what)?;
    let bytes = len * dtype.bytes();
    let data = if proto.data_location == 1 {
        folder.read(&proto, bytes).map_err(|e| e.context(&what))?
    } else if !proto.raw_data.is_empty() {
        std::mem::take(&mut proto.raw_data)
    } else {
        typed(&proto, dtype)
    };
    if data.len() != bytes {
        let stored = data.len();
        return Err(Error::Invalid(format!(
            "{what} of shape {:?} and type {dtype} needs {bytes} bytes, but {stored} are stored",
            proto.dims
        )));
    }
    Ok(Tensor { dtype, shape: proto.dims, data: data.into() })
}

/// The message that holds `tensor`.
pub(super) fn proto(tensor: &Tensor, name: &str) -> Result<TensorProto> {
    let data_type = code(tensor.dtype)
        .ok_or_else(|| Error::Unsupported(format!("{} is not an element type of ONNX here", tensor.dtype)))?;
    let (dims, raw_data) = (tensor.shape.clone(), tensor.data.to_vec());
    Ok(TensorProto { dims, data_type, name: name.to_string(), raw_data, ..TensorProto::default() })
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
