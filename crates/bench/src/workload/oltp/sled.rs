//! TPC-C on sled, in a temporary directory.
//!
//! sled's transactions cannot scan: a range inside of one waits for the lock that
//! the transaction holds. So a transaction here reads the trees as they are and
//! keeps its writes to itself until the end, and one of sled's writes them all,
//! atomically. With one thread, which is how it is measured, this is
//! serializable, and cheaper for sled than checking what was read. Scans do not
//! see the transaction's own writes, and none of TPC-C's would meet any.

use std::ops::{Bound, ControlFlow};

use sled::transaction::{ConflictableTransactionError, Transactional, TransactionalTree};
use sled::{Db, IVec, Tree};

use super::access::{End, Engine, EngineError, Failure, Transaction, Work};
use super::bytes::{self, Columned};
use crate::workload::tpcc::row::{CustomerName, CustomerOrder, INDEXES, Index, Key, Row, TABLES};

type Outcome<T> = Result<T, sled::Error>;

impl EngineError for sled::Error {
    fn is_retryable(&self) -> bool {
        // sled repeats its transactions itself.
        false
    }
}

/// A database that is removed when dropped.
pub(crate) struct Sled {
    // Dropped last, and its files with it.
    trees: Vec<Tree>,
    _database: Db,
}

impl Sled {
    /// Nothing is flushed as long as memory suffices.
    pub(crate) fn new() -> Outcome<Self> {
        let database = sled::Config::new()
            .temporary(true)
            .flush_every_ms(None)
            .mode(sled::Mode::HighThroughput)
            .cache_capacity(8 << 30)
            .open()?;
        let names = TABLES.iter().chain(INDEXES);
        let trees = names.map(|name| database.open_tree(name));
        Ok(Sled {
            trees: trees.collect::<Outcome<_>>()?,
            _database: database,
        })
    }
}

impl Engine for Sled {
    type Error = sled::Error;

    const NAME: &'static str = "sled";
    const ISOLATION: &'static str = "atomic commits, reads not validated";
    const DURABILITY: &'static str = "none: temporary file, never flushed";

    fn attempt(&self, work: &mut impl Work) -> Result<End, Failure<sled::Error>> {
        let mut transaction = Writes {
            trees: &self.trees,
            writes: Vec::with_capacity(64),
        };
        let end = work.attempt(&mut transaction)?;
        if end == End::Committed {
            transaction.commit()?;
        }
        Ok(end)
    }
}

/// What a transaction has written: tree, key, and the value or its absence.
struct Writes<'t> {
    trees: &'t [Tree],
    writes: Vec<(usize, Vec<u8>, Option<IVec>)>,
}

impl Writes<'_> {
    fn commit(self) -> Outcome<()> {
        if self.writes.is_empty() {
            return Ok(());
        }
        let write = |trees: &Vec<TransactionalTree>| {
            for (tree, key, value) in &self.writes {
                let tree = &trees[*tree];
                match value {
                    Some(value) => tree.insert(key.as_slice(), value)?,
                    None => tree.remove(key.as_slice())?,
                };
            }
            Ok::<_, ConflictableTransactionError<sled::Error>>(())
        };
        self.trees.transaction(write).map_err(|error| match error {
            sled::transaction::TransactionError::Abort(error)
            | sled::transaction::TransactionError::Storage(error) => error,
        })
    }

    fn read(&self, tree: usize, key: &[u8]) -> Outcome<Option<IVec>> {
        let own = self.writes.iter().rev();
        let own = own.filter(|(of, written, _)| *of == tree && written == key);
        match own.map(|(_, _, value)| value.clone()).next() {
            Some(value) => Ok(value),
            None => self.trees[tree].get(key),
        }
    }

    fn put_index<I: Index, R: Row>(&mut self, row: &[u8], is_there: bool) {
        if I::Row::TABLE != R::TABLE {
            return;
        }
        let row: I::Row = bytes::read(row);
        let key = bytes::key(&I::key(&row));
        let value = is_there.then(|| bytes::key(&row.key()).into());
        self.writes.push((TABLES.len() + I::INDEX, key, value));
    }

    fn range(&self, tree: usize, from: Vec<u8>, to: Vec<u8>) -> sled::Iter {
        let to = bytes::after(to).map_or(Bound::Unbounded, Bound::Excluded);
        self.trees[tree].range((Bound::Included(from), to))
    }
}

impl Transaction for Writes<'_> {
    type Error = sled::Error;
    type View<'v> = Columned<&'v [u8]>;
    type Change<'c> = Columned<Vec<u8>>;

    fn read<R: Row, T>(
        &mut self,
        key: R::Key,
        look: impl FnOnce(&Columned<&[u8]>) -> T,
    ) -> Outcome<Option<T>> {
        let found = Writes::read(self, R::TABLE, &bytes::key(&key))?;
        Ok(found.map(|row| look(&Columned::of::<R>(&row))))
    }

    fn change<R: Row, T>(
        &mut self,
        key: R::Key,
        mut change: impl FnMut(&mut Columned<Vec<u8>>) -> T,
    ) -> Outcome<Option<T>> {
        let key = bytes::key(&key);
        let Some(row) = Writes::read(self, R::TABLE, &key)? else {
            return Ok(None);
        };
        let mut row = Columned::of::<R>(row.to_vec());
        let answer = change(&mut row);
        self.writes
            .push((R::TABLE, key, Some(row.into_bytes().into())));
        Ok(Some(answer))
    }

    fn keys_by_index<I: Index, K: Key>(
        &mut self,
        prefix: K,
        mut each: impl FnMut(<I::Row as Row>::Key),
    ) -> Outcome<()> {
        let prefix = bytes::key(&prefix);
        for found in self.range(TABLES.len() + I::INDEX, prefix.clone(), prefix) {
            each(bytes::read_key(&found?.1));
        }
        Ok(())
    }

    fn get<R: Row>(&mut self, key: R::Key) -> Outcome<Option<R>> {
        let found = Writes::read(self, R::TABLE, &bytes::key(&key))?;
        Ok(found.map(|row| bytes::read(&row)))
    }

    fn insert<R: Row>(&mut self, row: &R) -> Outcome<()> {
        let (key, row) = (bytes::key(&row.key()), bytes::row(row));
        self.put_index::<CustomerName, R>(&row, true);
        self.put_index::<CustomerOrder, R>(&row, true);
        self.writes.push((R::TABLE, key, Some(row.into())));
        Ok(())
    }

    fn update<R: Row>(&mut self, row: &R) -> Outcome<()> {
        let (key, row) = (bytes::key(&row.key()), bytes::row(row));
        self.writes.push((R::TABLE, key, Some(row.into())));
        Ok(())
    }

    fn delete<R: Row>(&mut self, key: R::Key) -> Outcome<()> {
        let key = bytes::key(&key);
        let Some(row) = Writes::read(self, R::TABLE, &key)? else {
            return Ok(());
        };
        self.put_index::<CustomerName, R>(&row, false);
        self.put_index::<CustomerOrder, R>(&row, false);
        self.writes.push((R::TABLE, key, None));
        Ok(())
    }

    fn scan<R: Row, K: Key>(
        &mut self,
        from: K,
        to: K,
        mut each: impl FnMut(R) -> ControlFlow<()>,
    ) -> Outcome<()> {
        for found in self.range(R::TABLE, bytes::key(&from), bytes::key(&to)) {
            if each(bytes::read(&found?.1)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn last_by_index<I: Index, K: Key>(&mut self, prefix: K) -> Outcome<Option<I::Row>> {
        let prefix = bytes::key(&prefix);
        let mut range = self.range(TABLES.len() + I::INDEX, prefix.clone(), prefix);
        let Some(last) = range.next_back() else {
            return Ok(None);
        };
        let row = self.trees[I::Row::TABLE].get(last?.1)?;
        Ok(row.map(|row| bytes::read(&row)))
    }
}
