//! The end of a transaction: certified and made visible at once, or taken back.
//!
//! ```text
//!  ┌─ region ─────────────────────────────────────────────────────────────┐
//!  │ preparing ─► draw ts ─► certify ─► append to the log ─► committed    │
//!  │                            └── no ──────┴── no ──► aborted           │
//!  │ stamp versions, retire what they replaced                            │
//!  └──────────────────────────────────────────────────────────────────────┘
//!  release the slot ─► wait until durable
//! ```
//!
//! # The certifier
//!
//! Certification is optimistic: a transaction may commit at `ts` if everything
//! it has read at its snapshot would read the same just before `ts`. Then it
//! might as well have run at `ts` in no time. This gives a serial order that is
//! known, that of the timestamps, and an argument of one paragraph:
//!
//! - **C1** *Rows.* For every record read, the newest version that commits below
//!   `ts` is the one that was read. Versions that will commit below `ts` are all
//!   in place, and their transactions are seen to prepare (F1); the certifier
//!   waits for their outcome (F2). Those that are active will get larger ones.
//!   (Not asserted: it is what `certify` decides; the model `write_skew_is_refused`.)
//! - **C2** *Phantoms.* Every range that was scanned, and every key that was looked
//!   for and not found, is in the node set ([`node_set`](crate::node_set)). A
//!   transaction that commits below `ts` has put its records into the index before
//!   it drew its timestamp, so they are found when the range is scanned again, and
//!   an unchanged counter of its leaf means that there are none. Removals need not
//!   count: a record leaves the index when all open snapshots agree that there is
//!   no row. (Not asserted, as C1: `tests/anomalies.rs` and `tests/histories.rs`.)
//! - **C3** *Rows that were written* need neither: no other transaction can have
//!   changed them. (Asserted as V1.) Only if they were: a row that an update's function
//!   has seen and that was then not written, and what a refused key tells of other rows,
//!   were read. (Not asserted: refused writes in `tests/histories.rs`.)
//!
//! So the serializable transactions are in the order of their timestamps, and a
//! snapshot taken between two timestamps is a state between two transactions:
//! read-only ones need no certification, and the read-only anomaly cannot occur.
//!
//! Why not the serial safety net that ERMIA has, which refuses fewer: it bounds
//! cycles by timestamps kept with every version, which costs every reader a
//! write to shared memory, makes readers conflict with the commit of writers,
//! and needs the same care against phantoms beside it. Known weakness of this
//! one: a long transaction that writes can be refused again and again. Long
//! transactions that only read, which is what preemption is about, never are.
//!
//! # The length of the region
//!
//! Known weakness: it is proportional to what the transaction has read and written. While
//! one with very many rows commits, or is taken back, its worker takes no request, others
//! who meet its rows wait, and no later commit becomes durable, since its timestamp was
//! drawn first and the log is in the order of timestamps. Several smaller transactions in
//! its place have shorter regions.

use std::time::Instant;

use crate::database::{Inner, count};
use crate::error::{Error, Result};
use crate::hook::Writes;
use crate::node_set::Interval;
use crate::preemption;
use crate::record::{self, Record, Version};
use crate::sync::Relaxed;
use crate::table::TableInner;
use crate::txn::Transaction;
use crate::txn_context::{Ended, Retired, SpanChange, TxnContext};

/// A transaction that others can see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Committed {
    /// Its timestamp, or its snapshot's if it wrote nothing.
    pub(crate) ts: u64,
    /// What has to be durable before it may be told.
    pub(crate) awaits: u64,
    /// Whether it wrote something.
    pub(crate) wrote: bool,
}

impl Inner {
    /// Returns once a visible transaction is as durable as the options ask for.
    pub(crate) fn wait_committed(
        &self,
        committed: Committed,
        deadline: Option<Instant>,
    ) -> Result<()> {
        match self.sink.get() {
            Some(sink) if committed.wrote => sink.wait_durable(committed.awaits, deadline),
            Some(sink) => sink.wait_read(committed.awaits, deadline),
            None => Ok(()),
        }
    }
}

impl Transaction<'_> {
    /// Commits; the commit timestamp, or the snapshot's if nothing was written.
    ///
    /// # Errors
    /// What the transaction has failed with before; [`Error::Serialization`] if
    /// it is not certified; [`Error::Durability`] if the log cannot be written.
    /// In the last case, when it comes from waiting for durability, others may
    /// have seen what the transaction wrote, and it may be lost.
    pub fn commit(self) -> Result<u64> {
        let (db, deadline) = (self.db, self.deadline);
        let committed = self.commit_visible()?;
        db.wait_committed(committed, deadline)?;
        Ok(committed.ts)
    }

    /// Commits, and leaves the waiting to the caller.
    pub(crate) fn commit_visible(mut self) -> Result<Committed> {
        if self.status.get().is_null() {
            if self.db.shared(self.slot).doomed.load(Relaxed) != 0 || self.has_failed() {
                self.check_failed()?;
            }
            let (snapshot, seen) = (self.snapshot(), self.seen());
            count(&self.db.shared(self.slot).commits);
            self.close();
            return Ok(Committed {
                ts: snapshot,
                awaits: seen,
                wrote: false,
            });
        }
        self.check_failed()?;
        self.check_deadline()?;
        if let Some(sink) = self.db.sink.get() {
            sink.admit(self.deadline)?;
        }
        let ts = self.decide()?;
        count(&self.db.shared(self.slot).commits);
        self.close();
        Ok(Committed {
            ts,
            awaits: ts,
            wrote: true,
        })
    }

    /// Takes everything back. So does dropping the transaction.
    pub fn abort(self) {}

    /// From drawing the timestamp to making it visible, or to taking everything
    /// back: in one region, since others wait for a transaction that prepares,
    /// and for one that takes back (F2).
    fn decide(&mut self) -> Result<u64> {
        let _region = preemption::region();
        // SAFETY: it is retired below, or when the transaction is taken back.
        let status = unsafe { &*self.status.get() };
        status.prepare();
        let ts = self.db.epochs.draw();
        status.prepare_at(ts);
        if let Err(error) = self.admit(ts) {
            self.take_back();
            return Err(error);
        }
        status.commit(ts);
        let status = self.status.replace(std::ptr::null_mut());
        self.with(|txn_context| {
            settle(txn_context, ts);
            txn_context.retire(Retired::Status(status));
            txn_context.seal(&self.db.epochs);
        });
        Ok(ts)
    }

    /// Whether the transaction may commit at `ts`, for the schema, the certifier and
    /// the log.
    fn admit(&self, ts: u64) -> Result<()> {
        let sink = self.db.sink.get();
        if let Err(error) = self.with(|txn_context| check_sets(txn_context, ts)) {
            if let Some(sink) = sink {
                sink.skip(ts);
            }
            return Err(error);
        }
        let interval = Interval {
            snapshot: self.snapshot(),
            limit: ts - 1,
            mine: self.status.get(),
        };
        if self.is_certified() && !self.with(|txn_context| certify(txn_context, interval)) {
            count(&self.db.shared(self.slot).failed_certifications);
            if let Some(sink) = sink {
                sink.skip(ts);
            }
            return Err(Error::Serialization);
        }
        match sink {
            None => Ok(()),
            Some(sink) => self.with(|txn_context| {
                let list = &txn_context.writes;
                sink.append(ts, &Writes { list })
            }),
        }
    }

    /// Takes all versions back.
    fn take_back(&mut self) {
        let _region = preemption::region();
        let status = self.status.replace(std::ptr::null_mut());
        // SAFETY: it is retired below.
        unsafe { &*status }.abort();
        self.with(|txn_context| {
            unsettle(txn_context);
            txn_context.retire(Retired::Status(status));
            txn_context.seal(&self.db.epochs);
        });
    }

    /// Leaves the slot.
    #[inline]
    fn close(&mut self) {
        self.with(|txn_context| {
            txn_context.clear();
            if txn_context.is_due() || self.db.surplus.has_some() {
                self.db.tidy(self.slot, self.tier, txn_context);
            }
            txn_context.account(self.db.shared(self.slot));
        });
        self.db.epochs.release(self.slot);
        // `drop` has nothing left to do.
        self.slot = usize::MAX;
    }
}

impl Drop for Transaction<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.slot == usize::MAX {
            return;
        }
        count(&self.db.shared(self.slot).aborts);
        if !self.status.get().is_null() {
            self.take_back();
        }
        self.close();
    }
}

/// Whether the schema is still, at `ts`, what the writes were made for (K1).
fn check_sets(txn_context: &TxnContext, ts: u64) -> Result<()> {
    let mut last = std::ptr::null();
    for write in &txn_context.writes {
        if std::ptr::eq(write.set, last) {
            continue;
        }
        last = write.set;
        if write.set().until.committed_by(ts) {
            return Err(write.set().table().changed());
        }
    }
    Ok(())
}

/// Whether what was read would read the same just before the commit.
fn certify(txn_context: &TxnContext, interval: Interval) -> bool {
    let same = |&(record, seen): &(Record, Option<Version>)| {
        record::view(record, interval.limit, interval.mine, false).version == seen
    };
    txn_context.reads.iter().all(same) && txn_context.node_set.is_unchanged(interval)
}

/// After the commit: versions learn their timestamp, what they replaced goes.
fn settle(txn_context: &mut TxnContext, ts: u64) {
    // The holds first (V4): when the tombstones are stamped below, others may
    // see them.
    for at in 0..txn_context.spans.len() {
        let SpanChange {
            index,
            entry,
            begins,
        } = txn_context.spans[at];
        if !begins {
            // SAFETY: it was found in this transaction, which is still open.
            let record = unsafe { entry.head() }.record;
            record::hold(record);
            txn_context.retire_span(Ended {
                index,
                entry,
                record,
            });
        }
    }
    for at in 0..txn_context.writes.len() {
        let write = &txn_context.writes[at];
        let (record, base, new) = (write.record, write.base, write.new);
        let table: *const TableInner = write.set().table();
        let on_tombstone = base.is_some_and(record::is_tombstone);
        if record::is_tombstone(new) && !on_tombstone {
            record::hold(record);
        }
        record::commit_version(new, ts);
        if record::is_tombstone(new) {
            txn_context.retire_tombstone(table, record);
        } else if on_tombstone {
            record::unhold(record);
        }
        if let Some(base) = base {
            debug_assert!(record::is_committed_before(base, ts), "E3");
            txn_context.retire_version(base);
        }
    }
}

/// After an abort: heads are as they were, records that were new are dead.
fn unsettle(txn_context: &mut TxnContext) {
    // The spans first: once a record is dead, another one may take its key, whose spans
    // would be counted by entries that lead to the dead one.
    for at in 0..txn_context.spans.len() {
        let SpanChange {
            index,
            entry,
            begins,
        } = txn_context.spans[at];
        if begins {
            txn_context.end_span(index, entry);
        }
    }
    for at in 0..txn_context.writes.len() {
        let write = &txn_context.writes[at];
        let (record, base, new) = (write.record, write.base, write.new);
        let table: *const TableInner = write.set().table();
        match base {
            None => {
                record::kill_own(record);
                // SAFETY: tables live as long as their database (K4).
                let removed = unsafe { &*table }.primary.remove(record, txn_context);
                assert!(removed, "a record is in the index until it is dead (V3)");
                txn_context.retire(Retired::Record(record));
            }
            Some(base) if record::is_tombstone(base) => {
                // A copy, so that nobody takes it for the one that was (V4).
                let copy = record::copy_tombstone(&mut txn_context.pool, base);
                txn_context.allocated(Version::size(0));
                record::replace_own(record, copy);
                txn_context.retire_version(base);
                txn_context.retire_tombstone(table, record);
            }
            Some(base) => record::replace_own(record, base),
        }
        txn_context.retire_version(new);
    }
}
