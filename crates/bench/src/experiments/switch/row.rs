//! One measurement as it is stored.

use std::collections::BTreeMap;

use giveway_tier::Tier;
use libbpf_rs::ProgramType;
use libbpf_rs::query::{ProgInfoIter, ProgramInfo};
use serde::{Deserialize, Serialize};

use super::SwitchPlan;
use super::run::Window;
use crate::cell::ufs::Callback;
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
    /// Each callback's number of calls and its microseconds, both per switch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_callback: BTreeMap<String, (f64, f64)>,
}

impl SwitchRow {
    /// The row of a plan that was measured.
    pub(super) fn new(
        plan: &SwitchPlan,
        scheduler_version: Option<String>,
        plain: Window,
        timed: Option<(Window, Callbacks, Callbacks)>,
    ) -> Self {
        let by_callback = timed.map_or_else(BTreeMap::new, |(window, before, after)| {
            per_switch(window.switches, &before, &after)
        });
        let sum = |number: fn(&(f64, f64)) -> f64| {
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
            callbacks_us: sum(|(_, us)| *us),
            calls: sum(|(calls, _)| *calls),
            by_callback,
        }
    }
}

/// The kernel's counts, by name of the program.
pub(super) type Callbacks = BTreeMap<String, Callback>;

/// The counts of all callbacks of sched_ext schedulers, of which one is loaded.
pub(super) fn callbacks() -> Callbacks {
    let programs = ProgInfoIter::default().filter(|program| program.ty == ProgramType::StructOps);
    let count = |program: ProgramInfo| {
        let callback = Callback {
            calls: program.run_cnt,
            run_ns: program.run_time_ns,
        };
        (program.name.to_string_lossy().into_owned(), callback)
    };
    programs.map(count).collect()
}

/// What was called between two counts.
fn per_switch(
    switches: u64,
    before: &Callbacks,
    after: &Callbacks,
) -> BTreeMap<String, (f64, f64)> {
    let per = |count: u64| count as f64 / switches as f64;
    let since = after.iter().map(|(name, now)| {
        let then = before.get(name).copied().unwrap_or_default();
        let calls = per(now.calls - then.calls);
        (name.clone(), (calls, per(now.run_ns - then.run_ns) / 1e3))
    });
    since.filter(|(_, (calls, _))| *calls > 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_what_was_called_between_the_counts_per_switch() {
        let count = |calls, run_ns| Callback { calls, run_ns };
        let counts = |list: &[(&str, Callback)]| {
            let named = list.iter().map(|(name, count)| ((*name).to_owned(), *count));
            named.collect::<Callbacks>()
        };
        let before = counts(&[("enqueue", count(10, 5_000)), ("init", count(1, 90_000))]);
        let after = counts(&[
            ("enqueue", count(110, 105_000)),
            ("init", count(1, 90_000)),
            ("running", count(50, 50_000)),
        ]);
        let window = |switches, seconds| Window { switches, seconds };
        let timed = Some((window(100, 1.0), before, after));
        let row = SwitchRow::new(&SwitchPlan::default(), None, window(200, 1.0), timed);
        assert_eq!(row.switch_us, 5_000.0);
        assert_eq!((row.calls, row.callbacks_us), (Some(1.5), Some(1.5)));
        assert_eq!(Vec::from_iter(row.by_callback.keys()), ["enqueue", "running"]);
        let plain = SwitchRow::new(&SwitchPlan::default(), None, window(200, 1.0), None);
        assert_eq!((plain.calls, plain.callbacks_us), (None, None));
    }
}
