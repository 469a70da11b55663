//! Runs AArch64 machine code on an emulated processor: code, calls and a small C program go to qemu, buffers come back.
//!
//! Needs Debian's packages qemu-user-static and gcc-aarch64-linux-gnu; without them the test is skipped, or fails under
//! `CI=true`.

#[path = "../skip/mod.rs"]
pub mod skip;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const EMULATOR: &str = "qemu-aarch64-static";
const COMPILER: &str = "aarch64-linux-gnu-gcc";

/// Calls of pieces of code, one after the other, on the same buffers.
pub struct Job {
    pub name: String,
    /// Machine code, first and one-past-last iteration.
    pub steps: Vec<(Vec<u8>, i64, i64)>,
    pub scratch_bytes: u64,
    pub buffers: Vec<Vec<u8>>,
}

/// The buffers of each job after it ran, twice: in front of and behind memory that may not be touched. `None` when a
/// package is missing. Panics when a job does not return or loses registers of its caller.
pub fn run(test: &str, jobs: &[Job]) -> Option<Vec<[Vec<Vec<u8>>; 2]>> {
    if jobs.is_empty() {
        return Some(vec![]);
    }
    let runs = |program: &str| Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    for (program, package) in [(EMULATOR, "qemu-user-static"), (COMPILER, "gcc-aarch64-linux-gnu")] {
        if !runs(program) {
            skip::not_installed(&format!("{test}: the package {package}, to run AArch64 code"));
            return None;
        }
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
    std::fs::write(file("input"), input(jobs)).unwrap();
    let mut child = Command::new(EMULATOR)
        .args(["-cpu", "max"])
        .args([file("runner"), file("input"), file("output")])
        .spawn()
        .unwrap();
    // Code that loops for ever is a failure as well.
    let deadline = Instant::now() + Duration::from_secs(300);
    let ended = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status.to_string(),
            None if Instant::now() > deadline => {
                child.kill().unwrap();
                child.wait().unwrap();
                break "stopped after five minutes".into();
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let output = std::fs::read(file("output")).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();

    let mut rest = &output[..];
    let mut take = |size: usize, job: &Job| -> Vec<u8> {
        assert!(rest.len() >= size, "{} did not return: {ended}", job.name);
        let (bytes, after) = rest.split_at(size);
        rest = after;
        bytes.to_vec()
    };
    let one = |job: &Job, take: &mut dyn FnMut(usize, &Job) -> Vec<u8>| {
        assert_eq!(take(8, job), [0; 8], "{} loses registers of its caller", job.name);
        job.buffers.iter().map(|b| take(b.len(), job)).collect()
    };
    Some(jobs.iter().map(|job| [one(job, &mut take), one(job, &mut take)]).collect())
}

/// Length and bytes of all code; number of jobs; of each the number of steps and their offset, first and last, the scratch
/// bytes, the number of buffers and of each its length and bytes. Numbers have 64 bits, little-endian.
fn input(jobs: &[Job]) -> Vec<u8> {
    let (mut code, mut list): (Vec<u8>, Vec<u8>) = (vec![], vec![]);
    let mut word = |w: u64, bytes: &[u8]| {
        list.extend(w.to_le_bytes());
        list.extend(bytes);
    };
    word(jobs.len() as u64, &[]);
    for job in jobs {
        word(job.steps.len() as u64, &[]);
        for (bytes, first, last) in &job.steps {
            code.resize(code.len().next_multiple_of(64), 0);
            word(code.len() as u64, &[]);
            word(*first as u64, &[]);
            word(*last as u64, &[]);
            code.extend(bytes);
        }
        word(job.scratch_bytes, &[]);
        word(job.buffers.len() as u64, &[]);
        for buffer in &job.buffers {
            word(buffer.len() as u64, buffer);
        }
    }
    let mut all = (code.len() as u64).to_le_bytes().to_vec();
    all.extend(code);
    all.extend(list);
    all
}
