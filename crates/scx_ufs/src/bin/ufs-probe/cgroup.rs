//! Cgroups that vanish with their owner.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

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

    /// A cpuset partition of its own of these CPUs (`root` or `isolated`), with the
    /// cpu controller below it.
    pub(crate) fn partition(cpus: &str, kind: &str) -> Result<Self> {
        fs::write(
            Path::new(ROOT).join("cgroup.subtree_control"),
            "+cpu +cpuset",
        )
        .context("cannot enable the cpu and cpuset controllers")?;
        let partition = Self::create(Path::new(ROOT).join("ufs-probe-partition"))?;
        partition.set("cpuset.cpus", cpus)?;
        partition.set("cpuset.cpus.partition", kind)?;
        let state = fs::read_to_string(partition.path.join("cpuset.cpus.partition"))?;
        if state.trim() != kind {
            bail!(
                "the partition of CPUs {cpus} is '{}', not '{kind}'",
                state.trim()
            );
        }
        Ok(partition)
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
        self.set("cgroup.subtree_control", "+cpu")?;
        let child = Self::create(self.path.join(name))?;
        child.set_weight(weight)?;
        Ok(child)
    }

    pub(crate) fn set_weight(&self, weight: u32) -> Result<()> {
        self.set("cpu.weight", &weight.to_string())
    }

    /// Writes one of its files.
    pub(crate) fn set(&self, file: &str, value: &str) -> Result<()> {
        fs::write(self.path.join(file), value).with_context(|| {
            format!(
                "cannot write '{value}' to {file} of {}",
                self.path.display()
            )
        })
    }

    /// What one of its files says of `key`.
    pub(crate) fn get(&self, file: &str, key: &str) -> Result<u64> {
        let text = fs::read_to_string(self.path.join(file))?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let line = lines.find(|(name, _)| *name == key);
        let (_, value) = line.with_context(|| format!("no {key} in {file}"))?;
        Ok(value.parse()?)
    }

    /// Has `command` run in it from its start.
    pub(crate) fn admit(&self, command: &mut Command) {
        let procs = self.procs();
        // SAFETY: between fork and exec of a process with one thread.
        unsafe { command.pre_exec(move || fs::write(&procs, "0")) };
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
        Ok(self.get("cpu.stat", "usage_usec")? as f64 / 1e6)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..200 {
            // All at once: some may be forking.
            let _ = self.set("cgroup.kill", "1");
            if fs::remove_dir(&self.path).is_ok() || !self.path.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
