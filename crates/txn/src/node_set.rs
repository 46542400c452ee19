//! The node set of a serializable transaction, which finds phantoms (Silo,
//! Section 4.6).
//!
//! An entry is a leaf with its insert counter, and the range of keys that was
//! read from it. When the transaction commits, an unchanged counter proves that
//! no key was added. A changed one may come from the transaction's own insertions,
//! or from insertions elsewhere in the leaf; so the range is scanned again: no
//! record in it may have another version just before the commit than at the
//! snapshot.
//!
//! The bounds of all ranges lie in one buffer, so that an entry costs a few words
//! and its keys.

use crate::key::Span;
use crate::record::{self, Record};
use crate::table::{IndexInner, TableInner};
use crate::tree::{Direction, LeafScan, LeafSeen, Tree};
use crate::txn_context::LIST_KEPT;
use crate::txn_status::TxnStatus;

/// Which index was read. Tables live as long as their database.
#[derive(Clone, Copy)]
pub(crate) enum IndexRead {
    Primary(*const TableInner),
    Index(*const IndexInner),
}

impl IndexRead {
    /// Whether all that committed up to `limit` have maintained it: who came after it
    /// was dropped has not, and may have added rows in the range.
    fn is_maintained(self, limit: u64) -> bool {
        match self {
            IndexRead::Primary(_) => true,
            // SAFETY: indexes live as long as their database (K4).
            IndexRead::Index(index) => !unsafe { &*index }.ended.committed_by(limit),
        }
    }
}

struct Entry {
    leaf: LeafSeen,
    index: IndexRead,
    /// Where in the buffer the bounds begin.
    from: usize,
    /// Where the upper one begins.
    to: usize,
    /// Where it ends; `None` if there is none.
    end: Option<usize>,
}

/// The node set of a transaction.
#[derive(Default)]
pub(crate) struct NodeSet {
    entries: Vec<Entry>,
    bounds: Vec<u8>,
}

/// The transaction that commits, and the interval of timestamps in which others
/// must not have changed what it has read.
#[derive(Clone, Copy)]
pub(crate) struct Interval {
    pub(crate) snapshot: u64,
    /// The last timestamp before its own.
    pub(crate) limit: u64,
    pub(crate) mine: *const TxnStatus,
}

impl Interval {
    /// Whether no other transaction has committed a version of the record.
    pub(crate) fn is_unchanged(&self, record: Record) -> bool {
        record::view(record, self.limit, self.mine, false)
            == record::view(record, self.snapshot, self.mine, false)
    }
}

impl NodeSet {
    /// Bytes that an entry takes, with bounds of this length.
    pub(crate) fn entry_bytes(bounds: usize) -> usize {
        size_of::<Entry>() + bounds
    }

    /// Bytes of memory that it has.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.bounds.capacity()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.entries.shrink_to(LIST_KEPT);
        self.bounds.clear();
        self.bounds.shrink_to(LIST_KEPT);
    }

    /// Gives back the memory beyond what is in it.
    pub(crate) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
        self.bounds.shrink_to_fit();
    }

    /// Adds the part of the leaf from a key up to another, which was scanned.
    pub(crate) fn add_range(
        &mut self,
        index: IndexRead,
        leaf: LeafSeen,
        from: &[u8],
        to: Option<&[u8]>,
    ) {
        let start = self.bounds.len();
        self.bounds.extend_from_slice(from);
        let middle = self.bounds.len();
        let end = to.map(|to| {
            self.bounds.extend_from_slice(to);
            self.bounds.len()
        });
        self.entries.push(Entry {
            leaf,
            index,
            from: start,
            to: middle,
            end,
        });
    }

    /// Adds a key that was not found.
    pub(crate) fn add_absent(&mut self, index: IndexRead, leaf: LeafSeen, key: &[u8]) {
        self.add_range(index, leaf, key, None);
        // The next key after it.
        self.bounds.extend_from_slice(key);
        self.bounds.push(0);
        let last = self.entries.last_mut().expect("just pushed");
        last.end = Some(self.bounds.len());
    }

    /// Whether every range has the same records at both ends of the interval.
    pub(crate) fn is_unchanged(&self, interval: Interval) -> bool {
        let unchanged = |entry: &Entry| {
            entry.index.is_maintained(interval.limit)
                && (entry.leaf.is_unchanged() || self.rescan(entry, interval))
        };
        self.entries.iter().all(unchanged)
    }

    #[cold]
    fn rescan(&self, entry: &Entry, interval: Interval) -> bool {
        let to = entry.end.map(|end| &self.bounds[entry.to..end]);
        let span = Span::new(&self.bounds[entry.from..entry.to], to);
        match entry.index {
            IndexRead::Primary(table) => {
                // SAFETY: tables live as long as their database.
                let tree = unsafe { &(*table).primary };
                all(tree, span, |record| interval.is_unchanged(record))
            }
            IndexRead::Index(index) => {
                // SAFETY: as above.
                let tree = unsafe { &(*index).tree };
                all(tree, span, |found| {
                    // SAFETY: found while the transaction is open (T1).
                    interval.is_unchanged(unsafe { found.head() }.record)
                })
            }
        }
    }
}

/// Whether something holds for all entries of a range.
fn all<E>(tree: &Tree<E>, span: Span, holds: impl Fn(crate::thin::Thin<E>) -> bool) -> bool {
    let mut scan = LeafScan::new(span, Direction::Forward);
    while scan.next_leaf(tree, |_, _, _| {}) {
        while let Some(entry) = scan.next_here() {
            if !holds(entry) {
                return false;
            }
        }
    }
    true
}
