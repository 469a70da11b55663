//! A session that has run once allocates nothing in later runs, on the caller's thread or on a worker. A model that runs in
//! parts does not copy a sequence that grows.
//!
//! The file has its own `main` (`harness = false`): allocations of all threads count, and a test harness allocates on its own
//! thread at any time, to start a test or to report one.

#[path = "files/onnx.rs"]
mod onnx;

use onnx::{BOOL, FLOAT, INT64, graph, model, node, tensor, with_graph};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use tilewright::internal::runtime::npy;
use tilewright::{Model, Options, Session, Tensor, TensorView};

/// Counts while it is told to.
struct Counting;

static ACTIVE: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

fn count(bytes: usize) {
    if ACTIVE.load(SeqCst) {
        COUNT.fetch_add(1, SeqCst);
        BYTES.fetch_add(bytes, SeqCst);
    }
}

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0);
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: as promised by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations and deallocations of all threads during `work`.
fn counted(work: impl FnOnce()) -> usize {
    COUNT.store(0, SeqCst);
    BYTES.store(0, SeqCst);
    ACTIVE.store(true, SeqCst);
    work();
    ACTIVE.store(false, SeqCst);
    COUNT.load(SeqCst)
}

fn a_run_allocates_nothing() {
    // `black_box`: an optimized build may leave out an allocation that nothing reads.
    assert!(counted(|| drop(std::hint::black_box(Box::new(1)))) == 2, "the counter counts");
    for case in [
        "pattern_residual_block",
        "pattern_attention",
        "gather_runtime_negative",
        "argmax_last",
        "lstm_lengths",
        "loop_with_if",
        "loop_until",
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/operators/{case}.onnx"));
        let model = Model::load(&path).unwrap();
        let bytes = std::fs::read(path.with_extension("npy")).unwrap();
        let mut stream = &bytes[..];
        let inputs: Vec<(String, Tensor)> =
            model.inputs().iter().map(|i| (i.name.clone(), npy::read(&mut stream).unwrap())).collect();
        let module = Arc::new(model.compile_module(&Options::default()).unwrap().0);
        for threads in [1, 2] {
            let session = Session::new(module.clone(), threads).unwrap();
            let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
            let views: Vec<(&str, TensorView)> = (inputs.iter())
                .map(|(n, t)| (n.as_str(), TensorView { dtype: t.dtype, shape: &t.shape, data: &t.data }))
                .collect();
            let mut outputs = session.outputs();
            session.run_into(&named, &mut outputs).unwrap();
            let expected = outputs.clone();
            let allocations = counted(|| {
                for _ in 0..20 {
                    session.run_into(&named, &mut outputs).unwrap();
                    session.run_into(&views, &mut outputs).unwrap();
                }
            });
            assert_eq!(allocations, 0, "{case} on {threads} threads");
            assert_eq!(outputs, expected);
        }
    }
}

/// A sequence that nothing else reads is changed in place, by a loop and by a branch in it, so that as many bytes are
/// allocated for each step of a long loop as for one of a short loop.
fn a_sequence_that_grows_is_not_copied() {
    let untyped = |name: &str| {
        let mut value = tensor(name, FLOAT, None);
        value.r#type = None;
        value
    };
    let appends = || vec![node("SequenceInsert", &["v", "x"], &["longer"])];
    let through_names = vec![
        node("Identity", &["v"], &["before"]),
        node("SequenceInsert", &["before", "x"], &["after"]),
        node("Identity", &["after"], &["longer"]),
    ];
    let branch = |nodes, output| graph(vec![], vec![], nodes, vec![untyped(output)]);
    let erases = vec![node("SequenceInsert", &["v", "x"], &["more"]), node("SequenceErase", &["more"], &["other"])];
    let chosen = with_graph(node("If", &["go"], &["longer"]), "then_branch", branch(appends(), "longer"));
    let chosen = with_graph(chosen, "else_branch", branch(erases, "other"));
    for (name, nodes) in [("a loop", appends()), ("other names", through_names), ("a branch", vec![chosen])] {
        let body = graph(
            vec![tensor("i", INT64, Some(&[])), tensor("go", BOOL, Some(&[])), untyped("v")],
            vec![],
            [nodes, vec![node("Identity", &["go"], &["again"])]].concat(),
            vec![tensor("again", BOOL, None), untyped("longer")],
        );
        let model = model(graph(
            vec![tensor("x", FLOAT, Some(&["2"])), tensor("n", INT64, Some(&[]))],
            vec![],
            vec![
                node("SequenceEmpty", &[], &["none"]),
                with_graph(node("Loop", &["n", "", "none"], &["all"]), "body", body),
                node("SequenceLength", &["all"], &["count"]),
            ],
            vec![tensor("count", INT64, Some(&[]))],
        ));
        let compiled = model.compile(&Options { threads: 1, ..Options::default() }).unwrap();
        let x = Tensor::new(&[2], &[1f32, 2.0]);
        let bytes = [20, 1000, 8000].map(|steps| {
            let n = Tensor::new(&[], &[steps as i64]);
            let mut outputs = vec![];
            counted(|| outputs = compiled.run(&[("x", &x), ("n", &n)]).unwrap());
            assert_eq!(outputs[0].to_vec::<i64>(), [steps as i64], "{name}");
            BYTES.load(SeqCst)
        });
        assert!(bytes[2] < 12 * bytes[1], "{name}: {bytes:?} bytes");
    }
}

fn main() {
    for (name, test) in [
        ("a_run_allocates_nothing", a_run_allocates_nothing as fn()),
        ("a_sequence_that_grows_is_not_copied", a_sequence_that_grows_is_not_copied),
    ] {
        test();
        println!("test {name} ... ok");
    }
}
