//! Models that depend on data run in parts: sizes that follow from data, branches, loops, sequences.

use crate::onnx::{BOOL, FLOAT, INT64, floats, graph, integers, model, node, tensor, with_graph, with_int};
use tilewright::{Compiled, DType, Error, Model, Options, Tensor, Value};

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
