//! fjall on tmpfs, with one writer at a time.
//!
//! Its journal stays in the process's memory (`manual_journal_persist`); the cache holds
//! all rows; nothing is compressed, since values are random bytes. Rows that are looked up
//! are there, which it is told. Its buffer for writes and the hash index of its blocks are
//! as large as RocksDB's.
//!
//! Rows are put whole without a transaction, as RocksDB's are. Such a put would not wait
//! for a transaction that changes the same row, and the transaction would write over it.
//! No workload has both.

use std::path::Path;
use std::thread;
use std::time::Duration;

use fjall::config::{CompressionPolicy, HashRatioPolicy};
use fjall::{
    CompressionType, KeyspaceCreateOptions, Readable as _, SingleWriterTxDatabase,
    SingleWriterTxKeyspace,
};

use super::key_value::{KeyValue, Values};
use super::{Change, Failed, HASH_LOAD, Outcome, Size, Store, WRITE_BUFFER_BYTES, Work};

/// A database with one keyspace.
pub(super) struct Fjall {
    database: SingleWriterTxDatabase,
    rows: SingleWriterTxKeyspace,
}

impl Fjall {
    pub(super) fn new(size: Size, dir: &Path) -> Outcome<Self> {
        let database = SingleWriterTxDatabase::builder(dir)
            .cache_size(size.memory_bytes() as u64)
            .manual_journal_persist(true)
            .open()?;
        let options = || {
            KeyspaceCreateOptions::default()
                .manual_journal_persist(true)
                .max_memtable_size(WRITE_BUFFER_BYTES as u64)
                .expect_point_read_hits(true)
                // Buckets for each key, where RocksDB's is keys for each bucket.
                .data_block_hash_ratio_policy(HashRatioPolicy::all(HASH_LOAD.recip() as f32))
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
        };
        let rows = database.keyspace("usertable", options)?;
        Ok(Fjall { database, rows })
    }
}

impl Store for Fjall {
    fn with_session(&self, work: Work<'_>) -> Outcome<()> {
        work(&mut Values::of(self))
    }

    fn settle(&self) -> Outcome<()> {
        let rows = self.rows.inner();
        rows.rotate_memtable_and_wait()?;
        rows.major_compact()?;
        // What was queued before finds nothing to do.
        let database = self.database.inner();
        while database.outstanding_flushes() + database.active_compactions() > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl KeyValue for &Fjall {
    fn put(&mut self, key: &[u8], row: &[u8]) -> Outcome<()> {
        Ok(self.rows.inner().insert(key, row)?)
    }

    fn get(&mut self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()> {
        let found = self.rows.get(key)?;
        row.extend_from_slice(&found.ok_or_else(Failed::missing)?);
        Ok(())
    }

    fn change(
        &mut self,
        key: &[u8],
        change: Change<'_>,
        changed: &mut Vec<u8>,
        mut show: impl FnMut(&[u8]),
    ) -> Outcome<()> {
        let before = self
            .rows
            .fetch_update(key, |found| Some(change.made_to(found?, changed).into()))?;
        show(&before.ok_or_else(Failed::missing)?);
        Ok(())
    }

    fn range(&mut self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize> {
        let mut seen = 0;
        let snapshot = self.database.read_tx();
        for found in snapshot.range(&self.rows, from..).take(count) {
            rows.extend_from_slice(&found.value()?);
            seen += 1;
        }
        Ok(seen)
    }
}
