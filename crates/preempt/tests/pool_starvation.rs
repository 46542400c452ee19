//! The starvation threshold with real threads: what it forbids, and that what it
//! puts off is resumed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use giveway_preempt::{
    Level, Metric, Policy, Pool, PoolBuilder, RegionAlloc, RegionMutex, Shutdown, Since, Threshold,
    Ticker, poll_record,
};
use giveway_tier::Tier;

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
/// task of 100 ms of its own time runs. Returns the share of higher levels in the
/// time that the background task took, and the longest urgent task's.
fn share_under_overload(pool: &Pool) -> (f64, f64) {
    let (started, ended) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let low = {
        let (started, ended) = (Arc::clone(&started), Arc::clone(&ended));
        move || {
            started.store(true, SeqCst);
            // Its own time: steps that are interrupted count as one step.
            for _ in 0..100_000 {
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

/// Whether one run under overload kept to a threshold of one half, and was one:
/// urgent tasks ran, and some were refused.
fn keeps_to_half(since: Since) -> Result<(), String> {
    let pool = one(0.5)
        .since(since)
        .ticker(Ticker::Caller)
        .build()
        .unwrap();
    let (share, longest) = share_under_overload(&pool);
    let urgent = &pool.stats().levels[1];
    let said = format!("{since:?}: {share} with {longest}, {urgent:?}");
    // The last task before the threshold was checked may be the longest, and the
    // switches themselves take a little.
    let kept = share <= 0.5 + longest + 0.02;
    match kept && urgent.run > 0 && urgent.refused_starved > 0 {
        true => Ok(()),
        false => Err(said),
    }
}

#[test]
fn higher_levels_get_no_more_than_the_threshold_but_for_a_task() {
    for since in [Since::Start, Since::FirstInLine] {
        // A worker that loses its CPU between two tasks is higher for that long,
        // and no task's time says so. Without a threshold no run keeps to it.
        let mut runs = (0..10).map(|_| keeps_to_half(since));
        let mut failed = Vec::new();
        while let Some(Err(said)) = runs.next() {
            failed.push(said);
        }
        assert!(failed.len() < 10, "{failed:#?}");
    }
}

/// Submits a batch of four urgent tasks while a background task runs. The first
/// takes two thirds of the time since the background task came, so that L is
/// above one half after it. The background task ends when all four have run;
/// returns how many steps of it each of them has seen.
fn steps_seen_by_a_batch(pool: &Pool) -> Vec<u64> {
    let steps = Arc::new(AtomicU64::new(0));
    let seen = Arc::new(RegionMutex::new(Vec::new()));
    let low = {
        let (steps, seen) = (Arc::clone(&steps), Arc::clone(&seen));
        move || {
            until(|| {
                steps.fetch_add(1, SeqCst);
                seen.lock().len() == 4
            })
        }
    };
    let before = Instant::now();
    let low = pool.submit(Tier::Background, low).unwrap();
    assert!(until(|| steps.load(SeqCst) > 0));
    let task = |number: u32| {
        let (steps, seen) = (Arc::clone(&steps), Arc::clone(&seen));
        move || {
            if number == 0 {
                spin(before.elapsed() * 2);
            }
            seen.lock().push(steps.load(SeqCst));
        }
    };
    let batch = pool.submit_batch(HIGH, (0..4).map(task));
    assert_eq!(batch.tickets.len(), 4);
    assert!(until(|| {
        pool.tick();
        low.is_done()
    }));
    assert_eq!(low.wait(), Ok(true));
    seen.lock().clone()
}

#[test]
fn without_a_threshold_a_batch_runs_in_one_go() {
    let pool = one(1.0).ticker(Ticker::Caller).build().unwrap();
    let seen = steps_seen_by_a_batch(&pool);
    assert!(seen.iter().all(|steps| *steps == seen[0]), "{seen:?}");
    assert_eq!(pool.stats().workers[0].requests.taken, 1);
}

#[test]
fn deferred_tasks_resume_when_background_work_has_caught_up() {
    let pool = one(0.5).ticker(Ticker::Caller).build().unwrap();
    let seen = steps_seen_by_a_batch(&pool);
    assert!(seen[1] > seen[0], "{seen:?}");
    assert!(pool.stats().workers[0].requests.taken >= 2);
}

#[test]
fn the_ticker_thread_resumes_deferred_tasks() {
    let pool = one(0.5).build().unwrap();
    let (started, served) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU32::new(0)),
    );
    let low = {
        let (started, served) = (Arc::clone(&started), Arc::clone(&served));
        move || {
            started.store(true, SeqCst);
            until(|| served.load(SeqCst) == 2)
        }
    };
    let before = Instant::now();
    let low = pool.submit(Tier::Background, low).unwrap();
    assert!(until(|| started.load(SeqCst)));
    let batch = pool.submit_batch(
        HIGH,
        (0..2).map(|_| {
            let served = Arc::clone(&served);
            move || {
                spin(before.elapsed() * 2);
                served.fetch_add(1, SeqCst);
            }
        }),
    );
    assert_eq!(batch.tickets.len(), 2);
    // Nobody submits anything more, and nobody else ticks.
    assert_eq!(low.wait(), Ok(true));
}

#[test]
fn a_threshold_of_zero_forbids_preemption() {
    for policy in [
        Policy::PREEMPT,
        Policy::best(),
        "cooperative:10".parse().unwrap(),
    ] {
        nobody_is_left_in_the_middle(&one(0.0).policy(policy).build().unwrap());
    }
}

fn nobody_is_left_in_the_middle(pool: &Pool) {
    let (started, go) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let low = {
        let (started, go) = (Arc::clone(&started), Arc::clone(&go));
        move || {
            started.store(true, SeqCst);
            let go = || {
                poll_record();
                go.load(SeqCst)
            };
            assert!(until(go));
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

/// An urgent task that submits the next one before it ends: the queue is never
/// empty, unless a link is refused.
fn link(pool: Arc<Pool>, stop: Arc<AtomicBool>) {
    spin(Duration::from_micros(50));
    if !stop.load(SeqCst) {
        let again = Arc::clone(&pool);
        drop(pool.submit(HIGH, move || link(again, stop)));
    }
}

/// A pool that interrupts nobody, but where urgent tasks always come first
/// between two tasks; and a chain of them.
fn chained(threshold: f64) -> (Arc<Pool>, Arc<AtomicBool>) {
    let pool = one(threshold).policy(Policy::Wait).build().unwrap();
    let (pool, stop) = (Arc::new(pool), Arc::new(AtomicBool::new(false)));
    forge(&pool, &stop);
    (pool, stop)
}

/// Starts another chain, as soon as the threshold allows it.
fn forge(pool: &Arc<Pool>, stop: &Arc<AtomicBool>) {
    assert!(until(|| {
        let (again, stop) = (Arc::clone(pool), Arc::clone(stop));
        pool.submit(HIGH, move || link(again, stop)).is_ok()
    }));
}

#[test]
fn with_a_threshold_background_work_runs() {
    let (pool, stop) = chained(0.5);
    for _ in 0..20 {
        let low = pool.submit(Tier::Background, || ()).unwrap();
        assert!(low.wait_timeout(LONG).unwrap().is_ok());
        forge(&pool, &stop);
    }
    stop.store(true, SeqCst);
    assert!(pool.shutdown(Shutdown::Drain).is_empty());
}

#[test]
fn without_a_threshold_background_work_waits_for_ever() {
    let (pool, stop) = chained(1.0);
    let low = pool.submit(Tier::Background, || ()).unwrap();
    thread::sleep(Duration::from_millis(50));
    assert!(!low.is_done());
    stop.store(true, SeqCst);
    low.wait().unwrap();
    assert!(pool.shutdown(Shutdown::Drain).is_empty());
}
