//! One cell as it is stored.

use serde::{Deserialize, Serialize};

use super::{ContendedLock, Scenario};
use crate::cell::setup::Hints;
use crate::harness::scheduler::Scheduler;

/// How a cell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Holders and waiter were through before the limit.
    Finished,
    /// Not all of them; those without times.
    Late,
    /// The server gave up on a spinlock, and restarted itself.
    Panic,
}

/// How long a session took, on the clock, in seconds from its own start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Times {
    /// Until it had its locks.
    pub acquire_s: f64,
    /// Until it had released them.
    pub total_s: f64,
}

/// One cell. A session that was not through has null for its times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InversionRow {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// Name and version of the sched_ext scheduler, as the kernel has it.
    pub scheduler_version: Option<String>,
    /// The lock.
    pub lock: ContendedLock,
    /// Without or with the burner.
    pub scenario: Scenario,
    /// What the scheduler was told.
    pub hints: Hints,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of the machine.
    pub seed: u64,
    /// CPU time for which the lock was held, in seconds.
    pub hold_s: f64,
    /// The limit, in seconds.
    pub limit_s: f64,
    /// How it ended.
    pub outcome: Outcome,
    /// Of a chain, those of the holder that took longest.
    pub holder_acquire_s: Option<f64>,
    /// As above.
    pub holder_total_s: Option<f64>,
    /// Until the waiter had the lock.
    pub waiter_acquire_s: Option<f64>,
    /// Until the waiter was through.
    pub waiter_total_s: Option<f64>,
    /// How often UFS let a holder run ahead of its tier; null where it reads no
    /// hints, or the server panicked.
    pub boosts: Option<i64>,
    /// For how long it did, in nanoseconds.
    pub boosted_ns: Option<i64>,
}
