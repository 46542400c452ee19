//! `giveway meta run`, `status`, `pause` and `resume`.
//!
//! The daemon runs in the foreground, as systemd wants it, and says on standard
//! error what happens. SIGINT and SIGTERM end it, and leave the machine under
//! Linux's own scheduler. If it dies without that chance, the kernel ends its
//! scheduler with it. With `through = "scx_loader"` in the configuration that service
//! has the schedulers, and keeps what it has.
//!
//! The status is what the daemon wrote last, set against what the kernel says
//! now.

use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::Args;
use giveway_machine::sched_ext::{SchedExt, State};
use giveway_metasched::config::{Config, Through};
use giveway_metasched::daemon::{self, Daemon, DaemonLock, Status};
use giveway_metasched::host::Host;
use giveway_metasched::kernel::rise;
use giveway_metasched::scx_loader::{RIVAL_MAX, ScxLoader};
use giveway_metasched::supervisor::Standing;
use giveway_metasched::system::System;
use serde::Serialize;

use super::ConfigArgs;
use crate::service::{self, LOADER_REMEDY};
use giveway_command::Failure;
use giveway_command::output::human;

/// Follow the schedule, in the foreground
///
/// Reads the configuration again when it changes. Ends on SIGINT and SIGTERM,
/// with Linux's own scheduler in force.
#[derive(Args, Debug)]
pub(super) struct RunArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Say what is in force, what should be, and what went wrong
///
/// Exit status 0 if a metascheduler runs, else 1.
#[derive(Args, Debug)]
pub(super) struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Leave the machine to Linux's own scheduler until 'resume'
///
/// Counts for a metascheduler that is started later, too, until the next boot.
#[derive(Args, Debug)]
pub(super) struct PauseArgs {}

/// Follow the schedule again
#[derive(Args, Debug)]
pub(super) struct ResumeArgs {}

/// Runs until told to stop; answers with the exit status.
pub(super) fn run(args: &RunArgs) -> Result<u8, Failure> {
    super::privileged()?;
    let config = args.config.read()?;
    let through = config.through;
    if through.is_none() {
        alone(&config)?;
    }
    service::run_dir()?;
    let dir = service::meta_dir();
    let _claim = DaemonLock::take(&dir)?;
    if SchedExt::this().state() == State::Unsupported {
        return Err(Failure::new("this kernel has no sched_ext")
            .with_remedy("boot a kernel of 6.12 or newer with CONFIG_SCHED_CLASS_EXT=y"));
    }
    let daemon = Daemon::new(config, &dir)?;
    match through {
        None => follow(daemon, System::new(&dir.join("scheduler.log"))?),
        Some(Through::ScxLoader) => {
            let host = ScxLoader::connect()?;
            for scheduler in daemon.schedulers() {
                host.check(scheduler)?;
            }
            follow(daemon, host)
        }
    }
}

/// Refuses a machine on which scx_loader decides and was not told to obey.
fn alone(config: &Config) -> Result<(), Failure> {
    service::alone(RIVAL_MAX).map_err(|failure| {
        failure.with_remedy(format_args!(
            "{LOADER_REMEDY}; or have it obey: write through = \"scx_loader\" into {}",
            config.path.display()
        ))
    })
}

/// Has this host follow the schedule until told to stop; answers with the exit status.
fn follow(mut daemon: Daemon, mut host: impl Host) -> Result<u8, Failure> {
    if !rise() {
        eprintln!("giveway: note: not above other tasks: a stall is left to the kernel's watchdog");
    }
    let stopped = super::measure::interrupt()?;
    let log = &mut |line: &str| eprintln!("giveway: {line}");
    while !stopped.load(Relaxed) {
        let pause = daemon.step(&mut host, log);
        host.rest(pause);
    }
    match daemon.leave(&mut host, log) {
        true => Ok(0),
        false => Err(
            Failure::new("the scheduler's process does not end, though killed")
                .with_remedy("echo S > /proc/sysrq-trigger unloads any sched_ext scheduler"),
        ),
    }
}

/// What is told about a metascheduler.
#[derive(Debug, Serialize)]
struct Report {
    running: bool,
    /// What the kernel says: `disabled`, a scheduler's name, or a transition.
    kernel: String,
    /// Schedulers loaded since boot.
    loads: Option<u64>,
    paused: bool,
    /// What the daemon last said.
    daemon: Option<Status>,
}

/// Prints the status.
pub(super) fn status(args: &StatusArgs) -> Result<u8, Failure> {
    let dir = service::meta_dir();
    let kernel = SchedExt::this();
    let running = daemon::is_running(&dir);
    let report = Report {
        running,
        kernel: kernel.state().to_string(),
        loads: kernel.loads(),
        paused: daemon::is_paused(&dir),
        daemon: Status::read(&dir)?.filter(|_| running),
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", text(&report))?;
    }
    out.flush()?;
    Ok(u8::from(!running))
}

/// Gives an order to the daemon.
pub(super) fn pause(on: bool) -> Result<u8, Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::new("only root may pause the metascheduler").with_remedy("use sudo"));
    }
    service::run_dir()?;
    daemon::pause(&service::meta_dir(), on)?;
    if !daemon::is_running(&service::meta_dir()) {
        eprintln!("giveway: note: no metascheduler runs; one that is started will heed this");
    }
    Ok(0)
}

fn text(report: &Report) -> String {
    let mut lines = vec![match (report.running, report.paused) {
        (true, false) => "metascheduler  runs".to_owned(),
        (true, true) => "metascheduler  paused".to_owned(),
        (false, _) => "metascheduler  does not run".to_owned(),
    }];
    lines.push(format!("kernel         {}", report.kernel));
    if let Some(status) = &report.daemon {
        lines.push(format!("in force       {}", standing(&status.standing)));
        let left = status.turn_left_s.map(|s| {
            let left = Duration::try_from_secs_f64(s).unwrap_or_default();
            format!(", {} left", human(left))
        });
        lines.push(format!(
            "wanted         {}{}",
            status.wanted,
            left.unwrap_or_default()
        ));
        let turns: Vec<String> = status
            .turns
            .iter()
            .map(|(name, s)| format!("{name} {s:.3} s"))
            .collect();
        let turns = match turns.is_empty() {
            true => "none: it follows what runs".to_owned(),
            false => turns.join(", "),
        };
        lines.push(format!("round          {turns}"));
        if let Some(mean) = status.switch_mean_s {
            lines.push(format!(
                "swaps          {}, {:.0} ms each",
                status.switches,
                mean * 1e3
            ));
        }
        for fault in &status.faults {
            let barred = match fault.barred_s {
                s if s > 0.0 => format!("; tried again in {s:.0} s"),
                _ => String::new(),
            };
            lines.push(format!(
                "fault          {} ({} so far) {}{barred}",
                fault.scheduler, fault.faults, fault.last
            ));
        }
        if let Some(error) = &status.config_error {
            lines.push(format!("configuration  not in force: {error}"));
        }
    }
    lines.join("\n") + "\n"
}

fn standing(standing: &Standing) -> String {
    match standing {
        Standing::Own => "Linux's own scheduler".into(),
        Standing::Starting(name) => format!("Linux's own scheduler; {name} is coming"),
        Standing::Running(name) => name.clone(),
        Standing::Stopping(name) => format!("{name}, which is going"),
        Standing::Aside(ops) => format!("{ops}, which another program loaded"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use giveway_metasched::daemon::FaultStatus;

    #[test]
    fn the_status_shows_turns_and_faults() {
        let status = Status {
            pid: 1,
            standing: Standing::Running("scx_ufs".into()),
            wanted: "scx_ufs".into(),
            paused: false,
            turn_left_s: Some(1.5),
            turns: vec![("eevdf".into(), 0.5), ("scx_ufs".into(), 2.0)],
            in_force_s: Default::default(),
            switches: 7,
            switch_mean_s: Some(0.133),
            faults: vec![FaultStatus {
                scheduler: "scx_x".into(),
                faults: 2,
                last: "failed to load: exit status: 1".into(),
                barred_s: 4.0,
            }],
            config_error: None,
        };
        let report = Report {
            running: true,
            kernel: "ufs_0.1".into(),
            loads: Some(8),
            paused: false,
            daemon: Some(status),
        };
        assert_eq!(
            text(&report),
            "metascheduler  runs\nkernel         ufs_0.1\nin force       scx_ufs\n\
             wanted         scx_ufs, 1.5 s left\n\
             round          eevdf 0.500 s, scx_ufs 2.000 s\n\
             swaps          7, 133 ms each\n\
             fault          scx_x (2 so far) failed to load: exit status: 1; \
             tried again in 4 s\n"
        );
    }

    #[test]
    fn without_a_daemon_the_kernel_still_speaks() {
        let report = Report {
            running: false,
            kernel: "disabled".into(),
            loads: None,
            paused: false,
            daemon: None,
        };
        let expected = "metascheduler  does not run\nkernel         disabled\n";
        assert_eq!(text(&report), expected);
    }
}
