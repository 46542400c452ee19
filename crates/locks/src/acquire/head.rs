//! First in the queue: watching the lock, until it can be taken.
//!
//! ```text
//! watches ── spins, gives its CPU to others, sleeps
//!    │ free, the role says others first  ► gives way
//!    │ free, had too much, nobody behind ► idles (strict guarantee only)
//!    │ free                              ► acquires, passes role and place on
//!    │ waited for long                   ► claims the lock: nobody may pass
//!    └ deadline                          ► leaves, passes its place on
//! ```

use super::arrival::try_set;
use super::role::Seen;
use super::{End, Waiter};
use crate::futex::Deadline;
use crate::links::replace_tail;
use crate::options::sched_latency_ns;
use crate::raw::Kind;
use crate::state::{self, ALONE, CLAIMED, HEAD_PARKED, LOCKED, LS_TAKEN, WATCHED};
use crate::sync::{MODEL, Relaxed, give_cpu, relax};
use crate::{clock, futex};

/// How long the head lets a free lock lie, in looks: the thread that has just
/// released it is probably coming back, and if it may, it saves two switches.
const POLITE_SPINS: u32 = if MODEL { 0 } else { 24 };

/// How long a head that spins keeps its CPU before it offers it to others, ns.
const BUSY_NS: u64 = 5_000;

/// What a wake-up takes, ns: who has less than this left of its slice wakes
/// the next head when it acquires, others when they release.
const WAKE_NS: i64 = 50_000;

/// How long an idling head sleeps between looks at the queue, ns.
const NAP_NS: u64 = 100_000;

impl Waiter<'_> {
    /// Watches the lock.
    pub(super) fn as_head(&mut self) -> End {
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
                    watch.idled |= self.idle(&mut watch);
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
            // Nobody came: what it had is forgiven, and what it will have until
            // somebody comes.
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
    pub(super) fn acquire(&mut self, state: u64) -> bool {
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
    /// It has idled long enough, and does not again in this wait.
    idled: bool,
}

impl Watch {
    fn start() -> Watch {
        let now = clock::now();
        Watch {
            since: now,
            awake_since: now,
            idle_since: 0,
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
