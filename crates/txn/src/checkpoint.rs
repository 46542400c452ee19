//! Checkpoints: the database as of one timestamp, in one file.
//!
//! A checkpoint is a snapshot, read as any long reader reads, while transactions
//! go on. It has every transaction up to its timestamp and no other; the log has
//! them in the order of timestamps; so recovery replays the log from there, and
//! segments that end before it are no longer needed.
//!
//! 1. Take a snapshot, at timestamp S, with the catalog locked: so the tables that
//!    there are are those as of S (K2).
//! 2. Note which segments end at or before S.
//! 3. Write tables and rows into a file aside.
//! 4. Wait until the log is durable up to S. The log must not end before its
//!    checkpoint, or the checkpoint before would not lead beyond that end.
//! 5. Sync and rename: from now on it counts.
//! 6. Remove all checkpoints but the two newest, then segments that the older of
//!    the two does not need. The older one stands in if the newer is damaged.
//!
//! The log goes first: a checkpoint ends with an error rather than leave less of the disk
//! free than the log's next segment needs (G5). So while one is written no commit fails for
//! want of space, unless others fill the disk: the segment that is being written has its
//! room, and the next one can have it. What the log takes in between, the next block leaves
//! free again.
//!
//! A failure in 1 to 5 leaves everything as it was, and the file aside is removed:
//! it would keep from the log the space that the checkpoint could not get. One in 6
//! leaves files that the next checkpoint removes.
//!
//! Known weakness: the file is written as a whole each time. Its snapshot keeps
//! old versions in memory while it is written, as every long reader does.

pub(crate) mod file;

use crate::log::record::Change;
use crate::log::{DurabilityError, Log};
use file::{CheckpointHeader, CheckpointWriter, Unreadable};
use file::{checkpoint_name, checkpoint_number, read_header};

/// Checkpoints that are kept.
const KEPT: usize = 2;

/// Writes the checkpoint of a snapshot that is held meanwhile. `contents` calls what
/// it is given with all tables and rows. Its length in bytes.
///
/// # Errors
/// What could not be done, or the error of `contents`.
pub(crate) fn write<E: From<DurabilityError>>(
    log: &Log,
    snapshot: u64,
    contents: impl FnOnce(&mut dyn FnMut(Change<'_>) -> Result<(), E>) -> Result<(), E>,
) -> Result<u64, E> {
    let disk = log.disk();
    let header = log.plan_checkpoint(snapshot);
    let name = checkpoint_name(snapshot);
    let mut writer =
        CheckpointWriter::begin(disk, &name, &header, log.segment_room()).map_err(durability)?;
    contents(&mut |change| {
        let added = writer.add(&change);
        added.map_err(|failure| durability(failure).into())
    })?;
    log.flush(snapshot)?;
    let bytes = writer.finish().map_err(durability)?;
    prune(log)?;
    Ok(bytes)
}

/// Removes what is no longer needed.
fn prune(log: &Log) -> Result<(), DurabilityError> {
    let disk = log.disk();
    let names = disk.names();
    let mut names: Vec<_> = names
        .map_err(DurabilityError::io("listing", disk.describe("")))?
        .into_iter()
        .filter(|name| checkpoint_number(name).is_some())
        .collect();
    // Names sort as their snapshots.
    names.sort_unstable();
    let Some(older) = names.len().checked_sub(KEPT) else {
        return Ok(());
    };
    let first_needed = {
        let io = |error| DurabilityError::io("reading", disk.describe(&names[older]))(error);
        let mut input = disk.stream(&names[older]).map_err(io)?;
        match read_header::<std::convert::Infallible>(&mut input) {
            Ok(CheckpointHeader { first_needed, .. }) => first_needed,
            Err(Unreadable::Io(error)) => return Err(io(error)),
            // It is damaged, and of no use to anybody: the log stays as it is.
            Err(Unreadable::Flaw(_)) => return Ok(()),
            Err(Unreadable::Reader(never)) => match never {},
        }
    };
    for name in &names[..older] {
        let removed = disk.remove(name);
        removed.map_err(DurabilityError::io("removing", disk.describe(name)))?;
    }
    let named = disk.sync_names();
    named.map_err(DurabilityError::io("syncing", disk.describe("")))?;
    log.truncate(first_needed)
}

fn durability(failure: crate::log::Failure) -> DurabilityError {
    failure.into()
}
