//! sled on tmpfs, never flushed but after the load.

use std::path::Path;

use sled::{Db, IVec};

use super::key_value::{KeyValue, Values};
use super::{Change, Failed, Outcome, Size, Store, Work};

/// A database, of which the default tree is used.
pub(super) struct Sled(Db);

impl Sled {
    pub(super) fn new(size: Size, dir: &Path) -> Outcome<Self> {
        let database = sled::Config::new()
            .path(dir)
            .flush_every_ms(None)
            .mode(sled::Mode::HighThroughput)
            .cache_capacity(size.memory_bytes() as u64)
            .open()?;
        Ok(Sled(database))
    }
}

impl Store for Sled {
    fn with_session(&self, work: Work<'_>) -> Outcome<()> {
        work(&mut Values::of(self))
    }

    fn settle(&self) -> Outcome<()> {
        self.0.flush()?;
        Ok(())
    }
}

impl KeyValue for &Sled {
    fn put(&mut self, key: &[u8], row: &[u8]) -> Outcome<()> {
        self.0.insert(key, row)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()> {
        row.extend_from_slice(&self.0.get(key)?.ok_or_else(Failed::missing)?);
        Ok(())
    }

    fn change(
        &mut self,
        key: &[u8],
        change: Change<'_>,
        _: &mut Vec<u8>,
        mut show: impl FnMut(&[u8]),
    ) -> Outcome<()> {
        // The row is changed in the memory that the tree then keeps.
        let before = self.0.fetch_and_update(key, |found| {
            let mut row = IVec::from(found?);
            change.put(&mut row);
            Some(row)
        })?;
        show(&before.ok_or_else(Failed::missing)?);
        Ok(())
    }

    fn range(&mut self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize> {
        let mut seen = 0;
        for found in self.0.range(from..).take(count) {
            rows.extend_from_slice(&found?.1);
            seen += 1;
        }
        Ok(seen)
    }
}
