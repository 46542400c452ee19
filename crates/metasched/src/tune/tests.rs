//! Tuning against a made-up kernel, with benchmarks whose results follow from who
//! was in force.

use std::cell::Cell as Shared;
use std::path::Path;
use std::rc::Rc;

use giveway_machine::sched_ext::State;

use super::*;
use crate::application::Outcome;
use crate::fake::{Fake, Watched, ms};
use crate::measurements::{Company, MachineNote};

/// Time that has passed, and of that under `a`.
#[derive(Clone, Copy, Default)]
struct Clock {
    all: Duration,
    under_a: Duration,
}

/// The made-up kernel, which tells the benchmarks the time.
fn world(fake: Fake, clock: &Rc<Shared<Clock>>) -> Watched {
    let clock = Rc::clone(clock);
    let look = move |fake: &mut Fake| {
        clock.set(Clock {
            all: fake.now(),
            under_a: fake.in_force.get("a").copied().unwrap_or_default(),
        });
    };
    Watched {
        fake,
        look: Box::new(look),
    }
}

/// Ten seconds, in which an application does twice as much under `a`.
struct Bench {
    clock: Rc<Shared<Clock>>,
    began: Option<(Clock, usize)>,
    fails: bool,
}

impl Benchmarks for Bench {
    fn start(&mut self, applications: &[&Application]) {
        self.began = Some((self.clock.get(), applications.len()));
    }
    fn poll(&mut self) -> Option<Vec<Outcome>> {
        let (began, applications) = self.began?;
        let now = self.clock.get();
        let seconds = (now.all - began.all).as_secs_f64();
        if seconds < 10.0 {
            return None;
        }
        self.began = None;
        let under_a = (now.under_a - began.under_a).as_secs_f64();
        let reading = Reading {
            throughput_per_s: (seconds + under_a) / seconds,
            p99_s: 1.0,
        };
        let outcome = match self.fails {
            true => Err("no luck".to_owned()),
            false => Ok(reading),
        };
        Some(vec![outcome; applications])
    }
    fn abort(&mut self, why: &str) -> Vec<Outcome> {
        self.began = None;
        vec![Err(why.to_owned())]
    }
}

const CONFIG: &str = "schedulers = ['a', 'b']\n\
    [[scheduler]]\nname = 'a'\ncommand = ['a']\nops = 'a'\n\
    [[scheduler]]\nname = 'b'\ncommand = ['b']\nops = 'b'\n\
    [[application]]\nname = 'web'\ncommand = ['x']\n\
    [[application]]\nname = 'batch'\ncommand = ['x']\n";

/// Web prefers `a`, batch `b`; web waits for three quarters of the time.
fn measured(applications: &[&str]) -> Measurements {
    let mut all = Measurements::new(MachineNote::default());
    for (application, scheduler, throughput_per_s, p99_s) in [
        ("web", EEVDF, 1.0, 3.0),
        ("batch", EEVDF, 1.0, 1.0),
        ("web", "a", 2.0, 3.0),
        ("batch", "a", 0.5, 1.0),
        ("web", "b", 0.5, 3.0),
        ("batch", "b", 2.0, 1.0),
    ] {
        if !applications.contains(&application) {
            continue;
        }
        let cell = all.cell_mut(application, scheduler, Company::Alone);
        cell.runs.push(Reading {
            throughput_per_s,
            p99_s,
        });
    }
    all
}

fn tuned(fake: Fake, fails: bool, budget: Duration) -> Result<Tuned> {
    tuned_by(CONFIG, fake, fails, budget)
}

fn tuned_by(config: &str, fake: Fake, fails: bool, budget: Duration) -> Result<Tuned> {
    let config = Config::parse(config, Path::new("f")).unwrap();
    let names: Vec<&str> = config
        .applications
        .iter()
        .map(|a| a.name.as_str())
        .collect();
    let plan = Plan {
        config: &config,
        policies: &[Policy::RoundRobin, Policy::DeltaWeighted],
        base_timeslices: &[ms(200), ms(2000)],
        repetitions: 2,
        budget,
    };
    let clock: Rc<Shared<Clock>> = Rc::default();
    let mut world = world(fake, &clock);
    let mut bench = Bench {
        clock,
        began: None,
        fails,
    };
    let found = tune(
        &plan,
        &measured(&names),
        &mut world,
        &mut bench,
        &|| false,
        &mut |_, _| {},
    );
    assert_eq!(
        world.fake.state(),
        State::Disabled,
        "nothing is left behind"
    );
    found
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn best_try_gives_time_to_the_best_scheduler_with_few_swaps() {
    let tuned = tuned(Fake::default(), false, HOUR).unwrap();
    assert_eq!(tuned.tried.len(), 5, "EEVDF and two of each");
    assert!(
        tuned
            .tried
            .iter()
            .all(|t| t.readings.len() == 2 && t.faults.is_empty())
    );
    let medians: Vec<f64> = tuned.scores.iter().map(|s| s.unwrap().median).collect();
    assert!(
        (medians[0] - 1.0).abs() < 1e-9,
        "EEVDF is what all is relative to"
    );
    // Half of the time under `a`, less what swaps take: more of short slices.
    assert!(medians[1] < medians[2] && medians[2] < 1.55, "{medians:?}");
    // Three quarters of it.
    assert!(medians[4] > medians[2], "{medians:?}");
    assert_eq!(tuned.best(), Some((Policy::DeltaWeighted, ms(2000))));
}

#[test]
fn shared_benchmark_runs_alone() {
    let config = format!("{CONFIG}[together]\nname = 'shop'\ncommand = ['x']\n");
    let tuned = tuned_by(&config, Fake::default(), false, HOUR).unwrap();
    let all = tuned.tried.iter().flat_map(|tried| &tried.readings);
    assert_eq!(all.map(Vec::len).collect::<Vec<_>>(), [1; 10]);
    assert!(tuned.best().is_some());
}

#[test]
fn a_scheduler_that_misbehaves_leaves_a_fault_and_no_reading() {
    let mut fake = Fake::default();
    fake.conduct("b").refused = true;
    let tuned = tuned(fake, false, HOUR).unwrap();
    assert_eq!(tuned.tried[0].readings.len(), 2);
    for tried in &tuned.tried[1..] {
        assert!(tried.readings.is_empty());
        assert!(tried.faults[0].starts_with("b failed to load"), "{tried:?}");
    }
    assert_eq!(tuned.best(), None);
}

#[test]
fn what_the_first_start_takes_is_not_measured() {
    let mut fake = Fake::default();
    fake.conduct("a").loads_after = Some(ms(5000));
    // Web alone, which prefers a: one turn for ever.
    let (config, _) = CONFIG
        .split_once("[[application]]\nname = 'batch'")
        .unwrap();
    let tuned = tuned_by(config, fake, false, HOUR).unwrap();
    for tried in &tuned.tried[1..] {
        let of_all = tried.readings[0][0].throughput_per_s;
        assert!(of_all > 1.98, "all of it under a, but {tried:?}");
    }
}

#[test]
fn without_eevdf_there_is_nothing_to_compare_with() {
    let error = tuned(Fake::default(), true, HOUR).unwrap_err().to_string();
    assert!(
        error.contains("under eevdf") && error.contains("no luck"),
        "{error}"
    );
}

#[test]
fn the_budget_ends_it_and_what_was_cut_has_no_reading() {
    let tuned = tuned(Fake::default(), false, Duration::from_secs(25)).unwrap();
    let readings: Vec<usize> = tuned.tried.iter().map(|t| t.readings.len()).collect();
    assert_eq!(readings, [1, 1, 0, 0, 0]);
    assert!(tuned.tried.iter().all(|t| t.faults.is_empty()));
}

#[test]
fn foreign_scheduler_is_left_alone() {
    let mut fake = Fake::default();
    fake.load_foreign("x");
    let config = Config::parse(CONFIG, Path::new("f")).unwrap();
    let clock: Rc<Shared<Clock>> = Rc::default();
    let mut world = world(fake, &clock);
    let mut bench = Bench {
        clock,
        began: None,
        fails: false,
    };
    let is_over = |_| false;
    let tried = one(
        &config,
        &[&config.applications[0]],
        Schedule::fixed("a"),
        &mut world,
        &mut bench,
        &is_over,
    );
    assert!(matches!(tried, Err(Error::Occupied(_))));
    assert!(matches!(world.fake.state(), State::Enabled(_)));
}
