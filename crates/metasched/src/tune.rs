//! Finds the base timeslice (section 3.3): a parameter of each policy that the paper
//! finds by trying, since no formula for it is known.
//!
//! ```text
//!   for each repetition
//!     EEVDF alone                                     the reference
//!     for each policy, for each base timeslice, beginning elsewhere each time
//!       all applications together, while schedulers take turns by its schedule:
//!       their benchmarks side by side, or the one that drives all of them
//! ```
//!
//! The *score* of a try is what its applications did, each relative to the same
//! under EEVDF, as a geometric mean: more is better for either goal. The paper
//! tunes by throughput and leaves tail latency open; the goal is the
//! configuration's.
//!
//! A try in which an application fails or a scheduler misbehaves has a fault and no
//! reading, so a policy gets no score from time in which its schedulers are barred.

use std::time::Duration;

use serde::Serialize;

use crate::application::{Application, Benchmarks};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::measurements::{Measurements, Reading, Spread};
use crate::policy::{Policy, Schedule, value};
use crate::scheduler::{EEVDF, Scheduler};
use crate::selector::Rotation;
use crate::supervisor::{Event, Standing, Supervisor};

/// Longest pause between two looks at a benchmark.
const LOOK: Duration = Duration::from_millis(50);

/// What to try.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// Applications, goal, limits, and what schedulers there are.
    pub config: &'a Config,
    /// Which policies.
    pub policies: &'a [Policy],
    /// With which base timeslices.
    pub base_timeslices: &'a [Duration],
    /// So often.
    pub repetitions: usize,
    /// In at most this time; what is left out has fewer readings.
    pub budget: Duration,
}

/// What was followed in a try; EEVDF if nothing.
pub type Followed = Option<(Policy, Duration)>;

/// A policy with a base timeslice, or EEVDF, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// What was followed.
    pub followed: Followed,
    /// Readings of each application, in the configuration's order, or of what
    /// drives all of them; one per repetition that went well.
    pub readings: Vec<Vec<Reading>>,
    /// What went wrong in the others.
    pub faults: Vec<String>,
}

/// All tries, EEVDF first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tuned {
    /// In the order in which they were tried first.
    pub tried: Vec<Tried>,
    /// The score of each; none without a reading.
    pub scores: Vec<Option<Spread>>,
}

impl Tuned {
    /// The best policy with its base timeslice, by the median of its scores.
    pub fn best(&self) -> Option<(Policy, Duration)> {
        let scored = self.tried.iter().zip(&self.scores);
        let scored = scored.filter_map(|(tried, score)| Some((tried.followed?, score.as_ref()?)));
        let best = scored.max_by(|a, b| a.1.median.total_cmp(&b.1.median));
        best.map(|(followed, _)| followed)
    }
}

/// Tries by the plan. `is_stopped` is asked often; once it says so, tuning ends
/// as if the budget had. `watch` is told of each try before it begins, and of
/// what went wrong in it.
///
/// # Errors
/// [`Error::Unmeasured`] if the configuration has no applications or EEVDF gave
/// no reading; those of [`Config::choices`]; [`Error::Occupied`] if a scheduler
/// of another program is loaded, or one of ours cannot be unloaded.
pub fn tune(
    plan: &Plan<'_>,
    measured: &Measurements,
    host: &mut impl Host,
    benchmarks: &mut impl Benchmarks,
    is_stopped: &dyn Fn() -> bool,
    watch: &mut dyn FnMut(Followed, Option<&str>),
) -> Result<Tuned> {
    let config = plan.config;
    let applications: Vec<&Application> = match &config.together {
        Some(one) => vec![one],
        None => config.applications.iter().collect(),
    };
    if config.applications.is_empty() {
        return Err(Error::Unmeasured("no application is configured".into()));
    }
    let choices = config.choices(measured)?;
    let mut tried = vec![Tried::of(None)];
    for policy in plan.policies {
        let slices = plan.base_timeslices.iter();
        tried.extend(slices.map(|base| Tried::of(Some((*policy, *base)))));
    }
    let deadline = host.now() + plan.budget;
    for repetition in 0..plan.repetitions {
        for offset in 0..tried.len() {
            // EEVDF, which everything is compared with, comes first each time.
            let index = match offset {
                0 => 0,
                _ => 1 + (repetition + offset - 1) % (tried.len() - 1),
            };
            let is_over = |now| is_stopped() || now >= deadline;
            if is_over(host.now()) {
                break;
            }
            let followed = tried[index].followed;
            watch(followed, None);
            let schedule = match followed {
                None => Schedule::fixed(EEVDF),
                Some((policy, base)) => config.slices(policy, &choices, base),
            };
            match one(config, &applications, schedule, host, benchmarks, &is_over)? {
                Try::Readings(readings) => tried[index].readings.push(readings),
                Try::Fault(what) => {
                    watch(followed, Some(&what));
                    tried[index].faults.push(what);
                }
                Try::Cut => {}
            }
        }
    }
    let base = typical(&tried[0], applications.len()).ok_or_else(|| {
        Error::Unmeasured(format!(
            "no run under {EEVDF} went well, which all is compared with: {}",
            tried[0].faults.join("; ")
        ))
    })?;
    let score = |readings: &Vec<Reading>| {
        let ratios = readings.iter().zip(&base);
        let logs = ratios.map(|(r, base)| (value(r, config.goal) / value(base, config.goal)).ln());
        (logs.sum::<f64>() / readings.len() as f64).exp()
    };
    let scores = tried
        .iter()
        .map(|t| Spread::of(t.readings.iter().map(score)));
    Ok(Tuned {
        scores: scores.collect(),
        tried,
    })
}

impl Tried {
    fn of(followed: Followed) -> Tried {
        Tried {
            followed,
            readings: Vec::new(),
            faults: Vec::new(),
        }
    }
}

/// Medians of each application; none of nothing.
fn typical(tried: &Tried, applications: usize) -> Option<Vec<Reading>> {
    let of = |application: usize| {
        let runs = || tried.readings.iter().map(|readings| readings[application]);
        Some(Reading {
            throughput_per_s: Spread::of(runs().map(|r| r.throughput_per_s))?.median,
            p99_s: Spread::of(runs().map(|r| r.p99_s))?.median,
        })
    };
    (0..applications).map(of).collect()
}

enum Try {
    Readings(Vec<Reading>),
    Fault(String),
    Cut,
}

/// All applications together under a schedule, once. They begin when its first
/// scheduler is in force: loading that happens once, and not in every round.
fn one(
    config: &Config,
    applications: &[&Application],
    schedule: Schedule,
    host: &mut impl Host,
    benchmarks: &mut impl Benchmarks,
    is_over: &dyn Fn(Duration) -> bool,
) -> Result<Try> {
    let timeouts = applications.iter().map(|application| application.timeout_s);
    let timeout = Duration::from_secs_f64(timeouts.fold(0.0, f64::max));
    let mut rotation = Rotation::new(schedule);
    let mut supervisor = Supervisor::new(config.limits);
    let mut patience = None;
    let outcome = loop {
        let wanted = config.table.get(&rotation.turn().scheduler);
        let wanted = wanted.cloned().unwrap_or_else(Scheduler::eevdf);
        let pause = supervisor.step(&wanted, host);
        if let Standing::Aside(ops) = supervisor.standing() {
            benchmarks.abort("another scheduler is loaded");
            return Err(Error::Occupied(format!(
                "the sched_ext scheduler {ops} is loaded: stop it first, since one runs at a time"
            )));
        }
        let failed = supervisor.events().find_map(|event| match event {
            Event::Failed(name, fault, _) => Some(format!("{name} {fault}")),
            _ => None,
        });
        if let Some(what) = failed {
            benchmarks.abort(&what);
            break Try::Fault(what);
        }
        if patience.is_some()
            && let Some(outcomes) = benchmarks.poll()
        {
            let readings: std::result::Result<Vec<Reading>, String> =
                outcomes.into_iter().collect();
            break readings.map_or_else(Try::Fault, Try::Readings);
        }
        if patience.is_some_and(|end| host.now() >= end) {
            let what = format!("took longer than {timeout:?}");
            benchmarks.abort(&what);
            break Try::Fault(what);
        }
        if is_over(host.now()) {
            benchmarks.abort("time was up");
            break Try::Cut;
        }
        let is_settled = supervisor.is_settled(&wanted, host.now());
        if is_settled && patience.is_none() {
            benchmarks.start(applications);
            patience = Some(host.now() + timeout);
        }
        rotation.advance(host.now(), is_settled);
        let in_force = supervisor.in_force().to_owned();
        if is_settled {
            let turns = rotation.schedule().turns.iter();
            let rows = turns.filter_map(|turn| config.table.get(&turn.scheduler));
            let rest: Vec<&Scheduler> = rows.filter(|row| row.name != in_force).collect();
            host.keep_ready(&rest);
        }
        let left = rotation.left(host.now()).filter(|left| !left.is_zero());
        host.rest(pause.min(LOOK).min(left.unwrap_or(LOOK)));
    };
    match supervisor.leave(host) {
        true => Ok(outcome),
        false => Err(Error::Occupied(
            "a scheduler's process does not end, though killed".into(),
        )),
    }
}

#[cfg(test)]
mod tests;
