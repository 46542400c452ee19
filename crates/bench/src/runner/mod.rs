//! From a plan to rows: where cells run, how many at once, and where their rows go.
//!
//! ```text
//!   options ─► plan of cells ─► pool ─► executor ─► rows ─► report
//!   (experiment)                 │       ├ native: this machine, one at a time
//!                                │       └ lab: a virtual machine per cell, as
//!                                │              many at once as host CPUs
//!                                └► observer: progress on the terminal
//! ```
//!
//! Only `progress` and `results` print. A cell that fails is reported with the end of its
//! console, the others go on, and the command ends with status 1; it is not tried again,
//! since a measurement that works every other time is itself a finding.

pub(crate) mod cells;
pub(crate) mod clock;
pub(crate) mod executors;
pub(crate) mod experiment;
pub(crate) mod guest;
pub(crate) mod lab;
mod native;
pub(crate) mod pool;
mod progress;
pub(crate) mod results;
mod rows;
pub(crate) mod steps;
