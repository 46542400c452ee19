//! Unique indexes: no two rows have the same key.
//!
//! A writer that gives a row a key claims it ([`claims`](crate::claims)), and looks at
//! all records that the index has for the key:
//!
//! | the newest version of another record | the writer |
//! | --- | --- |
//! | committed, with the key | gets `UniqueViolation` |
//! | committed after its snapshot, with the key before or since | `Conflict` |
//! | of a running transaction, with the key before or since | `Conflict` |
//! | anything else | goes on |
//!
//! So the first who writes a key wins, as for rows, and the other is told at once
//! whether trying again may help. Read committed has no snapshot to conflict with. Who
//! goes on needs no certification for it: until it commits nobody else gets the key.
//! Whoever got `UniqueViolation` has read the row that has it, that the keys before it
//! in the order of the indexes are free, and the row that was to have them; and is
//! certified for all that.
//!
//! As in SQL, a key with a NULL in it is equal to none.

use std::sync::Arc;

use crate::claims::Claimed;
use crate::error::{Error, Result};
use crate::key::{KeyBuf, Span};
use crate::node_set::IndexRead;
use crate::record::{self, Record, Rival, View};
use crate::table::{IndexInner, IndexSet};
use crate::tree::{Direction, LeafScan};
use crate::txn::{Isolation, Transaction};

impl Transaction<'_> {
    /// Claims the unique keys that a row is to have and has not, if no other row has
    /// them. `own` is its primary key.
    pub(crate) fn claim<'t>(
        &self,
        set: &'t IndexSet,
        own: &[u8],
        before: Option<&[u8]>,
        row: &[u8],
    ) -> Result<Option<Claimed<'t>>> {
        let new_key = |index: &IndexInner| {
            let key = unique_key(index, row)?;
            let old = before.and_then(|before| unique_key(index, before));
            let is_kept = old.is_some_and(|old| old.as_slice() == key.as_slice());
            (!is_kept).then_some(key)
        };
        let keys = set.enforced.iter().enumerate();
        let keys = keys.filter_map(|(at, index)| Some((at, index, new_key(index)?)));
        let keys: Vec<_> = keys.collect();
        if keys.is_empty() {
            return Ok(None);
        }
        let bit =
            |at: usize, key: &KeyBuf| 1 << (crc32c::crc32c_append(at as u32, key.as_slice()) % 64);
        let bits = keys.iter().map(|(at, _, key)| bit(*at, key));
        let claimed = set
            .table()
            .claims
            .claim(bits.fold(0, |bits, bit| bits | bit));
        for (at, (_, index, key)) in keys.iter().enumerate() {
            if let Err(error) = self.check_unique(index, key, own) {
                let free = keys[..at].iter();
                free.for_each(|(_, index, key)| self.note_free(index, key));
                return Err(error);
            }
        }
        Ok(Some(claimed))
    }

    /// Remembers that no row has the key, which is still claimed: another one is not
    /// free, and the error names that one.
    #[cold]
    fn note_free(&self, index: &IndexInner, key: &KeyBuf) {
        if !self.is_certified() || self.has_failed() {
            return;
        }
        let mut scan = LeafScan::new(Span::prefix(key), Direction::Forward);
        while scan.next_leaf(&index.tree, |leaf, from, to| {
            self.note_scanned(IndexRead::Index(index), leaf, from, to);
        }) {
            while let Some(entry) = scan.next_here() {
                // SAFETY: found while the transaction is open (T1).
                self.see(unsafe { entry.head() }.record);
            }
        }
    }

    /// Whether no other row has the key, which the caller has claimed.
    fn check_unique(&self, index: &IndexInner, key: &KeyBuf, own: &[u8]) -> Result<()> {
        let mut scan = LeafScan::new(Span::prefix(key), Direction::Forward);
        while scan.next_leaf(&index.tree, |_, _, _| {}) {
            while let Some(entry) = scan.next_here() {
                // SAFETY: found while the transaction is open (T1).
                let record = unsafe { entry.head() }.record;
                // SAFETY: as above.
                if unsafe { record.bytes() } != own {
                    self.check_rival(index, key, record)?;
                }
            }
        }
        Ok(())
    }

    fn check_rival(&self, index: &IndexInner, key: &KeyBuf, record: Record) -> Result<()> {
        let has_key = |row: &[u8]| {
            let mut of_row = KeyBuf::new();
            index.key.of_row(row, &mut of_row);
            of_row.as_slice() == key.as_slice()
        };
        let (version, ts) = match record::rival(record, self.status.get(), has_key) {
            Rival::None => return Ok(()),
            Rival::Busy { writer } => {
                let below = writer.is_below();
                return Err(self.fail(Error::Conflict { below }));
            }
            Rival::Own => return Err(violation(index)),
            Rival::Committed(version, ts) => (version, ts),
        };
        let there = record::row_of(version).is_some_and(has_key);
        if ts > self.snapshot() && self.isolation != Isolation::ReadCommitted {
            let seen = record::view(record, self.snapshot(), self.status.get(), true).version;
            let was_there = seen.and_then(record::row_of).is_some_and(has_key);
            return match there || was_there {
                true => Err(self.fail(Error::Conflict { below: false })),
                false => Ok(()),
            };
        }
        if !there {
            return Ok(());
        }
        let (version, own) = (Some(version), false);
        self.note_read(record, View { version, own });
        Err(violation(index))
    }
}

fn violation(index: &IndexInner) -> Error {
    Error::UniqueViolation {
        table: Arc::clone(&index.table().name),
        index: Arc::clone(&index.name),
    }
}

/// The key of a row in a unique index, if it is equal to any.
pub(crate) fn unique_key(index: &IndexInner, row: &[u8]) -> Option<KeyBuf> {
    if index.key.has_null(row) {
        return None;
    }
    let mut key = KeyBuf::new();
    index.key.of_row(row, &mut key);
    Some(key)
}
