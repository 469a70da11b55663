//! Memory of models that run in parts: values that depend on data, and sequences, are counted before they are made.

use crate::onnx::{BOOL, FLOAT, INT64, graph, integers, model, node, tensor, with_graph, with_int};
use tilewright::internal::graph::proto::NodeProto;
use tilewright::{DType, Error, Limits, Model, Options, Result, Tensor};

const MIB: u64 = 1 << 20;

/// A run in which all values may have so many bytes together.
fn run(model: &Model, run_bytes: u64, inputs: &[(&str, &Tensor)]) -> Result<Vec<Tensor>> {
    let limits = Limits { run_bytes, ..Limits::default() };
    model.compile(&Options { threads: 1, limits, ..Options::default() })?.run(inputs)
}

fn limit(model: &Model, run_bytes: u64, inputs: &[(&str, &Tensor)]) -> String {
    match run(model, run_bytes, inputs) {
        Err(Error::Limit(message)) => message,
        other => panic!("{:?}", other.map(|outputs| outputs[0].shape.clone())),
    }
}

#[test]
fn places_are_counted_before_there_is_memory_for_them() {
    let find = |op: &str, outputs: &[&str]| {
        let nodes = vec![node(op, &["x"], outputs)];
        model(graph(vec![tensor("x", FLOAT, Some(&["n", "4"]))], vec![], nodes, vec![tensor("y", INT64, None)]))
    };
    let ones = Tensor::new(&[1 << 16, 4], &vec![1f32; 1 << 18]);
    // 1 MiB of elements and a copy for the host, two numbers for each
    let places = find("NonZero", &["y"]);
    let message = limit(&places, 4 * MIB, &[("x", &ones)]);
    assert!(message.contains("NonZero `y`") && message.contains("--max-memory"), "{message}");
    assert_eq!(run(&places, 7 * MIB, &[("x", &ones)]).unwrap()[0].shape, [2, 1 << 18]);
    // what is zero takes nothing
    run(&places, 3 * MIB, &[("x", &Tensor::zeros(DType::F32, &[1 << 16, 4]))]).unwrap();
    let distinct = find("Unique", &["values", "y"]);
    assert!(limit(&distinct, 4 * MIB, &[("x", &ones)]).contains("Unique"));
    assert_eq!(run(&distinct, 64 * MIB, &[("x", &ones)]).unwrap()[0].to_vec::<i64>(), [0]);
}

#[test]
fn values_that_are_held_count_for_later_parts() {
    let nodes = vec![
        node("NonZero", &["x"], &["places"]),
        node("Add", &["places", "places"], &["twice"]),
        node("NonZero", &["twice"], &["y"]),
    ];
    let model = model(graph(vec![tensor("x", FLOAT, Some(&["n"]))], vec![], nodes, vec![tensor("y", INT64, None)]));
    let x = Tensor::new(&[1 << 17], &vec![1f32; 1 << 17]);
    // half a MiB and its copy, then one of places, one of sums, two of their places
    limit(&model, MIB, &[("x", &x)]);
    let message = limit(&model, 5 * MIB / 2, &[("x", &x)]);
    assert!(message.contains("part"), "{message}");
    limit(&model, 4 * MIB, &[("x", &x)]);
    assert_eq!(run(&model, 6 * MIB, &[("x", &x)]).unwrap()[0].shape, [2, (1 << 17) - 1]);
}

#[test]
fn capacities_count_in_full() {
    let nodes = vec![node("NonZero", &["x"], &["places"]), node("Add", &["places", "places"], &["y"])];
    let model = model(graph(vec![tensor("x", FLOAT, Some(&["n"]))], vec![], nodes, vec![tensor("y", INT64, None)]));
    let count = (1 << 16) + 1;
    let x = Tensor::new(&[count], &vec![1f32; count as usize]);
    // a quarter of a MiB and its copy, half of one of places, and with a capacity of 2^17 one of places and one of sums
    let message = limit(&model, 5 * MIB / 2, &[("x", &x)]);
    assert!(message.contains("part"), "{message}");
    assert_eq!(run(&model, 7 * MIB / 2, &[("x", &x)]).unwrap()[0].shape, [1, count]);
    // the capacity as it is: neither is copied
    let x = Tensor::new(&[1 << 16], &vec![1f32; 1 << 16]);
    assert_eq!(run(&model, 7 * MIB / 4, &[("x", &x)]).unwrap()[0].shape, [1, 1 << 16]);
}

#[test]
fn results_as_large_as_values_count_before_they_are_made() {
    let found = |operator: &str, operands: &[&str], made: Vec<NodeProto>| {
        let count = vec![node("ReduceMax", &["x"], &["size"]), node("Squeeze", &["size"], &["n"])];
        let nodes = [count, made, vec![node(operator, operands, &["large"]), node("Identity", &["large"], &["y"])]];
        let constants =
            vec![integers("zero", &[], &[0]), integers("one", &[], &[1]), integers("columns", &[1], &[256])];
        let x = vec![tensor("x", INT64, Some(&["n"]))];
        model(graph(x, constants, nodes.concat(), vec![tensor("y", INT64, None)]))
    };
    let wide = || vec![with_int(node("Concat", &["size", "columns"], &["shape"]), "axis", 0)];
    let x = Tensor::new(&[4096], &(1..=4096i64).collect::<Vec<i64>>());
    // results of 8 MiB, 4 MiB and 32 KiB, and of 64 KiB from a copy of the input
    for (operator, model, few, enough) in [
        ("Expand", found("Expand", &["one", "shape"], wide()), 8 * MIB, 9 * MIB),
        ("ConstantOfShape", found("ConstantOfShape", &["shape"], wide()), 4 * MIB, 5 * MIB),
        ("Range", found("Range", &["zero", "n", "one"], vec![]), 60 << 10, MIB / 4),
        ("TopK", found("TopK", &["x", "size"], vec![]), 100 << 10, MIB / 4),
    ] {
        let message = limit(&model, few, &[("x", &x)]);
        assert!(message.contains(&format!("{operator} `large`: its results do not fit")), "{message}");
        run(&model, enough, &[("x", &x)]).unwrap();
    }
}

#[test]
fn each_element_of_a_sequence_has_a_price() {
    let nodes = vec![
        node("SplitToSequence", &["x", "one"], &["parts"]),
        with_int(node("ConcatFromSequence", &["parts"], &["y"]), "axis", 0),
    ];
    let one = integers("one", &[], &[1]);
    let model = model(graph(vec![tensor("x", FLOAT, Some(&["n"]))], vec![one], nodes, vec![tensor("y", FLOAT, None)]));
    let values: Vec<f32> = (0..100_000).map(|i| i as f32).collect();
    let x = Tensor::new(&[100_000], &values);
    let message = limit(&model, 10 * MIB, &[("x", &x)]);
    assert!(message.contains("SplitToSequence") && message.contains("--max-memory"), "{message}");
    assert_eq!(run(&model, 50 * MIB, &[("x", &x)]).unwrap()[0].to_vec::<f32>(), values);
}

/// `x` n times in a sequence, then one after the other.
fn repeated() -> Model {
    let mut carried = tensor("v", FLOAT, None);
    carried.r#type = None;
    let body = graph(
        vec![tensor("i", INT64, Some(&[])), tensor("go", BOOL, Some(&[])), carried],
        vec![],
        vec![node("Identity", &["go"], &["again"]), node("SequenceInsert", &["v", "x"], &["longer"])],
        vec![tensor("again", BOOL, None), tensor("longer", FLOAT, None)],
    );
    model(graph(
        vec![tensor("x", FLOAT, Some(&["2", "k"])), tensor("n", INT64, Some(&[]))],
        vec![],
        vec![
            node("SequenceEmpty", &[], &["none"]),
            with_graph(node("Loop", &["n", "", "none"], &["all"]), "body", body),
            with_int(node("ConcatFromSequence", &["all"], &["y"]), "axis", 1),
        ],
        vec![tensor("y", FLOAT, None)],
    ))
}

#[test]
fn a_tensor_that_a_sequence_has_many_times_is_held_once() {
    let (model, n) = (repeated(), Tensor::new(&[], &[20i64]));
    let x = Tensor::new(&[2, 1 << 16], &(0..1 << 17).map(|i| i as f32).collect::<Vec<f32>>());
    // half a MiB, a copy of it, and 10 MiB of the result
    let message = limit(&model, 10 * MIB, &[("x", &x), ("n", &n)]);
    assert!(message.contains("ConcatFromSequence"), "{message}");
    let y = run(&model, 12 * MIB, &[("x", &x), ("n", &n)]).unwrap().remove(0);
    assert_eq!(y.shape, [2, 20 << 16]);
    let (x, y) = (x.to_vec::<f32>(), y.to_vec::<f32>());
    assert!(y.chunks(1 << 16).enumerate().all(|(i, row)| row == &x[(i / 20) << 16..][..1 << 16]));
}

#[test]
fn splits_and_concatenations_go_along_any_axis() {
    let whole: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let x = Tensor::new(&[2, 3, 4], &whole);
    for axis in -3..3i64 {
        for sizes in [None, Some(integers("sizes", &[], &[2]))] {
            let operands = if sizes.is_some() { vec!["x", "sizes"] } else { vec!["x"] };
            let nodes = vec![
                with_int(node("SplitToSequence", &operands, &["parts"]), "axis", axis),
                with_int(node("ConcatFromSequence", &["parts"], &["y"]), "axis", axis),
            ];
            let shape = tensor("x", FLOAT, Some(&["2", "3", "4"]));
            let model = model(graph(vec![shape], sizes.into_iter().collect(), nodes, vec![tensor("y", FLOAT, None)]));
            let y = run(&model, MIB, &[("x", &x)]).unwrap().remove(0);
            assert_eq!((y.shape.clone(), y.to_vec::<f32>()), (vec![2, 3, 4], whole.clone()), "{axis}");
        }
    }
}

#[test]
fn messages_name_the_first_of_many() {
    let nodes = vec![
        node("SplitToSequence", &["x", "sizes"], &["parts"]),
        with_int(node("ConcatFromSequence", &["parts"], &["y"]), "axis", 0),
    ];
    let sizes = integers("sizes", &[1000], &vec![1; 1000]);
    let model =
        model(graph(vec![tensor("x", FLOAT, Some(&["n"]))], vec![sizes], nodes, vec![tensor("y", FLOAT, None)]));
    let error = run(&model, MIB, &[("x", &Tensor::zeros(DType::F32, &[999]))]).unwrap_err().to_string();
    assert!(error.contains("1, 1 and 992 more") && error.len() < 200, "{error}");
}
