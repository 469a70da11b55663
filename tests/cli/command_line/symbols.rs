//! `TILEWRIGHT_JITDUMP`: names of kernels that run in place, for perf and gdb.

use super::{Folder, root};
use std::process::{Command, Output};

const MODEL: &str = "tests/fixtures/operators/conv_batch_norm_relu.onnx";
/// Its only kernel.
const KERNEL: &str = "conv_batch_norm_relu_kernel_conv_max_0";

fn with_symbols(folder: &str, program: &str, arguments: &[&str]) -> Output {
    Command::new(program).current_dir(root()).env("TILEWRIGHT_JITDUMP", folder).args(arguments).output().unwrap()
}

#[test]
fn a_process_writes_one_file_for_perf() {
    let folder = Folder::new("jitdump");
    let said = with_symbols(&folder.file(""), env!("CARGO_BIN_EXE_tilewright"), &["run", MODEL]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let files: Vec<_> = std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("jit-") && name.ends_with(".dump"), "{name}");
    let data = std::fs::read(file).unwrap();
    // a header of 40 bytes, a record with 56 before the name, a zero, the code
    let length = u32::from_ne_bytes(data[44..48].try_into().unwrap()) as usize;
    assert_eq!(data.len(), 40 + length);
    assert_eq!(&data[96..97 + KERNEL.len()], format!("{KERNEL}\0").as_bytes());
}

#[test]
fn a_folder_that_is_not_there_is_refused_by_name() {
    let said = with_symbols("/nowhere/at/all", env!("CARGO_BIN_EXE_tilewright"), &["run", MODEL]);
    let error = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(1));
    assert!(error.contains("TILEWRIGHT_JITDUMP: /nowhere/at/all: "), "{error}");
}

#[test]
fn gdb_stops_in_a_kernel_by_its_name() {
    if !Command::new("gdb").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return super::common::skip::not_installed("the package gdb, to see names of kernels");
    }
    let folder = Folder::new("gdb");
    let stop = format!("break {KERNEL}");
    let commands = [
        "set debuginfod enabled off",
        "set breakpoint pending on",
        &stop,
        "run",
        "info symbol $pc",
        "delete",
        "continue",
    ];
    let options = commands.iter().flat_map(|command| ["-ex", command]);
    let mut arguments: Vec<&str> = ["-q", "-batch", "-nx"].into_iter().chain(options).collect();
    arguments.extend(["--args", env!("CARGO_BIN_EXE_tilewright"), "run", MODEL, "--threads", "1"]);
    let said = with_symbols(&folder.file(""), "gdb", &arguments);
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(text.contains(&format!("{KERNEL} in section .text")), "{text}{}", String::from_utf8_lossy(&said.stderr));
    assert!(text.contains("y  f32 [1, 20, 7, 7]") && text.contains("exited normally"), "{text}");
}
