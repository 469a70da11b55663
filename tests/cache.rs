//! Modules on disk: found again for the same model and options alone, whole or not at all.
#![cfg(unix)]

#[path = "files/onnx.rs"]
mod onnx;

use onnx::{FLOAT, INT64, graph, model, node, tensor};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use tilewright::{
    Accumulate, Algorithm, CacheOptions, Compiled, DType, EgraphOptions, Error, File, GraphBuilder, Limits, Model,
    Module, Options, Precision, Quotients, Report, Result, Target, Tensor, Value,
};

/// A cache that is not there yet, in a folder that is removed at the end.
struct Cache {
    path: PathBuf,
    _around: TempDir,
}

impl Cache {
    fn new() -> Cache {
        let around = tempfile::tempdir().unwrap();
        Cache { path: around.path().join("cache"), _around: around }
    }

    fn options(&self) -> Options {
        Options { cache: Some(CacheOptions::new(&self.path)), threads: 1, ..Options::default() }
    }

    fn entries(&self) -> Vec<PathBuf> {
        self.files("entry")
    }

    /// Files that end so, sorted: modules with `entry`, kernels with `kernel`.
    fn files(&self, extension: &str) -> Vec<PathBuf> {
        let paths = std::fs::read_dir(&self.path).unwrap().map(|e| e.unwrap().path());
        let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
        paths.sort();
        paths
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/operators/{name}.onnx"))
}

fn load(name: &str) -> Model {
    Model::load(fixture(name)).unwrap()
}

fn bytes((module, report): &(Module, Report)) -> (Vec<u8>, String) {
    let report = Report { cached: false, ..report.clone() };
    (module.to_bytes().unwrap(), report.to_string())
}

#[test]
fn a_module_comes_back_with_its_report() {
    let cache = Cache::new();
    let options = cache.options();
    let program = || File::parse("p.tile", "def p(f32(N) x) -> (y) { y(i) = x(i) * 2 }").unwrap();
    let models: [&dyn Fn() -> Model; 4] = [
        &|| load("pattern_residual_block"),
        &|| load("conv_3x3_stride_2"),
        &|| Model::from_program(program(), None, None).unwrap(),
        &|| {
            let mut b = GraphBuilder::new("graph");
            let x = b.input("x", DType::F32, &[2, 3]);
            let w = b.constant(Tensor::seeded(DType::F32, &[3, 2], 1, 0, 2));
            let y = b.matmul(x, w).unwrap();
            b.output("y", y).unwrap();
            Model::from_graph(b.build().unwrap())
        },
    ];
    for (i, model) in models.iter().enumerate() {
        let options = Options { dims: model().symbols().into_iter().map(|s| (s, 8)).collect(), ..options.clone() };
        let first = model().compile_module(&options).unwrap();
        let second = model().compile_module(&options).unwrap();
        assert_eq!((first.1.cached, second.1.cached, cache.entries().len()), (false, true, i + 1));
        assert!(second.1.to_string().contains("now from the cache"), "{}", second.1);
        assert!(first.1.warnings.is_empty() && second.1.warnings.is_empty());
        assert!(bytes(&first) == bytes(&second) && first.1.kernels == second.1.kernels);
        let without = model().compile_module(&Options { cache: None, ..options }).unwrap();
        assert!(!without.1.cached && without.0 == first.0);
    }
}

#[test]
fn compiled_models_give_the_same_bits() {
    let cache = Cache::new();
    let run = |cached: bool| {
        [3, 5].map(|length| {
            let compiled = load("dynamic_sequence_positions").compile(&cache.options()).unwrap();
            let model = compiled.model();
            let inputs: Vec<Tensor> =
                model.inputs().iter().map(|i| Tensor::seeded(i.dtype, &[2, length], 1, 0, 2)).collect();
            let named: Vec<(&str, &Tensor)> = model.inputs().iter().map(|i| &*i.name).zip(&inputs).collect();
            assert_eq!(compiled.report(&named).unwrap().cached, cached);
            compiled.run(&named).unwrap()
        })
    };
    assert!(run(false) == run(true));
    assert_eq!(cache.entries().len(), 2);
}

/// Runs a model at these sizes of all its dynamic dimensions but the first, which is 2: the outputs, and whether each binding came
/// from the cache.
fn at_lengths(compiled: &Compiled, lengths: &[i64]) -> Vec<(bool, Vec<Tensor>)> {
    let run = |&length: &i64| {
        let inputs: Vec<Tensor> =
            compiled.model().inputs().iter().map(|i| Tensor::seeded(i.dtype, &[2, length], 1, 0, 2)).collect();
        let named: Vec<(&str, &Tensor)> = compiled.model().inputs().iter().map(|i| &*i.name).zip(&inputs).collect();
        (compiled.report(&named).unwrap().cached, compiled.run(&named).unwrap())
    };
    lengths.iter().map(run).collect()
}

#[test]
fn every_binding_is_kept_and_found_in_any_order() {
    let cache = Cache::new();
    let new = || load("dynamic_sequence_positions").compile(&cache.options()).unwrap();
    let first = at_lengths(&new(), &[3, 5, 9]);
    assert!(first.iter().all(|run| !run.0) && cache.entries().len() == 3);
    for lengths in [[9, 5, 3], [5, 9, 5], [3, 3, 9]] {
        let compiled = new();
        for (length, (cached, outputs)) in lengths.into_iter().zip(at_lengths(&compiled, &lengths)) {
            let wanted = &first[[3, 5, 9].iter().position(|&l| l == length).unwrap()].1;
            assert!(cached && outputs == *wanted, "{length} of {lengths:?}");
        }
        assert_eq!((compiled.compilations(), cache.entries().len()), (0, 3));
    }
    // one that was not seen is compiled beside those that were found
    let compiled = new();
    let mixed = at_lengths(&compiled, &[5, 7, 3]);
    assert_eq!([mixed[0].0, mixed[1].0, mixed[2].0, at_lengths(&new(), &[7])[0].0], [true, false, true, true]);
    assert!(mixed[0].1 == first[1].1 && mixed[2].1 == first[0].1 && compiled.compilations() == 1);
}

#[test]
fn two_writers_of_several_bindings_leave_whole_entries() {
    let cache = Cache::new();
    let new = || load("dynamic_sequence_positions").compile(&cache.options()).unwrap();
    let (a, b) = std::thread::scope(|s| {
        let a = s.spawn(|| at_lengths(&new(), &[3, 5, 9]));
        let b = s.spawn(|| at_lengths(&new(), &[9, 5, 3]));
        (a.join().unwrap(), b.join().unwrap())
    });
    assert!(a.iter().zip(b.iter().rev()).all(|(a, b)| a.1 == b.1));
    let again = at_lengths(&new(), &[3, 5, 9]);
    assert!(again.iter().zip(&a).all(|(again, a)| again.0 && again.1 == a.1));
    // what is damaged is compiled again, and nothing else
    for path in cache.entries() {
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    }
    let last = at_lengths(&new(), &[5, 3]);
    assert!(last.iter().all(|run| !run.0) && last[0].1 == a[1].1 && last[1].1 == a[0].1);
    assert!(at_lengths(&new(), &[5, 3]).iter().all(|run| run.0));
}

#[test]
fn a_module_of_one_binding_does_not_depend_on_others() {
    let cache = Cache::new();
    let limits = Limits { bindings: 1, ..Limits::default() };
    let compiled = load("dynamic_sequence_positions").compile(&Options { limits, ..cache.options() }).unwrap();
    assert!(at_lengths(&compiled, &[3, 5, 3]).iter().map(|run| run.0).eq([false, false, true]));
    let options = |length: i64| {
        let dims = load("dynamic_sequence_positions").symbols().into_iter().zip([2, length]).collect();
        Options { dims, ..cache.options() }
    };
    for (length, cached) in [(3, true), (5, false), (5, true)] {
        let options = options(length);
        let (module, report) = load("dynamic_sequence_positions").compile_module(&options).unwrap();
        assert_eq!(report.cached, cached, "{length}");
        let alone = load("dynamic_sequence_positions").compile_module(&Options { cache: None, ..options }).unwrap();
        assert!(module == alone.0, "{length}");
    }
}

#[test]
fn capacities_are_kept_for_all_counts_that_they_are_right_for() {
    let cache = Cache::new();
    let grown = || {
        let rows = model(graph(
            vec![tensor("x", FLOAT, Some(&["2", "n", "3"]))],
            vec![],
            vec![node("Softmax", &["x"], &["s"]), node("Add", &["s", "x"], &["y"])],
            vec![tensor("y", FLOAT, None)],
        ));
        rows.compile(&Options { growing: vec!["n".into()], ..cache.options() }).unwrap()
    };
    let run = |compiled: &Compiled, count: i64| {
        let x = Tensor::seeded(DType::F32, &[2, count, 3], count as u64, 0, 2);
        (compiled.report(&[("x", &x)]).unwrap().cached, compiled.run(&[("x", &x)]).unwrap().remove(0))
    };
    let compiled = grown();
    let counts = [3, 5, 40, 100, 200];
    let first = counts.map(|count| run(&compiled, count));
    let (made, entries) = (compiled.compilations(), cache.entries().len());
    assert!(made < counts.len() && entries == made && first.iter().all(|run| !run.0), "{made} and {entries}");
    let compiled = grown();
    for (i, count) in [100, 200, 5, 3, 40].into_iter().enumerate() {
        let (cached, y) = run(&compiled, count);
        let wanted = &first[counts.iter().position(|&c| c == count).unwrap()].1;
        assert!(cached && y == *wanted, "{i}: {count}");
    }
    // counts that are new in a capacity that is not
    assert!(run(&compiled, 7).0 && run(&grown(), 99).0);
    assert_eq!((compiled.compilations(), cache.entries().len()), (0, entries));
}

#[test]
fn the_reason_for_exact_sizes_comes_with_a_cached_module() {
    let cache = Cache::new();
    let x = Tensor::seeded(DType::F32, &[1, 2, 5], 1, 0, 2);
    for cached in [false, true] {
        let pooled = model(graph(
            vec![tensor("x", FLOAT, Some(&["1", "2", "n"]))],
            vec![],
            vec![node("GlobalAveragePool", &["x"], &["y"])],
            vec![tensor("y", FLOAT, None)],
        ));
        let compiled = pooled.compile(&Options { growing: vec!["n".into()], ..cache.options() }).unwrap();
        let report = compiled.report(&[("x", &x)]).unwrap();
        assert_eq!((report.cached, report.warnings.len()), (cached, 1), "{:?}", report.warnings);
        assert!(report.warnings[0].contains("`n` has exact sizes"), "{}", report.warnings[0]);
    }
}

#[test]
fn whatever_decides_the_module_has_an_entry_of_its_own() {
    let cache = Cache::new();
    let base = cache.options();
    let limits = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        limits
    };
    let egraph = EgraphOptions { stop_after: Some(3), ..EgraphOptions::default() };
    let name = "conv_3x3_stride_2";
    let halves = Some(Target::by_name("aarch64-neon+fp16").unwrap());
    let other = [
        base.clone(),
        Options { target: Some(Target::neon()), ..base.clone() },
        Options { target: Some(Target::avx2().with_caches([1 << 15, 1 << 18, 1 << 22])), ..base.clone() },
        Options { algorithm: Algorithm::Direct, ..base.clone() },
        Options { max_error: 0.5, ..base.clone() },
        Options { precision: Precision::Bf16, ..base.clone() },
        Options { target: halves.clone(), ..base.clone() },
        Options { target: halves, accumulate: Accumulate::F16, ..base.clone() },
        Options { quotients: Quotients::Approximate, ..base.clone() },
        Options { egraph, ..base.clone() },
        Options { limits: limits(|l| l.arena_bytes /= 2), ..base.clone() },
        Options { limits: limits(|l| l.tensor_bytes /= 2), ..base.clone() },
        Options { limits: limits(|l| l.scratch_bytes /= 2), ..base.clone() },
    ];
    for (i, options) in other.iter().enumerate() {
        for again in [false, true] {
            assert_eq!(load(name).compile_module(options).unwrap().1.cached, again, "{i}");
        }
        assert_eq!(cache.entries().len(), i + 1);
    }
    // A size, and the same one as a capacity.
    for growing in [vec![], vec!["n".to_string()]] {
        let rows = model(graph(
            vec![tensor("x", FLOAT, Some(&["n", "3"]))],
            vec![],
            vec![node("Exp", &["x"], &["y"])],
            vec![tensor("y", FLOAT, None)],
        ));
        let options = Options { dims: [("n".to_string(), 16)].into(), growing, ..base.clone() };
        for again in [false, true] {
            let (module, report) = rows.compile_module(&options).unwrap();
            assert_eq!((report.cached, module.bounds().is_some()), (again, !options.growing.is_empty()));
        }
    }
    // What does not decide it has not.
    let same = Options { threads: 2, compile_threads: 1, limits: limits(|l| l.bindings = 1), ..base.clone() };
    assert!(load(name).compile_module(&same).unwrap().1.cached);
    assert!(!load(name).untransformed().compile_module(&base).unwrap().1.cached);
    // A program, its sizes, and its schedules.
    let text = "def p(f32(N) x) -> (y) { y(i) = x(i) * 2 }\nschedule s for p {\n    split i by 4 -> a, b\n}\nschedule t for p {\n    split i by 2 -> a, b\n}";
    let program = |text: &str| Model::from_program(File::parse("p.tile", text).unwrap(), None, None).unwrap();
    let of = |n: i64| Options { dims: [("N".to_string(), n)].into(), ..base.clone() };
    let changed = text.replace("* 2", "* 3");
    for (model, options) in [
        (program(text), of(8)),
        (program(text), of(9)),
        (program(&changed), of(8)),
        (program(text).untransformed(), of(8)),
        (program(text).with_schedule("s").unwrap(), of(8)),
        (program(text).with_schedule("t").unwrap(), of(8)),
    ] {
        assert!(!model.compile_module(&options).unwrap().1.cached);
        assert!(model.compile_module(&options).unwrap().1.cached);
    }
}

#[test]
fn models_differ_by_their_bytes_and_their_external_data() {
    let cache = Cache::new();
    let folder = Cache::new();
    std::fs::create_dir_all(&folder.path).unwrap();
    for file in std::fs::read_dir(fixture("external_data").parent().unwrap()).unwrap().map(|f| f.unwrap().path()) {
        let name = file.file_name().unwrap().to_str().unwrap();
        if name.starts_with("external_data") || name.ends_with(".bin") {
            std::fs::copy(&file, folder.path.join(name)).unwrap();
        }
    }
    let model = || Model::load(folder.path.join("external_data.onnx")).unwrap();
    let options = cache.options();
    let cached = || model().compile_module(&options).unwrap().1.cached;
    assert_eq!([cached(), cached()], [false, true]);
    // Loaded before the data changes: what was loaded has no name any more.
    let early = model();
    let data = folder.files("bin");
    assert!(!data.is_empty());
    for path in &data {
        let mut bytes = std::fs::read(path).unwrap();
        bytes.iter_mut().step_by(4).for_each(|b| *b ^= 1);
        std::fs::write(path, bytes).unwrap();
    }
    let report = early.compile_module(&options).unwrap().1;
    assert!(!report.cached && report.warnings.len() == 1, "{:?}", report.warnings);
    assert!(report.warnings[0].contains("have changed"), "{}", report.warnings[0]);
    assert_eq!([cached(), cached(), cached()], [false, true, true]);
    assert_eq!(cache.entries().len(), 2);
}

/// `y = Reshape(x, shape) · factor`: the values of one of the small inputs decide the shape.
fn reshaped() -> Model {
    model(graph(
        vec![
            tensor("x", FLOAT, Some(&["6"])),
            tensor("shape", INT64, Some(&["2"])),
            tensor("factor", FLOAT, Some(&["1"])),
        ],
        vec![],
        vec![node("Reshape", &["x", "shape"], &["r"]), node("Mul", &["r", "factor"], &["y"])],
        vec![tensor("y", FLOAT, None)],
    ))
}

#[test]
fn values_that_decide_shapes_lead_to_modules_of_their_own() {
    let cache = Cache::new();
    let x = Tensor::new(&[6], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let run = |compiled: &Compiled, shape: [i64; 2], factor: f32| {
        let [shape, factor] = [Tensor::new(&[2], &shape), Tensor::new(&[1], &[factor])];
        let inputs = [("x", &x), ("shape", &shape), ("factor", &factor)];
        (compiled.report(&inputs).unwrap().cached, compiled.run(&inputs).unwrap().remove(0))
    };
    let new = || reshaped().compile(&cache.options()).unwrap();
    for shape in [[2, 3], [3, 2]] {
        assert_eq!(run(&new(), shape, 2.0), (false, Tensor::new(&shape, &[2f32, 4.0, 6.0, 8.0, 10.0, 12.0])));
    }
    // Two modules, and the entry that leads to them.
    assert_eq!(cache.entries().len(), 3);
    for (shape, factor, cached) in [([2, 3], 3.0, true), ([3, 2], 3.0, true), ([1, 6], 3.0, false)] {
        assert_eq!(run(&new(), shape, factor), (cached, Tensor::new(&shape, &[3f32, 6.0, 9.0, 12.0, 15.0, 18.0])));
    }
    assert_eq!(cache.entries().len(), 4);
    let values = [("shape".to_string(), Arc::new(Tensor::new(&[2], &[1i64, 6])))].into();
    let (module, report) = reshaped().compile_module(&Options { values, ..cache.options() }).unwrap();
    assert!(report.cached && module.values().contains_key("shape"));
}

#[test]
fn parts_of_models_that_depend_on_data_are_kept() {
    let cache = Cache::new();
    let nonzero = || {
        model(graph(
            vec![tensor("x", FLOAT, Some(&["4"]))],
            vec![],
            vec![node("Relu", &["x"], &["r"]), node("NonZero", &["r"], &["n"]), node("Add", &["n", "n"], &["y"])],
            vec![tensor("y", INT64, None)],
        ))
    };
    let x: Value = Tensor::new(&[4], &[1f32, -1.0, 2.0, 0.0]).into();
    let run = || nonzero().compile(&cache.options()).unwrap().run_values(&[("x", &x)]).unwrap();
    let first = run();
    assert_eq!(first[0].tensor().unwrap().to_vec::<i64>(), [0, 4]);
    let written = || -> Vec<_> { cache.entries().iter().map(|p| p.metadata().unwrap().len()).collect() };
    let entries = written();
    assert_eq!(entries.len(), 2);
    let second = run();
    assert!(second[0].tensor().unwrap() == first[0].tensor().unwrap() && written() == entries);
}

/// The module in `entry` changed by `change` is compiled again, and its entry is whole again.
fn is_replaced(name: &str, options: &Options, entry: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
    let whole = std::fs::read(entry).unwrap();
    let mut bytes = whole.clone();
    change(&mut bytes);
    std::fs::remove_file(entry).unwrap();
    std::fs::write(entry, &bytes).unwrap();
    std::fs::set_permissions(entry, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!load(name).compile_module(options)?.1.cached);
    // The reports differ in their times.
    assert!(std::fs::read(entry).unwrap().len().abs_diff(whole.len()) < 4096);
    let (module, report) = load(name).compile_module(options)?;
    assert!(report.cached && report.warnings.is_empty());
    assert!(module == load(name).compile_module(&Options { cache: None, ..options.clone() })?.0);
    Ok(())
}

/// A network whose weights follow from a seed.
fn seeded(seed: u64, outputs: i64) -> Model {
    let mut b = GraphBuilder::new("graph");
    let x = b.input("x", DType::F32, &[4, 48]);
    let weights = |b: &mut GraphBuilder, shape: &[i64], seed| b.constant(Tensor::seeded(DType::F32, shape, seed, 0, 2));
    let (first, second) = (weights(&mut b, &[48, 96], seed), weights(&mut b, &[96, outputs], seed + 1));
    let h = b.matmul(x, first).unwrap();
    let h = b.relu(h).unwrap();
    let y = b.matmul(h, second).unwrap();
    b.output("y", y).unwrap();
    Model::from_graph(b.build().unwrap())
}

#[test]
fn networks_with_equal_kernels_compile_them_once() {
    let cache = Cache::new();
    let compile = |seed, outputs| seeded(seed, outputs).compile_module(&cache.options()).unwrap();
    let alone =
        |seed, outputs| seeded(seed, outputs).compile_module(&Options { cache: None, ..cache.options() }).unwrap();
    let found = |(_, report): &(Module, Report)| (report.cached, report.cached_kernels, report.distinct_kernels);
    assert_eq!(found(&compile(1, 32)), (false, 0, 2));
    assert_eq!((cache.entries().len(), cache.files("kernel").len()), (1, 2));
    // Other weights: all kernels. Another last layer: the first one.
    for (seed, outputs, kernels) in [(5, 32, 2), (7, 64, 1)] {
        let (other, wanted) = (compile(seed, outputs), alone(seed, outputs));
        assert_eq!(found(&other), (false, kernels, 2));
        assert!(other.0 == wanted.0 && other.1.kernels == wanted.1.kernels, "{}", other.1);
        assert!(other.1.to_string().contains("of these from the cache"), "{}", other.1);
    }
    assert_eq!((cache.entries().len(), cache.files("kernel").len()), (3, 3));
    // One that is damaged, or stands under the name of another one, is compiled again.
    let kernels = cache.files("kernel");
    let mut damaged = std::fs::read(&kernels[0]).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&kernels[0], damaged).unwrap();
    std::fs::copy(&kernels[2], &kernels[1]).unwrap();
    for outputs in [32, 64] {
        let (other, wanted) = (compile(9, outputs), alone(9, outputs));
        assert!(other.0 == wanted.0 && !other.1.cached, "{}", other.1);
    }
    assert_eq!(found(&compile(11, 32)).1 + found(&compile(11, 64)).1, 4);
    // Another target has its own.
    let options = Options { target: Some(Target::neon()), ..cache.options() };
    assert_eq!(seeded(1, 32).compile_module(&options).unwrap().1.cached_kernels, 0);
}

#[test]
fn a_damaged_entry_is_compiled_again() {
    let cache = Cache::new();
    let (options, name) = (cache.options(), "matmul_bias_relu");
    load(name).compile_module(&options).unwrap();
    let entry = cache.entries().remove(0);
    let length = std::fs::metadata(&entry).unwrap().len() as usize;
    for cut in [0, 1, 40, 71, 72, 100, 4096, length / 2, length - 1] {
        is_replaced(name, &options, &entry, |bytes| bytes.truncate(cut)).unwrap();
    }
    // Magic, version, checksum, key, module's place, lengths, report, header of the module, its description, weights.
    for at in [0, 8, 12, 16, 49, 57, 65, 80, 200, 4096 + 9, 4096 + 200, length - 1] {
        is_replaced(name, &options, &entry, |bytes| bytes[at] ^= 4).unwrap();
    }
    is_replaced(name, &options, &entry, |bytes| bytes.push(0)).unwrap();
    is_replaced(name, &options, &entry, |bytes| bytes.fill(0xff)).unwrap();
    assert_eq!(cache.entries().len(), 1);
}

#[test]
fn an_entry_under_another_key_is_not_taken() {
    let cache = Cache::new();
    let options = cache.options();
    load("matmul_bias_relu").compile_module(&options).unwrap();
    let first = cache.entries().remove(0);
    load("conv_3x3_stride_2").compile_module(&options).unwrap();
    let second = cache.entries().into_iter().find(|path| *path != first).unwrap();
    std::fs::rename(&first, &second).unwrap();
    let (module, report) = load("conv_3x3_stride_2").compile_module(&options).unwrap();
    assert!(!report.cached && module.name() == load("conv_3x3_stride_2").compile_module(&options).unwrap().0.name());
}

#[test]
fn the_size_is_bounded_and_the_module_that_was_not_used_for_longest_goes() {
    let cache = Cache::new();
    let names = ["matmul_bias_relu", "conv_3x3_stride_2", "argmax_last"];
    let unbounded = cache.options();
    names.iter().for_each(|name| _ = load(name).compile_module(&unbounded).unwrap());
    // Kernels were written before their modules and go first.
    cache.files("kernel").iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let total: u64 = cache.entries().iter().map(|p| p.metadata().unwrap().len()).sum();
    assert!(load(names[0]).compile_module(&unbounded).unwrap().1.cached);
    // Of three entries the one of `names[1]` was not used for longest.
    let bound = |max_bytes: u64| Options {
        cache: Some(CacheOptions { max_bytes, ..CacheOptions::new(&cache.path) }),
        ..unbounded.clone()
    };
    let options = bound(total);
    assert!(!load("gather_runtime_negative").compile_module(&options).unwrap().1.cached);
    let cached = |name: &str| load(name).compile_module(&options).unwrap().1.cached;
    assert_eq!([cached(names[0]), cached(names[2]), cached(names[1])], [true, true, false]);
    // What is larger than the cache is not kept, and nothing goes for it.
    let (before, small) = (cache.entries(), bound(1000));
    let report = load("pattern_residual_block").compile_module(&small).unwrap().1;
    assert!(report.warnings[0].contains("the cache may have 1000"), "{}", report.warnings[0]);
    assert_eq!(cache.entries(), before);
}

#[test]
fn a_cache_that_cannot_be_written_is_a_warning() {
    // Nobody can make a folder there, nor a file, not even the superuser.
    for place in ["/proc/tilewright", "/proc/self/task"] {
        if !Path::new("/proc/self/task").is_dir() {
            return;
        }
        let options = Options { cache: Some(CacheOptions::new(place)), ..Options::default() };
        let report = load("matmul_bias_relu").compile_module(&options).unwrap().1;
        assert!(report.warnings[0].contains("not kept in the cache"), "{:?}", report.warnings);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_read_only_cache_is_read() {
    let cache = Cache::new();
    let options = cache.options();
    load("matmul_bias_relu").compile_module(&options).unwrap();
    std::fs::set_permissions(&cache.path, std::fs::Permissions::from_mode(0o500)).unwrap();
    let thread = std::thread::spawn(move || {
        // The superuser writes everywhere, unless a thread gives that right up.
        let mut rights = rustix::thread::capabilities(None).unwrap();
        rights.effective = rustix::thread::CapabilitySet::empty();
        rustix::thread::set_capabilities(None, rights).unwrap();
        let report = |name: &str| load(name).compile_module(&options).unwrap().1;
        let (read, other) = (report("matmul_bias_relu"), report("conv_3x3_stride_2"));
        assert!(read.cached && read.warnings.is_empty(), "{:?}", read.warnings);
        assert!(!other.cached && other.warnings[0].contains("not kept in the cache"), "{:?}", other.warnings);
    });
    let checked = thread.join();
    std::fs::set_permissions(&cache.path, std::fs::Permissions::from_mode(0o700)).unwrap();
    checked.unwrap();
    assert_eq!(cache.entries().len(), 1);
}

#[test]
fn a_cache_that_others_may_write_to_is_an_error() {
    let cache = Cache::new();
    std::fs::create_dir_all(&cache.path).unwrap();
    std::fs::set_permissions(&cache.path, std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = load("matmul_bias_relu").compile_module(&cache.options()).err().unwrap();
    assert!(matches!(error, Error::Invalid(_)) && error.to_string().contains("others may write"), "{error}");
    let error = load("matmul_bias_relu").compile(&cache.options()).err().unwrap();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
}
