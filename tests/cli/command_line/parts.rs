//! Models that depend on data: `run`, `bench` and `explain` take them as they take others.

use super::onnx::{FLOAT, bytes, graph, node, tensor};
use super::{Folder, fails, succeeds};
use tilewright::Tensor;

/// A file with the numbers of the positive elements of `exp(x) - 1`, and an input for it.
fn model(folder: &Folder) -> [String; 2] {
    let graph = graph(
        vec![tensor("x", FLOAT, Some(&["40"]))],
        vec![super::onnx::floats("one", &[], &[1.0])],
        vec![
            node("Exp", &["x"], &["e"]),
            node("Sub", &["e", "one"], &["less"]),
            node("Relu", &["less"], &["positive"]),
            node("NonZero", &["positive"], &["found"]),
            node("Abs", &["found"], &["y"]),
        ],
        vec![tensor("y", 7, None)],
    );
    let [file, input] = [folder.file("parts.onnx"), folder.file("x.npy")];
    std::fs::write(&file, bytes(graph, 17)).unwrap();
    Tensor::new(&[40], &(0..40).map(|i| (i % 4) as f32 - 1.0).collect::<Vec<f32>>()).write_npy(&input).unwrap();
    [file, format!("x={input}")]
}

#[test]
fn models_in_parts_are_run_measured_and_explained() {
    let folder = Folder::new("parts");
    let [file, input] = &model(&folder);
    let given = ["--input", input.as_str()];
    let text = succeeds(&[&["run", file.as_str()][..], &given].concat());
    assert!(text.contains("y  i64 [1, 20]"), "{text}");
    let text = succeeds(&[&["explain", file.as_str()][..], &given].concat());
    for word in ["2 parts, compiled in", "part 1: ", "nodes: e, less, positive", "NonZero", "nodes: found", "nodes: y"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    let text = succeeds(&[&["explain", file.as_str(), "--kernel", "abs", "--json"][..], &given].concat());
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["parts"][0]["report"]["kernels"].as_array().unwrap().len(), 0, "{json}");
    assert_eq!(json["parts"][1]["report"]["kernels"][0]["nodes"][0], "y", "{json}");
    fails(&[&["explain", file.as_str(), "--kernel", "nothing"][..], &given].concat(), &["nothing"]);

    let bench = [&["bench", file.as_str(), "--seconds", "0.05", "--sort", "run"][..], &given].concat();
    let text = succeeds(&bench);
    for word in ["latency", "of part 2", "NonZero by the host", "e, less, positive"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let place = folder.file("out");
    let json = succeeds(&[&bench[..], &["--json", "--save", &place]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    for field in ["compile_ms", "gflops", "peak_gflops", "peak_memory_bytes", "runs", "flops", "least_bytes"] {
        assert!(json[field].as_f64().unwrap() > 0.0, "{field}: {json}");
    }
    let kernels = json["kernels"].as_array().unwrap();
    assert_eq!((kernels[0]["part"].as_u64(), kernels.last().unwrap()["part"].as_u64()), (Some(1), Some(2)), "{json}");
    assert_eq!(
        (json["host"][0]["node"].as_str(), json["host"][0]["operator"].as_str()),
        (Some("found"), Some("NonZero"))
    );
    let saved = Tensor::read_npy(folder.file("out/output_0.npy")).unwrap();
    assert_eq!(saved.shape, [1, 20]);
    let text = succeeds(&[&["run", file.as_str(), "--against", "direct"][..], &given].concat());
    assert!(text.contains("y  against direct: largest error 0.0e0"), "{text}");
}

/// A range whose length is the sum of `count` integers.
fn range(folder: &Folder, count: &str) -> String {
    let graph = graph(
        vec![tensor("x", 7, Some(&[count]))],
        vec![super::onnx::integers("zero", &[], &[0]), super::onnx::integers("one", &[], &[1])],
        vec![
            super::onnx::with_int(node("ReduceSum", &["x"], &["sum"]), "keepdims", 0),
            node("Range", &["zero", "sum", "one"], &["y"]),
        ],
        vec![tensor("y", 7, None)],
    );
    let file = folder.file("range.onnx");
    std::fs::write(&file, bytes(graph, 17)).unwrap();
    file
}

#[test]
fn values_of_inputs_that_decide_sizes_are_those_of_a_run() {
    let folder = Folder::new("values");
    // few integers are sizes, and the seed gives them a value; many are data
    for (count, checked, benched) in
        [("3", "one module for each", "0 kernels, 0 µs"), ("40", "in parts", "by the host")]
    {
        let file = range(&folder, count);
        let check = succeeds(&["check", &file]);
        assert!(check.contains(checked) && check.contains("Range"), "{check}");
        let bench = succeeds(&["bench", &file, "--seconds", "0.01"]);
        assert!(bench.contains(benched) && !bench.contains("-0 µs"), "{bench}");
        succeeds(&["explain", &file]);
        assert!(succeeds(&["run", &file]).contains("y  i64"));
        let saved = folder.file("range.tw");
        fails(&["compile", &file, "-o", &saved], &["its limit depends on the"]);
    }
}
