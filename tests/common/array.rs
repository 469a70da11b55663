//! Arrays for reference programs in plain Rust.

use std::ops::{Index, IndexMut};

/// An array of any rank, row-major.
#[derive(Clone, Debug)]
pub struct Array {
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

impl Array {
    pub fn zeros(shape: &[usize]) -> Array {
        Array { shape: shape.to_vec(), data: vec![0.0; shape.iter().product()] }
    }

    pub fn vector(n: usize, f: impl Fn(usize) -> f64) -> Array {
        Array { shape: vec![n], data: (0..n).map(f).collect() }
    }

    pub fn matrix(m: usize, n: usize, f: impl Fn(usize, usize) -> f64) -> Array {
        Array { shape: vec![m, n], data: (0..m * n).map(|k| f(k / n, k % n)).collect() }
    }

    fn at<const D: usize>(&self, index: [usize; D]) -> usize {
        assert!(
            D == self.shape.len() && index.iter().zip(&self.shape).all(|(i, n)| i < n),
            "{index:?} {:?}",
            self.shape
        );
        index.iter().zip(&self.shape).fold(0, |at, (i, n)| at * n + i)
    }
}

impl<const D: usize> Index<[usize; D]> for Array {
    type Output = f64;
    fn index(&self, index: [usize; D]) -> &f64 {
        &self.data[self.at(index)]
    }
}

impl<const D: usize> IndexMut<[usize; D]> for Array {
    fn index_mut(&mut self, index: [usize; D]) -> &mut f64 {
        let at = self.at(index);
        &mut self.data[at]
    }
}
