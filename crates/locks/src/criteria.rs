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
//! thread starts at the average, as there, and so does a new group at the favoured
//! one's vLHT. A thread that lags because it was
//! away is brought to a fixed distance behind it, not to it: a jump would take
//! from a thread of weight 1000 ten times the distance in hold time. The
//! distance is that of the strict guarantee, `6 ms × (1 + log₂ CPUs)`, for a
//! thread that was away for as long, and 16 times that for others.
//!
//! The average is this lock's, and the favoured group's. A lock that has none yet, and
//! a thread whose group is not favoured, need another: the lowest vLHT among those that
//! have held a metered lock lately, threads of the same group or other groups, or, if
//! that is none, the vLHT of who was the last to. Else a new thread would start at 0 there,
//! and all that have ever held a lock would be behind it for as long as they ever have.
//! The lowest, not their average, because accounts are the same for many locks: a thread
//! that is raised is behind at all of them, to those that are not.
//!
//! Known weakness: of more than 256 threads only the first 256 slots are looked at. A new
//! thread whose group is in none of them starts at 0 at a lock without an average.

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

    /// The vLHT of a group here, if it is known.
    pub(crate) fn group_vlht(&self, gid: u32) -> Option<u64> {
        group::vlht(gid, self.lock.key(), self.scope)
    }

    /// Whether a group has held a lock in the last few slices, so that it
    /// counts as a competitor although none of its threads waits.
    pub(crate) fn active_lately(&self, gid: u32) -> bool {
        let last = group::last_seen(gid);
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
        let verdict = self.lock.core.verdict();
        if self.by_group() {
            self.place_group(gid, verdict.is_some());
        }
        let ours = !self.by_group() || gid == state::min_gid(self.lock.core.load());
        match verdict {
            Some(verdict) if ours => place(account, verdict.avg, || thread.last_seen()),
            // The average is not about this thread.
            Some(_) if account.is_placed() => {}
            _ => {
                let group = self.by_group().then_some(gid);
                let level = level(thread.peers(group, key, self.scope));
                place(account, level, || thread.last_seen());
            }
        }
        Standing {
            vlht: account.vlht(),
            sid: if self.by_socket() { thread.socket() } else { 0 },
            gid,
        }
    }

    /// Starvation prevention for the group of a thread that comes to the lock.
    fn place_group(&self, gid: u32, has_verdict: bool) {
        let key = self.lock.key();
        let min_gid = state::min_gid(self.lock.core.load());
        let account = group::account_for(gid, key, self.scope);
        let favoured = (has_verdict && gid != min_gid)
            .then(|| self.group_vlht(min_gid))
            .flatten();
        match favoured {
            Some(vlht) => place(account, vlht, || group::last_seen(gid)),
            // It is the favoured one, or nothing is known of that.
            None if has_verdict && account.is_placed() => {}
            None => {
                let level = level(group::others(gid, key, self.scope));
                place(account, level, || group::last_seen(gid));
            }
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
            let both = self.group_vlht(standing.gid).zip(self.group_vlht(min_gid));
            let lead = both.map_or(0, |(ours, lowest)| ours.wrapping_sub(lowest) as i64);
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

/// Where a thread or group starts at a lock that knows no average for it, by the vLHT of
/// others and the times, in ticks, when they were last seen; see above.
fn level(others: impl Iterator<Item = (u64, clock::Ticks)>) -> u64 {
    let (now, limit) = (clock::now(), 16 * sched_latency_ns());
    let mut lowest = None;
    let mut latest = (0, 0);
    for (vlht, last) in others.filter(|&(_, last)| last != 0) {
        if clock::ns(now.saturating_sub(last)) <= limit {
            lowest = Some(lowest.map_or(vlht, |lowest: u64| lowest.min(vlht)));
        }
        latest = latest.max((last, vlht));
    }
    lowest.unwrap_or(latest.1)
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

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;
    use crate::account::Hold;
    use crate::group::Group;
    use crate::options::Options;
    use crate::raw::{Core, Extra};
    use crate::state::Verdict;
    use crate::thread;

    const SECOND: u64 = 1_000_000_000;

    fn hold(lock: LockRef<'_>, scope: Scope, ns: u64) -> Hold {
        Hold {
            lock: lock.key(),
            scope,
            ns,
            holds: 1,
            now: clock::now(),
        }
    }

    /// A thread has held other locks for a second. A new one of its group is not owed
    /// that second at a lock that has no average, or one of another group.
    #[test]
    fn a_new_thread_is_owed_nothing_where_no_average_is_about_it() {
        let group = Group::new("newcomers").unwrap();
        let other = Group::new("not newcomers").unwrap();
        thread::join(group);
        let old = thread::current().unwrap();
        let (core, extra) = (Core::new(), Extra::new());
        let elsewhere = Policy::of(LockRef::new(&core, &extra));
        elsewhere.standing(old);
        old.charge(&hold(elsewhere.lock, Scope::Thread, SECOND), false);
        for has_average in [false, true] {
            let (core, extra) = (Core::new(), Extra::new());
            if has_average {
                core.set_min_gid(other.gid());
                core.set_verdict(Verdict { avg: 0, sid: 0 });
            }
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    thread::join(group);
                    let new = thread::current().unwrap();
                    let policy = Policy::of(LockRef::new(&core, &extra));
                    let found = policy.standing(new).vlht;
                    assert_eq!(found, old.account_for(0, Scope::Thread).vlht());
                });
            });
        }
    }

    /// Who was not seen lately counts only if nobody was.
    #[test]
    fn the_level_is_the_lowest_of_those_seen_lately() {
        let now = clock::now();
        // In a second of any clock there are as many ticks at least.
        let long_ago = now.saturating_sub(SECOND * 10).max(1);
        let lately = [(7, now), (5, now), (3, long_ago), (1, 0)];
        assert_eq!(level(lately.into_iter()), 5);
        assert_eq!(level([(3, long_ago), (9, 1)].into_iter()), 3);
        assert_eq!(level(std::iter::empty()), 0);
    }

    /// Two groups have had an hour of a lock each. The favoured one uses so many locks
    /// that this one's account is forgotten. It is not owed an hour by that.
    #[test]
    fn a_group_that_is_forgotten_is_owed_nothing() {
        let options = Options::default().scope(Scope::Lock);
        let profile = options.register("forgets").unwrap();
        let (core, extra) = (Core::new(), Extra::new());
        let lock = LockRef::new(&core, &extra);
        lock.set_profile(profile);
        let policy = Policy::of(lock);
        let [many, few] = ["many locks", "few locks"].map(|name| Group::new(name).unwrap());
        let me = thread::current().unwrap();
        let hour = hold(lock, Scope::Lock, 3600 * SECOND);
        for group in [few, many] {
            thread::join(group);
            policy.standing(me);
            group::charge(group.gid(), &hour);
        }
        core.set_min_gid(many.gid());
        core.set_verdict(Verdict { avg: 0, sid: 0 });
        for other in 1..=17 {
            let elsewhere = Hold {
                lock: other,
                ..hold(lock, Scope::Lock, 1)
            };
            group::charge(many.gid(), &elsewhere);
        }
        assert_eq!(policy.group_vlht(many.gid()), None, "forgotten");
        // A thread that only takes the free lock does not place its group.
        group::charge(many.gid(), &hold(lock, Scope::Lock, 1));
        let few_waits = Standing {
            vlht: 0,
            sid: 0,
            gid: few.gid(),
        };
        assert!(policy.left(few_waits, DEFAULT_WEIGHT) >= 0);
        thread::join(many);
        policy.standing(me);
        let found = [many, few].map(|group| policy.group_vlht(group.gid()));
        assert_eq!(found[0], found[1]);
    }
}
