//! UFS's counters as OpenMetrics text, for Prometheus and similar systems.
//!
//! All values are totals since UFS was loaded; such systems compute rates and percentiles
//! from them. While UFS does not answer, `giveway_up` is 0 and all else is absent: alarms
//! watch this metric, not failed scrapes.
//!
//! Which cgroups have metrics of their own is [`listed`]'s choice.
//!
//! On a kernel that counts waits for its locks, each listed cgroup has a series of them.
//!
//! Left out: numbers by backend, since each connection would add a permanent series, and
//! waits by cgroup, which are dozens of series each. `giveway top` shows both.

pub mod listed;
pub mod server;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::sample::{CgroupSample, Log2Histogram, Sample, Work, upper_bound_ns};

/// What the text is, for a `Content-Type`.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Octaves that end before this many nanoseconds are one bucket.
const SHORTEST_NS: u64 = 1 << 10;
/// Octaves that end after this many are another.
const LONGEST_NS: u64 = 1 << 32;

/// The text: all that `sample` has, or that there is none.
pub fn exposition(sample: Option<&Sample>) -> String {
    let mut registry = Registry::with_prefix("giveway");
    registry.register_collector(Box::new(Exposed(sample.cloned())));
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("a string takes any text");
    out
}

#[derive(Debug)]
struct Exposed(Option<Sample>);

type Labels = Vec<(&'static str, String)>;

impl Collector for Exposed {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut to = Families(encoder);
        let up = u64::from(self.0.is_some());
        to.gauge("up", "Whether UFS answers", [(vec![], up)])?;
        let Some(sample) = &self.0 else {
            return Ok(());
        };
        to.gauge("cpus", "CPUs in use", [(vec![], sample.nr_cpus)])?;
        to.gauge(
            "cgroups",
            "Cgroups known to UFS",
            [(vec![], sample.nr_cgroups)],
        )?;
        let listed = sample.cgroups.len() as u64;
        to.gauge(
            "cgroups_listed",
            "Cgroups with metrics of their own",
            [(vec![], listed)],
        )?;
        to.tiers(sample)?;
        to.cpus(sample)?;
        to.cgroups(sample)?;
        to.hints(sample)
    }
}

/// Writes families of metrics, one after the other.
struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        points: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let mut metric = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in points {
            // Without labels there are no braces either.
            match labels.is_empty() {
                true => metric.encode_gauge(&value)?,
                false => metric.encode_family(&labels)?.encode_gauge(&value)?,
            }
        }
        Ok(())
    }

    fn counter(
        &mut self,
        name: &str,
        help: &str,
        points: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let mut metric = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in points {
            match labels.is_empty() {
                true => metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?,
                false => metric
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&value, None)?,
            }
        }
        Ok(())
    }

    /// A counter of time; the points are in nanoseconds.
    fn seconds(
        &mut self,
        name: &str,
        help: &str,
        points: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let mut metric =
            self.0
                .encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        for (labels, ns) in points {
            let mut point = metric.encode_family(&labels)?;
            point.encode_counter::<NoLabelSet, _, f64>(&seconds(ns), None)?;
        }
        Ok(())
    }

    /// The three counters that tiers, CPUs and cgroups have in common.
    fn work(&mut self, of: &str, points: &[(Labels, Work)]) -> fmt::Result {
        let of_all = |count: fn(&Work) -> u64| {
            let points = points.iter();
            points.map(move |(labels, work)| (labels.clone(), count(work)))
        };
        self.counter(
            &format!("{of}_preempted"),
            "Times that a task left a CPU which it would have gone on using",
            of_all(|work| work.preempted),
        )?;
        self.counter(
            &format!("{of}_boosted_runs"),
            "Runs ahead of the tier because urgent work waited for the task",
            of_all(|work| work.boosted_runs),
        )?;
        self.counter(
            &format!("{of}_floor_runs"),
            "Runs because the task had waited for the floor's deadline",
            of_all(|work| work.floor_runs),
        )
    }

    fn tiers(&mut self, sample: &Sample) -> fmt::Result {
        let tiers = sample.tiers.iter();
        let points: Vec<(Labels, Work)> = tiers
            .map(|(name, tier)| (vec![("tier", name.clone())], tier.work(name)))
            .collect();
        let run = points.iter();
        self.seconds(
            "tier_run",
            "CPU time",
            run.map(|(labels, work)| (labels.clone(), work.run_ns())),
        )?;
        self.work("tier", &points)?;
        let mut metric = self.0.encode_descriptor(
            "tier_wake_seconds",
            "Time from wake-up to run",
            // Said by the name; some readers take no unit for a histogram.
            None,
            MetricType::Histogram,
        )?;
        for (name, tier) in &sample.tiers {
            let labels = [("tier", name.as_str())];
            let wakes = &tier.rest.wakes;
            metric
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(
                    seconds(tier.wake_to_run_ns),
                    wakes.count(),
                    &buckets(wakes),
                    None,
                )?;
        }
        Ok(())
    }

    fn cpus(&mut self, sample: &Sample) -> fmt::Result {
        let cpus = sample.cpus.iter();
        let points: Vec<(Labels, Work)> = cpus
            .map(|(cpu, now)| (vec![("cpu", cpu.to_string())], now.work.clone()))
            .collect();
        self.seconds("cpu_run", "CPU time", points.iter().flat_map(by_tier))?;
        self.work("cpu", &points)
    }

    fn cgroups(&mut self, sample: &Sample) -> fmt::Result {
        // The number tells two truncated names apart.
        let labels = |(id, cgroup): (&u64, &CgroupSample)| {
            let labels = vec![("cgroup", cgroup.path.clone()), ("id", id.to_string())];
            (labels, cgroup.work.clone())
        };
        let points: Vec<(Labels, Work)> = sample.cgroups.iter().map(labels).collect();
        self.seconds(
            "cgroup_run",
            "CPU time of the cgroup's own tasks",
            points.iter().flat_map(by_tier),
        )?;
        self.work("cgroup", &points)?;
        let of_each = |value: fn(&CgroupSample) -> u64| {
            let cgroups = points.iter().zip(sample.cgroups.values());
            cgroups.map(move |((labels, _), cgroup)| (labels.clone(), value(cgroup)))
        };
        self.gauge("cgroup_weight", "cpu.weight", of_each(|c| c.weight))?;
        self.counter(
            "cgroup_throttles",
            "Times that the cgroup had used up its cpu.max before the period was over",
            of_each(|c| c.throttles),
        )?;
        self.seconds(
            "cgroup_throttled",
            "Time for which the cgroup was made to wait for that",
            of_each(|c| c.throttled_ns),
        )?;
        let cgroups = points.iter().zip(sample.cgroups.values());
        let waits: Vec<(Labels, u64)> = cgroups
            .filter_map(|((labels, _), cgroup)| Some((labels.clone(), cgroup.lock_wait_ns?)))
            .collect();
        if waits.is_empty() {
            return Ok(());
        }
        self.seconds(
            "cgroup_lock_wait",
            "Time for which threads in the cgroup and below it waited for the kernel's locks",
            waits,
        )
    }

    fn hints(&mut self, sample: &Sample) -> fmt::Result {
        let hints = &sample.hints;
        let used = sample.threads.len() as u64;
        self.gauge("hint_slots", "Hint slots in use", [(vec![], used)])?;
        let kinds = [
            ("lock", hints.boosts_lock),
            ("tranche", hints.boosts_tranche),
            ("leader", hints.boosts_leader),
            ("rescue", hints.boosts_rescue),
            ("blocker", hints.boosts_blocker),
        ];
        self.counter(
            "boosts",
            "Boosts, by the link between holder and waiter",
            kinds.map(|(kind, count)| (vec![("kind", kind.to_owned())], count)),
        )?;
        self.counter(
            "boosts_expired",
            "Boosts that lasted too long",
            [(vec![], hints.expired)],
        )?;
        self.counter(
            "lock_holders_preempted",
            "Background tasks preempted while holding a lock",
            [(vec![], hints.holders_preempted)],
        )?;
        self.counter(
            "lock_holders_awaited",
            "Preempted lock holders that time-sensitive work then waited for",
            [(vec![], hints.holders_awaited)],
        )
    }
}

/// One point for each tier that some work ran in.
fn by_tier((labels, work): &(Labels, Work)) -> [(Labels, u64); 2] {
    [
        ("time_sensitive", work.time_sensitive_ns),
        ("background", work.background_ns),
    ]
    .map(|(tier, ns)| {
        let tier = ("tier", tier.to_owned());
        (labels.iter().cloned().chain([tier]).collect(), ns)
    })
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Ends of buckets in seconds, the last of them infinite, and what is in each.
fn buckets(wakes: &Log2Histogram) -> Vec<(f64, u64)> {
    let mut buckets = Vec::new();
    let mut below = 0;
    for (octave, &n) in wakes.0.iter().enumerate() {
        below += n;
        let end = upper_bound_ns(octave);
        if (SHORTEST_NS..=LONGEST_NS).contains(&end) {
            buckets.push((seconds(end), std::mem::take(&mut below)));
        }
    }
    buckets.push((f64::INFINITY, below));
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::model::tests::{sample, work};

    #[test]
    fn buckets_lose_nothing_at_either_end() {
        let wakes = work(0, 0, &[0, 8, 9, 20, 31]).wakes;
        let buckets = buckets(&wakes);
        assert_eq!(buckets[0], (1024e-9, 3));
        assert_eq!(buckets.iter().map(|(_, n)| n).sum::<u64>(), 5);
        assert!(buckets.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn without_ufs_there_is_one_metric_which_says_so() {
        assert_eq!(
            exposition(None),
            "# HELP giveway_up Whether UFS answers\n# TYPE giveway_up gauge\n\
             giveway_up 0\n# EOF\n"
        );
    }

    #[test]
    fn waits_for_locks_are_there_where_the_kernel_counts_them() {
        let mut sample = sample();
        assert!(!exposition(Some(&sample)).contains("lock_wait"));
        sample.cgroups.get_mut(&70).unwrap().lock_wait_ns = Some(1_500_000_000);
        let text = exposition(Some(&sample));
        let lines: Vec<&str> = text.lines().filter(|l| l.contains("lock_wait")).collect();
        let last = "giveway_cgroup_lock_wait_seconds_total\
                    {cgroup=\"/system.slice/postgresql\",id=\"70\"} 1.5";
        assert_eq!(lines.last(), Some(&last));
        assert_eq!(
            lines.len(),
            4,
            "help, type, unit and one series: {lines:#?}"
        );
    }

    #[test]
    fn times_are_seconds_and_tiers_are_labels() {
        let text = exposition(Some(&sample()));
        for line in [
            "giveway_up 1",
            "# UNIT giveway_tier_run_seconds seconds",
            "giveway_tier_run_seconds_total{tier=\"background\"} 0.9",
            "giveway_cpu_run_seconds_total{cpu=\"10\",tier=\"background\"} 0.2",
            "giveway_cgroup_run_seconds_total{cgroup=\"/\",id=\"1\",tier=\"time_sensitive\"} 0.1",
            "giveway_cgroup_weight{cgroup=\"/\",id=\"1\"} 100",
            "giveway_cgroup_throttles_total{cgroup=\"/\",id=\"1\"} 3",
            "giveway_cgroup_throttled_seconds_total{cgroup=\"/\",id=\"1\"} 0.2",
            "giveway_tier_wake_seconds_count{tier=\"time_sensitive\"} 3",
            "giveway_hint_slots 2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in:\n{text}");
        }
    }
}
