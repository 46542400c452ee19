//! sled on tmpfs, never flushed.

use std::path::Path;

use sled::Db;

use super::{Change, Failed, MEMORY_BYTES, Outcome, Session, Store, Work};

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

    /// Changes a column, and shows the row as it was.
    fn change(&self, key: &[u8], change: Change<'_>, show: impl FnOnce(&[u8])) -> Outcome<()> {
        let before = self.0.fetch_and_update(key, |found| {
            let mut row = found?.to_vec();
            change.put(&mut row);
            Some(row)
        })?;
        show(&before.ok_or_else(Failed::missing)?);
        Ok(())
    }
}

impl Store for Sled {
    fn with_session(&self, work: Work<'_>) -> Outcome<()> {
        work(&mut &*self)
    }
}

impl Session for &Sled {
    fn insert(&mut self, key: &[u8], row: &[u8]) -> Outcome<()> {
        self.0.insert(key, row)?;
        Ok(())
    }

    fn read(&mut self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()> {
        row.clear();
        row.extend_from_slice(&self.0.get(key)?.ok_or_else(Failed::missing)?);
        Ok(())
    }

    fn update(&mut self, key: &[u8], change: Change<'_>) -> Outcome<()> {
        match change.is_whole() {
            true => self.insert(key, change.value),
            false => self.change(key, change, |_| ()),
        }
    }

    fn read_and_update(
        &mut self,
        key: &[u8],
        change: Change<'_>,
        row: &mut Vec<u8>,
    ) -> Outcome<()> {
        row.clear();
        self.change(key, change, |found| row.extend_from_slice(found))
    }

    fn scan(&mut self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize> {
        rows.clear();
        let mut seen = 0;
        for found in self.0.range(from..).take(count) {
            rows.extend_from_slice(&found?.1);
            seen += 1;
        }
        Ok(seen)
    }
}
