//! Measures each application under each scheduler (section 3.2).
//!
//! ```text
//!   for each repetition
//!     for each scheduler, beginning with another one each time
//!       bring it into force ── failed ──► a fault in each of its cells
//!         each application alone, then all together: their benchmarks side by
//!         side, or the one that drives all of them
//!           benchmark ends ──► a reading or the application's fault
//!           scheduler misbehaves meanwhile ──► ended, the scheduler's fault
//!       leave
//! ```
//!
//! Repetitions are outermost, so drift and a budget that runs out take from all
//! schedulers alike. One that misbehaved in two repetitions is not tried again.
//! Nothing blocks: starts, benchmarks and stops have a limit each, and the budget
//! limits all together. A run that the budget or an interrupt cuts short is dropped and
//! counted as left out; it is no fault.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::application::{Application, Benchmarks, Outcome};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::measurements::{Blame, Company, FaultNote, Measurements};
use crate::scheduler::Scheduler;
use crate::supervisor::{Event, Limits, Standing, Supervisor};

/// After faults in so many repetitions a scheduler is not tried again.
const FAULTS_MAX: usize = 2;
/// Longest pause between two looks at a benchmark.
const LOOK: Duration = Duration::from_millis(50);

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// These applications.
    pub applications: &'a [Application],
    /// What drives all of them at once, if not their benchmarks side by side.
    pub together: Option<&'a Application>,
    /// Under these schedulers.
    pub schedulers: &'a [Scheduler],
    /// So often.
    pub repetitions: usize,
    /// In at most this time.
    pub budget: Duration,
    /// With these limits on schedulers.
    pub limits: Limits,
}

/// The progress, for observers.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress<'a> {
    /// A run begins: application, or all together.
    Run {
        /// From 0.
        repetition: usize,
        /// Under this scheduler.
        scheduler: &'a str,
        /// This application; none: all of them.
        application: Option<&'a str>,
    },
    /// A run went wrong.
    Fault {
        /// Under this scheduler.
        scheduler: &'a str,
        /// What happened.
        what: &'a str,
    },
    /// A scheduler has been left: a good moment to save.
    Left(&'a Measurements),
}

/// What came of measuring as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Runs with a reading, an application counted once each.
    pub readings: usize,
    /// Runs with a fault.
    pub faults: usize,
    /// Runs for which time was lacking, or whose scheduler was given up.
    pub left_out: usize,
}

/// Why a run has no outcome.
enum Cut {
    /// The scheduler, in these words.
    Scheduler(String),
    /// Time is up, or an interrupt came.
    Budget,
}

/// Measures by the plan and adds what it finds to `measurements`. `is_stopped`
/// is asked often; once it says so, measuring ends as if the budget had.
///
/// # Errors
/// [`Error::Occupied`] if another program has a scheduler loaded, or a scheduler's
/// process cannot be got rid of.
pub fn measure(
    plan: &Plan<'_>,
    measurements: &mut Measurements,
    host: &mut impl Host,
    benchmarks: &mut impl Benchmarks,
    is_stopped: &dyn Fn() -> bool,
    watch: &mut dyn FnMut(Progress<'_>),
) -> Result<Summary> {
    let mut round = Round {
        plan,
        deadline: host.now() + plan.budget,
        measurements,
        benchmarks,
        is_stopped,
        watch,
        summary: Summary::default(),
        misbehaved: BTreeMap::new(),
    };
    for repetition in 0..plan.repetitions {
        for offset in 0..plan.schedulers.len() {
            let index = (repetition + offset) % plan.schedulers.len();
            round.visit(repetition, &plan.schedulers[index], host)?;
        }
    }
    Ok(round.summary)
}

struct Round<'a, B> {
    plan: &'a Plan<'a>,
    deadline: Duration,
    measurements: &'a mut Measurements,
    benchmarks: &'a mut B,
    is_stopped: &'a dyn Fn() -> bool,
    watch: &'a mut dyn FnMut(Progress<'_>),
    summary: Summary,
    misbehaved: BTreeMap<String, usize>,
}

impl<B: Benchmarks> Round<'_, B> {
    /// All runs of one repetition under one scheduler.
    fn visit(
        &mut self,
        repetition: usize,
        scheduler: &Scheduler,
        host: &mut impl Host,
    ) -> Result<()> {
        let name = scheduler.name.as_str();
        let applications = self.plan.applications;
        let mut sets: Vec<(Company, Vec<&Application>)> = applications
            .iter()
            .map(|application| (Company::Alone, vec![application]))
            .collect();
        match self.plan.together {
            Some(one) => sets.push((Company::Together, vec![one])),
            None if applications.len() > 1 => {
                sets.push((Company::Together, applications.iter().collect()));
            }
            None => {}
        }
        let given_up = self.misbehaved.get(name).is_some_and(|n| *n >= FAULTS_MAX);
        if given_up || self.is_over(host) {
            self.summary.left_out += sets.iter().map(|(_, set)| set.len()).sum::<usize>();
            return Ok(());
        }
        let mut supervisor = Supervisor::new(self.plan.limits);
        let mut cut = self.bring_up(scheduler, &mut supervisor, host)?;
        for (company, set) in &sets {
            let is_first = cut.is_none();
            if is_first {
                (self.watch)(Progress::Run {
                    repetition,
                    scheduler: name,
                    application: match company {
                        Company::Alone => Some(&set[0].name),
                        Company::Together => None,
                    },
                });
                match self.run(set, scheduler, &mut supervisor, host) {
                    Ok(outcomes) => self.enter(repetition, name, *company, set, outcomes),
                    Err(why) => cut = Some(why),
                }
            }
            match &cut {
                None => {}
                Some(Cut::Budget) => self.summary.left_out += set.len(),
                // What could not be tried any more has the same fault.
                Some(Cut::Scheduler(what)) => {
                    for application in set {
                        let cell = (application.name.as_str(), name, *company);
                        self.fault(cell, repetition, Blame::Scheduler, what);
                    }
                }
            }
        }
        if matches!(cut, Some(Cut::Scheduler(_))) {
            *self.misbehaved.entry(name.to_owned()).or_default() += 1;
        }
        if !supervisor.leave(host) {
            return Err(Error::Occupied(format!(
                "the process of {name} does not end, though killed; no other can be measured"
            )));
        }
        self.note_swap(name, &supervisor);
        (self.watch)(Progress::Left(self.measurements));
        Ok(())
    }

    fn is_over(&self, host: &impl Host) -> bool {
        (self.is_stopped)() || host.now() >= self.deadline
    }

    /// Waits until the scheduler is in force, or will not be.
    fn bring_up(
        &self,
        scheduler: &Scheduler,
        supervisor: &mut Supervisor,
        host: &mut impl Host,
    ) -> Result<Option<Cut>> {
        loop {
            let pause = supervisor.step(scheduler, host);
            if let Standing::Aside(ops) = supervisor.standing() {
                return Err(Error::Occupied(format!(
                    "the sched_ext scheduler {ops} is loaded: stop it first, since one runs at a \
                     time"
                )));
            }
            if let Some(what) = misconduct(supervisor) {
                return Ok(Some(Cut::Scheduler(what)));
            }
            if supervisor.is_settled(scheduler, host.now()) {
                return Ok(None);
            }
            if self.is_over(host) {
                return Ok(Some(Cut::Budget));
            }
            host.rest(pause);
        }
    }

    /// Runs a set of benchmarks to their end.
    fn run(
        &mut self,
        set: &[&Application],
        scheduler: &Scheduler,
        supervisor: &mut Supervisor,
        host: &mut impl Host,
    ) -> std::result::Result<Vec<Outcome>, Cut> {
        let timeouts = set.iter().map(|application| application.timeout_s);
        let timeout = Duration::from_secs_f64(timeouts.fold(0.0, f64::max));
        let patience = host.now() + timeout;
        self.benchmarks.start(set);
        loop {
            let pause = supervisor.step(scheduler, host);
            if let Some(outcomes) = self.benchmarks.poll() {
                // The last moments count, too.
                return match misconduct(supervisor) {
                    Some(what) => Err(Cut::Scheduler(what)),
                    None => Ok(outcomes),
                };
            }
            if supervisor.in_force() != scheduler.name {
                let what = settle(supervisor, scheduler, host);
                self.benchmarks.abort(&what);
                return Err(Cut::Scheduler(what));
            }
            if self.is_over(host) {
                self.benchmarks.abort("time was up");
                return Err(Cut::Budget);
            }
            if host.now() >= patience {
                return Ok(self
                    .benchmarks
                    .abort(&format!("took longer than {timeout:?}")));
            }
            host.rest(pause.min(LOOK));
        }
    }

    fn enter(
        &mut self,
        repetition: usize,
        scheduler: &str,
        company: Company,
        set: &[&Application],
        outcomes: Vec<Outcome>,
    ) {
        for (application, outcome) in set.iter().zip(outcomes) {
            let cell = (application.name.as_str(), scheduler, company);
            match outcome {
                Ok(reading) => {
                    let (application, scheduler, company) = cell;
                    let cell = self.measurements.cell_mut(application, scheduler, company);
                    debug_assert!(reading.is_sound(), "M2: {reading:?}");
                    cell.runs.push(reading);
                    self.summary.readings += 1;
                }
                Err(what) => self.fault(cell, repetition, Blame::Application, &what),
            }
        }
    }

    fn fault(
        &mut self,
        (application, scheduler, company): (&str, &str, Company),
        repetition: usize,
        blame: Blame,
        what: &str,
    ) {
        (self.watch)(Progress::Fault { scheduler, what });
        let cell = self.measurements.cell_mut(application, scheduler, company);
        cell.faults.push(FaultNote {
            repetition,
            blame,
            what: what.to_owned(),
        });
        self.summary.faults += 1;
    }

    /// Keeps what coming and going took.
    fn note_swap(&mut self, scheduler: &str, supervisor: &Supervisor) {
        let costs = supervisor.costs();
        if let (Some(start), Some(stop)) = (costs.start.mean(), costs.stop.mean()) {
            let swap = self.measurements.swaps.entry(scheduler.to_owned());
            let swap = swap.or_default();
            swap.start_s.push(start.as_secs_f64());
            swap.stop_s.push(stop.as_secs_f64());
        }
    }
}

/// What the scheduler did wrong, if it did.
fn misconduct(supervisor: &mut Supervisor) -> Option<String> {
    supervisor.events().find_map(|event| match event {
        Event::Failed(_, fault, _) => Some(fault.to_string()),
        _ => None,
    })
}

/// Waits until it is clear what became of a scheduler that is gone.
fn settle(supervisor: &mut Supervisor, scheduler: &Scheduler, host: &mut impl Host) -> String {
    loop {
        let pause = supervisor.step(scheduler, host);
        if let Some(what) = misconduct(supervisor) {
            return what;
        }
        if supervisor.is_settled(scheduler, host.now()) {
            return "was replaced or reloaded during the run".into();
        }
        host.rest(pause);
    }
}

#[cfg(test)]
mod tests;
