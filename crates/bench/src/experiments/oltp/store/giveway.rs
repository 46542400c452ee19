//! giveway-txn in memory.
//!
//! Who only reads says so, and is serializable without being certified; who writes is
//! certified.

use std::ops::Bound;

use giveway_txn::{
    Database, Direction, Error, Isolation, KeyRange, Options, Row, Schema, Table, Transaction,
    TxnOptions, Type,
};

use super::{Change, Failed, Outcome, ROW_BYTES, Session, Store, Work};

/// A database with the table.
pub(super) struct Giveway {
    database: Database,
    table: Table,
    columns: usize,
}

impl Giveway {
    pub(super) fn new(columns: usize) -> Outcome<Self> {
        let database = Database::in_memory(Options::default());
        let mut schema = Schema::builder("usertable").column("key", Type::Bytes);
        for column in 0..columns {
            schema = schema.column(format!("field{column}"), Type::Bytes);
        }
        let table = database.create_table(schema.primary_key(["key"]).build()?)?;
        Ok(Giveway {
            database,
            table,
            columns,
        })
    }

    fn reading(&self) -> Outcome<Transaction<'_>> {
        Ok(self.database.begin(TxnOptions {
            isolation: Isolation::Serializable,
            read_only: true,
            ..TxnOptions::default()
        })?)
    }

    fn write(&self, body: impl FnMut(&Transaction<'_>) -> giveway_txn::Result<()>) -> Outcome<()> {
        match self.database.run(TxnOptions::serializable(), body) {
            Err(Error::NotFound { .. }) => Err(Failed::missing()),
            done => Ok(done?),
        }
    }

    fn copy(&self, from: &Row<'_>, to: &mut Vec<u8>) {
        // The first column is the key.
        (1..=self.columns).for_each(|column| to.extend_from_slice(from.bytes(column)));
    }
}

impl Store for Giveway {
    fn with_session(&self, work: Work<'_>) -> Outcome<()> {
        work(&mut &*self)
    }
}

impl Session for &Giveway {
    fn insert(&mut self, key: &[u8], row: &[u8]) -> Outcome<()> {
        let width = ROW_BYTES / self.columns;
        self.write(|txn| {
            txn.insert_with(&self.table, |buffer| {
                buffer.set_bytes(0, key);
                for (value, column) in row.chunks_exact(width).zip(1..) {
                    buffer.set_bytes(column, value);
                }
            })
        })
    }

    fn read(&mut self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()> {
        row.clear();
        let txn = self.reading()?;
        let found = txn.get(&self.table, (key,))?.ok_or_else(Failed::missing)?;
        self.copy(&found, row);
        Ok(())
    }

    fn update(&mut self, key: &[u8], change: Change<'_>) -> Outcome<()> {
        self.write(|txn| {
            txn.update(&self.table, (key,), |row| {
                row.set_bytes(change.column + 1, change.value);
            })
        })
    }

    fn read_and_update(
        &mut self,
        key: &[u8],
        change: Change<'_>,
        row: &mut Vec<u8>,
    ) -> Outcome<()> {
        self.write(|txn| {
            // What is written over is what was read.
            txn.update(&self.table, (key,), |buffer| {
                row.clear();
                (1..=self.columns).for_each(|column| row.extend_from_slice(buffer.bytes(column)));
                buffer.set_bytes(change.column + 1, change.value);
            })
        })
    }

    fn scan(&mut self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize> {
        rows.clear();
        let txn = self.reading()?;
        let range = KeyRange::new(Bound::Included((from,)), Bound::<()>::Unbounded);
        let mut seen = 0;
        for row in txn
            .scan(&self.table, range, Direction::Forward)?
            .take(count)
        {
            self.copy(&row?, rows);
            seen += 1;
        }
        Ok(seen)
    }
}
