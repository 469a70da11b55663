//! Sparse initializers: the elements that are not zero, and their places. They become tensors with all elements.

use super::external::Folder;
use super::tensor::{self, checked_len};
use crate::graph::proto::{GraphProto, SparseTensorProto, TensorProto};
use crate::runtime::{Bytes, DType, Error, Result, Tensor};

/// The names of a graph's sparse initializers.
pub(super) fn names(graph: &GraphProto) -> impl Iterator<Item = &String> {
    graph.sparse_initializer.iter().filter_map(|sparse| Some(&sparse.values.as_ref()?.name))
}

/// The stored parts of a graph's sparse initializers.
pub(super) fn parts(graph: &GraphProto) -> impl Iterator<Item = &TensorProto> {
    graph.sparse_initializer.iter().flat_map(|sparse| sparse.values.iter().chain(&sparse.indices))
}

/// The name and all elements of a sparse tensor. `claim` refuses a type that is too large, before there is memory for it.
///
/// # Errors
/// `Invalid` where values, indices and extents do not fit; those of `claim`, and of reading the parts.
pub(super) fn read(
    proto: &SparseTensorProto,
    folder: &Folder,
    claim: impl FnOnce(&[i64], DType) -> Result<()>,
) -> Result<(String, Tensor)> {
    let missing = |what: &str| Error::Invalid(format!("a sparse initializer has no {what}"));
    let values = proto.values.as_ref().ok_or_else(|| missing("values"))?;
    let indices = proto.indices.as_ref().ok_or_else(|| missing("indices"))?;
    let what = format!("sparse initializer `{}`", values.name);
    let tensor = dense(values, indices, &proto.dims, folder, &what, claim).map_err(|e| e.context(&what))?;
    Ok((values.name.clone(), tensor))
}

fn dense(
    values: &TensorProto,
    indices: &TensorProto,
    dims: &[i64],
    folder: &Folder,
    what: &str,
    claim: impl FnOnce(&[i64], DType) -> Result<()>,
) -> Result<Tensor> {
    let dtype = tensor::dtype(values.data_type)?;
    let len = checked_len(dims, dtype, what)?;
    claim(dims, dtype)?;
    let (values, indices) = (tensor::read(values.clone(), folder)?, tensor::read(indices.clone(), folder)?);
    let (count, rank) = (values.len() as i64, dims.len() as i64);
    let linear = indices.shape == [count];
    if values.shape.len() != 1 || indices.dtype != DType::I64 || !linear && indices.shape != [count, rank] {
        let Tensor { dtype, shape, .. } = &indices;
        let values = &values.shape;
        return Err(Error::Invalid(format!("its values of shape {values:?} have indices {dtype} {shape:?}")));
    }
    let width = dtype.bytes();
    let mut data = Bytes::zeros(len * width);
    let mut last = -1;
    let rows = indices.to_vec::<i64>();
    for (row, value) in rows.chunks_exact(if linear { 1 } else { dims.len().max(1) }).zip(values.data.chunks(width)) {
        let inside = |(i, extent): (&i64, &i64)| (0..*extent).contains(i);
        let position = match row {
            [position] if linear => Some(*position).filter(|position| (0..len as i64).contains(position)),
            _ if row.iter().zip(dims).all(inside) => {
                Some(row.iter().zip(dims).fold(0, |position, (i, extent)| position * extent + i))
            }
            _ => None,
        };
        let position =
            position.ok_or_else(|| Error::Invalid(format!("its index {row:?} is outside of its shape {dims:?}")))?;
        if position <= last {
            return Err(Error::Invalid(format!("its index {row:?} is not behind the one before it")));
        }
        last = position;
        data[position as usize * width..][..width].copy_from_slice(value);
    }
    Ok(Tensor { dtype, shape: dims.to_vec(), data })
}
