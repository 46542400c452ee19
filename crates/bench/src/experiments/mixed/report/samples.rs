//! A report with round numbers in the shape that the paper found, for tests.

use crate::cell::config::Mix;
use crate::cell::row::Row;
use crate::cell::setup::{Build, By, Disk, Hints};
use crate::harness::environment::Environment;
use crate::harness::scheduler::Scheduler;
use crate::report::Report;
use crate::workload::background::Job;
use crate::workload::tpcc::terminal::Counts;

/// One row; `tps` and `bg` are its throughputs, `ms` its median latency.
pub(crate) fn row(
    scheduler: Scheduler,
    mix: Mix,
    repeat: u32,
    tps: Option<f64>,
    ms: f64,
    bg: Option<f64>,
) -> Row {
    let ran = tps.is_some_and(|tps| tps > 0.0);
    let latency = |factor: f64| ran.then_some(ms * factor);
    let transactions = tps.map(|tps| Counts {
        new_order: (tps * 4.0 * 0.45).round() as u64,
        payment: (tps * 4.0 * 0.55).round() as u64,
        ..Counts::default()
    });
    let histogram = (1..=40).map(|step| {
        let share = f64::from(step) / 40.0;
        let latency = ms * (0.5 + share * share * share * 1.5);
        ((latency * 1e3).round() / 1e3, 25)
    });
    Row {
        scheduler_version: scheduler
            .program()
            .map(|name| format!("{}_0.1.0", &name[4..])),
        huge_pages: true,
        scheduler,
        mix,
        repeat,
        seed: 1 + u64::from(repeat),
        seconds: 4.0,
        warmup_s: 1.0,
        cpus: 4,
        client_cpus: 2,
        terminals: if mix.has_time_sensitive() { 4 } else { 0 },
        by: By::default(),
        server: Build::default(),
        hints: Hints::default(),
        counted_only: false,
        disk: Disk::default(),
        request_us: 0,
        io_priority: false,
        job: Job::default(),
        background_workers: if mix.has_background() { 4 } else { 0 },
        network_us: 0,
        ts_tps: tps,
        ts_mean_ms: latency(1.1),
        ts_p50_ms: latency(1.0),
        ts_p95_ms: latency(1.9),
        ts_p99_ms: latency(2.5),
        bg_per_s: bg,
        busy_fraction: if mix.has_background() { 0.995 } else { 0.62 },
        bg_busy_fraction: if mix.has_background() { 0.38 } else { 0.0 },
        classes: Vec::new(),
        busy_fraction_per_cpu: vec![0.6; 4],
        placement: Vec::new(),
        client_busy_fraction: 0.4,
        disk_read_mb_per_s: None,
        ufs: None,
        transactions,
        latency_histogram: if ran { histogram.collect() } else { Vec::new() },
    }
}

/// Three repeats of every cell.
pub(crate) fn report() -> Report<Row> {
    use Scheduler::{Eevdf, Fifo, Idle, Rr, Ufs};
    let environment = Environment {
        kernel: "7.2.13-cloud-amd64".to_owned(),
        cpus: 6,
        clock: "lockstep".to_owned(),
        commit: "0123456789ab".to_owned(),
        date: "2026-11-21".to_owned(),
        machine: "sample".to_owned(),
        cpu_model: "QEMU TCG CPU".to_owned(),
        memory_mib: 3072,
        postgresql: "17.6".to_owned(),
        dataset_version: 1,
        ..Environment::default()
    };
    // Scheduler, SOLO, SOLO-BG, MIN:MAX (tps, ms, queries), 50:50.
    let cells = [
        (
            Eevdf,
            400.0,
            160.0,
            (200.0, 20.0, 100.0),
            (160.0, 25.0, 120.0),
        ),
        (Fifo, 400.0, 160.0, (396.0, 10.2, 60.0), (0.0, 0.0, 158.0)),
        (Rr, 400.0, 160.0, (396.0, 10.1, 60.0), (4.0, 900.0, 156.0)),
        (Ufs, 400.0, 160.0, (396.0, 10.1, 62.0), (300.0, 14.0, 80.0)),
    ];
    let mut report = Report::new("mixed", environment);
    for repeat in 0..3 {
        // The repeats differ by 2 %, and the middle one has the round number.
        let vary = 1.0 + 0.02 * (f64::from(repeat) - 1.0);
        let mut add = |scheduler: &Scheduler, mix, tps: Option<f64>, ms, bg: Option<f64>| {
            let (tps, bg) = (tps.map(|tps| tps * vary), bg.map(|bg| bg * vary));
            report
                .rows
                .push(row(scheduler.clone(), mix, repeat, tps, ms, bg));
        };
        for (scheduler, solo, solo_bg, min_max, half) in &cells {
            add(scheduler, Mix::Solo, Some(*solo), 10.0, None);
            add(scheduler, Mix::SoloBackground, None, 0.0, Some(*solo_bg));
            add(
                scheduler,
                Mix::MinMax,
                Some(min_max.0),
                min_max.1,
                Some(min_max.2),
            );
            add(
                scheduler,
                Mix::FiftyFifty,
                Some(half.0),
                half.1,
                Some(half.2),
            );
        }
        add(&Idle, Mix::MinMax, Some(160.0), 26.0, Some(110.0));
    }
    report
}
