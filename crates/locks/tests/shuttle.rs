//! The real lock under shuttle: 4 to 16 threads in random, repeatable orders.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test --release -p giveway-locks --test shuttle
//! ```
//!
//! Memory is sequentially consistent here; long queues are what these models
//! add to those of `tests/loom.rs`. A failure prints a schedule that replays it.
#![cfg(shuttle)]

use giveway_locks::Deadline;
use giveway_locks::raw::{Core, Extra, Kind, LockRef};
use giveway_locks::{Group, Options, Profile, thread};
use shuttle::rand::Rng;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU32, Ordering::SeqCst};

struct Guarded {
    core: Core,
    extra: Extra,
    inside: AtomicU32,
    entered: AtomicU32,
}

impl Guarded {
    fn new(profile: Profile) -> Arc<Guarded> {
        let lock = Guarded {
            core: Core::new(),
            extra: Extra::new(),
            inside: AtomicU32::new(0),
            entered: AtomicU32::new(0),
        };
        lock.lock_ref().set_profile(profile);
        Arc::new(lock)
    }

    fn lock_ref(&self) -> LockRef<'_> {
        LockRef::new(&self.core, &self.extra)
    }

    fn enter(&self, kind: Kind, deadline: Option<Deadline>) -> bool {
        let start = match deadline {
            None => Some(self.lock_ref().lock(kind)),
            Some(deadline) => self.lock_ref().lock_until(kind, deadline),
        };
        let Some(start) = start else { return false };
        assert_eq!(self.inside.fetch_add(1, SeqCst), 0, "two threads inside");
        shuttle::thread::yield_now();
        self.entered.fetch_add(1, SeqCst);
        self.inside.fetch_sub(1, SeqCst);
        // SAFETY: acquired above with this start.
        unsafe { self.lock_ref().unlock(start) };
        true
    }
}

/// Threads with random vLHT, weights and groups, some of them impatient, lock a
/// few times each. Each enters as often as it said, and nothing is left behind.
fn crowd(threads: u32, kind: Kind, options: impl Fn() -> Options, impatient: bool) {
    let profile = options().register("crowd").expect("one profile");
    let groups = [Group::ROOT, Group::new("a").expect("a group")];
    let lock = Guarded::new(profile);
    let handles: Vec<_> = (0..threads)
        .map(|_| {
            let lock = lock.clone();
            shuttle::thread::spawn(move || {
                let mut random = shuttle::rand::thread_rng();
                thread::join(groups[random.gen_range(0..2)]);
                let mut entered = 0;
                for _ in 0..3 {
                    thread::charge_for_test(random.gen_range(0..40_000_000));
                    let timed = impatient && random.gen_range(0..2) == 0;
                    let deadline = timed.then_some(Deadline::Monotonic(0));
                    entered += u32::from(lock.enter(kind, deadline));
                }
                entered
            })
        })
        .collect();
    let entered: u32 = handles
        .into_iter()
        .map(|handle| handle.join().unwrap())
        .sum();
    assert_eq!(lock.entered.load(SeqCst), entered);
    assert!(impatient || entered == threads * 3);
    assert!(!lock.lock_ref().is_locked() && !lock.lock_ref().has_waiters());
}

fn iterations(default: usize) -> usize {
    let wanted = std::env::var("SHUTTLE_ITERATIONS").ok();
    wanted.map_or(default, |wanted| wanted.parse().expect("a number"))
}

#[test]
fn mutex_of_six() {
    let options = Options::default;
    shuttle::check_random(
        move || crowd(6, Kind::Mutex, options, false),
        iterations(2000),
    );
}

#[test]
fn mutex_of_sixteen() {
    let options = Options::default;
    shuttle::check_random(
        move || crowd(16, Kind::Mutex, options, false),
        iterations(300),
    );
}

#[test]
fn spinlock_of_four() {
    let options = Options::default;
    shuttle::check_random(
        move || crowd(4, Kind::Spin, options, false),
        iterations(2000),
    );
}

#[test]
fn impatient_threads() {
    let options = Options::default;
    shuttle::check_random(
        move || crowd(6, Kind::Mutex, options, true),
        iterations(2000),
    );
}

#[test]
fn impatient_spinners() {
    let options = Options::default;
    shuttle::check_random(
        move || crowd(5, Kind::Spin, options, true),
        iterations(2000),
    );
}

#[test]
fn barging_is_only_a_shortcut() {
    let options = || {
        Options::default()
            .barging(false)
            .slice(std::time::Duration::ZERO)
    };
    shuttle::check_random(
        move || crowd(6, Kind::Mutex, options, true),
        iterations(2000),
    );
}

/// Unlikely orders: a few threads are held back for long.
#[test]
fn adversarial_orders() {
    let options = Options::default;
    shuttle::check_pct(
        move || crowd(5, Kind::Mutex, options, true),
        iterations(2000),
        3,
    );
}
