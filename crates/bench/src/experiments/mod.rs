//! The experiments, each with all that belongs to it in a folder of its own, and the one
//! list of them.
//!
//! | file of an experiment | what |
//! | --- | --- |
//! | `cli.rs` | options, and the `Experiment` that the list knows |
//! | `mod.rs` | what is measured, and how |
//! | `row.rs` | what is kept |
//! | `report.rs` | what a person reads |
//! | `guests.rs` | virtual machines, where they are not those of database cells |
//!
//! Without the feature `experiments` there is only `mixed`.

#[cfg(feature = "experiments")]
pub(crate) mod disk;
#[cfg(feature = "experiments")]
pub(crate) mod hint_overhead;
#[cfg(feature = "experiments")]
pub(crate) mod holders;
#[cfg(feature = "experiments")]
pub(crate) mod inversion;
#[cfg(feature = "experiments")]
pub(crate) mod kernel_locks;
#[cfg(feature = "experiments")]
pub mod locks;
#[cfg(feature = "experiments")]
pub(crate) mod meta;
pub(crate) mod mixed;
#[cfg(feature = "experiments")]
pub(crate) mod ml;
#[cfg(feature = "experiments")]
pub(crate) mod oltp;
#[cfg(feature = "experiments")]
pub(crate) mod oversubscription;
#[cfg(feature = "experiments")]
pub(crate) mod placement;
#[cfg(feature = "experiments")]
pub(crate) mod preempt;
#[cfg(feature = "experiments")]
pub(crate) mod rocksdb;
#[cfg(feature = "experiments")]
pub(crate) mod sql;
#[cfg(feature = "experiments")]
pub(crate) mod switch;
#[cfg(feature = "experiments")]
pub(crate) mod tasks;
#[cfg(feature = "experiments")]
pub(crate) mod wakeup;
#[cfg(feature = "experiments")]
pub(crate) mod weights;

use crate::runner::experiment::Registered;

/// All experiments, in the order in which they are listed.
pub(crate) const ALL: &[Registered] = &[
    Registered::of::<mixed::cli::Mixed>(),
    #[cfg(feature = "experiments")]
    Registered::of::<placement::cli::Placement>(),
    #[cfg(feature = "experiments")]
    Registered::of::<weights::cli::Weights>(),
    #[cfg(feature = "experiments")]
    Registered::of::<oversubscription::cli::Oversubscription>(),
    #[cfg(feature = "experiments")]
    Registered::of::<wakeup::cli::Wakeup>(),
    #[cfg(feature = "experiments")]
    Registered::of::<switch::cli::Switch>(),
    #[cfg(feature = "experiments")]
    Registered::of::<ml::cli::Ml>(),
    #[cfg(feature = "experiments")]
    Registered::of::<disk::cli::DiskExperiment>(),
    #[cfg(feature = "experiments")]
    Registered::of::<hint_overhead::cli::HintOverhead>(),
    #[cfg(feature = "experiments")]
    Registered::of::<locks::cli::Locks>(),
    #[cfg(feature = "experiments")]
    Registered::of::<kernel_locks::cli::KernelLocks>(),
    #[cfg(feature = "experiments")]
    Registered::of::<preempt::Preempt>(),
    #[cfg(feature = "experiments")]
    Registered::of::<oltp::cli::Oltp>(),
    #[cfg(feature = "experiments")]
    Registered::of::<rocksdb::cli::Rocksdb>(),
    #[cfg(feature = "experiments")]
    Registered::of::<inversion::cli::Inversion>(),
    #[cfg(feature = "experiments")]
    Registered::of::<holders::cli::Holders>(),
    #[cfg(feature = "experiments")]
    Registered::of::<tasks::Tasks>(),
    #[cfg(feature = "experiments")]
    Registered::of::<sql::Sql>(),
    #[cfg(feature = "experiments")]
    Registered::of::<meta::cli::Meta>(),
];
