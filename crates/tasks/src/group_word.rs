//! A resource group's id, weight, tier and kind of priority, packed into one word: what
//! a worker needs before it runs a task of the group.
//!
//! ```text
//!  63            16 15        2    1       0
//! ┌────────────────┬───────────┬──────┬────────┐
//! │ id             │ weight    │ tier │ static │
//! └────────────────┴───────────┴──────┴────────┘
//! ```
//!
//! Ids are given in the order of arrival and never reused (48 bits: nine years at a
//! million groups per second), so the word also tells a worker whether the slot still
//! holds the group that it knows.

use giveway_tier::{Tier, Weight};

/// The contents of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupWord {
    /// Groups are numbered from 1.
    pub(crate) id: u64,
    pub(crate) tier: Tier,
    pub(crate) weight: Weight,
    /// Whether its priority stays what it is at the beginning.
    pub(crate) is_static: bool,
}

impl GroupWord {
    /// The word; never 0.
    pub(crate) fn pack(self) -> u64 {
        self.id << 16
            | u64::from(self.weight.get()) << 2
            | u64::from(self.tier == Tier::Background) << 1
            | u64::from(self.is_static)
    }

    /// `None` for the word of a slot that never had a group.
    pub(crate) fn unpack(word: u64) -> Option<GroupWord> {
        let weight = (word >> 2) as u32 & 0x3fff;
        Some(GroupWord {
            id: word >> 16,
            tier: match word & 2 {
                0 => Tier::TimeSensitive,
                _ => Tier::Background,
            },
            weight: Weight::try_from(weight).ok()?,
            is_static: word & 1 != 0,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_every_field() {
        for tier in Tier::ALL {
            for weight in [Weight::MIN, Weight::DEFAULT, Weight::MAX] {
                for is_static in [false, true] {
                    let word = GroupWord {
                        id: (1 << 48) - 1,
                        tier,
                        weight,
                        is_static,
                    };
                    assert_eq!(GroupWord::unpack(word.pack()), Some(word));
                }
            }
        }
        assert_eq!(GroupWord::unpack(0), None);
    }
}
