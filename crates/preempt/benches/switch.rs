//! What the mechanism costs: a region, a poll point, an allocation in a region,
//! a voluntary switch; and how long each delivery takes on this machine.
//!
//! `cargo bench -p giveway-preempt`. Targets: region 2 ns, switch 50 ns one way.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use giveway_preempt::{self as preempt, Delivery, Level, RegionAlloc, RegionMutex, Worker};

const HIGH: Level = Level::new(1);

fn mechanism(c: &mut Criterion) {
    let _worker = Worker::builder()
        .delivery(Delivery::Poll)
        .level("high", |_| {})
        .enter()
        .expect("this thread is no worker yet");

    c.bench_function("region", |b| b.iter(|| drop(black_box(preempt::region()))));
    c.bench_function("poll point", |b| b.iter(preempt::poll_point));
    c.bench_function("region mutex", |b| {
        let mutex = RegionMutex::new(0u64);
        b.iter(|| *mutex.lock() += 1);
    });

    let layout = Layout::new::<[u64; 8]>();
    c.bench_function("malloc and free", |b| {
        // SAFETY: freed as it was allocated.
        b.iter(|| unsafe { System.dealloc(black_box(System.alloc(layout)), layout) });
    });
    c.bench_function("malloc and free in regions", |b| {
        let regions = RegionAlloc(System);
        // SAFETY: freed as it was allocated.
        b.iter(|| unsafe { regions.dealloc(black_box(regions.alloc(layout)), layout) });
    });

    // Two switches, the region around them, an empty body and its root.
    c.bench_function("voluntary switch, there and back", |b| {
        b.iter(|| preempt::yield_to(HIGH));
    });
}

/// Not criterion's business: each request needs two threads.
fn deliveries(_: &mut Criterion) {
    println!("delivery         p50      p90      p99      max   sender  (ns)");
    for delivery in Delivery::available() {
        match delivery.measure(5_000) {
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

criterion_group!(benches, mechanism, deliveries);
criterion_main!(benches);
