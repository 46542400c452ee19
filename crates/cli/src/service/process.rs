//! The `scx_ufs` process: finds it, starts it as a daemon with a pid file, ends it.
//!
//! The pid file is a hint: a process counts only if the kernel says that it is
//! called `scx_ufs`, and that root has started it, not in a container. Any user can give
//! a process that name. Without a file (a scheduler started by hand) the process
//! table is searched.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use giveway_metasched::Error;
use giveway_metasched::lock::Lock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setsid};

use giveway_command::{Context, Failure, program};

/// Where pid file, log and lock lie; gone after a reboot, as the process is.
pub(crate) const RUN_DIR: &str = "/run/giveway";
/// The scheduler's program, and the name the kernel gives its process.
const PROGRAM: &str = "scx_ufs";

/// Has one command at a time load or unload a scheduler, until what is returned is
/// dropped. Waits for another one no longer than `patience`.
pub(super) fn take_turn(patience: Duration) -> Result<Lock, Failure> {
    fs::create_dir_all(RUN_DIR).cannot(format_args!("make {RUN_DIR}"))?;
    Lock::take(&Path::new(RUN_DIR).join("lock"), patience).map_err(|error| match error {
        Error::Held { pid, .. } => {
            let failure = Failure::new(format_args!(
                "{error}: it loads or unloads a scheduler, and has not ended within {:.0} s",
                patience.as_secs_f64()
            ));
            match pid {
                Some(pid) => failure.with_remedy(format_args!(
                    "wait for it with a longer --timeout, or end it: kill {pid}"
                )),
                None => failure.with_remedy("wait for it with a longer --timeout"),
            }
        }
        error => Failure::new(error),
    })
}

pub(crate) fn log_path() -> PathBuf {
    Path::new(RUN_DIR).join("scx_ufs.log")
}

fn pid_path() -> PathBuf {
    Path::new(RUN_DIR).join("scx_ufs.pid")
}

/// Forgets the process that has ended; its log stays, for `status`.
pub(crate) fn forget() {
    let _ = fs::remove_file(pid_path());
}

/// A running `scx_ufs`.
pub(crate) struct Process {
    pid: i32,
    /// Set when this command started it, so that its end can be noticed.
    child: Option<Child>,
}

impl Process {
    /// Starts the program detached from this terminal.
    pub(crate) fn start(options: &[String]) -> Result<Self, Failure> {
        let program = self::program().ok_or_else(|| {
            Failure::new("scx_ufs is neither beside this program nor in PATH")
                .with_remedy("install it: make install")
        })?;
        let log = File::create(log_path()).cannot("make the log file")?;
        let log_too = log.try_clone().cannot("share the log file")?;
        let mut command = Command::new(&program);
        command
            .args(options)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_too);
        // SAFETY: setsid is a system call and allocates nothing.
        unsafe {
            command.pre_exec(|| {
                setsid()?;
                Ok(())
            });
        }
        let child = command
            .spawn()
            .cannot(format_args!("start {}", program.display()))?;
        let pid = child.id() as i32;
        fs::write(pid_path(), format!("{pid}\n")).cannot("write the pid file")?;
        Ok(Process {
            pid,
            child: Some(child),
        })
    }

    /// The running scheduler: that of the pid file, else any.
    pub(crate) fn find() -> Option<Self> {
        let remembered = fs::read_to_string(pid_path()).ok();
        remembered
            .and_then(|text| text.trim().parse().ok())
            .filter(|pid| is_scheduler(*pid))
            .or_else(|| {
                let names = fs::read_dir("/proc").ok()?.flatten();
                let mut pids = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
                pids.find(|pid| is_scheduler(*pid))
            })
            .map(|pid| Process { pid, child: None })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// How long it has run.
    pub(crate) fn age(&self) -> Option<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
        age(&stat, &uptime, ticks as f64)
    }

    /// Whether the child of this command has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        match &mut self.child {
            Some(child) => !matches!(child.try_wait(), Ok(None)),
            None => !is_scheduler(self.pid),
        }
    }

    /// Asks it to unload and end.
    pub(crate) fn terminate(&self) {
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGTERM);
    }

    /// Ends it; the kernel unloads what it had loaded.
    pub(crate) fn kill(&self) {
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
    }
}

/// The scheduler's program: beside this one first, then in PATH.
pub(crate) fn program() -> Option<PathBuf> {
    program::find(PROGRAM)
}

/// Whether the process runs the scheduler.
fn is_scheduler(pid: i32) -> bool {
    let dir = PathBuf::from(format!("/proc/{pid}"));
    let says = |file, holds: fn(&str) -> bool| {
        fs::read_to_string(dir.join(file)).is_ok_and(|text| holds(&text))
    };
    says("stat", is_live) && says("status", is_root_s) && is_outside_containers(&dir)
}

/// One that has ended and waits to be reaped does not run, though its entry still has
/// the name.
fn is_live(stat: &str) -> bool {
    let name = stat
        .split_once('(')
        .and_then(|(_, rest)| rest.rsplit_once(") "));
    name.is_some_and(|(name, rest)| name == PROGRAM && !rest.starts_with(['Z', 'X']))
}

/// Whether root has started it, by `/proc/PID/status`: the first of the numbers is the
/// user who has, which a program that is set to run as root leaves as it is.
fn is_root_s(status: &str) -> bool {
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.is_some_and(|uids| uids.split_whitespace().all(|uid| uid == "0"))
}

/// Whether it has the process numbers that we have. Only root can read this, and only
/// root ends processes by it.
fn is_outside_containers(dir: &Path) -> bool {
    let number = |dir: &Path| fs::metadata(dir.join("ns/pid")).map(|about| about.ino());
    match (number(dir), number(Path::new("/proc/self"))) {
        (Ok(its), Ok(ours)) => its == ours,
        (Err(error), _) => error.kind() == io::ErrorKind::PermissionDenied,
        (Ok(_), Err(_)) => false,
    }
}

/// A process's age from `/proc/PID/stat` and `/proc/uptime`.
fn age(stat: &str, uptime: &str, ticks_per_s: f64) -> Option<Duration> {
    // The program's name may hold blanks and parentheses: count after the last.
    let started: f64 = stat
        .rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()?;
    let now: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(now - started / ticks_per_s).ok()
}

/// Why the scheduler left last, in its own words: the last exit report in a
/// log. The scx project's loaders all print `EXIT: reason`.
pub(crate) fn last_exit(log: &str) -> Option<String> {
    log.lines()
        .rev()
        .find_map(|line| line.split_once("EXIT: "))
        .map(|(_, reason)| reason.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_is_counted_after_the_program_s_name() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 0 0 0 0 0 1 2 3 4 20 0 1 0 250 9 9";
        assert_eq!(
            age(stat, "12.5 20.0\n", 100.0),
            Some(Duration::from_secs(10))
        );
        assert_eq!(age("", "12.5", 100.0), None);
    }

    #[test]
    fn a_process_that_has_ended_is_no_scheduler() {
        assert!(is_live("7 (scx_ufs) S 1 7"));
        assert!(!is_live("7 (scx_ufs) Z 1 7"));
        assert!(!is_live("7 (scx_lavd) S 1 7"));
        assert!(!is_live(""));
    }

    #[test]
    fn a_program_that_runs_as_root_for_somebody_else_is_not_root_s() {
        assert!(is_root_s("Name:\tx\nUid:\t0\t0\t0\t0\n"));
        assert!(!is_root_s("Name:\tx\nUid:\t1000\t1000\t1000\t1000\n"));
        assert!(!is_root_s("Name:\tx\nUid:\t1000\t0\t0\t0\n"));
        assert!(!is_root_s("Name:\tx\n"));
    }

    #[test]
    fn the_last_exit_report_counts() {
        let log = "EXIT: old\nloaded\n[now] EXIT: runnable task stall (x failed)\nbye\n";
        assert_eq!(last_exit(log).unwrap(), "runnable task stall (x failed)");
        assert_eq!(last_exit("loaded\n"), None);
    }
}
