//! Arithmetic of constants: every type of a range, and divisions by zero.

use crate::onnx::{INT64, graph, integers, model, node, tensor};
use tilewright::internal::graph::proto::TensorProto;
use tilewright::{DType, Options, Result, Tensor};

/// `op` of constants.
fn constant(op: &str, inputs: &[TensorProto], ty: i32) -> Result<Tensor> {
    let names: Vec<&str> = inputs.iter().map(|t| t.name.as_str()).collect();
    let file = graph(vec![], inputs.to_vec(), vec![node(op, &names, &["y"])], vec![tensor("y", ty, None)]);
    Ok(model(file).compile(&Options::default())?.run(&[])?.remove(0))
}

#[test]
fn ranges_are_of_every_type_that_onnx_allows() {
    let short = |name: &str, value: i32| TensorProto {
        name: name.into(),
        data_type: 5,
        int32_data: vec![value],
        ..TensorProto::default()
    };
    let y = constant("Range", &[short("a", 7), short("b", -4), short("c", -3)], 5).unwrap();
    assert_eq!((y.dtype, y.to_vec::<i16>()), (DType::I16, vec![7, 4, 1, -2]));
    let double = |name: &str, value: f64| TensorProto {
        name: name.into(),
        data_type: 11,
        double_data: vec![value],
        ..TensorProto::default()
    };
    let y = constant("Range", &[double("a", 0.1), double("b", 1.0), double("c", 0.3)], 11).unwrap();
    assert_eq!(y.to_vec::<f64>(), [0.1, 0.1 + 0.3, 0.1 + 2.0 * 0.3]);
    let error = constant("Range", &[short("a", 7), short("b", 4), double("c", 1.0)], 5).unwrap_err();
    assert!(error.to_string().contains("different types: i16, i16, f64"), "{error}");
}

/// As where the divisor comes with a run.
#[test]
fn integers_divided_by_a_constant_zero_are_zero() {
    for op in ["Div", "Mod"] {
        let nodes = vec![node(op, &["x", "z"], &["y"])];
        let file = |initializers, inputs| graph(inputs, initializers, nodes.clone(), vec![tensor("y", INT64, None)]);
        let x = || tensor("x", INT64, Some(&["3"]));
        let z = integers("z", &[3], &[2, 0, 0]);
        let known = model(file(vec![z], vec![x()])).compile(&Options::default()).unwrap();
        let later = model(file(vec![], vec![x(), tensor("z", INT64, Some(&["3"]))]));
        let later = later.compile(&Options::default()).unwrap();
        let (x, z) = (Tensor::new(&[3], &[7i64, 8, -9]), Tensor::new(&[3], &[2i64, 0, 0]));
        let y = known.run(&[("x", &x)]).unwrap()[0].to_vec::<i64>();
        assert_eq!(y, later.run(&[("x", &x), ("z", &z)]).unwrap()[0].to_vec::<i64>(), "{op}");
        let constants = constant(op, &[integers("x", &[1], &[7]), integers("z", &[1], &[0])], INT64).unwrap();
        assert_eq!((y[1], constants.to_vec::<i64>()[0]), (0, 0), "{op}");
    }
}
