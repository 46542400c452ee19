//! The two tiers of work: time-sensitive, which a user waits for, and background.
//! Source: UFS (paper 000), Section 4.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Weight;

/// The two tiers of work. The order is that of urgency, and the numbers are
/// ABI: they are `enum giveway_tier` of `giveway/tier.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum Tier {
    /// The work runs only on CPU time that time-sensitive work leaves.
    Background = 0,
    /// The work runs before any background work.
    TimeSensitive = 1,
}

impl Tier {
    /// Both tiers, the most urgent first.
    pub const ALL: [Tier; 2] = [Tier::TimeSensitive, Tier::Background];
    /// The tier of work that says nothing of itself, and of a cgroup that no label
    /// covers. `GIVEWAY_TIER_DEFAULT` of `giveway/tier.h` is the same.
    pub const DEFAULT: Tier = Tier::TimeSensitive;

    /// The tier's name, as it is written in options, settings and cgroup names.
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Background => "background",
            Tier::TimeSensitive => "time_sensitive",
        }
    }

    /// The `cpu.weight` of a cgroup that holds all work of the tier, beside one for the
    /// other tier. It is for machines without UFS: Linux's own scheduler then gives
    /// background work 1 part of 10001 when both tiers are busy, the least it can.
    pub const fn cgroup_weight(self) -> Weight {
        match self {
            Tier::Background => Weight::MIN,
            Tier::TimeSensitive => Weight::MAX,
        }
    }
}

impl Default for Tier {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text was no tier's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown tier '{0}': write time_sensitive or background")]
pub struct ParseTierError(String);

impl FromStr for Tier {
    type Err = ParseTierError;

    /// Accepts `time_sensitive` (also with a hyphen) and `background`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "time_sensitive" | "time-sensitive" => Ok(Tier::TimeSensitive),
            "background" => Ok(Tier::Background),
            other => Err(ParseTierError(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_through_text_and_json() {
        for tier in Tier::ALL {
            assert_eq!(tier.to_string().parse(), Ok(tier));
            let json = serde_json::to_string(&tier).unwrap();
            assert_eq!(json, format!("\"{tier}\""));
            assert_eq!(serde_json::from_str::<Tier>(&json).unwrap(), tier);
        }
    }

    #[test]
    fn an_unknown_tier_is_refused_with_the_remedy() {
        let error = "urgent".parse::<Tier>().unwrap_err().to_string();
        assert!(error.contains("urgent") && error.contains("time_sensitive"));
    }
}
