//! Shared parts of integration tests: fixtures, comparison, the models of datasets/models.json.
#![allow(dead_code, reason = "each test file uses a part")]

#[path = "array.rs"]
pub mod array;
#[path = "loop_runs.rs"]
pub mod loop_runs;
#[path = "nodes.rs"]
pub mod nodes;
#[path = "../skip/mod.rs"]
pub mod skip;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tilewright::{Isa, Target};

use tilewright::Dim;
use tilewright::internal::expr::scalar::Value;
use tilewright::internal::language::{self, lowered::Computation};
use tilewright::internal::poly::scop::Scop;
use tilewright::internal::runtime::npy;
use tilewright::module::{Module, TensorSpec};
use tilewright::{DType, Model, Session, Tensor};

/// Tensor expressions that schedules are tried on.
pub const DEFS: &str = "
def gemm(f32(M,K) A, f32(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def blur2(f32(M,N) In) -> (Out) {
    Bx(y,x)  = (In(y,x) + In(y,x+1) + In(y,x+2)) / 3
    Out(y,x) = (Bx(y,x) + Bx(y+1,x) + Bx(y+2,x)) / 3
}
def softmax(f32(M,N) X) -> (Y) {
    top(m) max=! X(m,n)
    e(m,n) = exp(X(m,n) - top(m))
    total(m) +=! e(m,n)
    Y(m,n) = e(m,n) / total(m)
}
";

pub fn root() -> &'static Path {
    // The command line is a package in a folder of this one.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().find(|p| p.join("datasets").is_dir()).expect("the tests run in the repository")
}

/// The targets whose code this processor runs. Those of its architecture that it does not run are recorded as skipped.
pub fn host_targets() -> Vec<Target> {
    let (here, elsewhere): (Vec<Target>, Vec<Target>) = Target::all().into_iter().partition(Target::runs_on_host);
    let of_host = |t: &&Target| (t.isa == Isa::Neon) == cfg!(target_arch = "aarch64");
    for target in elsewhere.iter().filter(of_host) {
        skip::no_hardware(&format!("this processor does not run {}", target.name));
    }
    here
}

/// The statements of the loop program of a text.
pub fn scop(text: &str) -> Scop {
    let file = language::parse("p.tile", text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let lowered = file.lower(file.program(None).unwrap(), &Default::default(), None);
    match lowered.unwrap_or_else(|e| panic!("{e}\n{text}")).computation {
        Computation::Loop(scop) => scop,
        Computation::Def(_) => panic!("a loop program: {text}"),
    }
}

/// The outputs of a module for inputs from a seed (`bound`: see [`Tensor::seeded`]).
pub fn run_seeded(module: Arc<Module>, threads: usize, bound: u64) -> tilewright::Result<Vec<Tensor>> {
    let seeded = |(i, s): (u64, &TensorSpec)| (s.name.clone(), Tensor::seeded(s.dtype, &s.shape, 1, i, bound));
    let inputs: Vec<(String, Tensor)> = (0..).zip(module.inputs()).map(seeded).collect();
    let inputs: Vec<_> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    Session::new(module, threads)?.run(&inputs)
}

/// All tensors of a file of .npy streams, one after the other.
pub fn read_tensors(path: &Path) -> Vec<Tensor> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut stream = &bytes[..];
    let mut tensors = vec![];
    while !stream.is_empty() {
        tensors.push(npy::read(&mut stream).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
    }
    tensors
}

/// Elements as f64, in which integers beyond 2^53 are rounded.
pub fn reals(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype {
        DType::F64 => tensor.to_vec(),
        DType::F32 => tensor.to_vec::<f32>().into_iter().map(f64::from).collect(),
        DType::I64 => tensor.to_vec::<i64>().into_iter().map(|v| v as f64).collect(),
        DType::I32 => tensor.to_vec::<i32>().into_iter().map(f64::from).collect(),
        other => tensor.data.chunks_exact(other.bytes()).map(|b| Value::load(other, b).as_f64()).collect(),
    }
}

/// Why `actual` is not `expected` within `tolerance` of the largest absolute value, halves within a unit of their last place
/// where that is more; integers must be equal. The sign of a
/// zero is not compared: it depends on the order of a sum.
pub fn difference(actual: &Tensor, expected: &Tensor, tolerance: f64) -> Option<String> {
    if (actual.dtype, &actual.shape) != (expected.dtype, &expected.shape) {
        return Some(format!("{} {:?} instead of {} {:?}", actual.dtype, actual.shape, expected.dtype, expected.shape));
    }
    if !expected.dtype.is_float() {
        return (actual.data != expected.data).then(|| "integers differ".into());
    }
    let tolerance = match expected.dtype {
        DType::F16 => tolerance.max(1.0 / 1024.0),
        DType::BF16 => tolerance.max(1.0 / 128.0),
        _ => tolerance,
    };
    let expected = reals(expected);
    let scale = expected.iter().filter(|v| v.is_finite()).fold(0f64, |a, v| a.max(v.abs()));
    for (i, (a, e)) in reals(actual).into_iter().zip(expected).enumerate() {
        let same = a == e || (a.is_nan() && e.is_nan()) || (a - e).abs() <= tolerance * scale;
        if !same {
            return Some(format!("element {i} is {a} instead of {e}, where the largest is {scale}"));
        }
    }
    None
}

/// Sizes of the dynamic dimensions that these inputs, in the model's order, have.
pub fn bind(model: &Model, inputs: &[Tensor]) -> BTreeMap<String, i64> {
    let mut dims = BTreeMap::new();
    for (spec, tensor) in model.inputs().iter().zip(inputs) {
        for (dim, &size) in spec.shape.iter().zip(&tensor.shape) {
            if let Dim::Symbol(symbol) = dim {
                dims.insert(symbol.clone(), size);
            }
        }
    }
    dims
}

/// Runs `work` on every item, on two threads, and fails with all its complaints.
pub fn check_all<T: Sync>(items: &[T], work: impl Fn(&T) -> Result<(), String> + Sync) {
    let (next, complaints) = (AtomicUsize::new(0), Mutex::new(vec![]));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(complaint) = work(item) {
                        complaints.lock().unwrap().push(complaint);
                    }
                }
            });
        }
    });
    let mut complaints = complaints.into_inner().unwrap();
    complaints.sort();
    assert!(complaints.is_empty(), "{} of {} failed:\n{}", complaints.len(), items.len(), complaints.join("\n"));
}

/// The files of a folder of fixtures with this ending, sorted.
pub fn fixtures(folder: &str, ending: &str) -> Vec<PathBuf> {
    let folder = root().join("tests/fixtures").join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == ending));
    paths.sort();
    paths
}
