//! When a worker is told apart to the kernel, and when not any more.

mod crew;

use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use giveway_preempt::{Lowering, Policy, Pool, PoolBuilder, RegionMutex, Request};
use giveway_tier::{Tier, Weight};

use crew::{HIGH, Log, occupy, one};

/// Writes down what it is told.
struct Told(Log);

impl Lowering for Told {
    fn lower(&self, weight: Weight) {
        self.0.write(format!("lowered {weight}"));
    }

    fn raise(&self) {
        self.0.write("raised");
    }
}

fn told(builder: PoolBuilder, after: Duration) -> (Pool, Log) {
    let log = Log::default();
    let of_workers = log.clone();
    let builder = builder.lowering(after, move |_| Box::new(Told(of_workers.clone())));
    (builder.build().unwrap(), log)
}

#[test]
fn a_worker_is_lowered_for_background_work_and_raised_before_urgent_work_comes() {
    let (pool, log) = told(one(Policy::Wait), Duration::ZERO);
    let go = occupy(&pool);
    assert_eq!(log.read(), ["lowered 100"]);
    let high = pool.submit(HIGH, log.task("urgent")).unwrap();
    // The submitter has done it: the worker is busy, and is not interrupted.
    assert_eq!(log.read(), ["lowered 100", "raised"]);
    go.raise();
    high.wait().unwrap();
    pool.submit(Tier::Background, || ())
        .unwrap()
        .wait()
        .unwrap();
    let order = ["lowered 100", "raised", "urgent", "lowered 100"];
    assert_eq!(log.read(), order);
}

#[test]
fn a_worker_is_told_of_another_weight_and_not_of_the_same_again() {
    let (pool, log) = told(one(Policy::Wait), Duration::ZERO);
    for weight in [100, 100, 7] {
        let request = Request::from(Tier::Background).weight(Weight::try_from(weight).unwrap());
        pool.submit(request, || ()).unwrap().wait().unwrap();
    }
    assert_eq!(log.read(), ["lowered 100", "lowered 7"]);
}

#[test]
fn a_worker_that_was_urgent_lately_stays_as_it_is() {
    let (pool, log) = told(one(Policy::Wait), Duration::from_secs(3600));
    for _ in 0..3 {
        pool.submit(HIGH, || ()).unwrap().wait().unwrap();
        pool.submit(Tier::Background, || ())
            .unwrap()
            .wait()
            .unwrap();
    }
    assert_eq!(log.read(), [""; 0]);
}

#[test]
fn every_worker_makes_its_lowering_on_its_thread() {
    let made: Arc<RegionMutex<Vec<(usize, ThreadId)>>> = Arc::default();
    let by_workers = Arc::clone(&made);
    let make = move |worker| -> Box<dyn Lowering> {
        let thread = std::thread::current().id();
        by_workers.lock().push((worker, thread));
        Box::new(Told(Log::default()))
    };
    let pool = Pool::builder().workers(2).lowering(Duration::ZERO, make);
    let pool = pool.build().unwrap();
    let made = made.lock().clone();
    assert_eq!((made[0].0, made[1].0, made.len()), (0, 1, 2));
    let ran_on = pool.submit(Tier::Background, || std::thread::current().id());
    let ran_on = ran_on.unwrap().wait().unwrap();
    assert!(made.iter().any(|(_, thread)| *thread == ran_on));
}
