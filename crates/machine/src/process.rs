//! Processes that do something to the whole machine, such as a scheduler's loader.
//!
//! A process's name proves nothing: any user can choose it, and so can any container.
//! [`of_root`] takes a process for a program of this machine's if
//!
//! 1. its name is the program's, and so is that of the file it runs;
//! 2. root has started it: all four of its user numbers are 0, as they are not for a
//!    program that is set to run as root for somebody else;
//! 3. its process numbers are ours, so it is in no container.
//!
//! A number may be another process's by the time a signal is sent: [`Handle`] names the
//! process itself.
//!
//! Reads no file below `/proc` that waits for the process's memory, as `cmdline` does:
//! its owner can have that wait for ever.
//!
//! Known weakness: who is not root cannot see 3 or the file, and goes by the rest.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// What the kernel keeps of a name.
const NAME_MAX: usize = 15;
/// What the kernel adds to the path of a file that has been replaced, by an upgrade.
const REPLACED: &str = " (deleted)";

/// Root's processes that run the program of this name, outside of containers; the
/// oldest numbers first.
pub fn of_root(program: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| is_of_root(*pid, program))
        .collect();
    pids.sort_unstable();
    pids
}

/// Whether this process is one of those.
pub fn is_of_root(pid: u32, program: &str) -> bool {
    let dir = dir(pid);
    let says = |file, holds: &dyn Fn(&str) -> bool| {
        fs::read_to_string(dir.join(file)).is_ok_and(|text| holds(&text))
    };
    says("stat", &|stat| runs(stat, program))
        && says("status", &|status| uids(status) == Some([0; 4]))
        && is_outside_containers(&dir)
        && is_file_of(&dir, program)
}

/// A process that is signalled, if at all, as itself: never another one that has its number
/// after it.
#[derive(Debug)]
pub struct Handle(OwnedFd);

impl Handle {
    /// That of the process with this number, if it is one of [`of_root`]'s for this program.
    pub fn of_root(pid: u32, program: &str) -> Option<Self> {
        // SAFETY: the call takes numbers only.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            return None;
        }
        // SAFETY: the descriptor is new, and nobody else's.
        let handle = Handle(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        // Looked at after it was opened: it has had the number until now.
        is_of_root(pid, program).then_some(handle)
    }

    /// Sends it a signal, by its number; nothing happens if it has ended.
    pub fn signal(&self, signal: i32) {
        let fd = self.0.as_raw_fd();
        let no_details = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: a live descriptor; without details the kernel reads no memory.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, no_details, 0) };
    }
}

/// The name of this process; none if it has ended.
pub fn name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(dir(pid).join("comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Whose process it is: the user as which it acts; none if it has ended.
pub fn uid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(dir(pid).join("status")).ok()?;
    uids(&status).map(|[_, effective, ..]| effective)
}

fn dir(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// Whether the process has this name and runs, by its `stat`. One that has ended and
/// waits to be reaped still has its name.
fn runs(stat: &str, program: &str) -> bool {
    let parts = stat
        .split_once('(')
        .and_then(|(_, rest)| rest.rsplit_once(") "));
    let kept = &program[..program.len().min(NAME_MAX)];
    parts.is_some_and(|(name, rest)| name == kept && !rest.starts_with(['Z', 'X']))
}

/// The user numbers in a `status`: real, effective, saved, for files.
fn uids(status: &str) -> Option<[u32; 4]> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let numbers: Vec<u32> = line
        .split_whitespace()
        .map_while(|number| number.parse().ok())
        .collect();
    numbers.try_into().ok()
}

/// Whether it has the process numbers that we have. Only root can read this, and only
/// root acts on it.
fn is_outside_containers(dir: &Path) -> bool {
    let number = |dir: &Path| fs::metadata(dir.join("ns/pid")).map(|about| about.ino());
    match (number(dir), number(Path::new("/proc/self"))) {
        (Ok(its), Ok(ours)) => its == ours,
        (Err(error), _) => error.kind() == io::ErrorKind::PermissionDenied,
        (Ok(_), Err(_)) => false,
    }
}

/// Whether the file that it runs has the program's name.
fn is_file_of(dir: &Path, program: &str) -> bool {
    match fs::read_link(dir.join("exe")) {
        Ok(path) => {
            let name = path.file_name().and_then(OsStr::to_str);
            name.is_some_and(|name| name.strip_suffix(REPLACED).unwrap_or(name) == program)
        }
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_does_not_run() {
        assert!(runs("7 (scx_ufs) S 1 7", "scx_ufs"));
        assert!(!runs("7 (scx_ufs) Z 1 7", "scx_ufs"));
        assert!(!runs("7 (scx_lavd) S 1 7", "scx_ufs"));
        assert!(!runs("7 (a) (scx_ufs) S 1 7", "scx_ufs"));
        assert!(runs("7 (a_very_long_nam) S 1 7", "a_very_long_name"));
        assert!(!runs("", "scx_ufs"));
    }

    #[test]
    fn a_program_that_runs_as_root_for_somebody_else_is_not_root_s() {
        assert_eq!(uids("Name:\tx\nUid:\t0\t0\t0\t0\n"), Some([0; 4]));
        assert_eq!(uids("Uid:\t1000\t0\t0\t0\n"), Some([1000, 0, 0, 0]));
        assert_eq!(uids("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_has_its_name_and_user() {
        let pid = std::process::id();
        let program = std::env::current_exe().unwrap();
        let program = program.file_name().unwrap().to_str().unwrap();
        assert!(program.starts_with(&name(pid).unwrap()), "{program}");
        // SAFETY: it only returns a number.
        let is_root = unsafe { libc::getuid() } == 0;
        // Of the test's main thread; this one has a name of its own.
        assert_eq!(is_of_root(pid, program), is_root);
        assert!(!is_of_root(pid, &format!("{program}x")));
        assert_eq!(name(u32::MAX), None);
    }
}
