//! How long to spin, and how often to look meanwhile.
//!
//! Spinning pays if the holder runs and is about to release. If it has lost its
//! CPU, or is about to lose it to the very thread that spins, it cannot. Which of
//! the two is usual at a lock is learnt, as glibc's adaptive mutex does: each
//! lock has a spin level in its state. A head that spun and acquired raises it,
//! one that spun and had to sleep lowers it, in the exchange that acquires or
//! announces the sleep, so learning costs nothing. Level 7 is
//! [`Options::spin`](crate::Options::spin); each level below is half of it; at
//! level 0 a head does not spin, but for one time in 16, to find out whether
//! spinning pays again.
//!
//! Each look at a lock takes its cache line from the holder, which then misses it
//! twice, when it releases and when it acquires again. So looks become rarer with
//! the time waited.

use crate::clock;
use crate::options::Settings;
use crate::state::{spin_level, with_spin_level};
use crate::sync::{MODEL, relax};

const TOP_LEVEL: u32 = 7;
/// The level of a trial. A successful trial raises the lock to above it.
const TRIAL_LEVEL: u32 = 3;
/// Trials at level 0: one in so many.
const TRIALS: u32 = 16;
/// Pauses between the first two looks.
const FIRST_PAUSES: u32 = 16;
/// Pauses between two looks at most, 1 to 3 µs.
const MOST_PAUSES: u32 = 128;

/// How long a head that finds the lock in this state spins before it sleeps, ns.
/// `now` is any changing number.
pub(super) fn budget_ns(settings: &Settings, state: u64, now: u64) -> u64 {
    if MODEL {
        return 0;
    }
    let level = match spin_level(state) {
        0 if clock::draw(now).is_multiple_of(TRIALS) => TRIAL_LEVEL,
        0 => return 0,
        level => level,
    };
    settings.spin_ns() >> (TOP_LEVEL - level)
}

/// Whether heads that spin at the lock in this state mostly acquire.
pub(super) fn pays(state: u64) -> bool {
    spin_level(state) >= TRIAL_LEVEL
}

/// `state` after a head has spun and acquired.
pub(super) fn paid(state: u64) -> u64 {
    let level = (spin_level(state) + 1).clamp(TRIAL_LEVEL + 1, TOP_LEVEL);
    learnt(state, level)
}

/// `state` after a head has spun in vain.
pub(super) fn in_vain(state: u64) -> u64 {
    learnt(state, spin_level(state).saturating_sub(1))
}

/// In a model nobody spins, and a level would only make more states.
fn learnt(state: u64, level: u32) -> u64 {
    if MODEL {
        state
    } else {
        with_spin_level(state, level)
    }
}

/// Pauses that become longer.
pub(super) struct Backoff {
    pauses: u32,
}

impl Backoff {
    pub(super) const fn new() -> Backoff {
        Backoff {
            pauses: FIRST_PAUSES,
        }
    }

    /// Waits a moment.
    pub(super) fn pause(&mut self) {
        for _ in 0..self.pauses {
            relax();
        }
        self.pauses = (self.pauses * 2).min(MOST_PAUSES);
    }

    /// Whether the next pause is as long as they become.
    pub(super) fn is_longest(&self) -> bool {
        self.pauses == MOST_PAUSES
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::options::settings;

    /// The budget at a lock in this state, without a trial.
    fn budget(state: u64) -> u64 {
        (0..u64::from(TRIALS))
            .map(|now| budget_ns(settings(0), state, now))
            .min()
            .unwrap()
    }

    #[test]
    fn spinning_that_pays_is_done_for_longer_up_to_the_option() {
        let (mut state, most) = (0, settings(0).spin_ns());
        assert!(budget(state) > 0 && budget(state) < most);
        for _ in 0..10 {
            let before = budget(state);
            state = paid(state);
            assert!(budget(state) >= before);
        }
        assert_eq!(budget(state), most);
    }

    #[test]
    fn spinning_in_vain_ends_but_for_a_trial_now_and_then() {
        let mut state = 0;
        for _ in 0..10 {
            state = in_vain(state);
        }
        assert_eq!(budget(state), 0);
        assert!(!pays(state));
        let trials = (0..10_000).filter(|now| budget_ns(settings(0), state, *now) > 0);
        let trials = trials.count();
        assert!((300..1000).contains(&trials), "{trials}");
        // A trial that pays makes the next heads spin.
        assert!(pays(paid(state)) && budget(paid(state)) > 0);
    }

    #[test]
    fn the_spin_level_changes_nothing_else_in_the_state() {
        let state = !0;
        for learnt in [paid(state), in_vain(state)] {
            assert_eq!(learnt | crate::state::LEVEL, state);
        }
    }
}
