//! `giveway start` and `giveway stop`: load and unload UFS, and verify it.
//!
//! ```text
//!              start                                  stop
//!   refuse: not root, no sched_ext       no sched_ext: nothing to unload;
//!              │                         refuse: not root
//!              │                                      │
//!   wait for the lock; held all the      wait for the lock half of the time;
//!   time: refuse, and name who has it    held, or none to be had: go on without
//!              │                                      │
//!   refuse: another scheduler,           refuse: another scheduler
//!   scx_loader; systemd is silent                     │
//!              │                          ┌─ pause: the metascheduler, if one runs
//!              │                          ├─ ask:  systemctl stop, or SIGTERM
//!   systemd and unit: systemctl start     ├─ kill: SIGKILL (the kernel
//!   else: detach scx_ufs, log, pid file   │                unloads on its own)
//!              │                          └─ kernel: SysRq-S
//!   wait until the kernel says `enabled`     each until the kernel says `disabled`
//!   and names ufs; the process ended         and the process has ended, or half of
//!   first: show the end of its log           the time that is left is over
//! ```
//!
//! The kernel's state decides, never that of a process: a scheduler's process may run
//! before its scheduler is loaded, and after the kernel has detached it. One lock, which only root can
//! open, serialises starts and stops; waiting for it counts towards the timeout.
//! Both are idempotent.
//!
//! Nothing that another user can do delays either: not the lock, nor a process's name, nor
//! files in `/run/giveway`. What root's own processes and systemd do is waited for until
//! the timeout is over; `stop` then goes on without them.
//!
//! A metascheduler would load UFS again in its next turn, and a unit whose process was
//! killed is started again by systemd. So the one is paused, and the other is told to stop
//! until it has heard.
//!
//! UFS gives cgroups weights at the kernel's locks, where it has CFL, and puts them back
//! when it is unloaded. A `stop` puts back what one has left that was killed, once no
//! scheduler is there.
//!
//! Known weakness: a `stop` that goes on without the lock may come before the other
//! command's load, which is then in force.

mod bounded;
mod process;
mod unit;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use giveway_machine::files;
use giveway_machine::lock_weights::{LockWeights, RECORD};
use giveway_machine::sched_ext::{SchedExt, State};
use giveway_metasched::daemon::{self, Status};
use giveway_metasched::scx_loader::{RIVAL_MAX, rival};
use giveway_metasched::supervisor::Standing;

use giveway_command::Failure;

pub(crate) use process::{Process, RUN_DIR, last_exit, meta_dir, program, run_dir};
use unit::Activity;
pub(crate) use unit::Unit;

/// What helps against type information that the kernel itself rejects. Kernels
/// of 7.1 and later pass implicit arguments to kfuncs, which pahole before 1.26
/// describes wrongly, so that every scheduler is refused.
pub(crate) const BTF_REMEDY: &str = "this kernel's BTF was made by too old a pahole: install a build of it made with \
     pahole 1.26 or newer (on Debian, linux-image-amd64, or -arm64, from sid rather than \
     backports)";

/// How UFS calls itself to the kernel.
pub(crate) const UFS: &str = "ufs";
/// What has the kernel unload any sched_ext scheduler.
const SYSRQ: &str = "/proc/sysrq-trigger";
/// How long systemd is given at least to take an order.
const ORDER_MIN: Duration = Duration::from_millis(200);
/// What makes room where scx_loader runs.
pub(crate) const LOADER_REMEDY: &str = "systemctl disable --now scx_loader";
/// How a program ends what it says of a wrong option.
const USAGE: &str = "For more information, try '--help'.";
const OPTION_REMEDY: &str = "correct the option, after 'giveway start --' or in /etc/default/giveway; \
     'scx_ufs --help' lists them";

/// Load the UFS scheduler
///
/// Starts scx_ufs, found beside this program or in PATH, and waits until the
/// kernel has it loaded. Where systemd runs and giveway.service is installed,
/// the unit is started, else a daemon that logs to /run/giveway/scx_ufs.log.
///
/// On a kernel with CFL, tiers and weights count at the kernel's locks, too, until UFS is
/// unloaded; 'scx_ufs --help' has them under --lock-weights.
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
/// The system goes on under Linux's own scheduler; no task is disturbed. A
/// metascheduler that would load it again is paused, until 'giveway meta resume' or the next boot.
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
    entitled("load", &kernel)?;
    let _turn = process::take_turn(end.left())?;
    alone(end.left())?;
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
    match Unit::installed(end.left() / 2)? {
        Some(unit) => {
            // Some of the time is for taking it back.
            unit.start(&args.options, end.left() * 3 / 4)?;
            let may_come = || matches!(unit.activity(), Activity::Live | Activity::Silent);
            let state = kernel.wait(end.left(), is_ufs, || !may_come());
            if !state.is(UFS) {
                unit.withdraw();
                return Err(failed_start(&state, &unit.log(), "journalctl -u giveway"));
            }
        }
        None => {
            let mut daemon = Process::start(&args.options)?;
            let state = kernel.wait(end.left(), is_ufs, || daemon.has_ended());
            if !state.is(UFS) {
                daemon.kill();
                process::forget();
                let log = process::log_path();
                let text = files::read(&log).unwrap_or_default();
                return Err(failed_start(&state, &text, &log.display().to_string()));
            }
        }
    }
    println!("UFS is loaded");
    Ok(())
}

/// Unloads UFS.
pub(crate) fn stop(args: &StopArgs) -> Result<(), Failure> {
    let kernel = kernel();
    let end = Deadline::after(args.timeout);
    if kernel.state() == State::Unsupported {
        println!("UFS is not loaded");
        return Ok(());
    }
    entitled("unload", &kernel)?;
    // The way back to Linux's own scheduler is open to root whatever hangs.
    let turn = process::take_turn(end.left() / 2);
    if let Err(failure) = &turn {
        note(format_args!(
            "going on without a lock: {}",
            failure.message()
        ));
    }
    if let State::Enabled(other) = kernel.state()
        && !kernel.state().is(UFS)
    {
        return Err(occupied(&other));
    }
    pause(&kernel, end.left() / 2);
    let mut process = Process::find(!is_out(&kernel.state()));
    let unit = Unit::possible().filter(|(_, activity)| *activity != Activity::Ended);
    // Nothing is known of a silent systemd's.
    let is_there = unit
        .as_ref()
        .is_some_and(|(_, activity)| *activity != Activity::Silent);
    let unit = unit.map(|(unit, _)| unit);
    if process.is_none() && !is_there {
        if is_out(&kernel.state()) {
            LockWeights::put_back_of(RECORD);
            println!("UFS is not loaded");
            return Ok(());
        }
        return Err(
            Failure::new("UFS is loaded, but its process is not to be found")
                .with_remedy("press SysRq-S, or echo S > /proc/sysrq-trigger, to unload it"),
        );
    }
    let mut order = unit.as_ref().map(Order::new);
    let mut is_killed = false;
    // Each way out takes half of the time that is left.
    for way in [Way::Ask, Way::Kill, Way::Kernel] {
        is_killed |= matches!(way, Way::Kill);
        way.take(order.as_mut(), process.as_mut(), end.left() / 2);
        let limit = match way {
            Way::Kernel => end.left(),
            _ => end.left() / 2,
        };
        if has_left(&kernel, unit.as_ref(), process.as_mut(), limit) {
            break;
        }
    }
    if !is_out(&kernel.state()) {
        return Err(Failure::new(format_args!(
            "the scheduler is still there after {} s",
            args.timeout
        ))
        .with_remedy("a longer --timeout; 'dmesg' says what the kernel waits for"));
    }
    if let Some(process) = &mut process
        && !process.has_ended()
    {
        let pid = process.pid();
        note(format_args!("process {pid} does not end, though killed"));
    }
    // What ends by itself when it is told to is not started again.
    if let Some(order) = &mut order
        && is_killed
        && !order.has_come(end.left())
    {
        note("systemd has not heard that giveway.service is to stop, and may start it again");
    }
    process::forget();
    LockWeights::put_back_of(RECORD);
    println!("UFS is unloaded");
    Ok(())
}

/// Has a metascheduler that follows its schedule leave the machine to Linux's own
/// scheduler, and waits for that. One that waits for another program's scheduler is left
/// alone.
fn pause(kernel: &SchedExt, limit: Duration) {
    let meta = process::meta_dir();
    if !daemon::is_running(&meta) || daemon::is_paused(&meta) {
        return;
    }
    let status = Status::read(&meta).ok().flatten();
    if status.is_some_and(|status| matches!(status.standing, Standing::Aside(_))) {
        note("the metascheduler goes on with its schedule; 'giveway meta pause' pauses it");
        return;
    }
    if let Err(error) = daemon::pause(&meta, true) {
        note(format_args!(
            "the metascheduler may load UFS again, for it cannot be paused: {error}"
        ));
        return;
    }
    note("the metascheduler is paused; 'giveway meta resume' has it go on");
    kernel.wait(limit, |_| false, || is_out(&kernel.state()));
}

/// The order to stop a unit, which is repeated until systemd has taken it.
struct Order<'a> {
    unit: &'a Unit,
    is_taken: bool,
}

impl<'a> Order<'a> {
    fn new(unit: &'a Unit) -> Self {
        Order {
            unit,
            is_taken: false,
        }
    }

    /// Gives it, unless systemd has it.
    fn give(&mut self, limit: Duration) -> Result<(), Failure> {
        if !self.is_taken {
            self.unit.stop(limit)?;
            self.is_taken = true;
        }
        Ok(())
    }

    /// Whether systemd takes it within `limit`; it is asked once at least.
    fn has_come(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if self.give(left.max(ORDER_MIN)).is_ok() || left.is_zero() {
                return self.is_taken;
            }
            thread::sleep(bounded::PAUSE);
        }
    }
}

/// How to have UFS leave.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// By asking, so that it reports why it leaves.
    Ask,
    /// SIGKILL, at which the kernel unloads what the process had loaded.
    Kill,
    /// By the kernel alone, should the process not even die.
    Kernel,
}

impl Way {
    /// Goes it, without waiting for what comes of it.
    fn take(self, order: Option<&mut Order<'_>>, process: Option<&mut Process>, limit: Duration) {
        match self {
            Way::Ask => {
                let asked = order.map(|order| order.give(limit));
                if let Some(Err(failure)) = &asked {
                    note(failure.message());
                }
                // A unit's process that is ended otherwise is started again.
                if let (None | Some(Err(_)), Some(process)) = (asked, process) {
                    process.terminate();
                }
            }
            Way::Kill => {
                note("scx_ufs does not answer; killing it");
                let killed = order.as_ref().map(|order| order.unit.kill(limit));
                if let Some(Err(failure)) = killed {
                    note(failure.message());
                }
                if let Some(process) = process {
                    process.kill();
                }
                // It would be started again.
                let told = order.map(|order| order.give(limit));
                if let Some(Err(failure)) = told {
                    note(failure.message());
                }
            }
            Way::Kernel => {
                note("scx_ufs does not end; having the kernel unload it (SysRq-S)");
                if let Err(error) = std::fs::write(SYSRQ, "S") {
                    note(format_args!("cannot write {SYSRQ}: {error}"));
                }
            }
        }
    }
}

/// Waits until UFS is out and has written its exit report, and until its unit, which may
/// have been about to load it, has ended; whether that has come about within `limit`.
fn has_left(
    kernel: &SchedExt,
    unit: Option<&Unit>,
    mut process: Option<&mut Process>,
    limit: Duration,
) -> bool {
    let mut has_left = false;
    kernel.wait(
        limit,
        |_| false,
        || {
            has_left = is_out(&kernel.state())
                && process.as_mut().is_none_or(|process| process.has_ended())
                && unit.is_none_or(|unit| {
                    !matches!(unit.activity(), Activity::Live | Activity::Leaving)
                });
            has_left
        },
    );
    has_left
}

/// Whether no scheduler is there, nor comes or goes.
fn is_out(state: &State) -> bool {
    !matches!(state, State::Enabled(_) | State::Changing(_))
}

fn note(text: impl std::fmt::Display) {
    eprintln!("giveway: note: {text}");
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

/// Refuses callers and kernels that cannot.
fn entitled(verb: &str, kernel: &SchedExt) -> Result<(), Failure> {
    if kernel.state() == State::Unsupported {
        return Err(Failure::new("this kernel has no sched_ext").with_remedy(
            "boot a kernel of 6.12 or newer with CONFIG_SCHED_CLASS_EXT=y, \
             or try UFS in 'giveway lab shell'",
        ));
    }
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(
            Failure::new(format_args!("only root may {verb} a scheduler")).with_remedy("use sudo"),
        ),
    }
}

/// Refuses a machine on which the scx project's loader decides which scheduler is
/// loaded: it would load another one when it is told to. Known within `patience`.
pub(crate) fn alone(patience: Duration) -> Result<(), Failure> {
    rival(patience.min(RIVAL_MAX)).map_or(Ok(()), |rival| Err(decides(&rival)))
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
    if tail.contains(USAGE) {
        return failure.with_remedy(OPTION_REMEDY);
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
        let usage = "error: invalid value\n\nFor more information, try '--help'.\n";
        let text = failed_start(&State::Disabled, usage, "LOG").to_string();
        assert!(text.contains("/etc/default/giveway"), "{text}");
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
