//! A session that has run once allocates nothing in later runs, on the caller's thread or on a worker.

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

fn count() {
    if ACTIVE.load(SeqCst) {
        COUNT.fetch_add(1, SeqCst);
    }
}

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as promised by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations and deallocations of all threads during `work`.
fn counted(work: impl FnOnce()) -> usize {
    COUNT.store(0, SeqCst);
    ACTIVE.store(true, SeqCst);
    work();
    ACTIVE.store(false, SeqCst);
    COUNT.load(SeqCst)
}

// The only test of this program: others beside it would be counted too.
#[test]
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
