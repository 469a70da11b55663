//! Forks and the end of the process: no thread is inside of the library while the process forks, and none returns from it to an
//! interpreter that ends.
//!
//! Calls and forks wait for each other at a gate (`runtime/fork.rs`); Python calls the three functions around a fork
//! (`os.register_at_fork`). In the child models run on threads that its first run starts (`tilewright::Pool`).
//!
//! A daemon thread that asks for the interpreter's lock after the interpreter has begun to end is unwound by `pthread_exit`, which
//! must not happen through frames of Rust. Such threads wait here for the end of the process (`atexit`).

use pyo3::prelude::*;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::ThreadId;
use std::time::Duration;
use tilewright::internal::runtime::fork::{Call, Gate};

static GATE: Gate = Gate::new();

/// Calls that have left the library and do not have the interpreter's lock yet.
static RETURNS: AtomicUsize = AtomicUsize::new(0);
/// The thread that ends the interpreter, once it does.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// Time between two looks at the other side.
const PAUSE: Duration = Duration::from_micros(50);

/// Begins a call, when no fork is under way. The caller does not hold the interpreter's lock and does not take it before the
/// call ends: a fork waits for it with the lock.
pub fn enter() -> Call<'static> {
    GATE.enter()
}

/// Runs `work` without the interpreter's lock, as a call.
pub fn detached<T: Send>(py: Python, work: impl FnOnce() -> T + Send) -> T {
    let result = py.detach(|| {
        let call = enter();
        let result = work();
        drop(call);
        RETURNS.fetch_add(1, SeqCst);
        if ENDING.get().is_some_and(|thread| *thread != std::thread::current().id()) {
            RETURNS.fetch_sub(1, SeqCst);
            loop {
                std::thread::park();
            }
        }
        result
    });
    RETURNS.fetch_sub(1, SeqCst);
    result
}

/// Keeps all other threads from returning to the interpreter, which the caller is about to end.
#[pyfunction]
pub fn before_end(py: Python) {
    let _ = ENDING.set(std::thread::current().id());
    py.detach(|| {
        while RETURNS.load(SeqCst) > 0 {
            std::thread::sleep(PAUSE);
        }
    });
}

/// Waits until no thread is inside of the library, and keeps the others out.
#[pyfunction]
pub fn before_fork(py: Python) {
    GATE.close();
    if !GATE.holds_at_most(0) {
        py.detach(|| GATE.wait(0));
    }
}

/// Lets calls in again.
#[pyfunction]
pub fn after_fork_in_parent() {
    GATE.open();
}

/// Lets calls in again, in a process with one thread.
#[pyfunction]
pub fn after_fork_in_child() {
    GATE.reset(0);
    RETURNS.store(0, SeqCst);
}
