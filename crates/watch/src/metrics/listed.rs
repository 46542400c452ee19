//! Which cgroups have metrics of their own.
//!
//! A series is kept by a monitor for hours after its cgroup has gone, so cgroups that come
//! and go by the thousand, as those of builds do, would fill it with series of which each
//! has a point or two. So a cgroup is listed
//!
//! 1. once it is [`AGE_MIN`] old, or was there at the first sample,
//! 2. if it is one of [`CGROUPS_MAX`]: those that are listed already come first, then
//!    those with the most CPU time.
//!
//! ```text
//!   new ──AGE_MIN──► old ──there is room──► listed
//!    │                │                        │
//!    └────────────────┴────── is gone ◄────────┘
//! ```
//!
//! A listed cgroup stays so until it is gone: its counters have no gaps. What the others
//! use is in the totals of tiers and CPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::sample::Sample;

/// How long a cgroup has to be there: four scrapes of Prometheus as it comes.
pub const AGE_MIN: Duration = Duration::from_secs(60);
/// Cgroups with metrics of their own. Each has eight series.
pub const CGROUPS_MAX: usize = 400;

/// Those that are listed, and those that may be.
#[derive(Debug, Default)]
pub struct Listed {
    /// When each cgroup that is there was seen first; none before the first sample.
    seen: Option<BTreeMap<u64, Duration>>,
    listed: BTreeSet<u64>,
}

impl Listed {
    /// The sample of `now` without the cgroups that are not listed.
    pub fn thinned(&mut self, mut sample: Sample, now: Duration) -> Sample {
        let before = self.seen.take();
        let seen: BTreeMap<u64, Duration> = sample
            .cgroups
            .keys()
            .map(|id| {
                let at = match &before {
                    // Nobody knows for how long they have been there.
                    None => now.saturating_sub(AGE_MIN),
                    Some(before) => before.get(id).copied().unwrap_or(now),
                };
                (*id, at)
            })
            .collect();
        self.listed.retain(|id| seen.contains_key(id));
        let is_old = |id: &u64| before.is_none() || now - seen[id] >= AGE_MIN;
        let mut waiting: Vec<u64> = sample
            .cgroups
            .keys()
            .copied()
            .filter(|id| !self.listed.contains(id) && is_old(id))
            .collect();
        waiting.sort_by_key(|id| std::cmp::Reverse(sample.cgroups[id].work.run_ns()));
        let room = CGROUPS_MAX.saturating_sub(self.listed.len());
        self.listed.extend(waiting.into_iter().take(room));
        self.seen = Some(seen);
        sample.cgroups.retain(|id, _| self.listed.contains(id));
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::exposition;
    use crate::sample::{CgroupSample, Work};

    const SCRAPE: Duration = Duration::from_secs(15);

    /// A sample with these cgroups, the later the busier.
    fn sample(ids: impl IntoIterator<Item = u64>) -> Sample {
        let cgroup = |id: u64| CgroupSample {
            path: format!("/system.slice/run-{id}.scope"),
            work: Work {
                background_ns: 1_000_000 * id,
                ..Work::default()
            },
            ..CgroupSample::default()
        };
        Sample {
            cgroups: ids.into_iter().map(|id| (id, cgroup(id))).collect(),
            ..crate::top::model::tests::sample()
        }
    }

    /// The series in a text: all that stands before a value.
    fn series(text: &str) -> impl Iterator<Item = String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
    }

    #[test]
    fn ten_thousand_short_lived_cgroups_leave_few_series() {
        let mut listed = Listed::default();
        let mut all = BTreeSet::new();
        for scrape in 0..100 {
            // A hundred that are there for good, a hundred others each time.
            let new = 1000 + 100 * scrape;
            let sample = sample((1..=100).chain(new..new + 100));
            let thinned = listed.thinned(sample, SCRAPE * scrape as u32);
            assert!(thinned.cgroups.contains_key(&1), "it is there for good");
            all.extend(series(&exposition(Some(&thinned))));
        }
        // Those of the first sample have been listed, since nobody knew their age.
        let of_cgroups = all
            .iter()
            .filter(|series| series.contains("cgroup="))
            .count();
        assert_eq!(of_cgroups, 200 * 8);
        assert!(all.len() <= 5000, "{}", all.len());
    }

    #[test]
    fn ten_thousand_cgroups_at_once_have_at_most_so_many_series() {
        let mut listed = Listed::default();
        for scrape in 0..10 {
            let thinned = listed.thinned(sample(1..=10_000), SCRAPE * scrape);
            assert_eq!(thinned.cgroups.len(), CGROUPS_MAX);
            // The busiest.
            assert!(thinned.cgroups.contains_key(&10_000));
            assert!(series(&exposition(Some(&thinned))).count() <= 5000);
        }
    }

    #[test]
    fn cgroup_is_listed_when_it_is_old_and_until_it_is_gone() {
        let mut listed = Listed::default();
        let mut ids = |ids: &[u64], s: u64| -> Vec<u64> {
            let thinned = listed.thinned(sample(ids.iter().copied()), Duration::from_secs(s));
            thinned.cgroups.into_keys().collect()
        };
        assert_eq!(ids(&[1], 0), [1]);
        assert_eq!(ids(&[1, 2], 10), [1]);
        assert_eq!(ids(&[1, 2], 69), [1]);
        assert_eq!(ids(&[1, 2], 70), [1, 2]);
        assert_eq!(ids(&[2], 80), [2]);
        // Its number in use again.
        assert_eq!(ids(&[1, 2], 90), [2]);
    }

    #[test]
    fn listed_cgroup_is_not_pushed_out_by_a_busier_one() {
        let mut listed = Listed::default();
        let quiet: Vec<u64> = (1..=CGROUPS_MAX as u64).collect();
        listed.thinned(sample(quiet.clone()), Duration::ZERO);
        let all = quiet.iter().copied().chain([5_000]);
        for s in [0, 60, 120] {
            let thinned = listed.thinned(sample(all.clone()), Duration::from_secs(s));
            assert!(thinned.cgroups.keys().copied().eq(quiet.iter().copied()));
        }
    }
}
