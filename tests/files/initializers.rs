//! Tensors that a file stores: sparse ones, defaults of inputs, and those that are wrong.

use crate::onnx::{FLOAT, INT64, bytes, floats, graph, integers, model, node, tensor, with_graph};
use tilewright::internal::graph::proto::{GraphProto, SparseTensorProto, TensorProto};
use tilewright::{DType, Error, Limits, Model, Options, Result, Tensor};

const BOOL: i32 = crate::onnx::BOOL;

fn run(model: &Model, inputs: &[(&str, &Tensor)]) -> Result<Vec<f32>> {
    Ok(model.compile(&Options::default())?.run(inputs)?[0].to_vec())
}

fn sparse(dims: &[i64], values: TensorProto, indices: TensorProto) -> SparseTensorProto {
    SparseTensorProto { values: Some(values), indices: Some(indices), dims: dims.to_vec() }
}

/// `x + w`, with `w` sparse.
fn with_sparse(w: SparseTensorProto) -> GraphProto {
    let shape: Vec<String> = w.dims.iter().map(i64::to_string).collect();
    let shape: Vec<&str> = shape.iter().map(String::as_str).collect();
    let x = vec![tensor("x", FLOAT, Some(&shape))];
    let add = graph(x, vec![], vec![node("Add", &["x", "w"], &["y"])], vec![tensor("y", FLOAT, None)]);
    GraphProto { sparse_initializer: vec![w], ..add }
}

#[test]
fn sparse_initializers_have_linear_indices_or_subscripts() {
    let x = Tensor::new(&[2, 3], &[10f32; 6]);
    for indices in [integers("i", &[2], &[1, 5]), integers("i", &[2, 2], &[0, 1, 1, 2])] {
        let w = sparse(&[2, 3], floats("w", &[2], &[7.0, 8.0]), indices);
        assert_eq!(run(&model(with_sparse(w)), &[("x", &x)]).unwrap(), [10.0, 17.0, 10.0, 10.0, 10.0, 18.0]);
    }
    let none = sparse(&[2, 3], floats("w", &[0], &[]), integers("i", &[0], &[]));
    assert_eq!(run(&model(with_sparse(none)), &[("x", &x)]).unwrap(), [10.0; 6]);
}

#[test]
fn a_graph_inside_of_a_node_may_have_sparse_initializers() {
    let branch = |value: f32| {
        let w = sparse(&[2], floats("w", &[1], &[value]), integers("i", &[1], &[1]));
        let add = graph(vec![], vec![], vec![node("Add", &["x", "w"], &["r"])], vec![tensor("r", FLOAT, None)]);
        GraphProto { sparse_initializer: vec![w], ..add }
    };
    let choose = with_graph(node("If", &["go"], &["y"]), "then_branch", branch(5.0));
    let model = model(graph(
        vec![tensor("x", FLOAT, Some(&["2"])), tensor("go", BOOL, Some(&[]))],
        vec![],
        vec![with_graph(choose, "else_branch", branch(6.0))],
        vec![tensor("y", FLOAT, None)],
    ));
    let x = Tensor::new(&[2], &[1f32, 1.0]);
    for (go, y) in [(true, [1f32, 6.0]), (false, [1.0, 7.0])] {
        let go = Tensor { dtype: DType::Bool, shape: vec![], data: vec![go as u8].into() };
        assert_eq!(run(&model, &[("x", &x), ("go", &go)]).unwrap(), y);
    }
}

#[test]
fn sparse_initializers_that_are_wrong_or_too_large_are_refused() {
    let two = || floats("w", &[2], &[7.0, 8.0]);
    for (indices, what) in [
        (integers("i", &[2], &[1, 6]), "outside"),
        (integers("i", &[2], &[-1, 5]), "outside"),
        (integers("i", &[2, 2], &[0, 3, 1, 2]), "outside"),
        (integers("i", &[2], &[5, 1]), "behind"),
        (integers("i", &[2], &[1, 1]), "behind"),
        (integers("i", &[3], &[1, 2, 3]), "indices"),
    ] {
        let error =
            model(with_sparse(sparse(&[2, 3], two(), indices))).compile_module(&Options::default()).unwrap_err();
        assert!(matches!(&error, Error::Invalid(m) if m.contains(what) && m.contains("`w`")), "{error}");
    }
    // small in the file, 256 MiB as a tensor
    let large = model(with_sparse(sparse(&[1 << 26], two(), integers("i", &[2], &[1, 5]))));
    let options = Options { limits: Limits { constant_bytes: 100 << 20, ..Limits::default() }, ..Options::default() };
    let error = large.compile_module(&options).unwrap_err();
    assert!(matches!(&error, Error::Limit(m) if m.contains("`w`") && m.contains("--max-memory")), "{error}");
}

/// `x + w`, with a default for `w`.
fn with_default() -> Model {
    model(graph(
        vec![tensor("w", FLOAT, Some(&["n"])), tensor("x", FLOAT, Some(&["n"]))],
        vec![floats("w", &[2], &[1.0, 2.0])],
        vec![node("Add", &["x", "w"], &["y"])],
        vec![tensor("y", FLOAT, None)],
    ))
}

#[test]
fn an_input_with_a_default_is_a_constant_until_it_is_given() {
    let names = |model: &Model| model.inputs().iter().map(|i| i.name.clone()).collect::<Vec<_>>();
    let model = with_default();
    let (x, w) = (Tensor::new(&[2], &[10f32, 20.0]), Tensor::new(&[2], &[5f32, 6.0]));
    assert_eq!((names(&model), model.defaults()[0].name.as_str()), (vec!["x".to_string()], "w"));
    assert_eq!(run(&model, &[("x", &x)]).unwrap(), [11.0, 22.0]);
    let given = model.clone().with_inputs(&["w"]).unwrap();
    assert_eq!((names(&given), given.defaults().len()), (vec!["w".to_string(), "x".to_string()], 0));
    assert_eq!(run(&given, &[("x", &x), ("w", &w)]).unwrap(), [15.0, 26.0]);
    let error = run(&given, &[("x", &x)]).unwrap_err();
    assert!(error.to_string().contains("`w`"), "{error}");
    let error = model.with_inputs(&["v"]).err().unwrap();
    assert!(matches!(&error, Error::Invalid(m) if m.contains("`v`")), "{error}");
}

#[test]
fn a_default_that_decides_a_shape_may_be_given() {
    let model = model(graph(
        vec![tensor("x", FLOAT, Some(&["2", "3"])), tensor("to", INT64, Some(&["k"]))],
        vec![integers("to", &[1], &[6])],
        vec![node("Reshape", &["x", "to"], &["y"])],
        vec![tensor("y", FLOAT, None)],
    ));
    let x = Tensor::zeros(DType::F32, &[2, 3]);
    let given = model.clone().with_inputs(&["to"]).unwrap().compile(&Options::default()).unwrap();
    for to in [vec![3i64, 2], vec![6, 1]] {
        let outputs = given.run(&[("x", &x), ("to", &Tensor::new(&[2], &to))]).unwrap();
        assert_eq!(outputs[0].shape, to);
    }
    assert_eq!(model.compile(&Options::default()).unwrap().run(&[("x", &x)]).unwrap()[0].shape, [6]);
}

#[test]
fn two_initializers_of_one_name_are_refused() {
    let two = graph(
        vec![tensor("x", FLOAT, Some(&["1"]))],
        vec![floats("w", &[1], &[1.0]), floats("w", &[1], &[2.0])],
        vec![node("Add", &["x", "w"], &["y"])],
        vec![tensor("y", FLOAT, None)],
    );
    let error = Model::parse(&bytes(two, 17), "nowhere").err().unwrap();
    assert!(matches!(&error, Error::Invalid(m) if m.contains("two initializers are named `w`")), "{error}");
}

#[test]
fn stored_integers_outside_of_their_type_are_refused() {
    let stored = |data_type: i32, value: i32| {
        let w = TensorProto {
            name: "w".into(),
            data_type,
            dims: vec![1],
            int32_data: vec![value],
            ..TensorProto::default()
        };
        let cast = crate::onnx::with_int(node("Cast", &["w"], &["v"]), "to", FLOAT.into());
        let nodes = vec![cast, node("Add", &["x", "v"], &["y"])];
        let file = graph(vec![tensor("x", FLOAT, Some(&["1"]))], vec![w], nodes, vec![tensor("y", FLOAT, None)]);
        run(&Model::parse(&bytes(file, 17), "nowhere")?, &[("x", &Tensor::new(&[1], &[0f32]))])
    };
    let (u8, i8, u16, i16) = (2, 3, 4, 5);
    for (data_type, value) in [(i8, 300), (i8, -129), (u8, 256), (u8, -1), (u16, 1 << 16), (i16, 1 << 15)] {
        let error = stored(data_type, value).unwrap_err();
        assert!(matches!(&error, Error::Invalid(m) if m.contains(&value.to_string())), "{error}");
    }
    for (data_type, value) in [(i8, -128), (u8, 255), (u16, 65535), (i16, -32768)] {
        assert_eq!(stored(data_type, value).unwrap(), [value as f32]);
    }
}
