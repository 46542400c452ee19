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
//! A transaction is visible before it is durable, so that nobody waits for a
//! disk with a conflict in hand. Whoever read it and wrote something has a later
//! timestamp; a sink that makes timestamps durable in order therefore never
//! keeps a transaction without what it read.

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
    /// A table is made, unless this fails. Nobody uses it yet.
    fn create_table(&self, id: TableId, schema: &Schema) -> Result<()>;
}

/// What a transaction wrote, each row once, in no particular order.
pub(crate) struct Writes<'a> {
    pub(crate) list: &'a [crate::workspace::Write],
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
