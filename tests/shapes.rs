//! Values of inputs that decide shapes bind like dimensions.

mod common;

use prost::Message;
use std::sync::Arc;
use tilewright::internal::graph::proto::{
    DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto, TensorTypeProto,
    TypeProto, ValueInfoProto,
};
use tilewright::{DType, Error, Model, Options, Tensor};

fn info(name: &str, elem_type: i32, shape: Option<&[i64]>) -> ValueInfoProto {
    let dims = |shape: &[i64]| TensorShapeProto {
        dim: shape.iter().map(|&d| DimensionProto { dim_value: Some(d), dim_param: None }).collect(),
    };
    let tensor_type = TensorTypeProto { elem_type, shape: shape.map(dims) };
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type: Some(tensor_type) }) }
}

fn node(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    let input = inputs.iter().map(|i| i.to_string()).collect();
    NodeProto { op_type: op.into(), name: output.into(), input, output: vec![output.into()], ..NodeProto::default() }
}

fn model(nodes: Vec<NodeProto>, inputs: Vec<ValueInfoProto>, outputs: Vec<ValueInfoProto>) -> Model {
    let graph =
        GraphProto { node: nodes, name: "shapes".into(), input: inputs, output: outputs, ..GraphProto::default() };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
    let proto = ModelProto { ir_version: 8, graph: Some(graph), opset_import, ..ModelProto::default() };
    Model::parse(&proto.encode_to_vec(), "nowhere").unwrap()
}

/// `y = Expand(Reshape(x, shape) + 1, size)`, where the two shapes are inputs.
fn reshaped() -> Model {
    model(
        vec![node("Reshape", &["x", "shape"], "r"), node("Add", &["r", "r"], "d"), node("Expand", &["d", "size"], "y")],
        vec![info("x", 1, Some(&[6])), info("shape", 7, Some(&[2])), info("size", 7, Some(&[3]))],
        vec![info("y", 1, None)],
    )
}

#[test]
fn values_that_decide_shapes_are_taken_from_each_run() {
    let compiled = reshaped().compile(&Options::default()).unwrap();
    let x = Tensor::new(&[6], &[0f32, 1.0, 2.0, 3.0, 4.0, 5.0]);
    for (shape, size) in [([2i64, 3], [2i64, 2, 3]), ([3, 2], [1, 3, 2]), ([2, 3], [2, 2, 3]), ([1, 6], [2, 1, 6])] {
        let [shape, size] = [Tensor::new(&[2], &shape), Tensor::new(&[3], &size)];
        let y = &compiled.run(&[("x", &x), ("shape", &shape), ("size", &size)]).unwrap()[0];
        assert_eq!(y.shape, size.to_vec::<i64>());
        let count = y.len() / 6;
        let once: Vec<f32> = x.to_vec::<f32>().iter().map(|v| v + v).collect();
        assert_eq!(y.to_vec::<f32>(), once.repeat(count));
    }
    let [one, two] = [[2i64, 3], [3, 2]].map(|shape| {
        let [shape, size] = [Tensor::new(&[2], &shape), Tensor::new(&[3], &[1i64, shape[0], shape[1]])];
        compiled.session(&[("x", &x), ("shape", &shape), ("size", &size)]).unwrap()
    });
    assert!(!Arc::ptr_eq(&one, &two));
}

#[test]
fn only_values_that_decide_shapes_make_a_new_binding() {
    let model = model(
        vec![node("ReduceSum", &["x", "axes"], "s"), node("Mul", &["s", "factor"], "y")],
        vec![info("x", 1, Some(&[2, 3])), info("axes", 7, Some(&[1])), info("factor", 1, Some(&[1]))],
        vec![info("y", 1, None)],
    );
    let compiled = model.compile(&Options::default()).unwrap();
    let x = Tensor::new(&[2, 3], &[1f32; 6]);
    let session = |axis: i64, factor: f32| {
        let [axes, factor] = [Tensor::new(&[1], &[axis]), Tensor::new(&[1], &[factor])];
        compiled.session(&[("x", &x), ("axes", &axes), ("factor", &factor)]).unwrap()
    };
    assert!(Arc::ptr_eq(&session(0, 1.0), &session(0, 2.0)));
    assert!(!Arc::ptr_eq(&session(0, 1.0), &session(1, 1.0)));
}

#[test]
fn a_missing_value_is_named() {
    let error = reshaped().compile_module(&Options::default()).err().unwrap();
    assert!(matches!(error, Error::Unsupported(_)));
    assert!(error.to_string().contains("`shape`"), "{error}");
    let values = [("shape".to_string(), Arc::new(Tensor::new(&[2], &[2i64, 3])))].into();
    let error = reshaped().compile_module(&Options { values, ..Options::default() }).err().unwrap();
    assert!(error.to_string().contains("`size`"), "{error}");
    let values = [("shape".to_string(), Arc::new(Tensor::zeros(DType::F32, &[2])))].into();
    let error = reshaped().compile_module(&Options { values, ..Options::default() }).err().unwrap();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
}
