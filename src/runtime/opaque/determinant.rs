//! Determinants of square matrices.

use super::element::misuse;
use super::{View, ViewMut};
use crate::{DType, Element, Result};

/// Input: matrices in the last two dimensions. Output: a determinant for each, computed in f64 by elimination with the
/// greatest pivot of each column, and rounded once.
pub fn determinant(_: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    let ([x], [y]) = (inputs, outputs) else { return Err(misuse("det")) };
    let [.., n, m] = *x.shape else { return Err(misuse("det")) };
    if n != m || y.dtype != x.dtype {
        return Err(misuse("det"));
    }
    let (n, size) = (n as usize, x.dtype.bytes());
    let read = |bytes: &[u8]| if size == 8 { f64::from_le(bytes) } else { f32::from_le(bytes).into() };
    if !matches!(x.dtype, DType::F32 | DType::F64) || x.data.len() != y.data.len() * n * n {
        return Err(misuse("det"));
    }
    for (i, out) in y.data.chunks_exact_mut(size).enumerate() {
        let matrix = &x.data[i * n * n * size..][..n * n * size];
        let value = eliminate(n, matrix.chunks_exact(size).map(read).collect());
        let bytes = if size == 8 { value.to_le() } else { (value as f32).to_le() };
        out.copy_from_slice(&bytes[..size]);
    }
    Ok(())
}

fn eliminate(n: usize, mut a: Vec<f64>) -> f64 {
    let mut product = 1.0;
    for k in 0..n {
        let greater = |best: usize, i: usize| if a[i * n + k].abs() > a[best * n + k].abs() { i } else { best };
        let pivot = (k..n).fold(k, greater);
        if a[pivot * n + k] == 0.0 {
            return 0.0;
        }
        if pivot != k {
            (0..n).for_each(|j| a.swap(k * n + j, pivot * n + j));
            product = -product;
        }
        product *= a[k * n + k];
        for i in k + 1..n {
            let factor = a[i * n + k] / a[k * n + k];
            (k..n).for_each(|j| a[i * n + j] -= factor * a[k * n + j]);
        }
    }
    product
}
