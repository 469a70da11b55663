//! Loop programs whose bounds of loops are computed while they run: against plain Rust, on every target of this processor, on one and two threads, with
//! bounds that lead out of an array too.

mod common;

use common::loop_runs::{check, i32s, loops, refusal, results};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A matrix in coordinates is sorted into compressed rows, which a product then runs over.
#[test]
fn rows_that_the_program_builds() {
    let random = &mut StdRng::seed_from_u64(3);
    for (n, z) in [(1, 1), (7, 40), (33, 20), (40, 700)] {
        let text = format!(
            "loop p(N = {n}, Z = {z}) {{ in i32 r[Z], c[Z], v[Z], x[N]
             temp i32 row[N + 1], at[N], column[Z], w[Z]
             out i32 y[N]
             for i in 0..N + 1 row[i] = 0
             for k in 0..Z row[r[k] + 1] += 1
             for i in 0..N row[i + 1] += row[i]
             for i in 0..N at[i] = row[i]
             for k in 0..Z {{ column[k] = 0  w[k] = 0 }}
             for k in 0..Z {{ column[at[r[k]]] = c[k]  w[at[r[k]]] = v[k]  at[r[k]] += 1 }}
             for i in 0..N {{ y[i] = 0  for k in row[i]..row[i + 1] y[i] += w[k] * x[column[k]] }} }}"
        );
        let mut draw =
            |count: i32, most: i32| -> Vec<i32> { (0..count).map(|_| random.random_range(0..most)).collect() };
        let (r, c, v, x) = (draw(z, n), draw(z, n), draw(z, 9), draw(n, 9));
        let mut y = vec![0; n as usize];
        (0..z as usize).for_each(|k| y[r[k] as usize] += v[k] * x[c[k] as usize]);
        let tensors = [r, c, v, x].map(|values| i32s(&values));
        let given: Vec<_> = ["r", "c", "v", "x"].into_iter().zip(&tensors).collect();
        check(&text, &given, &[&y]);
        if z == 700 {
            let nest = loops(&text);
            assert!(nest.contains("= clamp(cast i64(row[i"), "the loop runs from bound to bound\n{nest}");
        }
    }
}

/// Counted numbers bound the loops behind them, and conditions on them guard subscripts.
#[test]
fn a_number_that_the_program_counts() {
    let text = "loop p(N = 50) { in i32 x[N]  temp i32 n, t  inout i32 kept[N], steps[N]  out i32 s
        n = 0
        for i in 0..N if x[i] > 0 { kept[n] = x[i]  n += 1 }
        t = 0
        for k in 0..n t += kept[k]
        for k in 0..n if k < n - 1 steps[k] = kept[k + 1] - kept[k]
        s = t }";
    let random = &mut StdRng::seed_from_u64(5);
    for positive in [0, 20, 50] {
        let sign = |i: i32| if i < positive { 1 } else { -1 };
        let x: Vec<i32> = (0..50).map(|i| sign(i * 7 % 50) * random.random_range(1..100)).collect();
        let found: Vec<i32> = x.iter().copied().filter(|v| *v > 0).collect();
        let [mut kept, mut steps] = [[7; 50], [9; 50]];
        kept[..found.len()].copy_from_slice(&found);
        (1..found.len()).for_each(|k| steps[k - 1] = found[k] - found[k - 1]);
        let given = [("x", &i32s(&x)), ("kept", &i32s(&[7; 50])), ("steps", &i32s(&[9; 50]))];
        check(text, &given, &[&kept, &steps, &[found.iter().sum()]]);
    }
}

/// A run ends with an error where an iteration lies outside of the arrays, and not where a loop is empty.
#[test]
fn bounds_beyond_the_arrays() {
    let text = "loop p(N = 3, Z = 8) { in i32 from[N], count[N]  temp i32 row[N]  inout i32 y[Z]
        for i in 0..N row[i] = from[i]
        for i in 0..N if i < 2 || from[0] > 0 for k in row[i]..row[i] + count[i] y[k] += 1 }";
    let run = |from: [i32; 3], count: [i32; 3]| {
        let given = [("from", &i32s(&from)), ("count", &i32s(&count)), ("y", &i32s(&[0; 8]))];
        let all = results(text, &given).into_iter().map(|r| r.map(|y| y[0].to_vec::<i32>()).map_err(|e| e.to_string()));
        all.collect::<Vec<_>>()
    };
    for (from, count, expected) in [
        ([0, 4, 6], [8, 4, 2], Ok(vec![1, 1, 1, 1, 2, 2, 2, 2])),
        ([1, 4, 6], [7, 0, 2], Ok(vec![0, 1, 1, 1, 1, 1, 2, 2])),
        // empty, and not reached
        ([-5, 90, 7], [0, -1, 9], Ok(vec![0; 8])),
        ([-1, 4, 0], [3, 0, 1], Err("index -1 of tensor `lower bound of k`")),
        ([0, 6, 0], [3, 3, 1], Err("index 9 of tensor `upper bound of k`")),
        ([1, 6, 8], [3, 1, 1], Err("index 9 of tensor `upper bound of k`")),
    ] {
        for found in run(from, count) {
            match (&found, &expected) {
                (Ok(y), Ok(expected)) => assert_eq!(y, expected, "{from:?} {count:?}"),
                (Err(e), Err(part)) => assert!(e.contains(part), "{e}"),
                _ => panic!("{from:?} {count:?}: {found:?}"),
            }
        }
    }
    let written =
        "loop p(N = 3) { inout i32 row[N], y[N]  for i in 0..N for k in 0..row[i] { y[k] += 1  row[k] = 0 } }";
    let expected = "the bound `row[i]` is from `row`, which the loop writes: keep the bound in a temporary";
    assert!(refusal(written).contains(expected), "{}", refusal(written));
    let kept = "loop p(N = 3) { inout i32 row[N], y[N]  temp i32 n
        for i in 0..N { n = row[i]  for k in 0..n { y[k] += 1  row[k] = 0 } } }";
    check(kept, &[("row", &i32s(&[2, 1, 3])), ("y", &i32s(&[0; 3]))], &[&[0, 0, 0], &[2, 2, 1]]);
}

/// Where two arrays bound a loop, an element of one may lie anywhere in the range, whatever is added to it.
#[test]
fn a_bound_with_a_number_added_may_lie_beyond_the_other_end() {
    let text = "loop p(N = 3, Z = 9) { in i32 row[N + 1], stop[N]  inout i32 y[Z]
        for i in 0..N for k in row[i] + 1..stop[i] y[k] += 1 }";
    let given = [("row", &i32s(&[0, 3, 9, 9])), ("stop", &i32s(&[3, 9, 9])), ("y", &i32s(&[0; 9]))];
    check(text, &given, &[&[0, 1, 1, 0, 1, 1, 1, 1, 1]]);
    let text = "loop p(N = 2, Z = 9) { in i32 row[N + 1]  in i32 w[Z]  inout i32 y[Z]  temp i32 first
        for i in 0..N { first = row[i]  for k in row[i]..row[i + 1] if first < k y[k] += w[k - 1] } }";
    let given = [("row", &i32s(&[0, 4, 9])), ("w", &i32s(&[1, 2, 3, 4, 5, 6, 7, 8, 9])), ("y", &i32s(&[0; 9]))];
    check(text, &given, &[&[0, 1, 2, 3, 0, 5, 6, 7, 8]]);
}
