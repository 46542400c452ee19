//! What the mechanism costs: a region, a poll point, an allocation in a region,
//! a voluntary switch; and how long each delivery takes on this machine.
//!
//! `cargo bench -p giveway-preempt --bench switch`. Targets: region 2 ns, switch
//! 50 ns one way.
//!
//! Rounds of a few µs are timed and their median is printed, with the middle
//! half: on a machine that does other things, rounds are either undisturbed or
//! far outside, and the ends of a longer measurement are mixed into its mean.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::time::Instant;

use giveway_preempt::{self as preempt, Delivery, Level, RegionAlloc, RegionMutex, Worker};

const HIGH: Level = Level::new(1);
const PER_ROUND: u32 = 200;

/// Prints what `operation` takes, less an empty loop.
fn time(rounds: usize, name: &str, mut operation: impl FnMut()) {
    let mut taken: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..PER_ROUND {
                operation();
            }
            let with = start.elapsed();
            let start = Instant::now();
            for i in 0..PER_ROUND {
                black_box(i);
            }
            let without = start.elapsed();
            (with.as_nanos() as f64 - without.as_nanos() as f64) / f64::from(PER_ROUND)
        })
        .collect();
    taken.sort_by(f64::total_cmp);
    let at = |part: f64| taken[(part * (rounds - 1) as f64) as usize];
    println!(
        "{name:<36} {:>7.2} {:>7.2} {:>7.2}",
        at(0.5),
        at(0.25),
        at(0.75)
    );
}

fn mechanism(rounds: usize) {
    let _worker = Worker::builder()
        .delivery(Delivery::Poll)
        .level("high", |_| {})
        .enter()
        .expect("this thread is no worker yet");
    println!("ns                                    median   1/4     3/4");
    time(rounds, "region", || drop(black_box(preempt::region())));
    time(rounds, "poll point", preempt::poll_point);
    let mutex = RegionMutex::new(0u64);
    time(rounds, "region mutex", || *mutex.lock() += 1);
    let layout = Layout::new::<[u64; 8]>();
    let regions = RegionAlloc(System);
    // SAFETY: freed as it was allocated.
    time(rounds, "malloc and free", || unsafe {
        System.dealloc(black_box(System.alloc(layout)), layout);
    });
    // SAFETY: freed as it was allocated.
    time(rounds, "malloc and free, in regions", || unsafe {
        regions.dealloc(black_box(regions.alloc(layout)), layout);
    });
    // Two switches, the regions around them, an empty body and its root.
    time(rounds, "voluntary switch, there and back", || {
        assert!(preempt::yield_to(HIGH));
    });
}

fn deliveries(samples: u32) {
    println!("\nns               p50      p90      p99      max   sender");
    for delivery in Delivery::available() {
        match delivery.measure(samples) {
            Ok(l) => println!(
                "{delivery:<12} {:>7} {:>8} {:>8} {:>8} {:>8}{}",
                l.p50_ns,
                l.p90_ns,
                l.p99_ns,
                l.max_ns,
                l.send_p50_ns,
                if l.pinned { "" } else { "  (one CPU)" },
            ),
            Err(error) => println!("{delivery}: {error}"),
        }
    }
}

fn main() {
    // Under `cargo test` it only must not rot.
    let measure = std::env::args().any(|argument| argument == "--bench");
    mechanism(if measure { 2001 } else { 11 });
    deliveries(if measure { 5_000 } else { 10 });
}
