//! The order of queries: the paper's scheduler and those it is compared with, as one
//! type (Sections 2.3, 3.2, 5.2).

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::attained::Attained;
use crate::decay::Decay;
use crate::order::Order;

/// How a worker chooses among groups of the same tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The group that came first, until it is done.
    Fifo,
    /// Stride scheduling with priorities that stay what they are.
    Fair,
    /// By lot, with as many tickets as priority.
    Lottery {
        /// Where the drawing begins; each worker draws a series of its own.
        seed: u64,
    },
    /// Workers spread evenly over groups in the order of arrival, as Umbra did
    /// it before (Section 5.2). With more groups than workers, the later ones get
    /// nothing. Weights do not count.
    Balanced,
    /// The group that has received least time from this worker, divided by its
    /// weight (least attained service), with a floor. Not from the paper.
    LeastAttained(Attained),
    /// Stride scheduling with decaying priorities.
    Decay(Decay),
    /// The same with parameters that follow the workload (Section 4): the paper's policy.
    Tuned,
    /// Least attained service or decaying priorities, whichever would have been better
    /// for the recent queries, with parameters that follow the workload.
    #[default]
    Adaptive,
}

impl Policy {
    /// The order that it begins with; `None` if it has no such parameters.
    pub(crate) fn order(self) -> Option<Order> {
        match self {
            Policy::LeastAttained(attained) => Some(Order::Attained(attained)),
            Policy::Decay(decay) => Some(Order::Decay(decay)),
            Policy::Tuned => Some(Order::Decay(Decay::INITIAL)),
            Policy::Adaptive => Some(Order::Attained(Attained::INITIAL)),
            Policy::Fifo | Policy::Fair | Policy::Lottery { .. } | Policy::Balanced => None,
        }
    }

    /// Whether its order follows the workload.
    pub(crate) fn is_tuned(self) -> bool {
        matches!(self, Policy::Tuned | Policy::Adaptive)
    }

    /// The policy's name, as it is written in options.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Fifo => "fifo",
            Policy::Fair => "fair",
            Policy::Lottery { .. } => "lottery",
            Policy::Balanced => "balanced",
            Policy::LeastAttained(_) => "las",
            Policy::Decay(_) => "decay",
            Policy::Tuned => "tuned",
            Policy::Adaptive => "adaptive",
        }
    }
}

impl From<Order> for Policy {
    /// With these parameters, whatever the workload.
    fn from(order: Order) -> Policy {
        match order {
            Order::Decay(decay) => Policy::Decay(decay),
            Order::Attained(attained) => Policy::LeastAttained(attained),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Decay(decay) => Order::Decay(*decay).fmt(f),
            Policy::LeastAttained(attained) => Order::Attained(*attained).fmt(f),
            Policy::Lottery { seed } => write!(f, "lottery:{seed}"),
            other => f.pad(other.name()),
        }
    }
}

/// The text was no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown policy '{0}': write adaptive, tuned, fifo, fair, lottery[:SEED], balanced, \
     las[:START,FLOOR] (0,0.05; quanta, part) or decay:LAMBDA,D_START (0.9,10; quanta)"
)]
pub struct ParsePolicyError(String);

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Policy, ParsePolicyError> {
        let error = || ParsePolicyError(text.to_owned());
        let (name, argument) = match text.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (text, None),
        };
        match (name, argument) {
            ("fifo", None) => Ok(Policy::Fifo),
            ("fair", None) => Ok(Policy::Fair),
            ("lottery", None) => Ok(Policy::Lottery { seed: 1 }),
            ("lottery", Some(seed)) => {
                let seed = seed.parse().map_err(|_| error())?;
                Ok(Policy::Lottery { seed })
            }
            ("balanced", None) => Ok(Policy::Balanced),
            ("las", None) => Ok(Policy::LeastAttained(Attained::INITIAL)),
            ("las", Some(both)) => {
                let (start, floor) = two(both).ok_or_else(error)?;
                let attained = Attained::new(start, floor).map_err(|_| error())?;
                Ok(Policy::LeastAttained(attained))
            }
            ("tuned", None) => Ok(Policy::Tuned),
            ("adaptive", None) => Ok(Policy::Adaptive),
            ("decay", Some(both)) => {
                let (lambda, d_start) = two(both).ok_or_else(error)?;
                let decay = Decay::new(lambda, d_start).map_err(|_| error())?;
                Ok(Policy::Decay(decay))
            }
            _ => Err(error()),
        }
    }
}

/// Two parameters.
fn two<A: FromStr, B: FromStr>(text: &str) -> Option<(A, B)> {
    let (one, other) = text.split_once(',')?;
    Some((one.trim().parse().ok()?, other.trim().parse().ok()?))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn policies_round_trip_through_text() {
        let decay = Decay::new(0.75, 40).unwrap();
        for policy in [
            Policy::Fifo,
            Policy::Fair,
            Policy::Lottery { seed: 7 },
            Policy::Balanced,
            Policy::LeastAttained(Attained::INITIAL),
            Policy::LeastAttained(Attained::new(12, 0.25).unwrap()),
            Policy::Decay(decay),
            Policy::Tuned,
            Policy::Adaptive,
        ] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
    }

    #[test]
    fn a_bad_policy_is_refused_with_the_remedy() {
        for text in [
            "rr",
            "fifo:1",
            "decay",
            "decay:2,3",
            "decay:0.5",
            "lottery:x",
            "las:3",
            "las:-1,0.1",
            "las:0,0.6",
        ] {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("LAMBDA"), "{error}");
        }
    }
}
