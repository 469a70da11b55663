//! The thread pool: the iterations of a parallel loop, divided among threads; nothing nested.
//!
//! In: a number of iterations and a function of a range. Out: the function has run on every iteration. Each thread
//! begins with a part of equal length; one that is done takes half of what another has left, so neither uneven work nor
//! cores of different speed keep threads waiting (work stealing, Blumofe and Leiserson 1999). A run of a model takes
//! the workers with [`Pool::enter`]; while it holds them they wait for work by spinning, for a bounded time, and as
//! soon as it lets them go they sleep. They keep off the caller's processor. Handing out work is one store to a cache
//! line of each worker. A worker that has not begun when nothing is left is not waited for, so one that the system has
//! put aside delays nobody; one that has begun is waited for by spinning for a bounded time, then asleep. Iterations are
//! independent: which thread runs one changes no result.
//!
//! A process that was forked has the memory of a pool and none of its workers: its first run starts others. Where a thread
//! of the parent held the workers at that moment, runs of the child do all on their caller's thread.

use crate::affinity::Affinity;
use crate::free_memory::FreeMemory;
use crate::threads::check_count;
use crate::{Error, Result};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Time that a worker spins for work inside a run, or the caller for the workers, before it sleeps.
const SPIN: Duration = Duration::from_micros(100);

/// Range and executing thread: `work(first, last, thread)`.
type Work<'a> = dyn Fn(i64, i64, usize) + Sync + 'a;

/// A worker's doorbell, on a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Bell {
    /// There is a job that this worker has not begun.
    armed: AtomicBool,
    /// The worker sleeps, or is about to.
    asleep: AtomicBool,
}

struct Job {
    work: *const Work<'static>,
    count: i64,
    /// Iterations that a unit of a part stands for.
    grain: i64,
}

/// The remaining units of a thread's part: first and end as the halves of a word. Its owner takes from the front,
/// others take from the back.
#[repr(align(128))]
#[derive(Default)]
struct WorkRange(AtomicU64);

impl WorkRange {
    fn set(&self, units: Range<u64>) {
        self.0.store(word(&units), Relaxed);
    }

    /// Takes a quarter of the remaining units, so that others find units to take until near the end.
    fn take_front(&self) -> Option<Range<u64>> {
        self.take(|left| {
            let middle = left.start + (left.end - left.start).div_ceil(4);
            (middle..left.end, left.start..middle)
        })
    }

    /// Takes half of the remaining units.
    fn take_back(&self) -> Option<Range<u64>> {
        self.take(|left| {
            let middle = left.start + (left.end - left.start) / 2;
            (left.start..middle, middle..left.end)
        })
    }

    /// Divides the remaining units by `divide` into a part that stays and a part that is taken; returns the latter.
    fn take(&self, divide: impl Fn(Range<u64>) -> (Range<u64>, Range<u64>)) -> Option<Range<u64>> {
        let mut old = self.0.load(Relaxed);
        loop {
            let left = old >> 32..old & u32::MAX as u64;
            if left.is_empty() {
                return None;
            }
            let (kept, taken) = divide(left);
            match self.0.compare_exchange_weak(old, word(&kept), Relaxed, Relaxed) {
                Ok(_) => return Some(taken),
                Err(now) => old = now,
            }
        }
    }
}

fn word(units: &Range<u64>) -> u64 {
    units.start << 32 | units.end
}

struct Shared {
    bells: Vec<Bell>,
    /// Of the current job, for each thread.
    parts: Vec<WorkRange>,
    /// Written by the thread that holds the crew while no bell is armed and no part is running.
    job: UnsafeCell<Job>,
    /// Workers that may still be at the current job.
    pending: AtomicUsize,
    /// The caller sleeps until `pending` is 0, or is about to.
    caller_asleep: AtomicBool,
    /// The caller, while it sleeps.
    caller: Mutex<Option<Thread>>,
    panicked: AtomicBool,
    /// A run holds the workers.
    active: AtomicBool,
    shutdown: AtomicBool,
    affinity: Option<Affinity>,
}

// SAFETY: `job` is the only field without synchronisation of its own. It is written only by the holder of the crew, and
// only while `pending` is 0; it is read only by a thread that has won a bell of the current job, which counts in
// `pending` until it has finished. Arming (release) and winning (acquire) a bell orders the write before the reads,
// `pending` (release, acquire) orders the reads before the next write. The work it points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; the raw pointer is used only while the caller of `Crew::run` keeps its target alive.
unsafe impl Send for Shared {}

/// Worker threads, one less than the number of threads asked for; fewer where the system had no more. Sessions share a pool
/// as `Arc<Pool>`.
pub struct Pool {
    /// Locked by the run that has the workers.
    workers: Mutex<Workers>,
    /// Threads that work, the caller's included.
    threads: AtomicUsize,
    /// For the next run of any session.
    pub(crate) memory: FreeMemory,
}

/// The workers of a pool in one process.
struct Workers {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
    /// The process that has them.
    process: u32,
}

/// Starts a thread of this number with its work.
type Spawn<'a> = &'a mut dyn FnMut(usize, Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>>;

/// Starts a worker by its name.
fn spawn(worker: usize, work: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(format!("tilewright-{worker}")).spawn(work)
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "Pool({} threads)", self.threads())
    }
}

/// The right to use the workers, for one run.
pub struct Crew<'a> {
    /// `None`: another run has them, this one works alone.
    held: Option<MutexGuard<'a, Workers>>,
}

impl Pool {
    /// A pool in which `threads` threads work, the caller's included (0 counts as 1).
    ///
    /// # Errors
    /// [`Error::Limit`] for more than [`MAX_THREADS`](crate::MAX_THREADS) threads.
    pub fn new(threads: usize) -> Result<Pool> {
        Pool::with_spawn(threads, &mut spawn)
    }

    /// As [`Pool::new`], with the threads that `spawn` makes, until it fails.
    fn with_spawn(threads: usize, spawn: Spawn) -> Result<Pool> {
        check_count(threads)?;
        let workers = Workers::start(threads, spawn);
        let threads = AtomicUsize::new(workers.handles.len() + 1);
        Ok(Pool { workers: Mutex::new(workers), threads, memory: FreeMemory::default() })
    }

    /// Number of threads that work, the caller's included.
    pub fn threads(&self) -> usize {
        self.threads.load(Relaxed)
    }

    /// Takes the workers for one run and wakes them. While another run has them the caller works alone; the results
    /// are the same.
    #[doc(hidden)]
    pub fn enter(&self) -> Crew<'_> {
        self.enter_with(&mut spawn)
    }

    /// As [`Pool::enter`], with the threads that `spawn` makes for a process that has none.
    fn enter_with(&self, spawn: Spawn) -> Crew<'_> {
        let held = match self.workers.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let mut held = held.filter(|workers| !workers.handles.is_empty());
        if let Some(workers) = &mut held {
            if workers.process != std::process::id() {
                **workers = Workers::start(self.threads(), spawn);
                self.threads.store(workers.handles.len() + 1, Relaxed);
            }
            workers.call();
        }
        Crew { held }
    }

    /// Returns true if a run was divided among the threads.
    #[cfg(test)]
    pub fn has_divided(&self) -> bool {
        self.workers.lock().unwrap().shared.parts.iter().any(|part| part.0.load(SeqCst) != 0)
    }
}

impl Workers {
    /// Starts the workers of so many threads; fewer where the system has no more.
    fn start(threads: usize, spawn: Spawn) -> Workers {
        let shared = Arc::new(Shared {
            bells: (1..threads).map(|_| Bell::default()).collect(),
            parts: (0..threads.max(1)).map(|_| WorkRange::default()).collect(),
            job: UnsafeCell::new(Job { work: &|_, _, _| {}, count: 0, grain: 1 }),
            pending: AtomicUsize::new(0),
            caller_asleep: AtomicBool::new(false),
            caller: Mutex::new(None),
            panicked: AtomicBool::new(false),
            active: AtomicBool::new(false),
            shutdown: AtomicBool::new(false),
            affinity: Affinity::new(threads),
        });
        let mut workers = Workers { shared, handles: vec![], process: std::process::id() };
        let (ready, started) = std::sync::mpsc::channel::<()>();
        for worker in 1..threads {
            let (shared, ready) = (workers.shared.clone(), ready.clone());
            let work = move || {
                drop(ready);
                serve(&shared, worker);
            };
            match spawn(worker, Box::new(work)) {
                Ok(handle) => workers.handles.push(handle),
                // The system has no more threads: results do not depend on their number.
                Err(_) => break,
            }
        }
        // A thread that starts allocates: all have started before the first run. Nothing is sent; the last one ends the wait.
        drop(ready);
        let _ = started.recv();
        workers
    }

    /// Wakes all of them for a run of the calling thread.
    fn call(&self) {
        if let Some(affinity) = &self.shared.affinity {
            affinity.make_room();
        }
        self.shared.active.store(true, SeqCst);
        (1..=self.handles.len()).for_each(|worker| self.wake(worker));
    }

    fn wake(&self, worker: usize) {
        let asleep = &self.shared.bells[worker - 1].asleep;
        if asleep.load(SeqCst) && asleep.swap(false, SeqCst) {
            self.handles[worker - 1].thread().unpark();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.shutdown.store(true, SeqCst);
        let forked = self.process != std::process::id();
        for worker in self.handles.drain(..) {
            if forked {
                // The handle of a thread of the parent process: there is nothing to wait for and nothing to free.
                std::mem::forget(worker);
                continue;
            }
            worker.thread().unpark();
            // A worker catches the panics of its work; there is nothing to report from here.
            let _ = worker.join();
        }
    }
}

impl Crew<'_> {
    /// Number of threads among which [`Crew::run`] divides.
    pub fn threads(&self) -> usize {
        self.held.as_ref().map_or(1, |workers| workers.handles.len() + 1)
    }

    /// Runs `work(first, last, thread)` on ranges that make up `0..count`, and returns when all are done. `thread` is
    /// less than [`Crew::threads`], and at most one range runs under a number at a time. A panic in `work` is reported
    /// as an error after the other threads have finished.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) where `work` panics.
    pub fn run(&mut self, count: i64, work: &Work) -> Result<()> {
        let threads = self.threads();
        let Some(workers) = self.held.as_deref().filter(|_| threads > 1 && count > 1) else {
            return match catch_unwind(AssertUnwindSafe(|| work(0, count, 0))) {
                Ok(()) => Ok(()),
                Err(_) => Err(panic_error()),
            };
        };
        let shared = &*workers.shared;
        let grain = count / u32::MAX as i64 + 1;
        let units = (count as u64).div_ceil(grain as u64);
        let boundary = |thread: usize| units * thread as u64 / threads as u64;
        // Parts of workers that could not be started stay empty.
        shared
            .parts
            .iter()
            .take(threads)
            .enumerate()
            .for_each(|(thread, part)| part.set(boundary(thread)..boundary(thread + 1)));
        // SAFETY: this thread holds the crew and `pending` is 0, so nobody else looks at the job (see `Sync for Shared`).
        // The lifetime of `work` is extended only until this function returns: it waits below for every worker.
        unsafe {
            let work = std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work);
            *shared.job.get() = Job { work, count, grain };
        }
        shared.pending.store(threads - 1, Relaxed);
        for worker in 1..threads {
            shared.bells[worker - 1].armed.store(true, SeqCst);
            workers.wake(worker);
        }
        perform(shared, 0);
        for worker in 1..threads {
            if claim(shared, worker) {
                shared.pending.fetch_sub(1, Release);
            }
        }
        wait_for_workers(shared);
        if shared.panicked.swap(false, Relaxed) { Err(panic_error()) } else { Ok(()) }
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        if let Some(workers) = &self.held {
            workers.shared.active.store(false, SeqCst);
        }
    }
}

/// Returns when no worker is at the current job any more.
fn wait_for_workers(shared: &Shared) {
    let mut since = None;
    for spins in 1u32.. {
        if shared.pending.load(Acquire) == 0 {
            return;
        }
        std::hint::spin_loop();
        if spins.is_multiple_of(64) && since.get_or_insert_with(Instant::now).elapsed() >= SPIN {
            break;
        }
    }
    let caller = || shared.caller.lock().unwrap_or_else(|e| e.into_inner());
    *caller() = Some(std::thread::current());
    // Announce the sleep, then look once more: the last worker counts down first and looks at `caller_asleep` after.
    shared.caller_asleep.store(true, SeqCst);
    while shared.pending.load(SeqCst) != 0 {
        std::thread::park();
    }
    shared.caller_asleep.store(false, SeqCst);
    *caller() = None;
}

/// A worker is no longer at the current job. The last one wakes the caller if that sleeps.
fn leave(shared: &Shared) {
    if shared.pending.fetch_sub(1, SeqCst) == 1
        && shared.caller_asleep.load(SeqCst)
        && let Some(caller) = &*shared.caller.lock().unwrap_or_else(|e| e.into_inner())
    {
        caller.unpark();
    }
}

fn panic_error() -> Error {
    Error::Internal("a panic in parallel work".into())
}

/// Returns true if the caller is the one who answers the bell of `worker`.
fn claim(shared: &Shared, worker: usize) -> bool {
    let armed = &shared.bells[worker - 1].armed;
    armed.load(Relaxed) && armed.compare_exchange(true, false, Acquire, Relaxed).is_ok()
}

/// Works on the current job as `thread` until nobody has left anything. A panic is noted, not propagated.
fn perform(shared: &Shared, thread: usize) {
    // SAFETY: the caller counts in `pending`, or is the one who started the job, so the job does not change and its
    // work lives.
    let (work, count, grain) = unsafe {
        let job = &*shared.job.get();
        (&*job.work, job.count, job.grain)
    };
    let part = &shared.parts[thread];
    let others = || (1..shared.parts.len()).map(|k| &shared.parts[(thread + k) % shared.parts.len()]);
    let work = || {
        loop {
            while let Some(units) = part.take_front() {
                work(units.start as i64 * grain, (units.end as i64 * grain).min(count), thread);
            }
            let Some(units) = others().find_map(WorkRange::take_back) else { break };
            part.set(units);
        }
    };
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        shared.panicked.store(true, Relaxed);
    }
}

/// The life of a worker: work, wait briefly, sleep.
fn serve(shared: &Shared, worker: usize) {
    if let Some(affinity) = &shared.affinity {
        affinity.join(worker);
    }
    let bell = &shared.bells[worker - 1];
    let mut idle_since = Instant::now();
    let mut spins = 0u32;
    loop {
        if claim(shared, worker) {
            perform(shared, worker);
            leave(shared);
            idle_since = Instant::now();
            continue;
        }
        spins = spins.wrapping_add(1);
        std::hint::spin_loop();
        if !spins.is_multiple_of(32) || (shared.active.load(Relaxed) && idle_since.elapsed() < SPIN) {
            continue;
        }
        // Announce the sleep, then look once more: whoever arms the bell or enters stores first and looks at `asleep` after.
        bell.asleep.store(true, SeqCst);
        let called = bell.armed.load(SeqCst) || shared.shutdown.load(SeqCst);
        if !called {
            std::thread::park();
        }
        bell.asleep.store(false, SeqCst);
        if shared.shutdown.load(SeqCst) {
            return;
        }
        idle_since = Instant::now();
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
