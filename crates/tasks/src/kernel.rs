//! What a thread tells the kernel's scheduler: the tier of the work that it does.
//!
//! UFS gives CPUs to threads by tier, and sees threads, not queries. So a thread that
//! runs a background query says so in its hint slot, and background work of an engine
//! gives way to every time-sensitive program of the machine. Doing time-sensitive work,
//! or none, a thread is in its cgroup's tier.
//!
//! A thread in the background may wait long for a CPU, and cannot say then that it has
//! got urgent work. So whoever gives it some raises it ([`Raise`]):
//!
//! ```text
//!   worker                                   who opens a slot for urgent work
//!   K1 say "background"                      K3 push the slot into its masks
//!      fence                                    fence
//!   K2 look at the masks; if there is        K4 raise the worker
//!      news, be raised for this task
//! ```
//!
//! N1. A worker with urgent news is not in the background for longer than a task: either
//!     K2 sees K3, or K4 comes after K1. (not asserted: the slot is another program's
//!     to read; tested with a table of our own)
//!
//! Without UFS there is no table and no slot: what is left is a test of an `Option` for
//! each task.
//!
//! Known weakness: a thread looks for a table when it begins and whenever it has nothing
//! to do, at most every ten seconds. One that is always busy, in an engine that is older
//! than UFS's start, is not known to UFS.

pub(crate) use slot::Raise;
#[cfg(not(loom))]
pub use slot::ThreadTier;
#[cfg(loom)]
pub(crate) use slot::ThreadTier;

/// No slots in models: the kernel is not part of them.
#[cfg(loom)]
mod slot {
    use giveway_tier::Tier;

    pub(crate) struct ThreadTier;

    impl ThreadTier {
        pub(crate) fn attach() -> ThreadTier {
            ThreadTier
        }

        pub(crate) fn refresh(&mut self) -> bool {
            false
        }

        pub(crate) fn say(&self, _: Tier) {}

        pub(crate) fn is_attached(&self) -> bool {
            false
        }

        pub(crate) fn remote(&self) {}
    }

    #[derive(Default)]
    pub(crate) struct Raise;

    impl Raise {
        pub(crate) fn set(&self, (): ()) {}

        pub(crate) fn raise(&self) {}
    }
}

#[cfg(not(loom))]
mod slot {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::{Relaxed, Release};
    use std::time::{Duration, Instant};

    use giveway_hints::slot::{Remote, Slot, Table};
    use giveway_tier::Tier;

    /// How long a thread without a table does not look for one again.
    const LOOK_AGAIN: Duration = Duration::from_secs(10);

    /// The calling thread's hint slot, if UFS has one for it.
    #[derive(Debug)]
    pub struct ThreadTier {
        own: Option<(Table, Slot)>,
        looked: Instant,
    }

    impl ThreadTier {
        /// Claims a slot for the calling thread.
        pub fn attach() -> ThreadTier {
            let mut tier = ThreadTier {
                own: None,
                looked: Instant::now(),
            };
            tier.look();
            tier
        }

        fn look(&mut self) {
            self.looked = Instant::now();
            // First, since a thread that claims again gets the same slot.
            self.own = None;
            // Programs do without a table, whatever the reason is.
            self.own = Table::open(None)
                .ok()
                .and_then(|table| Some((table, table.attach()?)));
        }

        /// Looks for a table if there was none, or there is a newer one; true if it has
        /// found one.
        pub fn refresh(&mut self) -> bool {
            let is_over = match &self.own {
                Some((table, _)) => table.is_replaced(),
                None => true,
            };
            if is_over && self.looked.elapsed() >= LOOK_AGAIN {
                self.look();
                return self.own.is_some();
            }
            false
        }

        /// Says what the thread works for from now on.
        pub fn say(&self, tier: Tier) {
            if let Some((_, slot)) = &self.own {
                match tier {
                    Tier::Background => slot.set_tier(tier),
                    Tier::TimeSensitive => slot.reset_tier(),
                }
            }
        }

        /// Whether there is a slot to write to.
        pub fn is_attached(&self) -> bool {
            self.own.is_some()
        }

        pub(crate) fn remote(&self) -> Option<Remote> {
            self.own.as_ref().map(|(_, slot)| slot.remote())
        }
    }

    /// By which others raise a worker.
    #[derive(Debug, Default)]
    pub(crate) struct Raise {
        /// Whether there is a remote: most machines have none.
        is_there: AtomicBool,
        remote: Mutex<Option<Remote>>,
    }

    impl Raise {
        /// The worker has a slot.
        pub(crate) fn set(&self, remote: Option<Remote>) {
            let is_there = remote.is_some();
            *lock(&self.remote) = remote;
            self.is_there.store(is_there, Release);
        }

        /// K4, after a fence.
        pub(crate) fn raise(&self) {
            if self.is_there.load(Relaxed)
                && let Some(remote) = &*lock(&self.remote)
            {
                remote.reset();
            }
        }
    }

    fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
        mutex
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
