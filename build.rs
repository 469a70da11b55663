//! Gives the sources a number, by which the cache tells modules of this compiler from those of another one with the same
//! version.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

/// Other packages: the command line does not decide what is compiled.
const ELSEWHERE: [&str; 1] = ["src/cli"];

fn main() {
    let mut hasher = DefaultHasher::new();
    let mut files = vec![PathBuf::from("Cargo.toml"), PathBuf::from("Cargo.lock")];
    let mut folders = vec![PathBuf::from("src")];
    while let Some(folder) = folders.pop() {
        println!("cargo::rerun-if-changed={}", folder.display());
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if ELSEWHERE.iter().any(|other| path == Path::new(other)) => {}
                path if path.is_dir() => folders.push(path),
                path => files.push(path),
            }
        }
    }
    files.sort();
    for path in files {
        if let Ok(contents) = std::fs::read(&path) {
            println!("cargo::rerun-if-changed={}", path.display());
            (path, contents).hash(&mut hasher);
        }
    }
    println!("cargo::rustc-env=TILEWRIGHT_SOURCES={:016x}", hasher.finish());
}
