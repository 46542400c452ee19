//! The lab's clock, as an option of every experiment that boots guests.

use clap::Args;
use giveway_command::Failure;
use giveway_lab::Clock;

/// What of the lab's clock one may choose; rows record it.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ClockArgs {
    /// Lab: how far CPUs may be apart, in ns [default: 10000]
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    quantum: Option<u32>,
    /// Lab: CPUs may see each other's stores up to a quantum early; faster with many
    #[arg(long)]
    loose: bool,
}

impl ClockArgs {
    /// The clock with what was chosen.
    pub(crate) fn of(self, clock: Clock) -> Clock {
        let clock = self
            .quantum
            .map_or(clock, |quantum| clock.with_quantum(quantum));
        if self.loose { clock.loose() } else { clock }
    }

    /// Refuses a choice where nothing runs in the lab.
    ///
    /// # Errors
    /// A clock was chosen.
    pub(crate) fn refuse_natively(self) -> Result<(), Failure> {
        if self.quantum.is_none() && !self.loose {
            return Ok(());
        }
        Err(Failure::usage(
            "--quantum and --loose describe the lab's clock, and this machine measures itself",
        )
        .with_remedy("leave them out, or measure in the lab"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_of_clock_is_the_lab_s_alone() {
        let quantum = ClockArgs {
            quantum: Some(1_000),
            loose: false,
        };
        let chosen = quantum.of(Clock::LOCKSTEP);
        assert!(chosen.quantum_ns() == 1_000 && chosen.is_causal());
        let loose = ClockArgs {
            quantum: None,
            loose: true,
        };
        assert_eq!(loose.of(Clock::LOCKSTEP), Clock::LOOSE);
        for chosen in [quantum, loose] {
            assert_eq!(chosen.of(Clock::Real), Clock::Real);
            assert!(chosen.refuse_natively().is_err());
        }
        let usual = ClockArgs::default();
        assert_eq!(usual.of(Clock::LOCKSTEP), Clock::LOCKSTEP);
        assert!(usual.refuse_natively().is_ok());
    }
}
