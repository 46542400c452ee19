//! SQLite: a prepared statement for each operation.
//!
//! One thread has its database in `:memory:`, which connections could share only by locks
//! on whole tables. Several share a file on tmpfs with a write-ahead log, mapped into
//! memory, a connection for each; who meets a writer tries again at once, since SQLite's
//! own wait sleeps a millisecond. Nothing is synchronised. Rows are WITHOUT ROWID, which
//! is one look-up; with pages of 16 KiB a row of 1 KB lies in its page whole.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, Statement};

use super::{Change, Failed, Outcome, ROW_BYTES, Session, Store, Work};

/// A database with the table.
pub(super) struct Sqlite {
    columns: usize,
    place: Place,
}

enum Place {
    /// Of one thread.
    Memory(Mutex<Connection>),
    /// A file.
    Shared(PathBuf),
}

pub(super) fn version() -> String {
    rusqlite::version().to_owned()
}

impl Sqlite {
    pub(super) fn new(columns: usize, threads: usize, dir: &Path) -> Outcome<Self> {
        let place = match threads {
            1 => Place::Memory(Mutex::new(Connection::open_in_memory()?)),
            _ => Place::Shared(dir.join("ycsb.db")),
        };
        let sqlite = Sqlite { columns, place };
        let fields: Vec<String> = (0..columns)
            .map(|column| format!("field{column} BLOB NOT NULL"))
            .collect();
        let table = format!(
            "CREATE TABLE usertable (key BLOB PRIMARY KEY, {}) WITHOUT ROWID",
            fields.join(", ")
        );
        sqlite.with_connection(|connection| Ok(connection.execute_batch(&table)?))?;
        Ok(sqlite)
    }

    fn with_connection(&self, work: impl FnOnce(&Connection) -> Outcome<()>) -> Outcome<()> {
        match &self.place {
            Place::Memory(connection) => {
                let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                connection.execute_batch(
                    "PRAGMA page_size = 16384; PRAGMA journal_mode = MEMORY; \
                     PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE",
                )?;
                work(&connection)
            }
            Place::Shared(path) => {
                let mut connection = Connection::open(path)?;
                connection.busy_handler(Some(|_| {
                    std::thread::yield_now();
                    true
                }))?;
                connection.execute_batch(
                    "PRAGMA page_size = 16384; PRAGMA journal_mode = WAL; \
                     PRAGMA synchronous = OFF; PRAGMA mmap_size = 4294967296; \
                     PRAGMA cache_size = -65536",
                )?;
                work(&connection)
            }
        }
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
