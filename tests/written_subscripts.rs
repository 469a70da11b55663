//! Loop programs that take subscripts from arrays which they write themselves: against the definition of their statements and against
//! plain Rust, on every target of this processor, on one and two threads, with data that lead out of an array too.

mod common;

use common::loop_runs::{check, i32s, model, results};
use common::scop;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use tilewright::internal::language;
use tilewright::internal::poly::reference;
use tilewright::internal::poly::statement::Role;
use tilewright::{Options, Session, Stage, Tensor};

/// A program with statements over arrays of 24 numbers that take subscripts from each other.
fn random_program(random: &mut StdRng) -> String {
    let subscript = |random: &mut StdRng| -> String {
        let array = ["a", "b", "c"].choose(random).unwrap();
        let place = ["i", "23 - i", "k", "(i + 5) % 24"].choose(random).unwrap();
        match random.random_range(0..9) {
            0..=2 => (*place).into(),
            3 => format!("bit_and({array}[{place}], 15)"),
            4 => format!("min(max({array}[{place}], 0), 23)"),
            5 => format!("{array}[{place}] % 24"),
            6 => format!("{array}[bit_and({array}[{place}], 7)]"),
            _ => format!("{array}[{place}]"),
        }
    };
    let value = |random: &mut StdRng| -> String {
        let [x, y] = [0, 1].map(|_| format!("{}[{}]", ["a", "b", "c"].choose(random).unwrap(), subscript(random)));
        match random.random_range(0..6) {
            0 => format!("{x} + 1"),
            1 => format!("{x} - {y}"),
            2 => format!("select({x} > {y}, {y}, i32(k))"),
            3 => "i32(i)".into(),
            _ => format!("bit_and({x}, 15)"),
        }
    };
    let mut text = "loop p(N = 24) { inout i32 a[N], b[N], c[N]\n".to_string();
    for _ in 0..random.random_range(1..4) {
        text +=
            if random.random_bool(0.5) { "for k in 0..5 for i in 0..N {\n" } else { "for i in 0..N for k in 3..6 {\n" };
        for _ in 0..random.random_range(1..4) {
            let (target, place, value) = (["a", "b", "c"].choose(random).unwrap(), subscript(random), value(random));
            // small numbers, most of which are subscripts
            text += &match random.random_range(0..8) {
                0 => format!("{target}[{place}] += {value}\n"),
                1 => format!("{target}[{place}] max= {value}\n"),
                2 => format!("if {value} > 9 {target}[{place}] = bit_and({value}, 15)\n"),
                _ => format!("{target}[{place}] = bit_and({value}, 15)\n"),
            };
        }
        text += "}\n";
    }
    text + "}"
}

/// Programs compute what their statements say, one after the other, and end with an error where a subscript has been outside.
#[test]
fn random_programs_do_what_their_statements_say() {
    let random = &mut StdRng::seed_from_u64(11);
    let (mut right, mut outside) = (0, 0);
    for _ in 0..40 {
        let text = random_program(random);
        let scop = scop(&text);
        let values: Vec<Tensor> =
            (0..3).map(|_| i32s(&(0..24).map(|_| random.random_range(0..20)).collect::<Vec<i32>>())).collect();
        let mut tensors: Vec<Tensor> = scop.tensors.iter().map(|t| Tensor::zeros(t.dtype, &t.shape)).collect();
        tensors[..3].clone_from_slice(&values);
        reference::run(&scop, &scop.order, &mut tensors);
        let inside = scop.tensors.iter().zip(&tensors).filter(|(t, _)| t.role == Role::Check).all(|(decl, t)| {
            let at = t.to_vec::<i32>()[0] as i64;
            decl.ranges.iter().all(|r| (r.lower..=r.upper).contains(&at))
        });
        let given = [("a", &values[0]), ("b", &values[1]), ("c", &values[2])];
        for result in results(&text, &given) {
            match result {
                Ok(found) => {
                    assert!(inside, "an error is expected\n{text}");
                    assert_eq!(found.len(), 3);
                    for (found, expected) in found.iter().zip(&tensors) {
                        assert_eq!(found.to_vec::<i32>(), expected.to_vec::<i32>(), "{text}");
                    }
                }
                Err(e) => assert!(!inside && e.to_string().contains("lies outside of 0..=23"), "{e}\n{text}"),
            }
        }
        if inside { right += 1 } else { outside += 1 }
    }
    assert!(right > 8 && outside > 4, "{right} runs, {outside} errors");
}

#[test]
fn numbers_are_sorted_by_counting() {
    let text = "loop sort(N = 300, K = 11) { in i32 key[N]\n temp i32 at[K + 1]\n out i32 order[N]
        for k in 0..K + 1 at[k] = 0
        for i in 0..N at[key[i] + 1] += 1
        for k in 0..K at[k + 1] += at[k]
        for i in 0..N order[i] = 0
        for i in 0..N { order[at[key[i]]] = i32(i)  at[key[i]] += 1 } }";
    let key: Vec<i32> = (0..300).map(|i| i * 7919 % 11).collect();
    let mut order: Vec<i32> = (0..300).collect();
    order.sort_by_key(|&i| key[i as usize]);
    check(text, &[("key", &i32s(&key))], &[&order]);
}

#[test]
fn paths_are_traced_back_and_pointers_jump() {
    let text = "loop trace(T = 60, S = 5) { in i32 back[T][S]\n inout i32 path[T]
        for t in 1..T path[T - 1 - t] = back[T - t][path[T - t]] }";
    let back: Vec<i32> = (0..300).map(|i| (i * 7 + i / 9) % 5).collect();
    let mut path = vec![3; 60];
    (0..59).rev().for_each(|t| path[t] = back[(t + 1) * 5 + path[t + 1] as usize]);
    let start = i32s(&[3; 60]);
    check(text, &[("back", &Tensor::new(&[60, 5], &back)), ("path", &start)], &[&path]);

    let text = "loop jump(N = 90, L = 7) { inout i32 parent[N]\n temp i32 next[N]
        for l in 0..L { for i in 0..N next[i] = parent[parent[i]]  for i in 0..N parent[i] = next[i] } }";
    let parent: Vec<i32> = (0..90).map(|i| (i - 1 - i % 3).max(0)).collect();
    check(text, &[("parent", &i32s(&parent))], &[&[0; 90]]);
}

/// The nearest of four numbers, and how often each is: the subscripts need no check, since what is assigned keeps them inside.
#[test]
fn assigned_values_that_stay_inside_need_no_check() {
    let text = "loop nearest(N = 200, K = 4) { in i32 x[N], c[K]\n out i32 a[N], n[K]\n temp i32 best
        for i in 0..N { best = 1000  a[i] = 0
            for k in 0..K { a[i] = select(abs(x[i] - c[k]) < best, i32(k), a[i])  best min= abs(x[i] - c[k]) } }
        for k in 0..K n[k] = 0
        for i in 0..N n[a[i]] += 1 }";
    assert!(scop(text).tensors.iter().all(|t| t.role != Role::Check));
    let (x, c): (Vec<i32>, _) = ((0..200).map(|i| i * i % 101).collect(), [3, 20, 50, 90]);
    let a: Vec<i32> = x.iter().map(|x| (0..4).min_by_key(|&k| (x - c[k as usize]).abs()).unwrap()).collect();
    let n: Vec<i32> = (0..4).map(|k| a.iter().filter(|a| **a == k).count() as i32).collect();
    check(text, &[("x", &i32s(&x)), ("c", &i32s(&c))], &[&a, &n]);

    let open = text.replace("a[i] = 0\n", "\n").replace("out i32 a[N], n[K]", "inout i32 a[N]\n out i32 n[K]");
    assert_eq!(scop(&open).tensors.iter().filter(|t| t.role == Role::Check).count(), 2);
}

#[test]
fn subscripts_outside_are_errors_of_the_run() {
    let text = "loop p(N = 50) { in f32 x[N]\n inout i32 p[N]\n inout f32 y[N]
        for i in 0..N { p[i] += 1  y[i] = x[p[i]] } }";
    let (x, y) = (Tensor::new(&[50], &[2f32; 50]), Tensor::new(&[50], &[0f32; 50]));
    for (wrong, said) in [(49, Some("x, dimension 0")), (-9, Some("x, dimension 0")), (48, None)] {
        let mut p = [5; 50];
        p[30] = wrong;
        for result in results(text, &[("x", &x), ("p", &i32s(&p)), ("y", &y)]) {
            match (result, said) {
                (Ok(outputs), None) => assert_eq!(outputs[1].to_vec::<f32>(), [2f32; 50]),
                (Err(e), Some(name)) => {
                    let said = format!("index {} of tensor `{name}` lies outside of 0..=49", wrong + 1);
                    assert!(e.to_string().contains(&said), "{e}");
                }
                (result, _) => panic!("{wrong}: {:?}", result.map(|_| ())),
            }
        }
    }
    // a session that has failed goes on
    let module = Arc::new(model(text).compile_module(&Options::default()).unwrap().0);
    let session = Session::new(module, 1).unwrap();
    let run = |first: i32| session.run(&[("x", &x), ("p", &i32s(&[first; 50])), ("y", &y)]).is_ok();
    assert_eq!([run(60), run(3), run(-2), run(0)], [false, true, false, true]);
}

/// A subscript counts only where the condition around it holds: numbers that stand for nothing lead nowhere.
#[test]
fn subscripts_count_where_their_condition_holds() {
    let text = "loop p(N = 70) { in i32 x[N]\n inout i32 m[N], s[N], y[N]
        for i in 0..N { m[i] = select(m[i] < 20, -1, m[i])
            if m[i] >= 0 { s[m[i]] += x[i]  y[i] = x[m[i]] } else y[i] = select(m[i] == -1, 4, x[m[i]]) } }";
    let (x, m): (Vec<i32>, Vec<i32>) = (0..70).map(|i| (i * i % 23, i * 13 % 70)).unzip();
    let (mut after, mut s, mut y) = (m.clone(), vec![0; 70], vec![0; 70]);
    for i in 0..70 {
        after[i] = if m[i] < 20 { -1 } else { m[i] };
        if after[i] >= 0 {
            s[after[i] as usize] += x[i];
        }
        y[i] = if after[i] >= 0 { x[after[i] as usize] } else { 4 };
    }
    let zeros = i32s(&[0; 70]);
    let given = [("x", &i32s(&x)), ("m", &i32s(&m)), ("s", &zeros), ("y", &zeros)];
    check(text, &given, &[&after, &s, &y]);
}

/// A store under a condition touches nothing where the condition fails, however its subscript comes from data.
#[test]
fn stores_count_where_their_condition_holds() {
    let text = "loop p(N = 8) { in i32 s[2]\n inout i32 y[N]
        for c in 0..2 for v in 0..N if v >= s[c] y[v - s[c]] = i32(v) }";
    let s = i32s(&[3, 1]);
    check(text, &[("s", &s), ("y", &i32s(&[9; 8]))], &[&[1, 2, 3, 4, 5, 6, 7, 9]]);
    let error = results(text, &[("s", &i32s(&[3, -1])), ("y", &i32s(&[9; 8]))]);
    assert!(error.into_iter().all(|e| e.unwrap_err().to_string().contains("of tensor `s` lies below 0")));

    let text = "loop p(N = 8) { in i32 s[1]\n inout i32 y[N]
        for c in 0..1 for v in 0..N if v + s[c] < N y[v + s[c]] = y[v] }";
    check(text, &[("s", &i32s(&[3])), ("y", &i32s(&[1, 2, 3, 4, 5, 6, 7, 8]))], &[&[1, 2, 3, 1, 2, 3, 1, 2]]);

    // of elements that the program writes; the last branch but one leaves y as it is
    let text = "loop p(N = 8) { inout i32 q[N]\n in i32 x[N]\n inout i32 y[N], z[N]
        for i in 0..N q[i] -= 1
        for i in 0..N if q[i] >= 0 && q[i] < N y[q[i]] = x[i]
        for i in 0..N if q[i] == 2 z[q[i]] = 7 else if q[i] >= 0 && x[i] > 2 z[q[i]] = x[i] }";
    let (q, x) = (i32s(&[0, 3, 9, 1, 0, 6, 2, 8]), i32s(&[1, 2, 3, 4, 5, 6, 7, 8]));
    let given = [("q", &q), ("x", &x), ("y", &i32s(&[0; 8])), ("z", &i32s(&[0; 8]))];
    let after = [-1, 2, 8, 0, -1, 5, 1, 7];
    for result in results(text, &given) {
        // 8 counts in z
        assert!(result.unwrap_err().to_string().contains("index 8 "));
    }
    let text = text.replace("q[i] >= 0 && x[i] > 2", "q[i] >= 0 && q[i] < N && x[i] > 2");
    check(&text, &given, &[&after, &[4, 7, 2, 0, 0, 6, 0, 8], &[4, 7, 7, 0, 0, 6, 0, 8]]);
}

/// A conversion to a narrow type wraps around: all elements are good where all its values are, and others are checked by the run.
#[test]
fn narrowed_subscripts_wrap_around() {
    let text = |n: i32, cast: &str| {
        format!(
            "loop p(N = {n}) {{ in i32 q[4]\n in i32 x[N]\n out i32 y[4]\n for i in 0..4 y[i] = x[i64({cast}(q[i]))] }}"
        )
    };
    let x: Vec<i32> = (0..256).collect();
    let q = i32s(&[300, -1, 65536 + 7, i32::MIN]);
    check(&text(256, "u8"), &[("q", &q), ("x", &i32s(&x))], &[&[44, 255, 7, 0]]);
    let few = i32s(&[300, 0, 65536 + 7, i32::MIN]);
    check(&text(200, "u8"), &[("q", &few), ("x", &i32s(&x[..200]))], &[&[44, 0, 7, 0]]);
    for result in results(&text(200, "u8"), &[("q", &q), ("x", &i32s(&x[..200]))]) {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("index 255 ") && message.contains("outside of 0..=199"), "{message}");
    }
}

/// C has a branch where a store does not count, and quotients by zero as here.
#[test]
fn c_stores_where_the_condition_holds() {
    let c = |statements: &str| {
        let text = format!("loop p(N = 8) {{ in i32 r[N], x[N]\n inout i32 y[N], q[N]\n {statements} }}");
        model(&text).explain(&Options::default(), Stage::C, None).unwrap()
    };
    let found = c("for i in 0..N if i >= r[i] y[i - r[i]] += x[i]");
    let stored = "if (i >= ((int64_t)r[i])) {\n            y[i - (int64_t)r[i]] += x[i];\n        }";
    assert!(found.contains(stored), "{found}");
    let found = c("for i in 0..N { q[i] -= 1  if q[i] >= 0 y[q[i]] = x[i] else if x[i] > 3 y[i] = 2 }");
    assert!(found.contains("if (q[i] >= 0) {") && found.contains("y[q[i]] = x[i];"), "{found}");
    let found = c("for i in 0..N y[i] = x[i] / r[i] + x[i] % r[i] + x[i] / 3");
    assert!(found.contains("DIVIDE(int32_t, uint32_t, x[i], r[i])") && found.contains("x[i] / 3"), "{found}");
}

/// Subscripts out of several elements, or of an index and an element, have no range of one array that a run could check before it.
#[test]
fn subscripts_of_indices_and_elements_are_checked_by_the_run() {
    let text = "loop knapsack(N = 9, C = 60) { in i32 weight[N], value[N]\n out i32 best[N + 1][C + 1]
        for c in 0..C + 1 best[0][c] = 0
        for i in 0..N for c in 0..C + 1 {
            best[i + 1][c] = best[i][c]
            if c >= i64(weight[i]) best[i + 1][c] = max(best[i][c], best[i][c - i64(weight[i])] + value[i]) } }";
    let (weight, value): (Vec<i32>, Vec<i32>) = (0..9).map(|i| (5 + i * 7 % 31, 3 + i * 5 % 17)).unzip();
    let mut best = vec![0; 61];
    let mut all = best.clone();
    for (w, v) in weight.iter().zip(&value) {
        let before = best.clone();
        (*w as usize..61).for_each(|c| best[c] = before[c].max(before[c - *w as usize] + v));
        all.extend(&best);
    }
    let given = [("weight", &i32s(&weight)), ("value", &i32s(&value))];
    check(text, &given, &[&all]);

    let text = "loop p(N = 40) { in i32 q[N], r[N]\n in i32 x[N]\n out i32 y[N]\n for i in 0..N y[i] = x[i + i64(q[i] * r[i])] }";
    let (x, one) = (i32s(&(0..40).collect::<Vec<i32>>()), i32s(&[1; 40]));
    let mut q = [0; 40];
    q[7] = 5;
    check(
        text,
        &[("q", &i32s(&q)), ("r", &one), ("x", &x)],
        &[&(0..40).map(|i| if i == 7 { 12 } else { i }).collect::<Vec<i32>>()],
    );
    q[7] = 33;
    for result in results(text, &[("q", &i32s(&q)), ("r", &one), ("x", &x)]) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("index 40 of tensor `x, dimension 0` lies outside of 0..=39"), "{error}");
    }
}

/// C has the subscripts as they are written, and no check.
#[test]
fn c_has_no_checks() {
    let text = "loop p(N = 50) { in f32 x[N]\n inout i32 p[N]\n inout f32 y[N]
        for i in 0..N { p[i] += 1  y[p[p[i]]] = x[p[i]] } }";
    let c = model(text).explain(&Options::default(), Stage::C, None).unwrap();
    assert!(c.contains("y[p[p[i]]] = x[p[i]];") && !c.contains("subscript"), "{c}");
}

/// Two elements of one array are two numbers: their difference may be any.
#[test]
fn differences_of_elements_are_checked_by_the_run() {
    let text =
        "loop p(N = 40) { in i32 q[N], x[N]\n out i32 y[N]\n for i in 1..N y[i] = x[q[i] - q[i - 1]]  y[0] = 0 }";
    let x = i32s(&(0..40).collect::<Vec<i32>>());
    let mut q: Vec<i32> = (0..40).collect();
    let mut expected = vec![1; 40];
    expected[0] = 0;
    check(text, &[("q", &i32s(&q)), ("x", &x)], &[&expected]);
    q[9] = 900;
    for result in results(text, &[("q", &i32s(&q)), ("x", &x)]) {
        assert!(result.unwrap_err().to_string().contains("lies outside of 0..=39"));
    }
}

/// Differences that wrap around stay inside too, in loops that may be divided where they meet a limit.
#[test]
fn extreme_numbers_lead_nowhere() {
    const N: i64 = 300;
    let shifts = [3, i64::MIN, i64::MAX, i64::MIN + 1];
    let sum: Vec<String> = (0..4).map(|k| format!("x[min(max(i - s[{k}], 0), N - 1)]")).collect();
    let text = format!(
        "loop p(N = {N}) {{ in i64 s[4]\n in i32 x[N]\n out i32 y[N]\n for i in 0..N y[i] = {} }}",
        sum.join(" + ")
    );
    let x: Vec<i32> = (0..N as i32).map(|i| i * 7 % 31).collect();
    let at = |i: i64, s: i64| x[i.wrapping_sub(s).clamp(0, N - 1) as usize];
    let y: Vec<i32> = (0..N).map(|i| shifts.iter().map(|s| at(i, *s)).sum()).collect();
    check(&text, &[("s", &Tensor::new(&[4], &shifts)), ("x", &i32s(&x))], &[&y]);

    let text = "loop p(N = 40) { in i64 q[N]\n inout i64 p[N]\n in i32 x[N]\n out i32 y[N]\n for i in 0..N { p[i] = q[i]  y[i] = x[i + p[i]] } }";
    let x = i32s(&[1; 40]);
    for wrong in [i64::MIN, i64::MAX, i64::MAX - 9, -31] {
        let mut q = [0i64; 40];
        q[30] = wrong;
        let [q, p] = [q, [0; 40]].map(|values| Tensor::new(&[40], &values));
        for result in results(text, &[("q", &q), ("p", &p), ("x", &x)]) {
            assert!(
                result.unwrap_err().to_string().contains("of tensor `x, dimension 0` lies outside of 0..=39"),
                "{wrong}"
            );
        }
    }
}

/// Subscripts that what is assigned keeps inside have neither a check nor a minimum and a maximum, so that this must hold of all numbers.
#[test]
fn proven_subscripts_stay_inside_whatever_the_data_are() {
    let n = 77;
    let text = "loop p(N = 77, K = 13) { in f32 x[N]\n in i32 q[N]\n in i64 w[N]\n in i32 table[K]\n out i32 a[N], b[N], y[N]\n out i64 c[N]\n temp i32 k[N]
        for i in 0..N { k[i] = min(12, max(0, i32(x[i] * 1e9)))  a[i] = bit_and(q[i] * q[i] - 7, 7)  b[i] = abs(q[i]) % 13
            c[i] = min(max(w[i] * 3 - 1, 0), 12) }
        for i in 0..N y[i] = table[k[i]] + table[a[i]] * 3 + table[b[i]] * 5 + table[c[i]] * 7 }";
    let scop = scop(text);
    assert!(scop.tensors.iter().all(|t| t.role != Role::Check));
    let last = scop.statements.last().unwrap();
    last.body
        .visit_accesses(&mut |a| assert!(a.index.iter().all(|i| i.value().is_none_or(|e| e.operands().count() == 0))));
    let floats = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-9, 5e-9, f32::MAX, -1e30, 2.147_483_6];
    let integers = [i32::MIN, i32::MAX, -1, 0, 13, 46341, 65536, i32::MIN + 1, -46341];
    let longs = [i64::MIN, i64::MAX, -1, 0, 1, 4, i64::MAX / 3 + 1, i64::MIN / 3 - 1, 1 << 62];
    let x = Tensor::new(&[n], &(0..n as usize).map(|i| floats[i % 9]).collect::<Vec<f32>>());
    let q = i32s(&(0..n as usize).map(|i| integers[(i + i / 9) % 9]).collect::<Vec<i32>>());
    let w = Tensor::new(&[n], &(0..n as usize).map(|i| longs[(i + i / 11) % 9]).collect::<Vec<i64>>());
    let table = i32s(&(0..13).map(|k| k * k + 1).collect::<Vec<i32>>());
    let mut tensors: Vec<Tensor> = scop.tensors.iter().map(|t| Tensor::zeros(t.dtype, &t.shape)).collect();
    tensors[..4].clone_from_slice(&[x.clone(), q.clone(), w.clone(), table.clone()]);
    reference::run(&scop, &scop.order, &mut tensors);
    for result in results(text, &[("x", &x), ("q", &q), ("w", &w), ("table", &table)]) {
        let found = result.unwrap_or_else(|e| panic!("{e}"));
        for (found, expected) in found[..3].iter().zip(&tensors[4..7]) {
            assert_eq!(found.to_vec::<i32>(), expected.to_vec::<i32>());
        }
        assert_eq!(found[3].to_vec::<i64>(), tensors[7].to_vec::<i64>());
    }
}

/// Values that operations do not keep inside for all numbers are checked.
#[test]
fn what_wraps_is_no_proof() {
    for (value, wrong, said) in [
        ("min(abs(q[i]), 12)", i32::MIN, "index -"),
        ("min(q[i] * q[i], 12)", 46341, "index -"),
        ("max(0, min(12, q[i])) + 1", 12, "index 13 "),
        ("max(q[i] + 1, q[i]) % 14", 12, "index 13 "),
        ("min(12, 0 - max(q[i], 0) / 1000000000)", i32::MAX, "index -"),
    ] {
        let text = format!(
            "loop p(N = 40, K = 13) {{ in i32 q[N]\n in i32 table[K]\n out i32 k[N], y[N]
             for i in 0..N {{ k[i] = {value}  y[i] = table[k[i]] }} }}"
        );
        let table = i32s(&[3; 13]);
        let mut q = vec![0; 40];
        for result in results(&text, &[("q", &i32s(&q)), ("table", &table)]) {
            assert_eq!(result.unwrap_or_else(|e| panic!("{e}\n{text}"))[1].to_vec::<i32>(), [3; 40]);
        }
        q[33] = wrong;
        for result in results(&text, &[("q", &i32s(&q)), ("table", &table)]) {
            let error = result.expect_err(&text).to_string();
            assert!(error.contains(said) && error.contains("`table, dimension 0`"), "{error}\n{text}");
        }
    }
}

/// A distance from data, which the condition around it holds inside: what it must be is known before the run, and a loop runs in vectors
/// where it is long enough.
#[test]
fn distances_from_data_under_their_condition_are_checked_before_the_run() {
    let coins = [1, 3, 7, 8, 15, 16, 17, 31, 40, 64, 150, 299, 300, 301, 4000, i32::MAX];
    let of = |subscript: &str, dtype: &str| {
        format!(
            "loop change(C = 16, V = 300) {{ in {dtype} coin[C]\n out i32 best[V + 1]
             best[0] = 0
             for v in 1..V + 1 best[v] = 1000000
             for c in 0..C for v in 0..V + 1 if v >= {subscript} best[v] = min(best[v], best[v - {subscript}] + i32(c) + 1) }}"
        )
    };
    for first in 0..coins.len() {
        let coins: Vec<i32> = coins.iter().cycle().skip(first).copied().take(16).collect();
        let mut best = vec![1000000; 301];
        best[0] = 0;
        for (c, &coin) in coins.iter().enumerate() {
            (coin as usize..301).for_each(|v| best[v] = best[v].min(best[v - coin as usize] + c as i32 + 1));
        }
        let narrow = i32s(&coins);
        let wide = Tensor::new(&[16], &coins.iter().map(|&c| c.into()).collect::<Vec<i64>>());
        for (text, coins) in
            [(of("coin[c]", "i32"), &narrow), (of("i64(coin[c])", "i32"), &narrow), (of("coin[c]", "i64"), &wide)]
        {
            assert!(scop(&text).tensors.iter().all(|t| t.role != Role::Check));
            if first % 4 == 0 {
                check(&text, &[("coin", coins)], &[&best]);
            }
        }
    }
    for wrong in [-1, i32::MIN] {
        let mut coins = [1; 16];
        coins[9] = wrong;
        for result in results(&of("coin[c]", "i32"), &[("coin", &i32s(&coins))]) {
            let error = result.expect_err("a distance below 0").to_string();
            assert!(error.contains(&format!("index {wrong} at [9] of tensor `coin` lies below 0")), "{error}");
        }
    }
    // the iterator chooses the distance, or the program writes it: the run checks it
    for text in [
        "loop p(V = 60) { in i64 s[V]\n inout i32 x[V]\n for v in 0..V if v >= s[v] x[v] += x[v - s[v]] }",
        "loop p(C = 3, V = 60) { inout i64 s[C]\n inout i32 x[V]\n for c in 0..C { s[c] += 1  for v in 0..V if v >= s[c] x[v] += x[v - s[c]] } }",
    ] {
        assert!(scop(text).tensors.iter().any(|t| t.role == Role::Check), "{text}");
    }
}

/// A guard on the element that is the subscript: one for which it fails leads nowhere, the others are checked before the run.
#[test]
fn elements_for_which_a_guard_fails_lead_nowhere() {
    let none = |sentinel: i32| (0..40).map(|i| if i % 3 == 1 { sentinel } else { (i * 11) % 40 }).collect::<Vec<i32>>();
    let x: Vec<i32> = (0..40).map(|i| 100 + i).collect();
    let program = |statement: &str, kind: &str| {
        format!("loop p(N = 40) {{ in i32 q[N], x[N]\n {kind} i32 y[N]\n for i in 0..N {statement} }}")
    };
    let is_recorded = |text: &str| scop(text).tensors.iter().any(|t| t.role == Role::Check);
    for (sentinel, statement, recorded) in [
        (-1, "if q[i] >= 0 y[q[i]] = x[i]", false),
        (-7, "if q[i] < 0 { } else y[q[i]] = x[i]", false),
        (i32::MIN, "if !(q[i] < 0) && x[i] > 0 y[q[i]] = x[i]", false),
        (-1, "if q[i] != -1 y[q[i]] = x[i]", false),
        (-1, "if q[i] >= 0 && x[q[i]] > 0 y[q[i]] = x[i]", false),
        (-1, "if q[i] < 0 || x[q[i]] < 0 { } else y[q[i]] = x[i]", false),
        (40, "if q[i] < i32(N) y[q[i]] = x[i]", false),
        (i32::MAX, "if q[i] >= 0 && q[i] < 40 y[q[i]] = x[i]", false),
        // each part of a disjunction is on the element
        (-1, "if q[i] >= 0 && q[i] < 7 || q[i] >= 7 && q[i] < 40 y[q[i]] = x[i]", false),
        (77, "if q[i] < 0 || q[i] >= 40 { } else y[q[i]] = x[i]", false),
        // no interval of elements: the run checks
        (999, "if q[i] != 999 y[q[i]] = x[i]", true),
        (-1, "if q[i] % 64 == q[i] y[q[i]] = x[i]", true),
    ] {
        let (q, mut y) = (none(sentinel), vec![7; 40]);
        for (i, &q) in q.iter().enumerate().filter(|q| *q.1 != sentinel) {
            y[q as usize] = x[i];
        }
        let text = program(statement, "inout");
        assert_eq!(is_recorded(&text), recorded, "{text}");
        check(&text, &[("q", &i32s(&q)), ("x", &i32s(&x)), ("y", &i32s(&[7; 40]))], &[&y]);
        // the same of a sum, and of what is read
        let mut sums = vec![7; 40];
        for (i, &q) in q.iter().enumerate().filter(|q| *q.1 != sentinel) {
            sums[q as usize] += x[i];
        }
        let text = program(&statement.replace("] = x", "] += x"), "inout");
        check(&text, &[("q", &i32s(&q)), ("x", &i32s(&x)), ("y", &i32s(&[7; 40]))], &[&sums]);
        let read: Vec<i32> = q.iter().map(|&q| if q == sentinel { 5 } else { x[q as usize] }).collect();
        let text =
            program(&format!("{{ y[i] = 5 {} }}", statement.replace("y[q[i]] = x[i]", "y[i] = x[q[i]]")), "inout");
        check(&text, &[("q", &i32s(&q)), ("x", &i32s(&x)), ("y", &i32s(&[7; 40]))], &[&read]);
    }
    // narrow types, whose sums would wrap around
    type Narrow = fn(&[i32]) -> Tensor;
    let types: [(&str, i32, Narrow); 3] = [
        ("u8", 255, |q| Tensor::new(&[40], &q.iter().map(|&q| q as u8).collect::<Vec<u8>>())),
        ("i8", -1, |q| Tensor::new(&[40], &q.iter().map(|&q| q as i8).collect::<Vec<i8>>())),
        ("u16", 65535, |q| Tensor::new(&[40], &q.iter().map(|&q| q as u16).collect::<Vec<u16>>())),
    ];
    for (name, sentinel, narrow) in types {
        let (q, mut y) = (none(sentinel), vec![7; 40]);
        for (i, &q) in q.iter().enumerate().filter(|q| *q.1 != sentinel) {
            y[q as usize] = x[i];
        }
        let text = format!(
            "loop p(N = 40) {{ in {name} q[N]\n in i32 x[N]\n inout i32 y[N]\n for i in 0..N if q[i] != {sentinel} y[i64(q[i])] = x[i] }}"
        );
        check(&text, &[("q", &narrow(&q)), ("x", &i32s(&x)), ("y", &i32s(&[7; 40]))], &[&y]);
    }
    let gather = program("y[i] = select(q[i] >= 0, x[q[i]], -3)", "out");
    let read: Vec<i32> = none(-1).iter().map(|&q| if q < 0 { -3 } else { x[q as usize] }).collect();
    check(&gather, &[("q", &i32s(&none(-1))), ("x", &i32s(&x))], &[&read]);
    // where the guard holds, or is on another element, an element must be inside
    for (sentinel, statement) in [
        (40, "if q[i] >= 0 y[q[i]] = x[i]"),
        (-2, "if q[i] != -1 y[q[i]] = x[i]"),
        (-1, "if q[(i + 1) % N] >= 0 y[q[i]] = x[i]"),
        (-1, "if q[i] >= 0 || x[i] > 0 y[q[i]] = x[i]"),
        (-5, "if q[i] != 999 y[q[i]] = x[i]"),
    ] {
        let q = i32s(&none(sentinel));
        for result in results(&program(statement, "inout"), &[("q", &q), ("x", &i32s(&x)), ("y", &i32s(&x))]) {
            let error = result.expect_err(statement).to_string();
            let words = if sentinel == 40 { "index 40 at [1] of tensor `q` lies above 39" } else { "lies outside of" };
            assert!(error.contains(words), "{statement}: {error}");
        }
    }
}

/// An i32 beside an index is what `i64(…)` makes of it, in subscripts and comparisons; elsewhere types are not mixed.
#[test]
fn numbers_beside_indices_are_widened() {
    let program = |a: &str, b: &str, c: &str| {
        format!(
            "loop p(N = 60) {{ in i32 q[N], r[N]\n in i64 w[N]\n in f32 x[N]\n inout f32 y[N]
             for i in 0..N if i + 1 > {a} y[i] += x[min(max(i - {c}, 0), N - 1)] + x[select(r[i] > 0, {b}, w[i]) - 1] }}"
        )
    };
    assert_eq!(
        scop(&program("q[i]", "q[i] * r[i]", "q[i] * 2")),
        scop(&program("i64(q[i])", "i64(q[i] * r[i])", "i64(q[i] * 2)"))
    );
    let text = "loop p(N = 60) { in i32 q[N]\n out i64 y[N]\n for i in 0..N y[i] = i + q[i] }";
    let file = language::parse("p.tile", text).unwrap();
    let error = file.lower(file.program(None).unwrap(), &Default::default(), None).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("convert one"), "{error}");
}
