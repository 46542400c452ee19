//! A task from submission to its end, the end of a pool, and its beginning.
//! What is asserted is order and count, not time; where a test waits, it waits
//! longer than a busy machine takes, and only a failed test waits it out.

mod crew;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use giveway_preempt::{
    BuildError, Goal, Level, Metric, Policy, Pool, PoolBuilder, PoolStats, Request, Shutdown,
    TaskError, Threshold, Verdict, Why, current_level,
};
use giveway_tier::{Tier, Weight};

use crew::{Flag, HIGH, HIGHER, LONG, occupy, one};

#[test]
fn a_panic_is_the_tickets_and_the_worker_goes_on() {
    let pool = one(Policy::best()).build().unwrap();
    for level in [Level::BASE, HIGH] {
        let panics = pool.submit(level, || -> u32 {
            panic!("at {}", current_level().unwrap())
        });
        let expected = TaskError::Panicked(format!("at {level}"));
        assert_eq!(panics.unwrap().wait(), Err(expected));
        assert_eq!(pool.submit(level, || 1).unwrap().wait(), Ok(1));
    }
    let stats = pool.stats();
    for level in &stats.levels {
        assert_eq!((level.run, level.panicked), (2, 1));
    }
    // None of them reached the root of a context.
    assert_eq!(stats.workers[0].requests.panics, 0);
}

/// What a task leaves may panic when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn the_worker_goes_on_when_what_a_task_leaves_panics() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("woken");
        }
    }
    let pool = one(Policy::best())
        .capacity(Level::BASE, 4)
        .build()
        .unwrap();
    let goes_on = |level| {
        let next = pool.submit(level, || 1).unwrap().wait_timeout(LONG);
        assert_eq!(next.expect("the worker is gone"), Ok(1));
    };
    for level in [Level::BASE, HIGH] {
        // The result, of which nobody wants to know.
        drop(pool.submit(level, || Bomb).unwrap());
        goes_on(level);
        // What a panic leaves.
        let thrown = pool.submit(level, || -> u32 { std::panic::panic_any(Bomb) });
        let thrown = thrown
            .unwrap()
            .wait_timeout(LONG)
            .expect("the worker is gone");
        assert!(matches!(thrown, Err(TaskError::Panicked(_))));
        goes_on(level);
        // The waker.
        let go = Flag::default();
        let mut ticket = {
            let go = go.clone();
            pool.submit(level, move || go.wait()).unwrap()
        };
        let waker = Waker::from(Arc::new(Panics));
        let polled = std::pin::Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        go.raise();
        goes_on(level);
        assert!(ticket.is_done());
    }
    // A drop and a waker for each level.
    assert_eq!(pool.stats().workers[0].requests.panics, 4);
}

#[test]
fn a_region_that_a_task_forgets_ends_with_it() {
    let pool = one(Policy::best()).build().unwrap();
    for level in [Level::BASE, HIGH] {
        let forgets = pool.submit(level, || std::mem::forget(giveway_preempt::region()));
        assert_eq!(forgets.unwrap().wait(), Ok(()));
        let next = pool.submit(level, giveway_preempt::in_region);
        assert_eq!(next.unwrap().wait(), Ok(false));
    }
}

#[test]
fn an_iterator_that_panics_has_submitted_nothing() {
    let pool = one(Policy::Wait).capacity(HIGH, 4).build().unwrap();
    let tasks = (0..2).map(|at| {
        assert_eq!(at, 0, "on purpose");
        || ()
    });
    let submit = std::panic::AssertUnwindSafe(|| drop(pool.submit_batch(HIGH, tasks)));
    assert!(std::panic::catch_unwind(submit).is_err());
    assert_eq!(pool.submit(HIGH, || 1).unwrap().wait(), Ok(1));
    assert_eq!(pool.stats().levels[1].run, 1);
}

#[test]
fn a_cancelled_task_does_not_run_and_drops_what_it_has() {
    let pool = one(Policy::Wait).build().unwrap();
    let go = occupy(&pool);
    let (value, ran) = (Arc::new(()), Flag::default());
    let task = {
        let (value, ran) = (Arc::clone(&value), ran.clone());
        move || {
            ran.raise();
            drop(value);
        }
    };
    let ticket = pool.submit(HIGH, task).unwrap();
    assert!(!ticket.is_done());
    assert!(ticket.cancel() && ticket.cancel() && ticket.is_done());
    assert_eq!(Arc::strong_count(&value), 1);
    assert_eq!(ticket.wait(), Err(TaskError::Cancelled));
    go.raise();
    let done = pool.submit(HIGH, || ()).unwrap();
    while !done.is_done() {
        thread::yield_now();
    }
    assert!(!done.cancel());
    assert!(!ran.is_up());
    assert_eq!(pool.stats().levels[1].cancelled, 1);
}

#[test]
fn tickets_are_futures() {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let pool = one(Policy::best()).build().unwrap();
    let go = occupy(&pool);
    let ticket = pool.submit(Tier::Background, || 3).unwrap();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut ticket = pin!(ticket);
    assert!(ticket.as_mut().poll(&mut context).is_pending());
    go.raise();
    let result = loop {
        thread::park_timeout(LONG);
        if let Poll::Ready(result) = ticket.as_mut().poll(&mut context) {
            break result;
        }
    };
    assert_eq!(result, Ok(3));
}

#[test]
fn a_task_must_not_wait_for_a_task() {
    let pool = Arc::new(one(Policy::best()).build().unwrap());
    let again = Arc::clone(&pool);
    let waits = pool.submit(Tier::Background, move || {
        let ticket = again.submit(Tier::TimeSensitive, || 1).unwrap();
        let again = std::panic::AssertUnwindSafe(again);
        let waits = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ticket.wait()));
        let ends = std::panic::catch_unwind(|| again.shutdown(Shutdown::Drain).len());
        (waits.is_err(), ends.is_err())
    });
    assert_eq!(waits.unwrap().wait(), Ok((true, true)));
}

#[test]
fn draining_runs_everything_and_refuses_what_comes_later() {
    let pool = Arc::new(one(Policy::Wait).capacity(Level::BASE, 8).build().unwrap());
    let ran = Arc::new(AtomicU32::new(0));
    let go = occupy(&pool);
    for level in [Level::BASE, HIGH] {
        for _ in 0..4 {
            let ran = Arc::clone(&ran);
            drop(
                pool.submit(level, move || ran.fetch_add(1, SeqCst))
                    .unwrap(),
            );
        }
    }
    let shutting = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || pool.shutdown(Shutdown::Drain))
    };
    let refused = loop {
        match pool.submit(HIGH, || ()) {
            Err(refused) if refused.why == Why::ShuttingDown => break refused,
            _ => thread::yield_now(),
        }
    };
    assert!(refused.to_string().contains("shutting down"));
    go.raise();
    assert!(shutting.join().unwrap().is_empty());
    assert_eq!(ran.load(SeqCst), 8);
    assert!(pool.shutdown(Shutdown::Drain).is_empty());
}

#[test]
fn deferred_tasks_run_while_the_pool_drains() {
    let threshold = Threshold::new(0.5).unwrap();
    let pool = one(Policy::PREEMPT).threshold(threshold).build().unwrap();
    let (served, started) = (Flag::default(), Flag::default());
    let before = Instant::now();
    let low = {
        let (served, started) = (served.clone(), started.clone());
        move || {
            started.raise();
            served.wait()
        }
    };
    let low = pool.submit(Tier::Background, low).unwrap();
    assert!(started.wait());
    let task = |number: u32| {
        let served = served.clone();
        move || {
            if number == 1 {
                return served.raise();
            }
            // Until the pool drains, and then two thirds of the time so far.
            let most = Duration::from_millis(50) + before.elapsed() * 2;
            let start = Instant::now();
            while start.elapsed() < most {}
        }
    };
    let batch = pool.submit_batch(HIGH, (0..2).map(task));
    assert_eq!(batch.tickets.len(), 2);
    assert!(pool.shutdown(Shutdown::Drain).is_empty());
    assert_eq!(low.wait(), Ok(true));
}

#[test]
fn returning_gives_back_what_has_not_started() {
    let pool = one(Policy::Wait).capacity(Level::BASE, 8).build().unwrap();
    let go = occupy(&pool);
    let submit = |level, number: u32| pool.submit(level, move || number).unwrap();
    let tickets: Vec<_> = (0..3)
        .map(|number| submit(Level::BASE, number))
        .chain((3..7).map(|number| submit(HIGH, number)))
        .collect();
    let unrun = thread::scope(|scope| {
        let shutting = scope.spawn(|| pool.shutdown(Shutdown::Return));
        // The queue is full, so this takes nothing in before it is closed.
        while pool.submit(HIGH, || 0).unwrap_err().why != Why::ShuttingDown {
            thread::yield_now();
        }
        go.raise();
        shutting.join().unwrap()
    });
    let mut levels: Vec<u8> = unrun.iter().map(|task| task.level().get()).collect();
    levels.sort_unstable();
    assert_eq!(levels, [0, 0, 0, 1, 1, 1, 1]);
    assert!(unrun.iter().all(|task| task.weight() == Weight::DEFAULT));
    // Those of the base are run here, the others dropped.
    for task in unrun {
        if task.level() == Level::BASE {
            assert!(task.run());
        }
    }
    let results: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait()).collect();
    let not_run = || Err(TaskError::NotRun);
    assert_eq!(
        results,
        [
            Ok(0),
            Ok(1),
            Ok(2),
            not_run(),
            not_run(),
            not_run(),
            not_run()
        ]
    );
}

#[test]
fn statistics_count_what_happened_and_can_be_written_down() {
    let pool = one(Policy::best()).build().unwrap();
    for _ in 0..10 {
        pool.submit(HIGH, || thread::sleep(Duration::from_millis(1)))
            .unwrap()
            .wait()
            .unwrap();
    }
    // A task that was meant to come earlier has waited longer.
    let earlier = Instant::now() - Duration::from_millis(500);
    pool.submit(Request::at(HIGH).arrival(earlier), || ())
        .unwrap()
        .wait()
        .unwrap();
    let stats = pool.stats();
    let level = &stats.levels[1];
    assert_eq!(
        (level.submitted, level.run, level.run_time.count),
        (11, 11, 11)
    );
    assert!(level.run_time.p50_ns >= 900_000, "{level:?}");
    assert!(level.queue_delay.max_ns >= 490_000_000, "{level:?}");
    assert!(
        level.latency.max_ns >= level.queue_delay.max_ns,
        "{level:?}"
    );
    let histogram = pool.histogram(HIGH, Metric::Latency);
    assert_eq!(histogram.len(), 11);
    let json = serde_json::to_string(&stats).unwrap();
    assert_eq!(serde_json::from_str::<PoolStats>(&json).unwrap(), stats);
    pool.reset_stats();
    assert_eq!(pool.stats().levels[1].run, 0);
    assert!(pool.histogram(HIGH, Metric::Latency).is_empty());
    pool.submit(HIGH, || ()).unwrap().wait().unwrap();
    assert_eq!(pool.stats().levels[1].run, 1);
}

#[test]
fn build_errors_name_the_remedy() {
    type Is = fn(&BuildError) -> bool;
    let bad: [(PoolBuilder, Is, &str); 9] = [
        (
            Pool::builder().workers(0),
            |e| matches!(e, BuildError::NoWorkers),
            "at least 1",
        ),
        (
            Pool::builder().levels(1),
            |e| matches!(e, BuildError::Levels(1)),
            "2 to 16",
        ),
        (
            Pool::builder().levels(17),
            |e| matches!(e, BuildError::Levels(17)),
            "2 to 16",
        ),
        (
            one(Policy::Wait).capacity(HIGH, 0),
            |e| matches!(e, BuildError::NoPlaces(_)),
            "at least 1",
        ),
        (
            one(Policy::Wait).capacity(HIGHER, 1),
            |e| matches!(e, BuildError::NoSuchLevel(_)),
            "levels",
        ),
        (
            Pool::builder().workers(2).pin([0]),
            |e| matches!(e, BuildError::Pins { .. }),
            "one for each",
        ),
        (
            one(Policy::Wait).pin([1023]),
            |e| matches!(e, BuildError::Pin { .. }),
            "CPU 1023",
        ),
        (
            one(Policy::Wait).stack_bytes(1),
            |e| matches!(e, BuildError::Enter { .. }),
            "at least",
        ),
        (
            one(Policy::Wait).goal(Goal::CpuShare(2.0)),
            |e| matches!(e, BuildError::Goal(_)),
            "0 to 1",
        ),
    ];
    for (builder, is, remedy) in bad {
        let error = builder.build().unwrap_err();
        assert!(is(&error), "{error:?}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
}

#[test]
fn workers_run_where_they_are_pinned() {
    let pool = one(Policy::best()).pin([0]).build().unwrap();
    // At the base: above it, the C library asks the thread that lent its name.
    // SAFETY: asks a question.
    let cpu = pool.submit(Level::BASE, || unsafe { libc::sched_getcpu() });
    assert_eq!(cpu.unwrap().wait(), Ok(0));
}

#[test]
fn a_goal_sets_the_threshold() {
    let pool = one(Policy::best())
        .goal(Goal::CpuShare(0.3))
        .build()
        .unwrap();
    assert_eq!(pool.threshold(), Threshold::new(0.7).unwrap());
    assert_eq!(pool.verdict(), Some(Verdict::Unknown));
    let go = occupy(&pool);
    // Nothing disturbs the background task: the goal is kept with a margin, and
    // the thread of the pool relaxes the threshold.
    let start = Instant::now();
    while pool.threshold().get() < 0.75 {
        assert!(start.elapsed() < LONG, "{:?}", pool.stats());
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(pool.verdict(), Some(Verdict::Kept));
    go.raise();
}
