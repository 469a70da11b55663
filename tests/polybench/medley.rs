//! medley.

use super::{Array, Sizes};

/// One pass of the recursive filter over `n` elements, `y(i) = a·x(i) + b·x(i-1) + c·y(i-1) + d·y(i-2)`.
fn pass(n: usize, x: impl Fn(usize) -> f64, [a, b, c, d]: [f64; 4], mut y: impl FnMut(usize, f64)) {
    let (mut x1, mut y1, mut y2) = (0.0, 0.0, 0.0);
    for i in 0..n {
        let value = a * x(i) + b * x1 + c * y1 + d * y2;
        y(i, value);
        (x1, y2, y1) = (x(i), y1, value);
    }
}

pub fn deriche(s: &Sizes) -> Vec<Array> {
    let (w, h) = (s.n("W"), s.n("H"));
    let alpha = 0.25f64;
    let k = (1.0 - (-alpha).exp()).powi(2) / (1.0 + 2.0 * alpha * (-alpha).exp() - (2.0 * alpha).exp());
    let (b1, b2) = (2f64.powf(-alpha), -(-2.0 * alpha).exp());
    let forth = [k, k * (-alpha).exp() * (alpha - 1.0), b1, b2];
    // The pass back reads the element after the present one and the one after that.
    let back = [k * (-alpha).exp() * (alpha + 1.0), -k * (-2.0 * alpha).exp(), b1, b2];
    let mut image = Array::matrix(w, h, |i, j| ((313 * i + 991 * j) % 65536) as f64 / 65535.0);
    for rows in [true, false] {
        let (lines, n) = if rows { (w, h) } else { (h, w) };
        let mut out = Array::zeros(&[w, h]);
        for line in 0..lines {
            let at = |i: usize| if rows { [line, i] } else { [i, line] };
            pass(n, |i| image[at(i)], forth, |i, y| out[at(i)] += y);
            let later = |i: usize| if i == 0 { 0.0 } else { image[at(n - i)] };
            pass(n, later, back, |i, y| out[at(n - 1 - i)] += y);
        }
        image = out;
    }
    vec![image]
}

pub fn floyd_warshall(s: &Sizes) -> Vec<Array> {
    let n = s.n("N");
    let far = |d: usize| d.is_multiple_of(13) || d.is_multiple_of(7) || d.is_multiple_of(11);
    let mut path = Array::matrix(n, n, |i, j| if far(i + j) { 999.0 } else { (i * j % 7 + 1) as f64 });
    for k in 0..n {
        for i in 0..n {
            for j in 0..n {
                path[[i, j]] = path[[i, j]].min(path[[i, k]] + path[[k, j]]);
            }
        }
    }
    vec![path]
}

pub fn nussinov(s: &Sizes) -> Vec<Array> {
    let n = s.n("N");
    let base = |i: usize| (i + 1) % 4;
    let mut table = Array::zeros(&[n, n]);
    for i in (0..n).rev() {
        for j in i + 1..n {
            let mut best = table[[i, j]].max(table[[i, j - 1]]);
            if i + 1 < n {
                let bond = if i + 1 < j && base(i) + base(j) == 3 { 1.0 } else { 0.0 };
                best = best.max(table[[i + 1, j]]).max(table[[i + 1, j - 1]] + bond);
            }
            for k in i + 1..j {
                best = best.max(table[[i, k]] + table[[k + 1, j]]);
            }
            table[[i, j]] = best;
        }
    }
    vec![table]
}
