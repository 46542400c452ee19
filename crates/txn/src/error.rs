//! What can go wrong, by what the caller does next.
//!
//! | variant | the caller |
//! | --- | --- |
//! | `Conflict`, `Serialization`, `SnapshotTooOld`, `SchemaChanged` | runs the transaction again; [`Database::run`](crate::Database::run) does |
//! | `TooManyTransactions` | runs fewer at a time, or waits |
//! | `DuplicateKey`, `UniqueViolation`, `NotFound` | decides; the transaction is as it was before the operation |
//! | `TableDropped` | runs the transaction without the table |
//! | `OutOfMemory` | ends old snapshots, deletes rows, or raises the limit |
//! | `TooMuchGarbage` | writes the same rows less often in one transaction, or raises the limit |
//! | `Timeout` | gives up, as it asked to |
//! | `Schema` | corrects its program |
//! | `NotRun` | submits the transaction again, if it was not the one that panicked |
//! | `Durability` | does what [`DurabilityError`] says, mostly about the disk |
//!
//! A transaction that has met an error of the first, fourth, fifth, sixth or seventh
//! row can only be aborted: its further operations fail in the same way.

use std::sync::Arc;

use giveway_preempt::TaskError;

use crate::log::DurabilityError;

/// What this crate's fallible operations return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation did not happen. See the module for what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another transaction wrote the record first: it is still running, or it
    /// committed after this one's snapshot was taken.
    #[error("another transaction wrote the record first: run this one again")]
    Conflict {
        /// The writer is paused on this very worker, at a lower level than this
        /// transaction's: it goes on only if this transaction lets it.
        below: bool,
    },
    /// What the transaction read has changed since, so that no serial order
    /// holds it.
    #[error("what the transaction read was changed before it committed: run it again")]
    Serialization,
    /// The transaction held back so much garbage that it was ended; see
    /// [`Options::garbage_limit`](crate::Options::garbage_limit).
    #[error(
        "the transaction's snapshot kept more old versions alive than garbage_limit allows: run \
         it again, in smaller pieces if it is long, or raise the limit"
    )]
    SnapshotTooOld,
    /// More transactions are open than the database has places for.
    #[error("{limit} transactions are open, and that is all there can be: finish some first")]
    TooManyTransactions {
        /// How many there can be.
        limit: usize,
    },
    /// There is a row with this primary key.
    #[error("table '{table}' has a row with this primary key: update it, or choose another key")]
    DuplicateKey {
        /// The table.
        table: Arc<str>,
    },
    /// There is a row with this key of a unique index.
    #[error(
        "table '{table}' has a row with this key in its unique index '{index}': update that row, \
         or choose another key"
    )]
    UniqueViolation {
        /// The table.
        table: Arc<str>,
        /// The index.
        index: Arc<str>,
    },
    /// There is no row with this primary key.
    #[error("table '{table}' has no row with this primary key")]
    NotFound {
        /// The table.
        table: Arc<str>,
    },
    /// An index of the table was added or dropped while the transaction ran.
    #[error(
        "an index of table '{table}' was added or dropped while the transaction ran: run it again"
    )]
    SchemaChanged {
        /// The table.
        table: Arc<str>,
    },
    /// The table was dropped. What the transaction has done in it is lost, and it must
    /// abort.
    #[error("table '{table}' was dropped: run the transaction without it, or create it again")]
    TableDropped {
        /// The table.
        table: Arc<str>,
    },
    /// The database may not grow. Nothing was lost; the transaction must abort.
    #[error(
        "the database holds {used} of {limit} bytes, {garbage} of them for old versions: end old \
         snapshots, delete rows, or raise memory_limit"
    )]
    OutOfMemory {
        /// Bytes held of the system: [`Stats::held_bytes`](crate::Stats::held_bytes).
        used: u64,
        /// [`Options::memory_limit`](crate::Options::memory_limit).
        limit: u64,
        /// Bytes in use by versions and nodes that only old snapshots need.
        garbage: u64,
    },
    /// The transaction has replaced so much of what it wrote itself that most of the
    /// garbage is its own. It would be so again; it must abort.
    #[error(
        "the transaction has replaced {own} bytes of its own writes, and garbage_limit is \
         {limit}: write the same rows less often in one transaction, or raise the limit"
    )]
    TooMuchGarbage {
        /// Bytes of versions that it has made and replaced.
        own: u64,
        /// [`Options::garbage_limit`](crate::Options::garbage_limit).
        limit: u64,
    },
    /// The transaction's deadline has passed.
    #[error("the transaction's deadline has passed")]
    Timeout,
    /// The request does not fit the table.
    #[error(transparent)]
    Schema(#[from] Box<SchemaError>),
    /// A submitted transaction did not run to its end.
    #[error("the transaction did not run: {0}")]
    NotRun(TaskError),
    /// What is committed is not durable, or cannot be recovered.
    #[error(transparent)]
    Durability(Box<DurabilityError>),
}

impl Error {
    /// Whether the same transaction may succeed when it is run again.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Error::Conflict { .. }
                | Error::Serialization
                | Error::SnapshotTooOld
                | Error::SchemaChanged { .. }
        )
    }
}

/// A request that does not fit the schema it is about, or a schema that is
/// none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// Names of tables, columns and indexes are not empty.
    #[error("{what} needs a name")]
    Nameless {
        /// What has none.
        what: &'static str,
    },
    /// Two things have one name.
    #[error("{what} '{name}' exists already: choose another name")]
    Twice {
        /// What.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// No such thing.
    #[error("'{within}' has no {what} '{name}': it has {known}")]
    Unknown {
        /// What.
        what: &'static str,
        /// The name asked for.
        name: String,
        /// Where it was looked for.
        within: String,
        /// What there is.
        known: String,
    },
    /// A table has a primary key.
    #[error("table '{table}' has no primary key: add .primary_key([…])")]
    NoPrimaryKey {
        /// The table.
        table: String,
    },
    /// An index is on something.
    #[error("index '{index}' is on no column: name at least one")]
    EmptyIndex {
        /// The index.
        index: String,
    },
    /// A primary key's columns are always there.
    #[error(
        "column '{column}' is in the primary key, so it cannot be nullable: declare it with .column()"
    )]
    NullablePrimaryKey {
        /// The column.
        column: String,
    },
    /// A column that is added needs a value for the rows that are there.
    #[error(
        "column '{column}' has no value for the rows that '{table}' has: give a default, or make \
         it nullable"
    )]
    NoDefault {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A column cannot be dropped.
    #[error("column '{column}' cannot be dropped: it is in {by}")]
    ColumnInUse {
        /// The column.
        column: String,
        /// What it is in.
        by: String,
    },
    /// A handle of a table that has lost a column since.
    #[error(
        "a column of '{table}' was dropped after this handle was got: get another one with \
         Database::table"
    )]
    OldHandle {
        /// The table.
        table: String,
    },
    /// A handle of an index that was dropped.
    #[error("index '{index}' of '{table}' was dropped: scan another one, or the table")]
    IndexDropped {
        /// The index.
        index: String,
        /// Its table.
        table: String,
    },
    /// An index cannot be unique.
    #[error(
        "index '{index}' cannot be unique: more than one row of '{table}' has the key ({key}); \
         change or delete all but one of them, or add the index without unique"
    )]
    NotUnique {
        /// The index.
        index: String,
        /// Its table.
        table: String,
        /// One of the keys.
        key: String,
    },
    /// One index of a table is built at a time.
    #[error("an index of '{table}' is being built: try again when that is done")]
    Building {
        /// The table.
        table: String,
    },
    /// A table has at most [`MAX_COLUMNS`](crate::MAX_COLUMNS) columns, with those that
    /// were dropped.
    #[error("table '{table}' has {count} columns, the limit is {limit}: split it")]
    TooManyColumns {
        /// The table.
        table: String,
        /// How many it has.
        count: usize,
        /// How many it may have.
        limit: usize,
    },
    /// A value of another type than its column's.
    #[error("column '{column}' is {expected}, the value given is {given}")]
    WrongType {
        /// The column.
        column: String,
        /// Its type.
        expected: crate::Type,
        /// What the value is.
        given: &'static str,
    },
    /// A number that its column's type cannot hold.
    #[error("column '{column}' is {expected}, which {value} does not fit into")]
    OutOfRange {
        /// The column.
        column: String,
        /// Its type.
        expected: crate::Type,
        /// The number.
        value: i128,
    },
    /// NULL in a column that has always a value.
    #[error(
        "column '{column}' of '{table}' must have a value: set it, or declare it with .nullable()"
    )]
    Null {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A key with too few or too many parts.
    #[error("the key of '{of}' has {expected} columns, {given} were given")]
    KeyParts {
        /// The table or index.
        of: String,
        /// How many it has.
        expected: usize,
        /// How many were given.
        given: usize,
    },
    /// An update may not move a row.
    #[error("an update of '{table}' changes the primary key: delete the row and insert another")]
    PrimaryKeyChanged {
        /// The table.
        table: String,
    },
    /// A row of another table or database, or of another schema of the table.
    #[error(
        "a row of '{given}' was given where one of '{expected}' is needed: make it with Table::row \
         of the same handle"
    )]
    OtherTable {
        /// The table of the operation.
        expected: String,
        /// The table of the row.
        given: String,
    },
    /// A write in a transaction that promised to make none.
    #[error("the transaction was begun read_only: begin it without, if it has to write")]
    ReadOnlyTransaction,
    /// Bytes that are no row of the table.
    #[error("these {length} bytes are no row of '{table}': {reason}")]
    Malformed {
        /// The table.
        table: String,
        /// How many bytes.
        length: usize,
        /// What is wrong with them.
        reason: &'static str,
    },
}

impl From<DurabilityError> for Error {
    fn from(error: DurabilityError) -> Error {
        Error::Durability(Box::new(error))
    }
}

impl From<SchemaError> for Error {
    fn from(error: SchemaError) -> Error {
        Error::Schema(Box::new(error))
    }
}
