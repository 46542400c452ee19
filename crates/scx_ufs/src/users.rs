//! A table of hint slots for each user.
//!
//! A process that maps a table may write all of it, so its hints apply to its user's
//! tasks only (`bpf/hints.bpf.h`), and only that user may map it:
//!
//! ```text
//! DIR/giveway_slots        root's table
//! DIR/1000/giveway_slots   that of user 1000
//! ```
//!
//! All pins belong to root, with mode 0600. Root has a table from the start; the fd server
//! makes one for each other user with the right at its first request. Pins outlive UFS:
//! the next load uses the same tables if they have the right size and version and no
//! other user can have opened them. Others are marked as replaced, which their clients
//! notice, and unpinned.
//!
//! Invariants
//! 1. A map is passed only to the user whose table it is. (asserted in `of`: no two
//!    users have the same map)
//! 2. A pinned map with another owner or mode is not used again, since others may have
//!    it mapped. (not asserted: `is_private` asks the file system, which may change)
//! 3. A table is entered for the program after it has its header and before its user
//!    gets it (asserted in `enter`); numbers do not change while the program is attached
//!    (not asserted: tables are only appended then).
//!
//! Known weaknesses: a process that maps its table and then becomes another user keeps
//! the mapping. There are [`TABLES_MAX`] tables at most, of 16384 pages together:
//! users beyond them have none, until a load finds tables in which no slot is in use.

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use giveway_hints::slot::{NAME, SLOT_SIZE, Table, dir_of};
use libbpf_rs::libbpf_sys::{BPF_F_INNER_MAP, BPF_F_MMAPABLE, bpf_map_create_opts};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};
use log::{info, warn};
use nix::unistd::Uid;

use crate::bpf_intf;

pub(crate) const TABLES_MAX: usize = bpf_intf::ufs_limits_UFS_TABLES_MAX as usize;

/// One user's.
struct UserTable {
    uid: u32,
    map: MapHandle,
    /// The map's number in the kernel.
    number: u32,
    /// As its clients see it. Mapped once: a mapping is for ever.
    table: Table,
}

/// What the loaded program is told: the maps, by number, and whose they are.
struct Program {
    maps: MapHandle,
    users: MapHandle,
}

/// All of them, in the order of their numbers. Root's is the first.
pub(crate) struct Tables {
    dir: PathBuf,
    nr_slots: u32,
    program: Program,
    tables: Vec<UserTable>,
}

/// Bits of a slot's number that are its page's.
pub(crate) fn slot_bits(nr_slots: u32) -> u32 {
    nr_slots.next_power_of_two().trailing_zeros()
}

/// How page 0 begins: magic, version, number of pages.
fn header(nr_slots: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(b"giveway\0");
    bytes[8..12].copy_from_slice(&1u32.to_ne_bytes());
    bytes[12..].copy_from_slice(&nr_slots.to_ne_bytes());
    bytes
}

fn lookup_header(map: &MapHandle) -> Option<Vec<u8>> {
    map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .ok()
        .flatten()
}

/// Where page 0 says which load of UFS reads the table, and that another takes its place.
const SCHEDULER: std::ops::Range<usize> = 24..32;
const REPLACED: usize = 32;

/// Tells the clients of a table that another takes its place.
fn retire(map: &MapHandle) {
    if let Some(mut page) = lookup_header(map)
        && page.len() == SLOT_SIZE
    {
        page[REPLACED] = 1;
        if let Err(error) = map.update(&0u32.to_ne_bytes(), &page, MapFlags::ANY) {
            warn!("cannot retire the old hint table: {error}");
        }
    }
}

impl Tables {
    /// None yet, in `dir`, for the program whose maps these are.
    pub(crate) fn new(dir: &Path, nr_slots: u32, maps: MapHandle, users: MapHandle) -> Self {
        Self {
            dir: dir.to_path_buf(),
            nr_slots,
            program: Program { maps, users },
            tables: Vec::new(),
        }
    }

    /// Goes on with the tables that are pinned, and enters them for the program, which
    /// must not be attached.
    pub(crate) fn publish(&mut self) -> Result<()> {
        let mut known = std::mem::take(&mut self.tables);
        for uid in pinned(&self.dir) {
            let found = self.find(uid, &mut known);
            self.tables.extend(found);
        }
        while self.tables.len() > self.room() {
            // Root's comes first, and stays.
            let unused = |table: &UserTable| table.table.usage().0 == 0;
            let at = self.tables.iter().skip(1).position(unused);
            let Some(table) = at
                .map(|at| self.tables.remove(at + 1))
                .or(self.tables.pop())
            else {
                break;
            };
            self.forget(table.uid, Some(&table.map))?;
        }
        match self.tables.first() {
            Some(first) if first.uid == 0 => self.enter(0),
            _ => {
                let table = self.make(0)?;
                self.tables.insert(0, table);
                self.tables.truncate(self.room());
                self.enter(0)
            }
        }
    }

    /// The table of this user, which is made if there is none.
    ///
    /// # Errors
    /// There are as many as there can be, or the kernel could not make it.
    pub(crate) fn of(&mut self, uid: u32) -> Result<&MapHandle> {
        self.add(uid)?;
        let found = self.tables.iter().find(|table| table.uid == uid);
        let found = found.context("it was made just now")?;
        let same = |table: &&UserTable| table.number == found.number;
        debug_assert_eq!(
            self.tables.iter().filter(same).count(),
            1,
            "two users have the map {}",
            found.number
        );
        Ok(&found.map)
    }

    /// Bytes of each.
    pub(crate) fn size(&self) -> usize {
        self.nr_slots as usize * SLOT_SIZE
    }

    /// Users and their tables; the position is the table's number.
    pub(crate) fn all(&self) -> Vec<(u32, Table)> {
        let tables = self.tables.iter();
        tables.map(|table| (table.uid, table.table)).collect()
    }

    /// How many tables there can be.
    fn room(&self) -> usize {
        let slots = bpf_intf::ufs_limits_UFS_SLOTS_MAX >> slot_bits(self.nr_slots);
        TABLES_MAX.min(slots as usize)
    }

    fn path(&self, uid: u32) -> PathBuf {
        dir_of(&self.dir, uid).join(NAME)
    }

    /// What is pinned as this user's, or nothing if it is of no use: then the pin goes.
    fn find(&self, uid: u32, known: &mut Vec<UserTable>) -> Option<UserTable> {
        let path = self.path(uid);
        if !path.exists() {
            return None;
        }
        let map = MapHandle::from_pinned_path(&path).ok();
        let fitting = map
            .as_ref()
            .filter(|map| self.fits(map) && is_private(&path));
        let found = fitting.and_then(|map| self.open(uid, map, known));
        if found.is_none() {
            info!(
                "the hint table of user {uid} has changed its size, version or owner, or cannot \
                 be written: clients open it again"
            );
            if let Err(error) = self.forget(uid, map.as_ref()) {
                warn!("{error:#}");
            }
        }
        found
    }

    /// A pinned map that fits, mapped; nothing if it cannot be: a program of its user may
    /// have frozen it.
    fn open(&self, uid: u32, map: &MapHandle, known: &mut Vec<UserTable>) -> Option<UserTable> {
        let number = map.info().ok()?.info.id;
        if let Some(at) = known.iter().position(|table| table.number == number) {
            return Some(known.swap_remove(at));
        }
        Some(UserTable {
            uid,
            map: MapHandle::try_from(map).ok()?,
            number,
            table: Table::open(Some(&dir_of(&self.dir, uid))).ok()?,
        })
    }

    fn fits(&self, map: &MapHandle) -> bool {
        map.map_type() == MapType::Array
            && map.value_size() as usize == SLOT_SIZE
            && map.max_entries() == self.nr_slots
            && map.info().is_ok_and(|map| map.info.map_flags == FLAGS)
            && lookup_header(map).is_some_and(|page| page.starts_with(&header(self.nr_slots)))
    }

    /// Removes the pin, and tells the clients.
    fn forget(&self, uid: u32, map: Option<&MapHandle>) -> Result<()> {
        if let Some(map) = map {
            retire(map);
        }
        let path = self.path(uid);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Makes a table for this user, unless there is one.
    fn add(&mut self, uid: u32) -> Result<()> {
        if self.tables.iter().any(|table| table.uid == uid) {
            return Ok(());
        }
        let number = self.tables.len();
        if number == self.room() {
            bail!("{number} users have one already: a smaller --hint-slots makes room");
        }
        let table = self.make(uid)?;
        self.tables.push(table);
        self.enter(number)?;
        self.write_load_number(number)
    }

    fn make(&self, uid: u32) -> Result<UserTable> {
        let opts = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as u64,
            map_flags: FLAGS,
            ..Default::default()
        };
        let size = SLOT_SIZE as u32;
        let mut map = MapHandle::create(MapType::Array, Some(NAME), 4, size, self.nr_slots, &opts)?;
        let mut page = vec![0; SLOT_SIZE];
        page[..16].copy_from_slice(&header(self.nr_slots));
        map.update(&0u32.to_ne_bytes(), &page, MapFlags::ANY)?;
        let dir = dir_of(&self.dir, uid);
        if uid != 0 && !dir.exists() {
            fs::DirBuilder::new().mode(0o700).create(&dir)?;
        }
        let path = self.path(uid);
        map.pin(&path)
            .with_context(|| format!("cannot pin {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(UserTable {
            uid,
            number: map.info()?.info.id,
            map,
            table: Table::open(Some(&dir))?,
        })
    }

    /// Tells the program of the tables from number `first` on.
    fn enter(&self, first: usize) -> Result<()> {
        let (maps, users) = (&self.program.maps, &self.program.users);
        let mut list = [0; size_of::<bpf_intf::ufs_tables>() / 4];
        for (number, table) in self.tables.iter().enumerate() {
            list[1 + number] = table.uid;
            if number >= first {
                debug_assert!(
                    lookup_header(&table.map)
                        .is_some_and(|page| page.starts_with(&header(self.nr_slots))),
                    "the table of user {} is entered without a header",
                    table.uid
                );
                let descriptor = table.map.as_fd().as_raw_fd();
                maps.update(
                    &(number as u32).to_ne_bytes(),
                    &descriptor.to_ne_bytes(),
                    MapFlags::ANY,
                )?;
            }
        }
        // Users before their number.
        for nr in [first, self.tables.len()] {
            list[0] = nr as u32;
            let bytes: Vec<u8> = list
                .iter()
                .flat_map(|word: &u32| word.to_ne_bytes())
                .collect();
            users.update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY)?;
        }
        Ok(())
    }

    /// Writes the number of the load into a table that is made while UFS is attached, as
    /// in root's. UFS clears it in every table when it detaches.
    fn write_load_number(&self, number: usize) -> Result<()> {
        let (Some(root), Some(own)) = (self.tables.first(), self.tables.get(number)) else {
            return Ok(());
        };
        loop {
            let reads = lookup_header(&root.map).context("root's table has no header")?;
            let mut page = lookup_header(&own.map).context("the table has no header")?;
            if page[SCHEDULER] == reads[SCHEDULER] {
                return Ok(());
            }
            page[SCHEDULER].copy_from_slice(&reads[SCHEDULER]);
            own.map.update(&0u32.to_ne_bytes(), &page, MapFlags::ANY)?;
        }
    }
}

const FLAGS: u32 = BPF_F_MMAPABLE | BPF_F_INNER_MAP;

/// The users who have something pinned in `dir`, and root.
fn pinned(dir: &Path) -> Vec<u32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let users = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    std::iter::once(0)
        .chain(users.filter(|&uid| uid != 0))
        .collect()
}

/// Whether only this process's user can have opened what is pinned at `path`.
fn is_private(path: &Path) -> bool {
    let own = |pin: &fs::Metadata| pin.uid() == Uid::effective().as_raw();
    fs::metadata(path).is_ok_and(|pin| own(&pin) && pin.mode() & 0o077 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_bits_cover_every_page_of_a_table() {
        for (nr_slots, bits) in [(2, 1), (3, 2), (64, 6), (65, 7), (1024, 10), (4096, 12)] {
            assert_eq!(slot_bits(nr_slots), bits, "{nr_slots}");
        }
    }

    #[test]
    fn pins_that_others_may_open_are_not_reused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        fs::write(&path, "").unwrap();
        for (mode, wanted) in [(0o600, true), (0o660, false), (0o604, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_private(&path), wanted, "{mode:o}");
        }
    }

    #[test]
    fn users_are_found_by_their_directories_with_root_first() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["26", "1000", "other"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mut found = pinned(dir.path());
        assert_eq!(found[0], 0);
        found.sort_unstable();
        assert_eq!(found, [0, 26, 1000]);
    }
}
