//! The table of hint slots: made, pinned where its clients find it, kept.
//!
//! ```text
//! /run/giveway/bpf   a bpf file system of our own, root:GROUP 0750
//!   giveway_slots    the map, root:GROUP 0660
//! /run/giveway/hints.sock   passes the map on, see door.rs
//! ```
//!
//! systemd mounts `/sys/fs/bpf` for root alone, so a pin there would be of use
//! to nobody. Here file permission decides who may map the table; opening a
//! pinned map takes no capability.
//!
//! The pin outlives UFS: clients keep their mappings, and the next load goes on
//! with the same table if it has the wanted size and is of the same version.
//! Otherwise the old table is marked as replaced, which its clients notice, and
//! a new one is pinned.
//!
//! Preparing changes nothing that a UFS in force or its clients rely on;
//! publishing does, and is for whoever is about to attach.
//!
//! Slots of tasks that exit are taken back by UFS as they exit; those of tasks
//! that ended while UFS was not loaded, by the sweep here.
//!
//! Loaders publish and attach by turns, so that the one which the kernel refuses has
//! published nothing.
//!
//! Known weaknesses: of two loaders of which each is in force for a while, the one that
//! came later answers at the socket; when it ends, nobody does until the next one is
//! loaded. A thread number that comes into use again within the moment of a sweep may
//! lose its slot; it is treated as its cgroup is until it claims another.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use giveway_hints::slot::{NAME, SLOT_SIZE, Table};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType, OpenMapMut};
use log::{info, warn};
use nix::fcntl::Flock;
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::unistd::{Gid, Group, chown};

use crate::door;
use crate::sessions::Sessions;
use crate::turn;

/// How the table is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableOpts {
    pub dir: PathBuf,
    /// Pages, the header included.
    pub nr_slots: u32,
    /// Name or number of the group whose members may use it.
    pub group: Option<String>,
}

/// A table that is pinned, or about to be.
pub(crate) struct Keeper {
    dir: PathBuf,
    nr_slots: u32,
    gid: Gid,
    /// The number of the map that was pinned there when it was looked for, or has
    /// been by us.
    found: Option<u32>,
    /// What was found, if it cannot be used.
    replaces: Option<MapHandle>,
    /// As its clients see it, once it is published. Mapped once per load: a
    /// mapping is for ever.
    table: Option<Table>,
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
    /// Readies the directory, and gives `map` its size or the map already
    /// pinned there. To be called before the program is loaded.
    pub(crate) fn prepare(opts: &TableOpts, map: &mut OpenMapMut<'_>) -> Result<Self> {
        let gid = match &opts.group {
            Some(name) => gid_of(name)?,
            None => Group::from_name("giveway")?.map_or(Gid::from_raw(0), |group| group.gid),
        };
        let mut keeper = Self {
            dir: opts.dir.clone(),
            nr_slots: opts.nr_slots,
            gid,
            found: None,
            replaces: None,
            table: None,
        };
        keeper.mount()?;
        map.set_max_entries(opts.nr_slots)?;
        let path = keeper.path();
        if !path.exists() {
            return Ok(keeper);
        }
        let old = MapHandle::from_pinned_path(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        keeper.found = Some(old.info()?.info.id);
        if keeper.fits(&old) {
            map.reuse_fd(old.as_fd())?;
        } else {
            keeper.replaces = Some(old);
        }
        Ok(keeper)
    }

    pub(crate) fn nr_slots(&self) -> u32 {
        self.nr_slots
    }

    /// The table, once it is published.
    pub(crate) fn table(&self) -> Option<&Table> {
        self.table.as_ref()
    }

    /// Whether somebody else has changed the directory since [`Keeper::prepare`] looked.
    pub(crate) fn is_stale(&self) -> bool {
        let pinned = MapHandle::from_pinned_path(self.path()).and_then(|map| map.info());
        self.found != pinned.ok().map(|map| map.info.id)
    }

    /// Waits until no other loader publishes and attaches; none does until what is
    /// returned is dropped, or this process ends.
    pub(crate) fn take_turn(&self) -> Result<Flock<File>> {
        // What it publishes lies in this directory and below it.
        turn::take(self.dir.parent().unwrap_or(&self.dir))
    }

    fn path(&self) -> PathBuf {
        self.dir.join(NAME)
    }

    /// A bpf file system at the directory; a new one is open to root alone.
    fn mount(&self) -> Result<()> {
        let dir = &self.dir;
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        if statfs(dir)?.filesystem_type() != BPF_FS_MAGIC {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            mount(Some("bpf"), dir, Some("bpf"), flags, Some("mode=0750"))
                .with_context(|| format!("cannot mount a bpf file system at {}", dir.display()))?;
        }
        Ok(())
    }

    fn fits(&self, map: &MapHandle) -> bool {
        map.map_type() == MapType::Array
            && map.value_size() as usize == SLOT_SIZE
            && map.max_entries() == self.nr_slots
            && lookup_header(map).is_some_and(|page| page.starts_with(&self.header()))
    }

    /// How page 0 begins: magic, version, number of pages.
    fn header(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(b"giveway\0");
        bytes[8..12].copy_from_slice(&1u32.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.nr_slots.to_ne_bytes());
        bytes
    }

    /// Makes the loaded program's map the one that clients find.
    pub(crate) fn publish(&mut self, map: &mut libbpf_rs::MapMut<'_>) -> Result<()> {
        let path = self.path();
        if let Some(old) = self.replaces.take() {
            info!("the hint table has changed its size or version: clients open it again");
            retire(&old);
            fs::remove_file(&path)?;
            self.found = None;
        }
        if self.found.is_none() {
            let mut page = vec![0; SLOT_SIZE];
            page[..16].copy_from_slice(&self.header());
            map.update(&0u32.to_ne_bytes(), &page, MapFlags::ANY)?;
            map.pin(&path)?;
            self.found = Some(map.info()?.info.id);
        }
        chown(&self.dir, None, Some(self.gid))?;
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o750))?;
        chown(&path, None, Some(self.gid))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o660))?;
        let socket = self.dir.with_file_name("hints.sock");
        let descriptor = map.as_fd().try_clone_to_owned()?;
        let size = self.nr_slots as usize * SLOT_SIZE;
        // Most clients open the pin; those that cannot go without.
        if let Err(error) = door::serve(&socket, descriptor, size, self.gid) {
            warn!("the hint table is not passed on: {error:#}");
        }
        if self.table.is_none() {
            self.table = Some(Table::open(Some(&self.dir))?);
        }
        Ok(())
    }

    /// Takes back the slots of threads that are no more.
    pub(crate) fn sweep(&self) {
        let Some(table) = &self.table else { return };
        let mut everybody = None;
        let swept = table.reclaim(|tid, namespace| {
            let here = Path::new("/proc").join(tid.to_string()).exists();
            here && namespace == own_namespace()
                || everybody
                    .get_or_insert_with(Everybody::now)
                    .may_have(tid, namespace)
        });
        if swept > 0 {
            info!("took back {swept} hint slots of threads that have ended");
        }
    }

    /// Moves the owners of slots to where `sessions` has them.
    pub(crate) fn place(&self, sessions: &mut Sessions) {
        if let Some(table) = &self.table {
            sessions.round(table, own_namespace());
        }
    }
}

fn lookup_header(map: &MapHandle) -> Option<Vec<u8>> {
    map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .ok()
        .flatten()
}

/// Tells the clients of a table that another takes its place.
fn retire(map: &MapHandle) {
    if let Some(mut page) = lookup_header(map)
        && page.len() == SLOT_SIZE
    {
        page[32] = 1;
        if let Err(error) = map.update(&0u32.to_ne_bytes(), &page, MapFlags::ANY) {
            warn!("cannot retire the old hint table: {error}");
        }
    }
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
struct Everybody {
    names: HashSet<(u32, u32)>,
    /// Some process's namespace is hidden from us: whoever is missing may live.
    is_partial: bool,
}

impl Everybody {
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
    fn every_thread_of_this_process_is_found_alive() {
        let tid = nix::unistd::gettid().as_raw() as u32;
        assert!(Everybody::now().names.contains(&(tid, own_namespace())));
    }

    #[test]
    fn a_group_that_is_missing_is_named_with_the_remedy() {
        assert_eq!(gid_of("0").unwrap(), Gid::from_raw(0));
        let error = gid_of("no-such-group").unwrap_err().to_string();
        assert!(error.contains("groupadd"), "{error}");
    }
}
