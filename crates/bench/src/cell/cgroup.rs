//! The cgroups of a cell: made before it, removed after it. One for the clients
//! and one for each class of work ([`crate::cell::class`]), here those of MIN:MAX:
//!
//! ```text
//! /sys/fs/cgroup/giveway-bench/
//!   time_sensitive.clients   client CPUs
//!   time_sensitive.high      server CPUs, weight 10000
//!   background.low           server CPUs, weight 1
//! ```
//!
//! The same under every scheduler, but that CPU-IDLE's `background.low` has `cpu.idle` 1
//! in place of a weight. They are siblings, so that weights compare
//! directly under EEVDF, whose shares are relative to siblings; their names
//! begin with the label of a tier, from which UFS takes it. The server's own
//! processes are in the first class's.
//!
//! Where roles set priorities there are two, which keep clients and server on
//! their CPUs and say nothing else:
//!
//! ```text
//!   clients                  client CPUs
//!   server                   server CPUs
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use giveway_machine::cgroup::{self, Cgroup, MOUNT};
use giveway_tier::{Tier, Weight};

use crate::cell::class::Class;
use crate::cell::config::CellConfig;
use crate::cell::setup::By;
use crate::harness::error::{Error, Result};
use crate::harness::scheduler::Scheduler;

pub(super) const NAME: &str = "giveway-bench";
const REMEDY: &str = "Run as root on a machine with cgroup v2 and its cpu and cpuset controllers";

/// One cgroup; its processes move to the root and it is removed when dropped.
#[derive(Debug)]
pub(crate) struct Group(Cgroup);

impl Group {
    pub(crate) fn create(path: PathBuf) -> Result<Self> {
        // One that is there is left over from a run that was killed.
        let made = Cgroup::make(&path).map_err(failed("create it", &path))?;
        Ok(Group(made))
    }

    pub(crate) fn set(&self, file: &str, value: &str) -> Result<()> {
        let written = self.0.write(file, value);
        written.map_err(failed(
            &format!("write '{value}' to it"),
            &self.0.file(file),
        ))
    }

    /// What one of its files says.
    pub(crate) fn read(&self, file: &str) -> Result<String> {
        self.0
            .read(file)
            .map_err(failed("read it", &self.0.file(file)))
    }

    /// The file that the number of a thread of this process is written to, to move it.
    pub(crate) fn threads(&self) -> PathBuf {
        self.0.file("cgroup.threads")
    }

    /// CPU time that processes have spent in it.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        let path = self.0.file("cpu.stat");
        self.0.cpu_time().map_err(failed("read it", &path))
    }

    /// Moves a process with all its threads.
    pub(crate) fn add(&self, pid: i32) -> Result<()> {
        self.set("cgroup.procs", &pid.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Exiting processes keep a cgroup busy for a moment.
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            evacuate(&self.0);
            match fs::remove_dir(self.0.dir()) {
                Err(error)
                    if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
                // A cgroup that stays is harmless, and the next cell takes it
                // over.
                _ => return,
            }
        }
    }
}

/// Moves all processes of a cgroup to the root.
fn evacuate(group: &Cgroup) {
    for pid in group.processes().unwrap_or_default() {
        let _ = Cgroup::at(MOUNT).add(pid);
    }
}

fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let (what, path) = (what.to_owned(), path.to_owned());
    move |source| Error::Cgroup {
        what,
        path,
        source,
        remedy: REMEDY,
    }
}

/// Cgroups for threads of this process, which is in the one above them.
#[derive(Debug)]
pub(crate) struct ThreadGroups {
    groups: Vec<Group>,
    _process: Group,
    home: Cgroup,
}

impl ThreadGroups {
    /// Makes the cgroups, with these controllers (`+cpu`), and moves this process into the
    /// one above. Threads stay there until they are moved.
    pub(crate) fn create(controllers: &str, names: &[&str]) -> Result<Self> {
        let home = own_cgroup();
        let root = Cgroup::at(MOUNT);
        let control = root.file("cgroup.subtree_control");
        let what = format!("enable {controllers}");
        root.enable(controllers).map_err(failed(&what, &control))?;
        let process = Group::create(root.file(NAME))?;
        let threaded = |name: &&str| -> Result<Group> {
            let group = Group::create(process.0.file(name))?;
            group.set("cgroup.type", "threaded")?;
            Ok(group)
        };
        let groups = names.iter().map(threaded).collect::<Result<_>>()?;
        process.set("cgroup.subtree_control", controllers)?;
        process.add(std::process::id() as i32)?;
        Ok(ThreadGroups {
            groups,
            _process: process,
            home,
        })
    }

    /// One for each name, in their order.
    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }
}

impl Drop for ThreadGroups {
    fn drop(&mut self) {
        return_to(&self.home);
    }
}

/// What a cgroup on the server's CPUs is called, and what its share is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) name: String,
    pub(crate) weight: Weight,
    /// It has no weight but `cpu.idle` 1.
    pub(crate) is_idle: bool,
}

impl Share {
    /// That of a class.
    pub(super) fn of(class: &Class, scheduler: &Scheduler) -> Self {
        Share {
            name: class.group(),
            weight: class.weight,
            is_idle: *scheduler == Scheduler::CpuIdle && class.tier == Tier::Background,
        }
    }

    /// That of the clients, which are on CPUs of their own.
    pub(super) fn clients() -> Self {
        Share {
            name: format!("{}.clients", Tier::TimeSensitive),
            weight: Weight::DEFAULT,
            is_idle: false,
        }
    }

    /// Those of a cell: by roles there are none.
    pub(super) fn all(config: &CellConfig, classes: &[Class]) -> Vec<Self> {
        let of = |class| Share::of(class, &config.scheduler);
        match config.by {
            By::Cgroups => classes.iter().map(of).collect(),
            By::Roles => Vec::new(),
        }
    }
}

/// The cgroups of one cell. Fields are dropped in order: children first.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Clients, on their CPUs.
    pub(crate) clients: Group,
    /// One for each share, on the server's CPUs; without shares, one for all.
    groups: Vec<Group>,
    _parent: Group,
    /// Where this process was before the cell.
    home: Cgroup,
}

impl Drop for Tree {
    fn drop(&mut self) {
        return_to(&self.home);
    }
}

/// Moves this process to where it was. On failure it ends up in the root, when
/// its group goes.
fn return_to(home: &Cgroup) {
    let _ = home.add(std::process::id());
}

/// The cgroup of this process.
fn own_cgroup() -> Cgroup {
    let path = cgroup::own().ok().flatten().unwrap_or_default();
    Cgroup::below(MOUNT.as_ref(), &path)
}

impl Tree {
    /// The cgroups of a cell.
    pub(super) fn create(config: &CellConfig, shares: &[Share]) -> Result<Self> {
        let server = cpu_range(0, config.cpus);
        let clients = cpu_range(config.cpus, config.client_cpus);
        Tree::on(&server, &clients, shares)
    }

    /// Makes the cgroups on these CPUs, as cpuset writes them, and enables the
    /// controllers they need. Without shares there are two, which are nothing
    /// but sets of CPUs.
    pub(crate) fn on(server: &str, clients: &str, shares: &[Share]) -> Result<Self> {
        let home = own_cgroup();
        let root = Cgroup::at(MOUNT);
        let control = root.file("cgroup.subtree_control");
        root.enable("+cpu +cpuset")
            .map_err(failed("enable cpu and cpuset", &control))?;
        let parent = Group::create(root.file(NAME))?;
        parent.set("cgroup.subtree_control", "+cpu +cpuset")?;

        let plain = |name: &str, cpus: &str| -> Result<Group> {
            let group = Group::create(parent.0.file(name))?;
            group.set("cpuset.cpus", cpus)?;
            Ok(group)
        };
        let weighted = |share: &Share, cpus: &str| -> Result<Group> {
            let group = plain(&share.name, cpus)?;
            match share.is_idle {
                true => group.set("cpu.idle", "1")?,
                false => group.set("cpu.weight", &share.weight.to_string())?,
            }
            Ok(group)
        };
        let (clients, groups) = match shares {
            [] => (plain("clients", clients)?, vec![plain("server", server)?]),
            shares => {
                let groups = shares.iter().map(|share| weighted(share, server));
                let clients = weighted(&Share::clients(), clients)?;
                (clients, groups.collect::<Result<_>>()?)
            }
        };
        Ok(Tree {
            clients,
            groups,
            _parent: parent,
            home,
        })
    }

    /// The server's own.
    pub(crate) fn server(&self) -> &Group {
        &self.groups[0]
    }

    /// One for each share, in their order; without shares, the server's.
    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }
}

/// `count` CPUs from `first` on, as cpuset writes them.
pub(crate) fn cpu_range(first: u32, count: u32) -> String {
    format!("{first}-{}", first + count - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ranges_are_adjacent() {
        assert_eq!(cpu_range(0, 4), "0-3");
        assert_eq!(cpu_range(4, 2), "4-5");
    }

    #[test]
    fn a_failure_names_the_remedy() {
        let error = Group::create(PathBuf::from("/nowhere/group"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("cgroup v2") && error.contains("/nowhere/group"),
            "{error}"
        );
    }
}
