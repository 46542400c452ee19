//! The cgroups of the two applications: threads of this process, and the processes that
//! they start.
//!
//! ```text
//! /sys/fs/cgroup/giveway-meta/
//!   oltp/    serve   clients and servers       upkeep   hungry outside bursts
//!   batch/   jobs    workers                   upkeep   hungry outside windows
//! ```
//!
//! An application is a cgroup, and UFS takes its tier from the name. What an
//! application demands as such is that of `serve` and of `jobs`.

use std::fs;
use std::path::{Path, PathBuf};

use giveway_machine::cgroup::{Cgroup, MOUNT};

use crate::cell::cgroup::Group;
use crate::harness::error::{Error, Result};

const NAME: &str = "giveway-meta";

/// A cgroup for threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadGroup {
    /// Of OLTP's clients and servers.
    Serve,
    /// Of OLTP's upkeep.
    OltpUpkeep,
    /// Of batch jobs.
    Jobs,
    /// Of their upkeep.
    BatchUpkeep,
}

impl ThreadGroup {
    fn path(self) -> &'static str {
        match self {
            ThreadGroup::Serve => "oltp/serve",
            ThreadGroup::OltpUpkeep => "oltp/upkeep",
            ThreadGroup::Jobs => "batch/jobs",
            ThreadGroup::BatchUpkeep => "batch/upkeep",
        }
    }

    /// As configurations of the metascheduler name it.
    pub(super) fn cgroup(self) -> String {
        format!("/{NAME}/{}", self.path())
    }

    /// Moves the calling thread there.
    pub(super) fn enter(self) -> Result<()> {
        move_to(&self.dir())
    }

    /// Does something there and comes back to the top: a process that is started
    /// meanwhile stays.
    pub(super) fn within<T>(self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.enter()?;
        let done = work();
        move_to(&top())?;
        done
    }

    /// Stops what is there, or lets it go on. Threads that share a lock with others must
    /// not be there.
    pub(super) fn freeze(self, is_frozen: bool) -> Result<()> {
        let file = self.dir().join("cgroup.freeze");
        let value = u8::from(is_frozen).to_string();
        fs::write(&file, value).map_err(Error::file("write", &file))
    }

    fn dir(self) -> PathBuf {
        top().join(self.path())
    }
}

fn top() -> PathBuf {
    Path::new(MOUNT).join(NAME)
}

/// Moves the calling thread to a cgroup.
fn move_to(dir: &Path) -> Result<()> {
    let file = dir.join("cgroup.threads");
    // SAFETY: gettid takes nothing and cannot fail.
    let thread = unsafe { libc::gettid() };
    fs::write(&file, thread.to_string()).map_err(Error::file("write", &file))
}

/// Made, with this process in the one at the top. Inner ones are dropped first.
#[derive(Debug)]
pub(super) struct Groups(#[allow(dead_code, reason = "removed when dropped")] Vec<Group>);

impl Groups {
    /// Makes them.
    ///
    /// # Errors
    /// [`Error::Cgroup`] and [`Error::File`], where cgroups cannot be made.
    pub(super) fn make() -> Result<Groups> {
        let root = Cgroup::at(MOUNT);
        let control = root.file("cgroup.subtree_control");
        root.enable("+cpu")
            .map_err(Error::file("write", &control))?;
        let top = root.file(NAME);
        let outer = Group::create(top.clone())?;
        let mut groups = Vec::new();
        let threaded = |path: PathBuf| {
            let group = Group::create(path)?;
            group.set("cgroup.type", "threaded")?;
            Ok::<Group, Error>(group)
        };
        for application in ["oltp", "batch"] {
            groups.push(threaded(top.join(application))?);
        }
        outer.set("cgroup.subtree_control", "+cpu")?;
        for group in &groups {
            group.set("cgroup.subtree_control", "+cpu")?;
        }
        for place in [
            ThreadGroup::Serve,
            ThreadGroup::OltpUpkeep,
            ThreadGroup::Jobs,
            ThreadGroup::BatchUpkeep,
        ] {
            groups.insert(0, threaded(top.join(place.path()))?);
        }
        outer.add(std::process::id() as i32)?;
        groups.push(outer);
        Ok(Groups(groups))
    }
}
