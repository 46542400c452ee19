//! Mixed database workloads, the runner that measures them side by side under
//! several schedulers, and the report.
//!
//! One measurement is a *cell*: a scheduler, a workload mix and a repeat.
//! [`run_cell`] copies a prepared database ([`dataset::prepare`]) to memory,
//! starts PostgreSQL on CPUs of its own, drives TPC-C ([`tpcc`]) from other
//! CPUs and TPC-H Q17 in a loop inside the server ([`background`]), and
//! returns a [`Row`]. Rows make a [`Report`], which is rendered as a
//! [`table`], a page ([`html`]) and one [`sentence`].
//!
//! The experiment is that of UFS (paper 000), Sections 3, 6.1 and 6.2.
//!
//! This crate runs on whatever machine it is called on: it knows nothing of
//! virtual machines, and a sched_ext scheduler is to it a program to start.

mod any_report;
pub mod background;
mod cell;
pub mod config;
pub mod dataset;
mod error;
mod experiments;
mod files;
pub mod locks;
mod network;
pub mod postgres;
mod report;
pub mod result;
pub mod rocksdb;
pub mod tpcc;

pub use any_report::{AnyReport, read_reports};
pub use cell::run_cell;
pub use config::{CellConfig, Mix, Plan, Scheduler};
pub use error::{Error, Result};
pub use experiments::{Experiment, experiments};
pub use result::{Environment, Record, Report, Row};

/// Called with one short line for each step that takes a while.
pub type Progress<'a> = &'a mut dyn FnMut(&str);
