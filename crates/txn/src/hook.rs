//! Where durability takes part in a commit.
//!
//! ```text
//!   inside one region                                      outside
//!   ┌─────────────────────────────────────────────────┐
//!   draw ts → certify → append(ts, writes) → visible  │ → wait_durable(ts)
//!                └ fails: skip(ts)                    │
//!   └─────────────────────────────────────────────────┘
//! ```
//!
//! A transaction is visible before it is durable, so that no conflict
//! lasts as long as a sync. A transaction that has read it and writes has a later
//! timestamp; so a sink that makes timestamps durable in order never keeps a
//! transaction without what it read.

use std::any::Any;
use std::time::Instant;

use crate::error::Result;
use crate::schema::Schema;
use crate::table::TableId;

/// Takes what commits. Called by many threads at once.
///
/// Every timestamp that is drawn, from the one after the clock at the time of
/// attaching, is given to exactly one of [`append`](CommitSink::append) and
/// [`skip`](CommitSink::skip), inside the region in which it was drawn: gaps
/// close without anybody's doing.
pub(crate) trait CommitSink: Any + Send + Sync {
    /// Lets a transaction that has written draw its timestamp, or refuses it.
    /// May wait. Outside of regions.
    fn admit(&self, deadline: Option<Instant>) -> Result<()>;
    /// A transaction commits these writes unless this fails, in which case it
    /// aborts with the error and the sink counts `ts` as skipped. The writes
    /// are not visible yet. Inside a region.
    fn append(&self, ts: u64, writes: &Writes<'_>) -> Result<()>;
    /// Nothing happened at this timestamp. Inside a region.
    fn skip(&self, ts: u64);
    /// Returns once everything up to `ts` is as durable as the options ask for.
    /// Outside of regions.
    fn wait_durable(&self, ts: u64, deadline: Option<Instant>) -> Result<()>;
    /// The same for a transaction that has written nothing and seen everything
    /// up to `snapshot`, as far as the options ask for it.
    fn wait_read(&self, snapshot: u64, deadline: Option<Instant>) -> Result<()>;
    /// The last timestamp that will ever be durable, if the log has failed: what
    /// committed later is in doubt.
    fn end(&self) -> Option<u64> {
        None
    }
    /// Whether nothing may be written at all. Then nothing is admitted.
    fn is_read_only(&self) -> bool {
        false
    }
    /// The record of a change of the schema, if it can have one.
    fn encode_change(&self, change: &SchemaChange<'_>) -> Result<Vec<u8>>;
    /// The schema changes at `ts`, as this record says. The change is not visible
    /// yet. Inside a region.
    fn append_change(&self, ts: u64, record: &[u8]);
}

/// A change of the schema.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SchemaChange<'a> {
    /// The table has this schema now.
    Table {
        /// The table.
        id: TableId,
        /// Its schema.
        schema: &'a Schema,
    },
    /// The table is gone.
    Drop {
        /// The table.
        id: TableId,
    },
}

/// What a transaction wrote, each row once, in no particular order.
pub(crate) struct Writes<'a> {
    pub(crate) list: &'a [crate::txn_context::Write],
}

/// What a transaction did to one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    /// The row's table.
    pub(crate) table: TableId,
    /// The row's encoded primary key.
    pub(crate) key: &'a [u8],
    /// The row's bytes after; `None` if there is no row any more.
    pub(crate) after: Option<&'a [u8]>,
}

impl<'a> Writes<'a> {
    /// Row by row.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Write<'a>> {
        let list = self.list.iter();
        list.filter(|write| !write.is_nothing())
            .map(|write| write.image())
    }
}

/// What a log says happened to a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplayOp<'a> {
    /// The row has these bytes.
    Put(&'a [u8]),
    /// The row with this encoded primary key is gone.
    Delete(&'a [u8]),
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::preemption::in_region;
    use crate::{Database, Error, Options, TxnOptions, Type};

    /// Notes who called, and whether from inside a region, as it should be.
    #[derive(Default)]
    struct Watch(Mutex<Vec<(&'static str, u64)>>);

    impl Watch {
        fn note(&self, call: &'static str, ts: u64, region: bool) {
            assert_eq!(in_region(), region, "{call}");
            self.0.lock().unwrap().push((call, ts));
        }
    }

    impl CommitSink for Watch {
        fn admit(&self, _: Option<Instant>) -> Result<()> {
            self.note("admit", 0, false);
            Ok(())
        }
        fn append(&self, ts: u64, writes: &Writes<'_>) -> Result<()> {
            self.note("append", ts, true);
            match writes.iter().any(|write| write.after.is_none()) {
                true => Err(Error::Timeout),
                false => Ok(()),
            }
        }
        fn skip(&self, ts: u64) {
            self.note("skip", ts, true);
        }
        fn wait_durable(&self, ts: u64, _: Option<Instant>) -> Result<()> {
            self.note("wait", ts, false);
            Ok(())
        }
        fn wait_read(&self, snapshot: u64, _: Option<Instant>) -> Result<()> {
            self.note("wait to read", snapshot, false);
            Ok(())
        }
        fn encode_change(&self, _: &SchemaChange<'_>) -> Result<Vec<u8>> {
            Ok(Vec::new())
        }
        fn append_change(&self, ts: u64, _: &[u8]) {
            self.note("change", ts, true);
        }
    }

    /// R1, and that no timestamp is told twice or not at all.
    #[test]
    fn timestamps_are_decided_upon_in_regions() {
        let db = Database::in_memory(Options::default());
        let watch = Arc::new(Watch::default());
        db.attach(watch.clone());
        let schema = Schema::builder("t")
            .column("id", Type::I32)
            .primary_key(["id"]);
        let table = db.create_table(schema.build().unwrap()).unwrap();
        let insert = |txn: &crate::Transaction<'_>, id| {
            let mut row = table.row();
            row.set_i32(0, id);
            txn.insert(&table, &row).unwrap();
        };
        let begin = || db.begin(TxnOptions::serializable()).unwrap();
        let (one, two) = (begin(), begin());
        assert!(one.get(&table, 2).unwrap().is_none());
        assert!(two.get(&table, 1).unwrap().is_none());
        insert(&one, 1);
        insert(&two, 2);
        assert_eq!(one.commit(), Ok(2));
        assert_eq!(two.commit(), Err(Error::Serialization));
        let three = begin();
        three.delete(&table, 1).unwrap();
        assert_eq!(three.commit(), Err(Error::Timeout));
        // What the log refused was taken back.
        let four = begin();
        assert!(four.get(&table, 1).unwrap().is_some());
        insert(&four, 3);
        assert_eq!(four.commit(), Ok(5));
        let calls = watch.0.lock().unwrap();
        let calls: Vec<_> = calls.iter().filter(|call| call.0 != "admit").collect();
        let expected = [
            ("change", 1),
            ("wait", 1),
            ("append", 2),
            ("wait", 2),
            ("skip", 3),
            ("append", 4),
            ("append", 5),
            ("wait", 5),
        ];
        assert_eq!(calls, expected.iter().collect::<Vec<_>>());
    }
}
