//! Where clients find the tables of hint slots, and how slots of dead threads become free.
//!
//! ```text
//! /run/giveway/bpf   a bpf file system of our own, root:GROUP 0750
//!   giveway_slots    root's table, and in directories those of others: see users.rs
//! /run/giveway/hints.sock   passes the fds of users' tables, see fd_server.rs
//! ```
//!
//! Preparing changes nothing that an attached UFS or its clients rely on; publishing
//! does, so it is done just before attaching.
//!
//! UFS frees the slot of a task when the task exits; the sweep here frees those of tasks
//! that ended while UFS was not loaded.
//!
//! Loaders publish and attach one at a time, so a loader that the kernel refuses has
//! published nothing.
//!
//! Known weaknesses: of two loaders that are attached in turn, the later one serves the
//! socket; when it ends, none does until the next one is loaded. A thread number that comes
//! into use again within the moment of a sweep may lose its slot; it is treated as its cgroup
//! is until it claims another.

use std::collections::HashSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use giveway_hints::slot::Table;
use giveway_machine::lock::Lock;
use libbpf_rs::MapHandle;
use log::{info, warn};
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::unistd::{Gid, Group, chown};

use crate::fd_server;
use crate::sessions::Sessions;
use crate::users::Tables;

/// The lock's name. Locks of older versions have another, which others can open.
const LOCK: &str = "loader.lock";
/// How long a loader waits for another, which attaches in far less.
const LOCK_MAX: Duration = Duration::from_secs(30);

/// How the table is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableOpts {
    pub dir: PathBuf,
    /// Pages, the header included.
    pub nr_slots: u32,
    /// Name or number of the group whose members may use it.
    pub group: Option<String>,
}

/// The tables that are pinned, or about to be.
pub(crate) struct Keeper {
    dir: PathBuf,
    nr_slots: u32,
    gid: Gid,
    /// None until the program is loaded. The fd server has it, too.
    tables: Option<Arc<Mutex<Tables>>>,
}

/// The group of this name or number.
pub(crate) fn gid_of(name: &str) -> Result<Gid> {
    if let Ok(number) = name.parse() {
        return Ok(Gid::from_raw(number));
    }
    match Group::from_name(name)? {
        Some(group) => Ok(group.gid),
        None => bail!("there is no group '{name}': groupadd --system {name}"),
    }
}

impl Keeper {
    /// Readies the directory.
    pub(crate) fn prepare(opts: &TableOpts) -> Result<Self> {
        let gid = match &opts.group {
            Some(name) => gid_of(name)?,
            None => Group::from_name("giveway")?.map_or(Gid::from_raw(0), |group| group.gid),
        };
        let keeper = Self {
            dir: opts.dir.clone(),
            nr_slots: opts.nr_slots,
            gid,
            tables: None,
        };
        keeper.mount()?;
        Ok(keeper)
    }

    /// Notes the loaded program's maps: of the tables, and of whose they are.
    pub(crate) fn serve(&mut self, maps: MapHandle, users: MapHandle) {
        let tables = Tables::new(&self.dir, self.nr_slots, maps, users);
        self.tables = Some(Arc::new(Mutex::new(tables)));
    }

    pub(crate) fn nr_slots(&self) -> u32 {
        self.nr_slots
    }

    /// Users and their tables, by the tables' numbers; none before they are published.
    pub(crate) fn tables(&self) -> Vec<(u32, Table)> {
        self.locked().map_or_else(Vec::new, |tables| tables.all())
    }

    /// Each change of the tables is whole, also if it failed.
    fn locked(&self) -> Option<MutexGuard<'_, Tables>> {
        let tables = self.tables.as_ref()?;
        Some(tables.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until no other loader publishes and attaches; none does until what is
    /// returned is dropped, or this process ends.
    pub(crate) fn lock_loaders(&self) -> Result<Lock> {
        // What it publishes lies in this directory and below it.
        let path = self.dir.with_file_name(LOCK);
        Lock::take(&path, LOCK_MAX)
            .map_err(|error| anyhow!("{error}: {}; or try --no-hints", error.remedy()))
    }

    /// A bpf file system at the directory; a new one is open to root alone.
    fn mount(&self) -> Result<()> {
        let dir = &self.dir;
        // Not for others to write to, whatever the umask is.
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o755).create(dir);
        made.with_context(|| format!("cannot make {}", dir.display()))?;
        if statfs(dir)?.filesystem_type() != BPF_FS_MAGIC {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            mount(Some("bpf"), dir, Some("bpf"), flags, Some("mode=0750"))
                .with_context(|| format!("cannot mount a bpf file system at {}", dir.display()))?;
        }
        Ok(())
    }

    /// Has clients find the tables, which the loaded program is to read.
    pub(crate) fn publish(&mut self) -> Result<()> {
        let Some(tables) = self.tables.clone() else {
            return Ok(());
        };
        if let Some(mut tables) = self.locked() {
            tables.publish()?;
        }
        chown(&self.dir, None, Some(self.gid))?;
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o750))?;
        let socket = self.dir.with_file_name("hints.sock");
        // Root's programs open the pin.
        if let Err(error) = fd_server::serve(&socket, tables, self.gid) {
            warn!("only root gets hint tables: cannot serve their fds: {error:#}");
        }
        Ok(())
    }

    /// Frees the slots of threads that have ended.
    pub(crate) fn sweep(&self) {
        let swept: usize = self.tables().iter().map(|(_, table)| sweep(table)).sum();
        if swept > 0 {
            info!("freed {swept} hint slots of threads that have ended");
        }
    }

    /// Moves the owners of slots to where `sessions` has them.
    pub(crate) fn place(&self, sessions: &mut Sessions) {
        sessions.round(&self.tables(), own_namespace());
    }
}

/// Frees the slots of a table whose threads have ended; returns how many.
///
/// The threads of other namespaces are listed once, after all owners were read: a thread
/// that begins later owns none of these slots, though it may own one by then.
fn sweep(table: &Table) -> usize {
    let mut all = None;
    table.reclaim(|tid, namespace| {
        let here = Path::new("/proc").join(tid.to_string()).exists();
        here && namespace == own_namespace()
            || all
                .get_or_insert_with(AllThreads::now)
                .may_have(tid, namespace)
    })
}

/// The inode number of a process's pid namespace.
fn namespace(process: &str) -> io::Result<u32> {
    let about = fs::metadata(format!("/proc/{process}/ns/pid"))?;
    Ok(about.ino() as u32)
}

fn own_namespace() -> u32 {
    namespace("self").unwrap_or(0)
}

/// Every thread of the machine, by its number in its own namespace.
struct AllThreads {
    names: HashSet<(u32, u32)>,
    /// Some process's namespace is hidden from us: a missing thread may be alive.
    is_partial: bool,
}

impl AllThreads {
    fn now() -> Self {
        let mut names = HashSet::new();
        let mut is_partial = false;
        for process in numbers("/proc") {
            let namespace = match namespace(&process) {
                Ok(namespace) => namespace,
                Err(error) => {
                    is_partial |= error.kind() == io::ErrorKind::PermissionDenied;
                    continue;
                }
            };
            for thread in numbers(&format!("/proc/{process}/task")) {
                let path = format!("/proc/{process}/task/{thread}/status");
                let status = fs::read_to_string(path).unwrap_or_default();
                if let Some(tid) = innermost(&status) {
                    names.insert((tid, namespace));
                }
            }
        }
        Self { names, is_partial }
    }

    fn may_have(&self, tid: u32, namespace: u32) -> bool {
        self.is_partial || self.names.contains(&(tid, namespace))
    }
}

/// The entries of a directory that are numbers.
fn numbers(dir: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect()
}

/// A thread's number in its own namespace: the last of `NSpid`.
fn innermost(status: &str) -> Option<u32> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_s_own_number_is_the_innermost() {
        assert_eq!(innermost("Name:\tx\nNSpid:\t4711\t12\t3\n"), Some(3));
        assert_eq!(innermost("Name:\tx\n"), None);
    }

    #[test]
    fn threads_of_this_process_are_alive() {
        let tid = nix::unistd::gettid().as_raw() as u32;
        assert!(AllThreads::now().names.contains(&(tid, own_namespace())));
    }

    #[test]
    fn error_for_a_missing_group_names_the_remedy() {
        assert_eq!(gid_of("0").unwrap(), Gid::from_raw(0));
        let error = gid_of("no-such-group").unwrap_err().to_string();
        assert!(error.contains("groupadd"), "{error}");
    }
}
