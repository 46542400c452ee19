//! sled on tmpfs, never flushed.

use std::path::Path;

use sled::Db;

use super::key_value::KeyValue;
use super::{Change, Failed, MEMORY_BYTES, Outcome, Store, Work};

/// A database, of which the default tree is used.
pub(super) struct Sled(Db);

impl Sled {
    pub(super) fn new(dir: &Path) -> Outcome<Self> {
        let database = sled::Config::new()
            .path(dir)
            .flush_every_ms(None)
            .mode(sled::Mode::HighThroughput)
            .cache_capacity(MEMORY_BYTES as u64)
            .open()?;
        Ok(Sled(database))
    }
}

impl Store for Sled {
    fn with_session(&self, work: Work<'_>) -> Outcome<()> {
        work(&mut &*self)
    }
}

impl KeyValue for Sled {
    fn put(&self, key: &[u8], row: &[u8]) -> Outcome<()> {
        self.0.insert(key, row)?;
        Ok(())
    }

    fn get(&self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()> {
        row.extend_from_slice(&self.0.get(key)?.ok_or_else(Failed::missing)?);
        Ok(())
    }

    fn change(&self, key: &[u8], change: Change<'_>, mut show: impl FnMut(&[u8])) -> Outcome<()> {
        let before = self.0.fetch_and_update(key, |found| {
            let mut row = found?.to_vec();
            change.put(&mut row);
            Some(row)
        })?;
        show(&before.ok_or_else(Failed::missing)?);
        Ok(())
    }

    fn range(&self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize> {
        let mut seen = 0;
        for found in self.0.range(from..).take(count) {
            rows.extend_from_slice(&found?.1);
            seen += 1;
        }
        Ok(seen)
    }
}
