//! The kernel's fair server, switched off for one scheduler of the comparison.
//!
//! Since Linux 6.12 each CPU has a deadline server that gives NORMAL tasks 50 ms of each
//! second even if real-time tasks never leave. So RR has two properties that its row
//! mixes: round robin among the urgent, and a pause of up to 50 ms for each of them while
//! a background task runs. `rr-bare` is RR without the second.
//!
//! The setting is a file for each CPU in debugfs, in nanoseconds. Those that were there
//! before are written back when the value is dropped.
//!
//! Known weakness: a process that is killed leaves the server off until a restart or
//! until somebody writes the file. Without it a real-time task that does not sleep holds
//! its CPU for ever, which is why only a cell of `rr-bare` does this.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::error::{Error, Result};
use crate::harness::scheduler::Scheduler;

const DIR: &str = "/sys/kernel/debug/sched/fair_server";
const OFF: &str = "0";

/// A machine without the fair server; it is back when this is dropped.
#[derive(Debug)]
pub(crate) struct FairServer {
    /// Each CPU's file, and what was in it.
    before: Vec<(PathBuf, String)>,
}

impl FairServer {
    /// Switches it off if the scheduler is defined without it.
    ///
    /// # Errors
    /// A kernel without the server or without debugfs, and one that refuses.
    pub(crate) fn off_for(scheduler: &Scheduler) -> Result<Option<Self>> {
        (*scheduler == Scheduler::RrBare)
            .then(|| Self::off_in(Path::new(DIR)))
            .transpose()
    }

    fn off_in(dir: &Path) -> Result<Self> {
        let mut this = FairServer { before: Vec::new() };
        let cpus = fs::read_dir(dir).map_err(|source| {
            Error::Config(format!(
                "rr-bare needs {}, as root with Linux 6.12 or newer and debugfs mounted ({source}): \
                 leave it out",
                dir.display()
            ))
        })?;
        for cpu in cpus {
            let runtime = cpu
                .map_err(Error::file("list", dir))?
                .path()
                .join("runtime");
            let value = fs::read_to_string(&runtime).map_err(Error::file("read", &runtime))?;
            fs::write(&runtime, OFF).map_err(Error::file("write", &runtime))?;
            this.before.push((runtime, value.trim().to_owned()));
        }
        Ok(this)
    }
}

impl Drop for FairServer {
    fn drop(&mut self) {
        for (runtime, value) in &self.before {
            if let Err(error) = fs::write(runtime, value) {
                eprintln!(
                    "giveway: the fair server stays off: write {value} to {}: {error}",
                    runtime.display()
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtimes(dir: &Path) -> Vec<String> {
        let of = |cpu: &str| fs::read_to_string(dir.join(cpu).join("runtime")).unwrap();
        ["cpu0", "cpu1"].map(of).to_vec()
    }

    #[test]
    fn what_was_there_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        for (cpu, value) in [("cpu0", "50000000\n"), ("cpu1", "25000000\n")] {
            fs::create_dir(dir.path().join(cpu)).unwrap();
            fs::write(dir.path().join(cpu).join("runtime"), value).unwrap();
        }
        let off = FairServer::off_in(dir.path()).unwrap();
        assert_eq!(runtimes(dir.path()), ["0", "0"]);
        drop(off);
        assert_eq!(runtimes(dir.path()), ["50000000", "25000000"]);
    }

    #[test]
    fn a_refusal_in_the_middle_gives_back_what_was_taken() {
        let dir = tempfile::tempdir().unwrap();
        for cpu in ["cpu0", "cpu1"] {
            fs::create_dir(dir.path().join(cpu)).unwrap();
        }
        fs::write(dir.path().join("cpu0/runtime"), "50000000").unwrap();
        let error = FairServer::off_in(dir.path()).unwrap_err().to_string();
        assert!(error.contains("cpu1/runtime"), "{error}");
        let left = fs::read_to_string(dir.path().join("cpu0/runtime")).unwrap();
        assert_eq!(left, "50000000");
    }

    #[test]
    fn a_kernel_without_it_is_an_error_that_says_what_it_takes() {
        let error = FairServer::off_in(Path::new("/nowhere"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("6.12") && error.contains("debugfs"),
            "{error}"
        );
    }

    #[test]
    fn other_schedulers_keep_it() {
        for scheduler in Scheduler::PAPER {
            assert!(FairServer::off_for(&scheduler).unwrap().is_none());
        }
    }
}
