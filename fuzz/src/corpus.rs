//! Valid inputs that mutations start from: the fixtures of the tests, the programs of the data sets.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tilewright::internal::graph::import::value_file;
use tilewright::internal::runtime::npy;
use tilewright::{Kind, Model, Options, Target, Tensor};

/// Larger files are left out: mutations of them reach little else.
const LARGEST: usize = 8 << 10;

pub fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().find(|p| p.join("datasets").is_dir()).expect("the repository")
}

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

/// The contents of all small files below folders of the repository with this extension, sorted by path.
fn contents(folders: &[&str], extension: &str) -> Vec<Vec<u8>> {
    let mut paths = vec![];
    folders.iter().for_each(|f| files(&root().join(f), extension, &mut paths));
    let mut all: Vec<Vec<u8>> = paths.iter().map(|p| std::fs::read(p).unwrap()).collect();
    all.retain(|bytes| bytes.len() <= LARGEST);
    assert!(!all.is_empty(), "no {extension} files below {folders:?}");
    all
}

fn texts(folders: &[&str], extension: &str) -> Vec<String> {
    contents(folders, extension).into_iter().map(|bytes| String::from_utf8(bytes).unwrap()).collect()
}

/// ONNX files of one operator and of small networks.
pub fn onnx() -> &'static [Vec<u8>] {
    static FILES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FILES.get_or_init(|| contents(&["tests/fixtures/operators"], "onnx"))
}

/// Programs with their schedules.
pub fn tile() -> &'static [String] {
    static FILES: OnceLock<Vec<String>> = OnceLock::new();
    FILES.get_or_init(|| texts(&["datasets"], "tile"))
}

/// Graphs as text.
pub fn graphs() -> &'static [String] {
    static FILES: OnceLock<Vec<String>> = OnceLock::new();
    let printed = |bytes: &Vec<u8>| {
        let graph = Model::parse(bytes, "nowhere").ok()?.graph(&Default::default()).ok()?;
        Some(tilewright::graph_text::print(&graph))
    };
    FILES.get_or_init(|| onnx().iter().step_by(7).filter_map(printed).filter(|t| t.len() <= LARGEST).collect())
}

/// Modules of small models, for any target.
pub fn modules() -> &'static [Vec<u8>] {
    static FILES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FILES.get_or_init(|| {
        let compile = |name: &str| {
            let model = Model::load(root().join(format!("tests/fixtures/operators/{name}.onnx"))).unwrap();
            let options = Options { target: Target::by_name("x86-64-avx2").ok(), threads: 1, ..Options::default() };
            model.compile_module(&options).unwrap().0.to_bytes().unwrap()
        };
        ["conv_batch_norm_relu", "gather_embedding", "loop_with_if", "topk_largest_last"]
            .into_iter()
            .filter(|name| root().join(format!("tests/fixtures/operators/{name}.onnx")).exists())
            .map(compile)
            .collect()
    })
}

/// Tensors of all element types that fit both formats.
fn tensors() -> Vec<Tensor> {
    use tilewright::DType::*;
    let types = [F64, F32, F16, I64, I32, I16, I8, U64, U32, U16, U8, Bool];
    let shapes: [&[i64]; 5] = [&[], &[0], &[5], &[2, 3], &[1, 2, 1, 3]];
    let pairs = types.iter().flat_map(|&t| shapes.iter().map(move |s| (t, *s)));
    pairs.map(|(dtype, shape)| Tensor::seeded(dtype, shape, 1, 0, 2)).collect()
}

/// `.npy` files.
pub fn npy() -> &'static [Vec<u8>] {
    static FILES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let bytes = |t: &Tensor| [npy::header(t.dtype, &t.shape).unwrap(), t.data.to_vec()].concat();
    FILES.get_or_init(|| tensors().iter().map(bytes).collect())
}

/// Messages of tensors, sequences and optionals.
pub fn values() -> &'static [Vec<u8>] {
    static FILES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FILES.get_or_init(|| {
        let mut all: Vec<Vec<u8>> = vec![];
        let list: Vec<tilewright::Value> = tensors().into_iter().map(tilewright::Value::from).collect();
        let mut add = |value: &tilewright::Value| all.push(value_file::encode_value("x", value).unwrap());
        list.iter().for_each(&mut add);
        add(&tilewright::Value::from(list[..3].to_vec()));
        add(&tilewright::Value::from(vec![tilewright::Value::from(list[..2].to_vec())]));
        add(&tilewright::Value::Optional(Some(Box::new(list[1].clone()))));
        add(&tilewright::Value::Optional(None));
        all
    })
}

/// The kinds that a message of a value may be read as.
pub fn kinds() -> [Kind; 4] {
    let tensors = Kind::Sequence(Box::new(Kind::Tensor));
    [Kind::Tensor, tensors.clone(), Kind::Optional(Box::new(Kind::Tensor)), Kind::Sequence(Box::new(tensors))]
}
