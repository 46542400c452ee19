//! Who ran on which CPU: context switches, as the kernel traces them.
//!
//! The paper's method (UFS, Section 3, Figure 2): at each `sched_switch` of a CPU
//! the time since the one before belongs to the task that ran until now. What a
//! CPU did before its first switch in the window, and after its last, is not
//! known, and counts for nobody: less than a time slice.
//!
//! ```text
//!   prepare ─ begin ─[ window ]─ end ─ … clients gone … ─ read ─ drop
//! ```
//!
//! The trace has an instance and a buffer of its own, so that nobody else's is
//! disturbed. It is read when the clients are gone, since turning it into text
//! takes time. A buffer that was too small is an error, not a gap.

use std::fs;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use serde::{Deserialize, Serialize};

use crate::cell::class::Class;
use crate::harness::error::{Error, Result};

const TRACEFS: &str = "/sys/kernel/tracing";
const INSTANCE: &str = "giveway-bench";
const EVENT: &str = "events/sched/sched_switch/enable";
/// A switch takes some 64 bytes: half a million of them on each CPU.
const BUFFER_KIB: u32 = 32 * 1024;

/// For how long a CPU ran what, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CpuTime {
    /// The terminals' processes: CPU-bursty.
    pub bursty_s: f64,
    /// The background's.
    pub background_s: f64,
    /// Context switches.
    pub switches: u64,
}

/// A trace of context switches; removed when dropped.
#[derive(Debug)]
pub(super) struct Switches {
    dir: PathBuf,
    cpus: u32,
}

impl Switches {
    /// Prepares to trace CPUs 0 to `cpus` - 1.
    pub(super) fn prepare(cpus: u32) -> Result<Self> {
        let root = Path::new(TRACEFS);
        if !root.join(EVENT).exists() {
            // Fails where it is mounted already, and then the next step tells.
            let none: Option<&str> = None;
            let _ = mount(
                Some("tracefs"),
                root,
                Some("tracefs"),
                MsFlags::empty(),
                none,
            );
        }
        let dir = root.join("instances").join(INSTANCE);
        // Left over from a run that was killed.
        let _ = fs::remove_dir(&dir);
        fs::create_dir(&dir).map_err(|error| {
            Error::Config(format!(
                "cannot trace context switches at {}: {error}; run as root on a kernel with \
                 CONFIG_FTRACE, as distributions' are",
                dir.display()
            ))
        })?;
        let this = Switches { dir, cpus };
        this.set("tracing_on", "0")?;
        for cpu in 0..cpus {
            let size = format!("per_cpu/cpu{cpu}/buffer_size_kb");
            this.set(&size, &BUFFER_KIB.to_string())?;
        }
        this.set(EVENT, "1")?;
        Ok(this)
    }

    /// From now on.
    pub(super) fn begin(&self) -> Result<()> {
        self.set("tracing_on", "1")
    }

    /// Until now.
    pub(super) fn end(&self) -> Result<()> {
        self.set("tracing_on", "0")
    }

    /// What each CPU did; `pids` are the processes of each class.
    pub(super) fn read(&self, classes: &[Class], pids: &[Vec<i32>]) -> Result<Vec<CpuTime>> {
        let of = |bursty: bool| {
            let classes = classes.iter().zip(pids);
            let classes = classes.filter(move |(class, _)| class.work.is_tpcc() == bursty);
            Vec::from_iter(classes.flat_map(|(_, pids)| pids.iter().copied()))
        };
        let (bursty, background) = (of(true), of(false));
        let mut cpus = Vec::new();
        for cpu in 0..self.cpus {
            let dir = self.dir.join(format!("per_cpu/cpu{cpu}"));
            let read = |name: &str| {
                let path = dir.join(name);
                fs::read_to_string(&path).map_err(Error::file("read", &path))
            };
            if overrun(&read("stats")?) > 0 {
                return Err(Error::Config(format!(
                    "CPU {cpu} switched more often than its trace holds: shorten the window with \
                     --seconds"
                )));
            }
            cpus.push(account(&read("trace")?, &bursty, &background));
        }
        Ok(cpus)
    }

    fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.dir.join(file);
        fs::write(&path, value).map_err(Error::file("write to", &path))
    }
}

impl Drop for Switches {
    fn drop(&mut self) {
        // What stays is switched off, and the next trace removes it.
        let _ = self.end();
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Events that were overwritten, by the buffer's own statistics.
fn overrun(stats: &str) -> u64 {
    let line = stats.lines().find_map(|line| line.strip_prefix("overrun:"));
    line.and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

/// Adds up what one CPU did.
fn account(trace: &str, bursty: &[i32], background: &[i32]) -> CpuTime {
    let mut time = CpuTime::default();
    let mut last_us: Option<u64> = None;
    for (now_us, previous) in trace.lines().filter_map(switch) {
        time.switches += 1;
        if let Some(last_us) = last_us {
            let seconds = now_us.saturating_sub(last_us) as f64 * 1e-6;
            if bursty.contains(&previous) {
                time.bursty_s += seconds;
            } else if background.contains(&previous) {
                time.background_s += seconds;
            }
        }
        last_us = Some(now_us);
    }
    time
}

/// When a switch happened, in microseconds, and who had run until then. A task's
/// name may have blanks, colons and brackets in it, so fields are looked for from
/// the event's name to the left, and from the arrow to the left.
fn switch(line: &str) -> Option<(u64, i32)> {
    let (left, right) = line.split_once(": sched_switch: ")?;
    let (seconds, fraction) = left.split_whitespace().next_back()?.split_once('.')?;
    let seconds: u64 = seconds.parse().ok()?;
    let micros: u64 = fraction.parse().ok()?;
    let (before, _) = right.split_once(" ==> ")?;
    let (_, pid) = before.rsplit_once("prev_pid=")?;
    let pid = pid.split_whitespace().next()?.parse().ok()?;
    Some((seconds * 1_000_000 + micros, pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a kernel writes it, with a task whose name is meant to confuse.
    const TRACE: &str = "\
# tracer: nop
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
          <idle>-0       [001] d..2.   100.999990: sched_switch: prev_comm=swapper/1 \
prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=postgres next_pid=71 next_prio=120
        postgres-71      [001] d..2.   101.000990: sched_switch: prev_comm=postgres \
prev_pid=71 prev_prio=120 prev_state=S ==> next_comm=a [2]: prev_pid=9 next_pid=80 next_prio=120
 a [2]: prev_pid-80      [001] d..2.   101.003990: sched_switch: prev_comm=a [2]: prev_pid=9 \
prev_pid=80 prev_prio=120 prev_state=R+ ==> next_comm=postgres next_pid=72 next_prio=120
        postgres-72      [001] d..2.   101.004490: sched_switch: prev_comm=postgres \
prev_pid=72 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
          <idle>-0       [001] d..2.   102.004490: sched_switch: prev_comm=swapper/1 \
prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=postgres next_pid=71 next_prio=120
";

    #[test]
    fn time_between_switches_belongs_to_whoever_ran() {
        let time = account(TRACE, &[71, 72], &[80]);
        let close = |left: f64, right: f64| (left - right).abs() < 1e-9;
        assert!(close(time.bursty_s, 0.0015), "{time:?}");
        assert!(close(time.background_s, 0.003), "{time:?}");
        assert_eq!(time.switches, 5);
        // 71 ran last, but nobody knows for how long.
        assert!(close(account(TRACE, &[], &[71]).background_s, 0.001));
    }

    #[test]
    fn what_is_no_switch_is_passed_over() {
        let other = "  x-1 [000] d..2. 5.000000: sched_wakeup: comm=y pid=3 prio=120";
        assert_eq!(switch(other), None);
        assert_eq!(account("# a head\n", &[1], &[]), CpuTime::default());
    }

    #[test]
    fn an_overwritten_event_is_found() {
        assert_eq!(overrun("entries: 5\noverrun: 17\ncommit overrun: 3\n"), 17);
        assert_eq!(overrun("entries: 5\noverrun: 0\n"), 0);
    }
}
