//! The virtual machine, as configuration: every field has a default, and a
//! machine that cannot be built is refused before anything starts.

use std::time::Duration;

use crate::costs::Costs;
use crate::error::{LabError, Result};

/// What a guest's time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The host's: KVM where a probe boot succeeds, else emulation on as many
    /// host threads as there are guest CPUs. For functional tests; durations
    /// measured in it mean nothing.
    Real,
    /// Virtual: every CPU executes one instruction per `1 << shift` ns, whatever the
    /// other CPUs and the host do. For measurements; see `docs/design/clock.md`.
    Lockstep {
        /// How far CPUs may be apart, in ns of virtual time.
        quantum_ns: u32,
        /// log2 of the ns one instruction takes: 2 is 250 MIPS.
        shift: u8,
        /// Whether a CPU never sees what another does before its time. Without it,
        /// up to a quantum before; that is faster with many CPUs.
        causal: bool,
        /// What instructions cost beyond their number; `shift` then follows from it.
        costs: Option<Costs>,
    },
}

impl Clock {
    /// The lockstep clock as measurements use it: 10 µs, 250 MIPS, causal.
    pub const LOCKSTEP: Clock = Clock::Lockstep {
        quantum_ns: 10_000,
        shift: 2,
        causal: true,
        costs: None,
    };

    /// The same without causality, for where no time of less than some quanta matters.
    pub const LOOSE: Clock = Clock::LOCKSTEP.loose();

    /// The same without causality; `Real` has none.
    #[must_use]
    pub const fn loose(self) -> Clock {
        match self {
            Clock::Real => Clock::Real,
            Clock::Lockstep {
                quantum_ns,
                shift,
                costs,
                ..
            } => Clock::Lockstep {
                quantum_ns,
                shift,
                causal: false,
                costs,
            },
        }
    }

    /// Whether a CPU never sees what another does before its time.
    pub const fn is_causal(self) -> bool {
        matches!(self, Clock::Lockstep { causal: true, .. })
    }

    /// The same with another quantum; `Real` has none.
    pub const fn with_quantum(self, quantum_ns: u32) -> Clock {
        match self {
            Clock::Real => Clock::Real,
            Clock::Lockstep {
                shift,
                causal,
                costs,
                ..
            } => Clock::Lockstep {
                quantum_ns,
                shift,
                causal,
                costs,
            },
        }
    }

    /// The same with a cost model; `Real` has none.
    #[must_use]
    pub const fn with_costs(self, costs: Costs) -> Clock {
        match self {
            Clock::Real => Clock::Real,
            Clock::Lockstep {
                quantum_ns,
                shift,
                causal,
                ..
            } => Clock::Lockstep {
                quantum_ns,
                shift,
                causal,
                costs: Some(costs),
            },
        }
    }

    /// What instructions cost beyond their number, if anything.
    pub const fn costs(self) -> Option<Costs> {
        match self {
            Clock::Real => None,
            Clock::Lockstep { costs, .. } => costs,
        }
    }

    /// How far CPUs may be apart, in ns; 0 in `Real`.
    pub const fn quantum_ns(self) -> u32 {
        match self {
            Clock::Real => 0,
            Clock::Lockstep { quantum_ns, .. } => quantum_ns,
        }
    }

    /// The clock's name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Clock::Real => "real",
            Clock::Lockstep { .. } => "lockstep",
        }
    }
}

/// A virtual machine to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Virtual CPUs, 1 to [`Machine::CPUS_MAX`].
    pub cpus: u32,
    /// Sockets the CPUs are spread over; divides `cpus`.
    pub sockets: u32,
    /// Hardware threads of a core; `sockets * threads` divides `cpus`.
    pub threads: u32,
    /// NUMA nodes; divides `cpus` and `memory_mib`.
    pub numa_nodes: u32,
    /// Memory in MiB, beside the image.
    pub memory_mib: u32,
    /// What time is in the guest.
    pub clock: Clock,
    /// Seed of all randomness the guest can see.
    pub seed: u64,
    /// Limit on the whole run, in host time.
    pub timeout: Duration,
    /// Whether its CPUs have user interrupts (Intel's UINTR), and XSAVEC for their
    /// handlers. Only the emulator has them: with [`Clock::Real`] KVM is then not used.
    pub user_interrupts: bool,
    /// Added to the kernel's command line.
    pub kernel_args: Vec<String>,
}

impl Default for Machine {
    fn default() -> Self {
        Machine {
            cpus: 4,
            sockets: 1,
            threads: 1,
            numa_nodes: 1,
            memory_mib: 3072,
            clock: Clock::LOCKSTEP,
            seed: 1,
            timeout: Duration::from_secs(600),
            user_interrupts: false,
            kernel_args: Vec::new(),
        }
    }
}

impl Machine {
    /// How many virtual CPUs it can have.
    pub const CPUS_MAX: u32 = 64;

    /// Refuses what cannot be built.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(LabError::Config(text));
        if !(1..=Machine::CPUS_MAX).contains(&self.cpus) {
            return refuse(format!(
                "{} virtual CPUs: choose 1 to {}",
                self.cpus,
                Machine::CPUS_MAX
            ));
        }
        if self.sockets == 0
            || self.threads == 0
            || !self.cpus.is_multiple_of(self.sockets * self.threads)
        {
            return refuse(format!(
                "{} CPUs cannot be spread evenly over {} sockets of {}-thread cores: \
                 choose a number of CPUs that sockets × threads divides",
                self.cpus, self.sockets, self.threads
            ));
        }
        if self.numa_nodes == 0
            || !self.cpus.is_multiple_of(self.numa_nodes)
            || !self.memory_mib.is_multiple_of(self.numa_nodes)
        {
            return refuse(format!(
                "{} CPUs and {} MiB cannot be spread evenly over {} NUMA nodes: \
                 choose numbers that it divides",
                self.cpus, self.memory_mib, self.numa_nodes
            ));
        }
        if self.memory_mib < 256 {
            return refuse(format!(
                "{} MiB of memory: the guest needs 256 at least",
                self.memory_mib
            ));
        }
        if let Clock::Lockstep {
            quantum_ns, shift, ..
        } = self.clock
        {
            if !(1_000..=1_000_000).contains(&quantum_ns) {
                return refuse(format!(
                    "a quantum of {quantum_ns} ns: choose 1000 to 1000000"
                ));
            }
            if shift > 10 {
                return refuse(format!(
                    "a clock shift of {shift}: choose 0 to 10 (2 is 250 MIPS)"
                ));
            }
        }
        if let Some(bad) = self
            .kernel_args
            .iter()
            .find(|arg| arg.starts_with("isolcpus"))
        {
            return refuse(format!(
                "kernel argument '{bad}': sched_ext refuses to load on a kernel with isolated CPUs; use a cpuset"
            ));
        }
        Ok(())
    }

    /// QEMU's options for CPUs, memory and NUMA nodes.
    pub(crate) fn topology_args(&self) -> Vec<String> {
        let cores = self.cpus / self.sockets / self.threads;
        let mut args = vec![
            "-smp".into(),
            format!(
                "cpus={},sockets={},cores={cores},threads={}",
                self.cpus, self.sockets, self.threads
            ),
            "-m".into(),
            format!("{}M,slots=4,maxmem=64G", self.memory_mib),
        ];
        let (cpus, mib) = (
            self.cpus / self.numa_nodes,
            self.memory_mib / self.numa_nodes,
        );
        for node in 0..self.numa_nodes {
            args.extend([
                "-object".into(),
                format!("memory-backend-ram,id=ram{node},size={mib}M"),
                "-numa".into(),
                format!(
                    "node,nodeid={node},memdev=ram{node},cpus={}-{}",
                    node * cpus,
                    (node + 1) * cpus - 1
                ),
            ]);
        }
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Machine)) -> String {
        let mut machine = Machine::default();
        change(&mut machine);
        machine.check().unwrap_err().to_string()
    }

    #[test]
    fn the_default_machine_can_be_built() {
        Machine::default().check().unwrap();
    }

    #[test]
    fn impossible_machines_are_refused_with_the_remedy() {
        assert!(refused(|m| m.cpus = 0).contains("1 to 64"));
        assert!(refused(|m| m.sockets = 3).contains("evenly"));
        assert!(refused(|m| m.numa_nodes = 3).contains("NUMA"));
        assert!(refused(|m| m.memory_mib = 64).contains("256"));
        assert!(
            refused(|m| m.clock = Clock::Lockstep {
                quantum_ns: 1,
                shift: 2,
                causal: true,
                costs: None,
            })
            .contains("quantum")
        );
        assert!(refused(|m| m.kernel_args = vec!["isolcpus=1".into()]).contains("cpuset"));
    }

    #[test]
    fn numa_nodes_share_cpus_and_memory_without_rest() {
        let machine = Machine {
            cpus: 8,
            sockets: 2,
            numa_nodes: 2,
            memory_mib: 2048,
            ..Machine::default()
        };
        let args = machine.topology_args().join(" ");
        assert!(args.contains("sockets=2,cores=4"), "{args}");
        assert!(
            args.contains("cpus=0-3") && args.contains("cpus=4-7"),
            "{args}"
        );
        assert!(args.matches("size=1024M").count() == 2, "{args}");
    }
}
