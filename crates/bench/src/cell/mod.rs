//! One cell, from an idle machine to an idle machine.
//!
//! ```text
//! copy data ─ start server ─ cgroups ─ scheduler ─ connect, place, prepare
//!    ─ GO ─ warm-up ─[ window ]─ settle ─ stop ─ consistency ─ tear down
//! ```
//!
//! * CPUs 0..cpus belong to the server, the next ones to the clients, to this
//!   process and to the scheduler's own program. Both are enforced by cpuset
//!   cgroups. `isolcpus` must not name any of them: sched_ext refuses to load.
//! * Priorities are set up as in the paper's Table 2: see [`policy`]; or by SQL
//!   alone: see [`roles`].
//! * Every part that is set up is a value whose drop takes it down, so that an
//!   error at any point leaves no scheduler, cgroup, server or copy behind.
//! * The scheduler under test must still be the kernel's at the end of the
//!   window; otherwise the cell is an error with the scheduler's exit report.
//!
//! Known weakness: the kernel's own threads, and whatever else runs on the
//! machine, may use the server's CPUs.

pub(crate) mod cgroup;
pub(crate) mod class;
pub(crate) mod config;
mod disk;
pub(crate) mod fair_server;
pub(crate) mod frame;
mod layers;
mod measure;
mod memory;
pub(crate) mod policy;
pub(crate) mod record;
pub(crate) mod report;
mod roles;
pub(crate) mod row;
pub(crate) mod sched_ext;
pub(crate) mod setup;
pub(crate) mod switches;
pub(crate) mod ufs;
mod workload;

use std::time::Duration;

pub(crate) use measure::{Measured, Stamped, require_cpus};
pub(crate) use roles::require_extension;
pub(crate) use workload::Done;

use cgroup::{Share, Tree};
use disk::Mounted;
use fair_server::FairServer;
use memory::HugePages;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use roles::Roles;
use sched_ext::{Loaded, Timed};
use switches::Switches;
use workload::{Site, Workload};

use crate::cell::config::CellConfig;
use crate::cell::row::{Did, Row};
use crate::cell::setup::By;
use crate::harness::Progress;
use crate::harness::error::{Error, Result};
use crate::harness::files::{PrivateDir, copy_tree};
use crate::workload::dataset::{self, Manifest};
use crate::workload::postgres::Session;
use crate::workload::tpcc::check;
use crate::workload::tpcc::terminal::Window;

/// How long to wait, after the window, for the background's next completions.
const SETTLE: Duration = Duration::from_millis(500);

/// Measures one cell. Needs root, cgroup v2 with the cpu and cpuset
/// controllers, and for `ufs` and `scx_*` a kernel with sched_ext.
pub(crate) fn run_cell(config: &CellConfig, progress: Progress<'_>) -> Result<Row> {
    config.validate()?;
    require_cpus(config.cpus + config.client_cpus)?;
    let manifest = dataset::read_manifest(&config.data_dir)?;
    require_warehouses(config, &manifest)?;
    let postgres = config.installation()?;

    progress(&format!("{}: copying the data", config.title()));
    // Declared before the copy, so that it outlives it.
    let disk = Mounted::make(config)?;
    let parent = disk
        .as_ref()
        .map_or(config.work_dir.as_path(), Mounted::path);
    let work = PrivateDir::new(parent, postgres.owner())?;
    let data = work.path().join("data");
    copy_tree(&config.data_dir, &data, postgres.owner())?;
    let mut settings = server_settings(config, memory::buffers_mib(&data)?);
    // Declared before the server, so that it outlives it.
    let huge_pages = HugePages::reserve(&postgres, &data, &settings)?;
    settings.push((
        "huge_pages",
        if huge_pages.is_some() { "on" } else { "off" }.to_owned(),
    ));
    let server = postgres.start(&data, &settings)?;
    let control = Session::connect(&server, "control", &[])?;
    let classes = config.classes();
    let roles = Roles::create(config, &classes, &control)?;
    prewarm(&control)?;

    let shares = Share::all(config, &classes);
    let tree = Tree::create(config, &shares)?;
    policy::place_server(&tree, server.pid())?;
    tree.clients.add(std::process::id() as i32)?;
    let switches = config
        .trace_switches
        .then(|| Switches::prepare(config.cpus));
    let switches = switches.transpose()?;
    let _timed = config.time_callbacks.then(Timed::start).transpose()?;
    let _fair_server = FairServer::off_for(&config.scheduler)?;
    let command = scheduler_command(config, postgres.owner());
    let scheduler = Loaded::start(&config.scheduler, &command, &shares)?;

    progress(&format!("{}: connecting", config.title()));
    let site = Site {
        postgres: &postgres,
        server: &server,
        control: &control,
        roles,
        warehouses: manifest.spec.warehouses,
    };
    let mut load = Workload::connect(config, &classes, &site)?;
    let pids = load.pids();
    policy::place_backends(&tree, config, &classes, &pids)?;
    roles.require_effect(config, &classes, &control)?;

    progress(&format!(
        "{}: measuring for {} s",
        config.title(),
        config.seconds
    ));
    let window = Window::after(
        Duration::from_secs_f64(config.warmup_s),
        Duration::from_secs_f64(config.seconds),
    );
    load.go(window);
    let measured = measure::window(&tree, config, &pids, window, switches.as_ref())?;
    let scheduler_name = scheduler.as_ref().map(Loaded::confirm).transpose()?;
    load.settle(window, SETTLE);

    // Signals need no CPU of the server's to be sent: a saturated real-time
    // class cannot hold up the end of the cell.
    load.request_stop();
    for pid in load.background_pids() {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    let done = load.finish(window)?;
    if let Some(scheduler) = scheduler {
        scheduler.stop()?;
    }

    if config.mix.has_time_sensitive() {
        progress(&format!("{}: checking consistency", config.title()));
        check::consistency(&control)?;
    }
    drop(control);
    server.abandon()?;
    let placement = switches.map(|switches| switches.read(&classes, &pids));
    Ok(Row::new(
        config,
        scheduler_name,
        huge_pages.is_some(),
        Did {
            classes: &classes,
            done: &done,
            measured,
            placement: placement.transpose()?.unwrap_or_default(),
        },
    ))
}

/// The scheduler's program with its options: the server may talk to UFS.
fn scheduler_command(config: &CellConfig, owner: Option<(u32, u32)>) -> Vec<String> {
    let mut command = config.scheduler_command.clone();
    if config.by == By::Cgroups {
        return command;
    }
    if command.is_empty() {
        command.extend(config.scheduler.program());
    }
    if let Some((_, group)) = owner {
        command.extend(["--hint-group".to_owned(), group.to_string()]);
    }
    if !config.boost {
        command.extend(["--boost-ms", "0"].map(str::to_owned));
    }
    command
}

/// "One warehouse per terminal or more", as the workload is defined.
fn require_warehouses(config: &CellConfig, manifest: &Manifest) -> Result<()> {
    let (terminals, warehouses) = (config.terminal_count(), manifest.spec.warehouses);
    if terminals <= warehouses {
        return Ok(());
    }
    Err(Error::Config(format!(
        "{terminals} terminals need as many warehouses, and {} has {warehouses}: prepare data \
         with --warehouses {terminals}",
        config.data_dir.display()
    )))
}

/// The settings of the cell's server.
fn server_settings(config: &CellConfig, buffers_mib: u64) -> Vec<(&'static str, String)> {
    let clients = config.terminal_count() + config.background_count();
    let mut settings = steady_settings(clients, buffers_mib);
    settings.extend(roles::server_settings(config));
    settings.extend(disk::server_settings(config));
    settings
}

/// Settings of a server for so many clients, the same for every scheduler. All data is in
/// memory, so durability costs system calls but no waiting; what would make one window
/// unlike the next (checkpoints, autovacuum, full pages after a checkpoint, JIT
/// compilation, parallel workers) is off.
pub(crate) fn steady_settings(clients: u32, buffers_mib: u64) -> Vec<(&'static str, String)> {
    vec![
        ("shared_buffers", format!("{buffers_mib}MB")),
        ("max_connections", (clients + 10).to_string()),
        ("fsync", "on".to_owned()),
        ("synchronous_commit", "on".to_owned()),
        ("full_page_writes", "off".to_owned()),
        ("wal_level", "minimal".to_owned()),
        ("max_wal_senders", "0".to_owned()),
        ("wal_init_zero", "off".to_owned()),
        ("max_wal_size", "8GB".to_owned()),
        ("checkpoint_timeout", "1d".to_owned()),
        ("autovacuum", "off".to_owned()),
        ("jit", "off".to_owned()),
        // A page in memory costs the same wherever it lies; the default speaks
        // of disks, and makes Q17 scan all of lineitem.
        ("random_page_cost", "1.1".to_owned()),
        ("max_parallel_workers_per_gather", "0".to_owned()),
        ("max_parallel_maintenance_workers", "0".to_owned()),
    ]
}

/// Reads every table and index into the server's buffers, so that the window
/// does not depend on how far the warm-up got.
fn prewarm(control: &Session) -> Result<()> {
    control.execute(
        "reading the data into memory",
        "SELECT sum(pg_prewarm(oid)) FROM pg_class \
         WHERE relkind IN ('r', 'i') AND relnamespace = 'public'::regnamespace",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::dataset::DatasetSpec;

    #[test]
    fn too_few_warehouses_are_refused_with_the_remedy() {
        let config = CellConfig {
            terminals: 6,
            ..CellConfig::default()
        };
        let mut manifest = Manifest {
            version: 1,
            postgresql: "17".to_owned(),
            spec: DatasetSpec {
                warehouses: 4,
                ..DatasetSpec::default()
            },
        };
        let error = require_warehouses(&config, &manifest)
            .unwrap_err()
            .to_string();
        assert!(error.contains("--warehouses 6"), "{error}");
        manifest.spec.warehouses = 6;
        require_warehouses(&config, &manifest).unwrap();
    }
}
