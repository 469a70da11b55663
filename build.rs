//! Gives the sources a number, by which the cache tells modules of this compiler from those of another one with the same
//! version.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

/// Neither the command line nor the Python package decides what is compiled, nor do tests.
fn is_left_out(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    path == Path::new("src/cli") || path == Path::new("src/python") || name == "tests" || name.ends_with("tests.rs")
}

fn main() {
    let mut hasher = DefaultHasher::new();
    let mut files = vec![PathBuf::from("Cargo.toml"), PathBuf::from("Cargo.lock")];
    let mut folders = vec![PathBuf::from("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if is_left_out(&path) => {}
                path if path.is_dir() => folders.push(path),
                path => files.push(path),
            }
        }
    }
    files.sort();
    // Not the folders: a new file of the package is named by one that changes.
    for path in files {
        if let Ok(contents) = std::fs::read(&path) {
            println!("cargo::rerun-if-changed={}", path.display());
            (path, contents).hash(&mut hasher);
        }
    }
    println!("cargo::rustc-env=TILEWRIGHT_SOURCES={:016x}", hasher.finish());
}
