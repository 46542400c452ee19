//! Threads as `/proc` and the hint tables know them.
//!
//! A thread's tier is found as UFS finds it: kernel threads are time-sensitive; threads of
//! the policy SCHED_IDLE are background; others are in the tier of their cgroup. A slot
//! puts its thread into the background, or, as far as UFS has not reported that it refuses
//! this, above its cgroup.
//!
//! Known weaknesses: a thread's policy and its cgroup's tier are those of when it was first
//! met, or moved. A hint that a process has inherited from its parent is not known here.
//! What a slot reports lies in its user's memory, so a user can falsify what is shown of
//! his own threads.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use giveway_hints::slot::Table;
use giveway_tier::Tier;
use nix::time::{ClockId, clock_gettime};

use super::chrome::Owner;
use super::record::{About, Slot, Tasks};
use crate::names;

/// Where the policy is in `/proc/PID/stat` (proc(5)), counted after the name.
const POLICY_AT: usize = 38;

/// The threads of this machine.
pub struct Proc<'a> {
    dir: PathBuf,
    /// The tier of a cgroup, by its path from the top.
    tier_of: &'a dyn Fn(&Path) -> Tier,
    tables: Vec<Table>,
    /// The inode number of the own pid namespace: of others the numbers mean
    /// something else.
    namespace: u32,
}

impl<'a> Proc<'a> {
    /// Threads below `dir`, usually `/proc`, and the slots of `tables`.
    pub fn new(dir: &Path, tier_of: &'a dyn Fn(&Path) -> Tier, tables: Vec<Table>) -> Self {
        let namespace = fs::metadata(dir.join("self/ns/pid"));
        Self {
            dir: dir.to_owned(),
            tier_of,
            tables,
            namespace: namespace.map_or(0, |about| about.ino() as u32),
        }
    }
}

impl Tasks for Proc<'_> {
    fn about(&mut self, tid: u32) -> Option<About> {
        let dir = self.dir.join(tid.to_string());
        // Both have names of others' choice in them, which need not be UTF-8.
        let status = fs::read(dir.join("status")).ok()?;
        let status = String::from_utf8_lossy(&status);
        let pid = field(&status, "Tgid:")?;
        let cgroup = fs::read(dir.join("cgroup")).ok()?;
        let mut lines = cgroup.split(|&byte| byte == b'\n');
        let path = lines.find_map(|line| line.strip_prefix(b"0::"));
        let path = OsStr::from_bytes(path.unwrap_or(b"/"));
        let tier = match field(&status, "Kthread:") {
            Some(1) => Tier::TimeSensitive,
            _ if is_idle(&dir) => Tier::Background,
            _ => (self.tier_of)(Path::new(path)),
        };
        let title = names::title(&self.dir, tid)?;
        let process = match pid == tid {
            true => title.clone(),
            false => names::title(&self.dir, pid).unwrap_or_else(|| title.clone()),
        };
        Some(About {
            owner: Owner {
                pid,
                process,
                title,
                cgroup: path.to_string_lossy().into_owned(),
            },
            tier,
        })
    }

    fn look(&mut self) -> (u64, Vec<Slot>) {
        let slots = self.tables.iter().flat_map(Table::reports);
        let own = slots.filter(|(said, _)| said.namespace == self.namespace);
        let slots = own.map(|(said, report)| Slot {
            tid: said.tid,
            tier: obeyed(said.tier, report.tier),
            boosts: report.boosts,
            boosted_ns: report.boosted_ns,
            lock: report.last_lock,
        });
        let slots = slots.collect();
        (monotonic_ns(), slots)
    }
}

/// The tier that a slot gives its thread, by what it asks for and what UFS has reported;
/// none: its cgroup's.
fn obeyed(asked: Option<Tier>, reported: Option<Tier>) -> Option<Tier> {
    let is_refused = asked == Some(Tier::TimeSensitive) && reported == Some(Tier::Background);
    asked.filter(|_| !is_refused)
}

/// Whether the thread's policy is SCHED_IDLE, by its `stat`.
fn is_idle(dir: &Path) -> bool {
    let Ok(stat) = fs::read(dir.join("stat")) else {
        return false;
    };
    // Its name, which may be anything, ends at the last parenthesis.
    let name_end = stat.iter().rposition(|&byte| byte == b')');
    let rest = name_end.map_or(&[][..], |at| &stat[at + 1..]);
    let mut words = rest
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    words.nth(POLICY_AT) == Some(b"5")
}

/// The number after a name in `/proc/PID/status`.
fn field(status: &str, name: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

/// The clock that the trace is set to.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the clock that every Linux has");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_found_with_its_process_and_its_tier() {
        let proc = tempfile::tempdir().unwrap();
        let thread = |tid: u32, status: &str, comm: &str| {
            let dir = proc.path().join(tid.to_string());
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("status"), status).unwrap();
            fs::write(dir.join("cgroup"), "9:cpu:/x\n0::/background.slice/a\n").unwrap();
            fs::write(dir.join("comm"), comm).unwrap();
        };
        thread(7, "Name:\tx\nTgid:\t7\nNgid:\t0\n", "train\n");
        thread(8, "Tgid:\t7\nKthread:\t0\n", "worker\n");
        thread(9, "Tgid:\t9\nKthread:\t1\n", "kworker\n");
        let tier_of = |path: &Path| {
            assert_eq!(path, Path::new("/background.slice/a"));
            Tier::Background
        };
        let mut tasks = Proc::new(proc.path(), &tier_of, Vec::new());
        let about = tasks.about(8).unwrap();
        assert_eq!((about.owner.pid, about.tier), (7, Tier::Background));
        assert_eq!(about.owner.process, "train");
        assert_eq!(about.owner.title, "worker");
        assert_eq!(about.owner.cgroup, "/background.slice/a");
        assert_eq!(tasks.about(9).unwrap().tier, Tier::TimeSensitive);
        assert_eq!(tasks.about(10), None);
        // The kernel cuts a name at 15 bytes, in the middle of a letter too.
        thread(11, "", "caf\n");
        let status = proc.path().join("11/status");
        fs::write(status, b"Name:\tcaf\xc3\nTgid:\t11\n").unwrap();
        assert_eq!(tasks.about(11).unwrap().tier, Tier::Background);
    }

    #[test]
    fn a_slot_raises_a_thread_unless_ufs_has_refused_it() {
        let [urgent, background] = Tier::ALL.map(Some);
        assert_eq!(obeyed(urgent, urgent), urgent);
        assert_eq!(obeyed(urgent, background), None);
        assert_eq!(obeyed(urgent, None), urgent, "UFS has said nothing yet");
        assert_eq!(obeyed(background, urgent), background);
        assert_eq!(obeyed(None, background), None);
    }

    #[test]
    fn a_thread_of_the_policy_sched_idle_is_background() {
        let proc = tempfile::tempdir().unwrap();
        let stat = |policy: u32| {
            let before = "0 ".repeat(POLICY_AT - 1);
            let text = format!("7 (a) b) S {before}{policy} 0 0\n");
            fs::write(proc.path().join("stat"), text).unwrap();
        };
        assert!(!is_idle(proc.path()), "it is gone");
        stat(0);
        assert!(!is_idle(proc.path()));
        stat(5);
        assert!(is_idle(proc.path()));
        assert!(!is_idle(Path::new("/proc/self")));
    }

    #[test]
    fn the_clock_goes_on() {
        let tier_of = |_: &Path| Tier::Background;
        let mut tasks = Proc::new(Path::new("/proc"), &tier_of, Vec::new());
        let (first, slots) = tasks.look();
        assert!(slots.is_empty() && tasks.look().0 >= first);
    }
}
