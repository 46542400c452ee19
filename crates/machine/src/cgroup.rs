//! cgroup v2 as files: where it is mounted, a process's cgroup, and the files that are read
//! and written.
//!
//! ```text
//! /proc/self/mountinfo   where the hierarchy is mounted      mount_in
//! /proc/PID/cgroup       a process's cgroup, from the top    path_in, of_process, own
//! MOUNT/PATH/            a cgroup's directory                Cgroup
//!   cgroup.controllers     what may be enabled below it
//!   cgroup.subtree_control what is enabled below it
//!   cgroup.procs           its processes; written to, it takes one in
//!   cgroup.threads         its threads, likewise
//!   cpu.weight, cpu.stat   share, and CPU time used
//!   lock.weight            share of the kernel's locks, with CFL   lock_weights
//! ```
//!
//! Errors are the kernel's own, without the path: callers say what they wanted.
//!
//! Known weakness: [`MOUNT`] is where nearly every distribution mounts cgroup v2. On a
//! machine in hybrid mode it is elsewhere; callers that must know use [`mount_in`].

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where cgroup v2 is mounted, by convention.
pub const MOUNT: &str = "/sys/fs/cgroup";

/// Where the mount table `/proc/self/mountinfo` has cgroup v2 mounted, if it is.
pub fn mount_in(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let path = mount.split(' ').nth(4)?;
        kind.starts_with("cgroup2 ")
            .then(|| path.replace("\\040", " ").into())
    })
}

/// The cgroup, seen from the top of the hierarchy (`/system.slice/x`), that the text of
/// `/proc/PID/cgroup` names; none without cgroup v2. Allocates nothing.
pub fn path_in(text: &[u8]) -> Option<&Path> {
    let mut lines = text.split(|&byte| byte == b'\n');
    let path = lines.find_map(|line| line.strip_prefix(b"0::"))?;
    Some(Path::new(OsStr::from_bytes(path)))
}

/// The cgroup of a process, seen from the top; none if it has ended.
pub fn of_process(pid: u32) -> Option<PathBuf> {
    let text = fs::read(format!("/proc/{pid}/cgroup")).ok()?;
    path_in(&text).map(Path::to_path_buf)
}

/// The cgroup of this process, seen from the top; none without cgroup v2.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn own() -> io::Result<Option<PathBuf>> {
    let text = fs::read("/proc/self/cgroup")?;
    Ok(path_in(&text).map(Path::to_path_buf))
}

/// A cgroup, by its directory. It may not be there, or no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// The one with this directory.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Cgroup { dir: dir.into() }
    }

    /// The one at `path`, seen from the top of the hierarchy that is mounted at `mount`.
    pub fn below(mount: &Path, path: &Path) -> Self {
        Cgroup::at(mount.join(path.strip_prefix("/").unwrap_or(path)))
    }

    /// Makes the one with this directory, unless it is there.
    ///
    /// # Errors
    /// Those of mkdir(2), but for one that is there.
    pub fn make(dir: impl Into<PathBuf>) -> io::Result<Self> {
        let made = Cgroup::at(dir);
        match fs::create_dir(&made.dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(made),
        }
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// What one of its files says, without blanks around it.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn read(&self, file: &str) -> io::Result<String> {
        let text = fs::read_to_string(self.file(file))?;
        Ok(text.trim().to_owned())
    }

    /// Writes one of its files.
    ///
    /// # Errors
    /// Those of writing it.
    pub fn write(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.file(file), text)
    }

    /// Writes one of its files if that is there.
    ///
    /// # Errors
    /// Those of opening and writing it.
    pub fn write_if_there(&self, file: &str, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(self.file(file))?;
        file.write_all(text.as_bytes())
    }

    /// Writes `to` if the file's first line is `from`; whether that was done. There is no
    /// compare-and-swap: what is written meanwhile may be lost.
    pub fn exchange(&self, file: &str, from: &str, to: &str) -> bool {
        let now = self.read(file).unwrap_or_default();
        now.lines().next() == Some(from) && self.write_if_there(file, to).is_ok()
    }

    /// The words in one of its files; none if it cannot be read.
    pub fn words(&self, file: &str) -> Vec<String> {
        let text = self.read(file).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// The number after `key` in one of its files, as in `cpu.stat`.
    ///
    /// # Errors
    /// Those of reading it; `InvalidData` if there is no such line.
    pub fn value(&self, file: &str, key: &str) -> io::Result<u64> {
        let text = self.read(file)?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines
            .find(|(name, _)| *name == key)
            .and_then(|(_, value)| value.trim().parse().ok())
            .ok_or_else(|| {
                let what = format!("no {key} in {file}");
                io::Error::new(io::ErrorKind::InvalidData, what)
            })
    }

    /// Whether it may enable this controller below itself.
    pub fn offers(&self, controller: &str) -> bool {
        let offered = self.words("cgroup.controllers");
        offered.iter().any(|name| name == controller)
    }

    /// Whether this controller is enabled below it.
    pub fn has_below(&self, controller: &str) -> bool {
        let enabled = self.words("cgroup.subtree_control");
        enabled.iter().any(|name| name == controller)
    }

    /// Enables controllers below it: `+cpu +cpuset`.
    ///
    /// # Errors
    /// Those of writing `cgroup.subtree_control`.
    pub fn enable(&self, controllers: &str) -> io::Result<()> {
        self.write("cgroup.subtree_control", controllers)
    }

    /// The processes in it.
    ///
    /// # Errors
    /// Those of reading `cgroup.procs`.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        let text = self.read("cgroup.procs")?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Moves a process into it, with all its threads.
    ///
    /// # Errors
    /// Those of writing `cgroup.procs`; ESRCH if the process has ended.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// CPU time used in it, as the kernel counts it.
    ///
    /// # Errors
    /// As [`Cgroup::value`].
    pub fn cpu_time(&self) -> io::Result<Duration> {
        self.value("cpu.stat", "usage_usec")
            .map(Duration::from_micros)
    }

    /// The directories of those directly below it, in order; none if it is gone.
    pub fn children(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = fs::read_dir(&self.dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "\
24 1 0:22 / /proc rw - proc proc rw
30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate
";

    const HYBRID: &str = "\
30 1 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
32 30 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

    #[test]
    fn the_hierarchy_is_found_in_the_mount_table() {
        assert_eq!(mount_in(V2), Some(MOUNT.into()));
        assert_eq!(mount_in(HYBRID), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_in("24 1 0:22 / /proc rw - proc proc rw\n"), None);
        let spaced = "30 1 0:26 / /a\\040b rw - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_in(spaced), Some("/a b".into()));
    }

    #[test]
    fn a_process_s_cgroup_is_on_the_line_of_cgroup_v2() {
        let hybrid = b"12:cpu:/x\n1:name=systemd:/y\n0::/user.slice/z\n";
        assert_eq!(path_in(hybrid), Some(Path::new("/user.slice/z")));
        assert_eq!(path_in(b"0::/\n"), Some(Path::new("/")));
        assert_eq!(path_in(b"12:cpu:/x\n"), None);
        assert_eq!(of_process(std::process::id()), own().unwrap());
        assert_eq!(of_process(u32::MAX), None);
    }

    #[test]
    fn a_cgroup_s_files_are_read_and_written() {
        let mount = tempfile::tempdir().unwrap();
        let group = Cgroup::make(mount.path().join("a")).unwrap();
        assert_eq!(Cgroup::make(group.dir()).unwrap(), group, "it is there");
        assert_eq!(Cgroup::below(mount.path(), Path::new("/a")), group);
        assert!(!group.offers("cpu"));
        group.write("cgroup.controllers", "cpuset cpu\n").unwrap();
        assert!(group.offers("cpu") && !group.offers("memory"));
        group.write("cgroup.procs", "1\n23\n").unwrap();
        assert_eq!(group.processes().unwrap(), [1, 23]);
        group
            .write("cpu.stat", "usage_usec 1500000\nuser_usec 7\n")
            .unwrap();
        assert_eq!(group.value("cpu.stat", "user_usec").unwrap(), 7);
        assert_eq!(group.cpu_time().unwrap(), Duration::from_millis(1500));
        let missing = group.value("cpu.stat", "nr_periods").unwrap_err();
        assert_eq!(missing.to_string(), "no nr_periods in cpu.stat");
        assert!(
            !group.exchange("lock.weight", "100", "1"),
            "it is not there"
        );
        assert!(!group.file("lock.weight").exists());
        group.write("lock.weight", "100\n").unwrap();
        assert!(group.exchange("lock.weight", "100", "1"));
        assert!(!group.exchange("lock.weight", "100", "7"));
        assert_eq!(group.read("lock.weight").unwrap(), "1");
        assert!(!group.has_below("lock"));
        group.write("cgroup.subtree_control", "cpu lock\n").unwrap();
        assert!(group.has_below("lock"));
        for name in ["c", "b"] {
            Cgroup::make(group.dir().join(name)).unwrap();
        }
        let below = ["b", "c"].map(|name| group.dir().join(name));
        assert_eq!(group.children(), below);
        assert!(Cgroup::make("/no/such/parent").is_err());
    }
}
