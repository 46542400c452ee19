//! What recovery found and did.

use std::time::Duration;

use crate::log::Flaw;

/// What opening a database came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// The timestamp of the checkpoint that was used.
    pub checkpoint: Option<u64>,
    /// Checkpoints that were not whole, and for which an older one and more log
    /// stood in, under the names that they have now. Look to the disk.
    pub damaged_checkpoints: Vec<String>,
    /// Segments of the log that were read.
    pub segments: u64,
    /// Their bytes.
    pub log_bytes: u64,
    /// Transactions replayed from the log.
    pub transactions: u64,
    /// Tables there are.
    pub tables: u64,
    /// The last transaction's timestamp: the database is as of then.
    pub durable: u64,
    /// The end of the log that was cut.
    pub cut: Option<Cut>,
    /// The end of the log that was passed over and left as it is, because the database was
    /// opened [read-only](crate::DurabilityOptions::read_only).
    pub torn: Option<Cut>,
    /// Files that `salvage` set aside; none if the database was opened read-only.
    pub set_aside: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// What does not count at the end of the log. Without `salvage` these are bytes that no commit
/// was acknowledged for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file.
    pub file: String,
    /// From where on.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
    /// What is wrong with them.
    pub flaw: Flaw,
}
