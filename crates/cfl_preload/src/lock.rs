//! The core's lock, as the mutex uses it, and the options that all locks have.
//!
//! A static mutex is zero, which the core takes for its default profile. Some
//! options cannot be the default's: those that need every hold measured
//! (`strict_guarantee`, and the statistics of groups). If one of them is set,
//! each lock is given a profile of its own kind before it is first taken. That
//! may happen in several threads at once, all giving it the same.

use std::sync::OnceLock;

use giveway_locks::raw::{self, HoldStart, Kind, LockRef};
use giveway_locks::{Criteria, Options, Profile, Scope};
use giveway_machine::futex::Deadline;

use crate::config::{self, Criterion, LockSettings};
use crate::threads;

pub(crate) use giveway_locks::raw::{Core, Extra, HoldStart as Hold};

/// The profile that locks get which were made without one. Nothing: the
/// default is right.
static PROFILE: OnceLock<Profile> = OnceLock::new();

/// Gets the core ready, and sets the options of all locks. `metered`: whether
/// every hold is to be measured.
///
/// # Errors
///
/// A sentence if the core refuses the options.
pub(crate) fn prepare(settings: &LockSettings, metered: bool) -> Result<(), String> {
    raw::prepare();
    let options = options(settings).statistics(metered);
    if !metered && settings.strict_guarantee != Some(true) {
        return options.set_default().map_err(|error| error.to_string());
    }
    let profile = (options.register("preload")).map_err(|error| error.to_string())?;
    // Nobody else sets it.
    let _first = PROFILE.set(profile);
    Ok(())
}

/// Whether locks get a profile.
pub(crate) fn have_profile() -> bool {
    PROFILE.get().is_some()
}

/// The core's options with what is set.
fn options(settings: &LockSettings) -> Options {
    let mut options = Options::default();
    if let Some(scope) = settings.scope {
        options = options.scope(match scope {
            config::Scope::Thread => Scope::Thread,
            config::Scope::Lock => Scope::Lock,
        });
    }
    if let Some(criteria) = &settings.criteria {
        let flags = criteria.iter().map(|criterion| match criterion {
            Criterion::Vlht => Criteria::VLHT,
            Criterion::Socket => Criteria::SOCKET,
            Criterion::Group => Criteria::GROUP,
        });
        options = options.criteria(flags.fold(Criteria::NONE, Criteria::and));
    }
    if let Some(time) = config::microseconds(settings.grace_period_us) {
        options = options.grace_period(time);
    }
    if let Some(time) = config::microseconds(settings.slice_us) {
        options = options.slice(time);
    }
    if let Some(time) = config::microseconds(settings.spin_us) {
        options = options.spin(time);
    }
    if let Some(barging) = settings.barging {
        options = options.barging(barging);
    }
    if let Some(strict) = settings.strict_guarantee {
        options = options.strict_guarantee(strict);
    }
    options
}

/// A CFL lock in two pieces of a mutex.
pub(crate) struct Lock<'a>(LockRef<'a>);

impl<'a> Lock<'a> {
    #[inline]
    pub(crate) fn new(core: &'a Core, extra: &'a Extra) -> Lock<'a> {
        Lock(LockRef::new(core, extra))
    }

    /// Gives the lock its profile, if that is not the default.
    #[inline]
    fn adopt(&self) {
        if let Some(profile) = PROFILE.get()
            && self.0.profile_index() != profile.index()
        {
            self.0.set_profile(*profile);
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Hold {
        self.adopt();
        self.lock_plain()
    }

    /// Acquires. Only for locks of the default profile.
    #[inline]
    pub(crate) fn lock_plain(&self) -> Hold {
        self.0.lock(Kind::Mutex)
    }

    /// Acquires if nobody holds the lock and nobody has contended for it lately.
    /// Only for locks of the default profile.
    #[inline]
    pub(crate) fn take_uncontended(&self) -> bool {
        if threads::is_only_one() {
            // SAFETY: this is the only thread.
            unsafe { self.0.take_alone() }
        } else {
            self.0.take_uncontended()
        }
    }

    /// Releases what [`take_uncontended`](Self::take_uncontended) has acquired,
    /// or nothing if somebody has contended for it since.
    ///
    /// # Safety
    ///
    /// The lock is held, and was acquired that way.
    #[inline]
    pub(crate) unsafe fn give_uncontended(&self) -> bool {
        if threads::is_only_one() {
            // SAFETY: this is the only thread, and it holds the lock.
            unsafe { self.0.give_alone() }
        } else {
            // SAFETY: by the caller.
            unsafe { self.0.give_uncontended() }
        }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Hold> {
        self.adopt();
        self.0.try_lock(Kind::Mutex)
    }

    /// Nothing if the time, of a clock that [`time`](crate::time) knows, has come.
    pub(crate) fn lock_until(&self, deadline: Deadline) -> Option<Hold> {
        self.adopt();
        self.0.lock_until(Kind::Mutex, deadline)
    }

    /// # Safety
    ///
    /// The lock is held, and `hold` is what the holder got for it.
    #[inline]
    pub(crate) unsafe fn unlock(&self, hold: HoldStart) {
        // SAFETY: by the caller. Another thread than the holder may do it, as
        // glibc allows for normal mutexes: then that thread is charged, and
        // nothing else depends on who releases.
        unsafe { self.0.unlock(hold) };
    }

    #[inline]
    pub(crate) fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_setting_reaches_the_core_and_none_is_the_default() {
        assert_eq!(options(&LockSettings::default()), Options::default());
        let all = LockSettings {
            scope: Some(config::Scope::Lock),
            criteria: Some(vec![Criterion::Vlht, Criterion::Group]),
            strict_guarantee: Some(true),
            grace_period_us: Some(7),
            slice_us: Some(0),
            spin_us: Some(3),
            barging: Some(false),
        };
        let expected = Options::default()
            .scope(Scope::Lock)
            .criteria(Criteria::VLHT.and(Criteria::GROUP))
            .strict_guarantee(true)
            .grace_period(Duration::from_micros(7))
            .slice(Duration::ZERO)
            .spin(Duration::from_micros(3))
            .barging(false);
        assert_eq!(options(&all), expected);
    }
}
