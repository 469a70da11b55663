//! stencils.

use super::{Array, Sizes};

pub fn adi(s: &Sizes) -> Vec<Array> {
    let (steps, n) = (s.n("TSTEPS"), s.n("N"));
    let mut u = Array::matrix(n, n, |i, j| (i + n - j) as f64 / n as f64);
    let (dx, dt) = (1.0 / n as f64, 1.0 / steps as f64);
    let (mul1, mul2) = (2.0 * dt / (dx * dx), dt / (dx * dx));
    let (a, b, d, e) = (-mul1 / 2.0, 1.0 + mul1, -mul2 / 2.0, 1.0 + mul2);
    // One line of a tridiagonal system with off-diagonal `a` and diagonal `b`, from its right-hand side.
    let solve = |a: f64, b: f64, right: &dyn Fn(usize) -> f64| {
        let (mut p, mut q) = (vec![0.0; n], vec![1.0; n]);
        for j in 1..n - 1 {
            p[j] = -a / (a * p[j - 1] + b);
            q[j] = (right(j) - a * q[j - 1]) / (a * p[j - 1] + b);
        }
        let mut line = vec![1.0; n];
        for j in (1..n - 1).rev() {
            line[j] = p[j] * line[j + 1] + q[j];
        }
        line
    };
    for _ in 0..steps {
        let mut v = Array::zeros(&[n, n]);
        for i in 1..n - 1 {
            let right = |j: usize| -d * u[[j, i - 1]] + (1.0 + 2.0 * d) * u[[j, i]] - d * u[[j, i + 1]];
            for (j, x) in solve(a, b, &right).into_iter().enumerate() {
                v[[j, i]] = x;
            }
        }
        for i in 1..n - 1 {
            let right = |j: usize| -a * v[[i - 1, j]] + (1.0 + 2.0 * a) * v[[i, j]] - a * v[[i + 1, j]];
            for (j, x) in solve(d, e, &right).into_iter().enumerate() {
                u[[i, j]] = x;
            }
        }
    }
    vec![u]
}

pub fn fdtd_2d(s: &Sizes) -> Vec<Array> {
    let (steps, nx, ny) = (s.n("TMAX"), s.n("NX"), s.n("NY"));
    let mut ex = Array::matrix(nx, ny, |i, j| (i * (j + 1)) as f64 / nx as f64);
    let mut ey = Array::matrix(nx, ny, |i, j| (i * (j + 2)) as f64 / ny as f64);
    let mut hz = Array::matrix(nx, ny, |i, j| (i * (j + 3)) as f64 / nx as f64);
    for t in 0..steps {
        for i in 0..nx {
            for j in 0..ny {
                if i == 0 {
                    ey[[i, j]] = t as f64;
                } else {
                    ey[[i, j]] -= 0.5 * (hz[[i, j]] - hz[[i - 1, j]]);
                }
                if j > 0 {
                    ex[[i, j]] -= 0.5 * (hz[[i, j]] - hz[[i, j - 1]]);
                }
            }
        }
        for i in 0..nx - 1 {
            for j in 0..ny - 1 {
                hz[[i, j]] -= 0.7 * (ex[[i, j + 1]] - ex[[i, j]] + ey[[i + 1, j]] - ey[[i, j]]);
            }
        }
    }
    vec![ex, ey, hz]
}

pub fn heat_3d(s: &Sizes) -> Vec<Array> {
    let (steps, n) = (s.n("TSTEPS"), s.n("N"));
    let mut a = Array::zeros(&[n, n, n]);
    for i in 0..n {
        for j in 0..n {
            for k in 0..n {
                a[[i, j, k]] = (i + j + n - k) as f64 * 10.0 / n as f64;
            }
        }
    }
    let mut b = a.clone();
    let sweep = |from: &Array, to: &mut Array| {
        for i in 1..n - 1 {
            for j in 1..n - 1 {
                for k in 1..n - 1 {
                    let x = from[[i, j, k]];
                    let along = |high: f64, low: f64| 0.125 * (high - 2.0 * x + low);
                    to[[i, j, k]] = along(from[[i + 1, j, k]], from[[i - 1, j, k]])
                        + along(from[[i, j + 1, k]], from[[i, j - 1, k]])
                        + along(from[[i, j, k + 1]], from[[i, j, k - 1]])
                        + x;
                }
            }
        }
    };
    for _ in 0..steps {
        sweep(&a, &mut b);
        sweep(&b, &mut a);
    }
    vec![a, b]
}

pub fn jacobi_1d(s: &Sizes) -> Vec<Array> {
    let (steps, n) = (s.n("TSTEPS"), s.n("N"));
    let mut a = Array::vector(n, |i| (i + 2) as f64 / n as f64);
    let mut b = Array::vector(n, |i| (i + 3) as f64 / n as f64);
    let sweep = |from: &Array, to: &mut Array| {
        for i in 1..n - 1 {
            to[[i]] = 0.33333 * (from[[i - 1]] + from[[i]] + from[[i + 1]]);
        }
    };
    for _ in 0..steps {
        sweep(&a, &mut b);
        sweep(&b, &mut a);
    }
    vec![a, b]
}

pub fn jacobi_2d(s: &Sizes) -> Vec<Array> {
    let (steps, n) = (s.n("TSTEPS"), s.n("N"));
    let mut a = Array::matrix(n, n, |i, j| (i as f64 * (j + 2) as f64 + 2.0) / n as f64);
    let mut b = Array::matrix(n, n, |i, j| (i as f64 * (j + 3) as f64 + 3.0) / n as f64);
    let sweep = |from: &Array, to: &mut Array| {
        for i in 1..n - 1 {
            for j in 1..n - 1 {
                let sides = from[[i, j - 1]] + from[[i, j + 1]] + from[[i + 1, j]] + from[[i - 1, j]];
                to[[i, j]] = 0.2 * (from[[i, j]] + sides);
            }
        }
    };
    for _ in 0..steps {
        sweep(&a, &mut b);
        sweep(&b, &mut a);
    }
    vec![a, b]
}

pub fn seidel_2d(s: &Sizes) -> Vec<Array> {
    let (steps, n) = (s.n("TSTEPS"), s.n("N"));
    let mut a = Array::matrix(n, n, |i, j| (i as f64 * (j + 2) as f64 + 2.0) / n as f64);
    for _ in 0..steps {
        for i in 1..n - 1 {
            for j in 1..n - 1 {
                let row = |i: usize| a[[i, j - 1]] + a[[i, j]] + a[[i, j + 1]];
                a[[i, j]] = (row(i - 1) + row(i) + row(i + 1)) / 9.0;
            }
        }
    }
    vec![a]
}
