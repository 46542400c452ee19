//! What the pool's tests share: a pool with one worker, so that everything meets
//! on it; flags that tasks wait for; a log of what happened.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use giveway_preempt::{Level, Policy, Pool, PoolBuilder, RegionAlloc, RegionMutex};
use giveway_tier::Tier;

// Tasks allocate, and are left while they do.
#[global_allocator]
static ALLOCATOR: RegionAlloc<std::alloc::System> = RegionAlloc(std::alloc::System);

pub(crate) const HIGH: Level = Level::new(1);
pub(crate) const HIGHER: Level = Level::new(2);
/// Longer than anything takes on a busy machine; only a failed test waits it out.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// How often a flag is looked at: some ten seconds of the CPU, however many others
/// want it.
const STEPS: u32 = 1 << 29;

/// One worker, so that everything meets on it.
pub(crate) fn one(policy: Policy) -> PoolBuilder {
    Pool::builder().workers(1).policy(policy)
}

pub(crate) fn every(number: u32) -> std::num::NonZeroU32 {
    number.try_into().unwrap()
}

/// A flag that a task waits for, in code that can be preempted at every
/// instruction: without poll points, and without looks at the clock, during which
/// a signal is refused.
#[derive(Clone, Default)]
pub(crate) struct Flag(Arc<AtomicBool>);

impl Flag {
    pub(crate) fn raise(&self) {
        self.0.store(true, SeqCst);
    }

    pub(crate) fn is_up(&self) -> bool {
        self.0.load(SeqCst)
    }

    /// Whether the flag went up; `step` is run all the time until then.
    pub(crate) fn wait_with(&self, mut step: impl FnMut()) -> bool {
        let mut left = STEPS;
        while !self.is_up() && left > 0 {
            step();
            left -= 1;
        }
        self.is_up()
    }

    pub(crate) fn wait(&self) -> bool {
        self.wait_with(std::hint::spin_loop)
    }
}

/// What happened, in order. Tasks on all levels write to it.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<RegionMutex<Vec<String>>>);

impl Log {
    pub(crate) fn write(&self, what: impl Into<String>) {
        let what = what.into();
        self.0.lock().push(what);
    }

    /// A task that writes that it ran.
    pub(crate) fn task(&self, name: impl Into<String>) -> impl FnOnce() + Send + 'static {
        let (log, name) = (self.clone(), name.into());
        move || log.write(name)
    }

    pub(crate) fn read(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

/// Keeps the only worker busy at the base until the flag goes up.
pub(crate) fn occupy(pool: &Pool) -> Flag {
    let (started, go) = (Flag::default(), Flag::default());
    let task = {
        let (started, go) = (started.clone(), go.clone());
        move || {
            started.raise();
            assert!(go.wait());
        }
    };
    drop(pool.submit(Tier::Background, task).unwrap());
    assert!(started.wait());
    go
}
