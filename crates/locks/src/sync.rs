//! What the locks stand on: atomics, statics, thread-local state, spinning.
//!
//! The protocol is checked by running the real code under model checkers, so
//! everything that they must see or must decide goes through this module:
//!
//! | built with | atomics, threads, statics | the scheduler is |
//! | --- | --- | --- |
//! | nothing | `std`, zeroed statics | the kernel |
//! | `--cfg loom` | `loom` | exhaustive, weak memory, 2 to 3 threads |
//! | `--cfg shuttle` | `shuttle` | random, sequentially consistent, 4 to 16 threads |
//!
//! Time does not pass by itself in a model: the clock is the virtual one, and
//! every deadline has passed when it is looked at.
//!
//! Some numbers only say which thread should go first, or what has happened:
//! accounts, averages, options, counters. Whatever is read from one, the lock
//! works, and nothing in the queue is ordered by one. They are [`LooseU64`] and its
//! like: atomics as all others, but not shown to loom, which would otherwise try
//! every order in which a statistic can be read before it comes to the queue.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{
    AtomicU32 as LooseU32, AtomicU64 as LooseU64, AtomicUsize as LooseUsize,
};
#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic::{
    AtomicU32 as LooseU32, AtomicU64 as LooseU64, AtomicUsize as LooseUsize,
};

pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Whether a model checker drives the threads.
pub(crate) const MODEL: bool = cfg!(any(loom, shuttle));

/// `const fn` where the atomics can be made by one, which loom's cannot.
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => {
        #[cfg(not(any(loom, shuttle)))]
        $(#[$meta])* $vis const fn $($rest)*
        #[cfg(any(loom, shuttle))]
        $(#[$meta])* $vis fn $($rest)*
    };
}
pub(crate) use const_fn;

/// A static that a model checker starts afresh in every execution.
macro_rules! model_static {
    ($(pub($scope:ident))? static $name:ident: $type:ty = $init:expr;) => {
        #[cfg(not(any(loom, shuttle)))]
        $(pub($scope))? static $name: $type = $init;
        #[cfg(loom)]
        loom::lazy_static! { $(pub($scope))? static ref $name: $type = $init; }
        #[cfg(shuttle)]
        shuttle::lazy_static! { $(pub($scope))? static ref $name: $type = $init; }
    };
}
pub(crate) use model_static;

/// A thread-local number, zero at first, without a destructor: reading it can
/// neither allocate nor fail, at any time of a thread's life.
macro_rules! local_number {
    ($vis:vis static $name:ident;) => {
        #[cfg(not(any(loom, shuttle)))]
        std::thread_local! { $vis static $name: std::cell::Cell<u32> = const { std::cell::Cell::new(0) }; }
        #[cfg(loom)]
        loom::thread_local! { $vis static $name: std::cell::Cell<u32> = std::cell::Cell::new(0); }
        #[cfg(shuttle)]
        shuttle::thread_local! { $vis static $name: std::cell::Cell<u32> = std::cell::Cell::new(0); }
    };
}
pub(crate) use local_number;

/// One step of waiting for another thread that is running.
#[inline]
pub(crate) fn relax() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
    #[cfg(not(any(loom, shuttle)))]
    std::hint::spin_loop();
}

/// Lets another thread have this CPU.
#[inline]
pub(crate) fn give_cpu() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
    #[cfg(not(any(loom, shuttle)))]
    std::thread::yield_now();
}

/// Runs a model of one step in every order with at most three preemptions.
///
/// Threads that are to overtake each other must all be spawned. loom remembers
/// one access to an atomic, the last: a read followed by another thread's read
/// is forgotten, and with it the order in which that thread wrote first. What
/// makes up for it is that loom also tries others wherever a thread begins to
/// run, and the model's first thread begins when there are no others.
#[cfg(all(test, loom))]
pub(crate) fn check(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 2_000;
    builder.check(body);
}

/// CPUs this process may use, asked for once.
pub(crate) fn cpus() -> u32 {
    if MODEL {
        return 2;
    }
    use std::sync::atomic::{AtomicU32, Ordering};
    static CPUS: AtomicU32 = AtomicU32::new(0);
    let known = CPUS.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let count = giveway_machine::topology::cpus_allowed();
    CPUS.store(count, Ordering::Relaxed);
    count
}
