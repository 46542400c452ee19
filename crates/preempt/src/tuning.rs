//! Automatic tuning of the starvation threshold, which the paper leaves to its
//! users (end of Section 6.4).
//!
//! The user states what is wanted, a [`Goal`]: a latency of the higher levels
//! that must not be exceeded, or a throughput of the background level that must
//! be kept. Of all thresholds that keep the goal, the other side should get the
//! best one: the lowest `L_max` that keeps the latency, the highest one that
//! keeps the throughput. The controller looks for the edge between thresholds
//! that keep the goal and those that do not, and stays on the good side of it.
//!
//! ```text
//!  latency      ╲                         throughput ─────╮
//!  of higher     ╲                        of background    ╲
//!  levels         ╰───╮                                     ╲
//!  ── goal ─ ─ ─ ─ ─ ─│╲─ ─ ─ ─ ─         ── goal ─ ─ ─ ─ ─ ─╲─ ─ ─
//!                edge ▲ ╰────────                       edge ▲╲
//!          0 ───── L_max ─────▶ 1                 0 ───── L_max ─────▶ 1
//!              broken │ kept                          kept   │ broken
//! ```
//!
//! **Control law.** Once a window, the goal is found *broken*, *kept*, or kept
//! *with a margin* of 20 % for a latency, 5 % for a throughput, which varies less.
//! Broken moves the threshold a step towards safety at once; a margin in three
//! windows in a row moves it a step back; in between nothing changes. Moving on in
//! the same direction makes steps half as large again, up to 0.25; turning around
//! halves them, down to 0.01. Two exceptions: a goal that breaks after a step back
//! returns to where it was kept, and one that is missed by more than a factor of
//! two twice in a row moves at least 0.2.
//!
//! **Why no gain.** Both curves are monotone, but nothing is known of their
//! slope: latency is flat where higher levels need less than `L_max`, and a
//! cliff where they need more. A proportional controller that is quick enough on
//! the flat part oscillates on the cliff. The sign alone is enough to find the
//! edge of a monotone curve.
//!
//! **Why it settles.** A threshold at which the goal broke is remembered for 20
//! windows, and a step back goes at most half of the way to it: bisection, so
//! under constant load the threshold ends within 0.02 of the edge. To find out
//! whether the edge has moved, the controller has to cross it: after those windows
//! one step is tried, and taken back if the goal breaks. So at rest about
//! one window in 25 breaks the goal, by one step of 0.01.
//!
//! **How fast it follows.** Towards safety the steps are at least 0.2 while the
//! goal is missed by much, so seven windows cross the whole range. Away from it
//! they start at 0.01 and take about 30 windows for half of the range: giving
//! back what was not needed is not urgent.
//!
//! **Windows.** A threshold acts on the next background task, and a quantile
//! needs samples beyond it. A window therefore lasts at least 100 ms and three
//! times the longest background task of the window before, and until there are
//! 5 / (1 − quantile) samples (500 for p99), but no longer than 2 s if there are
//! at least 20. A window says nothing, and changes nothing, while there is too
//! little to judge by: no higher tasks, or no background tasks in line.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::starvation::Threshold;

/// What the user wants of one side; the other one gets the best that is left.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Of all tasks above the background level, this share is done within this
    /// time of its arrival. Submitters that try refused tasks again say when
    /// those arrived first, with [`Request::arrival`](crate::Request::arrival).
    Latency {
        /// Which share, for instance 0.99.
        quantile: f64,
        /// The time from arrival to end.
        within: Duration,
    },
    /// The background level gets at least this share of its workers' time, 0 to
    /// 1, as long as it has something to do.
    CpuShare(f64),
    /// At least so many background tasks a second are done, over all workers, as
    /// long as there are as many to do.
    TasksPerSecond(f64),
}

/// The numbers of a goal make no sense.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum GoalError {
    /// A quantile below which nothing, or everything, lies.
    #[error("quantile {0} is not between 0 and 1: for p99, write 0.99")]
    Quantile(f64),
    /// No time at all.
    #[error("a latency of 0 cannot be kept: give a time above it")]
    Within,
    /// A share that is none.
    #[error("CPU share {0} is not from 0 to 1")]
    Share(f64),
    /// A rate that is none.
    #[error("{0} tasks a second is not a number above 0")]
    Rate(f64),
}

impl Goal {
    /// Whether the numbers make sense.
    ///
    /// # Errors
    /// They do not.
    pub fn check(self) -> Result<(), GoalError> {
        match self {
            Goal::Latency { quantile, .. } if !(quantile > 0.0 && quantile < 1.0) => {
                Err(GoalError::Quantile(quantile))
            }
            Goal::Latency { within, .. } if within.is_zero() => Err(GoalError::Within),
            Goal::CpuShare(share) if !(0.0..=1.0).contains(&share) => Err(GoalError::Share(share)),
            Goal::TasksPerSecond(rate) if !(rate.is_finite() && rate > 0.0) => {
                Err(GoalError::Rate(rate))
            }
            _ => Ok(()),
        }
    }

    /// Where to start: with what is sure to keep the goal, if that is known.
    fn start(self) -> f64 {
        match self {
            Goal::Latency { .. } => 1.0,
            Goal::CpuShare(share) => 1.0 - share,
            Goal::TasksPerSecond(_) => 0.5,
        }
    }

    /// How much better than wanted it has to be for a step back.
    fn margin(self) -> f64 {
        match self {
            Goal::Latency { .. } => MARGIN_LATENCY,
            Goal::CpuShare(_) | Goal::TasksPerSecond(_) => MARGIN_THROUGHPUT,
        }
    }

    /// Which way is safe: up for the higher levels, down for the background.
    fn safe(self) -> f64 {
        match self {
            Goal::Latency { .. } => 1.0,
            Goal::CpuShare(_) | Goal::TasksPerSecond(_) => -1.0,
        }
    }
}

/// What has happened in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Window {
    /// How long it was, summed over workers, ns.
    pub(crate) workers_ns: u64,
    /// How long it was, ns.
    pub(crate) length_ns: u64,
    /// Tasks above the background level that ended.
    pub(crate) higher_tasks: u64,
    /// The goal's quantile of their latency, ns.
    pub(crate) latency_ns: u64,
    /// Background tasks that ended.
    pub(crate) tasks: u64,
    /// For how long background tasks were in line or running, ns, over all
    /// workers.
    pub(crate) in_line_ns: u64,
    /// For how long, of that, the worker was at a higher level, ns.
    pub(crate) higher_ns: u64,
    /// The longest background task, ns.
    pub(crate) longest_ns: u64,
}

/// How a goal fared in the last window that said something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing is known yet.
    #[default]
    Unknown,
    /// The goal is kept.
    Kept,
    /// It is not, and the threshold moves.
    Broken,
    /// It is not, and no threshold is left to try: the load is too high for the
    /// goal.
    OutOfReach,
}

/// What the controller knows, and changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tuner {
    goal: Goal,
    threshold: f64,
    step: f64,
    /// The direction of the last move; 0 before the first.
    direction: f64,
    /// Windows in a row that had a margin.
    margins: u32,
    /// A threshold at which the goal broke, and for how many windows more that
    /// is believed.
    edge: Option<(f64, u32)>,
    /// Where the last step back came from: the goal was kept there.
    kept_at: Option<f64>,
    verdict: Verdict,
    longest_ns: u64,
}

const MARGIN_LATENCY: f64 = 0.2;
const MARGIN_THROUGHPUT: f64 = 0.05;
const MARGINS_BEFORE_MOVE: u32 = 3;
const STEP_MIN: f64 = 0.01;
const STEP_MAX: f64 = 0.25;
const STEP_SEVERE: f64 = 0.2;
const STEP_START: f64 = 0.1;
const SEVERE: f64 = 2.0;
const EDGE_WINDOWS: u32 = 20;
const WINDOW_MIN_NS: u64 = 100_000_000;
const WINDOW_MAX_NS: u64 = 2_000_000_000;
const SAMPLES_MIN: u64 = 20;
/// Background work must be in line for this share of a window to be judged by
/// its throughput.
const DEMAND: f64 = 0.9;

impl Tuner {
    pub(crate) fn new(goal: Goal) -> Tuner {
        Tuner {
            goal,
            threshold: goal.start(),
            step: STEP_START,
            direction: 0.0,
            margins: 0,
            edge: None,
            kept_at: None,
            verdict: Verdict::Unknown,
            longest_ns: 0,
        }
    }

    pub(crate) fn threshold(&self) -> Threshold {
        Threshold::clamped(self.threshold)
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The quantile that windows report.
    pub(crate) fn quantile(&self) -> f64 {
        match self.goal {
            Goal::Latency { quantile, .. } => quantile,
            Goal::CpuShare(_) | Goal::TasksPerSecond(_) => 0.5,
        }
    }

    /// Whether a window that has lasted so long, with so many higher tasks, is
    /// to be judged.
    pub(crate) fn is_due(&self, length_ns: u64, higher_tasks: u64) -> bool {
        if length_ns < WINDOW_MIN_NS.max(self.longest_ns.saturating_mul(3)) {
            return false;
        }
        match self.goal {
            Goal::Latency { quantile, .. } => {
                let enough = (5.0 / (1.0 - quantile)).ceil() as u64;
                higher_tasks >= enough
                    || (length_ns >= WINDOW_MAX_NS && higher_tasks >= SAMPLES_MIN)
            }
            Goal::CpuShare(_) | Goal::TasksPerSecond(_) => true,
        }
    }

    /// Judges a window, and moves the threshold.
    pub(crate) fn observe(&mut self, window: &Window) -> Threshold {
        self.longest_ns = window.longest_ns;
        // Above 1: broken, by that factor.
        let Some(strain) = self.strain(window) else {
            return self.threshold();
        };
        self.edge = self
            .edge
            .and_then(|(at, windows)| Some((at, windows.checked_sub(1)?)));
        let safe = self.goal.safe();
        if strain > 1.0 {
            self.margins = 0;
            let before = self.threshold;
            self.edge = Some((before, EDGE_WINDOWS));
            self.turn(safe);
            if let Some(kept_at) = self.kept_at.take() {
                self.threshold = kept_at;
            } else {
                let severe = strain > SEVERE && self.verdict == Verdict::Broken;
                let least = if severe { STEP_SEVERE } else { 0.0 };
                self.threshold += safe * self.step.max(least);
            }
            let limit = if safe > 0.0 { 1.0 } else { 0.0 };
            self.verdict = if before == limit {
                Verdict::OutOfReach
            } else {
                Verdict::Broken
            };
            self.threshold = self.threshold.clamp(0.0, 1.0);
        } else {
            self.verdict = Verdict::Kept;
            self.margins = if strain < 1.0 - self.goal.margin() {
                self.margins + 1
            } else {
                0
            };
            if self.margins == MARGINS_BEFORE_MOVE {
                self.margins = 0;
                self.relax(-safe);
            }
        }
        self.threshold()
    }

    /// A step towards the edge, but at most half of the way to where it is known
    /// to be.
    fn relax(&mut self, direction: f64) {
        let room = match self.edge {
            Some((edge, _)) => (self.threshold - edge).abs(),
            None => f64::INFINITY,
        };
        if room > 2.0 * STEP_MIN {
            self.turn(direction);
            self.kept_at = Some(self.threshold);
            let to = self.threshold + direction * self.step.min(room / 2.0);
            self.threshold = to.clamp(0.0, 1.0);
        }
    }

    /// The next move goes this way: chooses its length.
    fn turn(&mut self, direction: f64) {
        self.step = if direction == self.direction {
            (self.step * 1.5).min(STEP_MAX)
        } else {
            (self.step / 2.0).max(STEP_MIN)
        };
        self.direction = direction;
    }

    /// How near the window is to breaking the goal: 1 is the edge. `None` if it
    /// does not say.
    fn strain(&self, window: &Window) -> Option<f64> {
        let ratio = |wanted: f64, had: f64| match (wanted > 0.0, had > 0.0) {
            (false, _) => 0.0,
            (true, false) => f64::MAX,
            (true, true) => wanted / had,
        };
        let demanded = window.in_line_ns as f64 >= DEMAND * window.workers_ns as f64;
        match self.goal {
            Goal::Latency { within, .. } => (window.higher_tasks > 0)
                .then(|| window.latency_ns as f64 / within.as_nanos() as f64),
            Goal::CpuShare(share) => {
                let had = window.in_line_ns.saturating_sub(window.higher_ns) as f64;
                (window.in_line_ns > 0).then(|| ratio(share * window.in_line_ns as f64, had))
            }
            Goal::TasksPerSecond(rate) => {
                let had = window.tasks as f64 / (window.length_ns.max(1) as f64 / 1e9);
                let strain = ratio(rate, had);
                (strain <= 1.0 || demanded).then_some(strain)
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
