//! Limits of memory and work: what a small file may ask for, and what an empty tensor may be.

mod common;

use common::fixtures;
use prost::Message;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tilewright::internal::graph::proto::DimensionProto;
use tilewright::internal::graph::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TensorTypeProto, TypeProto, ValueInfoProto,
};
use tilewright::internal::language;
use tilewright::{DType, Error, GraphBuilder, Limits, Model, Options, Result, Tensor};

fn declared(name: &str, shape: &[i64]) -> ValueInfoProto {
    let dim = shape.iter().map(|&d| DimensionProto { dim_value: Some(d), dim_param: None }).collect();
    let tensor_type = Some(TensorTypeProto { elem_type: 1, shape: Some(TensorShapeProto { dim }) });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type, ..TypeProto::default() }) }
}

fn integers(name: &str, values: &[i64]) -> TensorProto {
    let (dims, int64_data) = (vec![values.len() as i64], values.to_vec());
    TensorProto { name: name.into(), data_type: 7, dims, int64_data, ..TensorProto::default() }
}

fn node(op: &str, input: &[&str], attributes: &[(&str, i64)]) -> NodeProto {
    let attribute =
        |&(name, i): &(&str, i64)| AttributeProto { name: name.into(), i, r#type: 2, ..AttributeProto::default() };
    NodeProto {
        op_type: op.into(),
        input: input.iter().map(|i| i.to_string()).collect(),
        output: vec!["y".into()],
        attribute: attributes.iter().map(attribute).collect(),
        ..NodeProto::default()
    }
}

/// A model of these nodes on an input `x` of this shape.
fn model(nodes: Vec<NodeProto>, shape: &[i64], initializer: Vec<TensorProto>) -> Model {
    model_of(nodes, vec![declared("x", shape)], initializer)
}

fn model_of(nodes: Vec<NodeProto>, input: Vec<ValueInfoProto>, initializer: Vec<TensorProto>) -> Model {
    let graph = GraphProto {
        node: nodes,
        input,
        output: vec![ValueInfoProto { name: "y".into(), r#type: None }],
        initializer,
        ..GraphProto::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 18 }];
    let bytes = ModelProto { graph: Some(graph), opset_import, ..ModelProto::default() }.encode_to_vec();
    Model::parse(&bytes, "nowhere").unwrap()
}

fn with(limits: Limits) -> Options {
    Options { threads: 1, limits, ..Options::default() }
}

/// The message of the limit that a compilation exceeds.
fn limit(model: &Model, limits: Limits) -> String {
    match model.compile_module(&with(limits)) {
        Err(Error::Limit(message)) => message,
        other => panic!("{:?}", other.map(|c| c.1)),
    }
}

#[test]
fn inputs_outputs_and_intermediate_tensors_are_limited_together() {
    let large = model(vec![node("Relu", &["x"], &[])], &[1 << 28, 2], vec![]);
    let message = limit(&large, Limits::default());
    assert!(message.contains("4096.0 MiB") && message.contains("`--max-memory`"), "{message}");
    large.compile_module(&with(Limits::within(5 << 30))).unwrap();

    let small = model(vec![node("Relu", &["x"], &[])], &[1000], vec![]);
    small.compile_module(&with(Limits::within(8000))).unwrap();
    limit(&small, Limits::within(7999));
    let mut builder = GraphBuilder::new("products");
    let x = builder.input("x", DType::F32, &[8, 8]);
    let product = builder.matmul(x, x).unwrap();
    let again = builder.matmul(product, product).unwrap();
    builder.output("y", again).unwrap();
    let products = Model::from_graph(builder.build().unwrap());
    // input and output alone are within this
    assert!(limit(&products, Limits { run_bytes: 512, ..Limits::default() }).contains("intermediate"));
}

#[test]
fn computed_constants_are_limited_by_bytes_and_by_work() {
    let mut square = node("ConstantOfShape", &["s"], &[]);
    square.output = vec!["a".into()];
    let product = |n| model(vec![square.clone(), node("MatMul", &["a", "a"], &[])], &[1], vec![integers("s", &[n, n])]);
    product(64).compile_module(&with(Limits::default())).unwrap();
    // 4096³ multiply-adds would take minutes
    let message = limit(&product(4096), Limits::default());
    assert!(message.contains("matmul") && message.contains("`--max-work`"), "{message}");
    let message = limit(&product(64), Limits { constant_work: 100_000, ..Limits::default() });
    assert!(message.contains("100000"), "{message}");
    let message = limit(&product(64), Limits::within(16_000));
    assert!(message.contains("16.0 KiB") && message.contains("`--max-memory`"), "{message}");
}

fn floats(name: &str, dims: &[i64]) -> TensorProto {
    let float_data = vec![0.5; dims.iter().product::<i64>() as usize];
    TensorProto { name: name.into(), data_type: 1, dims: dims.to_vec(), float_data, ..TensorProto::default() }
}

/// An empty input declares any number of sequences, each with a state.
#[test]
fn states_of_recurrent_layers_are_limited() {
    for (op, gates) in [("RNN", 1), ("GRU", 3), ("LSTM", 4)] {
        let layer = node(op, &["x", "w", "r"], &[("hidden_size", 2)]);
        let weights = || vec![floats("w", &[1, 2 * gates, 1]), floats("r", &[1, 2 * gates, 2])];
        let message = limit(&model(vec![layer.clone()], &[0, 1 << 36, 1], weights()), Limits::default());
        assert!(message.contains("a constant of shape [68719476736, 2]"), "{op}: {message}");
        model(vec![layer], &[3, 4, 1], weights()).compile_module(&with(Limits::default())).unwrap();
    }
}

#[test]
fn nodes_code_and_weights_are_limited() {
    let path = fixtures("operators", "onnx").into_iter().find(|p| p.ends_with("conv_batch_norm_relu.onnx")).unwrap();
    let network = Model::load(path).unwrap();
    let usual = Limits::default;
    assert!(limit(&network, Limits { nodes: 1, ..usual() }).contains("nodes"));
    assert!(limit(&network, Limits { code_bytes: 10, ..usual() }).contains("machine code"));
    assert!(limit(&network, Limits { weights_bytes: 10, ..usual() }).contains("weights"));
    network.compile_module(&with(usual())).unwrap();
}

/// The output of an operator on an empty input.
fn of_empty(node: NodeProto, shape: &[i64], initializer: Vec<TensorProto>) -> Result<Vec<i64>> {
    let compiled = model(vec![node], shape, initializer).compile(&with(Limits::default()))?;
    let outputs = compiled.run(&[("x", &Tensor::zeros(DType::F32, shape))])?;
    assert!(outputs[0].is_empty());
    Ok(outputs[0].shape.clone())
}

#[test]
fn empty_tensors_have_any_extents() {
    let huge = 1i64 << 62;
    for shape in [[0, huge], [huge, 0]] {
        assert_eq!(of_empty(node("Relu", &["x"], &[]), &shape, vec![]).unwrap(), shape);
        assert_eq!(of_empty(node("Transpose", &["x"], &[]), &shape, vec![]).unwrap(), [shape[1], shape[0]]);
    }
}

#[test]
fn operators_take_empty_tensors() {
    for shape in [[0, 3, 4, 4], [1, 0, 4, 4], [1, 3, 0, 4]] {
        assert_eq!(of_empty(node("LRN", &["x"], &[("size", 3)]), &shape, vec![]).unwrap(), shape);
        let scales = TensorProto {
            name: "s".into(),
            data_type: 1,
            dims: vec![4],
            float_data: vec![1.0, 1.0, 2.0, 2.0],
            ..TensorProto::default()
        };
        for mode in ["linear", "nearest", "cubic"] {
            let mut resize = node("Resize", &["x", "", "s"], &[]);
            let mode = AttributeProto { name: "mode".into(), s: mode.into(), r#type: 3, ..AttributeProto::default() };
            resize.attribute.push(mode);
            let wanted = [shape[0], shape[1], 2 * shape[2], 2 * shape[3]];
            assert_eq!(of_empty(resize, &shape, vec![scales.clone()]).unwrap(), wanted);
        }
    }
    // no result, so that no element must be the largest of none
    assert_eq!(of_empty(node("ArgMax", &["x"], &[("axis", 1)]), &[0, 0], vec![]).unwrap(), [0, 1]);
    assert!(matches!(of_empty(node("ArgMax", &["x"], &[("axis", 1)]), &[3, 0], vec![]), Err(Error::Invalid(_))));
}

/// Each output position belongs to no phase of the strides; the bias is added to sums that nothing computes.
#[test]
fn transposed_convolutions_may_have_empty_results() {
    let ints = |name: &str, ints: &[i64]| AttributeProto {
        name: name.into(),
        ints: ints.to_vec(),
        r#type: 7,
        ..AttributeProto::default()
    };
    let tensor = |name: &str, dims: &[i64]| TensorProto {
        name: name.into(),
        data_type: 1,
        dims: dims.to_vec(),
        float_data: vec![1.0; dims.iter().product::<i64>() as usize],
        ..TensorProto::default()
    };
    for (strides, dilations) in [([1, 1], [1, 1]), ([4, 4], [2, 1]), ([8, 8], [1, 1])] {
        let mut transposed = node("ConvTranspose", &["x", "w", "b"], &[]);
        transposed.attribute =
            vec![ints("strides", &strides), ints("dilations", &dilations), ints("pads", &[1, 0, dilations[0], 0])];
        let weights = vec![tensor("w", &[2, 3, 2, 1]), tensor("b", &[3])];
        let shape = of_empty(transposed, &[1, 2, 1, 3], weights).unwrap();
        assert_eq!(shape, [1, 3, 0, 2 * strides[1] + 1], "{strides:?}");
    }
}

/// Time for which this thread has had a core, or where the system does not say it the time that has passed.
fn computed() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let busy = |stat: String| stat.split(' ').next()?.parse().ok();
    let nanoseconds = std::fs::read_to_string("/proc/thread-self/schedstat").ok().and_then(busy);
    nanoseconds.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// A chain of `n` elementwise nodes.
fn chain(n: usize) -> Model {
    let links = |i: usize| {
        let output = if i + 1 == n { "y".into() } else { format!("v{i}") };
        let input = if i == 0 { "x".into() } else { format!("v{}", i - 1) };
        NodeProto { output: vec![output], ..node(["Tanh", "Neg"][i % 2], &[&input], &[]) }
    };
    model((0..n).map(links).collect(), &[4], vec![])
}

/// A graph of `n` nodes, each of which adds two of the `reach` values before it.
fn sums(n: usize, reach: usize) -> Model {
    let name = |i: usize| if i == 0 { "x".into() } else { format!("v{i}") };
    let (mut nodes, mut state) = (vec![], 1u64);
    for i in 1..=n {
        let operands = [0; 2].map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            name(i - 1 - (state >> 33) as usize % reach.min(i))
        });
        let output = vec![if i == n { "y".into() } else { name(i) }];
        nodes.push(NodeProto { output, ..node("Add", &[&operands[0], &operands[1]], &[]) });
    }
    model(nodes, &[4], vec![])
}

/// The processor time of a compilation.
fn compiling(model: &Model) -> Duration {
    let (options, start) = (Options { compile_threads: 1, ..with(Limits::default()) }, computed());
    model.compile_module(&options).unwrap();
    computed() - start
}

/// The repairs of an answer and the search of branch and bound took minutes.
#[test]
fn graphs_compile_nearly_as_fast_as_chains() {
    let simple = compiling(&chain(3000));
    for reach in [4, 50, 200] {
        let time = compiling(&sums(3000, reach));
        assert!(time < 20 * simple, "{reach}: {time:?}, a chain {simple:?}");
    }
}

/// Four times as many operands or nodes take four times as long and a little more; with a square they would take sixteen times.
#[test]
fn long_chains_and_wide_nodes_compile_in_linear_time() {
    let wide = |op: &str, attributes: &[(&str, i64)], n: usize| {
        let names: Vec<String> = (0..n).map(|i| format!("x{i}")).collect();
        let operands: Vec<&str> = names.iter().map(String::as_str).collect();
        let inputs = operands.iter().map(|name| declared(name, &[4])).collect();
        model_of(vec![node(op, &operands, attributes)], inputs, vec![])
    };
    let models: [(&str, &dyn Fn(usize) -> Model); 4] = [
        ("Max", &|n| wide("Max", &[], n)),
        ("Sum", &|n| wide("Sum", &[], n)),
        ("Concat", &|n| wide("Concat", &[("axis", 0)], n)),
        ("a chain", &chain),
    ];
    for (name, model) in models {
        let time = |n: usize| compiling(&model(n));
        let (few, many) = (time(750).max(time(750)), time(3000));
        assert!(many < 9 * few, "{name}: {few:?} for 750, {many:?} for 3,000");
    }
}

/// Statements that read and write one element have as many dependences as there are pairs of them: three times as many take nine times as long
/// and a little more. Walks over paths of statements, and over pairs of pairs, would take fifty times.
#[test]
fn statements_on_one_element_compile_in_quadratic_time() {
    let program = |n: usize| {
        let statements: String = (0..n).map(|c| format!("z[i] = max(z[i - 1], v[{c}]) + z[i]\n")).collect();
        let text = format!("loop p(N = 1000) {{ in f32 v[{n}]\n inout f32 z[N]\n for i in 1..N {{ {statements} }} }}");
        Model::from_program(language::parse("p.tile", &text).unwrap(), None, None).unwrap()
    };
    let time = |n: usize| compiling(&program(n));
    let (few, many) = (time(15).max(time(15)), time(45));
    assert!(many < 25 * few, "{few:?} for 15, {many:?} for 45");
}
