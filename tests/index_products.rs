//! Loop programs whose subscripts and bounds are products and quotients of indices, against plain Rust: on every target of this processor, on one and two threads.

mod common;

use common::loop_runs::{check, i32s, loops, refusal};

/// A condition on a product of indices guards a subscript, and so does a bound that divides by one of them.
#[test]
fn products_and_quotients_of_indices() {
    let composites = |n: usize| -> Vec<i32> { (0..n).map(|v| (2..v).any(|d| v % d == 0).into()).collect() };
    for statements in [
        "for i in 2..23 for j in i..(N - 1) / i + 1 y[i * j] = 1",
        "for i in 2..23 if y[i] == 0 for j in i..(N - 1) / i + 1 y[i * j] = 1",
        "for i in 2..23 for j in 2..N if i * j < N y[i * j] = 1",
        "for i in 2..23 for j in 0..N if N > i * i + i * j y[i * i + i * j] = 1",
        "for i in 2..23 for j in 0..N if i * i + i * j < N && y[i] == 0 y[i * i + i * j] = 1",
    ] {
        let text = format!("loop p(N = 500) {{ inout i32 y[N]  {statements} }}");
        check(&text, &[("y", &i32s(&[0; 500]))], &[&composites(500)]);
    }
    let nest = loops("loop p(N = 500) { inout i32 y[N]  for i in 2..23 for j in i..(N - 1) / i + 1 y[i * j] = 1 }");
    assert!(nest.contains("j_end = clamp("), "the loop ends at its bound\n{nest}");
    // the passes of a transform, each over twice as many neighbours
    let text = "loop p(N = 64, L = 6) { inout i32 y[N]
        for s in 0..L for b in 0..shr(N / 2, s) for k in 0..shl(1, s)
            if b * shl(2, s) + k < N y[b * shl(2, s) + k] += i32(s) + 1 }";
    let mut expected = vec![0; 64];
    for (s, place) in (0..6).flat_map(|s| (0..64).map(move |place| (s, place))).filter(|(s, place)| place >> s & 1 == 0)
    {
        expected[place as usize] += s + 1;
    }
    check(text, &[("y", &i32s(&[0; 64]))], &[&expected]);
    let too_far = refusal("loop p(N = 500) { inout i32 y[N]  for i in 2..23 for j in i..N / i + 1 y[i * j] = 1 }");
    assert!(
        too_far.contains("or under a condition that compares the subscript itself, as in `if e < 500 y[e]`"),
        "{too_far}"
    );
}
