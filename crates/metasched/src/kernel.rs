//! What the kernel says, whoever starts and ends schedulers: what is in force, what
//! tasks demand of CPUs, and whether they get it.
//!
//! The *canary* is a thread of the ordinary class that does nothing but count.
//! How long its count stands still tells how long an ordinary task that wants to
//! run may be kept from it. That says something only if the reader is
//! not kept from running, too, so the daemon puts itself into a class above
//! ([`rise`]); without that a stall is noticed when the kernel's watchdog ends
//! it.
//!
//! Known weakness: the canary is one task. A scheduler that starves only tasks
//! pinned to one CPU, or those of a cgroup, is left to the kernel's watchdog.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::host::State;

/// How often the canary writes.
const CANARY_BEAT: Duration = Duration::from_millis(50);
/// What counts at most between two looks at the canary.
const LISTEN_MAX: Duration = Duration::from_millis(200);

/// The kernel of this machine, and a canary under it.
#[derive(Debug)]
pub(crate) struct Kernel {
    sched_ext: PathBuf,
    cgroups: PathBuf,
    sysrq: PathBuf,
    canary: Canary,
    began: Instant,
}

impl Kernel {
    /// The kernel whose `/proc` and `/sys` lie below `root` (`/` but in tests).
    pub(crate) fn new(root: &Path) -> Kernel {
        Kernel {
            sched_ext: root.join("sys/kernel/sched_ext"),
            cgroups: root.join("sys/fs/cgroup"),
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
        state(&self.sched_ext)
    }

    /// [`Host::demanded`](crate::host::Host::demanded).
    pub(crate) fn demanded(&self, cgroups: &[PathBuf]) -> Vec<f64> {
        let of = |group: &PathBuf| demanded(&self.cgroups, group);
        cgroups.iter().map(of).collect()
    }

    /// Unloads whatever scheduler is in force, if this kernel has the key for that
    /// (SysRq-S). Needs nobody's answer.
    pub(crate) fn throw_out(&self) {
        // One that could not be thrown out is still named by the kernel.
        let _ = fs::write(&self.sysrq, "S");
    }

    /// [`Host::starved`](crate::host::Host::starved).
    pub(crate) fn starved(&mut self) -> Duration {
        self.canary.silent_for(self.began.elapsed())
    }
}

/// What the kernel says under this directory.
pub fn state(sched_ext: &Path) -> State {
    let Ok(state) = fs::read_to_string(sched_ext.join("state")) else {
        return State::Unsupported;
    };
    match state.trim() {
        "disabled" => State::Disabled,
        "enabled" => match fs::read_to_string(sched_ext.join("root/ops")) {
            Ok(ops) => State::Enabled(ops.trim().to_owned()),
            // It left between the two reads.
            Err(_) => State::Changing("disabling".to_owned()),
        },
        other => State::Changing(other.to_owned()),
    }
}

/// How many schedulers have been loaded since boot, where the kernel counts.
pub fn loads(sched_ext: &Path) -> Option<u64> {
    let text = fs::read_to_string(sched_ext.join("enable_seq")).ok()?;
    text.trim().parse().ok()
}

/// CPU time used in a cgroup, and time that some task in it waited for a CPU
/// (pressure, where the kernel keeps count of it), in seconds.
fn demanded(root: &Path, group: &Path) -> f64 {
    let dir = root.join(group.strip_prefix("/").unwrap_or(group));
    let read = |file: &str| fs::read_to_string(dir.join(file)).unwrap_or_default();
    let (stat, pressure) = (read("cpu.stat"), read("cpu.pressure"));
    let used = stat
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "));
    let some = pressure.lines().find_map(|line| line.strip_prefix("some "));
    let waited = some.and_then(|line| line.split_once("total="));
    let us = |text: Option<&str>| {
        text.and_then(|text| text.trim().parse().ok())
            .unwrap_or(0.0)
    };
    (us(used) + us(waited.map(|(_, total)| total))) / 1e6
}

/// An ordinary task that shows that ordinary tasks run, and who listens to it.
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
    fn the_kernel_s_word_is_read_with_the_scheduler_s_name() {
        let dir = tempfile::tempdir().unwrap();
        let state = || state(dir.path());
        assert_eq!(state(), State::Unsupported);
        fs::create_dir(dir.path().join("root")).unwrap();
        let say = |file: &str, text: &str| {
            fs::write(dir.path().join(file), text).unwrap();
        };
        say("state", "disabled\n");
        assert_eq!(state(), State::Disabled);
        say("state", "enabling\n");
        assert_eq!(state(), State::Changing("enabling".into()));
        say("state", "enabled\n");
        assert_eq!(state(), State::Changing("disabling".into()));
        say("root/ops", "ufs_0.1.0\n");
        assert_eq!(state(), State::Enabled("ufs_0.1.0".into()));
        assert_eq!(loads(dir.path()), None);
        say("enable_seq", "7\n");
        assert_eq!(loads(dir.path()), Some(7));
    }

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
    fn a_canary_s_silence_counts_while_somebody_listens() {
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
    fn a_canary_sings() {
        let canary = Canary::new();
        let first = canary.shared.count.load(Relaxed);
        while canary.shared.count.load(Relaxed) < first + 2 {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
