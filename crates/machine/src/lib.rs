//! What programs read of a Linux machine, and how root's programs share it, in one place.
//!
//! | module | question |
//! | --- | --- |
//! | [`errno`] | How is a system call made that preserves `errno`? |
//! | [`futex`] | How does a thread sleep until a word changes? |
//! | [`topology`] | Which CPUs are there, and on which NUMA node? |
//! | [`cgroup`] | Where is cgroup v2, and what do its files say? |
//! | [`lock_weights`] | How is `lock.weight` set, and put back? |
//! | [`sched_ext`] | Which scheduler is attached? |
//! | [`process`] | Which processes run a program, and are root's? |
//! | [`files`] | How does root write where others read? |
//! | [`lock`] | How does one of root's programs wait for another? |
//!
//! The crate has mechanics and no policy: which cgroups are made, what is waited for,
//! and what is done about an error is for the caller. It knows neither tiers nor any
//! scheduler. Nothing of it is kept between two calls, but for a lock that
//! its caller holds.
//!
//! Libraries that are locked or modelled depend on it, so it is small: libc, and under
//! `--cfg loom` and `--cfg shuttle` the model checker. `futex`, `errno` and what
//! [`topology`] says so of allocate nothing.

pub mod cgroup;
pub mod errno;
pub mod files;
pub mod futex;
pub mod lock;
pub mod lock_weights;
pub mod process;
pub mod sched_ext;
pub mod topology;

// The example of the package's front page is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
