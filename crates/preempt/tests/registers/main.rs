//! A context that is interrupted finds the CPU as it left it: general registers,
//! flags, direction flag, red zone, SSE, AVX, AVX-512 and mask registers, MXCSR,
//! x87; whatever the higher level does to them.
#![cfg(target_arch = "x86_64")]

#[path = "../common/mod.rs"]
mod common;
mod machine;

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::mpsc;
use std::time::Duration;

use common::{Length, Random, alone, settle, spin_for};
use giveway_preempt::{Delivery, Level, Requested, Worker, yield_to};
use machine::{hold, hold_across, pattern, spoil, width};

/// Holds patterns under a storm of one delivery.
fn storm(name: &str, delivery: Delivery) {
    static STOP: AtomicBool = AtomicBool::new(false);
    static HELD: AtomicU64 = AtomicU64::new(0);
    let _alone = alone();
    let width = width();
    let (say, hear) = mpsc::channel();
    let mut patterns = Random::from_env(name, 11);
    let worker = std::thread::spawn(move || {
        let worker = Worker::builder()
            .delivery(delivery)
            // SAFETY: overwrites only what a function may.
            .level("spoil", |_| unsafe { spoil() })
            .enter()
            .unwrap();
        say.send(worker.remote()).unwrap();
        while !STOP.load(Acquire) {
            let machine = pattern(patterns.below(u64::MAX), width);
            assert_eq!(machine.differences(&hold(&machine)), [""; 0]);
            HELD.fetch_add(1, Relaxed);
        }
    });
    let remote = hear.recv().unwrap();
    let mut gaps = Random::from_env(name, 12);
    let length = Length::short();
    let taken_and_held =
        |more_than: u64| remote.counters().taken > more_than && HELD.load(Relaxed) > more_than;
    while !length.is_over(taken_and_held(5_000), taken_and_held(50)) {
        if remote.preempt(Level::new(1)) == Requested::Merged {
            // On one CPU, nothing is taken while this thread spins.
            std::thread::yield_now();
        }
        remote.rearm();
        spin_for(Duration::from_nanos(gaps.below(40_000)));
        if worker.is_finished() {
            break;
        }
    }
    if !worker.is_finished() {
        let counters = settle(&remote);
        println!("{name}: {counters:?}, {} patterns", HELD.load(Relaxed));
        assert!(counters.taken > 50, "{counters:?}");
    }
    STOP.store(true, Release);
    worker.join().expect("a pattern was not found again");
}

#[test]
fn patterns_survive_a_storm_of_signals() {
    storm("registers", Delivery::Signal);
}

#[test]
fn a_voluntary_switch_preserves_what_a_call_does() {
    let _alone = alone();
    // The other context has the control words of a new thread, and its own
    // registers, which a switch that restores nothing would bring along.
    let _worker = Worker::builder()
        .delivery(Delivery::Poll)
        // SAFETY: overwrites only what a function may.
        .level("spoil", |_| unsafe { spoil() })
        .enter()
        .unwrap();
    extern "sysv64" fn there_and_back() {
        assert!(yield_to(Level::new(1)));
    }
    let mut random = Random::from_env("preserved", 13);
    for _ in 0..1_000 {
        let machine = pattern(random.below(u64::MAX), 0);
        let found = hold_across(&machine, there_and_back);
        for register in [1, 6, 11, 12, 13, 14] {
            assert_eq!(
                found.general[register], machine.general[register],
                "{register}"
            );
        }
        // The body's own sticky exceptions stay, as after any call.
        assert_eq!(found.mxcsr | 0x3f, machine.mxcsr | 0x3f);
        assert_eq!(found.x87_control, machine.x87_control);
    }
}
