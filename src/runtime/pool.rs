//! The thread pool: one part of a parallel loop for each thread, or several where iterations do different work; nothing nested.
//!
//! In: a number of iterations and a function of a range. Out: the function has run on every iteration. A run of a model
//! takes the workers with [`Pool::enter`]; while it holds them they wait for work by spinning, for a bounded time, and as
//! soon as it lets them go they sleep. They keep off the caller's processor. Handing out work is one store to a cache line of each worker. A part that its
//! worker has not begun when the caller has finished its own is taken back by the caller, so a worker that the system
//! has put aside delays nobody. Iterations are independent: which thread runs one changes no result.

use crate::runtime::affinity::Affinity;
use crate::runtime::{Error, Result};
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a worker waits for work inside a run before it sleeps all the same.
const SPIN: Duration = Duration::from_micros(100);

/// Range and executing thread: `work(first, last, thread)`.
type Work<'a> = dyn Fn(i64, i64, usize) + Sync + 'a;

/// How iterations are dealt to threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deal {
    /// One part for each thread, all of nearly the same length.
    Equally,
    /// Whoever is done takes some of those that are left, fewer and fewer.
    AsDone,
}

/// Of the iterations that are left a thread takes one part in so many, times the number of threads.
const SHARE: i64 = 4;

/// A worker's doorbell, on a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Bell {
    /// The current job has a part for this worker that nobody has begun.
    armed: AtomicBool,
    /// The worker sleeps, or is about to.
    asleep: AtomicBool,
}

struct Job {
    work: *const Work<'static>,
    count: i64,
    deal: Deal,
}

struct Shared {
    bells: Vec<Bell>,
    /// Written by the thread that holds the crew while no bell is armed and no part is running.
    job: UnsafeCell<Job>,
    /// The first iteration of the current job that nobody has taken, where they are dealt as threads get done.
    next: AtomicI64,
    /// Parts of the current job that are not finished.
    pending: AtomicUsize,
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

/// Worker threads, one less than the number of threads asked for.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    busy: Mutex<()>,
}

/// The right to use the workers, for one run.
pub struct Crew<'a> {
    pool: &'a Pool,
    /// `None`: another run has them, this one works alone.
    held: Option<MutexGuard<'a, ()>>,
}

impl Pool {
    /// A pool in which `threads` threads work, the caller's included (0 counts as 1).
    pub fn new(threads: usize) -> Result<Pool> {
        let shared = Arc::new(Shared {
            bells: (1..threads).map(|_| Bell::default()).collect(),
            job: UnsafeCell::new(Job { work: &|_, _, _| {}, count: 0, deal: Deal::Equally }),
            next: AtomicI64::new(0),
            pending: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            active: AtomicBool::new(false),
            shutdown: AtomicBool::new(false),
            affinity: Affinity::new(threads),
        });
        let mut pool = Pool { shared, workers: vec![], busy: Mutex::new(()) };
        for worker in 1..threads {
            let shared = pool.shared.clone();
            let handle = std::thread::Builder::new()
                .name(format!("tilewright-{worker}"))
                .spawn(move || serve(&shared, worker))
                .map_err(|e| Error::Io(format!("worker thread {worker} of {threads}: {e}")))?;
            pool.workers.push(handle);
        }
        Ok(pool)
    }

    /// Number of threads that work, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Takes the workers for one run and wakes them. While another run has them the caller works alone; the results
    /// are the same.
    pub fn enter(&self) -> Crew<'_> {
        let held = match self.busy.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let held = held.filter(|_| !self.workers.is_empty());
        if held.is_some() {
            if let Some(affinity) = &self.shared.affinity {
                affinity.make_room();
            }
            self.shared.active.store(true, SeqCst);
            (1..self.threads()).for_each(|worker| self.wake(worker));
        }
        Crew { pool: self, held }
    }

    fn wake(&self, worker: usize) {
        let asleep = &self.shared.bells[worker - 1].asleep;
        if asleep.load(SeqCst) && asleep.swap(false, SeqCst) {
            self.workers[worker - 1].thread().unpark();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.shutdown.store(true, SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches the panics of its work; there is nothing to report from here.
            let _ = worker.join();
        }
    }
}

impl Crew<'_> {
    /// Number of threads among which [`Crew::run`] divides.
    pub fn threads(&self) -> usize {
        if self.held.is_some() { self.pool.threads() } else { 1 }
    }

    /// Runs `work(first, last, thread)` on parts of `0..count`, and returns when all are done. `thread` is less than [`Crew::threads`], and at most one part runs under a number at a time. A panic in `work` is
    /// reported as an error after the other parts have finished.
    pub fn run(&mut self, count: i64, deal: Deal, work: &Work) -> Result<()> {
        let threads = self.threads();
        if threads == 1 || count <= 1 {
            return match catch_unwind(AssertUnwindSafe(|| work(0, count, 0))) {
                Ok(()) => Ok(()),
                Err(_) => Err(panic_error()),
            };
        }
        let shared = &*self.pool.shared;
        // SAFETY: this thread holds the crew and `pending` is 0, so nobody else looks at the job (see `Sync for Shared`).
        // The lifetime of `work` is extended only until this function returns: it waits below for every part.
        unsafe {
            let work = std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work);
            *shared.job.get() = Job { work, count, deal };
        }
        shared.next.store(0, Relaxed);
        shared.pending.store(threads - 1, Relaxed);
        for worker in 1..threads {
            shared.bells[worker - 1].armed.store(true, SeqCst);
            self.pool.wake(worker);
        }
        perform(shared, 0, 0);
        for worker in 1..threads {
            if claim(shared, worker) {
                perform(shared, worker, 0);
                shared.pending.fetch_sub(1, Release);
            }
        }
        let mut spins = 0u32;
        while shared.pending.load(Acquire) != 0 {
            spins += 1;
            if spins.is_multiple_of(4096) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        if shared.panicked.swap(false, Relaxed) { Err(panic_error()) } else { Ok(()) }
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        if self.held.is_some() {
            self.pool.shared.active.store(false, SeqCst);
        }
    }
}

fn panic_error() -> Error {
    Error::Internal("a panic in parallel work".into())
}

/// Whether the caller is the one who does the part of `worker`.
fn claim(shared: &Shared, worker: usize) -> bool {
    let armed = &shared.bells[worker - 1].armed;
    armed.load(Relaxed) && armed.compare_exchange(true, false, Acquire, Relaxed).is_ok()
}

/// Does part `part` of the current job as `thread`. A panic is noted, not propagated.
fn perform(shared: &Shared, part: usize, thread: usize) {
    // SAFETY: the caller has claimed `part` of the current job, or is the one who started it, so the job does not change
    // and its work lives until `pending` says that the part is finished.
    let (work, count, deal) = unsafe {
        let job = &*shared.job.get();
        (&*job.work, job.count, job.deal)
    };
    let threads = shared.bells.len() as i64 + 1;
    let all = || match deal {
        Deal::Equally => {
            let at = |part: usize| (count as i128 * part as i128 / threads as i128) as i64;
            let (first, last) = (at(part), at(part + 1));
            if first < last {
                work(first, last, thread);
            }
        }
        Deal::AsDone => {
            let take = |first: i64| first + ((count - first) / (SHARE * threads)).max(1);
            let more = |first: i64| (first < count).then(|| take(first));
            while let Ok(first) = shared.next.fetch_update(Relaxed, Relaxed, more) {
                work(first, take(first), thread);
            }
        }
    };
    if catch_unwind(AssertUnwindSafe(all)).is_err() {
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
            perform(shared, worker, worker);
            shared.pending.fetch_sub(1, Release);
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
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_iteration_runs_once() {
        for (threads, deal) in [0, 1, 2, 3, 5].into_iter().flat_map(|n| [(n, Deal::Equally), (n, Deal::AsDone)]) {
            let pool = Pool::new(threads).unwrap();
            for count in [0, 1, 2, 3, 7, 100] {
                let hits: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
                let mut crew = pool.enter();
                for _ in 0..20 {
                    crew.run(count, deal, &|first, last, thread| {
                        assert!(thread < threads.max(1));
                        for i in first..last {
                            hits[i as usize].fetch_add(1, Relaxed);
                        }
                    })
                    .unwrap();
                }
                assert!(hits.iter().all(|h| h.load(Relaxed) == 20), "{threads} threads, {count} iterations");
            }
        }
    }

    #[test]
    fn a_panic_is_an_error_and_the_pool_goes_on() {
        let pool = Pool::new(3).unwrap();
        let mut crew = pool.enter();
        for (bad, deal) in [(0, Deal::Equally), (50, Deal::AsDone), (99, Deal::Equally)] {
            let result = crew.run(100, deal, &|first, last, _| assert!(!(first..last).contains(&bad), "wanted"));
            assert!(matches!(result, Err(Error::Internal(_))));
            crew.run(100, deal, &|_, _, _| {}).unwrap();
        }
    }

    #[test]
    fn a_thread_that_is_done_takes_more() {
        let pool = Pool::new(2).unwrap();
        let long = AtomicBool::new(true);
        let others = AtomicU64::new(0);
        // One iteration lasts until all others have run: they are not bound to the thread that is held up.
        let work = |first: i64, last: i64, _: usize| {
            for i in first..last {
                if i == 0 {
                    while others.load(SeqCst) < 8 {
                        std::thread::yield_now();
                    }
                    long.store(false, SeqCst);
                } else {
                    others.fetch_add(1, SeqCst);
                }
            }
        };
        pool.enter().run(9, Deal::AsDone, &work).unwrap();
        assert!(!long.load(SeqCst));
    }

    #[test]
    fn many_runs_share_one_pool() {
        let pool = Pool::new(2).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..300 {
                        let sum = AtomicU64::new(0);
                        let mut crew = pool.enter();
                        for _ in 0..5 {
                            crew.run(10, Deal::AsDone, &|first, last, _| {
                                sum.fetch_add((first..last).sum::<i64>() as u64, Relaxed);
                            })
                            .unwrap();
                        }
                        drop(crew);
                        assert_eq!(sum.into_inner(), 5 * 45);
                        if round % 100 == 0 {
                            std::thread::sleep(2 * SPIN);
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn workers_sleep_between_runs() {
        let pool = Pool::new(2).unwrap();
        pool.enter().run(2, Deal::Equally, &|_, _, _| {}).unwrap();
        let asleep = || pool.shared.bells[0].asleep.load(SeqCst);
        let deadline = Instant::now() + Duration::from_secs(5);
        while !asleep() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(asleep());
    }
}
