//! Compiled models: the same bytes each time, the same bits for any number of threads, saved, loaded and shared.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tilewright::codegen::target::Target;
use tilewright::graph::ir::{Graph, ValueId};
use tilewright::pipeline::{self, Stage};
use tilewright::runtime::module::Action;
use tilewright::runtime::npy;
use tilewright::{Error, Limits, Model, Module, Options, Session, Tensor};

fn path(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/operators/{case}.onnx"))
}

/// A model and inputs for it.
fn load(case: &str) -> (Model, Vec<(String, Tensor)>) {
    let model = Model::load(path(case)).unwrap();
    let bytes = std::fs::read(path(case).with_extension("npy")).unwrap();
    let mut stream = &bytes[..];
    let inputs = model.inputs().iter().map(|i| (i.name.clone(), npy::read(&mut stream).unwrap())).collect();
    (model, inputs)
}

fn named(inputs: &[(String, Tensor)]) -> Vec<(&str, &Tensor)> {
    inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect()
}

#[test]
fn bindings_share_their_weights() {
    let (model, _) = load("pattern_residual_block");
    let [a, b] = [0, 1].map(|_| model.graph(&BTreeMap::new()).unwrap());
    let large = |g: &Graph| -> Vec<Arc<Tensor>> {
        let constants = (0..g.values.len() as u32).filter_map(|v| g.constant(ValueId(v)).cloned());
        constants.filter(|t| t.data.len() > 500).collect()
    };
    let (a, b) = (large(&a), large(&b));
    assert!(!a.is_empty() && a.len() == b.len());
    assert!(a.iter().zip(&b).all(|(a, b)| Arc::ptr_eq(a, b)));
}

const CASES: [&str; 5] =
    ["pattern_residual_block", "pattern_attention", "conv_3x3_stride_2", "gather_runtime_negative", "argmax_last"];

#[test]
fn a_model_compiles_to_the_same_bytes_on_any_number_of_threads() {
    for case in CASES {
        let graph = load(case).0.graph(&BTreeMap::new()).unwrap();
        for target in Target::all() {
            let compile = |threads| {
                let options = pipeline::Options { threads, ..pipeline::Options::new(target.clone()) };
                pipeline::compile(&graph, &options).unwrap().module.to_bytes().unwrap()
            };
            let first = compile(1);
            assert!(first == compile(1) && first == compile(3), "{case} for {}", target.name);
        }
    }
}

#[test]
fn results_do_not_depend_on_threads_or_on_saving() {
    for case in CASES {
        let (model, inputs) = load(case);
        for target in Target::all().into_iter().filter(Target::runs_on_host) {
            let options = Options { target: Some(target), ..Options::default() };
            let module = model.compile_module(&options).unwrap().0;
            let copy = Arc::new(Module::from_bytes(&module.to_bytes().unwrap()).unwrap());
            let expected = Session::new(Arc::new(module), 1).unwrap().run(&named(&inputs)).unwrap();
            for threads in [1, 2, 3] {
                let session = Session::new(copy.clone(), threads).unwrap();
                for _ in 0..2 {
                    assert_eq!(session.run(&named(&inputs)).unwrap(), expected, "{case}, {threads} threads");
                }
            }
        }
    }
}

#[test]
fn many_threads_share_a_compiled_model_of_several_shapes() {
    let (model, inputs) = load("dynamic_batch");
    let compiled = model.compile(&Options { threads: 2, ..Options::default() }).unwrap();
    let row = inputs[0].1.to_vec::<f32>();
    let expected: Vec<Vec<Tensor>> = (1..=4)
        .map(|n| {
            let x = Tensor::new(&[n, 8], &row.iter().cycle().take(8 * n as usize).copied().collect::<Vec<_>>());
            let single = model.compile(&Options { threads: 1, ..Options::default() }).unwrap();
            let outputs = single.run(&[("x", &x)]).unwrap();
            [vec![x], outputs].concat()
        })
        .collect();
    std::thread::scope(|scope| {
        for caller in 0..8 {
            let (compiled, expected) = (&compiled, &expected);
            scope.spawn(move || {
                for round in 0..10 {
                    let case = &expected[(caller + round) % 4];
                    assert_eq!(compiled.run(&[("x", &case[0])]).unwrap(), case[1..]);
                }
            });
        }
    });
}

#[test]
fn a_module_for_another_processor_is_refused() {
    let neon = Target::by_name("aarch64-neon").unwrap();
    let foreign = if neon.runs_on_host() { Target::avx2() } else { neon };
    let (model, _) = load("conv_1x1");
    let module = model.compile_module(&Options { target: Some(foreign.clone()), ..Options::default() }).unwrap().0;
    let file = std::env::temp_dir().join(format!("tilewright-foreign-{}.tw", std::process::id()));
    module.save(&file).unwrap();
    let refused = Module::load(&file);
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(refused, Err(Error::Unsupported(m)) if m.contains(&foreign.name)));
}

#[test]
fn subscripts_out_of_range_are_an_error_and_not_a_read() {
    let (model, mut inputs) = load("gather_runtime_negative");
    let compiled = model.compile(&Options::default()).unwrap();
    let outputs = compiled.run(&named(&inputs)).unwrap();
    let session = compiled.session(&named(&inputs)).unwrap();
    let check = session.module().steps.iter().find_map(|s| match s.action {
        Action::CheckIndices { lower, upper, .. } => Some((lower, upper)),
        _ => None,
    });
    let (lower, upper) = check.unwrap();
    assert!(lower < 0 && upper == -lower - 1);
    let ids = inputs.iter().position(|(_, t)| t.dtype == tilewright::DType::I64).unwrap();
    let good = inputs[ids].1.clone();
    for wrong in [lower - 1, upper + 1, i64::MAX, i64::MIN] {
        inputs[ids].1.data[..8].copy_from_slice(&wrong.to_le_bytes());
        let refused = compiled.run(&named(&inputs));
        assert!(matches!(refused, Err(Error::Invalid(m)) if m.contains(&wrong.to_string())));
    }
    inputs[ids].1 = good;
    assert_eq!(compiled.run(&named(&inputs)).unwrap(), outputs);
}

#[test]
fn dimensions_are_bound_once() {
    let (model, _) = load("dynamic_sequence_positions");
    assert_eq!(model.symbols(), ["batch", "length"]);
    let bound = Options { dims: [("length".to_string(), 3)].into(), ..Options::default() };
    let compiled = model.compile(&bound).unwrap();
    let run = |shape: &[i64]| compiled.run(&[("i", &Tensor::zeros(tilewright::DType::I64, shape))]);
    assert_eq!(run(&[2, 3]).unwrap()[0].shape[..2], [2, 3]);
    assert!(matches!(run(&[2, 4]), Err(Error::Invalid(m)) if m.contains("length") && m.contains('3')));
    assert!(matches!(run(&[2]), Err(Error::Invalid(m)) if m.contains("2 dimensions")));
    let unknown = Options { dims: [("width".to_string(), 3)].into(), ..Options::default() };
    assert!(matches!(model.compile(&unknown).err(), Some(Error::Invalid(m)) if m.contains("width")));
}

#[test]
fn limits_are_kept() {
    let (model, _) = load("dynamic_batch");
    let limits = Limits { tensor_bytes: 1 << 20, ..Limits::default() };
    let dims = [("N".to_string(), 1 << 20)].into();
    let refused = model.compile(&Options { limits, dims, ..Options::default() });
    assert!(matches!(refused.err(), Some(Error::Limit(_))));
}

#[test]
fn every_stage_has_a_text() {
    let graph = load("pattern_residual_block").0.graph(&BTreeMap::new()).unwrap();
    let options = pipeline::Options::new(Target::avx2());
    for (name, stage) in pipeline::kernel::STAGES {
        assert_eq!(pipeline::stage(name).unwrap(), *stage);
        let text = pipeline::explain(&graph, &options, *stage, None);
        match stage {
            Stage::C => assert!(text.unwrap_err().to_string().contains("only programs of the text language")),
            _ => assert!(text.unwrap().lines().count() > 3, "{name}"),
        }
    }
    let refused = pipeline::explain(&graph, &options, Stage::Scop, Some("nothing")).unwrap_err().to_string();
    assert!(refused.contains("no kernel is called `nothing`"));
    assert!(pipeline::stage("nothing").is_err());
}
