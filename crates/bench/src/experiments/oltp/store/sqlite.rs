//! SQLite: a prepared statement for each operation.
//!
//! One thread has its database in `:memory:`, which connections could share only by locks
//! on whole tables. Several share a file on tmpfs with a write-ahead log, mapped into
//! memory, a connection for each; who meets a writer tries again at once, since SQLite's
//! own wait sleeps a millisecond. Connections stay open from turn to turn with what they
//! have cached. Nothing is synchronised. Rows are WITHOUT ROWID, which is one look-up; with
//! pages of 8 KiB a row of 1 KB lies in its page whole, as at most a quarter of a page does.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, Statement, ffi};

use super::{Change, Failed, Outcome, ROW_BYTES, Session, Size, Store, Work};

/// A database with the table.
pub(super) struct Sqlite {
    columns: usize,
    /// One for each thread, while it has no session.
    connections: Mutex<Vec<Connection>>,
}

/// Turns the counters of memory off, for which all threads would take one lock.
///
/// # Safety
/// The process has one thread, and has not asked SQLite for anything.
pub(super) unsafe fn begin_process() {
    // SAFETY: the option takes an int; by the caller's word nobody is in SQLite.
    let status = unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MEMSTATUS, 0) };
    assert_eq!(status, ffi::SQLITE_OK, "SQLite has begun already");
}

pub(super) fn version() -> String {
    rusqlite::version().to_owned()
}

/// A connection that is set up. Its cache holds all rows.
fn connect(size: Size, dir: &Path) -> Outcome<Connection> {
    let (mut connection, own) = match size.threads {
        1 => (
            Connection::open_in_memory()?,
            "journal_mode = MEMORY; PRAGMA locking_mode = EXCLUSIVE".to_owned(),
        ),
        _ => (
            Connection::open(dir.join("ycsb.db"))?,
            format!(
                "journal_mode = WAL; PRAGMA mmap_size = {}",
                size.memory_bytes()
            ),
        ),
    };
    connection.busy_handler(Some(|_| {
        std::thread::yield_now();
        true
    }))?;
    connection.execute_batch(&format!(
        "PRAGMA page_size = 8192; PRAGMA synchronous = OFF; PRAGMA cache_size = -{}; PRAGMA {own}",
        size.memory_bytes() / 1024
    ))?;
    Ok(connection)
}

impl Sqlite {
    pub(super) fn new(size: Size, dir: &Path) -> Outcome<Self> {
        let connections = (0..size.threads)
            .map(|_| connect(size, dir))
            .collect::<Outcome<_>>()?;
        let sqlite = Sqlite {
            columns: size.columns,
            connections: Mutex::new(connections),
        };
        let fields: Vec<String> = (0..size.columns)
            .map(|column| format!("field{column} BLOB NOT NULL"))
            .collect();
        let table = format!(
            "CREATE TABLE usertable (key BLOB PRIMARY KEY, {}) WITHOUT ROWID",
            fields.join(", ")
        );
        sqlite.with_connection(|connection| Ok(connection.execute_batch(&table)?))?;
        Ok(sqlite)
    }

    /// Each thread has one at a time.
    fn with_connection(&self, work: impl FnOnce(&Connection) -> Outcome<()>) -> Outcome<()> {
        let free = || {
            let connections = self.connections.lock();
            connections.unwrap_or_else(PoisonError::into_inner)
        };
        let connection = free().pop().expect("each thread has one at a time");
        let done = work(&connection);
        free().push(connection);
        done
    }
}

impl Store for Sqlite {
    fn with_session(&self, work: Work<'_>) -> Outcome<()> {
        self.with_connection(|connection| {
            let fields: Vec<String> = (0..self.columns).map(|at| format!("field{at}")).collect();
            let list = fields.join(", ");
            let values: Vec<String> = (2..2 + self.columns).map(|at| format!("?{at}")).collect();
            let update =
                |field: &String| format!("UPDATE usertable SET {field} = ?2 WHERE key = ?1");
            let prepare = |text: &str| connection.prepare(text);
            let mut session = Prepared {
                columns: self.columns,
                begin: prepare("BEGIN IMMEDIATE")?,
                commit: prepare("COMMIT")?,
                insert: prepare(&format!(
                    "INSERT INTO usertable (key, {list}) VALUES (?1, {})",
                    values.join(", ")
                ))?,
                read: prepare(&format!("SELECT {list} FROM usertable WHERE key = ?1"))?,
                update: fields
                    .iter()
                    .map(|field| prepare(&update(field)))
                    .collect::<rusqlite::Result<_>>()?,
                scan: prepare(&format!(
                    "SELECT {list} FROM usertable WHERE key >= ?1 ORDER BY key LIMIT ?2"
                ))?,
            };
            work(&mut session)
        })
    }

    fn settle(&self) -> Outcome<()> {
        // Nothing, where there is no write-ahead log.
        self.with_connection(|connection| {
            Ok(connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?)
        })
    }
}

struct Prepared<'c> {
    columns: usize,
    begin: Statement<'c>,
    commit: Statement<'c>,
    insert: Statement<'c>,
    read: Statement<'c>,
    /// By column.
    update: Vec<Statement<'c>>,
    scan: Statement<'c>,
}

/// Adds all that a bound statement finds; answers with the number of rows.
fn collect(statement: &mut Statement<'_>, columns: usize, to: &mut Vec<u8>) -> Outcome<usize> {
    let mut found = statement.raw_query();
    let mut count = 0;
    while let Some(row) = found.next()? {
        for column in 0..columns {
            to.extend_from_slice(row.get_ref(column)?.as_blob()?);
        }
        count += 1;
    }
    Ok(count)
}

impl Session for Prepared<'_> {
    fn insert(&mut self, key: &[u8], row: &[u8]) -> Outcome<()> {
        self.insert.raw_bind_parameter(1, key)?;
        for (value, at) in row.chunks_exact(ROW_BYTES / self.columns).zip(2..) {
            self.insert.raw_bind_parameter(at, value)?;
        }
        self.insert.raw_execute()?;
        Ok(())
    }

    fn read(&mut self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()> {
        row.clear();
        self.read.raw_bind_parameter(1, key)?;
        match collect(&mut self.read, self.columns, row)? {
            1 => Ok(()),
            _ => Err(Failed::missing()),
        }
    }

    fn update(&mut self, key: &[u8], change: Change<'_>) -> Outcome<()> {
        let statement = &mut self.update[change.column];
        statement.raw_bind_parameter(1, key)?;
        statement.raw_bind_parameter(2, change.value)?;
        match statement.raw_execute()? {
            1 => Ok(()),
            _ => Err(Failed::missing()),
        }
    }

    fn read_and_update(
        &mut self,
        key: &[u8],
        change: Change<'_>,
        row: &mut Vec<u8>,
    ) -> Outcome<()> {
        self.begin.raw_execute()?;
        self.read(key, row)?;
        self.update(key, change)?;
        self.commit.raw_execute()?;
        Ok(())
    }

    fn scan(&mut self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize> {
        rows.clear();
        self.scan.raw_bind_parameter(1, from)?;
        self.scan.raw_bind_parameter(2, count as i64)?;
        collect(&mut self.scan, self.columns, rows)
    }
}
