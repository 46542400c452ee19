//! By what a tuner orders the groups of a tier: one of two rules with its parameters, as a
//! word that workers read with every decision.
//!
//! ```text
//!    63   62..32    31..0
//!   ┌───┬─────────┬─────────┐      0: Decay,     λ,     d_start
//!   │   │ f32     │ u32     │      1: Attained,  floor, start
//!   └───┴─────────┴─────────┘      λ and floor have no sign, so its bit is free
//! ```

use std::fmt;

use serde::Serialize;

use crate::attained::Attained;
use crate::decay::Decay;

/// By what the groups of a tier are ordered, of what can be tuned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Stride scheduling with decaying priorities (Section 3.2).
    Decay(Decay),
    /// Least attained service with a floor.
    Attained(Attained),
}

/// The bit of a word that says which.
const ATTAINED: u64 = 1 << 63;

impl Order {
    /// In a word, so that rule and parameters change together.
    pub(crate) fn pack(self) -> u64 {
        let (tag, real, quanta) = match self {
            Order::Decay(decay) => (0, decay.lambda(), decay.d_start()),
            Order::Attained(attained) => (ATTAINED, attained.floor(), attained.start()),
        };
        // `abs`, since -0.0 lies between 0 and 1 too.
        tag | u64::from(real.abs().to_bits()) << 32 | u64::from(quanta)
    }

    pub(crate) fn unpack(word: u64) -> Order {
        let real = f32::from_bits(((word & !ATTAINED) >> 32) as u32);
        let quanta = word as u32;
        let order = match word & ATTAINED {
            0 => Decay::new(real, quanta).map(Order::Decay).ok(),
            _ => Attained::new(quanta, real).map(Order::Attained).ok(),
        };
        order.expect("words are made by `pack`")
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Decay(decay) => write!(f, "decay:{},{}", decay.lambda(), decay.d_start()),
            Order::Attained(attained) => write!(f, "las:{},{}", attained.start(), attained.floor()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_word_holds_all(lambda in 0.0f32..=1.0, floor in 0.0f32..=0.5, quanta: u32) {
            let decay = Order::Decay(Decay::new(lambda, quanta).unwrap());
            let attained = Order::Attained(Attained::new(quanta, floor).unwrap());
            for order in [decay, attained] {
                prop_assert_eq!(Order::unpack(order.pack()), order);
            }
        }
    }

    #[test]
    fn a_negative_zero_is_no_rule() {
        let order = Order::Decay(Decay::new(-0.0, 7).unwrap());
        assert_eq!(Order::unpack(order.pack()), order);
    }
}
