//! Randomised stress: many locks, groups, deadlines and short-lived threads,
//! for as long as you like.
//!
//! ```text
//! cargo run --release -p giveway-locks --example stress -- [--seconds 10] [--seed N]
//! ```
//!
//! Every lock guards a counter that is not atomic; at the end each must equal
//! the number of acquisitions, no queue may be left, and no slot may have
//! leaked. A lock-up is found by a watchdog, which names the seed. Ten minutes
//! are `--seconds 600`.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use giveway_locks::raw::{Core, Extra, Kind, LockRef};
use giveway_locks::{Criteria, Deadline, Group, Options, Profile, Scope, Topology, thread};

const LOCKS: usize = 6;

struct Guarded {
    core: Core,
    extra: Extra,
    kind: Kind,
    count: UnsafeCell<u64>,
    entered: AtomicU64,
}

// SAFETY: `count` is only touched by the holder of the lock beside it.
unsafe impl Sync for Guarded {}

/// xorshift64*: all that is needed of a random number here.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

fn argument(name: &str) -> Option<u64> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments
        .nth(1)
        .map(|value| value.parse().expect("a whole number"))
}

fn profiles() -> Vec<Profile> {
    let base = || Options::default().statistics(true);
    [
        ("plain", base()),
        ("literal", base().slice(Duration::ZERO)),
        ("strict", base().strict_guarantee(true)),
        (
            "per lock",
            base().scope(Scope::Lock).slice(Duration::from_micros(50)),
        ),
        (
            "barging",
            base().barging(true).grace_period(Duration::from_millis(1)),
        ),
        ("fifo", base().criteria(Criteria::NONE).spin(Duration::ZERO)),
    ]
    .into_iter()
    .map(|(name, options)| options.register(name).expect("six profiles"))
    .collect()
}

fn main() {
    let seconds = argument("--seconds").unwrap_or(10);
    let seed = argument("--seed").unwrap_or_else(|| u64::from(std::process::id()) | 1);
    println!("stress: {seconds} s, seed {seed}");
    Topology::fake(2).install();
    let groups = [
        Group::ROOT,
        Group::new("light")
            .and_then(|group| group.weight(10))
            .expect("a group"),
        Group::new("heavy")
            .and_then(|group| group.weight(1000))
            .expect("a group"),
    ];
    let profiles = profiles();
    let locks: Vec<Guarded> = (0..LOCKS)
        .map(|index| {
            let lock = Guarded {
                core: Core::new(),
                extra: Extra::new(),
                kind: if index == 4 { Kind::Spin } else { Kind::Mutex },
                count: UnsafeCell::new(0),
                entered: AtomicU64::new(0),
            };
            LockRef::new(&lock.core, &lock.extra).set_profile(profiles[index]);
            lock
        })
        .collect();
    let (done, progress) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| watchdog(&done, &progress, seed));
        let end = Instant::now() + Duration::from_secs(seconds);
        let workers: Vec<_> = (0..12_u64)
            .map(|worker| {
                let (locks, groups, progress) = (&locks, &groups, &progress);
                scope.spawn(move || {
                    let mut random =
                        Random(seed ^ (worker + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    while Instant::now() < end {
                        // A new thread each time, so that slots come and go.
                        let seed = random.below(u64::MAX) | 1;
                        let group = groups[random.below(3) as usize];
                        std::thread::scope(|inner| {
                            inner.spawn(|| life(locks, group, Random(seed), progress));
                        });
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("no worker panics");
        }
        done.store(true, Relaxed);
    });
    for (lock, profile) in locks.iter().zip(&profiles) {
        let lock_ref = LockRef::new(&lock.core, &lock.extra);
        assert!(
            !lock_ref.is_locked() && !lock_ref.has_waiters(),
            "seed {seed}"
        );
        // SAFETY: all threads have ended.
        let count = unsafe { *lock.count.get() };
        assert_eq!(count, lock.entered.load(Relaxed), "seed {seed}");
        println!("{:>9}: {:?}", profile.name(), profile.statistics());
    }
    let slot = giveway_locks::raw::current_slot().expect("slots were given back");
    assert!(
        slot < 64,
        "slots leak: this thread got number {slot}, seed {seed}"
    );
    println!("ok: {} acquisitions", progress.load(Relaxed));
}

fn life(locks: &[Guarded], group: Group, mut random: Random, progress: &AtomicU64) {
    thread::join(group);
    thread::set_weight(1 + random.below(10_000) as u32).expect("in range");
    for _ in 0..random.below(400) {
        let lock = &locks[random.below(LOCKS as u64) as usize];
        let lock_ref = LockRef::new(&lock.core, &lock.extra);
        let start = match random.below(10) {
            0 => lock_ref.try_lock(lock.kind),
            1..=3 => {
                let timeout = Duration::from_nanos(random.below(300_000));
                let deadline = Deadline::after(timeout).expect("soon");
                lock_ref.lock_until(lock.kind, deadline)
            }
            _ => Some(lock_ref.lock(lock.kind)),
        };
        let Some(start) = start else { continue };
        // SAFETY: this thread holds the lock.
        unsafe { *lock.count.get() += 1 };
        lock.entered.fetch_add(1, Relaxed);
        progress.fetch_add(1, Relaxed);
        for _ in 0..random.below(2000) {
            std::hint::spin_loop();
        }
        if random.below(200) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(200)));
        }
        // SAFETY: acquired above with this start.
        unsafe { lock_ref.unlock(start) };
        for _ in 0..random.below(2000) {
            std::hint::spin_loop();
        }
    }
}

fn watchdog(done: &AtomicBool, progress: &AtomicU64, seed: u64) {
    let mut before = 0;
    let mut stuck = 0;
    while !done.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        let now = progress.load(Relaxed);
        stuck = if now == before { stuck + 1 } else { 0 };
        before = now;
        if stuck > 200 {
            eprintln!("no acquisition for 20 s, seed {seed}");
            std::process::abort();
        }
    }
}
