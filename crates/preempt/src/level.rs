//! Levels of urgency. Level 0 is what the worker's thread does itself; each
//! higher one preempts all that are lower. The paper has two (Section 4); its
//! Section 5 suggests more.

use std::fmt;

use giveway_tier::Tier;
use serde::{Deserialize, Serialize};

/// A level of urgency, 0 to 15. The higher one preempts the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Level(u8);

impl Level {
    /// What the worker's thread does itself: it preempts nobody.
    pub const BASE: Level = Level(0);
    /// The most urgent level there can be.
    pub const MAX: Level = Level(15);

    /// The level with this number.
    ///
    /// # Panics
    /// If the number is above 15.
    pub const fn new(number: u8) -> Level {
        assert!(number <= Level::MAX.0, "levels are numbered from 0 to 15");
        Level(number)
    }

    /// The number, 0 to 15.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Where work of a tier goes on workers with this many levels: background
    /// work to the base, time-sensitive work to the top.
    pub const fn of(tier: Tier, levels: usize) -> Level {
        match tier {
            Tier::Background => Level::BASE,
            Tier::TimeSensitive => Level::new((levels - 1) as u8),
        }
    }

    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// The set with this level alone.
    #[inline]
    pub(crate) const fn bit(self) -> u32 {
        1 << self.0
    }

    /// The set of all levels above this one.
    #[inline]
    pub(crate) const fn above(self) -> u32 {
        0xffff & (0xfffe << self.0)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels(pub(crate) u32);

impl Levels {
    /// Whether no level is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this level is in the set.
    pub const fn contains(self, level: Level) -> bool {
        self.0 & level.bit() != 0
    }

    /// How many levels are in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The most urgent level of the set.
    #[inline]
    pub const fn highest(self) -> Option<Level> {
        match self.0.checked_ilog2() {
            Some(number) => Some(Level(number as u8)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_below_all_that_preempt_it() {
        assert_eq!(Level::BASE.above(), 0xfffe);
        assert_eq!(Level::new(3).above(), 0xfff0);
        assert_eq!(Level::MAX.above(), 0);
        assert_eq!(Levels(0b1010).highest(), Some(Level::new(3)));
        assert_eq!(Levels(0).highest(), None);
        assert_eq!(Levels(0b1010).len(), 2);
    }

    #[test]
    fn tiers_map_to_the_lowest_and_highest_level() {
        assert_eq!(Level::of(Tier::Background, 3), Level::BASE);
        assert_eq!(Level::of(Tier::TimeSensitive, 3), Level::new(2));
    }
}
