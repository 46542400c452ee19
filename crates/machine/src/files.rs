//! Files of root's programs in a directory that others can read.
//!
//! | function | promise |
//! | --- | --- |
//! | [`directory`] | no other user can put anything there |
//! | [`create`] | a new file, whatever was at its path before |
//! | [`replace`] | readers see the old content or the new one, never a part |
//! | [`read`] | neither waits for a writer nor fills the memory |
//!
//! A symbolic link at a path is never followed, for a program of root's must not write
//! where somebody else chooses.
//!
//! Known weakness: the directories above are trusted, as `/run` is, which only root can
//! write to.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

/// What is read of a file at most.
const READ_MAX: u64 = 4 << 20;

/// Sees to it that the directory is there, and that only this user can write to it.
/// One that is made is for all to read (0755), whatever the umask; one that was there may
/// be closed to others.
///
/// # Errors
/// If it cannot be made; if it is no directory, another user's, or for all (as `/tmp`
/// is): then it is for root to look at.
pub fn directory(path: &Path) -> io::Result<()> {
    let mut made = DirBuilder::new().mode(0o755).create(path);
    if let (Err(error), Some(above)) = (&made, path.parent())
        && error.kind() == io::ErrorKind::NotFound
    {
        directory(above)?;
        made = DirBuilder::new().mode(0o755).create(path);
    }
    match made {
        Ok(()) => return fs::set_permissions(path, Permissions::from_mode(0o755)),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) => {}
    }
    let about = fs::symlink_metadata(path)?;
    // SAFETY: it only returns a number.
    let is_ours = about.uid() == unsafe { libc::geteuid() };
    let is_for_all = about.mode() & 0o1000 != 0;
    if !about.is_dir() || !is_ours || is_for_all {
        return Err(io::Error::other(format!(
            "{} is no directory of this user's: see what it is, and remove it (ls -ld {0})",
            path.display()
        )));
    }
    if about.mode() & 0o022 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// A new file for writing at `path`, in place of whatever was there.
///
/// # Errors
/// Those of unlink(2) and open(2).
pub fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)
}

/// Writes `bytes` beside `path` and renames them into place.
///
/// # Errors
/// Those of [`create`], write(2) and rename(2).
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    create(beside)?.write_all(bytes)?;
    fs::rename(beside, path)
}

/// The text of a plain file, or its last part if it is longer than some megabytes.
///
/// # Errors
/// Those of open(2) and read(2); `InvalidInput` for what is no plain file.
pub fn read(path: &Path) -> io::Result<String> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is no plain file", path.display()),
        ));
    }
    let skipped = about.len().saturating_sub(READ_MAX);
    io::Seek::seek(&mut file, io::SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(READ_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn directory_is_taken_from_others() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("a/b");
        let mode = || fs::metadata(&dir).unwrap().mode() & 0o777;
        directory(&dir).unwrap();
        assert_eq!(mode() & 0o022, 0);
        fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
        directory(&dir).unwrap();
        assert_eq!(mode(), 0o755);
        // One that is narrower stays so.
        fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
        directory(&dir).unwrap();
        assert_eq!(mode(), 0o700);
    }

    #[test]
    fn directory_that_is_a_link_a_file_or_for_all_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let [link, file, all] = ["link", "file", "all"].map(|name| top.path().join(name));
        symlink(top.path(), &link).unwrap();
        fs::write(&file, "").unwrap();
        fs::create_dir(&all).unwrap();
        fs::set_permissions(&all, Permissions::from_mode(0o1777)).unwrap();
        for path in [link, file, all] {
            let error = directory(&path).unwrap_err().to_string();
            assert!(error.contains("is no directory of this user's"), "{error}");
        }
    }

    #[test]
    fn planted_links_are_replaced_and_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let precious = top.path().join("precious");
        fs::write(&precious, "kept").unwrap();
        let path = top.path().join("file");
        for plant in ["file", "file.new"] {
            symlink(&precious, top.path().join(plant)).unwrap();
            replace(&path, b"new").unwrap();
            assert_eq!(read(&path).unwrap(), "new");
            assert_eq!(fs::read_to_string(&precious).unwrap(), "kept");
        }
    }

    #[test]
    fn pipe_without_a_writer_is_not_waited_for() {
        let top = tempfile::tempdir().unwrap();
        let pipe = top.path().join("pipe");
        let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends with a 0 and lives until the call returns.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o666) }, 0);
        let kind = read(&pipe).unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::InvalidInput);
        create(&pipe).unwrap();
        assert_eq!(read(&pipe).unwrap(), "");
    }

    #[test]
    fn long_file_is_read_from_its_end() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("log");
        let file = create(&path).unwrap();
        file.set_len(READ_MAX).unwrap();
        OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"end")
            .unwrap();
        let text = read(&path).unwrap();
        assert_eq!(text.len() as u64, READ_MAX);
        assert!(text.ends_with("end"));
    }
}
