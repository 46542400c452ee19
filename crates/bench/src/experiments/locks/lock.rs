//! What the harness wants of a lock.
//!
//! A lock is measured by code that is compiled for it: [`BenchLock`] and its
//! handle are used by generic functions only, so that an uncontended call pays
//! for no table of functions.

/// Who a thread is to a lock that asks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    /// The thread's weight among those of its group, or among all.
    pub(crate) weight: u32,
    /// Its group.
    pub(crate) group: Option<GroupSpec>,
}

/// The weight of threads that are all alike: CFL's default.
pub(crate) const EQUAL_WEIGHT: u32 = 100;

impl Member {
    /// A thread like any other.
    pub(crate) const EQUAL: Member = Member {
        weight: EQUAL_WEIGHT,
        group: None,
    };
}

/// Threads that share one share.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupSpec {
    pub(crate) name: String,
    pub(crate) weight: u32,
}

/// A lock that can be measured.
pub(crate) trait BenchLock: Send + Sync {
    /// What a thread keeps between its calls: a queue node, a guard.
    type Handle<'a>: LockHandle
    where
        Self: 'a;

    /// Called once by each thread, before it takes the lock.
    fn join(&self, member: &Member) -> Self::Handle<'_>;
}

/// A thread's access to a lock.
///
/// # Safety
/// From the return of `lock` to the call of `unlock`, no `lock` of another
/// handle of the same lock returns, and what was written before `unlock` is
/// seen after the `lock` that follows.
pub(crate) unsafe trait LockHandle {
    /// Waits for the lock and takes it.
    fn lock(&mut self);

    /// Gives it back.
    ///
    /// # Safety
    /// The lock is held through this handle.
    unsafe fn unlock(&mut self);
}
