//! fjall on tmpfs, with one writer at a time.
//!
//! Its journal stays in the process's memory (`manual_journal_persist`); the cache holds
//! all rows; nothing is compressed, since values are random bytes. Rows that are looked up
//! are there, which it is told.

use std::path::Path;

use fjall::config::CompressionPolicy;
use fjall::{
    CompressionType, KeyspaceCreateOptions, Readable as _, SingleWriterTxDatabase,
    SingleWriterTxKeyspace,
};

use super::key_value::KeyValue;
use super::{Change, Failed, MEMORY_BYTES, Outcome, Store, Work};

/// A database with one keyspace.
pub(super) struct Fjall {
    database: SingleWriterTxDatabase,
    rows: SingleWriterTxKeyspace,
}

impl Fjall {
    pub(super) fn new(dir: &Path) -> Outcome<Self> {
        let database = SingleWriterTxDatabase::builder(dir)
            .cache_size(MEMORY_BYTES as u64)
            .manual_journal_persist(true)
            .open()?;
        let options = || {
            KeyspaceCreateOptions::default()
                .manual_journal_persist(true)
                .expect_point_read_hits(true)
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
        };
        let rows = database.keyspace("usertable", options)?;
        Ok(Fjall { database, rows })
    }
}

impl Store for Fjall {
    fn with_session(&self, work: Work<'_>) -> Outcome<()> {
        work(&mut &*self)
    }
}

impl KeyValue for Fjall {
    fn put(&self, key: &[u8], row: &[u8]) -> Outcome<()> {
        Ok(self.rows.insert(key, row)?)
    }

    fn get(&self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()> {
        let found = self.rows.get(key)?;
        row.extend_from_slice(&found.ok_or_else(Failed::missing)?);
        Ok(())
    }

    fn change(&self, key: &[u8], change: Change<'_>, mut show: impl FnMut(&[u8])) -> Outcome<()> {
        let before = self.rows.fetch_update(key, |found| {
            let mut row = found?.to_vec();
            change.put(&mut row);
            Some(row.into())
        })?;
        show(&before.ok_or_else(Failed::missing)?);
        Ok(())
    }

    fn range(&self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize> {
        let mut seen = 0;
        let snapshot = self.database.read_tx();
        for found in snapshot.range(&self.rows, from..).take(count) {
            rows.extend_from_slice(&found.value()?);
            seen += 1;
        }
        Ok(seen)
    }
}
