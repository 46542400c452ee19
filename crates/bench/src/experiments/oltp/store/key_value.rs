//! Key-value stores as tables: a row is a value, its columns side by side.

use super::{Change, Outcome, Session};

/// What such a store does.
pub(super) trait KeyValue {
    /// Writes a row, whether it is there or not.
    fn put(&self, key: &[u8], row: &[u8]) -> Outcome<()>;

    /// Appends a row, which is there, to `row`.
    fn get(&self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()>;

    /// Changes a column, in one transaction, and shows the row as it was: again each time
    /// that the transaction is tried again.
    fn change(&self, key: &[u8], change: Change<'_>, show: impl FnMut(&[u8])) -> Outcome<()>;

    /// Appends up to `count` rows from a key on to `rows`; answers with their number.
    fn range(&self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize>;
}

impl<S: KeyValue> Session for &S {
    fn insert(&mut self, key: &[u8], row: &[u8]) -> Outcome<()> {
        self.put(key, row)
    }

    fn read(&mut self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()> {
        row.clear();
        self.get(key, row)
    }

    fn update(&mut self, key: &[u8], change: Change<'_>) -> Outcome<()> {
        match change.is_whole() {
            true => self.put(key, change.value),
            false => self.change(key, change, |_| ()),
        }
    }

    fn read_and_update(
        &mut self,
        key: &[u8],
        change: Change<'_>,
        row: &mut Vec<u8>,
    ) -> Outcome<()> {
        self.change(key, change, |found| {
            row.clear();
            row.extend_from_slice(found);
        })
    }

    fn scan(&mut self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize> {
        rows.clear();
        self.range(from, count, rows)
    }
}
