//! From files back to a database.
//!
//! ```text
//! checkpoint  ████████ all up to S          newest that is whole; else the one before
//! segments    ├─ 17 ─┤├─ 31 ─┤├─ 44 ─┤┆     from the one that the checkpoint names
//!                                     └ torn end, cut; the log goes on in a new one
//! ```
//!
//! 1. Files of ours that were not finished are removed.
//! 2. The newest checkpoint that is whole is replayed. It was made when an older
//!    one was there with the log from it on, so if it is damaged, the older one
//!    does, with more log.
//! 3. The log's transactions beyond the checkpoint are replayed in their order.
//!    Segments and batches are numbered, so whatever is missing shows.
//! 4. The end of the log is settled: what was torn is cut (`log::reader` says what
//!    that is), and what was not known to be synced when the last batch was written
//!    (G4) is *written again* in its place. These bytes were read, but may never have
//!    reached the disk: after a sync that failed, Linux still shows them from memory,
//!    until it does not (D3). In its place, because a disk that is full has no other
//!    (D4).
//! 5. Damaged checkpoints are set aside, and the log goes on in a new segment.
//!
//! - **V1** What is replayed is the database as of one timestamp, no earlier than
//!   any acknowledged commit; or there is an error, and nothing is changed but for
//!   step 1. (Not asserted: only the tests know what was acknowledged.)
//! - **V2** Recovery can itself be interrupted anywhere and begun again: of the last
//!   segment, what was torn goes, and everything else stays as it was read (D4); later
//!   segments are set aside before that. (Not asserted: the tests interrupt it at every
//!   operation.)
//!
//! What the system cannot read, because the medium is damaged, is damaged as well.
//!
//! Opened read-only, all of this is told and none of it done: files are only read, and
//! what would be removed, cut, written again or set aside is passed over. Step 5 is left
//! out, as there is no log. (The tests compare with what opening for writing finds, and
//! count the operations that change something.) Known weakness: what a process that was
//! killed had not synced is shown as well, and a power failure may take it back.
//!
//! With `salvage`, damage ends the log as a torn end does. The damaged file and
//! those behind it are kept under names that end in `.damaged`.

mod aside;
mod chain;
mod replay;
mod report;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use crate::checkpoint::file::{self, CheckpointHeader, Unreadable, checkpoint_number};
use crate::log::format::{SegmentHeader, VERSION, segment_number};
use crate::log::segment::UNFINISHED;
use crate::log::{Disk, DurabilityError, DurabilityOptions, Flaw, Start};
use aside::{DAMAGED, set_aside};
use chain::Chain;
use replay::Replay;
pub(crate) use replay::{Check, Target};
pub use report::{Cut, RecoveryReport};

/// Brings a database back.
///
/// # Errors
/// If what was promised cannot be kept (V1), or the target's.
pub(crate) fn recover<T: Target>(
    disk: &Arc<dyn Disk>,
    options: &DurabilityOptions,
    target: &mut T,
) -> Result<(Start, RecoveryReport), T::Error> {
    let began = Instant::now();
    let mut report = RecoveryReport::default();
    let names = disk.names();
    let names = names.map_err(DurabilityError::io("listing", disk.describe("")))?;
    let (unfinished, names): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| is_unfinished(name));
    let unneeded = unfinished.iter().filter(|_| !options.read_only);
    for name in unneeded {
        let removed = disk.remove(name);
        removed.map_err(DurabilityError::io("removing", disk.describe(name)))?;
    }
    let mut replay = Replay {
        target,
        schemas: BTreeMap::new(),
        snapshot: None,
    };
    let mut damaged = Vec::new();
    let checkpoint = newest_whole(&**disk, &names, &mut damaged)?;
    if let Some((name, header)) = &checkpoint {
        replay.checkpoint(&**disk, name, header)?;
        report.checkpoint = Some(header.snapshot);
    }
    let segments: Vec<u64> = names
        .iter()
        .filter_map(|name| segment_number(name))
        .collect();
    let chain = Chain::new(
        &**disk,
        options,
        segments,
        checkpoint.map(|(_, header)| header),
    )?;
    let end = chain.replay(&mut replay, &mut report)?;
    for name in damaged {
        let name = match options.read_only {
            true => disk.describe(name),
            false => set_aside(&**disk, name)?,
        };
        report.damaged_checkpoints.push(name);
    }
    report.durable = end.last;
    report.tables = replay.schemas.len() as u64;
    report.took = began.elapsed();
    let start = Start {
        header: SegmentHeader {
            version: VERSION,
            // Random enough to tell databases apart; nobody guesses against it.
            database: end
                .database
                .unwrap_or_else(|| RandomState::new().hash_one("")),
            first: end.next,
            after: end.logged,
        },
        last: end.last,
        closed: end.closed,
    };
    Ok((start, report))
}

/// Whether it is a segment, a checkpoint, or one of them that was being set aside, that
/// was not finished.
fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(UNFINISHED).is_some_and(|name| {
        let name = name.strip_suffix(DAMAGED).unwrap_or(name);
        segment_number(name).is_some() || checkpoint_number(name).is_some()
    })
}

/// The newest checkpoint that is whole; newer ones that are `damaged`.
fn newest_whole<'a>(
    disk: &dyn Disk,
    names: &'a [String],
    damaged: &mut Vec<&'a str>,
) -> Result<Option<(String, CheckpointHeader)>, DurabilityError> {
    let mut checkpoints: Vec<_> = names
        .iter()
        .filter_map(|name| Some((checkpoint_number(name)?, name)))
        .collect();
    checkpoints.sort();
    for (snapshot, name) in checkpoints.into_iter().rev() {
        let io = DurabilityError::io("reading", disk.describe(name));
        // Once for its checksums alone: a target cannot forget.
        let whole = disk
            .stream(name)
            .map_err(Unreadable::<Infallible>::from)
            .and_then(|mut input| file::read(&mut input, |_| Ok(())));
        match whole {
            Ok(header) if header.snapshot == snapshot => {
                return Ok(Some((name.clone(), header)));
            }
            Err(Unreadable::Io(error)) => return Err(io(error)),
            Err(Unreadable::Flaw(Flaw::Version(version))) => {
                let file = disk.describe(name);
                return Err(DurabilityError::Newer { file, version });
            }
            Err(Unreadable::Reader(never)) => match never {},
            Ok(_) | Err(Unreadable::Flaw(_)) => {
                damaged.push(name);
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
