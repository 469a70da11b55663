//! datamining.

use super::{Array, Sizes};

/// The mean of each column.
fn means(data: &Array) -> Vec<f64> {
    let (n, m) = (data.shape[0], data.shape[1]);
    (0..m).map(|j| (0..n).map(|i| data[[i, j]]).sum::<f64>() / n as f64).collect()
}

/// The sums of products of columns.
fn products(data: &Array) -> Array {
    let (n, m) = (data.shape[0], data.shape[1]);
    Array::matrix(m, m, |i, j| (0..n).map(|k| data[[k, i]] * data[[k, j]]).sum())
}

pub fn correlation(s: &Sizes) -> Vec<Array> {
    let (m, n) = (s.n("M"), s.n("N"));
    let given = Array::matrix(n, m, |i, j| (i * j) as f64 / m as f64 + i as f64);
    let mean = means(&given);
    let deviation: Vec<f64> = (0..m)
        .map(|j| {
            let square = (0..n).map(|i| (given[[i, j]] - mean[j]).powi(2)).sum::<f64>() / n as f64;
            if square.sqrt() <= 0.1 { 1.0 } else { square.sqrt() }
        })
        .collect();
    let data = Array::matrix(n, m, |i, j| (given[[i, j]] - mean[j]) / ((n as f64).sqrt() * deviation[j]));
    let mut correlation = products(&data);
    for i in 0..m {
        correlation[[i, i]] = 1.0;
    }
    vec![data, correlation]
}

pub fn covariance(s: &Sizes) -> Vec<Array> {
    let (m, n) = (s.n("M"), s.n("N"));
    let given = Array::matrix(n, m, |i, j| (i * j) as f64 / m as f64);
    let mean = means(&given);
    let data = Array::matrix(n, m, |i, j| given[[i, j]] - mean[j]);
    let mut covariance = products(&data);
    covariance.data.iter_mut().for_each(|x| *x /= (n - 1) as f64);
    vec![data, covariance]
}
