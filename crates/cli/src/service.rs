//! `giveway start` and `giveway stop`: load and unload UFS, and verify it.
//!
//! ```text
//!              start                                  stop
//!   refuse: not root, no sched_ext,      refuse: not root, another scheduler
//!   another scheduler, scx_loader                      │
//!              │                            unit active: systemctl stop
//!   systemd and unit: systemctl start       process known: SIGTERM, in the end
//!   else: detach scx_ufs, log, pid file                SIGKILL (the kernel
//!              │                                       unloads on its own)
//!   wait until the kernel says `enabled`               │
//!   and names ufs; the process ended        wait until the kernel says `disabled`
//!   first: show the end of its log
//! ```
//!
//! The kernel's state decides, never that of a process: a scheduler's process may run
//! before its scheduler is loaded, and after the kernel has detached it. One lock, which only root can
//! open, serialises starts and stops; waiting for it counts towards the timeout.
//! Both are idempotent.

mod process;
mod unit;

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use giveway_machine::sched_ext::{SchedExt, State};
use giveway_metasched::lock::Lock;
use giveway_metasched::scx_loader::rival;

use giveway_command::Failure;

pub(crate) use process::{Process, RUN_DIR, last_exit, program};
pub(crate) use unit::Unit;

/// What helps against type information that the kernel itself rejects. Kernels
/// of 7.1 and later pass implicit arguments to kfuncs, which pahole before 1.26
/// describes wrongly, so that every scheduler is refused.
pub(crate) const BTF_REMEDY: &str = "this kernel's BTF was made by too old a pahole: install a build of it made with \
     pahole 1.26 or newer (on Debian, linux-image-amd64 from sid rather than backports)";

/// How UFS calls itself to the kernel.
pub(crate) const UFS: &str = "ufs";
/// What makes room where scx_loader runs.
pub(crate) const LOADER_REMEDY: &str = "systemctl disable --now scx_loader";

/// Load the UFS scheduler
///
/// Starts scx_ufs, found beside this program or in PATH, and waits until the
/// kernel has it loaded. Where systemd runs and giveway.service is installed,
/// the unit is started, else a daemon that logs to /run/giveway/scx_ufs.log.
#[derive(Args, Debug)]
pub(crate) struct StartArgs {
    /// Give up after this many seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=86_400))]
    timeout: u64,
    /// Options for scx_ufs; 'scx_ufs --help' lists them
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Unload the UFS scheduler
///
/// The system goes on under Linux's own scheduler; no task is disturbed.
#[derive(Args, Debug)]
pub(crate) struct StopArgs {
    /// Give up after this many seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=86_400))]
    timeout: u64,
}

/// Loads UFS.
pub(crate) fn start(args: &StartArgs) -> Result<(), Failure> {
    let kernel = kernel();
    let end = Deadline::after(args.timeout);
    let _turn = entitled("load", &kernel, &end)?;
    alone()?;
    match kernel.state() {
        state if state.is(UFS) && args.options.is_empty() => {
            println!("UFS is loaded already");
            return Ok(());
        }
        state if state.is(UFS) => {
            return Err(
                Failure::new("UFS is loaded already, with options of its own")
                    .with_remedy("giveway stop, then start again"),
            );
        }
        State::Enabled(other) => return Err(occupied(&other)),
        _ => {}
    }
    let is_ufs = |state: &State| state.is(UFS);
    let loaded = match Unit::installed() {
        Some(unit) => {
            unit.start(&args.options)?;
            let state = kernel.wait(end.left(), is_ufs, || !unit.is_live());
            state
                .is(UFS)
                .then_some(())
                .ok_or_else(|| failed_start(&state, &unit.log(), "journalctl -u giveway"))
        }
        None => {
            let mut daemon = Process::start(&args.options)?;
            let state = kernel.wait(end.left(), is_ufs, || daemon.has_ended());
            match state.is(UFS) {
                true => Ok(()),
                false => {
                    daemon.kill();
                    let log = process::log_path();
                    let text = std::fs::read_to_string(&log).unwrap_or_default();
                    Err(failed_start(&state, &text, &log.display().to_string()))
                }
            }
        }
    };
    loaded?;
    println!("UFS is loaded");
    Ok(())
}

/// Unloads UFS.
pub(crate) fn stop(args: &StopArgs) -> Result<(), Failure> {
    let kernel = kernel();
    let end = Deadline::after(args.timeout);
    let _turn = entitled("unload", &kernel, &end)?;
    let is_out = |state: &State| !matches!(state, State::Enabled(_) | State::Changing(_));
    if let State::Enabled(other) = kernel.state()
        && !kernel.state().is(UFS)
    {
        return Err(occupied(&other));
    }
    let process = Process::find();
    let unit = Unit::installed().filter(Unit::is_live);
    if process.is_none() && unit.is_none() && is_out(&kernel.state()) {
        println!("UFS is not loaded");
        return Ok(());
    }
    match (&unit, &process) {
        (Some(unit), _) => unit.stop()?,
        (None, Some(process)) => {
            process.terminate();
            if !is_out(&kernel.wait(end.left() / 2, is_out, || false)) {
                eprintln!("giveway: note: scx_ufs does not answer; killing it");
                process.kill();
            }
        }
        (None, None) => {
            return Err(
                Failure::new("UFS is loaded, but its process is not to be found")
                    .with_remedy("press SysRq-S, or echo S > /proc/sysrq-trigger, to unload it"),
            );
        }
    }
    let state = kernel.wait(end.left(), is_out, || false);
    if !is_out(&state) {
        return Err(Failure::new(format_args!(
            "the scheduler is still there after {} s",
            args.timeout
        ))
        .with_remedy("echo S > /proc/sysrq-trigger unloads any sched_ext scheduler"));
    }
    // It still has to write its exit report.
    if let Some(mut process) = process {
        kernel.wait(end.left(), |_| false, || process.has_ended());
    }
    process::forget();
    println!("UFS is unloaded");
    Ok(())
}

/// When a command gives up.
struct Deadline(Instant);

impl Deadline {
    fn after(seconds: u64) -> Self {
        Deadline(Instant::now() + Duration::from_secs(seconds))
    }

    fn left(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

fn kernel() -> SchedExt {
    SchedExt::under(Path::new("/"))
}

/// Refuses callers and kernels that cannot, and waits for its turn among others.
fn entitled(verb: &str, kernel: &SchedExt, end: &Deadline) -> Result<Lock, Failure> {
    if kernel.state() == State::Unsupported {
        return Err(Failure::new("this kernel has no sched_ext").with_remedy(
            "boot a kernel of 6.12 or newer with CONFIG_SCHED_CLASS_EXT=y, \
             or try UFS in 'giveway lab shell'",
        ));
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(
            Failure::new(format_args!("only root may {verb} a scheduler")).with_remedy("use sudo"),
        );
    }
    process::take_turn(end.left())
}

/// Refuses a machine on which the scx project's loader decides which scheduler is
/// loaded: it would load another one when it is told to.
pub(crate) fn alone() -> Result<(), Failure> {
    rival().map_or(Ok(()), |rival| Err(decides(&rival)))
}

fn decides(rival: &str) -> Failure {
    Failure::new(format_args!("{rival} decides here already")).with_remedy(LOADER_REMEDY)
}

fn occupied(other: &str) -> Failure {
    Failure::new(format_args!(
        "another sched_ext scheduler is loaded: {other}"
    ))
    .with_remedy("stop it first, as it was started (systemctl stop scx, or kill its process)")
}

/// Why the kernel never said `enabled`: the end of the scheduler's own words,
/// and the cause behind the words where it is a known one.
fn failed_start(state: &State, log: &str, where_log: &str) -> Failure {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let tail = lines[lines.len().saturating_sub(8)..].join("\n  ");
    let failure = Failure::new(format_args!(
        "scx_ufs was not loaded (sched_ext is {}); the end of its log:\n  {tail}",
        match state {
            State::Enabled(ops) => ops,
            State::Changing(word) => word,
            State::Disabled => "disabled",
            State::Unsupported => "gone",
        }
    ));
    if log.contains("func_proto") && log.contains("incompatible") {
        return failure.with_remedy(BTF_REMEDY);
    }
    failure.with_remedy(format_args!(
        "read {where_log}; 'giveway doctor' checks this machine"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_start_shows_the_last_words_and_a_known_cause() {
        let log = "one\ntwo\n\nfunc_proto incompatible with vmlinux\n";
        let text = failed_start(&State::Disabled, log, "LOG").to_string();
        assert!(text.contains("  two\n  func_proto"), "{text}");
        assert!(text.contains("pahole"), "{text}");
        let text = failed_start(&State::Disabled, "killed\n", "LOG").to_string();
        assert!(text.contains("read LOG"), "{text}");
    }

    #[test]
    fn the_scx_project_s_loader_is_named_with_the_remedy() {
        let text = decides("scx_loader (process 17)").to_string();
        assert!(
            text.contains("process 17") && text.contains(LOADER_REMEDY),
            "{text}"
        );
    }

    #[test]
    fn another_scheduler_is_named() {
        assert!(
            occupied("bpfland_1.1.4")
                .to_string()
                .contains("bpfland_1.1.4")
        );
    }
}
