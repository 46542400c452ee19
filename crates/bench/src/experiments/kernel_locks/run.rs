//! The two cgroups, in a guest.
//!
//! ```text
//!   this process   giveway-bench/           waits, reads lock.stat at edges of windows
//!   threads        giveway-bench/g1, g2     work while their number is below `active`
//! ```
//!
//! Threads are there from the beginning and sleep while they are not active. Each counts
//! for itself, in total and by intervals, so that nobody has to be on time to count.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::gettid;

use super::blog::Blog;
use super::row::{GroupRow, KernelLocksRow, Latency, LockStat, PhaseRow, counts};
use super::{KernelLocksPlan, Lock, Part, Phase};
use crate::cell::cgroup::{Group, ThreadGroups};
use crate::harness::error::{Error, Result};
use crate::runner::guest::GUEST_FILES;

/// The file system, among the guest's files.
pub(super) const IMAGE: &str = "ext4.img";
/// The disk in memory that it is copied to.
const DISK: &str = "/dev/ram0";
/// Where a file system is mounted.
const MOUNT: &str = "/tmp/kernel-locks";
const CFL: &str = "/sys/kernel/debug/cfl";
/// The cgroups.
const NAMES: [&str; 2] = ["g1", "g2"];
/// Where the files of a cgroup's threads are, and where they go.
const WAYS: [[&str; 2]; 2] = [["home1", "empty"], ["home2", "full"]];

impl Part {
    /// The class of the lock that its threads share.
    fn class(self) -> &'static str {
        match self {
            Part::Blogbench => "classes/rename_lock",
            _ => "classes/s_vfs_rename_mutex",
        }
    }

    /// Intervals of the series.
    fn interval(self) -> Duration {
        match self {
            Part::Blogbench => Duration::from_millis(1),
            _ => Duration::from_millis(10),
        }
    }

    /// The file system, with what its threads need.
    fn disk(self, files: u32) -> Result<Disk> {
        if self == Part::Blogbench {
            return Disk::in_memory();
        }
        let disk = Disk::copied(&Path::new(GUEST_FILES).join(IMAGE))?;
        disk.fill(files)?;
        Ok(disk)
    }

    /// What a thread of a cgroup does.
    fn work(self, disk: &Disk, group: usize, thread: usize) -> Result<Work> {
        match (self, group) {
            (Part::Blogbench, 0) => {
                let dir = disk.path(&format!("blogs-{thread}"));
                Ok(Work::Blog(Blog::create(dir, thread as u64)?))
            }
            (Part::Blogbench, _) => {
                let dir = disk.path(&format!("batch-{thread}"));
                fs::create_dir(&dir).map_err(Error::file("make", &dir))?;
                Ok(Work::Rename(["one", "other"].map(|name| dir.join(name))))
            }
            _ => {
                let way = |dir| disk.path(dir).join(thread.to_string());
                Ok(Work::Rename(WAYS[group].map(way)))
            }
        }
    }
}

/// Measures a cell.
pub(super) fn run(plan: &KernelLocksPlan) -> Result<KernelLocksRow> {
    let phases = plan.phases();
    let disk = plan.part.disk(plan.files)?;
    choose(plan)?;
    let cgroups = ThreadGroups::create("+cpu +lock", &NAMES)?;

    let most = |group: usize| phases.iter().map(|phase| phase.threads[group]).max();
    let counts = [0, 1].map(|group| most(group).unwrap_or(0));
    let shared = Shared::new(counts, plan.part.interval());
    let (measured, series) = thread::scope(|scope| -> Result<_> {
        // Ends the threads whatever comes, or the scope would wait for ever.
        let _end = End(&shared);
        let begun = Instant::now();
        let mut threads = Vec::new();
        for (group, cgroup) in cgroups.groups().iter().enumerate() {
            for thread in 0..shared.renames[group].len() {
                let (shared, tasks) = (&shared, cgroup.threads());
                let of = Thread {
                    group,
                    thread,
                    work: plan.part.work(&disk, group, thread)?,
                };
                threads.push((group, scope.spawn(move || of.run(shared, &tasks, begun))));
            }
        }
        // A move to another cgroup takes milliseconds.
        let all = threads.len();
        let is_over = || threads.iter().any(|(_, thread)| thread.is_finished());
        while shared.ready.load(Relaxed) < all && !is_over() {
            thread::sleep(Duration::from_millis(1));
        }
        let measured = phases
            .iter()
            .map(|phase| measure(phase, plan.settle_s, &shared, cgroups.groups(), begun))
            .collect::<Result<Vec<_>>>()?;
        shared.set_active([0, 0], true);
        let mut series: [Vec<u64>; 2] = Default::default();
        let mut took = Vec::new();
        for (group, thread) in threads {
            let own = thread.join().expect("a thread does not panic")?;
            let sum = &mut series[group];
            sum.resize(sum.len().max(own.series.len()), 0);
            sum.iter_mut()
                .zip(own.series)
                .for_each(|(sum, own)| *sum += own);
            took.extend(own.took);
        }
        let timed = measured.into_iter().map(|(mut phase, window)| {
            let within = took.iter().filter(|(end, _)| window.contains(end));
            phase.groups[0].latency = Latency::of(within.map(|(_, took)| *took).collect());
            phase
        });
        Ok((timed.collect(), series))
    })?;
    Ok(KernelLocksRow {
        part: plan.part,
        lock: plan.lock,
        cpus: plan.cpus,
        sockets: plan.sockets,
        files: plan.files,
        repeat: plan.repeat,
        seed: plan.seed,
        phases: measured,
        interval_ms: plan.part.interval().as_secs_f64() * 1e3,
        series,
    })
}

/// Lets a phase run, and reads what happened in its window. Answers also with when that
/// was, in ns from the beginning.
fn measure(
    phase: &Phase,
    settle_s: f64,
    shared: &Shared,
    cgroups: &[Group],
    begun: Instant,
) -> Result<(PhaseRow, Range<u64>)> {
    for (cgroup, weight) in cgroups.iter().zip(phase.weights) {
        cgroup.set("lock.weight", &weight.to_string())?;
    }
    let from_s = begun.elapsed().as_secs_f64();
    shared.set_active(phase.threads, false);
    thread::sleep(Duration::from_secs_f64(settle_s));
    let before = Edge::read(shared, cgroups)?;
    thread::sleep(Duration::from_secs_f64(phase.seconds));
    let after = Edge::read(shared, cgroups)?;
    let group = |group: usize| {
        let (before, after) = (&before.groups[group], &after.groups[group]);
        let renames = after.renames.iter().zip(&before.renames);
        let active = phase.threads[group] as usize;
        GroupRow {
            weight: phase.weights[group],
            renames: renames.take(active).map(|(a, b)| a - b).collect(),
            cpu_ms: (after.cpu - before.cpu).as_secs_f64() * 1e3,
            stat: after.stat.since(before.stat),
            latency: None,
        }
    };
    let events = after.events.iter().map(|(name, count)| {
        let before = before.events.get(name).copied().unwrap_or(0);
        (name.clone(), count - before)
    });
    let row = PhaseRow {
        phase: phase.name.clone(),
        from_s,
        seconds: (after.at - before.at).as_secs_f64(),
        groups: [group(0), group(1)],
        events: events.collect(),
    };
    let ns = |edge: &Edge| (edge.at - begun).as_nanos() as u64;
    Ok((row, ns(&before)..ns(&after)))
}

/// Switches the lock to what is measured.
fn choose(plan: &KernelLocksPlan) -> Result<()> {
    let lock = plan.lock;
    let put = |knob: &str, on: bool| {
        let path = Path::new(CFL).join(knob);
        fs::write(&path, u8::from(on).to_string()).map_err(Error::file("write", &path))
    };
    put("groups", lock != Lock::CflNg)?;
    put("starvation_prevention", lock != Lock::CflNs)?;
    put(plan.part.class(), lock != Lock::Stock)
}

/// What the kernel and the threads have counted so far.
struct Edge {
    at: Instant,
    groups: Vec<EdgeGroup>,
    events: BTreeMap<String, u64>,
}

struct EdgeGroup {
    renames: Vec<u64>,
    stat: LockStat,
    cpu: Duration,
}

impl Edge {
    fn read(shared: &Shared, cgroups: &[Group]) -> Result<Self> {
        let at = Instant::now();
        let group = |(cgroup, renames): (&Group, &Vec<Count>)| {
            let text = cgroup.read("lock.stat")?;
            let stat = LockStat::parse(&text).ok_or_else(|| {
                Error::Config(format!("lock.stat is not that of the CFL kernel: {text:?}"))
            })?;
            Ok(EdgeGroup {
                renames: renames.iter().map(|count| count.0.load(Relaxed)).collect(),
                stat,
                cpu: cgroup.cpu_time()?,
            })
        };
        let groups = cgroups.iter().zip(&shared.renames).map(group);
        let path = Path::new(CFL).join("events");
        let events = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        Ok(Edge {
            at,
            groups: groups.collect::<Result<_>>()?,
            events: counts(&events),
        })
    }
}

/// A count that shares its cache line with no other.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

/// What this process and the threads share.
struct Shared {
    /// How many threads of each cgroup rename.
    active: [AtomicU32; 2],
    /// How many threads are in their cgroups and have their files.
    ready: AtomicUsize,
    /// By cgroup and thread.
    renames: [Vec<Count>; 2],
    /// Intervals of the series.
    interval: Duration,
    /// Whether it is over; threads that are not active wait for a change.
    over: Mutex<bool>,
    changed: Condvar,
}

impl Shared {
    fn new(threads: [u32; 2], interval: Duration) -> Self {
        Shared {
            active: Default::default(),
            ready: AtomicUsize::new(0),
            renames: threads.map(|count| (0..count).map(|_| Count::default()).collect()),
            interval,
            over: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    fn set_active(&self, threads: [u32; 2], over: bool) {
        let mut is_over = self.over.lock().expect("no holder panics");
        *is_over |= over;
        for (active, threads) in self.active.iter().zip(threads) {
            active.store(threads, Relaxed);
        }
        self.changed.notify_all();
    }

    fn is_active(&self, group: usize, thread: usize) -> bool {
        thread < self.active[group].load(Relaxed) as usize
    }

    /// Waits until the thread is active; answers whether it is.
    fn wait(&self, group: usize, thread: usize) -> bool {
        let over = self.over.lock().expect("no holder panics");
        let wait = |over: &mut bool| !*over && !self.is_active(group, thread);
        let over = self.changed.wait_while(over, wait);
        !*over.expect("no holder panics")
    }
}

/// Ends the threads when it goes.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.set_active([0, 0], true);
    }
}

/// What a thread does.
enum Work {
    /// It renames its file to the other name and back.
    Rename([PathBuf; 2]),
    /// It serves a blog, and times each operation.
    Blog(Blog),
}

/// A thread of a cgroup.
struct Thread {
    group: usize,
    thread: usize,
    work: Work,
}

/// What a thread has done.
struct Done {
    /// Its renames by interval.
    series: Vec<u64>,
    /// When timed operations ended, from the beginning, and how long they took, in ns.
    took: Vec<(u64, u64)>,
}

impl Thread {
    /// Works while it may.
    fn run(self, shared: &Shared, tasks: &Path, begun: Instant) -> Result<Done> {
        let Thread {
            group,
            thread,
            mut work,
        } = self;
        fs::write(tasks, gettid().to_string()).map_err(Error::file("write", tasks))?;
        if let Work::Rename([home, _]) = &work {
            File::create(home).map_err(Error::file("create", home))?;
        }
        shared.ready.fetch_add(1, Relaxed);
        let mut done = Done {
            series: Vec::new(),
            took: Vec::new(),
        };
        let series = &mut done.series;
        let count = &shared.renames[group][thread].0;
        while shared.wait(group, thread) {
            while shared.is_active(group, thread) {
                let at = match &mut work {
                    Work::Rename(ways) => {
                        let [from, to] = ways;
                        fs::rename(&from, &to).map_err(Error::file("rename", from))?;
                        std::mem::swap(from, to);
                        begun.elapsed()
                    }
                    Work::Blog(blog) => {
                        let from = Instant::now();
                        blog.operate()?;
                        let (took, at) = (from.elapsed(), begun.elapsed());
                        done.took
                            .push((at.as_nanos() as u64, took.as_nanos() as u64));
                        at
                    }
                };
                count.store(count.load(Relaxed) + 1, Relaxed);
                let interval = at.as_nanos() / shared.interval.as_nanos();
                let interval = interval as usize;
                if series.len() <= interval {
                    series.resize(interval + 1, 0);
                }
                series[interval] += 1;
            }
        }
        Ok(done)
    }
}

/// The file system, mounted until it goes.
struct Disk;

impl Disk {
    /// One that has no disk.
    fn in_memory() -> Result<Self> {
        Disk::mount("tmpfs", "tmpfs")
    }

    fn copied(image: &Path) -> Result<Self> {
        let mut from = File::open(image).map_err(Error::file("open", image))?;
        let disk = File::options().write(true).open(DISK);
        let mut to = disk.map_err(Error::file("open", DISK.as_ref()))?;
        io::copy(&mut from, &mut to).map_err(Error::file("copy", image))?;
        // A disk that is open for writing cannot be mounted.
        drop(to);
        Disk::mount("ext4", DISK)
    }

    fn mount(kind: &str, device: &str) -> Result<Self> {
        fs::create_dir_all(MOUNT).map_err(Error::file("make", MOUNT.as_ref()))?;
        let mount = Command::new("mount")
            .args(["-t", kind, device, MOUNT])
            .output();
        let output = mount.map_err(Error::file("mount", device.as_ref()))?;
        if !output.status.success() {
            return Err(Error::Program {
                program: "mount".to_owned(),
                status: output.status.to_string(),
                output: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        Ok(Disk)
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(MOUNT).join(name)
    }

    /// Makes the directories, and the files that nobody renames.
    fn fill(&self, files: u32) -> Result<()> {
        for dir in WAYS.into_iter().flatten() {
            let path = self.path(dir);
            fs::create_dir(&path).map_err(Error::file("make", &path))?;
        }
        let full = self.path("full");
        for number in 0..files {
            let path = full.join(format!("file-{number}"));
            File::create(&path).map_err(Error::file("create", &path))?;
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The guest ends soon if this fails.
        let _ = Command::new("umount").arg(MOUNT).status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_renames_while_its_number_is_below_what_is_active() {
        let dir = tempfile::tempdir().unwrap();
        let tasks = dir.path().join("cgroup.threads");
        let shared = Shared::new([0, 2], Duration::from_millis(10));
        let begun = Instant::now();
        let ways = |thread: u32| ["a", "b"].map(|way| dir.path().join(format!("{way}{thread}")));
        let of = [0, 1].map(|thread| Thread {
            group: 1,
            thread: thread as usize,
            work: Work::Rename(ways(thread)),
        });
        let series = thread::scope(|scope| {
            let run = |of: Thread| {
                let (shared, tasks) = (&shared, &tasks);
                scope.spawn(move || of.run(shared, tasks, begun))
            };
            let threads = of.map(run);
            shared.set_active([0, 1], false);
            let is_over = || threads.iter().any(|thread| thread.is_finished());
            let renamed = || shared.renames[1][0].0.load(Relaxed) > 0;
            let ready = || shared.ready.load(Relaxed) == threads.len();
            while !(is_over() || ready() && renamed()) {
                thread::sleep(Duration::from_millis(1));
            }
            shared.set_active([0, 0], true);
            threads.map(|thread| thread.join().unwrap().unwrap().series)
        });
        let counted = [0, 1].map(|thread: usize| shared.renames[1][thread].0.load(Relaxed));
        assert!(counted[0] > 0 && counted[1] == 0, "{counted:?}");
        let sums = series.map(|of| of.iter().sum::<u64>());
        assert_eq!(sums, counted);
    }
}
