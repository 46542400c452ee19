//! Shows what UFS does, to people and to programs.
//!
//! ```text
//!   scx_ufs ── statistics, a Unix socket ──► source ──► sample ──► top
//!   the kernel ── lock.stat, with CFL ─────► locks ───────┘  └──► metrics
//!   the kernel ── /proc ───────────────────► processes ──► top
//!   the kernel ── sched events, tracefs ──────────────────────► trace
//! ```
//!
//! From the bottom up: [`sample`] is what UFS publishes, as this side reads it;
//! [`source`] gets one from the loaded scheduler; [`locks`] adds what the kernel counts of
//! waits for its locks; [`names`] says what a thread is
//! called; [`processes`] reads which there are; [`top`] shows the difference between two
//! samples.
//! [`metrics`] has the totals, in the text that Prometheus reads.
//! [`trace`] goes by the kernel's own events.
//!
//! Nothing here changes how tasks are scheduled. Everything that reads the machine is
//! behind a small interface, so tests can use recorded data instead.

pub mod locks;
pub mod metrics;
pub mod names;
pub mod processes;
pub mod sample;
pub mod source;
pub mod top;
pub mod trace;
