//! SQL on several machines, when one is too small.
//!
//! ```text
//!                      client
//!                        │ Flight SQL
//!  coordinator: plan ─▶ stages ─▶ own part ◀──────────────┐ FETCH
//!                        │ RUN: plan, tier, weight, deadline │
//!          ┌─────────────┼─────────────┐                   │
//!          ▼             ▼             ▼                   │
//!       worker ◀─FETCH─▶ worker ◀────▶ worker ─────────────┘
//!          └──── files that all can read (a store, a share) ────┘
//! ```
//!
//! The coordinator is a server whose engine knows workers ([`ClusterSettings`]); a worker is
//! a server that takes parts of queries (`server::Builder::worker`). Each worker runs its
//! parts as queries of its own engine, with the query's tier, weight and deadline; so what
//! holds for one machine holds for each of them: background work gives way.
//!
//! | module | question |
//! | --- | --- |
//! | `message` | What do servers tell each other? |
//! | `failure` | How is a failure told, and who is to blame? |
//! | `peers` | How are they connected? |
//! | `members` | Which workers answer? |
//! | `planner` | Which plans are divided, and into how many tasks? |
//! | `source` | How do a part's leaves get other workers' rows, and how do plans travel? |
//! | `conduct` | In which order are parts run, and what if one fails? |
//! | `divide` | How does a divided plan become stages? |
//! | `shelf` | Where are a part's rows until they are fetched? |
//! | `worker` | How does a worker run a part? |
//!
//! Known weakness: a stage begins when all parts below it have ended, and a query fails
//! with any of its workers. Bytes are moved by one thread of each machine.

mod conduct;
mod divide;
mod failure;
mod members;
mod message;
mod peers;
mod planner;
mod shelf;
mod source;
mod worker;

pub(crate) use conduct::Errand;
pub(crate) use divide::{explained, is_divided, own_part};
pub(crate) use failure::{culprit, marked};
pub(crate) use members::Cluster;
pub use members::{ClusterSettings, WorkerStatus};
pub(crate) use message::{FETCH, Fetch, HELLO, Part, RUN, VERSION, decoded};
pub(crate) use peers::{Login, Peers};
pub(crate) use planner::planning_for;
pub(crate) use shelf::{Shelf, Shelved};
pub(crate) use source::is_remote;
pub(crate) use worker::Worker;
