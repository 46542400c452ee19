//! What can be chosen, and where the choice is kept.
//!
//! A lock is too small to hold its options. It holds the number of a *profile*:
//! options and, if wanted, statistics, in a static table. Locks may share a
//! profile, or have one each when their statistics are to be told apart.
//! Profile 0 is every zeroed lock's; [`Options::set_default`] changes it.
//!
//! Profiles live as long as the process, so a lock's number is always good.

mod settings;

pub(crate) use settings::Settings;

use std::time::Duration;

use crate::slab::Slab;
use crate::stats::Snapshot;

/// Profiles, with the default one.
const PROFILES: usize = if crate::sync::MODEL { 4 } else { 4096 };
/// Bytes kept of a name.
const NAME: usize = 48;

crate::sync::model_static! {
    static SLAB: Slab<Settings, PROFILES> = Slab::new();
}

/// Whose vLHT decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// A thread has one vLHT for all locks with this scope, as in the paper
    /// (Section 3.2.1). Who hogs one lock waits at all of them.
    #[default]
    Thread,
    /// A thread has one vLHT per lock. Each lock is shared fairly by itself;
    /// a thread has up to 8 such accounts, a group 16, and forgets the oldest.
    Lock,
}

/// Which conditions a waiter must meet to be moved forward (Section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Criteria(u32);

impl Criteria {
    /// The waiter's vLHT is below the average of the waiters.
    pub const VLHT: Criteria = Criteria(1);
    /// The waiter's socket is the one with the lowest average.
    pub const SOCKET: Criteria = Criteria(2);
    /// The waiter's group is the one with the lowest vLHT.
    pub const GROUP: Criteria = Criteria(4);
    /// All three.
    pub const ALL: Criteria = Criteria(7);
    /// None: first come, first served.
    pub const NONE: Criteria = Criteria(0);

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Criteria) -> Criteria {
        Criteria(self.0 | other.0)
    }

    /// Whether all of `other` are in this set.
    #[inline]
    pub const fn contains(self, other: Criteria) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How a lock schedules. See `docs/build/locks.md` on how to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "options do nothing until they are registered"]
pub struct Options {
    scope: Scope,
    criteria: Criteria,
    strict_guarantee: bool,
    grace_period: Duration,
    slice: Duration,
    spin: Duration,
    barging: Option<bool>,
    statistics: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            scope: Scope::Thread,
            criteria: Criteria::ALL,
            strict_guarantee: false,
            grace_period: Duration::ZERO,
            slice: Duration::from_nanos(SLICE_NS),
            spin: Duration::from_nanos(SPIN_NS),
            barging: None,
            statistics: false,
        }
    }
}

/// Default of [`Options::slice`], ns.
pub(crate) const SLICE_NS: u64 = 250_000;
/// Default of [`Options::spin`], ns.
const SPIN_NS: u64 = 50_000;

impl Options {
    /// Whose vLHT decides. Default: [`Scope::Thread`].
    pub fn scope(mut self, scope: Scope) -> Options {
        self.scope = scope;
        self
    }

    /// Which conditions a waiter must meet to be moved. Default: all. The one
    /// on sockets has no effect on a machine with one NUMA node, the one on
    /// groups none before a group is made.
    pub fn criteria(mut self, criteria: Criteria) -> Options {
        self.criteria = criteria;
        self
    }

    /// Whether a thread that has had too much waits although the lock is free
    /// (Section 3.4.4): until the others have caught up, or for
    /// 6 ms × (1 + log₂ CPUs). Fair also with two threads; not work-conserving.
    /// Default: no.
    pub fn strict_guarantee(mut self, strict: bool) -> Options {
        self.strict_guarantee = strict;
        self
    }

    /// How long the favoured socket stays (Section 3.4.5), at least, as long as
    /// threads on it wait; counted in whole milliseconds. Fewer transfers
    /// between sockets; threads on the others wait for as long. The paper uses
    /// 50 ms. At most a minute. Default: 0, and a socket has its turn until it
    /// leads by a slice.
    pub fn grace_period(mut self, grace: Duration) -> Options {
        self.grace_period = grace;
        self
    }

    /// How far, in virtual time, a running thread may lead the average before
    /// it has to queue. Longer slices mean fewer switches and more throughput;
    /// shares are exact over many slices. It counts four times while the head is
    /// still waking up, and less for threads lighter or heavier than the
    /// default. 0 is the paper to the letter: only threads below the average
    /// pass sleeping waiters. Default: 250 µs.
    pub fn slice(mut self, slice: Duration) -> Options {
        self.slice = slice;
        self
    }

    /// How long the head of the queue watches a mutex before it sleeps, at most:
    /// where spinning is mostly in vain it watches for less, down to one look.
    /// Default: 50 µs, about what a wake-up takes.
    pub fn spin(mut self, spin: Duration) -> Options {
        self.spin = spin;
        self
    }

    /// Whether threads that meet the criteria may take a free lock that others
    /// wait for (Section 3.3). Default: yes for a mutex, no for a spinlock.
    pub fn barging(mut self, barging: bool) -> Options {
        self.barging = Some(barging);
        self
    }

    /// Whether to keep statistics. All holds are then metered. Default: no.
    pub fn statistics(mut self, statistics: bool) -> Options {
        self.statistics = statistics;
        self
    }

    /// Enters these options into the table, under a name for reports (48 bytes
    /// are kept).
    ///
    /// # Errors
    /// If the table is full.
    pub fn register(self, name: &str) -> Result<Profile, TooManyProfiles> {
        let index = SLAB.take().ok_or(TooManyProfiles)?;
        SLAB.get(index).set(&self, name);
        Ok(Profile {
            index: index as u16,
            metered: self.metered(),
        })
    }

    /// Makes these the options of locks without a profile. Meant for the start
    /// of a program: locks in use change their ways one by one. Statistics and
    /// strict guarantee need locks made for them, and are refused here.
    ///
    /// # Errors
    /// If statistics or strict guarantee are on.
    pub fn set_default(self) -> Result<(), NotForAll> {
        if self.metered() {
            return Err(NotForAll);
        }
        SLAB.get(0).set(&self, "default");
        Ok(())
    }

    fn metered(&self) -> bool {
        self.statistics || self.strict_guarantee
    }
}

/// The table of profiles is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {} profiles already; let locks share one", PROFILES - 1)]
pub struct TooManyProfiles;

/// These options cannot be the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("statistics and strict guarantee need a profile; register one and make locks with it")]
pub struct NotForAll;

/// Registered options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    index: u16,
    metered: bool,
}

impl Profile {
    /// The profile of locks that name none.
    pub const DEFAULT: Profile = Profile {
        index: 0,
        metered: false,
    };

    /// The number that a lock keeps.
    pub const fn index(self) -> u16 {
        self.index
    }

    /// Whether locks of this profile are metered from the first acquisition.
    pub(crate) const fn metered(self) -> bool {
        self.metered
    }

    /// The name it was registered with.
    pub fn name(self) -> String {
        self.settings().name()
    }

    /// What the locks of this profile have seen; zeros if they keep no
    /// statistics.
    pub fn statistics(self) -> Snapshot {
        self.settings().counters.snapshot()
    }

    pub(crate) fn settings(self) -> &'static Settings {
        settings(self.index)
    }
}

/// The options of a lock that keeps this number.
#[inline]
pub(crate) fn settings(profile: u16) -> &'static Settings {
    SLAB.get(profile.into())
}

/// 6 ms × (1 + log₂ CPUs), as CFS has it: how long a thread idles under the
/// strict guarantee, and how far behind one may fall by being away.
pub(crate) fn sched_latency_ns() -> u64 {
    6_000_000 * u64::from(1 + crate::sync::cpus().ilog2())
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::slab::Slot;

    #[test]
    fn a_zeroed_profile_has_the_default_options() {
        let zeroed = Settings::ZERO;
        let set = Settings::ZERO;
        set.set(&Options::default(), "");
        for settings in [&zeroed, &set] {
            assert_eq!(settings.criteria(), Criteria::ALL);
            assert_eq!(settings.scope(), Scope::Thread);
            assert_eq!(
                (settings.slice_ns(), settings.spin_ns()),
                (SLICE_NS, SPIN_NS)
            );
            assert!(!settings.strict() && !settings.statistics());
            assert!(settings.barging(true) && !settings.barging(false));
        }
    }

    #[test]
    fn a_lock_reads_the_options_that_were_registered() {
        let profile = Options::default()
            .scope(Scope::Lock)
            .criteria(Criteria::VLHT.and(Criteria::GROUP))
            .strict_guarantee(true)
            .slice(Duration::ZERO)
            .grace_period(Duration::from_millis(50))
            .barging(false)
            .register("options-test")
            .unwrap();
        let read = settings(profile.index());
        assert_eq!(read.scope(), Scope::Lock);
        assert!(!read.criteria().contains(Criteria::SOCKET));
        assert!(
            read.criteria()
                .contains(Criteria::VLHT.and(Criteria::GROUP))
        );
        assert!(read.strict() && read.always_metered() && !read.barging(true));
        assert_eq!((read.slice_ns(), read.grace_ns()), (0, 50_000_000));
        assert_eq!(profile.name(), "options-test");
    }

    #[test]
    fn the_default_profile_cannot_be_strict() {
        let strict = Options::default().strict_guarantee(true);
        assert_eq!(strict.set_default(), Err(NotForAll));
    }
}
