//! Loop programs whose subscripts are linear in a loop, with shifts and factors that the program computes: against plain Rust, on every target of this processor, on one
//! and two threads, inside of the arrays and outside.

mod common;

use common::loop_runs::{check, i32s, loops, results};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tilewright::Tensor;

/// `shift[r] = q[r] * 2` and `times[r] = q[r] - 3`, which the program computes, in a loop over `r` around a loop over `i` with a body.
fn rows(arrays: &str, end: &str, body: &str) -> String {
    format!(
        "loop p(R = 9, N = 40, X = 120) {{ in i32 q[R], x[X]\n out i32 shift[R], times[R]\n {arrays}\n
         for r in 0..R {{ shift[r] = q[r] * 2  times[r] = q[r] - 3 }}
         for r in 0..R for i in 0..{end} {{ {body} }} }}"
    )
}

fn numbers() -> Vec<i32> {
    (0..120).map(|k| k * k % 37 - 11).collect()
}

/// The result, and the least and the greatest subscript.
fn ends(q: &[i32], count: impl Fn(usize) -> i64, at: impl Fn(usize, i64) -> i64) -> (i64, i64) {
    let all = (0..q.len()).flat_map(|r| (0..count(r)).map(move |i| (r, i))).map(|(r, i)| at(r, i));
    all.fold((0, 0), |(low, high), k| (low.min(k), high.max(k)))
}

/// Runs a program with rows inside of the arrays, and with rows of which some lead out of them.
fn runs(text: &str, count: fn(&[i32], usize) -> i64, at: fn(&[i32], usize, i64) -> i64, model: fn(&[i32]) -> Vec<i32>) {
    let mut random = StdRng::seed_from_u64(7);
    let x = i32s(&numbers());
    let (mut inside, mut outside) = (0, 0);
    for most in [0, 6, 39, 39, 42, 60, 1 << 29] {
        let q: Vec<i32> = (0..9).map(|_| random.random_range(-(most / 30)..=most)).collect();
        let (low, high) = ends(&q, |r| count(&q, r), |r, i| at(&q, r, i));
        let given: [(&str, &Tensor); 2] = [("q", &i32s(&q)), ("x", &x)];
        if low >= 0 && high < 120 {
            inside += 1;
            for result in results(text, &given) {
                let outputs = result.unwrap_or_else(|e| panic!("{e}\n{text}"));
                assert_eq!(outputs[2].to_vec::<i32>(), model(&q), "{text}");
            }
            continue;
        }
        outside += 1;
        let said = if low < 0 { format!("{low} ") } else { format!("{high} ") };
        for result in results(text, &given) {
            let message = result.expect_err(text).to_string();
            assert!(message.contains("lies") && message.contains(&said), "{message}\n{low} {high} {q:?}\n{text}");
        }
    }
    assert!(inside > 0 && outside > 0, "{inside} {outside}");
}

#[test]
fn shifts_are_compared_at_both_ends() {
    let text = rows("out i32 y[R][N]", "N", "y[r][i] = x[i + shift[r]]");
    let found = loops(&text);
    assert!(found.contains("inside >= 0"), "{found}");
    runs(
        &text,
        |_, _| 40,
        |q, r, i| i + 2 * i64::from(q[r]),
        |q| (0..360).map(|k| numbers()[k % 40 + 2 * q[k / 40] as usize]).collect(),
    );
}

#[test]
fn factors_are_compared_at_both_ends() {
    let text = rows("out i32 y[R][N]", "2", "y[r][i] = 0")
        .replace("for i in 0..2", "for i in 0..N")
        .replace("y[r][i] = 0 }", "y[r][i] = 0 }\n for r in 0..R for i in 0..3 y[r][i] = x[i * times[r] + 9]");
    runs(
        &text,
        |_, _| 3,
        |q, r, i| i * (i64::from(q[r]) - 3) + 9,
        |q| {
            (0..360)
                .map(|k| if k % 40 < 3 { numbers()[(k as i32 % 40 * (q[k / 40] - 3) + 9) as usize] } else { 0 })
                .collect()
        },
    );
}

#[test]
fn loops_to_bounds_from_data_are_as_well() {
    let text = rows("out i32 y[X]", "min(times[r] + 3, N)", "y[i + shift[r]] += x[i]")
        .replace("for r in 0..R {", "for k in 0..X y[k] = 0\n for r in 0..R {");
    runs(
        &text,
        |q, r| i64::from(q[r].clamp(0, 40)),
        |q, r, i| i + 2 * i64::from(q[r]),
        |q| {
            let mut y = vec![0; 120];
            for &q in q {
                (0..q.clamp(0, 40)).for_each(|i| y[(i + 2 * q) as usize] += numbers()[i as usize]);
            }
            y
        },
    );
}

/// Sums of some of the numbers as a set of bits: a loop that runs backwards from a bound that the program computes, with values that a condition on the number selects
/// and shifts by what it computes.
#[test]
fn bits_are_shifted_in_place() {
    let text = "loop p(N = 30, W = 40) { in i32 item[N]\n inout u32 reach[W]\n out i32 count[W]\n temp i32 q, r\n
        for n in 0..N {
            q = item[n] / 32
            r = item[n] % 32
            for w in 0..W step -1 {
                if w >= q {
                    if r == 0
                        reach[w] = bit_or(reach[w], reach[w - q])
                    else if w == q
                        reach[w] = bit_or(reach[w], shl(reach[0], u32(r)))
                    else
                        reach[w] = bit_or(reach[w], bit_or(shl(reach[w - q], u32(r)), shr(reach[w - q - 1], u32(32 - r))))
                }
            }
        }
        for w in 0..W count[w] = i32(popcount(reach[w])) }";
    let mut random = StdRng::seed_from_u64(3);
    for _ in 0..4 {
        let items: Vec<i32> = (0..30)
            .map(|_| if random.random_bool(0.3) { 32 * random.random_range(1..4) } else { random.random_range(1..100) })
            .collect();
        let mut reach = vec![false; 1280];
        reach[0] = true;
        for &item in &items {
            (item as usize..1280).rev().for_each(|s| reach[s] |= reach[s - item as usize]);
        }
        let words: Vec<u32> = reach.chunks(32).map(|w| w.iter().rev().fold(0, |a, b| 2 * a + u32::from(*b))).collect();
        let mut first = vec![0u32; 40];
        first[0] = 1;
        let given: [(&str, &Tensor); 2] = [("item", &i32s(&items)), ("reach", &Tensor::new(&[40], &first))];
        for result in results(text, &given) {
            let outputs = result.unwrap_or_else(|e| panic!("{e}\n{text}"));
            let (bits, count): (Vec<u32>, Vec<i32>) = (outputs[0].to_vec(), outputs[1].to_vec());
            assert_eq!(bits, words);
            assert_eq!(count, words.iter().map(|w| w.count_ones() as i32).collect::<Vec<i32>>());
        }
    }
}

/// Lanes of a loop that runs backwards begin before its range, which is no multiple of a vector.
#[test]
fn extremes_are_kept_backwards() {
    let text = "loop p(N = 50) { in i32 b[N], n[1]\n inout i32 c[1], o[1]\n
        for i in 0..N step -1 c[0] max= b[i] % n[0] + n[0]
        for i in 0..N o[i % 1] = 1 }";
    let b: Vec<i32> = (0..50).map(|i| i * 7 % 23 - 4).collect();
    let most = b.iter().map(|b| b.rem_euclid(5) + 5).max().unwrap();
    let zero = i32s(&[0]);
    check(text, &[("b", &i32s(&b)), ("n", &i32s(&[5])), ("c", &zero), ("o", &zero)], &[&[most], &[1]]);
}
