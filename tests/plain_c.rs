//! `explain --stage c` and `--stage loops-c`: what gcc makes of the printed programs, as written and as the ILP schedules
//! them, computes what tilewright computes, from the same initial values.

mod common;

use common::{difference, root};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tilewright::Stage;
use tilewright::internal::language;
use tilewright::internal::language::syntax::File;
use tilewright::{Model, Options, Session, Target, Tensor};

fn has_gcc() -> bool {
    let found = Command::new("gcc").arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        common::skip::not_installed("gcc, to compile the printed C");
    }
    found
}

/// The outputs of the printed program, compiled and run twice in `folder`.
fn with_gcc(text: &str, folder: &Path, count: usize) -> Vec<Tensor> {
    std::fs::create_dir_all(folder).unwrap();
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&source, text).unwrap();
    let warnings =
        ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-function", "-Wno-unused-variable"];
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O1"]).args(warnings).arg("-o").args([&program, &source]).arg("-lm");
    let compiled = gcc.output().unwrap();
    assert!(compiled.status.success(), "{text}\n{}", String::from_utf8_lossy(&compiled.stderr));
    let run = Command::new(&program).arg("2").arg(folder).output().unwrap();
    assert!(run.status.success());
    let times = String::from_utf8(run.stdout).unwrap();
    assert_eq!(times.lines().filter(|l| l.parse::<f64>().is_ok_and(|ms| ms >= 0.0)).count(), 2, "{times}");
    let outputs = (0..count).map(|i| Tensor::read_npy(folder.join(format!("output_{i}.npy"))).unwrap()).collect();
    std::fs::remove_dir_all(folder).unwrap();
    outputs
}

/// Runs `file` here and, as both stages print it, through gcc; the name and the outputs of each.
fn both(file: File, name: &str, dims: &[(&str, i64)], sizes: Option<&str>) -> Vec<(String, Tensor, Tensor)> {
    both_for(None, file, name, dims, sizes)
}

/// As [`both`], with the loops of a target that need not be this one.
fn both_for(
    target: Option<Target>,
    file: File,
    name: &str,
    dims: &[(&str, i64)],
    sizes: Option<&str>,
) -> Vec<(String, Tensor, Tensor)> {
    let dims: BTreeMap<String, i64> = dims.iter().map(|d| (d.0.to_string(), d.1)).collect();
    let options = Options { dims, ..Options::default() };
    let printed = Options { target, ..options.clone() };
    let model = Model::from_program(file, None, sizes).unwrap();
    let text = |stage| model.explain(&printed, stage, None).unwrap_or_else(|e| panic!("{name}: {e}"));
    let module = Arc::new(model.compile_module(&options).unwrap_or_else(|e| panic!("{name}: {e}")).0);
    let session = Session::new(module.clone(), 1).unwrap();
    let known: BTreeMap<String, Tensor> = session.initial_values().unwrap().into_iter().collect();
    let seeded = |(position, spec): (usize, &tilewright::module::TensorSpec)| {
        let seeded = || Tensor::seeded(spec.dtype, &spec.shape, 0, position as u64, 2);
        (spec.name.clone(), known.get(&spec.name).cloned().unwrap_or_else(seeded))
    };
    let inputs: Vec<(String, Tensor)> = module.inputs().iter().enumerate().map(seeded).collect();
    let inputs: Vec<_> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let ours = session.run(&inputs).unwrap();
    let folder = std::env::temp_dir().join(format!("tilewright-c-{name}-{}", std::process::id()));
    let mut rows = vec![];
    for stage in [Stage::C, Stage::LoopsC] {
        let theirs = with_gcc(&text(stage), &folder, ours.len());
        let names = module.outputs().iter().map(|o| format!("{name} {}, {stage:?}", o.tensor.name));
        rows.extend(names.zip(&ours).zip(theirs).map(|((n, a), b)| (n, a.clone(), b)));
    }
    rows
}

#[test]
fn every_kernel_of_polybench() {
    if !has_gcc() {
        return;
    }
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("datasets/polybench")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_string();
        // The results of gramschmidt depend on the order of its sums: see tests/polybench/solvers.rs.
        if path.extension().is_none_or(|e| e != "tile") || name == "gramschmidt" {
            continue;
        }
        for (output, ours, theirs) in both(tilewright::File::load(&path).unwrap(), &name, &[], Some("MINI")) {
            assert_eq!(difference(&ours, &theirs, 1e-11), None, "{output}");
        }
        count += 1;
    }
    assert_eq!(count, 29);
}

/// Waves in place, gathers, temporaries in workspaces, reductions to a maximum.
const PROGRAMS: [&str; 4] = ["gauss_seidel5", "spmv_ell", "harris", "smith_waterman"];

#[test]
fn programs_in_place_and_with_workspaces() {
    if !has_gcc() {
        return;
    }
    for name in PROGRAMS {
        let path = root().join(format!("datasets/programs/{name}.tile"));
        let rows = both(tilewright::File::load(&path).unwrap(), name, &[], Some("SMALL"));
        assert!(!rows.is_empty());
        for (output, ours, theirs) in rows {
            assert_eq!(difference(&ours, &theirs, 1e-5), None, "{output}");
        }
    }
}

#[test]
fn gathers_padding_functions_and_seeded_arrays() {
    if !has_gcc() {
        return;
    }
    let texts = ["def f(f32(H,W) X, i64(H) at, f32(3) y1) -> (Y, Z, S) {
            P(h,w) +=! X(h, w + r - 1) * y1(r) where w in 0..W
            Y(h,w) = tanh(P(at(h), w)) - exp(-abs(X(h,w))) * erf(X(h,w))
            Z(h) max=! floor(4 * X(h,w)) where w in 0..h+1
            S() +=! select(X(h,w) > 0 && w % 2 == 0, pow(X(h,w), 2), -1)
        }"];
    for (i, text) in texts.iter().enumerate() {
        let file = language::parse("t.tile", text).unwrap_or_else(|e| panic!("{e}"));
        for (output, ours, theirs) in both(file, &format!("text-{i}"), &[("H", 9), ("W", 11)], None) {
            assert_eq!(difference(&ours, &theirs, 1e-5), None, "{output}");
        }
    }
}

/// Quotients by 0 and -1, and stores to places from data that are outside where their condition fails.
#[test]
fn divisors_of_zero_and_stores_under_conditions() {
    if !has_gcc() {
        return;
    }
    let text = "loop p(N = 12) { in i32 a[N], b[N]\n in u8 c[N]\n in i32 s[3]\n inout i32 q[N]\n inout i32 y[N], z[N], w[N], v[N]\n inout u8 u[N]
        init { a[i] = i32(i * 7 - 40)  b[i] = i32(i % 4 - 2)  c[i] = u8(i % 3)  s[j] = i32(3 * j)  q[i] = i32(5 * i % 16 - 2)
            y[i] = 1  z[i] = 2  w[i] = 3  v[i] = 4  u[i] = 5 }
        for i in 0..N { y[i] = a[i] / b[i] + a[i] % b[i]  u[i] = u8(u[i] / c[i] + u[i] % c[i]) }
        for j in 0..3 for i in 0..N { if i >= s[j] z[i - s[j]] = a[i]  if i + s[j] < N w[i + s[j]] += a[i] }
        for i in 0..N { q[i] += 0  if q[i] >= 0 && q[i] < N v[q[i]] = a[i] } }";
    let file = language::parse("t.tile", text).unwrap_or_else(|e| panic!("{e}"));
    for (output, ours, theirs) in both(file, "text-conditions", &[], None) {
        assert_eq!(difference(&ours, &theirs, 0.0), None, "{output}");
    }
}

/// Groups of bytes that are packed before the loops are written as words, by a pointer to the memory of another argument.
#[test]
fn bytes_that_are_packed_as_words() {
    if !has_gcc() {
        return;
    }
    let text = "def p(u8(M,K) A, i8(K,N) B) -> (C) { C(m,n) +=! i32(A(m,k)) * i32(B(k,n)) }";
    let dims = [("M", 256), ("K", 512), ("N", 256)];
    let target = Target::all().into_iter().find(|t| t.name == "x86-64-avx512-vnni");
    let sizes = dims.iter().map(|d| (d.0.to_string(), d.1)).collect();
    let options = Options { dims: sizes, target: target.clone(), ..Options::default() };
    let file = || language::parse("t.tile", text).unwrap();
    let loops = Model::from_program(file(), None, None).unwrap().explain(&options, Stage::LoopsC, None).unwrap();
    assert!(loops.contains("may_alias"), "{loops}");
    for (output, ours, theirs) in both_for(target, file(), "words", &dims, None) {
        assert_eq!(difference(&ours, &theirs, 0.0), None, "{output}");
    }
}
