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
//! Where there are more, only those that work are listed anew, and they take the places of
//! those that have rested for [`REST_MAX`]: a service that is started again has a new
//! number, and must not wait behind cgroups that do nothing.
//!
//! ```text
//!   new ──AGE_MIN──► old ──there is room, or another rests──► listed
//!    │                │ ◄───it rests, and its place is wanted──┤
//!    └────────────────┴────── is gone ◄────────────────────────┘
//! ```
//!
//! So the counters of a listed cgroup have no gap in which they move. What the others use
//! is in the totals of tiers and CPUs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::sample::{CgroupSample, Sample};

/// How long a cgroup has to be there: four scrapes of Prometheus as it comes.
pub const AGE_MIN: Duration = Duration::from_secs(60);
/// After how long without CPU time a cgroup makes room for one that works.
pub const REST_MAX: Duration = Duration::from_secs(600);
/// Cgroups with metrics of their own. Each has eight series, or nine on a
/// kernel that counts waits for its locks.
pub const CGROUPS_MAX: usize = 400;

/// Those that are listed, and those that may be.
#[derive(Debug, Default)]
pub struct Listed {
    /// The cgroups that are there; none before the first sample.
    seen: Option<BTreeMap<u64, Seen>>,
    listed: BTreeSet<u64>,
}

/// What is known of a cgroup.
#[derive(Clone, Copy, Debug)]
struct Seen {
    first: Duration,
    run_ns: u64,
    /// When it was seen last to have run; none: never.
    ran: Option<Duration>,
}

impl Seen {
    fn has_run_within(&self, span: Duration, now: Duration) -> bool {
        self.ran.is_some_and(|at| now - at <= span)
    }
}

impl Listed {
    /// The sample of `now` without the cgroups that are not listed.
    pub fn thinned(&mut self, mut sample: Sample, now: Duration) -> Sample {
        let before = self.seen.take();
        let is_first = before.is_none();
        let before = before.unwrap_or_default();
        let see = |(id, cgroup): (&u64, &CgroupSample)| {
            let run_ns = cgroup.work.run_ns();
            let (first, ran_ns, ran) = match before.get(id) {
                Some(seen) => (seen.first, seen.run_ns, seen.ran),
                // Nobody knows for how long they have been there.
                None if is_first => (now.saturating_sub(AGE_MIN), 0, None),
                None => (now, 0, None),
            };
            let ran = if run_ns > ran_ns { Some(now) } else { ran };
            (*id, Seen { first, run_ns, ran })
        };
        let seen: BTreeMap<u64, Seen> = sample.cgroups.iter().map(see).collect();
        self.listed.retain(|id| seen.contains_key(id));
        let is_old = |seen: &Seen| is_first || now - seen.first >= AGE_MIN;
        let mut waiting: Vec<(&u64, &Seen)> = seen
            .iter()
            .filter(|(id, seen)| !self.listed.contains(id) && is_old(seen))
            .collect();
        waiting.sort_by_key(|(_, seen)| Reverse(seen.run_ns));
        let room = CGROUPS_MAX.saturating_sub(self.listed.len());
        if seen.len() > CGROUPS_MAX && !is_first {
            waiting.retain(|(_, seen)| seen.has_run_within(AGE_MIN, now));
            let wanted = waiting.len().saturating_sub(room);
            self.make_room(wanted, &seen, now);
        }
        let room = CGROUPS_MAX.saturating_sub(self.listed.len());
        self.listed
            .extend(waiting.into_iter().map(|(id, _)| *id).take(room));
        self.seen = Some(seen);
        sample.cgroups.retain(|id, _| self.listed.contains(id));
        sample
    }

    /// Takes up to this many from the list, of those that rest; who has rested longest goes
    /// first.
    fn make_room(&mut self, wanted: usize, seen: &BTreeMap<u64, Seen>, now: Duration) {
        let rests = |id: &&u64| !seen[id].has_run_within(REST_MAX, now);
        let mut resting: Vec<u64> = self.listed.iter().filter(rests).copied().collect();
        resting.sort_by_key(|id| seen[id].ran);
        for id in resting.iter().take(wanted) {
            self.listed.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::exposition;
    use crate::sample::Work;

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

    #[test]
    fn a_service_that_is_started_again_is_listed_again() {
        let mut listed = Listed::default();
        let max = CGROUPS_MAX as u64;
        // All but the service, number 1, rest; one of them waits.
        let others = || 2..=max + 1;
        let mut at = |ids: Vec<u64>, s: u64, busy: u64| {
            let mut sample = sample(ids);
            for (id, cgroup) in &mut sample.cgroups {
                let ran = if *id == busy { s + 1 } else { 0 };
                cgroup.work.background_ns = ran;
            }
            let thinned = listed.thinned(sample, Duration::from_secs(s));
            Vec::from_iter(thinned.cgroups.into_keys())
        };
        let all = |service: u64| Vec::from_iter(others().chain([service]));
        assert!(at(all(1), 0, 1).contains(&1));
        assert!(at(all(1), 90, 1).contains(&1));
        // Its place is free, and no idle one takes it.
        assert_eq!(at(all(5000), 100, 5000).len(), CGROUPS_MAX - 1);
        assert!(at(all(5000), 160, 5000).contains(&5000));
        // Another, while all places are taken: by one that has rested for long.
        assert!(!at([all(5000), vec![6000]].concat(), 700, 6000).contains(&6000));
        let now = at([all(5000), vec![6000]].concat(), 760, 6000);
        assert!(now.contains(&6000) && now.contains(&5000));
        assert_eq!(now.len(), CGROUPS_MAX);
    }
}
