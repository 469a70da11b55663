//! NumPy's `.npy` files: a tensor read and written, with nothing believed that the bytes do not show.
//!
//! Format 1.0 to 3.0: magic, length of the header, a Python dictionary with `descr`, `fortran_order` and `shape`, then the
//! elements. Little-endian elements of the types of [`DType`]. bf16 has no name in the format: it is the two bytes `V2`, as which
//! NumPy saves arrays of the package ml_dtypes. The storage types are not read or written.

use crate::{DType, Error, Result, Tensor, file};
use std::io::Read;
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";
/// The format's names of the types.
const TYPES: [(&str, DType); 15] = [
    ("<f8", DType::F64),
    ("<f4", DType::F32),
    ("<f2", DType::F16),
    ("<V2", DType::BF16),
    ("|V2", DType::BF16),
    ("<i8", DType::I64),
    ("<i4", DType::I32),
    ("<i2", DType::I16),
    ("|i1", DType::I8),
    ("<u8", DType::U64),
    ("<u4", DType::U32),
    ("<u2", DType::U16),
    ("|u1", DType::U8),
    ("|b1", DType::Bool),
    ("?", DType::Bool),
];

impl Tensor {
    /// Reads a `.npy` file.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be read; [`Error::Invalid`] where it is damaged; [`Error::Limit`] where its
    /// shape is too large; [`Error::Unsupported`] where its element type has no [`DType`](crate::DType). Two bytes without a
    /// type, `V2`, are bf16.
    pub fn read_npy(path: impl AsRef<Path>) -> Result<Tensor> {
        let path = path.as_ref();
        let file = file::open(path)?;
        read(&mut std::io::BufReader::new(file)).map_err(|e| e.context(&path.display().to_string()))
    }

    /// Writes a `.npy` file.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be written; [`Error::Unsupported`] where the format has no such element
    /// type.
    pub fn write_npy(&self, path: impl AsRef<Path>) -> Result<()> {
        let header = header(self.dtype, &self.shape)?;
        file::write(path.as_ref(), |out| out.write_all(&header).and_then(|()| out.write_all(&self.data)))
    }
}

/// Reads one tensor from a stream and leaves the stream behind it.
pub fn read(stream: &mut impl Read) -> Result<Tensor> {
    let mut take = |count: usize| -> Result<Vec<u8>> {
        let mut bytes = vec![];
        // `take` and not a buffer of `count` bytes: a wrong length must not cost memory.
        let done = stream.by_ref().take(count as u64).read_to_end(&mut bytes);
        done.map_err(|e| Error::Io(format!("cannot read a .npy file: {e}")))?;
        if bytes.len() == count { Ok(bytes) } else { Err(Error::Invalid("the .npy file ends too early".into())) }
    };
    let start = take(8)?;
    if &start[..6] != MAGIC {
        return Err(Error::Invalid("not a .npy file".into()));
    }
    let length = match start[6] {
        1 => usize::from(u16::from_le_bytes(take(2)?.try_into().expect("two bytes"))),
        2 | 3 => u32::from_le_bytes(take(4)?.try_into().expect("four bytes")) as usize,
        other => return Err(Error::Unsupported(format!(".npy format version {other}"))),
    };
    let text = String::from_utf8(take(length)?).map_err(|_| Error::Invalid("the .npy header is not text".into()))?;
    let (dtype, fortran, shape) = parse_header(&text)?;
    let count = shape.iter().try_fold(dtype.bytes() as i64, |n, &d| n.checked_mul(d));
    let count = count.ok_or_else(|| Error::Limit(format!("a .npy tensor of shape {shape:?}")))?;
    let data = take(count as usize)?;
    if dtype == DType::Bool && data.iter().any(|&b| b > 1) {
        return Err(Error::Invalid("the .npy file holds a bool that is neither 0 nor 1".into()));
    }
    let data = if fortran { from_fortran(&data, &shape, dtype.bytes()) } else { data };
    Ok(Tensor { dtype, shape, data: data[..].into() })
}

/// Row-major bytes of column-major ones.
fn from_fortran(data: &[u8], shape: &[i64], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    for row_major in 0..data.len() / size {
        let (mut index, mut stride, mut offset) = (row_major, data.len() / size, 0);
        for &extent in shape.iter().rev() {
            stride /= extent as usize;
            offset += index % extent as usize * stride;
            index /= extent as usize;
        }
        out.extend_from_slice(&data[offset * size..][..size]);
    }
    out
}

/// Type, column-major order and shape from `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
fn parse_header(text: &str) -> Result<(DType, bool, Vec<i64>)> {
    let bad = || Error::Invalid(format!("the .npy header cannot be read: {}", text.trim()));
    let value = |key: &str| {
        let after =
            [format!("'{key}'"), format!("\"{key}\"")].iter().find_map(|k| text.find(k.as_str()).map(|i| i + k.len()));
        text[after?..].trim_start().strip_prefix(':').map(str::trim_start)
    };
    let descr = value("descr").ok_or_else(bad)?;
    let quote = descr.chars().next().filter(|c| "'\"".contains(*c)).ok_or_else(bad)?;
    let descr = descr[1..].split(quote).next().ok_or_else(bad)?;
    let dtype = TYPES.iter().find(|(name, _)| *name == descr).map(|(_, dtype)| *dtype);
    let dtype = dtype.ok_or_else(|| Error::Unsupported(format!(".npy element type `{descr}`")))?;
    let fortran = match value("fortran_order").ok_or_else(bad)? {
        v if v.starts_with("False") => false,
        v if v.starts_with("True") => true,
        _ => return Err(bad()),
    };
    let shape = value("shape").and_then(|v| v.strip_prefix('(')).and_then(|v| v.split(')').next()).ok_or_else(bad)?;
    let words = shape.split(',').map(str::trim).filter(|w| !w.is_empty());
    let shape = words.map(|w| w.parse().ok().filter(|&d: &i64| d >= 0).ok_or_else(bad)).collect::<Result<_>>()?;
    Ok((dtype, fortran, shape))
}

/// Everything before the elements, as NumPy writes it: padded so that they begin at a multiple of 64 bytes.
pub fn header(dtype: DType, shape: &[i64]) -> Result<Vec<u8>> {
    let descr = TYPES.iter().find(|(_, dtype_of_row)| *dtype_of_row == dtype).map(|(name, _)| name);
    let descr = descr.ok_or_else(|| Error::Unsupported(format!("{dtype} has no name in .npy files")))?;
    let shape: String = match shape {
        [one] => format!("{one},"),
        many => many.iter().map(i64::to_string).collect::<Vec<_>>().join(", "),
    };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let padded = (MAGIC.len() + 4 + text.len() + 1).next_multiple_of(64) - MAGIC.len() - 4;
    text.push_str(&" ".repeat(padded - text.len() - 1));
    text.push('\n');
    let length = u16::try_from(text.len()).map_err(|_| Error::Limit("a .npy header beyond 64 KiB".into()))?;
    Ok([MAGIC, &[1, 0], &length.to_le_bytes(), text.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(tensor: &Tensor) -> Vec<u8> {
        [header(tensor.dtype, &tensor.shape).unwrap(), tensor.data.to_vec()].concat()
    }

    #[test]
    fn what_is_written_is_read() {
        for (_, dtype) in TYPES {
            for shape in [vec![], vec![0], vec![5], vec![2, 3, 4]] {
                let mut tensor = Tensor::zeros(dtype, &shape);
                tensor.data.iter_mut().enumerate().for_each(|(i, b)| *b = i as u8 & 1);
                let written = bytes(&tensor);
                assert_eq!((written.len() - tensor.data.len()) % 64, 0);
                let twice = [written.clone(), written].concat();
                let mut stream = &twice[..];
                assert_eq!(read(&mut stream).unwrap(), tensor);
                assert_eq!(read(&mut stream).unwrap(), tensor);
                assert!(stream.is_empty());
            }
        }
    }

    #[test]
    fn column_major_order_is_turned() {
        let text = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n";
        let file = [MAGIC, &[1, 0, text.len() as u8, 0], text.as_bytes(), &[0, 3, 1, 4, 2, 5]].concat();
        assert_eq!(read(&mut &file[..]).unwrap(), Tensor::new(&[2, 3], &[0u8, 1, 2, 3, 4, 5]));
    }

    #[test]
    fn damaged_files_are_refused() {
        let good = bytes(&Tensor::new(&[2, 3], &[1.0f32; 6]));
        for length in 0..good.len() {
            assert!(read(&mut &good[..length]).is_err(), "{length} bytes");
        }
        for (from, to) in
            [("(2, 3)", "(2, -3)"), ("<f4", ">f4"), ("False", "Maybe"), ("(2, 3)", "(9223372036854775807, 9)")]
        {
            let text = String::from_utf8_lossy(&good[10..128]).trim_end().replace(from, to);
            let file = [MAGIC, &[1, 0, text.len() as u8, 0], text.as_bytes(), &good[128..]].concat();
            assert!(read(&mut &file[..]).is_err(), "{to}");
        }
    }
}
