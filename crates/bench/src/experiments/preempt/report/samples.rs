//! A report with round numbers in which preemption meets its targets, for tests.

use giveway_preempt::{Delivery as Way, Latency as Delivered};

use crate::experiments::preempt::row::{Offered, Placement};
use crate::experiments::preempt::{
    DeliveryRow, Latency, Measured, Mixed, Operation, Overhead, POLL_POINT, POLL_RECORD,
    PreemptExperiment, PreemptRow, REGION, SWITCH, Service, Stalls, Throughput,
};
use crate::harness::environment::Environment;
use crate::report::Report;

fn latency(p50_us: f64, per_s: f64) -> Latency {
    Latency {
        count: per_s as u64,
        per_s,
        mean_us: p50_us * 1.5,
        geomean_us: p50_us * 1.2,
        p50_us,
        p90_us: p50_us * 2.0,
        p99_us: p50_us * 3.0,
        p999_us: p50_us * 4.0,
        max_us: p50_us * 8.0,
    }
}

/// A run in which New-Order takes `us`, and Q2 has `q2_per_s`.
fn mixed(us: f64, q2_per_s: f64) -> Measured {
    Measured::Mixed(Box::new(Mixed {
        seconds: 10.0,
        warmup_s: 1.0,
        placement: Placement {
            worker_cpus: vec![1, 2],
            scheduler_cpu: 0,
        },
        arrival_us: 1_000.0,
        batch: 8,
        warehouses: 2,
        q2_scale: 0.05,
        new_order: latency(us, 4_000.0),
        payment: latency(us * 0.8, 4_000.0),
        q2: latency(1e6 / q2_per_s, q2_per_s),
        urgent: 80_000,
        dropped: 8,
        late: latency(1.0, 1_000.0),
        stalls: Some(Stalls {
            over_us: 200.0,
            count: 50,
            total_ms: 40.0,
            longest_us: 3_000.0,
            new_order: latency(us * 0.9, 3_900.0),
            payment: latency(us * 0.7, 3_900.0),
            q2: latency(0.99e6 / q2_per_s, q2_per_s),
        }),
        offered: Some(Offered {
            service: Service {
                urgent_us: 30.0,
                q2_us: 3_900.0,
            },
            load: 0.12,
            stretch: 1.0,
        }),
        pool: None,
        scheduler: None,
    }))
}

fn delivery(way: Way, p50_ns: u64) -> Measured {
    Measured::Delivery(DeliveryRow {
        latency: Delivered {
            delivery: way,
            samples: 2_000,
            p50_ns,
            p90_ns: p50_ns * 2,
            p99_ns: p50_ns * 3,
            max_ns: p50_ns * 10,
            send_p50_ns: 50,
            pinned: true,
        },
    })
}

fn throughput(mix: &str, per_s: f64) -> Measured {
    Measured::Throughput(Throughput {
        mix: mix.to_owned(),
        isolation: "serializable".to_owned(),
        durability: "none: in memory".to_owned(),
        warehouses: 1,
        cpu: 1,
        slice_s: 1.0,
        per_s: vec![per_s, per_s * 1.01, per_s * 0.99],
        retries: 0,
    })
}

/// Each experiment, two repeats.
pub(crate) fn report() -> Report<PreemptRow> {
    use PreemptExperiment::{
        Arrivals, Engines, Latency, Micro, Overhead as Interrupts, Scaling, Starvation,
        YieldInterval,
    };
    let environment = Environment {
        kernel: "7.2.13-cloud-amd64".to_owned(),
        cpus: 4,
        clock: "native".to_owned(),
        commit: "0123456789ab".to_owned(),
        date: "2026-11-21".to_owned(),
        machine: "sample".to_owned(),
        cpu_model: "A CPU".to_owned(),
        memory_mib: 4096,
        ..Environment::default()
    };
    let mut report = Report::new("preempt", environment);
    for repeat in 0..2 {
        // The repeats differ by 1 %.
        let off = 1.0 + 0.01 * f64::from(repeat);
        let mut keep = |experiment, method: &str, value, measured| {
            report.rows.push(PreemptRow {
                experiment,
                method: method.to_owned(),
                value,
                repeat,
                seed: 1 + u64::from(repeat),
                measured,
            });
        };
        let methods = [
            ("wait", 2_000.0, 250.0),
            ("cooperative", 1_800.0, 249.0),
            ("handcrafted", 120.0, 248.0),
            ("poll", 40.0, 248.0),
            ("preempt", 60.0, 246.0),
            ("hybrid", 41.0, 248.0),
            ("uintr", 39.0, 249.0),
            ("threads", 900.0, 240.0),
            ("threads-fifo", 30.0, 230.0),
        ];
        for (method, us, q2) in methods {
            keep(Latency, method, None, mixed(us * off, q2 * off));
        }
        for workers in [1.0, 2.0] {
            for (method, us) in [("wait", 2_000.0), ("hybrid", 40.0), ("uintr", 39.0)] {
                keep(Scaling, method, Some(workers), mixed(us, 125.0 * workers));
            }
        }
        for every in [10.0, 1_000.0, 100_000.0] {
            keep(
                YieldInterval,
                "cooperative",
                Some(every),
                mixed(every, 200.0),
            );
        }
        let by_hand = mixed(42.0, 248.0);
        keep(YieldInterval, "handcrafted", Some(1_000.0), by_hand);
        keep(YieldInterval, "hybrid", None, mixed(40.0, 248.0));
        keep(YieldInterval, "uintr", None, mixed(39.0, 249.0));
        for method in ["hybrid", "uintr"] {
            for share in [0.0, 0.75, 1.0] {
                let run = mixed(9e3 - 8e3 * share, 250.0 - 240.0 * share);
                keep(Starvation, method, Some(share), run);
            }
        }
        keep(Starvation, "tuned", None, mixed(4_000.0, 80.0));
        for us in [50.0, 1_000.0, 50_000.0] {
            let methods = [
                ("wait", 2_000.0),
                ("cooperative", 1_800.0),
                ("hybrid", 40.0),
                ("uintr", 39.0),
            ];
            for (method, latency) in methods {
                keep(Arrivals, method, Some(us), mixed(latency, 250.0 - 5e3 / us));
            }
        }
        for (method, loss) in [("signal", 0.015), ("hybrid:3us", 0.001), ("uintr", 0.002)] {
            let pairs = [0.0, 0.001, 0.0015].map(|more| (50e3, 50e3 * (1.0 - loss - more)));
            let overhead = Overhead {
                placement: Placement::default(),
                per_s: 1_000.0,
                slice_s: 1.0,
                pairs: pairs.to_vec(),
                taken: 3_000,
            };
            keep(Interrupts, method, None, Measured::Overhead(overhead));
        }
        let operations = [
            (SWITCH, 30.0),
            (REGION, 1.5),
            (POLL_POINT, 0.5),
            (POLL_RECORD, 1.0),
        ];
        for (name, ns) in operations {
            let ns = vec![ns, ns * 1.1, ns * 0.9];
            keep(Micro, name, None, Measured::Operation(Operation { ns }));
        }
        keep(Micro, "poll", None, delivery(Way::Poll, 60));
        keep(Micro, "signal", None, delivery(Way::Signal, 15_000));
        let hybrid = Way::Hybrid {
            grace: std::time::Duration::from_micros(3),
        };
        keep(Micro, "hybrid:3us", None, delivery(hybrid, 70));
        keep(Micro, "uintr", None, delivery(Way::UserInterrupt, 250));
        let engines = [
            ("giveway", 60e3),
            ("sqlite", 4e3),
            ("redb", 2e3),
            ("sled", 3e3),
        ];
        for (engine, per_s) in engines {
            keep(Engines, engine, None, throughput("standard", per_s * off));
            keep(
                Engines,
                engine,
                None,
                throughput("interactive", per_s * 1.2 * off),
            );
        }
    }
    report
}
