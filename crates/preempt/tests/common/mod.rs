//! What the storms share: seeded random numbers, bounded lengths, work whose
//! result is known.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use giveway_preempt::{Counters, Remote};

/// A linear congruential generator: what happens is decided by the seed, when it
/// happens by the machine.
pub(crate) struct Random(u64);

impl Random {
    /// From `GIVEWAY_SEED`, or this seed; said on standard output.
    pub(crate) fn from_env(name: &str, seed: u64) -> Random {
        let seed = std::env::var("GIVEWAY_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(seed);
        println!("{name}: GIVEWAY_SEED={seed}");
        Random(seed)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// How long a storm lasts: until `enough` has happened or, on a machine that is
/// busy, for so long, but not before `least` has; `GIVEWAY_STORM_SECS` makes it a
/// time.
pub(crate) struct Length {
    start: Instant,
    most: Duration,
    whole: bool,
}

/// A machine that is busy takes its time; only a failed test waits it out.
const PATIENCE: Duration = Duration::from_secs(60);

impl Length {
    pub(crate) fn short() -> Length {
        let secs = std::env::var("GIVEWAY_STORM_SECS")
            .ok()
            .and_then(|text| text.parse().ok());
        Length {
            start: Instant::now(),
            most: Duration::from_secs(secs.unwrap_or(5)),
            whole: secs.is_some(),
        }
    }

    /// Whether the storm is over; what is asserted afterwards belongs into
    /// `least`.
    pub(crate) fn is_over(&self, enough: bool, least: bool) -> bool {
        let lasted = self.start.elapsed();
        (enough && !self.whole)
            || (least && lasted >= self.most)
            || lasted >= self.most.max(PATIENCE)
    }
}

/// Storms of one process take turns: each needs both CPUs of a small machine.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn spin_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Sends what is overdue until nothing is outstanding. The worker must go on.
pub(crate) fn settle(remote: &Remote) -> Counters {
    let start = Instant::now();
    while !remote.outstanding().is_empty() {
        remote.rearm();
        std::thread::yield_now();
        assert!(
            start.elapsed() < PATIENCE,
            "lost: {remote:?} {:?}",
            remote.counters()
        );
    }
    let counters = remote.counters();
    assert_eq!(
        counters.requested,
        counters.taken + counters.acknowledged,
        "{counters:?}"
    );
    counters
}

/// Work that allocates, formats, sorts, divides, hashes and unwinds, and whose
/// result depends on the seed alone.
pub(crate) fn churn(seed: u64, rounds: u64) -> u64 {
    let mut x = seed | 1;
    let mut tree = BTreeMap::new();
    let mut table: HashMap<u64, String> = HashMap::new();
    let mut list = Vec::new();
    let mut sum = 0f64;
    for i in 0..rounds {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        tree.insert(x % 1000, format!("{i}:{:.3}", x as f64 / 3.0));
        table.insert(x % 100, i.to_string());
        list.push(x);
        sum += (x as f64).sqrt();
        if i % 3 == 0 {
            tree.remove(&(x % 500));
        }
        if i % 64 == 0 {
            list.sort_unstable();
            list.truncate(32);
            let thrown = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(x)));
            assert_eq!(*thrown.unwrap_err().downcast::<u64>().unwrap(), x);
        }
    }
    let mut hash = sum.to_bits();
    let mut mix = |value: u64| hash = (hash ^ value).wrapping_mul(0x100_0000_01b3);
    for (key, text) in &tree {
        mix(*key);
        text.bytes().for_each(|byte| mix(byte.into()));
    }
    for key in 0..100 {
        mix(table.get(&key).map_or(0, |text| text.len() as u64));
    }
    list.iter().for_each(|value| mix(*value));
    hash
}
