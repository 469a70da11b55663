//! Forks and the end of the process: no thread is inside of the library while the process forks, and none returns from it to an
//! interpreter that ends.
//!
//! A child process has the memory of its parent and one of its threads. A lock that another thread holds at that moment would
//! be held for ever in the child, and a compilation that another thread has begun would never end. So a fork waits until all
//! calls have left the library, and calls wait until the fork is done; Python calls the three functions (`os.register_at_fork`).
//! In the child models run on threads that its first run starts (`tilewright::Pool`).
//!
//! A daemon thread that asks for the interpreter's lock after the interpreter has begun to end is unwound by `pthread_exit`, which
//! must not happen through frames of Rust. Such threads wait here for the end of the process (`atexit`).

use pyo3::prelude::*;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::ThreadId;
use std::time::Duration;

/// Calls inside of the library.
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// Forks that wait or are under way.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// Calls that have left the library and do not have the interpreter's lock yet.
static RETURNS: AtomicUsize = AtomicUsize::new(0);
/// The thread that ends the interpreter, once it does.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// Time between two looks at the other side.
const PAUSE: Duration = Duration::from_micros(50);

/// A call inside of the library.
pub struct Call(());

/// Begins a call, when no fork is under way. The caller does not hold the interpreter's lock and does not take it before the
/// call ends: a fork waits for it with the lock.
pub fn enter() -> Call {
    loop {
        CALLS.fetch_add(1, SeqCst);
        if FORKS.load(SeqCst) == 0 {
            return Call(());
        }
        CALLS.fetch_sub(1, SeqCst);
        std::thread::sleep(PAUSE);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, SeqCst);
    }
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
    FORKS.fetch_add(1, SeqCst);
    if CALLS.load(SeqCst) > 0 {
        py.detach(|| {
            while CALLS.load(SeqCst) > 0 {
                std::thread::sleep(PAUSE);
            }
        });
    }
}

/// Lets calls in again.
#[pyfunction]
pub fn after_fork_in_parent() {
    FORKS.fetch_sub(1, SeqCst);
}

/// Lets calls in again, in a process with one thread.
#[pyfunction]
pub fn after_fork_in_child() {
    CALLS.store(0, SeqCst);
    RETURNS.store(0, SeqCst);
    FORKS.store(0, SeqCst);
}
