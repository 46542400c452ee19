//! Storms: requests at random times, for random levels, by all deliveries, while
//! every level does work whose result is known.
//!
//! `GIVEWAY_STORM_SECS=60 GIVEWAY_SEED=7 cargo test --test storm` for longer ones.

mod common;

use std::alloc::System;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::mpsc;
use std::time::Duration;

use common::{Length, Random, alone, churn, settle, spin_for};
use giveway_preempt::{
    self as preempt, Counters, Delivery, Level, RegionAlloc, Remote, Requested, Worker,
};

#[global_allocator]
static ALLOCATOR: RegionAlloc<System> = RegionAlloc(System);

thread_local! {
    /// Counts what its own context did.
    static DONE: Cell<u64> = const { Cell::new(0) };
    /// Has a destructor, and is changed all the time.
    static KEPT: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// What all levels do: churn, and use of their own thread-locals.
fn work(seed: u64, rounds: u64, expected: u64) {
    assert_eq!(churn(seed, rounds), expected, "work was disturbed");
    DONE.set(DONE.get() + 1);
    KEPT.with_borrow_mut(|kept| {
        kept.push(seed.to_string());
        if kept.len() > 50 {
            *kept = Vec::new();
        }
    });
}

/// The work of each seed, done where nobody interrupts.
fn expectations(rounds: u64) -> Vec<u64> {
    (0..8).map(|seed| churn(seed, rounds)).collect()
}

struct Storm {
    deliveries: Vec<Delivery>,
    levels: u8,
    gap: Duration,
    enough: u64,
    yields: bool,
    /// What the test is about has happened.
    least: fn(&Counters) -> bool,
}

/// Runs a storm; what happened, and how often bodies ran.
fn run(name: &str, seed: u64, storm: &Storm) -> (Counters, u64) {
    let _alone = alone();
    let mut random = Random::from_env(name, seed);
    let stop = Arc::new(AtomicBool::new(false));
    let runs = Arc::new(AtomicU64::new(0));
    let (say, hear) = mpsc::channel();
    let levels = storm.levels;
    let yields = storm.yields;
    let first = storm.deliveries[0];
    let worker = std::thread::spawn({
        let (stop, runs) = (Arc::clone(&stop), Arc::clone(&runs));
        move || base(levels, first, yields, &stop, &runs, &say)
    });
    let remote: Remote = hear.recv().expect("the worker enters");
    let length = Length::short();
    let counted = || remote.counters();
    while !length.is_over(counted().taken >= storm.enough, (storm.least)(&counted())) {
        let delivery = storm.deliveries[random.below(storm.deliveries.len() as u64) as usize];
        remote.set_delivery(delivery).unwrap();
        let level = 1 + random.below(u64::from(levels)) as u8;
        if remote.preempt(Level::new(level)) == Requested::Merged {
            // On one CPU, nothing is taken while this thread spins.
            std::thread::yield_now();
        }
        remote.rearm();
        spin_for(Duration::from_nanos(
            random.below(storm.gap.as_nanos() as u64 + 1),
        ));
        assert!(!worker.is_finished(), "the worker has ended");
    }
    let counters = settle(&remote);
    stop.store(true, Release);
    worker.join().expect("no level was disturbed");
    println!("{name}: {counters:?}");
    assert!((storm.least)(&counters), "{counters:?}");
    // No handler on top of another, and room for all (C5).
    assert_eq!(counters.deferred_by_stack, 0, "{counters:?}");
    (counters, runs.load(Relaxed))
}

/// The worker's life: level 0, with all others above it.
fn base(
    levels: u8,
    delivery: Delivery,
    yields: bool,
    stop: &AtomicBool,
    runs: &Arc<AtomicU64>,
    say: &mpsc::Sender<Remote>,
) {
    const ROUNDS: u64 = 400;
    let low = expectations(ROUNDS);
    let mut builder = Worker::builder().delivery(delivery);
    for level in 1..=levels {
        let rounds = 20 / u64::from(level);
        let high = expectations(rounds);
        let runs = Arc::clone(runs);
        let mut n = 0u64;
        builder = builder.level(format!("level-{level}"), move |at| {
            assert_eq!(at, Level::new(level));
            assert_eq!(preempt::current_level(), Some(at));
            n += 1;
            runs.fetch_add(1, Relaxed);
            work(n % 8, rounds, high[(n % 8) as usize]);
            assert_eq!(DONE.get(), n, "a thread-local of another context");
            if yields && n.is_multiple_of(7) {
                let _ = preempt::yield_below();
                assert_eq!(preempt::current_level(), Some(at));
            }
            if n.is_multiple_of(50) {
                // To the root.
                std::panic::resume_unwind(Box::new(()));
            }
        });
    }
    let worker = builder.enter().unwrap();
    say.send(worker.remote()).unwrap();
    let mut n = 0u64;
    while !stop.load(Acquire) {
        work(n % 8, ROUNDS, low[(n % 8) as usize]);
        n += 1;
        assert_eq!(DONE.get(), n, "a thread-local of another context");
        preempt::task_boundary();
        preempt::poll_point();
    }
}

const EVERYTHING: [Delivery; 4] = [
    Delivery::Signal,
    Delivery::Hybrid {
        grace: Duration::ZERO,
    },
    Delivery::HYBRID,
    Delivery::Poll,
];

#[test]
fn contexts_survive_signals_at_random_gaps() {
    let storm = Storm {
        deliveries: vec![Delivery::Signal],
        levels: 1,
        gap: Duration::from_micros(100),
        enough: 5_000,
        yields: false,
        // The allocator's regions were hit, and nothing was lost there.
        least: |counters| {
            counters.taken > 50 && counters.deferred_by_region > 0 && counters.deferred_by_text > 0
        },
    };
    let (counters, runs) = run("signals", 1, &storm);
    assert_eq!(counters.taken, runs);
}

#[test]
fn contexts_survive_signals_at_full_rate() {
    let storm = Storm {
        deliveries: vec![Delivery::Signal],
        levels: 1,
        gap: Duration::from_micros(1),
        enough: 10_000,
        yields: false,
        least: |counters| counters.taken > 50,
    };
    let (counters, runs) = run("fast", 2, &storm);
    assert_eq!(counters.taken, runs);
}

#[test]
fn three_levels_above_the_base_preempt_each_other() {
    let storm = Storm {
        deliveries: vec![Delivery::Signal],
        levels: 3,
        gap: Duration::from_micros(20),
        enough: 10_000,
        yields: false,
        least: |counters| counters.taken > 50 && counters.panics > 0,
    };
    let (counters, runs) = run("levels", 3, &storm);
    assert_eq!(counters.taken, runs);
}

#[test]
fn all_deliveries_mix_with_yields_below() {
    let storm = Storm {
        deliveries: EVERYTHING.to_vec(),
        levels: 3,
        gap: Duration::from_micros(50),
        enough: 10_000,
        yields: true,
        least: |counters| counters.taken > 50 && counters.yields > 0,
    };
    let (counters, runs) = run("mix", 4, &storm);
    assert_eq!(counters.taken, runs);
}
