//! Measuring, with a made-up kernel and made-up benchmarks that share a clock.

use std::cell::Cell as Shared;
use std::rc::Rc;

use giveway_machine::sched_ext::State;

use super::*;
use crate::fake::{Fake, Watched, ms, row};
use crate::measurements::{MachineNote, Reading};
use crate::scheduler::EEVDF;

/// Each benchmark takes one second, or the 1000 its application is named for.
struct Bench {
    clock: Rc<Shared<Duration>>,
    running: Vec<Duration>,
    started: usize,
}

impl Benchmarks for Bench {
    fn start(&mut self, applications: &[&Application]) {
        assert!(self.running.is_empty());
        self.started += applications.len();
        let end = |application: &&Application| {
            let takes = if application.name == "hangs" { 1000 } else { 1 };
            self.clock.get() + Duration::from_secs(takes)
        };
        self.running = applications.iter().map(end).collect();
    }
    fn poll(&mut self) -> Option<Vec<Outcome>> {
        let now = self.clock.get();
        let all = self.running.iter().all(|end| now >= *end);
        all.then(|| self.abort("never"))
    }
    fn abort(&mut self, why: &str) -> Vec<Outcome> {
        let now = self.clock.get();
        let reading = Reading {
            throughput_per_s: 1.0,
            p99_s: 1.0,
        };
        let outcome = |end: Duration| match now >= end {
            true => Ok(reading),
            false => Err(why.to_owned()),
        };
        self.running.drain(..).map(outcome).collect()
    }
}

struct World {
    /// Tells the benchmarks the time.
    host: Watched,
    /// When the scheduler's process is killed, once.
    kill_at: Rc<Shared<Option<Duration>>>,
    bench: Bench,
    found: Measurements,
}

fn world() -> World {
    let clock = Rc::new(Shared::new(Duration::ZERO));
    let kill_at: Rc<Shared<Option<Duration>>> = Rc::default();
    let (told, due) = (Rc::clone(&clock), Rc::clone(&kill_at));
    let look = move |fake: &mut Fake| {
        told.set(fake.now());
        if due.get().is_some_and(|at| fake.now() >= at) {
            due.set(None);
            fake.kill_process();
        }
    };
    World {
        host: Watched {
            fake: Fake::default(),
            look: Box::new(look),
        },
        kill_at,
        bench: Bench {
            clock,
            running: Vec::new(),
            started: 0,
        },
        found: Measurements::new(MachineNote::default()),
    }
}

impl World {
    fn measure(
        &mut self,
        applications: &[&str],
        repetitions: usize,
        budget_s: u64,
    ) -> Result<Summary> {
        self.measure_with(applications, None, repetitions, budget_s)
    }

    fn measure_with(
        &mut self,
        applications: &[&str],
        together: Option<&str>,
        repetitions: usize,
        budget_s: u64,
    ) -> Result<Summary> {
        let application = |name: &&str| Application {
            name: (*name).into(),
            command: vec!["x".into()],
            output: Default::default(),
            cgroup: None,
            timeout_s: 5.0,
        };
        let applications: Vec<_> = applications.iter().map(application).collect();
        let together = together.as_ref().map(application);
        let plan = Plan {
            applications: &applications,
            together: together.as_ref(),
            schedulers: &[Scheduler::eevdf(), row("a"), row("b")],
            repetitions,
            budget: Duration::from_secs(budget_s),
            limits: Limits::default(),
        };
        let found = &mut self.found;
        measure(
            &plan,
            found,
            &mut self.host,
            &mut self.bench,
            &|| false,
            &mut |_| {},
        )
    }

    fn cell(&self, application: &str, scheduler: &str, company: Company) -> (usize, Vec<&str>) {
        let cell = self.found.cell(application, scheduler, company);
        let cell = cell.unwrap_or_else(|| panic!("no cell of {application} under {scheduler}"));
        let faults = cell.faults.iter().map(|fault| fault.what.as_str());
        (cell.runs.len(), faults.collect())
    }
}

#[test]
fn every_application_is_measured_alone_and_together_under_every_scheduler() {
    let mut world = world();
    let summary = world.measure(&["x", "y"], 3, 1000).unwrap();
    for application in ["x", "y"] {
        for scheduler in [EEVDF, "a", "b"] {
            for company in [Company::Alone, Company::Together] {
                let cell = world.cell(application, scheduler, company);
                assert_eq!(cell, (3, vec![]));
            }
        }
    }
    assert_eq!((summary.readings, summary.left_out), (36, 0));
    // Another one begins each time, so drift takes from all alike.
    assert_eq!(world.host.fake.spawned, ["a", "b", "a", "b", "b", "a"]);
    assert_eq!(world.host.state(), State::Disabled, "left at the end");
    assert_eq!(world.found.swaps["a"].start_s.len(), 3);
    assert!(world.found.swaps["a"].start_s[0] >= 0.1);
}

#[test]
fn one_that_drives_all_applications_stands_for_their_benchmarks_side_by_side() {
    let mut world = world();
    let summary = world.measure_with(&["x", "y"], Some("all"), 2, 1000);
    assert_eq!(summary.unwrap().readings, 2 * 3 * 3);
    for scheduler in [EEVDF, "a", "b"] {
        assert_eq!(world.cell("all", scheduler, Company::Together), (2, vec![]));
        assert!(
            world
                .found
                .cell("x", scheduler, Company::Together)
                .is_none()
        );
    }
    assert_eq!(world.found.applications(), ["x", "y"]);
}

#[test]
fn a_scheduler_that_does_not_load_is_recorded_and_given_up_after_two() {
    let mut world = world();
    world.host.fake.conduct("a").refused = true;
    let summary = world.measure(&["x"], 4, 1000).unwrap();
    let (runs, faults) = world.cell("x", "a", Company::Alone);
    assert_eq!((runs, faults.len()), (0, 2));
    assert!(faults[0].contains("failed to load"), "{faults:?}");
    assert_eq!(world.cell("x", "b", Company::Alone).0, 4);
    assert_eq!((summary.faults, summary.left_out), (2, 2));
    assert!(world.found.has_misbehaved("a"));
}

#[test]
fn a_scheduler_that_dies_in_a_run_ends_the_run_and_is_blamed() {
    let mut world = world();
    // EEVDF takes a run of one second, and a's first is then on.
    world.kill_at.set(Some(ms(1000 + 100 + 500)));
    world.measure(&["x"], 2, 1000).unwrap();
    let (runs, faults) = world.cell("x", "a", Company::Alone);
    assert_eq!(runs, 1, "the other repetition");
    assert_eq!(faults.len(), 1);
    assert!(faults[0].contains("killed by signal 9"), "{faults:?}");
    assert!(world.found.has_misbehaved("a"));
}

#[test]
fn one_that_stalls_does_not_block_the_round() {
    let mut world = world();
    world.host.fake.conduct("a").starves = true;
    world.host.fake.conduct("a").deaf = true;
    world.measure(&["hangs", "x"], 1, 1000).unwrap();
    let (runs, faults) = world.cell("x", "a", Company::Together);
    assert_eq!(runs, 0);
    assert!(faults[0].contains("stalled"), "{faults:?}");
    assert_eq!(world.cell("x", "b", Company::Alone).0, 1);
}

#[test]
fn a_benchmark_that_takes_too_long_is_its_own_fault() {
    let mut world = world();
    world.measure(&["hangs", "x"], 1, 1000).unwrap();
    let (runs, faults) = world.cell("hangs", "a", Company::Together);
    assert_eq!((runs, faults), (0, vec!["took longer than 5s"]));
    assert_eq!(world.cell("x", "a", Company::Together), (1, vec![]));
    assert!(!world.found.has_misbehaved("a"));
}

#[test]
fn the_budget_is_kept_and_what_it_cuts_short_is_no_fault() {
    let mut world = world();
    let summary = world.measure(&["x", "y"], 10, 20).unwrap();
    assert!(world.host.now() <= Duration::from_secs(21));
    assert_eq!(summary.faults, 0);
    let all = 10 * 3 * 4;
    assert_eq!(summary.readings + summary.left_out, all);
    let runs = |scheduler| world.cell("x", scheduler, Company::Alone).0;
    assert!(runs(EEVDF).abs_diff(runs("b")) <= 1, "all alike");
    assert_eq!(world.host.state(), State::Disabled);
}

#[test]
fn without_sched_ext_linux_s_own_is_measured_and_the_others_do_not_block() {
    let mut world = world();
    world.host.fake.unsupported = true;
    world.measure(&["x"], 1, 1000).unwrap();
    assert_eq!(world.cell("x", EEVDF, Company::Alone), (1, vec![]));
    let (runs, faults) = world.cell("x", "a", Company::Alone);
    assert_eq!((runs, faults.len()), (0, 1));
    assert!(faults[0].contains("no sched_ext"), "{faults:?}");
    assert!(world.host.now() < Duration::from_secs(10));
}

#[test]
fn foreign_scheduler_stops_a_measurement() {
    let mut world = world();
    world.host.fake.load_foreign("theirs");
    let error = world.measure(&["x"], 1, 100).unwrap_err().to_string();
    assert!(error.contains("theirs"), "{error}");
    assert_eq!(world.bench.started, 0);
}
