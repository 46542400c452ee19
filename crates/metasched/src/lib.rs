//! Metascheduling: which scheduler is in force when.
//!
//! Specialised schedulers beat the general one on the programs they were made
//! for and lose on others. Where dissimilar programs share a machine, a
//! *metascheduler* decides which scheduler runs when (Doney, "Improving
//! Performance with Metaschedulers"): measure each application under each
//! scheduler, derive each one's share of time, and swap them accordingly.
//!
//! `docs/operate/metascheduler.md` explains the design. The modules from the bottom up:
//!
//! | module | question |
//! | --- | --- |
//! | [`error`], `files`, [`lock`] | What do we stand on? |
//! | [`scheduler`] | What is a scheduler, and can this machine run it? |
//! | [`measurements`] | What does an application do under a scheduler? |
//! | [`application`] | How is that found out? |
//! | [`policy`] | Who runs for how long? |
//! | [`phase`] | Who should run now? |
//! | [`course`] | Turns by the clock, or phases: who should be in force? |
//! | [`host`], [`kernel`] | What does the kernel say, and what can be done? |
//! | [`system`], [`scx_loader`] | Who does it: processes of ours, or scx_loader? |
//! | [`supervisor`] | How is one scheduler swapped for another, whatever happens? |
//! | [`measure`] | How are all schedulers measured, though some misbehave? |
//! | [`tune`] | Which base timeslice is best? |
//! | [`config`], [`daemon`] | What does the operator want, and who sees to it? |

pub mod application;
pub mod config;
pub mod course;
pub mod daemon;
pub mod error;
#[cfg(test)]
mod fake;
mod files;
pub mod host;
pub mod kernel;
pub mod lock;
pub mod measure;
pub mod measurements;
pub mod phase;
pub mod policy;
pub mod scheduler;
#[cfg(feature = "scx-loader")]
pub mod scx_loader;
pub mod supervisor;
pub mod system;
pub mod tune;

pub use error::{Error, Result};
