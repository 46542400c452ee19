//! Least attained service with a floor: who has received least goes next, and nobody
//! waits for ever.
//!
//! ```text
//!   received by a worker                             who goes next
//!   0 ┌──────────┐ start    the first stage:         who came first
//!     │          │
//!     └──────────┘
//!     ┊          ┊ beyond   the second stage:        who has received least
//!     ┊          ┊
//!   a part `floor` of the time, in both stages:      who is due
//! ```
//!
//! Short queries are short by what they turn out to need, not by what anybody says of
//! them. If those that have had much need much more on average, as with queries of many
//! sizes, the least mean latency is that of least attained service. If the first so many
//! milliseconds say nothing of what is left, turns in them only make everybody late: there
//! the first to come is best. Both together are the best there is for such a workload on
//! one server (Aalto, Ayesta and Righter, Queueing Systems 63, 2009: FCFS + FB). `start` is
//! the end of the first stage, in quanta; with 0, it is least attained service alone.
//!
//! What a group has received counts relative to its weight, so groups that are beyond
//! `start` and have been there for long share the worker by weight.
//!
//! # When slots run out
//!
//! Who waits for a slot waits behind all who have one. Turns among long queries keep all of
//! them, and their slots, until the last has ended, and under overload those fill all slots.
//! So what groups have received is told apart by levels, the coarser the more slots are
//! taken; within a level, the first to come goes on to its end:
//!
//! ```text
//!   at most 1/4 taken    every nanosecond is a level
//!   more                 [1, 2), [2, 4), [4, 8), ...       quanta, divided by weight
//!   more than 1/2        [1/2, 2), [2, 8), [8, 32), ...
//! ```
//!
//! With 1.08 times the work that two workers can do and 128 slots, the mean slowdown of short
//! queries in five traces was 2.0 to 42 without the levels, and is 2.0 to 2.3 with them. Under
//! the paper's tuned decay it is 4.5 to 5.8 (traces as in `tuning_helps_under_overload`).
//!
//! # The floor
//!
//! By itself this starves long queries: while new ones come fast enough, a group that has
//! received much gets nothing. So a part of each worker's time is given by another rule. In
//! its tier, a group of weight w has a *due time* on a clock v, which runs while the worker
//! runs groups of this tier, by `floor` / Σw per unit of that time, Σw over the active groups:
//!
//! ```text
//!   admitted at v:               due at v + quantum / w
//!   has run for l, begun at v:   due at min(due, v) + l / w
//!   returns at v:                due at max(due, v)
//!
//!   Who is due, that is due ≤ v, the earliest first, goes before everybody else of the tier.
//! ```
//!
//! E1. Groups are owed `floor` of the time together, so the rest goes by what they have
//!     received. (not asserted: a rate)
//! E2. From the end of a group's task to the start of its next, its tier gets at most
//!     l · Σw / (`floor` · w) + n · t of the worker's time, where l is what the task took
//!     (when it was admitted, a quantum), t the longest task, and Σw and n the weights and
//!     the number of groups that were active, each at its largest, those that came in that
//!     time included. (`the_floor_starves_nobody`)
//! E3. A group whose priority is static is due as if `floor` were 1 for it: it has its share
//!     by weight at all times. (`las_shares_by_weight`)
//!
//! Why E2 holds. The group is due after the first part. Let it be due at s, when the clock
//! says v(s), and let somebody have been due at all times since r ≤ s. Until the group runs,
//! only tasks are begun that were due by v(s), but for one that was running at r. Of each
//! group, these are what the clock owed it from r to s, and less than one task more. The clock
//! owes all groups together at most the time that passes, since the parts are at most w / Σw.
//! So from r on, what runs before the group takes at most s - r, a task of each other group,
//! and the one at r.
//!
//! With `floor` = 0 nobody is ever due. That is least attained service as in textbooks, for
//! comparison.

use serde::Serialize;

/// What least attained service is tuned by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Attained {
    start: u32,
    floor: f32,
}

/// The parameter makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("floor {0} is not between 0 and 0.5")]
pub struct AttainedError(f32);

impl Attained {
    /// Turns from the beginning.
    pub const INITIAL: Attained = Attained {
        start: 0,
        floor: 0.05,
    };

    /// # Errors
    /// `floor` must lie between 0 and 0.5.
    pub fn new(start: u32, floor: f32) -> Result<Attained, AttainedError> {
        if !(0.0..=0.5).contains(&floor) {
            return Err(AttainedError(floor));
        }
        Ok(Attained { start, floor })
    }

    /// How many quanta a group receives before others go first that have received less.
    pub fn start(self) -> u32 {
        self.start
    }

    /// Which part of the time goes to who is due.
    pub fn floor(self) -> f32 {
        self.floor
    }
}

/// How finely received time is told apart: by the bits of a float that count. Whole powers
/// of 2 differ in its exponent, powers of 4 in all but the last bit of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Levels(u64);

impl Levels {
    const EXACT: Levels = Levels(!0);
    const POWERS_OF_2: Levels = Levels(!0 << 52);
    const POWERS_OF_4: Levels = Levels(!0 << 53);

    /// While so many of the slots are taken.
    pub(crate) fn of(active: usize, slots: usize) -> Levels {
        match active {
            _ if 4 * active <= slots => Levels::EXACT,
            _ if 2 * active <= slots => Levels::POWERS_OF_2,
            _ => Levels::POWERS_OF_4,
        }
    }

    /// A number that all times of a level share, and that grows with them.
    pub(crate) fn floor(self, quanta: f64) -> f64 {
        f64::from_bits(quanta.to_bits() & self.0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_floor_has_bounds() {
        for floor in [-0.1, 0.6, f32::NAN] {
            assert!(Attained::new(0, floor).is_err());
        }
    }

    #[test]
    fn levels_are_as_drawn() {
        let are_one = |levels: Levels, one, other| levels.floor(one) == levels.floor(other);
        let [fine, two, four] = [32, 64, 65].map(|active| Levels::of(active, 128));
        assert!(!are_one(fine, 1000.0, 1000.1));
        assert!(are_one(two, 4.0, 7.9) && !are_one(two, 3.9, 4.0) && !are_one(two, 7.9, 8.0));
        assert!(are_one(four, 2.0, 7.9) && !are_one(four, 1.9, 2.0) && !are_one(four, 7.9, 8.0));
        for levels in [fine, two, four] {
            assert_eq!(levels.floor(0.0), 0.0);
            assert!(
                [0.0, 0.1, 0.6, 3.0, 9.0, 1e9]
                    .map(|quanta| levels.floor(quanta))
                    .is_sorted()
            );
        }
    }
}
