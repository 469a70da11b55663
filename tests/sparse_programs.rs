//! Loop programs whose loops have bounds from data, as those over the rows of a sparse matrix, against plain Rust: on every target of
//! this processor, on one and two threads, with rows of all lengths, and with data that lead out of an array.

#![allow(clippy::duplicate_mod, reason = "both modules record what is skipped")]

mod common;
mod emulator;

use common::host_targets;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use tilewright::internal::codegen::{Isa, Target};
use tilewright::internal::language::{self, lowered::Computation};
use tilewright::internal::pipeline::kernel::{self, Statements};
use tilewright::internal::poly::lower::state::Argument;
use tilewright::internal::poly::statement::Role;
use tilewright::{Model, Options, Session, Stage, Tensor};

/// A matrix in compressed rows.
struct Matrix {
    columns: usize,
    rows: Vec<i32>,
    column: Vec<i32>,
    /// Small whole numbers, so that sums are exact in any order.
    value: Vec<f32>,
}

impl Matrix {
    /// `lengths[i]` elements in row i.
    fn new(random: &mut StdRng, columns: usize, lengths: &[usize]) -> Matrix {
        let mut rows = vec![0];
        lengths.iter().for_each(|n| rows.push(rows[rows.len() - 1] + *n as i32));
        let count = lengths.iter().sum::<usize>().max(1);
        let column = (0..count).map(|_| random.random_range(0..columns as i32)).collect();
        let value = (0..count).map(|_| random.random_range(-3..=3) as f32).collect();
        Matrix { columns, rows, column, value }
    }

    fn row(&self, i: usize) -> std::ops::Range<usize> {
        self.rows[i] as usize..self.rows[i + 1] as usize
    }

    fn count(&self) -> usize {
        self.rows.len() - 1
    }

    fn sizes(&self) -> String {
        format!("N = {}, M = {}, Z = {}", self.count(), self.columns, self.column.len())
    }
}

fn matrices() -> Vec<Matrix> {
    let random = &mut StdRng::seed_from_u64(7);
    let mut all = vec![
        Matrix::new(random, 1, &[1]),
        Matrix::new(random, 5, &[0, 0, 0]),
        Matrix::new(random, 9, &[0, 67, 0, 0, 1]),
        Matrix::new(random, 40, &[3; 33]),
        Matrix::new(random, 17, &[16, 32, 15, 17, 0, 31, 48]),
    ];
    let lengths: Vec<usize> = (0..61).map(|_| random.random_range(0..90)).collect();
    all.push(Matrix::new(random, 71, &lengths));
    all
}

fn model(text: &str) -> Model {
    let file = language::parse("p.tile", text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    Model::from_program(file, None, None).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// The first output of a program, on each target with one thread and with two.
fn outputs(text: &str, given: &[(&str, &Tensor)]) -> Vec<Tensor> {
    let (model, mut out) = (model(text), vec![]);
    for target in host_targets() {
        let options = Options { target: Some(target), ..Options::default() };
        let module = Arc::new(model.compile_module(&options).unwrap_or_else(|e| panic!("{e}\n{text}")).0);
        for threads in [1, 2] {
            let session = Session::new(module.clone(), threads).unwrap();
            out.push(session.run(given).unwrap_or_else(|e| panic!("{e}\n{text}")).remove(0));
        }
    }
    out
}

fn i32s(values: &[i32]) -> Tensor {
    Tensor::new(&[values.len() as i64], values)
}

fn f32s(values: &[f32]) -> Tensor {
    Tensor::new(&[values.len() as i64], values)
}

#[test]
fn an_element_that_a_branch_stores_is_read_behind_it() {
    let text = "loop p() {
        in f32 b[16]
        inout f32 d[16], c[16], s[1]
        for t in 0..2 for i in 0..16 {
            for j in 0..2 * t { s[0] = b[i]
                c[i] = s[0] }
            d[i] = s[0]
        }
    }";
    let b: Vec<f32> = (0..16).map(|i| (i * 7 % 11) as f32).collect();
    let zeros = f32s(&[0.0; 16]);
    let given = [("b", &f32s(&b)), ("d", &zeros), ("c", &zeros), ("s", &f32s(&[99.0]))];
    outputs(text, &given).iter().for_each(|d| assert_eq!(d.to_vec::<f32>(), b));
}

#[test]
fn a_column_is_read_after_it_was_stored() {
    // the stores of both columns are joined, and so are the loads
    let text = "loop p() {
        in i32 b[17][2], c[17][2], p[17][2]
        inout i32 a[17][2], g[5][2]
        for i in 0..17 for j in 0..2 step -1 {
            a[i][j] = b[i][j]
            if p[i][j] >= 0 && p[i][j] < 5 g[p[i][j]][j] = 1
        }
        for i in 0..17 for j in 0..2 a[i][j] += c[i][j]
    }";
    let tensor =
        |rows: i64, f: &dyn Fn(i32) -> i32| Tensor::new(&[rows, 2], &(0..2 * rows as i32).map(f).collect::<Vec<i32>>());
    let (b, c, p) = (tensor(17, &|i| i * 7), tensor(17, &|i| 1000 - i), tensor(17, &|i| i % 8 - 2));
    let (a, g) = (tensor(17, &|i| -i), tensor(5, &|_| 0));
    let sums: Vec<i32> = (0..34).map(|i| i * 7 + 1000 - i).collect();
    for found in outputs(text, &[("b", &b), ("c", &c), ("p", &p), ("a", &a), ("g", &g)]) {
        assert_eq!(found.to_vec::<i32>(), sums);
    }
}

/// Statements over a matrix `p, c, v` of N rows, vectors `x` of M and `y` of N elements.
fn check(m: &Matrix, arrays: &str, statements: &str, expected: impl Fn(&[f32], &mut [f32])) {
    let x: Vec<f32> = (0..m.columns).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    let mut y: Vec<f32> = (0..m.count()).map(|i| (i % 5) as f32).collect();
    let text = format!(
        "loop p({}) {{ in i32 p[N + 1], c[Z]\n in f32 v[Z], x[M]\n inout f32 y[N]\n {arrays}\n {statements} }}",
        m.sizes()
    );
    let (p, c, v) = (i32s(&m.rows), i32s(&m.column), f32s(&m.value));
    let given = [("p", &p), ("c", &c), ("v", &v), ("x", &f32s(&x)), ("y", &f32s(&y))];
    let found = outputs(&text, &given);
    expected(&x, &mut y);
    for (k, found) in found.iter().enumerate() {
        assert_eq!(found.to_vec::<f32>(), y, "{k}: {:?}\n{text}", m.rows);
    }
}

#[test]
fn rows_times_a_vector() {
    for m in &matrices() {
        let sums = |sign: f32| {
            move |x: &[f32], y: &mut [f32]| {
                for (i, y) in y.iter_mut().enumerate() {
                    m.row(i).for_each(|k| *y += sign * m.value[k] * x[m.column[k] as usize]);
                }
            }
        };
        check(m, "", "for i in 0..N for k in p[i]..p[i + 1] y[i] += v[k] * x[c[k]]", sums(1.0));
        check(m, "", "for i in 0..N for k in p[i]..p[i + 1] y[i] -= v[k] * x[c[k]]", sums(-1.0));
        let named = "for i in 0..N { a = p[i]  b = p[i + 1]  for k in a..b y[i] += v[k] * x[c[k]] }";
        check(m, "temp i32 a, b", named, sums(1.0));
        // by hand, and with bounds that say their range
        let by_hand = "for i in 0..N for k in 0..Z if p[i] <= i32(k) && k < i64(p[i + 1]) y[i] += v[k] * x[c[k]]";
        check(m, "", by_hand, sums(1.0));
        let within = "for i in 0..N for k in max(p[i], 0)..min(Z, p[i + 1]) y[i] += v[k] * x[c[k]]";
        check(m, "", within, sums(1.0));
        let summed = "for i in 0..N { s = 0  for k in p[i]..p[i + 1] s += v[k] * x[c[k]]  y[i] += s }";
        check(m, "temp f32 s", summed, sums(1.0));
        check(m, "", "for i in 0..N for k in p[i]..p[i + 1] y[i] max= v[k]", |_, y| {
            for (i, y) in y.iter_mut().enumerate() {
                m.row(i).for_each(|k| *y = y.max(m.value[k]));
            }
        });
        check(m, "", "for i in 0..N for k in p[i]..p[i + 1] if v[k] > 0 y[i] += exp(v[k] * 0)", |_, y| {
            for (i, y) in y.iter_mut().enumerate() {
                *y += m.row(i).filter(|&k| m.value[k] > 0.0).count() as f32;
            }
        });
    }
}

#[test]
fn rows_times_a_matrix() {
    for (m, width) in matrices().iter().flat_map(|m| [1, 5, 16, 40].map(|width| (m, width))) {
        let b: Vec<f32> = (0..m.columns * width).map(|i| (i % 7) as f32 - 3.0).collect();
        let mut y = vec![1.0; m.count() * width];
        for i in 0..m.count() {
            for k in m.row(i) {
                (0..width).for_each(|j| y[i * width + j] += m.value[k] * b[m.column[k] as usize * width + j]);
            }
        }
        let text = format!(
            "loop p({}, D = {width}) {{ in i32 p[N + 1], c[Z]\n in f32 v[Z], b[M][D]\n inout f32 y[N][D]
             for i in 0..N for k in p[i]..p[i + 1] for j in 0..D y[i][j] += v[k] * b[c[k]][j] }}",
            m.sizes()
        );
        let shape = |rows: usize| [rows as i64, width as i64];
        let (p, c, v) = (i32s(&m.rows), i32s(&m.column), f32s(&m.value));
        let (b, start) = (Tensor::new(&shape(m.columns), &b), Tensor::new(&shape(m.count()), &vec![1.0f32; y.len()]));
        for found in outputs(&text, &[("p", &p), ("c", &c), ("v", &v), ("b", &b), ("y", &start)]) {
            assert_eq!(found.to_vec::<f32>(), y, "{text}");
        }
    }
}

/// A sum inside of the loop over a row belongs to the element of the row.
#[test]
fn products_are_sampled() {
    for (m, width) in matrices().iter().flat_map(|m| [1, 5, 33].map(|width| (m, width))) {
        let a: Vec<f32> = (0..m.count() * width).map(|i| (i * 5 % 7) as f32 - 3.0).collect();
        let b: Vec<f32> = (0..m.columns * width).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
        let mut w = vec![2.0f32; m.value.len()];
        for i in 0..m.count() {
            for k in m.row(i) {
                (0..width).for_each(|j| w[k] += a[i * width + j] * b[m.column[k] as usize * width + j]);
            }
        }
        for (temporary, sum) in [
            ("", "for j in 0..D w[k] += a[i][j] * b[c[k]][j]"),
            ("temp f32 s", "s = 0  for j in 0..D s += a[i][j] * b[c[k]][j]  w[k] += s"),
        ] {
            let text = format!(
                "loop p({}, D = {width}) {{ in i32 p[N + 1], c[Z]\n in f32 a[N][D], b[M][D]\n inout f32 w[Z]\n {temporary}
                 for i in 0..N for k in p[i]..p[i + 1] {{ {sum} }} }}",
                m.sizes()
            );
            let loops = model(&text).explain(&Options::default(), Stage::Loops, None).unwrap();
            assert!(loops.contains("within(") || width < 33 || m.count() == 1 || m.value.len() < 2, "{text}\n{loops}");
            let tensor = |rows: usize, values: &[f32]| Tensor::new(&[rows as i64, width as i64], values);
            let (p, c, start) = (i32s(&m.rows), i32s(&m.column), f32s(&vec![2.0; w.len()]));
            let (a, b) = (tensor(m.count(), &a), tensor(m.columns, &b));
            for found in outputs(&text, &[("p", &p), ("c", &c), ("a", &a), ("b", &b), ("w", &start)]) {
                assert_eq!(found.to_vec::<f32>(), w, "{text}");
            }
        }
    }
}

#[test]
fn elements_of_rows_are_written_and_loops_are_nested() {
    for m in &matrices() {
        let (p, v) = (i32s(&m.rows), f32s(&m.value));
        let scaled = format!(
            "loop p({}) {{ in i32 p[N + 1]\n in f32 v[Z], s[N]\n inout f32 w[Z]
             for i in 0..N for k in p[i]..p[i + 1] w[k] = v[k] * s[i] }}",
            m.sizes()
        );
        let s: Vec<f32> = (0..m.count()).map(|i| i as f32).collect();
        let mut w = vec![-1.0; m.value.len()];
        (0..m.count()).for_each(|i| m.row(i).for_each(|k| w[k] = m.value[k] * s[i]));
        let start = f32s(&vec![-1.0; w.len()]);
        for found in outputs(&scaled, &[("p", &p), ("v", &v), ("s", &f32s(&s)), ("w", &start)]) {
            assert_eq!(found.to_vec::<f32>(), w, "{scaled}");
        }
        // the rows that the elements of a row name, where pairs of numbers bound the rows
        let column: Vec<i32> = m.column.iter().map(|c| c % m.count() as i32).collect();
        let bounds: Vec<i32> = m.rows.windows(2).flat_map(|r| [r[0], r[1]]).collect();
        let nested = format!(
            "loop p({}) {{ in i32 p[N + 1], q[N][2], c[Z]\n in f32 v[Z]\n inout f32 y[N]
             for i in 0..N for k in q[i][0]..q[i][1] for l in p[c[k]]..p[c[k] + 1] y[i] += v[l] }}",
            m.sizes()
        );
        let row = |i: usize| m.row(i).flat_map(|k| m.row(column[k] as usize)).map(|l| m.value[l]).sum();
        let y: Vec<f32> = (0..m.count()).map(row).collect();
        let (q, start) = (Tensor::new(&[m.count() as i64, 2], &bounds), f32s(&vec![0.0; y.len()]));
        for found in outputs(&nested, &[("p", &p), ("q", &q), ("c", &i32s(&column)), ("v", &v), ("y", &start)]) {
            assert_eq!(found.to_vec::<f32>(), y, "{nested}");
        }
    }
}

#[test]
fn ranks_of_pages() {
    for m in &matrices() {
        let n = m.count();
        let column: Vec<i32> = m.column.iter().map(|c| c % n as i32).collect();
        let text = format!(
            "loop p({}) {{ in i32 p[N + 1], c[Z]\n in f64 share[N]\n inout f64 rank[N]\n temp f64 next[N]
             for t in 0..3 {{
                 for i in 0..N {{ next[i] = 0.25  for k in p[i]..p[i + 1] next[i] += share[c[k]] * rank[c[k]] }}
                 for i in 0..N rank[i] = next[i]
             }} }}",
            m.sizes()
        );
        let share: Vec<f64> = (0..n).map(|i| [0.5, 0.25, 0.125][i % 3] / 64.0).collect();
        let start: Vec<f64> = (0..n).map(|i| (i % 3) as f64).collect();
        let mut rank = start.clone();
        for _ in 0..3 {
            let next = |i| 0.25 + m.row(i).map(|k| share[column[k] as usize] * rank[column[k] as usize]).sum::<f64>();
            rank = (0..n).map(next).collect();
        }
        let of = |values: &[f64]| Tensor::new(&[n as i64], values);
        let given = [("p", &i32s(&m.rows)), ("c", &i32s(&column)), ("share", &of(&share)), ("rank", &of(&start))];
        for found in outputs(&text, &given) {
            let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
            assert!(found.to_vec::<f64>().iter().zip(&rank).all(close), "{text}");
        }
    }
}

#[test]
fn bounds_that_lead_out_of_an_array_are_errors_of_the_run() {
    let text = "loop p(N = 3, Z = 6) { in i64 p[N + 1]\n in f32 v[Z]\n inout f32 y[N]\n for i in 0..N for k in p[i]..p[i + 1] y[i] += v[k] }";
    let module = Arc::new(model(text).compile_module(&Options::default()).unwrap().0);
    let run = |p: [i64; 4]| {
        let (v, y) = (f32s(&[1.0; 6]), f32s(&[0.0; 3]));
        Session::new(module.clone(), 1)?.run(&[("p", &Tensor::new(&[4], &p)), ("v", &v), ("y", &y)])
    };
    assert_eq!(run([0, 2, 2, 6]).unwrap()[0].to_vec::<f32>(), [2.0, 0.0, 4.0]);
    // a row that ends before it begins is empty
    assert_eq!(run([4, 2, 6, 1]).unwrap()[0].to_vec::<f32>(), [0.0, 4.0, 0.0]);
    for wrong in [-1, 7, i64::MIN, i64::MAX] {
        let message = run([0, 2, wrong, 6]).err().map(|e| e.to_string());
        assert_eq!(message, Some(format!("invalid: index {wrong} at [2] of tensor `p` lies outside of 0..=6")));
    }
}

/// A subscript limits the loop where no condition keeps it inside, and an element the bound that it is.
#[test]
fn conditions_and_offsets_count_for_the_bound_that_has_them() {
    let run = |loops: &str, row: [i32; 4]| {
        let text = format!("loop p(N = 3, Z = 6) {{ in i32 row[N + 1]\n inout f32 w[Z]\n for i in 0..N {loops} }}");
        let compiled = model(&text).compile_module(&Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let given = [("row", &Tensor::new(&[4], &row)), ("w", &f32s(&[1.0; 6]))];
        let outputs = Session::new(Arc::new(compiled.0), 1)?.run(&given)?;
        Ok::<_, tilewright::Error>(outputs[0].to_vec::<f32>())
    };
    let row = [0, 2, 2, 6];
    let scanned = [1.0, 2.0, 1.0, 2.0, 3.0, 4.0];
    assert_eq!(run("for k in row[i]..row[i + 1] if k > row[i] w[k] += w[k - 1]", row).unwrap(), scanned);
    assert_eq!(run("for k in row[i]..row[i + 1] if row[i] + 1 <= k w[k] += w[k - 1]", row).unwrap(), scanned);
    assert_eq!(run("for k in row[i] + 1..row[i + 1] w[k] += w[k - 1]", row).unwrap(), scanned);
    // so do those of a selection
    for chosen in [
        "k > row[i], w[k - 1], 0",
        "w[k] > 0 && k >= row[i] + 1, w[k - 1], 0",
        "!(k <= row[i]), w[k - 1], 0",
        "k != row[i], w[k - 1], 0",
        // of which the other branch is chosen where there is no limit
        "k <= row[i], 0, w[k - 1]",
        "row[i] + 1 > k, 0, w[k - 1]",
        "k - row[i] < 1, 0, w[k - 1]",
        "k - row[i] > 0, w[k - 1], 0",
        "row[i] - k >= 0, 0, w[k - 1]",
        "0 > row[i] - k, w[k - 1], 0",
        "k == row[i], 0, w[k - 1]",
        "!(k > row[i]), 0, w[k - 1]",
        "w[k] < 0 || k <= row[i], 0, w[k - 1]",
    ] {
        let summed = format!("for k in row[i]..row[i + 1] w[k] += select({chosen})");
        assert_eq!(run(&summed, row).unwrap(), scanned, "{chosen}");
    }
    let otherwise = "for k in row[i]..row[i + 1] if k <= row[i] w[k] += 0 else w[k] += w[k - 1]";
    assert_eq!(run(otherwise, row).unwrap(), scanned);
    // and operands to their right
    for body in ["w[k] += select(k > row[i] && w[k - 1] > 0, 1, 0)", "if k > row[i] && w[k - 1] > 0 w[k] += 1"] {
        let counted = run(&format!("for k in row[i]..row[i + 1] {body}"), row).unwrap();
        assert_eq!(counted, [1.0, 2.0, 1.0, 2.0, 2.0, 2.0], "{body}");
    }
    let all = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    assert_eq!(run("for k in row[i]..row[i + 1] if k > 0 w[k] += w[k - 1]", row).unwrap(), all);
    assert_eq!(run("for k in row[i]..row[i + 1] w[k] += select(k > 0, w[k - 1], 0)", row).unwrap(), all);
    assert_eq!(run("for k in max(row[i], 1)..row[i + 1] w[k] += w[k - 1]", row).unwrap(), all);
    let shifted = run("for k in row[i]..row[i + 1] if k < row[i + 1] - 1 w[k] += w[k + 1]", row).unwrap();
    assert_eq!(shifted, [2.0, 1.0, 2.0, 2.0, 2.0, 1.0]);
    for chosen in
        ["k + 1 == row[i + 1], 0, w[k + 1]", "k != row[i + 1] - 1, w[k + 1], 0", "k + 1 >= row[i + 1], 0, w[k + 1]"]
    {
        let summed = format!("for k in row[i]..row[i + 1] w[k] += select({chosen})");
        assert_eq!(run(&summed, row).unwrap(), shifted, "{chosen}");
    }
    // other elements lead out of the array
    for (loops, row) in [
        ("for k in row[i]..row[i + 1] if k > row[i] w[k] += w[k - 1]", [-1, 2, 2, 6]),
        ("for k in row[i] + 1..row[i + 1] w[k] += w[k - 1]", [-1, 2, 2, 6]),
        ("for k in row[i]..row[i + 1] w[k] += w[k - 1]", [0, 2, 2, 6]),
        ("for k in row[i]..row[i + 1] if k >= row[i] w[k] += w[k - 1]", [0, 2, 2, 6]),
        ("for k in row[i]..row[i + 1] if k > 0 w[k] += w[k - 1]", [0, 2, 2, 7]),
        ("for k in row[i]..row[i + 1] w[k] += select(k > row[i], w[k - 1], 0)", [-1, 2, 2, 6]),
        ("for k in row[i]..row[i + 1] w[k] += select(k > row[i], 0, w[k - 1])", row),
        ("for k in row[i]..row[i + 1] w[k] += select(k <= row[i], 0, w[k - 1])", [-1, 2, 2, 6]),
        ("for k in row[i]..row[i + 1] w[k] += select(k == row[i], 0, w[k - 1])", [-1, 2, 2, 6]),
        ("for k in row[i]..row[i + 1] w[k] += select(k == row[i], w[k - 1], 0)", row),
        ("for k in row[i]..row[i + 1] w[k] += select(k != row[i + 1], w[k - 1], 0)", row),
        ("for k in row[i]..row[i + 1] w[k] += select(k <= row[i] && w[k] > 2, 0, w[k - 1])", row),
    ] {
        let message = run(loops, row).unwrap_err().to_string();
        assert!(message.contains("of tensor `row` lies outside of"), "{loops}: {message}");
    }
}

#[test]
fn bounds_without_a_range_are_refused() {
    let error = |arrays: &str, statements: &str| {
        let text = format!("loop p(N = 4) {{ in i32 p[N + 1], q[N]\n inout f32 y[N]\n {arrays} {statements} }}");
        let compiled = language::parse("p.tile", &text).and_then(|f| Model::from_program(f, None, None));
        match compiled.and_then(|m| m.compile_module(&Options::default())) {
            Ok(_) => String::new(),
            Err(e) => e.to_string(),
        }
    };
    let one = |statements: &str, part: &str| {
        let message = error("", statements);
        assert!(message.contains(part), "{statements}: {message}");
    };
    one("for i in 0..N for k in p[i]..p[i + 1] y[i] += 1", "write the limit, as in `max(p[i], 0)`");
    one("for i in 0..N for k in 0..q[i] y[i] += 1", "write the limit, as in `min(q[i], N)`");
    one("for i in 0..N for k in p[i]..p[i + 1] step -2 y[k] += 1", "these are walked upwards, as in `step 2`");
    assert_eq!(error("", "for i in 0..N for k in i..min(i + p[i], N) y[k] += 1"), "");
    for dtype in ["bool", "f32"] {
        let message = error(&format!("in {dtype} r[N + 1]\n"), "for i in 0..N for k in r[i]..r[i + 1] y[k] += 1");
        assert!(message.contains(&format!("`r[i]` is {dtype}, which is not a type of bounds")), "{message}");
    }
    for (dtype, bound) in [("u8", "r[i] + 1"), ("i16", "2 * r[i]"), ("u32", "r[i] + 1")] {
        let message = error(&format!("in {dtype} r[N + 1]\n"), &format!("for i in 0..N for k in {bound}..4 y[k] += 1"));
        let wide = bound.replace("r[i]", "i64(r[i])");
        let expected = format!("the bound `{bound}` is computed in {dtype}, where it may wrap around: write `{wide}`");
        assert!(message.contains(&expected), "{message}");
    }
    let written = error("inout i32 r[N + 1]", "for i in 0..N for k in r[i]..4 { r[i] = 0  y[k] += 1 }");
    assert!(written.contains("the bound `r[i]` is from `r`, which the loop writes"), "{written}");
    assert_eq!(error("", "for i in 0..N for k in p[i]..min(p[i] + q[i], N) y[k] += 1"), "");
}

/// Rows times a vector and times a matrix on an emulated AArch64 processor.
#[test]
fn rows_on_an_emulated_processor() {
    let target = Target::all().into_iter().find(|t| t.isa == Isa::Neon).unwrap();
    let (mut jobs, mut expected) = (vec![], vec![]);
    for (m, width) in matrices().iter().flat_map(|m| [1, 6].map(|width| (m, width))) {
        let text = format!(
            "loop p({}, D = {width}) {{ in i32 p[N + 1], c[Z]\n in f32 v[Z], b[M][D]\n inout f32 y[N][D]
             for i in 0..N for k in p[i]..p[i + 1] for j in 0..D y[i][j] += v[k] * b[c[k]][j] }}",
            m.sizes()
        );
        let file = language::parse("p.tile", &text).unwrap();
        let lowered = file.lower(file.program(None).unwrap(), &Default::default(), None).unwrap();
        let Computation::Loop(scop) = lowered.computation else { panic!("a loop program") };
        let compiled = kernel::compile(Statements::of_loops(&scop).unwrap(), &target).unwrap();
        let b: Vec<f32> = (0..m.columns * width).map(|i| (i % 7) as f32 - 3.0).collect();
        let given = [
            i32s(&m.rows).data.to_vec(),
            i32s(&m.column).data.to_vec(),
            f32s(&m.value).data.to_vec(),
            f32s(&b).data.to_vec(),
            f32s(&vec![1.0; m.count() * width]).data.to_vec(),
        ];
        let arguments = compiled.kernel.arguments.iter().zip(&compiled.slots);
        let buffers = arguments.map(|(argument, slot)| match argument {
            Argument::Tensor(id) => given[id.0 as usize].clone(),
            _ => vec![0; slot.0 as usize],
        });
        let output = compiled
            .kernel
            .arguments
            .iter()
            .position(|a| matches!(a, Argument::Tensor(id) if compiled.scop.tensor(*id).role == Role::InOut));
        let phases = compiled.assembled.phases.iter();
        jobs.push(emulator::Job {
            name: format!("{:?}, {width}", m.rows),
            steps: phases.clone().map(|p| (p.code.clone(), 0, p.parallel.unwrap_or(1))).collect(),
            scratch_bytes: phases.map(|p| p.scratch_bytes).max().unwrap_or(0),
            buffers: buffers.collect(),
        });
        let mut y = vec![1.0f32; m.count() * width];
        for i in 0..m.count() {
            for k in m.row(i) {
                (0..width).for_each(|j| y[i * width + j] += m.value[k] * b[m.column[k] as usize * width + j]);
            }
        }
        expected.push((output.unwrap(), f32s(&y).data.to_vec(), text));
    }
    for ((slot, y, text), results) in expected.iter().zip(emulator::run("rows", &jobs).into_iter().flatten()) {
        results.iter().for_each(|r| assert_eq!(r[*slot], *y, "{text}"));
    }
}

/// Steps between bounds from data begin at the lower one.
#[test]
fn rows_are_walked_in_steps() {
    let text = "loop p(N = 4, Z = 12) { in i32 row[N + 1]\n inout f32 w[Z]\n for i in 0..N for k in row[i]..row[i + 1] step 2 w[k] += 1 }";
    let rows = [0, 3, 3, 8, 12];
    let given = [("row", &i32s(&rows)), ("w", &f32s(&[0.0; 12]))];
    let mut expected = [0.0; 12];
    for row in rows.windows(2) {
        (row[0]..row[1]).step_by(2).for_each(|k| expected[k as usize] += 1.0);
    }
    assert_eq!(outputs(text, &given)[0].to_vec::<f32>(), expected);
}

/// Rows, subscripts and literals of u64: an element beyond i64 is no subscript, and allowed where a condition on it fails.
#[test]
fn numbers_of_u64_are_bounds_subscripts_and_literals() {
    let run = |text: &str, name: &str, values: &[u64], zeros: i64| {
        let compiled = model(text).compile_module(&Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}")).0;
        let (given, h) =
            (Tensor::new(&[values.len() as i64], values), Tensor::new(&[zeros], &vec![0f32; zeros as usize]));
        let outputs = Session::new(Arc::new(compiled), 1)?.run(&[(name, &given), ("h", &h)])?;
        Ok::<_, tilewright::Error>(outputs[0].to_vec::<f32>())
    };
    let guarded = "loop p() { in u64 q[4]\n inout f32 h[3]\n for i in 0..4 if q[i] < 3 h[i64(q[i])] += 1 }";
    let direct = "loop p() { in u64 q[4]\n inout f32 h[3]\n for i in 0..4 if q[i] < 3 h[q[i]] += 1 }";
    let plain = "loop p() { in u64 q[4]\n inout f32 h[3]\n for i in 0..4 h[i64(q[i])] += 1 }";
    for text in [guarded, direct] {
        assert_eq!(run(text, "q", &[u64::MAX, 1, 2, 0], 3).unwrap(), [1.0, 1.0, 1.0], "{text}");
        assert_eq!(run(text, "q", &[1 << 63, 7, 2, 2], 3).unwrap(), [0.0, 0.0, 2.0], "{text}");
    }
    assert_eq!(run(plain, "q", &[1, 1, 2, 0], 3).unwrap(), [1.0, 2.0, 1.0]);
    assert!(run(plain, "q", &[u64::MAX, 1, 2, 0], 3).is_err());
    let rows =
        "loop p(N = 3) { in u64 row[N + 1]\n inout f32 h[6]\n for i in 0..N for k in row[i]..row[i + 1] h[k] += 1 }";
    assert_eq!(run(rows, "row", &[0, 2, 2, 5], 6).unwrap(), [1.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
    assert!(run(rows, "row", &[0, 2, u64::MAX, 5], 6).is_err() && run(rows, "row", &[0, 2, 9, 5], 6).is_err());
    let text = "loop p() { in u64 q[4]\n out u64 h[4]\n for i in 0..4 h[i] = max(q[i], 9223372036854775808) - 18446744073709551615 }";
    let given = [("q", &Tensor::new(&[4], &[0, 1 << 63, u64::MAX, 5]))];
    let expected = [0, 1 << 63, u64::MAX, 5].map(|q: u64| q.max(1 << 63).wrapping_sub(u64::MAX));
    assert_eq!(outputs(text, &given)[0].to_vec::<u64>(), expected);
}

/// A condition on a temporary counts for the subscript that the temporary is.
#[test]
fn conditions_on_a_temporary_guard_the_element_that_it_is() {
    let run = |statements: &str, q: [i32; 8]| {
        let text =
            format!("loop p() {{ in i32 q[8]\n temp i32 k\n inout f32 h[4]\n for i in 0..8 {{ {statements} }} }}");
        let compiled = model(&text).compile_module(&Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}")).0;
        let given = [("q", &Tensor::new(&[8], &q)), ("h", &f32s(&[0.0; 4]))];
        let outputs = Session::new(Arc::new(compiled), 1)?.run(&given)?;
        Ok::<_, tilewright::Error>(outputs[0].to_vec::<f32>())
    };
    let q = [0, 1, 2, -3, 4, 9, -5, 3];
    assert_eq!(run("k = q[i] if k >= 0 && k < 4 h[k] += 1", q).unwrap(), [1.0; 4]);
    assert_eq!(run("k = q[i] + 1 if k > 0 && k < 4 h[k] += 1", q).unwrap(), [0.0, 1.0, 1.0, 1.0]);
    assert_eq!(run("k = q[i] if !(k < 0 || k >= 4) { h[k] += 1 }", q).unwrap(), [1.0; 4]);
    assert!(run("k = q[i] if k >= 0 h[k] += 1", q).is_err());
}
