//! Sums of products of 16 bits: what two terms at a time compute, and where they are.

use super::{check, count, innermost};
use crate::codegen::loopnest::parse;
use crate::codegen::vcode::{Function, Inst, VBinary};

fn functions(text: &str) -> Vec<Function> {
    check(&parse::nest(text).unwrap_or_else(|e| panic!("{e}\n{text}")), 3)
}

fn is_pair(i: &Inst) -> bool {
    matches!(i, Inst::VBinary { op: VBinary::MulPairs, .. })
}

/// Instructions of the innermost loop: sums of two products, and others.
fn sums(f: &Function) -> (usize, usize) {
    let body = innermost(f);
    let pairs = body.iter().filter(|i| is_pair(i)).count();
    (pairs, body.iter().filter(|i| matches!(i, Inst::VBinary { .. } | Inst::VShift { .. })).count() - pairs)
}

#[test]
fn a_sum_over_lanes_takes_two_terms_for_each() {
    for extent in [32, 33, 64, 71, 256, 1000, 1001] {
        functions(&format!(
            "kernel dot {{ A: i16[3][1001] argument 0; B: i16[1001] argument 1; S: i32[3] argument 2 written;
             s: i32[1] local;
             parallel t in 0..3 {{ s[0] = i32(16384);
               vector k in 0..{extent} {{ s[0] add = (cast i32(A[t][k]) * cast i32(B[k])); }}
               S[t] = s[0]; }} }}"
        ));
    }
    // a total that one statement of a single element reads is in one lane
    let f = functions(
        "kernel dot { A: i16[3][64] argument 0; B: i16[64] argument 1; S: i32[3] argument 2 written;
         parallel t in 0..3 { vector k in 0..64 { S[t] add = (cast i32(A[t][k]) * cast i32(B[k])); } } }",
    );
    assert_eq!(count(&f[0], |i| matches!(i, Inst::VReduce { first: true, .. })), 1, "{}", f[0]);
    // whole vectors: one product of pairs and one sum for each
    assert_eq!(sums(&f[0]), (2, 2), "{}", f[0]);
}

#[test]
fn unrolled_terms_of_each_lane_are_taken_in_pairs() {
    let text = |x: &str, h: &str, terms: i64| {
        format!(
            "kernel fir {{ X: i16[400] argument 0; H: i16[40] argument 1; Y: i32[64] argument 2 written; a: i32[64] local;
             parallel t in 0..2 {{
               vector i in 0..16 {{ a[i] = i32(5); }}
               unroll k in 0..{terms} {{ vector i in 0..16 {{ a[i] add = ({x} * {h}); }} }}
               vector i in 0..16 {{ Y[i + 16*t] = a[i]; }} }} }}"
        )
    };
    let pairs = |x: &str, h: &str, terms| count(&functions(&text(x, h, terms))[0], is_pair);
    let (x, h) = ("cast i32(X[2*i + k + 32*t])", "cast i32(H[k])");
    assert_eq!(pairs(x, h, 8), 4);
    // a term without a partner
    assert_eq!(pairs(x, h, 7), 4);
    // coefficients in another order are put together
    assert_eq!(pairs(x, "cast i32(H[39 - k])", 8), 4);
    assert_eq!(pairs(x, "i32(-7)", 8), 4);
    // lanes of other distances have products of their own
    assert_eq!(pairs("cast i32(X[i + k + 32*t])", h, 8), 8);
    assert_eq!(pairs("cast i32(X[4*i + k + 32*t])", h, 8), 8);
    // numbers of more bits
    assert_eq!(pairs(x, "i32(40000)", 8), 0);
}

#[test]
fn pairs_wrap_as_sums_do() {
    // (-32768)² + (-32768)² is beyond 32 bits
    functions(
        "kernel least { X: i16[64] argument 0; Y: i32[1] argument 1 written;
         parallel t in 0..1 { vector k in 0..64 {
           Y[0] add = (cast i32(X[k]) * cast i32(X[k])); } } }",
    );
}

#[test]
fn what_a_loop_with_a_division_does_not_change_leaves_it() {
    let f = functions(
        "kernel rows { X: f32[16] argument 0; Y: f32[7][5][16] argument 1 written;
         parallel t in 0..35 { let r = floor(t / 5); vector i in 0..16 { Y[r][t - 5*r][i] = (X[i] * f32(3.5)); } } }",
    );
    let inside = innermost(&f[0]).iter().filter(|i| matches!(i, Inst::VLoad { .. } | Inst::VConst { .. })).count();
    assert_eq!(inside, 0, "{}", f[0]);
}
