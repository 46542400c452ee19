//! The contract between Giveway and the programs it schedules.
//!
//! A program says its [`Tier`] and [`Weight`], and which locks it holds and waits for,
//! in a slot of a table that it shares with the scheduler: [`slot`] in Rust, and for C
//! `include/giveway/hints.h`. `include/giveway/tier.h` has the two words for C and BPF
//! programs. Tests compile the headers and compare them with the Rust side.
//!
//! This crate knows nothing of databases and schedulers, and of the kernel only how a
//! table is opened.

#[cfg_attr(loom, allow(dead_code, unused_imports))]
mod claim;
#[cfg_attr(loom, allow(dead_code))]
mod gate;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
pub mod slot;
#[cfg(not(loom))]
mod table;

pub use giveway_tier::{Tier, Weight};

/// Directory with the C headers, for build scripts.
pub const INCLUDE_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");

// The example of the package's front page is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
