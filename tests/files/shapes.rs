//! Values of inputs that decide shapes bind like dimensions.

use crate::onnx::{FLOAT, INT64, graph, integers, model, node, tensor, with_graph, with_int};
use std::sync::Arc;
use tilewright::{DType, Error, Model, Module, Options, Session, Tensor, Value};

/// `y = Expand(2 · Reshape(x, shape), size)`, where the two shapes are inputs.
fn reshaped() -> Model {
    model(graph(
        vec![
            tensor("x", FLOAT, Some(&["6"])),
            tensor("shape", INT64, Some(&["2"])),
            tensor("size", INT64, Some(&["3"])),
        ],
        vec![],
        vec![
            node("Reshape", &["x", "shape"], &["r"]),
            node("Add", &["r", "r"], &["d"]),
            node("Expand", &["d", "size"], &["y"]),
        ],
        vec![tensor("y", FLOAT, None)],
    ))
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
fn threads_that_need_one_binding_compile_it_once() {
    let compiled = reshaped().compile(&Options::default()).unwrap();
    let x = Tensor::new(&[6], &[1f32; 6]);
    let (shape, size) = (Tensor::new(&[2], &[2i64, 3]), Tensor::new(&[3], &[1i64, 2, 3]));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| compiled.run(&[("x", &x), ("shape", &shape), ("size", &size)]).unwrap());
        }
    });
    assert_eq!(compiled.compilations(), 1);
}

#[test]
fn only_values_that_decide_shapes_make_a_new_binding() {
    let model = model(graph(
        vec![
            tensor("x", FLOAT, Some(&["2", "3"])),
            tensor("axes", INT64, Some(&["1"])),
            tensor("factor", FLOAT, Some(&["1"])),
        ],
        vec![],
        vec![node("ReduceSum", &["x", "axes"], &["s"]), node("Mul", &["s", "factor"], &["y"])],
        vec![tensor("y", FLOAT, None)],
    ));
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

#[test]
fn a_saved_module_keeps_its_values() {
    let [shape, size] = [Tensor::new(&[2], &[2i64, 3]), Tensor::new(&[3], &[1i64, 2, 3])];
    let values = [("shape", &shape), ("size", &size)].map(|(name, value)| (name.to_string(), Arc::new(value.clone())));
    let (module, _) = reshaped().compile_module(&Options { values: values.into(), ..Options::default() }).unwrap();
    let path = std::env::temp_dir().join(format!("tilewright-values-{}.tw", std::process::id()));
    module.save(&path).unwrap();
    // SAFETY: the module was written above.
    let module = unsafe { Module::load(&path) }.unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(module.values().keys().collect::<Vec<_>>(), ["shape", "size"]);
    let session = Session::new(module.into(), 1).unwrap();
    let x = Tensor::new(&[6], &[0f32, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(session.run(&[("x", &x), ("shape", &shape), ("size", &size)]).unwrap()[0].shape, [1, 2, 3]);
    let other = Tensor::new(&[2], &[3i64, 2]);
    let error = session.run(&[("x", &x), ("shape", &other), ("size", &size)]).unwrap_err();
    assert!(matches!(&error, Error::Invalid(reason) if reason.contains("`shape`")), "{error}");
}

/// Of hundreds of operands some kernels each join a part, and each writes its part of the result.
#[test]
fn a_concatenation_of_hundreds_of_values_copies_each_once() {
    const COUNT: usize = 300;
    let names: Vec<String> = (0..COUNT).map(|i| format!("x{i}")).collect();
    let operands: Vec<&str> = names.iter().map(String::as_str).collect();
    let model = model(graph(
        names.iter().map(|name| tensor(name, FLOAT, Some(&["2", "3"]))).collect(),
        vec![],
        vec![with_int(node("Concat", &operands, &["y"]), "axis", 1)],
        vec![tensor("y", FLOAT, None)],
    ));
    let (module, report) = model.compile_module(&Options::default()).unwrap();
    assert_eq!((report.kernels.len(), report.arena_bytes), (3, 0), "{report}");
    assert!(report.kernels.iter().all(|kernel| kernel.nodes == ["y"]), "{report}");
    let inputs: Vec<Tensor> = (0..COUNT).map(|i| Tensor::seeded(DType::F32, &[2, 3], 0, i as u64, 2)).collect();
    let named: Vec<(&str, &Tensor)> = operands.iter().copied().zip(&inputs).collect();
    let y = Session::new(Arc::new(module), 1).unwrap().run(&named).unwrap()[0].to_vec::<f32>();
    for row in 0..2 {
        for (i, x) in inputs.iter().enumerate() {
            let at = row * 3 * COUNT + 3 * i;
            assert_eq!(y[at..at + 3], x.to_vec::<f32>()[3 * row..3 * row + 3], "row {row} of operand {i}");
        }
    }
}

/// As in voice detectors: a rate chooses a branch, and the other one does not fit the input.
#[test]
fn a_branch_that_does_not_fit_is_not_looked_at_where_its_condition_is_given() {
    let branch = |op: &str, operands: &[&str]| {
        graph(vec![], vec![], vec![node(op, operands, &["r"])], vec![tensor("r", FLOAT, None)])
    };
    let choose = with_graph(node("If", &["wide"], &["y"]), "then_branch", branch("Neg", &["x"]));
    let rate = model(graph(
        vec![tensor("x", FLOAT, Some(&["2", "3"])), tensor("rate", INT64, Some(&[]))],
        vec![integers("sixteen", &[], &[16000])],
        vec![
            node("Equal", &["rate", "sixteen"], &["wide"]),
            with_graph(choose, "else_branch", branch("MatMul", &["x", "x"])),
        ],
        vec![tensor("y", FLOAT, None)],
    ));
    let compiled = rate.compile(&Options::default()).unwrap();
    let x = Tensor::new(&[2, 3], &[1f32; 6]);
    let run = |rate: i64| compiled.run(&[("x", &x), ("rate", &Tensor::new(&[], &[rate]))]);
    assert_eq!(run(16000).unwrap()[0].to_vec::<f32>(), [-1f32; 6]);
    assert!(matches!(run(8000), Err(Error::Invalid(_))));
}

#[test]
fn tensors_whose_extents_are_not_those_of_their_bytes_are_refused() {
    let x = Tensor::new(&[6], &[1f32; 6]);
    let (shape, size) = (Tensor::new(&[2], &[2i64, 3]), Tensor::new(&[3], &[1i64, 2, 3]));
    let short = Tensor { shape: vec![2], ..Tensor::new(&[1], &[2i64]) };
    let negative = Tensor { shape: vec![-1, -2], ..shape.clone() };
    let huge = Tensor { shape: vec![i64::MAX, 2], ..Tensor::zeros(DType::I64, &[0]) };
    for wrong in [short, negative, huge] {
        let invalid =
            |error: Error| assert!(matches!(&error, Error::Invalid(why) if why.contains("`shape`")), "{error}");
        let inputs = [("x", &x), ("shape", &wrong), ("size", &size)];
        let compiled = reshaped().compile(&Options::default()).unwrap();
        invalid(compiled.run(&inputs).unwrap_err());
        invalid(compiled.session(&inputs).err().unwrap());
        let values = [("x", &x), ("shape", &wrong), ("size", &size)].map(|(n, t)| (n, Value::from(t.clone())));
        let values: Vec<(&str, &Value)> = values.iter().map(|(name, value)| (*name, value)).collect();
        invalid(compiled.run_values(&values).unwrap_err());
        let values = [("shape", &wrong), ("size", &size)].map(|(n, t)| (n.to_string(), Arc::new(t.clone()))).into();
        invalid(reshaped().compile_module(&Options { values, ..Options::default() }).err().unwrap());
    }
}
