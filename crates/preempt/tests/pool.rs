//! The pool under each policy, with real threads: when is a task left?
//! What is asserted is order and count, not time; where a test waits, it waits
//! longer than a busy machine takes, and only a failed test waits it out.

mod crew;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use giveway_preempt::{
    Delivery, Policy, Pool, handcrafted_yield_point, poll_point, poll_record, region,
};
use giveway_tier::Tier;

use crew::{Flag, HIGH, Log, every, occupy, one};

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
fn cooperative_yields_every_n_records() {
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
fn handcrafted_yields_every_n_points() {
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
fn a_yield_inside_a_region_is_deferred_to_the_next_record() {
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
