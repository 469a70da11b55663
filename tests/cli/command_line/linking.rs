//! `compile --emit`: objects, libraries and the programs in C that are linked with them.

use super::onnx::{FLOAT, bytes, graph, node, tensor};
use super::{Folder, MODEL, fails, root, succeeds, tilewright};
use std::path::Path;
use std::process::Command;

const GEMM: &str = "datasets/polybench/gemm.tile";

/// True where there is a compiler.
fn has_compiler() -> bool {
    let runs = Command::new("gcc").arg("--version").output().is_ok_and(|output| output.status.success());
    if !runs {
        super::common::skip::not_installed("the package gcc, to build programs in C");
    }
    runs
}

/// Builds a program of `examples/c` with the files of a folder, runs it there, and returns what it prints.
fn program(folder: &Folder, example: &str, arguments: &[&str]) -> String {
    let mut compile = Command::new("gcc");
    compile.current_dir(&folder.0).args([
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-O1",
        "-o",
        "program",
    ]);
    let source = root().join("examples/c").join(example);
    let built = compile.arg("-I.").arg(source).args(arguments).output().unwrap();
    assert!(built.status.success(), "{example}: {}", String::from_utf8_lossy(&built.stderr));
    let mut run = Command::new(folder.0.join("program"));
    let output = run.current_dir(&folder.0).env("LD_LIBRARY_PATH", &folder.0).output().unwrap();
    assert!(output.status.success(), "{example}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_examples_in_c_are_linked_and_agree() {
    if !has_compiler() {
        return;
    }
    let folder = Folder::new("link");
    let place = folder.file("");
    let compile = |more: &[&str]| succeeds(&[&["compile", GEMM, "--size", "SMALL"][..], more].concat());
    let text = compile(&["--emit", "object", "-o", &place]);
    assert!(text.contains("gemm.o, ") && text.contains("gemm.c, ") && text.contains("gemm.h: 1 kernel for "), "{text}");
    let expected = program(&folder, "gemm_main.c", &["gemm.c", "gemm.o"]);
    assert!(expected.trim_end().parse::<f64>().unwrap() > 1e6);
    assert_eq!(program(&folder, "gemm_pthreads.c", &["-pthread", "gemm.c", "gemm.o"]), expected);
    assert_eq!(program(&folder, "gemm_openmp.c", &["-fopenmp", "gemm.c", "gemm.o"]), expected);
    for (kind, library) in [("static", "libgemm.a"), ("shared", "libgemm.so")] {
        let folder = Folder::new(kind);
        let text = compile(&["--emit", kind, "-o", &folder.file("gemm")]);
        assert!(text.contains(library), "{text}");
        let mut names: Vec<_> = std::fs::read_dir(&folder.0).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["gemm.h", library]);
        assert_eq!(program(&folder, "gemm_main.c", &["-L.", "-lgemm"]), expected);
    }
    // the function of a shared library is exported, its kernels are not
    let folder = Folder::new("symbols");
    compile(&["--emit", "shared", "-o", &folder.file("gemm")]);
    let symbols = Command::new("nm").args(["-D", "--defined-only", &folder.file("libgemm.so")]).output().unwrap();
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    assert!(symbols.contains(" gemm\n") && !symbols.contains("kernel") && !symbols.contains("weights"), "{symbols}");
}

#[test]
fn constants_are_linked_or_mapped() {
    if !has_compiler() {
        return;
    }
    let folder = Folder::new("weights");
    let model = "tests/fixtures/operators/conv_batch_norm_relu.onnx";
    let net = folder.file("net");
    let text = succeeds(&["compile", model, "--emit", "object", "--weights", "file", "-o", &net]);
    assert!(text.contains("net.weights"), "{text}");
    let text = program(&folder, "mapped_weights.c", &["net.c", "net.o"]);
    assert!(text.starts_with("success: "), "{text}");
    // constants of another object are refused
    let path = folder.file("net.weights");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[33] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let output = Command::new(folder.0.join("program")).current_dir(&folder.0).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("the weights are not the contents of net.weights"));
}

#[test]
fn one_object_holds_several_sizes() {
    if !has_compiler() {
        return;
    }
    let folder = Folder::new("sizes");
    let model = "tests/fixtures/operators/dynamic_batch.onnx";
    let compile =
        |kind: &str| succeeds(&["compile", model, "--dim", "N=16,4,1", "--emit", kind, "-o", &folder.file("net")]);
    let text = compile("object");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 3 && lines[1].contains("net.h N=4: 1 kernel for "), "{text}");
    let expected = "16 rows by binding 0\n4 rows by binding 1\n1 rows by binding 2\n1 rows by binding 2\n1 rows by binding 2\n\
        no binding: the size of dimension `N` is not among those of the object: 16, 4, 1\n";
    assert_eq!(program(&folder, "several_batches.c", &["net.c", "net.o"]), expected);
    compile("shared");
    assert_eq!(program(&folder, "several_batches.c", &["-L.", "-lnet"]), expected);
    // names of dimensions are those of parameters, which are not words of the driver
    let (x, y) = (tensor("x", FLOAT, Some(&["binding", "s", "int"])), tensor("y", FLOAT, None));
    let file = folder.file("names.onnx");
    std::fs::write(&file, bytes(graph(vec![x], vec![], vec![node("Relu", &["x"], &["y"])], vec![y]), 17)).unwrap();
    let sizes = ["--dim", "binding=2,3", "--dim", "s=4,5", "--dim", "int=6,7"];
    succeeds(&[&["compile", &file, "--emit", "shared", "-o", &folder.file("names")][..], &sizes].concat());
    let header = std::fs::read_to_string(folder.file("names.h")).unwrap();
    assert!(header.contains("int names_binding(int64_t binding_2, int64_t int_, int64_t s_2);"), "{header}");
    // sizes of a program are taken at run time in the same way
    let program = folder.file("scale.tile");
    std::fs::write(&program, "def scale(f32(M, N) x) -> (y) { y(i, j) = 2 * x(i, j) }").unwrap();
    let sizes = ["--dim", "M=8,64", "--dim", "N=16"];
    succeeds(&[&["compile", &program, "--emit", "static", "-o", &folder.file("scale")][..], &sizes].concat());
    let header = std::fs::read_to_string(folder.file("scale.h")).unwrap();
    assert!(header.contains("int scale(int64_t M, const float *x, float *y);"), "{header}");
}

#[test]
fn what_cannot_be_linked_is_refused() {
    let folder = Folder::new("refused");
    let object = |arguments: &[&str], words: &[&str]| {
        fails(
            &[&["compile", "--quiet"][..], arguments, &["--emit", "object", "-o", &folder.file("m")]].concat(),
            words,
        );
    };
    assert_eq!(tilewright(&["compile", MODEL, "--emit", "wasm", "-o", "x"]).status.code(), Some(2));
    fails(&["compile", "--quiet", MODEL, "--emit", "object", "-o", "no/such/folder/m"], &["no/such/folder"]);
    fails(&["compile", "--quiet", MODEL, "--emit", "shared", "-o", "no/such/folder/m"], &["no/such/folder"]);
    fails(
        &["compile", "--quiet", MODEL, "-o", &folder.file("m.tw"), "--weights", "file"],
        &["`--weights`", "--emit object"],
    );
    fails(&["compile", "--quiet", MODEL, "-o", &folder.file("m.o")], &["--emit object"]);
    object(&[MODEL, "--runtime", "r.a"], &["no opaque functions"]);
    let parts = folder.file("parts.onnx");
    let (x, y) = (tensor("x", FLOAT, Some(&["4"])), tensor("y", 7, None));
    let file = graph(vec![x], vec![], vec![node("NonZero", &["x"], &["y"])], vec![y]);
    std::fs::write(&parts, bytes(file, 17)).unwrap();
    object(&[&parts], &["data"]);
    object(&[GEMM, "--dim", "NI=2,3", "--dim", "NJ=4", "--dim", "NK=5"], &["`gemm` declares initial values"]);
    let sorting = "tests/fixtures/operators/top_k.onnx";
    fails(&["compile", "--quiet", sorting, "--emit", "shared", "-o", &folder.file("m")], &["topk", "--runtime"]);
    let text = succeeds(&["compile", sorting, "--emit", "object", "-o", &folder.file("m.o")]);
    assert!(text.contains("needs libtilewright_runtime.a for topk"), "{text}");
    assert!(Path::new(&folder.file("m.c")).exists() && Path::new(&folder.file("m.o")).exists());
}

#[test]
fn the_compiler_is_the_one_that_the_environment_names() {
    let folder = Folder::new("tools");
    let run = |compiler: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        command.current_dir(root()).env("CC", compiler).args(["compile", MODEL, "--emit", "static", "--quiet"]);
        let output = command.args(["-o", &folder.file("m")]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = run("no-such-compiler -O2");
    assert!(code == Some(1) && text.contains("cannot run `no-such-compiler`") && text.contains("CC"), "{text}");
    let (code, text) = run("false");
    assert!(code == Some(1) && text.contains("`false` failed"), "{text}");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0, "nothing is left");
}
