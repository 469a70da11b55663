//! Divided loops, threads that are not there, sleeping.

use super::*;

#[test]
fn every_iteration_runs_once() {
    for threads in [0, 1, 2, 3, 5] {
        let pool = Pool::new(threads).unwrap();
        for count in [0, 1, 2, 3, 7, 100] {
            let hits: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
            let mut crew = pool.enter();
            for _ in 0..20 {
                crew.run(count, &|first, last, thread| {
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
    for bad in [0, 50, 99] {
        let result = crew.run(100, &|first, last, _| assert!(!(first..last).contains(&bad), "wanted"));
        assert!(matches!(result, Err(Error::Internal(_))));
        crew.run(100, &|_, _, _| {}).unwrap();
    }
}

#[test]
fn a_thread_that_is_done_takes_more() {
    let pool = Pool::new(2).unwrap();
    let others = AtomicU64::new(0);
    // The first iteration and those taken with it end only after all others: another thread must take these.
    let work = |first: i64, last: i64, _: usize| {
        let wanted = if first == 0 { 16 - last as u64 } else { 0 };
        while others.load(SeqCst) < wanted {
            std::thread::yield_now();
        }
        others.fetch_add((last - first) as u64, SeqCst);
    };
    pool.enter().run(16, &work).unwrap();
    assert_eq!(others.into_inner(), 16);
}

#[test]
fn more_iterations_than_a_part_can_count_are_taken_in_groups() {
    let pool = Pool::new(2).unwrap();
    let count = 5 * u32::MAX as i64 + 3;
    let (sum, end) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = |first: i64, last: i64, _: usize| {
        sum.fetch_add((last - first) as u64, SeqCst);
        end.fetch_max(last as u64, SeqCst);
    };
    pool.enter().run(count, &work).unwrap();
    assert_eq!((sum.into_inner(), end.into_inner()), (count as u64, count as u64));
}

/// CPU time of the calling thread.
#[cfg(target_os = "linux")]
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and the result is written to a local variable.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
#[cfg(target_os = "linux")]
fn a_caller_that_waits_long_sleeps() {
    let pool = Pool::new(2).unwrap();
    let caller = std::thread::current().id();
    let (begun, slept) = (AtomicBool::new(false), AtomicBool::new(false));
    let before = cpu_time();
    pool.enter()
        .run(2, &|_, _, _| {
            if std::thread::current().id() == caller {
                while !begun.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            } else {
                begun.store(true, SeqCst);
                std::thread::sleep(Duration::from_millis(300));
                slept.store(true, SeqCst);
            }
        })
        .unwrap();
    assert!(slept.load(SeqCst));
    let spent = cpu_time() - before;
    assert!(spent < Duration::from_millis(60), "{spent:?}");
}

#[test]
fn threads_that_cannot_be_had_are_done_without() {
    for available in 0..4 {
        let mut left = available;
        let pool = Pool::with_spawn(4, &mut |_, work| {
            left = usize::checked_sub(left, 1).ok_or(std::io::ErrorKind::WouldBlock)?;
            std::thread::Builder::new().spawn(work)
        })
        .unwrap();
        assert_eq!(pool.threads(), 4.min(available + 1));
        let hits: Vec<AtomicU64> = (0..100).map(|_| AtomicU64::new(0)).collect();
        let mut crew = pool.enter();
        for _ in 0..20 {
            let hit = |i: i64| hits[i as usize].fetch_add(1, Relaxed);
            crew.run(100, &|first, last, _| (first..last).for_each(|i| _ = hit(i))).unwrap();
        }
        assert!(hits.iter().all(|h| h.load(Relaxed) == 20), "{available} threads");
    }
    assert!(matches!(Pool::new(1 << 20), Err(Error::Limit(_))));
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
                        crew.run(10, &|first, last, _| {
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
    pool.enter().run(2, &|_, _, _| {}).unwrap();
    let asleep = || pool.workers.lock().unwrap().shared.bells[0].asleep.load(SeqCst);
    let deadline = Instant::now() + Duration::from_secs(5);
    while !asleep() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(asleep());
}

#[test]
fn the_child_of_a_fork_has_as_many_threads() {
    let pool = Pool::new(3).unwrap();
    for _ in 0..2 {
        // No process has this number: the workers are those of a parent.
        pool.workers.lock().unwrap().process = 0;
        assert_eq!(pool.enter().threads(), 3);
        assert_eq!(pool.threads(), 3);
        assert_eq!(pool.workers.lock().unwrap().process, std::process::id());
    }
}

#[test]
fn the_child_of_a_fork_has_the_threads_that_there_are() {
    let pool = Pool::new(3).unwrap();
    pool.workers.lock().unwrap().process = 0;
    let mut left = 1;
    let crew = pool.enter_with(&mut |worker, work| {
        left = usize::checked_sub(left, 1).ok_or(std::io::ErrorKind::WouldBlock)?;
        spawn(worker, work)
    });
    assert_eq!((crew.threads(), pool.threads()), (2, 2));
}

/// A thread allocates when it starts, which no run may do.
#[test]
fn all_threads_have_started_when_there_is_a_pool() {
    let started = Arc::new(AtomicUsize::new(0));
    let _pool = Pool::with_spawn(4, &mut |worker, work| {
        let started = started.clone();
        let late = move || {
            std::thread::sleep(Duration::from_millis(20));
            started.fetch_add(1, SeqCst);
            work();
        };
        spawn(worker, Box::new(late))
    })
    .unwrap();
    assert_eq!(started.load(SeqCst), 3);
}
