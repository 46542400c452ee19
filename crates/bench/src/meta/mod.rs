//! What a metascheduler costs and brings (Doney, "Improving Performance with
//! Metaschedulers", sections 2.3 and 3.3).
//!
//! | part | question |
//! | --- | --- |
//! | switch | What do start, stop and a complete switch take, of schedulers that load when they are started and of those that are loaded ahead? |
//! | phases | Two applications take turns at being the one that matters. Does following them beat every single scheduler, and the paper's four policies? |
//! | swaps | Under load, with processes killed, stopped and refused: are there errors, and is the machine ever without a scheduler? |
//!
//! The metascheduler is the daemon of `giveway meta run`, on a thread of its own
//! (`pilot`); the applications are threads of this process in cgroups
//! (`load`).

mod groups;
mod load;
mod phases;
mod pilot;
mod row;
mod swaps;
mod switch;

use serde::{Deserialize, Serialize};

pub use phases::Under;
pub use row::{MetaRow, PhaseRow, SwapsRow, SwitchRow, Way};

use crate::{Environment, Error, Progress, Report, Result};

/// The experiment's name.
pub const NAME: &str = "meta";

/// What is asked; see the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// What a switch takes.
    Switch,
    /// What following phases brings.
    Phases,
    /// Whether swapping is safe.
    Swaps,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 3] = [Part::Switch, Part::Phases, Part::Swaps];

    /// The name on the command line and in result files.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Switch => "switch",
            Part::Phases => "phases",
            Part::Swaps => "swaps",
        }
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Part {
    type Err = Error;

    fn from_str(text: &str) -> Result<Part> {
        let known = Part::ALL.into_iter().find(|part| part.name() == text);
        known.ok_or_else(|| {
            let names = Part::ALL.map(Part::name).join(", ");
            Error::Config(format!("unknown part '{text}': write one of {names}"))
        })
    }
}

/// One part of the experiment, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetaPlan {
    /// Which.
    pub part: Part,
    /// Schedulers other than EEVDF and UFS that take part, by the names that
    /// `giveway meta schedulers` knows.
    pub schedulers: Vec<String>,
    /// How often each switch is made; how many starts `swaps` goes on for.
    pub count: u32,
    /// Length of a phase, in seconds.
    pub phase_s: f64,
    /// Pairs of phases in a run.
    pub cycles: u32,
    /// Base timeslices of the fixed policies, in milliseconds.
    pub base_timeslices_ms: Vec<f64>,
    /// What the phase-aware policy takes a swap for, in milliseconds.
    pub swap_ms: f64,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of the clients' pauses.
    pub seed: u64,
}

impl MetaPlan {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// [`Error::Config`], with what to write.
    pub fn validate(&self) -> Result<()> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let all_positive = self.base_timeslices_ms.iter().all(|ms| positive(*ms));
        if !positive(self.phase_s) || !positive(self.swap_ms) || !all_positive {
            return Err(Error::Config("write lengths above 0".into()));
        }
        if self.count == 0 || self.cycles == 0 {
            return Err(Error::Config("write counts above 0".into()));
        }
        Ok(())
    }

    /// Runs it on this machine, as root. UFS and the other schedulers' programs
    /// are beside this one or in PATH.
    ///
    /// # Errors
    /// [`Error::Meta`] if the metascheduler cannot do its work, those of making
    /// cgroups, and those of [`MetaPlan::validate`].
    pub fn run(&self, clock: &str, commit: &str, line: Progress<'_>) -> Result<Report<MetaRow>> {
        self.validate()?;
        let mut report = Report::new(NAME, Environment::without_server(clock, commit));
        report.rows = match self.part {
            Part::Switch => switch::run(self, line)?,
            Part::Phases => phases::run(self, line)?,
            Part::Swaps => swaps::run(self, line)?,
        };
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_known_by_its_name() {
        for part in Part::ALL {
            assert_eq!(part.name().parse::<Part>().unwrap(), part);
        }
        let error = "all".parse::<Part>().unwrap_err().to_string();
        assert!(error.contains("switch, phases, swaps"), "{error}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let plan = MetaPlan {
            part: Part::Switch,
            schedulers: Vec::new(),
            count: 1,
            phase_s: 1.0,
            cycles: 1,
            base_timeslices_ms: vec![100.0],
            swap_ms: 50.0,
            repeat: 0,
            seed: 1,
        };
        assert!(plan.validate().is_ok());
        for wrong in [
            MetaPlan {
                count: 0,
                ..plan.clone()
            },
            MetaPlan {
                cycles: 0,
                ..plan.clone()
            },
            MetaPlan {
                phase_s: f64::NAN,
                ..plan.clone()
            },
            MetaPlan {
                base_timeslices_ms: vec![0.0],
                ..plan.clone()
            },
        ] {
            assert!(wrong.validate().is_err(), "{wrong:?}");
        }
    }
}
