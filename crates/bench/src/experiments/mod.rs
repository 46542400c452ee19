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

pub(crate) mod hint_overhead;
pub(crate) mod inversion;
pub mod locks;
pub(crate) mod meta;
pub(crate) mod mixed;
pub(crate) mod ml;
pub(crate) mod oversubscription;
pub(crate) mod placement;
pub(crate) mod preempt;
pub(crate) mod rocksdb;
pub(crate) mod tasks;
pub(crate) mod wakeup;
pub(crate) mod weights;

use crate::runner::experiment::Registered;

/// All experiments, in the order in which they are listed.
pub(crate) const ALL: &[Registered] = &[
    Registered::of::<mixed::cli::Mixed>(),
    Registered::of::<placement::cli::Placement>(),
    Registered::of::<weights::cli::Weights>(),
    Registered::of::<oversubscription::cli::Oversubscription>(),
    Registered::of::<wakeup::cli::Wakeup>(),
    Registered::of::<ml::cli::Ml>(),
    Registered::of::<hint_overhead::cli::HintOverhead>(),
    Registered::of::<locks::cli::Locks>(),
    Registered::of::<preempt::Preempt>(),
    Registered::of::<rocksdb::cli::Rocksdb>(),
    Registered::of::<inversion::cli::Inversion>(),
    Registered::of::<tasks::Tasks>(),
    Registered::of::<meta::cli::Meta>(),
];
