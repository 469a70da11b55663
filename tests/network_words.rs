//! Schedules of networks in words: what `explain --stage schedule` prints for every kernel, read back, compiles to the same
//! bytes.

mod common;

use common::{check_all, fixtures, root};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tilewright::{File, Model, Module, Options, Stage};

/// A kernel without words, with the reason.
type Silent = String;

/// Compiles a model, and again with the words that are printed for it. Returns the number of its kernels, and those
/// without words.
fn check(path: &Path) -> Result<(usize, Vec<Silent>), String> {
    let (name, options) = (path.file_stem().unwrap().to_string_lossy().into_owned(), Options::default());
    let failed = |what: &str| {
        let what = format!("{name}: {what}");
        move |e: tilewright::Error| format!("{what}: {e}")
    };
    let model = Model::load(path).map_err(failed("load"))?;
    if model.depends_on_data(&options) || model.depends_on_values(&options) {
        return Ok((0, vec![]));
    }
    let (found, _) = model.compile_module(&options).map_err(failed("compile"))?;
    let words = model.explain(&options, Stage::Schedule, None).map_err(failed("explain"))?;
    let silent = words.lines().filter_map(|l| l.strip_prefix("# This order cannot be expressed as primitives: "));
    let silent: Vec<Silent> = silent.map(|why| format!("{name}: {why}")).collect();
    let file = File::parse("words.tile", &words).map_err(failed("parse"))?;
    let kernels = file.schedules.len() + silent.len();
    let (again, _) = model.with_schedules(file).compile_module(&options).map_err(failed("compile by hand"))?;
    let bytes = |module: Module| module.to_bytes().map_err(failed("save"));
    if bytes(found)? == bytes(again)? { Ok((kernels, silent)) } else { Err(format!("{name}: other bytes")) }
}

/// Checks models; returns the number of kernels, and those without words.
fn check_models(paths: &[PathBuf]) -> (usize, Vec<Silent>) {
    let found = Mutex::new((0, vec![]));
    check_all(paths, |path| {
        let (kernels, silent) = check(path)?;
        let mut found = found.lock().unwrap();
        found.0 += kernels;
        found.1.extend(silent);
        Ok(())
    });
    let (kernels, mut silent) = found.into_inner().unwrap();
    silent.sort();
    println!("{kernels} kernels of {} networks, {} without words: {silent:#?}", paths.len(), silent.len());
    (kernels, silent)
}

/// Every eighth fixture of an operator; where the variable `TILEWRIGHT_WORDS` is set, all of them, and the networks of the
/// data sets, which takes minutes.
#[test]
fn words_of_networks_compile_to_the_same_bytes() {
    let all = std::env::var_os("TILEWRIGHT_WORDS").is_some();
    let mut paths: Vec<PathBuf> = fixtures("operators", "onnx").into_iter().step_by(if all { 1 } else { 8 }).collect();
    paths.extend(fixtures("networks", "onnx"));
    // one array in several layouts
    paths.push(root().join("tests/fixtures/operators/conv_transpose_dilated_groups.onnx"));
    if all {
        let networks = std::fs::read_dir(root().join("datasets/networks")).unwrap();
        paths.extend(networks.map(|entry| entry.unwrap().path()));
    }
    let (kernels, silent) = check_models(&paths);
    assert!(kernels >= 250 && silent.is_empty(), "{kernels} kernels, without words {silent:#?}");
}

#[test]
fn schedules_for_kernels_are_proven_and_have_names() {
    let model = Model::load(root().join("tests/fixtures/operators/conv_batch_norm_relu.onnx")).unwrap();
    let compile = |text: &str| {
        let file = File::parse("by_hand.tile", text)?;
        model.clone().with_schedules(file).compile_module(&Options::default()).map(|compiled| compiled.0)
    };
    let refused = |text: &str| compile(text).unwrap_err().to_string();
    let plain = compile("schedule plain for conv_max_0 { serial }").unwrap();
    assert!(plain.code() != compile("").unwrap().code());
    let text = refused("schedule typo for conv_mx_0 { serial }");
    assert!(text.contains("by_hand.tile:1:19") && text.contains("did you mean `conv_max_0`?"), "{text}");
    let text = refused("schedule a for conv_max_0 { serial } schedule b for conv_max_0 { serial }");
    assert!(text.contains("kernel `conv_max_0` has two schedules, `a` and `b`"), "{text}");
    let text = refused("schedule late for conv_max_0 {\n    sequence y3, t5_update, t5_init\n}");
    assert!(text.contains("by_hand.tile:2:5"), "{text}");
}
