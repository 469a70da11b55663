//! Runs cases on an emulated AArch64 processor.

use super::{arguments, cases, emulator, interleaved, program::Case, random, registers, shifts, tables};
use crate::codegen::regalloc::allocation::Allocation;
use crate::codegen::regalloc::checker;
use crate::codegen::{Isa, Target, assemble, regalloc};

/// Runs all cases; panics with all differences.
fn run(test: &str, cases: &[Case]) {
    let allocate = |function| regalloc::allocate(function, &Target::neon()).unwrap_or_else(|e| panic!("{e}"));
    run_allocated(test, &cases.iter().map(|case| (case, allocate(&case.function))).collect::<Vec<_>>());
}

/// As [`run`], with registers that are chosen.
fn run_allocated(test: &str, cases: &[(&Case, Allocation)]) {
    let target = Target::neon();
    let job = |(case, allocation): &(&Case, Allocation)| {
        checker::check(&case.function, allocation, &target).unwrap_or_else(|e| panic!("{e}"));
        let code = assemble::emit(&case.function, allocation, Isa::Neon).unwrap_or_else(|e| panic!("{e}"));
        emulator::Job {
            name: case.function.name.clone(),
            steps: vec![(code, case.range.0, case.range.1)],
            scratch_bytes: case.function.scratch_bytes,
            buffers: case.buffers.iter().map(|b| b.bytes.clone()).collect(),
        }
    };
    let jobs: Vec<_> = cases.iter().map(job).collect();
    let Some(results) = emulator::run(test, &jobs) else { return };
    let mut wrong = vec![];
    for ((case, _), results) in cases.iter().zip(results) {
        let expected = case.expected();
        wrong.extend(results.iter().filter_map(|found| case.difference(&expected, found)));
    }
    let shown: Vec<_> = wrong.iter().take(20).collect();
    assert!(wrong.is_empty(), "{} of {} cases are wrong: {shown:#?}", wrong.len(), cases.len());
}

#[test]
fn every_instruction_on_neon() {
    run("every instruction on neon", &cases::all(16));
}

#[test]
fn counts_of_ones_on_neon() {
    run("counts of ones on neon", &shifts::counts_of_ones(16, 1));
    run("interleaved stores on neon", &interleaved::stores(16));
    run("shuffles on neon", &tables::shuffles(16));
}

#[test]
fn arguments_change_places_on_neon() {
    let (case, allocations) = arguments::exchanged(&Target::neon());
    run_allocated("arguments on neon", &allocations.into_iter().map(|a| (&case, a)).collect::<Vec<_>>());
}

#[test]
fn random_programs_on_neon() {
    let target = Target::neon();
    let programs = random::programs(&target);
    run("random programs on neon", &programs);
    println!("{}: {}", target.name, random::coverage(&programs, &target));
}

#[test]
fn register_blocks_on_neon() {
    let blocks = registers::blocks().into_iter().filter(|b| b.0.isa == Isa::Neon);
    let cases: Vec<Case> = blocks
        .flat_map(|(target, mr, nv)| [0, 30].map(|outer| registers::product_block(&target, mr, nv, 7, outer)))
        .collect();
    run("register blocks on neon", &cases);
}
