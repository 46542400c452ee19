//! The little of a file system that durability rests on.
//!
//! A database is one flat directory. Everything the log, the checkpoints and
//! recovery ask of it goes through [`Disk`], so that tests can bring a disk that
//! fails at a chosen operation, or that loses at a crash whatever was not
//! synced; the code that runs on it is the code that runs in production.
//!
//! What a disk promises, which the rest cites:
//!
//! - **D1** What was appended before a [`sync`](DiskFile::sync) that succeeded
//!   is there after a crash. Of what was appended later, any part may be.
//! - **D2** A name made, renamed or removed before a
//!   [`sync_names`](Disk::sync_names) that succeeded is so after a crash. Of
//!   later changes of names, any part may be; each is whole or absent.
//! - **D3** After a failed `sync` nothing is promised about bytes that were not
//!   synced before, not even by a later `sync` that succeeds: Linux drops the
//!   error with the dirty pages. So no sync is tried again; but bytes that are written
//!   again count as appended then.
//! - **D4** Writing over bytes that are the same takes no room and puts none of them at
//!   risk: of the old and the new, a crash leaves any mixture, which is the same again.
//!   A file system that writes nothing in place takes as much room as was written since
//!   the last `sync`.
//! - **D5** A file that has [reserved](DiskFile::reserve) room grows within it though the
//!   disk is full, and ends where it ended: what was reserved shows neither in its length
//!   nor in its bytes, after a crash either. Known weakness: file systems that write nothing
//!   in place promise less, and some refuse.
//!
//! These are assumptions about the system, so nothing here asserts them. The disk of
//! the recovery tests promises exactly this much.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A directory of files that are appended to.
pub trait Disk: Send + Sync + std::fmt::Debug {
    /// Makes an empty file for appending; one of this name is emptied.
    ///
    /// # Errors
    /// What the system says.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file that is there, ends it at `end` if it is longer, and appends from
    /// `from` on, over what is there. That the file is shorter lasts after a sync.
    ///
    /// # Errors
    /// What the system says.
    fn overwrite(&self, name: &str, from: u64, end: u64) -> io::Result<Box<dyn DiskFile>>;

    /// All of a file.
    ///
    /// # Errors
    /// What the system says.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// A file from its beginning, for those too large to hold.
    ///
    /// # Errors
    /// What the system says.
    fn stream(&self, name: &str) -> io::Result<Box<dyn io::Read + Send>>;

    /// Gives a file another name, in place of what had that name.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names of all files, in no order.
    ///
    /// # Errors
    /// What the system says.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Makes changes of names last (D2).
    ///
    /// # Errors
    /// What the system says.
    fn sync_names(&self) -> io::Result<()>;

    /// Bytes that files may still take. Without a limit, if nobody knows.
    ///
    /// # Errors
    /// What the system says.
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    /// How an error names a file.
    fn describe(&self, name: &str) -> String;
}

/// A file being written.
pub trait DiskFile: Send {
    /// Writes all of it behind what was appended last.
    ///
    /// # Errors
    /// What the system says; part of it may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes what was appended last (D1).
    ///
    /// # Errors
    /// What the system says; see D3.
    fn sync(&mut self) -> io::Result<()>;

    /// Reserves room for the file to have so many bytes (D5). Without, it has none.
    ///
    /// # Errors
    /// What the system says. The file can be written all the same.
    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// Gives back what is reserved beyond the file's end.
    ///
    /// # Errors
    /// What the system says.
    fn release(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A directory of the operating system's file system.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Open while the directory is in use: its lock keeps others out. None if there is no
    /// file to lock, and none may be made.
    _lock: Option<File>,
}

/// The file that is locked while a database is open: exclusively by who writes, shared by
/// those who only read.
const LOCK: &str = "LOCK";

impl Directory {
    /// Opens the directory, made if it is missing, for this process alone.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another process, or another database of
    /// this one, has it open; else what the system says.
    pub fn open(path: &Path) -> io::Result<Directory> {
        make(path)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK))?;
        lock.try_lock()?;
        Ok(Directory {
            path: path.to_owned(),
            _lock: Some(lock),
        })
    }

    /// Opens a directory that is there, to be read beside others who read and nobody who
    /// writes. Makes nothing. A copy that lacks the file for the lock is read without.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if a database that writes has it open;
    /// [`io::ErrorKind::NotFound`] if it is not there; else what the system says.
    pub fn open_read_only(path: &Path) -> io::Result<Directory> {
        let lock = match File::open(path.join(LOCK)) {
            Ok(lock) => {
                lock.try_lock_shared()?;
                Some(lock)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_dir() => None,
            Err(error) => return Err(error),
        };
        Ok(Directory {
            path: path.to_owned(),
            _lock: lock,
        })
    }
}

/// Makes the directory if it is missing, and those that it is in. Their own names must last
/// as well (D2), also that of one which a process made that ended before it did this.
fn make(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| parent.as_os_str() != "");
    let is_new = !path.is_dir();
    if is_new {
        parent.map_or(Ok(()), make)?;
        match fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    match File::open(parent.unwrap_or(Path::new("."))) {
        Ok(parent) => parent.sync_all(),
        // It is an administrator's, who has made the directory for us.
        Err(error) if !is_new && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

impl Disk for Directory {
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(self.path.join(name))?;
        Ok(Box::new(file))
    }

    fn overwrite(&self, name: &str, from: u64, end: u64) -> io::Result<Box<dyn DiskFile>> {
        let path = self.path.join(name);
        let mut file = OpenOptions::new().write(true).open(path)?;
        // Also if it is as long: a process that was killed may have reserved more.
        file.set_len(file.metadata()?.len().min(end))?;
        // Linux tells the next sync of a failure that nobody was told of yet. It is
        // about bytes that were written before, and what they were is unknown anyway.
        let _ = file.sync_data();
        file.seek(io::SeekFrom::Start(from))?;
        Ok(Box::new(file))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path.join(name))
    }

    fn stream(&self, name: &str) -> io::Result<Box<dyn io::Read + Send>> {
        Ok(Box::new(File::open(self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // Names that are not UTF-8 are not ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let path = CString::new(self.path.as_os_str().as_bytes())?;
        let mut stat = MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the path ends with a zero, and the system fills what it is pointed to.
        if unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it succeeded.
        let stat = unsafe { stat.assume_init() };
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn describe(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}

impl DiskFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        // Lengths are metadata that fdatasync does write.
        self.sync_data()
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let bytes = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: the file is open, and no memory is passed.
        match unsafe { libc::fallocate(self.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, 0, bytes) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn release(&mut self) -> io::Result<()> {
        self.set_len(self.metadata()?.len())
    }
}
