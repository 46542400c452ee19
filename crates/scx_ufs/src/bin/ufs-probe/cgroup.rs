//! Cgroups that vanish with their owner.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use giveway_machine::cgroup::{self, MOUNT};

/// A cgroup; dropping it kills what is left in it and removes it.
pub(crate) struct Cgroup {
    files: cgroup::Cgroup,
}

impl Cgroup {
    /// The top of a scenario's cgroups.
    pub(crate) fn top() -> Result<Self> {
        let _ = cgroup::Cgroup::at(MOUNT).enable("+cpu");
        Self::create(Path::new(MOUNT).join("ufs-probe"))
    }

    /// A cpuset partition of its own of these CPUs (`root` or `isolated`), with the
    /// cpu controller below it.
    pub(crate) fn partition(cpus: &str, kind: &str) -> Result<Self> {
        cgroup::Cgroup::at(MOUNT)
            .enable("+cpu +cpuset")
            .context("cannot enable the cpu and cpuset controllers")?;
        let partition = Self::create(Path::new(MOUNT).join("ufs-probe-partition"))?;
        partition.set("cpuset.cpus", cpus)?;
        partition.set("cpuset.cpus.partition", kind)?;
        let state = partition.files.read("cpuset.cpus.partition")?;
        if state != kind {
            bail!("the partition of CPUs {cpus} is '{state}', not '{kind}'");
        }
        Ok(partition)
    }

    fn create(path: PathBuf) -> Result<Self> {
        let remedy = format!(
            "cannot create {}: run as root, with cgroup v2",
            path.display()
        );
        let files = cgroup::Cgroup::make(path).context(remedy)?;
        Ok(Self { files })
    }

    /// A child of this cgroup with that weight.
    pub(crate) fn child(&self, name: &str, weight: u32) -> Result<Self> {
        self.set("cgroup.subtree_control", "+cpu")?;
        let child = Self::create(self.files.file(name))?;
        child.set_weight(weight)?;
        Ok(child)
    }

    pub(crate) fn set_weight(&self, weight: u32) -> Result<()> {
        self.set("cpu.weight", &weight.to_string())
    }

    /// Writes one of its files.
    pub(crate) fn set(&self, file: &str, value: &str) -> Result<()> {
        self.files.write(file, value).with_context(|| {
            let dir = self.files.dir().display();
            format!("cannot write '{value}' to {file} of {dir}")
        })
    }

    /// What one of its files says of `key`.
    pub(crate) fn get(&self, file: &str, key: &str) -> Result<u64> {
        Ok(self.files.value(file, key)?)
    }

    /// Has `command` run in it from its start.
    pub(crate) fn admit(&self, command: &mut Command) {
        let procs = self.procs();
        // SAFETY: between fork and exec of a process with one thread.
        unsafe { command.pre_exec(move || fs::write(&procs, "0")) };
    }

    /// Sets `cpu.max`: a quota and a period in microseconds, or `max`.
    pub(crate) fn set_max(&self, max: &str) -> Result<()> {
        self.files.write("cpu.max", max).with_context(|| {
            let dir = self.files.dir().display();
            format!("cannot set cpu.max of {dir} to {max}")
        })
    }

    /// Where processes are written to join.
    pub(crate) fn procs(&self) -> PathBuf {
        self.files.file("cgroup.procs")
    }

    /// CPU time used so far, in seconds, as the kernel counts it.
    pub(crate) fn seconds(&self) -> Result<f64> {
        Ok(self.files.cpu_time()?.as_secs_f64())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..200 {
            // All at once: some may be forking.
            let _ = self.set("cgroup.kill", "1");
            if fs::remove_dir(self.files.dir()).is_ok() || !self.files.dir().exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
