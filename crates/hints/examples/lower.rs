//! A thread pool's maintenance thread that gives way, and says so.
//!
//! ```text
//! cargo run -p giveway-hints --example lower
//! ```
//!
//! Prints what UFS made of it: CPU time by tier. Without UFS it says why there
//! is no table, and does its work all the same.

use giveway_hints::slot::Table;
use giveway_hints::{Tier, Weight};

fn work() -> u64 {
    (0..50_000_000u64).fold(0, |sum, n| sum ^ n.wrapping_mul(0x9e37_79b9))
}

fn main() {
    let table = Table::open(None).map_err(|error| eprintln!("no hints: {error}"));
    let maintenance = std::thread::spawn(move || {
        // Each thread has a slot of its own, which goes with the thread.
        let slot = table.ok().and_then(|table| table.attach());
        if let Some(slot) = &slot {
            slot.set_tier(Tier::Background);
            slot.set_weight(Weight::MIN);
        }
        let sum = work();
        (sum, slot.map(|slot| slot.report()))
    });
    let (sum, report) = maintenance.join().expect("the work does not panic");
    println!("sum {sum}");
    if let Some(report) = report {
        let [background, time_sensitive] = report.run_ns;
        println!("CPU time: {background} ns as background, {time_sensitive} ns as time-sensitive");
    }
}
