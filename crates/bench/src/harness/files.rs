//! Files and directories that are copied whole, replaced at once, or gone when
//! their owner is.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use tempfile::TempDir;

use crate::harness::error::{Error, Result};

/// How the names of private directories begin and end.
const PRIVATE: [&str; 2] = ["giveway-bench-", ".private"];

/// A private directory, removed with its contents when dropped.
///
/// It is locked as long as its process lives, so [`PrivateDir::sweep`] knows those that
/// nobody will remove, also where processes of other containers have the same directory.
#[derive(Debug)]
pub(crate) struct PrivateDir {
    dir: TempDir,
    _lock: File,
}

impl PrivateDir {
    /// Makes a directory below `parent` that nobody else uses. `owner` is the
    /// (user, group) that will own it, where we may choose.
    pub(crate) fn new(parent: &Path, owner: Option<(u32, u32)>) -> Result<Self> {
        fs::create_dir_all(parent).map_err(Error::file("create", parent))?;
        loop {
            let [prefix, suffix] = PRIVATE;
            let mut named = tempfile::Builder::new();
            let dir = named.prefix(prefix).suffix(suffix).tempdir_in(parent);
            let dir = dir.map_err(Error::file("create a directory in", parent))?;
            // Who sweeps may be faster; then it is gone, or about to be.
            let lock = locked(dir.path()).map_err(Error::file("lock", dir.path()))?;
            let Some(lock) = lock else {
                continue;
            };
            if let Some((user, group)) = owner {
                chown(dir.path(), Some(user), Some(group))
                    .map_err(Error::file("change the owner of", dir.path()))?;
            }
            return Ok(PrivateDir { dir, _lock: lock });
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Removes those below `parent` whose process was killed before it could.
    pub(crate) fn sweep(parent: &Path) {
        let [prefix, suffix] = PRIVATE;
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if !(name.starts_with(prefix) && name.ends_with(suffix)) {
                continue;
            }
            if let Ok(Some(_lock)) = locked(&entry.path()) {
                // What others own stays.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// The lock of a directory; none if somebody has it, or the directory is gone.
fn locked(dir: &Path) -> io::Result<Option<File>> {
    let file = match File::open(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match file.try_lock() {
        // It may have been removed in between.
        Ok(()) => Ok(dir.exists().then_some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Copies the tree `from` to the new directory `to`, with permissions, and
/// gives every copy to `owner`. Sockets and links are not part of a data
/// directory at rest, so a link is an error rather than a surprise.
pub(crate) fn copy_tree(from: &Path, to: &Path, owner: Option<(u32, u32)>) -> Result<()> {
    let metadata = fs::symlink_metadata(from).map_err(Error::file("read", from))?;
    if metadata.is_dir() {
        fs::create_dir(to).map_err(Error::file("create", to))?;
        for entry in fs::read_dir(from).map_err(Error::file("list", from))? {
            let entry = entry.map_err(Error::file("list", from))?;
            copy_tree(&entry.path(), &to.join(entry.file_name()), owner)?;
        }
        fs::set_permissions(to, fs::Permissions::from_mode(metadata.mode()))
            .map_err(Error::file("protect", to))?;
    } else if metadata.is_file() {
        fs::copy(from, to).map_err(Error::file("copy", from))?;
    } else {
        return Err(Error::Config(format!(
            "{} is neither a file nor a directory: tablespaces outside the data directory \
             are not supported",
            from.display()
        )));
    }
    if let Some((user, group)) = owner {
        chown(to, Some(user), Some(group)).map_err(Error::file("change the owner of", to))?;
    }
    Ok(())
}

/// Writes `path` so that a reader sees the old contents or the new, never a
/// part of them.
pub(crate) fn replace(path: &Path, contents: &[u8]) -> Result<()> {
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        fs::create_dir_all(parent).map_err(Error::file("create", parent))?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    fs::write(&part, contents).map_err(Error::file("write", &part))?;
    fs::rename(&part, path).map_err(Error::file("replace", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let alive = PrivateDir::new(parent.path(), None).unwrap();
        let [prefix, suffix] = PRIVATE;
        let left = parent.path().join(format!("{prefix}x{suffix}"));
        let other = parent.path().join(format!("{prefix}notes"));
        for dir in [&left, &other] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("file"), "rows").unwrap();
        }
        PrivateDir::sweep(parent.path());
        assert!(!left.exists());
        assert!(other.exists() && alive.path().exists());
    }

    #[test]
    fn a_private_directory_is_gone_with_its_owner() {
        let parent = tempfile::tempdir().unwrap();
        let private = PrivateDir::new(parent.path(), None).unwrap();
        let path = private.path().to_owned();
        fs::write(path.join("file"), "rows").unwrap();
        drop(private);
        assert!(!path.exists() && parent.path().exists());
    }
}
