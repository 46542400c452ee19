//! Whole pools under shuttle: more groups than slots, by two threads, on 3 or 4
//! workers, with cancels and panics, in random and repeatable orders.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test --release -p giveway-tasks --lib shuttle_tests
//! ```
//!
//! `models` is exhaustive, with weak memory, and has two workers and one slot or
//! two. These runs have sequentially consistent memory and add several coordinators
//! of several slots, a wait queue, threads that sleep, and cancels at any time. A
//! failure prints a schedule that replays it. All rules are asserted here:
//!
//! R1. A group's end is reported once, and is right: Cancelled if and only if one
//!     cancel of it returned true, else the panic of one of its pipelines, or
//!     success. (`Asked::check`)
//! R2. Each unit of a group that succeeded is run once, and each pipeline is
//!     finalized once, alone, and before its successor is begun. No unit of any
//!     group is run twice. (`Record::enter`, `Stage::finalize`, `Asked::check`)
//! R3. Nothing of a group is run after its end. (`Record::enter`, `Record::leave`)
//! R4. In the end all slots are free, no group waits, and the threads have ended. A
//!     thread that never wakes up is a deadlock, which shuttle reports.
//!     (`Scenario::run`)

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::atomic::{AtomicU32 as LooseU32, AtomicU64 as LooseU64, AtomicUsize as LooseUsize};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use giveway_tier::{Tier, Weight};
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};

use crate::attained::Attained;
use crate::clock::{Clock, VirtualClock};
use crate::decay::Decay;
use crate::error::QueryError;
use crate::group::{QueryId, Report, Ticket};
use crate::morsel::Targets;
use crate::pipeline::{Failure, Morsel, Pipeline, Step};
use crate::policy::Policy;
use crate::pool::{Pool, Shutdown};
use crate::query::Query;
use crate::shared::Settings;
use crate::sync::{AtomicU32, SeqCst, thread};

const TASK_NS: u64 = 1000;
const UNIT_NS: u64 = 250;
/// Units of a pipeline at most: some tasks more than the first morsel.
const UNITS_MAX: u64 = 40;
const MESSAGE: &str = "a bad operator";

/// Where a pipeline panics.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Units,
    Unit(u64),
    Finalize,
}

/// What has been done of a group, kept by its own pipelines.
struct Record {
    /// How often each unit of each pipeline was run.
    units: Vec<Vec<LooseU32>>,
    panics: bool,
    /// Threads in the group's code. Shuttle sees it, so others run meanwhile.
    inside: AtomicU32,
    /// Pipelines that were finalized.
    finalized: LooseUsize,
    /// How often the group's end was reported.
    reported: LooseU32,
    /// The first broken rule: a panic would only end the group.
    broken: OnceLock<&'static str>,
}

impl Record {
    fn demand(&self, kept: bool, rule: &'static str) {
        if !kept {
            let _ = self.broken.set(rule);
        }
    }

    /// A thread begins with something of a pipeline. Says how many were there.
    fn enter(&self, pipeline: usize) -> u32 {
        let is_pending = self.reported.load(SeqCst) == 0;
        self.demand(is_pending, "R3: touched after its end");
        let is_current = self.finalized.load(SeqCst) == pipeline;
        self.demand(is_current, "R2: a pipeline is not run in its turn");
        self.inside.fetch_add(1, SeqCst)
    }

    fn leave(&self) -> u32 {
        let left = self.inside.fetch_sub(1, SeqCst) - 1;
        let is_pending = self.reported.load(SeqCst) == 0;
        self.demand(is_pending, "R3: a thread was inside at its end");
        left
    }

    fn all_units(&self, holds: impl Fn(u32) -> bool) -> bool {
        let mut runs = self.units.iter().flatten();
        runs.all(|runs| holds(runs.load(SeqCst)))
    }
}

impl Wake for Record {
    fn wake(self: Arc<Self>) {
        self.reported.fetch_add(1, SeqCst);
    }
}

struct Stage {
    record: Arc<Record>,
    index: usize,
    is_divisible: bool,
    lanes: usize,
    panics: Option<Place>,
    /// Steps that were begun.
    begun: LooseU64,
    clock: Arc<VirtualClock>,
}

impl Stage {
    fn len(&self) -> u64 {
        self.record.units[self.index].len() as u64
    }

    /// Panics if this is the place. Without the panic hook, in which shuttle would
    /// print the schedule; and outside of the record, whose `inside` must not be
    /// changed by a thread that unwinds.
    fn perhaps_panic(&self, place: Place) {
        if self.panics == Some(place) {
            resume_unwind(Box::new(MESSAGE));
        }
    }
}

impl Pipeline for Stage {
    fn units(&self) -> Option<u64> {
        self.record.enter(self.index);
        self.record.leave();
        self.perhaps_panic(Place::Units);
        self.is_divisible.then(|| self.len())
    }

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn run(&self, morsel: &Morsel<'_>) -> Result<Step, Failure> {
        let range = match self.is_divisible {
            true => morsel.range(),
            false => {
                let step = self.begun.fetch_add(1, SeqCst);
                step..(step + 1).min(self.len()).max(step)
            }
        };
        let is_over = range.is_empty();
        self.record.enter(self.index);
        self.clock.advance((range.end - range.start) * UNIT_NS);
        for unit in range.clone() {
            self.record.units[self.index][unit as usize].fetch_add(1, SeqCst);
        }
        self.record.leave();
        range.for_each(|unit| self.perhaps_panic(Place::Unit(unit)));
        match is_over {
            true => Ok(Step::Exhausted),
            false => Ok(Step::More),
        }
    }

    fn finalize(&self) -> Result<(), Failure> {
        let record = &*self.record;
        let before = record.enter(self.index);
        let after = record.leave();
        record.demand((before, after) == (0, 0), "R2: not finalized alone");
        let mut runs = record.units[self.index].iter();
        let is_done = runs.all(|runs| runs.load(SeqCst) == 1);
        record.demand(is_done, "R2: finalized before all units were run");
        self.perhaps_panic(Place::Finalize);
        record.finalized.fetch_add(1, SeqCst);
        Ok(())
    }
}

/// A query of up to three pipelines, one of eight of which panics.
fn query(clock: &Arc<VirtualClock>, random: &mut impl Rng) -> (Query, Arc<Record>) {
    let lengths: Vec<u64> = (0..random.gen_range(0..4))
        .map(|_| random.gen_range(0..=UNITS_MAX))
        .collect();
    let mut panics: Vec<Option<Place>> = (lengths.iter())
        .map(|&length| match random.gen_range(0..24) {
            0 => Some(Place::Units),
            1 => Some(Place::Finalize),
            2 if length > 0 => Some(Place::Unit(random.gen_range(0..length))),
            _ => None,
        })
        .collect();
    let units = |&length: &u64| (0..length).map(|_| LooseU32::new(0)).collect();
    let record = Arc::new(Record {
        units: lengths.iter().map(units).collect(),
        panics: panics.iter().any(Option::is_some),
        inside: AtomicU32::new(0),
        finalized: LooseUsize::new(0),
        reported: LooseU32::new(0),
        broken: OnceLock::new(),
    });
    let tier = Tier::ALL[random.gen_range(0..2)];
    let weight = Weight::try_from(random.gen_range(1..1000)).expect("in range");
    let mut query = Query::new("").tier(tier).weight(weight);
    for (index, panics) in panics.drain(..).enumerate() {
        query = query.pipeline(Stage {
            record: Arc::clone(&record),
            index,
            is_divisible: random.gen_range(0..3) > 0,
            lanes: [1, 2, usize::MAX][random.gen_range(0..3)],
            panics,
            begun: LooseU64::new(0),
            clock: Arc::clone(clock),
        });
    }
    (query, record)
}

type Outcome = Result<Report, QueryError>;

/// A group that was submitted.
struct Asked {
    id: QueryId,
    record: Arc<Record>,
    /// Until a thread has waited for it.
    ticket: Option<Ticket>,
    outcome: Option<Outcome>,
}

impl Asked {
    /// Submits a query, and has its end reported to its record.
    fn new(pool: &Pool, clock: &Arc<VirtualClock>, random: &mut impl Rng) -> Asked {
        let (query, record) = query(clock, random);
        let mut ticket = pool.submit(query).expect("any number may wait");
        let id = ticket.id();
        let waker = Waker::from(Arc::clone(&record));
        let outcome = match pin!(&mut ticket).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => {
                record.reported.fetch_add(1, SeqCst);
                Some(outcome)
            }
            Poll::Pending => None,
        };
        Asked {
            id,
            record,
            ticket: outcome.is_none().then_some(ticket),
            outcome,
        }
    }

    fn wait(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.outcome = Some(ticket.wait());
        }
    }

    /// R1 to R3, of a group of which so many cancels returned true.
    fn check(mut self, cancels: u32, how: Shutdown) {
        let is_done = self.ticket.as_ref().is_none_or(Ticket::is_done);
        assert!(is_done, "R1: {} never ended", self.id);
        self.wait();
        let record = &*self.record;
        assert_eq!(record.broken.get(), None, "{}", self.id);
        assert_eq!(record.reported.load(SeqCst), 1, "R1: reports");
        assert!(record.all_units(|runs| runs <= 1), "R2: a unit run twice");
        let outcome = self.outcome.expect("it was waited for");
        match &outcome {
            Ok(_) => {
                assert!(!record.panics, "R1: {} had panicked", self.id);
                assert!(record.all_units(|runs| runs == 1), "R2: a unit left out");
                let finalized = record.finalized.load(SeqCst);
                assert_eq!(finalized, record.units.len(), "R2: finalizations");
            }
            Err(QueryError::Panicked(text)) => {
                assert!(record.panics && text == MESSAGE, "R1: panicked: {text}");
            }
            Err(QueryError::Cancelled) => {}
            Err(QueryError::ShutDown) => assert_eq!(how, Shutdown::Cancel),
            Err(QueryError::Failed(failure)) => panic!("R1: failed: {failure}"),
        }
        let was_cancelled = matches!(outcome, Err(QueryError::Cancelled));
        assert_eq!(cancels, u32::from(was_cancelled), "R1: {outcome:?}");
    }
}

/// What a submitter has done.
struct Submitted {
    asked: Vec<Asked>,
    /// The cancels that returned true.
    cancelled: Vec<QueryId>,
    /// Whether a group waited for a slot after the last submission.
    had_queue: bool,
}

/// Submits so many groups; cancels and waits for some.
fn submit(pool: &Pool, clock: &Arc<VirtualClock>, groups: usize) -> Submitted {
    let mut random = shuttle::rand::thread_rng();
    let mut asked: Vec<Asked> = Vec::new();
    let mut cancelled = Vec::new();
    for _ in 0..groups {
        asked.push(Asked::new(pool, clock, &mut random));
        if random.gen_range(0..8) == 0 {
            let id = asked[random.gen_range(0..asked.len())].id;
            cancelled.extend(pool.cancel(id).then_some(id));
        }
    }
    let had_queue = pool.stats().waiting > 0;
    for _ in 0..groups / 8 {
        asked[random.gen_range(0..groups)].wait();
    }
    Submitted {
        asked,
        cancelled,
        had_queue,
    }
}

/// Workers, slots, and groups of each of two submitters.
#[derive(Clone, Copy)]
struct Scenario {
    workers: usize,
    slots: usize,
    groups: usize,
}

impl Scenario {
    fn settings(self, policy: Policy) -> Settings {
        Settings {
            policy,
            slots: self.slots,
            waiting: usize::MAX,
            targets: Targets {
                task_ns: TASK_NS,
                morsel_ns_min: TASK_NS / 4,
                workers: self.workers,
            },
            tracking_ns: 1,
            refresh_ns: 2,
        }
    }

    /// One run. Whether a group was seen to wait for a slot.
    fn run(self) -> bool {
        let mut random = shuttle::rand::thread_rng();
        let policies = [
            Policy::Fair,
            Policy::Fifo,
            Policy::Decay(Decay::INITIAL),
            Policy::LeastAttained(Attained::INITIAL),
            Policy::Lottery { seed: 1 },
        ];
        let policy = policies[random.gen_range(0..policies.len())];
        let clock = Arc::new(VirtualClock::default());
        let time = Arc::clone(&clock) as Arc<dyn Clock>;
        let pool = Pool::start(self.settings(policy), time, 1 << 20);
        let pool = Arc::new(pool.expect("threads"));
        let submitters: Vec<_> = (0..2)
            .map(|_| {
                let (pool, clock) = (Arc::clone(&pool), Arc::clone(&clock));
                thread::spawn(move || submit(&pool, &clock, self.groups))
            })
            .collect();
        // A third thread cancels groups of the others.
        let mut cancels: BTreeMap<QueryId, u32> = BTreeMap::new();
        for _ in 0..self.groups / 4 {
            let id = QueryId(random.gen_range(1..=2 * self.groups as u64));
            if pool.cancel(id) {
                *cancels.entry(id).or_default() += 1;
            }
        }
        let mut asked = Vec::new();
        let mut had_queue = false;
        for submitter in submitters {
            let submitted = submitter.join().expect("a submitter");
            asked.extend(submitted.asked);
            had_queue |= submitted.had_queue;
            for id in submitted.cancelled {
                *cancels.entry(id).or_default() += 1;
            }
        }
        let how = match random.gen_range(0..4) {
            0 => Shutdown::Cancel,
            _ => Shutdown::Drain,
        };
        let pool = Arc::into_inner(pool).expect("the submitters have left");
        // R4.
        let stats = pool.shutdown(how);
        assert_eq!((stats.running, stats.waiting), (0, 0), "R4: slots");
        for group in asked {
            let cancels = cancels.get(&group.id).copied().unwrap_or(0);
            group.check(cancels, how);
        }
        had_queue
    }

    /// As many runs as the scheduler has. In some of them, a group waits.
    fn check(self, scheduler: impl Scheduler + 'static) {
        let mut config = shuttle::Config::new();
        config.stack_size = 1 << 18;
        config.silence_warnings = true;
        config
            .ungraceful_shutdown_config
            .immediately_return_on_panic = true;
        let waited = Arc::new(LooseU32::new(0));
        let count = Arc::clone(&waited);
        let runs = shuttle::Runner::new(scheduler, config).run(move || {
            count.fetch_add(u32::from(self.run()), SeqCst);
        });
        let waited = waited.load(SeqCst);
        println!("{waited} of {runs} runs had a wait queue");
        assert!(waited > 0, "no run of {runs} had a wait queue");
    }
}

fn iterations(default: usize) -> usize {
    let wanted = std::env::var("SHUTTLE_ITERATIONS").ok();
    wanted.map_or(default, |wanted| wanted.parse().expect("a number"))
}

/// As many slots as a pool has by default.
#[test]
fn six_hundred_groups_share_all_slots() {
    let scenario = Scenario {
        workers: 3,
        slots: 128,
        groups: 300,
    };
    scenario.check(RandomScheduler::new(iterations(20)));
}

/// Most wait, and a slot goes from one to the next at once.
#[test]
fn two_hundred_groups_share_four_slots() {
    let scenario = Scenario {
        workers: 4,
        slots: 4,
        groups: 100,
    };
    scenario.check(RandomScheduler::new(iterations(20)));
}

/// Many runs of few groups.
#[test]
fn sixteen_groups_share_two_slots() {
    let scenario = Scenario {
        workers: 3,
        slots: 2,
        groups: 8,
    };
    scenario.check(RandomScheduler::new(iterations(400)));
}

/// Unlikely orders: a few threads are held back for long.
#[test]
fn pools_survive_adversarial_orders() {
    let scenario = Scenario {
        workers: 3,
        slots: 2,
        groups: 8,
    };
    scenario.check(PctScheduler::new(3, iterations(400)));
}
