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

/// Compares what each schedule of a file computes with the program as it is written.
fn compared(file: &tilewright::File, name: &str, size: Option<&str>) -> Result<(), String> {
    for program in &file.programs {
        let base = Model::from_program(file.clone(), Some(&program.name), size).unwrap();
        let schedules = file.schedules_of(program);
        assert!(!schedules.is_empty(), "{name}: {} has no schedule", program.name.text);
        for target in host_targets() {
            let options = Options { target: Some(target.clone()), dims: BTreeMap::new(), ..Options::default() };
            let expected = outputs(&base.clone().untransformed(), &options, 1).map_err(|e| format!("{name}: {e}"))?;
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
        compared(&file, name, Some("SMALL"))
    });
}

/// Schedules around reversed loops and loops of one iteration.
#[test]
fn schedules_of_reversed_loops_are_right() {
    let texts = [
        // dead parts of tiles
        "loop p() { inout f32 a[5][5]  temp f32 b[5][5]
         for t in 0..9 {
             for i in 1..4 step -1 for j in 1..4 step -1 A: b[i][j] = 0.5 * a[i][j + 1] + 0.5 * a[i][j - 1]
             for i in 1..4 for j in 1..4 C: a[i][j] = b[i][j] } }
         schedule s for p { normalize; array_expand; shift C(i) by 1; shift C(j) by 1; merge A, C at j; skew A(i) by 4*t; skew A(j) by 4*t
             tile A(t, i, j) by (4, 16, 4) -> to, io, jo, ti, ii, ji }",
        // a parallel loop beside a statement, in a loop of one iteration
        "loop p() { in f32 a[33]  inout f32 o[33]
         for t in 0..1 { B: o[0] = 1  for i in 1..32 step -1 A: o[i] = a[i] } }
         schedule s for p { normalize; parallel A(i) }",
        // lanes of which some run one statement and some the other, one of them backwards
        "loop p() { inout f32 a[128], b[128], c[128]
         for t in 0..9 { for i in 1..127 step -1 A: b[i] = a[i] * 0.5  for i in 1..127 C: c[i] = a[i] } }
         schedule s for p { normalize; shift C(i) by 1; merge A, C at i; vectorize A(i) }",
    ];
    for text in texts {
        let file = tilewright::File::parse("p.tile", text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        compared(&file, text, None).unwrap_or_else(|e| panic!("{e}"));
    }
}
