//! What an operator writes: `/etc/giveway/meta.toml`.
//!
//! ```toml
//! policy = "delta_weighted"      # round_robin, benefit_weighted, delta_benefit_weighted,
//!                                # or phase_aware, which follows what runs
//! goal = "throughput"            # or tail_latency
//! normalisation = "ratio"        # or gain, raw
//! base_timeslice_ms = 1800
//! swap_ms = 133                  # what a swap counts as, for phase_aware; as measured, if absent
//! measurements = "/var/lib/giveway/meta.json"
//! schedulers = ["eevdf", "scx_ufs", "scx_rusty"]    # all known, if absent
//! through = "scx_loader"         # what starts them for 'giveway meta run'; itself, if absent
//!
//! [[application]]
//! name = "frontend"
//! command = ["wrk", "--latency", "-t10", "-c20", "-d30s", "http://localhost:8000/ask"]
//! output = "wrk"                 # or json
//! cgroup = "/system.slice/web.service"    # where it runs, for phase_aware
//!
//! [together]                     # one benchmark that drives all of them, if there is
//! name = "shop"                  # one; otherwise theirs run side by side
//! command = ["wrk", "--latency", "-s", "ask.lua", "http://localhost:8000/ask"]
//! output = "wrk"
//!
//! [[scheduler]]                  # one that is not known from the start
//! name = "scx_mine"
//! command = ["/opt/scx_mine", "--fast"]
//! ops = "mine"
//!
//! [[turn]]                       # a schedule by hand, instead of a policy's
//! scheduler = "scx_mine"
//! timeslice_ms = 5000
//!
//! [limits]                       # seconds; see `Limits` for what they mean
//! start_s = 30.0
//! stop_s = 5.0
//! starved_s = 5.0
//! back_off_s = 2.0
//! back_off_max_s = 600.0
//! proven_s = 60.0
//! ```
//!
//! Errors are found when it is read, never in the middle of a swap, and each says what to
//! write instead.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::application::Application;
use crate::error::{Error, Result};
use crate::measurements::Measurements;
use crate::phase::Phases;
use crate::policy::{self, Choice, Goal, Normalisation, Policy, Schedule, Turn};
use crate::scheduler::{EEVDF, Scheduler, Table};
use crate::selector::{Rotation, Selector, Watch};
use crate::supervisor::Limits;

/// A configuration that makes sense.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it was read.
    pub path: PathBuf,
    /// How the attached scheduler is selected.
    pub policy: Rule,
    /// What is to become better.
    pub goal: Goal,
    /// What a benefit is.
    pub normalisation: Normalisation,
    /// t_b of the paper.
    pub base_timeslice: Duration,
    /// What a swap counts as; none: what it took when it was measured.
    pub swap: Option<Duration>,
    /// Where measurements are.
    pub measurements: PathBuf,
    /// The schedulers that may be used, EEVDF first.
    pub schedulers: Vec<Scheduler>,
    /// What starts and ends them; none: the metascheduler itself.
    pub through: Option<Through>,
    /// The applications to be measured.
    pub applications: Vec<Application>,
    /// What drives all of them at once, if not their benchmarks side by side.
    pub together: Option<Application>,
    /// A schedule by hand.
    pub turns: Vec<Turn>,
    /// How long things may take.
    pub limits: Limits,
    /// All schedulers that are known.
    pub table: Table,
}

/// How the attached scheduler is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Rule {
    /// Slices of time by one of the paper's policies.
    Slices(Policy),
    /// What runs now, of the applications' cgroups.
    PhaseAware,
}

impl Default for Rule {
    fn default() -> Self {
        Rule::Slices(Policy::default())
    }
}

impl TryFrom<String> for Rule {
    type Error = String;

    fn try_from(word: String) -> std::result::Result<Rule, String> {
        let known = Policy::ALL.iter().find(|policy| policy.word() == word);
        match (known, word.as_str()) {
            (Some(policy), _) => Ok(Rule::Slices(*policy)),
            (None, "phase_aware") => Ok(Rule::PhaseAware),
            _ => {
                let words = Policy::ALL.map(Policy::word).join(", ");
                Err(format!(
                    "'{word}' is no policy; write {words} or phase_aware"
                ))
            }
        }
    }
}

/// What starts and ends schedulers for the metascheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Through {
    /// The sched_ext project's service, over D-Bus.
    ScxLoader,
}

/// The file's form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    policy: Rule,
    #[serde(default)]
    goal: Goal,
    #[serde(default)]
    normalisation: Normalisation,
    #[serde(default = "base_timeslice_ms")]
    base_timeslice_ms: f64,
    swap_ms: Option<f64>,
    #[serde(default = "measurements")]
    measurements: PathBuf,
    schedulers: Option<Vec<String>>,
    through: Option<Through>,
    #[serde(default, rename = "application")]
    applications: Vec<Application>,
    together: Option<Application>,
    #[serde(default, rename = "scheduler")]
    added: Vec<Scheduler>,
    #[serde(default, rename = "turn")]
    turns: Vec<HandTurn>,
    #[serde(default)]
    limits: HandLimits,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HandTurn {
    scheduler: String,
    timeslice_ms: f64,
}

/// Seconds, each; absent ones as they are.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HandLimits {
    start_s: Option<f64>,
    stop_s: Option<f64>,
    starved_s: Option<f64>,
    back_off_s: Option<f64>,
    back_off_max_s: Option<f64>,
    proven_s: Option<f64>,
}

/// The paper's best (section 3.3).
fn base_timeslice_ms() -> f64 {
    1800.0
}

fn measurements() -> PathBuf {
    "/var/lib/giveway/meta.json".into()
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be read, [`Error::Content`] if it makes no
    /// sense.
    pub fn read(path: &Path) -> Result<Config> {
        let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
        Config::parse(&text, path)
    }

    /// From this text; `path` is for errors.
    ///
    /// # Errors
    /// [`Error::Content`] if it makes no sense.
    pub fn parse(text: &str, path: &Path) -> Result<Config> {
        let file: File = toml::from_str(text).map_err(|error| Error::content(path, error))?;
        let wrong = |what: String| Error::content(path, what);
        let mut table = Table::known();
        table.extend(&file.added, path)?;
        let known = |name: &str| {
            table.get(name).cloned().ok_or_else(|| {
                wrong(format!(
                    "{name} is not known; add a [[scheduler]] of this name, or see \
                     'giveway meta schedulers'"
                ))
            })
        };
        let mut schedulers = vec![known(EEVDF)?];
        match &file.schedulers {
            Some(names) => {
                for name in names.iter().filter(|name| *name != EEVDF) {
                    schedulers.push(known(name)?);
                }
            }
            None => schedulers.extend(table.rows().iter().filter(|r| !r.is_eevdf()).cloned()),
        }
        let turns = file.turns.iter().map(|turn| {
            Ok(Turn {
                scheduler: known(&turn.scheduler)?.name,
                applications: Vec::new(),
                timeslice: length("timeslice_ms", turn.timeslice_ms / 1e3).map_err(wrong)?,
            })
        });
        let turns = turns.collect::<Result<Vec<Turn>>>()?;
        let all = file.applications.iter().chain(&file.together);
        let all: Vec<&Application> = all.collect();
        for (index, application) in all.iter().enumerate() {
            let name = &application.name;
            if application.command.is_empty() {
                return Err(wrong(format!(
                    "{name} has no command; write command = [\"…\"]"
                )));
            }
            length("timeout_s", application.timeout_s).map_err(wrong)?;
            if all[..index].iter().any(|a| a.name == *name) {
                return Err(wrong(format!("the application {name} is there twice")));
            }
        }
        let lacks_cgroup = file.applications.iter().find(|a| a.cgroup.is_none());
        if let (Rule::PhaseAware, Some(application)) = (file.policy, lacks_cgroup) {
            return Err(wrong(format!(
                "phase_aware watches cgroups; write the cgroup of {}",
                application.name
            )));
        }
        let swap = file.swap_ms.map(|ms| length("swap_ms", ms / 1e3));
        Ok(Config {
            path: path.to_owned(),
            policy: file.policy,
            goal: file.goal,
            normalisation: file.normalisation,
            base_timeslice: length("base_timeslice_ms", file.base_timeslice_ms / 1e3)
                .map_err(wrong)?,
            swap: swap.transpose().map_err(wrong)?,
            measurements: file.measurements,
            schedulers,
            through: file.through,
            applications: file.applications,
            together: file.together,
            turns,
            limits: file.limits.over(Limits::default()).map_err(wrong)?,
            table,
        })
    }

    /// What is to be followed: turns by hand, the policy's by the measurements,
    /// or phases.
    ///
    /// # Errors
    /// Those of [`Measurements::read`], [`policy::choose`] and [`Phases::new`].
    pub fn selector(&self) -> Result<Selector> {
        match self.schedule()? {
            Some((schedule, _)) => Ok(Selector::Turns(Rotation::new(schedule))),
            None => self.watch().map(Selector::Phases),
        }
    }

    /// The schedule, by hand or by the policy, and what it was made from; none
    /// where phases are followed.
    ///
    /// # Errors
    /// Those of [`Measurements::read`] and [`policy::choose`].
    pub fn schedule(&self) -> Result<Option<(Schedule, Vec<Choice>)>> {
        let turns = self.turns.clone();
        match self.policy {
            _ if !turns.is_empty() => Ok(Some((Schedule { turns }, Vec::new()))),
            Rule::PhaseAware => Ok(None),
            Rule::Slices(policy) => {
                let choices = self.choices(&Measurements::read(&self.measurements)?)?;
                let schedule = self.slices(policy, &choices, self.base_timeslice);
                Ok(Some((schedule, choices)))
            }
        }
    }

    /// Each application's preferred scheduler, of those that may be used.
    ///
    /// # Errors
    /// Those of [`policy::choose`].
    pub fn choices(&self, measured: &Measurements) -> Result<Vec<Choice>> {
        let may = |name: &str| self.schedulers.iter().any(|row| row.name == name);
        policy::choose(measured, self.goal, may)
    }

    /// The schedule that a policy gives.
    ///
    /// # Panics
    /// If there is no choice.
    pub fn slices(&self, policy: Policy, choices: &[Choice], base: Duration) -> Schedule {
        let weights = policy::weights(policy, self.goal, self.normalisation, choices);
        Schedule::of(choices, &weights, base)
    }

    fn watch(&self) -> Result<Watch> {
        let measured = Measurements::read(&self.measurements)?;
        let applications: Vec<&str> = self.applications.iter().map(|a| a.name.as_str()).collect();
        let schedulers: Vec<&str> = self.schedulers.iter().map(|s| s.name.as_str()).collect();
        let swap = self.swap.unwrap_or(measured.swap());
        let phases = Phases::new(&measured, self.goal, &applications, &schedulers, swap)?;
        let cgroups = self.applications.iter().filter_map(|a| a.cgroup.clone());
        Ok(Watch::new(phases, cgroups.collect()))
    }
}

impl HandLimits {
    fn over(&self, defaults: Limits) -> std::result::Result<Limits, String> {
        let or = |name, given: Option<f64>, default| match given {
            Some(seconds) => length(name, seconds),
            None => Ok(default),
        };
        Ok(Limits {
            start: or("start_s", self.start_s, defaults.start)?,
            stop: or("stop_s", self.stop_s, defaults.stop)?,
            starved: or("starved_s", self.starved_s, defaults.starved)?,
            back_off: or("back_off_s", self.back_off_s, defaults.back_off)?,
            back_off_max: or("back_off_max_s", self.back_off_max_s, defaults.back_off_max)?,
            proven: or("proven_s", self.proven_s, defaults.proven)?,
            ..defaults
        })
    }
}

/// The longest length of time that makes sense here: a day.
const LENGTH_MAX: Duration = Duration::from_secs(86_400);
/// The shortest: a scheduler cannot even be asked in less.
const LENGTH_MIN: Duration = Duration::from_millis(1);

fn length(name: &str, seconds: f64) -> std::result::Result<Duration, String> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|length| (LENGTH_MIN..=LENGTH_MAX).contains(length))
        .ok_or_else(|| format!("{name} makes no sense; write a length from 1 ms to one day"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurements::{Company, MachineNote, Reading};

    fn parse(text: &str) -> Result<Config> {
        Config::parse(text, Path::new("meta.toml"))
    }

    #[test]
    fn an_empty_file_is_a_configuration() {
        let config = parse("").unwrap();
        assert_eq!(config.policy, Rule::Slices(Policy::DeltaWeighted));
        assert_eq!(config.base_timeslice, Duration::from_millis(1800));
        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.schedulers[0].name, EEVDF);
        assert_eq!(config.schedulers.len(), config.table.rows().len());
    }

    #[test]
    fn everything_can_be_said() {
        let config = parse(
            "policy = 'delta_benefit_weighted'\ngoal = 'tail_latency'\n\
             normalisation = 'gain'\nbase_timeslice_ms = 250\nmeasurements = '/m'\n\
             schedulers = ['mine']\nthrough = 'scx_loader'\n\
             [[application]]\nname = 'a'\ncommand = ['x']\noutput = 'wrk'\ntimeout_s = 3\n\
             [together]\nname = 'all'\ncommand = ['z']\n\
             [[scheduler]]\nname = 'mine'\ncommand = ['y', '-z']\nops = 'm'\nkernel = '6.12'\n\
             [limits]\nstart_s = 7\nback_off_max_s = 60.5\n",
        );
        let config = config.unwrap();
        assert_eq!(config.policy, Rule::Slices(Policy::DeltaBenefitWeighted));
        assert_eq!(config.goal, Goal::TailLatency);
        assert_eq!(config.normalisation, Normalisation::Gain);
        assert_eq!(config.base_timeslice, Duration::from_millis(250));
        let names: Vec<_> = config.schedulers.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, [EEVDF, "mine"], "EEVDF may always be used");
        assert_eq!(config.through, Some(Through::ScxLoader));
        assert_eq!(config.together.unwrap().command, ["z"]);
        assert_eq!(config.limits.start, Duration::from_secs(7));
        assert_eq!(config.limits.back_off_max, Duration::from_millis(60_500));
        assert_eq!(config.limits.stop, Limits::default().stop);
    }

    #[test]
    fn invalid_configuration_is_refused_with_the_remedy() {
        for (text, says) in [
            ("policy = 'best'", "round_robin"),
            (
                "policy = 'phase_aware'\n[[application]]\nname = 'a'\ncommand = ['x']",
                "the cgroup of a",
            ),
            ("swap_ms = 0", "swap_ms"),
            ("base_timeslice_ms = 0", "1 ms to one day"),
            ("base_timeslice_ms = nan", "1 ms to one day"),
            ("schedulers = ['scx_none']", "giveway meta schedulers"),
            ("polizy = 'x'", "unknown field"),
            ("through = 'systemd'", "expected `scx_loader`"),
            ("[[turn]]\nscheduler = 'x'\ntimeslice_ms = 5", "not known"),
            ("[[turn]]\nscheduler = 'eevdf'\ntimeslice_ms = -5", "1 ms"),
            ("[[application]]\nname = 'a'\ncommand = []", "no command"),
            (
                "[[application]]\nname = 'a'\ncommand = ['x']\n\
                 [[application]]\nname = 'a'\ncommand = ['x']",
                "twice",
            ),
            (
                "[[application]]\nname = 'a'\ncommand = ['x']\n\
                 [together]\nname = 'a'\ncommand = ['x']",
                "twice",
            ),
            (
                "[together]\nname = 'all'\ncommand = []",
                "all has no command",
            ),
            ("[limits]\nstop_s = 1e9", "stop_s"),
            ("[[scheduler]]\nname = 'a'\ncommand = ['x']", "no ops"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with("meta.toml: "), "{error}");
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn the_schedule_is_the_hand_s_or_the_policy_s() {
        let hand = parse("[[turn]]\nscheduler = 'scx_ufs'\ntimeslice_ms = 500").unwrap();
        let (schedule, choices) = hand.schedule().unwrap().unwrap();
        assert_eq!(schedule.turns[0].timeslice, Duration::from_millis(500));
        assert!(choices.is_empty());

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.json");
        let mut all = Measurements::new(MachineNote::default());
        for (application, scheduler, throughput_per_s) in [
            ("a", EEVDF, 1.0),
            ("b", EEVDF, 1.0),
            ("a", "scx_ufs", 2.0),
            ("b", "scx_rusty", 2.0),
        ] {
            let cell = all.cell_mut(application, scheduler, Company::Alone);
            cell.runs.push(Reading {
                throughput_per_s,
                p99_s: 1.0,
            });
        }
        all.write(&path).unwrap();
        let text = format!(
            "policy = 'round_robin'\nbase_timeslice_ms = 100\nmeasurements = '{}'\n\
             schedulers = ['scx_ufs']",
            path.display()
        );
        let (schedule, choices) = parse(&text).unwrap().schedule().unwrap().unwrap();
        let names: Vec<_> = schedule
            .turns
            .iter()
            .map(|t| t.scheduler.as_str())
            .collect();
        assert_eq!(names, ["scx_ufs", EEVDF], "scx_rusty may not be used");
        assert_eq!(choices.len(), 2);
        assert!(
            parse("measurements = '/no/such'")
                .unwrap()
                .schedule()
                .is_err()
        );
    }
}
