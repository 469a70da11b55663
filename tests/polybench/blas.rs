//! linear-algebra/blas.

use super::{Array, Sizes};

const ALPHA: f64 = 1.5;
const BETA: f64 = 1.2;

/// `(i·j + shift) mod modulus / divisor`.
fn part(i: usize, j: usize, shift: usize, modulus: usize, divisor: usize) -> f64 {
    ((i * j + shift) % modulus) as f64 / divisor as f64
}

pub fn gemm(s: &Sizes) -> Vec<Array> {
    let (ni, nj, nk) = (s.n("NI"), s.n("NJ"), s.n("NK"));
    let mut c = Array::matrix(ni, nj, |i, j| part(i, j, 1, ni, ni));
    let a = Array::matrix(ni, nk, |i, j| part(i, j + 1, 0, nk, nk));
    let b = Array::matrix(nk, nj, |i, j| part(i, j + 2, 0, nj, nj));
    for i in 0..ni {
        for j in 0..nj {
            let sum: f64 = (0..nk).map(|k| a[[i, k]] * b[[k, j]]).sum();
            c[[i, j]] = BETA * c[[i, j]] + ALPHA * sum;
        }
    }
    vec![c]
}

pub fn gemver(s: &Sizes) -> Vec<Array> {
    let n = s.n("N");
    let mut a = Array::matrix(n, n, |i, j| part(i, j, 0, n, n));
    let line = |divisor: f64| Array::vector(n, |i| (i + 1) as f64 / n as f64 / divisor);
    let (u1, u2, v1, v2) = (Array::vector(n, |i| i as f64), line(2.0), line(4.0), line(6.0));
    let (y, z) = (line(8.0), line(9.0));
    let (mut x, mut w) = (Array::zeros(&[n]), Array::zeros(&[n]));
    for i in 0..n {
        for j in 0..n {
            a[[i, j]] += u1[[i]] * v1[[j]] + u2[[i]] * v2[[j]];
        }
    }
    for i in 0..n {
        for j in 0..n {
            x[[i]] += BETA * a[[j, i]] * y[[j]];
        }
        x[[i]] += z[[i]];
    }
    for i in 0..n {
        for j in 0..n {
            w[[i]] += ALPHA * a[[i, j]] * x[[j]];
        }
    }
    vec![a, x, w]
}

pub fn gesummv(s: &Sizes) -> Vec<Array> {
    let n = s.n("N");
    let x = Array::vector(n, |i| (i % n) as f64 / n as f64);
    let a = Array::matrix(n, n, |i, j| part(i, j, 1, n, n));
    let b = Array::matrix(n, n, |i, j| part(i, j, 2, n, n));
    let row = |m: &Array, i: usize| (0..n).map(|j| m[[i, j]] * x[[j]]).sum::<f64>();
    vec![Array::vector(n, |i| ALPHA * row(&a, i) + BETA * row(&b, i))]
}

pub fn symm(s: &Sizes) -> Vec<Array> {
    let (m, n) = (s.n("M"), s.n("N"));
    let mut c = Array::matrix(m, n, |i, j| ((i + j) % 100) as f64 / m as f64);
    let b = Array::matrix(m, n, |i, j| ((n + i - j) % 100) as f64 / m as f64);
    let a = Array::matrix(m, m, |i, j| if j <= i { ((i + j) % 100) as f64 / m as f64 } else { -999.0 });
    for i in 0..m {
        for j in 0..n {
            let mut sum = 0.0;
            for k in 0..i {
                c[[k, j]] += ALPHA * b[[i, j]] * a[[i, k]];
                sum += b[[k, j]] * a[[i, k]];
            }
            c[[i, j]] = BETA * c[[i, j]] + ALPHA * b[[i, j]] * a[[i, i]] + ALPHA * sum;
        }
    }
    vec![c]
}

pub fn syr2k(s: &Sizes) -> Vec<Array> {
    let (m, n) = (s.n("M"), s.n("N"));
    let a = Array::matrix(n, m, |i, j| part(i, j, 1, n, n));
    let b = Array::matrix(n, m, |i, j| part(i, j, 2, m, m));
    let mut c = Array::matrix(n, n, |i, j| part(i, j, 3, n, m));
    for i in 0..n {
        for j in 0..=i {
            let sum: f64 = (0..m).map(|k| a[[j, k]] * b[[i, k]] + b[[j, k]] * a[[i, k]]).sum();
            c[[i, j]] = BETA * c[[i, j]] + ALPHA * sum;
        }
    }
    vec![c]
}

pub fn syrk(s: &Sizes) -> Vec<Array> {
    let (m, n) = (s.n("M"), s.n("N"));
    let a = Array::matrix(n, m, |i, j| part(i, j, 1, n, n));
    let mut c = Array::matrix(n, n, |i, j| part(i, j, 2, m, m));
    for i in 0..n {
        for j in 0..=i {
            c[[i, j]] = BETA * c[[i, j]] + ALPHA * (0..m).map(|k| a[[i, k]] * a[[j, k]]).sum::<f64>();
        }
    }
    vec![c]
}

pub fn trmm(s: &Sizes) -> Vec<Array> {
    let (m, n) = (s.n("M"), s.n("N"));
    let a = Array::matrix(m, m, |i, j| if j < i { ((i + j) % m) as f64 / m as f64 } else { 1.0 });
    let mut b = Array::matrix(m, n, |i, j| ((n + i - j) % n) as f64 / n as f64);
    for i in 0..m {
        for j in 0..n {
            for k in i + 1..m {
                b[[i, j]] += a[[k, i]] * b[[k, j]];
            }
            b[[i, j]] *= ALPHA;
        }
    }
    vec![b]
}
