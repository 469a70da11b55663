//! README and the text language agree: its program parses, its schedules are proven and refused as printed there, and its
//! table names every primitive.

#[path = "../common/mod.rs"]
mod common;

use common::root;
use std::path::Path;
use std::process::Command;
use tilewright::internal::poly::transform::primitive::KEYWORDS;

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).unwrap()
}

/// The text between a line that is `begin` and the next fence.
fn block<'a>(text: &'a str, begin: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap();
    rest.split_once("\n```").unwrap().0
}

#[test]
fn the_program_of_the_readme_is_checked_as_it_says() {
    let readme = readme();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("sweep.tile"), block(&readme, "```tile\n")).unwrap();
    let said = Command::new(env!("CARGO_BIN_EXE_tilewright"))
        .args(["check", "--quiet", "sweep.tile"])
        .current_dir(&folder)
        .output()
        .unwrap();
    let printed = String::from_utf8(said.stdout).unwrap();
    let wanted = format!("tiles_in_waves for sweep: {}", block(&readme, "```\ntiles_in_waves for sweep: "));
    assert_eq!(printed.trim_end(), wanted.trim_end());
    assert_eq!(said.status.code(), Some(1));
}

#[test]
fn every_primitive_is_in_the_table() {
    let readme = readme();
    let missing: Vec<&str> = KEYWORDS.into_iter().filter(|k| !readme.contains(&format!("`{k}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
