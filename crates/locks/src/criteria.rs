//! The scheduling criteria (Section 3), as questions about one lock.
//!
//! | question | asked by | answer |
//! | --- | --- | --- |
//! | [`Policy::qualifies`] | the lock scheduler, of a waiter | below the average, on `min_sid`, in `min_gid` |
//! | [`Policy::may_steal`] | a running thread, of itself | less than a slice ahead, on `min_sid` |
//! | [`Policy::left`] | the head, of itself | what is left of its slice |
//!
//! With groups the questions have two levels. A thread of `min_gid` is compared
//! with the average of that group's waiters, a thread of another group by its
//! group's vLHT with that of `min_gid`. The paper takes one average over all
//! groups: then the threads of a small group, which have more each, are above
//! it whenever their group is owed time, no waiter meets all criteria, and the
//! groups share first come, first served. Inside a group it is the average of the
//! favoured socket's waiters, for a like reason ([`socket`](crate::socket)).
//!
//! Starvation prevention (3.4.3) departs from the paper in one thing. A new
//! thread starts at the average, as there. A thread that lags because it was
//! away is brought to a fixed distance behind it, not to it: a jump would take
//! from a thread of weight 1000 ten times the distance in hold time. The
//! distance is that of the strict guarantee, `6 ms × (1 + log₂ CPUs)`, for a
//! thread that was away for as long, and 16 times that for others.

use crate::account::{Account, DEFAULT_WEIGHT};
use crate::node::Standing;
use crate::options::{Criteria, Scope, Settings, sched_latency_ns, settings};
use crate::raw::LockRef;
use crate::thread::Thread;
use crate::{clock, group, held, state, topology};

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

    /// Whether a group has held a lock in the last few slices, so that it
    /// counts as a competitor although none of its threads waits.
    pub(crate) fn active_lately(&self, gid: u32) -> bool {
        let (_, last) = group::account_for(gid, self.lock.key(), self.scope);
        let ago = clock::ns(clock::now().saturating_sub(last));
        last != 0 && ago < 4 * self.settings.slice_ns().max(1_000_000)
    }

    /// What has been held since the last census, ns of virtual time: here, or
    /// anywhere if a thread's account is one for all locks.
    pub(crate) fn take_credit(&self) -> u64 {
        match self.scope {
            Scope::Lock => self.lock.extra.take_credit(),
            Scope::Thread => self.lock.extra.take_credit_of_all(held::units()),
        }
    }

    /// What the average may advance by although nobody has held the lock, ns of
    /// virtual time, so that it finds the waiters in the end if those that held
    /// it back have gone.
    pub(crate) fn least_credit(&self) -> u64 {
        self.settings.slice_ns() / 64 + 1_000
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

    /// Whether a waiter is to be moved forward, if this is the average. Being
    /// at the average is enough: the only waiter of the favoured group is its
    /// own average.
    pub(crate) fn qualifies(&self, standing: Standing, avg: u64) -> bool {
        let below = !self.criteria.contains(Criteria::VLHT) || standing.vlht <= avg;
        let here = self.favours_socket_of(standing);
        let ours = self.favours_group_of(standing);
        self.criteria != Criteria::NONE && below && here && ours
    }

    /// Whether this thread's vLHT is comparable with the average.
    pub(crate) fn favours_group_of(&self, standing: Standing) -> bool {
        !self.by_group() || standing.gid == state::min_gid(self.lock.core.load())
    }

    /// Whether this thread's socket has its turn.
    pub(crate) fn favours_socket_of(&self, standing: Standing) -> bool {
        let sid = || self.lock.core.verdict().map(|verdict| verdict.sid);
        !self.by_socket() || sid() == Some(standing.sid)
    }

    /// How far a thread of this weight is ahead of who should be next, and how
    /// far it may be and go on; ns of virtual time.
    fn lead(&self, standing: Standing, weight: u32) -> (i64, i64) {
        let min_gid = state::min_gid(self.lock.core.load());
        if self.by_group() && standing.gid != min_gid {
            let ours = self.group_vlht(standing.gid);
            let lead = ours.wrapping_sub(self.group_vlht(min_gid)) as i64;
            return (lead, self.tolerance(group::weight(standing.gid)));
        }
        let tolerance = self.tolerance(weight);
        match self.lock.core.verdict() {
            Some(verdict) if self.criteria.contains(Criteria::VLHT) => {
                (standing.vlht.wrapping_sub(verdict.avg) as i64, tolerance)
            }
            _ => (0, tolerance),
        }
    }

    /// The slice for this weight, ns of virtual time. For who is heavier than
    /// the default it is the slice in hold time, so that heavy threads take
    /// turns as often as others do. Who is lighter gets less, because the time
    /// that its turn takes is worth that much more to the others.
    pub(crate) fn tolerance(&self, weight: u32) -> i64 {
        let slice = self.settings.slice_ns();
        let slice = if self.settings.strict() {
            slice / 4
        } else {
            slice
        };
        let (weight, default) = (u64::from(weight), u64::from(DEFAULT_WEIGHT));
        let scaled = if weight > default {
            slice * default / weight
        } else {
            slice * weight / default
        };
        scaled as i64
    }

    /// What is left of a thread's slice, ns of virtual time; negative if it has
    /// had so much that others go first.
    pub(crate) fn left(&self, standing: Standing, weight: u32) -> i64 {
        let (lead, tolerance) = self.lead(standing, weight);
        tolerance - lead
    }

    /// Whether a running thread may take the free lock before the waiters
    /// (Section 3.3): only one of the favoured group, because the average is that
    /// group's, and a thread of another could go on at its fellows' expense. It
    /// queues, and the census that follows compares the groups. While the head is
    /// still waking up nobody else could take it, so the slice counts four times
    /// then.
    pub(crate) fn may_steal(&self, standing: Standing, weight: u32, watched: bool) -> bool {
        if self.lock.core.verdict().is_none() {
            return false;
        }
        let here = self.favours_socket_of(standing);
        let (lead, tolerance) = self.lead(standing, weight);
        let patience = if watched || self.settings.strict() {
            1
        } else {
            4
        };
        let ours = self.favours_group_of(standing);
        self.criteria != Criteria::NONE && here && ours && lead < tolerance * patience
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
