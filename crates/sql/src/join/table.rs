//! The hash table of a join, filled by many workers at a time, a few rows at a time.
//!
//! ```text
//!  heads          next (by row)      columns, keys (by row)
//!  ┌───┐          ┌───┐
//!  │ 3 │─────────▶│ 1 │ 3            rows are numbered from 1 in heads and next;
//!  │ 0 │          │ 0 │ 2            0 ends a chain
//!  │ 2 │   1 ◀────│ · │
//!  └───┘          └───┘
//! ```
//!
//! B1. A row is entered by one worker, once: `next[row] = swap(heads[slot], row)`. So
//!     chains never lose a row, whichever other workers enter rows there, and need no
//!     lock. (asserted in `enter`, unless the row was the first of its chain and others
//!     have followed)
//! B2. No chain is followed before the pipeline that fills the table has been
//!     finalized, which orders all of its writes before: relaxed accesses suffice.
//!     (asserted in `Tables::probed`)
//! B3. Under SQL's equality a row whose key has a NULL equals nothing and is in no
//!     chain; it is still a row of the table, for joins that want rows without a
//!     partner. (not asserted: `enter` tests just this)

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::{NullEquality, Result};
use datafusion::physical_plan::joins::utils::JoinKeyComparator;

/// Another one than exchanges split by: rows of one partition would share slots.
const SEED: RandomState = RandomState::with_seed(0x6a6f_696e);

/// Hashes of the rows of keys.
pub(super) fn hashes(keys: &[ArrayRef], rows: usize, buffer: &mut Vec<u64>) -> Result<()> {
    buffer.clear();
    buffer.resize(rows, 0);
    create_hashes(keys, &SEED, buffer)?;
    Ok(())
}

/// Which rows have a key that equals others.
pub(super) struct Matchable {
    /// Where a key is NULL, if such rows equal nothing.
    nulls: Option<NullBuffer>,
}

impl Matchable {
    pub(super) fn new(keys: &[ArrayRef], equality: NullEquality) -> Matchable {
        let nulls = match equality {
            NullEquality::NullEqualsNull => None,
            NullEquality::NullEqualsNothing => keys.iter().fold(None, |nulls, key| {
                NullBuffer::union(nulls.as_ref(), key.logical_nulls().as_ref())
            }),
        };
        Matchable {
            nulls: nulls.filter(|nulls| nulls.null_count() > 0),
        }
    }

    /// B3.
    pub(super) fn is(&self, row: usize) -> bool {
        self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
    }
}

/// The rows of one partition, by key.
pub(super) struct JoinTable {
    pub(super) columns: RecordBatch,
    pub(super) keys: Vec<ArrayRef>,
    heads: Box<[AtomicU32]>,
    next: Box<[AtomicU32]>,
    /// A second look at the hash before the keys are compared.
    tags: Box<[AtomicU32]>,
    /// Rows that have found a partner, if the join asks.
    visited: Box<[AtomicBool]>,
}

/// What a table takes beside its columns, per row: a head and a half on average,
/// `next`, a tag.
pub(super) const BYTES_PER_ROW: usize = 14;

/// Everything but the columns, which can be made before they are there. Not written to:
/// where memory comes from the system it is zero, and its pages are added when rows are
/// entered, which can be divided.
pub(super) struct Chains {
    heads: Box<[AtomicU32]>,
    next: Box<[AtomicU32]>,
    tags: Box<[AtomicU32]>,
    visited: Box<[AtomicBool]>,
}

impl Chains {
    pub(super) fn new(rows: usize, is_visited: bool) -> Chains {
        let words = |count: usize| {
            let words = Box::<[AtomicU32]>::new_zeroed_slice(count);
            // SAFETY: an atomic has the representation of its number, and 0 is one.
            unsafe { words.assume_init() }
        };
        let visited = Box::<[AtomicBool]>::new_zeroed_slice(if is_visited { rows } else { 0 });
        Chains {
            heads: words(rows.next_power_of_two().max(2)),
            next: words(rows),
            tags: words(rows),
            // SAFETY: likewise, and false is 0.
            visited: unsafe { visited.assume_init() },
        }
    }
}

impl JoinTable {
    pub(super) fn new(columns: RecordBatch, keys: Vec<ArrayRef>, chains: Chains) -> JoinTable {
        debug_assert_eq!(columns.num_rows(), chains.next.len());
        JoinTable {
            columns,
            keys,
            heads: chains.heads,
            next: chains.next,
            tags: chains.tags,
            visited: chains.visited,
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.columns.num_rows()
    }

    fn slot(&self, hash: u64) -> usize {
        // The high bits: tags are the low ones.
        (hash >> (64 - self.heads.len().trailing_zeros())) as usize
    }

    /// B1.
    pub(super) fn enter(&self, rows: Range<usize>, equality: NullEquality) -> Result<()> {
        let (from, count) = (rows.start, rows.len());
        let keys: Vec<ArrayRef> = self.keys.iter().map(|key| key.slice(from, count)).collect();
        let mut buffer = Vec::new();
        hashes(&keys, count, &mut buffer)?;
        let matchable = Matchable::new(&keys, equality);
        for (offset, hash) in buffer.iter().enumerate() {
            if matchable.is(offset) {
                let row = from + offset;
                self.tags[row].store(*hash as u32, Relaxed);
                let before = self.heads[self.slot(*hash)].swap(row as u32 + 1, Relaxed);
                debug_assert!(
                    before != row as u32 + 1 && self.next[row].load(Relaxed) == 0,
                    "B1: row {row} is entered twice"
                );
                self.next[row].store(before, Relaxed);
            }
        }
        Ok(())
    }

    /// The head of the chain that a hash belongs to.
    pub(super) fn head(&self, hash: u64) -> u32 {
        self.heads[self.slot(hash)].load(Relaxed)
    }

    /// A link of a chain: its row, whether its tag is the hash's, and what follows.
    pub(super) fn link(&self, link: u32, hash: u64) -> (usize, bool, u32) {
        let row = link as usize - 1;
        let is_same = self.tags[row].load(Relaxed) == hash as u32;
        (row, is_same, self.next[row].load(Relaxed))
    }

    pub(super) fn visit(&self, row: usize) {
        // Read first: many partners of one row would fight for its line.
        if !self.visited[row].load(Relaxed) {
            self.visited[row].store(true, Relaxed);
        }
    }

    pub(super) fn is_visited(&self, row: usize) -> bool {
        self.visited[row].load(Relaxed)
    }

    /// What compares this table's keys with others.
    pub(super) fn equal(&self, others: &[ArrayRef], equality: NullEquality) -> Result<Equal> {
        if let ([mine], [other]) = (self.keys.as_slice(), others)
            && mine.data_type() == &DataType::Int64
            && other.data_type() == &DataType::Int64
            && mine.null_count() == 0
            && other.null_count() == 0
        {
            return Ok(Equal::Int64(
                mine.as_primitive::<Int64Type>().clone(),
                other.as_primitive::<Int64Type>().clone(),
            ));
        }
        let options = vec![SortOptions::default(); others.len()];
        let comparator = JoinKeyComparator::new(&self.keys, others, &options, equality)?;
        Ok(Equal::Any(comparator))
    }
}

/// Compares keys of rows, one of the table and one of another batch.
pub(super) enum Equal {
    /// Most joins are of one number each.
    Int64(
        datafusion::arrow::array::Int64Array,
        datafusion::arrow::array::Int64Array,
    ),
    Any(JoinKeyComparator),
}

impl Equal {
    pub(super) fn is(&self, row: usize, other: usize) -> bool {
        match self {
            Equal::Int64(mine, others) => mine.value(row) == others.value(other),
            Equal::Any(comparator) => comparator.is_equal(row, other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::Arc;

    use datafusion::arrow::array::Int64Array;
    use datafusion::arrow::datatypes::{Field, Schema};

    fn keys(values: impl IntoIterator<Item = i64>) -> Vec<ArrayRef> {
        vec![Arc::new(Int64Array::from_iter_values(values))]
    }

    fn table(value: i64) -> JoinTable {
        let keys = keys([value]);
        let schema = Schema::new(vec![Field::new("key", DataType::Int64, false)]);
        let columns = RecordBatch::try_new(Arc::new(schema), keys.clone()).unwrap();
        let table = JoinTable::new(columns, keys, Chains::new(1, false));
        table.enter(0..1, NullEquality::NullEqualsNothing).unwrap();
        table
    }

    #[test]
    fn another_key_of_the_same_slot_and_tag_is_another_key() {
        // Among so many numbers two have the same tag, and half of these the same one of
        // two slots.
        let count = 400_000;
        let mut buffer = Vec::new();
        hashes(&keys(0..count), count as usize, &mut buffer).unwrap();
        let mut known = HashMap::new();
        let (one, other) = (0..)
            .zip(&buffer)
            .find_map(|(value, hash)| {
                let same = (*hash as u32, hash >> 63);
                known.insert(same, value).map(|before| (before, value))
            })
            .expect("two of 400 000");
        let table = table(one);
        let hash = buffer[other as usize];
        let (row, is_same, _) = table.link(table.head(hash), hash);
        assert!(is_same);
        let probe = keys([one, other]);
        let equal = table
            .equal(&probe, NullEquality::NullEqualsNothing)
            .unwrap();
        assert!(equal.is(row, 0));
        assert!(!equal.is(row, 1));
    }

    #[test]
    fn keys_that_equal_nothing_are_in_no_chain() {
        let nulls: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![None, Some(1)]))];
        let strict = Matchable::new(&nulls, NullEquality::NullEqualsNothing);
        assert!(!strict.is(0) && strict.is(1), "B3");
        let loose = Matchable::new(&nulls, NullEquality::NullEqualsNull);
        assert!(loose.is(0) && loose.is(1));
    }
}
