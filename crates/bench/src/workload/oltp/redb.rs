//! TPC-C on redb in memory.
//!
//! A table for each of TPC-C's and one for each index, whose values are primary
//! keys. Commits are not durable; every [`DURABLE_EVERY`]th is, as redb's
//! documentation asks for, since pages are given back only then.

use std::cell::Cell;
use std::ops::{Bound, ControlFlow};

use redb::backends::InMemoryBackend;
use redb::{Database, Durability, ReadableTable, Table, TableDefinition, WriteTransaction};

use super::access::{End, Engine, EngineError, Failure, Transaction, Work};
use super::bytes::{self, Columned};
use crate::workload::tpcc::row::{CustomerName, CustomerOrder, INDEXES, Index, Key, Row, TABLES};

/// Commits from one that is durable to the next.
const DURABLE_EVERY: u32 = 1_000;

type Outcome<T> = Result<T, redb::Error>;
type Bytes = &'static [u8];

impl EngineError for redb::Error {
    fn is_retryable(&self) -> bool {
        // Writers take turns.
        false
    }
}

/// A database in memory.
pub(crate) struct Redb {
    database: Database,
    commits: Cell<u32>,
}

impl Redb {
    pub(crate) fn new() -> Outcome<Self> {
        let backend = InMemoryBackend::new();
        let database = Database::builder().create_with_backend(backend)?;
        let transaction = database.begin_write()?;
        for name in TABLES.iter().chain(INDEXES) {
            transaction.open_table(TableDefinition::<Bytes, Bytes>::new(name))?;
        }
        transaction.commit()?;
        Ok(Redb {
            database,
            commits: Cell::new(0),
        })
    }
}

impl Engine for Redb {
    type Error = redb::Error;

    const NAME: &'static str = "redb";
    const ISOLATION: &'static str = "serializable: one writer";
    const DURABILITY: &'static str = "none: in memory, Durability::None";

    fn attempt(&self, work: &mut impl Work) -> Result<End, Failure<redb::Error>> {
        let mut transaction = self.database.begin_write().map_err(redb::Error::from)?;
        let commits = self.commits.replace(self.commits.get() + 1);
        let durability = match commits % DURABLE_EVERY {
            0 => Durability::Immediate,
            _ => Durability::None,
        };
        transaction
            .set_durability(durability)
            .map_err(redb::Error::from)?;
        let end = work.attempt(&mut Tables::of(&transaction))?;
        match end {
            End::Committed => transaction.commit().map_err(redb::Error::from)?,
            End::RolledBack => transaction.abort().map_err(redb::Error::from)?,
        }
        Ok(end)
    }
}

/// The tables of a transaction, opened when first used.
struct Tables<'t> {
    transaction: &'t WriteTransaction,
    open: [Option<Table<'t, Bytes, Bytes>>; TABLES.len() + INDEXES.len()],
}

impl<'t> Tables<'t> {
    fn of(transaction: &'t WriteTransaction) -> Self {
        Tables {
            transaction,
            open: [const { None }; _],
        }
    }

    fn open(&mut self, number: usize, name: &str) -> Outcome<&mut Table<'t, Bytes, Bytes>> {
        Ok(match &mut self.open[number] {
            Some(table) => table,
            empty => {
                let definition = TableDefinition::<Bytes, Bytes>::new(name);
                empty.insert(self.transaction.open_table(definition)?)
            }
        })
    }

    fn table<R: Row>(&mut self) -> Outcome<&mut Table<'t, Bytes, Bytes>> {
        self.open(R::TABLE, R::NAME)
    }

    fn index<I: Index>(&mut self) -> Outcome<&mut Table<'t, Bytes, Bytes>> {
        self.open(TABLES.len() + I::INDEX, I::NAME)
    }

    /// Changes index `I` as a row of another type says, if it is one of its.
    fn put_index<I: Index, R: Row>(&mut self, row: &[u8], is_there: bool) -> Outcome<()> {
        if I::Row::TABLE != R::TABLE {
            return Ok(());
        }
        let row: I::Row = bytes::read(row);
        let key = bytes::key(&I::key(&row));
        let index = self.index::<I>()?;
        if is_there {
            let primary = bytes::key(&row.key());
            index.insert(key.as_slice(), primary.as_slice())?;
        } else {
            index.remove(key.as_slice())?;
        }
        Ok(())
    }
}

fn end(bound: &Option<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_deref().map_or(Bound::Unbounded, Bound::Excluded)
}

impl Transaction for Tables<'_> {
    type Error = redb::Error;
    type View<'v> = Columned<&'v [u8]>;
    type Change<'c> = Columned<Vec<u8>>;

    fn read<R: Row, T>(
        &mut self,
        key: R::Key,
        look: impl FnOnce(&Columned<&[u8]>) -> T,
    ) -> Outcome<Option<T>> {
        let found = self.table::<R>()?.get(bytes::key(&key).as_slice())?;
        Ok(found.map(|row| look(&Columned::of::<R>(row.value()))))
    }

    fn change<R: Row, T>(
        &mut self,
        key: R::Key,
        mut change: impl FnMut(&mut Columned<Vec<u8>>) -> T,
    ) -> Outcome<Option<T>> {
        let (key, table) = (bytes::key(&key), self.table::<R>()?);
        let found = table.get(key.as_slice())?;
        let Some(row) = found.map(|row| row.value().to_vec()) else {
            return Ok(None);
        };
        let mut row = Columned::of::<R>(row);
        let answer = change(&mut row);
        table.insert(key.as_slice(), row.into_bytes().as_slice())?;
        Ok(Some(answer))
    }

    fn keys_by_index<I: Index, K: Key>(
        &mut self,
        prefix: K,
        mut each: impl FnMut(<I::Row as Row>::Key),
    ) -> Outcome<()> {
        let from = bytes::key(&prefix);
        let to = bytes::after(from.clone());
        let range = (Bound::Included(from.as_slice()), end(&to));
        for found in self.index::<I>()?.range::<&[u8]>(range)? {
            each(bytes::read_key(found?.1.value()));
        }
        Ok(())
    }

    fn get<R: Row>(&mut self, key: R::Key) -> Outcome<Option<R>> {
        let found = self.table::<R>()?.get(bytes::key(&key).as_slice())?;
        Ok(found.map(|row| bytes::read(row.value())))
    }

    fn insert<R: Row>(&mut self, row: &R) -> Outcome<()> {
        let (key, row) = (bytes::key(&row.key()), bytes::row(row));
        self.table::<R>()?.insert(key.as_slice(), row.as_slice())?;
        self.put_index::<CustomerName, R>(&row, true)?;
        self.put_index::<CustomerOrder, R>(&row, true)
    }

    fn update<R: Row>(&mut self, row: &R) -> Outcome<()> {
        let (key, row) = (bytes::key(&row.key()), bytes::row(row));
        self.table::<R>()?.insert(key.as_slice(), row.as_slice())?;
        Ok(())
    }

    fn delete<R: Row>(&mut self, key: R::Key) -> Outcome<()> {
        let key = bytes::key(&key);
        let removed = self.table::<R>()?.remove(key.as_slice())?;
        let Some(row) = removed.map(|row| row.value().to_vec()) else {
            return Ok(());
        };
        self.put_index::<CustomerName, R>(&row, false)?;
        self.put_index::<CustomerOrder, R>(&row, false)
    }

    fn scan<R: Row, K: Key>(
        &mut self,
        from: K,
        to: K,
        mut each: impl FnMut(R) -> ControlFlow<()>,
    ) -> Outcome<()> {
        let (from, to) = (bytes::key(&from), bytes::after(bytes::key(&to)));
        let range = (Bound::Included(from.as_slice()), end(&to));
        for found in self.table::<R>()?.range::<&[u8]>(range)? {
            if each(bytes::read(found?.1.value())).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn last_by_index<I: Index, K: Key>(&mut self, prefix: K) -> Outcome<Option<I::Row>> {
        let from = bytes::key(&prefix);
        let to = bytes::after(from.clone());
        let range = (Bound::Included(from.as_slice()), end(&to));
        let Some(last) = self.index::<I>()?.range::<&[u8]>(range)?.next_back() else {
            return Ok(None);
        };
        let primary = last?.1.value().to_vec();
        let row = self.table::<I::Row>()?.get(primary.as_slice())?;
        Ok(row.map(|row| bytes::read(row.value())))
    }
}
