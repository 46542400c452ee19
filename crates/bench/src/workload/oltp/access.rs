//! What the five transactions ask of an engine, and how they are run on it.
//!
//! ```text
//!   Engine ── attempt ──► Transaction: get, insert, update, delete, scan
//!     │                        │ error
//!     └── commit, or roll back ┴─► retryable: again, with the same inputs
//! ```
//!
//! Every engine runs the same transactions with the same accesses. Engines are
//! generic parameters: an access is compiled for its engine and costs no virtual
//! call.

use std::fmt;
use std::ops::ControlFlow;

use crate::workload::tpcc::row::{Index, Key, Row};

/// Rows of one transaction. A partial key stands for all keys that begin with
/// it.
pub(crate) trait Transaction {
    /// What can go wrong.
    type Error: EngineError;

    /// A row where it lies.
    type View<'v>: View;
    /// A row that is being changed.
    type Change<'c>: Change;

    /// The row with this key.
    fn get<R: Row>(&mut self, key: R::Key) -> Result<Option<R>, Self::Error>;

    /// Announces that rows with these keys will be read or changed soon, to
    /// engines that can make use of it.
    fn announce<R: Row>(&mut self, _: impl Iterator<Item = R::Key>) {}

    /// What somebody wants to know of the row with this key.
    fn read<R: Row, T>(
        &mut self,
        key: R::Key,
        look: impl FnOnce(&Self::View<'_>) -> T,
    ) -> Result<Option<T>, Self::Error>;

    /// Changes the row with this key, and says what somebody wants to know of it.
    /// Only columns that transactions change may be set.
    fn change<R: Row, T>(
        &mut self,
        key: R::Key,
        change: impl FnMut(&mut Self::Change<'_>) -> T,
    ) -> Result<Option<T>, Self::Error>;

    /// Adds a row, whose key must be new.
    fn insert<R: Row>(&mut self, row: &R) -> Result<(), Self::Error>;

    /// Writes the columns that change; the row must be there.
    fn update<R: Row>(&mut self, row: &R) -> Result<(), Self::Error>;

    /// Removes a row, which must be there.
    fn delete<R: Row>(&mut self, key: R::Key) -> Result<(), Self::Error>;

    /// Visits rows by ascending key until told to stop. Both ends are included,
    /// and differ in their last column at most.
    fn scan<R: Row, K: Key>(
        &mut self,
        from: K,
        to: K,
        each: impl FnMut(R) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;

    /// Visits the primary keys of the rows whose index key begins with `prefix`,
    /// in the order of the index.
    fn keys_by_index<I: Index, K: Key>(
        &mut self,
        prefix: K,
        each: impl FnMut(<I::Row as Row>::Key),
    ) -> Result<(), Self::Error>;

    /// The last of the rows whose index key begins with `prefix`.
    fn last_by_index<I: Index, K: Key>(&mut self, prefix: K)
    -> Result<Option<I::Row>, Self::Error>;
}

/// A row's columns by position, without taking the whole row.
pub(crate) trait View {
    /// A column of eight bytes, which is not NULL.
    fn integer(&self, column: usize) -> i64;
    /// A column of four bytes.
    fn small(&self, column: usize) -> i32;
    /// A text.
    fn text(&self, column: usize) -> &str;
}

/// A row that is being changed.
pub(crate) trait Change: View {
    /// Sets a column of eight bytes.
    fn set_integer(&mut self, column: usize, value: i64);
    /// Sets a column of four bytes.
    fn set_small(&mut self, column: usize, value: i32);
    /// Sets a text.
    fn set_text(&mut self, column: usize, value: &str);

    /// Adds to a column of eight bytes.
    fn add_integer(&mut self, column: usize, more: i64) {
        self.set_integer(column, self.integer(column) + more);
    }

    /// Adds to a column of four bytes.
    fn add_small(&mut self, column: usize, more: i32) {
        self.set_small(column, self.small(column) + more);
    }
}

/// An engine's error.
pub(crate) trait EngineError: fmt::Display + fmt::Debug + Send + 'static {
    /// Whether the same transaction may succeed when it is run again.
    fn is_retryable(&self) -> bool;
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Committed.
    Committed,
    /// Rolled back because an item does not exist (clause 2.4.1.4).
    RolledBack,
}

/// Why a transaction did not end as its inputs wanted.
#[derive(Debug)]
pub(crate) enum Failure<E> {
    /// The engine said so.
    Engine(E),
    /// A row is missing that loading made and nothing removes.
    Missing(&'static str),
}

impl<E> From<E> for Failure<E> {
    fn from(error: E) -> Self {
        Failure::Engine(error)
    }
}

impl<E: EngineError> Failure<E> {
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Failure::Engine(error) => error.is_retryable(),
            Failure::Missing(_) => false,
        }
    }

    /// The failure as this crate's error.
    pub(crate) fn named(self, engine: &'static str) -> crate::harness::error::Error {
        let reason = match self {
            Failure::Engine(error) => error.to_string(),
            Failure::Missing(what) => format!("a {what} is missing that was loaded"),
        };
        crate::harness::error::Error::Engine { engine, reason }
    }
}

/// What is done in one transaction, on whatever engine; possibly several times.
pub(crate) trait Work {
    /// One attempt.
    fn attempt<X: Transaction>(&mut self, x: &mut X) -> Result<End, Failure<X::Error>>;
}

/// A database in memory with TPC-C's tables.
pub(crate) trait Engine {
    /// What can go wrong.
    type Error: EngineError;

    /// The engine's name in results.
    const NAME: &'static str;
    /// Its isolation, as it is used here.
    const ISOLATION: &'static str;
    /// What a commit survives, as it is used here.
    const DURABILITY: &'static str;

    /// Does the work in a transaction, and commits it or rolls it back as the
    /// work asks; rolls back on an error.
    fn attempt(&self, work: &mut impl Work) -> Result<End, Failure<Self::Error>>;

    /// Called before an attempt is repeated, with the reason.
    fn before_retry(&self, _: &Failure<Self::Error>) {}

    /// Attempts the work until it ends or fails for good; answers with the
    /// number of attempts that had to be repeated, too.
    fn run(&self, work: &mut impl Work) -> Result<(End, u64), Failure<Self::Error>> {
        let mut retries = 0;
        loop {
            match self.attempt(work) {
                Ok(end) => return Ok((end, retries)),
                Err(failure) if failure.is_retryable() => {
                    retries += 1;
                    self.before_retry(&failure);
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}
