//! Tier and weight, and how a cgroup says its tier.
//!
//! Two words describe work. They mean the same thing at every place where work queues:
//! a [`Tier`] (does a user wait for it?) and a [`Weight`] (how much, compared with the rest
//! of its tier?). The C header `giveway/tier.h` of `giveway-hints` says the same for C
//! and BPF programs; a test of that crate compares the two.
//!
//! A cgroup has its tier by its name or by a mark:
//!
//! | module | question |
//! | --- | --- |
//! | `tier`, `weight` | What are the words, and their text? |
//! | [`rule`] | Which name of a cgroup gives which tier? |
//! | `mark` (feature) | How does root mark a cgroup whose name others choose? |
//!
//! This crate knows no scheduler and no hint slot. Nearly every crate of the workspace
//! depends on it, so it has few dependencies.

#[cfg(feature = "mark")]
pub mod mark;
pub mod rule;
mod tier;
mod weight;

pub use tier::{ParseTierError, Tier};
pub use weight::{Weight, WeightError};

// The example of the package's front page is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
