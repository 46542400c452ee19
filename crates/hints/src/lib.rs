//! The contract between Giveway and the programs it schedules.
//!
//! Work is described by two words that mean the same thing at every place
//! where work queues: a [`Tier`] (is somebody waiting?) and a [`Weight`] (how
//! much, compared with the rest of its tier?). The C header
//! `include/giveway/tier.h` says the same for C and BPF programs; a test
//! compiles it and compares the constants.
//!
//! This crate knows nothing of schedulers, databases or kernels.

mod tier;
mod weight;

pub use tier::{ParseTierError, Tier};
pub use weight::{Weight, WeightError};

/// Directory with the C headers, for build scripts of crates in this workspace.
pub const INCLUDE_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
