//! Where the lab keeps what it made: `${XDG_CACHE_HOME:-~/.cache}/giveway/lab`.
//!
//! An entry is a directory whose name ends in a digest of everything it was
//! made from, so that a changed input is a new entry. Protocol of [`Cache::entry`]:
//!
//! 1. take the entry's file lock (other processes wait, and then find it made),
//! 2. build in `.partial-NAME-*`, beside the entry,
//! 3. flush it to disk, then rename it to its name.
//!
//! Invariant: a directory without the `.partial-` or `.work-` prefix is whole (not
//! asserted: only its build knows what it has to hold; that two builds of an entry
//! never meet is asserted in `entry`). What a killed build left behind is removed by
//! the next build of the same entry, but for its [workshop](Cache::workshop), if it
//! has one, in which it goes on.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};

use crate::error::{LabError, Result};
use crate::place::cache_root;

/// What a build of everything takes, in MiB: QEMU's build tree is the largest part.
const NEED_MIB: u64 = 6 * 1024;

const PARTIAL: &str = ".partial-";
const WORK: &str = ".work-";

/// An entry of the cache, for people.
#[derive(Clone, Debug)]
pub struct CacheEntry {
    /// Its directory's name.
    pub name: String,
    /// What it occupies on disk, in bytes.
    pub bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
}

impl Cache {
    pub(crate) fn open() -> Result<Cache> {
        let dir = cache_root().join("lab");
        fs::create_dir_all(&dir).map_err(LabError::io("creating", &dir))?;
        Ok(Cache { dir })
    }

    #[cfg(test)]
    pub(crate) fn at(dir: &Path) -> Cache {
        Cache {
            dir: dir.to_owned(),
        }
    }

    /// The cache, if it is there; it is not made.
    pub(crate) fn existing() -> Option<Cache> {
        let dir = cache_root().join("lab");
        dir.is_dir().then_some(Cache { dir })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Refuses to begin a build that the disk cannot hold. A complete cache
    /// needs no space, so only an incomplete one is checked.
    pub(crate) fn check_space(&self) -> Result<()> {
        let complete = ["qemu-", "image-", "kernel-"]
            .iter()
            .all(|prefix| self.newest(prefix).is_some());
        match complete {
            true => Ok(()),
            false => self.require_space(),
        }
    }

    /// Refuses to begin a large build that the disk cannot hold.
    pub(crate) fn require_space(&self) -> Result<()> {
        let stat = nix::sys::statvfs::statvfs(&self.dir)
            .map_err(|errno| LabError::io("asking the free space of", &self.dir)(errno.into()))?;
        let free_mib = stat.blocks_available() * stat.fragment_size() / (1 << 20);
        if free_mib < NEED_MIB {
            return Err(LabError::DiskFull {
                path: self.dir.clone(),
                free_mib,
                need_mib: NEED_MIB,
            });
        }
        Ok(())
    }

    /// The entry `name`, made by `build` in an empty directory if it is missing.
    pub(crate) fn entry(
        &self,
        name: &str,
        build: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let path = self.dir.join(name);
        if path.is_dir() {
            return Ok(path);
        }
        let _lock = self.lock(name)?;
        if path.is_dir() {
            return Ok(path);
        }
        self.remove_partial(name)?;
        let partial = tempfile::Builder::new()
            .prefix(&format!("{PARTIAL}{name}-"))
            .tempdir_in(&self.dir)
            .map_err(LabError::io("creating a directory in", &self.dir))?;
        build(partial.path())?;
        flush(partial.path())?;
        let built = partial.keep();
        fs::set_permissions(&built, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .map_err(LabError::io("changing the mode of", &built))?;
        debug_assert!(
            !path.exists(),
            "{name} was built twice, in spite of its lock"
        );
        fs::rename(&built, &path).map_err(LabError::io("renaming a build to", &path))?;
        Ok(path)
    }

    /// The entry `name`, if it is there.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        let path = self.dir.join(name);
        path.is_dir().then_some(path)
    }

    /// The most recently made entry whose name begins with `prefix`.
    pub(crate) fn newest(&self, prefix: &str) -> Option<PathBuf> {
        fs::read_dir(&self.dir)
            .ok()?
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
            .filter(|entry| entry.path().is_dir())
            .max_by_key(|entry| entry.metadata().and_then(|meta| meta.modified()).ok())
            .map(|entry| entry.path())
    }

    /// A directory that outlasts a build which is interrupted, for one that takes long
    /// and can go on where it stopped. The build of the entry `name` owns it, and
    /// removes it when it has done.
    pub(crate) fn workshop(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir.join(format!("{WORK}{name}"));
        fs::create_dir_all(&dir).map_err(LabError::io("creating", &dir))?;
        Ok(dir)
    }

    /// A scratch directory on the cache's disk, removed when dropped.
    pub(crate) fn scratch(&self, what: &str) -> Result<tempfile::TempDir> {
        tempfile::Builder::new()
            .prefix(&format!("{PARTIAL}{what}-"))
            .tempdir_in(&self.dir)
            .map_err(LabError::io("creating a directory in", &self.dir))
    }

    pub(crate) fn entries(&self) -> Result<Vec<CacheEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.dir)
            .map_err(LabError::io("reading", &self.dir))?
            .flatten()
        {
            if entry.path().is_dir() {
                entries.push(CacheEntry {
                    name: entry.file_name().to_string_lossy().into_owned(),
                    bytes: disk_usage(&entry.path()),
                });
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    pub(crate) fn clean(&self) -> Result<u64> {
        let freed = disk_usage(&self.dir);
        fs::remove_dir_all(&self.dir).map_err(LabError::io("removing", &self.dir))?;
        Ok(freed)
    }

    /// Holds the lock of `name` until the guard is dropped.
    pub(crate) fn lock(&self, name: &str) -> Result<Flock<File>> {
        let path = self.dir.join(format!(".lock-{name}"));
        let file = File::create(&path).map_err(LabError::io("creating", &path))?;
        Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, errno)| LabError::io("locking", &path)(errno.into()))
    }

    fn remove_partial(&self, name: &str) -> Result<()> {
        let stale = format!("{PARTIAL}{name}-");
        for entry in fs::read_dir(&self.dir)
            .map_err(LabError::io("reading", &self.dir))?
            .flatten()
        {
            if entry.file_name().to_string_lossy().starts_with(&stale) {
                fs::remove_dir_all(entry.path()).map_err(LabError::io("removing", entry.path()))?;
            }
        }
        Ok(())
    }
}

/// A short name for the content `parts`, stable across runs and machines.
pub(crate) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize()[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Writes everything below `dir` to disk, so that a rename cannot become durable before
/// what it names. Not the whole file system: what else was built there meanwhile may take
/// minutes.
fn flush(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(LabError::io("reading", dir))? {
        let path = entry.map_err(LabError::io("reading", dir))?.path();
        let kind = path
            .symlink_metadata()
            .map_err(LabError::io("looking at", &path))?
            .file_type();
        if kind.is_dir() {
            flush(&path)?;
        } else if kind.is_file() {
            sync(&path)?;
        }
    }
    sync(dir)
}

fn sync(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(LabError::io("opening", path))?;
    file.sync_all().map_err(LabError::io("flushing", path))
}

fn disk_usage(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => disk_usage(&entry.path()),
            Ok(meta) => meta.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        (dir, cache)
    }

    #[test]
    fn an_entry_is_built_once() {
        let (_dir, cache) = cache();
        let first = cache
            .entry("part-1", |dir| {
                fs::write(dir.join("file"), "whole").unwrap();
                Ok(())
            })
            .unwrap();
        let second = cache.entry("part-1", |_| panic!("built again")).unwrap();
        assert_eq!(first, second);
        assert_eq!(fs::read_to_string(second.join("file")).unwrap(), "whole");
    }

    #[test]
    fn a_half_written_entry_is_never_used() {
        let (dir, cache) = cache();
        let broken = cache.entry("part-1", |dir| {
            fs::write(dir.join("file"), "ha").unwrap();
            Err(LabError::NoMirror)
        });
        assert!(broken.is_err());
        assert!(!dir.path().join("part-1").exists());
        // What a killed build leaves: a partial directory nobody removed.
        let stale = dir.path().join(".partial-part-1-killed");
        fs::create_dir(&stale).unwrap();
        cache.entry("part-1", |_| Ok(())).unwrap();
        assert!(!stale.exists());
    }

    #[test]
    fn digests_keep_parts_apart() {
        assert_ne!(
            digest([b"ab".as_slice(), b"c"]),
            digest([b"a".as_slice(), b"bc"])
        );
    }
}
