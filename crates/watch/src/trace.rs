//! Records which thread ran where, and which waited for which, for Perfetto.
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
//! The kernel reports switches and wake-ups, with a resolution of a microsecond. It does
//! not know tiers and boosts. A task's tier is read from its cgroup's name when the task
//! is first seen or changes its cgroup, and from its hint slot a hundred times a second;
//! boosts are read from the slots, too.
//!
//! Known weakness: a thread that has ended before it was looked up has no tier.

pub mod chrome;
pub mod event;
pub mod record;
pub mod tasks;
pub mod timeline;
pub mod tracefs;
