//! How fast a scheduler wakes threads up that compute in between: message and
//! worker threads, after schbench's published method (Mason, 2016), which the UFS
//! paper measures with (Section 6.5, Figure 9).
//!
//! ```text
//!   worker           message thread          worker, again
//!   asks ── posts ─► wakes all who asked ──► runs │ "network", 100 µs │ computes │ asks …
//!                    └──── wake-up latency ────┘   └──── request latency ────────┘
//! ```
//!
//! | part | what it stands for |
//! | --- | --- |
//! | message thread | hands requests to those who wait; does nothing else |
//! | the wake-up's time | taken once for all who are woken, so that a waker who loses its CPU to the first of them shows |
//! | 100 µs of sleep | the network; its end is a wake-up, too, which request latency has in it |
//! | [`WakeupPlan::operations`] products of two matrices | the work, with a cache footprint |
//! | a spinlock for each CPU, held during the work | data of that CPU: who is preempted with it in hand makes others spin |
//!
//! Afterwards hackbench and cyclictest measure the same from other sides (`tools`), and
//! schbench itself the same where a user has it (`schbench`).
//!
//! All threads are in one cgroup of the background tier with the default weight,
//! as in the paper: no scheduler is told that any of them is urgent. This is an
//! implementation of our own, so that it runs wherever the other experiments do;
//! its times compare with each other, not with the tool's, whose products are
//! compiled differently.

pub(crate) mod cli;
mod latency;
pub(crate) mod report;
mod row;
mod run;
mod schbench;
mod tools;
mod work;

use std::path::PathBuf;
use std::time::Duration;

use giveway_tier::{Tier, Weight};
use serde::{Deserialize, Serialize};

pub(crate) use latency::Latency;
pub(crate) use row::WakeupRow;

use crate::cell::cgroup::{Share, Tree, cpu_range};
use crate::cell::require_cpus;
use crate::cell::sched_ext::{self, Loaded};
use crate::harness::Progress;
use crate::harness::environment::Environment;
use crate::harness::error::{Error, Result};
use crate::harness::scheduler::Scheduler;
use crate::report::Report;
use crate::workload::tpcc::terminal::Window;

/// The name of the experiment.
pub(crate) const NAME: &str = "wakeup";

/// What is compared by default: the paper's.
pub(crate) const SCHEDULERS: [Scheduler; 2] = [Scheduler::Eevdf, Scheduler::Ufs];

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WakeupPlan {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// CPUs 0 to `cpus` - 1 are used, by everything.
    pub cpus: u32,
    /// Message threads.
    pub message_threads: u32,
    /// Worker threads of each of them; 0: so many that there are as many as CPUs.
    pub worker_threads: u32,
    /// What a worker's matrices take together, in KiB.
    pub footprint_kib: u32,
    /// Products of matrices in a request.
    pub operations: u32,
    /// Seconds of warm-up.
    pub warmup_s: f64,
    /// Seconds of the window.
    pub seconds: f64,
    /// Runs of hackbench after the window; 0: none.
    pub hackbench_runs: u32,
    /// Seconds of cyclictest after that, beside hackbench; 0: none.
    pub cyclictest_s: u32,
    /// schbench's program, which is run after the window; empty: it is not.
    pub schbench: PathBuf,
    /// Which repeat this is, from 0; only written to rows.
    pub repeat: u32,
    /// The machine's seed; only written to rows.
    pub seed: u64,
    /// The sched_ext scheduler's program; empty: found in PATH.
    pub scheduler_program: PathBuf,
}

impl Default for WakeupPlan {
    /// schbench's defaults, on four CPUs.
    fn default() -> Self {
        WakeupPlan {
            scheduler: Scheduler::Eevdf,
            cpus: 4,
            message_threads: 1,
            worker_threads: 0,
            footprint_kib: 256,
            operations: 5,
            warmup_s: 2.0,
            seconds: 30.0,
            hackbench_runs: 5,
            cyclictest_s: 5,
            schbench: PathBuf::new(),
            repeat: 0,
            seed: 1,
            scheduler_program: PathBuf::new(),
        }
    }
}

/// More threads than this are a mistake.
const THREADS_MOST: u32 = 4096;

impl WakeupPlan {
    /// Worker threads of each message thread.
    pub(crate) fn workers(&self) -> u32 {
        match self.worker_threads {
            0 => self.cpus.div_ceil(self.message_threads.max(1)),
            count => count,
        }
    }

    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// [`Error::Config`], with the remedy.
    pub(crate) fn validate(&self) -> Result<()> {
        let refuse = |reason: &str| Err(Error::Config(reason.to_owned()));
        if self.cpus == 0 || self.message_threads == 0 || self.operations == 0 {
            return refuse("CPUs, message threads and operations: at least one of each");
        }
        let threads = u64::from(self.message_threads) * u64::from(self.workers());
        if threads > THREADS_MOST.into() {
            return refuse("more than 4096 worker threads: lower --worker-threads");
        }
        if work::side(self.footprint_kib) == 0 {
            return refuse("a footprint of 1 KiB or more has room for matrices");
        }
        if !(self.seconds.is_finite() && self.seconds > 0.0) {
            return refuse("the window must be longer than 0 seconds");
        }
        if !(self.warmup_s.is_finite() && self.warmup_s >= 0.0) {
            return refuse("the warm-up cannot be negative");
        }
        if self.scheduler.is_by_class() {
            return refuse(
                "all threads are alike: IDLE, FIFO and RR would be EEVDF; leave them out",
            );
        }
        Ok(())
    }

    /// A name for progress lines.
    pub(crate) fn title(&self) -> String {
        format!("{}, repeat {}", self.scheduler.label(), self.repeat + 1)
    }

    /// Measures on this machine, which needs root, cgroup v2, and for sched_ext
    /// schedulers a kernel with it.
    ///
    /// # Errors
    /// A machine or scheduler that is not as it should be; a window in which no
    /// request ended.
    pub(crate) fn run(&self, clock: &str, progress: Progress<'_>) -> Result<Report<WakeupRow>> {
        let mut report = Report::new(NAME, Environment::probe(clock));
        report.add(&self.scheduler, self.title(), self.measure(progress))?;
        Ok(report)
    }

    fn measure(&self, progress: Progress<'_>) -> Result<WakeupRow> {
        self.validate()?;
        require_cpus(self.cpus)?;
        let cpus = cpu_range(0, self.cpus);
        let share = Share {
            name: format!("{}.wakeup", Tier::Background),
            weight: Weight::DEFAULT,
            is_idle: false,
        };
        let shares = [share];
        let tree = Tree::on(&cpus, &cpus, &shares)?;
        let own = std::process::id() as i32;
        // The scheduler's program stays with the clients, of whom there are none.
        tree.clients.add(own)?;
        let command = sched_ext::program(&self.scheduler, &self.scheduler_program);
        let scheduler = Loaded::start(&self.scheduler, &command, &shares)?;
        tree.server().add(own)?;

        progress(&format!(
            "{}: measuring for {} s",
            self.title(),
            self.seconds
        ));
        let window = Window::after(
            Duration::from_secs_f64(self.warmup_s),
            Duration::from_secs_f64(self.seconds),
        );
        let recorded = run::run(self, window);
        progress(&format!("{}: the tools", self.title()));
        let schbench = schbench::schbench(self)?;
        let hackbench = tools::hackbench(self)?;
        let cyclictest = tools::cyclictest(self)?;
        let version = scheduler.as_ref().map(Loaded::confirm).transpose()?;
        tree.clients.add(own)?;
        if let Some(scheduler) = scheduler {
            scheduler.stop()?;
        }
        Ok(WakeupRow {
            hackbench,
            cyclictest,
            schbench,
            ..WakeupRow::new(self, version, &recorded)?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_workers_as_cpus_unless_it_is_said() {
        let plan = |message_threads, worker_threads| WakeupPlan {
            cpus: 4,
            message_threads,
            worker_threads,
            ..WakeupPlan::default()
        };
        let workers = [plan(1, 0), plan(2, 0), plan(3, 0), plan(2, 16)];
        assert_eq!(workers.map(|plan| plan.workers()), [4, 2, 2, 16]);
    }

    #[test]
    fn a_plan_that_says_nothing_is_refused_with_the_remedy() {
        WakeupPlan::default().validate().unwrap();
        type Change = fn(&mut WakeupPlan);
        let cases: [(Change, &str); 6] = [
            (|plan| plan.operations = 0, "at least one"),
            (|plan| plan.worker_threads = 5000, "--worker-threads"),
            (|plan| plan.footprint_kib = 0, "1 KiB or more"),
            (|plan| plan.seconds = 0.0, "longer than 0"),
            (|plan| plan.warmup_s = -1.0, "negative"),
            (|plan| plan.scheduler = Scheduler::Rr, "would be EEVDF"),
        ];
        for (change, remedy) in cases {
            let mut plan = WakeupPlan::default();
            change(&mut plan);
            let error = plan.validate().unwrap_err().to_string();
            assert!(error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn a_plan_survives_its_file_and_may_leave_out_what_is_usual() {
        let plan = WakeupPlan {
            scheduler: Scheduler::Ufs,
            seed: 7,
            ..WakeupPlan::default()
        };
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<WakeupPlan>(&text).unwrap(), plan);
        let short: WakeupPlan = serde_json::from_str(r#"{"scheduler":"ufs","seed":7}"#).unwrap();
        assert_eq!(short, plan);
    }
}
