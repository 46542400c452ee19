//! Self-tuning query scheduling: short queries stay short however many long ones
//! there are.
//!
//! An engine gives each query to a pool of workers as a list of pipelines, which
//! can be run in pieces by many workers. The workers cut them into tasks of 2 ms and
//! choose among queries without a lock and almost without shared writes. A query gives way
//! to others with the CPU time it has received; by which rule and how fast is found by
//! simulating the scheduler on the queries that have just run (Wagner, Kohn and Neumann,
//! SIGMOD '21, "Self-Tuning Query Scheduling for Analytical Workloads"). Begin with
//! [`Pool`]; an engine implements [`Pipeline`].
//!
//! `docs/build/tasks.md` explains the design and its departures from the paper. The
//! protocols are in the module documentation, from the bottom up:
//!
//! | module | question |
//! | --- | --- |
//! | `sync`, `clock`, `mask`, `parking` | Which primitives are used, so that models can replace them? |
//! | `group_word`, `decay`, `attained`, `order`, `policy`, `local` | Which group does one worker run next? |
//! | `line` | Which group that waits is next? |
//! | `morsel` | How much is run at a time? |
//! | `pipeline`, `wake`, `task_set`, `group`, `query` | What is run? |
//! | `kernel` | What does the kernel's scheduler learn of it? |
//! | `slots`, `shared`, `worker` | How do workers agree without waiting for each other? |
//! | `replay`, `tuning` | Which parameters would have been best for the recent queries? |
//! | `error`, `stats`, `pool`, [`simulation`] | How is it used, with threads or with a virtual clock? |

// Models drive workers without the pool around them.
#![cfg_attr(loom, allow(dead_code))]

mod attained;
mod clock;
mod decay;
mod error;
mod group;
mod group_word;
mod kernel;
mod line;
mod local;
mod mask;
#[cfg(all(test, loom))]
mod models;
mod morsel;
mod order;
mod parking;
mod pipeline;
mod policy;
#[cfg(not(loom))]
mod pool;
mod query;
mod replay;
mod shared;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
#[cfg(not(loom))]
pub mod simulation;
mod slots;
mod stats;
mod sync;
mod task_set;
mod tuning;
mod wake;
mod worker;

pub use attained::{Attained, AttainedError};
pub use decay::{Decay, DecayError};
pub use error::{QueryError, Why};
// The words of the interface, so that a program needs no second package for them.
pub use giveway_tier::{Tier, Weight};
pub use group::{QueryId, QueryView, Report, Ticket};
#[cfg(not(loom))]
pub use kernel::ThreadTier;
pub use line::Line;
pub use order::Order;
pub use pipeline::{Failure, Morsel, Pipeline, Step};
pub use policy::{ParsePolicyError, Policy};
#[cfg(not(loom))]
pub use pool::{BuildError, Builder, Pool, Shutdown};
pub use query::{Query, Refused};
pub use stats::{OVERRUN_CLASSES, PoolStats, WorkerStats};
pub use tuning::TUNER;
pub use wake::LaneWaker;

// The example of the package's front page is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
