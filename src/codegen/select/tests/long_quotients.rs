//! Quotients and remainders of 64 bits by constants.

use super::check;
use crate::codegen::loopnest::parse;
use crate::codegen::vcode::{Inst, VBinary};

const DIVISORS: [i64; 12] = [
    3,
    -3,
    7,
    1000,
    -4099,
    8191,
    1_000_000_007,
    -1_000_000_007,
    (1 << 53) + 1,
    4_611_686_018_427_387_847,
    i64::MAX,
    -i64::MAX,
];

/// Numbers of all sizes: products that wrap, and others near the multiples of the divisor.
fn nest(kind: &str, divisor: i64, most: &str) -> String {
    let number = |factor: i64| format!("((C[i] * i64({factor})) + (index(i) * i64({})))", factor.wrapping_mul(31));
    let near = format!("((index(i) - i64(19)) * i64({divisor}))");
    let numbers =
        [number(3_037_000_499_123_456_789), number(-7), format!("({near} + C[i])"), format!("({near} - C[i])")];
    let stores = numbers.iter().enumerate().map(|(n, e)| {
        let e = if most.is_empty() { e.clone() } else { format!("max({e}, i64({most}))") };
        format!("Q[{n}][i] = ({e} / i64({divisor})); R[{n}][i] = mod({e}, i64({divisor}));")
    });
    format!(
        "kernel q {{ C: i64[37] argument 0; Q: i64[4][37] argument 1 written; R: i64[4][37] argument 2 written;
         {kind} i in 0..37 {{ {} }} }}",
        stores.collect::<String>()
    )
}

#[test]
fn dividends_of_64_bits_are_divided_by_products() {
    for divisor in DIVISORS {
        for (kind, most) in [("vector", ""), ("vector", "0"), ("for", ""), ("for", "0")] {
            let nest = parse::nest(&nest(kind, divisor, most)).unwrap_or_else(|e| panic!("{e}"));
            for f in check(&nest, 5) {
                let divides = |i: &Inst| matches!(i, Inst::VBinary { op: VBinary::Div, .. } | Inst::VQuotient { .. });
                assert!(!f.insts.iter().any(divides), "{f}");
            }
        }
    }
}

#[test]
fn a_remainder_of_less_than_twice_the_divisor_is_a_difference() {
    for ty in ["i32", "i64"] {
        let text = format!(
            "kernel q {{ C: {ty}[37] argument 0; R: {ty}[37] argument 1 written;
             vector i in 0..37 {{ R[i] = mod((max(min(C[i], {ty}(12)), {ty}(0)) + {ty}(10)), {ty}(13)); }} }}"
        );
        for f in check(&parse::nest(&text).unwrap(), 5) {
            assert!(!f.insts.iter().any(|i| matches!(i, Inst::VBinary { op: VBinary::Mul, .. })), "{f}");
        }
    }
}
