//! Algorithms of convolutions: which one is taken, what the report says of it, and how far its results are from direct ones.

use super::{Folder, MODEL, fails, saved, succeeds, tilewright};

const CONV: &str = "tests/fixtures/operators/conv_3x3_same.onnx";
const PROGRAM: &str = "datasets/schedules/softmax.tile";

fn outputs_with(algorithm: &str, folder: &Folder) -> tilewright::Tensor {
    let place = folder.file(algorithm);
    succeeds(&["run", CONV, "--algorithm", algorithm, "--max-error", "1", "--save", &place]);
    saved(&place, 0)
}

#[test]
fn every_algorithm_is_taken_by_its_name() {
    let folder = Folder::new("algorithms");
    let direct = outputs_with("direct", &folder);
    let mut seen = vec![direct.clone()];
    for algorithm in ["winograd-2", "winograd-4", "winograd-6"] {
        let output = outputs_with(algorithm, &folder);
        assert!(!seen.contains(&output), "{algorithm} has the bits of another");
        seen.push(output);
        let report = succeeds(&["explain", CONV, "--algorithm", algorithm, "--max-error", "1"]);
        assert!(report.contains(&format!(": {algorithm} predicted ")), "{report}");
        assert!(!report.contains("runner-up") && report.contains("largest error bound "), "{report}");
        assert!(report.contains("; their weights take ") && report.contains(" instead of "), "{report}");
        // A bound of the error that is too small for all.
        let report = succeeds(&["explain", CONV, "--algorithm", algorithm, "--max-error", "1e-9"]);
        assert!(report.contains("all by their definition"), "{report}");
    }
    assert_eq!(outputs_with("cheapest", &folder), direct, "direct is the cheapest for an image so small");
    let bench = succeeds(&["bench", CONV, "--algorithm", "winograd-2", "--seconds", "0.05", "--json"]);
    let bench: serde_json::Value = serde_json::from_str(&bench).unwrap();
    let layer = &bench["algorithms"]["layers"][0];
    assert!(layer["chosen"]["algorithm"] == "winograd-2" && layer["runner_up"].is_null(), "{layer}");
    assert_eq!(layer["error_bound"], bench["algorithms"]["error_bound"]);
    // Sixteen places of a tile instead of nine taps.
    let bytes = |part: &serde_json::Value, key: &str| part[key].as_u64().unwrap();
    assert_eq!(bytes(&layer["chosen"], "weights_bytes") * 9, bytes(layer, "source_weights_bytes") * 16, "{layer}");
    // The two transforms and the products, perhaps in several layouts.
    assert!(bench["algorithms"]["predictions"].as_u64() >= Some(3), "{}", bench["algorithms"]);
    let module = folder.file("module.tw");
    succeeds(&["compile", CONV, "--algorithm", "winograd-2", "-o", &module]);
    let place = folder.file("module");
    succeeds(&["run", &module, "--save", &place]);
    assert_eq!(saved(&place, 0), seen[1]);
}

#[test]
fn the_report_has_the_runner_up_and_the_number_of_predictions() {
    let report = succeeds(&["explain", CONV]);
    let start =
        report.find("algorithms: 10 predictions; all by their definition\n").unwrap_or_else(|| panic!("{report}"));
    let layer = report[start..].lines().nth(1).unwrap();
    assert!(layer.contains(" of 3x3: direct predicted ") && layer.contains("; runner-up winograd-"), "{layer}");
    assert!(!succeeds(&["explain", MODEL]).contains("algorithms:"));
    let said = succeeds(&["run", CONV, "--algorithm", "winograd-2"]);
    assert!(said.contains("\nlargest error bound ") && said.contains("of 1 layer"), "{said}");
    assert_eq!(succeeds(&["run", CONV]).lines().count(), 1);
}

#[test]
fn results_are_compared_with_direct_ones() {
    let said = succeeds(&["run", CONV, "--algorithm", "winograd-4", "--against", "direct"]);
    let [_, bound, against] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    let number = |line: &str, before: &str| -> f64 {
        let rest = line.split_once(before).unwrap_or_else(|| panic!("{line}")).1;
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let (bound, error) = (number(bound, "largest error bound "), number(against, "y  against direct: largest error "));
    assert!(error > 0.0 && error < bound, "{said}");
    let same = succeeds(&["run", CONV, "--algorithm", "direct", "--against", "direct"]);
    assert!(same.contains("largest error 0.0e0 "), "{same}");
}

#[test]
fn halves_are_compared_with_f32() {
    // the target by its name, whatever the core takes for products of bf16
    let host = tilewright::Target::host().unwrap();
    let against = |precision: &str| -> f64 {
        let said = succeeds(&["run", CONV, "--target", &host.name, "--precision", precision, "--against", "f32"]);
        let rest = said.split_once("y  against f32: largest error ").unwrap_or_else(|| panic!("{said}")).1;
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let [whole, short, long] = ["f32", "bf16", "f16"].map(against);
    assert!(whole == 0.0 && long <= short && short < 0.02, "{whole} {long} {short}");
    // elsewhere the convolution of f32 may be the cheaper one
    if host.features.names().contains(&"avx512bf16") {
        assert!(long < short, "{long} {short}");
        let report = succeeds(&["explain", CONV, "--target", &host.name, "--precision", "bf16"]);
        assert!(report.contains("dpbf16ps"), "{report}");
    }
}

#[test]
fn only_networks_have_algorithms() {
    let folder = Folder::new("algorithm-refusals");
    let module = folder.file("module.tw");
    succeeds(&["compile", CONV, "-o", &module]);
    for command in ["run", "bench", "explain"] {
        fails(&[command, PROGRAM, "--algorithm", "direct"], &["--algorithm", "not a network"]);
    }
    fails(&["run", PROGRAM, "--precision", "bf16"], &["--precision", "not a network"]);
    fails(&["run", &module, "--precision", "bf16"], &["--precision", "machine code"]);
    fails(&["compile", PROGRAM, "--algorithm", "direct", "-o", &folder.file("other.tw")], &["--algorithm"]);
    fails(&["run", &module, "--algorithm", "direct"], &["--algorithm", "machine code"]);
    fails(&["bench", &module, "--algorithm", "direct"], &["--algorithm", "machine code"]);
    fails(&["run", PROGRAM, "--against", "direct"], &["--against", "not a network"]);
    fails(&["run", &module, "--against", "direct"], &["--against", "machine code"]);
    let refused: [&[&str]; 2] =
        [&["run", CONV, "--algorithm", "winograd-3"], &["run", CONV, "--against", "winograd-2"]];
    let negative = tilewright(&["run", CONV, "--max-error", "-1"]);
    let error = String::from_utf8_lossy(&negative.stderr);
    assert!(negative.status.code() == Some(2) && error.contains("expected a number from 0 to 1"), "{error}");
    let unused = succeeds(&["run", CONV, "--algorithm", "winograd-2", "--max-error", "0"]);
    assert!(unused.contains("all by their definition"), "{unused}");
    for arguments in refused {
        let output = tilewright(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains("direct"), "{arguments:?}: {error}");
    }
}
