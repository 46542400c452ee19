//! Our own locks, plain and with the options that the paper evaluates.
//!
//! | name | is | paper |
//! | --- | --- | --- |
//! | `cfl` | the mutex | CFL (M), Figure 8 |
//! | `cfl-sg` | and `strict_guarantee` | CFL-SG, 3.4.4 |
//! | `cfl-ng` | and groups do not count | CFL-NG, 4.2 |
//! | `cfl-ns` | and sockets do not count | |
//! | `cfl-grace` | and a `grace_period` of 50 ms | 3.4.5 |
//! | `cfl-per-lock` | and hold time counted for each lock | SCL's scope |
//! | `cfl-fifo` | and no barging | |
//! | `cfl-spin` | the spinlock | CFL (S) |
//! | `cfl-spin-sg` | and `strict_guarantee` | |
//! | `cfl-spin-ns` | and sockets do not count | |

use std::time::Duration;

use giveway_locks::{Criteria, Group, Options, RawMutex, RawSpinlock, Scope, thread};

use super::rust::{Raw, RawHandle};
use crate::experiments::locks::kind::{Kind, Traits};
use crate::experiments::locks::lock::{BenchLock, Member};
use crate::harness::error::{Error, Result};

const TRAITS: Traits = Traits {
    fair: true,
    weighted: true,
    baseline: false,
};

/// Every variant.
pub(super) fn kinds() -> Vec<Kind> {
    fn plain() -> Options {
        Options::default()
    }
    let strict = move || plain().strict_guarantee(true);
    let blind = move || plain().criteria(Criteria::VLHT.and(Criteria::GROUP));
    vec![
        mutex("cfl", "completely fair mutex", plain),
        mutex("cfl-sg", "its strict guarantee", strict),
        mutex("cfl-ng", "it, blind to groups", move || {
            plain().criteria(Criteria::VLHT.and(Criteria::SOCKET))
        }),
        mutex("cfl-ns", "it, blind to sockets", blind),
        mutex("cfl-grace", "it, 50 ms of grace period", move || {
            plain().grace_period(Duration::from_millis(50))
        }),
        mutex("cfl-per-lock", "it, accounts per lock", move || {
            plain().scope(Scope::Lock)
        }),
        mutex("cfl-fifo", "it, without barging", move || {
            plain().barging(false)
        }),
        spinlock("cfl-spin", "completely fair spinlock", plain),
        spinlock("cfl-spin-sg", "its strict guarantee", strict),
        spinlock("cfl-spin-ns", "it, blind to sockets", blind),
    ]
}

fn mutex(
    name: &'static str,
    about: &'static str,
    options: impl Fn() -> Options + Send + Sync + 'static,
) -> Kind {
    let make = move || Ok(Raw::new(RawMutex::with_profile(profile(name, options())?)));
    Kind::new(name, about, make).with(TRAITS)
}

fn spinlock(
    name: &'static str,
    about: &'static str,
    options: impl Fn() -> Options + Send + Sync + 'static,
) -> Kind {
    let make = move || {
        Ok(Raw::new(RawSpinlock::with_profile(profile(
            name,
            options(),
        )?)))
    };
    Kind::new(name, about, make).with(TRAITS)
}

fn profile(name: &str, options: Options) -> Result<giveway_locks::Profile> {
    options
        .register(name)
        .map_err(|error| Error::Config(error.to_string()))
}

/// Tells CFL who the calling thread is.
fn register(member: &Member) {
    let group = member.group.as_ref().map_or(Group::ROOT, |group| {
        Group::new(&group.name)
            .and_then(|made| made.weight(group.weight))
            .expect("a run has few groups, with weights that CFL takes")
    });
    thread::join(group);
    thread::set_weight(member.weight).expect("weights of scenarios are those of CFL");
}

impl BenchLock for Raw<RawMutex> {
    type Handle<'a> = RawHandle<'a, RawMutex>;

    fn join(&self, member: &Member) -> Self::Handle<'_> {
        register(member);
        self.handle()
    }
}

impl BenchLock for Raw<RawSpinlock> {
    type Handle<'a> = RawHandle<'a, RawSpinlock>;

    fn join(&self, member: &Member) -> Self::Handle<'_> {
        register(member);
        self.handle()
    }
}
