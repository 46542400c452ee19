//! From rows to what a person reads: a table for the terminal, a page with
//! plots, and one sentence. All of them are functions of a
//! [`crate::result::Report`] and of nothing else.
//!
//! A paper's numbers beside ours are [`Figure`]s.
//!
//! Each kind of row has a module of its own; numbers, targets, plots and pages have
//! in common what `number`, `target`, `canvas` and `page` hold, and experiments that
//! consist of cells of a database workload what `cells` holds.

mod canvas;
mod cells;
mod figure;
pub(crate) mod hint_overhead;
pub(crate) mod inversion;
pub(crate) mod locks;
pub(crate) mod meta;
pub(crate) mod mixed;
pub(crate) mod ml;
mod number;
pub(crate) mod outages;
pub(crate) mod oversubscription;
pub(crate) mod overview;
mod page;
pub(crate) mod placement;
pub(crate) mod preempt;
pub(crate) mod rocksdb;
mod target;
pub(crate) mod tasks;
pub(crate) mod wakeup;
pub(crate) mod weights;

pub use figure::Figure;
pub(crate) use number::{Spread, quantile};
