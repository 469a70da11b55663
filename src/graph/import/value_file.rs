//! Files of single values: ONNX's `TensorProto`, `SequenceProto` and `OptionalProto`, as its backend tests have them.

use super::tensor;
use crate::graph::import::external::Folder;
use crate::graph::proto::{OptionalProto, SequenceProto, TensorProto};
use crate::graph::value::{Kind, Value};
use crate::runtime::{Error, Result, Tensor, file};
use prost::Message;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Reads a tensor from a file that holds a `TensorProto`.
///
/// # Errors
/// [`Error::Io`] where the file cannot be read; [`Error::Invalid`] where it is damaged; [`Error::Limit`] where its shape is
/// too large; [`Error::Unsupported`] where its element type has no [`DType`](crate::DType).
pub fn read_tensor(path: impl AsRef<Path>) -> Result<Tensor> {
    match read_value(path, &Kind::Tensor)? {
        Value::Tensor(tensor) => Ok(Arc::unwrap_or_clone(tensor)),
        _ => Err(Error::Internal("a tensor was read as another value".into())),
    }
}

fn bytes_of(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    let done = file::open(path)?.read_to_end(&mut bytes);
    done.map_err(|e| Error::Io(format!("cannot read {}: {e}", path.display())))?;
    Ok(bytes)
}

/// Writes a tensor as a `TensorProto` of this name.
///
/// # Errors
/// [`Error::Io`] where the file cannot be written; [`Error::Unsupported`] where ONNX has no such element type.
pub fn write_tensor(path: impl AsRef<Path>, name: &str, tensor: &Tensor) -> Result<()> {
    let bytes = tensor::proto(tensor, name)?.encode_to_vec();
    file::write(path.as_ref(), |out| out.write_all(&bytes))
}

/// Reads a value of a model's input: a `TensorProto`, a `SequenceProto` or an `OptionalProto`, as `kind` says.
///
/// # Errors
/// As [`read_tensor`].
pub fn read_value(path: impl AsRef<Path>, kind: &Kind) -> Result<Value> {
    let path = path.as_ref();
    let name = path.display().to_string();
    decode(&bytes_of(path)?, kind, &Folder::of_file(path)).map_err(|e| e.context(&name))
}

/// As [`read_value`], from the contents of a file; external data are refused.
///
/// # Errors
/// As [`read_tensor`].
pub fn decode_value(bytes: &[u8], kind: &Kind) -> Result<Value> {
    decode(bytes, kind, &Folder::new(Path::new("no folder")))
}

fn decode(bytes: &[u8], kind: &Kind, folder: &Folder) -> Result<Value> {
    let bad = |e: prost::DecodeError| Error::Invalid(format!("this is not a message of a {kind} ({e})"));
    match kind {
        Kind::Tensor => tensor::read(TensorProto::decode(bytes).map_err(bad)?, folder).map(Value::from),
        Kind::Sequence(_) => sequence(SequenceProto::decode(bytes).map_err(bad)?, folder),
        Kind::Optional(_) => optional(OptionalProto::decode(bytes).map_err(bad)?, folder),
    }
}

/// Writes a value as the message of its kind.
///
/// # Errors
/// As [`write_tensor`]; [`Error::Unsupported`] where a sequence has elements of several kinds.
pub fn write_value(path: impl AsRef<Path>, name: &str, value: &Value) -> Result<()> {
    let bytes = encode_value(name, value)?;
    file::write(path.as_ref(), |out| out.write_all(&bytes))
}

/// The message of a value.
///
/// # Errors
/// [`Error::Unsupported`] where ONNX has no such element type or a sequence has elements of several kinds.
pub fn encode_value(name: &str, value: &Value) -> Result<Vec<u8>> {
    Ok(match value {
        Value::Tensor(value) => tensor::proto(value, name)?.encode_to_vec(),
        Value::Sequence(values) => sequence_message(name, values)?.encode_to_vec(),
        Value::Optional(value) => optional_message(name, value.as_deref())?.encode_to_vec(),
    })
}

fn sequence(proto: SequenceProto, folder: &Folder) -> Result<Value> {
    let tensors = proto.tensor_values.into_iter().map(|t| tensor::read(t, folder).map(Value::from));
    let sequences = proto.sequence_values.into_iter().map(|s| sequence(s, folder));
    let optionals = proto.optional_values.into_iter().map(|o| optional(o, folder));
    tensors.chain(sequences).chain(optionals).collect::<Result<Vec<Value>>>().map(Value::from)
}

fn optional(proto: OptionalProto, folder: &Folder) -> Result<Value> {
    let value = match (proto.tensor_value, proto.sequence_value, proto.optional_value) {
        (Some(t), _, _) => Some(tensor::read(t, folder)?.into()),
        (_, Some(s), _) => Some(sequence(s, folder)?),
        (_, _, Some(o)) => Some(optional(*o, folder)?),
        (None, None, None) => None,
    };
    Ok(Value::Optional(value.map(Box::new)))
}

fn sequence_message(name: &str, values: &[Value]) -> Result<SequenceProto> {
    let mut proto = SequenceProto { name: name.to_string(), elem_type: 1, ..SequenceProto::default() };
    for value in values {
        match value {
            Value::Tensor(value) => proto.tensor_values.push(tensor::proto(value, "")?),
            Value::Sequence(values) => proto.sequence_values.push(sequence_message("", values)?),
            Value::Optional(value) => proto.optional_values.push(optional_message("", value.as_deref())?),
        }
    }
    let kinds = [proto.tensor_values.len(), proto.sequence_values.len(), proto.optional_values.len()];
    match kinds.iter().position(|&n| n == values.len()) {
        Some(kind) => proto.elem_type = [1, 3, 5][kind],
        None => return Err(Error::Unsupported("a sequence of values of several kinds".into())),
    }
    Ok(proto)
}

fn optional_message(name: &str, value: Option<&Value>) -> Result<OptionalProto> {
    let mut proto = OptionalProto { name: name.to_string(), ..OptionalProto::default() };
    match value {
        None => {}
        Some(Value::Tensor(value)) => (proto.elem_type, proto.tensor_value) = (1, Some(tensor::proto(value, "")?)),
        Some(Value::Sequence(values)) => {
            (proto.elem_type, proto.sequence_value) = (3, Some(sequence_message("", values)?));
        }
        Some(Value::Optional(value)) => {
            (proto.elem_type, proto.optional_value) = (5, Some(Box::new(optional_message("", value.as_deref())?)));
        }
    }
    Ok(proto)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::DType;

    #[test]
    fn sequences_and_optionals_are_read_as_written() {
        let path = std::env::temp_dir().join(format!("tilewright-values-{}.pb", std::process::id()));
        let [a, b] = [Tensor::new(&[2], &[1f32, 2.0]), Tensor::new(&[], &[7f32])].map(Value::from);
        let tensors = Kind::Sequence(Box::new(Kind::Tensor));
        let sequence = Value::from(vec![a.clone(), b]);
        let some = |value: Value| Value::Optional(Some(Box::new(value)));
        for (value, kind) in [
            (sequence.clone(), tensors.clone()),
            (Value::from(vec![sequence.clone(), Value::from(vec![])]), Kind::Sequence(Box::new(tensors.clone()))),
            (some(a), Kind::Optional(Box::new(Kind::Tensor))),
            (some(sequence), Kind::Optional(Box::new(tensors.clone()))),
            (Value::Optional(None), Kind::Optional(Box::new(tensors))),
        ] {
            write_value(&path, "x", &value).unwrap();
            assert_eq!(read_value(&path, &kind).unwrap(), value);
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_written_is_read() {
        let path = std::env::temp_dir().join(format!("tilewright-value-{}.pb", std::process::id()));
        for dtype in [DType::F64, DType::F32, DType::I64, DType::I32, DType::I8, DType::U8, DType::Bool] {
            for shape in [vec![], vec![0], vec![5], vec![2, 3, 4]] {
                let mut tensor = Tensor::zeros(dtype, &shape);
                tensor.data.iter_mut().enumerate().for_each(|(i, b)| *b = i as u8 & 1);
                write_tensor(&path, "x", &tensor).unwrap();
                assert_eq!(read_tensor(&path).unwrap(), tensor);
            }
        }
        std::fs::write(&path, b"\x08\xff\xff").unwrap();
        assert!(read_tensor(&path).unwrap_err().to_string().contains("not a message of a tensor"));
        std::fs::remove_file(&path).unwrap();
    }
}
