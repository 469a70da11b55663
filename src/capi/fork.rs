//! Calls of the interface, and forks of the process: none is inside of the library on another thread while the process forks, so
//! that the child can use it.

use std::cell::Cell;
use std::sync::OnceLock;
use tilewright::internal::runtime::fork::{self, Gate};

static GATE: Gate = Gate::new();
/// The result of asking the system for calls of the functions around a fork.
static HANDLERS: OnceLock<i32> = OnceLock::new();

thread_local! {
    /// Calls of this thread that are inside: one fork at most is begun by the library itself, for a process that it starts.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// A call inside of the library.
pub struct Call {
    _inside: fork::Call<'static>,
}

/// Begins a call, when no fork is under way; `None` where the system has no memory for the functions around a fork.
pub fn enter() -> Option<Call> {
    // SAFETY: the functions live as long as the library, which removes them when it is unloaded, and call nothing that must not be
    // called around a fork.
    let code = HANDLERS.get_or_init(|| unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) });
    if *code != 0 {
        return None;
    }
    let call = GATE.enter();
    INSIDE.set(INSIDE.get() + 1);
    Some(Call { _inside: call })
}

impl Drop for Call {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
    }
}

extern "C" fn before() {
    GATE.close();
    GATE.wait(INSIDE.get());
}

extern "C" fn in_parent() {
    GATE.open();
}

extern "C" fn in_child() {
    GATE.reset(INSIDE.get());
}
