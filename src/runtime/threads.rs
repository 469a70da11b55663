//! Threads that may not be there: work that is the same on any number of them.

use crate::{Error, Result};
use std::sync::Mutex;
use std::thread::Builder;

/// More threads than this are a mistake.
pub const MAX_THREADS: usize = 1024;

/// Refuses a number of threads that no run needs.
pub fn check_count(threads: usize) -> Result<()> {
    match threads {
        0..=MAX_THREADS => Ok(()),
        _ => Err(Error::Limit(format!("{threads} threads are asked for, {MAX_THREADS} are allowed"))),
    }
}

/// Runs `work` on the calling thread and on up to `threads - 1` others at once; on fewer where the system has no more.
/// Returns when all are done and gone. `work` must complete everything even if only one thread runs it.
pub fn together(threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        let spawn = |_| Builder::new().spawn_scoped(scope, &work).ok();
        let others: Vec<_> = (1..threads.min(MAX_THREADS)).map_while(spawn).collect();
        work();
        // the end of the scope waits for the work only, not for what threads free at their end
        for thread in others {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// The results of `work` for each item, in their order. Up to `threads` threads take one item after the other, the first items
/// first.
pub fn map<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    threads: usize,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let items: Vec<T> = items.into_iter().collect();
    let (threads, results) = (threads.min(items.len()), Mutex::new(Vec::with_capacity(items.len())));
    let queue = Mutex::new(items.into_iter().enumerate());
    together(threads, || {
        loop {
            let next = queue.lock().unwrap_or_else(|e| e.into_inner()).next();
            let Some((i, item)) = next else { return };
            let result = work(item);
            results.lock().unwrap_or_else(|e| e.into_inner()).push((i, result));
        }
    });
    let mut results = results.into_inner().unwrap_or_else(|e| e.into_inner());
    results.sort_unstable_by_key(|result| result.0);
    results.into_iter().map(|result| result.1).collect()
}

/// The number of cores that this process may use; 1 where the system does not say.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::*};

    #[test]
    fn all_threads_do_the_work() {
        for threads in [0, 1, 4] {
            let (next, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
            together(threads, || {
                while let Ok(i) = next.fetch_update(SeqCst, SeqCst, |i| (i < 100).then_some(i + 1)) {
                    sum.fetch_add(i, SeqCst);
                }
            });
            assert_eq!(sum.into_inner(), 99 * 50);
        }
        for threads in [0, 1, 4] {
            let squares = map((0..100).map(|i| i.to_string()), threads, |i| i.parse::<usize>().unwrap().pow(2));
            assert_eq!(squares, (0..100).map(|i| i * i).collect::<Vec<_>>());
            assert_eq!(map([0; 0], threads, |i| i), []);
        }
        assert!(check_count(MAX_THREADS).is_ok() && check_count(MAX_THREADS + 1).is_err());
    }
}
