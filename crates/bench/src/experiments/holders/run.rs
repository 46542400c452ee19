//! The cells of one arm, from an idle machine to an idle machine.
//!
//! ```text
//! initdb ─ server ─ pgbench -i ─ stop ─ cgroups ─ scheduler ─ server
//!    ─ for each script: pgbench ─ warm-up ─[ window ]─ its end ─ tear down
//! ```
//!
//! * The data is made under the kernel's own scheduler, with the server's settings, and
//!   written out, so every arm begins with the same files and empty buffers.
//! * The scheduler comes before the server, so that the server finds the hint table when
//!   it starts.
//! * Server and pgbench are in one cgroup, so no scheduler divides the CPUs between them.
//!   The scheduler's program is beside it, on the same CPUs.
//! * UFS's counters and the CPU time are each read at both ends of the window, with the
//!   time at which they were read.

use std::thread;
use std::time::{Duration, Instant};

use giveway_tier::{Tier, Weight};

use super::pgbench::{self, Run, Span, now_us};
use super::row::{Counts, HoldersRow, Seen, Statistics};
use super::{HoldersPlan, NAME};
use crate::cell::cgroup::{Group, Share, Tree, cpu_range};
use crate::cell::sched_ext::{self, Loaded};
use crate::cell::setup::Hints;
use crate::cell::{Stamped, require_cpus, require_extension, steady_settings, ufs};
use crate::harness::Progress;
use crate::harness::environment::Environment;
use crate::harness::error::Result;
use crate::harness::files::PrivateDir;
use crate::harness::scheduler::Scheduler;
use crate::report::Report;
use crate::workload::postgres::{Installation, Session};
use crate::workload::tpcc::terminal::Window;

/// Runs all cells of the plan.
pub(super) fn measure(
    plan: &HoldersPlan,
    clock: &str,
    progress: Progress<'_>,
) -> Result<Report<HoldersRow>> {
    require_cpus(plan.cpus)?;
    let postgres = Installation::of_lab(&plan.server_dir)?;
    let environment = Environment {
        postgresql: postgres.version()?,
        ..Environment::probe(clock)
    };
    let mut report = Report::new(NAME, environment);
    match cells(plan, &postgres, progress) {
        Ok(rows) => report.rows = rows,
        Err(error) => report.add(&plan.arm.scheduler, plan.title(), Err(error))?,
    }
    Ok(report)
}

fn cells(
    plan: &HoldersPlan,
    postgres: &Installation,
    progress: Progress<'_>,
) -> Result<Vec<HoldersRow>> {
    progress(&format!("{}: making the data", plan.title()));
    let work = PrivateDir::new(&plan.work_dir, postgres.owner())?;
    let data = work.path().join("data");
    postgres.init(&data)?;
    let server = postgres.start(&data, &settings(plan, Hints::Off))?;
    pgbench::make_data(postgres, &server, plan.scale)?;
    server.stop()?;

    let cpus = cpu_range(0, plan.cpus);
    let shares = [Share {
        name: format!("{}.pgbench", Tier::TimeSensitive),
        weight: Weight::DEFAULT,
        is_idle: false,
    }];
    let tree = Tree::on(&cpus, &cpus, &shares)?;
    let own = std::process::id() as i32;
    tree.clients.add(own)?;
    let command = scheduler_command(plan, postgres.owner());
    let scheduler = Loaded::start(&plan.arm.scheduler, &command, &shares)?;
    // What is started from here on is born there.
    tree.server().add(own)?;
    let hints = hints(&plan.arm.scheduler);
    let server = postgres.start(&data, &settings(plan, hints))?;
    if hints.are_on() {
        let control = Session::connect(&server, "control", &[])?;
        control.execute("creating the extension", "CREATE EXTENSION giveway")?;
        require_extension(&control, hints)?;
    }

    let mut rows = Vec::new();
    for script in &plan.scripts {
        progress(&format!("{}: {script}", plan.title()));
        let run = Run::start(postgres, &server, plan, *script, work.path())?;
        let seen = window(plan, tree.server())?;
        let version = scheduler.as_ref().map(Loaded::confirm).transpose()?;
        let latencies_us = seen.span.latencies_us(&run.finish()?)?;
        rows.push(HoldersRow::new(
            plan,
            *script,
            version,
            &seen,
            &latencies_us,
        ));
    }
    server.abandon()?;
    tree.clients.add(own)?;
    if let Some(scheduler) = scheduler {
        scheduler.stop()?;
    }
    Ok(rows)
}

/// Only UFS reads hints.
fn hints(scheduler: &Scheduler) -> Hints {
    match scheduler {
        Scheduler::Ufs => Hints::Patched,
        _ => Hints::Off,
    }
}

fn settings(plan: &HoldersPlan, hints: Hints) -> Vec<(&'static str, String)> {
    let buffers_mib = u64::from(plan.shared_buffers_mib);
    let mut settings = steady_settings(plan.clients(), buffers_mib);
    settings.push(("huge_pages", "off".to_owned()));
    if hints.are_on() {
        settings.extend([
            ("shared_preload_libraries", "giveway".to_owned()),
            ("giveway.hints", hints.to_string()),
        ]);
    }
    settings
}

/// The scheduler's program, told whom to believe and how far slices are extended.
fn scheduler_command(plan: &HoldersPlan, owner: Option<(u32, u32)>) -> Vec<String> {
    let mut command = sched_ext::program(&plan.arm.scheduler, &plan.scheduler_program);
    if let Some(us) = plan.arm.extension_us {
        command.extend(["--extension-us".to_owned(), us.to_string()]);
        if let Some((_, group)) = owner {
            command.extend(["--hint-group".to_owned(), group.to_string()]);
        }
    }
    command
}

/// What UFS has counted so far.
fn counts() -> Result<Counts> {
    Ok(ufs::sample::<Statistics>()?.hints)
}

/// The counters at one end of the window.
struct Edge {
    us: u64,
    cpu_time: Stamped<Duration>,
    ufs: Option<Stamped<Counts>>,
}

impl Edge {
    fn wait(until: Instant, group: &Group, scheduler: &Scheduler) -> Result<Self> {
        thread::sleep(until.saturating_duration_since(Instant::now()));
        let is_ufs = *scheduler == Scheduler::Ufs;
        Ok(Edge {
            us: now_us(),
            cpu_time: Stamped::read(|| group.cpu_time())?,
            ufs: is_ufs.then(|| Stamped::read(counts)).transpose()?,
        })
    }

    /// What happened since `before`, on so many CPUs.
    fn since(&self, before: &Edge, cpus: u32) -> Seen {
        let used = self.cpu_time.value.saturating_sub(before.cpu_time.value);
        let had_s = self.cpu_time.since(&before.cpu_time) * f64::from(cpus);
        let ufs = self.ufs.as_ref().zip(before.ufs.as_ref());
        let ufs = ufs.map(|(now, then)| {
            let (new, old) = (now.value, then.value);
            let counts = Counts {
                ts_holders_preempted: new.ts_holders_preempted - old.ts_holders_preempted,
                extended: new.extended - old.extended,
            };
            (counts, now.since(then))
        });
        Seen {
            span: Span {
                start_us: before.us,
                end_us: self.us,
            },
            busy_fraction: used.as_secs_f64() / had_s,
            ufs,
        }
    }
}

/// Sleeps to the end of the window and tells what happened inside it.
fn window(plan: &HoldersPlan, group: &Group) -> Result<Seen> {
    let window = Window::after(
        Duration::from_secs_f64(plan.warmup_s),
        Duration::from_secs_f64(plan.seconds),
    );
    let before = Edge::wait(window.start, group, &plan.arm.scheduler)?;
    let after = Edge::wait(window.end, group, &plan.arm.scheduler)?;
    Ok(after.since(&before, plan.cpus))
}

#[cfg(test)]
mod tests {
    use super::super::{Arm, samples::plan};
    use super::*;

    fn text(settings: &[(&str, String)]) -> String {
        let settings = settings
            .iter()
            .map(|(name, value)| format!("{name}={value} "));
        settings.collect()
    }

    #[test]
    fn only_ufs_is_told_of_extensions_and_only_its_server_of_hints() {
        let mut plan = plan();
        let command = scheduler_command(&plan, Some((1, 42))).join(" ");
        assert_eq!(command, "/lab/scheduler --extension-us 200 --hint-group 42");
        assert_eq!(hints(&plan.arm.scheduler), Hints::Patched);
        plan.arm = Arm {
            scheduler: Scheduler::Scx("scx_lavd".to_owned()),
            extension_us: None,
        };
        let command = scheduler_command(&plan, Some((1, 42))).join(" ");
        assert_eq!(command, "/lab/scheduler");
        assert_eq!(hints(&plan.arm.scheduler), Hints::Off);
        assert!(!text(&settings(&plan, Hints::Off)).contains("giveway"));
        assert!(text(&settings(&plan, Hints::Patched)).contains("giveway.hints=patched "));
    }

    #[test]
    fn the_server_has_few_buffers_and_room_for_every_client() {
        let text = text(&settings(&plan(), Hints::Off));
        for setting in [
            "shared_buffers=16MB ",
            "max_connections=26 ",
            "fsync=on ",
            "synchronous_commit=on ",
        ] {
            assert!(text.contains(setting), "{setting}: {text}");
        }
    }

    #[test]
    fn a_window_is_the_difference_of_its_ends_each_over_its_own_time() {
        let edge = |us, cpu_s, preempted, extended| Edge {
            us,
            cpu_time: Stamped::read(|| Ok(Duration::from_secs(cpu_s))).unwrap(),
            ufs: Some(
                Stamped::read(|| {
                    Ok(Counts {
                        ts_holders_preempted: preempted,
                        extended,
                    })
                })
                .unwrap(),
            ),
        };
        let before = edge(1_000_000, 10, 5, 70);
        thread::sleep(Duration::from_millis(20));
        let seen = edge(2_500_000, 11, 8, 75).since(&before, 4);
        assert_eq!(seen.span.seconds(), 1.5);
        let (counts, seconds) = seen.ufs.unwrap();
        assert_eq!((counts.ts_holders_preempted, counts.extended), (3, 5));
        // A second of CPU time on four CPUs; the readings are what lies between.
        assert!(seconds >= 0.02 && seen.busy_fraction <= 1.0 / (4.0 * 0.02));
    }
}
