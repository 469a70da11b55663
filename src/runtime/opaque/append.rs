//! Rows that are appended to a tensor behind a number of rows that is known at run time.

use super::element::misuse;
use super::{View, ViewMut};
use crate::{DType, Error, Result};

/// Attributes: axis. Inputs: a tensor, rows along the axis, the place of the first of them. Output: the tensor with these rows in
/// the place of its own.
pub fn append(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    let ([whole, rows, place], [output]) = (inputs, &mut *outputs) else { return Err(misuse("append")) };
    if whole.dtype != output.dtype || whole.data.len() != output.data.len() {
        return Err(misuse("append"));
    }
    output.data.copy_from_slice(whole.data);
    write_rows(attributes, &[*rows, *place], outputs)
}

/// As [`append`]; the output already has the tensor's elements.
pub fn write_rows(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    let ([axis], [rows, place], [output]) = (attributes, inputs, outputs) else { return Err(misuse("append")) };
    let axis = usize::try_from(*axis).ok().filter(|&a| a < rows.shape.len()).ok_or_else(|| misuse("append"))?;
    let fits = (0..rows.shape.len()).all(|d| d == axis || output.shape.get(d) == Some(&rows.shape[d]));
    if !fits || rows.shape.len() != output.shape.len() || rows.dtype != output.dtype || place.dtype != DType::I64 {
        return Err(misuse("append"));
    }
    let Some(first) = place.data.first_chunk::<8>().map(|bytes| i64::from_le_bytes(*bytes)) else {
        return Err(misuse("append"));
    };
    let (count, extent) = (rows.shape[axis], output.shape[axis]);
    if first < 0 || count > extent || first > extent - count {
        return Err(Error::Invalid(format!("{count} rows from {first} on do not fit the {extent} of a dimension")));
    }
    let row = rows.shape[axis + 1..].iter().product::<i64>() as usize * rows.dtype.bytes();
    let (from, to) = (count as usize * row, extent as usize * row);
    if from == 0 {
        return Ok(());
    }
    for (new, old) in rows.data.chunks_exact(from).zip(output.data.chunks_exact_mut(to)) {
        old[first as usize * row..][..from].copy_from_slice(new);
    }
    Ok(())
}
