//! The order of queries: the paper's scheduler and those it is compared with, as one
//! type (Sections 2.3, 3.2, 5.2).

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::decay::Decay;

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
    /// weight (least attained service). Not from the paper: the strongest rival.
    LeastAttained,
    /// Stride scheduling with decaying priorities.
    Decay(Decay),
    /// The same with parameters that follow the workload (Section 4).
    #[default]
    Tuned,
}

impl Policy {
    /// What priorities begin to decay with; `None` if they do not.
    pub(crate) fn decay(self) -> Option<Decay> {
        match self {
            Policy::Decay(decay) => Some(decay),
            Policy::Tuned => Some(Decay::INITIAL),
            _ => None,
        }
    }

    /// The policy's name, as it is written in options.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Fifo => "fifo",
            Policy::Fair => "fair",
            Policy::Lottery { .. } => "lottery",
            Policy::Balanced => "balanced",
            Policy::LeastAttained => "las",
            Policy::Decay(_) => "decay",
            Policy::Tuned => "tuned",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Decay(decay) => write!(f, "decay:{},{}", decay.lambda(), decay.d_start()),
            Policy::Lottery { seed } => write!(f, "lottery:{seed}"),
            other => f.pad(other.name()),
        }
    }
}

/// The text was no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown policy '{0}': write fifo, fair, lottery[:SEED], balanced, las, \
     decay:LAMBDA,D_START (0.9,10; quanta) or tuned"
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
            ("las", None) => Ok(Policy::LeastAttained),
            ("tuned", None) => Ok(Policy::Tuned),
            ("decay", Some(both)) => {
                let (lambda, d_start) = both.split_once(',').ok_or_else(error)?;
                let lambda = lambda.trim().parse().map_err(|_| error())?;
                let d_start = d_start.trim().parse().map_err(|_| error())?;
                let decay = Decay::new(lambda, d_start).map_err(|_| error())?;
                Ok(Policy::Decay(decay))
            }
            _ => Err(error()),
        }
    }
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
            Policy::LeastAttained,
            Policy::Decay(decay),
            Policy::Tuned,
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
        ] {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("LAMBDA"), "{error}");
        }
    }
}
