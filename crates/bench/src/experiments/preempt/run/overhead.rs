//! What interrupts cost that bring no work (Section 6.2, Figure 8).
//!
//! A worker runs TPC-C as background work, one transaction after the other, and
//! another thread interrupts it a thousand times a second; the urgent context
//! finds nothing and returns. Slices with and without interrupts follow each
//! other, in pairs whose order alternates, so that what drifts (the size of the
//! database, the machine's clock) meets both alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use giveway_preempt::{Delivery, Level, Worker};

use super::cpus::{CpuPlan, Pinned};
use super::workload::Workload;
use crate::experiments::preempt::row::{Overhead, Placement};
use crate::harness::error::{Error, Result};
use crate::workload::oltp::access::Engine;
use crate::workload::oltp::transactions::Terminal;
use crate::workload::tpcc::generate::Inputs;

/// From one interrupt to the next.
const INTERVAL: Duration = Duration::from_millis(1);

/// What the interrupting thread is to do.
#[derive(Default)]
struct Orders {
    interrupts: AtomicBool,
    ends: AtomicBool,
}

/// Pairs of slices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slices {
    pub(crate) seed: u64,
    /// Of the terminal, which no other on this database has.
    pub(crate) number: u32,
    pub(crate) length: Duration,
    pub(crate) pairs: u32,
}

/// Measures pairs of slices on a worker with this delivery.
pub(crate) fn measure(
    workload: &Workload,
    delivery: Delivery,
    cpus: &CpuPlan,
    slices: Slices,
) -> Result<Overhead> {
    let cpu = cpus.workers[0];
    let _pinned = Pinned::to(cpu)?;
    let taken = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&taken);
    let worker = Worker::builder()
        .delivery(delivery)
        .level("urgent", move |_| {
            // Relaxed: a count that is read when nobody writes it any more.
            counted.fetch_add(1, Ordering::Relaxed);
        })
        .enter()
        .map_err(|error| Error::Config(format!("cannot become a worker: {error}")))?;
    let remote = worker.remote();
    let orders = Orders::default();
    let scheduler = cpus.scheduler;
    let measured = std::thread::scope(|scope| {
        let interrupting = scope.spawn(|| -> Result<()> {
            let _pinned = Pinned::to(scheduler)?;
            let mut due = Instant::now();
            // Relaxed, here and below: flags that guard no data.
            while !orders.ends.load(Ordering::Relaxed) {
                remote.rearm();
                if Instant::now() >= due {
                    due += INTERVAL;
                    if orders.interrupts.load(Ordering::Relaxed) {
                        remote.preempt(Level::new(1));
                    }
                }
                std::hint::spin_loop();
            }
            Ok(())
        });
        let measured = run(workload, slices, &orders.interrupts);
        orders.ends.store(true, Ordering::Relaxed);
        let interrupted = interrupting.join();
        interrupted.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        measured
    })?;
    drop(worker);
    Ok(Overhead {
        placement: Placement {
            worker_cpus: vec![cpu],
            scheduler_cpu: scheduler,
        },
        per_s: 1.0 / INTERVAL.as_secs_f64(),
        slice_s: slices.length.as_secs_f64(),
        pairs: measured,
        taken: u64::from(taken.load(Ordering::Relaxed)),
    })
}

/// Throughput without and with interrupts, in pairs.
fn run(workload: &Workload, slices: Slices, interrupts: &AtomicBool) -> Result<Vec<(f64, f64)>> {
    let Slices { seed, number, .. } = slices;
    let mut inputs = Inputs::sized(seed, number, workload.warehouses, workload.size);
    let mut terminal = Terminal::new(inputs.home(), number);
    let mut throughput = |interrupted: bool| -> Result<f64> {
        interrupts.store(interrupted, Ordering::Relaxed);
        let begun = Instant::now();
        let (mut count, mut taken) = (0_u64, Duration::ZERO);
        while taken < slices.length {
            let input = inputs.next().expect("inputs never end");
            let ended = workload.engine.run(&mut terminal.order(&input));
            ended.map_err(|failure| failure.named("giveway"))?;
            count += 1;
            taken = begun.elapsed();
        }
        Ok(count as f64 / taken.as_secs_f64())
    };
    // Not kept: caches are cold.
    throughput(true)?;
    let mut measured = Vec::new();
    for pair in 0..slices.pairs {
        let interrupted_first = pair % 2 == 1;
        let first = throughput(interrupted_first)?;
        let second = throughput(!interrupted_first)?;
        measured.push(match interrupted_first {
            true => (second.round(), first.round()),
            false => (first.round(), second.round()),
        });
    }
    interrupts.store(false, Ordering::Relaxed);
    Ok(measured)
}
