//! Loops over rows, `for k in row[i]..row[i + 1]`, whose statements stand under conditions that they change, or whose row is what the program computes: against plain Rust, on
//! every target of this processor, on one and two threads; and that no loop runs over all elements of the matrix for each of its rows.

mod common;

use common::loop_runs::{check, i32s, loops, results};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tilewright::Tensor;

/// The number of elements: no other loop of the programs has as many iterations.
const Z: usize = 1031;

/// Rows of random lengths, some of them empty, and small values at their elements.
struct Rows {
    row: Vec<i32>,
    x: Vec<i32>,
    column: Vec<i32>,
}

impl Rows {
    fn new(n: usize, seed: u64) -> Rows {
        let mut random = StdRng::seed_from_u64(seed);
        let mut row: Vec<i32> = (1..n).map(|_| random.random_range(0..=Z as i32)).collect();
        row.extend([0, Z as i32]);
        row.sort_unstable();
        let x = (0..Z).map(|_| random.random_range(-9..=9)).collect();
        let column = (0..Z).map(|_| random.random_range(0..n as i32)).collect();
        Rows { row, x, column }
    }

    fn count(&self) -> usize {
        self.row.len() - 1
    }

    fn of(&self, i: usize) -> std::ops::Range<usize> {
        self.row[i] as usize..self.row[i + 1] as usize
    }
}

/// Checks a program of the rows, whose loops are as long as these. `arrays` are declarations, `statements` the program.
fn is(rows: &Rows, arrays: &str, statements: &str, expected: &[&[i32]]) {
    let text = computes(rows, arrays, statements, expected);
    // of one row all elements are
    let nest = if rows.count() == 1 { String::new() } else { loops(&text) };
    for whole in [format!("in 0..{Z} {{"), "ge(index(".into()] {
        assert!(!nest.contains(&whole), "a loop over all elements for each row\n{text}\n{nest}");
    }
}

/// Checks the results of a program of the rows, which is returned.
fn computes(rows: &Rows, arrays: &str, statements: &str, expected: &[&[i32]]) -> String {
    let (n, z) = (rows.count(), Z);
    let text = format!("loop p(N = {n}, Z = {z}) {{ in i32 row[N + 1], x[Z], column[Z]\n {arrays}\n {statements} }}");
    let tensors = [i32s(&rows.row), i32s(&rows.x), i32s(&rows.column)];
    let zeros = i32s(&[0; Z]);
    let mut given: Vec<(&str, &Tensor)> =
        ["row", "x", "column"].into_iter().zip(&tensors).filter(|g| uses(statements, g.0)).collect();
    given.extend(arrays.contains("inout i32 y[Z]").then_some(("y", &zeros)));
    let text = ["row[N + 1], ", "x[Z], ", "column[Z]"]
        .iter()
        .zip(["row", "x", "column"])
        .fold(text, |text, (part, name)| if uses(statements, name) { text } else { text.replace(part, "") });
    let text = text.replace(", \n", "\n");
    check(&text, &given, expected);
    text
}

fn uses(statements: &str, name: &str) -> bool {
    statements.contains(&format!("{name}["))
}

fn all(f: impl Fn(&Rows)) {
    [(1, 1), (7, 2), (61, 3), (300, 4)].into_iter().for_each(|(n, seed)| f(&Rows::new(n, seed)));
}

#[test]
fn the_largest_of_a_row_and_its_place() {
    all(|rows| {
        let (mut best, mut place) = (vec![-20; rows.count()], vec![-1; rows.count()]);
        for i in 0..rows.count() {
            for k in rows.of(i) {
                if rows.x[k] > best[i] {
                    (best[i], place[i]) = (rows.x[k], k as i32);
                }
            }
        }
        let text = |statements: &str| {
            format!("for i in 0..N {{ best[i] = -20  place[i] = -1  for k in row[i]..row[i + 1] {{ {statements} }} }}")
        };
        let arrays = "out i32 best[N], place[N]";
        for inside in [
            "if x[k] > best[i] { best[i] = x[k]  place[i] = i32(k) }",
            "if x[k] <= best[i] { best[i] = best[i] } else { best[i] = x[k]  place[i] = i32(k) }",
            // a temporary of the program, and one that the condition needs
            "v = x[k]  if v > best[i] { best[i] = v  place[i] = i32(k) }",
            "if x[k] > best[i] { best[i] = x[k]  place[i] = i32(k) + best[i] - x[k] }",
        ] {
            let arrays = if inside.starts_with('v') { format!("{arrays}\n temp i32 v") } else { arrays.to_string() };
            is(rows, &arrays, &text(inside), &[&best, &place]);
        }
    });
}

#[test]
fn ties_are_counted_in_an_else_branch() {
    all(|rows| {
        let (mut best, mut ties, mut below) = (vec![-20; rows.count()], vec![0; rows.count()], vec![0; rows.count()]);
        for i in 0..rows.count() {
            for k in rows.of(i) {
                if rows.x[k] > best[i] {
                    below[i] += ties[i];
                    (best[i], ties[i]) = (rows.x[k], 1);
                } else if rows.x[k] == best[i] {
                    ties[i] += 1;
                } else {
                    below[i] += 1;
                }
            }
        }
        is(
            rows,
            "out i32 best[N], ties[N], below[N]",
            "for i in 0..N { best[i] = -20  ties[i] = 0  below[i] = 0
             for k in row[i]..row[i + 1]
                 if x[k] > best[i] { best[i] = x[k]  below[i] += ties[i]  ties[i] = 1 }
                 else if x[k] == best[i] ties[i] += 1
                 else below[i] += 1 }",
            &[&best, &ties, &below],
        );
    });
}

#[test]
fn a_difference_is_brought_back_in_branches() {
    all(|rows| {
        let near = |d: i32| {
            if d > 5 {
                d - 10
            } else if d < -5 {
                d + 10
            } else {
                d
            }
        };
        let sums: Vec<i32> = (0..rows.count())
            .map(|i| {
                rows.of(i)
                    .map(move |k| (0..3).map(|c| near(rows.x[i] * (c + 1) - rows.x[k])).map(|d| d * d).sum::<i32>())
            })
            .map(|row| row.filter(|r| *r > 20).sum())
            .collect();
        is(
            rows,
            "out i32 y[N]\n temp i32 d[3], r",
            "for i in 0..N { y[i] = 0  for k in row[i]..row[i + 1] { r = 0
             for c in 0..3 { d[c] = x[i] * i32(c + 1) - x[k]  if d[c] > 5 d[c] -= 10 else if d[c] < -5 d[c] += 10  r += d[c] * d[c] }
             if r > 20 { y[i] += r } } }",
            &[&sums],
        );
    });
}

/// The levels of a search from vertex 0.
fn levels(rows: &Rows) -> Vec<i32> {
    let mut level = vec![-1; rows.count()];
    let mut queue = vec![0];
    level[0] = 0;
    let mut at = 0;
    while at < queue.len() {
        let u: usize = queue[at];
        at += 1;
        for k in rows.of(u) {
            let v = rows.column[k] as usize;
            if level[v] < 0 {
                level[v] = level[u] + 1;
                queue.push(v);
            }
        }
    }
    level
}

#[test]
fn a_queue_says_the_row() {
    let begin = "for i in 0..N { level[i] = -1  queue[i] = 0 }  level[0] = 0  queue[0] = 0  tail = 1";
    let arrays = "out i32 level[N]\n temp i32 queue[N], tail";
    all(|rows| {
        for (temporaries, statements) in [
            (
                ", u",
                "u = queue[q]  for k in row[u]..row[u + 1] if level[column[k]] < 0 {
                     level[column[k]] = level[u] + 1  queue[tail] = column[k]  tail += 1 }",
            ),
            (
                ", u, v, l",
                "u = queue[q]  l = level[u]  for k in row[u]..row[u + 1] { v = column[k]
                     if level[v] < 0 { level[v] = l + 1  queue[tail] = v  tail += 1 } }",
            ),
            (
                ", u",
                "u = queue[q]  for k in row[u]..min(row[u + 1], Z) if level[column[k]] < 0 {
                     level[column[k]] = level[u] + 1  queue[tail] = column[k]  tail += 1 }",
            ),
        ] {
            let text = format!("{begin}  for q in 0..N if q < tail {{ {statements} }}");
            is(rows, &format!("{arrays}{temporaries}"), &text, &[&levels(rows)]);
        }
    });
}

#[test]
fn sums_begin_anew_under_a_condition() {
    all(|rows| {
        let (mut y, mut runs) = (vec![0; Z], vec![0; rows.count()]);
        for (i, begun) in runs.iter_mut().enumerate() {
            let mut s = 0;
            for k in rows.of(i) {
                if rows.x[k] < 0 {
                    s = 0;
                    *begun += 1;
                } else {
                    s += rows.x[k];
                }
                y[k] = s;
            }
        }
        is(
            rows,
            "inout i32 y[Z]\n out i32 runs[N]\n temp i32 s\n init { y[k] = 0 }",
            "for i in 0..N { s = 0  runs[i] = 0
             for k in row[i]..row[i + 1] { if x[k] < 0 { s = 0  runs[i] += 1 } else s += x[k]  y[k] = s } }",
            &[&y, &runs],
        );
    });
}

#[test]
fn rows_in_an_order_that_the_program_computes() {
    all(|rows| {
        let n = rows.count();
        let of = |t: usize| (t * 7 + 3) % n;
        let y: Vec<i32> = (0..n).map(|t| rows.of(of(t)).filter(|k| rows.x[*k] > 0).map(|k| rows.x[k]).sum()).collect();
        computes(
            rows,
            "out i32 y[N]\n temp i32 order[N]",
            "for t in 0..N order[t] = i32((t * 7 + 3) % N)
             for t in 0..N { y[t] = 0  for k in row[order[t]]..row[order[t] + 1] if x[k] > 0 y[t] += x[k] }",
            &[&y],
        );
    });
}

/// A row beyond the last one is an error, also where the loop over it has no iteration.
#[test]
fn a_row_beyond_the_last_one_is_refused() {
    let text = "loop p(N = 4, Z = 9) { in i32 row[N + 1], q[N], x[Z]\n out i32 y[N]\n temp i32 u\n
                for i in 0..N { u = q[i] + 1  y[i] = 0  for k in row[u]..min(row[u + 1], Z) y[i] += x[k] } }";
    let (row, x) = (i32s(&[0, 2, 2, 5, 9]), i32s(&[0, 1, 2, 3, 4, 5, 6, 7, 8]));
    let run = |q: [i32; 4]| results(text, &[("row", &row), ("q", &i32s(&q)), ("x", &x)]);
    for outputs in run([-1, 0, 1, 2]) {
        assert_eq!(outputs.unwrap()[0].to_vec::<i32>(), [1, 0, 9, 26]);
    }
    for outputs in run([0, 3, 0, 0]) {
        assert!(outputs.unwrap_err().to_string().contains("index 3 at [1] of tensor `q`"), "a row beyond the last one");
    }
}

/// Rows that nothing is given for divide the elements, also where the program computes which of them it runs over.
#[test]
fn rows_without_values_grow() {
    let text = "loop p(N = 4000, Z = 40000) { in i32 row[N + 1]\n in i32 x[Z]\n out i32 y[N]\n temp i32 q[N], u\n init { x[k] = 1 }
                for i in 0..N q[i] = i32((i * 7 + 3) % N)
                for i in 0..N { u = q[i]  y[i] = 0  for k in row[u]..row[u + 1] y[i] += x[k] } }";
    // the loop is as long as the even share
    let nest = loops(text);
    assert!(nest.contains("about 0;") && nest.contains("about 10;"), "{nest}");
}
