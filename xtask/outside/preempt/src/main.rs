//! A first preemptible program, with giveway-preempt alone.
//!
//! One worker runs a long report. An order that comes meanwhile runs on the same
//! worker, before the report ends: the report would never end otherwise.

use std::error::Error;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use giveway_preempt::{Policy, Pool, RegionAlloc, Tier};

// A task that is preempted inside the allocator would hold the allocator's lock.
#[global_allocator]
static ALLOCATOR: RegionAlloc<std::alloc::System> = RegionAlloc(std::alloc::System);

/// How long the report waits for the order before it gives up.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::builder().workers(1).policy(Policy::best()).build()?;
    let [started, shipped] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let report = {
        let (started, shipped) = (Arc::clone(&started), Arc::clone(&shipped));
        pool.submit(Tier::Background, move || {
            started.store(true, Relaxed);
            let since = Instant::now();
            while !shipped.load(Relaxed) && since.elapsed() < PATIENCE {
                spin_loop();
            }
            shipped.load(Relaxed)
        })?
    };
    while !started.load(Relaxed) {
        std::thread::yield_now();
    }
    let submitted = Instant::now();
    let order = pool.submit(Tier::TimeSensitive, move || shipped.store(true, Relaxed))?;
    order.wait()?;
    println!(
        "the order took {:?} beside a report on the same worker",
        submitted.elapsed()
    );
    match report.wait()? {
        true => Ok(()),
        false => Err("the report was not preempted".into()),
    }
}
