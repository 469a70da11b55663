//! A digest of the modules of all fixtures on all targets: `make digest`. Changes that only move code leave it as it is.
//!
//! In: networks (datasets/models.json), operators (tests/fixtures/operators), PolyBench programs and schedules by hand.
//! Out: a CRC-32 for each group and for all. `--list` prints one for each module, so that the lists of two revisions can be
//! compared with `diff`; any other argument selects the cases whose name contains it. A compilation that is refused counts
//! with its message.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{bind, fixtures, read_tensors, root};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tilewright::{Model, Options, Result, Target, Tensor};

/// Compilations at once.
const THREADS: usize = 2;
/// Sizes of PolyBench programs and of schedules by hand, where their files have that set.
const SIZES: [&str; 2] = ["LARGE", "SMALL"];

/// A group, the name of a case in it, and the models with their dynamic dimensions that the case compiles.
struct Case {
    group: &'static str,
    name: String,
    load: Box<dyn Fn() -> Result<Vec<Variant>> + Send + Sync>,
}

/// Suffix of the case's name, a model, and the sizes of its dynamic dimensions.
type Variant = (String, Model, BTreeMap<String, i64>);

fn networks() -> Vec<Case> {
    let text = std::fs::read_to_string(root().join("datasets/models.json")).expect("datasets/models.json is there");
    let rows: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).expect("models.json is JSON");
    let file = |row: &serde_json::Value| root().join(row["file"].as_str().expect("each model has a file"));
    // Fetched models differ from machine to machine.
    let kept = rows.into_iter().filter(|(_, row)| file(row).starts_with(root().join("datasets")));
    let case = |(name, row): (String, serde_json::Value)| {
        let path = file(&row);
        let load = move || {
            let model = Model::load(&path)?;
            let shape = |name: &str| row["inputs"][name].as_array().into_iter().flatten().filter_map(|d| d.as_i64());
            let zeros = |i: &tilewright::InputSpec| Tensor::zeros(i.dtype, &shape(&i.name).collect::<Vec<i64>>());
            let inputs: Vec<Tensor> = model.inputs().iter().map(zeros).collect();
            let dims = bind(&model, &inputs);
            Ok(vec![(String::new(), model, dims)])
        };
        Case { group: "networks", name, load: Box::new(load) }
    };
    kept.map(case).collect()
}

fn operators() -> Vec<Case> {
    let case = |path: PathBuf| {
        let name = path.file_stem().expect("fixtures have names").to_string_lossy().into_owned();
        let load = move || {
            let model = Model::load(&path)?;
            let mut inputs = read_tensors(&path.with_extension("npy"));
            inputs.truncate(model.inputs().len());
            let dims = bind(&model, &inputs);
            Ok(vec![(String::new(), model, dims)])
        };
        Case { group: "operators", name, load: Box::new(load) }
    };
    fixtures("operators", "onnx").into_iter().map(case).collect()
}

/// Every program of every file of a folder of `datasets`: as scheduled, untransformed, and by each schedule of the file.
fn programs(group: &'static str) -> Vec<Case> {
    let case = |path: PathBuf| {
        let name = path.file_stem().expect("programs have names").to_string_lossy().into_owned();
        let load = move || {
            let file = tilewright::File::load(&path)?;
            let mut variants = vec![];
            for program in &file.programs {
                for sizes in SIZES {
                    let Ok(model) = Model::from_program(file.clone(), Some(&program.name), Some(sizes)) else {
                        continue;
                    };
                    let mut add = |order: &str, model: Model| {
                        variants.push((format!(" {} {sizes} {order}", program.name.text), model, BTreeMap::new()));
                    };
                    add("scheduled", model.clone());
                    add("untransformed", model.clone().untransformed());
                    for schedule in file.schedules_of(program) {
                        add(&schedule.name.text, model.clone().with_schedule(&schedule.name)?);
                    }
                }
            }
            Ok(variants)
        };
        Case { group, name, load: Box::new(load) }
    };
    fixtures(&format!("../../datasets/{group}"), "tile").into_iter().map(case).collect()
}

/// The checksums of the modules of a case, each with its name.
fn digest(case: &Case) -> Vec<(String, u32)> {
    let variants = match (case.load)() {
        Ok(variants) => variants,
        Err(refused) => return vec![(case.name.clone(), crc32fast::hash(refused.to_string().as_bytes()))],
    };
    let mut sums = vec![];
    for (name, model, dims) in &variants {
        for target in Target::all() {
            let name = format!("{}{name} {}", case.name, target.name);
            let options = Options { target: Some(target), dims: dims.clone(), ..Options::default() };
            let module = model.compile_module(&options).and_then(|(module, _)| module.to_bytes());
            let bytes = module.unwrap_or_else(|refused| refused.to_string().into_bytes());
            sums.push((name, crc32fast::hash(&bytes)));
        }
    }
    sums
}

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let list = words.iter().position(|w| w == "--list").map(|i| words.remove(i)).is_some();
    let mut cases = networks();
    cases.extend(operators());
    cases.extend(programs("polybench"));
    cases.extend(programs("schedules"));
    cases.retain(|c| words.is_empty() || words.iter().any(|w| c.name.contains(w)));

    let (next, sums) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some((i, case)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, cases.get(i)?)))
                {
                    let found = digest(case);
                    sums.lock().expect("no compilation panics").insert(i, found);
                }
            });
        }
    });

    let (mut all, mut modules) = (crc32fast::Hasher::new(), 0);
    for group in ["networks", "operators", "polybench", "schedules"] {
        let (mut hasher, mut count) = (crc32fast::Hasher::new(), 0);
        let sums = sums.lock().expect("no compilation panics");
        for (name, sum) in sums.iter().filter(|(i, _)| cases[**i].group == group).flat_map(|(_, sums)| sums) {
            if list {
                println!("{sum:08x} {group} {name}");
            }
            hasher.update(format!("{sum:08x} {name}\n").as_bytes());
            count += 1;
        }
        let sum = hasher.finalize();
        println!("{sum:08x} {group}: {count} modules");
        all.update(&sum.to_le_bytes());
        modules += count;
    }
    println!("{:08x} all: {modules} modules", all.finalize());
}
