//! What a context switch costs, and how much of that is the scheduler's: two threads on
//! one CPU hand a byte back and forth through two pipes.
//!
//! ```text
//!   thread A   write ─► read, sleeps               woken, runs ─► …
//!   thread B            woken, runs ─► write ─► read, sleeps
//!                       └─ a switch ─┘
//! ```
//!
//! Each write wakes the other thread, each read gives the CPU away: a switch is one
//! wake-up, one choice of the next task, and two system calls. The CPU is never idle, so
//! no scheduler searches for another one.
//!
//! Two windows are measured, since timing is not free:
//!
//! | window | what |
//! | --- | --- |
//! | plain | time per switch |
//! | timed | the time of all callbacks per switch, by the kernel's own count of BPF programs (`kernel.bpf_stats_enabled`) |
//!
//! What the kernel counts for an empty program, which runs at every switch of the second
//! window, is subtracted from each call: it is the timing itself. Schedulers that are not
//! sched_ext's have no callbacks.

pub(crate) mod cli;
mod empty;
pub(crate) mod report;
mod row;
mod run;

use std::path::PathBuf;

use giveway_tier::{Tier, Weight};
use serde::{Deserialize, Serialize};

use empty::Empty;
pub(crate) use row::SwitchRow;

use crate::cell::cgroup::{Share, Tree, cpu_range};
use crate::cell::sched_ext::{self, Loaded, Timed};
use crate::harness::Progress;
use crate::harness::environment::Environment;
use crate::harness::error::{Error, Result};
use crate::harness::scheduler::Scheduler;
use crate::report::Report;

/// The name of the experiment.
pub(crate) const NAME: &str = "switch";

/// What is compared by default.
pub(crate) const SCHEDULERS: [&str; 5] =
    ["eevdf", "ufs", "scx_simple", "scx_layered", "scx_bpfland"];

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SwitchPlan {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// The tier of both threads.
    pub tier: Tier,
    /// Seconds before each window.
    pub warmup_s: f64,
    /// Seconds of each window.
    pub seconds: f64,
    /// Which repeat this is, from 0; only written to rows.
    pub repeat: u32,
    /// The machine's seed; only written to rows.
    pub seed: u64,
    /// The sched_ext scheduler's program; empty: found in PATH.
    pub scheduler_program: PathBuf,
}

impl Default for SwitchPlan {
    fn default() -> Self {
        SwitchPlan {
            scheduler: Scheduler::Eevdf,
            tier: Tier::TimeSensitive,
            warmup_s: 0.2,
            seconds: 1.0,
            repeat: 0,
            seed: 1,
            scheduler_program: PathBuf::new(),
        }
    }
}

impl SwitchPlan {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// [`Error::Config`], with the remedy.
    pub(crate) fn validate(&self) -> Result<()> {
        if self.scheduler.is_by_class() {
            return Err(Error::Config(
                "both threads have one priority: IDLE, FIFO and RR are not measured; leave them \
                 out"
                .to_owned(),
            ));
        }
        Ok(())
    }

    /// A name for progress lines.
    pub(crate) fn title(&self) -> String {
        format!(
            "{}, {}, repeat {}",
            self.scheduler.label(),
            self.tier,
            self.repeat + 1
        )
    }

    /// Measures on this machine, which needs root, cgroup v2, and for sched_ext
    /// schedulers a kernel with it.
    ///
    /// # Errors
    /// A machine or scheduler that is not as it should be.
    pub(crate) fn run(&self, clock: &str, progress: Progress<'_>) -> Result<Report<SwitchRow>> {
        let mut report = Report::new(NAME, Environment::probe(clock));
        report.add(&self.scheduler, self.title(), self.measure(progress))?;
        Ok(report)
    }

    fn measure(&self, progress: Progress<'_>) -> Result<SwitchRow> {
        self.validate()?;
        let cpus = cpu_range(0, 1);
        let shares = [Share {
            name: format!("{}.switch", self.tier),
            weight: Weight::DEFAULT,
            is_idle: false,
        }];
        let tree = Tree::on(&cpus, &cpus, &shares)?;
        let own = std::process::id() as i32;
        // The scheduler's program stays with the clients, of whom there are none.
        tree.clients.add(own)?;
        let command = sched_ext::program(&self.scheduler, &self.scheduler_program);
        let scheduler = Loaded::start(&self.scheduler, &command, &shares)?;
        tree.server().add(own)?;

        progress(&format!("{}: measuring", self.title()));
        let plain = run::run(self.warmup_s, self.seconds, || Ok(()))?.0;
        let timed = match &scheduler {
            Some(_) => {
                let _timed = Timed::start()?;
                let empty = Empty::attach()?;
                Some(run::run(self.warmup_s, self.seconds, || {
                    row::Counts::read(&empty)
                })?)
            }
            None => None,
        };
        let version = scheduler.as_ref().map(Loaded::confirm).transpose()?;
        tree.clients.add(own)?;
        if let Some(scheduler) = scheduler {
            scheduler.stop()?;
        }
        Ok(SwitchRow::new(self, version, plain, timed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_real_time_are_refused_with_the_remedy() {
        SwitchPlan::default().validate().unwrap();
        let plan = SwitchPlan {
            scheduler: Scheduler::Rr,
            ..SwitchPlan::default()
        };
        let error = plan.validate().unwrap_err().to_string();
        assert!(error.contains("leave them out"), "{error}");
    }

    #[test]
    fn a_plan_survives_its_file_and_may_leave_out_what_is_usual() {
        let plan = SwitchPlan {
            scheduler: Scheduler::Ufs,
            tier: Tier::Background,
            seed: 7,
            ..SwitchPlan::default()
        };
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<SwitchPlan>(&text).unwrap(), plan);
        let short = r#"{"scheduler":"ufs","tier":"background","seed":7}"#;
        assert_eq!(serde_json::from_str::<SwitchPlan>(short).unwrap(), plan);
    }
}
