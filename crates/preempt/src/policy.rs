//! When does a worker leave a long task for more urgent ones? (Sections 2.1, 5
//! and 6.1)
//!
//! All policies are the same pool, whose workers empty the higher queues first
//! whenever a task ends. They differ in what else makes a worker look:
//!
//! | policy | a running task is left | by whom |
//! | --- | --- | --- |
//! | `wait` | at its end | |
//! | `cooperative` | after every so many records | [`poll_record`](crate::poll_record) in the engine |
//! | `handcrafted` | where the engine's author thought it right | [`handcrafted_yield_point`](crate::handcrafted_yield_point) |
//! | `preempt`, `uintr` | at almost any instruction | the scheduling thread, by signal or user interrupt |
//! | `hybrid` | at the next poll point, or at almost any instruction a little later | the scheduling thread |
//! | `poll` | at the next poll point | the scheduling thread, by a store |
//!
//! The last four are one policy, [`Policy::Preempt`], with different ways of
//! delivery. The first three never interrupt, so they cost the scheduling thread
//! nothing.

use std::fmt;
use std::num::{NonZeroU32, ParseIntError};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::delivery::Delivery;

/// When a worker leaves a task for more urgent ones.
///
/// In text: `wait`, `cooperative:10000`, `handcrafted:1000`, or a
/// [`Delivery`]'s name. `preempt` is another word for `signal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Policy {
    /// Never: first in, first out at task boundaries.
    Wait,
    /// After every so many records read.
    Cooperative {
        /// The yield interval.
        every: NonZeroU32,
    },
    /// At every so many'th of the yield points that the engine's author placed.
    Handcrafted {
        /// The yield interval.
        every: NonZeroU32,
    },
    /// When the scheduling thread says so.
    Preempt {
        /// How it says so.
        delivery: Delivery,
    },
}

impl Policy {
    /// The yield interval of the paper's Cooperative: 10000 records.
    pub const RECORDS: NonZeroU32 = NonZeroU32::new(10_000).unwrap();
    /// The yield interval of the paper's handcrafted variant: 1000 nested
    /// blocks of Q2.
    pub const BLOCKS: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

    /// [`Policy::Cooperative`] with the paper's interval.
    pub const COOPERATIVE: Policy = Policy::Cooperative {
        every: Policy::RECORDS,
    };
    /// [`Policy::Handcrafted`] with the paper's interval.
    pub const HANDCRAFTED: Policy = Policy::Handcrafted {
        every: Policy::BLOCKS,
    };

    /// What this machine does best.
    pub const fn best() -> Policy {
        Policy::Preempt {
            delivery: Delivery::best(),
        }
    }

    /// The paper's preemption, by signals.
    pub const PREEMPT: Policy = Policy::Preempt {
        delivery: Delivery::Signal,
    };

    /// How the scheduling thread interrupts, if it does.
    pub const fn delivery(self) -> Option<Delivery> {
        match self {
            Policy::Preempt { delivery } => Some(delivery),
            _ => None,
        }
    }

    /// How many records, and how many handcrafted yield points, a context passes
    /// before it looks at the higher queues; `None` if it does not by itself.
    pub(crate) const fn intervals(self) -> (Option<NonZeroU32>, Option<NonZeroU32>) {
        match self {
            Policy::Cooperative { every } => (Some(every), None),
            Policy::Handcrafted { every } => (None, Some(every)),
            Policy::Wait | Policy::Preempt { .. } => (None, None),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Wait => f.pad("wait"),
            Policy::Cooperative { every } => f.pad(&format!("cooperative:{every}")),
            Policy::Handcrafted { every } => f.pad(&format!("handcrafted:{every}")),
            Policy::Preempt { delivery } => f.pad(&delivery.to_string()),
        }
    }
}

/// The text was no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePolicyError {
    /// There is no policy of that name.
    #[error(
        "unknown policy '{0}': write wait, cooperative[:RECORDS], handcrafted[:POINTS], preempt, \
         hybrid[:GRACE], signal, poll or uintr"
    )]
    Unknown(String),
    /// The interval is no number above zero.
    #[error("yield interval '{0}' is not a whole number above 0: {1}")]
    Interval(String, ParseIntError),
}

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Policy, ParsePolicyError> {
        let (name, every) = match text.split_once(':') {
            Some((name, every)) => (name, Some(every)),
            None => (text, None),
        };
        let interval = |default| match every {
            None => Ok(default),
            Some(every) => every
                .parse()
                .map_err(|error| ParsePolicyError::Interval(every.to_owned(), error)),
        };
        match name {
            "wait" if every.is_none() => Ok(Policy::Wait),
            "cooperative" => Ok(Policy::Cooperative {
                every: interval(Policy::RECORDS)?,
            }),
            "handcrafted" => Ok(Policy::Handcrafted {
                every: interval(Policy::BLOCKS)?,
            }),
            "preempt" if every.is_none() => Ok(Policy::PREEMPT),
            _ => match text.parse() {
                Ok(delivery) => Ok(Policy::Preempt { delivery }),
                Err(_) => Err(ParsePolicyError::Unknown(text.to_owned())),
            },
        }
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> String {
        policy.to_string()
    }
}

impl TryFrom<String> for Policy {
    type Error = ParsePolicyError;

    fn try_from(text: String) -> Result<Policy, ParsePolicyError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_round_trip_through_text_and_json() {
        let policies = [
            Policy::Wait,
            Policy::COOPERATIVE,
            Policy::Handcrafted {
                every: NonZeroU32::MIN,
            },
            Policy::Preempt {
                delivery: Delivery::Signal,
            },
            Policy::Preempt {
                delivery: Delivery::Poll,
            },
            Policy::best(),
        ];
        for policy in policies {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            let json = serde_json::to_string(&policy).unwrap();
            assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), policy);
        }
        assert_eq!("cooperative".parse(), Ok(Policy::COOPERATIVE));
        assert_eq!("preempt".parse(), Ok(Policy::PREEMPT));
    }

    #[test]
    fn a_text_that_is_no_policy_is_refused_with_the_remedy() {
        for bad in ["", "fifo", "wait:3", "preempt:1"] {
            let error = bad.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains("write wait, cooperative"), "{error}");
        }
        for bad in ["cooperative:0", "cooperative:", "handcrafted:-1"] {
            let error = bad.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains("above 0"), "{error}");
        }
    }
}
