//! redb in memory.
//!
//! Commits are not durable, but for every [`DURABLE_EVERY`]th, since pages are given back
//! only then.

use std::sync::atomic::{AtomicU32, Ordering};

use redb::backends::InMemoryBackend;
use redb::{Database, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use super::key_value::KeyValue;
use super::{Change, Failed, MEMORY_BYTES, Outcome, Store, Work};

/// Commits from one that is durable to the next.
const DURABLE_EVERY: u32 = 1_000;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("usertable");

/// A database with the table.
pub(super) struct Redb {
    database: Database,
    commits: AtomicU32,
}

impl Redb {
    pub(super) fn new() -> Outcome<Self> {
        let database = Database::builder()
            .set_cache_size(MEMORY_BYTES)
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
        let mut transaction = self.database.begin_write()?;
        let commits = self.commits.fetch_add(1, Ordering::Relaxed);
        transaction.set_durability(match commits % DURABLE_EVERY {
            0 => Durability::Immediate,
            _ => Durability::None,
        })?;
        work(&mut transaction.open_table(TABLE)?)?;
        Ok(transaction.commit()?)
    }
}

type Table<'t> = redb::Table<'t, &'static [u8], &'static [u8]>;

impl Store for Redb {
    fn with_session(&self, work: Work<'_>) -> Outcome<()> {
        work(&mut &*self)
    }
}

impl KeyValue for Redb {
    fn put(&self, key: &[u8], row: &[u8]) -> Outcome<()> {
        self.write(|table| {
            table.insert(key, row)?;
            Ok(())
        })
    }

    fn get(&self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        let found = table.get(key)?.ok_or_else(Failed::missing)?;
        row.extend_from_slice(found.value());
        Ok(())
    }

    fn change(&self, key: &[u8], change: Change<'_>, mut show: impl FnMut(&[u8])) -> Outcome<()> {
        self.write(|table| {
            let found = table.get(key)?.ok_or_else(Failed::missing)?;
            let mut row = found.value().to_vec();
            drop(found);
            show(&row);
            change.put(&mut row);
            table.insert(key, row.as_slice())?;
            Ok(())
        })
    }

    fn range(&self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        let mut seen = 0;
        for found in table.range(from..)?.take(count) {
            rows.extend_from_slice(found?.1.value());
            seen += 1;
        }
        Ok(seen)
    }
}
