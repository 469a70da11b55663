//! The 30 kernels of PolyBench/C 4.2.1, as `datasets/polybench` writes them, against plain Rust: the same initial values,
//! the same loops, nothing of the compiler. Sums may be reordered, so that floating point agrees to a relative 1e-9.

#[path = "polybench/blas.rs"]
mod blas;
mod common;
#[path = "polybench/linear_algebra.rs"]
mod linear_algebra;
#[path = "polybench/medley.rs"]
mod medley;
#[path = "polybench/solvers.rs"]
mod solvers;
#[path = "polybench/statistics.rs"]
mod statistics;
#[path = "polybench/stencils.rs"]
mod stencils;

pub use common::array::Array;
use common::{host_targets, reals, root};
use std::collections::BTreeMap;
use std::ops::Index;
use std::sync::Arc;
use tilewright::{Model, Options, Session, Target};

/// The sizes of a kernel by name.
pub struct Sizes<'a>(&'a BTreeMap<String, i64>);

impl Index<&str> for Sizes<'_> {
    type Output = i64;
    fn index(&self, name: &str) -> &i64 {
        &self.0[name]
    }
}

impl Sizes<'_> {
    pub fn n(&self, name: &str) -> usize {
        self[name] as usize
    }
}

/// The outputs of a kernel in the order of its arrays.
type Reference = fn(&Sizes) -> Vec<Array>;

/// File, reference.
const KERNELS: [(&str, Reference); 30] = [
    ("2mm", linear_algebra::two_products),
    ("3mm", linear_algebra::three_products),
    ("adi", stencils::adi),
    ("atax", linear_algebra::atax),
    ("bicg", linear_algebra::bicg),
    ("cholesky", solvers::cholesky),
    ("correlation", statistics::correlation),
    ("covariance", statistics::covariance),
    ("deriche", medley::deriche),
    ("doitgen", linear_algebra::doitgen),
    ("durbin", solvers::durbin),
    ("fdtd-2d", stencils::fdtd_2d),
    ("floyd-warshall", medley::floyd_warshall),
    ("gemm", blas::gemm),
    ("gemver", blas::gemver),
    ("gesummv", blas::gesummv),
    ("gramschmidt", solvers::gramschmidt),
    ("heat-3d", stencils::heat_3d),
    ("jacobi-1d", stencils::jacobi_1d),
    ("jacobi-2d", stencils::jacobi_2d),
    ("lu", solvers::lu),
    ("ludcmp", solvers::ludcmp),
    ("mvt", linear_algebra::mvt),
    ("nussinov", medley::nussinov),
    ("seidel-2d", stencils::seidel_2d),
    ("symm", blas::symm),
    ("syr2k", blas::syr2k),
    ("syrk", blas::syrk),
    ("trisolv", solvers::trisolv),
    ("trmm", blas::trmm),
];

/// The first element that differs by more than a relative 1e-9, and by more than 1e-11 of the largest: what a recursion
/// such as durbin's makes of the rounding of a sum.
fn difference(name: &str, found: &[f64], wanted: &[f64]) -> Option<String> {
    assert_eq!(found.len(), wanted.len(), "{name}");
    let largest = wanted.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let wrong = |(f, w): (&f64, &f64)| !((f - w).abs() <= 1e-9 * w.abs() || (f - w).abs() <= 1e-11 * largest);
    let at = found.iter().zip(wanted).position(wrong)?;
    Some(format!("{name}: element {at} is {}, not {}", found[at], wanted[at]))
}

fn check(set: &str, target: &Target) {
    let mut wrong = vec![];
    for (name, reference) in KERNELS {
        let path = root().join(format!("datasets/polybench/{name}.tile"));
        let file = tilewright::File::load(&path).unwrap_or_else(|e| panic!("{e}"));
        let sizes = file.programs[0].bind(&BTreeMap::new(), Some(set)).unwrap();
        let model = Model::from_program(file, None, Some(set)).unwrap();
        let module = match model.compile_module(&Options { target: Some(target.clone()), ..Options::default() }) {
            Ok((module, report)) => {
                wrong.extend(report.fallbacks().iter().map(|(_, reason)| format!("{name}: {reason}")));
                Arc::new(module)
            }
            Err(e) => {
                wrong.push(format!("{name}: {e}"));
                continue;
            }
        };
        let declared: Vec<String> = model.outputs().into_iter().map(|output| output.name).collect();
        assert!(declared.iter().eq(module.outputs().iter().map(|output| &output.tensor.name)), "{name}");
        let wanted = reference(&Sizes(&sizes));
        for threads in [1, 2] {
            let session = Session::new(module.clone(), threads).unwrap();
            let given = session.initial_values().unwrap();
            let given: Vec<_> = given.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
            let outputs = session.run(&given).unwrap();
            assert_eq!(outputs.len(), wanted.len(), "{name}");
            let outputs: Vec<Vec<f64>> = outputs.iter().map(reals).collect();
            if name == "gramschmidt" {
                wrong.extend(solvers::gramschmidt_difference(&outputs, &wanted));
                continue;
            }
            let pairs = outputs.iter().zip(&wanted).zip(module.outputs());
            let label = |output: &str| format!("{name} {set}, {threads} threads, {output}");
            wrong.extend(pairs.filter_map(|((f, w), o)| difference(&label(&o.tensor.name), f, &w.data)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn mini_on_every_target_of_this_processor() {
    host_targets().iter().for_each(|target| check("MINI", target));
}

#[test]
fn small() {
    check("SMALL", &host_targets()[0]);
}

#[test]
fn small_in_tiles_and_waves() {
    check("SMALL", &host_targets()[0].clone().with_caches([4 << 10, 24 << 10, 1 << 20]));
}

#[test]
fn every_program_of_the_folder_is_checked_and_has_five_sets_of_sizes() {
    let mut names = vec![];
    for entry in std::fs::read_dir(root().join("datasets/polybench")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "tile") {
            let file = tilewright::File::load(&path).unwrap();
            let sets: Vec<&str> = file.programs[0].sizes.iter().map(|s| &*s.name).collect();
            assert_eq!(sets, ["MINI", "SMALL", "MEDIUM", "LARGE", "EXTRALARGE"]);
            names.push(path.file_stem().unwrap().to_str().unwrap().to_string());
        }
    }
    names.sort();
    assert_eq!(names, KERNELS.map(|k| k.0));
}
