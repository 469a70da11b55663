//! Memory of a compilation, as the system counts it: the weights of the model and of the module are not there at once.
#![cfg(target_os = "linux")]

use prost::Message;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tilewright::internal::graph::proto::{
    DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

const SIDE: i64 = 1024;
const LAYERS: usize = 16;
const WEIGHT_BYTES: usize = 4 * (SIDE * SIDE) as usize;

fn value(name: &str) -> ValueInfoProto {
    let dim = [1, SIDE].map(|n| DimensionProto { dim_value: Some(n), dim_param: None }).into();
    let tensor_type = Some(TensorTypeProto { elem_type: 1, shape: Some(TensorShapeProto { dim }) });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type, ..TypeProto::default() }) }
}

/// Writes a chain of products, tensor by tensor: the parts of a message follow each other. A process counts the memory of
/// the one that started it as its own, so that this one must stay small.
fn write(path: &Path, layers: usize, external: bool) {
    let mut file = File::create(path).unwrap();
    let mut add = |graph: GraphProto| {
        let part = ModelProto { graph: Some(graph), ..ModelProto::default() };
        file.write_all(&part.encode_to_vec()).unwrap();
    };
    let mut weights = File::create(path.with_extension("bin")).unwrap();
    for i in 0..layers {
        let bytes: Vec<u8> = (0..WEIGHT_BYTES / 4).flat_map(|k| ((k * 7 + i) as f32).sin().to_le_bytes()).collect();
        let (name, dims) = (format!("w{i}"), vec![SIDE, SIDE]);
        let mut tensor = TensorProto { name, dims, data_type: 1, ..TensorProto::default() };
        if external {
            weights.write_all(&bytes).unwrap();
            let location = path.with_extension("bin").file_name().unwrap().to_str().unwrap().to_string();
            let entries = [("location", location), ("offset", (i * WEIGHT_BYTES).to_string())];
            let entry = |(key, value): (&str, String)| StringStringEntryProto { key: key.into(), value };
            (tensor.data_location, tensor.external_data) = (1, entries.map(entry).into());
        } else {
            tensor.raw_data = bytes.into();
        }
        add(GraphProto { initializer: vec![tensor], ..GraphProto::default() });
    }
    let node = |i: usize| NodeProto {
        input: vec![format!("x{i}"), format!("w{i}")],
        output: vec![format!("x{}", i + 1)],
        op_type: "MatMul".into(),
        ..NodeProto::default()
    };
    add(GraphProto {
        node: (0..layers).map(node).collect(),
        input: vec![value("x0")],
        output: vec![value(&format!("x{layers}"))],
        ..GraphProto::default()
    });
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
    file.write_all(&ModelProto { opset_import, ..ModelProto::default() }.encode_to_vec()).unwrap();
}

/// The most memory, in bytes, that `compile` of a model has at once, mapped files included.
#[allow(clippy::zombie_processes, reason = "`wait4` waits")]
fn peak(model: &Path) -> usize {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.arg("--quiet").arg("compile").arg(model).arg("-o").arg(model.with_extension("tw"));
    let child = command.stdout(Stdio::null()).spawn().unwrap();
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both places are there for the call, and the process is ours and not waited for otherwise.
    let usage = unsafe {
        assert_eq!(libc::wait4(child.id() as i32, &mut status, 0, usage.as_mut_ptr()), child.id() as i32);
        usage.assume_init()
    };
    assert_eq!(status, 0);
    usage.ru_maxrss as usize * 1024
}

#[test]
fn a_compilation_holds_the_weights_little_more_than_once() {
    let folder = std::env::temp_dir().join(format!("tilewright-memory-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| -> PathBuf { folder.join(format!("{name}.onnx")) };
    write(&path("small"), 1, false);
    write(&path("inline"), LAYERS, false);
    write(&path("external"), LAYERS, true);
    let small = peak(&path("small"));
    for name in ["inline", "external"] {
        let (more, weights) = (peak(&path(name)).saturating_sub(small), (LAYERS - 1) * WEIGHT_BYTES);
        assert!(more > weights / 2 && more < weights + weights / 2, "{name}: {more} bytes for {weights}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
