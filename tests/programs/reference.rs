//! Plain Rust for the programs: the loops as a book writes them, in f64.

use super::common::array::Array;
use std::collections::BTreeMap;

/// The sizes and arrays of a program by name.
pub struct Arrays {
    sizes: BTreeMap<String, i64>,
    arrays: BTreeMap<String, Array>,
}

impl Arrays {
    pub fn new<'a>(
        sizes: &BTreeMap<String, i64>,
        arrays: impl Iterator<Item = (&'a str, &'a [i64], Vec<f64>)>,
    ) -> Arrays {
        let array = |shape: &[i64], data| Array { shape: shape.iter().map(|&n| n as usize).collect(), data };
        Arrays {
            sizes: sizes.clone(),
            arrays: arrays.map(|(name, shape, data)| (name.to_string(), array(shape, data))).collect(),
        }
    }

    pub fn values(&self, name: &str) -> &[f64] {
        &self.arrays[name].data
    }

    fn n(&self, name: &str) -> usize {
        self.sizes[name] as usize
    }

    fn take(&mut self, name: &str) -> Array {
        self.arrays.remove(name).unwrap_or_else(|| panic!("no array {name}"))
    }

    fn put(&mut self, name: &str, array: Array) {
        self.arrays.insert(name.to_string(), array);
    }
}

pub fn lcs(p: &mut Arrays) {
    let (a, b, mut l) = (p.take("a"), p.take("b"), p.take("L"));
    for i in 0..p.n("N") {
        for j in 0..p.n("N") {
            l[[i + 1, j + 1]] = if a[[i]] == b[[j]] { l[[i, j]] + 1.0 } else { l[[i, j + 1]].max(l[[i + 1, j]]) };
        }
    }
    p.put("L", l);
}

pub fn edit_distance(p: &mut Arrays) {
    let (a, b, mut d) = (p.take("a"), p.take("b"), p.take("D"));
    let n = p.n("N");
    for i in 0..=n {
        (d[[i, 0]], d[[0, i]]) = (i as f64, i as f64);
    }
    for i in 0..n {
        for j in 0..n {
            let changed = d[[i, j]] + f64::from(a[[i]] != b[[j]]);
            d[[i + 1, j + 1]] = changed.min(d[[i, j + 1]] + 1.0).min(d[[i + 1, j]] + 1.0);
        }
    }
    p.put("D", d);
}

pub fn smith_waterman(p: &mut Arrays) {
    let (a, b, mut h, mut best) = (p.take("a"), p.take("b"), p.take("H"), p.take("best"));
    for i in 0..p.n("N") {
        for j in 0..p.n("N") {
            let diagonal = h[[i, j]] + if a[[i]] == b[[j]] { 3.0 } else { -2.0 };
            let gap = h[[i, j + 1]].max(h[[i + 1, j]]) - 4.0;
            h[[i + 1, j + 1]] = diagonal.max(gap).max(0.0);
            best[[0]] = best[[0]].max(h[[i + 1, j + 1]]);
        }
    }
    p.put("H", h);
    p.put("best", best);
}

pub fn gotoh(p: &mut Arrays) {
    let (a, b, mut h) = (p.take("a"), p.take("b"), p.take("H"));
    let (mut e, mut f) = (p.take("E"), p.take("F"));
    for i in 1..=p.n("N") {
        for j in 1..=p.n("N") {
            e[[i, j]] = (e[[i, j - 1]] - 0.5).max(h[[i, j - 1]] - 2.5);
            f[[i, j]] = (f[[i - 1, j]] - 0.5).max(h[[i - 1, j]] - 2.5);
            let diagonal = h[[i - 1, j - 1]] + if a[[i - 1]] == b[[j - 1]] { 1.5 } else { -1.0 };
            h[[i, j]] = diagonal.max(e[[i, j]]).max(f[[i, j]]);
        }
    }
    p.put("H", h);
    p.put("E", e);
    p.put("F", f);
}

pub fn knapsack(p: &mut Arrays) {
    let (v, mut k) = (p.take("v"), p.take("K"));
    for i in 0..p.n("N") {
        for w in 0..p.n("W") {
            let without = k[[i, w]];
            k[[i + 1, w]] = if w > i { without.max(k[[i, w - i - 1]] + v[[i]]) } else { without };
        }
    }
    p.put("K", k);
}

pub fn matrix_chain(p: &mut Arrays) {
    let (size, mut m) = (p.take("p"), p.take("M"));
    let n = p.n("N");
    for length in 1..n {
        for i in 0..n - length {
            let j = i + length;
            for k in i..j {
                let cost = m[[i, k]] + m[[k + 1, j]] + size[[i]] * size[[k + 1]] * size[[j + 1]];
                m[[i, j]] = m[[i, j]].min(cost);
            }
        }
    }
    p.put("M", m);
}

pub fn prefix_sum(p: &mut Arrays) {
    let (x, mut s) = (p.take("X"), p.take("S"));
    for i in 0..p.n("M") {
        let mut sum = 0.0;
        for j in 0..p.n("N") {
            sum += x[[i, j]];
            s[[i, j]] = sum;
        }
    }
    p.put("S", s);
}

pub fn integral_image(p: &mut Arrays) {
    let (x, mut s) = (p.take("X"), p.take("S"));
    for i in 0..p.n("M") {
        let mut row = 0.0;
        for j in 0..p.n("N") {
            row += x[[i, j]];
            s[[i + 1, j + 1]] = s[[i, j + 1]] + row;
        }
    }
    p.put("S", s);
}

pub fn cumulative_max(p: &mut Arrays) {
    let (x, mut c, mut changed) = (p.take("X"), p.take("C"), p.take("changed"));
    for i in 0..p.n("M") {
        c[[i, 0]] = x[[i, 0]];
        for j in 1..p.n("N") {
            c[[i, j]] = c[[i, j - 1]].max(x[[i, j]]);
            changed[[i, j]] = f64::from(c[[i, j]] > c[[i, j - 1]]);
        }
    }
    p.put("C", c);
    p.put("changed", changed);
}

pub fn iir_filter(p: &mut Arrays) {
    let (x, mut y) = (p.take("X"), p.take("Y"));
    for i in 0..p.n("M") {
        let (mut last, mut before) = (0.0, 0.0);
        for n in 2..p.n("N") {
            let input = 0.2 * x[[i, n]] + 0.4 * x[[i, n - 1]] + 0.2 * x[[i, n - 2]];
            (last, before) = (input + 0.6 * last - 0.3 * before, last);
            y[[i, n]] = last;
        }
    }
    p.put("Y", y);
}

pub fn gauss_seidel5(p: &mut Arrays) {
    let (b, mut a) = (p.take("B"), p.take("A"));
    for _ in 0..p.n("T") {
        for i in 1..p.n("N") - 1 {
            for j in 1..p.n("N") - 1 {
                let around = a[[i - 1, j]] + a[[i, j - 1]] + a[[i, j + 1]] + a[[i + 1, j]];
                a[[i, j]] = 0.25 * (around + b[[i, j]]);
            }
        }
    }
    p.put("A", a);
}

pub fn seidel9(p: &mut Arrays) {
    let mut a = p.take("A");
    for _ in 0..p.n("T") {
        for i in 1..p.n("N") - 1 {
            for j in 1..p.n("N") - 1 {
                let mut sum = 0.0;
                for (r, s) in (0..9).map(|k| (k / 3, k % 3)) {
                    sum += a[[i + r - 1, j + s - 1]];
                }
                a[[i, j]] = sum * 0.11;
            }
        }
    }
    p.put("A", a);
}

pub fn stencil27(p: &mut Arrays) {
    let mut a = p.take("A");
    let inside = 1..p.n("N") - 1;
    let weight = [0.3, 0.05, 0.02, 0.01];
    for _ in 0..p.n("T") {
        for i in inside.clone() {
            for j in inside.clone() {
                for k in inside.clone() {
                    let mut sum = 0.0;
                    for (r, s, t) in (0..27usize).map(|n| (n / 9, n / 3 % 3, n % 3)) {
                        let distance = r.abs_diff(1) + s.abs_diff(1) + t.abs_diff(1);
                        sum += weight[distance] * a[[i + r - 1, j + s - 1, k + t - 1]];
                    }
                    a[[i, j, k]] = sum;
                }
            }
        }
    }
    p.put("A", a);
}

pub fn spmv_csr(p: &mut Arrays) {
    let (row, column, value, x) = (p.take("row"), p.take("column"), p.take("value"), p.take("x"));
    let mut y = p.take("y");
    for i in 0..p.n("N") {
        let elements = row[[i]] as usize..row[[i + 1]] as usize;
        y[[i]] = elements.map(|k| value[[k]] * x[[column[[k]] as usize]]).sum();
    }
    p.put("y", y);
}

pub fn csr_softmax(p: &mut Arrays) {
    let (row, score, mut weight) = (p.take("row"), p.take("score"), p.take("weight"));
    for i in 0..p.n("N") {
        let elements = row[[i]] as usize..row[[i + 1]] as usize;
        let most = elements.clone().map(|k| score[[k]]).fold(-1000.0, f64::max);
        let sum: f64 = elements.clone().map(|k| (score[[k]] - most).exp()).sum();
        elements.for_each(|k| weight[[k]] = (score[[k]] - most).exp() / sum);
    }
    p.put("weight", weight);
}

pub fn spmv_ell(p: &mut Arrays) {
    let (column, value, x, mut y) = (p.take("column"), p.take("value"), p.take("x"), p.take("y"));
    for i in 0..p.n("N") {
        y[[i]] = (0..p.n("K")).map(|k| value[[i, k]] * x[[column[[i, k]] as usize]]).sum();
    }
    p.put("y", y);
}

pub fn histogram(p: &mut Arrays) {
    let (x, mut h) = (p.take("x"), p.take("h"));
    for i in 0..p.n("N") {
        h[[x[[i]] as usize]] += 1.0;
    }
    p.put("h", h);
}

pub fn inverse3x3(p: &mut Arrays) {
    let (a, d, mut b, mut m) = (p.take("A"), p.take("d"), p.take("B"), p.take("m"));
    for n in 0..p.n("N") {
        let at = |i: usize, j: usize| a[[n, i % 3, j % 3]];
        let minor = |i: usize, j: usize| at(i + 1, j + 1) * at(i + 2, j + 2) - at(i + 1, j + 2) * at(i + 2, j + 1);
        let determinant: f64 = (0..3).map(|j| at(0, j) * minor(0, j)).sum();
        for (i, j) in (0..9).map(|k| (k / 3, k % 3)) {
            // the adjugate is the transpose of the cofactors; subscripts modulo 3 have their signs
            b[[n, i, j]] = minor(j, i) / determinant;
            m[[n]] += d[[n, i]] * b[[n, i, j]] * d[[n, j]];
        }
    }
    p.put("B", b);
    p.put("m", m);
}

pub fn sddmm(p: &mut Arrays) {
    let (column, a, b, mut c) = (p.take("column"), p.take("A"), p.take("B"), p.take("C"));
    for i in 0..p.n("N") {
        for s in 0..p.n("S") {
            let row = column[[i, s]] as usize;
            c[[i, s]] = (0..p.n("K")).map(|k| a[[i, k]] * b[[row, k]]).sum();
        }
    }
    p.put("C", c);
}

pub fn ldlt(p: &mut Arrays) {
    let (mut a, mut d) = (p.take("A"), p.take("D"));
    let n = p.n("N");
    for j in 0..n {
        d[[j]] = a[[j, j]] - (0..j).map(|k| a[[j, k]] * a[[j, k]] * d[[k]]).sum::<f64>();
        for i in j + 1..n {
            let sum: f64 = (0..j).map(|k| a[[i, k]] * a[[j, k]] * d[[k]]).sum();
            a[[i, j]] = (a[[i, j]] - sum) / d[[j]];
        }
    }
    p.put("A", a);
    p.put("D", d);
}

pub fn trsm(p: &mut Arrays) {
    let (l, mut b) = (p.take("L"), p.take("B"));
    for j in 0..p.n("N") {
        for i in 0..p.n("M") {
            let sum: f64 = (0..i).map(|k| l[[i, k]] * b[[k, j]]).sum();
            b[[i, j]] = (b[[i, j]] - sum) / l[[i, i]];
        }
    }
    p.put("B", b);
}

pub fn mandelbrot(p: &mut Arrays) {
    // the points that stay are counted, so each step is rounded as the program's
    let mut steps = p.take("steps");
    let n = p.n("N");
    for i in 0..n {
        for j in 0..n {
            let (cx, cy) = (j as f32 * 3.0 / n as f32 - 2.0, i as f32 * 2.0 / n as f32 - 1.0);
            let (mut x, mut y) = (0.0f32, 0.0f32);
            for _ in 0..20 {
                let z = x * x - y * y + cx;
                y = (2.0 * x * y + cy).clamp(-4.0, 4.0);
                x = z.clamp(-4.0, 4.0);
                steps[[i, j]] += f64::from(x * x + y * y < 4.0);
            }
        }
    }
    p.put("steps", steps);
}

pub fn bilateral(p: &mut Arrays) {
    let (x, mut y, mut w) = (p.take("X"), p.take("Y"), p.take("W"));
    for i in 0..p.n("M") {
        for j in 0..p.n("N") {
            for (r, s) in (0..25).map(|k| (k / 5, k % 5)) {
                let apart = x[[i + r, j + s]] - x[[i + 2, j + 2]];
                let weight = 1.0 / (1.0 + 20.0 * apart * apart);
                w[[i, j]] += weight;
                y[[i, j]] += x[[i + r, j + s]] * weight;
            }
            y[[i, j]] /= w[[i, j]];
        }
    }
    p.put("Y", y);
    p.put("W", w);
}

pub fn harris(p: &mut Arrays) {
    let (x, mut response) = (p.take("X"), p.take("R"));
    let gradient = |i: usize, j: usize| {
        let at = |r: usize, s: usize| x[[i + r - 1, j + s - 1]];
        let dx = at(0, 2) - at(0, 0) + 2.0 * (at(1, 2) - at(1, 0)) + at(2, 2) - at(2, 0);
        let dy = at(2, 0) - at(0, 0) + 2.0 * (at(2, 1) - at(0, 1)) + at(2, 2) - at(0, 2);
        (dx, dy)
    };
    for i in 2..p.n("M") - 2 {
        for j in 2..p.n("N") - 2 {
            let (mut a, mut b, mut c) = (0.0, 0.0, 0.0);
            for (r, s) in (0..9).map(|k| (k / 3, k % 3)) {
                let (dx, dy) = gradient(i + r - 1, j + s - 1);
                (a, b, c) = (a + dx * dx, b + dy * dy, c + dx * dy);
            }
            response[[i, j]] = a * b - c * c - 0.04 * (a + b) * (a + b);
        }
    }
    p.put("R", response);
}

pub fn power_iteration(p: &mut Arrays) {
    let (a, mut x) = (p.take("A"), p.take("x"));
    let n = p.n("N");
    for _ in 0..p.n("T") {
        let y: Vec<f64> = (0..n).map(|i| (0..n).map(|j| a[[i, j]] * x[[j]]).sum()).collect();
        let largest = y.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        (0..n).for_each(|i| x[[i]] = y[i] / largest);
    }
    p.put("x", x);
}

pub fn haar(p: &mut Arrays) {
    let (x, mut w, n) = (p.take("X"), p.take("W"), p.n("N"));
    let row = |i: usize, j: usize| match j < n {
        true => 0.7 * (x[[i, 2 * j]] + x[[i, 2 * j + 1]]),
        false => 0.7 * (x[[i, 2 * (j - n)]] - x[[i, 2 * (j - n) + 1]]),
    };
    for i in 0..n {
        for j in 0..2 * n {
            w[[i, j]] = 0.7 * (row(2 * i, j) + row(2 * i + 1, j));
            w[[i + n, j]] = 0.7 * (row(2 * i, j) - row(2 * i + 1, j));
        }
    }
    p.put("W", w);
}

pub fn laplacian_pyramid(p: &mut Arrays) {
    let (x, mut l, n) = (p.take("X"), p.take("L"), p.n("N"));
    let filter = |a: f64, b: f64, c: f64| 0.25 * a + 0.5 * b + 0.25 * c;
    let narrow = |y: usize, c: usize| filter(x[[y, 2 * c]], x[[y, 2 * c + 1]], x[[y, 2 * c + 2]]);
    let half = |y: usize, c: usize| filter(narrow(2 * y, c), narrow(2 * y + 1, c), narrow(2 * y + 2, c));
    let wide = |y: usize, c: usize| match y % 2 {
        0 => half(y / 2, c),
        _ => 0.5 * (half(y / 2, c) + half(y / 2 + 1, c)),
    };
    for y in 0..2 * n - 2 {
        for c in 0..n - 1 {
            l[[y, 2 * c]] = x[[y, 2 * c]] - wide(y, c);
            l[[y, 2 * c + 1]] = x[[y, 2 * c + 1]] - 0.5 * (wide(y, c) + wide(y, c + 1));
        }
    }
    p.put("L", l);
}

pub fn median3(p: &mut Arrays) {
    let (x, mut y, n) = (p.take("X"), p.take("Y"), p.n("N"));
    for i in 1..n - 1 {
        for j in 1..n - 1 {
            let mut window: Vec<f64> = (0..9).map(|k| x[[i + k / 3 - 1, j + k % 3 - 1]]).collect();
            window.sort_by(f64::total_cmp);
            y[[i, j]] = window[4];
        }
    }
    p.put("Y", y);
}

pub fn moving_average(p: &mut Arrays) {
    let (x, mut y) = (p.take("X"), p.take("Y"));
    for t in 1..p.n("T") {
        for c in 0..p.n("C") {
            y[[t, c]] = 0.9 * y[[t - 1, c]] + 0.1 * x[[t, c]];
        }
    }
    p.put("Y", y);
}

pub fn red_black(p: &mut Arrays) {
    let (mut u, b, n) = (p.take("u"), p.take("b"), p.n("N"));
    for _ in 0..p.n("T") {
        // first row and column of each colour, in their order
        for (first, second) in [(1, 1), (2, 2), (1, 2), (2, 1)] {
            for i in (first..=2 * n - 1).step_by(2) {
                for j in (second..=2 * n - 1).step_by(2) {
                    let around = u[[i - 1, j]] + u[[i + 1, j]] + u[[i, j - 1]] + u[[i, j + 1]];
                    u[[i, j]] = 0.25 * (around - b[[i, j]]);
                }
            }
        }
    }
    p.put("u", u);
}

pub fn thomas(p: &mut Arrays) {
    let (a, b, c, mut d, n) = (p.take("a"), p.take("b"), p.take("c"), p.take("d"), p.n("N"));
    for i in 0..p.n("M") {
        let mut upper = vec![c[[i, 0]] / b[[i, 0]]];
        d[[i, 0]] /= b[[i, 0]];
        for j in 1..n {
            let pivot = b[[i, j]] - a[[i, j]] * upper[j - 1];
            upper.push(c[[i, j]] / pivot);
            d[[i, j]] = (d[[i, j]] - a[[i, j]] * d[[i, j - 1]]) / pivot;
        }
        for j in (0..n - 1).rev() {
            d[[i, j]] -= upper[j] * d[[i, j + 1]];
        }
    }
    p.put("d", d);
}
