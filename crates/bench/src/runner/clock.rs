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
}

impl ClockArgs {
    /// The clock with what was chosen.
    pub(crate) fn of(self, clock: Clock) -> Clock {
        self.quantum
            .map_or(clock, |quantum| clock.with_quantum(quantum))
    }

    /// Refuses a choice where nothing runs in the lab.
    ///
    /// # Errors
    /// A quantum was chosen.
    pub(crate) fn refuse_natively(self) -> Result<(), Failure> {
        match self.quantum {
            None => Ok(()),
            Some(_) => Err(Failure::usage(
                "--quantum describes the lab's clock, and this machine measures itself",
            )
            .with_remedy("leave it out, or measure in the lab")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantum_is_the_lab_s_alone() {
        let chosen = ClockArgs {
            quantum: Some(1_000),
        };
        assert_eq!(chosen.of(Clock::LOCKSTEP).quantum_ns(), 1_000);
        assert_eq!(chosen.of(Clock::Real), Clock::Real);
        assert!(chosen.refuse_natively().is_err());
        let usual = ClockArgs::default();
        assert_eq!(usual.of(Clock::LOCKSTEP), Clock::LOCKSTEP);
        assert!(usual.refuse_natively().is_ok());
    }
}
