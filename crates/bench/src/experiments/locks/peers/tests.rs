//! Every peer excludes. That u-SCL shares takes a quieter place than a test
//! among others: `tests/locks.rs`.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::*;
use crate::experiments::locks::lock::{BenchLock, LockHandle, Member};
use crate::experiments::locks::work::Ledger;

const THREADS: usize = 4;
/// Long enough for threads to meet on few and busy CPUs.
const TIME: Duration = Duration::from_millis(150);

/// Threads that do nothing but count under the lock: what the counter lacks in
/// the end was counted by two at once.
fn lost<L: BenchLock>(lock: &L) -> u64 {
    let ledger = Ledger::new();
    let ready = Barrier::new(THREADS);
    let member = || {
        let mut handle = lock.join(&Member::EQUAL);
        ready.wait();
        let begun = Instant::now();
        let mut turns = 0;
        while begun.elapsed() < TIME {
            handle.lock();
            // SAFETY: the lock is held, unless it is broken, which is what is
            // to be found out.
            unsafe {
                // Long enough to overlap, and to be preempted in.
                ledger.turn(50);
                handle.unlock();
            }
            turns += 1;
        }
        turns
    };
    let taken: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(member)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    taken - ledger.turns()
}

#[test]
fn every_peer_excludes() {
    assert_eq!(lost(&uscl::Uscl::default()), 0, "u-scl");
    assert_eq!(lost(&pthread::Pthread::plain().unwrap()), 0, "pthread");
    assert_eq!(lost(&pthread::Pthread::inheriting().unwrap()), 0, "pi");
    assert_eq!(lost(&rust::Std::default()), 0, "std");
    assert_eq!(lost(&rust::ParkingLot12::default()), 0, "parking_lot 0.12");
    let raw = <parking_lot_013::RawMutex as lock_api::RawMutex>::INIT;
    assert_eq!(lost(&rust::Raw::new(raw)), 0, "parking_lot 0.13");
    assert_eq!(lost(&ticket::Ticket::default()), 0, "ticket");
    assert_eq!(lost(&queue::Queue::<queue::Spin>::default()), 0, "mcs");
    let fifo = queue::Queue::<queue::SpinThenPark>::default();
    assert_eq!(lost(&fifo), 0, "fifo");
    let cfl = <giveway_locks::RawMutex as lock_api::RawMutex>::INIT;
    assert_eq!(lost(&rust::Raw::new(cfl)), 0, "cfl");
    let cfl = <giveway_locks::RawSpinlock as lock_api::RawMutex>::INIT;
    assert_eq!(lost(&rust::Raw::new(cfl)), 0, "cfl-spin");
}

#[test]
fn an_unknown_lock_is_answered_with_the_known_ones() {
    let error = chosen(&["mutex".to_owned()], &[]).unwrap_err().to_string();
    assert!(
        error.contains("'mutex'") && error.contains("u-scl"),
        "{error}"
    );
}

#[test]
fn a_library_needs_a_name_a_path_and_a_lock() {
    assert!("name".parse::<LibraryLock>().is_err());
    assert!("=x.so".parse::<LibraryLock>().is_err());
    let library = |text: &str| {
        chosen(&[], &[text.parse().unwrap()])
            .unwrap_err()
            .to_string()
    };
    let error = library("mcs=x.so");
    assert!(error.contains("otherwise"), "{error}");
    let error = library("mine=/nonexistent.so");
    assert!(error.contains("/nonexistent.so"), "{error}");
    // A library that is linked with pthread_mutex_lock and has none of its own.
    let error = library("mine=libm.so.6");
    assert!(error.contains("giveway_bench_new"), "{error}");
}
