//! Priority inversion through PostgreSQL's locks: who waits for a background
//! session that holds what an urgent one wants, while other urgent work has the
//! only CPU.
//!
//! ```text
//!               time ─►
//!   holder      [ takes the lock ][ computes for hold_s of CPU time ][ releases ]
//!   waiter           [ wants it . . . . . . . . . . . . . . . . . . . ][ has it ]
//!   burner                [ computes, for as long as anybody looks . . . . . . .
//! ```
//!
//! Holder: background. Waiter and burner: time-sensitive. All on one CPU; the
//! clients and everything else on the other. A *baseline* has no burner: its
//! times are what the work itself takes. The experiment is that of the UFS paper
//! (000), Section 6.6 and Table 4, which has a spinlock; here also lightweight
//! and heavyweight locks, and a chain of three holders who wait for one another.
//!
//! | module | what |
//! | --- | --- |
//! | [`self`] | what is compared |
//! | `setup` | scheduler, server and cgroups of one [`Treatment`] |
//! | `run` | one cell: sessions in turn, their times, the limit |
//! | `row` | what is stored |
//!
//! How sessions get their tiers: without hints by cgroups and classes as in
//! every other experiment (the paper's Table 2); with hints by the settings
//! `giveway.tier` and `giveway.weight`, and by nothing else.
//!
//! Known weaknesses. A session that wants a spinlock naps between attempts, for
//! up to a second, so its times are blurred by that, in the baseline as well.
//! PostgreSQL gives up on a spinlock after 1000 attempts, some two minutes; a
//! limit beyond that measures panics.

pub(crate) mod cli;
mod guests;
pub(crate) mod report;
mod row;
mod run;
mod setup;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub(crate) use row::{InversionRow, Outcome};

use crate::cell::setup::Hints;
use crate::harness::Progress;
use crate::harness::error::{Error, Result};
use crate::harness::scheduler::Scheduler;
use crate::report::Report;

/// The name of the experiment.
pub(crate) const NAME: &str = "inversion";

/// The lock that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ContendedLock {
    /// A spinlock, as in the paper.
    Spin,
    /// A lightweight lock.
    Lwlock,
    /// An advisory lock, which stands for table and row locks.
    Heavyweight,
    /// Lightweight locks: the waiter wants that of a background session, which
    /// wants that of a second, which wants that of a third.
    Chain,
}

impl ContendedLock {
    /// All, in the order in which they are measured.
    pub(crate) const ALL: [ContendedLock; 4] = [
        ContendedLock::Spin,
        ContendedLock::Lwlock,
        ContendedLock::Heavyweight,
        ContendedLock::Chain,
    ];

    /// The name in options and tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            ContendedLock::Spin => "spin",
            ContendedLock::Lwlock => "lwlock",
            ContendedLock::Heavyweight => "heavyweight",
            ContendedLock::Chain => "chain",
        }
    }

    /// What `giveway_test_hold` calls it.
    const fn kind(self) -> &'static str {
        match self {
            ContendedLock::Chain => "lwlock",
            other => other.name(),
        }
    }

    /// The locks that each holder takes, in the order in which holders start.
    /// The waiter wants the first of the last one.
    const fn holders(self) -> &'static [&'static [i32]] {
        match self {
            ContendedLock::Chain => &[&[0], &[1, 0], &[2, 1]],
            _ => &[&[0]],
        }
    }
}

impl fmt::Display for ContendedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ContendedLock {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = ContendedLock::ALL.into_iter().find(|l| l.name() == text);
        found.ok_or_else(|| {
            Error::Config(format!(
                "unknown lock '{text}': write spin, lwlock, heavyweight or chain"
            ))
        })
    }
}

/// Who else wants the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scenario {
    /// Nobody.
    Baseline,
    /// A time-sensitive session, without end.
    Burner,
}

impl Scenario {
    /// Both, in the order in which they are measured.
    pub(crate) const ALL: [Scenario; 2] = [Scenario::Baseline, Scenario::Burner];

    /// The name in progress lines and tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Scenario::Baseline => "baseline",
            Scenario::Burner => "with a burner",
        }
    }
}

/// Under what the cells run: one machine, one scheduler, one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Treatment {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// What it is told.
    pub hints: Hints,
}

impl Treatment {
    /// Every scheduler without hints, and UFS with each of them: no other reads
    /// hints.
    pub(crate) fn all(schedulers: &[Scheduler], hints: &[Hints]) -> Vec<Self> {
        let mut all = Vec::new();
        for scheduler in schedulers {
            let relevant = |hints: &&Hints| !hints.are_on() || *scheduler == Scheduler::Ufs;
            all.extend(hints.iter().filter(relevant).map(|hints| Treatment {
                scheduler: scheduler.clone(),
                hints: *hints,
            }));
        }
        all
    }
}

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, hints {}", self.scheduler.label(), self.hints)
    }
}

/// All cells of one treatment, and how they are measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InversionPlan {
    /// Under what.
    pub treatment: Treatment,
    /// Which locks; each without and with the burner.
    pub locks: Vec<ContendedLock>,
    /// CPU time for which the lock is held, in seconds; a chain's holders have
    /// equal parts of it.
    pub hold_s: f64,
    /// How long a cell may take, in seconds from the first holder's start.
    pub limit_s: f64,
    /// Which repeat this is, from 0; only written to rows.
    pub repeat: u32,
    /// The machine's seed; only written to rows.
    pub seed: u64,
    /// A server made by `postgres/lab-server.sh`, of [`Hints::build`]'s kind.
    pub server_dir: PathBuf,
    /// A cluster of that major version, shut down; copied, never written.
    pub data_dir: PathBuf,
    /// Where the copy goes.
    pub work_dir: PathBuf,
    /// The sched_ext scheduler's program; empty: found in PATH.
    pub scheduler_program: PathBuf,
}

/// The shortest hold: beside it starting sessions and a tick take no time.
const HOLD_MIN_S: f64 = 1.0;

impl InversionPlan {
    /// Refuses what says nothing.
    ///
    /// # Errors
    /// [`Error::Config`], with the remedy.
    pub(crate) fn validate(&self) -> Result<()> {
        let refuse = |reason: String| Err(Error::Config(reason));
        if self.locks.is_empty() {
            return refuse("no lock is named: write spin, lwlock, heavyweight or chain".to_owned());
        }
        if !(self.hold_s.is_finite() && self.hold_s >= HOLD_MIN_S) {
            return refuse(format!(
                "a hold of {} s is not told from the cell's set-up: {HOLD_MIN_S} s or more",
                self.hold_s
            ));
        }
        if !(self.limit_s.is_finite() && self.limit_s >= 2.0 * self.hold_s) {
            return refuse(format!(
                "a limit of {} s leaves no room for a hold of {} s: twice that or more",
                self.limit_s, self.hold_s
            ));
        }
        if self.treatment.hints.are_on() && self.treatment.scheduler != Scheduler::Ufs {
            return refuse(format!(
                "{} reads no hints: only ufs does",
                self.treatment.scheduler
            ));
        }
        Ok(())
    }

    /// Plays all cells on this machine, which needs two CPUs, root, cgroup v2,
    /// and for UFS a kernel with sched_ext.
    ///
    /// # Errors
    /// A machine, server or scheduler that is not as it should be; a cell that
    /// did not go as written ([`Error::Unplayed`]). A cell in which the server
    /// panicked is no error but a row that says so.
    pub(crate) fn run(&self, clock: &str, progress: Progress<'_>) -> Result<Report<InversionRow>> {
        self.validate()?;
        setup::measure(self, clock, progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> InversionPlan {
        InversionPlan {
            treatment: Treatment {
                scheduler: Scheduler::Ufs,
                hints: Hints::Stock,
            },
            locks: vec![ContendedLock::Chain],
            hold_s: 4.0,
            limit_s: 60.0,
            repeat: 0,
            seed: 1,
            server_dir: "/lab/postgres".into(),
            data_dir: "/var/lib/giveway/bench".into(),
            work_dir: "/dev/shm".into(),
            scheduler_program: "/lab/scx_ufs".into(),
        }
    }

    #[test]
    fn only_ufs_is_measured_with_hints() {
        let schedulers = [Scheduler::Rr, Scheduler::Ufs];
        let all = Treatment::all(&schedulers, Hints::ALL);
        let names: Vec<String> = all.iter().map(Treatment::to_string).collect();
        assert_eq!(
            names,
            [
                "RR, hints off",
                "UFS, hints off",
                "UFS, hints stock",
                "UFS, hints patched"
            ]
        );
    }

    #[test]
    fn every_holder_of_a_chain_wants_what_the_one_before_has() {
        let holders = ContendedLock::Chain.holders();
        for pair in holders.windows(2) {
            assert_eq!(pair[1].last(), pair[0].first());
        }
        assert_eq!(holders.len(), 3);
    }

    #[test]
    fn names_are_read_back() {
        for lock in ContendedLock::ALL {
            assert_eq!(lock.name().parse::<ContendedLock>().unwrap(), lock);
        }
        let error = "mutex".parse::<ContendedLock>().unwrap_err().to_string();
        assert!(error.contains("heavyweight or chain"), "{error}");
    }

    #[test]
    fn a_plan_that_says_nothing_is_refused_with_the_remedy() {
        plan().validate().unwrap();
        type Change = fn(&mut InversionPlan);
        let cases: [(Change, &str); 5] = [
            (|plan| plan.locks.clear(), "write spin"),
            (|plan| plan.hold_s = 0.1, "1 s or more"),
            (|plan| plan.hold_s = f64::NAN, "1 s or more"),
            (|plan| plan.limit_s = 7.0, "twice that"),
            (|plan| plan.treatment.scheduler = Scheduler::Rr, "only ufs"),
        ];
        for (change, remedy) in cases {
            let mut plan = plan();
            change(&mut plan);
            let error = plan.validate().unwrap_err().to_string();
            assert!(error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn a_plan_survives_its_file() {
        let text = serde_json::to_string(&plan()).unwrap();
        assert_eq!(
            serde_json::from_str::<InversionPlan>(&text).unwrap(),
            plan()
        );
    }
}
