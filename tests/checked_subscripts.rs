//! Checks of subscripts from data: which of them loop programs record, which are checked before the run, and that none leads out of an array.

mod common;

use common::loop_runs::{check, i32s, results};
use common::scop;
use tilewright::internal::poly::statement::Role;

/// The number of tensors that keep an extreme.
fn extremes(text: &str) -> usize {
    scop(text).tensors.iter().filter(|t| t.role == Role::Check).count()
}

/// A subscript that an iteration has had before is not recorded again for a dimension that is no shorter, unless what it reads has changed.
#[test]
fn equal_subscripts_have_one_check() {
    let text = |statements: &str| {
        format!(
            "loop p(N = 40) {{ inout i32 p[N], y[N], z[N], w[30], v[50]\n for i in 0..N {{ p[i] += 1  {statements} }} }}"
        )
    };
    for (statements, count) in [
        ("y[p[i]] = 1  z[p[i]] = 2  v[p[i]] = y[p[i]]", 2),
        ("y[p[i]] = 1  w[p[i]] = 2", 4),
        ("y[p[i]] = 1  p[i] += 1  z[p[i]] = 2", 4),
        ("if v[i] > 0 { y[p[i]] = 1  z[p[i]] = 2 }", 2),
        ("if v[i] > 0 y[p[i]] = 1  z[p[i]] = 2", 4),
        ("if i > 5 y[p[i]] = 1  z[p[i]] = 2", 4),
        ("for k in 0..i y[p[i]] = 1  z[p[i]] = 2", 4),
    ] {
        assert_eq!(extremes(&text(statements)), count, "{statements}");
    }
    let (zeros, w, v) = (i32s(&[0; 40]), i32s(&[0; 30]), i32s(&[0; 50]));
    let wrong = |statements: &str, at: i32| -> Vec<bool> {
        let mut p = [3; 40];
        p[17] = at;
        let p = i32s(&p);
        let given = [("p", &p), ("y", &zeros), ("z", &zeros), ("w", &w), ("v", &v)];
        results(&text(statements), &given).iter().map(|r| r.is_err()).collect()
    };
    for (statements, most) in [
        ("y[p[i]] = 1  z[p[i]] = 2", 38),
        ("v[p[i]] = 1  z[p[i]] = 2", 38),
        ("y[p[i]] = 1  w[p[i]] = 2", 28),
        ("y[p[i]] = 1  p[i] += 1  z[p[i]] = 2", 37),
        ("if v[i] > 0 y[p[i]] = 1  z[p[i]] = 2", 38),
        ("for k in 20..i y[p[i]] = 1  z[p[i]] = 2", 38),
    ] {
        assert!(wrong(statements, most).iter().all(|is| !is), "{statements}");
        assert!(wrong(statements, most + 1).iter().all(|is| *is), "{statements}");
        assert!(wrong(statements, -2).iter().all(|is| *is), "{statements}");
    }
}

/// Elements of an array with indices added are checked before the run where bounds from data are of other indices.
#[test]
fn blocks_of_rows_from_data_are_checked_before_the_run() {
    let text = "loop bsr(R = 3, Z = 7, C = 5) { in i32 row[R + 1], col[Z], x[4 * C]\n out i32 y[R]
        for i in 0..R { y[i] = 0
            for z in row[i]..row[i + 1] for c in 0..4 y[i] += x[4 * col[z] + c] } }";
    assert_eq!(extremes(text), 0);
    let (row, x) = (i32s(&[0, 2, 2, 7]), i32s(&(0..20).collect::<Vec<i32>>()));
    let block = |c: i32| 16 * c + 6;
    let y = [block(4) + block(0), 0, block(1) + block(2) + block(3) + block(4) + block(4)];
    check(text, &[("row", &row), ("col", &i32s(&[4, 0, 1, 2, 3, 4, 4])), ("x", &x)], &[&y]);
    for wrong in [5, -1, 1 << 30, i32::MIN] {
        let col = i32s(&[4, 0, 1, wrong, 3, 4, 4]);
        for result in results(text, &[("row", &row), ("col", &col), ("x", &x)]) {
            let error = result.unwrap_err().to_string();
            let said = format!("index {wrong} at [3] of tensor `col` lies outside of 0..=4");
            assert!(error.contains(&said), "{error}");
        }
    }
    // the index that is added, or the element, has a bound
    let of_index = text.replace("for c in 0..4", "for c in max(row[i], 0)..4");
    assert_eq!(extremes(&of_index), 2);
    let of_element = text.replace("y[i] +=", "if c >= col[z] y[i] +=");
    assert_eq!(extremes(&of_element), 2);
}

/// A temporary that is assigned anew has the interval of each value.
#[test]
fn values_of_one_temporary_have_intervals_of_their_own() {
    let text = "loop p(N = 6) { in i32 x[N], perm[512]\n out i32 y[N]\n temp i32 t
        for i in 0..N { t = x[i] * x[i]  t = bit_and(t, 255)  y[i] = perm[t] + perm[t + 256] } }";
    assert_eq!(extremes(text), 0);
    let x = [0, 1, -1, i32::MAX, i32::MIN, 100];
    let at = |x: i32| x.wrapping_mul(x) & 255;
    let y = x.map(|x| 2 * at(x) + 256);
    let perm: Vec<i32> = (0..512).collect();
    check(text, &[("x", &i32s(&x)), ("perm", &i32s(&perm))], &[&y]);
    // the first value is the subscript
    assert_eq!(extremes(&text.replace("t = x[i] * x[i]", "t = x[i] * x[i]  y[i] = perm[t]")), 2);
    // the second one is not always assigned
    assert_eq!(extremes(&text.replace("t = bit_and", "if x[i] > 0 t = bit_and")), 2);
}

/// Minima and maxima of floats keep a subscript inside, with room for rounding.
#[test]
fn floats_between_two_numbers_are_subscripts_inside() {
    let text = "loop p(N = 8) { in i32 u[N], v[N], d[N]\n out i32 e[N]\n temp f32 x\n temp i32 k
        for i in 0..N { x = max(0.0, min(f32(N) - 1.001, f32(u[i]) * 0.5 / f32(v[i])))  k = i32(x)  e[i] = d[k] + d[k + 1] } }";
    assert_eq!(extremes(text), 0);
    let (u, v) = ([0, 7, 15, -9, 1, 1, -1, i32::MAX], [1, 1, 1, 2, 0, 2, 0, 1]);
    let d: Vec<i32> = (0..8).map(|k| k * k).collect();
    let e = [1, 25, 85, 1, 85, 1, 1, 85];
    check(text, &[("u", &i32s(&u)), ("v", &i32s(&v)), ("d", &i32s(&d))], &[&e]);
    assert_eq!(extremes(&text.replace("1.001", "1.0")), 2);
    assert_eq!(extremes(&text.replace("max(0.0, ", "max(-1.0, ")), 2);
}

/// Subscripts of indices alone, of a temporary that two loops use, are proven for the parts of the loops.
#[test]
fn subscripts_of_indices_are_proven_for_parts_of_loops() {
    let text = "loop p(N = 64, L = 3) { in i32 x[N]\n out i32 y[N]\n temp i64 q, o
        for s in 0..L {
            for k in 0..N / 2 { q = bit_and(k, shl(1, 2 * s) - 1)  o = 2 * k - q
                y[o] = x[k] + x[k + N / 2]  y[o + shl(1, 2 * s)] = x[k - q] }
            for k in 0..N / 2 { q = k % shl(2, 2 * s)  o = 2 * k - q
                y[o] = x[k] - x[k + N / 2]  y[o + shl(2, 2 * s)] = x[k - q] } } }";
    assert_eq!(extremes(text), 0);
    let x: Vec<i32> = (0..64).map(|k| k * k % 23).collect();
    let mut y = [0; 64];
    for k in 0..32 {
        y[k] = x[k] - x[k + 32];
        y[k + 32] = x[0];
    }
    check(text, &[("x", &i32s(&x))], &[&y]);
    // one iteration leaves the array
    let wrong = text.replace("y[o + shl(1, 2 * s)]", "y[o + shl(1, 2 * s) + 1]");
    assert!(extremes(&wrong) > 0);
    assert!(results(&wrong, &[("x", &i32s(&x))]).iter().all(|r| r.is_err()));
}
