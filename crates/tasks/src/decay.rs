//! How a group's priority falls with what it has received: Equation 2
//! (Section 3.2).
//!
//! ```text
//!  p0 ─────────┐                  p(i) = p0                          i ≤ d_start
//!              ·╲                 p(i) = max(p_min, λ^(i - d_start) p0)    beyond
//!              · ╲__
//!  p_min ······ ····╲────────     i: whole quanta received from this worker
//!              d_start
//! ```
//!
//! The paper states a recurrence; this is its closed form. Both are the same for
//! fixed parameters, because a priority that has reached `p_min` stays there. When the
//! tuner changes parameters, the closed form gives every group the priority it would
//! have had under the new ones from the beginning, so a group's share does not depend
//! on when the parameters were tuned.
//!
//! A weight scales `p0` and `p_min` alike (custom priorities, second way); a
//! group with a static priority never decays (the first way).

use serde::Serialize;

/// The priority of a group that has just come, at the default weight (Section 4).
pub(crate) const P0: f64 = 10_000.0;
/// What no priority falls below, at the default weight (Section 4).
pub(crate) const P_MIN: f64 = 100.0;

/// The parameters of Equation 2 that are tuned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Decay {
    lambda: f32,
    d_start: u32,
}

/// The parameter makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("lambda {0} is not between 0 and 1")]
pub struct DecayError(f32);

impl Decay {
    /// What is used before anything has been tuned: the paper's first λ, and no
    /// decay during the first 10 quanta (20 ms of the default 2 ms).
    pub const INITIAL: Decay = Decay {
        lambda: 0.9,
        d_start: 10,
    };

    /// Priorities fall by the factor `lambda` per quantum, from the quantum
    /// `d_start` on.
    ///
    /// # Errors
    /// `lambda` must lie between 0 and 1.
    pub fn new(lambda: f32, d_start: u32) -> Result<Decay, DecayError> {
        if !(0.0..=1.0).contains(&lambda) {
            return Err(DecayError(lambda));
        }
        Ok(Decay { lambda, d_start })
    }

    /// λ: by what a quantum multiplies a priority.
    pub fn lambda(self) -> f32 {
        self.lambda
    }

    /// How many quanta a group receives before its priority falls.
    pub fn d_start(self) -> u32 {
        self.d_start
    }

    /// By what p0 is multiplied after so many quanta, at least p_min / p0.
    pub(crate) fn factor(self, quanta: u64) -> f64 {
        let decayed = quanta.saturating_sub(u64::from(self.d_start));
        let exponent = i32::try_from(decayed).unwrap_or(i32::MAX);
        f64::from(self.lambda).powi(exponent).max(P_MIN / P0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The closed form is Equation 2, step by step.
        #[test]
        fn the_closed_form_is_the_recurrence(
            lambda in 0.0f32..=1.0, d_start in 0u32..50, steps in 0u64..200,
        ) {
            let decay = Decay::new(lambda, d_start).unwrap();
            let mut p = P0;
            for i in 0..steps {
                if i >= u64::from(d_start) {
                    p = (f64::from(lambda) * p).max(P_MIN);
                }
            }
            let closed = P0 * decay.factor(steps);
            prop_assert!((closed - p).abs() <= 1e-9 * P0, "{closed} {p}");
        }
    }

    #[test]
    fn lambda_has_bounds() {
        for lambda in [-0.1, 1.1, f32::NAN] {
            assert!(Decay::new(lambda, 0).is_err());
        }
    }
}
