//! A gate around the library, for processes that fork.
//!
//! A child process has the memory of its parent and one of its threads. A lock that another thread holds at that moment would be
//! held for ever in the child, and work that another thread has begun would never end. So a fork waits until all calls have left
//! the library, and calls wait until the fork is done. Interfaces of other languages enter the gate with each call, and have
//! the functions around a fork called by `pthread_atfork` or by their interpreter.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Time between two looks at the other side.
const PAUSE: Duration = Duration::from_micros(50);

/// Calls inside of the library, and forks of the process.
pub struct Gate {
    calls: AtomicUsize,
    /// Forks that wait or are under way.
    forks: AtomicUsize,
}

/// A call inside of the library.
pub struct Call<'g>(&'g Gate);

impl Gate {
    /// An open gate.
    pub const fn new() -> Gate {
        Gate { calls: AtomicUsize::new(0), forks: AtomicUsize::new(0) }
    }

    /// Begins a call, when no fork is under way. A thread that is inside does not enter again.
    pub fn enter(&self) -> Call<'_> {
        loop {
            self.calls.fetch_add(1, SeqCst);
            if self.forks.load(SeqCst) == 0 {
                return Call(self);
            }
            self.calls.fetch_sub(1, SeqCst);
            std::thread::sleep(PAUSE);
        }
    }

    /// Closes the gate for a fork: who is outside waits.
    pub fn close(&self) {
        self.forks.fetch_add(1, SeqCst);
    }

    /// Returns true if no more than `calls` calls are inside.
    pub fn holds_at_most(&self, calls: usize) -> bool {
        self.calls.load(SeqCst) <= calls
    }

    /// Waits until no more than `calls` calls are inside of the closed gate: those of the thread that forks.
    pub fn wait(&self, calls: usize) {
        while !self.holds_at_most(calls) {
            std::thread::sleep(PAUSE);
        }
    }

    /// Opens the gate behind a fork, in the parent.
    pub fn open(&self) {
        self.forks.fetch_sub(1, SeqCst);
    }

    /// Opens the gate in the child, whose only thread is inside with `calls` calls.
    pub fn reset(&self, calls: usize) {
        self.calls.store(calls, SeqCst);
        self.forks.store(0, SeqCst);
    }
}

impl Default for Gate {
    fn default() -> Gate {
        Gate::new()
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    #[test]
    fn a_fork_waits_for_calls_and_calls_for_the_fork() {
        let gate = Gate::new();
        let (inside, forking, entered) = (AtomicBool::new(true), AtomicBool::new(false), AtomicBool::new(false));
        let call = gate.enter();
        thread::scope(|scope| {
            scope.spawn(|| {
                gate.close();
                forking.store(true, SeqCst);
                gate.wait(0);
                assert!(!inside.load(SeqCst), "the fork did not wait");
                thread::sleep(10 * PAUSE);
                assert!(!entered.load(SeqCst), "a call began during the fork");
                gate.open();
            });
            while !forking.load(SeqCst) {
                thread::yield_now();
            }
            scope.spawn(|| {
                let _call = gate.enter();
                entered.store(true, SeqCst);
            });
            thread::sleep(10 * PAUSE);
            inside.store(false, SeqCst);
            drop(call);
        });
        assert!(entered.load(SeqCst) && gate.holds_at_most(0));
        gate.close();
        gate.reset(1);
        assert!(!gate.holds_at_most(0) && gate.holds_at_most(1));
    }
}
