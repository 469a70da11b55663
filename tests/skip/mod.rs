//! Tests that cannot run here: each says so, is counted, and fails where the machine could have what it lacks.
//!
//! In: what a test lacks. Out: a line in target/skipped-tests, which `make test` prints at the end, or a failure of the test
//! under `CI=true` when the missing thing can be installed.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io::Write;
use std::path::Path;

/// Something that `scripts/prepare` or `make models` installs. Fails under `CI=true`.
#[track_caller]
pub fn not_installed(missing: &str) {
    let message = message(missing, std::env::var("CI").ok().as_deref(), true);
    record(&message.unwrap_or_else(|failure| panic!("{failure}")));
}

/// Something that the processor does not have.
pub fn no_hardware(missing: &str) {
    if let Ok(message) = message(missing, None, false) {
        record(&message);
    }
}

/// The line to record, or why the test fails.
fn message(missing: &str, ci: Option<&str>, installable: bool) -> Result<String, String> {
    let test = std::thread::current().name().unwrap_or("a test").to_string();
    match installable && ci == Some("true") {
        true => Err(format!("{test} needs {missing}, which can be installed: it may not be skipped under CI=true")),
        false => Ok(format!("{test}: {missing}")),
    }
}

fn record(line: &str) {
    eprintln!("skipped: {line}");
    // The command line is a package in a folder of the library's.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().find(|p| p.join("datasets").is_dir()).unwrap_or(package);
    let path = root.join("target/skipped-tests");
    // One write: lines of tests that run at the same time do not mix.
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = file.and_then(|mut f| f.write_all(format!("{line}\n").as_bytes())) {
        eprintln!("target/skipped-tests: {error}");
    }
}

#[test]
fn what_can_be_installed_is_not_skipped_under_ci() {
    assert!(message("the package x", Some("true"), true).unwrap_err().contains("the package x"));
    assert!(message("the package x", Some("false"), true).unwrap().contains("the package x"));
    assert!(message("the package x", None, true).is_ok());
    assert!(message("AVX-512", Some("true"), false).is_ok());
}
