//! A worker's loop: choose a slot, run a task, leave the set.
//!
//! ```text
//!  begin                                  execute        finish
//!  pull masks ─▶ choose ─▶ pin the slot ─▶ morsels until ─▶ charge, unpin;
//!      ▲                       │            t_max            if exhausted: close,
//!      └── closed, empty,  ◀───┘                             perhaps finalize
//!          exhausted, no lane
//! ```
//!
//! A worker is a value without a thread: a pool runs each on a thread, a
//! simulation runs all of them on one, with a clock that it sets. The three parts
//! are separate so that a simulation can have tasks of several workers unfinished.
//!
//! What a slot holds may have changed since the worker's masks were pulled. The
//! set that it has pinned names its group; if that is another one than the worker
//! knows, the worker takes it in as if it had pulled the change bit, and chooses
//! again: a group would otherwise run on the pass and the priority of the one
//! before it.

use std::ptr::NonNull;
use std::sync::Arc;

use giveway_tier::Tier;

use crate::kernel::ThreadTier;
use crate::local::{LocalScheduler, Seat};
use crate::morsel::{Division, Steps};
use crate::pipeline::{Morsel, Step};
use crate::shared::{Shared, guarded, settle};
use crate::slots::Last;
use crate::sync::{SeqCst, fence};
use crate::task_set::TaskSet;
use crate::tuning::Tracker;

pub(crate) struct Worker {
    shared: Arc<Shared>,
    me: usize,
    local: LocalScheduler,
    /// Of the first worker, if the policy is tuned.
    tracker: Option<Tracker>,
}

/// A task: a worker pinned to a set, until it is given to [`Worker::finish`].
#[must_use = "a set waits for those who are pinned to it"]
pub(crate) struct Running {
    slot: usize,
    set: NonNull<TaskSet>,
    ns: u64,
    morsels: u64,
    found_no_lane: bool,
}

impl Worker {
    pub(crate) fn new(shared: &Arc<Shared>, me: usize) -> Worker {
        let settings = &shared.settings;
        let seat = Seat {
            worker: me,
            workers: settings.targets.workers,
        };
        let quantum_ns = settings.targets.task_ns;
        Worker {
            shared: Arc::clone(shared),
            me,
            local: LocalScheduler::new(settings.policy, seat, settings.slots, quantum_ns),
            tracker: (me == 0).then(|| Tracker::new(settings)).flatten(),
        }
    }

    /// Works until the pool exits.
    pub(crate) fn work(&mut self) {
        let shared = Arc::clone(&self.shared);
        let post = shared.slots.post(self.me);
        let mut kernel = ThreadTier::attach();
        post.raise.set(kernel.remote());
        loop {
            while let Some(mut running) = self.begin() {
                self.say(&kernel, &running);
                self.execute(&mut running);
                self.finish(running);
            }
            if self.shared.is_exiting() {
                return;
            }
            self.shared.counters[self.me].slept();
            // What wakes it may be urgent.
            kernel.say(Tier::TimeSensitive);
            if kernel.refresh() {
                post.raise.set(kernel.remote());
            }
            post.parking
                .sleep(|| self.has_news() || self.shared.is_exiting());
        }
    }

    /// Tells the kernel whose task this is: K1 and K2 of `kernel`.
    fn say(&self, kernel: &ThreadTier, running: &Running) {
        if !kernel.is_attached() {
            return;
        }
        // SAFETY: as in `execute`.
        let tier = unsafe { running.set.as_ref() }.word.tier;
        kernel.say(tier);
        if tier == Tier::Background {
            fence(SeqCst);
            if self.has_news() {
                kernel.say(Tier::TimeSensitive);
            }
        }
    }

    /// Whether something has changed since the last decision.
    pub(crate) fn has_news(&self) -> bool {
        let post = self.shared.slots.post(self.me);
        !post.change.is_empty() || !post.back.is_empty()
    }

    /// Finds a task. `None` if this worker has nothing to do.
    pub(crate) fn begin(&mut self) -> Option<Running> {
        loop {
            self.pull();
            if let Some(order) = self.shared.order() {
                self.local.set_order(order);
            }
            let slot = self.local.choose()?;
            self.shared.counters[self.me].decided();
            let Some(pinned) = self.shared.slots.pin(self.me, slot) else {
                self.local.disable(slot);
                self.unpin(slot);
                continue;
            };
            // SAFETY: F5 of `slots`: pinned, and not unpinned before the last use.
            let set = unsafe { pinned.as_ref() };
            set.life.used();
            if set.word != self.local.word(slot) {
                self.admit(slot);
                self.unpin(slot);
            } else if set.is_exhausted() {
                self.close(slot, pinned);
            } else if self.enter(set) {
                return Some(Running {
                    slot,
                    set: pinned,
                    ns: 0,
                    morsels: 0,
                    found_no_lane: false,
                });
            } else {
                self.local.disable(slot);
                self.unpin(slot);
            }
        }
    }

    /// Runs the task.
    pub(crate) fn execute(&mut self, running: &mut Running) {
        // SAFETY: as in `begin`; `finish` unpins.
        let set = unsafe { running.set.as_ref() };
        set.life.used();
        let began = self.shared.clock.now_ns();
        match set.is_divisible() {
            true => self.divide(set, running, began),
            false => self.step(set, running, began),
        }
        running.ns = self.shared.clock.now_ns().saturating_sub(began);
    }

    fn divide(&self, set: &TaskSet, running: &mut Running, began: u64) {
        let targets = self.shared.settings.targets;
        let mut division = Division::new(targets, set.remaining(), &set.throughput);
        let mut before = began;
        while let Some(units) = division.next(set.remaining(), &set.throughput) {
            let range = set.carve(units);
            if range.is_empty() || set.tally.is_stopped() {
                return;
            }
            let units = range.end - range.start;
            if self.morsel(set, range, began).is_none() {
                return;
            }
            let now = self.shared.clock.now_ns();
            division.ran(units, now.saturating_sub(before), &set.throughput);
            before = now;
            running.morsels += 1;
        }
    }

    fn step(&self, set: &TaskSet, running: &mut Running, began: u64) {
        let mut steps = Steps::new(self.shared.settings.targets);
        let mut before = began;
        let mut is_registered = false;
        while steps.fits() && !set.tally.is_stopped() {
            match self.morsel(set, 0..0, began) {
                Some(Step::More) => is_registered = false,
                Some(Step::Exhausted) => {
                    set.spend();
                    return;
                }
                Some(Step::NoLane) if is_registered => {
                    running.found_no_lane = true;
                    return;
                }
                Some(Step::NoLane) => {
                    set.waker().register(self.me);
                    is_registered = true;
                    continue;
                }
                None => return,
            }
            let now = self.shared.clock.now_ns();
            steps.ran(now.saturating_sub(before));
            before = now;
            running.morsels += 1;
        }
    }

    /// `None` if the group has been stopped for what came of it.
    fn morsel(&self, set: &TaskSet, range: std::ops::Range<u64>, began: u64) -> Option<Step> {
        let morsel = Morsel {
            range,
            worker: self.me,
            deadline_ns: began + self.shared.settings.targets.task_ns,
            clock: &*self.shared.clock,
            is_stopped: &|| set.tally.is_stopped(),
            waker: set.waker(),
        };
        settle(&set.tally, guarded(|| set.pipeline.run(&morsel)))
    }

    /// The task is over.
    pub(crate) fn finish(&mut self, running: Running) {
        let Running { slot, ns, .. } = running;
        // SAFETY: as in `begin`; nothing uses the set after it is unpinned.
        let set = unsafe { running.set.as_ref() };
        if let Some(tracker) = &mut self.tracker {
            tracker.ran(set.word, self.local.received_ns(slot), ns);
        }
        self.local.charge(slot, ns);
        set.tally.add(ns, running.morsels);
        let task_ns = self.shared.settings.targets.task_ns;
        self.shared.counters[self.me].ran(ns, task_ns, running.morsels);
        set.leave();
        if running.found_no_lane {
            self.local.disable(slot);
        }
        match set.is_exhausted() {
            true => self.close(slot, running.set),
            false => self.unpin(slot),
        }
        if let Some(tracker) = &mut self.tracker {
            tracker.turn(&self.shared);
        }
    }

    /// Takes in what others have said (Figure 4).
    fn pull(&mut self) {
        let shared = Arc::clone(&self.shared);
        let post = shared.slots.post(self.me);
        post.change.pull(|slot| self.admit(slot));
        post.back.pull(|slot| self.local.resume(slot));
    }

    /// Takes in the group that a slot has now.
    fn admit(&mut self, slot: usize) {
        let word = (self.shared.slots.word(slot)).expect("a slot that was posted has a group");
        if word == self.local.word(slot) {
            // Taken in when a set of it was pinned before the bit was pulled.
            self.local.resume(slot);
            return;
        }
        self.local.admit(slot, word, 0);
        if let Some(tracker) = &mut self.tracker {
            tracker.came(word, &*self.shared.clock);
        }
    }

    /// Takes a lane of the set: steps 1 and 2 of `wake`.
    fn enter(&self, set: &TaskSet) -> bool {
        if set.enter() {
            return true;
        }
        set.waker().register(self.me);
        set.enter()
    }

    fn unpin(&mut self, slot: usize) {
        let last = self.shared.slots.unpin(self.me, slot);
        self.finalize(slot, last);
    }

    /// The pinned set is exhausted.
    fn close(&mut self, slot: usize, set: NonNull<TaskSet>) {
        self.local.disable(slot);
        // SAFETY: the worker is pinned to it.
        let last = unsafe { self.shared.slots.close(slot, set, Some(self.me)) };
        self.finalize(slot, last);
    }

    fn finalize(&mut self, slot: usize, last: Option<Last>) {
        if let Some(last) = last {
            self.shared.counters[self.me].finalized();
            let ns = self.shared.finalize(slot, last);
            if ns > 0 {
                self.local.charge(slot, ns);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::{Clock, VirtualClock};
    use crate::pipeline::{Failure, Pipeline};
    use crate::pool::Builder;
    use crate::query::Query;

    /// One unit, which takes a millisecond.
    struct Unit(Arc<VirtualClock>);

    impl Pipeline for Unit {
        fn units(&self) -> Option<u64> {
            Some(1)
        }

        fn run(&self, _: &Morsel<'_>) -> Result<Step, Failure> {
            self.0.advance(1_000_000);
            Ok(Step::More)
        }
    }

    /// The slot has another group, the worker has not heard of it, and is called
    /// back to the one before: it must not run the new one on the old one's account.
    #[test]
    fn an_unannounced_group_is_admitted() {
        let clock = Arc::new(VirtualClock::default());
        let settings = Builder::default().workers(1).slots(1).settings().unwrap();
        let shared = Shared::new(settings, Arc::clone(&clock) as Arc<dyn Clock>);
        let mut worker = Worker::new(&shared, 0);
        let query = || Query::new("").pipeline(Unit(Arc::clone(&clock)));
        shared.submit(query()).unwrap();
        let mut first = worker.begin().unwrap();
        worker.execute(&mut first);
        worker.finish(first);
        assert_eq!(worker.local.received_ns(0), 1_000_000);

        let second = shared.submit(query()).unwrap();
        // The change bit is still on its way.
        shared.slots.post(0).change.pull(|_| ());
        shared.call_back(0, 0);
        let running = worker.begin().unwrap();
        assert_eq!(worker.local.word(0), second.word);
        assert_eq!(worker.local.received_ns(0), 0);
        // Then it comes, and changes nothing.
        worker.finish(running);
        let received_ns = worker.local.received_ns(0);
        shared.slots.post(0).change.push(0);
        let running = worker.begin().unwrap();
        assert_eq!(worker.local.received_ns(0), received_ns);
        worker.finish(running);
    }
}
