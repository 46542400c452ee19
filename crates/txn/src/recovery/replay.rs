//! Changes on their way from a checkpoint or the log into the database.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::checkpoint::file::{self, CheckpointHeader, Unreadable};
use crate::log::format::TIMED_CHANGES;
use crate::log::record::Change;
use crate::log::{Disk, DurabilityError, Flaw};

/// Whether the bytes make sense to their reader.
pub(crate) type Check = Result<(), Flaw>;

/// What is being recovered.
pub(crate) trait Target {
    /// Why it cannot take what it is given, if that is not the file's fault.
    type Error: From<DurabilityError>;

    /// The table with this number has this encoded schema from here on.
    fn table(&mut self, table: u32, schema: &[u8]) -> Result<Check, Self::Error>;

    /// The table with this number is gone, if it was there, and its number not to be
    /// used again.
    fn drop(&mut self, table: u32) -> Result<(), Self::Error>;

    /// A transaction with this timestamp made this row what it is.
    fn put(&mut self, timestamp: u64, table: u32, row: &[u8]) -> Result<Check, Self::Error>;

    /// A transaction with this timestamp deleted the row with this key.
    fn delete(&mut self, timestamp: u64, table: u32, key: &[u8]) -> Result<Check, Self::Error>;
}

/// What has been replayed so far.
pub(super) struct Replay<'a, T> {
    pub(super) target: &'a mut T,
    /// All tables.
    pub(super) schemas: BTreeMap<u32, Vec<u8>>,
    /// What the checkpoint has, once it was read, the log need not repeat.
    pub(super) snapshot: Option<u64>,
}

/// Who wrote a change.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub(super) timestamp: u64,
    /// The version of its file.
    pub(super) version: u32,
}

impl<T: Target> Replay<'_, T> {
    pub(super) fn checkpoint(
        &mut self,
        disk: &dyn Disk,
        name: &str,
        header: &CheckpointHeader,
    ) -> Result<(), T::Error> {
        let io = DurabilityError::io("reading", disk.describe(name));
        let mut input = match disk.stream(name) {
            Ok(input) => input,
            Err(error) => return Err(io(error).into()),
        };
        let origin = Origin {
            timestamp: header.snapshot,
            version: header.version,
        };
        let result = file::read(&mut input, |change| match self.change(origin, change) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(flaw)) => Err(Ok(flaw)),
            Err(error) => Err(Err(error)),
        });
        match result {
            Ok(_) => {
                self.snapshot = Some(header.snapshot);
                Ok(())
            }
            Err(Unreadable::Reader(Err(error))) => Err(error),
            Err(Unreadable::Io(error)) => Err(io(error).into()),
            // It was whole a moment ago, so this is what it says.
            Err(Unreadable::Flaw(flaw) | Unreadable::Reader(Ok(flaw))) => {
                Err(DurabilityError::Damaged {
                    file: disk.describe(name),
                    offset: 0,
                    flaw,
                }
                .into())
            }
        }
    }

    /// A change of this origin.
    pub(super) fn change(
        &mut self,
        Origin { timestamp, version }: Origin,
        change: Change<'_>,
    ) -> Result<Check, T::Error> {
        match change {
            // A table may be in the checkpoint although its record is beyond, or the
            // other way round.
            Change::Table { table, schema } if version < TIMED_CHANGES => {
                match self.schemas.entry(table) {
                    Entry::Occupied(known) if known.get() == schema => Ok(Ok(())),
                    Entry::Occupied(_) => Ok(Err(Flaw::Contents)),
                    Entry::Vacant(vacant) => {
                        vacant.insert(schema.to_owned());
                        self.target.table(table, schema)
                    }
                }
            }
            _ if self.snapshot.is_some_and(|snapshot| timestamp <= snapshot) => Ok(Ok(())),
            Change::Table { table, schema } => {
                self.schemas.insert(table, schema.to_owned());
                self.target.table(table, schema)
            }
            Change::Drop { table } => {
                self.schemas.remove(&table);
                self.target.drop(table).map(Ok)
            }
            Change::Put { table, row } => self.target.put(timestamp, table, row),
            Change::Delete { table, key } => self.target.delete(timestamp, table, key),
        }
    }
}
