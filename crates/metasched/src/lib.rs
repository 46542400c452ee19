//! Metascheduling: which scheduler is attached when.
//!
//! Specialised schedulers beat the general one on the programs they were made
//! for and lose on others. Where dissimilar programs share a machine, a
//! *metascheduler* decides which scheduler runs when (Doney, "Improving
//! Performance with Metaschedulers"): measure each application under each
//! scheduler, derive each one's share of time, and swap them accordingly.
//!
//! `docs/operate/metascheduler.md` explains the design. The modules from the bottom up:
//!
//! | module | content |
//! | --- | --- |
//! | [`error`] | Errors |
//! | [`scheduler`] | A scheduler's description, and whether this machine can run it |
//! | [`measurements`] | Throughput and latency of each application under each scheduler |
//! | [`application`] | The command that benchmarks an application |
//! | [`policy`] | The paper's policies: the time of each scheduler |
//! | [`phase`] | A phase-aware policy: the best scheduler for the current demand |
//! | [`selector`] | The wanted scheduler, by the clock or by phases |
//! | [`host`], [`kernel`] | The machine's state, and the operations on it |
//! | [`system`], [`scx_loader`] | Its implementations: our own processes, or scx_loader |
//! | [`supervisor`] | Swaps one scheduler for another, whatever fails |
//! | [`measure`] | Measures all schedulers, although some misbehave |
//! | [`tune`] | Finds the best base timeslice |
//! | [`config`], [`daemon`] | The operator's configuration, and the daemon that follows it |

pub mod application;
pub mod config;
pub mod daemon;
pub mod error;
#[cfg(test)]
mod fake;
pub mod host;
pub mod kernel;
pub mod measure;
pub mod measurements;
pub mod phase;
pub mod policy;
pub mod scheduler;
#[cfg(feature = "scx-loader")]
pub mod scx_loader;
pub mod selector;
pub mod supervisor;
pub mod system;
pub mod tune;

pub use error::{Error, Result};
