//! What can be seen of a database from outside.

use std::time::Duration;

use giveway_tier::Tier;

/// A database at some time; the numbers were not read at the same instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// Bytes of rows, versions and index nodes, garbage included. Each slot of a
    /// transaction reports when its transaction ends.
    pub memory_bytes: u64,
    /// Bytes that the database holds of the system for these, for lists of open
    /// transactions, and for what is free in between: what `memory_limit` bounds.
    pub held_bytes: u64,
    /// Bytes of what was replaced or removed and may still be needed by an open
    /// transaction.
    pub garbage_bytes: u64,
    /// The last commit timestamp drawn.
    pub clock: u64,
    /// Open transactions.
    pub active: usize,
    /// The one that holds garbage back.
    pub oldest: Option<OldestSnapshot>,
    /// Transactions committed.
    pub commits: u64,
    /// Transactions aborted.
    pub aborts: u64,
    /// Operations that met another transaction's version.
    pub conflicts: u64,
    /// Serializable transactions that were not certified.
    pub failed_certifications: u64,
}

/// The open transaction that began first.
#[derive(Clone, Debug, PartialEq)]
pub struct OldestSnapshot {
    /// The last commit that it saw when it began.
    pub snapshot: u64,
    /// What it calls itself.
    pub label: &'static str,
    /// Who waits for it.
    pub tier: Tier,
    /// For how long it has been open, give or take a few ms.
    pub age: Duration,
}
