//! Determinants of square matrices.

use super::element::misuse;
use super::{View, ViewMut};
use crate::{DType, Result};

/// Inputs: matrices. Outputs: a determinant for each, and room for a copy of the matrices.
pub fn determinant(_: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    let ([x], [results, copy]) = (inputs, outputs) else { return Err(misuse("determinant")) };
    let fits = x.dtype == results.dtype && copy.data.len() == x.data.len();
    let size = match x.shape {
        [.., rows, columns] if fits && rows == columns => *rows as usize,
        _ => return Err(misuse("determinant")),
    };
    copy.data.copy_from_slice(x.data);
    match x.dtype {
        DType::F32 => {
            let matrices = copy.data.as_chunks_mut::<4>().0;
            for (i, to) in results.data.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let matrix = &mut matrices[i * size * size..][..size * size];
                let value = eliminate(matrix, size, |b| f64::from(f32::from_le_bytes(b)), |v| (v as f32).to_le_bytes());
                *to = (value as f32).to_le_bytes();
            }
        }
        DType::F64 => {
            let matrices = copy.data.as_chunks_mut::<8>().0;
            for (i, to) in results.data.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let matrix = &mut matrices[i * size * size..][..size * size];
                *to = eliminate(matrix, size, f64::from_le_bytes, f64::to_le_bytes).to_le_bytes();
            }
        }
        _ => return Err(misuse("determinant")),
    }
    Ok(())
}

/// The product of the pivots of an elimination with row exchanges, in place.
fn eliminate<const N: usize>(
    matrix: &mut [[u8; N]],
    size: usize,
    read: impl Fn([u8; N]) -> f64,
    write: impl Fn(f64) -> [u8; N],
) -> f64 {
    let mut product = 1.0;
    for k in 0..size {
        let magnitude = |r: usize| read(matrix[r * size + k]).abs();
        let pivot = (k..size).fold(k, |best, r| if magnitude(r) > magnitude(best) { r } else { best });
        if pivot != k {
            product = -product;
            (0..size).for_each(|c| matrix.swap(k * size + c, pivot * size + c));
        }
        let head = read(matrix[k * size + k]);
        product *= head;
        if head == 0.0 {
            return product;
        }
        for r in k + 1..size {
            let factor = read(matrix[r * size + k]) / head;
            for c in k..size {
                let value = read(matrix[r * size + c]) - factor * read(matrix[k * size + c]);
                matrix[r * size + c] = write(value);
            }
        }
    }
    product
}

#[cfg(test)]
mod tests {
    use crate::opaque::apply;
    use crate::{DType, Tensor};

    #[test]
    fn rows_are_exchanged() {
        let x = Tensor::new(
            &[2, 3, 3],
            &[0f64, 2.0, 1.0, 1.0, 0.0, 0.0, 4.0, 4.0, 5.0, 1.0, 2.0, 3.0, 2.0, 4.0, 6.0, 0.0, 1.0, 1.0],
        );
        let out = [(DType::F64, vec![2]), (DType::F64, vec![2, 3, 3])];
        assert_eq!(apply("determinant", &[], &[&x], &out).unwrap()[0].to_vec::<f64>(), [-6.0, 0.0]);
    }
}
