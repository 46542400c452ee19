//! Files and directories that are copied whole, replaced at once, or gone when
//! their owner is.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::harness::error::{Error, Result};

/// How the names of private directories begin; a process's number follows.
const PRIVATE: &str = "giveway-bench-";

/// A private directory, removed with its contents when dropped.
#[derive(Debug)]
pub(crate) struct PrivateDir(PathBuf);

impl PrivateDir {
    /// Makes a directory below `parent` that nobody else uses. `owner` is the
    /// (user, group) that will own it, where we may choose.
    pub(crate) fn new(parent: &Path, owner: Option<(u32, u32)>) -> Result<Self> {
        fs::create_dir_all(parent).map_err(Error::file("create", parent))?;
        let mut number = 0;
        loop {
            let path = parent.join(format!("{PRIVATE}{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => {
                    let this = PrivateDir(path);
                    fs::set_permissions(this.path(), fs::Permissions::from_mode(0o700))
                        .map_err(Error::file("protect", this.path()))?;
                    if let Some((user, group)) = owner {
                        chown(this.path(), Some(user), Some(group))
                            .map_err(Error::file("change the owner of", this.path()))?;
                    }
                    return Ok(this);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(Error::file("create", &path)(error)),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes those below `parent` whose process was killed before it could.
    pub(crate) fn sweep(parent: &Path) {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let name = name.to_str().and_then(|name| name.strip_prefix(PRIVATE));
            let process = name.and_then(|name| name.split_once('-')?.0.parse::<u32>().ok());
            if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
                // What others own stays.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and the directory is in a
        // place for temporary files.
        let _ = fs::remove_dir_all(&self.0);
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
        // No process has a number this high.
        let left = parent.path().join(format!("{PRIVATE}4294967295-0"));
        let other = parent.path().join("giveway-bench-notes");
        for dir in [&left, &other] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("file"), "rows").unwrap();
        }
        PrivateDir::sweep(parent.path());
        assert!(!left.exists());
        assert!(other.exists() && alive.path().exists());
    }
}
