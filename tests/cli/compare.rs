//! `compare` as its users see it: what takes part, what is refused, what is printed and written.

#[path = "../common/mod.rs"]
mod common;

use common::root;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

const PROGRAM: &str = "
def gemm(f32(M,K) A, f32(K,N) B) -> (C) {
    sizes TINY { M = 24, N = 40, K = 16 }
    C(m,n) +=! A(m,k) * B(k,n)
}
loop count(N = 12) { inout i64 A[N] for i in 1..N A[i] = A[i-1] + A[i] }
schedule tiled for gemm {
    distribute C_init, C at m
    tile C(m, n) by (4, 16) -> mo, no, mi, ni; reorder C(mo, no, k, mi, ni)
    unroll C(mi); vectorize C(ni)
}
schedule swapped for gemm { reorder n, m }
";
const BACKWARDS: &str = "schedule backwards for count { reverse i }\n";

/// A file of this test's own, removed at the end.
struct Text(PathBuf);

impl Text {
    fn new(name: &str, text: &str) -> Text {
        let path = std::env::temp_dir().join(format!("tilewright-compare-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Text(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn compare(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.current_dir(root()).args(["compare", "--quiet", "--seconds", "0.02"]).args(arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"))
}

fn fails(arguments: &[&str], words: &[&str]) {
    let output = compare(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{arguments:?}: {word:?} is not in: {error}");
    }
}

fn names(program: &Value) -> Vec<&str> {
    program["schedules"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect()
}

#[test]
fn all_schedules_of_a_program_are_measured_beside_the_ilp() {
    let file = Text::new("all.tile", PROGRAM);
    let output = compare(&[file.path(), "--size", "TINY", "--threads", "1", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&output);
    assert_eq!(report["threads"], 1);
    assert!(report["machine"]["peak_f32"].as_f64().unwrap() > 0.0);
    assert_eq!(report["machine"]["levels"].as_array().unwrap().len(), 4);
    assert!(report["network"].is_null());
    let programs = report["programs"].as_array().unwrap();
    assert_eq!(programs.len(), 1, "`count` has no schedule");
    let program = &programs[0];
    assert_eq!((&program["name"], &program["sizes"]["K"]), (&"gemm".into(), &16.into()));
    assert_eq!(names(program), ["untransformed", "ilp", "tiled", "swapped"]);
    let work = &program["work"];
    assert_eq!(work["flops"], (2 * 24 * 40 * 16) as f64);
    assert_eq!((&work["bytes"], &work["dtype"]), (&(4 * (24 * 16 + 16 * 40 + 24 * 40)).into(), &"f32".into()));
    for (schedule, origin) in
        program["schedules"].as_array().unwrap().iter().zip(["untransformed", "ilp", "hand", "hand"])
    {
        assert_eq!((&schedule["origin"], &schedule["status"]), (&origin.into(), &"measured".into()), "{schedule}");
        let m = &schedule["measurement"];
        let time = |field: &str| m["time_ms"][field].as_f64().unwrap();
        assert!(0.0 < time("min") && time("min") <= time("q1") && time("q1") <= time("median"), "{m}");
        assert!(time("median") <= time("q3") && m["time_ms"]["runs"].as_u64().unwrap() >= 3);
        for field in ["gflops", "share_of_peak", "share_of_bandwidth", "compile_ms"] {
            assert!(m[field].as_f64().unwrap() > 0.0, "{field}: {m}");
        }
        assert!(m["difference"].as_f64().unwrap() < 1e-4);
        for field in ["touched_bytes", "into_l1_bytes", "into_l2_bytes", "into_l3_bytes"] {
            assert!(m["traffic"][field].as_f64().unwrap() >= work["bytes"].as_f64().unwrap() / 2.0, "{field}: {m}");
        }
        assert!(schedule["tree"].as_str().unwrap().contains("C("));
        assert!(schedule["loops"].as_str().unwrap().starts_with("kernel gemm"));
        assert_eq!(schedule["differs_from_ilp"].is_null(), origin == "ilp");
    }
    let swapped = &program["schedules"][3]["differs_from_ilp"];
    assert_eq!(swapped["here"], "n [serial]", "{swapped}");
    let update = |schedule: usize| &program["schedules"][schedule]["updates"][0];
    for schedule in [1, 2] {
        assert!(update(schedule)["instruction"].as_str().unwrap().contains("ps"), "{}", update(schedule));
    }
    assert!(update(3)["instruction"].is_null());
    assert_eq!(update(3)["mismatch"], "no loop is vectorized");
}

#[test]
fn a_refused_schedule_is_reported_and_the_others_run() {
    let file = Text::new("refused.tile", &format!("{PROGRAM}{BACKWARDS}"));
    let output = compare(&[file.path(), "--program", "count", "--json"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("backwards for count (refused)"), "{error}");
    let report = json(&output);
    let program = &report["programs"][0];
    assert_eq!(names(program), ["untransformed", "ilp", "backwards"]);
    let backwards = &program["schedules"][2];
    assert_eq!(backwards["status"], "refused");
    assert!(backwards["measurement"].is_null());
    let message = backwards["message"].as_str().unwrap();
    for word in ["would run before", "writes A(1) that it reads", "<--", "reverse i"] {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
    for measured in &program["schedules"].as_array().unwrap()[..2] {
        assert_eq!(measured["status"], "measured");
        assert_eq!(measured["measurement"]["difference"], 0.0, "integers are equal");
        assert!(measured["measurement"]["share_of_peak"].is_null(), "nothing is known of integers");
    }
    // As text the same.
    let output = compare(&[file.path(), "--program", "count"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    for word in
        ["count (N=12)", ": 11 operations on", "REFUSED", "backwards: ", "would run before", "into L2", "of bandw."]
    {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

#[test]
fn the_page_needs_nothing_else() {
    let (file, page) = (Text::new("page.tile", PROGRAM), Text::new("page.html", ""));
    let output = compare(&[file.path(), "--size", "TINY", "--schedule", "tiled", "--html", page.path()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("  tiled ") && !text.contains("  swapped "), "{text}");
    assert!(text.contains("0.03 million operations on"), "{text}");
    let html = std::fs::read_to_string(&page.0).unwrap();
    for word in ["<svg", "roofline", "viewport", "kernel gemm", "<mark>", "@media print", "GFLOP/s"] {
        assert!(html.contains(word), "{word:?} is not in the page");
    }
    for word in ["http", "src=", "href=", "url(", "<script", "NaN", "inf'"] {
        assert!(!html.contains(word), "{word:?} is in the page");
    }
}

#[test]
fn the_kernels_of_a_network_are_compared() {
    let model = "tests/fixtures/operators/conv_batch_norm_relu.onnx";
    let page = Text::new("network.html", "");
    let output = compare(&[model, "--threads", "1", "--json", "--html", page.path()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&output);
    assert!(report["programs"].as_array().unwrap().is_empty());
    let network = &report["network"];
    assert!(network["difference"].as_f64().unwrap() < 1e-4);
    let kernels = network["kernels"].as_array().unwrap();
    assert!(!kernels.is_empty());
    for kernel in kernels {
        assert!(kernel["ratio"].as_f64().unwrap() > 0.0 && kernel["flops"].as_f64().unwrap() > 0.0);
        let loops = |order: &str| kernel[order]["loops"].as_str().unwrap();
        assert!(loops("ilp").contains("vector") && !loops("untransformed").contains("vector "));
        for order in ["ilp", "untransformed"] {
            assert!(kernel[order]["time_ms"]["median"].as_f64().unwrap() > 0.0, "{kernel}");
        }
    }
    assert!(std::fs::read_to_string(&page.0).unwrap().contains("in the original order"));
    let text = compare(&[model, "--threads", "1"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("untransf. ms"));
}

#[test]
fn wrong_use_has_one_clear_sentence() {
    let file = Text::new("wrong.tile", PROGRAM);
    let tiny = |more: &[&str], words: &[&str]| fails(&[&[file.path(), "--size", "TINY"], more].concat(), words);
    tiny(&["--schedule", "better"], &["`better`", "tiled, swapped"]);
    tiny(&["--program", "conv"], &["`conv`", "gemm, count"]);
    tiny(&["--dim", "Q=3"], &["`Q`"]);
    tiny(&["--input", "Z=z.npy"], &["z.npy"]);
    tiny(&["--target", "aarch64-neon"], &["aarch64-neon"]);
    tiny(&["--html", "no/such/folder/page.html"], &["no/such/folder/page.html"]);
    fails(&["no_such.tile"], &["no_such.tile"]);
    fails(&["no_such.onnx"], &["no_such.onnx"]);
    let model = "tests/fixtures/operators/matmul_bias_relu.onnx";
    fails(&[model, "--schedule", "tiled"], &["not a .tile file"]);
    fails(&[model, "--size", "TINY"], &["not a .tile file"]);
    let empty = Text::new("empty.tile", "# nothing\n");
    fails(&[empty.path()], &["no program"]);
    assert_eq!(compare(&[]).status.code(), Some(2));
    assert_eq!(compare(&[file.path(), "--seconds", "0"]).status.code(), Some(2));
}
