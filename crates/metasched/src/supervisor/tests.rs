//! The supervisor against a made-up kernel, which fails the test on a second
//! process or a second scheduler.

use proptest::prelude::*;

use super::*;
use crate::fake::{Fake, ms, row};

struct World {
    host: Fake,
    supervisor: Supervisor,
    events: Vec<Event>,
}

impl World {
    fn new() -> World {
        World {
            host: Fake::default(),
            supervisor: Supervisor::new(Limits::default()),
            events: Vec::new(),
        }
    }

    /// Wants this for so long.
    fn want(&mut self, wanted: &Scheduler, duration: Duration) -> &mut World {
        let end = self.host.now() + duration;
        while self.host.now() < end {
            let pause = self.supervisor.step(wanted, &mut self.host);
            assert!(!pause.is_zero());
            self.host.rest(pause.min(end - self.host.now()));
        }
        self.supervisor.step(wanted, &mut self.host);
        self.events.extend(self.supervisor.events());
        self
    }

    fn runs(&self, name: &str) -> bool {
        self.supervisor.standing() == Standing::Running(name.into())
    }

    fn faults(&self, name: &str) -> Vec<&Fault> {
        let of = |event: &'_ Event| matches!(event, Event::Failed(n, ..) if n == name);
        let faults = self.events.iter().filter(|event| of(event));
        faults
            .map(|event| match event {
                Event::Failed(_, fault, _) => fault,
                _ => unreachable!(),
            })
            .collect()
    }

    fn bars(&self) -> Vec<Duration> {
        let bar = |event: &Event| match event {
            Event::Failed(_, _, barred) => Some(*barred),
            _ => None,
        };
        self.events.iter().filter_map(bar).collect()
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_swap_passes_through_linux_s_own_scheduler_and_its_cost_is_counted() {
    let mut world = World::new();
    world.want(&row("a"), SECOND);
    assert!(world.runs("a"));
    world.want(&row("b"), SECOND);
    assert!(world.runs("b"));
    world.want(&Scheduler::eevdf(), SECOND);
    assert_eq!(world.supervisor.standing(), Standing::Own);
    assert_eq!(world.supervisor.in_force(), EEVDF);
    let costs = world.supervisor.costs();
    assert_eq!((costs.start.count, costs.stop.count), (2, 2));
    // Loading takes 100 ms, asking 20 and unloading 5, seen at the next poll.
    assert_eq!(costs.switch.count, 1, "to Linux's own is no swap");
    let switch = costs.switch.mean().unwrap();
    assert!(switch >= ms(125) && switch < ms(140), "{switch:?}");
    assert!(world.faults("a").is_empty() && world.faults("b").is_empty());
}

#[test]
fn backoff_doubles_with_each_fault() {
    let mut world = World::new();
    let a = row("a");
    for _ in 0..3 {
        while !world.runs("a") {
            world.want(&a, ms(100));
        }
        world.host.kill_process();
        world.want(&a, ms(200));
        assert_eq!(world.supervisor.standing(), Standing::Own);
        assert!(world.supervisor.is_settled(&a, world.host.now()));
    }
    assert_eq!(world.bars(), [2 * SECOND, 4 * SECOND, 8 * SECOND]);
    let fault = world.faults("a")[0].to_string();
    assert!(fault.contains("killed by signal 9"), "{fault}");
    assert!(fault.contains("words of a"), "{fault}");
}

#[test]
fn backoff_has_an_upper_limit() {
    let mut world = World::new();
    world.host.conduct("a").missing = true;
    world.want(&row("a"), 4 * 3600 * SECOND);
    let bars = world.bars();
    assert_eq!(bars.last(), Some(&Limits::default().back_off_max));
    assert!(bars.len() < 35, "{}", bars.len());
}

#[test]
fn proven_scheduler_resets_its_backoff() {
    let mut world = World::new();
    let (a, own) = (row("a"), Scheduler::eevdf());
    world.want(&a, SECOND);
    world.host.kill_process();
    world.want(&a, 4 * SECOND);
    assert!(world.runs("a"));
    for _ in 0..40 {
        world.want(&a, 2 * SECOND).want(&own, SECOND);
    }
    world.want(&a, SECOND);
    world.host.kill_process();
    world.want(&a, SECOND);
    assert_eq!(world.bars(), [2 * SECOND, 2 * SECOND]);
}

#[test]
fn failed_load_keeps_the_kernel_default_and_reports_output() {
    let mut world = World::new();
    world.host.conduct("bad").refused = true;
    world.want(&row("bad"), SECOND);
    assert_eq!(world.supervisor.standing(), Standing::Own);
    let said = world.faults("bad")[0].to_string();
    assert!(said.starts_with("failed to load: exit status: 1"), "{said}");
    assert!(said.contains("words of bad"), "{said}");
    // Others are not barred.
    world.want(&row("a"), SECOND);
    assert!(world.runs("a"));
}

#[test]
fn hanging_load_is_ended_at_the_limit() {
    let mut world = World::new();
    world.host.conduct("slow").loads_after = None;
    world.host.conduct("slow").deaf = true;
    let limits = Limits::default();
    world.want(&row("slow"), limits.start + limits.stop + SECOND);
    assert_eq!(world.faults("slow"), [&Fault::LateToLoad(limits.start)]);
    assert_eq!(world.supervisor.standing(), Standing::Own);
}

#[test]
fn scheduler_ignoring_stop_is_killed_and_replaced() {
    let mut world = World::new();
    world.host.conduct("deaf").deaf = true;
    world.want(&row("deaf"), SECOND);
    world.want(&row("a"), Limits::default().stop + SECOND);
    assert!(world.runs("a"));
    assert_eq!(world.faults("deaf"), [&Fault::IgnoredStop]);
}

#[test]
fn scheduler_detached_by_the_kernel_is_ended() {
    let mut world = World::new();
    let a = row("a");
    world.want(&a, SECOND);
    world.host.throw_out();
    world.want(&a, 2 * SECOND);
    assert_eq!(world.faults("a"), [&Fault::Detached]);
    assert_eq!(world.supervisor.standing(), Standing::Own);
}

#[test]
fn scheduler_may_reload_itself() {
    let mut world = World::new();
    let a = row("a");
    world.want(&a, SECOND);
    world.host.throw_out();
    world.want(&a, ms(500));
    world.host.load_again();
    world.want(&a, 5 * SECOND);
    assert!(world.runs("a"));
    assert!(world.faults("a").is_empty());
}

#[test]
fn starving_scheduler_is_killed_at_once() {
    let mut world = World::new();
    world.host.conduct("stalls").starves = true;
    world.host.conduct("stalls").deaf = true;
    let limit = Limits::default().starved;
    world.want(&row("stalls"), limit + SECOND);
    assert!(matches!(world.faults("stalls")[..], [Fault::Starves(wait)] if *wait >= limit));
    assert_eq!(world.supervisor.standing(), Standing::Own);
}

#[test]
fn foreign_scheduler_is_left_alone_until_it_detaches() {
    let mut world = World::new();
    let a = row("a");
    world.host.load_foreign("theirs");
    world.want(&a, 10 * SECOND);
    assert_eq!(
        world.supervisor.standing(),
        Standing::Aside("theirs_1.0".into())
    );
    assert!(world.host.spawned.is_empty());
    world.host.throw_out();
    world.want(&a, SECOND);
    assert!(world.runs("a"));
    assert_eq!(world.events[0], Event::Aside("theirs_1.0".into()));
    assert_eq!(world.events[1], Event::Resumed);
}

#[test]
fn foreign_scheduler_attached_first_is_no_fault() {
    let mut world = World::new();
    let a = row("a");
    world.want(&a, ms(50));
    world.host.load_foreign("theirs");
    world.want(&a, SECOND);
    assert!(matches!(world.supervisor.standing(), Standing::Aside(_)));
    assert!(world.faults("a").is_empty());
    let started = |event: &Event| matches!(event, Event::Started(..));
    assert!(!world.events.iter().any(started), "theirs is not ours");
}

#[test]
fn without_sched_ext_nothing_is_started() {
    let mut world = World::new();
    world.host.unsupported = true;
    world.want(&row("a"), SECOND);
    assert!(world.host.spawned.is_empty());
    let said = world.faults("a")[0].to_string();
    assert!(said.contains("no sched_ext"), "{said}");
}

#[test]
fn leaving_restores_the_kernel_default() {
    let mut world = World::new();
    world.host.conduct("deaf").deaf = true;
    for name in ["a", "deaf"] {
        for wanted_for in [ms(50), SECOND] {
            world.want(&row(name), wanted_for);
            assert!(world.supervisor.leave(&mut world.host));
            assert_eq!(world.host.state(), State::Disabled);
            assert_eq!(world.host.child(), Child::None);
            let bar = Limits::default().back_off_max;
            world.want(&Scheduler::eevdf(), bar);
        }
    }
}

/// What can happen between two looks.
#[derive(Clone, Copy, Debug)]
enum Mishap {
    None,
    Killed,
    ThrownOut,
    Deaf,
    Refused,
    Starves,
    Foreign,
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// A hundred swaps with mishaps in between: the made-up kernel sees to it
    /// that there are never two, and once the mishaps end the wanted scheduler
    /// comes into force.
    #[test]
    fn random_faults_never_run_two_and_converge_to_the_wanted_one(
        script in prop::collection::vec(
            (0..4usize, prop::sample::select(vec![
                Mishap::None, Mishap::None, Mishap::None, Mishap::Killed,
                Mishap::ThrownOut, Mishap::Deaf, Mishap::Refused,
                Mishap::Starves, Mishap::Foreign,
            ]), 1..3000u64),
            100,
        ),
    ) {
        let names = ["a", "b", "c"];
        let mut world = World::new();
        for (wanted, mishap, duration) in script {
            let name = names.get(wanted).copied();
            let scheduler = name.map_or_else(Scheduler::eevdf, row);
            if let Some(name) = name {
                let conduct = world.host.conduct(name);
                conduct.deaf = matches!(mishap, Mishap::Deaf);
                conduct.refused = matches!(mishap, Mishap::Refused);
                conduct.starves = matches!(mishap, Mishap::Starves);
            }
            world.want(&scheduler, ms(duration));
            let state = world.host.state();
            match (mishap, &state) {
                (Mishap::Killed, _) => world.host.kill_process(),
                (Mishap::ThrownOut, State::Enabled(_)) => world.host.throw_out(),
                (Mishap::Foreign, State::Disabled) => {
                    world.host.load_foreign("theirs");
                    world.want(&scheduler, ms(300));
                    if matches!(world.supervisor.standing(), Standing::Aside(_)) {
                        world.host.throw_out();
                    }
                }
                _ => {}
            }
            world.supervisor.step(&scheduler, &mut world.host);
            // What is told is what the kernel has.
            if let Standing::Running(name) = world.supervisor.standing() {
                let state = world.host.state();
                prop_assert_eq!(state, State::Enabled(format!("{name}_1.0")));
            }
        }
        // A scheduler of theirs may have been left.
        if matches!(world.host.state(), State::Enabled(ops) if ops.starts_with("theirs")) {
            world.host.throw_out();
        }
        *world.host.conduct("a") = Default::default();
        let limits = Limits::default();
        world.want(&row("a"), limits.back_off_max + 2 * limits.start);
        prop_assert!(world.runs("a"));
    }
}

/// The fault after this one, so that none is left out.
fn after(fault: &Fault) -> Option<Fault> {
    let why = || "…".to_owned();
    match fault {
        Fault::CannotRun(_) => Some(Fault::FailedToLoad(why())),
        Fault::FailedToLoad(_) => Some(Fault::LateToLoad(Duration::ZERO)),
        Fault::LateToLoad(_) => Some(Fault::Exited(why())),
        Fault::Exited(_) => Some(Fault::Detached),
        Fault::Detached => Some(Fault::Starves(Duration::ZERO)),
        Fault::Starves(_) => Some(Fault::IgnoredStop),
        Fault::IgnoredStop => None,
    }
}

#[test]
fn page_lists_each_message_of_the_daemon_and_no_other() {
    let name = || "…".to_owned();
    let first = Fault::CannotRun(name());
    let faults = std::iter::successors(Some(first), after);
    let events = faults.map(|fault| Event::Failed(name(), fault, Duration::ZERO));
    let events = events.chain([
        Event::Started(name(), Duration::ZERO),
        Event::Stopped(name(), Duration::ZERO),
        Event::Aside(name()),
        Event::Resumed,
    ]);
    let said = events.map(|event| event.to_string().replace("0.0ns", "…").replace("0ns", "…"));
    let said: Vec<String> = said.collect();
    let page = include_str!("../../../../docs/operate/metascheduler.md");
    let (_, section) = page.split_once("\n### Messages\n").expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: Vec<&str> = rows.map(|row| row.split("` |").next().unwrap()).collect();
    for message in &said {
        assert!(listed.contains(&message.as_str()), "not listed: {message}");
    }
    let daemon = include_str!("../daemon.rs");
    for message in listed {
        let literal = format!("\"{}", message.trim_end_matches('…'));
        let is_said = said.iter().any(|one| one == message) || daemon.contains(&literal);
        assert!(is_said, "said nowhere: {message}");
    }
}
