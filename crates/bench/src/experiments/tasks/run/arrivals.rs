//! Experiments in which queries arrive: `mix`, `shift` and `load`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::alone::Alone;
use super::drive::{Play, play};
use super::host::{Host, block_on};
use super::trace::{Due, Phase, trace};
use crate::experiments::tasks::arm::Arm;
use crate::experiments::tasks::experiment::TasksExperiment;
use crate::experiments::tasks::kind::Kind;
use crate::experiments::tasks::row::{Arrived, Measured, Scheduled};
use crate::experiments::tasks::{TasksBench, TasksCell};
use crate::harness::Progress;
use crate::harness::error::Result;

/// How long queries may still run when no more come, as a multiple of the time in which
/// they came, and at least. Under a load below 1 all end long before.
const PATIENCE: f64 = 2.0;
const PATIENCE_MIN: Duration = Duration::from_secs(120);

/// Plays the cell's trace on its arm.
pub(super) fn measure(
    bench: &TasksBench,
    cell: &TasksCell,
    progress: Progress<'_>,
) -> Result<Measured> {
    let arm = cell.arm.expect("cells with arrivals have an arm");
    match arm {
        Arm::DuckDb { partial } => duckdb(bench, cell, partial, progress),
        Arm::Policy(_) | Arm::Stock => here(bench, cell, arm, progress),
    }
}

fn here(
    bench: &TasksBench,
    cell: &TasksCell,
    arm: Arm,
    progress: Progress<'_>,
) -> Result<Measured> {
    warm_up(bench, progress)?;
    let workers = bench.settings.workers;
    let ours = Arm::Policy(giveway_sql::Policy::Fair);
    // What a trace is made of: the same for all policies and for stock DataFusion.
    let work = bench.alone(ours, workers, progress)?;
    let alone = match cell.experiment {
        // Engines are compared by what each takes on one thread (Section 5.4).
        TasksExperiment::Load if arm == Arm::Stock => bench.alone(arm, 1, progress)?,
        TasksExperiment::Load => bench.alone(ours, 1, progress)?,
        _ => Arc::clone(&work),
    };
    let trace = bench.trace(cell, &work);
    let part = Play {
        trace: &trace,
        length: bench.length(),
        patience: bench.patience(),
        threads: workers,
        alone: &alone,
    };
    rehearse(bench, &part, progress)?;
    let host = bench.host(arm, workers, Kind::both(), progress)?;
    progress(&format!("{} queries", trace.len()));
    let played = play(&host, &part)?;
    let arrived = Arrived {
        // The load is that of the trace, whatever slowdowns are relative to.
        offered: offered(&trace, &work, workers, bench.seconds),
        tuning_s: tuning_s(bench),
        scheduler: matches!(arm, Arm::Policy(_)).then(|| scheduled(&host)),
        ..played
    };
    Ok(Measured::Arrived(Box::new(arrived)))
}

/// How often each query runs to warm up.
const WARMING: usize = 4;

/// Runs every query a few times, all beside each other, before anything is measured, so
/// that the process has as much memory as a trace will take: the first use of a page is
/// dear where a hypervisor gives it, and whatever is measured first would pay for all.
fn warm_up(bench: &TasksBench, progress: Progress<'_>) -> Result<()> {
    if bench.is_warm.set(()).is_err() {
        return Ok(());
    }
    let fair = Arm::Policy(giveway_sql::Policy::Fair);
    let host = bench.host(fair, bench.settings.workers, Kind::both(), progress)?;
    progress("warming up");
    let often = (0..WARMING).flat_map(|_| Kind::both());
    let all = often.map(async |kind| match host.planned(kind).await {
        Ok(query) => host.run(query).await.is_ok(),
        Err(_) => false,
    });
    // Those that fail, as with too little memory for all at once, fail again in a trace,
    // which counts them.
    block_on(join_all(all));
    Ok(())
}

/// Plays the first trace once for nothing, under the policy that has most queries begun
/// at a time: a crowd takes more memory than any number of queries that end.
fn rehearse(bench: &TasksBench, part: &Play<'_>, progress: Progress<'_>) -> Result<()> {
    if bench.is_rehearsed.set(()).is_err() {
        return Ok(());
    }
    let fair = Arm::Policy(giveway_sql::Policy::Fair);
    let host = bench.host(fair, bench.settings.workers, Kind::both(), progress)?;
    progress("rehearsing");
    play(&host, part).map(drop)
}

fn duckdb(
    bench: &TasksBench,
    cell: &TasksCell,
    partial: bool,
    progress: Progress<'_>,
) -> Result<Measured> {
    let duckdb = match bench.duckdb(progress)? {
        Ok(duckdb) => duckdb,
        Err(missing) => return Ok(Measured::LeftOut(missing)),
    };
    // Its own work and its own slowdowns: another engine at the same load.
    let alone = bench.alone(Arm::DuckDb { partial: false }, 1, progress)?;
    let trace = bench.trace(cell, &alone);
    progress(&format!("{} queries", trace.len()));
    let arrived = duckdb.play(
        &bench.settings,
        partial,
        &Play {
            trace: &trace,
            length: bench.length(),
            patience: bench.patience(),
            threads: bench.settings.workers,
            alone: &alone,
        },
    )?;
    Ok(Measured::Arrived(Box::new(arrived)))
}

impl TasksBench {
    /// For how long queries come.
    fn length(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn patience(&self) -> Duration {
        self.length().mul_f64(PATIENCE).max(PATIENCE_MIN)
    }

    /// The cell's trace: that of its seed, load and experiment, whoever runs it.
    fn trace(&self, cell: &TasksCell, work: &Alone) -> Vec<Due> {
        let load = cell.load.expect("cells with arrivals have a load");
        let work_ms = |kind| work.of(kind).work_ms;
        let phases = match cell.experiment {
            TasksExperiment::Shift => {
                let half = self.seconds / 2.0;
                vec![Phase::paper(half), Phase::heavy(half, work_ms)]
            }
            _ => vec![Phase::paper(self.seconds)],
        };
        trace(&phases, load, self.settings.workers, cell.seed, work_ms)
    }
}

/// The part of the workers' time that the trace takes.
fn offered(trace: &[Due], work: &Alone, workers: u32, seconds: f64) -> f64 {
    let work_ms: f64 = trace.iter().map(|due| work.of(due.kind).work_ms).sum();
    work_ms / 1e3 / seconds / f64::from(workers)
}

fn tuning_s(bench: &TasksBench) -> (f64, f64) {
    let settings = &bench.settings;
    (
        settings.tracking.as_secs_f64(),
        settings.refresh.as_secs_f64(),
    )
}

fn scheduled(host: &Host) -> Scheduled {
    let pool = host.stats().pool;
    let sum =
        |number: fn(&giveway_tasks::WorkerStats) -> u64| pool.workers.iter().map(number).sum();
    let longest_ns = pool.workers.iter().map(|worker| worker.longest_ns).max();
    Scheduled {
        tasks: sum(|worker| worker.tasks),
        decisions: sum(|worker| worker.decisions),
        within_2: pool.within(2.0),
        longest_ms: longest_ns.unwrap_or(0) as f64 / 1e6,
        tunings: pool.tunings,
        decay: None,
        order: pool.order.map(|order| order.to_string()),
    }
}
