//! A lock among loaders: one at a time publishes its hint tables and attaches.
//!
//! The lock is a file that only root can open. flock(2) takes any descriptor, so a user
//! who could read the file, or a directory in its place, could keep every loader from
//! attaching.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};

/// The lock's name. Locks of older versions have another, which others can open.
const NAME: &str = "loader.lock";
/// How long a loader waits for another, which attaches in far less.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it looks.
const RETRY: Duration = Duration::from_millis(20);

/// Waits until no other loader is between publishing in `dir` and being attached. The
/// lock is held until what is returned is dropped, or this process ends.
pub(crate) fn take(dir: &Path) -> Result<Flock<File>> {
    let path = dir.join(NAME);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(&path)
        .with_context(|| format!("cannot make {}: try --no-hints", path.display()))?;
    let end = Instant::now() + PATIENCE;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EWOULDBLOCK)) if Instant::now() < end => file = back,
            Err((_, Errno::EWOULDBLOCK)) => bail!(
                "another loader has held {} for {} s: end it (lslocks names it) and start again",
                path.display(),
                PATIENCE.as_secs()
            ),
            Err((_, errno)) => {
                return Err(errno).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        thread::sleep(RETRY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn one_loader_holds_the_lock_and_no_other_user_can_take_it() {
        let dir = tempfile::tempdir().unwrap();
        let held = take(dir.path()).unwrap();
        let path = dir.path().join(NAME);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let second = File::options().write(true).open(&path).unwrap();
        assert!(Flock::lock(second, FlockArg::LockExclusiveNonblock).is_err());
        // The directory, which any user can open, is not the lock.
        let stranger = File::open(dir.path()).unwrap();
        let _stranger = Flock::lock(stranger, FlockArg::LockExclusiveNonblock).unwrap();
        drop(held);
        take(dir.path()).unwrap();
    }
}
