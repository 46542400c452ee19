//! A sched_ext scheduler as a program: started, found in force, and stopped.
//!
//! The kernel says in `/sys/kernel/sched_ext/state` whether one is in force and
//! in `root/ops` which. A scheduler's name there is that of its program without
//! `scx_`, followed by a version, so it is compared by prefix.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::config::Scheduler;
use crate::files::PrivateDir;
use crate::postgres::last_lines;
use crate::{Error, Result};

const KERNEL: &str = "/sys/kernel/sched_ext";
/// Loading includes the verifier, which takes seconds on a slow machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// A scheduler that this process started; stopped when dropped.
#[derive(Debug)]
pub(crate) struct Loaded {
    child: Child,
    program: String,
    log: PathBuf,
    _dir: PrivateDir,
}

fn kernel_says(file: &str) -> String {
    fs::read_to_string(Path::new(KERNEL).join(file))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Whether the kernel's `ops` is the scheduler of `program`.
fn is_ops_of(ops: &str, program: &str) -> bool {
    let name = program.strip_prefix("scx_").unwrap_or(program);
    ops.strip_prefix(name)
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
}

impl Loaded {
    /// Starts the scheduler, if it is a sched_ext one, and waits until it is in
    /// force. For the others, makes sure that none is. Without a command its
    /// program is looked for in PATH.
    pub(crate) fn start(scheduler: &Scheduler, command: &[String]) -> Result<Option<Self>> {
        if kernel_says("state") == "enabled" {
            return Err(Error::Config(format!(
                "the sched_ext scheduler {} is in force: stop it first (`giveway stop`, or end \
                 its program)",
                kernel_says("root/ops")
            )));
        }
        let Some(program) = scheduler.program() else {
            return Ok(None);
        };
        if !Path::new(KERNEL).exists() {
            return Err(Error::Config(format!(
                "{program} needs a kernel with sched_ext (6.12 or newer, CONFIG_SCHED_CLASS_EXT)"
            )));
        }
        let default = [program.clone()];
        let command = match command {
            [] => &default,
            given => given,
        };
        let dir = PrivateDir::new(&std::env::temp_dir(), None)?;
        let log = dir.path().join("log");
        let out = File::create(&log).map_err(Error::file("create", &log))?;
        let err = out.try_clone().map_err(Error::file("open", &log))?;
        let child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(Error::file("start", command[0].as_ref()))?;
        let mut this = Loaded {
            child,
            program,
            log,
            _dir: dir,
        };
        this.wait_until_enabled()?;
        Ok(Some(this))
    }

    fn wait_until_enabled(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let (state, ops) = (kernel_says("state"), kernel_says("root/ops"));
            if state == "enabled" && is_ops_of(&ops, &self.program) {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.failure(format!("ended instead of starting ({status})")));
            }
            if Instant::now() > deadline {
                let reason = format!("not in force after {START_TIMEOUT:?} (state '{state}')");
                return Err(self.failure(reason));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn failure(&self, reason: String) -> Error {
        let output = last_lines(&fs::read_to_string(&self.log).unwrap_or_default());
        Error::Scheduler {
            name: self.program.clone(),
            reason,
            output,
        }
    }

    /// The scheduler's name and version, after making sure that the kernel did
    /// not throw it out.
    pub(crate) fn confirm(&self) -> Result<String> {
        let (state, ops) = (kernel_says("state"), kernel_says("root/ops"));
        if state == "enabled" && is_ops_of(&ops, &self.program) {
            return Ok(ops);
        }
        // Its exit report takes a moment to be written.
        std::thread::sleep(Duration::from_secs(1));
        Err(self.failure(format!(
            "no longer in force at the end of the window (state '{state}')"
        )))
    }

    /// Stops it and waits until the kernel's own scheduler is back.
    pub(crate) fn stop(mut self) -> Result<()> {
        let status = self.end()?;
        if status.success() {
            return Ok(());
        }
        Err(self.failure(format!("reported a failure when it was stopped ({status})")))
    }

    fn end(&mut self) -> Result<ExitStatus> {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let deadline = Instant::now() + STOP_TIMEOUT;
        loop {
            let ended = self
                .child
                .try_wait()
                .map_err(Error::file("wait for", &self.log))?;
            if let Some(status) = ended.filter(|_| kernel_says("state") != "enabled") {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(self.failure(format!("did not stop within {STOP_TIMEOUT:?}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.end().is_err() {
            // The kernel unloads a scheduler whose program is gone.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The kernel times BPF programs while this lives.
#[derive(Debug)]
pub(super) struct Timed(());

impl Timed {
    const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

    pub(super) fn start() -> Result<Self> {
        fs::write(Self::SWITCH, "1").map_err(Error::file("write to", Self::SWITCH.as_ref()))?;
        Ok(Timed(()))
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        let _ = fs::write(Self::SWITCH, "0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_is_known_by_its_name_and_not_by_a_longer_one() {
        assert!(is_ops_of("ufs", "scx_ufs"));
        assert!(is_ops_of("ufs_1.0.0_x86_64_unknown_linux_gnu", "scx_ufs"));
        assert!(!is_ops_of("ufs2_1.0", "scx_ufs"));
        assert!(!is_ops_of("bpfland_1.1.4", "scx_ufs"));
        assert!(!is_ops_of("", "scx_ufs"));
    }
}
