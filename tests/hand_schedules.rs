//! The library of schedules by hand: each is legal, says where it comes from, and computes what its program computes.

mod common;

use common::{check_all, difference, host_targets, root, run_seeded};
use std::collections::BTreeMap;
use std::sync::Arc;
use tilewright::{Model, Options, Tensor};

/// Relative tolerance for sums in another order.
const TOLERANCE: f64 = 1e-5;

fn files() -> Vec<std::path::PathBuf> {
    let folder = root().join("datasets/schedules");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "tile"));
    files.sort();
    files
}

/// The outputs for the sizes of the set SMALL, on seeded inputs.
fn outputs(model: &Model, options: &Options, threads: usize) -> tilewright::Result<Vec<Tensor>> {
    run_seeded(Arc::new(model.compile_module(options)?.0), threads, 2)
}

#[test]
fn every_schedule_of_the_library_is_legal_and_right() {
    let files = files();
    assert!(files.len() >= 9, "{files:?}");
    check_all(&files, |path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let year = |l: &str| l.split(|c: char| !c.is_ascii_digit()).any(|word| word.len() == 4);
        if !text.lines().take_while(|l| l.starts_with('#')).any(year) {
            return Err(format!("{name} does not begin with where the idea comes from"));
        }
        let file = tilewright::File::load(path).map_err(|e| e.to_string())?;
        for program in &file.programs {
            let base = Model::from_program(file.clone(), Some(&program.name), Some("SMALL")).unwrap();
            let schedules = file.schedules_of(program);
            assert!(!schedules.is_empty(), "{name}: {} has no schedule", program.name.text);
            for target in host_targets() {
                let options = Options { target: Some(target.clone()), dims: BTreeMap::new(), ..Options::default() };
                let expected =
                    outputs(&base.clone().untransformed(), &options, 1).map_err(|e| format!("{name}: {e}"))?;
                for schedule in &schedules {
                    let place = format!("{name}, {}, {}", schedule.name.text, target.name);
                    let model = base.clone().with_schedule(&schedule.name).unwrap();
                    for threads in [1, 2] {
                        let found = outputs(&model, &options, threads).map_err(|e| format!("{place}: {e}"))?;
                        for (a, b) in found.iter().zip(&expected) {
                            if let Some(why) = difference(a, b, TOLERANCE) {
                                return Err(format!("{place}, {threads} threads: {why}"));
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    });
}
