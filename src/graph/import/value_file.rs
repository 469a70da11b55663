//! Files of single values: ONNX's `TensorProto`, as its backend tests and `.pb` test data have them.

use super::tensor;
use crate::graph::import::external::Folder;
use crate::graph::proto::TensorProto;
use crate::runtime::{Error, Result, Tensor, file};
use prost::Message;
use std::io::Read;
use std::path::Path;

/// Reads a tensor from a file that holds a `TensorProto`.
///
/// # Errors
/// [`Error::Io`] where the file cannot be read; [`Error::Invalid`] where it is damaged; [`Error::Limit`] where its shape is
/// too large; [`Error::Unsupported`] where its element type has no [`DType`](crate::DType).
pub fn read_tensor(path: impl AsRef<Path>) -> Result<Tensor> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let mut bytes = vec![];
    file::open(path)?.read_to_end(&mut bytes).map_err(|e| Error::Io(format!("cannot read {name}: {e}")))?;
    let proto = TensorProto::decode(&bytes[..])
        .map_err(|e| Error::Invalid(format!("{name} is not a file of a TensorProto ({e})")))?;
    tensor::read(proto, &Folder::of_file(path)).map_err(|e| e.context(&name))
}

/// Writes a tensor as a `TensorProto` of this name.
///
/// # Errors
/// [`Error::Io`] where the file cannot be written; [`Error::Unsupported`] where ONNX has no such element type.
pub fn write_tensor(path: impl AsRef<Path>, name: &str, tensor: &Tensor) -> Result<()> {
    let bytes = tensor::proto(tensor, name)?.encode_to_vec();
    file::write(path.as_ref(), |out| out.write_all(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::DType;

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
        assert!(read_tensor(&path).unwrap_err().to_string().contains("TensorProto"));
        std::fs::remove_file(&path).unwrap();
    }
}
