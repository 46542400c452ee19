//! Cgroups that vanish with their owner.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ROOT: &str = "/sys/fs/cgroup";

/// A cgroup; dropping it kills what is left in it and removes it.
pub(crate) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// The top of a scenario's cgroups.
    pub(crate) fn top() -> Result<Self> {
        let _ = fs::write(Path::new(ROOT).join("cgroup.subtree_control"), "+cpu");
        Self::create(Path::new(ROOT).join("ufs-probe"))
    }

    fn create(path: PathBuf) -> Result<Self> {
        if let Err(error) = fs::create_dir(&path)
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            return Err(error).with_context(|| {
                format!(
                    "cannot create {}: run as root, with cgroup v2",
                    path.display()
                )
            });
        }
        Ok(Self { path })
    }

    /// A child of this cgroup with that weight.
    pub(crate) fn child(&self, name: &str, weight: u32) -> Result<Self> {
        fs::write(self.path.join("cgroup.subtree_control"), "+cpu").with_context(|| {
            format!(
                "cannot enable the cpu controller in {}",
                self.path.display()
            )
        })?;
        let child = Self::create(self.path.join(name))?;
        child.set_weight(weight)?;
        Ok(child)
    }

    pub(crate) fn set_weight(&self, weight: u32) -> Result<()> {
        fs::write(self.path.join("cpu.weight"), weight.to_string())
            .with_context(|| format!("cannot set cpu.weight of {}", self.path.display()))
    }

    /// Sets `cpu.max`: a quota and a period in microseconds, or `max`.
    pub(crate) fn set_max(&self, max: &str) -> Result<()> {
        fs::write(self.path.join("cpu.max"), max)
            .with_context(|| format!("cannot set cpu.max of {} to {max}", self.path.display()))
    }

    /// Where processes are written to join.
    pub(crate) fn procs(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// CPU time used so far, in seconds, as the kernel counts it.
    pub(crate) fn seconds(&self) -> Result<f64> {
        let text = fs::read_to_string(self.path.join("cpu.stat"))?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "));
        let usec: f64 = line.context("no usage_usec in cpu.stat")?.parse()?;
        Ok(usec / 1e6)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..200 {
            for pid in fs::read_to_string(self.procs()).unwrap_or_default().lines() {
                if let Ok(pid) = pid.parse() {
                    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
                }
            }
            if fs::remove_dir(&self.path).is_ok() || !self.path.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
