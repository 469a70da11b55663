//! Approximate inverses and roots: how far they are from the exact numbers, in units in the last place, and what zeros,
//! infinities, subnormal numbers and not-a-number give.

use super::emulator::Job;
use super::program::{Buffer, Case};
use crate::codegen::regalloc::checker;
use crate::codegen::vcode::text;
use crate::codegen::{Target, assemble, regalloc};
use crate::runtime::DType;
use crate::runtime::executable::Executable;

/// Operations, and the exact function of each.
const OPERATIONS: [(&str, fn(f64) -> f64); 3] = [
    ("inverseapproximate", |x| 1.0 / x),
    ("rootapproximate", f64::sqrt),
    ("inverserootapproximate", |x| 1.0 / x.sqrt()),
];

/// Applies an operation to all numbers, one vector after the other.
fn case(operation: &str, lanes: usize, numbers: &[f32]) -> Case {
    let (ty, step) = (format!("f32x{lanes}"), 4 * lanes);
    let text = format!(
        "function f (parallel 1, 3 gpr, 2 vector registers, 0 scratch bytes) {{
         r0 = argument 0\n r1 = argument 1\n r2 = {}\n loop r2 {{
         v0 = load {ty} f32 [r0]\n v1 = {operation} {ty} v0\n store {ty} f32 v1, [r1]
         r0 = add r0, {step}\n r1 = add r1, {step}\n }}\n}}\n",
        numbers.len() / lanes
    );
    let function = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).remove(0);
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let zeros = vec![0; bytes.len()];
    let buffers = [bytes, zeros].map(|bytes| Buffer { dtype: DType::F32, bytes });
    Case { function, buffers: buffers.into(), range: (0, 1) }
}

/// Cases of every width, for tests of what the code touches.
pub fn cases() -> Vec<Case> {
    let numbers = [2.0; 16];
    OPERATIONS.iter().flat_map(|(operation, _)| [1, 4, 8, 16].map(|lanes| case(operation, lanes, &numbers))).collect()
}

/// Numbers of every exponent and sign, with significands at both ends and `count` between; `SEED` chooses others.
fn numbers(count: u32) -> Vec<f32> {
    let seed = std::env::var("SEED").map_or(1, |s| s.parse().unwrap());
    let significands = (0..count).map(|i| (i.wrapping_mul(0x9e37_79b1).wrapping_add(seed)) & 0x7f_ffff);
    let significands: Vec<u32> = significands.chain([0, 1, 0x40_0000, 0x7f_ffff, 0x7f_fffe, 2, 3, 4]).collect();
    let all = (0..512).flat_map(|exponent| significands.iter().map(move |s| f32::from_bits(exponent << 23 | s)));
    all.collect()
}

/// The distance in units in the last place of the exact number; infinite where one is not a number alone, or zero or infinite alone.
fn units(got: f32, exact: f64) -> f64 {
    // the root of a subnormal number is the number: zero as well
    let got = if got.is_subnormal() { 0f32.copysign(got) } else { got };
    let is_zero = exact.abs() < f64::from(f32::MIN_POSITIVE);
    let flushed = if is_zero { 0f64.copysign(exact) as f32 } else { exact as f32 };
    if got.is_nan() || flushed.is_nan() || got == 0.0 || flushed == 0.0 || got.is_infinite() || flushed.is_infinite() {
        let same = got.to_bits() == flushed.to_bits() || got.is_nan() && flushed.is_nan();
        return if same { 0.0 } else { f64::INFINITY };
    }
    let unit = 2f64.powi((exact.abs().log2().floor() as i32).max(-126) - 23);
    (f64::from(got) - exact).abs() / unit
}

/// The second buffer after a run on this processor.
fn results(case: &Case) -> Vec<u8> {
    let target = Target::avx512();
    let allocation = regalloc::allocate(&case.function, &target).unwrap();
    checker::check(&case.function, &allocation, &target).unwrap();
    let code = assemble::emit(&case.function, &allocation, target.isa).unwrap();
    let mut buffers: Vec<Vec<u8>> = case.buffers.iter().map(|b| b.bytes.clone()).collect();
    let table: Vec<*mut u8> = buffers.iter_mut().map(|b| b.as_mut_ptr()).collect();
    let executable = Executable::new(&code).unwrap();
    // SAFETY: the loop of the case reads the first buffer and writes the second, as long as the numbers of both.
    unsafe { executable.phase(0)(table.as_ptr(), 0, 1, std::ptr::null_mut()) };
    buffers.remove(1)
}

/// Fails where a result is more than `bound` units from the exact number.
fn check(operation: &str, exact: fn(f64) -> f64, numbers: &[f32], results: &[u8], bound: f64) {
    let got = results.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    let mut most: (f64, f32) = (0.0, 0.0);
    for (&x, got) in numbers.iter().zip(got) {
        // subnormal numbers are zero
        let operand = if x.is_subnormal() { 0f32.copysign(x) } else { x };
        // the inverse of a large number is subnormal, and may be zero
        let is_large = operation == "inverseapproximate" && x.abs() >= 2f32.powi(126);
        if is_large && got == 0.0 && got.is_sign_negative() == x.is_sign_negative() {
            continue;
        }
        let exact = exact(operand.into());
        let units = match is_large && x.is_finite() {
            true => (f64::from(got) - exact).abs() / 2f64.powi(-149),
            false => units(got, exact),
        };
        if units > most.0 {
            most = (units, x);
        }
    }
    println!("{operation}: {:.3} units at {:e}", most.0, most.1);
    assert!(most.0 <= bound, "{operation}: {most:?}");
}

#[test]
fn approximations_are_within_two_units() {
    if !Target::avx512().runs_on_host() {
        return super::emulator::skip::no_hardware("this processor has no AVX-512");
    }
    for (operation, exact) in OPERATIONS {
        for lanes in [1, 4, 8, 16] {
            let numbers = numbers(if lanes == 16 { 2040 } else { 8 });
            // a quotient is a product with the inverse, rounded once more
            let bound = if operation == "inverseapproximate" { 1.5 } else { 2.0 };
            check(operation, exact, &numbers, &results(&case(operation, lanes, &numbers)), bound);
        }
    }
}

#[test]
fn inverses_on_neon_are_within_their_bound() {
    let ((operation, exact), numbers, target) = (OPERATIONS[0], numbers(248), Target::neon());
    let case = case(operation, 4, &numbers);
    let allocation = regalloc::allocate(&case.function, &target).unwrap();
    checker::check(&case.function, &allocation, &target).unwrap();
    let job = Job {
        name: operation.into(),
        steps: vec![(assemble::emit(&case.function, &allocation, target.isa).unwrap(), 0, 1)],
        scratch_bytes: 0,
        buffers: case.buffers.into_iter().map(|b| b.bytes).collect(),
    };
    let Some(results) = super::emulator::run("approximations on neon", &[job]) else { return };
    check(operation, exact, &numbers, &results[0][0][1], 2.5);
}
