//! What holds for all cells of a plan.

use std::time::Duration;

/// What holds for all cells of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    /// Workers, or threads of another engine.
    pub(super) workers: u32,
    /// What all queries together may hold in memory, bytes; tables are not counted.
    pub(super) memory_bytes: usize,
    /// For how long queries are tracked.
    pub(super) tracking: Duration,
    /// How often they are.
    pub(super) refresh: Duration,
}
