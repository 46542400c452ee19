//! What a database has in place of a log that was opened for reading only.
//!
//! Nothing is admitted, so nothing commits that has written, and what was recovered is all
//! there ever is. Transactions are refused before: all are read-only.

use std::sync::Arc;
use std::time::Instant;

use crate::error::Result;
use crate::hook::{CommitSink, SchemaChange, Writes};
use crate::log::{Disk, DurabilityError};
use crate::recovery::RecoveryReport;

/// Refuses every change.
pub(super) struct ReadOnly {
    report: RecoveryReport,
    /// Keeps out who writes.
    _disk: Arc<dyn Disk>,
}

impl ReadOnly {
    pub(super) fn new(report: RecoveryReport, disk: Arc<dyn Disk>) -> ReadOnly {
        ReadOnly {
            report,
            _disk: disk,
        }
    }

    /// What opening came to.
    pub(super) fn report(&self) -> &RecoveryReport {
        &self.report
    }
}

impl CommitSink for ReadOnly {
    fn admit(&self, _: Option<Instant>) -> Result<()> {
        Err(DurabilityError::OpenedReadOnly.into())
    }

    fn append(&self, _: u64, _: &Writes<'_>) -> Result<()> {
        Err(DurabilityError::OpenedReadOnly.into())
    }

    fn skip(&self, _: u64) {}

    fn wait_durable(&self, _: u64, _: Option<Instant>) -> Result<()> {
        Ok(())
    }

    fn wait_read(&self, _: u64, _: Option<Instant>) -> Result<()> {
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn encode_change(&self, _: &SchemaChange<'_>) -> Result<Vec<u8>> {
        Err(DurabilityError::OpenedReadOnly.into())
    }

    fn append_change(&self, _: u64, _: &[u8]) {
        unreachable!("nothing was encoded")
    }
}
