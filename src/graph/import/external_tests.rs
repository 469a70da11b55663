use super::*;
use crate::graph::import::model::OnnxModel;
use crate::graph::proto::{
    DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use crate::runtime::Tensor;
use prost::Message;

/// Elements of a large tensor and of a small one.
const ELEMENTS: [usize; 2] = [LEAST_MAPPED / 4 + 5, 9];

fn contents(elements: usize) -> Vec<u8> {
    (0..elements).flat_map(|i| (i as f32 * 0.5).to_le_bytes()).collect()
}

fn temporary(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tilewright-external-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// `y0 = x + w0`, `y1 = x + w1`: the bytes of a file.
fn model(weights: Vec<TensorProto>) -> Vec<u8> {
    let value = |name: &str| {
        let dim = vec![DimensionProto { dim_value: Some(1), dim_param: None }];
        let shape = Some(TensorShapeProto { dim });
        let tensor_type = Some(TensorTypeProto { elem_type: 1, shape });
        let r#type = Some(TypeProto { tensor_type, ..TypeProto::default() });
        ValueInfoProto { name: name.into(), r#type }
    };
    let node = |(i, w): (usize, &TensorProto)| NodeProto {
        input: vec!["x".into(), w.name.clone()],
        output: vec![format!("y{i}")],
        op_type: "Add".into(),
        ..NodeProto::default()
    };
    let graph = GraphProto {
        node: weights.iter().enumerate().map(node).collect(),
        input: vec![value("x")],
        output: (0..weights.len()).map(|i| ValueInfoProto { name: format!("y{i}"), r#type: None }).collect(),
        initializer: weights,
        ..GraphProto::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
    ModelProto { graph: Some(graph), opset_import, ..ModelProto::default() }.encode_to_vec()
}

fn weight(name: &str, elements: usize) -> TensorProto {
    TensorProto { name: name.into(), dims: vec![elements as i64], data_type: 1, ..TensorProto::default() }
}

fn outside(name: &str, elements: usize, entries: &[(&str, &str)]) -> TensorProto {
    let entry = |(key, value): &(&str, &str)| StringStringEntryProto { key: (*key).into(), value: (*value).into() };
    TensorProto { data_location: 1, external_data: entries.iter().map(entry).collect(), ..weight(name, elements) }
}

/// Positions of the weights in the mapped files; `None` of those in memory of their own.
fn positions(model: &OnnxModel) -> Vec<Option<usize>> {
    let files = model.folder.files.lock().unwrap();
    let mapped =
        |tensor: &Tensor| model.folder.own.iter().chain(files.values()).find_map(|file| file.position(&tensor.data));
    model.weights.iter().map(|(_, tensor)| mapped(tensor)).collect()
}

fn check(model: &OnnxModel) {
    for ((_, tensor), elements) in model.weights.iter().zip(ELEMENTS) {
        assert!(tensor.data[..] == contents(elements)[..]);
    }
}

#[test]
fn large_tensors_of_a_large_file_stay_in_it() {
    let folder = temporary("inside");
    let path = folder.join("model.onnx");
    let named = ELEMENTS.into_iter().enumerate();
    let weights = named.map(|(i, n)| TensorProto { raw_data: contents(n).into(), ..weight(&format!("w{i}"), n) });
    let bytes = model(weights.collect());
    std::fs::write(&path, &bytes).unwrap();
    let loaded = OnnxModel::load(&path).unwrap();
    let [Some(at), None] = positions(&loaded)[..] else { panic!("{:?}", positions(&loaded)) };
    assert!(bytes[at..].starts_with(&contents(ELEMENTS[0])));
    check(&loaded);
    let parsed = OnnxModel::parse(&bytes, &folder).unwrap();
    assert_eq!(positions(&parsed), [None, None]);
    check(&parsed);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn large_external_tensors_stay_in_one_mapping_of_their_file() {
    let folder = temporary("outside");
    let offsets = [24, 24 + 4 * ELEMENTS[0]];
    let file = [vec![1; 24], contents(ELEMENTS[0]), contents(ELEMENTS[1]), contents(ELEMENTS[0])].concat();
    std::fs::write(folder.join("weights.bin"), file).unwrap();
    let texts = [offsets[0], offsets[1], offsets[1] + 4 * ELEMENTS[1]].map(|offset| offset.to_string());
    let tensor =
        |name, elements, offset: &str| outside(name, elements, &[("location", "weights.bin"), ("offset", offset)]);
    let bytes = model(vec![
        tensor("w0", ELEMENTS[0], &texts[0]),
        tensor("w1", ELEMENTS[1], &texts[1]),
        tensor("w2", ELEMENTS[0], &texts[2]),
    ]);
    let loaded = OnnxModel::parse(&bytes, &folder).unwrap();
    assert_eq!(positions(&loaded), [Some(offsets[0]), None, Some(offsets[1] + 4 * ELEMENTS[1])]);
    assert_eq!(loaded.folder.files.lock().unwrap().len(), 1);
    check(&loaded);
    assert!(loaded.folder.is_unchanged());
    std::fs::write(folder.join("other.bin"), [0; 8]).unwrap();
    assert!(loaded.folder.is_unchanged());
    std::fs::copy(folder.join("weights.bin"), folder.join("other.bin")).unwrap();
    std::fs::rename(folder.join("other.bin"), folder.join("weights.bin")).unwrap();
    assert!(!loaded.folder.is_unchanged());
    check(&loaded);

    // Of a file that is too short nothing is mapped, whatever the offset.
    for offset in [offsets[0] + 4 * ELEMENTS[0], usize::MAX - 8] {
        let bytes = model(vec![tensor("w0", 2 * ELEMENTS[0], &offset.to_string())]);
        let error = OnnxModel::parse(&bytes, &folder).err().unwrap().to_string();
        assert!(error.contains("past its end"), "{error}");
    }
    // A large file outside of the folder is not mapped either.
    let inner = folder.join("inner");
    std::fs::create_dir(&inner).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.join("weights.bin"), inner.join("weights.bin")).unwrap();
    let error = OnnxModel::parse(&bytes, &inner).err().unwrap().to_string();
    assert!(!cfg!(unix) || error.contains("outside of the model's folder"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn synthetic_tensors_are_made_when_they_are_read() {
    let entries = [("location", "synthetic"), ("distribution", "uniform"), ("seed", "3"), ("low", "0"), ("high", "1")];
    // Making this one would take minutes.
    let huge = 1 << 29;
    let bytes = model(vec![outside("w0", huge, &entries), outside("w1", ELEMENTS[1], &entries)]);
    let loaded = OnnxModel::parse(&bytes, Path::new("nowhere")).unwrap();
    assert_eq!(loaded.weights[0].1.data.len(), 4 * huge);
    let expected: Vec<u8> = Recipe::Uniform { seed: 3, low: 0.0, high: 1.0 }
        .fill(ELEMENTS[1])
        .into_iter()
        .flat_map(f32::to_le_bytes)
        .collect();
    assert!(loaded.weights[1].1.data[..] == expected[..]);
}
