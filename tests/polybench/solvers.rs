//! linear-algebra/solvers.

use super::{Array, Sizes, difference};

/// A lower triangle times its transpose.
fn positive(n: usize) -> Array {
    let l = |i: usize, j: usize| match i.cmp(&j) {
        std::cmp::Ordering::Less => 0.0,
        std::cmp::Ordering::Equal => 1.0,
        std::cmp::Ordering::Greater => -(j as f64) / n as f64 + 1.0,
    };
    Array::matrix(n, n, |r, s| (0..n).map(|t| l(r, t) * l(s, t)).sum())
}

pub fn cholesky(s: &Sizes) -> Vec<Array> {
    let n = s.n("N");
    let mut a = positive(n);
    for i in 0..n {
        for j in 0..i {
            for k in 0..j {
                a[[i, j]] -= a[[i, k]] * a[[j, k]];
            }
            a[[i, j]] /= a[[j, j]];
        }
        for k in 0..i {
            a[[i, i]] -= a[[i, k]] * a[[i, k]];
        }
        a[[i, i]] = a[[i, i]].sqrt();
    }
    vec![a]
}

pub fn durbin(s: &Sizes) -> Vec<Array> {
    let n = s.n("N");
    let r: Vec<f64> = (0..n).map(|i| (n + 1 - i) as f64).collect();
    let mut y = Array::zeros(&[n]);
    y[[0]] = -r[0];
    let (mut beta, mut alpha) = (1.0, -r[0]);
    for k in 1..n {
        beta *= 1.0 - alpha * alpha;
        let sum: f64 = (0..k).map(|i| r[k - i - 1] * y[[i]]).sum();
        alpha = -(r[k] + sum) / beta;
        let z: Vec<f64> = (0..k).map(|i| y[[i]] + alpha * y[[k - i - 1]]).collect();
        y.data[..k].copy_from_slice(&z);
        y[[k]] = alpha;
    }
    vec![y]
}

fn columns(m: usize, n: usize) -> Array {
    Array::matrix(m, n, |i, j| (i * j % m) as f64 / m as f64 * 100.0 + 10.0)
}

pub fn gramschmidt(s: &Sizes) -> Vec<Array> {
    let (m, n) = (s.n("M"), s.n("N"));
    let (mut a, mut r, mut q) = (columns(m, n), Array::zeros(&[n, n]), Array::zeros(&[m, n]));
    for k in 0..n {
        r[[k, k]] = (0..m).map(|i| a[[i, k]] * a[[i, k]]).sum::<f64>().sqrt();
        for i in 0..m {
            q[[i, k]] = a[[i, k]] / r[[k, k]];
        }
        for j in k + 1..n {
            r[[k, j]] = (0..m).map(|i| q[[i, k]] * a[[i, j]]).sum();
            for i in 0..m {
                a[[i, j]] -= q[[i, k]] * r[[k, j]];
            }
        }
    }
    vec![a, r, q]
}

/// The columns depend on each other: from the first that is nothing but rounding errors on, results are noise in any order
/// of summation. Those before it are compared; of the others it is asked that Q·R is the given matrix.
pub fn gramschmidt_difference(found: &[Vec<f64>], wanted: &[Array]) -> Option<String> {
    let (m, n) = (wanted[2].shape[0], wanted[2].shape[1]);
    let (r, q) = (&found[1], &found[2]);
    let clear = (0..n).take_while(|&k| wanted[1][[k, k]] > 1e-6 * wanted[1][[0, 0]]).count();
    assert!(clear >= 2);
    let left = |data: &[f64]| -> Vec<f64> { (0..m * n).filter(|k| k % n < clear).map(|k| data[k]).collect() };
    let given = columns(m, n);
    let again: Vec<f64> =
        (0..m * n).map(|at| (0..=at % n).map(|k| q[at / n * n + k] * r[k * n + at % n]).sum()).collect();
    difference("gramschmidt R", &r[..clear * n], &wanted[1].data[..clear * n])
        .or_else(|| difference("gramschmidt Q", &left(q), &left(&wanted[2].data)))
        .or_else(|| difference("gramschmidt Q·R", &again, &given.data))
}

fn decompose(a: &mut Array, n: usize) {
    for i in 0..n {
        for j in 0..n {
            for k in 0..i.min(j) {
                a[[i, j]] -= a[[i, k]] * a[[k, j]];
            }
            if j < i {
                a[[i, j]] /= a[[j, j]];
            }
        }
    }
}

pub fn lu(s: &Sizes) -> Vec<Array> {
    let n = s.n("N");
    let mut a = positive(n);
    decompose(&mut a, n);
    vec![a]
}

pub fn ludcmp(s: &Sizes) -> Vec<Array> {
    let n = s.n("N");
    let mut a = positive(n);
    decompose(&mut a, n);
    let mut y = Array::vector(n, |i| (i + 1) as f64 / n as f64 / 2.0 + 4.0);
    for i in 0..n {
        for j in 0..i {
            y[[i]] -= a[[i, j]] * y[[j]];
        }
    }
    let mut x = y;
    for i in (0..n).rev() {
        for j in i + 1..n {
            x[[i]] -= a[[i, j]] * x[[j]];
        }
        x[[i]] /= a[[i, i]];
    }
    vec![a, x]
}

pub fn trisolv(s: &Sizes) -> Vec<Array> {
    let n = s.n("N");
    let l = Array::matrix(n, n, |i, j| if j <= i { (i + n - j + 1) as f64 * 2.0 / n as f64 } else { 0.0 });
    let mut x = Array::vector(n, |i| i as f64);
    for i in 0..n {
        for j in 0..i {
            x[[i]] -= l[[i, j]] * x[[j]];
        }
        x[[i]] /= l[[i, i]];
    }
    vec![x]
}
