//! Affinity of the workers of a pool: each may run on every processor of the pool but that of its caller.
//!
//! A system whose processors are busy puts a thread that is woken beside the one that wakes it, and may leave both there for
//! tens of milliseconds, in which a run is as slow as on one thread. On systems without affinity, or where there are not
//! enough processors for all threads, nothing is done.

pub use system::Affinity;

#[cfg(target_os = "linux")]
mod system {
    use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// The processors of a pool.
    pub struct Affinity {
        allowed: CpuSet,
        /// The processor that the workers keep off; one that there is not, as long as nobody has called.
        caller: AtomicUsize,
        workers: Vec<OnceLock<Pid>>,
    }

    impl Affinity {
        /// For a pool of so many threads; `None` where they have not a processor each.
        pub fn new(threads: usize) -> Option<Affinity> {
            let allowed = sched_getaffinity(None).ok()?;
            let workers = (1..threads).map(|_| OnceLock::new()).collect();
            (allowed.count() as usize >= threads).then_some(Affinity {
                allowed,
                caller: AtomicUsize::new(usize::MAX),
                workers,
            })
        }

        /// The calling thread is this worker (from 1).
        pub fn join(&self, worker: usize) {
            let thread_id = self.workers[worker - 1].get_or_init(gettid);
            self.keep_off(*thread_id, self.caller.load(SeqCst));
        }

        /// The workers, which are threads of this process, leave the processor of the calling thread.
        pub fn make_room(&self) {
            let caller = sched_getcpu();
            if self.caller.swap(caller, SeqCst) != caller {
                self.workers.iter().filter_map(OnceLock::get).for_each(|w| self.keep_off(*w, caller));
            }
        }

        /// A worker stays where it was if the system refuses: that is slower, not wrong.
        fn keep_off(&self, worker: Pid, caller: usize) {
            let mut others = self.allowed;
            if caller < CpuSet::MAX_CPU {
                others.unset(caller);
                let _ = sched_setaffinity(Some(worker), &others);
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn workers_keep_off_the_processor_of_their_caller() {
            let Some(pool) = Affinity::new(2) else { return };
            let allowed = || sched_getaffinity(None).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    pool.join(1);
                    assert_eq!(allowed(), pool.allowed);
                    pool.make_room();
                    assert_eq!(allowed().count(), pool.allowed.count() - 1);
                    assert!(!allowed().is_set(pool.caller.load(SeqCst)));
                });
            });
            std::thread::scope(|scope| {
                let workers = vec![OnceLock::new()];
                let late = Affinity { workers, allowed: pool.allowed, caller: AtomicUsize::new(0) };
                scope.spawn(move || {
                    late.join(1);
                    assert!(!allowed().is_set(0));
                });
            });
            assert_eq!(allowed(), pool.allowed);
        }

        #[test]
        fn threads_without_a_processor_each_run_anywhere() {
            assert!(Affinity::new(CpuSet::MAX_CPU + 1).is_none());
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub struct Affinity;

    impl Affinity {
        pub fn new(_threads: usize) -> Option<Affinity> {
            None
        }

        pub fn join(&self, _worker: usize) {}

        pub fn make_room(&self) {}
    }
}
