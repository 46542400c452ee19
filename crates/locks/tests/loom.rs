//! The real lock under loom: every interleaving of two or three threads, with
//! weak memory, up to a number of preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p giveway-locks --test loom
//! ```
//!
//! What each model is there to find is listed, with the weakened code that it
//! was seen to find, in `docs/build/locks.md`.
#![cfg(loom)]

use giveway_locks::Deadline;
use giveway_locks::raw::{Core, Extra, Kind, LockRef};
use giveway_locks::thread;
use loom::cell::UnsafeCell;
use loom::sync::Arc;

struct Guarded {
    core: Core,
    extra: Extra,
    /// loom reports an access that the lock does not order.
    count: UnsafeCell<u32>,
}

// SAFETY: `count` is only touched by the holder of the lock beside it, which
// is what loom checks.
unsafe impl Sync for Guarded {}
// SAFETY: as above.
unsafe impl Send for Guarded {}

impl Guarded {
    fn new() -> Arc<Guarded> {
        Arc::new(Guarded {
            core: Core::new(),
            extra: Extra::new(),
            count: UnsafeCell::new(0),
        })
    }

    fn lock_ref(&self) -> LockRef<'_> {
        LockRef::new(&self.core, &self.extra)
    }

    /// Locks, counts, releases. Whether it got the lock.
    fn enter(&self, kind: Kind, deadline: Option<Deadline>) -> bool {
        let start = match deadline {
            None => Some(self.lock_ref().lock(kind)),
            Some(deadline) => self.lock_ref().lock_until(kind, deadline),
        };
        let Some(start) = start else { return false };
        // SAFETY: this thread holds the lock.
        self.count.with_mut(|count| unsafe { *count += 1 });
        // SAFETY: acquired above with this start.
        unsafe { self.lock_ref().unlock(start) };
        true
    }

    fn assert_idle(&self, entered: u32) {
        let lock = self.lock_ref();
        assert!(!lock.is_locked() && !lock.has_waiters());
        // SAFETY: all other threads have ended.
        assert_eq!(self.count.with(|count| unsafe { *count }), entered);
    }
}

fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(move || {
        // As if the nodes had been in other queues before.
        giveway_locks::raw::soil_for_test();
        thread::seats_for_test(3);
        body();
    });
}

/// A thread for each body, all of them spawned: loom tries fewer orders of the
/// one that is there from the start.
fn run(bodies: Vec<Box<dyn FnOnce() -> u32 + Send>>) -> u32 {
    let spawn = |(seat, body): (u32, Box<dyn FnOnce() -> u32 + Send>)| {
        loom::thread::spawn(move || {
            thread::sit_for_test(seat);
            body()
        })
    };
    let threads: Vec<_> = (1..).zip(bodies).map(spawn).collect();
    let entered = threads.into_iter().map(|thread| thread.join().unwrap());
    entered.sum()
}

fn entering(lock: &Arc<Guarded>, kind: Kind, times: u32) -> Box<dyn FnOnce() -> u32 + Send> {
    let lock = lock.clone();
    Box::new(move || (0..times).map(|_| u32::from(lock.enter(kind, None))).sum())
}

/// Two threads sleep and wake: no acquisition is lost and none overlaps.
#[test]
fn mutex_of_two() {
    model(3, || {
        let lock = Guarded::new();
        let entered = run(vec![
            entering(&lock, Kind::Mutex, 2),
            entering(&lock, Kind::Mutex, 1),
        ]);
        lock.assert_idle(entered);
    });
}

/// A queue of two behind a holder: the head passes its place on.
#[test]
fn mutex_of_three() {
    model(1, || {
        let lock = Guarded::new();
        let entered = run(vec![
            entering(&lock, Kind::Mutex, 1),
            entering(&lock, Kind::Mutex, 1),
            entering(&lock, Kind::Mutex, 1),
        ]);
        lock.assert_idle(entered);
    });
}

/// Spinning followers keep the role and hand it on.
#[test]
fn spinlock_of_three() {
    model(1, || {
        let lock = Guarded::new();
        let entered = run(vec![
            entering(&lock, Kind::Spin, 1),
            entering(&lock, Kind::Spin, 1),
            entering(&lock, Kind::Spin, 1),
        ]);
        lock.assert_idle(entered);
    });
}

/// Waiters with unequal vLHT are relinked, or give way, while others queue.
#[test]
fn reordering() {
    model(1, || {
        let lock = Guarded::new();
        let unequal = |weight: u32| -> Box<dyn FnOnce() -> u32 + Send> {
            let lock = lock.clone();
            Box::new(move || {
                thread::charge_for_test(u64::from(weight) * 10_000_000);
                u32::from(lock.enter(Kind::Mutex, None))
            })
        };
        let entered = run(vec![unequal(3), unequal(1), unequal(2)]);
        lock.assert_idle(entered);
    });
}

/// A waiter that gives up, as the head or behind it, leaves a queue that works.
#[test]
fn deadlines() {
    model(1, || {
        let lock = Guarded::new();
        let timed = {
            let lock = lock.clone();
            let body: Box<dyn FnOnce() -> u32 + Send> = Box::new(move || {
                let deadline = Deadline::Monotonic(0);
                u32::from(lock.enter(Kind::Mutex, Some(deadline)))
            });
            body
        };
        let entered = run(vec![
            timed,
            entering(&lock, Kind::Mutex, 1),
            entering(&lock, Kind::Mutex, 1),
        ]);
        assert!(entered >= 2);
        lock.assert_idle(entered);
    });
}
