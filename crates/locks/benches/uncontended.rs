//! What lock and unlock cost when nobody else is there, and what metering adds.
//!
//! ```text
//! cargo bench -p giveway-locks --bench uncontended
//! ```
//!
//! Goal: CFL within 5 ns of parking_lot. Not measured: contention. All locks
//! take turns in short rounds, so what the machine does meets all of them; the
//! table has the median round and the middle half. Under `cargo test` it runs
//! two rounds, so that it does not rot.

use std::hint::black_box;
use std::time::Instant;

use giveway_locks::{Mutex, Options, RawMutex, Spinlock};

const PAIRS: u32 = 100_000;

fn nanoseconds(pair: impl Fn()) -> f64 {
    let begin = Instant::now();
    for _ in 0..PAIRS {
        pair();
    }
    begin.elapsed().as_nanos() as f64 / f64::from(PAIRS)
}

fn main() {
    let rounds = if std::env::args().any(|argument| argument == "--bench") {
        101
    } else {
        2
    };
    let parking_lot = parking_lot::Mutex::new(0_u64);
    let std_mutex = std::sync::Mutex::new(0_u64);
    let (mutex, spinlock) = (Mutex::new(0_u64), Spinlock::new(0_u64));
    let statistics = Options::default().statistics(true).register("metered");
    let raw = RawMutex::with_profile(statistics.expect("one profile"));
    let metered = Mutex::from_raw(raw, 0_u64);

    let locks: [(&str, &dyn Fn() -> f64); 5] = [
        ("parking_lot 0.13", &|| {
            nanoseconds(|| *black_box(&parking_lot).lock() += 1)
        }),
        ("std", &|| {
            nanoseconds(|| *black_box(&std_mutex).lock().unwrap() += 1)
        }),
        ("CFL mutex", &|| {
            nanoseconds(|| *black_box(&mutex).lock() += 1)
        }),
        ("CFL spinlock", &|| {
            nanoseconds(|| *black_box(&spinlock).lock() += 1)
        }),
        ("CFL mutex, statistics", &|| {
            nanoseconds(|| *black_box(&metered).lock() += 1)
        }),
    ];
    let mut taken = vec![Vec::new(); locks.len()];
    for _ in 0..rounds {
        for ((_, measure), taken) in locks.iter().zip(&mut taken) {
            taken.push(measure());
        }
    }
    println!(
        "{:<24}{:>10}  middle half, ns per lock and unlock",
        "", "median"
    );
    for ((name, _), mut taken) in locks.iter().zip(taken) {
        taken.sort_by(f64::total_cmp);
        let at = |part: f64| taken[((taken.len() - 1) as f64 * part) as usize];
        println!(
            "{name:<24}{:>10.1}  {:.1} to {:.1}",
            at(0.5),
            at(0.25),
            at(0.75)
        );
    }
}
