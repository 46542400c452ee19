//! First in the queue: watching the lock, until it can be taken.
//!
//! ```text
//! watches ── spins, sleeps
//!    │ free, the role says others first  ► gives way
//!    │ free, over-served, no waiters     ► idles (strict guarantee only)
//!    │ free                              ► acquires, passes role and place on
//!    │ waited for long                   ► claims the lock: none may pass
//!    └ deadline, held or left alone      ► leaves, passes its place on
//! ```

use super::arrival::try_set;
use super::role::Seen;
use super::spin::{self, Backoff};
use super::{End, Waiter};
use crate::links::replace_tail;
use crate::node::HEAD;
use crate::options::sched_latency_ns;
use crate::raw::Kind;
use crate::state::{self, ALONE, CLAIMED, LOCKED, LS_TAKEN, PARKED_HEAD, WATCHED};
use crate::sync::{MODEL, Relaxed, give_cpu, relax};
use giveway_machine::futex;
use giveway_machine::futex::Deadline;

use crate::clock;

/// How long the head lets a free lock lie, in looks and in pauses between them:
/// the thread that has just released it is probably coming back, and if it may,
/// it saves two switches. Not where spinning does not pay: there that thread has
/// probably lost its CPU, to this one.
const POLITE_LOOKS: u32 = if MODEL { 0 } else { 4 };
const POLITE_PAUSES: u32 = 6;

/// What a wake-up takes, ns: who has less than this left of its slice wakes
/// the next head when it acquires, others when they release.
const WAKE_NS: i64 = 50_000;

/// How long an idling head sleeps between looks at the queue, ns.
const NAP_NS: u64 = 100_000;

impl Waiter<'_> {
    /// Watches the lock.
    pub(super) fn as_head(&mut self) -> End {
        let core = self.policy.lock.core;
        let mut watch = Watch::start(self.spin_budget_ns());
        let mut seen = Seen::default();
        let mut polite = if self.barging { POLITE_LOOKS } else { 0 };
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
                    // A nap late at most.
                    if self.deadline.is_some_and(Deadline::passed) {
                        self.leave();
                        return End::TimedOut;
                    }
                    watch.idled |= self.idle(&mut watch);
                    continue;
                }
                if polite > 0 && !self.claimed && spin::pays(state) {
                    polite -= 1;
                    for _ in 0..POLITE_PAUSES {
                        relax();
                    }
                    continue;
                }
                let learnt = if watch.spun { spin::paid(state) } else { state };
                if self.acquire(state, learnt) {
                    return End::Acquired;
                }
                continue;
            }
            polite = if self.barging { POLITE_LOOKS } else { 0 };
            if self.deadline.is_some_and(Deadline::passed) {
                self.leave();
                return End::TimedOut;
            }
            let waited = watch.waited_ns();
            let overdue = waited > self.claim_after_ns() && self.left() >= 0;
            if !self.claimed && overdue {
                self.claimed = true;
                core.state.fetch_or(CLAIMED, Relaxed);
            }
            if self.kind == Kind::Spin {
                watch.spin_or_give_cpu();
            } else if watch.may_spin() {
                watch.spin();
            } else if self.sleep_as_head(watch.spun) {
                watch.wake(self.spin_budget_ns());
            }
        }
    }

    /// How long to spin from now on before sleeping, ns.
    fn spin_budget_ns(&self) -> u64 {
        let state = self.policy.lock.core.load();
        spin::budget_ns(self.policy.settings, state, clock::now())
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

    /// Strict guarantee: whether to leave the free lock to threads that have not
    /// come yet. A head with waiters behind it would only keep them waiting too.
    fn should_idle(&self, state: u64, watch: &Watch) -> bool {
        self.policy.settings.strict()
            && state::tail(state) == self.me
            && self.left() < 0
            && !watch.idled
    }

    /// Idles for a nap; true once it has been long enough.
    fn idle(&mut self, watch: &mut Watch) -> bool {
        if watch.begin_idle() {
            self.count(|counters| &counters.idles);
        }
        if clock::is_virtual() {
            give_cpu();
        } else if let Some(nap) = Deadline::after(std::time::Duration::from_nanos(NAP_NS)) {
            let word = self.node.word.load(Relaxed);
            futex::wait(&self.node.word, word, Some(nap));
        }
        let enough = watch.idle_ns() >= sched_latency_ns();
        if enough {
            // No thread came: what it has held is forgiven, and what it will hold
            // until one comes.
            self.thread.is_alone_at(self.policy.lock.key());
            self.policy.lock.core.state.fetch_or(ALONE, Relaxed);
            let sid = self.standing.sid;
            let avg = self.standing.vlht;
            self.policy
                .lock
                .core
                .set_verdict(state::Verdict { avg, sid });
        }
        enough
    }

    /// Acquires as the head, and leaves the queue.
    /// `learnt` is the state with what the wait has taught about spinning.
    pub(super) fn acquire(&mut self, state: u64, learnt: u64) -> bool {
        let alone = state::tail(state) == self.me;
        debug_assert!(MODEL || self.node.word.load(Relaxed) & HEAD != 0, "N5");
        let mut new = (learnt | LOCKED) & !(CLAIMED | WATCHED | PARKED_HEAD);
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
    pub(super) fn leave(&mut self) {
        self.drop_role();
        self.stop_watching();
        if !replace_tail(&self.policy, self.me, 0) {
            self.pass_head(false);
        }
        self.node.retire();
    }
}

/// The head's patience.
struct Watch {
    since: clock::Ticks,
    awake_since: clock::Ticks,
    idle_since: clock::Ticks,
    /// How long to spin from `awake_since` on, ns.
    budget_ns: u64,
    backoff: Backoff,
    /// Whether it has spun since it was last awake.
    spun: bool,
    /// It has idled long enough, and does not again in this wait.
    idled: bool,
}

impl Watch {
    fn start(budget_ns: u64) -> Watch {
        let now = clock::now();
        Watch {
            since: now,
            awake_since: now,
            idle_since: 0,
            budget_ns,
            backoff: Backoff::new(),
            spun: false,
            idled: false,
        }
    }

    fn waited_ns(&self) -> u64 {
        clock::ns(clock::now().saturating_sub(self.since))
    }

    /// Time awake, for what is done in between sleeps.
    fn spun_ns(&self) -> u64 {
        clock::ns(clock::now().saturating_sub(self.awake_since))
    }

    fn may_spin(&self) -> bool {
        self.budget_ns > 0 && self.spun_ns() < self.budget_ns
    }

    /// Waits a moment for a holder that runs.
    fn spin(&mut self) {
        self.spun = true;
        self.backoff.pause();
    }

    /// Waits a moment for a holder that may need this CPU.
    fn spin_or_give_cpu(&mut self) {
        if self.backoff.is_longest() || MODEL {
            give_cpu();
        } else {
            self.backoff.pause();
        }
    }

    fn wake(&mut self, budget_ns: u64) {
        self.awake_since = clock::now();
        self.budget_ns = budget_ns;
        self.backoff = Backoff::new();
        self.spun = false;
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
