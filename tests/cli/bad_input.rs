//! Whatever is handed in, the answer is a result or one clear sentence: no panic, no wrong answer, no gigabytes.

#[path = "../common/mod.rs"]
mod common;

use common::root;
use prost::Message;
use std::sync::Arc;
use tilewright::Limits;
use tilewright::Module;
use tilewright::Session;
use tilewright::internal::graph::proto::{
    AttributeProto, DimensionProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
};
use tilewright::internal::language;
use tilewright::{DType, Error, Model, Options, Result, Tensor};

fn fixture(name: &str) -> ModelProto {
    let bytes = std::fs::read(root().join(format!("tests/fixtures/operators/{name}.onnx"))).unwrap();
    ModelProto::decode(&bytes[..]).unwrap()
}

/// The whole way of `run`, from bytes to outputs, with small limits.
fn run(bytes: &[u8]) -> Result<Vec<Tensor>> {
    let model = Model::parse(bytes, "nowhere")?;
    let limits = Limits { tensor_bytes: 64 << 20, arena_bytes: 128 << 20, ..Limits::default() };
    let options = Options { threads: 1, limits, ..Options::default() };
    let module = Arc::new(model.compile_module(&options)?.0);
    let inputs: Vec<_> = (module.inputs().iter().enumerate())
        .map(|(i, spec)| (spec.name.clone(), Tensor::seeded(spec.dtype, &spec.shape, 0, i as u64, 2)))
        .collect();
    let inputs: Vec<_> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    Session::new(module.clone(), 1)?.run(&inputs)
}

/// The message of a refusal: a sentence, and not one about a defect.
fn refusal<T>(result: Result<T>) -> String {
    let error = result.err().expect("this must be refused");
    assert!(!matches!(error, Error::Internal(_)), "{error}");
    let message = error.to_string();
    assert!(!message.contains('\n') && message.len() > 10, "{message:?}");
    message
}

fn load_module(path: &std::path::Path) -> Result<Module> {
    // SAFETY: these tests run only modules that they have compiled.
    unsafe { Module::load(path) }
}

fn parse_module(bytes: &[u8]) -> Result<Module> {
    // SAFETY: as above.
    unsafe { Module::from_bytes(bytes) }
}

/// Asserts that all words stand in a message.
fn says(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
}

#[test]
fn a_truncated_file_is_refused_at_every_length() {
    let bytes = std::fs::read(root().join("tests/fixtures/operators/conv_1x1.onnx")).unwrap();
    for length in (0..bytes.len()).step_by(7) {
        if let Err(error) = run(&bytes[..length]) {
            assert!(!matches!(error, Error::Internal(_)), "{length} bytes: {error}");
        }
    }
    refusal(run(&[]));
    refusal(run(&bytes[..bytes.len() / 2]));
    says(&refusal(Model::load(root().join("no-such-file.onnx"))), &["no-such-file.onnx"]);
    says(&refusal(Model::load(root().join("src"))), &["src"]);
}

#[test]
fn random_bytes_are_refused() {
    for seed in 0..200 {
        let bytes = Tensor::seeded(DType::U8, &[300], seed, 0, 256).data;
        refusal(run(&bytes));
    }
}

#[test]
fn every_unknown_operator_is_listed() {
    let mut model = fixture("pattern_residual_block");
    let graph = model.graph.as_mut().unwrap();
    graph.node[1].op_type = "Teleport".into();
    graph.node[1].name = "first".into();
    graph.node[3].op_type = "Sharpen".into();
    graph.node[3].name = "second".into();
    says(&refusal(run(&model.encode_to_vec())), &["Teleport", "first", "Sharpen", "second", "opset"]);
}

#[test]
fn cycles_and_dangling_names_are_refused() {
    let node = |op: &str, input: &str, output: &str| NodeProto {
        op_type: op.into(),
        input: vec![input.into()],
        output: vec![output.into()],
        ..NodeProto::default()
    };
    let with_nodes = |nodes: Vec<NodeProto>| {
        let mut model = fixture("unary_relu");
        model.graph.as_mut().unwrap().node = nodes;
        model.encode_to_vec()
    };
    says(&refusal(run(&with_nodes(vec![node("Relu", "a", "y"), node("Relu", "y", "a")]))), &["cycle"]);
    says(&refusal(run(&with_nodes(vec![node("Relu", "y", "y")]))), &["cycle"]);
    says(&refusal(run(&with_nodes(vec![node("Relu", "nothing", "y")]))), &["nothing"]);
    says(&refusal(run(&with_nodes(vec![node("Relu", "x", "z")]))), &["y"]);
    says(&refusal(run(&with_nodes(vec![node("Relu", "x", "y"), node("Exp", "x", "y")]))), &["y", "twice"]);
    refusal(run(&with_nodes(vec![])));
}

#[test]
fn sizes_that_no_memory_holds_are_refused() {
    let huge = |fixture_name: &str, constant: &str, values: &[i64]| {
        let mut model = fixture(fixture_name);
        let graph = model.graph.as_mut().unwrap();
        let tensor = graph.initializer.iter_mut().find(|t| t.name == constant).unwrap();
        tensor.raw_data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        tensor.dims = vec![values.len() as i64];
        refusal(run(&model.encode_to_vec()))
    };
    huge("expand", "s", &[1 << 40, 3, 17]);
    huge("expand", "s", &[1 << 62, 3, 1 << 62]);
    huge("tile", "r", &[1 << 40, 1 << 40]);
    huge("pad_default_zero", "p", &[0, 0, 1 << 50, 0, 0, 0, 0, 0]);
    huge("pad_default_zero", "p", &[0, 0, i64::MAX, 0, 0, 0, i64::MAX, 0]);
    huge("reshape_minus_one", "s", &[i64::MAX, -1]);
    huge("reshape_minus_one", "s", &[i64::MIN, i64::MIN]);
    huge("resize_nearest_sizes", "sz", &[1, 17, 1 << 30, 1 << 30]);
    for dims in [vec![1 << 40, 1 << 40], vec![i64::MAX, i64::MAX, 2], vec![1 << 20, 1 << 12], vec![-5, 3]] {
        let mut model = fixture("matmul_odd_constant");
        let tensor = &mut model.graph.as_mut().unwrap().initializer[0];
        tensor.dims = dims;
        refusal(run(&model.encode_to_vec()));
    }
}

/// A model of one node: `op operand … -> results, attribute=value …`. The operand `x` has shape [1, 3, 8, 8]; what begins
/// with a digit or a sign is a vector of integers, or of reals where it holds a point.
fn one_node(opset: i64, text: &str) -> Vec<u8> {
    let (node, attributes) = text.split_once(',').unwrap_or((text, ""));
    let (call, results) = node.split_once("->").unwrap_or((node, "y"));
    let mut words = call.split_whitespace();
    let mut model = fixture("wild_relu");
    model.opset_import[0].version = opset;
    let graph = model.graph.as_mut().unwrap();
    for value in [&mut graph.input[0], &mut graph.output[0]] {
        let ty = value.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap();
        ty.elem_type = if value.name == "x" { 1 } else { 0 };
        let dims = [1, 3, 8, 8].map(|d| DimensionProto { dim_value: Some(d), dim_param: None });
        ty.shape.as_mut().unwrap().dim = dims.into();
    }
    let mut node = NodeProto { op_type: words.next().unwrap().into(), ..NodeProto::default() };
    node.output = results.split_whitespace().map(String::from).collect();
    for (i, word) in words.enumerate() {
        let mut tensor = TensorProto { name: format!("constant{i}"), ..TensorProto::default() };
        match word.chars().next().unwrap() {
            '-' | '0'..='9' if word.contains('.') => {
                tensor.data_type = 1;
                tensor.float_data = word.split('/').map(|v| v.parse().unwrap()).collect();
                tensor.dims = vec![tensor.float_data.len() as i64];
            }
            '-' | '0'..='9' => {
                tensor.data_type = 7;
                tensor.int64_data = word.split('/').map(|v| v.parse().unwrap()).collect();
                tensor.dims = vec![tensor.int64_data.len() as i64];
            }
            _ => {
                node.input.push(word.into());
                continue;
            }
        }
        node.input.push(tensor.name.clone());
        graph.initializer.push(tensor);
    }
    for attribute in attributes.split_whitespace() {
        let (name, value) = attribute.split_once('=').unwrap();
        let mut proto = AttributeProto { name: name.into(), ..AttributeProto::default() };
        match value.split('/').map(|v| v.parse()).collect::<std::result::Result<Vec<i64>, _>>() {
            Ok(numbers) if numbers.len() == 1 => (proto.i, proto.r#type) = (numbers[0], 2),
            Ok(numbers) => (proto.ints, proto.r#type) = (numbers, 7),
            Err(_) => (proto.s, proto.r#type) = (value.into(), 3),
        }
        node.attribute.push(proto);
    }
    graph.node = vec![node];
    model.encode_to_vec()
}

#[test]
fn nodes_that_make_no_sense_are_refused() {
    run(&one_node(18, "Pad x 0/0/1/1/0/0/2/2, mode=edge")).unwrap();
    run(&one_node(18, "Split x -> y b, axis=1 num_outputs=2")).unwrap();
    let quarters = run(&one_node(13, &format!("Range {} {} {}", i64::MIN, i64::MAX, 1i64 << 62))).unwrap();
    assert_eq!(quarters[0].to_vec::<i64>(), [i64::MIN, -1 << 62, 0, 1 << 62]);
    let table: &[(i64, &str, &[&str])] = &[
        (18, "Split x -> y b, axis=1 num_outputs=4611686018427387904", &["num_outputs", "2 outputs"]),
        (18, "Split x -> y b, axis=1 num_outputs=1073741824", &["num_outputs"]),
        (18, "Split x -> y b, axis=1 num_outputs=-9223372036854775808", &["num_outputs"]),
        (18, "Split x 1/1/1 -> y b, axis=1", &["3 parts"]),
        (18, "Split x 9223372036854775807/9223372036854775807/5 -> y b c, axis=1", &["add up"]),
        (13, "DepthToSpace x, blocksize=1099511627776", &["blocksize"]),
        (13, "SpaceToDepth x, blocksize=4294967296", &["blocksize"]),
        (13, "Pad x 0/0/-9223372036854775808/0/0/0/0/0", &["pad"]),
        (13, "Pad x 0/0/-20/0/0/0/0/0, mode=edge", &["more than there is"]),
        (13, "Pad x 0/0/0/0/0/0/0/268435456, mode=edge", &["constant"]),
        (13, "ConstantOfShape 1000000000", &["1000000000", "MiB"]),
        (13, "ConstantOfShape 0/9223372036854775807/4", &["GiB"]),
        (13, "Range 0 200000000 1", &["MiB"]),
        (13, "Range 0 5 0", &["delta"]),
        (13, "Resize x 0. 1.0/1.0/1.0/10000000.0, mode=linear", &["cannot become"]),
        (13, "Resize x 0. 1.0/1.0/1.0/-1.0, mode=linear", &["extent 8 cannot become", "scaled by -1"]),
        (13, "Relu x x x", &["3 operands", "1 at most"]),
        (13, "MatMul x x x", &["3 operands"]),
        (13, "PRelu x 1.5/1.5/1.5/1.5/1.5", &["broadcast"]),
        (13, "Concat x 1.5, axis=1", &["differ"]),
        (13, "ConvTranspose x x, output_shape=9223372036854775807/5", &["output_shape"]),
        (13, "Dropout x 0.5 1", &["training"]),
        (13, "Softmax x, axis=last", &["`axis`", "wrong type"]),
        (13, "Softmax x, axes=1", &["Softmax", "opset 13", "`axes`", "there are axis; did you mean `axis`?"]),
        (14, "Relu x, bogus=1", &["Relu", "opset 14", "`bogus`", "none"]),
        (18, "ReduceMax x, axes=1/2", &["`axes`", "up to opset 17"]),
        (17, "ReduceMax x, noop_with_empty_axes=1", &["`noop_with_empty_axes`", "from opset 18"]),
        (13, "Softmax x, axis=1 axis=2", &["`axis`", "twice"]),
        (13, "Slice x 0/0 1/1 0/0", &["axis 0", "twice"]),
        (13, "Slice x 0/0 1/1 3/-1", &["axis 3", "twice"]),
        (9, "Slice x, starts=0/0 ends=1/1 axes=1/1", &["axis 1", "twice"]),
        (18, "ReduceSum x 1/-3", &["axis 1", "twice"]),
        (11, "ReduceMax x, axes=2/2", &["axis 2", "twice"]),
        (13, "Squeeze x 0/0", &["axis 0", "twice"]),
        (13, "Unsqueeze x 0/0", &["axis 0", "twice"]),
        (13, "Transpose x, perm=0/1/1/2", &["axis 1", "twice"]),
        (18, "Pad x 1/1/1/1 0.0 2/2", &["axis 2", "twice"]),
        (18, "Resize x 0. 2.0/2.0, axes=3/3", &["axis 3", "twice"]),
    ];
    for (opset, text, words) in table {
        let message = refusal(run(&one_node(*opset, text)));
        says(&message, words);
    }
    let mut model = ModelProto::decode(&one_node(13, "Relu x")[..]).unwrap();
    let mut again = model.opset_import[0].clone();
    model.opset_import.push(again.clone());
    run(&model.encode_to_vec()).unwrap();
    again.version = 7;
    model.opset_import.push(again);
    says(&refusal(run(&model.encode_to_vec())), &["operator sets 13 and 7"]);
    let mut model = ModelProto::decode(&one_node(13, "Shape x")[..]).unwrap();
    model.graph.as_mut().unwrap().output[0].r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().elem_type = 1;
    says(&refusal(run(&model.encode_to_vec())), &["y", "f32", "i64"]);
    if let Some(bytes) = peak_memory() {
        assert!(bytes < 2 << 30, "the peak was {bytes} bytes");
    }
}

#[test]
fn what_is_left_out_on_purpose_is_named() {
    let of_domains = |node_domain: &str, imported: &[&str], op: &str| {
        let mut model = ModelProto::decode(&one_node(18, &format!("{op} x"))[..]).unwrap();
        let own = model.opset_import.remove(0);
        model.opset_import =
            imported.iter().map(|d| OperatorSetIdProto { domain: d.to_string(), ..own.clone() }).collect();
        model.graph.as_mut().unwrap().node[0].domain = node_domain.into();
        run(&model.encode_to_vec())
    };
    let table: &[(&str, &[&str], &str, &[&str])] = &[
        (
            "ai.onnx.ml",
            &["ai.onnx.ml"],
            "Scaler",
            &["ai.onnx.ml::Scaler", "classical machine learning", "not supported"],
        ),
        ("ai.onnx.training", &["ai.onnx.training"], "Gradient", &["Gradient", "training are not supported"]),
        (
            "ai.onnx.preview.training",
            &["", "ai.onnx.preview.training"],
            "Adam",
            &["Adam", "training are not supported"],
        ),
        ("", &["ai.onnx.ml"], "Relu", &["Relu", "does not import"]),
        ("", &[], "Relu", &["Relu", "does not import"]),
        ("", &[""], "StringNormalizer", &["StringNormalizer", "strings are not supported"]),
        ("", &[""], "ImageDecoder", &["ImageDecoder", "encoded images are not supported"]),
        ("my.ops", &["my.ops"], "Relu", &["my.ops::Relu", "domain `my.ops` is not known"]),
    ];
    for (domain, imported, op, words) in table {
        let message = refusal(of_domains(domain, imported, op));
        says(&message, words);
        assert_eq!(message.contains("(opset"), domain.is_empty() && imported == &[""], "{message}");
    }
    // a file of contributed operators alone need not say which set of ONNX's own it uses
    of_domains("com.microsoft", &["com.microsoft"], "FastGelu").unwrap();
}

#[test]
fn a_range_without_end_names_what_is_not_finite() {
    let mut model = ModelProto::decode(&one_node(13, "Range 0.0 9.0 1.0")[..]).unwrap();
    model.graph.as_mut().unwrap().initializer[1].float_data = vec![f32::INFINITY];
    let message = refusal(run(&model.encode_to_vec()));
    says(&message, &["limit", "not finite"]);
    assert!(!message.contains("is 0"), "{message}");
}

#[test]
fn a_wrong_declared_shape_is_a_warning_and_the_real_one_is_computed() {
    let compile = |text: &str| {
        let model = Model::parse(&one_node(13, text), "nowhere").unwrap();
        model.compile_module(&Options { threads: 1, ..Options::default() }).unwrap()
    };
    assert!(compile("Relu x").1.warnings.is_empty());
    let (module, report) = compile("Transpose x, perm=0/2/1/3");
    assert_eq!(module.outputs()[0].tensor.shape, [1, 8, 3, 8]);
    assert_eq!(report.warnings.len(), 1);
    says(&report.warnings[0], &["`y`", "[1, 3, 8, 8]", "[1, 8, 3, 8]"]);
}

#[test]
fn integers_divided_by_zero_at_run_time_are_zero() {
    let mut model = ModelProto::decode(&one_node(13, "Div 6/-7 x")[..]).unwrap();
    let graph = model.graph.as_mut().unwrap();
    let ty = graph.input[0].r#type.as_mut().unwrap().tensor_type.as_mut().unwrap();
    (ty.elem_type, ty.shape.as_mut().unwrap().dim) = (7, vec![DimensionProto { dim_value: Some(2), dim_param: None }]);
    let model = Model::parse(&model.encode_to_vec(), "nowhere").unwrap();
    let module = Arc::new(model.compile_module(&Options { threads: 1, ..Options::default() }).unwrap().0);
    let x = Tensor::new(&[2], &[0i64, 2]);
    assert_eq!(Session::new(module, 1).unwrap().run(&[("x", &x)]).unwrap()[0].to_vec::<i64>(), [0, -3]);
}

#[cfg(unix)]
#[test]
fn endless_files_and_links_out_of_the_folder_are_refused() {
    says(&refusal(Model::load("/dev/zero")), &["/dev/zero"]);
    let folder = fresh_folder("links");
    std::fs::create_dir(folder.join("model")).unwrap();
    let mut model = fixture("external_data");
    let external = &mut model.graph.as_mut().unwrap().initializer[0].external_data;
    let location = std::mem::replace(&mut external[0].value, "weights.bin".into());
    let weights = std::fs::read(root().join("tests/fixtures/operators").join(location)).unwrap();
    std::fs::write(folder.join("weights.bin"), &weights).unwrap();
    std::fs::write(folder.join("blob"), model.encode_to_vec()).unwrap();
    std::os::unix::fs::symlink("../weights.bin", folder.join("model/weights.bin")).unwrap();
    let load = || Model::load(folder.join("model/model.onnx"))?.graph(&Default::default());
    std::fs::write(folder.join("model/model.onnx"), model.encode_to_vec()).unwrap();
    says(&refusal(load()), &["weights.bin", "outside"]);
    // both are links to the same place: a cache of downloads
    std::fs::remove_file(folder.join("model/model.onnx")).unwrap();
    std::os::unix::fs::symlink("../blob", folder.join("model/model.onnx")).unwrap();
    load().unwrap();
    // a pipe would be waited for
    std::fs::remove_file(folder.join("weights.bin")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(folder.join("weights.bin")).status().unwrap();
    assert!(pipe.success());
    says(&refusal(load()), &["weights.bin", "regular"]);
    says(&refusal(load_module(&folder.join("weights.bin"))), &["regular"]);
    says(&refusal(Tensor::read_npy(folder.join("weights.bin"))), &["weights.bin", "regular"]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn external_data_must_be_there_and_inside_the_folder() {
    let with_entries = |entries: &[(&str, &str)]| {
        let mut model = fixture("matmul_odd_constant");
        let tensor: &mut TensorProto = &mut model.graph.as_mut().unwrap().initializer[0];
        tensor.raw_data = Default::default();
        tensor.data_location = 1;
        tensor.external_data = (entries.iter())
            .map(|(key, value)| StringStringEntryProto { key: (*key).into(), value: (*value).into() })
            .collect();
        refusal(run(&model.encode_to_vec()))
    };
    says(&with_entries(&[("location", "missing.bin")]), &["missing.bin"]);
    says(&with_entries(&[("location", "../escape.bin")]), &["../escape.bin"]);
    with_entries(&[("location", "/etc/passwd")]);
    with_entries(&[]);
    with_entries(&[("location", "synthetic"), ("distribution", "cauchy"), ("seed", "1")]);
    // A file that is there, but too short for what is asked of it.
    let folder = fresh_folder("external");
    std::fs::write(folder.join("short.bin"), [0; 16]).unwrap();
    let mut model = fixture("external_data");
    model.graph.as_mut().unwrap().initializer[0].external_data[0].value = "short.bin".into();
    let path = folder.join("model.onnx");
    std::fs::write(&path, model.encode_to_vec()).unwrap();
    let load = || Model::load(&path)?.compile_module(&Options::default());
    says(&refusal(load()), &["short.bin"]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn wrong_inputs_are_named() {
    let model = Model::load(root().join("tests/fixtures/operators/matmul_square.onnx")).unwrap();
    let compiled = model.compile(&Options::default()).unwrap();
    let good = Tensor::zeros(DType::F32, &[32, 32]);
    compiled.run(&[("a", &good), ("b", &good)]).unwrap();
    says(&refusal(compiled.run(&[("a", &good)])), &["b"]);
    says(&refusal(compiled.run(&[("a", &good), ("c", &good), ("b", &good)])), &["c"]);
    says(&refusal(compiled.run(&[("a", &good), ("b", &good), ("b", &good)])), &["b"]);
    let flat = Tensor::zeros(DType::F32, &[1024]);
    says(&refusal(compiled.run(&[("a", &good), ("b", &flat)])), &["b", "1024"]);
    let whole = Tensor::zeros(DType::I64, &[32, 32]);
    says(&refusal(compiled.run(&[("a", &good), ("b", &whole)])), &["b", "i64", "f32"]);
    let mut short = good.clone();
    short.data = short.data[1..].into();
    says(&refusal(compiled.run(&[("a", &good), ("b", &short)])), &["b"]);
}

#[test]
fn dynamic_dimensions_are_bound_once() {
    let mut proto = fixture("binary_add");
    for input in &mut proto.graph.as_mut().unwrap().input {
        let tensor_type = input.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap();
        tensor_type.shape.as_mut().unwrap().dim[0].dim_value = None;
        tensor_type.shape.as_mut().unwrap().dim[0].dim_param = Some("N".into());
    }
    let model = Model::parse(&proto.encode_to_vec(), "nowhere").unwrap();
    let compiled = model.compile(&Options::default()).unwrap();
    let [two, five] = [2, 5].map(|n| Tensor::zeros(DType::F32, &[n, 33]));
    assert_eq!(compiled.run(&[("a", &two), ("b", &two)]).unwrap()[0].shape, [2, 33]);
    assert_eq!(compiled.run(&[("a", &five), ("b", &five)]).unwrap()[0].shape, [5, 33]);
    says(&refusal(compiled.run(&[("a", &two), ("b", &five)])), &["N", "2", "5"]);
    for (name, size) in [("M", 3), ("N", -1), ("N", 1 << 50)] {
        refusal(model.compile_module(&Options { dims: [(name.to_string(), size)].into(), ..Options::default() }));
    }
}

#[test]
fn subscripts_from_data_are_checked() {
    let model = Model::load(root().join("tests/fixtures/operators/gather_embedding.onnx")).unwrap();
    let compiled = model.compile(&Options::default()).unwrap();
    for wild in [11i64, -12, i64::MAX, i64::MIN, 1 << 32] {
        let mut ids = [0i64; 10];
        ids[7] = wild;
        says(&refusal(compiled.run(&[("i", &Tensor::new(&[2, 5], &ids))])), &["i"]);
    }
}

#[test]
fn a_damaged_module_is_refused() {
    let model = Model::load(root().join("tests/fixtures/operators/conv_batch_norm_relu.onnx")).unwrap();
    let good = model.compile_module(&Options::default()).unwrap().0.to_bytes().unwrap();
    assert!(parse_module(&good).is_ok());
    for at in (0..good.len()).step_by(good.len() / 1500 + 1) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        refusal(parse_module(&bad));
        refusal(parse_module(&good[..at]));
    }
    let other = if cfg!(target_arch = "x86_64") { "aarch64-neon" } else { "x86-64-avx2" };
    let target = tilewright::Target::by_name(other).ok();
    let module = model.compile_module(&Options { target, ..Options::default() }).unwrap().0;
    let module = parse_module(&module.to_bytes().unwrap()).unwrap();
    refusal(Session::new(Arc::new(module), 1));
}

#[test]
fn numbers_of_threads_are_bounded() {
    let model = Model::load(root().join("tests/fixtures/operators/matmul_square.onnx")).unwrap();
    for threads in [1025, 1 << 40, usize::MAX] {
        let refused = model.compile(&Options { threads, ..Options::default() });
        assert!(matches!(&refused.err(), Some(Error::Limit(m)) if m.contains(&threads.to_string())));
    }
}

#[test]
fn names_reach_a_terminal_without_its_commands() {
    let folder = fresh_folder("names");
    let mut model = fixture("unary_relu");
    let evil = "\u{1b}[2J\u{9b}31m\r\u{202e}y\n0";
    let graph = model.graph.as_mut().unwrap();
    graph.output[0].name = evil.into();
    graph.node[0].output[0] = evil.into();
    graph.node[0].name = evil.into();
    graph.name = evil.into();
    let path = folder.join("m\u{1b}[1m.onnx");
    std::fs::write(&path, model.encode_to_vec()).unwrap();
    let mut broken = model.clone();
    broken.graph.as_mut().unwrap().node[0].op_type = format!("Relu{evil}");
    std::fs::write(folder.join("broken.onnx"), broken.encode_to_vec()).unwrap();
    for arguments in [&["run"][..], &["explain"], &["explain", "--stage", "graph"], &["bench", "--seconds", "0.01"]] {
        for file in [&path, &folder.join("broken.onnx"), &folder.join("none\u{1b}[1m.onnx")] {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tilewright"));
            let output = command.arg(arguments[0]).arg(file).args(&arguments[1..]).output().unwrap();
            for text in [output.stdout, output.stderr] {
                let text = String::from_utf8(text).unwrap();
                let active = |c: &char| (c.is_control() && !"\n\t".contains(*c)) || *c == '\u{202e}';
                assert_eq!(text.chars().find(active), None, "{arguments:?} {}: {text:?}", file.display());
            }
        }
    }
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tilewright")).arg("run").arg(&path).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 1, "one line for one output");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Mutates bytes in one of the ways in which files break.
fn mutate(bytes: &mut Vec<u8>, random: &mut impl FnMut() -> usize) {
    for _ in 0..1 + random() % 4 {
        let (at, length) = (random() % bytes.len(), 1 + random() % 8);
        match random() % 6 {
            0 => bytes[at] ^= 1 << (random() % 8),
            1 => bytes[at] = random() as u8,
            2 => bytes.truncate(at + 1),
            3 => drop(bytes.splice(at..at, vec![random() as u8; length])),
            4 => drop(bytes.drain(at..(at + length).min(bytes.len() - 1).max(at))),
            _ => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random() % 5],
        }
    }
}

#[test]
fn a_thousand_mutated_files_of_small_models() {
    let seed: u64 = std::env::var("TILEWRIGHT_SEED").map_or(20261121, |s| s.parse().unwrap());
    let names = [
        "conv_batch_norm_relu",
        "pattern_attention",
        "dynamic_flatten_by_shape",
        "gather_embedding",
        "pad_reflect",
        "lstm_lengths",
        "loop_with_if",
    ];
    let (mut refused, mut ran) = (0, 0);
    for round in 0..1000 {
        let name = names[round % names.len()];
        let mut bytes = fixture(name).encode_to_vec();
        let numbers = Tensor::seeded(DType::I64, &[64], seed, round as u64, 1 << 62).to_vec::<i64>();
        let mut numbers = numbers.into_iter().cycle();
        mutate(&mut bytes, &mut || numbers.next().unwrap() as usize);
        match run(&bytes) {
            Ok(_) => ran += 1,
            Err(Error::Internal(message)) => panic!("seed {seed}, file {round} ({name}): {message}"),
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().contains('\n'), "seed {seed}, file {round} ({name}): {error}");
            }
        }
    }
    println!("{refused} refused, {ran} ran");
    assert!(refused > 100 && ran > 100, "the mutations show nothing: {refused} refused, {ran} ran");
    if let Some(bytes) = peak_memory() {
        assert!(bytes < 2 << 30, "the peak was {bytes} bytes");
    }
}

/// Peak resident memory of this process, where the system tells.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

/// A fresh folder.
fn fresh_folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("tilewright-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Arrays of a single iteration, of which each thread has its own, are counted in 64 bits and limited together.
#[test]
fn scratch_memory_is_limited() {
    let text = "\
def q(f32(N) A, f32(K) B, f32(M) X) -> (C) {
    T(i, j) = A(i) * B(j)
    C(m, i) +=! T(i, j) * X(m)
}
schedule s for q { compute_at T at C(m) }
";
    let file = language::parse("scratch.tile", text).unwrap();
    let model = Model::from_program(file, None, None).unwrap().with_schedule("s").unwrap();
    let options = |n: i64, k: i64, threads, scratch_bytes| {
        let dims = [("N", n), ("K", k), ("M", 2)].map(|(name, size)| (name.to_string(), size)).into();
        let limits = Limits { scratch_bytes, ..Limits::default() };
        Options { threads, dims, limits, ..Options::default() }
    };
    let usual = Limits::default().scratch_bytes;
    // 4 GiB: none, were they counted in 32 bits
    let refused = model.compile_module(&options(65536, 16384, 1, usual));
    assert!(matches!(&refused, Err(Error::Limit(_))), "{:?}", refused.map(|r| r.1));
    refusal(model.compile_module(&options(65536, 16384, 1, usual)));

    let (a, b, x) = (seeded(64, 0), seeded(32, 1), seeded(2, 2));
    let inputs = [("A", &a), ("B", &b), ("X", &x)];
    let run = |threads, bytes| model.compile(&options(64, 32, threads, bytes)).and_then(|c| c.run(&inputs));
    let (module, report) = model.compile_module(&options(64, 32, 1, usual)).unwrap();
    let each = module.scratch_bytes();
    assert!((64 * 32 * 4..1 << 16).contains(&each), "{each}");
    assert_eq!(report.scratch_bytes, each);
    let result = run(2, 2 * each).unwrap().remove(0).to_vec::<f32>();
    let sum: f32 = b.to_vec::<f32>().iter().map(|b| a.to_vec::<f32>()[5] * b * x.to_vec::<f32>()[1]).sum();
    assert!((result[64 + 5] - sum).abs() < 1e-4, "{} {sum}", result[64 + 5]);
    assert!(matches!(run(2, 2 * each - 1), Err(Error::Limit(_))));
    assert!(matches!(run(1, each - 1), Err(Error::Limit(_))));
}

fn seeded(n: i64, position: u64) -> Tensor {
    Tensor::seeded(DType::F32, &[n], 0, position, 2)
}
