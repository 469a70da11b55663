//! Untrusted input: mutated and generated files through the readers, the compiler and the machine code.
//!
//! Every target of `fuzz/src/lib.rs` runs in a process of its own with a limit for its memory, and a watchdog ends it where
//! one input takes too long; the process starts again behind an input that ended it. A plain run takes a few inputs of each
//! target. `make fuzz COUNT=100000 SEED=3 TARGET=onnx_read` takes more. A failure prints target, seed and number, and writes the
//! input below `target/fuzz`; `make fuzz INPUT=FILE TARGET=name` takes this input again.

#[path = "../fuzz/src/lib.rs"]
mod fuzz;

use fuzz::{TARGETS, Target, corpus};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Address space of the process of a target.
const MEMORY: u64 = 3 << 30;
/// Time for one input; unoptimised code on a busy machine.
const SECONDS: u64 = 60;

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("TILEWRIGHT_FUZZ_{name}")).ok().filter(|v| !v.is_empty())
}

fn number(name: &str) -> Option<u64> {
    variable(name).map(|v| v.parse().unwrap_or_else(|_| panic!("{name}={v} is not a number")))
}

/// Runs inputs `first..first + count` in another process; returns the complaints.
fn run(target: &Target, seed: u64, count: u64) -> Vec<String> {
    let (mut next, mut complaints, mut accepted, start) = (0, vec![], 0, Instant::now());
    while next < count {
        let (last, lines) = work(target, seed, next, count);
        let mut done = false;
        for line in &lines {
            match line.split_once(' ') {
                Some(("complaint", rest)) => {
                    let (at, why) = rest.split_once(' ').unwrap_or((rest, ""));
                    complaints.push(report(target, seed, at.parse().unwrap(), why));
                }
                Some(("accepted", n)) => (accepted, done) = (accepted + n.parse::<u64>().unwrap(), true),
                _ => {}
            }
        }
        if !done {
            let ends: Vec<&str> = lines.iter().map(String::as_str).filter(|l| !l.starts_with("complaint")).collect();
            complaints.push(report(target, seed, last, &format!("the process ended: {}", ends.join(", "))));
        }
        next = if done { count } else { last + 1 };
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{}: {count} inputs, {accepted} accepted, {} failed, {seconds:.1} s", target.name, complaints.len());
    assert!(count < 1000 || accepted > 0, "{}: no input is accepted: its mutations show nothing", target.name);
    complaints
}

/// Writes a failing input.
fn report(target: &Target, seed: u64, number: u64, why: &str) -> String {
    let folder = corpus::root().join("target/fuzz");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{}-{seed}-{number}.{}", target.name, target.extension));
    fs::write(&path, target.input(seed, number)).unwrap();
    let text = format!("{} seed {seed} number {number}: {why}\n    {}", target.name, path.display());
    println!("{text}");
    text
}

/// One process for inputs from `first`; the last number that it began, and the lines that it wrote.
fn work(target: &Target, seed: u64, first: u64, count: u64) -> (u64, Vec<String>) {
    let folder = corpus::root().join("target/fuzz");
    fs::create_dir_all(&folder).unwrap();
    let progress = folder.join(format!("progress-{}-{seed}-{}", target.name, std::process::id()));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["worker", "--exact", "--nocapture"])
        .env("TILEWRIGHT_FUZZ_WORKER", format!("{} {seed} {first} {count} {}", target.name, progress.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = vec![];
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap_or_default();
        // the test harness writes lines of its own
        if let Some(line) = line.split_once("fuzz: ") {
            lines.push(line.1.to_string());
        }
    }
    let status = child.wait().unwrap();
    if !status.success() {
        lines.push(status.to_string());
    }
    let began = fs::read(&progress).ok().and_then(|b| Some(u64::from_le_bytes(b.try_into().ok()?))).unwrap_or(first);
    let _ = fs::remove_file(&progress);
    (began, lines)
}

/// The process of a target; in a plain run there is nothing to do for it.
#[test]
fn worker() {
    let Some(task) = variable("WORKER") else { return };
    let words: Vec<&str> = task.splitn(5, ' ').collect();
    let [name, seed, first, count, progress] = words[..] else { panic!("{task}") };
    let [seed, first, count] = [seed, first, count].map(|w| w.parse::<u64>().unwrap());
    let target = fuzz::target(name);
    limit_memory();
    let progress = PathBuf::from(progress);
    static BEGAN: AtomicU64 = AtomicU64::new(0);
    let clock = Instant::now();
    let now = move || clock.elapsed().as_millis() as u64;
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let began = BEGAN.load(Ordering::Relaxed);
            if began > 0 && now().saturating_sub(began) > SECONDS * 1000 {
                println!("fuzz: no answer in {SECONDS} s");
                std::process::abort();
            }
        }
    });
    let mut file = fs::File::create(&progress).unwrap();
    let mut accepted = 0u64;
    std::panic::set_hook(Box::new(|_| {}));
    for number in first..count {
        use std::io::Seek;
        file.rewind().unwrap();
        file.write_all(&number.to_le_bytes()).unwrap();
        BEGAN.store(now().max(1), Ordering::Relaxed);
        let input = target.input(seed, number);
        match target.complaint(&input) {
            Ok(yes) => accepted += u64::from(yes),
            Err(why) => println!("fuzz: complaint {number} {}", why.replace('\n', " | ")),
        }
    }
    println!("fuzz: accepted {accepted}");
}

#[cfg(unix)]
fn limit_memory() {
    let limit = libc::rlimit { rlim_cur: MEMORY, rlim_max: MEMORY };
    // SAFETY: the pointer is to a value that lives.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

#[cfg(not(unix))]
fn limit_memory() {}

#[test]
fn no_input_does_harm() {
    if variable("WORKER").is_some() {
        return;
    }
    let (seed, only) = (number("SEED").unwrap_or(1), variable("TARGET"));
    if let Some(path) = variable("INPUT") {
        let target = fuzz::target(&only.expect("TARGET says what reads the input"));
        println!("{:?}", target.complaint(&fs::read(path).unwrap()));
        return;
    }
    let chosen = TARGETS.iter().filter(|t| only.as_ref().is_none_or(|name| name == t.name));
    let complaints: Vec<String> = chosen.flat_map(|t| run(t, seed, number("COUNT").unwrap_or(t.count))).collect();
    assert!(complaints.is_empty(), "{} inputs:\n{}", complaints.len(), complaints.join("\n"));
}

/// Inputs that did harm once: `fuzz/regressions/TARGET/what-was-wrong.extension`.
#[test]
fn inputs_that_did_harm_do_none() {
    let mut complaints = vec![];
    for target in TARGETS {
        let folder = corpus::root().join("fuzz/regressions").join(target.name);
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut paths: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            if let Err(why) = target.complaint(&fs::read(&path).unwrap()) {
                complaints.push(format!("{}: {why}", path.display()));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// `cargo fuzz` has all targets, and no other.
#[test]
fn libfuzzer_has_the_same_targets() {
    let folder = corpus::root().join("fuzz/fuzz_targets");
    let mut files: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path().file_stem().unwrap().to_string_lossy().into())
        .collect();
    let mut names: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
    files.sort();
    names.sort_unstable();
    assert_eq!(files, names);
    let package = fs::read_to_string(corpus::root().join("fuzz/Cargo.toml")).unwrap();
    names.iter().for_each(|name| assert!(package.contains(&format!("name = \"{name}\"")), "{name}"));
}
