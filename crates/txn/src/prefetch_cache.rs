//! A transaction's prefetch cache: records that it need not look up again.
//!
//! `prefetch` descends the index to load a row into the CPU's cache, and finds its
//! record. A read or write of the row soon afterwards takes the record from here.
//!
//! ```text
//!   key ─► hash ─► (table, record): this table, this key? ─► the record
//!                                   else, or dead ─► the index
//! ```
//!
//! A record that was found in the index while the transaction is open stays alive
//! (E1). If it is not dead it is still in the index, as the only one with its key
//! (V3). So the cache gives the record that the index would give. Where there is no
//! row to be seen, the index is searched all the same, because a serializable
//! transaction has to enter the absent key in its node set.
//!
//! Known weakness: of two rows with the same hash only the later one is cached.

use crate::record::Record;
use crate::table::TableInner;

/// Entries; a power of two. Twice what one order of TPC-C prefetches.
const ENTRIES: usize = 64;

#[derive(Clone, Copy)]
struct Entry {
    /// Only compared.
    table: *const TableInner,
    record: Record,
}

/// The records that one transaction has prefetched.
pub(crate) struct PrefetchCache {
    /// None before the first use, since few transactions prefetch anything.
    entries: Vec<Option<Entry>>,
    is_empty: bool,
}

impl PrefetchCache {
    pub(crate) const fn new() -> PrefetchCache {
        PrefetchCache {
            entries: Vec::new(),
            is_empty: true,
        }
    }

    /// Adds a record that was found in this table's index.
    #[inline]
    pub(crate) fn add(&mut self, table: &TableInner, record: Record) {
        if self.entries.is_empty() {
            self.entries.resize(ENTRIES, None);
        }
        // SAFETY: it was found in the open transaction (E1).
        let at = hash(unsafe { record.bytes() });
        self.entries[at] = Some(Entry { table, record });
        self.is_empty = false;
    }

    /// The record with this key, if it is cached. It may be dead.
    #[inline]
    pub(crate) fn find(&self, table: &TableInner, key: &[u8]) -> Option<Record> {
        if self.is_empty {
            return None;
        }
        let Entry { table: of, record } = self.entries[hash(key)]?;
        // SAFETY: as above; entries are forgotten when the transaction ends.
        let same = std::ptr::eq(of, table) && unsafe { record.bytes() } == key;
        same.then_some(record)
    }

    /// Forgets everything: the transaction ends.
    pub(crate) fn clear(&mut self) {
        if !self.is_empty {
            self.entries.fill(None);
            self.is_empty = true;
        }
    }
}

/// The entry for a key. The ends of keys differ most.
#[inline]
fn hash(key: &[u8]) -> usize {
    let mut last = [0; 8];
    let length = key.len().min(8);
    last[8 - length..].copy_from_slice(&key[key.len() - length..]);
    let mixed = u64::from_be_bytes(last).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - ENTRIES.ilog2())) as usize
}
