//! Locks among the programs of one user, usually root, which no other user can hold.
//!
//! flock(2) takes any descriptor: a user who can open a file, even only for reading,
//! can lock it for ever. So a lock's file belongs to its user alone (0600) from
//! the moment it is made. A file that others can open is made anew, because a
//! descriptor that a process has outlives a change of the file's mode. What is no plain
//! file, such as a symbolic link, is made anew as well.
//!
//! ```text
//!   open, make ──► only ours? ──no──► remove ──► open again
//!                      │ yes
//!                  lock, or wait ──patience ends──► Held, by whom
//!                      │
//!                  still at its path? ──no──► open again
//!                      │ yes
//!                  write our process and its command into the file
//! ```
//!
//! Who holds a lock is in its file. Where that is empty, as on a full disk, the kernel
//! knows the process (`/proc/locks`).
//!
//! Known weaknesses: where two processes find at the same moment a file that others can
//! open, one may remove what the other has just made, and both hold a lock. A process
//! that holds a file from before it was made anew, such as one of an older version, is
//! not waited for.

use std::error::Error;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::process;

/// How often a lock that is held is tried again.
const RETRY: Duration = Duration::from_millis(20);
/// How often a file is made anew before its directory is given up.
const REPAIRS_MAX: usize = 100;
/// What is read of a file at most, and written of a command.
const SIGNATURE_MAX: u64 = 512;

/// A lock that this process holds until it is dropped.
#[derive(Debug)]
pub struct Lock(File);

/// The process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its command line, or its name if it has not written that.
    pub command: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { pid, uid, command } = self;
        write!(f, "process {pid} ({command}, user {uid})")
    }
}

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Another process has held it for as long as we were to wait.
    Held {
        /// The lock's file.
        path: PathBuf,
        /// The process, if it can be told.
        holder: Option<Holder>,
    },
    /// The file cannot be made, opened or locked.
    File {
        /// The lock's file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Held { path, holder } => {
                match holder {
                    Some(holder) => holder.fmt(f)?,
                    None => f.write_str("another process")?,
                }
                write!(f, " holds {}", path.display())
            }
            LockError::File { path, source } => {
                write!(f, "cannot lock {}: {source}", path.display())
            }
        }
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            LockError::Held { .. } => None,
            LockError::File { source, .. } => Some(source),
        }
    }
}

impl LockError {
    /// How the user gets the lock.
    pub fn remedy(&self) -> String {
        match self {
            LockError::Held { path, holder } => match holder {
                Some(holder) => format!("wait for it, or end it: kill -9 {}", holder.pid),
                None => format!("wait for it, or end it: fuser -k {}", path.display()),
            },
            LockError::File { path, source } => {
                let dir = path.parent().unwrap_or(path).display();
                match source.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        format!("make room: df {dir}")
                    }
                    io::ErrorKind::ReadOnlyFilesystem => {
                        format!(
                            "make {dir} writable: mount -o remount,rw $(findmnt -nT {dir} -o TARGET)"
                        )
                    }
                    io::ErrorKind::PermissionDenied => "use sudo".to_owned(),
                    _ => format!("see what is there: ls -la {dir}"),
                }
            }
        }
    }
}

impl Lock {
    /// Locks the file at `path`, which is made if it is not there, and waits for that
    /// no longer than `patience`.
    ///
    /// # Errors
    /// [`LockError::Held`] if another process has the lock all that time,
    /// [`LockError::File`] if the file cannot be made.
    pub fn take(path: &Path, patience: Duration) -> Result<Lock, LockError> {
        let deadline = Instant::now() + patience;
        let failed = |source| LockError::File {
            path: path.to_owned(),
            source,
        };
        loop {
            let file = open(path).map_err(failed)?;
            loop {
                match file.try_lock() {
                    Ok(()) => break,
                    Err(TryLockError::WouldBlock) if Instant::now() < deadline => {}
                    Err(TryLockError::WouldBlock) => {
                        return Err(LockError::Held {
                            path: path.to_owned(),
                            holder: holder(&file),
                        });
                    }
                    Err(TryLockError::Error(error)) => return Err(failed(error)),
                }
                thread::sleep(RETRY);
            }
            if is_at(&file, path) {
                let mut lock = Lock(file);
                // On a full disk the lock is taken all the same.
                let _ = lock.sign();
                return Ok(lock);
            }
        }
    }

    /// Has the file name this process.
    fn sign(&mut self) -> io::Result<()> {
        let words: Vec<String> = std::env::args_os()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let command: String = words
            .join(" ")
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(SIGNATURE_MAX as usize / 8)
            .collect();
        self.0.set_len(0)?;
        self.0.rewind()?;
        writeln!(self.0, "{} {command}", std::process::id())
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
pub fn is_held(path: &Path) -> io::Result<bool> {
    // Not to wait for the writer of a pipe.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    // What others can lock says nothing.
    Ok(is_private(&file)? && file.try_lock_shared().is_err())
}

/// The file, which no other user can have opened.
fn open(path: &Path) -> io::Result<File> {
    let opened = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
    };
    for _ in 0..REPAIRS_MAX {
        match opened() {
            Ok(file) if is_private(&file)? => return Ok(file),
            Ok(file) if !is_at(&file, path) => {}
            Ok(_) => fs::remove_file(path)?,
            // A symbolic link, a socket.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENXIO)) => {
                fs::remove_file(path)?;
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(
        "others can open it, however often it is made",
    ))
}

/// Whether it is a plain file that no other user can open.
fn is_private(file: &File) -> io::Result<bool> {
    let about = file.metadata()?;
    // SAFETY: it only returns a number.
    let is_ours = about.uid() == unsafe { libc::geteuid() };
    Ok(about.is_file() && is_ours && about.mode() & 0o077 == 0)
}

/// Whether this file is still the one that `path` names.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(own), Ok(named)) = (file.metadata(), fs::symlink_metadata(path)) else {
        return false;
    };
    (own.dev(), own.ino()) == (named.dev(), named.ino())
}

/// Who holds the lock: who has written himself into its file, or whom the kernel names.
/// One that is no more did so before.
fn holder(file: &File) -> Option<Holder> {
    signed(file).or_else(|| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let pid = locker(&locks, file.metadata().ok()?.ino())?;
        let command = process::name(pid)?;
        Some(Holder {
            pid,
            uid: process::uid(pid)?,
            command,
        })
    })
}

fn signed(mut file: &File) -> Option<Holder> {
    let mut bytes = Vec::new();
    file.rewind().ok()?;
    file.take(SIGNATURE_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let (pid, command) = text.trim().split_once(' ')?;
    let pid = pid.parse().ok()?;
    Some(Holder {
        pid,
        uid: process::uid(pid)?,
        command: command.to_owned(),
    })
}

/// The process that holds an flock on the file of this number, by `/proc/locks`:
/// `1: FLOCK  ADVISORY  WRITE 4711 00:17:99 0 EOF`. Devices are left out, since file
/// systems such as btrfs show another there than to stat(2). Who waits has an arrow.
fn locker(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, place, ..] = words[..] else {
            return None;
        };
        let number = place.rsplit(':').next()?.parse::<u64>();
        (number == Ok(inode)).then(|| pid.parse().ok())?
    })
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
        let (pid, text) = (std::process::id(), error.to_string());
        assert!(text.starts_with(&format!("process {pid} (")), "{text}");
        // Tests are run by a command, too: this one.
        let program = std::env::args().next().unwrap();
        assert!(text.contains(&program[..program.len().min(20)]), "{text}");
        // SAFETY: it only returns a number.
        let user = unsafe { libc::geteuid() };
        let end = format!(", user {user}) holds {}", path.display());
        assert!(text.ends_with(&end), "{text}");
        assert!(error.remedy().ends_with(&format!("kill -9 {pid}")));
        drop(lock);
        assert!(!is_held(&path).unwrap());
        Lock::take(&path, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_holder_that_has_not_signed_is_named_by_the_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        drop(Lock::take(&path, Duration::ZERO).unwrap());
        // As flock(1) holds it, which writes nothing.
        let other = File::options().write(true).open(&path).unwrap();
        other.lock().unwrap();
        let error = Lock::take(&path, Duration::ZERO).unwrap_err();
        let LockError::Held {
            holder: Some(holder),
            ..
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!(holder.pid, std::process::id());
        assert!(!holder.command.is_empty());
    }

    #[test]
    fn the_kernel_s_list_is_read_by_the_file_s_number() {
        let locks = "1: FLOCK  ADVISORY  WRITE 17 00:17:98 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 18 00:17:99 0 EOF\n\
                     3: FLOCK  ADVISORY  READ  19 00:17:99 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 20 00:17:97 0 EOF\n";
        assert_eq!(locker(locks, 99), Some(19));
        assert_eq!(locker(locks, 98), Some(17));
        assert_eq!(locker(locks, 97), None);
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
        stranger.try_lock().unwrap();
        assert!(!is_held(&path).unwrap());
        let _lock = Lock::take(&path, Duration::ZERO).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(is_held(&path).unwrap());
    }

    #[test]
    fn what_is_planted_in_place_of_the_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let elsewhere = dir.path().join("elsewhere");
        fs::write(&elsewhere, "precious").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        drop(Lock::take(&path, Duration::ZERO).unwrap());
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(Lock::take(&path, Duration::ZERO).unwrap());
        // A directory may hold something: it stays, and is named.
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let error = Lock::take(&path, Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("Is a directory"), "{error}");
    }
}
