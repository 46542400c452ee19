//! One cell as it is stored, and what is read from the kernel's files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Lock, Part};

/// One part under one lock, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KernelLocksRow {
    /// What was measured.
    pub part: Part,
    /// The lock.
    pub lock: Lock,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Sockets that they are spread over.
    pub sockets: u32,
    /// Files in the full directory.
    pub files: u32,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of the machine.
    pub seed: u64,
    /// The phases, in their order.
    pub phases: Vec<PhaseRow>,
    /// Length of each interval of the series, in milliseconds.
    pub interval_ms: f64,
    /// Renames of each cgroup by interval, from the beginning of the first phase.
    pub series: [Vec<u64>; 2],
}

/// The window of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PhaseRow {
    /// Its name.
    pub phase: String,
    /// When the phase began, from the beginning of the first.
    pub from_s: f64,
    /// Length of the window.
    pub seconds: f64,
    /// G#1's and G#2's.
    pub groups: [GroupRow; 2],
    /// What the lock counted, by event, for all classes: 0 for the stock mutex.
    pub events: BTreeMap<String, u64>,
}

/// A cgroup in a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct GroupRow {
    /// Its `lock.weight`.
    pub weight: u32,
    /// Renames of each of its threads; a blog server's operations have one each.
    pub renames: Vec<u64>,
    /// CPU time, in milliseconds.
    pub cpu_ms: f64,
    /// Its `lock.stat`: 0 for stock locks.
    pub stat: LockStat,
    /// How long its operations took; only the blog server's are timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

/// How long operations took, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// The mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The longest.
    pub worst_us: f64,
}

impl Latency {
    /// None of nothing.
    pub(super) fn of(mut took_ns: Vec<u64>) -> Option<Latency> {
        took_ns.sort_unstable();
        let last = took_ns.len().checked_sub(1)?;
        let at = |share: f64| took_ns[(last as f64 * share).round() as usize] as f64 / 1e3;
        Some(Latency {
            mean_us: took_ns.iter().sum::<u64>() as f64 / 1e3 / took_ns.len() as f64,
            p50_us: at(0.5),
            p99_us: at(0.99),
            worst_us: at(1.0),
        })
    }
}

impl GroupRow {
    /// Renames of all its threads.
    pub(super) fn total(&self) -> u64 {
        self.renames.iter().sum()
    }

    /// Mean section, in microseconds; none if none was counted.
    pub(super) fn section_us(&self) -> Option<f64> {
        let LockStat {
            acquisitions,
            hold_ns,
            ..
        } = self.stat;
        (acquisitions > 0).then(|| hold_ns as f64 / 1e3 / acquisitions as f64)
    }

    /// Mean wait, in microseconds; none if none was counted.
    pub(super) fn wait_us(&self) -> Option<f64> {
        let LockStat {
            acquisitions,
            wait_ns,
            ..
        } = self.stat;
        (acquisitions > 0).then(|| wait_ns as f64 / 1e3 / acquisitions as f64)
    }
}

impl PhaseRow {
    /// Renames of a cgroup a second.
    pub(super) fn per_s(&self, group: usize) -> f64 {
        self.groups[group].total() as f64 / self.seconds
    }

    /// Renames of both a second.
    pub(super) fn combined_per_s(&self) -> f64 {
        self.per_s(0) + self.per_s(1)
    }

    /// Jain's index of what each thread held, with these mean sections of the cgroups.
    pub(super) fn fairness(&self, sections_us: [f64; 2]) -> f64 {
        let held = |(group, section): (&GroupRow, f64)| {
            let renames = group.renames.iter();
            renames
                .map(|count| *count as f64 * section)
                .collect::<Vec<_>>()
        };
        jain(self.groups.iter().zip(sections_us).flat_map(held))
    }
}

/// Jain's index of fairness: 1 if all are equal, 1/n if one of n has everything, and
/// 1 of nothing, in which nobody has more than another.
fn jain(shares: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (count * squares)
}

/// What `lock.stat` of a cgroup says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LockStat {
    /// Acquisitions.
    pub acquisitions: u64,
    /// Of these, those that waited.
    pub contended: u64,
    /// Time waited.
    pub wait_ns: u64,
    /// Time held.
    pub hold_ns: u64,
}

impl LockStat {
    /// None if a number is missing.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let counts = counts(text);
        let of = |name: &str| counts.get(name).copied();
        Some(LockStat {
            acquisitions: of("acquisitions")?,
            contended: of("contended")?,
            wait_ns: of("wait_ns")?,
            hold_ns: of("hold_ns")?,
        })
    }

    /// What has been added since.
    pub(super) fn since(self, before: Self) -> Self {
        LockStat {
            acquisitions: self.acquisitions - before.acquisitions,
            contended: self.contended - before.contended,
            wait_ns: self.wait_ns - before.wait_ns,
            hold_ns: self.hold_ns - before.hold_ns,
        }
    }
}

/// Lines of a name and a number.
pub(super) fn counts(text: &str) -> BTreeMap<String, u64> {
    let pair = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_s_index_is_1_of_equals_and_a_share_of_one_alone() {
        assert_eq!(jain([3.0; 4].into_iter()), 1.0);
        assert_eq!(jain([5.0, 0.0, 0.0, 0.0].into_iter()), 0.25);
        assert_eq!(jain([0.0; 2].into_iter()), 1.0);
        assert!((jain([1.0, 3.0].into_iter()) - 0.8).abs() < 1e-12);
    }

    #[test]
    fn fairness_is_of_time_and_not_of_renames() {
        let group = |renames: &[u64]| GroupRow {
            renames: renames.to_vec(),
            ..GroupRow::default()
        };
        let phase = PhaseRow {
            phase: "2".to_owned(),
            from_s: 0.0,
            seconds: 0.5,
            groups: [group(&[60, 60]), group(&[10, 10])],
            events: BTreeMap::new(),
        };
        assert_eq!(phase.fairness([10.0, 60.0]), 1.0);
        assert!(phase.fairness([10.0, 10.0]) < 0.7);
        assert_eq!((phase.per_s(0), phase.combined_per_s()), (240.0, 280.0));
    }

    #[test]
    fn latency_is_of_the_operations_that_were_timed() {
        let latency = Latency::of((1..=100).rev().map(|us| us * 1000).collect()).unwrap();
        assert_eq!((latency.mean_us, latency.worst_us), (50.5, 100.0));
        assert_eq!((latency.p50_us, latency.p99_us), (51.0, 99.0));
        assert_eq!(Latency::of(Vec::new()), None);
    }

    #[test]
    fn lock_stat_is_read_whole_or_not_at_all() {
        let text = "acquisitions 10\ncontended 4\nwait_ns 7000\nhold_ns 50000\nvlht_ns 9\n";
        let stat = LockStat::parse(text).unwrap();
        let group = GroupRow {
            stat,
            ..GroupRow::default()
        };
        assert_eq!(group.section_us(), Some(5.0));
        assert_eq!(group.wait_us(), Some(0.7));
        assert_eq!(GroupRow::default().section_us(), None);
        assert_eq!(stat.since(stat), LockStat::default());
        assert_eq!(LockStat::parse("acquisitions 10\n"), None);
        assert_eq!(counts("moved 3\nodd\n"), [("moved".to_owned(), 3)].into());
    }
}
