//! linear-algebra/kernels.

use super::{Array, Sizes};

/// The sum of products of a row and a column.
fn product(a: &Array, b: &Array) -> Array {
    let (m, n, k) = (a.shape[0], b.shape[1], a.shape[1]);
    Array::matrix(m, n, |i, j| (0..k).map(|k| a[[i, k]] * b[[k, j]]).sum())
}

pub fn two_products(s: &Sizes) -> Vec<Array> {
    let (ni, nj, nk, nl) = (s.n("NI"), s.n("NJ"), s.n("NK"), s.n("NL"));
    let a = Array::matrix(ni, nk, |i, j| ((i * j + 1) % ni) as f64 / ni as f64);
    let b = Array::matrix(nk, nj, |i, j| (i * (j + 1) % nj) as f64 / nj as f64);
    let c = Array::matrix(nj, nl, |i, j| ((i * (j + 3) + 1) % nl) as f64 / nl as f64);
    let d = Array::matrix(ni, nl, |i, j| (i * (j + 2) % nk) as f64 / nk as f64);
    let abc = product(&product(&a, &b), &c);
    vec![Array::matrix(ni, nl, |i, j| 1.2 * d[[i, j]] + 1.5 * abc[[i, j]])]
}

pub fn three_products(s: &Sizes) -> Vec<Array> {
    let (ni, nj, nk, nl, nm) = (s.n("NI"), s.n("NJ"), s.n("NK"), s.n("NL"), s.n("NM"));
    let a = Array::matrix(ni, nk, |i, j| ((i * j + 1) % ni) as f64 / (5 * ni) as f64);
    let b = Array::matrix(nk, nj, |i, j| ((i * (j + 1) + 2) % nj) as f64 / (5 * nj) as f64);
    let c = Array::matrix(nj, nm, |i, j| (i * (j + 3) % nl) as f64 / (5 * nl) as f64);
    let d = Array::matrix(nm, nl, |i, j| ((i * (j + 2) + 2) % nk) as f64 / (5 * nk) as f64);
    vec![product(&product(&a, &b), &product(&c, &d))]
}

pub fn atax(s: &Sizes) -> Vec<Array> {
    let (m, n) = (s.n("M"), s.n("N"));
    let x = Array::vector(n, |i| 1.0 + i as f64 / n as f64);
    let a = Array::matrix(m, n, |i, j| ((i + j) % n) as f64 / (5 * m) as f64);
    let ax = Array::vector(m, |i| (0..n).map(|j| a[[i, j]] * x[[j]]).sum());
    vec![Array::vector(n, |j| (0..m).map(|i| a[[i, j]] * ax[[i]]).sum())]
}

pub fn bicg(s: &Sizes) -> Vec<Array> {
    let (m, n) = (s.n("M"), s.n("N"));
    let p = Array::vector(m, |i| (i % m) as f64 / m as f64);
    let r = Array::vector(n, |i| (i % n) as f64 / n as f64);
    let a = Array::matrix(n, m, |i, j| (i * (j + 1) % n) as f64 / n as f64);
    vec![
        Array::vector(m, |j| (0..n).map(|i| r[[i]] * a[[i, j]]).sum()),
        Array::vector(n, |i| (0..m).map(|j| a[[i, j]] * p[[j]]).sum()),
    ]
}

pub fn doitgen(s: &Sizes) -> Vec<Array> {
    let (nq, nr, np) = (s.n("NQ"), s.n("NR"), s.n("NP"));
    let mut a = Array::zeros(&[nr, nq, np]);
    let c4 = Array::matrix(np, np, |i, j| (i * j % np) as f64 / np as f64);
    for r in 0..nr {
        for q in 0..nq {
            let row: Vec<f64> = (0..np).map(|k| ((r * q + k) % np) as f64 / np as f64).collect();
            for p in 0..np {
                a[[r, q, p]] = (0..np).map(|s| row[s] * c4[[s, p]]).sum();
            }
        }
    }
    vec![a]
}

pub fn mvt(s: &Sizes) -> Vec<Array> {
    let n = s.n("N");
    let line = |shift: usize| Array::vector(n, |i| ((i + shift) % n) as f64 / n as f64);
    let (x1, x2, y1, y2) = (line(0), line(1), line(3), line(4));
    let a = Array::matrix(n, n, |i, j| (i * j % n) as f64 / n as f64);
    vec![
        Array::vector(n, |i| x1[[i]] + (0..n).map(|j| a[[i, j]] * y1[[j]]).sum::<f64>()),
        Array::vector(n, |i| x2[[i]] + (0..n).map(|j| a[[j, i]] * y2[[j]]).sum::<f64>()),
    ]
}
