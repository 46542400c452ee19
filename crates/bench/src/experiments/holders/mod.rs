//! What an extension of slices for lock holders is worth where all work is
//! time-sensitive: pgbench on a patched PostgreSQL server whose buffers are too few.
//!
//! ```text
//!   backend A   [ takes a lock … slice ends ]. . . . [ … releases it ]       off
//!   backend B            [ wants the lock, sleeps . . . . . . . . . . ][ has it ]
//!
//!   backend A   [ takes a lock … slice ends … releases it ]                  extension
//!   backend B            [ wants the lock, sleeps . . . . ][ has it ]
//! ```
//!
//! UFS lets a time-sensitive task that holds a spinlock or lightweight lock at the end of
//! its slice go on for at most `--extension-us`, and charges it; without a background tier
//! no boost can help. Which locks a backend holds UFS knows from the hints of the patched
//! server.
//!
//! | arm | server | scheduler |
//! | --- | --- | --- |
//! | EEVDF and others | patched, without the extension | their own options |
//! | UFS, 0 us | patched, `giveway.hints = patched` | `scx_ufs --extension-us 0` |
//! | UFS, 200 us | the same | `scx_ufs --extension-us 200` |
//!
//! A cell is one arm, one script of pgbench and one repeat. The cells of one arm and repeat
//! share a guest, and the data, which is made there before the scheduler is loaded. Server
//! and pgbench share all CPUs and one cgroup, as on a machine of their own.
//!
//! | module | what |
//! | --- | --- |
//! | [`self`] | what is compared |
//! | `run` | data, scheduler, server and windows of one arm |
//! | `pgbench` | the program, and what its log says of a window |
//! | `row` | what is stored |
//!
//! Known weaknesses. Memory of the guest stands for a disk: to read a page takes a system
//! call and no wait, so no backend gives its CPU away while it does. pgbench's log costs
//! some time of every transaction, in every arm. EEVDF's server publishes no hints, so
//! UFS pays for them in that comparison.

pub(crate) mod cli;
mod pgbench;
pub(crate) mod report;
mod row;
mod run;

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(crate) use pgbench::Script;
pub(crate) use row::HoldersRow;

use crate::harness::Progress;
use crate::harness::error::{Error, Result};
use crate::harness::scheduler::Scheduler;
use crate::report::Report;

/// The name of the experiment.
pub(crate) const NAME: &str = "holders";

/// What is compared by default.
pub(crate) const SCHEDULERS: [Scheduler; 2] = [Scheduler::Eevdf, Scheduler::Ufs];
/// UFS's extensions by default, in microseconds: none, and its own default.
pub(crate) const EXTENSIONS_US: [u32; 2] = [0, 200];

/// What pgbench's tables and their index take for each unit of scale, in MiB.
const DATA_MIB: u32 = 15;

/// A scheduler, and how far it extends slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arm {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// UFS's extension in microseconds, 0 for none; other schedulers have null.
    pub extension_us: Option<u32>,
}

impl Arm {
    /// UFS with each of the extensions, every other scheduler as it is.
    pub(crate) fn all(schedulers: &[Scheduler], extensions_us: &[u32]) -> Vec<Arm> {
        let mut arms = Vec::new();
        for scheduler in schedulers {
            let arm = |extension_us| Arm {
                scheduler: scheduler.clone(),
                extension_us,
            };
            match scheduler {
                Scheduler::Ufs => arms.extend(extensions_us.iter().map(|us| arm(Some(*us)))),
                _ => arms.push(arm(None)),
            }
        }
        arms
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = self.scheduler.label();
        match self.extension_us {
            Some(us) => write!(f, "{label}, {us} us"),
            None => f.write_str(&label),
        }
    }
}

/// The cells of one arm and repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldersPlan {
    /// Under what.
    pub arm: Arm,
    /// What pgbench runs, one after the other.
    pub scripts: Vec<Script>,
    /// CPUs that server and pgbench share.
    pub cpus: u32,
    /// Clients of pgbench for each of them.
    pub clients_per_cpu: u32,
    /// pgbench's scale: 100000 accounts for each unit.
    pub scale: u32,
    /// The server's buffers.
    pub shared_buffers_mib: u32,
    /// Seconds from pgbench's start to the window.
    pub warmup_s: f64,
    /// Seconds of the window.
    pub seconds: f64,
    /// Which repeat this is, from 0; only written to rows.
    pub repeat: u32,
    /// Seed of pgbench, and of the machine.
    pub seed: u64,
    /// A patched server made by `postgres/lab-server.sh`.
    pub server_dir: PathBuf,
    /// Where the data goes.
    pub work_dir: PathBuf,
    /// The sched_ext scheduler's program; empty: found in PATH.
    pub scheduler_program: PathBuf,
}

impl HoldersPlan {
    /// Refuses what says nothing.
    ///
    /// # Errors
    /// [`Error::Config`], with the remedy.
    pub(crate) fn validate(&self) -> Result<()> {
        if self.arm.scheduler.is_by_class() {
            return Err(Error::Config(
                "all tasks have one priority: IDLE, FIFO and RR are not measured; leave them out"
                    .to_owned(),
            ));
        }
        let data_mib = self.scale * DATA_MIB;
        if data_mib <= self.shared_buffers_mib {
            return Err(Error::Config(format!(
                "{data_mib} MiB of data fit into shared_buffers of {} MiB, so no buffer would be \
                 evicted: a larger --scale, or smaller --shared-buffers",
                self.shared_buffers_mib
            )));
        }
        Ok(())
    }

    /// Clients of pgbench.
    pub(crate) fn clients(&self) -> u32 {
        self.cpus * self.clients_per_cpu
    }

    /// A name for progress lines.
    pub(crate) fn title(&self) -> String {
        format!("{}, repeat {}", self.arm, self.repeat + 1)
    }

    /// Measures all cells on this machine, which needs root, cgroup v2, and for sched_ext
    /// schedulers a kernel with it.
    ///
    /// # Errors
    /// A machine, server or scheduler that is not as it should be.
    pub(crate) fn run(&self, clock: &str, progress: Progress<'_>) -> Result<Report<HoldersRow>> {
        self.validate()?;
        run::measure(self, clock, progress)
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    /// A plan of UFS with an extension.
    pub(crate) fn plan() -> HoldersPlan {
        HoldersPlan {
            arm: Arm {
                scheduler: Scheduler::Ufs,
                extension_us: Some(200),
            },
            scripts: Script::ALL.to_vec(),
            cpus: 4,
            clients_per_cpu: 4,
            scale: 10,
            shared_buffers_mib: 16,
            warmup_s: 2.0,
            seconds: 4.0,
            repeat: 0,
            seed: 7,
            server_dir: "/lab/postgres".into(),
            work_dir: "/dev/shm".into(),
            scheduler_program: "/lab/scheduler".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::plan;
    use super::*;

    #[test]
    fn only_ufs_has_extensions_and_each_is_an_arm() {
        let schedulers = [Scheduler::Eevdf, Scheduler::Ufs];
        let arms = Arm::all(&schedulers, &[0, 50, 200]);
        let names: Vec<String> = arms.iter().map(Arm::to_string).collect();
        assert_eq!(names, ["EEVDF", "UFS, 0 us", "UFS, 50 us", "UFS, 200 us"]);
        assert_eq!(arms[0].extension_us, None);
    }

    #[test]
    fn a_plan_that_says_nothing_is_refused_with_the_remedy() {
        plan().validate().unwrap();
        type Change = fn(&mut HoldersPlan);
        let cases: [(Change, &str); 2] = [
            (|plan| plan.arm.scheduler = Scheduler::Rr, "leave them out"),
            (|plan| plan.shared_buffers_mib = 150, "--scale"),
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
        assert_eq!(serde_json::from_str::<HoldersPlan>(&text).unwrap(), plan());
    }
}
