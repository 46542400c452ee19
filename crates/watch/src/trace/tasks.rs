//! Threads as `/proc` and the hint tables know them.

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
            tier: said.tier,
            boosts: report.boosts,
            boosted_ns: report.boosted_ns,
            lock: report.last_lock,
        });
        let slots = slots.collect();
        (monotonic_ns(), slots)
    }
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
    fn the_clock_goes_on() {
        let tier_of = |_: &Path| Tier::Background;
        let mut tasks = Proc::new(Path::new("/proc"), &tier_of, Vec::new());
        let (first, slots) = tasks.look();
        assert!(slots.is_empty() && tasks.look().0 >= first);
    }
}
