//! LMDB on tmpfs, by the crate heed.
//!
//! Pages are written where they lie (`MDB_WRITEMAP`) and never synchronised; nothing is
//! read ahead, and memory is not cleared first. A reader's slot stays with its thread.

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};

use super::key_value::{KeyValue, Values};
use super::{Change, Failed, Outcome, Size, Store, Work};

/// An environment, whose unnamed database has the rows.
pub(super) struct Lmdb(Env);

/// The database as a thread has it.
struct Rows<'e> {
    env: &'e Env,
    rows: Database<'e, Bytes, Bytes>,
}

pub(super) fn version() -> String {
    let version = heed::lmdb_version();
    format!("{}.{}.{}", version.major, version.minor, version.patch)
}

impl Lmdb {
    pub(super) fn new(size: Size, dir: &Path) -> Outcome<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(size.memory_bytes());
        // SAFETY: the flags give up durability, and the file, which is this process's
        // own (`dir` is private), is never opened again.
        let env = unsafe {
            options.flags(
                EnvFlags::WRITE_MAP
                    | EnvFlags::NO_SYNC
                    | EnvFlags::NO_META_SYNC
                    | EnvFlags::NO_READ_AHEAD
                    | EnvFlags::NO_MEM_INIT,
            );
            options.open(dir)?
        };
        Ok(Lmdb(env))
    }
}

impl Store for Lmdb {
    fn with_session(&self, work: Work<'_>) -> Outcome<()> {
        let transaction = self.0.write_txn()?;
        let opened = self
            .0
            .create_databases_and_commit(transaction, |opener, transaction| {
                let rows = opener.create_database::<Bytes, Bytes>(transaction, None)?;
                heed::Result::Ok(CommitOrAbort::<_, ()>::Commit(rows))
            });
        let rows = opened?.unwrap_commit();
        work(&mut Values::of(Rows { env: &self.0, rows }))
    }
}

impl KeyValue for Rows<'_> {
    fn put(&mut self, key: &[u8], row: &[u8]) -> Outcome<()> {
        let mut transaction = self.env.write_txn()?;
        self.rows.put(&mut transaction, key, row)?;
        Ok(transaction.commit()?)
    }

    fn get(&mut self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()> {
        let transaction = self.env.read_txn()?;
        let found = self.rows.get(&transaction, key)?;
        row.extend_from_slice(found.ok_or_else(Failed::missing)?);
        Ok(())
    }

    fn change(
        &mut self,
        key: &[u8],
        change: Change<'_>,
        changed: &mut Vec<u8>,
        mut show: impl FnMut(&[u8]),
    ) -> Outcome<()> {
        let mut transaction = self.env.write_txn()?;
        let found = self.rows.get(&transaction, key)?;
        let found = found.ok_or_else(Failed::missing)?;
        show(found);
        // A page that is written moves what was found in it.
        let row = change.made_to(found, changed);
        self.rows.put(&mut transaction, key, row)?;
        Ok(transaction.commit()?)
    }

    fn range(&mut self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize> {
        let transaction = self.env.read_txn()?;
        let range = (Bound::Included(from), Bound::Unbounded);
        let mut seen = 0;
        for found in self.rows.range(&transaction, &range)?.take(count) {
            rows.extend_from_slice(found?.1);
            seen += 1;
        }
        Ok(seen)
    }
}
