//! redb in memory.
//!
//! Commits are not durable, but for every [`DURABLE_EVERY`]th, since pages are given back
//! only then.

use std::sync::atomic::{AtomicU32, Ordering};

use redb::backends::InMemoryBackend;
use redb::{Database, Durability, ReadableDatabase as _, TableDefinition};

use super::key_value::{KeyValue, Values};
use super::{Change, Failed, Outcome, Size, Store, Work};

/// Commits from one that is durable to the next.
const DURABLE_EVERY: u32 = 1_000;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("usertable");

/// A database with the table.
pub(super) struct Redb {
    database: Database,
    commits: AtomicU32,
}

impl Redb {
    pub(super) fn new(size: Size) -> Outcome<Self> {
        let database = Database::builder()
            .set_cache_size(size.memory_bytes())
            .create_with_backend(InMemoryBackend::new())?;
        let transaction = database.begin_write()?;
        transaction.open_table(TABLE)?;
        transaction.commit()?;
        Ok(Redb {
            database,
            commits: AtomicU32::new(0),
        })
    }

    fn write(&self, work: impl FnOnce(&mut Table<'_>) -> Outcome<()>) -> Outcome<()> {
        let commits = self.commits.fetch_add(1, Ordering::Relaxed);
        let durability = match commits % DURABLE_EVERY {
            0 => Durability::Immediate,
            _ => Durability::None,
        };
        self.commit(durability, work)
    }

    fn commit(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut Table<'_>) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(durability)?;
        work(&mut transaction.open_table(TABLE)?)?;
        Ok(transaction.commit()?)
    }
}

type Table<'t> = redb::Table<'t, &'static [u8], &'static [u8]>;

impl Store for Redb {
    fn with_session(&self, work: Work<'_>) -> Outcome<()> {
        work(&mut Values::of(self))
    }

    fn settle(&self) -> Outcome<()> {
        self.commit(Durability::Immediate, |_| Ok(()))
    }
}

impl KeyValue for &Redb {
    fn put(&mut self, key: &[u8], row: &[u8]) -> Outcome<()> {
        self.write(|table| {
            table.insert(key, row)?;
            Ok(())
        })
    }

    fn get(&mut self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        let found = table.get(key)?.ok_or_else(Failed::missing)?;
        row.extend_from_slice(found.value());
        Ok(())
    }

    fn change(
        &mut self,
        key: &[u8],
        change: Change<'_>,
        changed: &mut Vec<u8>,
        mut show: impl FnMut(&[u8]),
    ) -> Outcome<()> {
        self.write(|table| {
            let mut found = table.get_mut(key)?.ok_or_else(Failed::missing)?;
            show(found.value());
            Ok(found.insert(change.made_to(found.value(), changed))?)
        })
    }

    fn range(&mut self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        let mut seen = 0;
        for found in table.range(from..)?.take(count) {
            rows.extend_from_slice(found?.1.value());
            seen += 1;
        }
        Ok(seen)
    }
}
