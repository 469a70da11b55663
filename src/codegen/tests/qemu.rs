//! Runs cases on an emulated AArch64 processor: machine code, inputs and a small C program go to qemu, results come back.
//!
//! Needs Debian's packages qemu-user-static and gcc-aarch64-linux-gnu; without them the tests say so and pass.

use super::{cases, program::Case, random, registers};
use crate::codegen::{Isa, Target, aarch64, checker, regalloc};
use std::path::PathBuf;
use std::process::Command;

const EMULATOR: &str = "qemu-aarch64-static";
const COMPILER: &str = "aarch64-linux-gnu-gcc";

/// Whether both programs run; says what is missing.
pub fn is_available(test: &str) -> bool {
    let runs = |program: &str| Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    let missing: Vec<&str> = [(EMULATOR, "qemu-user-static"), (COMPILER, "gcc-aarch64-linux-gnu")]
        .iter()
        .filter(|p| !runs(p.0))
        .map(|p| p.1)
        .collect();
    if !missing.is_empty() {
        eprintln!("skipped: {test} needs the package {}", missing.join(" and "));
    }
    missing.is_empty()
}

/// Code of one case.
fn assemble(case: &Case) -> Vec<u8> {
    let target = Target::neon();
    let allocation = regalloc::allocate(&case.function, &target).unwrap_or_else(|e| panic!("{e}"));
    checker::check(&case.function, &allocation, &target).unwrap_or_else(|e| panic!("{e}"));
    aarch64::emit(&case.function, &allocation).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs all cases; panics with all differences.
pub fn run(test: &str, cases: &[Case]) {
    if !is_available(test) {
        return;
    }
    let directory = std::env::temp_dir().join(format!("tilewright-{}-{}", std::process::id(), test.replace(' ', "-")));
    std::fs::create_dir_all(&directory).unwrap();
    let file = |name: &str| -> PathBuf { directory.join(name) };
    std::fs::write(file("runner.c"), include_str!("runner.c")).unwrap();
    let built = Command::new(COMPILER)
        .args(["-O1", "-static", "-o"])
        .args([file("runner"), file("runner.c")])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    let (mut code, mut list) = (vec![], vec![]);
    let word = |list: &mut Vec<u8>, w: u64| list.extend(w.to_le_bytes());
    for case in cases {
        code.resize(code.len().next_multiple_of(64), 0);
        word(&mut list, code.len() as u64);
        code.extend(assemble(case));
        word(&mut list, case.range.0 as u64);
        word(&mut list, case.range.1 as u64);
        word(&mut list, case.function.scratch_bytes.into());
        word(&mut list, case.buffers.len() as u64);
        for buffer in &case.buffers {
            word(&mut list, buffer.bytes.len() as u64);
            list.extend(&buffer.bytes);
        }
    }
    let mut input = vec![];
    word(&mut input, code.len() as u64);
    input.extend(code);
    word(&mut input, cases.len() as u64);
    input.extend(list);
    std::fs::write(file("input"), input).unwrap();
    let ran = Command::new(EMULATOR)
        .args(["-cpu", "max"])
        .args([file("runner"), file("input"), file("output")])
        .output()
        .unwrap();
    let output = std::fs::read(file("output")).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();

    let mut rest = &output[..];
    let mut wrong = vec![];
    'cases: for case in cases {
        let expected = case.expected();
        for _ in 0..2 {
            let size = 8 + case.buffers.iter().map(|b| b.bytes.len()).sum::<usize>();
            if rest.len() < size {
                wrong.push(format!("{}: did not return ({:?})", case.function.name, ran.status));
                break 'cases;
            }
            let (mut this, later) = rest.split_at(size);
            rest = later;
            if this[..8] != [0; 8] {
                wrong.push(format!("{}: {} registers of the caller are lost", case.function.name, this[0]));
            }
            this = &this[8..];
            let mut found = vec![];
            for buffer in &case.buffers {
                let (bytes, after) = this.split_at(buffer.bytes.len());
                found.push(bytes.to_vec());
                this = after;
            }
            wrong.extend(case.difference(&expected, &found));
        }
    }
    let shown: Vec<_> = wrong.iter().take(20).collect();
    assert!(wrong.is_empty(), "{} of {} cases are wrong: {shown:#?}", wrong.len(), cases.len());
}

#[test]
fn every_instruction_on_neon() {
    run("every instruction on neon", &cases::all(16));
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
