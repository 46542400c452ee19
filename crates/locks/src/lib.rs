//! Completely fair locking: locks that share hold time by weight.
//!
//! ```
//! use giveway_locks::{Group, Mutex, thread};
//!
//! static TABLE: Mutex<Vec<u32>> = Mutex::new(Vec::new());
//!
//! // Threads of this group get a tenth of what the others' group gets of a
//! // lock that both want, however many they are and however long they hold it.
//! let compaction = Group::new("compaction")?.weight(10)?;
//! std::thread::spawn(move || {
//!     thread::join(compaction);
//!     TABLE.lock().push(1);
//! })
//! .join()
//! .unwrap();
//! assert_eq!(TABLE.lock().len(), 1);
//! # Ok::<(), giveway_locks::GroupError>(())
//! ```
//!
//! Without a scheduler, a lock is held most by the threads with the longest critical
//! sections, or by the group with most threads, whatever their CPU weights. Completely
//! fair locking (Park and Eom, PPoPP '24) schedules lock hold time as CFS does
//! CPU time: each thread has a virtual lock hold time, which moves more slowly
//! the more weight it has, and waiters that have had less than the average go
//! first.
//!
//! A child of `fork` calls [`raw::after_fork_in_child`] before it uses a lock.
//!
//! `docs/build/locks.md` explains the design and every option. The protocol is in the
//! module documentation, from the bottom up:
//!
//! | module | question |
//! | --- | --- |
//! | `sync`, `clock`, `topology`, `slab` | What do we stand on? |
//! | `state`, `node` | What is a lock, what is a waiter, which thread writes what? |
//! | `account`, `held`, `thread`, `group`, `rules` | How long has each thread held locks? |
//! | `options`, `stats` | What can be chosen, what can be seen? |
//! | `criteria`, `socket`, `scheduler`, `links` | Which waiter should be next? |
//! | `acquire`, `release`, `fork` | How does the lock change hands? |
//! | [`raw`], [`mutex`], `condvar`, `v04` | How is it used? |

mod account;
mod acquire;
mod clock;
#[cfg(not(any(loom, shuttle)))]
mod condvar;
mod criteria;
mod fork;
mod group;
mod held;
mod links;
#[cfg(not(any(loom, shuttle)))]
pub mod mutex;
mod node;
mod options;
pub mod raw;
mod release;
mod rules;
mod scheduler;
mod slab;
mod socket;
mod state;
mod stats;
mod sync;
pub mod thread;
mod topology;
#[cfg(all(feature = "lock_api_04", not(any(loom, shuttle))))]
pub mod v04;

pub use clock::VirtualClock;
#[cfg(not(any(loom, shuttle)))]
pub use condvar::RawCondvar;
pub use giveway_machine::futex::Deadline;
pub use group::{Group, GroupError};
#[cfg(not(any(loom, shuttle)))]
pub use mutex::{RawMutex, RawSpinlock};
pub use options::{Criteria, NotForAll, Options, Profile, Scope, TooManyProfiles};
pub use rules::{CgroupError, Rules, matches, register, register_by_cgroup, register_other};
pub use stats::{GroupSnapshot, Snapshot, ThreadShare, jain, jain_by_weight};
pub use topology::Topology;

/// A mutex whose waiters share hold time by weight.
#[cfg(not(any(loom, shuttle)))]
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// The guard of a [`Mutex`].
#[cfg(not(any(loom, shuttle)))]
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// A spinlock whose waiters share hold time by weight.
#[cfg(not(any(loom, shuttle)))]
pub type Spinlock<T> = lock_api::Mutex<RawSpinlock, T>;
/// The guard of a [`Spinlock`].
#[cfg(not(any(loom, shuttle)))]
pub type SpinlockGuard<'a, T> = lock_api::MutexGuard<'a, RawSpinlock, T>;
/// A condition variable for a [`Mutex`].
#[cfg(not(any(loom, shuttle)))]
pub type Condvar = lock_api::Condvar<RawCondvar<RawMutex>>;

// The example of the package's front page is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
