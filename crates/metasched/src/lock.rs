//! Locks among the processes of one user, usually root, which no other user can hold.
//!
//! flock(2) takes any descriptor: a user who can open a file, even only for reading,
//! can lock it for ever. So a lock's file belongs to its user alone (0600) from
//! the moment it is made. A file that others can open is made anew, because a
//! descriptor that a process has outlives a change of the file's mode.
//!
//! ```text
//!   open, make ──► only ours? ──no──► remove ──► open again
//!                      │ yes
//!                  lock, or wait ──patience ends──► Held, by the process in the file
//!                      │
//!                  still at its path? ──no──► open again
//!                      │ yes
//!                  write our process into the file
//! ```
//!
//! Known weaknesses: where two processes find at the same moment a file that others can
//! open, one may remove what the other has just made, and both hold a lock. A process
//! that holds a file from before it was made anew, such as one of an older version, is
//! not waited for.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};

use crate::error::{Error, Result};

/// How often a lock that is held is tried again.
const RETRY: Duration = Duration::from_millis(20);
/// How often a file is made anew before its directory is given up.
const REPAIRS_MAX: usize = 100;

/// A lock that this process holds until it is dropped.
#[derive(Debug)]
pub struct Lock(Flock<File>);

impl Lock {
    /// Locks the file at `path`, which is made if it is not there, and waits for that
    /// no longer than `patience`.
    ///
    /// # Errors
    /// [`Error::Held`] if another process has the lock all that time, [`Error::File`] if
    /// the file cannot be made.
    pub fn take(path: &Path, patience: Duration) -> Result<Lock> {
        let deadline = Instant::now() + patience;
        loop {
            let mut file = open(path).map_err(Error::file("lock", path))?;
            let locked = loop {
                match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                    Ok(locked) => break locked,
                    Err((back, Errno::EWOULDBLOCK)) if Instant::now() < deadline => file = back,
                    Err((back, Errno::EWOULDBLOCK)) => {
                        return Err(Error::Held {
                            path: path.to_owned(),
                            pid: holder(back),
                        });
                    }
                    Err((_, errno)) => return Err(Error::file("lock", path)(errno.into())),
                }
                thread::sleep(RETRY);
            };
            if is_at(&locked, path) {
                let mut lock = Lock(locked);
                // On a full disk the lock is taken all the same; it then names no process.
                let _ = lock.sign();
                return Ok(lock);
            }
        }
    }

    /// Has the file name this process.
    fn sign(&mut self) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.rewind()?;
        writeln!(self.0, "{}", std::process::id())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The next holder may not have written its number yet.
        let _ = self.0.set_len(0);
    }
}

/// Whether a process holds the lock whose file is at `path`.
///
/// # Errors
/// Those of open(2), but for a file that is not there: other users cannot tell.
pub(crate) fn is_held(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    // What others can lock says nothing.
    Ok(is_private(&file)? && Flock::lock(file, FlockArg::LockSharedNonblock).is_err())
}

/// The file, which no other user can have opened.
fn open(path: &Path) -> io::Result<File> {
    for _ in 0..REPAIRS_MAX {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(path)?;
        if is_private(&file)? {
            return Ok(file);
        }
        if is_at(&file, path) {
            fs::remove_file(path)?;
        }
    }
    Err(io::Error::other(
        "others can open it, however often it is made",
    ))
}

fn is_private(file: &File) -> io::Result<bool> {
    let about = file.metadata()?;
    let is_ours = about.uid() == nix::unistd::geteuid().as_raw();
    Ok(is_ours && about.mode() & 0o077 == 0)
}

/// Whether this file is still the one that `path` names.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(own), Ok(named)) = (file.metadata(), fs::symlink_metadata(path)) else {
        return false;
    };
    (own.dev(), own.ino()) == (named.dev(), named.ino())
}

/// The process that the lock's holder has written into its file; one that is no more
/// did so before.
fn holder(mut file: File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let pid: u32 = text.trim().parse().ok()?;
    Path::new(&format!("/proc/{pid}")).exists().then_some(pid)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(100);

    #[test]
    fn lock_wait_is_bounded_and_names_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert!(!is_held(&path).unwrap());
        let lock = Lock::take(&path, Duration::ZERO).unwrap();
        assert!(is_held(&path).unwrap());
        let began = Instant::now();
        let error = Lock::take(&path, MOMENT).unwrap_err();
        let waited = began.elapsed();
        assert!(waited >= MOMENT && waited < 100 * MOMENT, "{waited:?}");
        let expected = format!("process {} holds {}", std::process::id(), path.display());
        assert_eq!(error.to_string(), expected);
        drop(lock);
        assert!(!is_held(&path).unwrap());
        Lock::take(&path, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_lock_that_is_released_is_taken_by_the_one_who_waits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = Lock::take(&path, Duration::ZERO).unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| Lock::take(&path, Duration::from_secs(60)));
            thread::sleep(MOMENT);
            assert!(!waiter.is_finished());
            drop(lock);
            waiter.join().unwrap().unwrap();
        });
    }

    #[test]
    fn lock_file_others_can_open_is_recreated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        // As somebody does who could only read it.
        let stranger = File::open(&path).unwrap();
        let _stranger = Flock::lock(stranger, FlockArg::LockExclusiveNonblock).unwrap();
        assert!(!is_held(&path).unwrap());
        let _lock = Lock::take(&path, Duration::ZERO).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(is_held(&path).unwrap());
    }

    #[test]
    fn lock_file_is_never_a_symlink() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).unwrap();
        assert!(Lock::take(&path, Duration::ZERO).is_err());
        assert!(!dir.path().join("elsewhere").exists());
    }
}
