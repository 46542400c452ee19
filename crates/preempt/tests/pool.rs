//! The pool with real threads: what happens in which order, and that nothing is
//! lost. What is asserted is order and count, not time; where a test waits, it
//! waits longer than a busy machine takes, and only a failed test waits it out.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use giveway_hints::{Tier, Weight};
use giveway_preempt::{
    BuildError, Delivery, Goal, Level, Metric, Policy, Pool, PoolBuilder, PoolStats, RegionAlloc,
    RegionMutex, Request, Shutdown, TaskError, Threshold, Ticker, Verdict, Why, current_level,
    handcrafted_yield_point, poll_point, poll_record, region,
};

// Tasks allocate, and are left while they do.
#[global_allocator]
static ALLOCATOR: RegionAlloc<std::alloc::System> = RegionAlloc(std::alloc::System);

const HIGH: Level = Level::new(1);
const HIGHER: Level = Level::new(2);
/// Longer than anything takes on a busy machine; only a failed test waits it out.
const LONG: Duration = Duration::from_secs(30);

/// One worker, so that everything meets on it.
fn one(policy: Policy) -> PoolBuilder {
    Pool::builder().workers(1).policy(policy)
}

fn every(number: u32) -> std::num::NonZeroU32 {
    number.try_into().unwrap()
}

/// A flag that a task waits for, in code that can be preempted, and without any
/// poll point.
#[derive(Clone, Default)]
struct Flag(Arc<AtomicBool>);

impl Flag {
    fn raise(&self) {
        self.0.store(true, SeqCst);
    }

    fn is_up(&self) -> bool {
        self.0.load(SeqCst)
    }

    /// Whether the flag went up; `step` is run all the time until then.
    fn wait_with(&self, mut step: impl FnMut()) -> bool {
        let start = Instant::now();
        while !self.is_up() {
            if start.elapsed() > LONG {
                return false;
            }
            for _ in 0..1000 {
                step();
            }
        }
        true
    }

    fn wait(&self) -> bool {
        self.wait_with(std::hint::spin_loop)
    }
}

/// What happened, in order. Tasks on all levels write to it.
#[derive(Clone, Default)]
struct Log(Arc<RegionMutex<Vec<String>>>);

impl Log {
    fn write(&self, what: impl Into<String>) {
        let what = what.into();
        self.0.lock().push(what);
    }

    /// A task that writes that it ran.
    fn task(&self, name: impl Into<String>) -> impl FnOnce() + Send + 'static {
        let (log, name) = (self.clone(), name.into());
        move || log.write(name)
    }

    fn read(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

/// Keeps the only worker busy at the base until the flag goes up.
fn occupy(pool: &Pool) -> Flag {
    let (started, go) = (Flag::default(), Flag::default());
    let task = {
        let (started, go) = (started.clone(), go.clone());
        move || {
            started.raise();
            assert!(go.wait());
        }
    };
    drop(pool.submit(Tier::Background, task).unwrap());
    assert!(started.wait());
    go
}

/// Runs a background task that ends when an urgent one, submitted after its
/// start, has run: so it only ends well if it was left in the middle.
fn is_left_in_the_middle(pool: &Pool, step: impl FnMut() + Send + 'static) -> bool {
    let (started, served) = (Flag::default(), Flag::default());
    let low = {
        let (started, served) = (started.clone(), served.clone());
        pool.submit(Tier::Background, move || {
            started.raise();
            served.wait_with(step)
        })
    };
    assert!(started.wait());
    let high = pool.submit(Tier::TimeSensitive, move || served.raise());
    let left = low.unwrap().wait().unwrap();
    high.unwrap().wait().unwrap();
    left
}

#[test]
fn under_preempt_an_urgent_task_runs_before_the_end_of_the_one_that_runs() {
    for delivery in [Delivery::Signal, Delivery::HYBRID] {
        let pool = one(Policy::Preempt { delivery }).build().unwrap();
        for _ in 0..20 {
            assert!(
                is_left_in_the_middle(&pool, std::hint::spin_loop),
                "{delivery}"
            );
        }
        let stats = pool.stats();
        assert!(stats.workers[0].requests.taken >= 20, "{stats:?}");
        assert_eq!((stats.levels[0].run, stats.levels[1].run), (20, 20));
    }
}

#[test]
fn under_wait_urgent_tasks_run_between_background_tasks_all_before_the_next() {
    let pool = one(Policy::Wait).build().unwrap();
    let log = Log::default();
    let go = occupy(&pool);
    let next = pool.submit(Tier::Background, log.task("low")).unwrap();
    let batch = pool.submit_batch(
        HIGH,
        (0..4).map(|number| log.task(format!("high {number}"))),
    );
    assert_eq!((batch.tickets.len(), batch.why), (4, None));
    // Nothing interrupts the first one.
    thread::sleep(Duration::from_millis(50));
    assert!(log.read().is_empty());
    go.raise();
    next.wait().unwrap();
    assert_eq!(log.read(), ["high 0", "high 1", "high 2", "high 3", "low"]);
    assert_eq!(pool.stats().workers[0].requests.requested, 0);
}

/// How often `step` is called in a background task until an urgent one, that the
/// task submits itself, has run; the second number is the same once more.
/// `limit` if it never runs.
fn steps_until_left(policy: Policy, limit: u32, step: fn()) -> (u32, u32) {
    let pool = Arc::new(one(policy).build().unwrap());
    let again = Arc::clone(&pool);
    let steps = pool.submit(Tier::Background, move || {
        let count = || {
            let served = Flag::default();
            let task = {
                let served = served.clone();
                move || served.raise()
            };
            drop(again.submit(Tier::TimeSensitive, task).unwrap());
            let mut steps = 0;
            while !served.is_up() && steps < limit {
                step();
                steps += 1;
            }
            steps
        };
        (count(), count())
    });
    steps.unwrap().wait().unwrap()
}

#[test]
fn cooperative_yields_at_every_so_manyth_record() {
    let policy = Policy::Cooperative { every: every(1000) };
    let (first, second) = steps_until_left(policy, 5000, poll_record);
    assert!((1..=1000).contains(&first), "{first}");
    assert_eq!(second, 1000);
    assert_eq!(
        steps_until_left(policy, 5000, handcrafted_yield_point).1,
        5000
    );
    assert_eq!(steps_until_left(policy, 5000, poll_point).1, 5000);
}

#[test]
fn handcrafted_yields_at_every_so_manyth_of_its_points() {
    let policy = Policy::Handcrafted { every: every(7) };
    assert_eq!(steps_until_left(policy, 500, handcrafted_yield_point).1, 7);
    assert_eq!(steps_until_left(policy, 500, poll_record).1, 500);
}

#[test]
fn under_wait_no_record_and_no_point_yields() {
    // More than the interval after which a context looks whether the policy has
    // changed.
    assert_eq!(
        steps_until_left(Policy::Wait, 200_000, poll_record).1,
        200_000
    );
    assert_eq!(
        steps_until_left(Policy::Wait, 200_000, handcrafted_yield_point).1,
        200_000
    );
}

#[test]
fn under_poll_the_next_poll_point_yields() {
    let policy = Policy::Preempt {
        delivery: Delivery::Poll,
    };
    for step in [poll_point, poll_record, handcrafted_yield_point] {
        // None at all if a region of the pool's own ends in between.
        let (first, second) = steps_until_left(policy, 100, step);
        assert!(first <= 1 && second <= 1, "{first} {second}");
    }
}

#[test]
fn inside_a_region_nobody_yields_and_after_it_the_next_record_does() {
    let pool = Arc::new(
        one(Policy::Cooperative { every: every(10) })
            .build()
            .unwrap(),
    );
    let again = Arc::clone(&pool);
    let task = move || {
        let served = Flag::default();
        let high = {
            let served = served.clone();
            move || served.raise()
        };
        let inside = {
            let _region = region();
            drop(again.submit(Tier::TimeSensitive, high).unwrap());
            (0..100).for_each(|_| poll_record());
            served.is_up()
        };
        poll_record();
        (inside, served.is_up())
    };
    assert_eq!(
        pool.submit(Tier::Background, task).unwrap().wait(),
        Ok((false, true))
    );
}

#[test]
fn the_policy_can_be_changed_while_a_task_runs() {
    let pool = one(Policy::best()).build().unwrap();
    pool.set_policy(Policy::Wait).unwrap();
    let log = Log::default();
    let go = occupy(&pool);
    let high = pool.submit(HIGH, log.task("first")).unwrap();
    thread::sleep(Duration::from_millis(20));
    assert!(log.read().is_empty());
    pool.set_policy(Policy::PREEMPT).unwrap();
    assert_eq!(pool.policy(), Policy::PREEMPT);
    // Both are in the queue, and one request serves both.
    let next = pool.submit(HIGH, log.task("second")).unwrap();
    next.wait().unwrap();
    high.wait().unwrap();
    assert_eq!(log.read(), ["first", "second"]);
    go.raise();
}

#[test]
fn a_batch_is_one_request() {
    let pool = one(Policy::PREEMPT).ticker(Ticker::Caller).build().unwrap();
    let log = Log::default();
    let go = occupy(&pool);
    let batch = pool.submit_batch(HIGH, (0..4).map(|number| log.task(number.to_string())));
    for ticket in batch.tickets {
        assert!(ticket.wait_timeout(LONG).unwrap().is_ok());
    }
    assert_eq!(log.read(), ["0", "1", "2", "3"]);
    let requests = pool.stats().workers[0].requests;
    assert_eq!(
        (requests.requested, requests.merged),
        (1, 0),
        "{requests:?}"
    );
    go.raise();
}

#[test]
fn what_does_not_fit_comes_back() {
    let pool = one(Policy::Wait).capacity(HIGH, 3).build().unwrap();
    let go = occupy(&pool);
    let low = pool.submit(Tier::Background, || 5).unwrap();
    let refused = pool.submit(Tier::Background, || 6).unwrap_err();
    assert_eq!((refused.why, (refused.task)()), (Why::Full, 6));
    let batch = pool.submit_batch(HIGH, (0..5).map(|number| move || number));
    assert_eq!(batch.why, Some(Why::Full));
    let refused: Vec<u32> = batch.refused.into_iter().map(|task| task()).collect();
    assert_eq!(refused, [3, 4]);
    let refused = pool.submit(HIGHER, || ()).unwrap_err();
    assert_eq!(refused.why, Why::NoSuchLevel);
    go.raise();
    let accepted: Vec<u32> = batch
        .tickets
        .into_iter()
        .map(|ticket| ticket.wait().unwrap())
        .collect();
    assert_eq!((accepted, low.wait()), (vec![0, 1, 2], Ok(5)));
    let levels = pool.stats().levels;
    let counts = |level: usize| (levels[level].submitted, levels[level].refused_full);
    assert_eq!((counts(0), counts(1)), ((2, 1), (3, 2)));
}

#[test]
fn a_batch_goes_to_worker_after_worker() {
    let pool = Pool::builder()
        .workers(3)
        .policy(Policy::Wait)
        .capacity(HIGH, 2);
    let pool = pool.build().unwrap();
    let go: Vec<Flag> = (0..3).map(|_| occupy(&pool)).collect();
    let batch = pool.submit_batch(
        HIGH,
        (0..7).map(|_| || thread::current().name().map(String::from)),
    );
    assert_eq!((batch.tickets.len(), batch.refused.len()), (6, 1));
    go.iter().for_each(Flag::raise);
    let names: Vec<_> = batch
        .tickets
        .into_iter()
        .map(|ticket| ticket.wait().unwrap().unwrap())
        .collect();
    // Two for each, in the context of level 1.
    assert!(names.chunks(2).all(|pair| pair[0] == pair[1]), "{names:?}");
    let mut distinct = names.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct, ["giveway-0.1", "giveway-1.1", "giveway-2.1"]);
}

#[test]
fn an_idle_worker_is_chosen_before_a_busy_one() {
    let pool = Pool::builder()
        .workers(2)
        .policy(Policy::PREEMPT)
        .build()
        .unwrap();
    let go = occupy(&pool);
    for _ in 0..50 {
        // The other worker is idle again before the next one comes.
        while pool.stats().workers.iter().all(|worker| !worker.idle) {
            thread::yield_now();
        }
        pool.submit(HIGH, || ()).unwrap().wait().unwrap();
    }
    let requested: u64 = pool
        .stats()
        .workers
        .iter()
        .map(|worker| worker.requests.requested)
        .sum();
    assert_eq!(requested, 0);
    go.raise();
}

#[test]
fn a_sleeping_worker_is_woken() {
    let pool = Pool::builder()
        .workers(2)
        .spin(Duration::ZERO)
        .build()
        .unwrap();
    for round in 0..50 {
        while pool.stats().workers.iter().any(|worker| !worker.idle) {
            thread::yield_now();
        }
        if round % 10 == 0 {
            // Time to fall asleep as well.
            thread::sleep(Duration::from_millis(5));
        }
        let tier = Tier::ALL[round % 2];
        let ticket = pool.submit(tier, move || round).unwrap();
        assert_eq!(ticket.wait_timeout(LONG).unwrap(), Ok(round));
    }
}

#[test]
fn three_levels_nest() {
    for delivery in [Delivery::Signal, Delivery::HYBRID] {
        let pool = one(Policy::Preempt { delivery }).levels(3).build().unwrap();
        let (log, started, served) = (Log::default(), Flag::default(), Flag::default());
        let waits = |name: &'static str, started: &Flag, until: &Flag| {
            let (log, started, until) = (log.clone(), started.clone(), until.clone());
            move || {
                let level = current_level().unwrap();
                log.write(format!("{name} begins at {level}"));
                started.raise();
                assert!(until.wait());
                log.write(format!("{name} ends"));
            }
        };
        let done = Flag::default();
        let low = pool
            .submit(Level::BASE, waits("low", &started, &done))
            .unwrap();
        assert!(started.wait());
        let middle_started = Flag::default();
        let middle = pool
            .submit(HIGH, waits("middle", &middle_started, &served))
            .unwrap();
        assert!(middle_started.wait());
        let top = {
            let (log, served) = (log.clone(), served.clone());
            move || {
                log.write(format!("top at {}", current_level().unwrap()));
                served.raise();
            }
        };
        pool.submit(Tier::TimeSensitive, top)
            .unwrap()
            .wait()
            .unwrap();
        middle.wait().unwrap();
        done.raise();
        low.wait().unwrap();
        let order = [
            "low begins at 0",
            "middle begins at 1",
            "top at 2",
            "middle ends",
            "low ends",
        ];
        assert_eq!(log.read(), order, "{delivery}");
    }
}

#[test]
fn between_tasks_the_most_urgent_queue_is_emptied_first() {
    let pool = one(Policy::Wait).levels(3).build().unwrap();
    let log = Log::default();
    let go = occupy(&pool);
    let last = pool.submit(Level::BASE, log.task("low")).unwrap();
    for level in [HIGH, HIGHER, HIGH, HIGHER] {
        drop(
            pool.submit(level, log.task(format!("level {level}")))
                .unwrap(),
        );
    }
    go.raise();
    last.wait().unwrap();
    assert_eq!(
        log.read(),
        ["level 2", "level 2", "level 1", "level 1", "low"]
    );
}

#[test]
fn urgent_work_is_taken_between_two_tasks_of_the_middle_level_too() {
    let pool = Arc::new(one(Policy::Wait).levels(3).build().unwrap());
    let log = Log::default();
    let go = occupy(&pool);
    let first = {
        let (log, pool) = (log.clone(), Arc::clone(&pool));
        move || {
            log.write("middle 1");
            drop(pool.submit(HIGHER, log.task("top")).unwrap());
        }
    };
    drop(pool.submit(HIGH, first).unwrap());
    let last = pool.submit(HIGH, log.task("middle 2")).unwrap();
    go.raise();
    last.wait().unwrap();
    assert_eq!(log.read(), ["middle 1", "top", "middle 2"]);
}

#[test]
fn background_tasks_of_more_weight_get_more() {
    let pool = one(Policy::Wait).capacity(Level::BASE, 64).build().unwrap();
    let log = Log::default();
    let go = occupy(&pool);
    let submit = |weight: u32| {
        let log = log.clone();
        let task = move || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(20) {}
            log.write(weight.to_string());
        };
        let request = Request::at(Level::BASE).weight(Weight::try_from(weight).unwrap());
        pool.submit(request, task).unwrap()
    };
    // The light ones come first: in the order of arrival they would all be first.
    let tickets: Vec<_> = [100; 30].into_iter().chain([900; 30]).map(submit).collect();
    go.raise();
    tickets
        .into_iter()
        .for_each(|ticket| ticket.wait().unwrap());
    let heavy = log.read()[..30]
        .iter()
        .filter(|weight| *weight == "900")
        .count();
    // By weight it is 27 of 30; a task that the kernel stops in the middle costs
    // its class a few turns.
    assert!(heavy >= 8, "{heavy} of the first 30");
}

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
fn returning_gives_back_what_has_not_started() {
    let pool = one(Policy::Wait).capacity(Level::BASE, 8).build().unwrap();
    let go = occupy(&pool);
    let submit = |level, number: u32| pool.submit(level, move || number).unwrap();
    let tickets: Vec<_> = (0..3)
        .map(|number| submit(Level::BASE, number))
        .chain((3..6).map(|number| submit(HIGH, number)))
        .collect();
    let unrun = thread::scope(|scope| {
        let shutting = scope.spawn(|| pool.shutdown(Shutdown::Return));
        thread::sleep(Duration::from_millis(20));
        go.raise();
        shutting.join().unwrap()
    });
    let mut levels: Vec<u8> = unrun.iter().map(|task| task.level().get()).collect();
    levels.sort_unstable();
    assert_eq!(levels, [0, 0, 0, 1, 1, 1]);
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
        [Ok(0), Ok(1), Ok(2), not_run(), not_run(), not_run()]
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
fn a_pool_that_cannot_be_says_what_to_change() {
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
