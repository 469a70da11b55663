//! Checks of subscripts from data: which of them loop programs record, which are checked before the run, and that none leads out of an array.

mod common;

use common::loop_runs::{check, i32s, model, results};
use common::scop;
use tilewright::internal::poly::statement::{Role, Statement};
use tilewright::{Options, Stage, Tensor};

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

/// Conditions around a subscript that keep it inside leave nothing to record.
#[test]
fn conditions_keep_subscripts_inside() {
    let text = |condition: &str, at: &str| {
        format!(
            "loop p(N = 20) {{ in i32 q[N], a[N]\n in i64 w[3]\n out i32 y[N]\n temp i32 t
            for i in 0..N {{ t = q[i] * q[i] / 4  y[i] = 7  if {condition} y[i] = a[{at}] }} }}"
        )
    };
    let q: Vec<i32> = (-10..10).collect();
    let a: Vec<i32> = (0..20).map(|k| 100 + k).collect();
    type Chosen = fn(i64, i64, [i64; 3]) -> Option<i64>;
    let inside: [(&str, &str, Chosen); 8] = [
        ("t >= 0 && t < N - 1", "t + 1", |_, t, _| (t < 19).then_some(t + 1)),
        ("!(t < 1 || t >= N)", "t - 1", |_, t, _| (1..20).contains(&t).then_some(t - 1)),
        ("t > 3 && t < 9 || t == 12", "t", |_, t, _| (t > 3 && t < 9 || t == 12).then_some(t)),
        ("i + w[1] >= 0 && i + w[1] < N", "i + w[1]", |i, _, w| i.checked_add(w[1]).filter(|at| (0..20).contains(at))),
        ("i + w[0] >= 2 && i + w[0] < N", "i + w[0] - 2", |i, _, w| {
            i.checked_add(w[0]).filter(|at| (2..20).contains(at)).map(|at| at - 2)
        }),
        ("t > i && t < N", "t", |i, t, _| (t > i && t < 20).then_some(t)),
        ("i >= t && t >= 0", "i - t", |i, t, _| (i >= t).then_some(i - t)),
        ("t >= 0 && t < 3 && w[t] >= 0 && w[t] < N", "w[t]", |_, t, w| {
            (t < 3).then(|| w[t as usize]).filter(|at| (0..20).contains(at))
        }),
    ];
    for w in [[0, 3, 19], [5, -4, 7], [-100, i64::MAX, i64::MIN], [i64::MAX, i64::MAX - 3, -1]] {
        let given = Tensor::new(&[3], &w);
        for (condition, at, chosen) in &inside {
            let text = text(condition, at);
            assert_eq!(extremes(&text), 0, "{text}");
            let t = |i: i64| i64::from(q[i as usize] * q[i as usize] / 4);
            let y = (0..20).map(|i| chosen(i, t(i), w).map_or(7, |at| a[at as usize]));
            let y: Vec<i32> = y.collect();
            check(&text, &[("q", &i32s(&q)), ("a", &i32s(&a)), ("w", &given)], &[&y]);
        }
    }
}

/// A condition that leaves a subscript outside does not prove it: it is recorded, and refused where the condition holds.
#[test]
fn conditions_that_leave_too_much_are_recorded() {
    for (condition, at, wrong) in [
        ("t >= 0 && t < N", "t + 1", 19),
        ("t >= 0 && t <= N", "t", 20),
        ("t < N", "t", -1),
        ("t >= 0 || t < N", "t", 20),
        // the sum wraps around
        ("t >= 0 && t + 2 < N", "t", i32::MAX),
        ("t != 3", "t", 20),
        ("q[i] >= 0 && q[i] < N", "t + 1", 19),
    ] {
        let text = format!(
            "loop p(N = 20) {{ in i32 q[N], a[N]\n out i32 y[N]\n temp i32 t
            for i in 0..N {{ t = bit_xor(q[i], 1)  y[i] = 7  if {condition} y[i] = a[{at}] }} }}"
        );
        assert!(extremes(&text) > 0, "{text}");
        let run = |t: i32| {
            let mut q = [2; 20];
            q[11] = t ^ 1;
            results(&text, &[("q", &i32s(&q)), ("a", &i32s(&[1; 20]))])
        };
        run(4).into_iter().for_each(|r| drop(r.unwrap_or_else(|e| panic!("{e}\n{text}"))));
        for result in run(wrong) {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("of tensor `a, dimension 0` lies outside of 0..=19"), "{error}\n{text}");
        }
    }
}

/// Of a side that conditions prove no extreme is kept, but beside bounds of loops alone: without conditions both are compared at once.
#[test]
fn the_extreme_of_a_side_that_is_proven_is_left_out() {
    let records = |statements: &str| {
        let scop =
            scop(&format!("loop p(N = 16) {{ inout i32 c[2], y[N]\n for i in 0..N {{ c[0] += 1  {statements} }} }}"));
        let is_record = |s: &&Statement| s.reduce.is_some() && scop.tensor(s.target).role == Role::Check;
        scop.statements.iter().filter(is_record).count()
    };
    for (statements, count) in [
        ("y[c[0]] += 1", 2),
        ("if c[0] > 3 y[c[0]] += 1", 1),
        ("if c[0] > i && c[1] == 0 y[c[0]] += 1", 1),
        ("for k in 0..min(c[0], N) y[c[0] * k] += 1", 2),
    ] {
        assert_eq!(records(statements), count, "{statements}");
    }
}

/// The C text has the subscripts that conditions keep inside as they are written, and minima and maxima of the program.
#[test]
fn guarded_subscripts_are_text_as_written() {
    let text = "loop p(N = 20) { in i32 q[N], a[N]\n out i32 y[N]\n temp i32 t
        for i in 0..N { t = bit_xor(q[i], 1)
            if t >= 0 && t < N y[i] = a[t] else y[i] = min(max(t, 0), 19) } }";
    let c = model(text).explain(&Options::default(), Stage::C, None).unwrap();
    assert!(c.contains("a[q[i] ^ 1]"), "{c}");
    let clamped = text.replace("y[i] = min(max(t, 0), 19)", "y[i] = a[min(max(t, 0), 19)]");
    let c = model(&clamped).explain(&Options::default(), Stage::C, None).unwrap();
    assert!(!c.contains("a[q[i] ^ 1]"), "{c}");
}
