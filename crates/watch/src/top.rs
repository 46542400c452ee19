//! What happened between two samples, on a screen or as text.
//!
//! ```text
//!   samples ──► model: rows ──► view: a screen, or lines of text
//!                  ▲ │ ▲            ▲
//!   /proc ──► process_rows          │
//!                    └─┼─► history ─┘
//!   keys ──► controls: which rows, in which order
//! ```
//!
//! [`row`], [`process_rows`], [`model`], [`history`] and [`controls`] are pure; [`view`] draws into any backend; only
//! [`run`] knows a terminal and a clock.

pub mod controls;
pub mod history;
pub mod model;
pub mod process_rows;
pub mod row;
pub mod run;
pub mod view;
