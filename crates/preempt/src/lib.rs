//! Work that is preempted in user space, at almost any instruction.
//!
//! ```
//! use giveway_preempt::{self as preempt, Delivery, Level, Worker};
//! use std::sync::atomic::{AtomicU32, Ordering};
//!
//! static SERVED: AtomicU32 = AtomicU32::new(0);
//!
//! // This thread becomes a worker with one level above what it does itself.
//! let worker = Worker::builder()
//!     .delivery(Delivery::Poll)
//!     .level("urgent", |_| {
//!         SERVED.fetch_add(1, Ordering::Relaxed);
//!     })
//!     .enter()?;
//! let remote = worker.remote();
//! std::thread::spawn(move || remote.preempt(Level::new(1))).join().unwrap();
//!
//! // Long work passes poll points, or is interrupted by a signal between them.
//! preempt::poll_point();
//! assert_eq!(SERVED.load(Ordering::Relaxed), 1);
//! # Ok::<(), giveway_preempt::EnterError>(())
//! ```
//!
//! A worker thread has several contexts, one for each level of urgency, each
//! with a stack and thread-locals of its own. A scheduling thread asks it to go
//! to a higher level; the worker stops what it does at once, runs the
//! body of that level, and then continues what it did (Huang et al.,
//! SIGMOD '25, "Low-Latency Transaction Scheduling via Userspace Interrupts").
//!
//! `docs/build/preempt.md` explains the design, its hazards and the rules for those
//! who write an engine on it. The protocol is in the module documentation, from
//! the bottom up:
//!
//! | module | question |
//! | --- | --- |
//! | `level`, `error` | What is a level, what can go wrong? |
//! | `arch` | How does a CPU go from one stack to another? |
//! | `mail`, `outbox` | How is a preemption requested, and when is an interrupt sent? |
//! | `local`, `region` | What is context-local, when may a context not be preempted? |
//! | `alloc`, `mutex` | Which regions does every program need? |
//! | `donor`, `context` | Where do stacks and thread-locals come from, in which order do contexts run? |
//! | `gate`, `signal`, `uintr`, `delivery` | How does a request reach a worker, when is it refused? |
//! | `worker`, `remote`, `measure` | How is it used? |
//! | `debugger` | How does a debugger find paused contexts? |
//!
//! On top of it, a pool of workers with the paper's policies; [`Pool`] is where
//! to begin:
//!
//! | module | question |
//! | --- | --- |
//! | `sync`, `clock`, `histogram` | What does the pool stand on? |
//! | `queue`, `presence`, `backlog` | Where do tasks wait, and workers for tasks? |
//! | `policy`, `starvation`, `tuning` | When is a worker taken from what it does, and when not? |
//! | `task`, `stats` | What is a task, what can be seen? |
//! | `lowering` | How does the kernel learn what a worker is for? |
//! | `pool`, `yield_points` | How is it used? |

mod alloc;
mod arch;
mod backlog;
mod clock;
mod context;
mod debugger;
mod delivery;
mod donor;
mod error;
mod gate;
mod histogram;
mod level;
mod local;
mod lowering;
mod mail;
mod measure;
#[cfg(all(test, loom))]
mod models;
mod mutex;
mod outbox;
mod policy;
mod pool;
mod presence;
mod queue;
mod region;
mod remote;
#[cfg(any(asan, tsan))]
mod sanitizer;
mod signal;
mod starvation;
mod stats;
mod sync;
mod task;
mod trail;
mod tuning;
#[cfg(target_arch = "x86_64")]
mod uintr;
mod worker;
mod yield_points;

pub use alloc::RegionAlloc;
pub use context::{
    WorkerId, Yielded, current_level, current_worker, task_boundary, yield_below, yield_to,
};
pub use delivery::Delivery;
pub use error::{DeliveryError, EnterError};
// The words of the interface, so that a program needs no second package for them.
#[cfg(not(loom))]
pub use giveway_hints::slot::Table as HintTable;
pub use giveway_tier::{Tier, Weight};
pub use level::{Level, Levels};
#[cfg(not(loom))]
pub use lowering::HintSlot;
pub use lowering::Lowering;
pub use mail::{Counters, Requested};
pub use measure::Latency;
pub use mutex::{RawRegionMutex, RegionMutex, RegionMutexGuard};
pub use policy::{ParsePolicyError, Policy};
pub use pool::{
    Batch, BuildError, Holder, Pool, PoolBuilder, Refused, Request, Shutdown, Stall, Ticker, Unrun,
    Why,
};
pub use region::{Region, acknowledge, in_region, is_due, poll_point, region};
pub use remote::Remote;
pub use starvation::{Since, Threshold, ThresholdError};
pub use stats::{LevelStats, Metric, PoolStats, Summary, WorkerStats};
pub use task::{TaskError, Ticket};
pub use tuning::{Goal, GoalError, Verdict};
pub use worker::{Builder, Worker};
pub use yield_points::{handcrafted_yield_point, poll_record};

// The example of the package's front page is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
