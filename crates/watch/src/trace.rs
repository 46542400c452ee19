//! Who ran where and who waited for whom, recorded for Perfetto.
//!
//! ```text
//!   tracefs ──► feed: lines ──► event ──► timeline ──► marks ──► chrome: a file
//!                                             ▲
//!   /proc, hint table ──► tasks: tiers, boosts
//! ```
//!
//! [`event`] reads a line of the kernel's text, [`timeline`] makes slices of
//! events, [`chrome`] writes them in the Trace Event Format, which Perfetto and
//! Chrome read; these three are pure. [`tracefs`] and [`tasks`] read the machine,
//! behind the interfaces of [`record`], which puts all of it together.
//!
//! The kernel tells of switches and wake-ups, with a resolution of a microsecond.
//! It does not know tiers and boosts: a task's tier is that of its cgroup's name
//! or its hint slot when it is first seen and whenever the slots are looked at, a
//! hundred times a second; a boost is seen in the same looks.
//!
//! Known weakness: a thread that has ended before it was looked up has no tier.

pub mod chrome;
pub mod event;
pub mod record;
pub mod tasks;
pub mod timeline;
pub mod tracefs;
