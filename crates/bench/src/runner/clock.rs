//! The lab's clock, as an option of every experiment that boots guests.

use clap::Args;
use giveway_command::Failure;
use giveway_lab::{Clock, Costs};

use crate::harness::environment::KVM;

/// What of the lab's clock one may choose; rows record it.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ClockArgs {
    /// Lab: how far CPUs may be apart, in ns [default: 10000]
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    quantum: Option<u32>,
    /// Lab: CPUs may see each other's stores up to a quantum early; faster with many
    #[arg(long)]
    loose: bool,
    /// Lab: price instructions by a cost model, as sapphire-rapids-vm, or by that in a file
    /// [default: all the same]
    #[arg(long, value_name = "MODEL", value_parser = Costs::find)]
    costs: Option<Costs>,
    /// Lab: in real time on this machine's CPUs, by KVM, one guest at a time
    #[arg(long, conflicts_with_all = ["quantum", "loose", "costs"])]
    kvm: bool,
}

impl ClockArgs {
    /// Whether guests run on the host's CPUs, in real time.
    pub(crate) fn is_kvm(self) -> bool {
        self.kvm
    }

    /// The clock's name in results.
    pub(crate) fn name(self, clock: Clock) -> &'static str {
        if self.kvm { KVM } else { clock.name() }
    }

    /// The clock with what was chosen.
    pub(crate) fn of(self, clock: Clock) -> Clock {
        if self.kvm {
            return Clock::Real;
        }
        let clock = self
            .quantum
            .map_or(clock, |quantum| clock.with_quantum(quantum));
        let clock = self.costs.map_or(clock, |costs| clock.with_costs(costs));
        if self.loose { clock.loose() } else { clock }
    }

    /// Refuses a choice where nothing runs in the lab.
    ///
    /// # Errors
    /// A clock was chosen.
    pub(crate) fn refuse_natively(self) -> Result<(), Failure> {
        if self.quantum.is_none() && !self.loose && self.costs.is_none() && !self.kvm {
            return Ok(());
        }
        Err(Failure::usage(
            "--quantum, --loose, --costs and --kvm are of the lab's guests, and this machine \
             measures itself",
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
            ..ClockArgs::default()
        };
        let chosen = quantum.of(Clock::LOCKSTEP);
        assert!(chosen.quantum_ns() == 1_000 && chosen.is_causal());
        let loose = ClockArgs {
            loose: true,
            ..ClockArgs::default()
        };
        assert_eq!(loose.of(Clock::LOCKSTEP), Clock::LOOSE);
        let model = Costs::find("sapphire-rapids-vm").unwrap();
        let costs = ClockArgs {
            costs: Some(model),
            ..ClockArgs::default()
        };
        assert_eq!(costs.of(Clock::LOCKSTEP).costs(), Some(model));
        assert_eq!(loose.of(costs.of(Clock::LOCKSTEP)).costs(), Some(model));
        let kvm = ClockArgs {
            kvm: true,
            ..ClockArgs::default()
        };
        assert_eq!(kvm.of(Clock::LOCKSTEP), Clock::Real);
        assert_eq!(kvm.name(Clock::LOCKSTEP), "kvm");
        assert_eq!(loose.name(Clock::LOCKSTEP), "lockstep");
        for chosen in [quantum, loose, costs, kvm] {
            assert_eq!(chosen.of(Clock::Real), Clock::Real);
            assert!(chosen.refuse_natively().is_err());
        }
        let usual = ClockArgs::default();
        assert_eq!(usual.of(Clock::LOCKSTEP), Clock::LOCKSTEP);
        assert!(usual.refuse_natively().is_ok());
    }
}
