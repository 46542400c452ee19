//! The contract between Giveway and the programs it schedules.
//!
//! Work is described by two words that mean the same thing at every place
//! where work queues: a [`Tier`] (is somebody waiting?) and a [`Weight`] (how
//! much, compared with the rest of its tier?). The C header
//! `include/giveway/tier.h` says the same for C and BPF programs.
//!
//! A program says them, and which locks it holds and waits for, in a slot of a
//! table that it shares with the scheduler: [`slot`] in Rust, and for C
//! `include/giveway/hints.h`. Tests compile the headers and compare them.
//!
//! Root says a whole cgroup's tier by its name or by a [`mark`]; which names say which
//! tier is the [`rule`] of the scheduler that is loaded.
//!
//! This crate knows nothing of databases, of schedulers only what they say of
//! themselves, and of the kernel only how a table is opened and a mark is kept.

#[cfg_attr(loom, allow(dead_code, unused_imports))]
mod claim;
#[cfg_attr(loom, allow(dead_code))]
mod gate;
pub mod mark;
pub mod rule;
#[cfg(not(loom))]
pub mod slot;
#[cfg(not(loom))]
mod table;
mod tier;
mod weight;

pub use tier::{ParseTierError, Tier};
pub use weight::{Weight, WeightError};

/// Directory with the C headers, for build scripts.
pub const INCLUDE_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");

// The example of the package's front page is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
