//! TensorProto to [`Tensor`]: every way in which ONNX stores elements.

use super::external::Folder;
use crate::expr::scalar::storage::{canonical, width};
use crate::graph::proto::TensorProto;
use crate::graph::tensor_type::MAX_EMPTY;
use crate::runtime::{DType, Error, Result, Tensor};

/// The largest tensor that is taken from a file or made while folding, in bytes.
const MAX_TENSOR_BYTES: i64 = 4 << 30;

/// ONNX's codes of the element types.
const CODES: [(i32, DType); 23] = [
    (1, DType::F32),
    (2, DType::U8),
    (3, DType::I8),
    (4, DType::U16),
    (5, DType::I16),
    (6, DType::I32),
    (7, DType::I64),
    (9, DType::Bool),
    (10, DType::F16),
    (11, DType::F64),
    (12, DType::U32),
    (13, DType::U64),
    (16, DType::BF16),
    (17, DType::F8E4M3Fn),
    (18, DType::F8E4M3FnUz),
    (19, DType::F8E5M2),
    (20, DType::F8E5M2FnUz),
    (21, DType::U4),
    (22, DType::I4),
    (23, DType::F4E2M1),
    (24, DType::F8E8M0),
    (25, DType::U2),
    (26, DType::I2),
];

/// The element type of an ONNX `data_type` code.
pub fn dtype(code: i32) -> Result<DType> {
    CODES.iter().find(|row| row.0 == code).map(|row| row.1).ok_or_else(|| {
        let names = [(8, "string"), (14, "complex64"), (15, "complex128"), (27, "float6e2m3"), (28, "float6e3m2")];
        let name = names.iter().find(|n| n.0 == code).map_or("unknown", |n| n.1);
        Error::Unsupported(format!("element type {name} (code {code})"))
    })
}

/// The ONNX `data_type` code of an element type.
pub fn code(ty: DType) -> Option<i32> {
    CODES.iter().find(|row| row.1 == ty).map(|row| row.0)
}

/// Number of elements of `shape`; an error where a dimension is negative or the tensor would exceed the limit.
pub fn checked_len(shape: &[i64], dtype: DType, what: &str) -> Result<usize> {
    if let Some(d) = shape.iter().find(|d| **d < 0) {
        return Err(Error::Invalid(format!("{what} has the negative dimension {d}")));
    }
    // an empty tensor may have large extents, whose products and strides must not overflow
    let most = if shape.contains(&0) { MAX_EMPTY } else { MAX_TENSOR_BYTES / dtype.bytes() as i64 };
    let product = shape.iter().try_fold(1i64, |n, &d| n.checked_mul(d.max(1)).filter(|n| *n <= most));
    product.ok_or_else(|| Error::Limit(format!("{what} of shape {shape:?} is larger than 4 GiB")))?;
    Ok(shape.iter().product::<i64>() as usize)
}

/// Reads a tensor, from the message itself or from a file in `folder`. Large ones stay where they are.
pub(super) fn read(mut proto: TensorProto, folder: &Folder) -> Result<Tensor> {
    let what = format!("tensor `{}`", proto.name);
    let dtype = dtype(proto.data_type).map_err(|e| Error::Unsupported(format!("{what}: {e}")))?;
    let len = checked_len(&proto.dims, dtype, &what)?;
    // elements of 2 and 4 bits share bytes in files
    let packed = 8 / width(dtype).min(8) as usize;
    let bytes = if packed > 1 { len.div_ceil(packed) } else { len * dtype.bytes() };
    let data = if proto.data_location == 1 {
        folder.read(&proto, bytes).map_err(|e| e.context(&what))?
    } else if !proto.raw_data.is_empty() {
        folder.own(std::mem::take(&mut proto.raw_data))
    } else {
        typed(&proto, dtype).map_err(|e| e.context(&what))?.into()
    };
    if data.len() != bytes {
        let stored = data.len();
        return Err(Error::Invalid(format!(
            "{what} of shape {:?} and type {dtype} needs {bytes} bytes, but {stored} are stored",
            proto.dims
        )));
    }
    let data = if packed > 1 { unpacked(dtype, &data, len).into() } else { data };
    Ok(Tensor { dtype, shape: proto.dims, data })
}

/// The message that holds `tensor`.
pub(super) fn proto(tensor: &Tensor, name: &str) -> Result<TensorProto> {
    let data_type = code(tensor.dtype)
        .ok_or_else(|| Error::Unsupported(format!("{} is not an element type of ONNX here", tensor.dtype)))?;
    // elements of 2 and 4 bits share bytes, the first one in the lowest bits
    let (dims, bits) = (tensor.shape.clone(), width(tensor.dtype).min(8));
    let byte =
        |elements: &[u8]| elements.iter().rev().fold(0u16, |byte, e| byte << bits | u16::from(*e) & ((1 << bits) - 1));
    let raw_data = match bits {
        8 => tensor.data.to_vec().into(),
        _ => tensor.data.chunks(8 / bits as usize).map(|elements| byte(elements) as u8).collect(),
    };
    Ok(TensorProto { dims, data_type, name: name.to_string(), raw_data, ..TensorProto::default() })
}

/// Elements of less than a byte, the first one in the lowest bits, one in each byte.
fn unpacked(dtype: DType, data: &[u8], len: usize) -> Vec<u8> {
    let bits = width(dtype);
    let elements = data.iter().flat_map(|byte| (0..8 / bits).map(move |i| canonical(dtype, byte >> (i * bits))));
    elements.take(len).collect()
}

/// Elements that stand in fields of numbers, which are wider than some types.
fn typed(proto: &TensorProto, dtype: DType) -> Result<Vec<u8>> {
    let outside =
        |v: &dyn std::fmt::Display| Error::Invalid(format!("its element {v} is outside of the range of {dtype}"));
    Ok(match dtype {
        DType::F32 => proto.float_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::F64 => proto.double_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::I64 => proto.int64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::U64 => proto.uint64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::U32 => {
            if let Some(large) = proto.uint64_data.iter().find(|v| **v > u32::MAX.into()) {
                return Err(outside(large));
            }
            proto.uint64_data.iter().flat_map(|v| (*v as u32).to_le_bytes()).collect()
        }
        DType::Bool => proto.int32_data.iter().map(|v| (*v != 0) as u8).collect(),
        _ => {
            // a byte may hold several elements, whose bits have no sign
            let range = match (dtype, dtype.bytes()) {
                (DType::I8, _) => -0x80..=0x7f,
                (DType::I16, _) => -0x8000..=0x7fff,
                (_, 1) => 0..=0xff,
                (_, 2) => 0..=0xffff,
                _ => i32::MIN..=i32::MAX,
            };
            if let Some(wrong) = proto.int32_data.iter().find(|v| !range.contains(*v)) {
                return Err(outside(wrong));
            }
            proto.int32_data.iter().flat_map(|v| v.to_le_bytes().into_iter().take(dtype.bytes())).collect()
        }
    })
}

/// The elements of a tensor of i64 or i32; `None` for other types.
pub fn integers(tensor: &Tensor) -> Option<Vec<i64>> {
    match tensor.dtype {
        DType::I64 => Some(tensor.to_vec()),
        DType::I32 => Some(tensor.to_vec::<i32>().into_iter().map(i64::from).collect()),
        _ => None,
    }
}
