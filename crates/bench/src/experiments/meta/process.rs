//! A program that an application consists of, as a process.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::harness::error::{Error, Result};
use crate::workload::postgres::last_lines;

/// One, in a process group of its own; killed when dropped, and with the thread that
/// started it.
#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    pub(super) child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it. What it says goes to a log in `dir`, but for an output that is piped.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(super) fn start(
        name: &'static str,
        dir: &Path,
        command: &mut Command,
        is_piped: bool,
    ) -> Result<Process> {
        let log = dir.join(format!("{name}.log"));
        let err = File::create(&log).map_err(Error::file("create", &log))?;
        let out = match is_piped {
            true => Stdio::piped(),
            false => err.try_clone().map_err(Error::file("open", &log))?.into(),
        };
        command.stdout(out).stderr(err).process_group(0);
        // SAFETY: prctl is async-signal-safe and takes no memory of ours.
        unsafe {
            command
                .pre_exec(|| nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(Into::into));
        }
        let path = PathBuf::from(command.get_program());
        let child = command.spawn().map_err(Error::file("start", &path))?;
        Ok(Process { name, child, log })
    }

    /// That it ended or does not answer, with its last lines.
    fn failed(&self, status: String) -> Error {
        Error::Program {
            program: self.name.to_owned(),
            status,
            output: last_lines(&fs::read_to_string(&self.log).unwrap_or_default()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has already ended.
        let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Waits until processes do what is wanted of them.
///
/// # Errors
/// [`Error::Program`] with the last lines of one that ends, or of the first if that takes
/// longer than `limit`.
pub(super) fn wait(
    processes: &mut [Process],
    limit: Duration,
    mut are_there: impl FnMut() -> bool,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !are_there() {
        let is_late = Instant::now() > deadline;
        for process in &mut *processes {
            let status = match process.child.try_wait() {
                Ok(Some(status)) => status.to_string(),
                _ if is_late => format!("no answer after {limit:?}"),
                _ => continue,
            };
            return Err(process.failed(status));
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
