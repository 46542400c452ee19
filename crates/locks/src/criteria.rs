//! The scheduling criteria (Section 3), as questions about one lock.
//!
//! | question | asked by | answer |
//! | --- | --- | --- |
//! | [`Policy::qualifies`] | the lock scheduler, of a waiter | below the average, on `min_sid`, in `min_gid` |
//! | [`Policy::may_steal`] | a running thread, of itself | less than a slice ahead, on `min_sid` |
//! | [`Policy::lead`] | the head, of itself | how far ahead, in ns of virtual time |
//!
//! With groups the questions have two levels. A thread of `min_gid` is compared
//! with the average of that group's waiters, a thread of another group by its
//! group's vLHT with that of `min_gid`. The paper takes one average over all
//! groups: then the threads of a small group, which have more each, are above
//! it whenever their group is owed time, no waiter meets all criteria, and the
//! groups share first come, first served.
//!
//! Starvation prevention (3.4.3) departs from the paper in one thing. A new
//! thread starts at the average, as there. A thread that lags because it was
//! away is brought to a fixed distance behind it, not to it: a jump would take
//! from a thread of weight 1000 ten times the distance in hold time. The
//! distance is that of the strict guarantee, `6 ms × (1 + log₂ CPUs)`, for who
//! was away for as long, and 16 times that for who was not.

use crate::account::Account;
use crate::node::Standing;
use crate::options::{Criteria, Scope, Settings, sched_latency_ns, settings};
use crate::raw::LockRef;
use crate::thread::Thread;
use crate::{clock, group, state, topology};

/// How a lock judges.
#[derive(Clone, Copy)]
pub(crate) struct Policy<'a> {
    pub(crate) lock: LockRef<'a>,
    pub(crate) settings: &'static Settings,
    pub(crate) scope: Scope,
    pub(crate) criteria: Criteria,
}

impl<'a> Policy<'a> {
    pub(crate) fn of(lock: LockRef<'a>) -> Policy<'a> {
        let settings = settings(lock.extra.profile());
        Policy {
            lock,
            settings,
            scope: settings.scope(),
            criteria: settings.criteria(),
        }
    }

    /// Whether groups decide at this lock.
    #[inline]
    pub(crate) fn by_group(&self) -> bool {
        self.criteria.contains(Criteria::GROUP) && group::in_use()
    }

    /// Whether sockets decide at this lock.
    #[inline]
    pub(crate) fn by_socket(&self) -> bool {
        self.criteria.contains(Criteria::SOCKET) && topology::sockets() > 1
    }

    /// The vLHT of a group here.
    pub(crate) fn group_vlht(&self, gid: u32) -> u64 {
        group::vlht(gid, self.lock.key(), self.scope)
    }

    /// The standing of a thread that comes to the lock, after starvation
    /// prevention.
    pub(crate) fn standing(&self, thread: &Thread) -> Standing {
        let key = self.lock.key();
        let gid = thread.gid();
        let account = thread.account_for(key, self.scope);
        if let Some(verdict) = self.lock.core.verdict() {
            let min_gid = state::min_gid(self.lock.core.load());
            if !self.by_group() || gid == min_gid {
                place(account, verdict.avg, || thread.last_seen());
            } else {
                let (group, last) = group::account_for(gid, key, self.scope);
                place(group, self.group_vlht(min_gid), || last);
            }
        }
        Standing {
            vlht: account.vlht(),
            sid: if self.by_socket() { thread.socket() } else { 0 },
            gid,
        }
    }

    /// Whether a waiter is to be moved forward.
    pub(crate) fn qualifies(&self, standing: Standing) -> bool {
        let Some(verdict) = self.lock.core.verdict() else {
            return false;
        };
        let below = !self.criteria.contains(Criteria::VLHT) || standing.vlht < verdict.avg;
        let here = !self.by_socket() || standing.sid == verdict.sid;
        let ours = !self.by_group() || standing.gid == state::min_gid(self.lock.core.load());
        self.criteria != Criteria::NONE && below && here && ours
    }

    /// How far a thread is ahead of who should be next, ns of virtual time;
    /// negative if it is behind.
    pub(crate) fn lead(&self, standing: Standing) -> i64 {
        let min_gid = state::min_gid(self.lock.core.load());
        if self.by_group() && standing.gid != min_gid {
            let ours = self.group_vlht(standing.gid);
            return ours.wrapping_sub(self.group_vlht(min_gid)) as i64;
        }
        match self.lock.core.verdict() {
            Some(verdict) if self.criteria.contains(Criteria::VLHT) => {
                standing.vlht.wrapping_sub(verdict.avg) as i64
            }
            _ => 0,
        }
    }

    /// How far a thread may lead and go on, ns of virtual time.
    pub(crate) fn tolerance(&self) -> i64 {
        let slice = self.settings.slice_ns() as i64;
        if self.settings.strict() {
            slice / 4
        } else {
            slice
        }
    }

    /// Whether a running thread may take the lock before the waiters
    /// (Section 3.3).
    pub(crate) fn may_steal(&self, standing: Standing) -> bool {
        self.criteria != Criteria::NONE
            && self
                .lock
                .core
                .verdict()
                .is_some_and(|verdict| !self.by_socket() || standing.sid == verdict.sid)
            && self.lead(standing) < self.tolerance()
    }

    /// Whether a thread has had so much that others go first.
    pub(crate) fn over_served(&self, standing: Standing) -> bool {
        self.lead(standing) > self.tolerance()
    }
}

/// Starvation prevention for one account, last used at `last_seen`. Reads the
/// clock only for one that lags.
fn place(account: &Account, reference: u64, last_seen: impl FnOnce() -> clock::Ticks) {
    let limit = sched_latency_ns();
    if account.lags(reference, limit) {
        let away = clock::ns(clock::now().saturating_sub(last_seen())) > limit;
        account.place(reference, if away { limit } else { 16 * limit });
    }
}
