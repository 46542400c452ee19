//! Finding and mapping the table of slots.
//!
//! Each user has a table of its own: a BPF map pinned in a directory that root alone may
//! open it from, or, for tests, a plain file of the same layout. A process of another
//! user asks the daemon, which passes the map's descriptor over a socket to those who
//! may have one. A daemon that does not answer is waited for [`PATIENCE`], no longer.
//!
//! Invariants
//! 1. A mapping has at least `nr_slots` pages, which is checked when it is made, and it
//!    is never unmapped. (asserted in `Mapping::page`: no index beyond it)
//! 2. Several processes may write any of it at any time, so it is accessed only as
//!    atomics, for which every bit pattern is valid. (not asserted: the types say so)
//!
//! Known weakness: a process that may write a plain file may also truncate it, and the
//! kernel then kills processes that touch the lost pages. A BPF map keeps its size.

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::layout::{Header, Page, SLOT_SIZE};

/// Where the table is unless `GIVEWAY_HINTS_DIR` or the caller says otherwise.
pub const DIR: &str = "/run/giveway/bpf";
/// The name of a table in its directory.
pub const NAME: &str = "giveway_slots";
/// Beside that directory: where the table's descriptor is to be had by those who
/// may not enter it.
pub const SOCKET: &str = "hints.sock";

/// How long the daemon has to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where the table of user `uid` is, if root's is in `dir`.
pub fn dir_of(dir: &Path, uid: u32) -> PathBuf {
    match uid {
        0 => dir.to_path_buf(),
        _ => dir.join(uid.to_string()),
    }
}

/// The users who have tables in `dir`, root first.
pub(crate) fn users(dir: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut users: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&uid| uid > 0)
        .collect();
    users.sort_unstable();
    users.insert(0, 0);
    users
}

const MAGIC: u64 = u64::from_le_bytes(*b"giveway\0");
const TABLE_VERSION: u32 = 1;

/// Why a process has no table. It goes on without; the variants say what an
/// administrator can do about it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// UFS has not been loaded since boot.
    #[error("there is no hint table at {path}: load UFS with 'giveway start'")]
    Absent {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The user is not among those who may have a table, or UFS is not there to give it one.
    #[error(
        "this user has no hint table from {path}: load UFS with 'giveway start', and join the \
         group that may have tables"
    )]
    Forbidden {
        /// Where it is.
        path: PathBuf,
    },
    /// The process may not enter the directory, and the daemon does not answer.
    #[error(
        "{socket} has not answered: 'giveway status' tells whether UFS is loaded, \
         'giveway start' loads it again"
    )]
    Silent {
        /// Where it was asked.
        socket: PathBuf,
    },
    /// A table of another version, or no table at all.
    #[error("{path} is no hint table of version 1: use the library that came with the loaded UFS")]
    Foreign {
        /// What was found.
        path: PathBuf,
    },
    /// The system could not map it.
    #[error("cannot map the hint table at {path}")]
    Map {
        /// What was to be mapped.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// A mapped table. Copies are the same mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    base: NonNull<Header>,
    nr_slots: u32,
}

// SAFETY: all of a mapping is atomics (invariant 2) and lives for ever
// (invariant 1).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn open(dir: Option<&Path>) -> Result<Mapping, OpenError> {
        let dir = dir_or_usual(dir);
        let path = dir.join(NAME);
        let found = match get(&path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let socket = dir.with_file_name(SOCKET);
                match ask(&socket) {
                    Err(silence) if silence.kind() == io::ErrorKind::WouldBlock => {
                        return Err(OpenError::Silent { socket });
                    }
                    // Without an answer the first error counts.
                    answer => answer.map_err(|_| error),
                }
            }
            other => other,
        };
        let (fd, size) = found.map_err(|error| refusal(&path, error))?;
        Mapping::of(fd, size, path)
    }

    /// Maps what is at `path` and nothing else.
    pub(crate) fn at(path: PathBuf) -> Result<Mapping, OpenError> {
        let (fd, size) = get(&path).map_err(|error| refusal(&path, error))?;
        Mapping::of(fd, size, path)
    }

    fn of(fd: OwnedFd, size: usize, path: PathBuf) -> Result<Mapping, OpenError> {
        let foreign = || OpenError::Foreign { path: path.clone() };
        if size < 2 * SLOT_SIZE {
            return Err(foreign());
        }
        // SAFETY: a new shared mapping of a descriptor we own.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            let source = io::Error::last_os_error();
            return Err(OpenError::Map { path, source });
        }
        let base = NonNull::new(base.cast::<Header>()).expect("mmap maps nothing at address 0");
        // SAFETY: the mapping is at least two pages, and never unmapped unless
        // it is refused here.
        let header = unsafe { base.as_ref() };
        let nr_slots = header.nr_slots.load(Relaxed);
        let fits = (2..=size / SLOT_SIZE).contains(&(nr_slots as usize));
        if header.magic.load(Relaxed) != MAGIC
            || header.version.load(Relaxed) != TABLE_VERSION
            || !fits
        {
            // SAFETY: the mapping was made above, and nothing else refers to it.
            unsafe { libc::munmap(base.as_ptr().cast(), size) };
            return Err(foreign());
        }
        Ok(Mapping { base, nr_slots })
    }

    pub(crate) fn nr_slots(&self) -> u32 {
        self.nr_slots
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: invariants 1 and 2.
        unsafe { self.base.as_ref() }
    }

    /// Slot `index`.
    ///
    /// # Panics
    /// If the table has no such slot.
    pub(crate) fn page(&self, index: u32) -> &Page {
        assert!((1..self.nr_slots).contains(&index), "no slot {index}");
        // SAFETY: invariants 1 and 2, and the index was checked.
        unsafe { &*self.base.as_ptr().cast::<Page>().add(index as usize) }
    }

    /// Zeroes slot `index` but for its claim.
    pub(crate) fn wipe_page(&self, index: u32) {
        let page = self.page(index);
        page.tier.store(0, Relaxed);
        page.weight.store(0, Relaxed);
        let words = std::ptr::from_ref(page).cast::<AtomicU64>();
        for at in mem::offset_of!(Page, domain) / 8..SLOT_SIZE / 8 {
            // SAFETY: the word lies in the page (invariant 1), whose parts are
            // seen as atomics only (invariant 2).
            unsafe { &*words.add(at) }.store(0, Relaxed);
        }
    }
}

/// `dir`, else what `GIVEWAY_HINTS_DIR` says, else [`DIR`].
pub(crate) fn dir_or_usual(dir: Option<&Path>) -> PathBuf {
    let named = std::env::var_os("GIVEWAY_HINTS_DIR").map(PathBuf::from);
    dir.map(Path::to_path_buf)
        .or(named)
        .unwrap_or_else(|| DIR.into())
}

fn refusal(path: &Path, error: io::Error) -> OpenError {
    let path = path.to_path_buf();
    match error.kind() {
        io::ErrorKind::NotFound => OpenError::Absent { path },
        io::ErrorKind::PermissionDenied => OpenError::Forbidden { path },
        io::ErrorKind::InvalidData => OpenError::Foreign { path },
        _ => OpenError::Map {
            path,
            source: error,
        },
    }
}

/// The commands of bpf(2) that are used here, and their arguments.
const OBJ_GET: libc::c_long = 7;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;

#[repr(C)]
#[derive(Default)]
struct ObjGet {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
}

#[repr(C)]
struct InfoByFd {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// The beginning of `struct bpf_map_info`.
#[repr(C)]
#[derive(Default)]
struct MapInfo {
    map_type: u32,
    id: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// bpf(2).
fn bpf<T>(command: libc::c_long, attr: &mut T) -> io::Result<i32> {
    // SAFETY: the attribute is a live structure of the size given, laid out as
    // the command wants it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            mem::size_of::<T>(),
        )
    };
    match result {
        0.. => Ok(result as i32),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The descriptor of the table at `path`, and its size in bytes.
fn get(path: &Path) -> io::Result<(OwnedFd, usize)> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = ObjGet {
        pathname: name.as_ptr() as u64,
        ..ObjGet::default()
    };
    match bpf(OBJ_GET, &mut attr) {
        Ok(fd) => {
            // SAFETY: the kernel has just given us this descriptor.
            size(unsafe { OwnedFd::from_raw_fd(fd) }, 0)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        // No pinned map: a plain file, if anything.
        Err(_) => {
            let file = std::fs::File::options().read(true).write(true).open(path)?;
            if !file.metadata()?.is_file() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            size(file.into(), 0)
        }
    }
}

fn map_size(fd: &OwnedFd) -> io::Result<usize> {
    let mut info = MapInfo::default();
    let mut attr = InfoByFd {
        bpf_fd: fd.as_raw_fd() as u32,
        info_len: mem::size_of::<MapInfo>() as u32,
        info: std::ptr::from_mut(&mut info) as u64,
    };
    bpf(OBJ_GET_INFO_BY_FD, &mut attr)?;
    if info.value_size as usize != SLOT_SIZE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(info.max_entries as usize * SLOT_SIZE)
}

/// The size in bytes of the table that this descriptor is. `told`: the size of a
/// map, where bpf(2) is forbidden; a larger one cannot be mapped.
fn size(fd: OwnedFd, told: usize) -> io::Result<(OwnedFd, usize)> {
    match map_size(&fd) {
        Ok(size) => return Ok((fd, size)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
        Err(_) => {}
    }
    let file = std::fs::File::from(fd);
    let about = file.metadata()?;
    let is_map = about.mode() & libc::S_IFMT == 0;
    match about.is_file() {
        true => Ok((file.into(), about.len() as usize)),
        false if is_map => Ok((file.into(), told)),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// The table's descriptor from the daemon, at `path`: one message with the size in
/// bytes and the descriptor. `WouldBlock` if it does not answer.
fn ask(path: &Path) -> io::Result<(OwnedFd, usize)> {
    let address = address(path)?;
    let patience = libc::timeval {
        tv_sec: PATIENCE.as_secs() as libc::time_t,
        tv_usec: PATIENCE.subsec_micros() as libc::suseconds_t,
    };
    // SAFETY: the structures below are plain data, live for as long as the
    // calls that get their addresses, and the lengths given are theirs.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(socket);
        // Of connect, where many wait already, and of recvmsg.
        for limit in [libc::SO_SNDTIMEO, libc::SO_RCVTIMEO] {
            let length = mem::size_of_val(&patience) as libc::socklen_t;
            let value = (&raw const patience).cast();
            if libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, limit, value, length) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let length = mem::size_of_val(&address) as libc::socklen_t;
        let began = Instant::now();
        uninterrupted(began, || {
            libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) as isize
        })?;
        let mut bytes = 0u64;
        let mut data = libc::iovec {
            iov_base: (&raw mut bytes).cast(),
            iov_len: 8,
        };
        // Room for a control header and a descriptor, aligned as the header is.
        let mut control = [0u64; 4];
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &raw mut data;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = mem::size_of_val(&control);
        let received = uninterrupted(began, || {
            libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC)
        })?;
        let part = libc::CMSG_FIRSTHDR(&raw const message);
        let is_fd = |part: &libc::cmsghdr| {
            part.cmsg_level == libc::SOL_SOCKET && part.cmsg_type == libc::SCM_RIGHTS
        };
        if !part.as_ref().is_some_and(is_fd) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let fd = OwnedFd::from_raw_fd(libc::CMSG_DATA(part).cast::<i32>().read_unaligned());
        if received != 8 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        size(fd, bytes as usize)
    }
}

/// Repeats a system call that signals interrupt, as they do one with a time limit whatever
/// their handlers ask for. `WouldBlock` when the daemon's time is over meanwhile.
fn uninterrupted(began: Instant, mut call: impl FnMut() -> isize) -> io::Result<isize> {
    loop {
        let result = call();
        if result >= 0 {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted if began.elapsed() < PATIENCE => {}
            io::ErrorKind::Interrupted => return Err(io::ErrorKind::WouldBlock.into()),
            _ => return Err(error),
        }
    }
}

fn address(path: &Path) -> io::Result<libc::sockaddr_un> {
    // SAFETY: plain data, for which zeros are a value.
    let mut to: libc::sockaddr_un = unsafe { mem::zeroed() };
    to.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // The last place is for the 0 at its end.
    if bytes.len() >= to.sun_path.len() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    for (place, &byte) in to.sun_path.iter_mut().zip(bytes) {
        *place = byte as libc::c_char;
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_do_not_end_the_wait_for_the_daemon() {
        let now = Instant::now();
        let fails = |errno| {
            // SAFETY: `errno` is this thread's.
            unsafe { *libc::__errno_location() = errno };
            -1
        };
        // A handler that runs twice.
        let mut runs = 0;
        let answered = uninterrupted(now + PATIENCE, || {
            runs += 1;
            if runs > 2 { 8 } else { fails(libc::EINTR) }
        });
        assert_eq!(answered.unwrap(), 8);
        let refused = uninterrupted(now, || fails(libc::ECONNREFUSED));
        let kind = refused.unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::ConnectionRefused);
        // One that always runs.
        let long_ago = now.checked_sub(PATIENCE).unwrap();
        let silent = uninterrupted(long_ago, || fails(libc::EINTR));
        assert_eq!(silent.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
