//! TPC-C on SQLite in memory: a prepared statement for each access.
//!
//! Settings are those that make it fast and that its documentation recommends
//! where nothing has to survive: no journal on disk, exclusive locking, no
//! synchronisation. Tables are WITHOUT ROWID, so that a row is one lookup by its
//! primary key. Statements are prepared once and bound by position; an update
//! names only the columns that change, so that no index is touched.

use std::cell::RefCell;
use std::ops::{ControlFlow, Range};

use rusqlite::types::{Null, ToSql, Value, ValueRef};
use rusqlite::{Connection, Statement};

use super::access::{Change, End, Engine, EngineError, Failure, Transaction, View, Work};
use crate::workload::tpcc::row::{
    Customer, CustomerName, CustomerOrder, District, History, INDEXES, Index, Item, Key, Kind,
    NewOrder, Order, OrderLine, Row, Sink, Source, Stock, TABLES, Warehouse,
};

type Outcome<T> = rusqlite::Result<T>;

impl EngineError for rusqlite::Error {
    fn is_retryable(&self) -> bool {
        // One connection has no rival.
        false
    }
}

/// A database in memory with TPC-C's tables, empty.
pub(crate) fn open() -> Outcome<Connection> {
    let connection = Connection::open_in_memory()?;
    connection.execute_batch(
        "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; \
         PRAGMA locking_mode = EXCLUSIVE; PRAGMA temp_store = MEMORY;",
    )?;
    create_table::<Warehouse>(&connection)?;
    create_table::<District>(&connection)?;
    create_table::<Customer>(&connection)?;
    create_table::<History>(&connection)?;
    create_table::<Order>(&connection)?;
    create_table::<NewOrder>(&connection)?;
    create_table::<OrderLine>(&connection)?;
    create_table::<Item>(&connection)?;
    create_table::<Stock>(&connection)?;
    create_index::<CustomerName>(&connection)?;
    create_index::<CustomerOrder>(&connection)?;
    Ok(connection)
}

fn create_table<R: Row>(connection: &Connection) -> Outcome<()> {
    let columns = R::COLUMNS.iter().map(|column| match column.kind {
        Kind::Integer(_) => format!("{} INTEGER NOT NULL", column.name),
        Kind::Nullable => format!("{} INTEGER", column.name),
        Kind::Text(_) => format!("{} TEXT NOT NULL", column.name),
    });
    connection.execute_batch(&format!(
        "CREATE TABLE {} ({}, PRIMARY KEY ({})) WITHOUT ROWID",
        R::NAME,
        Vec::from_iter(columns).join(", "),
        names::<R>(0..R::KEY).join(", ")
    ))
}

fn create_index<I: Index>(connection: &Connection) -> Outcome<()> {
    connection.execute_batch(&format!(
        "CREATE UNIQUE INDEX {} ON {} ({})",
        I::NAME,
        I::Row::NAME,
        I::COLUMNS.join(", ")
    ))
}

fn names<R: Row>(range: Range<usize>) -> Vec<&'static str> {
    R::COLUMNS[range].iter().map(|column| column.name).collect()
}

/// `a = ?1, b = ?2`, with parameters from `first` on.
fn equal(columns: &[&str], first: usize, between: &str) -> String {
    let terms = columns
        .iter()
        .zip(first..)
        .map(|(column, number)| format!("{column} = ?{number}"));
    Vec::from_iter(terms).join(between)
}

/// Ways to a table's rows; scans differ by the columns they are bounded by.
#[derive(Clone, Copy)]
enum Access {
    Get,
    Insert,
    Update,
    Delete,
    Scan(usize),
    /// Sets the columns of a set, of those that change.
    Change(u8),
}

impl Access {
    /// Places for the statements of a table.
    const SLOTS: usize = 10 + (1 << MOST_CHANGING);

    fn slot(self) -> usize {
        match self {
            Access::Get => 0,
            Access::Insert => 1,
            Access::Update => 2,
            Access::Delete => 3,
            Access::Scan(columns) => 4 + columns,
            Access::Change(set) => 10 + usize::from(set),
        }
    }

    fn text<R: Row>(self) -> String {
        let (table, all) = (R::NAME, names::<R>(0..R::COLUMNS.len()));
        let key = names::<R>(0..R::KEY);
        let by_key = equal(&key, 1, " AND ");
        let list = all.join(", ");
        match self {
            Access::Get => format!("SELECT {list} FROM {table} WHERE {by_key}"),
            Access::Delete => format!("DELETE FROM {table} WHERE {by_key}"),
            Access::Insert => {
                let values = (1..=all.len()).map(|number| format!("?{number}"));
                let values = Vec::from_iter(values).join(", ");
                format!("INSERT INTO {table} ({list}) VALUES ({values})")
            }
            Access::Update => {
                let changing = names::<R>(R::KEY..R::KEY + R::CHANGING);
                let set = equal(&changing, R::KEY + 1, ", ");
                format!("UPDATE {table} SET {set} WHERE {by_key}")
            }
            Access::Change(set) => {
                let mut changing = names::<R>(R::KEY..R::KEY + R::CHANGING);
                let mut at = 0..;
                changing.retain(|_| at.next().is_some_and(|at: u8| set & (1 << at) != 0));
                let set = equal(&changing, R::KEY + 1, ", ");
                format!("UPDATE {table} SET {set} WHERE {by_key}")
            }
            Access::Scan(columns) => {
                let range = match key[..columns].split_last() {
                    None => String::new(),
                    Some((last, [])) => format!("WHERE {last} BETWEEN ?1 AND ?2"),
                    Some((last, others)) => format!(
                        "WHERE {} AND {last} BETWEEN ?{columns} AND ?{}",
                        equal(others, 1, " AND "),
                        columns + 1
                    ),
                };
                let order = key.join(", ");
                format!("SELECT {list} FROM {table} {range} ORDER BY {order}")
            }
        }
    }
}

/// What is wanted by an index.
#[derive(Clone, Copy)]
enum ByIndex {
    LastRow,
    /// Primary keys, which are in the index.
    Keys,
}

impl ByIndex {
    const WAYS: usize = 2;
}

fn index_text<I: Index, K: Key>(wanted: ByIndex) -> String {
    let columns = match wanted {
        ByIndex::Keys => I::Row::KEY,
        ByIndex::LastRow => I::Row::COLUMNS.len(),
    };
    let list = names::<I::Row>(0..columns).join(", ");
    let order = match wanted {
        ByIndex::LastRow => format!("{} DESC LIMIT 1", I::COLUMNS.join(" DESC, ")),
        ByIndex::Keys => I::COLUMNS.join(", "),
    };
    format!(
        "SELECT {list} FROM {} INDEXED BY {} WHERE {} ORDER BY {order}",
        I::Row::NAME,
        I::NAME,
        equal(&I::COLUMNS[..K::COLUMNS], 1, " AND "),
    )
}

/// Binds values by position.
struct Bind<'s, 'c> {
    statement: &'s mut Statement<'c>,
    next: usize,
    /// Values to leave out first.
    skip: usize,
    outcome: Outcome<()>,
}

impl<'s, 'c> Bind<'s, 'c> {
    fn new(statement: &'s mut Statement<'c>) -> Self {
        Bind {
            statement,
            next: 1,
            skip: 0,
            outcome: Ok(()),
        }
    }

    fn bind(&mut self, value: impl ToSql) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        if self.outcome.is_ok() {
            self.outcome = self.statement.raw_bind_parameter(self.next, value);
        }
        self.next += 1;
    }
}

impl Sink for Bind<'_, '_> {
    fn integer(&mut self, value: i64) {
        self.bind(value);
    }

    fn text(&mut self, value: &str) {
        self.bind(value);
    }

    fn null(&mut self) {
        self.bind(Null);
    }
}

/// Reads a row's columns by position.
struct Read<'r, 's> {
    row: &'r rusqlite::Row<'s>,
    next: usize,
}

impl<'r> Read<'r, '_> {
    fn value(&mut self) -> ValueRef<'r> {
        let column = self.next;
        self.next += 1;
        self.row
            .get_ref(column)
            .expect("statements name all columns")
    }
}

impl Source for Read<'_, '_> {
    fn integer(&mut self) -> i64 {
        self.value().as_i64().expect("the column holds integers")
    }

    fn text(&mut self) -> &str {
        self.value().as_str().expect("the column holds text")
    }

    fn nullable(&mut self) -> Option<i64> {
        let value = self.value();
        value.as_i64_or_null().expect("the column holds integers")
    }
}

fn taken<R: Row>(row: &rusqlite::Row<'_>) -> R {
    R::take(&mut Read { row, next: 0 })
}

/// A row where it lies.
pub(crate) struct Lying<'r>(&'r rusqlite::Row<'r>);

impl Lying<'_> {
    fn value(&self, column: usize) -> ValueRef<'_> {
        self.0.get_ref(column).expect("statements name all columns")
    }
}

impl View for Lying<'_> {
    fn integer(&self, column: usize) -> i64 {
        let value = self.value(column);
        value.as_i64().expect("the column holds integers")
    }

    fn small(&self, column: usize) -> i32 {
        // Only what was put as four bytes is taken as such.
        self.integer(column) as i32
    }

    fn text(&self, column: usize) -> &str {
        let value = self.value(column);
        value.as_str().expect("the column holds text")
    }
}

/// Columns of a table that transactions change, at most.
const MOST_CHANGING: usize = 5;

/// A row with new values for some of its columns.
pub(crate) struct Changed<'r> {
    row: Lying<'r>,
    /// The first column that changes.
    first: usize,
    values: [Option<Value>; MOST_CHANGING],
}

impl Changed<'_> {
    fn changed(&self, column: usize) -> Option<&Value> {
        self.values
            .get(column.wrapping_sub(self.first))
            .and_then(Option::as_ref)
    }

    fn set(&mut self, column: usize, value: Value) {
        self.values[column - self.first] = Some(value);
    }
}

impl View for Changed<'_> {
    fn integer(&self, column: usize) -> i64 {
        match self.changed(column) {
            Some(Value::Integer(value)) => *value,
            _ => self.row.integer(column),
        }
    }

    fn small(&self, column: usize) -> i32 {
        self.integer(column) as i32
    }

    fn text(&self, column: usize) -> &str {
        match self.changed(column) {
            Some(Value::Text(value)) => value,
            _ => self.row.text(column),
        }
    }
}

impl Change for Changed<'_> {
    fn set_integer(&mut self, column: usize, value: i64) {
        self.set(column, Value::Integer(value));
    }

    fn set_small(&mut self, column: usize, value: i32) {
        self.set(column, Value::Integer(value.into()));
    }

    fn set_text(&mut self, column: usize, value: &str) {
        self.set(column, Value::Text(value.to_owned()));
    }
}

/// Lengths of an index key's prefix, with none and all.
const PREFIXES: usize = 6;
/// Statements that begin and end transactions.
const CONTROL: [&str; 3] = ["BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"];
const BEGIN: usize = 0;
const COMMIT: usize = 1;
const ROLLBACK: usize = 2;
/// Where statements are kept: by table and access; by index, prefix and
/// direction; then [`CONTROL`].
const INDEX_SLOTS: usize = TABLES.len() * Access::SLOTS;
const CONTROL_SLOTS: usize = INDEX_SLOTS + INDEXES.len() * PREFIXES * ByIndex::WAYS;

/// The database for one thread, with its statements.
pub(crate) struct Sqlite<'c> {
    connection: &'c Connection,
    /// Made when first used.
    statements: RefCell<Vec<Option<Statement<'c>>>>,
}

impl<'c> Sqlite<'c> {
    /// On a database made by [`open`].
    pub(crate) fn new(connection: &'c Connection) -> Self {
        let slots = CONTROL_SLOTS + CONTROL.len();
        let statements = Vec::from_iter((0..slots).map(|_| None));
        Sqlite {
            connection,
            statements: RefCell::new(statements),
        }
    }

    /// Uses the statement of a slot.
    fn with<T>(
        &self,
        slot: usize,
        text: impl FnOnce() -> String,
        work: impl FnOnce(&mut Statement<'c>) -> Outcome<T>,
    ) -> Outcome<T> {
        let mut statements = self.statements.borrow_mut();
        let statement = match &mut statements[slot] {
            Some(statement) => statement,
            empty => empty.insert(self.connection.prepare(&text())?),
        };
        work(statement)
    }

    fn access<R: Row, T>(
        &self,
        access: Access,
        work: impl FnOnce(&mut Statement<'c>) -> Outcome<T>,
    ) -> Outcome<T> {
        let slot = R::TABLE * Access::SLOTS + access.slot();
        self.with(slot, || access.text::<R>(), work)
    }

    fn by_index<I: Index, K: Key, T>(
        &self,
        wanted: ByIndex,
        work: impl FnOnce(&mut Statement<'c>) -> Outcome<T>,
    ) -> Outcome<T> {
        let way = I::INDEX * PREFIXES + K::COLUMNS;
        let slot = INDEX_SLOTS + way * ByIndex::WAYS + wanted as usize;
        self.with(slot, || index_text::<I, K>(wanted), work)
    }

    /// One of [`CONTROL`].
    fn control(&self, number: usize) -> Outcome<()> {
        let text = || CONTROL[number].to_owned();
        self.with(CONTROL_SLOTS + number, text, |statement| {
            statement.raw_execute().map(|_| ())
        })
    }
}

/// Visits what the bound statement finds.
fn visit<R: Row>(
    statement: &mut Statement<'_>,
    mut visit: impl FnMut(R) -> ControlFlow<()>,
) -> Outcome<()> {
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        if visit(taken(row)).is_break() {
            break;
        }
    }
    Ok(())
}

/// Binds a key from the first parameter on.
fn bind(statement: &mut Statement<'_>, key: &impl Key) -> Outcome<()> {
    let mut bind = Bind::new(statement);
    key.put(&mut bind);
    bind.outcome
}

/// Executes a bound statement that changes one row.
fn one(statement: &mut Statement<'_>) -> Outcome<()> {
    match statement.raw_execute()? {
        1 => Ok(()),
        count => Err(rusqlite::Error::StatementChangedRows(count)),
    }
}

impl Engine for Sqlite<'_> {
    type Error = rusqlite::Error;

    const NAME: &'static str = "sqlite";
    const ISOLATION: &'static str = "serializable: one writer";
    const DURABILITY: &'static str = "none: in memory, synchronous off";

    fn attempt(&self, work: &mut impl Work) -> Result<End, Failure<rusqlite::Error>> {
        self.control(BEGIN)?;
        let end = work.attempt(&mut &*self);
        match end {
            Ok(End::Committed) => self.control(COMMIT)?,
            Ok(End::RolledBack) | Err(_) => self.control(ROLLBACK)?,
        }
        end
    }
}

impl Transaction for &Sqlite<'_> {
    type Error = rusqlite::Error;
    type View<'v> = Lying<'v>;
    type Change<'c> = Changed<'c>;

    fn read<R: Row, T>(
        &mut self,
        key: R::Key,
        look: impl FnOnce(&Lying<'_>) -> T,
    ) -> Outcome<Option<T>> {
        self.access::<R, _>(Access::Get, |statement| {
            bind(statement, &key)?;
            let mut rows = statement.raw_query();
            Ok(rows.next()?.map(|row| look(&Lying(row))))
        })
    }

    fn change<R: Row, T>(
        &mut self,
        key: R::Key,
        mut change: impl FnMut(&mut Changed<'_>) -> T,
    ) -> Outcome<Option<T>> {
        let changed = self.access::<R, _>(Access::Get, |statement| {
            bind(statement, &key)?;
            let mut rows = statement.raw_query();
            Ok(rows.next()?.map(|row| {
                let mut changed = Changed {
                    row: Lying(row),
                    first: R::KEY,
                    values: [const { None }; _],
                };
                (change(&mut changed), changed.values)
            }))
        })?;
        let Some((answer, values)) = changed else {
            return Ok(None);
        };
        let set = (0..).zip(&values);
        let set = set.map(|(at, value)| u8::from(value.is_some()) << at).sum();
        self.access::<R, _>(Access::Change(set), |statement| {
            let mut bind = Bind::new(statement);
            key.put(&mut bind);
            for value in values.iter().flatten() {
                bind.bind(value);
            }
            bind.outcome?;
            one(statement)
        })?;
        Ok(Some(answer))
    }

    fn keys_by_index<I: Index, K: Key>(
        &mut self,
        prefix: K,
        mut each: impl FnMut(<I::Row as Row>::Key),
    ) -> Outcome<()> {
        self.by_index::<I, K, _>(ByIndex::Keys, |statement| {
            bind(statement, &prefix)?;
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next()? {
                each(Key::take(&mut Read { row, next: 0 }));
            }
            Ok(())
        })
    }

    fn get<R: Row>(&mut self, key: R::Key) -> Outcome<Option<R>> {
        self.access::<R, _>(Access::Get, |statement| {
            bind(statement, &key)?;
            let mut rows = statement.raw_query();
            Ok(rows.next()?.map(taken))
        })
    }

    fn insert<R: Row>(&mut self, row: &R) -> Outcome<()> {
        self.access::<R, _>(Access::Insert, |statement| {
            let mut bind = Bind::new(statement);
            row.put(&mut bind);
            bind.outcome?;
            one(statement)
        })
    }

    fn update<R: Row>(&mut self, row: &R) -> Outcome<()> {
        self.access::<R, _>(Access::Update, |statement| {
            let mut bind = Bind::new(statement);
            row.key().put(&mut bind);
            row.put_changing(&mut bind);
            bind.outcome?;
            one(statement)
        })
    }

    fn delete<R: Row>(&mut self, key: R::Key) -> Outcome<()> {
        self.access::<R, _>(Access::Delete, |statement| {
            bind(statement, &key)?;
            one(statement)
        })
    }

    fn scan<R: Row, K: Key>(
        &mut self,
        from: K,
        to: K,
        each: impl FnMut(R) -> ControlFlow<()>,
    ) -> Outcome<()> {
        self.access::<R, _>(Access::Scan(K::COLUMNS), |statement| {
            let mut bind = Bind::new(statement);
            from.put(&mut bind);
            // Only the last column may differ.
            bind.skip = K::COLUMNS.saturating_sub(1);
            to.put(&mut bind);
            bind.outcome?;
            visit(statement, each)
        })
    }

    fn last_by_index<I: Index, K: Key>(&mut self, prefix: K) -> Outcome<Option<I::Row>> {
        self.by_index::<I, K, _>(ByIndex::LastRow, |statement| {
            bind(statement, &prefix)?;
            let mut last = None;
            visit(statement, |row| {
                last = Some(row);
                ControlFlow::Break(())
            })?;
            Ok(last)
        })
    }
}
