//! How much of its tier's CPU time a piece of work gets: 1 to 10000, in the
//! units of cgroup v2's `cpu.weight`. Source: UFS (paper 000), Section 2.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A share of the CPU inside a tier. Twice the weight is twice the time, under
/// contention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Weight(u32);

impl Weight {
    /// The smallest share.
    pub const MIN: Weight = Weight(1);
    /// The weight of work that has not set one.
    pub const DEFAULT: Weight = Weight(100);
    /// The largest share.
    pub const MAX: Weight = Weight(10_000);

    /// The weight as a number from 1 to 10000.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Weight> for u32 {
    fn from(weight: Weight) -> u32 {
        weight.0
    }
}

/// The text or number was no weight.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("weight '{0}' is not a whole number from 1 to 10000")]
pub struct WeightError(String);

impl TryFrom<u32> for Weight {
    type Error = WeightError;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        if (Self::MIN.0..=Self::MAX.0).contains(&number) {
            Ok(Weight(number))
        } else {
            Err(WeightError(number.to_string()))
        }
    }
}

impl FromStr for Weight {
    type Err = WeightError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<u32>()
            .ok()
            .and_then(|number| Weight::try_from(number).ok())
            .ok_or_else(|| WeightError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_that_of_cgroup_cpu_weight() {
        assert_eq!("1".parse(), Ok(Weight::MIN));
        assert_eq!("10000".parse(), Ok(Weight::MAX));
        for bad in ["0", "10001", "-1", "1.5", "", "many", "4294967296"] {
            assert!(bad.parse::<Weight>().is_err(), "{bad:?} was accepted");
        }
        assert!(serde_json::from_str::<Weight>("0").is_err());
    }
}
