//! What is deliberately absent: upward imports, paths of one machine, names of registries, `unsafe` without a reason.

use std::fs;
use std::path::{Path, PathBuf};

/// Each folder names only those after it.
const LAYERS: [&str; 4] = ["graph", "poly", "codegen", "runtime"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below a folder, without what is built or belongs to version control.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if name == "target" || name == ".git" {
            continue;
        } else if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// `file:line: text` of every line of every source file below `folder` for which `wrong` holds.
fn lines(folder: &str, wrong: impl Fn(&Path, &[&str], usize) -> bool) -> Vec<String> {
    let mut found = vec![];
    for path in files(&root().join(folder)) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate().filter(|(i, _)| wrong(&path, &lines, *i)) {
            found.push(format!("{}:{}: {line}", path.strip_prefix(root()).unwrap().display(), i + 1));
        }
    }
    found
}

#[test]
fn each_folder_knows_only_those_below() {
    for (i, layer) in LAYERS.iter().enumerate() {
        let above: Vec<String> =
            LAYERS[..i].iter().chain(&["pipeline", "model"]).map(|upper| format!("crate::{upper}")).collect();
        let upward = lines(&format!("src/{layer}"), |_, lines, i| {
            let code = lines[i].split("//").next().unwrap();
            above.iter().any(|name| {
                code.match_indices(name.as_str())
                    .any(|(at, _)| !code[at + name.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_'))
            })
        });
        assert!(upward.is_empty(), "{layer} names a folder above it:\n{}", upward.join("\n"));
    }
}

#[test]
fn nothing_belongs_to_one_machine() {
    // Written in two parts, so that this file does not find itself.
    let words: Vec<String> =
        [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/"), ("/op", "t/"), ("crates", ".io"), ("py", "pi.org")]
            .iter()
            .map(|(a, b)| format!("{a}{b}"))
            .collect();
    let found = lines("", |path, lines, i| {
        path.file_name().is_some_and(|n| n != "Cargo.lock") && words.iter().any(|w| lines[i].contains(w.as_str()))
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_unsafe_block_says_why_it_is_safe() {
    let found = lines("src", |path, lines, i| {
        let code = lines[i].split("//").next().unwrap();
        let marks = ["unsafe {", "unsafe impl", "unsafe fn", "unsafe extern"];
        path.extension().is_some_and(|e| e == "rs")
            && marks.iter().any(|mark| code.contains(mark))
            && !code.contains("unsafe extern \"C\" fn(")
            && !lines[i.saturating_sub(8)..=i].iter().any(|l| l.contains("SAFETY") || l.contains("# Safety"))
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_test_is_ignored_and_nothing_is_left_to_do() {
    let words: Vec<String> = [("#[ign", "ore"), ("todo", "!("), ("unimple", "mented!("), ("dbg", "!(")]
        .map(|(a, b)| format!("{a}{b}"))
        .into();
    for folder in ["src", "tests"] {
        let found = lines(folder, |path, lines, i| {
            path.extension().is_some_and(|e| e == "rs") && words.iter().any(|w| lines[i].contains(w.as_str()))
        });
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
