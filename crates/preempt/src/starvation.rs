//! Starvation prevention (Section 5, Figure 7): how much of the time since a
//! background task came into its own went to higher levels, and when that is
//! too much.
//!
//! ```text
//!            T₀                                         T₁ (now)
//!   ─────────┼────────┬───────┬─────────┬────────┬──────┼────▶
//!            │  low   │ high  │   low   │  high  │ low  │
//!            │        ╰───┬───╯         ╰───┬────╯      │
//!            │            └──── T_h = Σ ────┘           │
//!
//!   starvation level  L = T_h / (T₁ − T₀),  to stay below  L_max
//! ```
//!
//! It is looked at where the paper looks at it: before higher tasks are pushed
//! to a worker (they are refused, and no worker is interrupted), and after each
//! higher task (the rest of them wait, the background task goes on).
//! `L_max` = 1 turns all of it off; `L_max` = 0 forbids preemption, so that
//! higher tasks run between background tasks only.
//!
//! **When the account is opened and closed.** The published code sets T₀ before
//! and after every background task. The second time makes `L` noise between
//! tasks, the quotient of two numbers near zero, and each forgets that the next
//! background task may have been waiting for long. Here an account is opened
//! once for each background task and closed at its end; while none is open, `L`
//! is 0. When it is opened is a choice ([`Since`]):
//!
//! - `Start` is the paper's. It bounds what preemption does to a task that runs.
//!   Between two background tasks, higher ones are still served until there are
//!   none, unbounded and uncounted: under overload `L_max` = 0.75 leaves
//!   background work far less than a quarter (the paper's Figure 12 shows 16 %).
//! - `FirstInLine`, the default, opens it when the task is the next to run, and
//!   counts all time that higher levels get from then on. `L_max` is then what
//!   it seems to be: the share of the worker that higher levels cannot exceed
//!   as long as background work waits.
//!
//! The time of a higher level is counted from the switch to it until the switch
//! back, the pool's own work included, and what is not finished counts as well,
//! so that the scheduling thread does not push to a worker that has run higher
//! levels for long. The time of nested levels is counted once.
//!
//! Known weaknesses. Shortly after T₀ a single higher task makes `L` large,
//! because there is little to divide by; the next one then waits about as long
//! as the first one took, divided by `L_max`. And when a higher task yields to
//! the background task beneath it because of a conflict, that time is counted
//! as the higher one's.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sync::{Acquire, AtomicU64, Relaxed, Release};

/// L_max: the share of a worker's time, 0 to 1, that higher levels may take
/// from a background task.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Threshold(f64);

impl Threshold {
    /// No limit: 1.
    pub const DISABLED: Threshold = Threshold(1.0);
    /// No preemption: 0.
    pub const NEVER: Threshold = Threshold(0.0);

    /// A threshold from 0 to 1.
    ///
    /// # Errors
    /// The number is outside of that range, or none.
    pub fn new(share: f64) -> Result<Threshold, ThresholdError> {
        if (0.0..=1.0).contains(&share) {
            Ok(Threshold(share))
        } else {
            Err(ThresholdError(share))
        }
    }

    /// The nearest threshold to a number; for controllers.
    pub(crate) fn clamped(share: f64) -> Threshold {
        Threshold(share.clamp(0.0, 1.0))
    }

    /// The share.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Whether a running background task may be preempted at all.
    pub(crate) fn allows_preemption(self) -> bool {
        self.0 > 0.0
    }
}

impl Default for Threshold {
    fn default() -> Self {
        Threshold::DISABLED
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Threshold> for f64 {
    fn from(threshold: Threshold) -> f64 {
        threshold.0
    }
}

impl TryFrom<f64> for Threshold {
    type Error = ThresholdError;

    fn try_from(share: f64) -> Result<Threshold, ThresholdError> {
        Threshold::new(share)
    }
}

/// The number was no starvation threshold.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("starvation threshold {0} is not from 0 (no preemption) to 1 (no limit)")]
pub struct ThresholdError(f64);

/// From when on the time of higher levels is held against them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Since {
    /// From the start of the background task, as in the paper.
    Start,
    /// From when the background task is the next to run.
    #[default]
    FirstInLine,
}

/// The account of one worker. Its thread writes, inside regions; anybody reads.
#[derive(Debug)]
pub(crate) struct Starvation {
    /// T₀, ns; 0 while no background task waits or runs.
    since: AtomicU64,
    /// T_h, ns, but for what is not finished.
    higher: AtomicU64,
    /// Since when a higher level runs, ns; 0 while none does.
    up_since: AtomicU64,
    /// For how long accounts were open, those that are closed, ns.
    in_line: AtomicU64,
    /// For how long of that higher levels ran, ns.
    higher_in_line: AtomicU64,
}

/// For how long background tasks were in line or running, all told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InLine {
    /// How long, ns.
    pub(crate) total_ns: u64,
    /// For how long of that higher levels ran, ns.
    pub(crate) higher_ns: u64,
}

impl Starvation {
    pub(crate) fn new() -> Starvation {
        Starvation {
            since: AtomicU64::new(0),
            higher: AtomicU64::new(0),
            up_since: AtomicU64::new(0),
            in_line: AtomicU64::new(0),
            higher_in_line: AtomicU64::new(0),
        }
    }

    /// Opens the account of a background task.
    pub(crate) fn open(&self, now: u64) {
        if self.up_since.load(Relaxed) != 0 {
            self.up_since.store(now, Relaxed);
        }
        self.higher.store(0, Relaxed);
        // Who sees the new T₀ also sees that T_h was reset. Who sees a new T_h
        // with the old T₀ sees hardly any starvation, which is right for the
        // task that has just come.
        self.since.store(now, Release);
    }

    /// Closes the account.
    pub(crate) fn close(&self, now: u64) {
        let all = self.in_line(now);
        self.in_line.store(all.total_ns, Relaxed);
        self.higher_in_line.store(all.higher_ns, Relaxed);
        self.since.store(0, Relaxed);
    }

    /// For how long background tasks have been in line or running. Between the
    /// closing of an account and the opening of the next it is exact.
    pub(crate) fn in_line(&self, now: u64) -> InLine {
        let mut all = InLine {
            total_ns: self.in_line.load(Relaxed),
            higher_ns: self.higher_in_line.load(Relaxed),
        };
        let since = self.since.load(Acquire);
        if since != 0 && since < now {
            all.total_ns += now - since;
            all.higher_ns += self.spent(since, now);
        }
        all
    }

    /// T_h of the account opened at `since`, and what is not finished, ns.
    fn spent(&self, since: u64, now: u64) -> u64 {
        let up_since = self.up_since.load(Relaxed);
        let unfinished = match up_since {
            0 => 0,
            up_since => now.saturating_sub(up_since.max(since)),
        };
        self.higher.load(Relaxed) + unfinished
    }

    /// Whether there is an account.
    pub(crate) fn is_open(&self) -> bool {
        self.since.load(Relaxed) != 0
    }

    /// Whether a higher level runs.
    pub(crate) fn is_up(&self) -> bool {
        self.up_since.load(Relaxed) != 0
    }

    /// The worker leaves the background level; nothing if it has left it before.
    pub(crate) fn go_up(&self, now: u64) {
        if self.up_since.load(Relaxed) == 0 {
            self.up_since.store(now, Relaxed);
        }
    }

    /// The worker returns to the background level.
    pub(crate) fn come_down(&self, now: u64) {
        let spent = now.saturating_sub(self.up_since.load(Relaxed));
        let higher = self.higher.load(Relaxed);
        // In this order, a reader between the two counts too little, not twice.
        self.up_since.store(0, Relaxed);
        self.higher.store(higher + spent, Release);
    }

    /// The starvation level L, 0 to 1.
    pub(crate) fn level(&self, now: u64) -> f64 {
        let since = self.since.load(Acquire);
        if since == 0 || now <= since {
            return 0.0;
        }
        (self.spent(since, now) as f64 / (now - since) as f64).min(1.0)
    }

    /// Whether higher levels have had too much.
    pub(crate) fn exceeds(&self, threshold: Threshold, now: u64) -> bool {
        threshold != Threshold::DISABLED && self.level(now) > threshold.get()
    }

    /// How long it takes, ns, until the level has sunk to the threshold if
    /// nothing but the background task runs; `None` if it never will.
    pub(crate) fn until_within(&self, threshold: Threshold, now: u64) -> Option<u64> {
        if !self.exceeds(threshold, now) {
            return Some(0);
        }
        if !threshold.allows_preemption() {
            return None;
        }
        let higher = self.higher.load(Relaxed) as f64;
        let within = self
            .since
            .load(Relaxed)
            .saturating_add((higher / threshold.get()) as u64);
        Some(within.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(share: f64) -> Threshold {
        Threshold::new(share).unwrap()
    }

    #[test]
    fn the_level_is_the_share_of_higher_levels_since_t0() {
        let account = Starvation::new();
        assert_eq!(account.level(500), 0.0);
        account.open(1000);
        assert_eq!(account.level(1000), 0.0);
        account.go_up(1100);
        account.come_down(1300);
        assert_eq!(account.level(1400), 0.5);
        assert_eq!(account.level(3000), 0.1);
        account.close(3000);
        assert_eq!(account.level(4000), 0.0);
    }

    #[test]
    fn unfinished_time_counts_and_nested_levels_count_once() {
        let account = Starvation::new();
        account.open(1000);
        account.go_up(1100);
        // A second level on top of the first.
        account.go_up(1150);
        assert_eq!(account.level(1200), 0.5);
        account.come_down(1200);
        assert_eq!(account.level(1200), 0.5);
        assert_eq!(account.level(2000), 0.1);
    }

    #[test]
    fn each_task_starts_with_a_clean_account() {
        let account = Starvation::new();
        account.open(1000);
        account.go_up(1000);
        account.come_down(1900);
        assert!(account.level(2000) > 0.8);
        account.close(2000);
        account.open(2000);
        assert_eq!(account.level(2100), 0.0);
        // Opened while a higher level runs: its past is not this task's.
        account.go_up(2100);
        account.close(2500);
        account.open(3000);
        assert_eq!(account.level(3100), 1.0);
        account.come_down(3100);
        assert_eq!(account.level(4000), 0.1);
        account.close(4000);
        let all = InLine {
            total_ns: 1000 + 500 + 1000,
            higher_ns: 900 + 400 + 100,
        };
        assert_eq!(account.in_line(9000), all);
    }

    #[test]
    fn threshold_1_is_no_limit_and_0_forbids_preemption() {
        let account = Starvation::new();
        account.open(1000);
        account.go_up(1000);
        assert!(!account.exceeds(Threshold::DISABLED, 2000));
        assert!(account.exceeds(share(0.99), 2000));
        account.come_down(2000);
        account.go_up(2000);
        account.come_down(2000);
        assert!(account.exceeds(Threshold::NEVER, u64::MAX));
        assert!(!Threshold::NEVER.allows_preemption());
        assert_eq!(account.until_within(Threshold::NEVER, 2000), None);
    }

    #[test]
    fn the_time_until_it_is_within_is_exact() {
        let account = Starvation::new();
        account.open(1000);
        account.go_up(1000);
        account.come_down(2000);
        let wait = account.until_within(share(0.25), 2000).unwrap();
        assert_eq!(wait, 3000);
        assert!(account.exceeds(share(0.25), 2000 + wait - 1));
        assert!(!account.exceeds(share(0.25), 2000 + wait));
        assert_eq!(account.until_within(share(0.25), 9000), Some(0));
    }

    #[test]
    fn a_number_that_is_no_share_is_refused() {
        for bad in [-0.1, 1.1, f64::NAN, f64::INFINITY, 75.0] {
            let error = Threshold::new(bad).unwrap_err().to_string();
            assert!(error.contains("from 0"), "{error}");
        }
        assert_eq!(
            serde_json::from_str::<Threshold>("0.75").unwrap(),
            share(0.75)
        );
        assert!(serde_json::from_str::<Threshold>("75").is_err());
    }
}
