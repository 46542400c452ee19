//! What UFS publishes, as this side reads it.
//!
//! `scx_ufs --help-stats` describes the fields; the names here are theirs. All
//! are totals since UFS was loaded (a thread's: since it has its slot), so what
//! happened between two samples is their difference. A field that an older UFS
//! does not publish reads as zero; that of the tiers alone is demanded, since by
//! it an answer of UFS is told from that of another scheduler.

use std::collections::BTreeMap;

use serde::Deserialize;

/// One answer of UFS.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Sample {
    /// CPUs in use.
    #[serde(default)]
    pub nr_cpus: u64,
    /// Cgroups known to UFS.
    #[serde(default)]
    pub nr_cgroups: u64,
    /// By the tier's name.
    pub tiers: BTreeMap<String, TierSample>,
    /// By CPU number.
    #[serde(default)]
    pub cpus: BTreeMap<u32, CpuSample>,
    /// By the cgroup's number, that of its directory's inode.
    #[serde(default)]
    pub cgroups: BTreeMap<u64, CgroupSample>,
    /// Threads with a hint slot, by number of the slot.
    #[serde(default)]
    pub threads: BTreeMap<u32, ThreadSample>,
    /// Boosts and lock holders.
    #[serde(default)]
    pub hints: HintSample,
}

/// What hint slots led to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct HintSample {
    /// Boosts of the holder of the lock waited for.
    pub boosts_lock: u64,
    /// Boosts of a holder in the tranche waited for.
    pub boosts_tranche: u64,
    /// Boosts of a holder that may lead the waiter's group.
    pub boosts_leader: u64,
    /// Boosts of a preempted task because another spun.
    pub boosts_rescue: u64,
    /// Boosts of a holder of the heavyweight lock waited for.
    pub boosts_blocker: u64,
    /// Boosts that lasted too long.
    pub expired: u64,
    /// Background tasks preempted while holding a lock.
    pub holders_preempted: u64,
    /// Preempted holders whose lock time-sensitive work then waited for.
    pub holders_awaited: u64,
}

/// What some tasks did and got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Work {
    /// CPU time in the time-sensitive tier, in nanoseconds.
    pub time_sensitive_ns: u64,
    /// CPU time in the background tier, in nanoseconds.
    pub background_ns: u64,
    /// Times that a task left a CPU which it would have gone on using.
    pub preempted: u64,
    /// Runs because urgent work waited for the task.
    pub boosted_runs: u64,
    /// Runs because the task had waited for the floor's deadline.
    pub floor_runs: u64,
    /// Times from wake-up to run.
    #[serde(rename = "wake_to_run_log2_ns")]
    pub wakes: Log2Histogram,
}

/// One tier.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TierSample {
    /// CPU time in nanoseconds.
    pub run_ns: u64,
    /// The sum of the times from wake-up to run, in nanoseconds.
    pub wake_to_run_ns: u64,
    /// The rest; its CPU times are 0.
    #[serde(flatten)]
    pub rest: Work,
}

/// One CPU.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CpuSample {
    /// What ran on it.
    #[serde(flatten)]
    pub work: Work,
}

/// One cgroup.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CgroupSample {
    /// From the top of the hierarchy; long names are cut.
    pub path: String,
    /// The tier's name.
    pub tier: String,
    /// `cpu.weight`.
    pub weight: u64,
    /// Times that it had used up its `cpu.max` before the period was over.
    pub throttles: u64,
    /// Time for which it was made to wait for that, in nanoseconds.
    pub throttled_ns: u64,
    /// Time for which threads in it and below it have waited for the kernel's locks, in
    /// nanoseconds. Not UFS's, but the kernel's: see [`locks`](crate::locks).
    #[serde(skip)]
    pub lock_wait_ns: Option<u64>,
    /// What its own tasks did.
    #[serde(flatten)]
    pub work: Work,
}

/// One thread with a hint slot.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ThreadSample {
    /// Its number, as `scx_ufs` sees it.
    pub tid: u32,
    /// The tier's name.
    pub tier: String,
    /// What it did.
    #[serde(flatten)]
    pub work: Work,
}

impl TierSample {
    /// What the tasks of the tier called `name` did.
    pub fn work(&self, name: &str) -> Work {
        let mut work = self.rest.clone();
        match name {
            "background" => work.background_ns = self.run_ns,
            _ => work.time_sensitive_ns = self.run_ns,
        }
        work
    }
}

impl Work {
    /// CPU time in nanoseconds.
    pub fn run_ns(&self) -> u64 {
        self.time_sensitive_ns + self.background_ns
    }

    /// What was done since `before`, an earlier state of the same totals; all of
    /// it if the totals began anew since then.
    pub fn since(&self, before: &Work) -> Work {
        let pairs = [
            (self.time_sensitive_ns, before.time_sensitive_ns),
            (self.background_ns, before.background_ns),
            (self.preempted, before.preempted),
            (self.boosted_runs, before.boosted_runs),
            (self.floor_runs, before.floor_runs),
        ];
        let wakes = self.wakes.since(&before.wakes);
        let (Some(wakes), true) = (wakes, pairs.iter().all(|(now, then)| now >= then)) else {
            return self.clone();
        };
        let [ts, bg, preempted, boosted, floor] = pairs.map(|(now, then)| now - then);
        Work {
            time_sensitive_ns: ts,
            background_ns: bg,
            preempted,
            boosted_runs: boosted,
            floor_runs: floor,
            wakes,
        }
    }
}

/// Durations in nanoseconds, counted by octave: entry i has those from 2^i up
/// to 2^(i+1), entry 0 those below, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Log2Histogram(pub Vec<u64>);

impl Log2Histogram {
    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// A duration in nanoseconds that `percent` of all do not exceed: the end of
    /// the octave in which the percentile lies, so at most twice too long. None
    /// of nothing.
    pub fn percentile_ns(&self, percent: u64) -> Option<u64> {
        let wanted = (self.count() * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let octave = self.0.iter().position(|n| {
            seen += n;
            seen >= wanted
        })?;
        Some(upper_bound_ns(octave))
    }

    /// Entry by entry; none if one is lower than before.
    fn since(&self, before: &Self) -> Option<Self> {
        let then = before.0.iter().chain(std::iter::repeat(&0));
        let entries = self
            .0
            .iter()
            .zip(then)
            .map(|(now, then)| now.checked_sub(*then));
        let shorter = before.0.iter().skip(self.0.len()).any(|&n| n > 0);
        let entries = entries.collect::<Option<Vec<u64>>>();
        entries.filter(|_| !shorter).map(Log2Histogram)
    }
}

/// Where an octave ends, in nanoseconds.
pub fn upper_bound_ns(octave: usize) -> u64 {
    2 << octave.min(62)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_ends_of_their_octaves() {
        let mut wakes = Log2Histogram(vec![0; 32]);
        assert_eq!(wakes.percentile_ns(50), None);
        (wakes.0[10], wakes.0[20]) = (98, 2);
        assert_eq!(wakes.percentile_ns(50), Some(2048));
        assert_eq!(wakes.percentile_ns(98), Some(2048));
        assert_eq!(wakes.percentile_ns(99), Some(1 << 21));
    }

    #[test]
    fn totals_that_began_anew_count_whole() {
        let work = |ns, wakes: &[u64]| Work {
            background_ns: ns,
            wakes: Log2Histogram(wakes.to_vec()),
            ..Work::default()
        };
        let then = work(50, &[1, 2]);
        assert_eq!(work(70, &[1, 5]).since(&then), work(20, &[0, 3]));
        // A shorter run time, and a histogram that lost a count.
        assert_eq!(work(10, &[1, 5]).since(&then), work(10, &[1, 5]));
        assert_eq!(work(70, &[1, 1]).since(&then), work(70, &[1, 1]));
        assert_eq!(work(70, &[1]).since(&then), work(70, &[1]));
    }

    #[test]
    fn an_answer_without_tiers_is_not_of_ufs() {
        assert!(serde_json::from_str::<Sample>(r#"{"nr_cpus":4}"#).is_err());
        let older = r#"{"tiers":{"background":{"run_ns":7,"wake_to_run_log2_ns":[3]}}}"#;
        let sample: Sample = serde_json::from_str(older).unwrap();
        let work = sample.tiers["background"].work("background");
        assert_eq!((work.background_ns, work.time_sensitive_ns), (7, 0));
        assert_eq!(work.wakes.count(), 3);
    }
}
