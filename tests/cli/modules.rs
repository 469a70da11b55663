//! Compiled models: the same bytes each time, the same bits for any number of threads, saved, loaded and shared.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tilewright::Target;
use tilewright::internal::graph::ir::{Graph, ValueId};
use tilewright::internal::pipeline::{self, Order, Stage};
use tilewright::internal::runtime::npy;
use tilewright::module::Action;
use tilewright::{Error, Limits, Model, Module, Options, Result, Session, Tensor};

fn path(case: &str) -> PathBuf {
    fixtures().join(format!("operators/{case}.onnx"))
}

fn fixtures() -> PathBuf {
    // The command line is a package in a folder of the library's.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().find(|p| p.join("datasets").is_dir()).expect("the tests run in the repository");
    root.join("tests/fixtures")
}

/// A model and inputs for it.
fn load(case: &str) -> (Model, Vec<(String, Tensor)>) {
    let model = Model::load(path(case)).unwrap();
    let bytes = std::fs::read(path(case).with_extension("npy")).unwrap();
    let mut stream = &bytes[..];
    let inputs = model.inputs().iter().map(|i| (i.name.clone(), npy::read(&mut stream).unwrap())).collect();
    (model, inputs)
}

/// Writes and reads a module that was compiled here.
fn parse(bytes: &[u8]) -> Module {
    // SAFETY: the module was compiled by this test.
    unsafe { Module::from_bytes(bytes) }.unwrap()
}

fn load_module(path: &Path) -> Result<Module> {
    // SAFETY: the module was compiled by this test, which changes no file in place.
    unsafe { Module::load(path) }
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
                let target = Some(target.clone());
                let options = Options { target, compile_threads: threads, ..Options::default() };
                pipeline::compile(&graph, Order::Ilp, &options).unwrap().module.to_bytes().unwrap()
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
            let copy = Arc::new(parse(&module.to_bytes().unwrap()));
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
    let refused = load_module(&file);
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(refused, Err(Error::Unsupported(m)) if m.contains(&foreign.name)));
}

#[test]
fn subscripts_out_of_range_are_an_error_and_not_a_read() {
    let (model, mut inputs) = load("gather_runtime_negative");
    let compiled = model.compile(&Options::default()).unwrap();
    let outputs = compiled.run(&named(&inputs)).unwrap();
    let session = compiled.session(&named(&inputs)).unwrap();
    let check = session.module().steps().iter().find_map(|s| match s.action {
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
    let options = Options { target: Some(Target::avx2()), ..Options::default() };
    for stage in Stage::ALL {
        let text = pipeline::explain(&graph, Order::Ilp, &options, *stage, None);
        match stage {
            Stage::C => assert!(text.unwrap_err().to_string().contains("only programs of the text language")),
            _ => assert!(text.unwrap().lines().count() > 3, "{stage}"),
        }
    }
    let refused =
        pipeline::explain(&graph, Order::Ilp, &options, Stage::Scop, Some("nothing")).unwrap_err().to_string();
    assert!(refused.contains("there is no kernel `nothing`"));
}

/// A folder of this test's own.
fn fresh_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tilewright-modules-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Names of the files in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_module_runs_on_while_its_file_is_written_anew() {
    let folder = fresh_folder("anew");
    let file = folder.join("live.tw");
    let (model, inputs) = load("pattern_residual_block");
    model.compile_module(&Options::default()).unwrap().0.save(&file).unwrap();
    let session = Session::new(Arc::new(load_module(&file).unwrap()), 2).unwrap();
    let expected = session.run(&named(&inputs)).unwrap();
    let smaller = load("conv_1x1").0.compile_module(&Options::default()).unwrap().0;
    smaller.save(&file).unwrap();
    assert_eq!(session.run(&named(&inputs)).unwrap(), expected);
    assert_eq!(load_module(&file).unwrap(), smaller);
    assert_eq!(names(&folder), ["live.tw"]);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A shell command in which `tw` is the program.
#[cfg(unix)]
fn shell(command: &str, folder: &Path) -> std::process::Output {
    let tw = format!("tw() {{ '{}' --quiet \"$@\"; }}\n", env!("CARGO_BIN_EXE_tilewright"));
    std::process::Command::new("sh").args(["-c", &(tw + command)]).current_dir(folder).output().unwrap()
}

#[test]
#[cfg(unix)]
fn a_module_that_cannot_be_written_whole_leaves_the_old_one() {
    let folder = fresh_folder("whole");
    let model = path("pattern_residual_block");
    let old = load("conv_1x1").0.compile_module(&Options::default()).unwrap().0;
    old.save(folder.join("live.tw")).unwrap();
    // Files of 1 KiB at most, and the signal that comes with more ignored: writing fails in the middle.
    let limited = format!("trap '' XFSZ; ulimit -f 1; tw compile '{}' -o live.tw", model.display());
    let output = shell(&limited, &folder);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("live.tw"), "{message}");
    // Killed by the same signal in the middle.
    let killed = shell(&format!("ulimit -f 1; tw compile '{}' -o live.tw", model.display()), &folder);
    assert!(!killed.status.success());
    assert_eq!(load_module(&folder.join("live.tw")).unwrap(), old);
    let refused = shell(&format!("tw compile '{}' -o .", model.display()), &folder);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("folder"));
    let streamed = shell(&format!("tw compile '{}' -o /dev/null; test -c /dev/null", model.display()), &folder);
    assert!(streamed.status.success());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
#[cfg(unix)]
fn a_failed_write_leaves_nothing_behind() {
    let folder = fresh_folder("litter");
    let model = path("pattern_residual_block");
    let limited = format!("trap '' XFSZ; ulimit -f 1; tw compile '{}' -o new.tw", model.display());
    assert_eq!(shell(&limited, &folder).status.code(), Some(1));
    assert!(names(&folder).is_empty(), "{:?}", names(&folder));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
#[cfg(unix)]
fn compiling_and_running_need_no_second_thread() {
    // No system has the memory for a stack of this size: every thread that is asked for is refused.
    let model = path("pattern_residual_block");
    let run = |setting: &str| {
        let command = format!("{setting} \"$1\" run '{}' --threads 4", model.display());
        let program = env!("CARGO_BIN_EXE_tilewright");
        std::process::Command::new("sh").args(["-c", &command, "sh", program]).output().unwrap()
    };
    let (alone, many) = (run("RUST_MIN_STACK=70368744177664"), run(""));
    assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stderr));
    assert!(many.status.success() && alone.stdout == many.stdout);
}

#[test]
#[cfg(unix)]
fn a_forked_child_runs_on_threads_of_its_own_and_drops_the_session() {
    let threads = || std::fs::read_dir("/proc/self/task").map_or(3, Iterator::count);
    let (model, inputs) = load("pattern_attention");
    let compiled = model.compile(&Options { threads: 3, ..Options::default() }).unwrap();
    let expected = compiled.run(&named(&inputs)).unwrap();
    // SAFETY: the child only uses what it has, and leaves without the parent's exit handlers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let work = std::panic::AssertUnwindSafe(|| {
            let same = compiled.run(&named(&inputs)).is_ok_and(|outputs| outputs == expected);
            // the thread that called fork is the only one of its parent's
            let started = threads() == 3;
            drop(compiled);
            same && started && threads() <= 3
        });
        let code = match std::panic::catch_unwind(work) {
            Ok(true) => 0,
            Ok(false) => 1,
            Err(_) => 2,
        };
        // SAFETY: ends this process.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status}");
    assert_eq!(compiled.run(&named(&inputs)).unwrap(), expected);
}

/// Sets the control word of floating-point arithmetic; returns the old one.
#[cfg(target_arch = "x86_64")]
fn set_mxcsr(new: u32) -> u32 {
    let mut old = 0u32;
    // SAFETY: reads and writes the register and two local variables.
    unsafe {
        std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut old);
        std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const new);
    }
    old
}

#[test]
#[cfg(target_arch = "x86_64")]
fn results_do_not_depend_on_the_callers_floating_point_mode() {
    let (model, inputs) = load("pattern_attention");
    for target in Target::all().into_iter().filter(Target::runs_on_host) {
        let options = Options { target: Some(target.clone()), ..Options::default() };
        let module = Arc::new(model.compile_module(&options).unwrap().0);
        let session = Session::new(module, 1).unwrap();
        let mut outputs = session.outputs();
        let expected = session.run(&named(&inputs)).unwrap();
        // Rounding up; every exception traps; both, and flags are raised already.
        for mode in [0x5f80, 0x0000, 0x4000, 0x5fbf] {
            let before = set_mxcsr(mode);
            let result = session.run_into(&named(&inputs), &mut outputs);
            let after = set_mxcsr(before);
            result.unwrap();
            assert_eq!(outputs, expected, "{} under {mode:#x}", target.name);
            assert_eq!(after, mode, "the caller's mode comes back");
        }
    }
}

#[test]
fn bindings_share_a_pool_and_the_least_recently_used_one_goes() {
    let (model, _) = load("dynamic_batch");
    let pool = Arc::new(tilewright::Pool::new(2).unwrap());
    let limits = Limits { bindings: 2, ..Limits::default() };
    let options = Options { pool: Some(pool.clone()), limits, ..Options::default() };
    let compiled = model.compile(&options).unwrap();
    let session = |n: i64| compiled.session(&[("x", &Tensor::zeros(tilewright::DType::F32, &[n, 8]))]).unwrap();
    let (one, two) = (session(1), session(2));
    assert!(Arc::ptr_eq(one.pool(), &pool) && Arc::ptr_eq(two.pool(), &pool));
    assert!(Arc::ptr_eq(&one, &session(1)));
    let three = session(3);
    assert!(Arc::ptr_eq(&one, &session(1)), "used after the second one");
    assert!(Arc::ptr_eq(&three, &session(3)));
    assert!(!Arc::ptr_eq(&two, &session(2)));
}

/// Sizes of the arrays that no binding has alone.
fn memory(sessions: &[Arc<Session>]) -> BTreeMap<usize, u64> {
    sessions.iter().flat_map(|s| s.module().weights().allocations()).collect()
}

#[test]
fn bindings_share_their_constants() {
    let model = Model::load(fixtures().join("networks/small_bert.onnx")).unwrap();
    let run = |compiled: &tilewright::Compiled, batch: i64, length: i64| {
        let ones = Tensor::new(&[batch, length], &vec![1i64; (batch * length) as usize]);
        let inputs: Vec<(String, Tensor)> = model.inputs().iter().map(|i| (i.name.clone(), ones.clone())).collect();
        (compiled.session(&named(&inputs)).unwrap(), compiled.run(&named(&inputs)).unwrap())
    };
    let sizes = [(1, 7), (2, 20), (40, 5), (1, 1), (3, 9), (1, 64)];
    let compiled = model.compile(&Options::default()).unwrap();
    let (sessions, outputs): (Vec<_>, Vec<_>) = sizes.iter().map(|&(b, l)| run(&compiled, b, l)).unzip();
    let one = sessions[0].module().weights().len();
    let all: u64 = memory(&sessions).values().sum();
    assert!(all < one + one / 4, "{all} bytes of constants for all bindings, {one} for one");
    // neither what memory has nor the order of the bindings changes a bit
    let other = model.compile(&Options::default()).unwrap();
    for (&(batch, length), outputs) in sizes.iter().zip(&outputs).rev() {
        assert_eq!(&run(&other, batch, length).1, outputs, "batch {batch}, length {length}");
        let dims = [("batch".to_string(), batch), ("length".to_string(), length)].into();
        let alone = model.compile(&Options { dims, ..Options::default() }).unwrap();
        assert_eq!(&run(&alone, batch, length).1, outputs, "batch {batch}, length {length}, alone");
    }
}

#[test]
fn a_module_has_several_bindings_and_their_constants_once() {
    let model = Model::load(fixtures().join("networks/small_bert.onnx")).unwrap();
    let sizes =
        |batch: i64, length: i64| BTreeMap::from([("batch".to_string(), batch), ("length".to_string(), length)]);
    let bindings = [sizes(1, 8), sizes(1, 20), sizes(3, 8)];
    let (module, reports) = model.compile_bindings(&Options::default(), &bindings).unwrap();
    assert_eq!((module.bindings().count(), reports.len()), (3, 3));
    let bytes = module.to_bytes().unwrap();
    let one = model.compile_bindings(&Options::default(), &bindings[..1]).unwrap().0.to_bytes().unwrap();
    assert!(bytes.len() < one.len() + one.len() / 4, "{} bytes for three, {} for one", bytes.len(), one.len());
    let read = parse(&bytes);
    assert_eq!(read, module);
    let session = Session::new(Arc::new(read), 1).unwrap();
    let ids = |batch: i64, length: i64| Tensor::new(&[batch, length], &vec![2i64; (batch * length) as usize]);
    for dims in bindings {
        let ids = ids(dims["batch"], dims["length"]);
        let inputs = [("input_ids", &ids), ("attention_mask", &ids)];
        let alone = model.compile(&Options { dims, ..Options::default() }).unwrap();
        let (expected, found) = (alone.run(&inputs).unwrap(), session.run(&inputs).unwrap());
        assert_eq!(found, expected);
        let mut outputs = session.binding(&inputs).outputs();
        session.time_into(&inputs, &mut outputs).unwrap();
        assert_eq!(outputs, expected);
    }
    let other = ids(2, 8);
    let refused = session.run(&[("input_ids", &other), ("attention_mask", &other)]).unwrap_err().to_string();
    assert!(refused.contains("batch=1, length=8; batch=1, length=20; batch=3, length=8"), "{refused}");
    let twice = model.compile_bindings(&Options::default(), &[sizes(1, 8), sizes(1, 8)]).unwrap_err();
    assert!(twice.to_string().contains("two bindings of equal sizes"), "{twice}");
    assert!(model.compile_bindings(&Options::default(), &[]).is_err());
}

#[test]
fn the_least_recently_used_bindings_go_by_bytes() {
    let (model, _) = load("dynamic_batch");
    let limits = Limits { binding_bytes: Some(1), ..Limits::default() };
    let small = model.compile(&Options { limits, ..Options::default() }).unwrap();
    let large = model.compile(&Options::default()).unwrap();
    let session = |compiled: &tilewright::Compiled, n: i64| {
        compiled.session(&[("x", &Tensor::zeros(tilewright::DType::F32, &[n, 8]))]).unwrap()
    };
    for (compiled, kept) in [(&small, false), (&large, true)] {
        let first = session(compiled, 1);
        assert!(Arc::ptr_eq(&first, &session(compiled, 1)), "the newest is kept");
        session(compiled, 2);
        assert_eq!(Arc::ptr_eq(&first, &session(compiled, 1)), kept);
    }
}

#[test]
fn options_of_the_rewriting_count() {
    let (model, _) = load("pattern_residual_block");
    let report = |options: &Options| model.compile_module(options).unwrap().1.rewriting.unwrap();
    let all = report(&Options::default());
    let rule = all.rules.iter().find(|r| r.1 > 0).unwrap().0;
    let mut options = Options::default();
    options.egraph.without.push(rule.to_string());
    assert!(report(&options).rules.iter().all(|r| r.0 != rule || r.1 == 0), "{rule}");
}
