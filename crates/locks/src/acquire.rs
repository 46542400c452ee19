//! Acquiring when it is not free for the taking (Sections 3.2.1, 3.3, 3.4.4).
//!
//! ```text
//!            free, no queue ─────────────────────────────► holder
//! thread ──► queue, free, may steal ─────────────────────► holder
//!    │                                                       ▲
//!    ▼            made head               free, or claimed   │
//! follower ─────────────────────► head ──────────────────────┘
//!    │  ▲ └─ deadline: ABANDONED   │ └─ deadline: next is made head
//!    │  └──── over-served: gives way
//!    └─ spins, sleeps; walks the queue while it has the role
//! ```
//!
//! A follower sleeps soon. The head watches the lock for a while, gives its CPU
//! to others, then sleeps too, with `HEAD_PARKED` set, so that the next release
//! wakes it.
//!
//! Running threads that may steal go first while the head wakes up. What they
//! may take is bounded: each by the slice; all of them by `CLAIMED`, which the
//! head sets when it has waited for long, and which keeps everybody else out.
//! A lock is thus never handed to a sleeping thread, except by who must not
//! have it any more.
//!
//! Under the strict guarantee an over-served head leaves a free lock alone: it
//! gives way if somebody waits, and idles if not, until another thread has
//! caught up (and therefore queues) or until the threshold of Section 3.4.4.

#[cfg(all(test, loom))]
mod models;

use crate::criteria::Policy;
use crate::futex::Deadline;
use crate::node::{ABANDONED, HEAD, Node, PARKED, ROLE, SLAB, Standing, node};
use crate::options::{Criteria, sched_latency_ns};
use crate::raw::{HoldStart, Kind, LockRef};
use crate::scheduler::{self, replace_tail, wait_for_next};
use crate::state::{self, CLAIMED, HEAD_PARKED, LOCKED, LS_TAKEN, METERED, TAIL, WATCHED};
use crate::sync::{AcqRel, Acquire, LooseU64, MODEL, Relaxed, Release, cpus, give_cpu, relax};
use crate::thread::Thread;
use crate::{clock, fork, futex, group, release, thread};

/// Looks at a held lock before a thread that may steal queues; about 2 µs.
const STEAL_SPINS: u32 = if MODEL { 0 } else { 64 };
/// Looks of a follower at its word before it sleeps, with CPUs to spare.
const FOLLOWER_SPINS: u32 = if MODEL { 0 } else { 128 };
/// How long the head lets a free lock lie, in looks: the thread that has just
/// released it is probably coming back, and if it may, it saves two switches.
const POLITE_SPINS: u32 = if MODEL { 0 } else { 24 };
/// How long a head that spins keeps its CPU before it offers it to others, ns.
const BUSY_NS: u64 = 5_000;
/// What a wake-up takes, ns: who has less than this left of its slice wakes
/// the next head when it acquires, others when they release.
const WAKE_NS: i64 = 50_000;
/// Looks at an unchanged queue after which groups are compared anew.
const GROUP_LOOKS: u32 = 64;
/// How long an idling head sleeps between looks at the queue, ns.
const NAP_NS: u64 = 100_000;

/// Acquires a lock that was not free and unwanted a moment ago. `None` if the
/// deadline has passed.
#[cold]
pub(crate) fn contended(
    lock: LockRef<'_>,
    kind: Kind,
    deadline: Option<Deadline>,
) -> Option<HoldStart> {
    fork::check(lock);
    let policy = Policy::of(lock);
    let strict = policy.settings.strict();
    let thread = thread::current();
    if !strict && take_unwanted(lock) {
        return Some(sampled_start(thread));
    }
    let Some((thread, own)) = thread.and_then(|thread| Some((thread, thread.own_node()?))) else {
        return beside_the_queue(lock, deadline);
    };
    let standing = policy.standing(thread);
    let entitled = !strict || policy.left(standing, thread.weight()) >= 0;
    if strict && entitled && take_unwanted(lock) {
        return Some(HoldStart::now());
    }
    let barging = policy.settings.barging(kind == Kind::Mutex);
    if barging && entitled && steal(&policy, standing, thread.weight()) {
        return Some(sampled_start(Some(thread)));
    }
    let came = clock::now();
    let mut waiter = Waiter {
        policy,
        kind,
        deadline,
        barging,
        thread,
        standing,
        me: own,
        node: node(own),
        mean: 0,
        last: 0,
        claimed: false,
    };
    waiter.count(|counters| &counters.contended);
    let acquired = waiter.queue();
    let waited = clock::ns(clock::now().saturating_sub(came));
    waiter.enter_wait(waited, acquired);
    acquired.then(HoldStart::now)
}

/// The start of a hold that met no queue, measured or not.
fn sampled_start(thread: Option<&Thread>) -> HoldStart {
    if thread.is_some_and(Thread::skips_measuring) {
        HoldStart::SKIPPED
    } else {
        HoldStart::now()
    }
}

/// Acquires if nobody holds the lock and no waiter has claimed it.
#[cold]
pub(crate) fn try_once(lock: LockRef<'_>) -> Option<HoldStart> {
    fork::check(lock);
    let mut state = lock.core.load();
    while state & (LOCKED | CLAIMED) == 0 {
        match try_set(lock, state, state | LOCKED) {
            Ok(_) => return Some(HoldStart::now()),
            Err(now) => state = now,
        }
    }
    None
}

/// Acquires a free lock without a queue.
fn take_unwanted(lock: LockRef<'_>) -> bool {
    let mut state = lock.core.load();
    while state & (LOCKED | TAIL) == 0 {
        match try_set(lock, state, state | LOCKED) {
            Ok(_) => return true,
            Err(now) => state = now,
        }
    }
    false
}

fn try_set(lock: LockRef<'_>, from: u64, to: u64) -> Result<u64, u64> {
    lock.core.state.compare_exchange(from, to, Acquire, Relaxed)
}

/// Barging (Section 3.3): acquires although others wait, or waits a moment for
/// the chance.
fn steal(policy: &Policy<'_>, standing: Standing, weight: u32) -> bool {
    let lock = policy.lock;
    let spins = if cpus() > 1 { STEAL_SPINS } else { 0 };
    for spin in 0..=spins {
        let state = lock.core.load();
        let wanted = state & TAIL != 0;
        let watched = state & WATCHED != 0;
        if wanted && (state & CLAIMED != 0 || !policy.may_steal(standing, weight, watched)) {
            return false;
        }
        if state & LOCKED == 0 && try_set(lock, state, state | LOCKED).is_ok() {
            if wanted && policy.settings.statistics() {
                policy.settings.counters.steals.fetch_add(1, Relaxed);
            }
            return true;
        }
        if spin < spins {
            relax();
        }
    }
    false
}

/// For a thread without a slot or a node: all of thousands are taken.
fn beside_the_queue(lock: LockRef<'_>, deadline: Option<Deadline>) -> Option<HoldStart> {
    loop {
        if let Some(start) = try_once(lock) {
            return Some(start);
        }
        if deadline.is_some_and(Deadline::passed) {
            return None;
        }
        give_cpu();
    }
}

/// The queue as a scheduler last saw it.
#[derive(Default)]
struct Seen {
    tail: u32,
    looks: u32,
}

/// How a stage of waiting ended.
enum End {
    /// The waiter is the head now.
    IsHead,
    /// The waiter has acquired the lock and is out of the queue.
    Acquired,
    /// The waiter has let others go first and is a follower again.
    GaveWay,
    /// The deadline has passed and the waiter is out of the queue.
    TimedOut,
}

/// A thread in the queue.
struct Waiter<'a> {
    policy: Policy<'a>,
    kind: Kind,
    deadline: Option<Deadline>,
    barging: bool,
    thread: &'static Thread,
    standing: Standing,
    me: u32,
    node: &'static Node,
    /// The average that the latest walk went by.
    mean: u64,
    /// The last of the waiters that the latest walk found next in line; 0 if
    /// there was no walk or none was found.
    last: u32,
    /// Whether `CLAIMED` is this head's.
    claimed: bool,
}

impl Waiter<'_> {
    /// Queues until the lock is acquired (true) or the deadline passes (false).
    fn queue(&mut self) -> bool {
        let mut end = self.enqueue();
        loop {
            end = match end {
                End::IsHead => self.as_head(),
                End::GaveWay => self.as_follower(),
                End::Acquired => return true,
                End::TimedOut => return false,
            };
        }
    }

    fn enqueue(&mut self) -> End {
        let core = self.policy.lock.core;
        self.node.prepare(self.policy.lock.key(), self.standing);
        let mut state = core.load();
        loop {
            let new = state::with_tail(state, self.me) | METERED;
            match core
                .state
                .compare_exchange_weak(state, new, AcqRel, Relaxed)
            {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        match state::tail(state) {
            0 => {
                self.node.tell(HEAD);
                End::IsHead
            }
            before => {
                self.node.prev.store(before, Relaxed);
                // N3: this thread has replaced `before` as the tail.
                node(before).next.store(self.me, Release);
                End::GaveWay
            }
        }
    }

    /// Waits to be made the head.
    fn as_follower(&mut self) -> End {
        let spare = cpus() > 2 || self.kind == Kind::Spin;
        let mut spins = if spare { FOLLOWER_SPINS } else { 0 };
        let mut seen = Seen::default();
        loop {
            let word = self.node.word.load(Acquire);
            if word & HEAD != 0 {
                return End::IsHead;
            }
            if word & ROLE != 0 {
                self.schedule(&mut seen, false);
            }
            if spins > 0 {
                spins -= 1;
                relax();
                continue;
            }
            if self.deadline.is_some_and(Deadline::passed) && self.abandon() {
                return End::TimedOut;
            }
            if self.kind == Kind::Spin {
                give_cpu();
                spins = FOLLOWER_SPINS;
                continue;
            }
            // N4: no follower sleeps with the role.
            self.drop_role();
            if !self.sleep(0) {
                continue;
            }
            spins = if spare { FOLLOWER_SPINS } else { 0 };
        }
    }

    /// Watches the lock.
    fn as_head(&mut self) -> End {
        let core = self.policy.lock.core;
        let mut watch = Watch::start();
        let mut seen = Seen::default();
        let mut polite = if self.barging { POLITE_SPINS } else { 0 };
        loop {
            if self.take_role() {
                let walked = self.schedule(&mut seen, true);
                if walked && self.may_give_way() {
                    return self.give_way();
                }
            }
            let mut state = core.load();
            if state & WATCHED == 0 {
                state = core.state.fetch_or(WATCHED, Relaxed) | WATCHED;
            }
            if state & LOCKED == 0 {
                if self.should_idle(state, &watch) {
                    self.idle(&mut watch);
                    continue;
                }
                if polite > 0 && !self.claimed {
                    polite -= 1;
                    relax();
                    continue;
                }
                if self.acquire(state) {
                    return End::Acquired;
                }
                continue;
            }
            polite = if self.barging { POLITE_SPINS } else { 0 };
            if self.deadline.is_some_and(Deadline::passed) {
                self.leave();
                return End::TimedOut;
            }
            let waited = watch.waited_ns();
            let overdue = waited > self.claim_after_ns() && self.left() >= 0;
            if self.barging && !self.claimed && overdue {
                self.claimed = true;
                core.state.fetch_or(CLAIMED, Relaxed);
            }
            let spin_ns = if self.kind == Kind::Spin {
                u64::MAX
            } else {
                self.policy.settings.spin_ns()
            };
            let spun = watch.spun_ns();
            if spun < BUSY_NS.min(spin_ns) && !MODEL {
                for _ in 0..8 {
                    relax();
                }
            } else if spun < spin_ns && !MODEL || self.kind == Kind::Spin {
                give_cpu();
            } else if self.sleep_as_head() {
                watch.woke();
            }
        }
    }

    /// How long the head lets others go first, ns.
    fn claim_after_ns(&self) -> u64 {
        if self.policy.settings.strict() {
            sched_latency_ns()
        } else {
            self.policy
                .settings
                .slice_ns()
                .saturating_mul(4)
                .max(1_000_000)
        }
    }

    /// Strict guarantee: whether to leave the free lock to threads that are not
    /// even here. Who has waiters behind it could only keep them waiting too.
    fn should_idle(&self, state: u64, watch: &Watch) -> bool {
        self.policy.settings.strict()
            && state::tail(state) == self.me
            && self.left() < 0
            && watch.idle_ns() < sched_latency_ns()
    }

    fn idle(&mut self, watch: &mut Watch) {
        if watch.begin_idle() {
            self.count(|counters| &counters.idles);
        }
        if clock::is_virtual() {
            give_cpu();
        } else if let Some(nap) = Deadline::after(std::time::Duration::from_nanos(NAP_NS)) {
            let word = self.node.word.load(Relaxed);
            futex::wait(&self.node.word, word, Some(nap));
        }
        if watch.idle_ns() >= sched_latency_ns() {
            // Nobody came: what it had is forgiven.
            let sid = self.standing.sid;
            let avg = self.standing.vlht;
            self.policy
                .lock
                .core
                .set_verdict(state::Verdict { avg, sid });
        }
    }

    /// Acquires as the head, and leaves the queue.
    fn acquire(&mut self, state: u64) -> bool {
        let alone = state::tail(state) == self.me;
        let mut new = (state | LOCKED) & !(CLAIMED | WATCHED | HEAD_PARKED);
        if alone {
            new = state::with_tail(new, 0) & !LS_TAKEN;
        }
        if try_set(self.policy.lock, state, new).is_err() {
            return false;
        }
        if !alone {
            self.hand_on_role();
            self.pass_head(self.barging && self.left() > WAKE_NS);
        }
        self.node.retire();
        true
    }

    /// Leaves the queue as the head, without the lock.
    fn leave(&mut self) {
        self.drop_role();
        self.stop_watching();
        if !replace_tail(&self.policy, self.me, 0) {
            self.pass_head(false);
        }
        self.node.retire();
    }

    /// Makes the next waiter the head, freeing abandoned nodes on the way (N2).
    /// With `later`, which only the holder may say, a sleeping one is woken by
    /// the next release.
    fn pass_head(&mut self, later: bool) {
        let mut next = wait_for_next(self.me);
        loop {
            let word = node(next).tell(HEAD);
            if word & ABANDONED == 0 {
                if word & PARKED != 0 {
                    self.wake_head(next, later);
                }
                return;
            }
            let gone = next;
            // An abandoned node's links are written by nobody else now: the
            // scheduler, if there is one, is a living waiter behind it.
            if node(gone).next.load(Acquire) == 0 && replace_tail(&self.policy, gone, 0) {
                SLAB.give(gone);
                return;
            }
            next = wait_for_next(gone);
            SLAB.give(gone);
        }
    }

    fn wake_head(&self, head: u32, later: bool) {
        if later {
            let core = self.policy.lock.core;
            let set = |state| Some(state::with_parked_head(state, head));
            let _ = core.state.fetch_update(Release, Relaxed, set);
        } else if release::wake(head) {
            self.count(|counters| &counters.wakes);
        }
    }

    /// Leaves the queue as a follower. False if the waiter has become the head.
    fn abandon(&mut self) -> bool {
        loop {
            self.drop_role();
            match self
                .node
                .word
                .compare_exchange(0, ABANDONED, AcqRel, Acquire)
            {
                Ok(_) => {
                    self.thread.lose_node();
                    return true;
                }
                Err(word) if word & HEAD != 0 => return false,
                // The role was given once more.
                Err(_) => {}
            }
        }
    }

    /// Sleeps as a follower or head (`base`) until something changes. False if
    /// something had changed before.
    fn sleep(&mut self, base: u32) -> bool {
        let parked = base | PARKED;
        let word = &self.node.word;
        if word
            .compare_exchange(base, parked, AcqRel, Acquire)
            .is_err()
        {
            return false;
        }
        self.count(|counters| &counters.parks);
        // The loop looks at the deadline itself.
        futex::wait(word, parked, self.deadline);
        self.node.untell(PARKED);
        true
    }

    /// Sleeps as the head. False if the lock is free.
    fn sleep_as_head(&mut self) -> bool {
        let core = self.policy.lock.core;
        self.node.parked_at.store(clock::now(), Relaxed);
        let word = self.node.tell(PARKED) | PARKED;
        let mut state = core.load();
        loop {
            if state & LOCKED == 0 {
                self.node.untell(PARKED);
                return false;
            }
            let new = state::with_parked_head(state, self.me) & !WATCHED;
            // Acquire and release: the holder that sees the flag sees PARKED.
            match core
                .state
                .compare_exchange_weak(state, new, AcqRel, Relaxed)
            {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        self.count(|counters| &counters.parks);
        futex::wait(&self.node.word, word, self.deadline);
        self.node.untell(PARKED);
        true
    }

    /// Whether the waiter has the role, taking it if it is vacant. Only the
    /// head takes a vacant role, so no two waiters can (N4).
    fn take_role(&mut self) -> bool {
        if self.node.word.load(Relaxed) & ROLE != 0 {
            return true;
        }
        let core = self.policy.lock.core;
        if core.load() & LS_TAKEN != 0 || core.state.fetch_or(LS_TAKEN, AcqRel) & LS_TAKEN != 0 {
            return false;
        }
        self.node.memo.store(0, Relaxed);
        self.node.tell(ROLE);
        true
    }

    /// Makes the role vacant, if the waiter has it.
    fn drop_role(&mut self) {
        if self.node.untell(ROLE) & ROLE != 0 {
            self.policy.lock.core.state.fetch_and(!LS_TAKEN, Release);
        }
    }

    /// The scheduler's walk, if the queue has changed since the last one.
    /// Returns whether it walked.
    fn schedule(&mut self, seen: &mut Seen, is_head: bool) -> bool {
        let tail = state::tail(self.policy.lock.core.load());
        seen.looks += 1;
        // A group's vLHT moves while its threads wait.
        let stale = self.policy.by_group() && seen.looks.is_multiple_of(GROUP_LOOKS);
        if tail == seen.tail && !stale {
            return false;
        }
        seen.tail = tail;
        let mut memo = self.node.memo.swap(0, Relaxed);
        let mut waiters = 0;
        if memo == 0 || is_head {
            let census = scheduler::census(&self.policy, self.me, self.weight(), is_head);
            (waiters, self.mean) = (census.waiters, census.mean);
            if census.turned {
                memo = 0;
            }
        } else if let Some(verdict) = self.policy.lock.core.verdict() {
            self.mean = verdict.avg;
        }
        let walk = scheduler::relink(&self.policy, self.me, memo, self.mean, is_head);
        self.last = if walk.last == self.me { 0 } else { walk.last };
        self.count(|counters| &counters.passes);
        self.add(|counters| &counters.reorders, walk.moved.into());
        if waiters > 1 && self.last == 0 && scheduler::is_conjunction(&self.policy) {
            self.count(|counters| &counters.nobody_matched);
        }
        if self.last != 0 {
            self.wake_early(walk.moved);
            if !is_head {
                self.give_role(self.last, walk.checked);
                self.last = 0;
            } else {
                self.node.memo.store(walk.checked, Relaxed);
            }
        }
        true
    }

    /// A waiter that was moved to the front will be needed soon (Section 3.3).
    /// With CPUs to spare it is woken to spin; without, it would only be in the
    /// way.
    fn wake_early(&self, moved: u32) {
        if moved > 0 && self.kind == Kind::Mutex && cpus() > 2 {
            let first = self.node.next.load(Acquire);
            if first != 0 && release::wake(first) {
                self.count(|counters| &counters.wakes);
            }
        }
    }

    /// Gives the role to a waiter behind, with the node from which to go on,
    /// unless that one sleeps or has gone: then the role is vacant.
    fn give_role(&mut self, to: u32, memo: u32) {
        if self.node.untell(ROLE) & ROLE == 0 {
            return;
        }
        let heir = node(to);
        heir.memo.store(if memo == to { 0 } else { memo }, Relaxed);
        let mut word = heir.word.load(Relaxed);
        while word & (PARKED | ABANDONED) == 0 {
            match heir
                .word
                .compare_exchange_weak(word, word | ROLE, AcqRel, Relaxed)
            {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
        self.policy.lock.core.state.fetch_and(!LS_TAKEN, Release);
    }

    /// The head acquires: the role goes to the last waiter that it moved, or to
    /// the next one (Figure 4, lines 16 to 23).
    fn hand_on_role(&mut self) {
        if self.node.word.load(Relaxed) & ROLE == 0 {
            return;
        }
        let memo = self.node.memo.load(Relaxed);
        match self.last {
            0 => {
                let next = wait_for_next(self.me);
                self.give_role(next, 0);
            }
            last => self.give_role(last, memo),
        }
    }

    /// Whether the head has had so much that those behind it should go first.
    /// It is compared with what they are compared with: who qualifies is below
    /// the mean, so no two heads give way to each other.
    fn may_give_way(&self) -> bool {
        let ahead = if !self.policy.favours_socket_of(self.standing) {
            true
        } else if self.policy.favours_group_of(self.standing) {
            let lead = self.standing.vlht.wrapping_sub(self.mean) as i64;
            let tolerance = self.policy.tolerance(self.weight());
            self.policy.criteria.contains(Criteria::VLHT) && lead > tolerance
        } else {
            self.left() < 0
        };
        self.last != 0 && !self.claimed && ahead
    }

    /// Lets the waiters that qualify go first.
    fn give_way(&mut self) -> End {
        self.count(|counters| &counters.gave_way);
        let first = scheduler::step_behind(&self.policy, self.me, self.last);
        self.last = 0;
        self.stop_watching();
        self.node.untell(HEAD);
        self.drop_role();
        self.make_head(first);
        End::GaveWay
    }

    /// Makes `first` the head, or whoever comes behind it if it has gone.
    fn make_head(&mut self, first: u32) {
        let mut next = first;
        loop {
            let word = node(next).tell(HEAD);
            if word & ABANDONED == 0 {
                if word & PARKED != 0 {
                    self.wake_head(next, false);
                }
                return;
            }
            // This waiter is behind, so there is a successor.
            let gone = next;
            next = wait_for_next(gone);
            SLAB.give(gone);
        }
    }

    /// The head is none any more: others need not heed it.
    fn stop_watching(&mut self) {
        self.claimed = false;
        let state = &self.policy.lock.core.state;
        state.fetch_and(!(CLAIMED | WATCHED), Relaxed);
    }

    fn weight(&self) -> u32 {
        self.thread.weight()
    }

    /// What is left of the thread's slice, ns of virtual time.
    fn left(&self) -> i64 {
        self.policy.left(self.standing, self.weight())
    }

    fn count(&self, counter: impl Fn(&crate::stats::Counters) -> &LooseU64) {
        self.add(counter, 1);
    }

    fn add(&self, counter: impl Fn(&crate::stats::Counters) -> &LooseU64, by: u64) {
        if by > 0 && self.policy.settings.statistics() {
            counter(&self.policy.settings.counters).fetch_add(by, Relaxed);
        }
    }

    fn enter_wait(&self, waited_ns: u64, acquired: bool) {
        if !acquired {
            self.count(|counters| &counters.timeouts);
        }
        self.add(|counters| &counters.wait_ns, waited_ns);
        if self.policy.settings.statistics() {
            let longest = &self.policy.settings.counters.wait_ns_max;
            longest.fetch_max(waited_ns, Relaxed);
        }
        if group::in_use() {
            group::waited(self.standing.gid, waited_ns);
        }
    }
}

/// The head's patience.
struct Watch {
    since: clock::Ticks,
    awake_since: clock::Ticks,
    idle_since: clock::Ticks,
}

impl Watch {
    fn start() -> Watch {
        let now = clock::now();
        Watch {
            since: now,
            awake_since: now,
            idle_since: 0,
        }
    }

    fn waited_ns(&self) -> u64 {
        clock::ns(clock::now().saturating_sub(self.since))
    }

    /// Time awake, for what is done in between sleeps.
    fn spun_ns(&self) -> u64 {
        clock::ns(clock::now().saturating_sub(self.awake_since))
    }

    fn woke(&mut self) {
        self.awake_since = clock::now();
    }

    /// True if this is the beginning.
    fn begin_idle(&mut self) -> bool {
        let begins = self.idle_since == 0;
        if begins {
            self.idle_since = clock::now();
        }
        begins
    }

    fn idle_ns(&self) -> u64 {
        match self.idle_since {
            0 => 0,
            since => clock::ns(clock::now().saturating_sub(since)),
        }
    }
}
