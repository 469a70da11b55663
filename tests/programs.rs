//! The programs of `datasets/programs` against plain Rust: the ILP's order and the order as written, one and two threads,
//! every target of this processor.

mod common;
#[path = "programs/reference.rs"]
mod reference;

use common::{host_targets, reals, root};
use reference::Arrays;
use std::collections::BTreeMap;
use std::sync::Arc;
use tilewright::{DType, Model, Options, Session, Target};

/// Changes the arrays as the program does.
type Reference = fn(&mut Arrays);

const PROGRAMS: [(&str, Reference); 31] = [
    ("bilateral", reference::bilateral),
    ("csr_softmax", reference::csr_softmax),
    ("cumulative_max", reference::cumulative_max),
    ("edit_distance", reference::edit_distance),
    ("gauss_seidel5", reference::gauss_seidel5),
    ("gotoh", reference::gotoh),
    ("haar", reference::haar),
    ("harris", reference::harris),
    ("histogram", reference::histogram),
    ("iir_filter", reference::iir_filter),
    ("integral_image", reference::integral_image),
    ("inverse3x3", reference::inverse3x3),
    ("knapsack", reference::knapsack),
    ("laplacian_pyramid", reference::laplacian_pyramid),
    ("lcs", reference::lcs),
    ("ldlt", reference::ldlt),
    ("mandelbrot", reference::mandelbrot),
    ("matrix_chain", reference::matrix_chain),
    ("median3", reference::median3),
    ("moving_average", reference::moving_average),
    ("power_iteration", reference::power_iteration),
    ("prefix_sum", reference::prefix_sum),
    ("red_black", reference::red_black),
    ("sddmm", reference::sddmm),
    ("seidel9", reference::seidel9),
    ("smith_waterman", reference::smith_waterman),
    ("spmv_csr", reference::spmv_csr),
    ("spmv_ell", reference::spmv_ell),
    ("stencil27", reference::stencil27),
    ("thomas", reference::thomas),
    ("trsm", reference::trsm),
];

/// Runs `model` on its initial values; the first output that is not what `reference` computes.
fn difference(model: &Model, target: &Target, sizes: &BTreeMap<String, i64>, reference: Reference) -> Option<String> {
    let options = Options { target: Some(target.clone()), ..Options::default() };
    let module = match model.compile_module(&options) {
        Ok((module, _)) => Arc::new(module),
        Err(e) => return Some(e.to_string()),
    };
    for threads in [1, 2] {
        let session = Session::new(module.clone(), threads).unwrap();
        let initial = session.initial_values().unwrap();
        let mut arrays = Arrays::new(sizes, initial.iter().map(|(name, t)| (name.as_str(), &t.shape[..], reals(t))));
        reference(&mut arrays);
        let given: Vec<_> = initial.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let outputs = session.run(&given).unwrap();
        for (output, tensor) in module.outputs().iter().zip(&outputs) {
            let (name, wanted) = (&output.tensor.name, arrays.values(&output.tensor.name));
            let most = wanted.iter().fold(0.0f64, |m, w| m.max(w.abs()));
            let tolerance = match tensor.dtype {
                DType::F32 => 2e-5 * most,
                DType::F64 => 1e-11 * most,
                _ => 0.0,
            };
            let computed = reals(tensor);
            assert_eq!(computed.len(), wanted.len(), "{name}");
            if let Some(at) = computed.iter().zip(wanted).position(|(c, w)| (c - w).abs() > tolerance || c.is_nan()) {
                return Some(format!(
                    "{}, {threads} threads: {name}, element {at} is {}, not {}",
                    target.name, computed[at], wanted[at]
                ));
            }
        }
    }
    None
}

#[test]
fn every_program_computes_what_plain_rust_does() {
    let mut wrong = vec![];
    for (name, reference) in PROGRAMS {
        let file = tilewright::File::load(root().join(format!("datasets/programs/{name}.tile")))
            .unwrap_or_else(|e| panic!("{e}"));
        let sizes = file.programs[0].bind(&BTreeMap::new(), Some("SMALL")).unwrap();
        let model = Model::from_program(file, None, Some("SMALL")).unwrap();
        for (order, model) in [("untransformed", model.clone().untransformed()), ("ILP", model)] {
            for target in host_targets() {
                wrong.extend(difference(&model, &target, &sizes, reference).map(|d| format!("{name}, {order}: {d}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_program_of_the_folder_is_checked_and_has_its_sets_of_sizes() {
    let mut names = vec![];
    for entry in std::fs::read_dir(root().join("datasets/programs")).unwrap() {
        let path = entry.unwrap().path();
        let file = tilewright::File::load(&path).unwrap();
        let sets: Vec<&str> = file.programs[0].sizes.iter().map(|s| &*s.name).collect();
        assert_eq!(sets, ["SMALL", "LARGE"], "{}", path.display());
        names.push(path.file_stem().unwrap().to_str().unwrap().to_string());
    }
    names.sort();
    assert_eq!(names, PROGRAMS.map(|p| p.0));
}
