//! Changing the schema of a database that is in use.
//!
//! ```text
//!  ┌─ region, catalog locked ─────────────────────────────────────┐
//!  │ check ─► until: preparing ─► draw ts ─► append to the log ─► │
//!  │ handles refused, another index set ─► until: committed at ts │
//!  └──────────────────────────────────────────────────────────────┘
//!  wait until durable
//! ```
//!
//! A change of the schema has a commit timestamp, as a transaction has: it is in the
//! log between the transactions before and after it, so every prefix of the log is the
//! database, schema included, as of one moment, and a checkpoint has the schema as of
//! its snapshot.
//!
//! - **K1** A transaction that has written under an index set commits before the set is
//!   replaced or not at all. The set's `until` is a transaction status that commits
//!   with the change: whoever has drawn a later timestamp sees it prepare (F1), waits
//!   for its end and finds it committed. So the log has no row for a table after its
//!   end. (Not asserted: `commit::check_sets` decides it; the model
//!   `nobody_commits_after_a_change_what_was_written_before_it`.)
//! - **K2** Changes exclude each other, and are seen as a whole by checkpoints: the
//!   catalog is locked from the check of a change to its end, and while a checkpoint
//!   takes its snapshot. (Not asserted: the lock is the catalog's type.)
//! - **K3** A handle of a lower edition than the table's floor is refused by every
//!   operation and at every leaf of a scan. The floor is raised before the change is
//!   committed. (Not asserted: a late look at the floor is caught by K1.)
//! - **K4** What a transaction or waiting garbage points to stays: tables, index sets
//!   and indexes live as long as their database, also after they were dropped; their
//!   rows and entries do not (`teardown`). (Asserted in `tear_table` and `tear_index`:
//!   nobody else changes what is torn.)
//!
//! A change of columns ends no index set: rows are read with any later schema
//! (`layout`), so it does not matter whether they were written before or after it.
//!
//! Nobody waits for a transaction, so none that is paused or left open holds a change
//! back.
//!
//! Known weaknesses: what a dropped table or index takes but for its rows and entries,
//! about 2 KiB, is freed with the database. A change is not part of the order of
//! serializable transactions: one that has only read a table may commit after the
//! table was dropped.

mod columns;
mod indexes;

use std::sync::Arc;

use crate::column::Column;
use crate::database::{Database, Inner};
use crate::error::{Result, SchemaError};
use crate::hook::SchemaChange;
use crate::preemption;
use crate::schema::Schema;
use crate::surplus::Limbo;
use crate::table::{Table, TableId, TableInner};
use crate::txn::{Transaction, TxnOptions};
use crate::txn_context::Retired;
use crate::txn_status::TxnStatus;
use crate::value::Value;
pub(crate) use columns::{with_column, without_column};

impl Database {
    /// Makes a table.
    ///
    /// # Errors
    /// [`SchemaError::Twice`] if there is one with this
    /// name; [`Error::Durability`](crate::Error::Durability) if it cannot be logged.
    pub fn create_table(&self, schema: Schema) -> Result<Table> {
        self.inner().admit_change()?;
        let (table, ts) = {
            // The lock is shared by the contexts of a worker (R1).
            let _region = preemption::region();
            let mut catalog = self.inner().catalog();
            catalog.check_new(schema.name())?;
            let id = catalog.next_id();
            let table = self.inner().new_table(id, schema);
            let change = SchemaChange::Table {
                id,
                schema: table.schema(),
            };
            let ts = self.inner().change(Some(&change), &[], |_| {})?;
            catalog.add(table.clone());
            (table, ts)
        };
        self.inner().wait_change(ts)?;
        Ok(table)
    }

    /// Removes a table and all its rows. Transactions that are open meet
    /// [`Error::TableDropped`](crate::Error::TableDropped) when they touch it next, and
    /// at their commit if they have written to it. The memory is freed when no
    /// transaction is open that began before.
    ///
    /// # Errors
    /// [`SchemaError::Unknown`] if there is no such table;
    /// [`Error::Durability`](crate::Error::Durability) if it cannot be logged, or is in
    /// doubt.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.inner().admit_change()?;
        let ts = {
            let _region = preemption::region();
            let mut catalog = self.inner().catalog();
            let table = Arc::clone(&catalog.find(name)?.inner);
            let change = SchemaChange::Drop { id: table.id };
            let publish = |_| {
                table.refuse_all();
                catalog.remove(table.id);
            };
            let until = &*table.set().until;
            let ts = self.inner().change(Some(&change), &[until], publish)?;
            self.inner().retire_table(&table);
            ts
        };
        self.inner().wait_change(ts)?;
        self.collect();
        Ok(())
    }

    /// Adds a column, as the last one. Rows that are there have the default in it; they
    /// are not rewritten. Transactions that are open are not concerned: handles that
    /// they have show the table without the column, and rows that they insert have the
    /// default. The handle that is returned has it.
    ///
    /// # Errors
    /// [`SchemaError`] if the column does not fit the table, or the
    /// default the column; [`Error::Durability`](crate::Error::Durability) if it cannot
    /// be logged, or is in doubt.
    pub fn add_column(
        &self,
        table: &str,
        column: Column,
        default: impl Into<Value>,
    ) -> Result<Table> {
        let default = default.into();
        self.change_columns(table, |schema| with_column(schema, column, default), false)
    }

    /// Drops a column, which no key may have. Rows are not rewritten. Handles that know
    /// the column are refused from now on
    /// ([`SchemaError::OldHandle`]); what transactions
    /// have written is committed.
    ///
    /// # Errors
    /// [`SchemaError::ColumnInUse`] if a key has it, and
    /// as [`add_column`](Self::add_column).
    pub fn drop_column(&self, table: &str, column: &str) -> Result<Table> {
        self.change_columns(table, |schema| without_column(schema, column), true)
    }

    fn change_columns(
        &self,
        name: &str,
        change: impl FnOnce(&Schema) -> std::result::Result<Schema, SchemaError>,
        fewer: bool,
    ) -> Result<Table> {
        self.inner().admit_change()?;
        let (table, ts) = {
            let _region = preemption::region();
            let mut catalog = self.inner().catalog();
            let before = catalog.find(name)?;
            if fewer {
                // The index may have the column.
                before.inner.check_not_building()?;
            }
            let table = before.with_schema(change(&before.schema)?, fewer);
            let change = SchemaChange::Table {
                id: table.id(),
                schema: &table.schema,
            };
            let publish = |_| {
                table.refuse_older();
                catalog.replace(table.clone());
            };
            let ts = self.inner().change(Some(&change), &[], publish)?;
            (table, ts)
        };
        self.inner().wait_change(ts)?;
        Ok(table)
    }

    /// Makes the table with this number be as if it had been dropped. It need not be
    /// there; but its number is not used again.
    pub(crate) fn replay_drop(&self, id: TableId) {
        if let Some(table) = self.inner().catalog().remove(id) {
            table.refuse_all();
            self.inner().retire_table(&table);
        }
    }

    /// Makes the table with this number have this schema, as a log says. It may be new.
    pub(crate) fn replay_table(&self, id: TableId, schema: Schema) -> Result<()> {
        let mut catalog = self.inner().catalog();
        let Some(before) = catalog.with_id(id).cloned() else {
            catalog.check_new(schema.name())?;
            catalog.add(self.inner().new_table(id, schema));
            return Ok(());
        };
        if !schema.can_follow(&before.schema) {
            return Err(SchemaError::Twice {
                what: "a table",
                name: schema.name().to_owned(),
            }
            .into());
        }
        let table = before.with_schema(schema, false);
        catalog.replace(table.clone());
        drop(catalog);
        self.replay_indexes(&table)
    }

    /// Begins a transaction, and the tables as of its snapshot; with the number of the
    /// last table there ever was.
    pub(crate) fn begin_with_tables(
        &self,
        options: TxnOptions,
    ) -> Result<(Transaction<'_>, Vec<Table>, Option<TableId>)> {
        let _region = preemption::region();
        let catalog = self.inner().catalog();
        // K2: every change has its timestamp before the lock, or after it.
        let txn = self.begin(options)?;
        let tables = catalog.tables().iter().map(Table::unrefused).collect();
        Ok((txn, tables, catalog.last_id()))
    }
}

impl Inner {
    /// Lets the schema change, or refuses it. May wait. Outside of regions.
    fn admit_change(&self) -> Result<()> {
        self.sink.get().map_or(Ok(()), |sink| sink.admit(None))
    }

    /// Changes the schema: logs the change, if it is one that lasts, and makes it visible
    /// by `publish`, which is told its timestamp. `ends` are the statuses that commit
    /// with it. The caller is in a region, with the catalog locked (K2).
    fn change(
        &self,
        change: Option<&SchemaChange<'_>>,
        ends: &[&TxnStatus],
        publish: impl FnOnce(u64),
    ) -> Result<u64> {
        let sink = self.sink.get();
        let record = match (sink, change) {
            (Some(sink), Some(change)) => Some(sink.encode_change(change)?),
            _ => None,
        };
        ends.iter().for_each(|status| status.prepare());
        let ts = self.epochs.draw();
        ends.iter().for_each(|status| status.prepare_at(ts));
        match (sink, record) {
            (Some(sink), Some(record)) => sink.append_change(ts, &record),
            (Some(sink), None) => sink.skip(ts),
            (None, _) => {}
        }
        publish(ts);
        ends.iter().for_each(|status| status.commit(ts));
        Ok(ts)
    }

    /// Returns once a change is as durable as the options ask for.
    fn wait_change(&self, ts: u64) -> Result<()> {
        let sink = self.sink.get();
        sink.map_or(Ok(()), |sink| sink.wait_durable(ts, None))
    }

    /// Hands over a table that was dropped, with its indexes.
    fn retire_table(&self, table: &TableInner) {
        let indexes = table.set().indexes.iter();
        let indexes = indexes.map(|index| Retired::Index(&raw const **index));
        self.retire(indexes.chain([Retired::Table(table)]));
    }

    /// Hands over what was dropped, and is out of reach, to whoever frees it (E1).
    fn retire(&self, dropped: impl IntoIterator<Item = Retired>) {
        let stamp = self.epochs.stamp();
        let dropped: Limbo = dropped.into_iter().map(|piece| (stamp, piece)).collect();
        self.surplus.leave(dropped, 0);
    }
}
