//! One worker: its queues, its statistics, and what its contexts run.
//!
//! Every task runs in the context of its level. So a task is preempted by more
//! urgent ones only:
//!
//! ```text
//!   level 2   queue ───▶ context 2:  serve()      runs until the queue is empty,
//!   level 1   queue ───▶ context 1:  serve()      or background work is starved
//!   level 0   queue ───▶ backlog ──▶ context 0:  run()
//!                                       │
//!        preempted, or at its boundaries, goes up to a level that has work
//! ```
//!
//! Code of the pool runs inside regions, tasks outside. So a context is never
//! preempted with its books half written, and what the contexts of a worker
//! share needs no locks. Whatever is a submitter's may panic: the closure, the drop of
//! closure or result, the waker. All of it is caught where it is called ([`contain`]),
//! since a worker that ended would leave its queues to nobody.
//!
//! Invariants:
//!
//! - **P1** The queue of a level is taken from by the context of that level alone.
//!   (Asserted in both `next`.)
//! - **P2** A context that leaves its level has taken it out of `serving` first,
//!   and looked at its queue after that. So a push is either found by the context,
//!   or finds the context missing from `serving`. (Asserted in `Serving::end`: it
//!   was there. The order: the model
//!   `a_context_that_is_serving_finds_what_was_pushed`.)
//! - **P3** The account of a background task is open from when it is first in
//!   line, or starts, until it has ended. (Asserted in `run_task`.) The worker is up
//!   from when a context above the base looks for work until no such context is
//!   left. (Asserted in `Base::next`.)

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::backlog::Backlog;
use crate::clock;
use crate::context::{count_panic, current_level, task_boundary, yield_to};
use crate::level::Level;
use crate::lowering::Standing;
use crate::pool::Occupation;
use crate::pool::common::{Common, Stop};
use crate::pool::unrun::Unrun;
use crate::presence::{Parking, Patience, Serving};
use crate::queue::{Consumer, Queue};
use crate::region::{acknowledge, close_all, region};
use crate::starvation::{Since, Starvation};
use crate::stats::Books;
use crate::task::{Task, contain};
use crate::yield_points;
use giveway_tier::Weight;

/// A task in a queue.
pub(crate) struct Entry {
    pub(crate) task: Arc<dyn Task>,
    pub(crate) weight: Weight,
    /// When it came, ns.
    pub(crate) arrival: u64,
}

/// What the contexts of a worker share with each other and with submitters.
pub(crate) struct Station {
    pub(crate) common: Arc<Common>,
    /// One for each level.
    pub(crate) queues: Box<[Arc<Queue<Entry>>]>,
    pub(crate) books: Box<[Books]>,
    pub(crate) parking: Parking,
    pub(crate) serving: Serving,
    pub(crate) starvation: Starvation,
    pub(crate) standing: Standing,
    /// One for each level.
    pub(crate) occupations: Box<[Occupation]>,
}

impl Station {
    /// How many records, and handcrafted yield points, a context passes before
    /// it looks up.
    pub(crate) fn intervals(&self) -> (Option<NonZeroU32>, Option<NonZeroU32>) {
        self.common.intervals()
    }

    fn queue(&self, level: Level) -> &Queue<Entry> {
        &self.queues[level.index()]
    }

    /// The most urgent level above this one that has work.
    fn highest_ready(&self, above: Level) -> Option<Level> {
        let levels = above.index() + 1..self.queues.len();
        let ready = levels.rev().find(|&index| self.queues[index].is_ready());
        ready.map(|index| Level::new(index as u8))
    }

    /// Whether background work has waited too long.
    fn is_starved(&self, now: u64) -> bool {
        self.starvation.exceeds(self.common.threshold(), now)
    }

    /// Opens the account of a background task that has just been seen waiting.
    fn see_background(&self, waits: bool, now: u64) {
        if waits && self.common.since() == Since::FirstInLine && !self.starvation.is_open() {
            self.starvation.open(now);
        }
    }

    /// Goes up for the work of higher levels, if there is some and it may run: at
    /// a yield point, or between two tasks above the base. Outside of regions.
    pub(crate) fn look_up(&self, from: Level) {
        if from == Level::BASE && !self.common.threshold().allows_preemption() {
            return;
        }
        if let Some(level) = self.highest_ready(from)
            && !self.is_starved(clock::now())
        {
            yield_to(level);
        }
    }

    /// Runs a task in the context of its level, keeps the books, and drops it. Returns
    /// how long a background task took by itself, without what preempted it, ns.
    fn run_task(&self, entry: Entry, level: Level) -> u64 {
        let own_ns = self.run_entry(&entry, level);
        // The last to know the task, or its result, if its ticket is gone.
        if contain(|| drop(entry)) {
            count_panic();
        }
        // What it has left open, if it has forgotten a region: it has ended.
        close_all();
        own_ns
    }

    fn run_entry(&self, entry: &Entry, level: Level) -> u64 {
        let books = &self.books[level.index()];
        let base = level == Level::BASE;
        let (started, higher_before) = {
            let _region = region();
            let now = clock::now();
            if !entry.task.begin() {
                books.cancelled.add_alone(1);
                if base && self.starvation.is_open() {
                    self.starvation.close(now);
                }
                return 0;
            }
            if base && !self.starvation.is_open() {
                self.starvation.open(now);
            }
            books.queue_delay.record(now.saturating_sub(entry.arrival));
            self.occupations[level.index()].begin(entry.task.name(), now);
            (now, self.starvation.in_line(now).higher_ns)
        };
        let ended = entry.task.run();
        close_all();
        let _region = region();
        let now = clock::now();
        let run_ns = now - started;
        self.occupations[level.index()].end();
        if base {
            debug_assert!(self.starvation.is_open(), "P3");
            self.starvation.close(now);
        }
        books.close(ended, run_ns, now.saturating_sub(entry.arrival));
        // The waker is foreign code.
        if contain(|| entry.task.finish()) {
            count_panic();
        }
        let higher_ns = self.starvation.in_line(now).higher_ns - higher_before;
        run_ns.saturating_sub(higher_ns)
    }

    /// Keeps a task that will not run for whoever shuts the pool down.
    fn return_task(&self, entry: Entry, level: Level) {
        self.common.unrun.lock().push(Unrun::new(entry, level));
    }
}

/// What a context above the base runs.
pub(crate) struct Server {
    station: Arc<Station>,
    queue: Consumer<Entry>,
}

impl Server {
    pub(crate) fn new(station: Arc<Station>, queue: Consumer<Entry>) -> Server {
        Server { station, queue }
    }

    /// Runs what the level's queue has, until there is no more, or background
    /// work has waited too long.
    pub(crate) fn serve(&mut self, level: Level) {
        // SAFETY: the context has the station as long as it has this body, and
        // passes yield points inside of it only (Y1).
        unsafe { yield_points::attach(&self.station) };
        while let Some(entry) = self.next(level) {
            self.station.run_task(entry, level);
            task_boundary();
            self.station.look_up(level);
        }
    }

    /// The next task, or nothing: then the context leaves its level.
    fn next(&mut self, level: Level) -> Option<Entry> {
        let _region = region();
        debug_assert_eq!(current_level(), Some(level), "P1");
        let station = &*self.station;
        station.serving.begin(level);
        acknowledge();
        let now = clock::now();
        station.standing.urgent(now);
        station.starvation.go_up(now);
        station.see_background(station.queue(Level::BASE).is_ready(), now);
        if station.common.stop() == Stop::Return {
            self.return_all(level);
        }
        loop {
            // After each task of this level (Section 5): the rest waits.
            let starved = self.station.is_starved(now);
            if !starved && let Some(entry) = self.queue.take() {
                self.queue.free();
                return Some(entry);
            }
            self.station.serving.end(level);
            // P2: the look after taking oneself out.
            let ready = self.station.queue(level).is_ready();
            if starved || !ready {
                // Somebody has to come back for what is put off.
                if ready && let Some(alarm) = &self.station.common.alarm {
                    alarm.ring();
                }
                if self.station.serving.is_empty() {
                    self.station.starvation.come_down(now);
                }
                return None;
            }
            self.station.serving.begin(level);
        }
    }

    fn return_all(&mut self, level: Level) {
        while let Some(entry) = self.queue.take() {
            self.queue.free();
            self.station.return_task(entry, level);
        }
    }
}

/// What the base of a worker runs.
pub(crate) struct Base {
    station: Arc<Station>,
    queue: Consumer<Entry>,
    backlog: Backlog<Entry>,
}

/// What the base does next.
enum Next {
    /// Go up for the work of this level.
    Up(Level),
    /// Run this task.
    Run(Entry),
    /// Nothing is to be done.
    Idle,
    /// Nothing is to be done any more.
    Stop,
}

impl Base {
    pub(crate) fn new(station: Arc<Station>, queue: Consumer<Entry>) -> Base {
        Base {
            station,
            queue,
            backlog: Backlog::new(),
        }
    }

    /// Works until the pool stops.
    pub(crate) fn work(&mut self) {
        // SAFETY: `self` has the station until after the detaching below (Y1).
        unsafe { yield_points::attach(&self.station) };
        loop {
            match self.next() {
                Next::Up(level) => {
                    yield_to(level);
                }
                Next::Run(entry) => {
                    let weight = entry.weight;
                    let own_ns = self.station.run_task(entry, Level::BASE);
                    let _region = region();
                    self.backlog.charge(weight, own_ns);
                }
                Next::Idle => self.idle(),
                Next::Stop => break,
            }
            task_boundary();
        }
        yield_points::detach();
    }

    fn next(&mut self) -> Next {
        let _region = region();
        let station = &*self.station;
        debug_assert_eq!(current_level(), Some(Level::BASE), "P1");
        debug_assert!(
            !station.serving.is_empty() || !station.starvation.is_up(),
            "P3"
        );
        while let Some(entry) = self.queue.take() {
            self.backlog.put(entry.weight, entry);
        }
        let stop = station.common.stop();
        if stop == Stop::Return {
            return self.return_all();
        }
        let now = clock::now();
        let waits = !self.backlog.is_empty();
        station.see_background(waits, now);
        // Higher queues are emptied first (Section 6.1), unless background work
        // has waited too long.
        if !(waits && station.is_starved(now))
            && let Some(level) = station.highest_ready(Level::BASE)
        {
            return Next::Up(level);
        }
        if let Some((_, entry)) = self.backlog.take() {
            self.queue.free();
            let urgent = || station.highest_ready(Level::BASE).is_some();
            station.standing.background(entry.weight, now, urgent);
            return Next::Run(entry);
        }
        let exhausted = || station.queues.iter().all(|queue| queue.is_exhausted());
        if stop == Stop::Drain && exhausted() {
            return Next::Stop;
        }
        Next::Idle
    }

    /// Returns the tasks of this level, then lets the other levels do so.
    fn return_all(&mut self) -> Next {
        while let Some((_, entry)) = self.backlog.take() {
            self.queue.free();
            self.station.return_task(entry, Level::BASE);
        }
        match self.station.highest_ready(Level::BASE) {
            Some(level) => Next::Up(level),
            None if self.station.queues.iter().all(|queue| queue.is_exhausted()) => Next::Stop,
            None => Next::Idle,
        }
    }

    /// Waits for work, inside a region: what is found is chosen by
    /// [`next`](Self::next) as if the worker had been at a task boundary.
    fn idle(&self) {
        let _region = region();
        let station = &*self.station;
        let mut patience = Patience::new(station.common.spin());
        station.parking.idle(
            || {
                station.queues.iter().any(|queue| queue.is_ready())
                    || station.common.stop() != Stop::No
            },
            || patience.lasts(),
        );
    }
}
