//! `--instructions` and `check-instructions`: a wrong file is refused before anything is compiled.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tilewright::instructions::parse;

const USER: &str = include_str!("../instructions/user.tile");
const PROGRAM: &str =
    "def twice(f32(N) x) -> (y) {\n    y(i) = 2.0 * x(i)\n}\nschedule s for twice {\n    vectorize i by 8\n}\n";

fn tilewright(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tilewright")).current_dir(folder).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_file_of_instructions_is_checked_before_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("user.tile", USER);
    write("program.tile", PROGRAM);
    write("wrong.tile", &USER.replace("W1 B4", "W1 B5"));
    write("unknown.tile", &USER.replace("avx512ifma", "avx512ifna"));
    let good = tilewright(folder.path(), &["check-instructions", "user.tile"]);
    assert!(good.status.success(), "{}", text(&good.stderr));
    assert_eq!(text(&good.stdout).lines().count(), 3);
    let here = parse("user.tile", USER).unwrap()[2].runs_on_host();
    assert_eq!(text(&good.stdout).contains("vpmadd52luq: the code does what the semantics say"), here);
    let uses = [
        ["run", "program.tile", "--dim", "N=9"],
        ["check", "program.tile", "--dim", "N=9"],
        ["explain", "program.tile", "--dim", "N=9"],
    ];
    for arguments in uses {
        let with = |file: &str| tilewright(folder.path(), &[&arguments[..], &["--instructions", file]].concat());
        let good = with("user.tile");
        assert!(good.status.success(), "{arguments:?}: {}", text(&good.stderr));
        let unknown = with("unknown.tile");
        assert_eq!(unknown.status.code(), Some(1));
        assert!(text(&unknown.stderr).contains("unknown.tile:"), "{}", text(&unknown.stderr));
        let wrong = with("wrong.tile");
        let message = text(&wrong.stderr);
        assert_eq!(wrong.status.success(), !here, "{message}");
        if here {
            assert!(
                message.contains("wrong.tile: the code of `vpmadd52luq` does not do what its semantics say"),
                "{message}"
            );
        }
    }
}

/// A schedule that takes an instruction of the user's is legal for `check` as it is for `compile`.
#[test]
fn schedules_take_instructions_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let program = "def low(u64(M, K) A, u64(K, N) B) -> (C) {
            sizes S { M = 8, N = 16, K = 4 }
            C(m, n) +=! bit_and(A(m, k) * B(k, n), 4503599627370495)
        }
        schedule s for low {
            distribute C_init, C at m
            split C(k) by 1 -> ko, ki
            reorder C(m, ko, n, ki)
            tensorize C(n, ki) with vpmadd52luq
        }";
    fs::write(folder.path().join("user.tile"), USER).unwrap();
    fs::write(folder.path().join("program.tile"), program).unwrap();
    let target = ["--target", "x86-64-avx512-vnni+avx512ifma"];
    let check = |more: &[&str]| {
        text(&tilewright(folder.path(), &[&["check", "program.tile"], &target[..], more].concat()).stdout)
    };
    assert_eq!(check(&["--instructions", "user.tile"]), "s for low: legal\n");
    let without = check(&[]);
    assert!(without.contains("no tensor instruction of this target accumulates u64"), "{without}");
}

#[test]
fn a_program_brings_no_instructions_along() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("both.tile"), [PROGRAM, USER].join("\n")).unwrap();
    let refused = tilewright(folder.path(), &["run", "both.tile", "--dim", "N=9"]);
    assert!(text(&refused.stderr).contains("pass it with `--instructions`"), "{}", text(&refused.stderr));
}

#[test]
fn built_in_instructions_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let list = text(&tilewright(folder.path(), &["targets", "--instructions"]).stdout);
    for line in ["vpdpbusd: avx512vnni, j = 16, q = 4", "C(j) += i32(A(q)) * i32(B(j, q))", "d = C, n = A, m = B"] {
        assert!(list.contains(line), "{line}: {list}");
    }
}
