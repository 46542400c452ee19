//! What the workers of a pool share, and how groups come and go.
//!
//! ```text
//!  submit ──▶ free slot? ──yes──▶ activate set 0 ──▶ open the slot,
//!                │no                  ▲              change bits
//!                ▼                    │
//!           wait queue ───────────────┤ next group
//!                                     │
//!           finalize set i ───────────┴─▶ activate set i+1 ─▶ open the slot,
//!                                                             return bits
//! ```
//!
//! Decisions take no lock. Admission does, once per group and once per task set:
//! the wait queue is global in the paper, too, and a lock held for some hundred
//! nanoseconds at each query's beginning and end is not where time goes.
//!
//! A1. A slot has one owner: the thread that took it from `free` or finalized its
//!     last set, until its next set is opened or it is put back.
//!     (asserted in `occupy` and `succeed`)
//! A2. `running[slot]` is set before anything of the group is in the slot, and
//!     cleared after the slot has been emptied: it keeps the group alive.
//!     (asserted in `finalize`)
//! A3. No group waits while there is a slot for it: a slot is put back, and a group
//!     put into the queue, under one lock, each after a look at the other.
//!     (asserted in `Admission::check`)
//! A4. *Stopping.* The thread that stops a group sets its flag, *fences*, and closes
//!     the slot if one of the group's sets is open there. The thread that opens a
//!     slot does so, *fences*, and looks at the flag. So a group that is stopped
//!     while it goes from one set to the next is closed by one of the two, also if
//!     every worker is busy with more urgent groups.
//!     (not asserted: each thread sees its own half; `models` has both)
//! A5. *Tiers.* Background groups have three quarters of the slots at most, and a
//!     slot that becomes free goes to a time-sensitive group that waits before it
//!     goes to a background one; within a tier, by weight (`line`). A group may keep its slot for as long as its client
//!     likes, so without the reserve a slot would never become free.
//!     (asserted in `Admission::check` and `succeed`)

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64 as LooseU64;
use std::sync::{Arc, Weak};

use crossbeam_utils::CachePadded;
use giveway_tier::Tier;

use crate::clock::Clock;
use crate::error::{QueryError, Why};
use crate::group::{Group, QueryId, QueryView, Tally};
use crate::line::Line;
use crate::mask::Mask;
use crate::morsel::Targets;
use crate::order::Order;
use crate::pipeline::Failure;
use crate::policy::Policy;
use crate::query::{Query, Refused};
use crate::slots::{Last, Post, Slots};
use crate::stats::Counters;
use crate::sync::{
    Acquire, AtomicBool, Condvar, Mutex, Relaxed, Release, SeqCst, fence, lock, wait,
};
use crate::task_set::TaskSet;
use crate::wake::LaneWaker;

/// Of so many slots one is kept for time-sensitive groups: A5.
const SLOTS_PER_RESERVED: usize = 4;

/// What does not change while a pool runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) policy: Policy,
    pub(crate) slots: usize,
    /// How many groups of a tier may wait for a slot.
    pub(crate) waiting: usize,
    pub(crate) targets: Targets,
    /// t_t and t_r, ns.
    pub(crate) tracking_ns: u64,
    pub(crate) refresh_ns: u64,
}

pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) slots: Slots,
    pub(crate) counters: Box<[CachePadded<Counters>]>,
    /// By what groups are ordered, packed; 0 with policies that have no order.
    order: LooseU64,
    /// How often it has been tuned.
    pub(crate) tunings: LooseU64,
    /// How long that took.
    pub(crate) tuning_ns: LooseU64,
    admission: Mutex<Admission>,
    /// No group runs or waits.
    drained: Condvar,
    exiting: AtomicBool,
    this: Weak<Shared>,
}

struct Admission {
    free: Mask,
    running: Box<[Option<Arc<Group>>]>,
    /// How many of those that run are in the background, and how many may be: A5.
    background: usize,
    background_max: usize,
    /// By the tier's number.
    waiting: [Line<Arc<Group>>; Tier::ALL.len()],
    last_id: u64,
    is_closed: bool,
}

impl Admission {
    fn queue(&mut self, tier: Tier) -> &mut Line<Arc<Group>> {
        &mut self.waiting[tier as usize]
    }

    /// A slot for a group of this tier, if there is one: A5.
    fn slot(&mut self, tier: Tier) -> Option<usize> {
        match self.has_room(tier) {
            true => self.free.take_first(),
            false => None,
        }
    }

    fn has_room(&self, tier: Tier) -> bool {
        tier == Tier::TimeSensitive || self.background < self.background_max
    }

    /// The group that goes next: A5.
    fn next(&mut self) -> Option<Arc<Group>> {
        let tier = (Tier::ALL.into_iter())
            .find(|&tier| self.has_room(tier) && !self.waiting[tier as usize].is_empty())?;
        self.queue(tier).pop()
    }

    /// Gives a slot to a group, or to none; returns the group that had it.
    fn occupy(&mut self, slot: usize, group: Option<Arc<Group>>) -> Option<Arc<Group>> {
        let count = |group: &Option<Arc<Group>>| {
            let is_background = |group: &Arc<Group>| group.word.tier == Tier::Background;
            usize::from(group.as_ref().is_some_and(is_background))
        };
        debug_assert!(
            group.is_none() || self.running[slot].is_none(),
            "A1: a slot is given to two groups"
        );
        self.background += count(&group);
        let before = std::mem::replace(&mut self.running[slot], group);
        self.background -= count(&before);
        before
    }

    /// A3 and A5, before the lock is released.
    fn check(&self) {
        debug_assert!(
            self.background <= self.background_max,
            "A5: background groups have reserved slots"
        );
        debug_assert!(
            self.free.is_empty()
                || (Tier::ALL.into_iter())
                    .all(|tier| !self.has_room(tier) || self.waiting[tier as usize].is_empty()),
            "A3: a group waits while there is a slot for it"
        );
    }
}

/// What a caller's code came to: its answer, or the reason to stop the group.
pub(crate) fn guarded<R>(code: impl FnOnce() -> Result<R, Failure>) -> Result<R, QueryError> {
    // Whatever state a panic leaves behind is the stopped group's alone.
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(failure)) => Err(QueryError::Failed(failure)),
        Err(payload) => {
            let text = (payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned()))
            .or_else(|| payload.downcast_ref::<String>().cloned());
            contained(|| drop(payload));
            Err(QueryError::Panicked(
                text.unwrap_or_else(|| "no message".to_owned()),
            ))
        }
    }
}

/// Runs a caller's code at which nobody waits for an answer: wakers, destructors. A
/// panic of it has been reported by the panic hook, and is nothing to a worker, which
/// has the slot's next group to open.
pub(crate) fn contained(code: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(code)) {
        // Its destructor is a caller's, too.
        std::mem::forget(payload);
    }
}

/// Gives up a reference to a group, perhaps the last: its pipelines then end here.
fn let_go(group: Arc<Group>) {
    contained(|| drop(group));
}

impl Shared {
    pub(crate) fn new(settings: Settings, clock: Arc<dyn Clock>) -> Arc<Shared> {
        let Settings { slots, targets, .. } = settings;
        let mut free = Mask::new(slots);
        (0..slots).for_each(|slot| free.insert(slot));
        Arc::new_cyclic(|this| Shared {
            settings,
            clock,
            slots: Slots::new(targets.workers, slots),
            counters: (0..targets.workers)
                .map(|_| CachePadded::default())
                .collect(),
            order: LooseU64::new(settings.policy.order().map_or(0, Order::pack)),
            tunings: LooseU64::new(0),
            tuning_ns: LooseU64::new(0),
            admission: Mutex::new(Admission {
                free,
                running: (0..slots).map(|_| None).collect(),
                background: 0,
                background_max: slots - slots / SLOTS_PER_RESERVED,
                waiting: Default::default(),
                last_id: 0,
                is_closed: false,
            }),
            drained: Condvar::new(),
            exiting: AtomicBool::new(false),
            this: Weak::clone(this),
        })
    }

    pub(crate) fn weak(&self) -> Weak<Shared> {
        Weak::clone(&self.this)
    }

    /// By what groups are ordered, with a policy that has an order.
    pub(crate) fn order(&self) -> Option<Order> {
        let word = self.order.load(Relaxed);
        (self.settings.policy.order()).map(|_| Order::unpack(word))
    }

    /// Sets another order, which workers read with every decision.
    pub(crate) fn set_order(&self, order: Order) {
        self.order.store(order.pack(), Relaxed);
    }

    /// Takes a query in, or gives it back.
    pub(crate) fn submit(&self, query: Query) -> Result<Arc<Group>, Refused> {
        let now = self.clock.now_ns();
        let mut admission = lock(&self.admission);
        if admission.is_closed {
            let why = Why::ShuttingDown;
            return Err(Refused { query, why });
        }
        let tier = query.tier;
        let slot = admission.slot(tier);
        let waiting = admission.queue(tier).len();
        if slot.is_none() && waiting >= self.settings.waiting {
            let why = Why::Full(waiting);
            return Err(Refused { query, why });
        }
        admission.last_id += 1;
        let group = Arc::new(Group::new(admission.last_id, query, now));
        // A3.
        match slot {
            Some(slot) => {
                // A2.
                admission.occupy(slot, Some(Arc::clone(&group)));
                admission.check();
                drop(admission);
                group.admit(now);
                self.proceed(slot, Arc::clone(&group), 0);
            }
            None => {
                let weight = group.word.weight;
                admission.queue(tier).push(weight, Arc::clone(&group));
                admission.check();
            }
        }
        Ok(group)
    }

    /// Finalizes a set, and goes on to what comes next in its slot. Returns how long
    /// the pipeline's own finalization took, ns.
    pub(crate) fn finalize(&self, slot: usize, last: Last) -> u64 {
        let group = lock(&self.admission).running[slot].clone();
        let group = group.expect("A2: the group of a set that is being finalized");
        // SAFETY: F4 and F5 of `slots`, and A2.
        let set = unsafe { last.0.as_ref() };
        set.life.over();
        debug_assert!(
            (group.sets.get(set.index)).is_some_and(|own| std::ptr::eq(own, set)),
            "A2: the slot is recorded for another group"
        );
        let mut ns = 0;
        if !group.tally.is_stopped() {
            let began = self.clock.now_ns();
            settle(&group.tally, guarded(|| set.pipeline.finalize()));
            ns = self.clock.now_ns().saturating_sub(began);
            group.tally.add_ns(ns);
        }
        let next = set.index + 1;
        self.proceed(slot, group, next);
        ns
    }

    /// Opens the slot for the group's set `next`, or for the first of the next
    /// group, or empties it. The slot is the caller's: A1.
    fn proceed(&self, slot: usize, mut group: Arc<Group>, mut next: usize) {
        loop {
            if let Some(set) = self.activate(slot, &group, next) {
                self.slots.open(slot, set);
                for post in self.slots.posts() {
                    match next {
                        0 => post.change.push(slot),
                        _ => post.back.push(slot),
                    }
                    post.parking.wake();
                    self.raise(post, slot);
                }
                // A4. There is one in `wake`, too, but that is not what it promises.
                fence(SeqCst);
                if !group.tally.is_stopped() || !self.close(slot, set) {
                    return let_go(group);
                }
            }
            // A1: the slot is ours again, or still.
            self.slots.empty(slot);
            let now = self.clock.now_ns();
            let successor = self.succeed(slot);
            group.complete(now);
            match successor {
                Some(waiting) => {
                    waiting.admit(now);
                    let_go(std::mem::replace(&mut group, waiting));
                    next = 0;
                }
                None => return let_go(group),
            }
        }
    }

    /// The set, if there is such a one and it is to be run.
    fn activate<'a>(&self, slot: usize, group: &'a Group, index: usize) -> Option<&'a TaskSet> {
        let set = group.sets.get(index)?;
        if group.tally.is_stopped() {
            return None;
        }
        let waker = LaneWaker::new(&self.this, slot, self.settings.targets.workers);
        let activated = guarded(|| {
            set.activate(waker);
            Ok(())
        });
        match activated {
            Ok(()) => {
                group.reach(index);
                Some(set)
            }
            Err(reason) => {
                group.tally.stop(reason);
                None
            }
        }
    }

    /// Closes the slot on a set of a stopped group that the caller holds; whether
    /// the caller is the last.
    fn close(&self, slot: usize, set: &TaskSet) -> bool {
        // SAFETY: the caller holds the group.
        let last = unsafe { self.slots.close(slot, set.into(), None) };
        if last.is_some() {
            set.life.over();
        }
        last.is_some()
    }

    /// Gives the slot to the next group that waits, or puts it back: A3.
    fn succeed(&self, slot: usize) -> Option<Arc<Group>> {
        let mut admission = lock(&self.admission);
        // The caller still has the group, so its end is not here. Its place in its tier
        // is free before the next group is looked for.
        drop(admission.occupy(slot, None));
        let successor = admission.next();
        debug_assert!(
            successor
                .as_ref()
                .is_none_or(|group| group.word.tier == Tier::TimeSensitive)
                || admission.queue(Tier::TimeSensitive).is_empty(),
            "A5: a background group goes before a time-sensitive one"
        );
        admission.occupy(slot, successor.clone());
        if successor.is_none() {
            debug_assert!(
                !admission.free.contains(slot),
                "A1: a slot is put back twice"
            );
            admission.free.insert(slot);
            if admission.free.len() == self.settings.slots {
                self.drained.notify_all();
            }
        }
        admission.check();
        successor
    }

    /// Sets the return bit of a worker that found no lane.
    pub(crate) fn call_back(&self, worker: usize, slot: usize) {
        let post = self.slots.post(worker);
        post.back.push(slot);
        post.parking.wake();
        self.raise(post, slot);
    }

    /// K4 of `kernel`, after what the worker is to see and the fence in `wake`.
    fn raise(&self, post: &Post, slot: usize) {
        let word = self.slots.word(slot);
        if word.is_some_and(|word| word.tier == Tier::TimeSensitive) {
            post.raise.raise();
        }
    }

    /// Ends a query early. False if it has ended already, or ends for another
    /// reason.
    pub(crate) fn cancel(&self, id: QueryId, reason: QueryError) -> bool {
        let mut admission = lock(&self.admission);
        let is_it = |group: &Arc<Group>| group.word.id == id.0;
        let waiting = (admission.waiting.iter_mut()).find_map(|queue| queue.remove(is_it));
        if let Some(group) = waiting {
            drop(admission);
            let is_why = group.tally.stop(reason);
            group.complete(self.clock.now_ns());
            let_go(group);
            return is_why;
        }
        let found = admission
            .running
            .iter()
            .position(|group| group.as_ref().is_some_and(is_it));
        let Some(slot) = found else {
            return false;
        };
        let group = admission.running[slot].clone().expect("it was there");
        drop(admission);
        let is_why = group.tally.stop(reason);
        // A4.
        fence(SeqCst);
        let opened = self.slots.opened(slot);
        let is_open =
            |set: &&TaskSet| opened.is_some_and(|opened| std::ptr::eq(*set, opened.as_ptr()));
        if let Some(set) = group.sets.iter().find(is_open)
            && self.close(slot, set)
        {
            self.proceed(slot, Arc::clone(&group), group.sets.len());
        }
        let_go(group);
        is_why
    }

    /// All queries that wait or run, in the order of their arrival.
    pub(crate) fn queries(&self) -> Vec<QueryView> {
        let now = self.clock.now_ns();
        let groups: Vec<Arc<Group>> = {
            let admission = lock(&self.admission);
            let running = admission.running.iter().flatten();
            let waiting = admission.waiting.iter().flat_map(Line::iter);
            running.chain(waiting).cloned().collect()
        };
        let mut views: Vec<_> = groups.iter().map(|group| group.view(now)).collect();
        groups.into_iter().for_each(let_go);
        views.sort_unstable_by_key(|view| view.id);
        views
    }

    /// How many groups run, and how many wait.
    pub(crate) fn load(&self) -> (usize, usize) {
        let admission = lock(&self.admission);
        let running = self.settings.slots - admission.free.len();
        let waiting = admission.waiting.iter().map(Line::len).sum();
        (running, waiting)
    }

    /// From now on, no query is taken.
    pub(crate) fn refuse_all(&self) {
        lock(&self.admission).is_closed = true;
    }

    /// Ends all queries early.
    pub(crate) fn cancel_all(&self) {
        for query in self.queries() {
            self.cancel(query.id, QueryError::ShutDown);
        }
    }

    /// Waits until no group runs or waits.
    pub(crate) fn drain(&self) {
        let mut admission = lock(&self.admission);
        while admission.free.len() < self.settings.slots {
            admission = wait(&self.drained, admission);
        }
    }

    /// Has workers leave once they find nothing to do.
    pub(crate) fn exit(&self) {
        self.exiting.store(true, Release);
        self.slots.posts().for_each(|post| post.parking.wake());
    }

    pub(crate) fn is_exiting(&self) -> bool {
        self.exiting.load(Acquire)
    }
}

/// Whether the group is to be stopped for what came of its code.
pub(crate) fn settle<R>(tally: &Tally, outcome: Result<R, QueryError>) -> Option<R> {
    match outcome {
        Ok(answer) => Some(answer),
        Err(reason) => {
            tally.stop(reason);
            None
        }
    }
}
