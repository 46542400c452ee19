//! The `scx_ufs` process: finds it, starts it as a daemon with a pid file, ends it.
//!
//! The pid file is a hint: a process counts only if it is root's and runs that program,
//! not in a container ([`giveway_machine::process`]). Without a file (a scheduler started
//! by hand, a full disk) the process table is searched for one that has a scheduler
//! loaded. Others serve for something else, such as `scx_ufs --monitor` or the
//! metascheduler's standby, and count only while UFS is loaded and nothing better is found.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use giveway_machine::files;
use giveway_machine::lock::{Lock, LockError};
use giveway_machine::process::{self, Handle};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setsid};

use giveway_command::{Context, Failure, program};

/// Where pid file, log and lock lie; gone after a reboot, as the process is.
pub(crate) const RUN_DIR: &str = "/run/giveway";
/// The scheduler's program, and the name the kernel gives its process.
const PROGRAM: &str = "scx_ufs";

/// Sees to it that [`RUN_DIR`] is there, and that only root can write to it.
pub(crate) fn run_dir() -> Result<(), Failure> {
    files::directory(Path::new(RUN_DIR)).cannot(format_args!("use {RUN_DIR}"))
}

/// Has one command at a time load or unload a scheduler, until what is returned is
/// dropped. Waits for another one no longer than `patience`.
pub(super) fn take_turn(patience: Duration) -> Result<Lock, Failure> {
    run_dir()?;
    Lock::take(&Path::new(RUN_DIR).join("lock"), patience).map_err(|error| match error {
        LockError::Held { .. } => Failure::new(format_args!(
            "{error}: it loads or unloads a scheduler, and has not ended within {:.1} s",
            patience.as_secs_f64()
        ))
        .with_remedy(format_args!(
            "{} (--timeout says how long to wait)",
            error.remedy()
        )),
        LockError::File { .. } => Failure::new(&error).with_remedy(error.remedy()),
    })
}

/// Where the metascheduler's files lie.
pub(crate) fn meta_dir() -> PathBuf {
    Path::new(RUN_DIR).join("meta")
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
    pid: u32,
    kind: Kind,
}

enum Kind {
    /// This command started it. Its number stays its own until its end has been noticed.
    Child(Child),
    /// Another did.
    Found(Handle),
}

impl Process {
    /// Starts the program detached from this terminal.
    pub(crate) fn start(options: &[String]) -> Result<Self, Failure> {
        let program = self::program().ok_or_else(|| {
            Failure::new("scx_ufs is neither beside this program nor in PATH")
                .with_remedy("install it: make install")
        })?;
        let log =
            files::create(&log_path()).cannot(format_args!("make {}", log_path().display()))?;
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
        let pid = child.id();
        if let Err(error) = files::replace(&pid_path(), format!("{pid}\n").as_bytes()) {
            let path = pid_path();
            eprintln!("giveway: note: cannot write {}: {error}", path.display());
        }
        Ok(Process {
            pid,
            kind: Kind::Child(child),
        })
    }

    /// The running scheduler: that of the pid file, else one that has loaded one; else,
    /// if the kernel says that UFS is loaded, any.
    pub(crate) fn find(is_loaded: bool) -> Option<Self> {
        let found = |pid| {
            let kind = Kind::Found(Handle::of_root(pid, PROGRAM)?);
            Some(Process { pid, kind })
        };
        let remembered = files::read(&pid_path()).ok();
        let remembered = remembered.and_then(|text| text.trim().parse().ok());
        remembered.and_then(found).or_else(|| {
            let pids = process::of_root(PROGRAM);
            let loaded = pids.iter().copied().find(|pid| has_loaded(*pid));
            let any = || pids.first().copied().filter(|_| is_loaded);
            loaded.or_else(any).and_then(found)
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// How long it has run.
    pub(crate) fn age(&self) -> Option<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
        age(&stat, &uptime, ticks as f64)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        match &mut self.kind {
            Kind::Child(child) => !matches!(child.try_wait(), Ok(None)),
            Kind::Found(_) => !process::is_of_root(self.pid, PROGRAM),
        }
    }

    /// Asks it to unload and end; one that is stopped goes on for that.
    pub(crate) fn terminate(&mut self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    /// Ends it; the kernel unloads what it had loaded.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
    }

    fn signal(&mut self, signal: Signal) {
        match &mut self.kind {
            Kind::Child(child) => {
                if matches!(child.try_wait(), Ok(None)) {
                    let _ = kill(Pid::from_raw(self.pid as i32), signal);
                }
            }
            Kind::Found(handle) => handle.signal(signal as i32),
        }
    }
}

/// The scheduler's program: beside this one first, then in PATH.
pub(crate) fn program() -> Option<PathBuf> {
    program::find(PROGRAM)
}

/// Whether the process holds a scheduler that is attached, by what the kernel tells of
/// its descriptors.
fn has_loaded(pid: u32) -> bool {
    let infos = fs::read_dir(format!("/proc/{pid}/fdinfo"));
    let mut infos = infos.into_iter().flatten().flatten();
    infos.any(|info| fs::read_to_string(info.path()).is_ok_and(|text| is_scheduler(&text)))
}

/// Whether a descriptor is the link of a scheduler, by its `fdinfo`.
fn is_scheduler(fdinfo: &str) -> bool {
    let mut kinds = fdinfo
        .lines()
        .filter_map(|line| line.strip_prefix("link_type:"));
    kinds.any(|kind| kind.trim() == "struct_ops")
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
    fn the_loader_is_told_by_its_link() {
        let link = "pos:\t0\nflags:\t02000000\nlink_type:\tstruct_ops\nlink_id:\t5\n";
        assert!(is_scheduler(link));
        assert!(!is_scheduler("pos:\t0\nlink_type:\ttracing\n"));
        assert!(!is_scheduler("map_type:\t26\n"));
        assert!(!has_loaded(std::process::id()));
    }

    #[test]
    fn the_last_exit_report_counts() {
        let log = "EXIT: old\nloaded\n[now] EXIT: runnable task stall (x failed)\nbye\n";
        assert_eq!(last_exit(log).unwrap(), "runnable task stall (x failed)");
        assert_eq!(last_exit("loaded\n"), None);
    }
}
