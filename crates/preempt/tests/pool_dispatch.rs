//! The pool with real threads: which worker gets a task, and which task is next?
//! What is asserted is order and count, not time; where a test waits, it waits
//! longer than a busy machine takes, and only a failed test waits it out.

mod crew;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use giveway_preempt::{Delivery, Level, Policy, Pool, Request, Ticker, Why, current_level};
use giveway_tier::{Tier, Weight};

use crew::{Flag, HIGH, HIGHER, LONG, Log, occupy, one};

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
fn tasks_that_do_not_fit_are_returned() {
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
        let idle = loop {
            let workers = pool.stats().workers;
            match workers.iter().position(|worker| worker.idle) {
                Some(idle) => break idle,
                None => thread::yield_now(),
            }
        };
        let ran_on = || thread::current().name().map(String::from);
        let ran_on = pool.submit(HIGH, ran_on).unwrap().wait().unwrap();
        assert_eq!(ran_on.unwrap(), format!("giveway-{idle}.1"));
    }
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
fn background_tasks_that_wait_are_chosen_by_weight() {
    let pool = one(Policy::Wait).capacity(Level::BASE, 64).build().unwrap();
    let log = Log::default();
    let go = occupy(&pool);
    let submit = |weight: u32| {
        let request = Request::at(Level::BASE).weight(Weight::try_from(weight).unwrap());
        pool.submit(request, log.task(weight.to_string())).unwrap()
    };
    // In the order of arrival, the light ones would all be first.
    let tickets: Vec<_> = [100, 100, 100, 900, 900, 900].map(submit).into();
    go.raise();
    tickets
        .into_iter()
        .for_each(|ticket| ticket.wait().unwrap());
    // Each class once; then it depends on what they took (module `backlog`).
    assert_eq!(log.read()[..2], ["900", "100"]);
}
