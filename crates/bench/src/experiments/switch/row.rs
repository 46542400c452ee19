//! One measurement as it is stored.

use std::collections::BTreeMap;

use giveway_tier::Tier;
use libbpf_rs::ProgramType;
use libbpf_rs::query::{ProgInfoIter, ProgramInfo};
use serde::{Deserialize, Serialize};

use super::SwitchPlan;
use super::empty::Empty;
use super::run::Window;
use crate::cell::ufs::Callback;
use crate::harness::error::Result;
use crate::harness::scheduler::Scheduler;

/// One scheduler and tier, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SwitchRow {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// Name and version of the sched_ext scheduler, as the kernel has it.
    pub scheduler_version: Option<String>,
    /// The tier of both threads.
    pub tier: Tier,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of the machine.
    pub seed: u64,
    /// Length of each window in seconds.
    pub seconds: f64,
    /// Switches in the window without timing.
    pub switches: u64,
    /// Time per switch there, in microseconds.
    pub switch_us: f64,
    /// What the scheduler's callbacks took of that, in microseconds; none without any.
    pub callbacks_us: Option<f64>,
    /// Callbacks per switch.
    pub calls: Option<f64>,
    /// What the kernel counts for one call of an empty program, in microseconds: already
    /// subtracted from each call of the others.
    pub empty_us: Option<f64>,
    /// Each callback.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_callback: BTreeMap<String, Cost>,
}

impl SwitchRow {
    /// The row of a plan that was measured.
    pub(super) fn new(
        plan: &SwitchPlan,
        scheduler_version: Option<String>,
        plain: Window,
        timed: Option<(Window, Counts, Counts)>,
    ) -> Self {
        let timed = timed.map(|(window, before, after)| {
            let empty = Cost::between(1, before.empty, after.empty);
            let empty_us = empty.us / empty.calls;
            (
                per_switch(window.switches, &before, &after, empty_us),
                empty_us,
            )
        });
        let (by_callback, empty_us) = match timed {
            Some((by_callback, empty_us)) => (by_callback, Some(empty_us)),
            None => (BTreeMap::new(), None),
        };
        let sum = |number: fn(&Cost) -> f64| {
            (!by_callback.is_empty()).then(|| by_callback.values().map(number).sum())
        };
        SwitchRow {
            scheduler: plan.scheduler.clone(),
            scheduler_version,
            tier: plan.tier,
            repeat: plan.repeat,
            seed: plan.seed,
            seconds: plan.seconds,
            switches: plain.switches,
            switch_us: plain.seconds * 1e6 / plain.switches as f64,
            callbacks_us: sum(|cost| cost.us),
            calls: sum(|cost| cost.calls),
            empty_us,
            by_callback,
        }
    }
}

/// A callback per switch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// Calls.
    pub calls: f64,
    /// Their microseconds.
    pub us: f64,
}

impl Cost {
    fn between(switches: u64, before: Callback, after: Callback) -> Self {
        let per = |count: u64| count as f64 / switches as f64;
        Cost {
            calls: per(after.calls - before.calls),
            us: per(after.run_ns - before.run_ns) / 1e3,
        }
    }
}

/// What the kernel has counted so far.
pub(super) struct Counts {
    /// All callbacks of sched_ext schedulers, of which one is loaded, by name.
    callbacks: BTreeMap<String, Callback>,
    empty: Callback,
}

impl Counts {
    pub(super) fn read(empty: &Empty) -> Result<Self> {
        let count = |program: ProgramInfo| {
            let callback = Callback {
                calls: program.run_cnt,
                run_ns: program.run_time_ns,
            };
            (program.name.to_string_lossy().into_owned(), callback)
        };
        let programs = ProgInfoIter::default();
        let programs = programs.filter(|program| program.ty == ProgramType::StructOps);
        Ok(Counts {
            callbacks: programs.map(count).collect(),
            empty: empty.counted()?,
        })
    }
}

/// What was called between two counts, less the timing of each call.
fn per_switch(
    switches: u64,
    before: &Counts,
    after: &Counts,
    empty_us: f64,
) -> BTreeMap<String, Cost> {
    let since = after.callbacks.iter().map(|(name, now)| {
        let then = before.callbacks.get(name).copied().unwrap_or_default();
        let mut cost = Cost::between(switches, then, *now);
        cost.us -= cost.calls * empty_us;
        (name.clone(), cost)
    });
    since.filter(|(_, cost)| cost.calls > 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_what_was_called_between_the_counts_per_switch() {
        let count = |calls, run_ns| Callback { calls, run_ns };
        let counts = |list: &[(&str, Callback)], empty| {
            let named = list
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count));
            let callbacks = named.collect();
            Counts { callbacks, empty }
        };
        let before = [("enqueue", count(10, 5_000)), ("init", count(1, 90_000))];
        let before = counts(&before, count(10, 1_000));
        let after = [
            ("enqueue", count(110, 125_000)),
            ("init", count(1, 90_000)),
            ("running", count(50, 60_000)),
        ];
        let after = counts(&after, count(110, 21_000));
        let window = |switches, seconds| Window { switches, seconds };
        let timed = Some((window(100, 1.0), before, after));
        let row = SwitchRow::new(&SwitchPlan::default(), None, window(200, 1.0), timed);
        assert_eq!(row.switch_us, 5_000.0);
        assert_eq!((row.calls, row.callbacks_us), (Some(1.5), Some(1.5)));
        assert_eq!(
            Vec::from_iter(row.by_callback.keys()),
            ["enqueue", "running"]
        );
        let plain = SwitchRow::new(&SwitchPlan::default(), None, window(200, 1.0), None);
        assert_eq!((plain.calls, plain.callbacks_us), (None, None));
    }
}
