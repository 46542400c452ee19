//! Processes, as the files below `/proc` have them: totals, so that what happened between
//! two readings is their difference.
//!
//! ```text
//!   PID/stat             number, command, start, threads, CPU time, policy
//!   PID/status           switches of the first thread
//!   PID/task/TID/status  of each, where there are several
//!   PID/cgroup ──► the directory's number below the mount of cgroup v2
//! ```
//!
//! - A process may end between two of its files. It is then left out.
//! - A number may be given to another process: with its start it is one process's alone.
//! - CPU time comes in clock ticks, and has that of ended threads in it. Switches of ended
//!   threads are lost.
//! - A command is bytes of its process's own choice, with blanks and parentheses: it reaches
//!   from the first parenthesis to the last one. What a terminal must not get is left out
//!   ([`printable`]).
//! - `/proc` of a container has the processes of its PID namespace, and with `hidepid` only
//!   those of the same user. Both are said.
//!
//! **Cost.** Three files for a process, and one for each thread where there are several. In a
//! virtual machine on an EPYC a process takes 35 µs of CPU time and a thread 20 µs: 10,000
//! processes of one thread 0.35 s. Whoever reads chooses how often.
//!
//! The crate `procfs` is not used: for the same 10,000 processes it takes 1.8 times the CPU
//! time, and it does not read the `status` of a process whose command is not UTF-8.
//!
//! No file is read that waits for the process's memory, as `cmdline` does: its owner can have
//! that wait for ever.
//!
//! Known weakness: with `hidepid`, the first process being visible (a container's, of the
//! same user) hides that others are hidden.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;

use crate::names::printable;

/// A clock tick in nanoseconds: 100 a second, to whoever reads `/proc` on the processors
/// that Giveway supports.
pub const TICK_NS: u64 = 10_000_000;

/// The machine's own PID namespace, whose number the kernel fixes.
const OUTERMOST: &str = "pid:[4026531836]";
/// What is read at once, in bytes: more than most files have.
const PIECE: usize = 4096;
/// The flag of a kernel thread (`PF_KTHREAD`).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// All processes that could be read.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// By number.
    pub by_pid: BTreeMap<u32, Process>,
    /// There are others, which this user may not see.
    pub hides_others: bool,
    /// They are those of the machine, not those of a container.
    pub is_of_machine: bool,
}

/// One process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// When it was started, in ticks since boot.
    pub started: u64,
    /// Its name, without what a terminal must not get.
    pub command: String,
    /// None without cgroup v2.
    pub cgroup: Option<Arc<Cgroup>>,
    /// Threads, those that have ended left out.
    pub threads: u64,
    /// CPU time of all threads, in ticks.
    pub cpu_ticks: u64,
    /// The policy of the first thread, as sched(7) numbers it.
    pub policy: Policy,
    /// It is a thread of the kernel.
    pub is_kernel: bool,
    /// By thread.
    pub switches: BTreeMap<u32, Switches>,
}

/// How Linux chooses when a thread runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// `SCHED_OTHER`, `SCHED_BATCH` or `SCHED_EXT`.
    #[default]
    Fair,
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_FIFO`, `SCHED_RR` or `SCHED_DEADLINE`: before all that UFS schedules.
    RealTime,
}

/// Where a process is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// From the top, without what a terminal must not get.
    pub path: String,
    /// Its number, that of its directory's inode, and of those above it, the nearest first.
    /// None of those that cannot be seen.
    pub ids: Vec<u64>,
}

/// How often a thread left its CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// To wait for something.
    pub voluntary: u64,
    /// For others, or at the end of a slice.
    pub involuntary: u64,
}

/// Why there are no processes.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {source}; {}", self.remedy())]
pub struct ReadError {
    path: PathBuf,
    source: io::Error,
}

impl ReadError {
    fn remedy(&self) -> &'static str {
        match self.source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EMFILE | Errno::ENFILE) => "raise the limit of open files (ulimit -n)",
            Some(Errno::ENOENT) => "mount -t proc proc /proc",
            _ => "see what is mounted there: findmnt /proc",
        }
    }
}

/// Where processes are read.
#[derive(Clone, Debug)]
pub struct Reader {
    proc: PathBuf,
    cgroups: Option<PathBuf>,
}

/// What became of a file of a process.
enum Read {
    Done,
    /// The process has ended.
    Ended,
    /// It is not for this user.
    Denied,
}

impl Reader {
    /// Below `proc`, usually `/proc`, with cgroup v2 mounted at `cgroups`.
    pub fn new(proc: impl Into<PathBuf>, cgroups: Option<PathBuf>) -> Self {
        Self {
            proc: proc.into(),
            cgroups,
        }
    }

    /// What there is now.
    ///
    /// # Errors
    /// If `/proc` itself cannot be read, or no file can be opened.
    pub fn read(&self) -> Result<Processes, ReadError> {
        let mut found = Processes {
            is_of_machine: self.is_of_machine(),
            ..Processes::default()
        };
        let mut cgroups = HashMap::new();
        let mut text = Vec::new();
        for pid in numbers(&self.proc).map_err(|source| failed(&self.proc, source))? {
            match self.process(pid, &mut cgroups, &mut text)? {
                Ok(process) => drop(found.by_pid.insert(pid, process)),
                Err(Read::Denied) => found.hides_others = true,
                Err(_) => {}
            }
        }
        // Every namespace has one, which does not end before the namespace does.
        found.hides_others |= !found.by_pid.contains_key(&1);
        Ok(found)
    }

    /// Whether this `/proc` has the processes of the machine: by its first process, and by
    /// this one where that is not for this user.
    fn is_of_machine(&self) -> bool {
        let namespace = |of: &str| fs::read_link(self.proc.join(of).join("ns/pid"));
        namespace("1")
            .or_else(|_| namespace("self"))
            .is_ok_and(|namespace| namespace == Path::new(OUTERMOST))
    }

    fn process(
        &self,
        pid: u32,
        cgroups: &mut HashMap<Vec<u8>, Arc<Cgroup>>,
        text: &mut Vec<u8>,
    ) -> Result<Result<Process, Read>, ReadError> {
        let dir = self.proc.join(pid.to_string());
        match contents(&dir.join("stat"), text)? {
            Read::Done => {}
            other => return Ok(Err(other)),
        }
        let Some(mut process) = stat(text) else {
            return Ok(Err(Read::Ended));
        };
        match contents(&dir.join("cgroup"), text)? {
            Read::Done => {}
            other => return Ok(Err(other)),
        }
        if let Some(path) = text.split(|&byte| byte == b'\n').find_map(unified) {
            let known = cgroups.get(path).cloned();
            let cgroup = known.unwrap_or_else(|| {
                let cgroup = Arc::new(self.cgroup(path));
                cgroups.insert(path.to_owned(), Arc::clone(&cgroup));
                cgroup
            });
            process.cgroup = Some(cgroup);
        }
        let mut add = |tid, path: &Path| -> Result<Read, ReadError> {
            let read = contents(path, text)?;
            if let Read::Done = read {
                process.switches.insert(tid, switches(text));
            }
            Ok(read)
        };
        if process.threads <= 1 {
            return Ok(match add(pid, &dir.join("status"))? {
                Read::Done => Ok(process),
                other => Err(other),
            });
        }
        let dir = dir.join("task");
        // It may have ended.
        for tid in numbers(&dir).unwrap_or_default() {
            add(tid, &dir.join(tid.to_string()).join("status"))?;
        }
        Ok(Ok(process))
    }

    /// The cgroup at a path. Numbers of the cgroups at its end and above.
    fn cgroup(&self, path: &[u8]) -> Cgroup {
        let seen = Path::new(OsStr::from_bytes(path));
        // Outside of what this cgroup namespace sees: the path leads out of the mount.
        let is_outside = seen.components().any(|part| part == Component::ParentDir);
        let mount = self.cgroups.as_deref().filter(|_| !is_outside);
        let id = |mount: &Path, below: &Path| {
            let below = below.strip_prefix("/").unwrap_or(below);
            fs::metadata(mount.join(below)).map(|about| about.ino())
        };
        let ids = mount.into_iter().flat_map(|mount| {
            // A cgroup that was removed while a process of it ends has none.
            seen.ancestors()
                .filter_map(move |below| id(mount, below).ok())
        });
        Cgroup {
            path: printable(path),
            ids: ids.collect(),
        }
    }
}

fn failed(path: &Path, source: io::Error) -> ReadError {
    ReadError {
        path: path.to_owned(),
        source,
    }
}

/// The entries of a directory that are numbers.
fn numbers(dir: &Path) -> io::Result<Vec<u32>> {
    let number = |entry: io::Result<fs::DirEntry>| {
        entry.map(|entry| {
            entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
        })
    };
    fs::read_dir(dir)?
        .map(number)
        .filter_map(Result::transpose)
        .collect()
}

/// Reads a whole file of a process into `text`.
fn contents(path: &Path, text: &mut Vec<u8>) -> Result<Read, ReadError> {
    match File::open(path).and_then(|file| whole(file, text)) {
        Ok(()) => Ok(Read::Done),
        Err(error) => match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::ESRCH) => Ok(Read::Ended),
            Some(Errno::EACCES | Errno::EPERM) => Ok(Read::Denied),
            _ => Err(failed(path, error)),
        },
    }
}

/// Reads to the end, most files at once: the kernel writes each of them whole, and gives less
/// than is asked for only at its end.
fn whole(mut file: File, text: &mut Vec<u8>) -> io::Result<()> {
    let mut length = 0;
    loop {
        text.resize(length + PIECE, 0);
        length += file.read(&mut text[length..])?;
        if length < text.len() {
            text.truncate(length);
            return Ok(());
        }
    }
}

/// The path in a line of `cgroup`, if it is that of cgroup v2.
fn unified(line: &[u8]) -> Option<&[u8]> {
    line.strip_prefix(b"0::")
}

/// What a `stat` says.
fn stat(text: &[u8]) -> Option<Process> {
    let opening = text.iter().position(|&byte| byte == b'(')?;
    let closing = text.iter().rposition(|&byte| byte == b')')?;
    let command = text.get(opening + 1..closing)?;
    let rest = std::str::from_utf8(&text[closing + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Numbered as in proc_pid_stat(5), where the state is the third.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Process {
        command: printable(command),
        is_kernel: field(9)? & KERNEL_THREAD != 0,
        cpu_ticks: field(14)? + field(15)?,
        threads: field(20)?,
        started: field(22)?,
        policy: match field(41)? {
            1 | 2 | 6 => Policy::RealTime,
            5 => Policy::Idle,
            _ => Policy::Fair,
        },
        ..Process::default()
    })
}

/// What a `status` says of switches.
fn switches(text: &[u8]) -> Switches {
    let field = |name: &[u8]| {
        let mut lines = text.split(|&byte| byte == b'\n');
        let value = lines.find_map(|line| line.strip_prefix(name));
        let value = value.and_then(|value| std::str::from_utf8(value).ok());
        value.map_or(0, |value| value.trim().parse().unwrap_or(0))
    };
    Switches {
        voluntary: field(b"voluntary_ctxt_switches:"),
        involuntary: field(b"nonvoluntary_ctxt_switches:"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::time::Instant;

    use nix::unistd::{Uid, setfsuid};

    use super::*;

    /// A tree as `/proc` is, and one as cgroup v2 is.
    pub(crate) struct Planted {
        dir: tempfile::TempDir,
    }

    impl Planted {
        /// With the first process, which is there always.
        pub(crate) fn new() -> Self {
            let planted = Self {
                dir: tempfile::tempdir().unwrap(),
            };
            fs::create_dir_all(planted.proc().join("self/ns")).unwrap();
            fs::create_dir_all(planted.cgroups()).unwrap();
            planted.process(1, b"systemd", "S 0 1 1 0 -1 4194560", 5, &[(1, 10, 0)]);
            fs::create_dir(planted.proc().join("1/ns")).unwrap();
            symlink(OUTERMOST, planted.proc().join("1/ns/pid")).unwrap();
            planted
        }

        pub(crate) fn proc(&self) -> PathBuf {
            self.dir.path().join("proc")
        }

        fn cgroups(&self) -> PathBuf {
            self.dir.path().join("cgroup")
        }

        pub(crate) fn reader(&self) -> Reader {
            Reader::new(self.proc(), Some(self.cgroups()))
        }

        /// A process with the fields of `stat` from the state to the flags, so many ticks of
        /// CPU time, and threads with their voluntary and involuntary switches.
        pub(crate) fn process(
            &self,
            pid: u32,
            command: &[u8],
            head: &str,
            ticks: u64,
            threads: &[(u32, u64, u64)],
        ) {
            self.process_of(pid, command, head, ticks, threads, 700, 0);
        }

        #[expect(clippy::too_many_arguments, reason = "the fields of one file")]
        fn process_of(
            &self,
            pid: u32,
            command: &[u8],
            head: &str,
            ticks: u64,
            threads: &[(u32, u64, u64)],
            started: u64,
            policy: u32,
        ) {
            let dir = self.proc().join(pid.to_string());
            let _ = fs::remove_dir_all(dir.join("task"));
            fs::create_dir_all(&dir).unwrap();
            let mut stat = [format!("{pid} (").as_bytes(), command, b") "].concat();
            let nr = threads.len();
            let zeros = "0 ".repeat(18);
            let tail = format!(
                "{head} 1 2 3 4 {ticks} 2 900 901 20 0 {nr} 0 {started} {zeros}{policy} 0 0 0\n"
            );
            stat.extend_from_slice(tail.as_bytes());
            fs::write(dir.join("stat"), stat).unwrap();
            fs::write(dir.join("cgroup"), "3:cpu:/x\n0::/a/b\n").unwrap();
            for &(tid, voluntary, involuntary) in threads {
                let status = format!(
                    "Name:\tx\nGroups:\t{}\nvoluntary_ctxt_switches:\t{voluntary}\n\
                     nonvoluntary_ctxt_switches:\t{involuntary}\n",
                    "7 ".repeat(4000)
                );
                let thread = dir.join(format!("task/{tid}"));
                fs::create_dir_all(&thread).unwrap();
                fs::write(thread.join("status"), &status).unwrap();
                if tid == pid {
                    fs::write(dir.join("status"), status).unwrap();
                }
            }
        }
    }

    const USER: &str = "S 1 7 7 0 -1 4194304";

    #[test]
    fn a_process_is_read_from_its_files() {
        let planted = Planted::new();
        planted.process_of(7, b"train", USER, 40, &[(7, 10, 20)], 4711, 5);
        let found = planted.reader().read().unwrap();
        assert!(found.is_of_machine && !found.hides_others);
        let process = &found.by_pid[&7];
        assert_eq!(process.command, "train");
        assert_eq!((process.started, process.cpu_ticks), (4711, 42));
        assert_eq!((process.threads, process.policy), (1, Policy::Idle));
        assert!(!process.is_kernel);
        let switches = Switches {
            voluntary: 10,
            involuntary: 20,
        };
        assert_eq!(process.switches, BTreeMap::from([(7, switches)]));
        assert_eq!(process.cgroup.as_ref().unwrap().path, "/a/b");
        for real_time in [1, 2, 6] {
            planted.process_of(7, b"x", USER, 0, &[(7, 0, 0)], 1, real_time);
            let found = planted.reader().read().unwrap();
            assert_eq!(found.by_pid[&7].policy, Policy::RealTime);
        }
        planted.process(8, b"kworker/0:1", "I 2 0 0 0 -1 69238880", 0, &[(8, 1, 0)]);
        assert!(planted.reader().read().unwrap().by_pid[&8].is_kernel);
    }

    #[test]
    fn a_command_may_have_anything_in_it() {
        let planted = Planted::new();
        let command = |bytes: &[u8]| {
            planted.process(7, bytes, USER, 40, &[(7, 10, 20)]);
            let found = planted.reader().read().unwrap();
            let process = &found.by_pid[&7];
            assert_eq!((process.started, process.cpu_ticks), (700, 42), "{bytes:?}");
            process.command.clone()
        };
        assert_eq!(command(b"a b) R 1 (c"), "a b) R 1 (c");
        assert_eq!(command(b"(sd-pam)"), "(sd-pam)");
        assert_eq!(command(b""), "");
        assert_eq!(command(b"a\nb"), "ab");
        assert_eq!(command(b"caf\xe9 \xff"), "caf\u{fffd} \u{fffd}");
        assert_eq!(command(b"\x1b]0;x\x07\x1b[2J"), "]0;x[2J");
    }

    #[test]
    fn switches_are_those_of_every_thread() {
        let planted = Planted::new();
        planted.process(7, b"java", USER, 40, &[(7, 1, 2), (9, 30, 40)]);
        let found = planted.reader().read().unwrap();
        let switches = &found.by_pid[&7].switches;
        let all: Vec<_> = switches
            .iter()
            .map(|(&tid, thread)| (tid, thread.voluntary, thread.involuntary))
            .collect();
        assert_eq!(all, [(7, 1, 2), (9, 30, 40)]);
    }

    #[test]
    fn what_ends_meanwhile_is_left_out() {
        let planted = Planted::new();
        for (pid, file) in [(7, "stat"), (8, "cgroup"), (9, "status")] {
            planted.process(pid, b"x", USER, 0, &[(pid, 0, 0)]);
            fs::remove_file(planted.proc().join(format!("{pid}/{file}"))).unwrap();
        }
        // A thread of a process that goes on.
        planted.process(10, b"x", USER, 0, &[(10, 0, 0), (11, 0, 0)]);
        fs::remove_file(planted.proc().join("10/task/11/status")).unwrap();
        let found = planted.reader().read().unwrap();
        assert!(found.by_pid.keys().eq(&[1, 10]), "{found:?}");
        assert!(found.by_pid[&10].switches.keys().eq(&[10]));
        assert!(!found.hides_others);
    }

    #[test]
    fn a_cgroup_has_its_number_and_those_above() {
        let planted = Planted::new();
        let of = |path: &str| {
            fs::write(planted.proc().join("1/cgroup"), format!("0::{path}\n")).unwrap();
            let found = planted.reader().read().unwrap();
            Cgroup::clone(found.by_pid[&1].cgroup.as_ref().unwrap())
        };
        let dir = planted.cgroups().join("a/b");
        fs::create_dir_all(&dir).unwrap();
        let id = |dir: &Path| fs::metadata(dir).unwrap().ino();
        let above = [id(&planted.cgroups().join("a")), id(&planted.cgroups())];
        assert_eq!(of("/a/b").ids, [id(&dir), above[0], above[1]]);
        assert_eq!(of("/").ids, above[1..]);
        assert_eq!(of("/a/gone (deleted)").ids, above);
        // Another cgroup namespace's: the path leads to no cgroup.
        assert_eq!(of("/../proc").ids, [0_u64; 0]);
        assert_eq!(of("/a\u{1b}[2J").path, "/a[2J");
        // Of cgroup v1 alone.
        fs::write(planted.proc().join("1/cgroup"), "3:cpu:/x\n").unwrap();
        assert_eq!(planted.reader().read().unwrap().by_pid[&1].cgroup, None);
    }

    #[test]
    fn hidden_processes_are_noticed() {
        let planted = Planted::new();
        planted.process(7, b"x", USER, 0, &[(7, 0, 0)]);
        let found = planted.reader().read().unwrap();
        assert!(!found.hides_others);
        // Denied, as with hidepid=1, also to root's tests.
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(planted.dir.path(), 0o755);
        mode(&planted.proc().join("7/stat"), 0);
        let reader = planted.reader();
        let found = std::thread::spawn(move || {
            setfsuid(Uid::from_raw(65534));
            reader.read().unwrap()
        });
        let found = found.join().unwrap();
        assert!(found.hides_others && !found.by_pid.contains_key(&7));
        mode(&planted.proc().join("7/stat"), 0o644);
        // Not there, as with hidepid=2.
        fs::remove_dir_all(planted.proc().join("1")).unwrap();
        assert!(planted.reader().read().unwrap().hides_others);
    }

    #[test]
    fn processes_of_a_container_are_told_from_the_machine_s() {
        let planted = Planted::new();
        let link = planted.proc().join("1/ns/pid");
        fs::remove_file(&link).unwrap();
        symlink("pid:[4026532000]", &link).unwrap();
        assert!(!planted.reader().read().unwrap().is_of_machine);
        // Where the first is not for this user, this process says it.
        fs::remove_file(&link).unwrap();
        assert!(!planted.reader().read().unwrap().is_of_machine);
        symlink(OUTERMOST, planted.proc().join("self/ns/pid")).unwrap();
        assert!(planted.reader().read().unwrap().is_of_machine);
    }

    #[test]
    fn a_missing_proc_names_the_remedy() {
        let error = Reader::new("/no/such/proc", None).read().unwrap_err();
        assert!(error.to_string().contains("mount -t proc"), "{error}");
    }

    #[test]
    fn this_process_is_found_at_work() {
        let reader = Reader::new("/proc", None);
        let own = || reader.read().unwrap().by_pid[&std::process::id()].clone();
        let before = own();
        let began = Instant::now();
        while own().cpu_ticks < before.cpu_ticks + 10 {
            assert!(began.elapsed().as_secs() < 60, "reading takes no CPU time");
        }
        let took = began.elapsed();
        let now = own();
        assert_eq!(now.started, before.started);
        // Threads of other tests have CPUs, too.
        let cpus = std::thread::available_parallelism().unwrap().get() as u64;
        let ran_ns = (now.cpu_ticks - before.cpu_ticks) * TICK_NS;
        let most_ns = (took.as_nanos() as u64 + 2 * TICK_NS) * cpus;
        assert!(ran_ns <= most_ns, "{ran_ns} ns in {took:?}");
        let sum = |process: &Process| -> u64 {
            let switches = process.switches.values();
            switches
                .map(|thread| thread.voluntary + thread.involuntary)
                .sum()
        };
        assert!(now.threads > 1 && sum(&now) > 0, "{now:?}");
    }
}
