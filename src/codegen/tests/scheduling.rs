//! List scheduling keeps what programs compute.

use super::program::{Case, data};
use super::random;
use crate::codegen::Target;
use crate::codegen::select::list_scheduling::schedule_loops;
use crate::codegen::vcode::text;
use crate::runtime::DType;

#[test]
fn scheduled_random_programs_compute_the_same() {
    let target = Target::neon();
    let mut reordered = 0;
    for mut case in random::programs(&target) {
        let expected = case.expected();
        let before = case.function.insts.clone();
        schedule_loops(&mut case.function, &target);
        reordered += usize::from(case.function.insts != before);
        let difference = case.difference(&expected, &case.expected());
        assert_eq!(difference, None, "{:#?}", case.function.insts);
    }
    println!("{reordered} programs have another order");
    assert!(reordered > 100, "{reordered}");
}

/// Loops that begin an iteration beside the one before: a chain of operations, one that reads what the iteration before stored, one with
/// a sum, and one whose operands are read late.
#[test]
fn rotated_loops_compute_the_same() {
    let chain = "v1 = mul f32x4 v0, v0\n v2 = add f32x4 v1, v0\n v3 = mul f32x4 v2, v1\n v4 = add f32x4 v3, v0";
    let step = "r0 = add r0, 16\n r1 = add r1, 16";
    let bodies = [
        format!("v0 = load f32x4 f32 [r0]\n {chain}\n store f32x4 f32 v4, [r1]\n {step}"),
        format!("v0 = load f32x4 f32 [r0]\n {chain}\n store f32x4 f32 v4, [r0 + 16]\n {step}"),
        format!("v0 = load f32x4 f32 [r0]\n {step}\n {chain}\n v5 = add f32x4 v5, v4\n store f32x4 f32 v5, [r1 - 16]"),
        format!("v0 = load f32x4 f32 [r0]\n {chain}\n v6 = sub f32x4 v4, v0\n store f32x4 f32 v6, [r1]\n {step}"),
    ];
    let mut rotated = 0;
    for body in bodies {
        let text = format!(
            "function f (parallel 1, 3 gpr, 8 vector registers, 0 scratch bytes) {{\n r0 = argument 0\n r1 = argument 1\n \
             v5 = const f32x4 #0\n r2 = 20\n loop r2 (at least once) {{\n {body}\n }}\n store f32x4 f32 v4, [r1]\n}}\n"
        );
        let function = text::parse(&text).unwrap_or_else(|e| panic!("{e}")).remove(0);
        let buffers = (0..2).map(|seed| data(DType::F32, 96, seed, true)).collect();
        let mut case = Case { function, buffers, range: (0, 1) };
        let (expected, length) = (case.expected(), case.function.insts.len());
        schedule_loops(&mut case.function, &Target::neon());
        rotated += usize::from(case.function.insts.len() > length);
        let difference = case.difference(&expected, &case.expected());
        assert_eq!(difference, None, "{}", case.function);
    }
    assert!(rotated >= 3, "{rotated}");
}
