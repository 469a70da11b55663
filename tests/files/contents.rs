//! Contents of a file beside its nodes: functions, nodes that nothing needs, branches that never run.

use crate::onnx::{DOUBLE, FLOAT, STRING, bytes, floats, graph, integers, model, node, tensor, with_graph, with_int};
use prost::Message;
use tilewright::internal::graph::proto::{
    AttributeProto, FunctionProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
};
use tilewright::{DType, Dim, Error, Kind, Model, Options, Tensor};

fn run(model: &Model, x: &Tensor) -> tilewright::Result<Vec<f32>> {
    Ok(model.compile(&Options::default())?.run(&[("x", x)])?[0].to_vec())
}

fn function(name: &str, opset: i64, nodes: Vec<NodeProto>) -> FunctionProto {
    FunctionProto {
        name: name.into(),
        domain: "mine".into(),
        input: vec!["a".into(), "b".into()],
        output: vec!["c".into()],
        node: nodes,
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: opset }],
        ..FunctionProto::default()
    }
}

fn mine(mut node: NodeProto) -> NodeProto {
    node.domain = "mine".into();
    node
}

/// A file whose graph is `y = twice(x, x)` and that has these functions.
fn calling(functions: Vec<FunctionProto>, call: NodeProto) -> tilewright::Result<Model> {
    let graph =
        graph(vec![tensor("x", FLOAT, Some(&["2", "3"]))], vec![], vec![mine(call)], vec![tensor("y", FLOAT, None)]);
    let mut proto = ModelProto::decode(&bytes(graph, 17)[..]).unwrap();
    proto.functions = functions;
    Model::parse(&proto.encode_to_vec(), "nowhere")
}

#[test]
fn calls_are_replaced_by_the_body() {
    // the inner function sums along the axis that the outer one's call says, in an older operator set
    let mut sum = node("ReduceSum", &["t"], &["c"]);
    let refers = |name: &str, to: &str, ty: i32| AttributeProto {
        name: name.into(),
        ref_attr_name: to.into(),
        r#type: ty,
        ..AttributeProto::default()
    };
    sum.attribute.push(refers("axes", "axes", 7));
    let inner = function("sum", 11, vec![node("Mul", &["a", "b"], &["t"]), sum]);
    let mut call = mine(node("sum", &["a", "s"], &["c"]));
    call.attribute.push(refers("axes", "along", 7));
    let outer = function("twice", 17, vec![node("Add", &["a", "b"], &["s"]), call]);
    let mut top = node("twice", &["x", "x"], &["y"]);
    let ints = vec![1];
    top.attribute.push(AttributeProto { name: "along".into(), ints, r#type: 7, ..AttributeProto::default() });
    let model = calling(vec![inner, outer], top).unwrap();
    let x = Tensor::new(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(run(&model, &x).unwrap(), [28.0, 154.0]);
}

#[test]
fn functions_that_call_themselves_or_grow_without_bound_are_refused() {
    let own = function("f", 17, vec![mine(node("f", &["a", "b"], &["c"]))]);
    let error = calling(vec![own], node("f", &["x", "x"], &["y"])).err().unwrap();
    assert!(matches!(&error, Error::Invalid(reason) if reason.contains("too deep")), "{error}");
    let level = |i: usize| {
        let [a, b] = ["c", "d"].map(|result| mine(node(&format!("f{}", i + 1), &["a", "b"], &[result])));
        function(&format!("f{i}"), 17, vec![b, a])
    };
    let mut functions: Vec<FunctionProto> = (0..40).map(level).collect();
    functions.push(function("f40", 17, vec![node("Add", &["a", "b"], &["c"])]));
    let error = calling(functions, node("f0", &["x", "x"], &["y"])).err().unwrap();
    assert!(matches!(error, Error::Limit(_)), "{error}");
}

/// One of two functions would be chosen by their order in the file.
#[test]
fn functions_and_their_operands_have_names_of_their_own() {
    let body = |op: &str| function("f", 17, vec![node(op, &["a", "b"], &["c"])]);
    let refusal = |functions: Vec<FunctionProto>, call: NodeProto| match calling(functions, call) {
        Err(Error::Invalid(reason)) => reason,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("accepted"),
    };
    let call = || node("f", &["x", "x"], &["y"]);
    let reason = refusal(vec![body("Add"), body("Mul")], call());
    assert_eq!(reason, "the file has two different functions `mine::f`");
    // also where neither is called
    let reason = refusal(vec![body("Add"), body("Mul"), function("g", 17, vec![])], node("g", &["x"], &["y"]));
    assert_eq!(reason, "the file has two different functions `mine::f`");
    let overload = |op: &str| FunctionProto { overload: "wide".into(), ..body(op) };
    let reason = refusal(vec![overload("Add"), overload("Mul")], call());
    assert_eq!(reason, "the file has two different functions `mine::f` (overload `wide`)");
    let names = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<Vec<String>>();
    let wrong = [
        (FunctionProto { input: names(&["a", "b", "a"]), ..body("Add") }, "two inputs with the name `a`"),
        (FunctionProto { output: names(&["c", "c"]), ..body("Add") }, "two outputs with the name `c`"),
        (FunctionProto { attribute: names(&["k", "k"]), ..body("Add") }, "two attributes with the name `k`"),
    ];
    for (function, what) in wrong {
        assert_eq!(refusal(vec![function], call()), format!("the function `mine::f` has {what}"));
    }
    let reason = refusal(vec![body("Add")], with_int(call(), "axis", 1));
    assert_eq!(reason, "mine::f `y`: there is no attribute `axis`: there are none");
    let declares = FunctionProto { attribute: names(&["axes"]), ..body("Add") };
    let reason = refusal(vec![declares.clone()], with_int(call(), "axis", 1));
    assert_eq!(reason, "mine::f `y`: there is no attribute `axis`: there are axes; did you mean `axes`?");
    let reason = refusal(vec![declares], with_int(with_int(call(), "axes", 1), "axes", 2));
    assert_eq!(reason, "mine::f `y`: the attribute `axes` is given twice");

    // copies of one function, and another overload, are no others
    let x = Tensor::new(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let sum = [2.0, 4.0, 6.0, 8.0, 10.0, 12.0];
    assert_eq!(run(&calling(vec![body("Add"), body("Add")], call()).unwrap(), &x).unwrap(), sum);
    assert_eq!(run(&calling(vec![body("Add"), overload("Mul")], call()).unwrap(), &x).unwrap(), sum);
}

#[test]
fn a_function_may_return_an_operand_as_it_is() {
    let x = Tensor::new(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let returns = |output: &str| FunctionProto { output: vec![output.into()], ..function("f", 17, vec![]) };
    let model = calling(vec![returns("a")], node("f", &["x", "x"], &["y"])).unwrap();
    assert_eq!(run(&model, &x).unwrap(), x.to_vec::<f32>());
    // the operand is read by the body as well
    let both = FunctionProto {
        output: vec!["c".into(), "a".into()],
        ..function("g", 17, vec![node("Add", &["a", "b"], &["c"])])
    };
    let outer = function("f", 17, vec![mine(node("g", &["a", "b"], &["s", "t"])), node("Mul", &["s", "t"], &["c"])]);
    let model = calling(vec![both, outer], node("f", &["x", "x"], &["y"])).unwrap();
    assert_eq!(run(&model, &x).unwrap(), [2.0, 8.0, 18.0, 32.0, 50.0, 72.0]);
}

/// Nodes of a function without a name are told apart by their results: in reports, and by the seeds of random numbers.
#[test]
fn nodes_of_functions_without_names_have_those_of_their_results() {
    let unnamed =
        |op: &str, inputs: &[&str], output: &str| NodeProto { name: String::new(), ..node(op, inputs, &[output]) };
    let random = |output: &str| unnamed("RandomUniformLike", &["a"], output);
    let noise = vec![random("r"), random("s"), unnamed("Sub", &["r", "s"], "d"), unnamed("Add", &["b", "d"], "c")];
    let model = calling(vec![function("noisy", 17, noise)], node("noisy", &["x", "x"], &["y"])).unwrap();
    let y = run(&model, &Tensor::new(&[2, 3], &[0f32; 6])).unwrap();
    assert!(y.iter().all(|v| *v != 0.0), "{y:?}");
    let report = model.compile_module(&Options::default()).unwrap().1;
    assert_eq!(report.kernels[0].nodes, ["Add(y)"], "{report}");
    let folded = ["RandomUniformLike(noisy.1/r)", "RandomUniformLike(noisy.1/s)", "Sub(noisy.1/d)"];
    assert_eq!(report.folded, folded, "{report}");
}

#[test]
fn the_long_name_of_the_domain_is_that_of_no_other() {
    let long = |node: NodeProto| NodeProto { domain: "ai.onnx".into(), ..node };
    let nodes = vec![node("NonZero", &["x"], &["n"]), with_int(node("Cast", &["n"], &["y"]), "to", 1)];
    let nodes = nodes.into_iter().map(long).collect();
    let file = model(graph(
        vec![tensor("x", FLOAT, Some(&["4"]))],
        vec![],
        nodes,
        vec![tensor("y", FLOAT, Some(&["1", "k"]))],
    ));
    assert_eq!(run(&file, &Tensor::new(&[4], &[0f32, 2.0, 0.0, 5.0])).unwrap(), [1.0, 3.0]);
}

#[test]
fn a_range_of_doubles_has_their_digits() {
    let double = |name: &str, v: f64| TensorProto {
        name: name.into(),
        data_type: DOUBLE,
        raw_data: v.to_le_bytes().to_vec().into(),
        ..TensorProto::default()
    };
    let bounds = vec![double("start", 0.1), double("limit", 1.0), double("delta", 0.3)];
    let nodes = vec![node("Range", &["start", "limit", "delta"], &["r"]), node("Add", &["r", "x"], &["y"])];
    let inputs = vec![tensor("x", DOUBLE, Some(&["1"]))];
    let file = model(graph(inputs, bounds, nodes, vec![tensor("y", DOUBLE, None)]));
    let y = file.compile(&Options::default()).unwrap().run(&[("x", &Tensor::new(&[1], &[0f64]))]).unwrap();
    assert_eq!(y[0].to_vec::<f64>(), [0.1, 0.1 + 0.3, 0.1 + 2.0 * 0.3]);
}

#[test]
fn products_of_operands_of_other_types_are_refused() {
    const INT8: i32 = 3;
    let weights = TensorProto {
        name: "w".into(),
        data_type: INT8,
        dims: vec![2, 3],
        int32_data: vec![1, 2, 3, 4, 5, 6],
        ..TensorProto::default()
    };
    for op in ["MatMul", "Gemm"] {
        let inputs = vec![tensor("x", FLOAT, Some(&["1", "2"]))];
        let outputs = vec![tensor("y", FLOAT, None)];
        let model = model(graph(inputs, vec![weights.clone()], vec![node(op, &["x", "w"], &["y"])], outputs));
        let Err(error) = model.compile_module(&Options::default()) else { panic!("{op} is accepted") };
        assert!(
            matches!(&error, Error::Invalid(reason) if reason.contains("f32") && reason.contains("i8")),
            "{op}: {error}"
        );
    }
}

#[test]
fn what_nothing_needs_refuses_no_model() {
    let branch = |op: &str| graph(vec![], vec![], vec![node(op, &["x"], &["r"])], vec![tensor("r", FLOAT, None)]);
    let condition = with_int(node("Greater", &["one", "zero"], &["go"]), "unused", 0);
    let choose = with_graph(node("If", &["go"], &["y"]), "then_branch", branch("Neg"));
    let condition = NodeProto { attribute: vec![], ..condition };
    let file = |dead: Vec<NodeProto>| {
        let nodes = [dead, vec![condition.clone(), with_graph(choose.clone(), "else_branch", branch("Unheard"))]];
        graph(
            vec![tensor("x", FLOAT, Some(&["2"]))],
            vec![floats("one", &[], &[1.0]), floats("zero", &[], &[0.0])],
            nodes.concat(),
            vec![tensor("y", FLOAT, None)],
        )
    };
    let x = Tensor::new(&[2], &[1f32, 2.0]);
    // a constant of strings, and its reader that nobody reads
    let value = TensorProto { name: "words".into(), data_type: STRING, dims: vec![0], ..TensorProto::default() };
    let value = AttributeProto { name: "value".into(), t: Some(value), r#type: 4, ..AttributeProto::default() };
    let words = NodeProto { attribute: vec![value], ..node("Constant", &[], &["words"]) };
    let unread = vec![words, node("Identity", &["words"], &["nobody"])];
    for dead in [vec![], vec![node("Unknown", &["x"], &["nobody"])], unread] {
        assert_eq!(run(&model(file(dead)), &x).unwrap(), [-1.0, -2.0]);
    }
    let needed = graph(
        vec![tensor("x", FLOAT, Some(&["2"]))],
        vec![],
        vec![node("Unknown", &["x"], &["y"])],
        vec![tensor("y", FLOAT, None)],
    );
    let error = Model::parse(&bytes(needed, 17), "nowhere").err().unwrap();
    assert!(matches!(&error, Error::Unsupported(reason) if reason.contains("Unknown")), "{error}");
}

#[test]
fn errors_of_a_run_name_the_step() {
    let kernel = AttributeProto { name: "kernel_shape".into(), ints: vec![2], r#type: 7, ..AttributeProto::default() };
    let mut unpool = node("MaxUnpool", &["x", "at"], &["y"]);
    unpool.attribute.push(kernel);
    let inputs = vec![tensor("x", FLOAT, Some(&["1", "1", "2"])), tensor("at", 7, Some(&["1", "1", "2"]))];
    let model = model(graph(inputs, vec![], vec![unpool], vec![tensor("y", FLOAT, None)]));
    let (x, at) = (Tensor::new(&[1, 1, 2], &[1f32, 2.0]), Tensor::new(&[1, 1, 2], &[0i64, 100]));
    let error = model.compile(&Options::default()).unwrap().run(&[("x", &x), ("at", &at)]).unwrap_err();
    assert!(error.to_string().contains("step `max_unpool"), "{error}");
}

#[test]
fn outputs_are_told_as_the_file_declares_them() {
    let mut file = graph(
        vec![tensor("x", FLOAT, Some(&["n", "3"]))],
        vec![],
        vec![node("Relu", &["x"], &["y"]), node("Neg", &["x"], &["z"]), node("Abs", &["x"], &["w"])],
        vec![tensor("y", FLOAT, Some(&["n", "3"])), tensor("z", FLOAT, None), tensor("w", FLOAT, Some(&["?", "3"]))],
    );
    file.output[1].r#type = None;
    let model = model(file);
    let outputs = model.outputs();
    let row =
        |i: usize| (outputs[i].name.as_str(), outputs[i].dtype, outputs[i].shape.clone(), outputs[i].kind.clone());
    let symbol = |name: &str| Dim::Symbol(name.into());
    assert_eq!(row(0), ("y", Some(DType::F32), Some(vec![symbol("n"), Dim::Fixed(3)]), Kind::Tensor));
    assert_eq!(row(1), ("z", None, None, Kind::Tensor));
    assert_eq!(row(2), ("w", Some(DType::F32), Some(vec![symbol("w_0"), Dim::Fixed(3)]), Kind::Tensor));
    let built = Model::from_graph(model.graph(&[("n".to_string(), 2)].into()).unwrap());
    assert_eq!(built.outputs()[0].shape, Some(vec![Dim::Fixed(2), Dim::Fixed(3)]));
}

/// Exporters write the name of a value as often as it is returned, which ONNX's checker accepts.
#[test]
fn an_output_may_be_listed_twice() {
    let list = |names: [&str; 4]| names.map(|name| tensor(name, FLOAT, Some(&["2"]))).to_vec();
    let outputs = list(["y", "x", "y", "x"]);
    let model =
        model(graph(vec![tensor("x", FLOAT, Some(&["2"]))], vec![], vec![node("Neg", &["x"], &["y"])], outputs));
    let compiled = model.compile(&Options::default()).unwrap();
    let results = compiled.run(&[("x", &Tensor::new(&[2], &[1f32, -2.0]))]).unwrap();
    let results: Vec<Vec<f32>> = results.iter().map(Tensor::to_vec).collect();
    assert_eq!(results, [[-1.0, 2.0], [1.0, -2.0], [-1.0, 2.0], [1.0, -2.0]]);
}

/// The message names the node, the value and the cause.
#[test]
fn wrong_constants_are_refused_when_the_file_is_read() {
    let says = |mut node: NodeProto, constants: Vec<TensorProto>, attribute: Option<AttributeProto>, part: &str| {
        node.attribute.extend(attribute);
        let graph =
            graph(vec![tensor("x", FLOAT, Some(&["4", "6"]))], constants, vec![node], vec![tensor("y", FLOAT, None)]);
        let Err(error) = model(graph).compile(&Options::default()) else { panic!("{part}: no error") };
        let text = error.to_string();
        assert!(matches!(error, Error::Invalid(_)) && text.contains("`y`") && text.contains(part), "{text}");
    };
    let updates = || floats("u", &[1, 6], &[1.0; 6]);
    let scatter = node("ScatterND", &["x", "k", "u"], &["y"]);
    says(scatter, vec![integers("k", &[1, 1], &[9]), updates()], None, "index 9 is outside of dimension 0 of extent 4");
    let elements = node("ScatterElements", &["x", "k", "u"], &["y"]);
    let constants = vec![integers("k", &[1, 6], &[0, 0, 0, 0, -5, 0]), updates()];
    says(elements, constants, None, "index -5 is outside of dimension 0 of extent 4");
    let gather = node("GatherND", &["x", "k"], &["y"]);
    says(gather, vec![integers("k", &[2, 2], &[3, 5, 3, 6])], None, "index 6 is outside of dimension 1 of extent 6");
    let gather = node("GatherElements", &["x", "k"], &["y"]);
    says(gather, vec![integers("k", &[1, 6], &[4; 6])], None, "index 4 is outside of dimension 0 of extent 4");
    let reverse = node("ReverseSequence", &["x", "k"], &["y"]);
    says(reverse, vec![integers("k", &[6], &[4, 4, 5, 0, 0, 0])], None, "a length of 5 is not within 0 to 4");
    let clip = node("Clip", &["x", "k"], &["y"]);
    says(clip, vec![floats("k", &[6], &[0.0; 6])], None, "a bound of shape [6] is not one number");
    let perm = AttributeProto { name: "perm".into(), floats: vec![1.0, 0.0], r#type: 6, ..AttributeProto::default() };
    let transpose = node("Transpose", &["x"], &["y"]);
    says(transpose, vec![], Some(perm), "its attribute `perm` has the wrong type");
}
