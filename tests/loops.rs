//! The programs of `datasets/loops`: the planner's order computes what the order as written does, on one thread and on two, on
//! every target of this processor.

mod common;

use common::{difference, host_targets, root};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tilewright::{DType, File, Model, Options, Session, Target, Tensor};

fn programs() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(root().join("datasets/loops")).unwrap();
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn run(model: &Model, target: &Target, threads: usize) -> Vec<Tensor> {
    let options = Options { target: Some(target.clone()), ..Options::default() };
    let session = Session::new(Arc::new(model.compile_module(&options).unwrap().0), threads).unwrap();
    let initial = session.initial_values().unwrap();
    let inputs: Vec<_> = initial.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    session.run(&inputs).unwrap()
}

/// More than other roundings of the sums explain.
fn tolerance(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-11 } else { 2e-5 }
}

fn check(path: &Path) -> Vec<String> {
    let name = path.file_stem().unwrap().to_string_lossy();
    let file = File::load(path).unwrap_or_else(|e| panic!("{e}"));
    let sets: Vec<&str> = file.programs[0].sizes.iter().map(|s| &*s.name).collect();
    assert_eq!(sets, ["SMALL", "LARGE"], "{name}");
    file.programs[0].bind(&BTreeMap::new(), Some("LARGE")).unwrap();
    let model = Model::from_program(file, None, Some("SMALL")).unwrap_or_else(|e| panic!("{e}"));
    let mut wrong = vec![];
    for target in host_targets() {
        let wanted = run(&model.clone().untransformed(), &target, 1);
        for threads in [1, 2] {
            for (i, (output, wanted)) in run(&model, &target, threads).iter().zip(&wanted).enumerate() {
                let why = difference(output, wanted, tolerance(wanted.dtype));
                wrong.extend(why.map(|d| format!("{name}, {}, {threads} threads, output {i}: {d}", target.name)));
            }
        }
    }
    wrong
}

#[test]
fn every_program_computes_what_its_own_order_does() {
    let wrong: Vec<String> = programs().iter().flat_map(|path| check(path)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
