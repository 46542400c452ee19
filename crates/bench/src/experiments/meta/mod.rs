//! What a metascheduler costs and brings (Doney, "Improving Performance with
//! Metaschedulers", sections 2.3 and 3.3).
//!
//! | part | question |
//! | --- | --- |
//! | switch | What do start, stop and a complete switch take, of schedulers that load when they are started and of those that are loaded ahead? |
//! | phases | Two applications take turns at being the one that matters. Does following them beat every single scheduler, and the paper's four policies? |
//! | held-out | The same with nginx and a compile job, which no policy has learnt from |
//! | swaps | Under load, with processes killed, stopped and refused: are there errors, and is the machine ever without a scheduler? |
//! | applications | The paper's web application under each scheduler, its parts alone and together, and while schedulers take turns: who is best, and by how much? |
//!
//! The metascheduler is the daemon of `giveway meta run`, on a thread of its own
//! (`driver`); the applications are threads of this process in cgroups
//! (`load`), or programs in the same (`programs`). The last part is the metascheduler's own measuring and tuning, of
//! programs ([`applications`]).

pub(crate) mod applications;
pub(crate) mod cli;
mod driver;
mod groups;
mod guests;
mod load;
mod phases;
mod process;
mod programs;
pub(crate) mod report;
mod row;
mod swaps;
mod switch;

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use giveway_metasched::kernel::rise;
use serde::{Deserialize, Serialize};

pub(crate) use row::{ApplicationRow, MetaRow, PhaseRow, Stage, SwapsRow, SwitchRow, Under, Way};

use crate::harness::Progress;
use crate::harness::environment::Environment;
use crate::harness::error::{Error, Result};
use crate::report::Report;

/// The experiment's name.
pub(crate) const NAME: &str = "meta";

/// What is asked; see the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Part {
    /// What a switch takes.
    Switch,
    /// What following phases brings.
    Phases,
    /// What it brings to programs that it has not learnt from.
    HeldOut,
    /// Whether swapping is safe.
    Swaps,
    /// The paper's application.
    Applications,
}

impl Part {
    /// All of them.
    pub(crate) const ALL: [Part; 5] = [
        Part::Switch,
        Part::Phases,
        Part::HeldOut,
        Part::Swaps,
        Part::Applications,
    ];

    /// The name on the command line and in result files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Part::Switch => "switch",
            Part::Phases => "phases",
            Part::HeldOut => "held-out",
            Part::Swaps => "swaps",
            Part::Applications => "applications",
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
pub(crate) struct MetaPlan {
    /// Which.
    pub part: Part,
    /// Schedulers other than EEVDF and UFS that take part, by the names that
    /// `giveway meta schedulers` knows.
    pub schedulers: Vec<String>,
    /// How often each switch is made; how many starts `swaps` goes on for; how often
    /// each application is run.
    pub count: u32,
    /// Length of a phase, in seconds.
    pub phase_s: f64,
    /// Pairs of phases in a run.
    pub cycles: u32,
    /// Length of a run of an application, in seconds.
    pub run_s: u32,
    /// Where the application is that [`applications::prepare`] made.
    pub prepared: PathBuf,
    /// Base timeslices of the fixed policies, in milliseconds.
    pub base_timeslices_ms: Vec<f64>,
    /// What the phase-aware policy takes a swap for, in milliseconds; as measured
    /// in training, if absent.
    pub swap_ms: Option<f64>,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of the clients' pauses; training has one that follows from it.
    pub seed: u64,
}

impl MetaPlan {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// [`Error::Config`], with what to write.
    pub(crate) fn validate(&self) -> Result<()> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let all_positive = self.base_timeslices_ms.iter().all(|ms| positive(*ms));
        if !positive(self.phase_s) || !self.swap_ms.is_none_or(positive) || !all_positive {
            return Err(Error::Config("write lengths above 0".into()));
        }
        if self.count == 0 || self.cycles == 0 || self.run_s == 0 {
            return Err(Error::Config("write counts and seconds above 0".into()));
        }
        Ok(())
    }

    /// Runs it on this machine, as root. UFS and the other schedulers' programs
    /// are beside this one or in PATH.
    ///
    /// # Errors
    /// [`Error::Meta`] if the metascheduler cannot do its work, those of making
    /// cgroups, and those of [`MetaPlan::validate`].
    pub(crate) fn run(&self, clock: &str, line: Progress<'_>) -> Result<Report<MetaRow>> {
        self.validate()?;
        let mut report = Report::new(NAME, Environment::probe(clock));
        report.rows = match self.part {
            Part::Switch => switch::run(self, line)?,
            Part::Phases | Part::HeldOut => phases::run(self, line)?,
            Part::Swaps => swaps::run(self, line)?,
            Part::Applications => applications::run(self, line)?,
        };
        Ok(report)
    }
}

/// Does something on a thread of its own, above the ordinary class as the daemon is:
/// the kernel ends schedulers with the thread that started them.
fn raised<T: Send>(line: Progress<'_>, work: impl FnOnce(Progress<'_>) -> T + Send) -> T {
    let (say, said) = mpsc::channel::<String>();
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            rise();
            // Whoever hears it stays until it has all been said.
            work(&mut |text| say.send(text.to_owned()).unwrap_or_default())
        });
        said.iter().for_each(|text| line(&text));
        thread.join().expect("it does not panic")
    })
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
        assert!(
            error.contains("switch, phases, held-out, swaps, appl"),
            "{error}"
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let plan = MetaPlan {
            part: Part::Switch,
            schedulers: Vec::new(),
            count: 1,
            phase_s: 1.0,
            cycles: 1,
            run_s: 1,
            prepared: PathBuf::new(),
            base_timeslices_ms: vec![100.0],
            swap_ms: Some(50.0),
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
                run_s: 0,
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

    #[test]
    fn what_a_thread_of_its_own_says_is_heard_in_its_order() {
        let mut heard = Vec::new();
        let answer = raised(&mut |text| heard.push(text.to_owned()), |line| {
            line("one");
            line("two");
            thread::current().id()
        });
        assert_ne!(answer, thread::current().id());
        assert_eq!(heard, ["one", "two"]);
    }
}
