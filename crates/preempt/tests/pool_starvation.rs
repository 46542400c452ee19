//! The starvation threshold with real threads: what it forbids, and that what it
//! puts off is resumed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use giveway_hints::Tier;
use giveway_preempt::{
    Level, Metric, Policy, Pool, PoolBuilder, RegionAlloc, Since, Threshold, Ticker, Why,
};

// Tasks allocate, and are left while they do.
#[global_allocator]
static ALLOCATOR: RegionAlloc<std::alloc::System> = RegionAlloc(std::alloc::System);

const HIGH: Level = Level::new(1);
/// Longer than anything takes on a busy machine; only a failed test waits it out.
const LONG: Duration = Duration::from_secs(30);

fn one(threshold: f64) -> PoolBuilder {
    let threshold = Threshold::new(threshold).unwrap();
    Pool::builder()
        .workers(1)
        .policy(Policy::PREEMPT)
        .threshold(threshold)
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Waits until `done`, in code that can be preempted; false if it takes too long.
fn until(done: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > LONG {
            return false;
        }
        spin(Duration::from_micros(10));
    }
    true
}

/// Submits urgent tasks of 1 ms as fast as they are taken, while one background
/// task of so many ms of its own time runs. Returns the share of higher levels in the
/// time that the background task took, and the longest urgent task's.
fn share_under_overload(pool: &Pool, own_ms: u32) -> (f64, f64) {
    let (started, ended) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let low = {
        let (started, ended) = (Arc::clone(&started), Arc::clone(&ended));
        move || {
            started.store(true, SeqCst);
            // Its own time: steps that are interrupted count as one step.
            for _ in 0..own_ms * 1000 {
                spin(Duration::from_micros(1));
            }
            ended.store(true, SeqCst);
        }
    };
    let low = pool.submit(Tier::Background, low).unwrap();
    assert!(until(|| started.load(SeqCst)));
    while !ended.load(SeqCst) {
        let task = || spin(Duration::from_millis(1));
        match pool.submit(HIGH, task) {
            Ok(ticket) => drop(ticket),
            Err(_) => thread::sleep(Duration::from_micros(100)),
        }
        pool.tick();
    }
    low.wait().unwrap();
    let worker = &pool.stats().workers[0];
    let longest = pool.histogram(HIGH, Metric::RunTime).max() as f64;
    let total = worker.in_line_ns as f64;
    (worker.higher_ns as f64 / total, longest / total)
}

#[test]
fn higher_levels_get_no_more_than_the_threshold_but_for_a_task() {
    for since in [Since::Start, Since::FirstInLine] {
        let pool = one(0.5)
            .since(since)
            .ticker(Ticker::Caller)
            .build()
            .unwrap();
        let (share, longest) = share_under_overload(&pool, 100);
        // The last task before the threshold was checked may be the longest, and
        // the switches themselves take a little.
        assert!(
            share <= 0.5 + longest + 0.02,
            "{since:?}: {share} with {longest}"
        );
        assert!(share > 0.1, "{since:?}: urgent tasks hardly ran: {share}");
        assert!(pool.stats().levels[1].refused_starved > 0);
    }
}

#[test]
fn without_a_threshold_higher_levels_get_what_they_want() {
    let pool = one(1.0).ticker(Ticker::Caller).build().unwrap();
    let (share, _) = share_under_overload(&pool, 5);
    assert!(share > 0.6, "{share}");
    assert_eq!(pool.stats().levels[1].refused_starved, 0);
}

#[test]
fn a_threshold_of_zero_forbids_preemption() {
    let pool = one(0.0).build().unwrap();
    let (started, go) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let low = {
        let (started, go) = (Arc::clone(&started), Arc::clone(&go));
        move || {
            started.store(true, SeqCst);
            assert!(until(|| go.load(SeqCst)));
        }
    };
    let low = pool.submit(Tier::Background, low).unwrap();
    assert!(until(|| started.load(SeqCst)));
    let high = pool.submit(HIGH, || ()).unwrap();
    thread::sleep(Duration::from_millis(50));
    assert!(!high.is_done());
    go.store(true, SeqCst);
    high.wait().unwrap();
    low.wait().unwrap();
    assert_eq!(pool.stats().workers[0].requests.requested, 0);
}

#[test]
fn what_was_put_off_is_resumed_when_background_work_has_caught_up() {
    // The thread of the pool ticks, or the caller does.
    for ticker in [Ticker::Thread, Ticker::Caller] {
        let pool = one(0.5).ticker(ticker).build().unwrap();
        let served = Arc::new(AtomicU32::new(0));
        let started = Arc::new(AtomicBool::new(false));
        let low = {
            let (served, started) = (Arc::clone(&served), Arc::clone(&started));
            move || {
                started.store(true, SeqCst);
                // Not before all urgent tasks have run: those that were put off
                // by the threshold as well.
                until(|| served.load(SeqCst) == 4)
            }
        };
        let before = Instant::now();
        let low = pool.submit(Tier::Background, low).unwrap();
        assert!(until(|| started.load(SeqCst)));
        let task = |number: u32| {
            let served = Arc::clone(&served);
            move || {
                if number == 0 {
                    // Two thirds of the time since the background task came.
                    spin(before.elapsed() * 2);
                }
                served.fetch_add(1, SeqCst);
            }
        };
        let batch = pool.submit_batch(HIGH, (0..4).map(task));
        assert_eq!(batch.tickets.len(), 4);
        if ticker == Ticker::Caller {
            assert!(until(|| {
                pool.tick();
                low.is_done()
            }));
        }
        assert_eq!(low.wait(), Ok(true), "{ticker:?}");
        // After the first one, the others were put off.
        assert!(
            pool.stats().workers[0].requests.taken >= 2,
            "{:?}",
            pool.stats()
        );
    }
}

#[test]
fn a_background_task_that_waits_is_not_put_off_for_ever() {
    // Nobody is interrupted, but between tasks urgent ones would always be first.
    let pool = Pool::builder()
        .workers(1)
        .policy(Policy::Wait)
        .capacity(HIGH, 8);
    let pool = pool
        .threshold(Threshold::new(0.5).unwrap())
        .build()
        .unwrap();
    let pool = Arc::new(pool);
    let stop = Arc::new(AtomicBool::new(false));
    let flood = {
        let (pool, stop) = (Arc::clone(&pool), Arc::clone(&stop));
        thread::spawn(move || {
            while !stop.load(SeqCst) {
                match pool.submit(HIGH, || spin(Duration::from_micros(200))) {
                    Ok(ticket) => drop(ticket),
                    Err(refused) if refused.why == Why::Full => thread::yield_now(),
                    Err(_) => thread::sleep(Duration::from_micros(50)),
                }
            }
        })
    };
    assert!(until(|| pool.stats().levels[1].run > 20));
    for _ in 0..20 {
        let low = pool.submit(Tier::Background, || ()).unwrap();
        assert!(low.wait_timeout(LONG).unwrap().is_ok());
    }
    stop.store(true, SeqCst);
    flood.join().unwrap();
    let worker = &pool.stats().workers[0];
    assert!(worker.higher_ns < worker.in_line_ns, "{worker:?}");
}
