//! The command line as its users see it: spellings, files, exit codes, one sentence for each failure.

#[path = "command_line/algorithms.rs"]
mod algorithms;
#[path = "../common/mod.rs"]
mod common;
#[path = "command_line/growing.rs"]
mod growing;
#[path = "command_line/inputs.rs"]
mod inputs;
#[path = "command_line/linking.rs"]
mod linking;
#[path = "command_line/machine.rs"]
mod machine;
#[path = "../files/onnx.rs"]
mod onnx;
#[path = "command_line/parts.rs"]
mod parts;
#[path = "command_line/programs.rs"]
mod programs;
#[path = "command_line/symbols.rs"]
mod symbols;

use common::{host_targets, root};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tilewright::Tensor;

fn tilewright(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tilewright")).current_dir(root()).args(arguments).output().unwrap()
}

fn succeeds(arguments: &[&str]) -> String {
    let output = tilewright(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Asserts exit code 1 and one sentence with all the words on standard error.
fn fails(arguments: &[&str], words: &[&str]) {
    let output = tilewright(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
    assert!(output.stdout.is_empty());
    for word in words {
        assert!(error.contains(word), "{arguments:?}: {word:?} is not in: {error}");
    }
}

const MODEL: &str = "tests/fixtures/operators/matmul_bias_relu.onnx";
const DYNAMIC: &str = "tests/fixtures/operators/dynamic_sequence_positions.onnx";

/// A folder of this test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tilewright-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn saved(folder: &str, index: usize) -> Tensor {
    Tensor::read_npy(Path::new(folder).join(format!("output_{index}.npy"))).unwrap()
}

#[test]
fn a_model_runs_from_the_seed_and_from_files() {
    let folder = Folder::new("run");
    let (first, second) = (folder.file("first"), folder.file("second"));
    let text = succeeds(&["run", MODEL, "--save", &first, "--threads", "1", "--seed", "5"]);
    assert!(text.starts_with("y  f32 [5, 33]  mean "), "{text}");
    assert!(text.contains(" min 0.000000 ") && text.contains(" max "), "{text}");
    // The contents that the seed stands for, handed in as a file, give the same output.
    let input = folder.file("a.npy");
    Tensor::seeded(tilewright::DType::F32, &[5, 20], 5, 0, 2).write_npy(&input).unwrap();
    succeeds(&["run", MODEL, "--input", &format!("a={input}"), "--save", &second, "--threads", "2"]);
    assert_eq!(saved(&first, 0), saved(&second, 0));
    let other = folder.file("other");
    succeeds(&["run", MODEL, "--save", &other, "--seed", "6"]);
    assert_ne!(saved(&first, 0), saved(&other, 0));
}

#[test]
fn a_compiled_module_gives_the_same_bits() {
    let folder = Folder::new("compile");
    let (direct, module, again) = (folder.file("direct"), folder.file("m.tw"), folder.file("again"));
    for target in host_targets() {
        let target = target.name.as_str();
        succeeds(&["run", DYNAMIC, "--dim", "batch=3", "--dim", "length=7", "--target", target, "--save", &direct]);
        let bytes = || {
            succeeds(&["compile", DYNAMIC, "-o", &module, "--dim", "batch=3", "--dim", "length=7", "--target", target]);
            std::fs::read(&module).unwrap()
        };
        assert_eq!(bytes(), bytes(), "the same input gives the same file");
        succeeds(&["run", &module, "--save", &again]);
        assert_eq!(saved(&direct, 0), saved(&again, 0));
        assert_eq!(saved(&direct, 0).shape[..2], [3, 7]);
    }
    fails(&["run", &module, "--dim", "batch=4"], &["batch", "3", "4"]);
    succeeds(&["compile", DYNAMIC, "-o", &module, "--dim", "batch=3,4", "--dim", "length=7"]);
    succeeds(&["run", &module, "--dim", "batch=4", "--save", &again]);
    assert_eq!(saved(&again, 0).shape[..2], [4, 7]);
    fails(&["run", &module, "--dim", "batch=5"], &["batch=3, length=7; batch=4, length=7", "batch=5"]);
    fails(&["run", DYNAMIC, "--dim", "batch=3,4"], &["only `compile`"]);
    fails(&["compile", DYNAMIC, "-o", &module, "--dim", "batch=3,3"], &["twice"]);
    fails(&["run", &module, "--target", "aarch64-neon"], &["compiled for"]);
    fails(&["compile", &module, "-o", &module], &["already compiled"]);
    for command in ["check", "explain", "compare"] {
        fails(&[command, &module], &["already machine code"]);
    }
    let mut bytes = std::fs::read(&module).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&module, bytes).unwrap();
    fails(&["run", &module], &["m.tw"]);
}

/// Nobody may ever write to a pipe: every file that is read must be a regular one.
#[test]
fn pipes_are_not_waited_for() {
    let folder = Folder::new("pipes");
    let [pipe, program] = ["pipe", "pipe.tile"].map(|name| folder.file(name));
    let made = Command::new("mkfifo").args([&pipe, &program]).status().unwrap();
    assert!(made.success());
    let input = format!("x={pipe}");
    for arguments in [
        &["run", &pipe][..],
        &["check", &program],
        &["run", MODEL, "--input", &input],
        &["compile", MODEL, "-o", "never.tw", "--machine", &pipe],
        &["run", MODEL, "--instructions", &program],
        &["run", "datasets/polybench/gemm.tile", "--schedule", &program],
        &["run", MODEL, "--cache", &pipe],
        &["demo", &pipe],
    ] {
        let tilewright = Command::new("timeout")
            .arg("60")
            .arg(env!("CARGO_BIN_EXE_tilewright"))
            .current_dir(root())
            .args(arguments)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&tilewright.stderr);
        assert_eq!(tilewright.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains("pipe") && error.contains("not a"), "{arguments:?}: {error}");
    }
}

#[test]
fn memory_is_limited_on_request() {
    let folder = Folder::new("memory");
    let module = folder.file("m.tw");
    for command in [&["run", MODEL][..], &["bench", MODEL], &["explain", MODEL], &["compile", MODEL, "-o", &module]] {
        let with = |bytes| [command, &["--max-memory", bytes]].concat();
        fails(&with("1kB"), &["KiB", "1000 B are allowed", "--max-memory"]);
        assert!(!Path::new(&module).exists() || command[0] == "compile");
    }
    succeeds(&["compile", MODEL, "-o", &module, "--max-memory", "1MiB"]);
    fails(&["run", &module, "--max-memory", "1kB"], &["1000 B are allowed", "--max-memory"]);
    succeeds(&["run", &module, "--max-memory", "1MiB"]);
    let checked = tilewright(&["check", MODEL, "--max-memory", "1kB"]);
    assert!(
        checked.status.code() == Some(1) && String::from_utf8_lossy(&checked.stderr).contains("1000 B are allowed")
    );
    succeeds(&["check", MODEL, "--max-memory", "1MB"]);
    assert_eq!(tilewright(&["run", MODEL, "--max-memory", "much"]).status.code(), Some(2));
}

#[test]
fn every_target_compiles_on_any_host() {
    let folder = Folder::new("targets");
    let text = succeeds(&["targets"]);
    for target in tilewright::Target::all() {
        let line = text.lines().find(|l| l.starts_with(&target.name)).unwrap();
        assert_eq!(line.contains("runs here"), target.runs_on_host());
        let module = folder.file("m.tw");
        succeeds(&["compile", MODEL, "-o", &module, "--target", &target.name]);
        if !target.runs_on_host() {
            fails(&["run", &module], &[]);
            fails(&["run", MODEL, "--target", &target.name], &[]);
        }
    }
    assert_eq!(text.matches("the default").count(), 1);
}

#[test]
fn bench_prints_the_fields_of_the_contract() {
    let text = succeeds(&["bench", MODEL, "--seconds", "0.05", "--threads", "1", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    for field in ["compile_ms", "gflops", "peak_gflops", "peak_memory_bytes", "runs"] {
        assert!(json[field].as_f64().unwrap() > 0.0, "{field}");
    }
    for field in ["min", "median", "p95"] {
        assert!(json["latency_ms"][field].as_f64().unwrap() > 0.0, "{field}");
    }
    assert!(json["model"].is_string() && json["target"].is_string());
    assert_eq!(json["threads"], 1);
    let kernels = json["kernels"].as_array().unwrap();
    assert!(!kernels.is_empty());
    for kernel in kernels {
        assert!(kernel["name"].is_string() && kernel["us"].is_number() && kernel["gflops"].is_number());
        assert!(kernel["tensorized"].is_boolean() && kernel["opaque"].is_boolean());
    }
    let stages: Vec<_> = json["stages"].as_array().unwrap().iter().map(|s| (&s["name"], &s["ms"])).collect();
    assert!(stages.iter().any(|(name, ms)| *name == "schedule" && ms.as_f64().unwrap() > 0.0), "{stages:?}");
    let text = succeeds(&["bench", MODEL, "--seconds", "0.05"]);
    assert!(text.contains("latency") && text.contains("GFLOP/s"), "{text}");
}

#[test]
fn bench_shows_the_checks_of_subscripts() {
    let program = ["bench", "datasets/programs/spmv_ell.tile", "--size", "SMALL", "--seconds", "0.05"];
    let json: serde_json::Value = serde_json::from_str(&succeeds(&[&program[..], &["--json"]].concat())).unwrap();
    let [check] = &json["checks"].as_array().unwrap()[..] else { panic!("{json}") };
    assert!(check["us"].as_f64().unwrap() > 0.0, "{json}");
    let name = check["name"].as_str().unwrap();
    assert!(name.contains("column") && !json["kernels"].to_string().contains(name), "{json}");
    let text = succeeds(&program);
    assert!(text.contains("1 kernel and 1 check of subscripts from inputs"), "{text}");
    let row = text.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{text}"));
    assert!(row.contains(" µs ") && row.contains(" % ") && !row.contains("GFLOP/s"), "{text}");
}

#[test]
fn a_prediction_stands_beside_a_measurement_on_as_many_threads() {
    for (flags, words) in [
        (&[][..], "predicted for 1 thread, measured on 1 thread\n"),
        (&["--threads", "2"], "predicted for 1 thread, measured on 2 threads\n"),
    ] {
        let text = succeeds(&[&["explain", MODEL][..], flags].concat());
        assert!(text.contains(words), "{text}");
        assert!(text.lines().any(|line| line.contains("  predicted ") && line.contains("  measured ")), "{text}");
    }
}

#[test]
fn every_schedule_of_a_program_does_the_operations_that_the_program_says() {
    let flops = |schedule: &[&str]| {
        let program =
            ["bench", "datasets/schedules/halide_blur.tile", "--size", "SMALL", "--seconds", "0.01", "--json"];
        let json: serde_json::Value = serde_json::from_str(&succeeds(&[&program[..], schedule].concat())).unwrap();
        json["flops"].as_f64().unwrap()
    };
    let (h, w) = (37.0, 45.0);
    let written = 3.0 * (w - 2.0) * (h + (h - 2.0));
    assert_eq!(flops(&[]), written);
    for schedule in ["sliding_rows", "stored_and_computed_at", "tiled_256x32"] {
        assert_eq!(flops(&["--schedule", schedule]), written, "{schedule}");
    }
}

#[test]
fn bench_measures_on_request() {
    let folder = Folder::new("interactive");
    let mut process = Command::new(env!("CARGO_BIN_EXE_tilewright"))
        .current_dir(root())
        .args(["bench", MODEL, "--quiet", "--interactive", "--save", &folder.file("out")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut read = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap().unwrap()).unwrap();
    let ready = read();
    let first = ready["first_ms"].as_f64().unwrap();
    assert!(first > 0.0 && ready["prepare_ms"].as_f64().unwrap() > first && ready["version"].is_string());
    assert!(!saved(&folder.file("out"), 0).is_empty());
    let mut requests = process.stdin.take().unwrap();
    for seconds in ["0.01", "1e-9"] {
        writeln!(requests, "{seconds}").unwrap();
        let latencies = read();
        assert!(latencies.as_array().unwrap().iter().all(|ms| ms.as_f64().unwrap() > 0.0) && latencies[0].is_number());
    }
    writeln!(requests, "7 runs").unwrap();
    assert_eq!(read().as_array().unwrap().len(), 7);
    writeln!(requests, "soon").unwrap();
    drop(requests);
    let output = process.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("`soon` is not a number of seconds"), "{error}");
}

#[test]
fn bench_saves_outputs_however_it_is_asked_to_measure() {
    let folder = Folder::new("bench-save");
    let expected = folder.file("run");
    succeeds(&["run", MODEL, "--save", &expected]);
    for (form, flags) in [("table", &[][..]), ("json", &["--json"])] {
        let place = folder.file(form);
        succeeds(&[&["bench", MODEL, "--seconds", "0.05", "--save", &place], flags].concat());
        assert_eq!(saved(&place, 0), saved(&expected, 0), "{form}");
    }
}

#[test]
fn a_flag_without_meaning_is_refused() {
    let program = "datasets/schedules/softmax.tile";
    fails(&["explain", MODEL, "--stage", "graph", "--kernel", "matmul"], &["--kernel"]);
    fails(&["explain", MODEL, "--stage", "loops", "--threads", "2"], &["--threads"]);
    fails(&["explain", MODEL, "--target", "aarch64-neon", "--seed", "2"], &["--seed"]);
    fails(&["explain", program, "--stage", "c", "--schedule", "row_by_row"], &["--schedule"]);
    fails(&["explain", program, "--stage", "loops", "--kernel", "gemm"], &["gemm", "softmax"]);
    fails(&["check", program, "--dim", "M=4", "--dim", "M=5"], &["M", "twice"]);
    fails(&["explain", program, "--stop-after", "3"], &["--stop-after"]);
}

#[test]
fn rewriting_stops_after_a_number_of_rewrites() {
    let reason = |flags: &[&str]| {
        let report = succeeds(&[&["explain", MODEL][..], flags].concat());
        report.lines().find(|l| l.contains("stopped because")).unwrap_or_else(|| panic!("{report}")).to_string()
    };
    assert!(reason(&[]).contains("no rule finds anything new"));
    assert!(reason(&["--stop-after", "0"]).contains("0 rewrites were made"));
}

#[test]
fn every_stage_can_be_read() {
    for stage in ["graph", "rewritten", "scop", "schedule", "loops", "vcode", "asm"] {
        for target in tilewright::Target::all() {
            let text = succeeds(&["explain", MODEL, "--stage", stage, "--target", &target.name]);
            assert!(text.lines().count() > 1, "{stage}: {text}");
        }
    }
    let report = succeeds(&["explain", MODEL]);
    for word in ["compiled in", "e-graph", "gap", "predicted", "measured", "kernels"] {
        assert!(report.contains(word), "{word}: {report}");
    }
    fails(&["explain", MODEL, "--stage", "loops", "--kernel", "no such kernel"], &["no such kernel"]);
}

#[test]
fn wrong_use_ends_with_code_2() {
    let wrong: [&[&str]; 12] = [
        &[],
        &["fly"],
        &["run"],
        &["run", MODEL, "--threads", "0"],
        &["run", MODEL, "--threads", "many"],
        &["run", MODEL, "--input", "a"],
        &["run", MODEL, "--dim", "N=-1"],
        &["compile", MODEL],
        &["bench", MODEL, "--seconds=0"],
        &["bench", MODEL, "--seconds", "nan"],
        &["explain", MODEL, "--stage", "magic"],
        &["run", MODEL, "--no-such-flag"],
    ];
    for arguments in wrong {
        let output = tilewright(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
    assert!(succeeds(&["--help"]).contains("run") && succeeds(&["--version"]).starts_with("tilewright "));
}

#[test]
fn failures_are_one_sentence() {
    let folder = Folder::new("failures");
    fails(&["run", "missing.onnx"], &["missing.onnx"]);
    fails(&["run", "Cargo.toml"], &["Cargo.toml"]);
    fails(&["run", MODEL, "--target", "z80"], &["z80", "x86-64-avx2"]);
    fails(&["run", MODEL, "--dim", "N=3"], &["N"]);
    fails(&["run", DYNAMIC, "--dim", "batch=3", "--dim", "batch=3"], &["batch", "twice"]);
    fails(&["run", MODEL, "--input", "a=missing.npy"], &["missing.npy"]);
    fails(&["run", MODEL, "--input", "a=Cargo.toml"], &["Cargo.toml"]);
    let file = folder.file("x.npy");
    Tensor::zeros(tilewright::DType::F32, &[5, 21]).write_npy(&file).unwrap();
    fails(&["run", MODEL, "--input", &format!("a={file}")], &["a", "21", "20"]);
    fails(&["run", MODEL, "--input", &format!("z={file}")], &["z", "a"]);
    fails(&["run", MODEL, "--input", &format!("a={file}"), "--input", &format!("a={file}")], &["a", "twice"]);
    Tensor::zeros(tilewright::DType::F64, &[5, 20]).write_npy(&file).unwrap();
    fails(&["run", MODEL, "--input", &format!("a={file}")], &["a", "f64", "f32"]);
    Tensor::zeros(tilewright::DType::I64, &[2, 5]).write_npy(&file).unwrap();
    fails(&["run", DYNAMIC, "--dim", "batch=3", "--input", &format!("i={file}")], &["batch", "3", "2"]);
    fails(&["compile", MODEL, "-o", "no/such/folder/m.tw"], &["no/such/folder"]);
    fails(&["run", MODEL, "--save", "Cargo.toml/x"], &["Cargo.toml"]);
    Tensor::zeros(tilewright::DType::F32, &[100]).write_npy(&file).unwrap();
    fails(&["run", MODEL, "--input", &format!("a={file}")], &["a", "[100]", "[5, 20]"]);
    fails(&["explain", MODEL, "--kernel", "nothing"], &["nothing"]);
    let copy = folder.file("copy.onnx");
    std::fs::copy(root().join(MODEL), &copy).unwrap();
    fails(&["compile", &copy, "-o", &copy], &["itself"]);
    fails(&["demo", "missing.png"], &["missing.png"]);
    fails(&["demo", "Cargo.toml"], &["Cargo.toml"]);
}

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tilewright"))
        .current_dir(root())
        .args(["explain", MODEL, "--stage", "asm"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_demo_reads_every_picture() {
    let model = root().join("target/models/ppocr_v4_rec.onnx");
    if !model.exists() {
        common::skip::not_installed("the recogniser of the demo (make models)");
        return;
    }
    for name in ["line", "invoice", "sign"] {
        let picture = format!("datasets/pictures/{name}.png");
        let expected = std::fs::read_to_string(root().join(format!("datasets/pictures/{name}.txt"))).unwrap();
        for precision in ["f32", "bf16", "f16"] {
            let text = succeeds(&["demo", &picture, "--precision", precision]);
            assert_eq!(text.lines().last(), Some(expected.trim_end()), "{name} in {precision}");
        }
    }
}

#[test]
fn explain_and_bench_name_the_nodes_of_each_kernel() {
    let inside = "tests/fixtures/operators/if_inside_if.onnx";
    for command in [&["explain", "--sort", "run"][..], &["explain"], &["bench", "--seconds", "0.01"]] {
        let text = succeeds(&[command, &[inside]].concat());
        assert!(text.contains("If(y)/If(r)/MatMul(u), If(y)/If(r)/Add(e)"), "{text}");
    }
    for command in [&["explain"][..], &["bench", "--seconds", "0.01"]] {
        let json = |flags: &[&str]| -> serde_json::Value {
            serde_json::from_str(&succeeds(&[command, &[inside, "--json"], flags].concat())).unwrap()
        };
        let us = |kernel: &serde_json::Value| kernel["us"].as_f64().or(kernel["measured_us"].as_f64()).unwrap();
        let sorted = json(&[]);
        let kernels = sorted["kernels"].as_array().unwrap();
        assert!(kernels.iter().all(|k| !k["nodes"].as_array().unwrap().is_empty()), "{sorted}");
        assert!(kernels.is_sorted_by(|a, b| us(a) >= us(b)), "{sorted}");
        let run = json(&["--sort", "run"]);
        assert_eq!(run["kernels"][0]["nodes"][0], "Tanh(a)", "{run}");
    }
}
