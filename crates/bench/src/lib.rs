//! Experiments, the harness that runs them, and their reports.
//!
//! An experiment is a set of cells or runs; each leaves a row, rows make a report, and a
//! report becomes a table, a page with plots and a sentence.
//!
//! ```text
//!   program       the command line
//!   overview      all experiments together, beside what the papers have
//!   experiments   one folder each: options, what is measured, rows, report; the list
//!   runner        from a plan to rows: natively or in the lab, with progress
//!   cell          one measurement of a database workload under a scheduler
//!   workload      servers, data, transactions, background jobs
//!   report        rows of any kind as a results file
//!   render        plots, pages, targets
//!   harness       errors, files, numbers, environment
//! ```
//!
//! Each layer knows those below it and none above; `cargo xtask tidy` checks it. Only
//! `runner` and `experiments` know of virtual machines: a cell runs where it is started.
//! A sched_ext scheduler is to all of them a program to start.

// A program without all experiments has less use for what experiments share. What nobody uses
// is found in the whole one.
#![cfg_attr(
    not(all(feature = "engines", feature = "sql")),
    allow(dead_code, unused_imports, unused_macros)
)]

mod cell;
pub mod experiments;
pub mod harness;
mod overview;
pub mod program;
mod render;
mod report;
mod runner;
pub mod workload;

/// Tests preempt tasks that allocate.
#[cfg(all(test, feature = "experiments"))]
#[global_allocator]
static ALLOCATOR: giveway_preempt::RegionAlloc<std::alloc::System> =
    giveway_preempt::RegionAlloc(std::alloc::System);
