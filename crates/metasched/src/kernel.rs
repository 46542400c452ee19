//! What the kernel tells, whichever program starts and ends schedulers: which scheduler
//! is attached, what tasks demand of CPUs, and whether they get it.
//!
//! The *canary* is a thread of the ordinary class that does nothing but count.
//! While its count stands still, ordinary tasks that want to run may be starved. The
//! reader of the count must not be starved, too, so the daemon puts itself into a class
//! above ([`rise`]); otherwise a stall is noticed only when the kernel's watchdog ends it.
//!
//! Known weakness: the canary is one task. A scheduler that starves only tasks
//! pinned to one CPU, or those of a cgroup, is left to the kernel's watchdog.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use giveway_machine::cgroup::{Cgroup, MOUNT};
use giveway_machine::sched_ext::{SchedExt, State};

/// How often the canary writes.
const CANARY_BEAT: Duration = Duration::from_millis(50);
/// What counts at most between two looks at the canary.
const LISTEN_MAX: Duration = Duration::from_millis(200);

/// The kernel of this machine, and a canary under it.
#[derive(Debug)]
pub(crate) struct Kernel {
    sched_ext: SchedExt,
    cgroups: PathBuf,
    // What only scx_loader needs: a scheduler of ours is told to leave.
    #[cfg_attr(not(feature = "scx-loader"), allow(dead_code))]
    sysrq: PathBuf,
    canary: Canary,
    began: Instant,
}

impl Kernel {
    /// The kernel whose `/proc` and `/sys` lie below `root` (`/` but in tests).
    pub(crate) fn new(root: &Path) -> Kernel {
        Kernel {
            sched_ext: SchedExt::under(root),
            cgroups: root.join(MOUNT.trim_start_matches('/')),
            sysrq: root.join("proc/sysrq-trigger"),
            canary: Canary::new(),
            began: Instant::now(),
        }
    }

    /// [`Host::now`](crate::host::Host::now).
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// [`Host::state`](crate::host::Host::state).
    pub(crate) fn state(&self) -> State {
        self.sched_ext.state()
    }

    /// [`Host::demanded`](crate::host::Host::demanded).
    pub(crate) fn demanded(&self, cgroups: &[PathBuf]) -> Vec<f64> {
        let of = |group: &PathBuf| demanded(&self.cgroups, group);
        cgroups.iter().map(of).collect()
    }

    /// Unloads whatever scheduler is in force, if this kernel has the key for that
    /// (SysRq-S). No other process has to answer.
    #[cfg_attr(not(feature = "scx-loader"), allow(dead_code))]
    pub(crate) fn throw_out(&self) {
        // One that could not be thrown out is still named by the kernel.
        let _ = fs::write(&self.sysrq, "S");
    }

    /// [`Host::starved`](crate::host::Host::starved).
    pub(crate) fn starved(&mut self) -> Duration {
        self.canary.silent_for(self.began.elapsed())
    }
}

/// CPU time used in a cgroup, and time that some task in it waited for a CPU
/// (pressure, where the kernel keeps count of it), in seconds.
fn demanded(root: &Path, group: &Path) -> f64 {
    let group = Cgroup::below(root, group);
    let used = group.cpu_time().unwrap_or_default();
    let pressure = group.read("cpu.pressure").unwrap_or_default();
    let some = pressure.lines().find_map(|line| line.strip_prefix("some "));
    let waited = some.and_then(|line| line.split_once("total="));
    let waited_us = waited.and_then(|(_, total)| total.trim().parse().ok());
    used.as_secs_f64() + waited_us.unwrap_or(0.0) / 1e6
}

/// An ordinary task that shows that ordinary tasks run, and its reader.
#[derive(Debug)]
struct Canary {
    shared: Arc<Beat>,
    /// What was heard last, when we last listened, and how long we have listened
    /// in vain since.
    heard: u64,
    listened: Duration,
    silent: Duration,
}

#[derive(Debug)]
struct Beat {
    count: AtomicU64,
    quit: AtomicBool,
}

impl Canary {
    fn new() -> Canary {
        let shared = Arc::new(Beat {
            count: AtomicU64::new(1),
            quit: AtomicBool::new(false),
        });
        let beat = Arc::clone(&shared);
        thread::spawn(move || {
            while !beat.quit.load(Relaxed) {
                beat.count.fetch_add(1, Relaxed);
                thread::sleep(CANARY_BEAT);
            }
        });
        Canary {
            shared,
            heard: 0,
            listened: Duration::ZERO,
            silent: Duration::ZERO,
        }
    }

    /// For how long it has been silent while we listened. A machine that was
    /// suspended or a process that was stopped kept us from listening, too.
    fn silent_for(&mut self, now: Duration) -> Duration {
        let since = now.saturating_sub(self.listened);
        self.listened = now;
        let heard = self.shared.count.load(Relaxed);
        if heard == self.heard {
            self.silent += since.min(LISTEN_MAX);
        } else {
            self.heard = heard;
            self.silent = Duration::ZERO;
        }
        self.silent.saturating_sub(CANARY_BEAT)
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.shared.quit.store(true, Relaxed);
    }
}

/// Puts this thread above the ordinary class, so that it goes on when a
/// scheduler starves everybody; what it starts is ordinary again. Answers
/// whether that was allowed.
pub fn rise() -> bool {
    let param = nix::libc::sched_param { sched_priority: 1 };
    let policy = nix::libc::SCHED_RR | nix::libc::SCHED_RESET_ON_FORK;
    // SAFETY: the pointer is to a live sched_param.
    unsafe { nix::libc::sched_setscheduler(0, policy, &param) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_is_time_used_and_time_waited() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("web.slice/a");
        fs::create_dir_all(&group).unwrap();
        let of = |name: &str| demanded(dir.path(), Path::new(name));
        assert_eq!(of("/web.slice/a"), 0.0);
        fs::write(group.join("cpu.stat"), "usage_usec 1500000\nuser_usec 7\n").unwrap();
        assert_eq!(of("/web.slice/a"), 1.5);
        let pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=250000\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        fs::write(group.join("cpu.pressure"), pressure).unwrap();
        assert_eq!(of("/web.slice/a"), 1.75);
        assert_eq!(of("/none"), 0.0);
    }

    #[test]
    fn canary_silence_counts_only_while_watched() {
        let mut canary = Canary::new();
        // Silence it.
        canary.shared = Arc::new(Beat {
            count: AtomicU64::new(7),
            quit: AtomicBool::new(false),
        });
        let at = Duration::from_millis;
        assert_eq!(canary.silent_for(at(1000)), Duration::ZERO, "it was heard");
        for round in 1..=10 {
            let silent = canary.silent_for(at(1000 + 100 * round));
            assert_eq!(silent + CANARY_BEAT, at(100 * round));
        }
        // We were away for an hour.
        let silent = canary.silent_for(at(3_600_000));
        assert_eq!(silent + CANARY_BEAT, at(1000) + LISTEN_MAX);
        canary.shared.count.fetch_add(1, Relaxed);
        assert_eq!(canary.silent_for(at(3_600_100)), Duration::ZERO);
    }

    #[test]
    fn canary_thread_reports() {
        let canary = Canary::new();
        let first = canary.shared.count.load(Relaxed);
        while canary.shared.count.load(Relaxed) < first + 2 {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
