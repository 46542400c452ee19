//! The schedulers that are compared.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::harness::error::{Error, Result};

/// How the server's processes are scheduled: the rows of the paper's Table 2,
/// UFS, and any other sched_ext scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Scheduler {
    /// The kernel's own fair scheduler; priority is `cpu.weight` 10000 and 1.
    Eevdf,
    /// As EEVDF, and low-priority processes are SCHED_IDLE.
    Idle,
    /// As EEVDF, and the cgroup of low-priority processes has `cpu.idle` 1.
    CpuIdle,
    /// High-priority processes are SCHED_FIFO with priority 99.
    Fifo,
    /// High-priority processes are SCHED_RR with priority 99.
    Rr,
    /// As RR, without the kernel's fair server: nothing is left for the others.
    RrBare,
    /// `scx_ufs`: priority is the tier.
    Ufs,
    /// As UFS, with a floor that leaves starved background work what the kernel's fair
    /// server leaves: a twentieth of each CPU.
    UfsFloor,
    /// Another sched_ext scheduler, by its program's name (`scx_bpfland`), with
    /// the cgroups of EEVDF, and layers for them if it is scx_layered.
    Scx(String),
}

impl Scheduler {
    /// The five that the paper compares, in its order.
    pub const PAPER: [Scheduler; 5] = [
        Scheduler::Eevdf,
        Scheduler::Idle,
        Scheduler::Fifo,
        Scheduler::Rr,
        Scheduler::Ufs,
    ];

    /// The program that must run while the cell is measured.
    pub fn program(&self) -> Option<String> {
        match self {
            Scheduler::Ufs | Scheduler::UfsFloor => Some("scx_ufs".to_owned()),
            Scheduler::Scx(name) => Some(name.clone()),
            _ => None,
        }
    }

    /// The options of its program that make it what its name says.
    pub(crate) fn options(&self) -> &'static [&'static str] {
        match self {
            Scheduler::UfsFloor => &["--floor-deadline-ms", "1000", "--floor-least", "5"],
            _ => &[],
        }
    }

    /// Whether the kernel must have sched_ext.
    pub fn needs_sched_ext(&self) -> bool {
        self.program().is_some()
    }

    /// Whether it tells priorities apart by scheduling class and is EEVDF otherwise.
    pub(crate) fn is_by_class(&self) -> bool {
        use Scheduler::{Fifo, Idle, Rr, RrBare};
        matches!(self, Idle | Fifo | Rr | RrBare)
    }

    /// The name that is printed in tables and plots: a program's without `scx_`,
    /// as UFS is that of scx_ufs.
    pub fn label(&self) -> String {
        let name = self.to_string();
        name.strip_prefix("scx_").unwrap_or(&name).to_uppercase()
    }

    /// The position in tables: the paper's order, then the others.
    pub(crate) fn rank(&self) -> (usize, String) {
        let rank = Scheduler::PAPER.iter().position(|known| known == self);
        (rank.unwrap_or(Scheduler::PAPER.len()), self.to_string())
    }

    /// The scheduler whose SOLO is this one's baseline.
    pub(crate) fn baseline(&self) -> Scheduler {
        match self {
            Scheduler::Idle | Scheduler::CpuIdle => Scheduler::Eevdf,
            other => other.clone(),
        }
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Scheduler::Eevdf => "eevdf",
            Scheduler::Idle => "idle",
            Scheduler::CpuIdle => "cpu-idle",
            Scheduler::Fifo => "fifo",
            Scheduler::Rr => "rr",
            Scheduler::RrBare => "rr-bare",
            Scheduler::Ufs => "ufs",
            Scheduler::UfsFloor => "ufs-floor",
            Scheduler::Scx(name) => name,
        })
    }
}

impl FromStr for Scheduler {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        Ok(match text {
            "eevdf" => Scheduler::Eevdf,
            "idle" => Scheduler::Idle,
            "cpu-idle" => Scheduler::CpuIdle,
            "fifo" => Scheduler::Fifo,
            "rr" => Scheduler::Rr,
            "rr-bare" => Scheduler::RrBare,
            "ufs" | "scx_ufs" => Scheduler::Ufs,
            "ufs-floor" => Scheduler::UfsFloor,
            name if name.len() > 4 && name.starts_with("scx_") && name.chars().all(is_name) => {
                Scheduler::Scx(name.to_owned())
            }
            other => {
                return Err(Error::Config(format!(
                    "unknown scheduler '{other}': write eevdf, idle, cpu-idle, fifo, rr, \
                     rr-bare, ufs, ufs-floor or scx_NAME"
                )));
            }
        })
    }
}

impl TryFrom<String> for Scheduler {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Scheduler> for String {
    fn from(scheduler: Scheduler) -> String {
        scheduler.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_the_program_s_name_without_what_all_have() {
        let label = |name: &str| name.parse::<Scheduler>().unwrap().label();
        assert_eq!(
            ["rr", "scx_ufs", "scx_lavd"].map(label),
            ["RR", "UFS", "LAVD"]
        );
    }

    #[test]
    fn an_unknown_scheduler_is_refused_with_the_choices() {
        for bad in ["cfs", "scx_", "scx_a/b", ""] {
            let error = bad.parse::<Scheduler>().unwrap_err().to_string();
            assert!(error.contains("scx_NAME"), "{error}");
        }
    }
}
