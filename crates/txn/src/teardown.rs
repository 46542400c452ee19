//! Giving back the memory of tables and indexes that were dropped.
//!
//! ```text
//!  dropped ──► retired ──► torn ──► retired ──► some of it freed ──► retired ─┐
//!                 │          │          │               ▲                     │
//!                 └ no older transaction├───────────────┴─────────────────────┘
//!                                       └ nobody who may not know that it is torn
//! ```
//!
//! A table is not freed by those who drop it: transactions that began before may read
//! its rows, and what waits to be freed may lead to its records. So it is retired, as
//! everything is that has become unreachable, and freed a leaf at a time, so that
//! nobody whose turn it is to free something is held up for long.
//!
//! The second wait is for those who free. A tombstone or the end of a span that is
//! processed leads to a record or an entry, unless its table or index is *torn*. Who
//! processes one has claimed a slot before (E2), so when every slot was claimed later
//! than it was torn, everybody sees that it is (E1), and what is left belongs to whoever
//! has the piece.

use crate::key::Span;
use crate::preemption;
use crate::record::{Head, head_of};
use crate::surplus::{Limbo, Surplus};
use crate::sync::Relaxed;
use crate::table::{IndexInner, TableInner};
use crate::thin::Thin;
use crate::tree::{Direction, LeafScan, Tree};
use crate::txn_context::{Retired, TxnContext};

use crate::epoch::Epochs;

impl TxnContext {
    /// A dropped table's turn has come: tears it, or frees a part of it.
    #[cold]
    pub(crate) fn tear_table(&mut self, table: *const TableInner) {
        // SAFETY: tables live as long as their database (K4).
        let inner = unsafe { &*table };
        if inner.tear() {
            self.torn.push(Retired::Table(table));
            return;
        }
        let records = first_leaf(&inner.primary);
        for &record in &records {
            let removed = inner.primary.remove(record, self);
            assert!(removed, "nobody else uses a torn table");
            if let Head::Version(version) = head_of(record) {
                self.retire_version(version);
            }
            // Whatever had a hold on it knows that the table is torn (V4).
            // SAFETY: it is freed with this piece alone.
            unsafe { record.note() }.store(0, Relaxed);
            self.retire(Retired::Record(record));
        }
        if !records.is_empty() {
            self.torn.push(Retired::Table(table));
        }
    }

    /// The same for an index.
    #[cold]
    pub(crate) fn tear_index(&mut self, index: *const IndexInner) {
        // SAFETY: indexes live as long as their database (K4).
        let inner = unsafe { &*index };
        if inner.tear() {
            self.torn.push(Retired::Index(index));
            return;
        }
        let entries = first_leaf(&inner.tree);
        for &entry in &entries {
            let removed = inner.tree.remove(entry, self);
            assert!(removed, "nobody else uses a torn index");
            self.retire(Retired::Entry(entry));
        }
        if !entries.is_empty() {
            self.torn.push(Retired::Index(index));
        }
    }

    /// Retires what was torn again, so that its turn comes once more. In the surplus,
    /// where it does not depend on this slot's being used.
    pub(crate) fn pass_on(&mut self, surplus: &Surplus, epochs: &Epochs<TxnContext>) {
        if self.torn.is_empty() {
            return;
        }
        let stamp = epochs.stamp();
        let again: Limbo = self.torn.drain(..).map(|piece| (stamp, piece)).collect();
        surplus.leave(again, 0);
    }
}

/// The entries of the first leaf that has any.
fn first_leaf<E>(tree: &Tree<E>) -> Vec<Thin<E>> {
    let mut scan = LeafScan::new(Span::new(&[], None), Direction::Forward);
    let mut entries = Vec::new();
    while entries.is_empty() && scan.next_leaf(tree, |_, _, _| {}) {
        preemption::poll_point();
        entries.extend(std::iter::from_fn(|| scan.next_here()));
    }
    entries
}
