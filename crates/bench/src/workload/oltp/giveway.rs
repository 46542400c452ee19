//! TPC-C on `giveway-txn`: the typed rows on the engine's own interface.

use std::ops::ControlFlow;

use giveway_txn::{
    Database, Direction, Encoder, Error, Isolation, KeyRange, Options, Part, RowBuf, Schema,
    SchemaError, Table, TxnOptions, Type,
};

use super::access::{Change, End, Engine, EngineError, Failure, Transaction, View, Work};
use crate::workload::tpcc::row::{
    Customer, CustomerName, CustomerOrder, District, History, Index, Item, Key, Kind, NewOrder,
    Order, OrderLine, Row, Sink, Source, Stock, Warehouse,
};

type Outcome<T> = giveway_txn::Result<T>;

impl EngineError for Error {
    fn is_retryable(&self) -> bool {
        Error::is_retryable(self)
    }
}

/// A database in memory with TPC-C's tables.
pub(crate) struct Giveway {
    database: Database,
    options: TxnOptions,
    /// By [`Row::TABLE`].
    tables: Vec<Table>,
    /// By [`Index::INDEX`].
    indexes: Vec<giveway_txn::Index>,
}

impl Giveway {
    /// Transactions run as `isolation` says.
    pub(crate) fn new(isolation: Isolation) -> Outcome<Self> {
        let database = Database::in_memory(Options::default());
        let tables = vec![
            create::<Warehouse>(&database, &[])?,
            create::<District>(&database, &[])?,
            create::<Customer>(&database, &[(CustomerName::NAME, CustomerName::COLUMNS)])?,
            create::<History>(&database, &[])?,
            create::<Order>(&database, &[(CustomerOrder::NAME, CustomerOrder::COLUMNS)])?,
            create::<NewOrder>(&database, &[])?,
            create::<OrderLine>(&database, &[])?,
            create::<Item>(&database, &[])?,
            create::<Stock>(&database, &[])?,
        ];
        let indexes = vec![
            tables[Customer::TABLE].index(CustomerName::NAME)?,
            tables[Order::TABLE].index(CustomerOrder::NAME)?,
        ];
        Ok(Giveway {
            database,
            options: TxnOptions {
                isolation,
                ..TxnOptions::default()
            },
            tables,
            indexes,
        })
    }

    /// The database, for tables beside TPC-C's.
    pub(crate) fn database(&self) -> &Database {
        &self.database
    }
}

fn create<R: Row>(database: &Database, indexes: &[(&str, &[&str])]) -> Outcome<Table> {
    let names: Vec<&str> = R::COLUMNS.iter().map(|column| column.name).collect();
    let mut schema = Schema::builder(R::NAME);
    for column in R::COLUMNS {
        schema = match column.kind {
            Kind::Integer(4) => schema.column(column.name, Type::I32),
            Kind::Integer(_) => schema.column(column.name, Type::I64),
            Kind::Nullable => schema.nullable(column.name, Type::I64),
            Kind::Text(_) => schema.column(column.name, Type::Text),
        };
    }
    schema = schema.primary_key(names[..R::KEY].iter().copied());
    for (name, columns) in indexes {
        schema = schema.index(*name, columns.iter().copied());
    }
    database.create_table(schema.build()?)
}

/// A key of ours as the engine's.
#[derive(Clone, Copy)]
struct Parts<K>(K);

impl<K: Key> giveway_txn::Key for Parts<K> {
    fn parts(&self) -> usize {
        K::COLUMNS
    }

    fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), SchemaError> {
        let mut encode = Encode {
            encoder,
            outcome: Ok(()),
        };
        self.0.put(&mut encode);
        encode.outcome
    }
}

/// Hands a key's columns over.
struct Encode<'e, 'k> {
    encoder: &'e mut Encoder<'k>,
    outcome: Result<(), SchemaError>,
}

impl Encode<'_, '_> {
    fn part(&mut self, part: impl Part) {
        if self.outcome.is_ok() {
            self.outcome = part.encode(self.encoder);
        }
    }
}

impl Sink for Encode<'_, '_> {
    fn integer(&mut self, value: i64) {
        self.part(value);
    }

    fn text(&mut self, value: &str) {
        self.part(value);
    }

    fn null(&mut self) {
        self.part(None::<i64>);
    }
}

/// Fills a row from a column on.
struct Fill<'b, 's> {
    row: &'b mut RowBuf<'s>,
    next: usize,
}

impl Fill<'_, '_> {
    fn column(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }
}

impl Sink for Fill<'_, '_> {
    fn integer(&mut self, value: i64) {
        let column = self.column();
        self.row.set_i64(column, value);
    }

    fn small(&mut self, value: i32) {
        let column = self.column();
        self.row.set_i32(column, value);
    }

    fn text(&mut self, value: &str) {
        let column = self.column();
        self.row.set_text(column, value);
    }

    fn null(&mut self) {
        let column = self.column();
        self.row.set_null(column);
    }
}

/// Reads a row column by column.
struct Read<'r> {
    row: giveway_txn::Row<'r>,
    next: usize,
}

impl Read<'_> {
    fn column(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }
}

impl Source for Read<'_> {
    fn integer(&mut self) -> i64 {
        let column = self.column();
        self.row.i64(column)
    }

    fn small(&mut self) -> i32 {
        let column = self.column();
        self.row.i32(column)
    }

    fn text(&mut self) -> &str {
        let column = self.column();
        self.row.text(column)
    }

    fn nullable(&mut self) -> Option<i64> {
        let column = self.column();
        (!self.row.is_null(column)).then(|| self.row.i64(column))
    }
}

impl View for giveway_txn::Row<'_> {
    fn integer(&self, column: usize) -> i64 {
        self.i64(column)
    }

    fn small(&self, column: usize) -> i32 {
        self.i32(column)
    }

    fn text(&self, column: usize) -> &str {
        self.text(column)
    }
}

impl View for RowBuf<'_> {
    fn integer(&self, column: usize) -> i64 {
        self.i64(column)
    }

    fn small(&self, column: usize) -> i32 {
        self.i32(column)
    }

    fn text(&self, column: usize) -> &str {
        self.text(column)
    }
}

impl Change for RowBuf<'_> {
    fn set_integer(&mut self, column: usize, value: i64) {
        self.set_i64(column, value);
    }

    fn set_small(&mut self, column: usize, value: i32) {
        self.set_i32(column, value);
    }

    fn set_text(&mut self, column: usize, value: &str) {
        self.set_text(column, value);
    }
}

fn taken<R: Row>(row: giveway_txn::Row<'_>) -> R {
    R::take(&mut Read { row, next: 0 })
}

impl Engine for Giveway {
    type Error = Error;

    const NAME: &'static str = "giveway";
    const ISOLATION: &'static str = "serializable: certified";
    const DURABILITY: &'static str = "none: in memory, no log";

    fn attempt(&self, work: &mut impl Work) -> Result<End, Failure<Error>> {
        let transaction = self.database.begin(self.options.clone())?;
        let end = work.attempt(&mut Accesses {
            engine: self,
            transaction: &transaction,
        })?;
        match end {
            End::Committed => {
                transaction.commit()?;
            }
            End::RolledBack => transaction.abort(),
        }
        Ok(end)
    }

    /// Whoever holds the row may be the transaction that this one has preempted:
    /// it runs to its end first.
    fn before_retry(&self, failure: &Failure<Error>) {
        if let Failure::Engine(Error::Conflict { below: true }) = failure {
            // Where nobody is below any more, trying again is all there is to do.
            let _ = giveway_preempt::yield_below();
        }
    }
}

/// One transaction.
struct Accesses<'t> {
    engine: &'t Giveway,
    transaction: &'t giveway_txn::Transaction<'t>,
}

impl<'t> Accesses<'t> {
    fn table<R: Row>(&self) -> &'t Table {
        &self.engine.tables[R::TABLE]
    }
}

impl Transaction for Accesses<'_> {
    type Error = Error;
    type View<'v> = giveway_txn::Row<'v>;
    type Change<'c> = RowBuf<'c>;

    fn get<R: Row>(&mut self, key: R::Key) -> Outcome<Option<R>> {
        let row = self.transaction.get(self.table::<R>(), Parts(key))?;
        Ok(row.map(taken))
    }

    fn announce<R: Row>(&mut self, keys: impl Iterator<Item = R::Key>) {
        self.transaction
            .prefetch(self.table::<R>(), keys.map(Parts));
    }

    fn read<R: Row, T>(
        &mut self,
        key: R::Key,
        look: impl FnOnce(&giveway_txn::Row<'_>) -> T,
    ) -> Outcome<Option<T>> {
        let row = self.transaction.get(self.table::<R>(), Parts(key))?;
        Ok(row.as_ref().map(look))
    }

    fn change<R: Row, T>(
        &mut self,
        key: R::Key,
        mut change: impl FnMut(&mut RowBuf<'_>) -> T,
    ) -> Outcome<Option<T>> {
        let mut answer = None;
        let changed = self
            .transaction
            .update(self.table::<R>(), Parts(key), |row| {
                answer = Some(change(row));
            });
        match changed {
            Ok(()) => Ok(answer),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn insert<R: Row>(&mut self, row: &R) -> Outcome<()> {
        self.transaction.insert_with(self.table::<R>(), |buffer| {
            row.put(&mut Fill {
                row: buffer,
                next: 0,
            });
        })
    }

    fn update<R: Row>(&mut self, row: &R) -> Outcome<()> {
        let table = self.table::<R>();
        self.transaction.update(table, Parts(row.key()), |buffer| {
            row.put_changing(&mut Fill {
                row: buffer,
                next: R::KEY,
            });
        })
    }

    fn delete<R: Row>(&mut self, key: R::Key) -> Outcome<()> {
        self.transaction.delete(self.table::<R>(), Parts(key))
    }

    fn scan<R: Row, K: Key>(
        &mut self,
        from: K,
        to: K,
        mut each: impl FnMut(R) -> ControlFlow<()>,
    ) -> Outcome<()> {
        let range = KeyRange::between(Parts(from), Parts(to));
        let table = self.table::<R>();
        for row in self.transaction.scan(table, range, Direction::Forward)? {
            if each(taken(row?)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn keys_by_index<I: Index, K: Key>(
        &mut self,
        prefix: K,
        mut each: impl FnMut(<I::Row as Row>::Key),
    ) -> Outcome<()> {
        let index = &self.engine.indexes[I::INDEX];
        let range = KeyRange::prefix(Parts(prefix));
        let rows = self
            .transaction
            .scan_index(index, range, Direction::Forward)?;
        for row in rows {
            each(Key::take(&mut Read { row: row?, next: 0 }));
        }
        Ok(())
    }

    fn last_by_index<I: Index, K: Key>(&mut self, prefix: K) -> Outcome<Option<I::Row>> {
        let index = &self.engine.indexes[I::INDEX];
        let range = KeyRange::prefix(Parts(prefix));
        let mut rows = self
            .transaction
            .scan_index(index, range, Direction::Backward)?;
        Ok(rows.next().transpose()?.map(taken))
    }
}
