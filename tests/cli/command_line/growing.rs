//! Dimensions that grow: modules for a capacity, and steps of decoding.

use super::onnx::{FLOAT, bytes, graph, node, tensor, with_int};
use super::{Folder, fails, saved, succeeds, tilewright};
use tilewright::{DType, Tensor};

const DECODER: &str = "tests/fixtures/models/decoder.onnx";

#[test]
fn a_module_for_a_capacity_runs_for_any_size_of_it() {
    let folder = Folder::new("growing");
    let (module, past, outputs) = (folder.file("decoder.tw"), folder.file("past.npy"), folder.file("outputs"));
    let compile = ["compile", DECODER, "--grow", "past", "-o", module.as_str()];
    fails(&compile, &["`past` grows", "must be given"]);
    succeeds(&[&compile[..], &["--dim", "past=32"]].concat());
    Tensor::seeded(DType::F32, &[1, 2, 7, 12], 1, 1, 0).write_npy(&past).unwrap();
    let input = format!("past.0.key={past}");
    succeeds(&["run", &module, "--input", &input, "--save", &outputs]);
    assert_eq!(saved(&outputs, 0).shape, [1, 2, 8, 12]);
    // the size of the input is that of all
    let exact = folder.file("exact");
    succeeds(&["run", DECODER, "--input", &input, "--save", &exact]);
    assert_eq!(saved(&exact, 0).shape, [1, 2, 8, 12]);
    assert_eq!(saved(&exact, 0).to_vec::<f32>()[..84], saved(&outputs, 0).to_vec::<f32>()[..84]);
    assert!(succeeds(&["bench", &module, "--seconds", "0.01"]).contains("append"));
    Tensor::zeros(DType::F32, &[1, 2, 32, 12]).write_npy(&past).unwrap();
    fails(&["run", &module, "--input", &input], &["`past` is 32", "0 to 31"]);
    // a size without inputs
    succeeds(&["run", &module, "--dim", "past=5", "--save", &outputs]);
    assert_eq!(saved(&outputs, 0).shape, [1, 2, 6, 12]);
    succeeds(&["run", &module, "--dim", "past=0", "--save", &outputs]);
    assert_eq!(saved(&outputs, 0).shape, [1, 2, 1, 12]);
    fails(&["run", &module, "--dim", "past=32"], &["`past` is 32", "0 to 31"]);
    fails(&["run", &module, "--dim", "past=5", "--input", &input], &["count of 5", "for 32"]);
}

fn bench<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["bench", DECODER, "--threads", "1", "--steps", "18"][..], more].concat()
}

#[test]
fn decoding_begins_with_the_state_that_is_given() {
    let folder = Folder::new("state");
    let past = folder.file("past.npy");
    Tensor::seeded(DType::F32, &[1, 2, 90, 12], 1, 1, 0).write_npy(&past).unwrap();
    let input = format!("past.0.key={past}");
    for more in [&["--grow", "past"][..], &[]] {
        let state = ["--threads", "1", "--state", "past.*=present.*", "--input", &input, "--steps"];
        let given = [&["bench", DECODER, "--quiet"][..], more, &state].concat();
        assert!(succeeds(&[&given[..], &["2"]].concat()).starts_with("2 steps"));
        // the model has 96 places
        fails(&[&given[..], &["8"]].concat(), &["96"]);
    }
}

#[test]
fn steps_of_decoding_are_measured() {
    let text = succeeds(&bench(&["--grow", "past", "--state", "past.*=present.*"]));
    assert!(text.contains("18 steps in") && text.contains(", 2 compilations"), "{text}");
    fails(&bench(&["--state", "nothing.*=present.*"]), &["no input is like `nothing.*`"]);
    fails(&bench(&["--state", "past.0.key=nothing"]), &["no output `nothing`"]);
    fails(&bench(&["--grow", "depth", "--state", "past.*=present.*"]), &["`depth`"]);
    fails(&bench(&["--dim", "past=3", "--state", "past.*=present.*"]), &["do not pass `--dim past`"]);
    let command = bench(&["--cache", "nowhere", "--state", "past.*=present.*"]);
    assert_eq!(tilewright(&command).status.code(), Some(2), "modules with a capacity are not kept");
    fails(&bench(&["--grow", "past", "--dim", "past=3", "--state", "past.*=present.*"]), &["do not pass `--dim past`"]);
}

/// `present = past, x` and `y = present + mask`; the file calls the extent of present and mask `total`.
fn masked(folder: &Folder) -> String {
    let rows = |name: &str, count: &str| tensor(name, FLOAT, Some(&[count, "2"]));
    let inputs = vec![rows("past", "past"), rows("x", "1"), rows("mask", "total")];
    let nodes = vec![
        with_int(node("Concat", &["past", "x"], &["present"]), "axis", 0),
        node("Add", &["present", "mask"], &["y"]),
    ];
    let outputs = vec![rows("y", "total"), rows("present", "total")];
    let path = folder.file("masked.onnx");
    std::fs::write(&path, bytes(graph(inputs, vec![], nodes, outputs), 17)).unwrap();
    path
}

#[test]
fn a_mask_grows_with_the_state() {
    let folder = Folder::new("growing_mask");
    let (model, module, outputs) = (masked(&folder), folder.file("masked.tw"), folder.file("outputs"));
    let compile = ["compile", &model, "--grow", "past", "--grow", "total", "-o", &module];
    fails(&[&compile[..], &["--dim", "past=1", "--dim", "total=4"]].concat(), &["`total` is 3 away"]);
    succeeds(&[&compile[..], &["--dim", "past=16", "--dim", "total=17"]].concat());
    for sizes in [&["--dim", "past=6"][..], &["--dim", "total=7"], &["--dim", "past=6", "--dim", "total=7"]] {
        succeeds(&[&["run", &module, "--save", &outputs][..], sizes].concat());
        assert_eq!(saved(&outputs, 0).shape, [7, 2]);
    }
    fails(&["run", &module, "--dim", "past=7", "--dim", "total=7"], &["`total` of size 7"]);
    let bench = ["bench", &model, "--threads", "1", "--steps", "18", "--grow", "past", "--state", "past=present"];
    fails(&bench, &["`total`", "--dim total=N"]);
    let text = succeeds(&[&bench[..], &["--grow", "total", "--dim", "total=1"]].concat());
    assert!(text.contains("18 steps in") && text.contains(", 2 compilations"), "{text}");
}
