//! How busy the CPUs were inside the window.
//!
//! Means come from the cgroups' `cpu.stat`, where the kernel adds up exact run
//! times of the classes' and the clients' processes; what the kernel itself
//! does beside them is not in it. `/proc/stat` tells single CPUs apart, but
//! samples at the kernel's ticks: bursts between two ticks, which is what
//! clients consist of, hardly show in it.
//!
//! By roles, all classes share a cgroup. The background's part is then what the
//! terminals' processes leave of it, as `/proc/PID/schedstat` has theirs; the
//! server's own processes are counted with it.

use std::path::Path;
use std::time::{Duration, Instant};

use super::cgroup::Tree;
use super::disk;
use super::switches::Switches;
use super::ufs::UfsCounts;
use crate::cell::config::CellConfig;
use crate::cell::setup::By;
use crate::harness::error::{Error, Result};
use crate::workload::tpcc::terminal::Window;

const STAT: &str = "/proc/stat";

/// Units of [`STAT`] in a second: Linux's USER_HZ on every architecture that
/// runs PostgreSQL.
const PER_SECOND: f64 = 100.0;

/// CPU time inside the window, as fractions of what there was.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Busy {
    /// Each class's processes, of the server's CPUs. The server's own are with
    /// the first; by roles, with the background.
    pub(crate) classes: Vec<f64>,
    /// The clients, of the clients' CPUs.
    pub(crate) clients: f64,
    /// Each CPU of the server, sampled.
    pub(crate) per_cpu: Vec<f64>,
}

/// A counter, and when it was read. Whoever reads several is preempted between them on a
/// busy machine, so each has a time of its own.
#[derive(Clone, Debug)]
pub(crate) struct Stamped<T> {
    pub(crate) value: T,
    at: Instant,
}

impl<T> Stamped<T> {
    pub(crate) fn read(read: impl FnOnce() -> Result<T>) -> Result<Self> {
        let begun = Instant::now();
        let value = read()?;
        Ok(Stamped {
            value,
            at: begun + begun.elapsed() / 2,
        })
    }

    /// Seconds between two readings.
    pub(crate) fn since(&self, before: &Self) -> f64 {
        (self.at - before.at).as_secs_f64()
    }
}

/// The counters at one end of the window.
#[derive(Clone, Debug)]
struct Reading {
    classes: Vec<Stamped<Duration>>,
    clients: Stamped<Duration>,
    idle: Stamped<Vec<u64>>,
}

impl Reading {
    fn take(tree: &Tree, by: By, pids: &[Vec<i32>]) -> Result<Self> {
        let classes = match by {
            By::Cgroups => {
                let groups = tree.groups().iter();
                let times = groups.map(|group| Stamped::read(|| group.cpu_time()));
                times.collect::<Result<_>>()?
            }
            By::Roles => {
                let both = Stamped::read(|| shared(tree.server().cpu_time()?, pids))?;
                let times = both.value.into_iter();
                times.map(|value| Stamped { value, at: both.at }).collect()
            }
        };
        Ok(Reading {
            classes,
            clients: Stamped::read(|| tree.clients.cpu_time())?,
            idle: Stamped::read(read_idle)?,
        })
    }

    /// What happened since `before`, on so many CPUs.
    fn since(&self, before: &Reading, cpus: u32, client_cpus: u32) -> Busy {
        let share = |now: &Stamped<Duration>, then: &Stamped<Duration>, cpus: u32| {
            let used = now.value.saturating_sub(then.value).as_secs_f64();
            used / (now.since(then) * f64::from(cpus))
        };
        let classes = self.classes.iter().zip(&before.classes);
        let sampled = self.idle.since(&before.idle) * PER_SECOND;
        let idle = before.idle.value.iter().zip(&self.idle.value);
        Busy {
            classes: classes.map(|(now, then)| share(now, then, cpus)).collect(),
            clients: share(&self.clients, &before.clients, client_cpus),
            per_cpu: idle
                .take(cpus as usize)
                .map(|(then, now)| {
                    let idle = now.saturating_sub(*then) as f64;
                    (1.0 - idle / sampled).clamp(0.0, 1.0)
                })
                .collect(),
        }
    }
}

/// Two classes that share a cgroup: what the first one's processes have used,
/// and the rest of the whole.
fn shared(whole: Duration, pids: &[Vec<i32>]) -> Result<Vec<Duration>> {
    let mut first = Duration::ZERO;
    for pid in pids.first().into_iter().flatten() {
        first += process_time(*pid)?;
    }
    Ok(vec![first, whole.saturating_sub(first)])
}

/// Idle and waiting time of each CPU since it came up.
fn parse_idle(text: &str) -> Vec<u64> {
    let mut cpus = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let Some(Ok(cpu)) = name.strip_prefix("cpu").map(str::parse::<usize>) else {
            continue;
        };
        // After user, nice and system come idle and waiting.
        let idle = words
            .skip(3)
            .take(2)
            .filter_map(|word| word.parse::<u64>().ok())
            .sum();
        cpus.resize(cpus.len().max(cpu + 1), 0);
        cpus[cpu] = idle;
    }
    cpus
}

fn read_idle() -> Result<Vec<u64>> {
    let text = std::fs::read_to_string(STAT).map_err(Error::file("read", Path::new(STAT)))?;
    Ok(parse_idle(&text))
}

/// CPU time that a process with one thread has used.
fn process_time(pid: i32) -> Result<Duration> {
    let path = format!("/proc/{pid}/schedstat");
    let path = Path::new(&path);
    let text = std::fs::read_to_string(path).map_err(Error::file("read", path))?;
    let used = text
        .split_whitespace()
        .next()
        .and_then(|ns| ns.parse().ok());
    used.map(Duration::from_nanos).ok_or_else(|| {
        Error::file("find the CPU time in", path)(std::io::ErrorKind::InvalidData.into())
    })
}

/// What happened inside a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) busy: Busy,
    /// Of UFS, where roles are its business.
    pub(crate) ufs: Option<UfsCounts>,
    /// MB a second that were read from the cell's disk.
    pub(crate) disk_read_mb_per_s: Option<f64>,
}

/// Sleeps to the end of the window and tells what happened inside it. Switches
/// are traced in the meantime, and read later.
pub(super) fn window(
    tree: &Tree,
    config: &CellConfig,
    pids: &[Vec<i32>],
    window: Window,
    switches: Option<&Switches>,
) -> Result<Measured> {
    let take = |at: Instant| -> Result<(Reading, Option<UfsCounts>, Option<f64>)> {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let reading = Reading::take(tree, config.by, pids)?;
        let ufs = match config.by {
            By::Cgroups => None,
            By::Roles => Some(UfsCounts::sample()?),
        };
        Ok((reading, ufs, disk::read_mb(config)?))
    };
    let (before, ufs_before, mb_before) = take(window.start)?;
    switches.map(Switches::begin).transpose()?;
    let (after, ufs_after, mb_after) = take(window.end)?;
    switches.map(Switches::end).transpose()?;
    let ufs = ufs_after.zip(ufs_before);
    Ok(Measured {
        busy: after.since(&before, config.cpus, config.client_cpus),
        ufs: ufs.map(|(after, before)| after.since(&before)),
        disk_read_mb_per_s: mb_after
            .zip(mb_before)
            .map(|(after, before)| (after - before) / config.seconds),
    })
}

/// Refuses a machine with fewer online CPUs than the cell needs.
pub(crate) fn require_cpus(count: u32) -> Result<()> {
    let online = read_idle()?.len() as u32;
    if online >= count {
        return Ok(());
    }
    Err(Error::Config(format!(
        "the cell needs {count} CPUs (server and clients), and the machine has {online}: lower \
         --cpus, or run in the lab"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_read_for_each_cpu() {
        let text = "cpu 9 9 9 9\ncpu0 10 0 10 100 5 1 1 0 0 0\ncpu1 0 0 0 50 0 0 0 0 0 0\nintr 5\n";
        assert_eq!(parse_idle(text), [105, 50]);
    }

    #[test]
    fn fractions_are_of_the_cpus_there_were_when_each_was_read() {
        let start = Instant::now();
        let reading = |at, late, high, background, clients, idle| {
            let at = start + Duration::from_secs(at);
            let late = at + Duration::from_secs(late);
            let used = |seconds, at| Stamped {
                value: Duration::from_secs(seconds),
                at,
            };
            Reading {
                classes: vec![used(high, at), used(background, late)],
                clients: used(clients, late),
                idle: Stamped { value: idle, at },
            }
        };
        let before = reading(0, 0, 10, 20, 30, vec![100, 1_000, 7]);
        let after = reading(2, 0, 11, 22, 31, vec![200, 1_000, 7]);
        let busy = after.since(&before, 2, 1);
        assert_eq!((busy.classes, busy.clients), (vec![0.25, 0.5], 0.5));
        // CPU 0 was idle for half the time; CPU 2 is not the server's.
        assert_eq!(busy.per_cpu, [0.5, 1.0]);
        // Two seconds passed until the second class was read, and it used all of them.
        let after = reading(2, 2, 11, 28, 34, vec![200, 1_000, 7]);
        let busy = after.since(&before, 2, 1);
        assert_eq!((busy.classes, busy.clients), (vec![0.25, 1.0], 1.0));
    }

    #[test]
    fn classes_that_share_a_cgroup_have_what_the_first_one_used_and_the_rest() {
        let whole = Duration::from_secs(1_000_000);
        let own = std::process::id() as i32;
        let parts = shared(whole, &[vec![own], vec![]]).unwrap();
        assert!(parts[0] > Duration::ZERO);
        assert_eq!(parts[0] + parts[1], whole);
    }

    #[test]
    fn a_machine_that_is_too_small_is_refused_with_the_remedy() {
        let error = require_cpus(100_000).unwrap_err().to_string();
        assert!(error.contains("--cpus"), "{error}");
    }
}
