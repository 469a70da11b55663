//! Floor divisions by constants of every number of bits, of dividends at the ends of 64 bits, beside multiples, and anywhere.

use super::program::{Buffer, Case};
use crate::codegen::vcode::text;
use crate::runtime::DType;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt::Write;

/// Dividends of one iteration, each in a register of its own while the others live.
const TOGETHER: usize = 12;

fn dividends(divisor: i64, rng: &mut StdRng) -> Vec<i64> {
    let mut numbers: Vec<i64> = vec![0, 1, -1, i64::MIN, i64::MIN + 1, i64::MAX, i64::MAX - 1];
    for i in 0..TOGETHER * 40 - 7 {
        let any = rng.random::<i64>() >> rng.random_range(0..63);
        let multiple = any - any.rem_euclid(divisor).min(any.saturating_sub(i64::MIN));
        numbers.push([any, multiple, multiple.saturating_sub(1), multiple.saturating_add(1)][i % 4]);
    }
    numbers
}

/// Quotients by one divisor, of which every other one takes the place of its dividend.
fn case(divisor: i64, seed: u64) -> Case {
    let numbers = dividends(divisor, &mut StdRng::seed_from_u64(seed));
    let (mut loads, mut quotients, mut stores) = (String::new(), String::new(), String::new());
    for i in 0..TOGETHER {
        let (from, to) = (3 + i, if i % 2 == 0 { 3 + i } else { 3 + TOGETHER + i });
        writeln!(loads, "r{from} = load i64 [r0 + {}]", 8 * i).unwrap();
        writeln!(quotients, "r{to} = divfloor r{from}, {divisor}").unwrap();
        writeln!(stores, "v0 = splat i64x1 r{to}\n store i64x1 i64 v0, [r1 + {}]", 8 * i).unwrap();
        if i % 2 == 1 {
            // the dividend is still there
            writeln!(stores, "v0 = splat i64x1 r{from}\n store i64x1 i64 v0, [r0 + {}]", 8 * i).unwrap();
        }
    }
    let text = format!(
        "function f (parallel 1, {} gpr, 1 vector registers, 0 scratch bytes) {{
         r0 = argument 0\n r1 = argument 1\n r2 = {}\n loop r2 {{\n{loads}{quotients}{stores}
         r0 = add r0, {step}\n r1 = add r1, {step}\n }}\n}}\n",
        3 + 2 * TOGETHER,
        numbers.len() / TOGETHER,
        step = 8 * TOGETHER
    );
    let mut function = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).remove(0);
    function.name = format!("quotients by {divisor}");
    let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let zeros = vec![0; bytes.len()];
    let buffers = [bytes, zeros].map(|bytes| Buffer { dtype: DType::I64, bytes });
    Case { function, buffers: buffers.into(), range: (0, 1) }
}

/// Divisors of 1 to 63 bits: powers of two, what is beside them, and any.
pub fn all() -> Vec<Case> {
    let mut rng = StdRng::seed_from_u64(11);
    let mut divisors = vec![1, 2, 3, 5, 6, 7, 25, 641, i64::MAX - 1, i64::MAX];
    for bits in 2..63 {
        let power = 1i64 << bits;
        divisors.push([power, power + 1, power - 1][bits % 3]);
        divisors.push(power + rng.random_range(0..power));
    }
    divisors.into_iter().enumerate().map(|(i, divisor)| case(divisor, i as u64)).collect()
}
