//! Key-value stores as tables: a row is a value, its columns side by side.

use super::{Change, Outcome, Session};

/// What such a store does for one thread.
pub(super) trait KeyValue {
    /// Writes a row, whether it is there or not.
    fn put(&mut self, key: &[u8], row: &[u8]) -> Outcome<()>;

    /// Appends a row, which is there, to `row`.
    fn get(&mut self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()>;

    /// Changes a column, in one transaction, and shows the row as it was: again each time
    /// that the transaction is tried again. `changed` is memory for the row as it becomes.
    fn change(
        &mut self,
        key: &[u8],
        change: Change<'_>,
        changed: &mut Vec<u8>,
        show: impl FnMut(&[u8]),
    ) -> Outcome<()>;

    /// Appends up to `count` rows from a key on to `rows`; answers with their number.
    fn range(&mut self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize>;
}

/// A thread's session with such a store.
pub(super) struct Values<S> {
    store: S,
    /// The row that is written next, so that no change allocates it.
    changed: Vec<u8>,
}

impl<S> Values<S> {
    pub(super) fn of(store: S) -> Self {
        Values {
            store,
            changed: Vec::new(),
        }
    }
}

impl<S: KeyValue> Session for Values<S> {
    fn insert(&mut self, key: &[u8], row: &[u8]) -> Outcome<()> {
        self.store.put(key, row)
    }

    fn read(&mut self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()> {
        row.clear();
        self.store.get(key, row)
    }

    fn update(&mut self, key: &[u8], change: Change<'_>) -> Outcome<()> {
        match change.is_whole() {
            true => self.store.put(key, change.value),
            false => self.store.change(key, change, &mut self.changed, |_| ()),
        }
    }

    fn read_and_update(
        &mut self,
        key: &[u8],
        change: Change<'_>,
        row: &mut Vec<u8>,
    ) -> Outcome<()> {
        self.store.change(key, change, &mut self.changed, |found| {
            row.clear();
            row.extend_from_slice(found);
        })
    }

    fn scan(&mut self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize> {
        rows.clear();
        self.store.range(from, count, rows)
    }
}
