//! Workloads, the runner that measures them, and the reports.
//!
//! An experiment is a set of cells or runs; each leaves a row, rows make a
//! [`Report`], and a report becomes a table, a page with plots and a sentence.
//!
//! | experiment | what | paper |
//! | --- | --- | --- |
//! | mixed | TPC-C beside TPC-H Q17 under several schedulers ([`config`], [`dataset`], [`tpcc`]) | 000, Sections 3, 6.1, 6.2 |
//! | placement | how much of TPC-C's time each CPU has ([`placement`]) | 000, Section 3, Figure 2 |
//! | weights | who gets how much inside each tier ([`weights`]) | 000, Section 6.4, Figure 8 |
//! | oversubscription | more urgent clients than CPUs ([`oversubscription`]) | 000, Section 6.3, Figure 7 |
//! | wakeup | how fast threads are woken that compute in between ([`wakeup`]) | 000, Section 6.5, Figure 9 |
//! | ml | the mixed workload with machine learning in the background ([`ml`]) | 000, Section 6.8, Figure 10 |
//! | hint-overhead | what hints cost that UFS reads of locks, and what boosts are worth ([`hint_overhead`]) | 000, Sections 6.1, 6.7 |
//! | locks | who gets how much of a lock, at what price ([`locks`]) | 004, Sections 3.4, 4.5, 4.6 |
//! | preempt | urgent transactions beside long ones in one engine ([`preempt`]) | 001, Section 6 |
//! | inversion | urgent sessions that want the locks of background ones ([`inversion`]) | 000, Section 6.6, Table 4 |
//! | tasks | short and long analytical queries on one engine, under its policies and others ([`tasks`]) | 003, Section 5 |
//! | meta | what a metascheduler costs and brings ([`meta`]) | 002, Sections 2.3, 3 |
//! | rocksdb | an unmodified program on CFL locks ([`rocksdb`]) | 004, Section 4.3 |
//!
//! The numbers of the papers are explained in `ARCHITECTURE.md`. All experiments
//! together, beside what the papers have, are an [`overview`].
//!
//! This crate runs on whatever machine it is called on: it knows nothing of
//! virtual machines, and a sched_ext scheduler is to it a program to start.

mod any_report;
pub mod background;
mod cell;
pub mod class;
pub mod config;
pub mod dataset;
mod error;
mod experiments;
mod files;
pub mod hint_overhead;
pub mod inversion;
pub mod locks;
pub mod meta;
pub mod ml;
mod network;
mod oltp;
pub mod oversubscription;
pub mod overview;
pub mod placement;
mod plan;
pub mod postgres;
pub mod preempt;
mod report;
pub mod result;
pub mod rocksdb;
mod row;
pub mod setup;
pub mod tasks;
pub mod tpcc;
pub mod wakeup;
pub mod weights;

pub use any_report::{AnyReport, read_reports};
pub use cell::run_cell;
pub use cell::switches::CpuTime;
pub use cell::ufs::{Callback, LockCounts, UfsCounts};
pub use config::{CellConfig, Mix, Scheduler};
pub use error::{Error, Result};
pub use experiments::{Experiment, experiments};
pub use plan::{Frame, Plan};
pub use report::Figure;
pub use result::{CellRecord, ClassRow, Environment, Outage, Record, Report, Row};

/// Called with one short line for each step that takes a while.
pub type Progress<'a> = &'a mut dyn FnMut(&str);

/// Tests preempt tasks that allocate.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: giveway_preempt::RegionAlloc<std::alloc::System> =
    giveway_preempt::RegionAlloc(std::alloc::System);
