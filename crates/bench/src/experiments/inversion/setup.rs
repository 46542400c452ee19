//! What the cells of one treatment run on: scheduler, server, cgroups.
//!
//! The server's processes are on [`SERVER_CPU`], clients, UFS's program and this
//! process on [`CLIENT_CPU`]. The scheduler comes before the server, so that the
//! server finds the hint table when it starts. Every part is a value whose drop
//! takes it down.
//!
//! A server that panicked has lost its sessions and recovers by itself; the
//! next cell waits until it takes connections again.

use std::thread;
use std::time::{Duration, Instant};

use giveway_tier::{Tier, Weight};

use super::row::{InversionRow, Outcome};
use super::run::{self, Cell, CellResult, Placement};
use super::{InversionPlan, NAME, Scenario};
use crate::cell::cgroup::{Share, Tree};
use crate::cell::fair_server::FairServer;
use crate::cell::policy;
use crate::cell::sched_ext::{self, Loaded};
use crate::cell::setup::Hints;
use crate::harness::Progress;
use crate::harness::environment::Environment;
use crate::harness::error::{Error, Result};
use crate::harness::files::{PrivateDir, copy_tree};
use crate::harness::scheduler::Scheduler;
use crate::report::Report;
use crate::workload::postgres::{Installation, Server, Session};

/// Where the locks are fought for: not CPU 0, which the kernel likes for its own
/// work.
const SERVER_CPU: u32 = 1;
const CLIENT_CPU: u32 = 0;
/// How long a server may take to come back after a panic.
const RECOVERY: Duration = Duration::from_secs(60);

/// Runs all cells of the plan.
pub(super) fn measure(
    plan: &InversionPlan,
    clock: &str,
    progress: Progress<'_>,
) -> Result<Report<InversionRow>> {
    let postgres = Installation::of_lab(&plan.server_dir)?;
    let environment = Environment {
        postgresql: postgres.version()?,
        ..Environment::probe(clock)
    };
    let mut report = Report::new(NAME, environment);

    progress(&format!("{}: setting up", plan.treatment));
    let work = PrivateDir::new(&plan.work_dir, postgres.owner())?;
    let data = work.path().join("data");
    copy_tree(&plan.data_dir, &data, postgres.owner())?;
    let shares = [
        share(plan, Tier::TimeSensitive, "high", Weight::MAX),
        share(plan, Tier::Background, "low", Weight::MIN),
    ];
    let tree = Tree::on(&SERVER_CPU.to_string(), &CLIENT_CPU.to_string(), &shares)?;
    tree.clients.add(std::process::id() as i32)?;
    let _fair_server = FairServer::off_for(&plan.treatment.scheduler)?;
    let command = scheduler_command(plan, &postgres);
    let scheduler = Loaded::start(&plan.treatment.scheduler, &command, &shares)?;
    let server = postgres.start(&data, &settings(plan.treatment.hints))?;
    policy::place_server(&tree, server.pid())?;
    create_extensions(&server, plan.treatment.hints)?;
    let sessions = Sessions {
        hints: plan.treatment.hints,
        scheduler: &plan.treatment.scheduler,
        tree: &tree,
    };

    for lock in &plan.locks {
        for scenario in Scenario::ALL {
            progress(&format!("{}: {lock}, {}", plan.treatment, scenario.name()));
            let cell = Cell {
                lock: *lock,
                scenario,
                hold_s: plan.hold_s,
                limit_s: plan.limit_s,
            };
            let result = run::run(&server, &sessions, &cell)?;
            let version = scheduler.as_ref().map(Loaded::confirm).transpose()?;
            let boosts = boosts(&server, plan.treatment.hints, &result)?;
            report.rows.push(row(plan, &cell, &result, version, boosts));
            drop(result);
            recovered(&server)?;
        }
    }
    server.abandon()?;
    if let Some(scheduler) = scheduler {
        scheduler.stop()?;
    }
    Ok(report)
}

fn share(plan: &InversionPlan, tier: Tier, name: &str, weight: Weight) -> Share {
    Share {
        name: format!("{tier}.{name}"),
        weight,
        is_idle: plan.treatment.scheduler == Scheduler::CpuIdle && tier == Tier::Background,
    }
}

/// The scheduler's program, told whom to believe and what to help with.
fn scheduler_command(plan: &InversionPlan, postgres: &Installation) -> Vec<String> {
    let mut command = sched_ext::program(&plan.treatment.scheduler, &plan.scheduler_program);
    if plan.treatment.scheduler == Scheduler::Ufs {
        if plan.treatment.hints.are_on() {
            command.push("--boost-heavyweight".to_owned());
            if let Some((_, group)) = postgres.owner() {
                command.extend(["--hint-group".to_owned(), group.to_string()]);
            }
        } else {
            command.push("--no-hints".to_owned());
        }
    }
    command
}

/// Nothing but the sessions of a cell is to run in the server.
fn settings(hints: Hints) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("shared_preload_libraries", "giveway_test".to_owned()),
        ("shared_buffers", "64MB".to_owned()),
        ("autovacuum", "off".to_owned()),
        ("checkpoint_timeout", "1d".to_owned()),
        ("fsync", "off".to_owned()),
        ("jit", "off".to_owned()),
    ];
    if hints.are_on() {
        settings[0].1.push_str(",giveway");
        settings.extend([
            ("giveway.hints", hints.name().to_owned()),
            ("giveway.heavyweight_hints", "on".to_owned()),
        ]);
    }
    settings
}

fn create_extensions(server: &Server, hints: Hints) -> Result<()> {
    let control = Session::connect(server, "control", &[])?;
    let what = "creating the extensions";
    control.execute(what, "CREATE EXTENSION giveway_test")?;
    if hints.are_on() {
        control.execute(what, "CREATE EXTENSION giveway")?;
    }
    Ok(())
}

/// Waits until the server takes connections: at once, unless it recovers.
fn recovered(server: &Server) -> Result<()> {
    let deadline = Instant::now() + RECOVERY;
    loop {
        match Session::connect(server, "control", &[]) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// How often and for how long (ns) UFS has boosted the holders.
fn boosts(server: &Server, hints: Hints, result: &CellResult) -> Result<Option<(i64, i64)>> {
    if !hints.are_on() || result.outcome == Outcome::Panic {
        return Ok(None);
    }
    let control = Session::connect(server, "control", &[])?;
    let sql = "SELECT sum(boosts)::int8, (sum(boosted_ms) * 1e6)::int8 \
               FROM giveway_stat_activity WHERE pid = ANY($1)";
    let row = control
        .wait(control.client.query_one(sql, &[&result.holders]))
        .map_err(Error::sql("reading what was boosted".to_owned()))?;
    let (count, ns): (Option<i64>, Option<i64>) = (row.get(0), row.get(1));
    Ok(count.zip(ns))
}

fn row(
    plan: &InversionPlan,
    cell: &Cell,
    result: &CellResult,
    scheduler_version: Option<String>,
    boosts: Option<(i64, i64)>,
) -> InversionRow {
    InversionRow {
        scheduler: plan.treatment.scheduler.clone(),
        scheduler_version,
        lock: cell.lock,
        scenario: cell.scenario,
        hints: plan.treatment.hints,
        repeat: plan.repeat,
        seed: plan.seed,
        hold_s: cell.hold_s,
        limit_s: cell.limit_s,
        outcome: result.outcome,
        holder_acquire_s: result.holder.map(|times| times.acquire_s),
        holder_total_s: result.holder.map(|times| times.total_s),
        waiter_acquire_s: result.waiter.map(|times| times.acquire_s),
        waiter_total_s: result.waiter.map(|times| times.total_s),
        boosts: boosts.map(|(count, _)| count),
        boosted_ns: boosts.map(|(_, ns)| ns),
    }
}

/// How sessions get their priorities: see [the module](super).
struct Sessions<'a> {
    hints: Hints,
    scheduler: &'a Scheduler,
    tree: &'a Tree,
}

impl Placement for Sessions<'_> {
    fn options(&self, tier: Tier, weight: Weight) -> Vec<(&'static str, String)> {
        if !self.hints.are_on() {
            return Vec::new();
        }
        vec![
            ("giveway.tier", tier.to_string()),
            ("giveway.weight", weight.to_string()),
        ]
    }

    fn place(&self, backend: i32, tier: Tier) -> Result<()> {
        if self.hints.are_on() {
            return Ok(());
        }
        let high = tier == Tier::TimeSensitive;
        let [urgent, low] = self.tree.groups() else {
            unreachable!("the experiment has two shares");
        };
        let group = if high { urgent } else { low };
        group.add(backend)?;
        policy::class(self.scheduler, high).apply(backend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(settings: &[(&str, String)]) -> String {
        let settings = settings
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        Vec::from_iter(settings).join(" ")
    }

    #[test]
    fn without_hints_the_server_knows_nothing_of_ufs() {
        assert!(!text(&settings(Hints::Off)).contains("giveway."));
        let on = text(&settings(Hints::Patched));
        assert!(on.contains("giveway_test,giveway ") && on.contains("giveway.hints=patched"));
    }
}
