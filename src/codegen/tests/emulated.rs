//! Runs cases of AArch64 code under qemu, on a host of another architecture.

use super::{cases, program::Case, random};
use crate::codegen::{Target, aarch64, checker, regalloc};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const COMPILER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64-static";

/// The compiled driver; `None`, said by name, where a package is missing.
fn driver(name: &str) -> Option<PathBuf> {
    for (tool, package) in [(COMPILER, "gcc-aarch64-linux-gnu"), (EMULATOR, "qemu-user-static")] {
        if Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            println!("skipped: AArch64 code is not run, because {tool} (package {package}) is missing");
            return None;
        }
    }
    let out = std::env::temp_dir().join(format!("tilewright-{name}-{}", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/qemu/driver.c");
    let status = Command::new(COMPILER).args(["-O1", "-static", "-o"]).arg(&out).arg(source).status();
    assert!(status.is_ok_and(|s| s.success()), "the driver does not compile");
    Some(out)
}

fn run(name: &str, cases: &[Case]) {
    let Some(driver) = driver(name) else { return };
    let target = Target::neon();
    let (mut code, mut calls) = (vec![], vec![]);
    let mut number = |v: u64| calls.extend(v.to_le_bytes());
    number(cases.len() as u64);
    for case in cases {
        let allocation = regalloc::allocate(&case.function, &target).unwrap_or_else(|e| panic!("{e}"));
        checker::check(&case.function, &allocation, &target).unwrap_or_else(|e| panic!("{e}"));
        let bytes = aarch64::emit(&case.function, &allocation).unwrap_or_else(|e| panic!("{e}"));
        code.resize(usize::next_multiple_of(code.len(), 64), 0);
        let head = [
            code.len() as u64,
            case.range.0 as u64,
            case.range.1 as u64,
            u64::from(case.function.scratch_bytes),
            case.buffers.len() as u64,
        ];
        code.extend(bytes);
        head.into_iter().for_each(|v| calls.extend(v.to_le_bytes()));
        for b in &case.buffers {
            calls.extend((b.bytes.len() as u64).to_le_bytes());
            calls.extend(&b.bytes);
        }
    }
    let mut child = Command::new(EMULATOR)
        .args(["-cpu", "max"])
        .arg(&driver)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the emulator starts");
    let mut input = child.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || {
        let head = (code.len() as u64).to_le_bytes();
        input.write_all(&head).and_then(|()| input.write_all(&code)).and_then(|()| input.write_all(&calls))
    });
    let output = child.wait_with_output().expect("the emulator ends");
    writer.join().expect("the writer ends").expect("the driver reads all");
    std::fs::remove_file(&driver).expect("the driver can be removed");
    assert!(output.status.success(), "the driver ends with {}", output.status);
    let mut rest = &output.stdout[..];
    let mut wrong = vec![];
    for case in cases {
        let found: Vec<Vec<u8>> = case
            .buffers
            .iter()
            .map(|b| {
                let (bytes, tail) = rest.split_at(b.bytes.len());
                rest = tail;
                bytes.to_vec()
            })
            .collect();
        wrong.extend(case.difference(&case.expected(), &found));
    }
    let shown: Vec<_> = wrong.iter().take(20).collect();
    assert!(wrong.is_empty(), "{} of {} cases are wrong: {shown:#?}", wrong.len(), cases.len());
}

#[test]
fn every_instruction_on_neon() {
    run("instructions", &cases::all(16));
}

#[test]
fn random_programs_on_neon() {
    let programs = random::programs(&Target::neon());
    run("programs", &programs);
    println!("{}", random::coverage(&programs, &Target::neon()));
}
