//! Inputs by file: those with a default, those that decide shapes, and outputs that files cannot hold.

use super::onnx::{FLOAT, INT64, bytes, floats, graph, integers, node, tensor, with_int};
use super::{Folder, fails, saved, succeeds};
use tilewright::Tensor;
use tilewright::internal::graph::proto::GraphProto;

fn write(folder: &Folder, name: &str, graph: GraphProto) -> String {
    let path = folder.file(name);
    std::fs::write(&path, bytes(graph, 17)).unwrap();
    path
}

#[test]
fn an_input_with_a_default_can_be_given() {
    let folder = Folder::new("default");
    let model = write(
        &folder,
        "default.onnx",
        graph(
            vec![tensor("x", FLOAT, Some(&["2"])), tensor("w", FLOAT, Some(&["2"]))],
            vec![floats("w", &[2], &[1.0, 2.0])],
            vec![node("Add", &["x", "w"], &["y"])],
            vec![tensor("y", FLOAT, None)],
        ),
    );
    let [x, w, outputs, module] = ["x.npy", "w.npy", "outputs", "default.tw"].map(|name| folder.file(name));
    Tensor::new(&[2], &[10f32, 20.0]).write_npy(&x).unwrap();
    Tensor::new(&[2], &[5f32, 6.0]).write_npy(&w).unwrap();
    let [x, w] = [format!("x={x}"), format!("w={w}")];
    succeeds(&["run", &model, "--input", &x, "--save", &outputs]);
    assert_eq!(saved(&outputs, 0).to_vec::<f32>(), [11.0, 22.0]);
    let both = ["--input", &x, "--input", &w];
    succeeds(&[&["run", &model, "--save", &outputs][..], &both].concat());
    assert_eq!(saved(&outputs, 0).to_vec::<f32>(), [15.0, 26.0]);
    // what is given when a module is compiled is an input of it
    succeeds(&["compile", &model, "--input", &w, "-o", &module]);
    succeeds(&[&["run", &module, "--save", &outputs][..], &both].concat());
    assert_eq!(saved(&outputs, 0).to_vec::<f32>(), [15.0, 26.0]);
    succeeds(&["compile", &model, "-o", &module]);
    fails(&[&["run", &module][..], &both].concat(), &["no input `w`"]);
    fails(&["run", &model, "--input", "v=x.npy"], &["x.npy"]);
    succeeds(&[&["bench", &model, "--seconds", "0.01"][..], &both].concat());
}

#[test]
fn check_takes_values_that_decide_shapes() {
    let folder = Folder::new("check_input");
    let model = write(
        &folder,
        "range.onnx",
        graph(
            vec![tensor("n", INT64, Some(&[]))],
            vec![integers("zero", &[], &[0]), integers("one", &[], &[1])],
            vec![node("Range", &["zero", "n", "one"], &["y"])],
            vec![tensor("y", INT64, None)],
        ),
    );
    let n = folder.file("n.npy");
    Tensor::new(&[], &[5i64]).write_npy(&n).unwrap();
    let n = format!("n={n}");
    let text = succeeds(&["check", &model]);
    assert!(text.contains("the input `n`") && text.contains("--input n=FILE"), "{text}");
    assert!(succeeds(&["check", &model, "--input", &n]).contains("output y: i64[5]"));
    fails(&["check", "nothing.tile", "--input", &n], &["--input"]);
}

#[test]
fn check_says_that_other_sizes_may_work() {
    let folder = Folder::new("check_sizes");
    let x = tensor("x", FLOAT, Some(&["1", "1", "h", "w"]));
    let weights = floats("k", &[1, 1, 3, 3], &[1.0; 9]);
    let nodes = vec![node("Conv", &["x", "k"], &["y"])];
    let model = write(&folder, "conv.onnx", graph(vec![x], vec![weights], nodes, vec![tensor("y", FLOAT, None)]));
    let output = super::tilewright(&["check", &model]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && text.contains("--dim h=N --dim w=N"), "{text}");
    assert!(succeeds(&["check", &model, "--dim", "h=5", "--dim", "w=5"]).contains("f32[1,1,3,3]"));
}

#[test]
fn outputs_that_are_sequences_need_their_format() {
    let folder = Folder::new("sequences");
    let split = with_int(node("SplitToSequence", &["x"], &["s"]), "axis", 0);
    let x = vec![tensor("x", FLOAT, Some(&["2"]))];
    let model = write(&folder, "split.onnx", graph(x, vec![], vec![split], vec![tensor("s", FLOAT, None)]));
    let outputs = folder.file("outputs");
    fails(&["run", &model, "--save", &outputs], &["`s` is a sequence", "--format pb"]);
    succeeds(&["run", &model, "--save", &outputs, "--format", "pb"]);
}
