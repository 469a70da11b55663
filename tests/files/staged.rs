//! Models that depend on data run in parts: sizes that follow from data, branches, loops, sequences.

use crate::common::nodes::check_parts;
use crate::onnx::{BOOL, FLOAT, INT64, floats, graph, integers, model, node, tensor, with_graph, with_int};
use tilewright::internal::graph::proto::GraphProto;
use tilewright::{Compiled, DType, Error, Model, Options, StagedReport, Tensor, TensorView, Value};

fn compile(model: &Model) -> Compiled {
    assert!(model.depends_on_data(&Options::default()));
    model.compile(&Options::default()).unwrap()
}

fn truth(value: bool) -> Tensor {
    Tensor { dtype: DType::Bool, shape: vec![], data: vec![value as u8].into() }
}

/// The rows of `x` whose first element is positive, times a matrix: their number follows from the data.
fn positive_rows() -> Model {
    model(graph(
        vec![tensor("x", FLOAT, Some(&["n", "2"]))],
        vec![integers("zero", &[], &[0]), integers("first", &[1], &[0]), floats("w", &[2, 2], &[1.0, 2.0, 3.0, 4.0])],
        vec![
            with_int(node("Gather", &["x", "zero"], &["head"]), "axis", 1),
            node("Relu", &["head"], &["positive"]),
            node("NonZero", &["positive"], &["found"]),
            node("Squeeze", &["found", "first"], &["rows"]),
            node("Gather", &["x", "rows"], &["kept"]),
            node("MatMul", &["kept", "w"], &["y"]),
        ],
        vec![tensor("y", FLOAT, None)],
    ))
}

#[test]
fn a_size_may_follow_from_data() {
    let compiled = compile(&positive_rows());
    for (x, expected) in [
        (vec![1f32, 1.0, -1.0, 5.0, 2.0, 0.0], vec![4f32, 6.0, 2.0, 4.0]),
        (vec![-1.0, 1.0, -1.0, 5.0, 2.0, 1.0], vec![5.0, 8.0]),
        (vec![-1.0, 1.0], vec![]),
    ] {
        let x = Tensor::new(&[x.len() as i64 / 2, 2], &x);
        let y = &compiled.run(&[("x", &x)]).unwrap()[0];
        assert_eq!((y.shape.clone(), y.to_vec::<f32>()), (vec![expected.len() as i64 / 2, 2], expected));
    }
    let error = compiled.session(&[("x", &Tensor::zeros(DType::F32, &[3, 2]))]).err().unwrap();
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    assert!(compiled.find_session(&[("x", &Tensor::zeros(DType::F32, &[3, 2]))]).unwrap().is_none());
}

#[test]
fn what_a_run_on_borrowed_memory_keeps_is_a_copy() {
    // the shape of the result is the value of an input, by which the compiled part is found again
    let model = compile(&model(graph(
        vec![tensor("x", FLOAT, Some(&["n"])), tensor("shape", INT64, Some(&["1"]))],
        vec![],
        vec![
            node("NonZero", &["x"], &["places"]),
            node("Reshape", &["x", "shape"], &["reshaped"]),
            node("Identity", &["x"], &["same"]),
        ],
        vec![tensor("places", INT64, None), tensor("reshaped", FLOAT, None), tensor("same", FLOAT, None)],
    )));
    let (mut x, shape) = ([1f32, 0.0, 3.0, 0.0], [-1i64]);
    let run = |x: &[f32], shape: &[i64]| {
        let views = [("x", TensorView::new(&[4], x)), ("shape", TensorView::new(&[1], shape))];
        Tensor::with_views(&views, |inputs| model.run(inputs)).unwrap()
    };
    let first = run(&x, &shape);
    x = [0.0, 5.0, 6.0, 7.0];
    assert_eq!(first[0].to_vec::<i64>(), [0, 2]);
    assert!(first[1..].iter().all(|y| y.to_vec::<f32>() == [1.0, 0.0, 3.0, 0.0]));
    let second = run(&x, &shape);
    assert_eq!((second[0].to_vec::<i64>(), second[2].to_vec::<f32>()), (vec![1, 2, 3], x.to_vec()));
}

#[test]
fn wrong_inputs_are_refused_in_every_run() {
    let compiled = compile(&positive_rows());
    let x = Tensor::new(&[1, 2], &[1f32, 1.0]);
    for _ in 0..2 {
        for (name, wrong) in [
            ("x", Tensor::zeros(DType::F64, &[1, 2])),
            ("x", Tensor::zeros(DType::F32, &[1, 3])),
            ("x", Tensor::zeros(DType::F32, &[2])),
            ("y", x.clone()),
        ] {
            let error = compiled.run(&[(name, &wrong)]).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{error}");
        }
        // the next round finds the model in parts
        compiled.run(&[("x", &x)]).unwrap();
    }
}

/// `while sum(x) < limit { x = x * w }`, with the sums of all steps.
fn growing() -> Model {
    let body = graph(
        vec![tensor("i", INT64, Some(&[])), tensor("go", BOOL, Some(&[])), tensor("v", FLOAT, Some(&["2"]))],
        vec![],
        vec![
            node("Mul", &["v", "w"], &["next"]),
            with_int(node("ReduceSum", &["next"], &["sum"]), "keepdims", 0),
            node("Less", &["sum", "limit"], &["again"]),
        ],
        vec![tensor("again", BOOL, None), tensor("next", FLOAT, None), tensor("sum", FLOAT, Some(&[]))],
    );
    model(graph(
        vec![tensor("x", FLOAT, Some(&["2"])), tensor("limit", FLOAT, Some(&[])), tensor("go", BOOL, Some(&[]))],
        vec![floats("w", &[2], &[2.0, 3.0])],
        vec![with_graph(node("Loop", &["", "go", "x"], &["last", "sums"]), "body", body)],
        vec![tensor("last", FLOAT, None), tensor("sums", FLOAT, None)],
    ))
}

#[test]
fn the_number_of_steps_may_follow_from_data() {
    let compiled = growing().compile(&Options::default()).unwrap();
    let x = Tensor::new(&[2], &[1f32, 1.0]);
    for (limit, last, sums) in [(1f32, vec![2f32, 3.0], vec![5f32]), (20.0, vec![8.0, 27.0], vec![5.0, 13.0, 35.0])] {
        let limit = Tensor::new(&[], &[limit]);
        let outputs = compiled.run(&[("x", &x), ("limit", &limit), ("go", &truth(true))]).unwrap();
        assert_eq!((outputs[0].to_vec::<f32>(), outputs[1].to_vec::<f32>()), (last, sums));
    }
    let limit = Tensor::new(&[], &[9f32]);
    let none = compiled.run(&[("x", &x), ("limit", &limit), ("go", &truth(false))]).unwrap();
    assert_eq!((none[0].to_vec::<f32>(), &none[1].shape[..]), (vec![1.0, 1.0], &[0][..]));
}

#[test]
fn branches_may_have_different_shapes() {
    let branch = |op: &str| graph(vec![], vec![], vec![node(op, &["x"], &["r"])], vec![tensor("r", FLOAT, None)]);
    let choose = with_graph(node("If", &["go"], &["y"]), "then_branch", branch("Flatten"));
    let model = model(graph(
        vec![tensor("x", FLOAT, Some(&["2", "1", "3"])), tensor("go", BOOL, Some(&[]))],
        vec![],
        vec![with_graph(choose, "else_branch", branch("Neg"))],
        vec![tensor("y", FLOAT, None)],
    ));
    let compiled = model.compile(&Options::default()).unwrap();
    let x = Tensor::new(&[2, 1, 3], &[1f32; 6]);
    for (go, shape, value) in [(true, vec![2, 3], 1f32), (false, vec![2, 1, 3], -1.0)] {
        let y = &compiled.run(&[("x", &x), ("go", &truth(go))]).unwrap()[0];
        assert_eq!((y.shape.clone(), y.to_vec::<f32>()), (shape, vec![value; 6]));
    }
    // without the byte that its extents ask for
    let go = Tensor { data: vec![].into(), ..truth(true) };
    let error = compiled.run(&[("x", &x), ("go", &go)]).unwrap_err();
    assert!(matches!(&error, Error::Invalid(why) if why.contains("`go`")), "{error}");
}

#[test]
fn sequences_pass_between_parts() {
    let model = model(graph(
        vec![tensor("x", FLOAT, Some(&["n", "2"])), tensor("at", INT64, Some(&[]))],
        vec![integers("two", &[], &[2])],
        vec![
            with_int(node("SplitToSequence", &["x", "two"], &["parts"]), "axis", 0),
            node("SequenceAt", &["parts", "at"], &["one"]),
            node("Exp", &["one"], &["e"]),
            node("SequenceInsert", &["parts", "e"], &["longer"]),
            with_int(node("ConcatFromSequence", &["longer"], &["y"]), "axis", 0),
            node("SequenceLength", &["longer"], &["count"]),
        ],
        vec![tensor("y", FLOAT, None), tensor("count", INT64, None), tensor("longer", FLOAT, None)],
    ));
    let compiled = compile(&model);
    let x = Value::from(Tensor::new(&[3, 2], &[0f32; 6]));
    let at = Value::from(Tensor::new(&[], &[-1i64]));
    let outputs = compiled.run_values(&[("x", &x), ("at", &at)]).unwrap();
    assert_eq!(outputs[0].tensor().unwrap().to_vec::<f32>(), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
    assert_eq!(outputs[1].tensor().unwrap().to_vec::<i64>(), [3]);
    assert_eq!(outputs[2].sequence().unwrap().len(), 3);
    let outside = Value::from(Tensor::new(&[], &[2i64]));
    let error = compiled.run_values(&[("x", &x), ("at", &outside)]).unwrap_err();
    assert!(matches!(&error, Error::Invalid(reason) if reason.contains("position 2")), "{error}");
}

#[test]
fn a_body_is_mapped_over_sequences_of_one_length() {
    let body = graph(
        vec![tensor("a", FLOAT, None), tensor("b", FLOAT, None)],
        vec![],
        vec![node("Add", &["a", "b"], &["sum"])],
        vec![tensor("sum", FLOAT, None)],
    );
    for (rows, fits) in [(2, true), (1, false), (4, false)] {
        let model = model(graph(
            vec![tensor("x", FLOAT, Some(&["n", "2"]))],
            vec![integers("two", &[], &[2]), integers("rows", &[], &[rows])],
            vec![
                with_int(node("SplitToSequence", &["x", "two"], &["pairs"]), "axis", 0),
                with_int(node("SplitToSequence", &["x", "rows"], &["others"]), "axis", 0),
                with_graph(node("SequenceMap", &["pairs", "others"], &["sums"]), "body", body.clone()),
                with_int(node("ConcatFromSequence", &["sums"], &["y"]), "axis", 0),
            ],
            vec![tensor("y", FLOAT, None)],
        ));
        let x = Tensor::new(&[4, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        match compile(&model).run(&[("x", &x)]) {
            Ok(y) => assert!(fits && y[0].to_vec::<f32>() == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0]),
            Err(error) => assert!(!fits && error.to_string().contains("different lengths"), "{rows}: {error}"),
        }
    }
}

/// `sums` of the first elements of `v`, which grows by `x` in each step; the number of steps is the sum of `x`.
fn counted() -> GraphProto {
    let body = graph(
        vec![tensor("i", INT64, Some(&[])), tensor("go", BOOL, Some(&[])), tensor("v", FLOAT, Some(&["20"]))],
        vec![],
        vec![
            node("Identity", &["go"], &["again"]),
            node("Add", &["v", "x"], &["next"]),
            node("Exp", &["next"], &["e"]),
        ],
        vec![tensor("again", BOOL, None), tensor("next", FLOAT, None), tensor("e", FLOAT, None)],
    );
    graph(
        vec![tensor("x", FLOAT, Some(&["20"]))],
        vec![],
        vec![
            with_int(node("ReduceSum", &["x"], &["sum"]), "keepdims", 0),
            with_int(node("Cast", &["sum"], &["steps"]), "to", i64::from(INT64)),
            with_graph(node("Loop", &["steps", "", "x"], &["last", "stack"]), "body", body),
            node("Neg", &["stack"], &["y"]),
        ],
        vec![tensor("last", FLOAT, None), tensor("y", FLOAT, None)],
    )
}

/// The report of a run on `x`.
fn report(compiled: &Compiled, inputs: &[(&str, Tensor)]) -> StagedReport {
    let values: Vec<(&str, Value)> = inputs.iter().map(|(name, t)| (*name, Value::from(t.clone()))).collect();
    compiled.report_in_parts(&values.iter().map(|(name, value)| (*name, value)).collect::<Vec<_>>()).unwrap()
}

/// A loop whose number of steps an earlier part computes is compiled with the next part, for a number of numbers.
#[test]
fn a_loop_whose_number_of_steps_is_known_by_then_is_compiled() {
    let file = counted();
    let compiled = compile(&model(file.clone()));
    for steps in (1..12).chain([3]) {
        let x: Vec<f32> = (0..20).map(|i| if i == 7 { steps as f32 } else { 0.0 }).collect();
        let x = Tensor::new(&[20], &x);
        let outputs = compiled.run(&[("x", &x)]).unwrap();
        let last: Vec<f32> = x.to_vec::<f32>().iter().map(|v| v * (1 + steps) as f32).collect();
        assert_eq!((outputs[0].to_vec::<f32>(), &outputs[1].shape[..]), (last, &[steps, 20][..]));
        let report = report(&compiled, &[("x", x)]);
        check_parts(&file, &report).unwrap();
        let trips = report.parts.iter().flat_map(|part| &part.report.control).map(|control| control.trips).next();
        let by_host = report.host.iter().any(|step| step.operator == "Loop");
        // a single step is not a loop
        let expected = match steps {
            1 => (None, false),
            2..=8 => (Some(Some(steps as u64)), false),
            _ => (None, true),
        };
        assert_eq!((trips, by_host), expected, "{steps} steps: {report}");
    }
}

#[test]
fn the_report_has_every_node_and_all_times() {
    let compiled = compile(&positive_rows());
    let first = report(&compiled, &[("x", Tensor::new(&[2, 2], &[1f32, 1.0, -1.0, 5.0]))]);
    let host: Vec<&str> = first.host.iter().map(|step| step.node.as_str()).collect();
    assert_eq!((first.parts.len(), &host[..]), (2, &["found"][..]), "{first}");
    let kernels: Vec<String> =
        first.parts.iter().flat_map(|part| &part.report.kernels).map(|kernel| kernel.nodes.join(" ")).collect();
    assert!(kernels.iter().any(|nodes| nodes == "kept y" || nodes == "y"), "{kernels:?}");
    for kernel in first.parts.iter().flat_map(|part| &part.report.kernels) {
        assert!(kernel.measured_us.is_some_and(|us| us >= 0.0), "{first}");
    }
    let text = first.to_string();
    for word in ["2 parts, compiled in", "part 2, for counts of ", "1 step of the host", "NonZero", "nodes: found"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let whole = model(graph(
        vec![tensor("x", FLOAT, Some(&["2"]))],
        vec![],
        vec![node("Exp", &["x"], &["y"])],
        vec![tensor("y", FLOAT, None)],
    ));
    let x = Value::from(Tensor::new(&[2], &[0f32, 1.0]));
    let error = whole.compile(&Options::default()).unwrap().report_in_parts(&[("x", &x)]).unwrap_err();
    assert!(matches!(&error, Error::Invalid(reason) if reason.contains("one report")), "{error}");
}

/// Parts inside of a loop that the host runs count all their runs.
#[test]
fn parts_of_a_loop_of_the_host_run_several_times() {
    let compiled = growing().compile(&Options::default()).unwrap();
    let inputs = [("x", Tensor::new(&[2], &[1f32, 1.0])), ("limit", Tensor::new(&[], &[20f32])), ("go", truth(true))];
    let report = report(&compiled, &inputs);
    let step = report.host.iter().find(|step| step.node == "last").unwrap();
    assert_eq!((step.runs, step.operator.as_str()), (1, "Loop"));
    let body = report.parts.iter().find(|part| !part.report.kernels.is_empty()).unwrap();
    assert!(body.runs == 3 && body.report.kernels.iter().all(|kernel| kernel.runs == 3), "{report}");
    assert!(body.report.kernels.iter().flat_map(|k| &k.nodes).all(|n| n.starts_with("last/")), "{report}");
}

/// A sequence that only the body of a loop reads stays until the last step.
#[test]
fn a_loop_reads_a_sequence_around_it_in_each_step() {
    let untyped = |name: &str| {
        let mut value = tensor(name, FLOAT, None);
        value.r#type = None;
        value
    };
    let body = graph(
        vec![tensor("i", INT64, Some(&[])), tensor("go", BOOL, Some(&[])), untyped("v")],
        vec![],
        vec![
            node("SequenceAt", &["parts", "i"], &["part"]),
            node("SequenceInsert", &["v", "part"], &["longer"]),
            node("Identity", &["go"], &["again"]),
        ],
        vec![tensor("again", BOOL, None), untyped("longer")],
    );
    let compiled = compile(&model(graph(
        vec![tensor("x", FLOAT, Some(&["n"])), tensor("size", INT64, Some(&[]))],
        vec![],
        vec![
            node("SplitToSequence", &["x", "size"], &["parts"]),
            node("SequenceLength", &["parts"], &["count"]),
            node("SequenceEmpty", &[], &["none"]),
            with_graph(node("Loop", &["count", "", "none"], &["all"]), "body", body),
            with_int(node("ConcatFromSequence", &["all"], &["y"]), "axis", 0),
        ],
        vec![tensor("y", FLOAT, None)],
    )));
    let x = Tensor::new(&[5], &[1f32, 2.0, 3.0, 4.0, 5.0]);
    let y = &compiled.run(&[("x", &x), ("size", &Tensor::new(&[], &[2i64]))]).unwrap()[0];
    assert_eq!(y, &x);
}
