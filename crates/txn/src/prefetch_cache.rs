//! Rows that a transaction has announced, and need not look for again.
//!
//! `prefetch` goes down the index to ask for a row's memory, and finds its record.
//! What reads or changes the row soon afterwards takes the record from here.
//!
//! ```text
//!   key ─► hash ─► (table, record): the table's, with this key? ─► the record
//!                                   else, or dead ─► the index
//! ```
//!
//! A record that was found in the index while the transaction is open stays alive
//! (E1). If it is not dead it is still in the index, as the only one with its key
//! (V3). So what is found here is what the index would lead to; and where there is
//! no row to be seen, the index is asked all the same, because a serializable
//! transaction has to remember where there was none.
//!
//! Known weakness: of two rows with the same hash the one announced later counts.

use crate::record::Record;
use crate::table::TableInner;

/// Places; a power of two. Twice what one order announces.
const PLACES: usize = 64;

#[derive(Clone, Copy)]
struct Entry {
    /// Only compared.
    table: *const TableInner,
    record: Record,
}

/// What one transaction has announced.
pub(crate) struct Announced {
    /// None before the first use, since few transactions announce anything.
    places: Vec<Option<Entry>>,
    is_empty: bool,
}

impl Announced {
    pub(crate) const fn new() -> Announced {
        Announced {
            places: Vec::new(),
            is_empty: true,
        }
    }

    /// Remembers a record that was found in this table's index.
    #[inline]
    pub(crate) fn add(&mut self, table: &TableInner, record: Record) {
        if self.places.is_empty() {
            self.places.resize(PLACES, None);
        }
        // SAFETY: it was found in the open transaction (E1).
        let at = place(unsafe { record.bytes() });
        self.places[at] = Some(Entry { table, record });
        self.is_empty = false;
    }

    /// The record with this key, if it was announced. It may be dead.
    #[inline]
    pub(crate) fn find(&self, table: &TableInner, key: &[u8]) -> Option<Record> {
        if self.is_empty {
            return None;
        }
        let Entry { table: of, record } = self.places[place(key)]?;
        // SAFETY: as above; entries are forgotten when the transaction ends.
        let same = std::ptr::eq(of, table) && unsafe { record.bytes() } == key;
        same.then_some(record)
    }

    /// Forgets everything: the transaction ends.
    pub(crate) fn clear(&mut self) {
        if !self.is_empty {
            self.places.fill(None);
            self.is_empty = true;
        }
    }
}

/// Where a key's record is. The ends of keys differ most.
#[inline]
fn place(key: &[u8]) -> usize {
    let mut last = [0; 8];
    let length = key.len().min(8);
    last[8 - length..].copy_from_slice(&key[key.len() - length..]);
    let mixed = u64::from_be_bytes(last).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - PLACES.ilog2())) as usize
}
