//! How long a request takes, measured on this machine: `Delivery::measure`.
//!
//! A worker spins, another thread sends requests at random times and notes when;
//! the body notes when it begins. Both threads are pinned to CPUs of their own
//! if there are two. The worker polls all the time, which is the best case for
//! `Poll` and `Hybrid`; for `Signal` and `UserInterrupt` polling makes no
//! difference.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::delivery::Delivery;
use crate::error::DeliveryError;
use crate::level::Level;
use crate::region::poll_point;
use crate::remote::Remote;
use crate::worker::Worker;

/// How long a request takes from the sender's decision to the first line of the
/// body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// How the requests were delivered.
    pub delivery: Delivery,
    /// How many there were.
    pub samples: u32,
    /// Half of them took at most this long.
    pub p50_ns: u64,
    /// Nine tenths.
    pub p90_ns: u64,
    /// All but one in a hundred.
    pub p99_ns: u64,
    /// The longest one.
    pub max_ns: u64,
    /// What half of the requests cost the sender, at most.
    pub send_p50_ns: u64,
    /// Whether sender and worker had a CPU each. If not, the numbers say more
    /// about the kernel's scheduler than about the delivery.
    pub pinned: bool,
}

impl Delivery {
    /// Measures this delivery with so many requests, at least 1; about 50 µs each.
    ///
    /// # Errors
    /// What [`check`](Self::check) says, or that no worker could be made.
    pub fn measure(self, samples: u32) -> Result<Latency, DeliveryError> {
        self.check()?;
        let stage = Arc::new(Stage {
            epoch: Instant::now(),
            arrived_ns: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let cpus = two_cpus();
        let (say, hear) = mpsc::channel();
        let worker = std::thread::spawn({
            let stage = Arc::clone(&stage);
            move || {
                cpus.inspect(|(worker, _)| pin(*worker));
                stage.work(self, say)
            }
        });
        let failed = |what: &dyn std::fmt::Display| DeliveryError::Measure(what.to_string());
        let remote = match hear.recv() {
            Ok(Ok(remote)) => remote,
            Ok(Err(message)) => return Err(failed(&message)),
            Err(_) => return Err(failed(&"its thread has ended")),
        };
        let sender = std::thread::spawn({
            let stage = Arc::clone(&stage);
            move || {
                cpus.inspect(|(_, sender)| pin(*sender));
                stage.send(&remote, samples.max(1))
            }
        });
        let times = sender.join();
        stage.stop.store(true, Release);
        let ended = worker.join();
        let (mut latencies, mut costs) = times.map_err(|_| failed(&"the sender panicked"))?;
        ended.map_err(|_| failed(&"the worker panicked"))?;
        latencies.sort_unstable();
        costs.sort_unstable();
        Ok(Latency {
            delivery: self,
            samples: latencies.len() as u32,
            p50_ns: quantile(&latencies, 50),
            p90_ns: quantile(&latencies, 90),
            p99_ns: quantile(&latencies, 99),
            max_ns: quantile(&latencies, 100),
            send_p50_ns: quantile(&costs, 50),
            pinned: cpus.is_some(),
        })
    }
}

/// What sender and worker share.
struct Stage {
    epoch: Instant,
    /// When the last body began; 0 if the sender waits for it.
    arrived_ns: AtomicU64,
    stop: AtomicBool,
}

impl Stage {
    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn work(self: Arc<Self>, delivery: Delivery, say: mpsc::Sender<Result<Remote, String>>) {
        let body = {
            let stage = Arc::clone(&self);
            move |_| stage.arrived_ns.store(stage.now_ns().max(1), Release)
        };
        let entered = Worker::builder()
            .delivery(delivery)
            .level("measure", body)
            .enter();
        let worker = match entered {
            Ok(worker) => worker,
            Err(error) => {
                let _ = say.send(Err(error.to_string()));
                return;
            }
        };
        if say.send(Ok(worker.remote())).is_ok() {
            while !self.stop.load(Relaxed) {
                poll_point();
                spin_loop();
            }
        }
    }

    /// Latencies, and what the requests cost, in ns.
    fn send(&self, remote: &Remote, samples: u32) -> (Vec<u64>, Vec<u64>) {
        let (mut latencies, mut costs) = (Vec::new(), Vec::new());
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..samples {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            self.spin_for(Duration::from_nanos(random >> 33 & 0x7fff));
            self.arrived_ns.store(0, Relaxed);
            let start = self.now_ns();
            remote.preempt(Level::new(1));
            let sent = self.now_ns();
            while self.arrived_ns.load(Acquire) == 0 {
                remote.rearm();
                spin_loop();
            }
            let arrived = self.arrived_ns.load(Relaxed);
            latencies.push(arrived.saturating_sub(start));
            costs.push(sent - start);
        }
        (latencies, costs)
    }

    fn spin_for(&self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            spin_loop();
        }
    }
}

/// The smallest value that `percent` of them are not above.
fn quantile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted[rank.saturating_sub(1)]
}

/// Two CPUs that the caller may use.
fn two_cpus() -> Option<(usize, usize)> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    Some((cpus.next()?, cpus.next()?))
}

/// Keeps the current thread on one CPU. It is one that the process may use.
fn pin(cpu: usize) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(cpu);
    let _ = rustix::thread::sched_setaffinity(None, &only);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let sorted: Vec<u64> = (1..=200).collect();
        assert_eq!(quantile(&sorted, 50), 100);
        assert_eq!(quantile(&sorted, 99), 198);
        assert_eq!(quantile(&sorted, 100), 200);
        assert_eq!(quantile(&[7], 50), 7);
    }
}
